"""Attention of one head, from matrix products."""

from __future__ import annotations

import math

import torch

from course.specs.exercise import Case, Draw, Exercise, Tolerance
from course.specs.transformer_block.shared import HALF, PAGE, cancelling, steered, visible, widened


def reference(q, k, v):
    scores = widened(q) @ widened(k).T / math.sqrt(q.shape[-1])
    weights = scores.masked_fill(~visible(len(q), len(k)), -math.inf).softmax(-1)
    return (weights @ widened(v)).to(v.dtype)


def cases(draw: Draw) -> list[Case]:
    n, dim = draw.choice([5, 7, 11]), draw.choice([4, 6, 8])
    past = draw.choice([2, 3, 6])
    rising, falling = torch.linspace(-40, 110, n), torch.linspace(110, 20, n)
    tie = draw.randn(1, dim)
    q, late = steered(draw, n, rising, dim)
    q_falling, early = steered(draw, n, falling, dim)
    q_low, low = steered(draw, n, torch.full((n,), -130.0), dim)
    q_both, same = steered(draw, n, torch.full((n,), 110.0), dim)
    q_both[::2] *= -1  # every other query scores -110, so that one maximum cannot serve all rows
    half = torch.bfloat16
    q_half, close = steered(draw, 9, torch.full((9,), 240.0), 8, half, spread=0.1)
    return [
        Case((draw.randn(n, dim), draw.randn(n, dim), draw.randn(n, dim)), label=f"{n} tokens, no cache"),
        Case((draw.randn(3, dim), draw.randn(3 + past, dim), draw.randn(3 + past, dim)),
             label=f"3 new tokens after {past} earlier ones"),
        Case((draw.randn(1, dim) * 3, draw.randn(n, dim) * 3, draw.randn(n, dim)), label="one new token"),
        Case((draw.randn(1, dim), draw.randn(1, dim), draw.randn(1, dim)), label="a single token"),
        Case((q, late, draw.randn(n, dim)), label="scores from -40 to 110, the largest last"),
        Case((q_falling, early, draw.randn(n, dim)), label="scores up to 110, the largest first"),
        Case((q_low, low, draw.randn(n, dim)), label="every score near -130"),
        Case((q_both, same, draw.randn(n, dim)), label="one query scores near 110, the next near -110"),
        Case((draw.randn(4, dim), tie.repeat(4, 1), draw.randn(4, dim)), label="four equal keys"),
        Case((draw.strided(n, dim), draw.strided(n, dim), draw.strided(n, dim)), label="not contiguous in memory"),
        Case((draw.randn(n, dim, dtype=torch.float16), draw.randn(n, dim, dtype=torch.float16),
              draw.randn(n, dim, dtype=torch.float16)), label="fp16", tolerance=HALF),
        Case((q_half, close, draw.randn(9, 8, dtype=half)), label="bf16, scores close together near 240",
             tolerance=HALF),
        Case((*steered(draw, 4, torch.linspace(-40, 60, 301), dim, half), draw.randn(301, dim, dtype=half)),
             label="bf16, the last 4 of 301 tokens, the latest keys count most", tolerance=HALF),
        *(Case(cancelling(draw, 7, dim, dtype), label=f"{name}, values that nearly cancel", tolerance=HALF)
          for name, dtype in (("fp16", torch.float16), ("bf16", half))),
    ]


