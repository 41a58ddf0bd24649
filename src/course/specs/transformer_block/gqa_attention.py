"""Grouped-query attention."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from course.specs.exercise import Case, Draw, Exercise, Tolerance
from course.specs.transformer_block import attention
from course.specs.transformer_block.shared import HALF, PAGE, cancelling, steered


def reference(q, k, v):
    group = q.shape[1] // k.shape[1]
    heads = [attention.reference(q[:, h], k[:, h // group], v[:, h // group]) for h in range(q.shape[1])]
    return torch.stack(heads, dim=1)


def cases(draw: Draw) -> list[Case]:
    dim, n = draw.choice([4, 6]), draw.choice([5, 7])
    past = draw.choice([2, 4])

    def case(tq, tk, heads, kv_heads, label, dtype=torch.float32, scale=1.0):
        q = draw.randn(tq, heads, dim, dtype=dtype, scale=scale)
        k, v = (draw.randn(tk, kv_heads, dim, dtype=dtype, scale=s) for s in (scale, 1.0))
        return Case((q, k, v), label=label, tolerance=HALF if dtype == torch.bfloat16 else None)

    def extreme(scores, label, dtype=torch.float32, tolerance=None, queries=n):
        parts = [steered(draw, queries, scores, dim, dtype, 0.1) for _ in range(2)]
        q = torch.stack([parts[h // 2][0] for h in range(4)], dim=1)
        k = torch.stack([parts[0][1], parts[1][1]], dim=1)
        return Case((q, k, draw.randn(len(scores), 2, dim, dtype=dtype)), label=label, tolerance=tolerance)

    def cancelled(dtype):
        """Both heads of a group ask alike, so that the values cancel for both."""
        q, k, v = (torch.stack(heads, dim=1) for heads in zip(*(cancelling(draw, 7, dim, dtype) for _ in range(2))))
        return q.repeat_interleave(2, dim=1), k, v

    swapped = [draw.randn(heads, n, dim).transpose(0, 1) for heads in (6, 2, 2)]
    return [
        case(n, n, 6, 2, "6 query heads, 2 KV heads"),
        case(3, 3 + past, 9, 3, f"9 and 3 heads, 3 new tokens after {past}"),
        case(1, n, 4, 2, "one new token", scale=2.0),
        case(n, n, 3, 3, "as many KV heads as query heads (MHA)"),
        case(4, 4, 5, 1, "a single KV head (MQA)"),
        case(1, 1, 4, 2, "a single token"),
        extreme(torch.linspace(-40, 100, n), "scores from -40 to 100, the largest last"),
        extreme(torch.full((n,), -130.0), "every score near -130"),
        extreme(torch.full((n,), 240.0), "bf16, scores close together near 240", torch.bfloat16, HALF),
        Case(tuple(swapped), label="heads before tokens in memory"),
        case(n, n, 6, 2, "bf16", dtype=torch.bfloat16),
        extreme(torch.linspace(-40, 60, 301), "bf16, the last 4 of 301 tokens, the latest keys count most", torch.bfloat16,
                HALF, queries=4),
        *(Case(tuple(cancelled(dtype)), label=f"{name}, values that nearly cancel", tolerance=HALF)
          for name, dtype in (("fp16", torch.float16), ("bf16", torch.bfloat16))),
    ]


GQA = Exercise(
    id="transformer_block.gqa_attention",
    title="Grouped-query attention",
    signature="gqa_attention(q, k, v)",
    reference=reference,
    cases=cases,
    hints=(
        "All heads at once, or a loop over them. Query head h reads KV head h // group, with group = Hq / Hkv.",
        "Either copy each KV head group times in a row (repeat_interleave on the head axis), or give q an extra axis: "
        "[Tq, Hkv, group, D]. Scores and softmax in fp32; the mask is offset when Tk > Tq.",
        "g = q.unflatten(1, (Hkv, -1)); s = torch.einsum('qhgd,khd->hgqk', g.float(), k.float()) / sqrt(D); mask; "
        "softmax; torch.einsum('hgqk,khd->qhgd', w, v.float()).flatten(1, 2)",
    ),
    section=f"{PAGE}#nine-questions-three-answers",
    points=2,
    difficulty=3,
    minutes=20,
    tolerance=Tolerance(c=32.0, K=16),
    denied=("scaled_dot_product_attention", "multi_head_attention_forward", "multiheadattention"),
    in_model=True,
)

GQA.near_miss(
    "the KV heads are tiled",
    {"(num_kv_heads, -1))": "(-1, num_kv_heads)).transpose(1, 2)", "mixed.flatten": "mixed.transpose(1, 2).flatten"},
    says="Tiling gives K0 K1 K0 K1: query heads 0 and 1 must both read K0. Repeat each head in place.",
    section=f"{PAGE}#nine-questions-three-answers",
)

GQA.near_miss(
    "every head reads KV head 0",
    {" k.float()": " k[:, :1].expand_as(k).float()", " v.float()": " v[:, :1].expand_as(v).float()"},
    says="That is multi-query attention. Here each group of query heads has a KV head of its own.",
    section=f"{PAGE}#nine-questions-three-answers",
)

GQA.near_miss(
    "the scale is √hidden",
    {"math.sqrt(head_dim)": "math.sqrt(q.shape[1] * head_dim)"},
    says="A head's score is a sum of D products, whatever the number of heads: divide by √D.",
    section=f"{PAGE}#why-divide-by-d",
)

GQA.near_miss(
    "the mask starts at the first key",
    {" + len(k) - len(q)": ""},
    says="The queries are the last Tq of Tk tokens: shift the diagonal by Tk - Tq.",
    section=f"{PAGE}#what-a-query-may-see",
)

GQA.near_miss(
    "it takes exp of the scores as they are",
    {
        "mixed = torch": "weights = torch.exp(scores)\nmixed = torch",
        "scores.softmax(dim=-1)": "weights / weights.sum(dim=-1, keepdim=True)",
    },
    says="exp overflows beyond 88: subtract each row's maximum first, or let softmax do it.",
    section=f"{PAGE}#a-softmax-that-survives",
)

GQA.near_miss(
    "heads and tokens are mixed in the reshape",
    {"->qhgd": "->hgqd", "mixed.flatten(1, 2)": "mixed.reshape(q.shape)"},
    says="[Hq, Tq, D] reshaped to [Tq, Hq, D] cuts the memory elsewhere; only a transpose swaps the axes.",
    section=f"{PAGE}#nine-questions-three-answers",
)

GQA.near_miss(
    "V is tiled, K is not",
    {
        '"hgqk,khd->qhgd"': '"hgqk,khgd->qhgd"',
        " v.float()": " v.float().repeat(1, grouped.shape[2], 1).unflatten(1, (num_kv_heads, -1))",
    },
    says="K and V are shared in the same way: a head that reads K1 mixes the rows of V1.",
    section=f"{PAGE}#nine-questions-three-answers",
)

GQA.near_miss(
    "the scores are rounded to half precision",
    {"grouped, k.float())": "grouped.to(k.dtype), k)", "scores.masked_fill": "scores.float().masked_fill"},
    says="Scores near 240 are 1 apart in bf16. Go to fp32 before the product of q and k, as in your attention.",
    section=f"{PAGE}#a-softmax-that-survives",
)

GQA.near_miss(
    "nothing is masked",
    {"scores = scores.masked_fill(torch.arange(len(k)) > position, -math.inf)\n": ""},
    says="Every query looks at later tokens too. Set those scores to minus infinity.",
    section=f"{PAGE}#what-a-query-may-see",
)

GQA.near_miss(
    "masked scores are set to 0",
    {"-math.inf": "0.0"},
    says="exp(0) is 1, so a hidden key still takes a share. Only minus infinity becomes weight 0.",
    section=f"{PAGE}#what-a-query-may-see",
)

GQA.near_miss(
    "a masked score is a number such as -100",
    {"-math.inf": "-100.0"},
    says="Visible scores may lie near -130, and beside them -100 is large. Only minus infinity is below every score.",
    section=f"{PAGE}#what-a-query-may-see",
)

GQA.near_miss(
    "one maximum serves all rows",
    {
        "mixed = torch": "weights = torch.exp(scores - scores.max())\nmixed = torch",
        "scores.softmax(dim=-1)": "weights / weights.sum(dim=-1, keepdim=True)",
    },
    says="A row that lies far below the largest score underflows to 0/0. Each query of each head needs its own "
    "maximum, over the keys it may see.",
    section=f"{PAGE}#a-softmax-that-survives",
)

GQA.near_miss(
    "the softmax runs over the queries",
    {"softmax(dim=-1)": "softmax(dim=-2)"},
    says="Each query spreads its attention over the keys: normalise along the last axis of [heads, Tq, Tk].",
    section=f"{PAGE}#a-softmax-that-survives",
)

GQA.near_miss(
    "the weights are rounded to half precision",
    {"scores.softmax(dim=-1), v.float()": "scores.softmax(dim=-1).to(v.dtype), v"},
    says="A weight of three digits times values of some hundreds is wrong by more than what is left when the values cancel. "
    "Mix in fp32 too, and return to v.dtype once, at the end.",
    section=f"{PAGE}#a-softmax-that-survives",
)

GQA.near_miss(
    "the scores are divided by the root of Tk",
    {"math.sqrt(head_dim)": "math.sqrt(len(k))"},
    says="A score is a sum over the D channels of a head, whatever the number of keys: divide by √D.",
    section=f"{PAGE}#why-divide-by-d",
)


@GQA.alternate("a loop over heads and queries")
def gqa_attention(q, k, v):
    out = torch.empty_like(q)
    group = q.shape[1] // k.shape[1]
    for h in range(q.shape[1]):
        for i in range(len(q)):
            end = len(k) - len(q) + i + 1
            s = k[:end, h // group].double() @ q[i, h].double() / q.shape[-1] ** 0.5
            out[i, h] = (torch.softmax(s, 0) @ v[:end, h // group].double()).to(q.dtype)
    return out


@GQA.alternate("without copies, query heads grouped as rows")
def gqa_attention(q, k, v):
    tq, hq, dim = q.shape
    tk, hkv, _ = k.shape
    rows = q.float().transpose(0, 1).reshape(hkv, -1, dim)
    s = (rows @ k.float().permute(1, 2, 0)).view(hq, tq, tk) * dim**-0.5
    s = s + torch.full((tq, tk), -math.inf).triu(tk - tq + 1)
    w = F.softmax(s, dim=-1).view(hkv, -1, tk)
    return (w @ v.float().transpose(0, 1)).view(hq, tq, dim).transpose(0, 1).to(q.dtype)