ATTENTION = Exercise(
    id="transformer_block.attention",
    title="Attention from scratch",
    signature="attention(q, k, v)",
    reference=reference,
    cases=cases,
    hints=(
        "Four lines: scores q @ k.T / sqrt(D); minus infinity where a query may not look; weights; weights @ v. "
        "Query i stands at position Tk - Tq + i.",
        "exp overflows beyond 88: subtract each row's maximum before it. It cancels in the division. "
        "Do all of it in fp32, from the product q @ k.T on, and return to v.dtype at the end.",
        "s = q.float() @ k.float().T / math.sqrt(D); s = s.masked_fill(later, -math.inf); "
        "e = torch.exp(s - s.amax(-1, keepdim=True)); w = e / e.sum(-1, keepdim=True)",
    ),
    section=f"{PAGE}#attention-from-scratch",
    points=3,
    core=True,
    difficulty=3,
    minutes=30,
    tolerance=Tolerance(c=64.0, K=16),
    denied=("softmax", "log_softmax", "softmin", "logsumexp", "scaled_dot_product_attention",
            "multi_head_attention_forward", "multiheadattention"),
    in_model=True,
)

ATTENTION.near_miss(
    "it takes exp of the scores as they are",
    {" - scores.amax(dim=-1, keepdim=True)": ""},
    says="exp overflows beyond 88, and underflows to 0/0 far below: subtract each row's maximum, which changes no "
    "weight.",
    section=f"{PAGE}#a-softmax-that-survives",
)

ATTENTION.near_miss(
    "one maximum is subtracted from all rows",
    {"scores.amax(dim=-1, keepdim=True)": "scores.max()"},
    says="A row that lies far below the largest score of the matrix underflows to 0/0. Each row needs its own "
    "maximum.",
    section=f"{PAGE}#a-softmax-that-survives",
)

ATTENTION.near_miss(
    "the mask starts at the first key",
    {" + len(k) - len(q)": ""},
    says="With more keys than queries the queries are the last tokens: query i stands at position Tk - Tq + i and "
    "sees all keys up to there.",
    section=f"{PAGE}#what-a-query-may-see",
)

ATTENTION.near_miss(
    "nothing is masked",
    {"scores = scores.masked_fill(torch.arange(len(k)) > position, -math.inf)\n": ""},
    says="Every query looks at later tokens too. Set those scores to minus infinity.",
    section=f"{PAGE}#what-a-query-may-see",
)

ATTENTION.near_miss(
    "a query does not see its own key",
    {"> position": ">= position"},
    says="A token sees itself and what came before. Hide keys strictly later than the query; otherwise the first "
    "row has nothing left and ends in 0/0.",
    section=f"{PAGE}#what-a-query-may-see",
)

ATTENTION.near_miss(
    "masked scores are set to 0",
    {"-math.inf": "0.0"},
    says="exp(0) is 1, so a hidden key still takes a share. Only minus infinity becomes weight 0.",
    section=f"{PAGE}#what-a-query-may-see",
)

ATTENTION.near_miss(
    "it masks after the softmax",
    {
        "scores = scores.masked_fill(torch.arange(len(k)) > position, -math.inf)\n": "",
        "return (weights": "weights = weights.masked_fill(torch.arange(len(k)) > position, 0.0)\nreturn (weights",
    },
    says="The hidden keys have already taken their share, so the weights no longer sum to 1. Mask the scores, "
    "before.",
    section=f"{PAGE}#what-a-query-may-see",
)

ATTENTION.near_miss(
    "the softmax runs over the queries",
    {"amax(dim=-1": "amax(dim=0", "sum(dim=-1": "sum(dim=0"},
    says="Each query spreads its attention over the keys: normalise along the last axis of [Tq, Tk].",
    section=f"{PAGE}#a-softmax-that-survives",
)

ATTENTION.near_miss(
    "the scores are not scaled",
    {" / math.sqrt(q.shape[-1])": ""},
    says="Divide q·k by √D: without it scores grow with the width of a head, and the softmax peaks.",
    section=f"{PAGE}#why-divide-by-d",
)

ATTENTION.near_miss(
    "the scores are divided by D",
    {"math.sqrt(q.shape[-1])": "q.shape[-1]"},
    says="A sum of D products grows with √D, not with D: divide by the root.",
    section=f"{PAGE}#why-divide-by-d",
)

ATTENTION.near_miss(
    "the scores are rounded to half precision",
    {"q.float() @ k.float().T": "(q @ k.T).float()"},
    says="Between 512 and 1,024, where q·k of the bf16 case lies, bf16 numbers are 4 apart. Go to fp32 before the "
    "product q @ k.T, not after it.",
    section=f"{PAGE}#a-softmax-that-survives",
)

ATTENTION.near_miss(
    "the maximum is taken before the mask",
    {
        "position = torch": "top = scores.amax(dim=-1, keepdim=True)\nposition = torch",
        "scores - scores.amax(dim=-1, keepdim=True)": "scores - top",
    },
    says="A hidden key may score far above all that a query may see, and then everything visible underflows to 0/0. "
    "Mask first, then take each row's maximum.",
    section=f"{PAGE}#a-softmax-that-survives",
)

ATTENTION.near_miss(
    "a masked score is a number such as -100",
    {"-math.inf": "-100.0"},
    says="Visible scores may lie near -130, and beside them -100 is large. Only minus infinity is below every score.",
    section=f"{PAGE}#what-a-query-may-see",
)

ATTENTION.near_miss(
    "the weights are rounded to half precision",
    {"(weights @ v.float())": "(weights.to(v.dtype) @ v)"},
    says="A weight of three digits times values of some hundreds is wrong by more than what is left when the values cancel. "
    "Mix in fp32 too, weights @ v.float(), and return to v.dtype once, at the end.",
    section=f"{PAGE}#a-softmax-that-survives",
)

ATTENTION.near_miss(
    "the scores are divided by the root of Tk",
    {"math.sqrt(q.shape[-1])": "math.sqrt(len(k))"},
    says="A score is a sum over the D channels of a head, whatever the number of keys: divide by √D, q.shape[-1].",
    section=f"{PAGE}#why-divide-by-d",
)

ATTENTION.near_miss(
    "positions are rounded to half precision",
    {"+ len(k) - len(q)": "+ (len(k) - len(q))\nposition = position.to(q.dtype)"},
    says="bf16 knows no odd number between 256 and 512: a query far into a text sees one key too many or too few. Positions "
    "are integers, and stay so.",
    section=f"{PAGE}#what-a-query-may-see",
)


@ATTENTION.alternate("one query at a time, over the keys it may see")
def attention(q, k, v):
    rows = []
    for i in range(len(q)):
        end = len(k) - len(q) + i + 1
        scores = (k[:end].double() @ q[i].double()) / q.shape[-1] ** 0.5
        weights = (scores - scores.max()).exp()
        rows.append((weights / weights.sum()) @ v[:end].double())
    return torch.stack(rows).to(v.dtype)


@ATTENTION.alternate("key by key, with a running maximum")
def attention(q, k, v):
    q32, k32, v32 = q.float() * q.shape[-1] ** -0.5, k.float(), v.float()
    position = torch.arange(len(q)) + len(k) - len(q)
    best = torch.full((len(q), 1), -math.inf)
    total, out = torch.zeros(len(q), 1), torch.zeros(len(q), v.shape[-1])
    for j in range(len(k)):
        score = (q32 @ k32[j])[:, None]
        score = torch.where(position[:, None] >= j, score, torch.tensor(-math.inf))
        new = torch.maximum(best, score)
        keep, weight = torch.exp(best - new), torch.exp(score - new)
        total, out, best = total * keep + weight, out * keep + weight * v32[j], new
    return (out / total).to(v.dtype)


@ATTENTION.alternate("with an additive mask and einsum")
def attention(q, k, v):
    scores = torch.einsum("qd,kd->qk", q.float(), k.float()) * q.shape[-1] ** -0.5
    mask = torch.full(scores.shape, -torch.inf).triu(diagonal=k.shape[0] - q.shape[0] + 1)
    scores = scores + mask
    scores = scores - scores.max(dim=1, keepdim=True).values
    weights = scores.exp()
    return torch.einsum("qk,kd->qd", weights, v.float()).div(weights.sum(1, keepdim=True)).type_as(v)
