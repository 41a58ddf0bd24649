"""Exercises of chapter 03: attention from scratch, then every part of one transformer block."""

from __future__ import annotations

import contextlib
import math

import torch
import torch.nn.functional as F

from course.given import transformer_block as parts
from course.specs.exercise import PRELUDE, Build, Case, Draw, Exercise, Tolerance
from course.specs.transformer_block_kernels import KERNELS

PAGE = "03_transformer_block.html"
GIVEN = "transformer_block"
HALF = Tolerance(c=2.0, K=16)  # of cases in half precision: there eps alone is large
WITH_PARTS = PRELUDE + "\nfrom course.given import transformer_block as parts\n"


def _wide(x: torch.Tensor) -> torch.Tensor:
    """Statistics are computed in fp32 at least; in fp64 when the input is fp64."""
    return x if x.dtype == torch.float64 else x.float()


def _visible(num_queries: int, num_keys: int) -> torch.Tensor:
    """[Tq, Tk], True where query i, which stands at position Tk - Tq + i, may look."""
    position = torch.arange(num_queries)[:, None] + num_keys - num_queries
    return torch.arange(num_keys) <= position


# --- attention, one head ---------------------------------------------------------------------------------


def _attention_reference(q, k, v):
    scores = _wide(q) @ _wide(k).T / math.sqrt(q.shape[-1])
    weights = scores.masked_fill(~_visible(len(q), len(k)), -math.inf).softmax(-1)
    return (weights @ _wide(v)).to(v.dtype)


def _steered(draw: Draw, num_queries: int, scores: torch.Tensor, dim: int, dtype=torch.float32, spread: float = 0.2):
    """q and k whose scores q·k/√dim come out near ``scores`` [Tk], the same for every query."""
    direction = draw.randn(dim, dtype=torch.float64)
    direction = direction / direction.norm() * math.sqrt(dim)
    size = scores.abs().max().sqrt() / dim**0.25
    q = size * direction + spread * draw.randn(num_queries, dim, dtype=torch.float64)
    k = (scores / scores.abs().max() * size)[:, None] * direction + spread * draw.randn(len(scores), dim).double()
    return q.to(dtype), k.to(dtype)


def _attention_cases(draw: Draw) -> list[Case]:
    n, dim = draw.choice([5, 7, 11]), draw.choice([4, 6, 8])
    past = draw.choice([2, 3, 6])
    rising, falling = torch.linspace(-40, 110, n), torch.linspace(110, 20, n)
    tie = draw.randn(1, dim)
    q, late = _steered(draw, n, rising, dim)
    q_falling, early = _steered(draw, n, falling, dim)
    q_low, low = _steered(draw, n, torch.full((n,), -130.0), dim)
    q_both, same = _steered(draw, n, torch.full((n,), 110.0), dim)
    q_both[::2] *= -1  # every other query scores -110, so that one maximum cannot serve all rows
    half = torch.bfloat16
    q_half, close = _steered(draw, 9, torch.full((9,), 240.0), 8, half, spread=0.1)
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
    ]


def _by_head(answer):
    """The model's attention out of one that knows a single head: query head h reads KV head h // group."""

    def attention(q, k, v, scale, window=None):
        group = q.shape[1] // k.shape[1]
        heads = [answer(q[:, h], k[:, h // group], v[:, h // group]) for h in range(q.shape[1])]
        return torch.stack(heads, dim=1)

    return attention


def _attention_in_model(answer, checkpoint):
    from course.check.trial import Trial, swap

    heads = checkpoint.config.num_heads * checkpoint.config.num_layers
    return Trial(swap(attention=_by_head(answer)), note=f"called once for each of {heads} heads, at every step")


ATTENTION = Exercise(
    id="transformer_block.attention",
    title="Attention from scratch",
    signature="attention(q, k, v)",
    reference=_attention_reference,
    cases=_attention_cases,
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
    in_model=_attention_in_model,
)


@ATTENTION.near_miss("it takes exp of the scores as they are", section=f"{PAGE}#a-softmax-that-survives",
                     says="exp overflows beyond 88, and underflows to 0/0 far below: subtract each row's maximum, "
                          "which changes no weight.")
def attention(q, k, v):
    scores = q.float() @ k.float().T / math.sqrt(q.shape[-1])
    later = torch.ones(scores.shape, dtype=torch.bool).triu(len(k) - len(q) + 1)
    weights = torch.exp(scores.masked_fill(later, -math.inf))
    return (weights / weights.sum(-1, keepdim=True) @ v.float()).to(v.dtype)


@ATTENTION.near_miss("one maximum is subtracted from all rows", section=f"{PAGE}#a-softmax-that-survives",
                     says="A row that lies far below the largest score of the matrix underflows to 0/0. "
                          "Each row needs its own maximum.")
def attention(q, k, v):
    scores = q.float() @ k.float().T / math.sqrt(q.shape[-1])
    later = torch.ones(scores.shape, dtype=torch.bool).triu(len(k) - len(q) + 1)
    scores = scores.masked_fill(later, -math.inf)
    weights = torch.exp(scores - scores.max())
    return (weights / weights.sum(-1, keepdim=True) @ v.float()).to(v.dtype)


@ATTENTION.near_miss("the mask starts at the first key", section=f"{PAGE}#what-a-query-may-see",
                     says="With more keys than queries the queries are the last tokens: query i stands at position "
                          "Tk - Tq + i and sees all keys up to there.")
def attention(q, k, v):
    scores = q.float() @ k.float().T / math.sqrt(q.shape[-1])
    later = torch.ones(scores.shape, dtype=torch.bool).triu(1)
    return (scores.masked_fill(later, -math.inf).softmax(-1) @ v.float()).to(v.dtype)


@ATTENTION.near_miss("nothing is masked", section=f"{PAGE}#what-a-query-may-see",
                     says="Every query looks at later tokens too. Set those scores to minus infinity.")
def attention(q, k, v):
    scores = q.float() @ k.float().T / math.sqrt(q.shape[-1])
    return (scores.softmax(-1) @ v.float()).to(v.dtype)


@ATTENTION.near_miss("a query does not see its own key", section=f"{PAGE}#what-a-query-may-see",
                     says="A token sees itself and what came before. Hide keys strictly later than the query; otherwise "
                          "the first row has nothing left and ends in 0/0.")
def attention(q, k, v):
    scores = q.float() @ k.float().T / math.sqrt(q.shape[-1])
    later = torch.ones(scores.shape, dtype=torch.bool).triu(len(k) - len(q))
    return (scores.masked_fill(later, -math.inf).softmax(-1) @ v.float()).to(v.dtype)


@ATTENTION.near_miss("masked scores are set to 0", section=f"{PAGE}#what-a-query-may-see",
                     says="exp(0) is 1, so a hidden key still takes a share. Only minus infinity becomes weight 0.")
def attention(q, k, v):
    scores = q.float() @ k.float().T / math.sqrt(q.shape[-1])
    later = torch.ones(scores.shape, dtype=torch.bool).triu(len(k) - len(q) + 1)
    return (scores.masked_fill(later, 0.0).softmax(-1) @ v.float()).to(v.dtype)


@ATTENTION.near_miss("it masks after the softmax", section=f"{PAGE}#what-a-query-may-see",
                     says="The hidden keys have already taken their share, so the weights no longer sum to 1. "
                          "Mask the scores, before.")
def attention(q, k, v):
    scores = q.float() @ k.float().T / math.sqrt(q.shape[-1])
    later = torch.ones(scores.shape, dtype=torch.bool).triu(len(k) - len(q) + 1)
    return (scores.softmax(-1).masked_fill(later, 0.0) @ v.float()).to(v.dtype)


@ATTENTION.near_miss("the softmax runs over the queries", section=f"{PAGE}#a-softmax-that-survives",
                     says="Each query spreads its attention over the keys: normalise along the last axis of [Tq, Tk].")
def attention(q, k, v):
    scores = q.float() @ k.float().T / math.sqrt(q.shape[-1])
    later = torch.ones(scores.shape, dtype=torch.bool).triu(len(k) - len(q) + 1)
    return (scores.masked_fill(later, -math.inf).softmax(0) @ v.float()).to(v.dtype)


@ATTENTION.near_miss("the scores are not scaled", section=f"{PAGE}#why-divide-by-d",
                     says="Divide q·k by √D: without it scores grow with the width of a head, and the softmax peaks.")
def attention(q, k, v):
    scores = q.float() @ k.float().T
    later = torch.ones(scores.shape, dtype=torch.bool).triu(len(k) - len(q) + 1)
    return (scores.masked_fill(later, -math.inf).softmax(-1) @ v.float()).to(v.dtype)


@ATTENTION.near_miss("the scores are divided by D", section=f"{PAGE}#why-divide-by-d",
                     says="A sum of D products grows with √D, not with D: divide by the root.")
def attention(q, k, v):
    scores = q.float() @ k.float().T / q.shape[-1]
    later = torch.ones(scores.shape, dtype=torch.bool).triu(len(k) - len(q) + 1)
    return (scores.masked_fill(later, -math.inf).softmax(-1) @ v.float()).to(v.dtype)


@ATTENTION.near_miss("the scores are rounded to half precision", section=f"{PAGE}#a-softmax-that-survives",
                     says="Between 512 and 1,024, where q·k of the bf16 case lies, bf16 numbers are 4 apart. "
                          "Go to fp32 before the product q @ k.T, not after it.")
def attention(q, k, v):
    scores = (q @ k.T).float() / math.sqrt(q.shape[-1])
    later = torch.ones(scores.shape, dtype=torch.bool).triu(len(k) - len(q) + 1)
    return (scores.masked_fill(later, -math.inf).softmax(-1) @ v.float()).to(v.dtype)


@ATTENTION.near_miss("the maximum is taken before the mask", section=f"{PAGE}#a-softmax-that-survives",
                     says="A hidden key may score far above all that a query may see, and then everything visible "
                          "underflows to 0/0. Mask first, then take each row's maximum.")
def attention(q, k, v):
    scores = q.float() @ k.float().T / math.sqrt(q.shape[-1])
    top = scores.amax(dim=-1, keepdim=True)
    future = torch.ones(len(q), len(k), dtype=torch.bool).triu(len(k) - len(q) + 1)
    weights = torch.exp(scores.masked_fill(future, -math.inf) - top)
    return (weights / weights.sum(dim=-1, keepdim=True) @ v.float()).to(v.dtype)


@ATTENTION.near_miss("a masked score is a number such as -100", section=f"{PAGE}#what-a-query-may-see",
                     says="Visible scores may lie near -130, and beside them -100 is large. Only minus infinity is "
                          "below every score.")
def attention(q, k, v):
    scores = q.float() @ k.float().T / math.sqrt(q.shape[-1])
    future = torch.ones(len(q), len(k), dtype=torch.bool).triu(len(k) - len(q) + 1)
    scores = scores.masked_fill(future, -100.0)
    weights = torch.exp(scores - scores.amax(dim=-1, keepdim=True))
    return (weights / weights.sum(dim=-1, keepdim=True) @ v.float()).to(v.dtype)


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


# --- rms_norm --------------------------------------------------------------------------------------------


def _rms_norm_reference(x, weight, eps):
    wide = _wide(x)
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * scale).to(x.dtype) * weight


def _rms_norm_cases(draw: Draw) -> list[Case]:
    hidden = draw.choice([7, 13, 24])
    return [
        Case((draw.randn(5, hidden), draw.randn(hidden), 1e-5), label=f"5 rows of {hidden}"),
        Case((draw.randn(2, 3, hidden) + 4, draw.randn(hidden), 1e-5), label="two leading axes, mean far from 0"),
        Case((draw.randn(4, hidden, scale=1e-3), draw.randn(hidden), 1e-5), label="values so small that eps counts"),
        Case((draw.randn(4, hidden, scale=1e-3), draw.randn(hidden), 3e-6), label="so small, with another eps"),
        Case((draw.randn(3, hidden, scale=300, dtype=torch.float16), draw.randn(hidden, dtype=torch.float16), 1e-5),
             label="fp16, squares beyond its range"),
        Case((draw.randn(3, hidden, dtype=torch.bfloat16), draw.randn(hidden, dtype=torch.bfloat16), 1e-6),
             label="bf16"),
        Case((draw.strided(2, 6, hidden), draw.randn(hidden), 1e-5), label="two leading axes, not contiguous in memory"),
        Case((draw.randn(0, hidden), draw.randn(hidden), 1e-5), label="no rows"),
    ]


def _rms_norm_in_model(answer, checkpoint):
    from course.check.trial import Trial, swap

    return Trial(swap(rms_norm=answer))


RMS_NORM = Exercise(
    id="transformer_block.rms_norm",
    title="RMSNorm",
    signature="rms_norm(x, weight, eps)",
    reference=_rms_norm_reference,
    cases=_rms_norm_cases,
    hints=(
        "Three steps along the last axis: square, mean, divide by the root. Keep the axis, so that shapes broadcast.",
        "fp16 overflows at 65,504 and 300 squared is 90,000: do the statistics in fp32, then go back to x.dtype.",
        "wide = x.float(); y = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps); "
        "return y.to(x.dtype) * weight",
    ),
    section=f"{PAGE}#rmsnorm",
    points=2,
    core=True,
    difficulty=1,
    minutes=10,
    tolerance=Tolerance(c=8.0, K=24),
    denied=("rms_norm", "RMSNorm", "layer_norm"),
    in_model=_rms_norm_in_model,
)


@RMS_NORM.near_miss("it subtracts the mean", says="LayerNorm centres its input; RMSNorm leaves the mean where it is.")
def rms_norm(x, weight, eps):
    wide = x.float()
    wide = wide - wide.mean(-1, keepdim=True)
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


@RMS_NORM.near_miss("eps is outside the root", says="eps guards the mean square, so it is added under the root.")
def rms_norm(x, weight, eps):
    wide = x.float()
    return (wide / (wide.square().mean(-1, keepdim=True).sqrt() + eps)).to(x.dtype) * weight


@RMS_NORM.near_miss("the statistics stay in half precision",
                    says="Squares of large fp16 values overflow to infinity: compute the mean square in fp32.")
def rms_norm(x, weight, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


@RMS_NORM.near_miss("it sums where it should average", says="Divide by the number of elements: mean, not sum.")
def rms_norm(x, weight, eps):
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().sum(-1, keepdim=True) + eps)).to(x.dtype) * weight


@RMS_NORM.near_miss("it averages over the whole tensor", says="Every row has its own scale: reduce over the last axis.")
def rms_norm(x, weight, eps):
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean() + eps)).to(x.dtype) * weight


@RMS_NORM.near_miss("eps is a number of its own", says="Models differ in eps (1e-5, 1e-6): use the argument.")
def rms_norm(x, weight, eps):
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * weight


@RMS_NORM.near_miss("the weight is missing", says="Each channel has a scale of its own: multiply by weight at the end.")
def rms_norm(x, weight, eps):
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype)


@RMS_NORM.near_miss("one is added to the weight", says="Gemma stores weight - 1 and adds 1; this model's weight is the scale "
                    "itself.")
def rms_norm(x, weight, eps):
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * (1 + weight)


@RMS_NORM.alternate("by division, in fp64")
def rms_norm(x, weight, eps):
    wide = x.double()
    root = (wide.pow(2).sum(dim=-1, keepdim=True) / x.shape[-1] + eps) ** 0.5
    return (wide / root).to(x.dtype) * weight


# --- rope ------------------------------------------------------------------------------------------------


THETA = 10_000.0  # stands at the top of the answer's cell, and may differ from student to student


def _rope_reference(x, positions, theta=None, *, THETA=THETA):
    theta, wide = THETA if theta is None else theta, _wide(x)
    exponents = torch.arange(0, x.shape[-1], 2, dtype=wide.dtype) / x.shape[-1]
    angles = positions[:, None].to(wide.dtype) * theta**-exponents
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    first, second = wide.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1).to(x.dtype)


def _rope_cases(draw: Draw) -> list[Case]:
    heads, dim = draw.choice([2, 3]), draw.choice([8, 12])
    start = draw.int(5, 60)
    far = torch.cat([torch.arange(2) + draw.int(1000 * i, 1000 * i + 999) for i in range(3, 8)])
    half = torch.bfloat16
    return [
        Case((draw.randn(5, heads, dim), torch.arange(5), 10000.0), label="positions 0 to 4"),
        Case((draw.randn(4, heads, dim), torch.arange(4) + start, 10000.0), label=f"positions {start} to {start + 3}"),
        Case((draw.randn(1, heads, dim), torch.tensor([start]), 500000.0), label="one token, theta 500,000"),
        Case((draw.randn(6, heads, dim), torch.tensor([0, 1, 2, 3, 0, 1]) + draw.int(0, 9), 100000.0),
             label="two packed sequences, theta 100,000"),
        Case((draw.randn(4, 1, dim), draw.ints(0, 200, 4), 10000.0), label="positions in no order, one head"),
        Case((draw.strided(5, heads, dim), torch.arange(5) + 2, 100.0), label="not contiguous in memory"),
        Case((draw.randn(3, heads, 2), torch.arange(3) + 1, 10000.0), label="a single pair"),
        Case((draw.randn(10, heads, 12, dtype=half), far, 500000.0), label=f"bf16, positions from {int(far[0]):,}",
             tolerance=HALF),
        Case((draw.randn(3, heads, dim, dtype=torch.float16), torch.arange(3) + 40, 10000.0), label="fp16",
             tolerance=HALF),
        Case((draw.randn(0, heads, dim), torch.arange(0), 10000.0), label="no tokens"),
        Case((draw.randn(5, heads, dim), torch.arange(5) + start), label="without theta, which is then THETA"),
    ]


def _rope_in_model(answer, checkpoint):
    """The model hands cos and sin of every angle; the slowest pair, which never gets round, tells the position."""
    from course.check.trial import Trial, swap

    theta, slowest = checkpoint.config.rope_theta, float(checkpoint.model.rope_frequencies[-1])

    def apply_rope(q, k, cos, sin):
        positions = torch.atan2(sin[:, -1].double(), cos[:, -1].double()).div(slowest).round().long()
        return answer(q, positions, theta), answer(k, positions, theta)

    return Trial(swap(apply_rope=apply_rope))


ROPE = Exercise(
    id="transformer_block.rope",
    title="Rotary position embedding",
    signature="rope(x, positions, theta=THETA)",
    variants={"THETA": (THETA, 20_000.0, 30_000.0, 40_000.0, 50_000.0, 80_000.0)},
    reference=_rope_reference,
    cases=_rope_cases,
    hints=(
        "Three steps: a frequency for each of the D/2 pairs, an angle for each token and pair, a rotation of (a, b) "
        "to (a cos - b sin, a sin + b cos).",
        "Channel i is paired with channel i + D/2, and turns by positions[t] * theta**(-2i/D). "
        "Compute the angles in fp32 whatever x.dtype is.",
        "f = theta ** (-torch.arange(0, D, 2).float() / D); angle = (positions.float()[:, None] * f)[:, None]; "
        "a, b = x.float().chunk(2, -1); then torch.cat of the two halves, back to x.dtype",
    ),
    section=f"{PAGE}#rope",
    points=3,
    core=True,
    difficulty=3,
    minutes=25,
    tolerance=Tolerance(c=16.0, K=16),
    denied=("rotaryembedding", "rotary_embedding", "apply_rotary_pos_emb", "rotarypositionalembeddings"),
    in_model=_rope_in_model,
)


@ROPE.near_miss("it pairs neighbours", section=f"{PAGE}#which-two-channels-are-a-pair",
                says="Channels (2i, 2i + 1) are pairs in Meta's files and in GGUF. These weights pair i with i + D/2.")
def rope(x, positions, theta=THETA):
    wide = x.float()
    f = theta ** (-torch.arange(0, x.shape[-1], 2).float() / x.shape[-1])
    angle = (positions.float()[:, None] * f)[:, None]
    a, b = wide[..., 0::2], wide[..., 1::2]
    turned = torch.stack([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], dim=-1)
    return turned.flatten(-2).to(x.dtype)


@ROPE.near_miss("it counts the rows instead of reading the positions", section=f"{PAGE}#positions-come-from-outside",
                says="Row 0 need not stand at position 0: a decoded token comes after all that is cached. "
                     "Use the positions that are given.")
def rope(x, positions, theta=THETA):
    f = theta ** (-torch.arange(0, x.shape[-1], 2).float() / x.shape[-1])
    angle = (torch.arange(len(x)).float()[:, None] * f)[:, None]
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], dim=-1).to(x.dtype)


@ROPE.near_miss("the exponent lacks its 2", section=f"{PAGE}#fast-pairs-and-slow-pairs",
                says="Pair i turns by theta**(-2i/D): over the D/2 pairs the exponent runs from 0 almost to -1.")
def rope(x, positions, theta=THETA):
    f = theta ** (-torch.arange(x.shape[-1] // 2).float() / x.shape[-1])
    angle = (positions.float()[:, None] * f)[:, None]
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], dim=-1).to(x.dtype)


@ROPE.near_miss("theta is fixed at 10,000", section=f"{PAGE}#fast-pairs-and-slow-pairs",
                says="10,000 was the first choice; Llama 3 uses 500,000 and SmolLM2 100,000. Use the argument.")
def rope(x, positions, theta=THETA):
    f = 10000.0 ** (-torch.arange(0, x.shape[-1], 2).float() / x.shape[-1])
    angle = (positions.float()[:, None] * f)[:, None]
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], dim=-1).to(x.dtype)


@ROPE.near_miss("it turns the other way", section=f"{PAGE}#rope",
                says="(a, b) goes to (a cos - b sin, a sin + b cos). With the signs swapped distances change sign, "
                     "and trained weights expect one direction.")
def rope(x, positions, theta=THETA):
    f = theta ** (-torch.arange(0, x.shape[-1], 2).float() / x.shape[-1])
    angle = (positions.float()[:, None] * f)[:, None]
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat([a * angle.cos() + b * angle.sin(), b * angle.cos() - a * angle.sin()], dim=-1).to(x.dtype)


@ROPE.near_miss("the angles are computed in half precision", section=f"{PAGE}#positions-come-from-outside",
                says="bf16 knows no integer between 4,096 and 4,128: neighbouring tokens get one angle. "
                     "Compute positions * frequencies in fp32.")
def rope(x, positions, theta=THETA):
    f = theta ** (-torch.arange(0, x.shape[-1], 2).float() / x.shape[-1])
    angle = (positions.to(x.dtype)[:, None] * f.to(x.dtype))[:, None].float()
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], dim=-1).to(x.dtype)


@ROPE.near_miss("the frequencies are rounded to half precision", says="The error of a frequency grows with the position: at "
                "5,000 it is a large part of a turn. Libraries that cast a whole model to bf16 have rounded theirs so.")
def rope(x, positions, theta=THETA):
    frequencies = (theta ** (-torch.arange(0, x.shape[-1], 2).float() / x.shape[-1])).to(x.dtype).float()
    angles = (positions.float()[:, None] * frequencies)[:, None]
    cos, sin = angles.cos(), angles.sin()
    first, second = x.float().chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1).to(x.dtype)


@ROPE.near_miss("the result is laid out in neighbours", says="The turned pairs go back to where they came from: first halves, "
                "then second halves, torch.cat. stack and flatten would interleave them.")
def rope(x, positions, theta=THETA):
    frequencies = theta ** (-torch.arange(0, x.shape[-1], 2).float() / x.shape[-1])
    angles = (positions.float()[:, None] * frequencies)[:, None]
    cos, sin = angles.cos(), angles.sin()
    first, second = x.float().chunk(2, dim=-1)
    return torch.stack([first * cos - second * sin, first * sin + second * cos], dim=-1).flatten(-2).to(x.dtype)


@ROPE.alternate("frequencies as exp of a logarithm, by index")
def rope(x, positions, theta=THETA):
    half = x.shape[-1] // 2
    angles = positions.unsqueeze(1).float() * torch.exp(torch.arange(half) * (-math.log(theta) / half))
    cos, sin = torch.cos(angles)[:, None, :], torch.sin(angles)[:, None, :]
    out, a, b = torch.empty_like(x), x[..., :half].float(), x[..., half:].float()
    out[..., :half], out[..., half:] = a * cos - b * sin, a * sin + b * cos
    return out


@ROPE.near_miss("the angle is added", section=f"{PAGE}#rope",
                says="RoPE turns pairs; nothing is added. Adding sines and cosines is what the first transformer did.")
def rope(x, positions, theta=THETA):
    f = theta ** (-torch.arange(0, x.shape[-1], 2).float() / x.shape[-1])
    angle = (positions.float()[:, None] * f)[:, None]
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat([a + angle.sin(), b + angle.cos()], dim=-1).to(x.dtype)


@ROPE.alternate("as complex numbers")
def rope(x, positions, theta=THETA):
    half = x.shape[-1] // 2
    pairs = torch.complex(x[..., :half].double(), x[..., half:].double())
    f = theta ** (-2 * torch.arange(half, dtype=torch.float64) / x.shape[-1])
    turn = torch.polar(torch.ones(len(x), half, dtype=torch.float64), positions.double().outer(f))
    turned = pairs * turn[:, None, :]
    return torch.cat([turned.real, turned.imag], dim=-1).to(x.dtype)


@ROPE.alternate("with a half rotated by 90 degrees")
def rope(x, positions, theta=THETA):
    dim = x.shape[-1]
    f = 1.0 / theta ** (torch.arange(0, dim, 2).float() / dim)
    angle = torch.outer(positions.float(), f)
    cos = torch.cat([angle, angle], dim=-1).cos()[:, None].to(x.dtype)
    sin = torch.cat([angle, angle], dim=-1).sin()[:, None].to(x.dtype)
    quarter = torch.cat([-x[..., dim // 2 :], x[..., : dim // 2]], dim=-1)
    return x * cos + quarter * sin


# --- half-split and interleaved --------------------------------------------------------------------------


def _half_split_reference(q_proj, k_proj, num_heads, num_kv_heads):
    def sort_rows(weight, heads):
        dim = len(weight) // heads
        order = [h * dim + start + 2 * i for h in range(heads) for start in (0, 1) for i in range(dim // 2)]
        return weight[order]

    return sort_rows(q_proj, num_heads), sort_rows(k_proj, num_kv_heads)


def _half_split_cases(draw: Draw) -> list[Case]:
    def case(heads, kv_heads, dim, hidden, label, dtype=torch.float32):
        q, k = draw.randn(heads * dim, hidden, dtype=dtype), draw.randn(kv_heads * dim, hidden, dtype=dtype)
        return Case((q, k, heads, kv_heads), label=label)

    return [
        case(1, 1, 6, 5, "one head"),
        case(3, 3, 4, 5, "3 heads, 3 KV heads"),
        case(4, 2, 8, 7, "4 heads, 2 KV heads: 4 / 2 happens to be 2"),
        case(6, 3, 12, 5, "6 heads, 3 KV heads"),
        case(8, 2, 16, 3, "8 heads, 2 KV heads, bf16", torch.bfloat16),
        Case((draw.strided(4 * 6, 5), draw.strided(2 * 6, 5), 4, 2), label="not contiguous in memory"),
    ]


def _half_split_in_model(answer, checkpoint):
    """Put q_proj and k_proj into GGUF's order, let the answer undo it, run the model on the result."""
    import dataclasses

    from course.check.trial import Trial

    model, config = checkpoint.model, checkpoint.config

    def gguf(weight, heads):
        return weight.unflatten(0, (heads, 2, -1)).transpose(1, 2).reshape(weight.shape)

    disordered = [
        dataclasses.replace(
            layer, q_proj=gguf(layer.q_proj, config.num_heads), k_proj=gguf(layer.k_proj, config.num_kv_heads)
        )
        for layer in model.layers
    ]

    @contextlib.contextmanager
    def layers(new):
        before = model.layers
        model.layers = new
        try:
            yield
        finally:
            model.layers = before

    def sort(layer):
        q, k = answer(layer.q_proj, layer.k_proj, config.num_heads, config.num_kv_heads)
        return dataclasses.replace(layer, q_proj=q, k_proj=k)

    ids = torch.tensor(checkpoint.tokenizer.encode("The capital of France is"))
    right = model(ids)
    with layers(disordered):
        error = (model(ids) - right).abs().max()
    return Trial(lambda: layers([sort(layer) for layer in disordered]),
                 note=f"without your function, the same weights move a logit by {error:.0f}")


HALF_SPLIT = Exercise(
    id="transformer_block.half_split",
    title="From neighbouring pairs to half-split pairs",
    signature="half_split(q_proj, k_proj, num_heads, num_kv_heads)",
    reference=_half_split_reference,
    cases=_half_split_cases,
    hints=(
        "Only rows move, and only inside a head. Write down where the rows 0, 1, 2, 3 of a head of four go: "
        "0, 2, 1, 3.",
        "View the rows as [heads, D/2, 2]: pair, then which of the two. Half-split wants [heads, 2, D/2].",
        "def rows(w, h): return w.reshape(h, -1, 2, w.shape[-1]).transpose(1, 2).reshape(w.shape); "
        "K has num_kv_heads heads, not num_heads",
    ),
    section=f"{PAGE}#which-two-channels-are-a-pair",
    points=2,
    difficulty=3,
    minutes=20,
    in_model=_half_split_in_model,
)


@HALF_SPLIT.near_miss("K is cut into num_heads heads", section=f"{PAGE}#bugs-seen-in-real-engines",
                      says="Under GQA the key projection has num_kv_heads heads. A file loader did the same in 2024.")
def half_split(q_proj, k_proj, num_heads, num_kv_heads):
    def rows(w, heads):
        return w.reshape(heads, -1, 2, w.shape[-1]).transpose(1, 2).reshape(w.shape)

    return rows(q_proj, num_heads), rows(k_proj, num_heads)


@HALF_SPLIT.near_miss("K is cut into num_heads / num_kv_heads heads", section=f"{PAGE}#bugs-seen-in-real-engines",
                      says="That is the size of a group. With 64 heads and 8 KV heads both are 8, and nobody notices; "
                           "use num_kv_heads.")
def half_split(q_proj, k_proj, num_heads, num_kv_heads):
    def rows(w, heads):
        return w.reshape(heads, -1, 2, w.shape[-1]).transpose(1, 2).reshape(w.shape)

    return rows(q_proj, num_heads), rows(k_proj, num_heads // num_kv_heads)


@HALF_SPLIT.near_miss("it goes the other way",
                      says="This takes half-split rows to neighbours. Even rows of a head come first, then odd ones.")
def half_split(q_proj, k_proj, num_heads, num_kv_heads):
    def rows(w, heads):
        return w.reshape(heads, 2, -1, w.shape[-1]).transpose(1, 2).reshape(w.shape)

    return rows(q_proj, num_heads), rows(k_proj, num_kv_heads)


@HALF_SPLIT.near_miss("it sorts across heads",
                      says="Even rows of the whole matrix first mixes the heads. Rows move only inside their own head.")
def half_split(q_proj, k_proj, num_heads, num_kv_heads):
    return torch.cat([q_proj[0::2], q_proj[1::2]]), torch.cat([k_proj[0::2], k_proj[1::2]])


@HALF_SPLIT.near_miss("K is left as it was",
                      says="Queries and keys are both rotated, so both need their rows in the new order.")
def half_split(q_proj, k_proj, num_heads, num_kv_heads):
    q = q_proj.reshape(num_heads, -1, 2, q_proj.shape[-1]).transpose(1, 2).reshape(q_proj.shape)
    return q, k_proj.clone()


@HALF_SPLIT.alternate("head by head, even rows then odd rows")
def half_split(q_proj, k_proj, num_heads, num_kv_heads):
    def rows(w, heads):
        return torch.cat([part[start::2] for part in w.chunk(heads) for start in (0, 1)])

    return [rows(q_proj, num_heads), rows(k_proj, num_kv_heads)]


# --- grouped-query attention -----------------------------------------------------------------------------


def _gqa_reference(q, k, v):
    group = q.shape[1] // k.shape[1]
    heads = [_attention_reference(q[:, h], k[:, h // group], v[:, h // group]) for h in range(q.shape[1])]
    return torch.stack(heads, dim=1)


def _gqa_cases(draw: Draw) -> list[Case]:
    dim, n = draw.choice([4, 6]), draw.choice([5, 7])
    past = draw.choice([2, 4])

    def case(tq, tk, heads, kv_heads, label, dtype=torch.float32, scale=1.0):
        q = draw.randn(tq, heads, dim, dtype=dtype, scale=scale)
        k, v = (draw.randn(tk, kv_heads, dim, dtype=dtype, scale=s) for s in (scale, 1.0))
        return Case((q, k, v), label=label, tolerance=HALF if dtype == torch.bfloat16 else None)

    def steered(scores, label, dtype=torch.float32, tolerance=None):
        parts = [_steered(draw, n, scores, dim, dtype, 0.1) for _ in range(2)]
        q = torch.stack([parts[h // 2][0] for h in range(4)], dim=1)
        k = torch.stack([parts[0][1], parts[1][1]], dim=1)
        return Case((q, k, draw.randn(n, 2, dim, dtype=dtype)), label=label, tolerance=tolerance)

    swapped = [draw.randn(heads, n, dim).transpose(0, 1) for heads in (6, 2, 2)]
    return [
        case(n, n, 6, 2, "6 query heads, 2 KV heads"),
        case(3, 3 + past, 9, 3, f"9 and 3 heads, 3 new tokens after {past}"),
        case(1, n, 4, 2, "one new token", scale=2.0),
        case(n, n, 3, 3, "as many KV heads as query heads (MHA)"),
        case(4, 4, 5, 1, "a single KV head (MQA)"),
        case(1, 1, 4, 2, "a single token"),
        steered(torch.linspace(-40, 100, n), "scores from -40 to 100, the largest last"),
        steered(torch.full((n,), -130.0), "every score near -130"),
        steered(torch.full((n,), 240.0), "bf16, scores close together near 240", torch.bfloat16, HALF),
        Case(tuple(swapped), label="heads before tokens in memory"),
        case(n, n, 6, 2, "bf16", dtype=torch.bfloat16),
    ]


def _gqa_in_model(answer, checkpoint):
    from course.check.trial import Trial, swap

    return Trial(swap(attention=lambda q, k, v, scale, window=None: answer(q, k, v)))


GQA = Exercise(
    id="transformer_block.gqa_attention",
    title="Grouped-query attention",
    signature="gqa_attention(q, k, v)",
    reference=_gqa_reference,
    cases=_gqa_cases,
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
    in_model=_gqa_in_model,
)


@GQA.near_miss("the KV heads are tiled", section=f"{PAGE}#nine-questions-three-answers",
               says="Tiling gives K0 K1 K0 K1: query heads 0 and 1 must both read K0. Repeat each head in place.")
def gqa_attention(q, k, v):
    k, v = (t.repeat(1, q.shape[1] // k.shape[1], 1).float() for t in (k, v))
    s = torch.einsum("qhd,khd->hqk", q.float(), k) / math.sqrt(q.shape[-1])
    later = torch.ones(s.shape[1:], dtype=torch.bool).triu(len(k) - len(q) + 1)
    return torch.einsum("hqk,khd->qhd", s.masked_fill(later, -math.inf).softmax(-1), v).to(q.dtype)


@GQA.near_miss("every head reads KV head 0", section=f"{PAGE}#nine-questions-three-answers",
               says="That is multi-query attention. Here each group of query heads has a KV head of its own.")
def gqa_attention(q, k, v):
    k, v = (t[:, :1].expand(-1, q.shape[1], -1).float() for t in (k, v))
    s = torch.einsum("qhd,khd->hqk", q.float(), k) / math.sqrt(q.shape[-1])
    later = torch.ones(s.shape[1:], dtype=torch.bool).triu(len(k) - len(q) + 1)
    return torch.einsum("hqk,khd->qhd", s.masked_fill(later, -math.inf).softmax(-1), v).to(q.dtype)


@GQA.near_miss("the scale is √hidden", section=f"{PAGE}#why-divide-by-d",
               says="A head's score is a sum of D products, whatever the number of heads: divide by √D.")
def gqa_attention(q, k, v):
    k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], dim=1).float() for t in (k, v))
    s = torch.einsum("qhd,khd->hqk", q.float(), k) / math.sqrt(q.shape[1] * q.shape[2])
    later = torch.ones(s.shape[1:], dtype=torch.bool).triu(len(k) - len(q) + 1)
    return torch.einsum("hqk,khd->qhd", s.masked_fill(later, -math.inf).softmax(-1), v).to(q.dtype)


@GQA.near_miss("the mask starts at the first key", section=f"{PAGE}#what-a-query-may-see",
               says="The queries are the last Tq of Tk tokens: shift the diagonal by Tk - Tq.")
def gqa_attention(q, k, v):
    k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], dim=1).float() for t in (k, v))
    s = torch.einsum("qhd,khd->hqk", q.float(), k) / math.sqrt(q.shape[-1])
    later = torch.ones(s.shape[1:], dtype=torch.bool).triu(1)
    return torch.einsum("hqk,khd->qhd", s.masked_fill(later, -math.inf).softmax(-1), v).to(q.dtype)


@GQA.near_miss("it takes exp of the scores as they are", section=f"{PAGE}#a-softmax-that-survives",
               says="exp overflows beyond 88: subtract each row's maximum first, or let softmax do it.")
def gqa_attention(q, k, v):
    k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], dim=1).float() for t in (k, v))
    s = torch.einsum("qhd,khd->hqk", q.float(), k) / math.sqrt(q.shape[-1])
    later = torch.ones(s.shape[1:], dtype=torch.bool).triu(len(k) - len(q) + 1)
    w = torch.exp(s.masked_fill(later, -math.inf))
    return torch.einsum("hqk,khd->qhd", w / w.sum(-1, keepdim=True), v).to(q.dtype)


@GQA.near_miss("heads and tokens are mixed in the reshape", section=f"{PAGE}#nine-questions-three-answers",
               says="[Hq, Tq, D] reshaped to [Tq, Hq, D] cuts the memory elsewhere; only a transpose swaps the axes.")
def gqa_attention(q, k, v):
    k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], dim=1).float() for t in (k, v))
    s = torch.einsum("qhd,khd->hqk", q.float(), k) / math.sqrt(q.shape[-1])
    later = torch.ones(s.shape[1:], dtype=torch.bool).triu(len(k) - len(q) + 1)
    out = torch.einsum("hqk,khd->hqd", s.masked_fill(later, -math.inf).softmax(-1), v)
    return out.reshape(q.shape).to(q.dtype)


@GQA.near_miss("V is tiled, K is not", section=f"{PAGE}#nine-questions-three-answers",
               says="K and V are shared in the same way: a head that reads K1 mixes the rows of V1.")
def gqa_attention(q, k, v):
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1).float(), v.repeat(1, group, 1).float()
    s = torch.einsum("qhd,khd->hqk", q.float(), k) / math.sqrt(q.shape[-1])
    later = torch.ones(s.shape[1:], dtype=torch.bool).triu(len(k) - len(q) + 1)
    return torch.einsum("hqk,khd->qhd", s.masked_fill(later, -math.inf).softmax(-1), v).to(q.dtype)


@GQA.near_miss("the scores are rounded to half precision", section=f"{PAGE}#a-softmax-that-survives",
               says="Scores near 240 are 1 apart in bf16. Go to fp32 before the product of q and k, as in your attention.")
def gqa_attention(q, k, v):
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    scores = torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(q.shape[-1])
    scores = scores.float()
    future = torch.ones(len(q), len(k), dtype=torch.bool).triu(len(k) - len(q) + 1)
    weights = scores.masked_fill(future, -math.inf).softmax(dim=-1)
    return torch.einsum("hqk,khd->qhd", weights, v.float()).to(v.dtype)


@GQA.near_miss("nothing is masked", section=f"{PAGE}#what-a-query-may-see",
               says="Every query looks at later tokens too. Set those scores to minus infinity.")
def gqa_attention(q, k, v):
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    scores = torch.einsum("qhd,khd->hqk", q.float(), k.float()) / math.sqrt(q.shape[-1])
    weights = scores.softmax(dim=-1)
    return torch.einsum("hqk,khd->qhd", weights, v.float()).to(v.dtype)


@GQA.near_miss("masked scores are set to 0", section=f"{PAGE}#what-a-query-may-see",
               says="exp(0) is 1, so a hidden key still takes a share. Only minus infinity becomes weight 0.")
def gqa_attention(q, k, v):
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    scores = torch.einsum("qhd,khd->hqk", q.float(), k.float()) / math.sqrt(q.shape[-1])
    future = torch.ones(len(q), len(k), dtype=torch.bool).triu(len(k) - len(q) + 1)
    weights = scores.masked_fill(future, 0.0).softmax(dim=-1)
    return torch.einsum("hqk,khd->qhd", weights, v.float()).to(v.dtype)


@GQA.near_miss("a masked score is a number such as -100", section=f"{PAGE}#what-a-query-may-see",
               says="Visible scores may lie near -130, and beside them -100 is large. Only minus infinity is below "
                    "every score.")
def gqa_attention(q, k, v):
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    scores = torch.einsum("qhd,khd->hqk", q.float(), k.float()) / math.sqrt(q.shape[-1])
    future = torch.ones(len(q), len(k), dtype=torch.bool).triu(len(k) - len(q) + 1)
    weights = scores.masked_fill(future, -100.0).softmax(dim=-1)
    return torch.einsum("hqk,khd->qhd", weights, v.float()).to(v.dtype)


@GQA.near_miss("one maximum serves all rows", section=f"{PAGE}#a-softmax-that-survives",
               says="A row that lies far below the largest score underflows to 0/0. Each query of each head needs "
                    "its own maximum, over the keys it may see.")
def gqa_attention(q, k, v):
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    scores = torch.einsum("qhd,khd->hqk", q.float(), k.float()) / math.sqrt(q.shape[-1])
    future = torch.ones(len(q), len(k), dtype=torch.bool).triu(len(k) - len(q) + 1)
    weights = torch.exp(scores.masked_fill(future, -math.inf) - scores.masked_fill(future, -math.inf).max())
    weights = weights / weights.sum(dim=-1, keepdim=True)
    return torch.einsum("hqk,khd->qhd", weights, v.float()).to(v.dtype)


@GQA.near_miss("the softmax runs over the queries", section=f"{PAGE}#a-softmax-that-survives",
               says="Each query spreads its attention over the keys: normalise along the last axis of [heads, Tq, "
                    "Tk].")
def gqa_attention(q, k, v):
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    scores = torch.einsum("qhd,khd->hqk", q.float(), k.float()) / math.sqrt(q.shape[-1])
    future = torch.ones(len(q), len(k), dtype=torch.bool).triu(len(k) - len(q) + 1)
    weights = scores.masked_fill(future, -math.inf).softmax(dim=-2)
    return torch.einsum("hqk,khd->qhd", weights, v.float()).to(v.dtype)


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


# --- swiglu ----------------------------------------------------------------------------------------------


def _swiglu_reference(gate, up):
    wide = _wide(gate)
    return (wide * torch.sigmoid(wide) * _wide(up)).to(gate.dtype)


def _swiglu_cases(draw: Draw) -> list[Case]:
    n = draw.choice([7, 12, 17])
    half = torch.float16
    return [
        Case((draw.randn(4, n), draw.randn(4, n)), label=f"4 tokens, {n} wide"),
        Case((draw.randn(2, 3, n, scale=4), draw.randn(2, 3, n)), label="two leading axes"),
        Case((draw.randn(3, n, scale=120), draw.randn(3, n)), label="gates beyond ±100"),
        Case((torch.zeros(1, n), draw.randn(1, n)), label="gates of exactly 0"),
        Case((draw.strided(5, n), draw.strided(5, n)), label="not contiguous in memory"),
        Case((draw.randn(3, n, scale=10, dtype=half), draw.randn(3, n, dtype=half)), label="fp16"),
        Case((draw.randn(3, n, dtype=torch.bfloat16), draw.randn(3, n, dtype=torch.bfloat16)), label="bf16"),
        Case((draw.randn(0, n), draw.randn(0, n)), label="no tokens"),
    ]


def _swiglu_in_model(answer, checkpoint):
    from course.check.trial import Trial, swap

    return Trial(swap(swiglu=answer))


SWIGLU = Exercise(
    id="transformer_block.swiglu",
    title="SwiGLU",
    signature="swiglu(gate, up)",
    reference=_swiglu_reference,
    cases=_swiglu_cases,
    hints=(
        "SiLU(x) = x · sigmoid(x). Only one of the two branches goes through it.",
        "The branch called gate goes through SiLU; up is multiplied as it is. torch.sigmoid does not overflow.",
        "return gate * torch.sigmoid(gate) * up",
    ),
    section=f"{PAGE}#swiglu",
    points=1,
    difficulty=1,
    minutes=10,
    tolerance=Tolerance(c=4.0, K=4),
    denied=("silu", "glu", "swiglu", "hardswish", "mish"),
    in_model=_swiglu_in_model,
)


@SWIGLU.near_miss("SiLU is on the up branch", says="The branch named gate goes through SiLU; up stays linear.")
def swiglu(gate, up):
    return gate * up * torch.sigmoid(up)


@SWIGLU.near_miss("the gate is a sigmoid",
                  says="That is the plain GLU of 2017. SiLU multiplies the sigmoid by its own argument.")
def swiglu(gate, up):
    return torch.sigmoid(gate) * up


@SWIGLU.near_miss("it is GELU, not SiLU", says="GeGLU, as in Gemma, uses GELU. SwiGLU uses x · sigmoid(x).")
def swiglu(gate, up):
    return F.gelu(gate) * up


@SWIGLU.near_miss("exp overflows", says="exp(x) / (1 + exp(x)) is inf/inf for large x. torch.sigmoid, or "
                                        "1 / (1 + exp(-x)), stays finite.")
def swiglu(gate, up):
    return gate * (torch.exp(gate) / (1 + torch.exp(gate))) * up


@SWIGLU.near_miss("SiLU is taken of the product", says="Squash gate first, then multiply by up.")
def swiglu(gate, up):
    product = gate * up
    return product * torch.sigmoid(product)


@SWIGLU.alternate("by division")
def swiglu(gate, up):
    return gate / (1 + torch.exp(-gate)) * up


@SWIGLU.alternate("through tanh, in fp32")
def swiglu(gate, up):
    g = gate.float()
    return (g * (0.5 + 0.5 * torch.tanh(g / 2)) * up.float()).to(gate.dtype)


# --- the block -------------------------------------------------------------------------------------------

NAMES = ("attention_norm", "q_proj", "k_proj", "v_proj", "o_proj", "mlp_norm", "gate_proj", "up_proj", "down_proj")


def _block_reference(x, w, cos, sin, head_dim, eps, attend):
    def norm(rows, weight):
        return rows * torch.rsqrt(rows.square().mean(-1, keepdim=True) + eps) * weight

    def turn(heads):
        a, b = heads.chunk(2, dim=-1)
        c, s = cos[:, None], sin[:, None]
        return torch.cat([a * c - b * s, b * c + a * s], dim=-1)

    normed = norm(x, w["attention_norm"])
    q, k, v = ((normed @ w[name].T).unflatten(-1, (-1, head_dim)) for name in ("q_proj", "k_proj", "v_proj"))
    mixed = attend(turn(q), turn(k), v, head_dim**-0.5)
    x = x + mixed.flatten(1) @ w["o_proj"].T
    normed = norm(x, w["mlp_norm"])
    return x + (F.silu(normed @ w["gate_proj"].T) * (normed @ w["up_proj"].T)) @ w["down_proj"].T


def _block_weights(draw: Draw, heads: int, kv_heads: int, head_dim: int, inner: int) -> dict[str, torch.Tensor]:
    hidden = heads * head_dim
    shapes = ((hidden,), (hidden, hidden), (kv_heads * head_dim, hidden), (kv_heads * head_dim, hidden),
              (hidden, hidden), (hidden,), (inner, hidden), (inner, hidden), (hidden, inner))
    return {name: draw.randn(*shape, scale=1.0 if len(shape) == 1 else shape[1] ** -0.5) for name, shape in
            zip(NAMES, shapes)}


def _block_cases(draw: Draw) -> list[Case]:
    def case(tokens, start, heads, kv_heads, head_dim, label, scale=1.0, past=0, eps=1e-5):
        w = _block_weights(draw, heads, kv_heads, head_dim, draw.choice([10, 14]))
        x = draw.randn(tokens, heads * head_dim, scale=scale)
        frequencies = 10000.0 ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
        angles = (torch.arange(tokens)[:, None] + start) * frequencies
        attend = Build("course.given.transformer_block", "causal_attention")
        if past:
            kv = {f"{name}_past": draw.randn(past, kv_heads, head_dim) for name in ("k", "v")}
            attend = Build("course.given.transformer_block", "cached_attention", kv)
        return Case((x, w, angles.cos().float(), angles.sin().float(), head_dim, eps, attend), label=label)

    return [
        case(5, 0, 4, 2, 4, "5 tokens, 4 query heads, 2 KV heads"),
        case(7, 3, 6, 3, 2, "7 tokens from position 3", scale=4.0),
        case(1, 0, 2, 1, 6, "a single token"),
        case(4, 0, 3, 3, 4, "values so small that eps counts", scale=3e-3),
        case(4, 0, 3, 3, 4, "so small, with another eps", scale=3e-3, eps=2e-6),
        case(2, 5, 4, 2, 4, "2 new tokens, 5 in the cache", past=5),
        case(1, 6, 4, 2, 4, "one new token, 6 in the cache", past=6),
    ]


@contextlib.contextmanager
def _replaced(name: str, function):
    """Put ``function`` in the place of what the model's module calls ``name``."""
    from llm_internals import model

    before = getattr(model, name)
    setattr(model, name, function)
    try:
        yield
    finally:
        setattr(model, name, before)


def _block_in_model(answer, checkpoint):
    from course.check.trial import Trial
    from llm_internals import ops

    def block(x, weights, cos, sin, config, attend=None):
        w = {name: getattr(weights, name) for name in NAMES}
        return answer(x, w, cos, sin, config.head_dim, config.rms_norm_eps, attend or ops.attention)

    return Trial(lambda: _replaced("block", block), note=f"all {checkpoint.config.num_layers} blocks are yours")


BLOCK = Exercise(
    id="transformer_block.block",
    title="The whole block",
    signature="block(x, w, cos, sin, head_dim, eps, attend)",
    reference=_block_reference,
    cases=_block_cases,
    hints=(
        "Two halves of the same form: x = x + something(norm(x)). The first something is attention with its output "
        "projection, the second is SwiGLU between two projections.",
        "Order of the first half: norm, three projections, unflatten into heads, RoPE on q and k, attend, flatten, "
        "o_proj. A projection is x @ weight.T.",
        "n = parts.rms_norm(x, w['attention_norm'], eps); q = (n @ w['q_proj'].T).unflatten(-1, (-1, head_dim)); ... "
        "x = x + attend(q, k, v, head_dim**-0.5).flatten(1) @ w['o_proj'].T; then the same with mlp_norm",
    ),
    section=f"{PAGE}#the-whole-block",
    points=3,
    core=True,
    difficulty=3,
    minutes=25,
    tolerance=Tolerance(c=8.0, K=64),
    prelude=WITH_PARTS,
    given=(GIVEN,),
    in_model=_block_in_model,
)


@BLOCK.near_miss("the residual is taken after the norm", section=f"{PAGE}#the-residual-stream",
                 says="The normed x is for the projections only. What they return is added to x as it came in.")
def block(x, w, cos, sin, head_dim, eps, attend):
    x = parts.rms_norm(x, w["attention_norm"], eps)
    q, k, v = ((x @ w[name].T).unflatten(-1, (-1, head_dim)) for name in ("q_proj", "k_proj", "v_proj"))
    mixed = attend(parts.apply_rope(q, cos, sin), parts.apply_rope(k, cos, sin), v, head_dim**-0.5)
    x = x + mixed.flatten(1) @ w["o_proj"].T
    x = parts.rms_norm(x, w["mlp_norm"], eps)
    return x + parts.swiglu(x @ w["gate_proj"].T, x @ w["up_proj"].T) @ w["down_proj"].T


@BLOCK.near_miss("both halves use attention_norm", section=f"{PAGE}#the-whole-block",
                 says="A block has two norms with weights of their own; the second half uses mlp_norm.")
def block(x, w, cos, sin, head_dim, eps, attend):
    n = parts.rms_norm(x, w["attention_norm"], eps)
    q, k, v = ((n @ w[name].T).unflatten(-1, (-1, head_dim)) for name in ("q_proj", "k_proj", "v_proj"))
    mixed = attend(parts.apply_rope(q, cos, sin), parts.apply_rope(k, cos, sin), v, head_dim**-0.5)
    x = x + mixed.flatten(1) @ w["o_proj"].T
    n = parts.rms_norm(x, w["attention_norm"], eps)
    return x + parts.swiglu(n @ w["gate_proj"].T, n @ w["up_proj"].T) @ w["down_proj"].T


@BLOCK.near_miss("the output projection is missing", section=f"{PAGE}#the-whole-block",
                 says="The heads' results are laid side by side and then mixed by o_proj. Shapes fit without it, "
                      "results do not.")
def block(x, w, cos, sin, head_dim, eps, attend):
    n = parts.rms_norm(x, w["attention_norm"], eps)
    q, k, v = ((n @ w[name].T).unflatten(-1, (-1, head_dim)) for name in ("q_proj", "k_proj", "v_proj"))
    x = x + attend(parts.apply_rope(q, cos, sin), parts.apply_rope(k, cos, sin), v, head_dim**-0.5).flatten(1)
    n = parts.rms_norm(x, w["mlp_norm"], eps)
    return x + parts.swiglu(n @ w["gate_proj"].T, n @ w["up_proj"].T) @ w["down_proj"].T


@BLOCK.near_miss("V is rotated too", section=f"{PAGE}#rope",
                 says="RoPE acts on q and k, so that their product knows the distance. V is what is handed over: "
                      "it carries no position.")
def block(x, w, cos, sin, head_dim, eps, attend):
    n = parts.rms_norm(x, w["attention_norm"], eps)
    q, k, v = ((n @ w[name].T).unflatten(-1, (-1, head_dim)) for name in ("q_proj", "k_proj", "v_proj"))
    q, k, v = (parts.apply_rope(t, cos, sin) for t in (q, k, v))
    x = x + attend(q, k, v, head_dim**-0.5).flatten(1) @ w["o_proj"].T
    n = parts.rms_norm(x, w["mlp_norm"], eps)
    return x + parts.swiglu(n @ w["gate_proj"].T, n @ w["up_proj"].T) @ w["down_proj"].T


@BLOCK.near_miss("nothing is rotated", section=f"{PAGE}#rope",
                 says="Without RoPE the block cannot tell one order of the earlier tokens from another. "
                      "Turn q and k before attend.")
def block(x, w, cos, sin, head_dim, eps, attend):
    n = parts.rms_norm(x, w["attention_norm"], eps)
    q, k, v = ((n @ w[name].T).unflatten(-1, (-1, head_dim)) for name in ("q_proj", "k_proj", "v_proj"))
    x = x + attend(q, k, v, head_dim**-0.5).flatten(1) @ w["o_proj"].T
    n = parts.rms_norm(x, w["mlp_norm"], eps)
    return x + parts.swiglu(n @ w["gate_proj"].T, n @ w["up_proj"].T) @ w["down_proj"].T


@BLOCK.near_miss("both halves read the same x", section=f"{PAGE}#the-residual-stream",
                 says="This runs attention and MLP side by side, like GPT-J. Here the MLP reads what attention added.")
def block(x, w, cos, sin, head_dim, eps, attend):
    n = parts.rms_norm(x, w["attention_norm"], eps)
    q, k, v = ((n @ w[name].T).unflatten(-1, (-1, head_dim)) for name in ("q_proj", "k_proj", "v_proj"))
    mixed = attend(parts.apply_rope(q, cos, sin), parts.apply_rope(k, cos, sin), v, head_dim**-0.5)
    n = parts.rms_norm(x, w["mlp_norm"], eps)
    return (x + mixed.flatten(1) @ w["o_proj"].T
            + parts.swiglu(n @ w["gate_proj"].T, n @ w["up_proj"].T) @ w["down_proj"].T)


@BLOCK.near_miss("the second addition is missing", section=f"{PAGE}#the-residual-stream",
                 says="The MLP's result is added to x as well; returning it alone throws the residual stream away.")
def block(x, w, cos, sin, head_dim, eps, attend):
    n = parts.rms_norm(x, w["attention_norm"], eps)
    q, k, v = ((n @ w[name].T).unflatten(-1, (-1, head_dim)) for name in ("q_proj", "k_proj", "v_proj"))
    mixed = attend(parts.apply_rope(q, cos, sin), parts.apply_rope(k, cos, sin), v, head_dim**-0.5)
    x = x + mixed.flatten(1) @ w["o_proj"].T
    n = parts.rms_norm(x, w["mlp_norm"], eps)
    return parts.swiglu(n @ w["gate_proj"].T, n @ w["up_proj"].T) @ w["down_proj"].T


@BLOCK.near_miss("it attends without the cache", section=f"{PAGE}#the-whole-block",
                 says="attend knows the tokens that came before; a plain attention does not. Call attend.")
def block(x, w, cos, sin, head_dim, eps, attend):
    n = parts.rms_norm(x, w["attention_norm"], eps)
    q, k, v = ((n @ w[name].T).unflatten(-1, (-1, head_dim)) for name in ("q_proj", "k_proj", "v_proj"))
    mixed = parts.attention(parts.apply_rope(q, cos, sin), parts.apply_rope(k, cos, sin), v, head_dim**-0.5)
    x = x + mixed.flatten(1) @ w["o_proj"].T
    n = parts.rms_norm(x, w["mlp_norm"], eps)
    return x + parts.swiglu(n @ w["gate_proj"].T, n @ w["up_proj"].T) @ w["down_proj"].T


@BLOCK.near_miss("eps is a number of its own", says="Models differ in eps (1e-5, 1e-6): pass the argument on to both norms.")
def block(x, w, cos, sin, head_dim, eps, attend):
    h = parts.rms_norm(x, w["attention_norm"], 1e-5)
    q, k, v = ((h @ w[name].T).unflatten(-1, (-1, head_dim)) for name in ("q_proj", "k_proj", "v_proj"))
    mixed = attend(parts.apply_rope(q, cos, sin), parts.apply_rope(k, cos, sin), v, head_dim**-0.5)
    x = x + mixed.flatten(1) @ w["o_proj"].T
    h = parts.rms_norm(x, w["mlp_norm"], 1e-5)
    return x + parts.swiglu(h @ w["gate_proj"].T, h @ w["up_proj"].T) @ w["down_proj"].T


@BLOCK.near_miss("a single token does not attend", says="With a cache a single new token has many keys to look at; only the "
                 "very first token of a text sees itself alone. Call attend for every number of tokens.")
def block(x, w, cos, sin, head_dim, eps, attend):
    h = parts.rms_norm(x, w["attention_norm"], eps)
    q, k, v = ((h @ w[name].T).unflatten(-1, (-1, head_dim)) for name in ("q_proj", "k_proj", "v_proj"))
    if len(x) > 1:
        mixed = attend(parts.apply_rope(q, cos, sin), parts.apply_rope(k, cos, sin), v, head_dim**-0.5)
    else:
        mixed = v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)
    x = x + mixed.flatten(1) @ w["o_proj"].T
    h = parts.rms_norm(x, w["mlp_norm"], eps)
    return x + parts.swiglu(h @ w["gate_proj"].T, h @ w["up_proj"].T) @ w["down_proj"].T


@BLOCK.near_miss("gate and up are exchanged", section=f"{PAGE}#swiglu",
                 says="SiLU acts on what gate_proj gives: parts.swiglu(gate, up).")
def block(x, w, cos, sin, head_dim, eps, attend):
    h = parts.rms_norm(x, w["attention_norm"], eps)
    q, k, v = ((h @ w[name].T).unflatten(-1, (-1, head_dim)) for name in ("q_proj", "k_proj", "v_proj"))
    mixed = attend(parts.apply_rope(q, cos, sin), parts.apply_rope(k, cos, sin), v, head_dim**-0.5)
    x = x + mixed.flatten(1) @ w["o_proj"].T
    h = parts.rms_norm(x, w["mlp_norm"], eps)
    return x + parts.swiglu(h @ w["up_proj"].T, h @ w["gate_proj"].T) @ w["down_proj"].T


@BLOCK.near_miss("the scale is that of the hidden size", section=f"{PAGE}#why-divide-by-d",
                 says="A head's score is a sum of head_dim products: the scale is head_dim ** -0.5, whatever the "
                      "number of heads.")
def block(x, w, cos, sin, head_dim, eps, attend):
    h = parts.rms_norm(x, w["attention_norm"], eps)
    q, k, v = ((h @ w[name].T).unflatten(-1, (-1, head_dim)) for name in ("q_proj", "k_proj", "v_proj"))
    mixed = attend(parts.apply_rope(q, cos, sin), parts.apply_rope(k, cos, sin), v, x.shape[-1]**-0.5)
    x = x + mixed.flatten(1) @ w["o_proj"].T
    h = parts.rms_norm(x, w["mlp_norm"], eps)
    return x + parts.swiglu(h @ w["gate_proj"].T, h @ w["up_proj"].T) @ w["down_proj"].T


@BLOCK.near_miss("the second norm is missing", says="The MLP too reads a normed x: parts.rms_norm(x, w['mlp_norm'], eps).")
def block(x, w, cos, sin, head_dim, eps, attend):
    h = parts.rms_norm(x, w["attention_norm"], eps)
    q, k, v = ((h @ w[name].T).unflatten(-1, (-1, head_dim)) for name in ("q_proj", "k_proj", "v_proj"))
    mixed = attend(parts.apply_rope(q, cos, sin), parts.apply_rope(k, cos, sin), v, head_dim**-0.5)
    x = x + mixed.flatten(1) @ w["o_proj"].T
    h = x
    return x + parts.swiglu(h @ w["gate_proj"].T, h @ w["up_proj"].T) @ w["down_proj"].T


@BLOCK.near_miss("only the queries are rotated", section=f"{PAGE}#rope",
                 says="The score depends on the distance only when q and k are both turned.")
def block(x, w, cos, sin, head_dim, eps, attend):
    h = parts.rms_norm(x, w["attention_norm"], eps)
    q, k, v = ((h @ w[name].T).unflatten(-1, (-1, head_dim)) for name in ("q_proj", "k_proj", "v_proj"))
    mixed = attend(parts.apply_rope(q, cos, sin), k, v, head_dim**-0.5)
    x = x + mixed.flatten(1) @ w["o_proj"].T
    h = parts.rms_norm(x, w["mlp_norm"], eps)
    return x + parts.swiglu(h @ w["gate_proj"].T, h @ w["up_proj"].T) @ w["down_proj"].T


@BLOCK.alternate("with F.linear and in two functions")
def block(x, w, cos, sin, head_dim, eps, attend):
    def attention_half(n):
        shape = (len(n), -1, head_dim)
        q, k, v = (F.linear(n, w[f"{name}_proj"]).view(shape) for name in "qkv")
        out = attend(parts.apply_rope(q, cos, sin), parts.apply_rope(k, cos, sin), v, 1 / math.sqrt(head_dim))
        return F.linear(out.reshape(len(n), -1), w["o_proj"])

    def mlp_half(n):
        return F.linear(parts.swiglu(F.linear(n, w["gate_proj"]), F.linear(n, w["up_proj"])), w["down_proj"])

    x = x + attention_half(parts.rms_norm(x, w["attention_norm"], eps))
    return x + mlp_half(parts.rms_norm(x, w["mlp_norm"], eps))


# --- the LM head -----------------------------------------------------------------------------------------


EPS = 1e-5  # stands at the top of the answer's cell, and may differ from student to student


def _lm_head_reference(x, norm_weight, head_weight, eps=None, *, EPS=EPS):
    return _rms_norm_reference(x[-1], norm_weight, EPS if eps is None else eps) @ head_weight.T


def _lm_head_cases(draw: Draw) -> list[Case]:
    hidden, vocab = draw.choice([6, 11]), draw.choice([13, 17])

    def case(tokens, label, scale=1.0, eps=1e-5, dtype=torch.float32, tolerance=None):
        x = draw.randn(tokens, hidden, scale=scale, dtype=dtype)
        return Case((x, draw.randn(hidden, dtype=dtype), draw.randn(vocab, hidden, dtype=dtype), eps), label=label,
                    tolerance=tolerance)

    return [
        case(5, f"5 tokens, a vocabulary of {vocab}"),
        case(1, "a single token"),
        case(4, "a long residual stream", scale=200.0),
        case(3, "values so small that eps counts", scale=2e-3),
        case(3, "so small, with another eps", scale=2e-3, eps=2e-6),
        case(3, "fp16, squares beyond its range", scale=300.0, dtype=torch.float16, tolerance=HALF),
        case(2, "bf16", dtype=torch.bfloat16, tolerance=HALF),
        Case((draw.strided(4, hidden), draw.randn(hidden), draw.strided(vocab, hidden), 1e-5),
             label="not contiguous in memory"),
        Case((draw.randn(3, hidden, scale=2e-3), draw.randn(hidden), draw.randn(vocab, hidden)),
             label="without eps, which is then EPS"),
    ]


def _lm_head_in_model(answer, checkpoint):
    """The model wants a row of logits for each position: the answer gets every prefix."""
    from course.check.trial import Trial

    def lm_head(x, norm_weight, head_weight, eps):
        return torch.stack([answer(x[: i + 1], norm_weight, head_weight, eps) for i in range(len(x))])

    return Trial(lambda: _replaced("lm_head", lm_head))


LM_HEAD = Exercise(
    id="transformer_block.lm_head",
    title="The LM head",
    signature="lm_head(x, norm_weight, head_weight, eps=EPS)",
    variants={"EPS": (EPS, 1e-6, 3e-6, 2e-5, 5e-5)},
    reference=_lm_head_reference,
    cases=_lm_head_cases,
    hints=(
        "One row of x decides the next token. Pick it before the product with the vocabulary, which is the expensive part.",
        "Last row, final RMSNorm, product with head_weight [vocab, hidden]: a vector of vocab numbers.",
        "return parts.rms_norm(x[-1], norm_weight, eps) @ head_weight.T",
    ),
    section=f"{PAGE}#the-lm-head",
    points=1,
    difficulty=1,
    minutes=10,
    tolerance=Tolerance(c=8.0, K=16),
    prelude=WITH_PARTS,
    given=(GIVEN,),
    in_model=_lm_head_in_model,
)


@LM_HEAD.near_miss("the final norm is missing", section=f"{PAGE}#the-norm-the-document-leaves-out",
                   says="After the last block comes one more RMSNorm, with a weight of its own, before the product.")
def lm_head(x, norm_weight, head_weight, eps=EPS):
    return x[-1] @ head_weight.T


@LM_HEAD.near_miss("the norm's weight is missing", section=f"{PAGE}#the-norm-the-document-leaves-out",
                   says="Dividing by the root mean square scales all logits alike; the weight is what changes their "
                        "order. Multiply by norm_weight.")
def lm_head(x, norm_weight, head_weight, eps=EPS):
    return parts.rms_norm(x[-1], torch.ones_like(norm_weight), eps) @ head_weight.T


@LM_HEAD.near_miss("it scores every position",
                   says="Only the last position says what comes next: [vocab] is wanted, not [T, vocab].")
def lm_head(x, norm_weight, head_weight, eps=EPS):
    return parts.rms_norm(x, norm_weight, eps) @ head_weight.T


@LM_HEAD.near_miss("it takes the first position",
                   says="x[0] has seen nothing but itself. The row that has seen the whole text is the last, x[-1].")
def lm_head(x, norm_weight, head_weight, eps=EPS):
    return parts.rms_norm(x[0], norm_weight, eps) @ head_weight.T


@LM_HEAD.near_miss("it returns probabilities",
                   says="Logits are wanted: what samples from them applies its own temperature and softmax.")
def lm_head(x, norm_weight, head_weight, eps=EPS):
    return (parts.rms_norm(x[-1], norm_weight, eps) @ head_weight.T).softmax(-1)


@LM_HEAD.near_miss("eps is a number of its own", says="EPS is what counts when none is given; where one is given, use the "
                   "argument eps.")
def lm_head(x, norm_weight, head_weight, eps=EPS):
    return parts.rms_norm(x[-1], norm_weight, EPS) @ head_weight.T


@LM_HEAD.near_miss("the statistics stay in half precision", says="Squares of large fp16 values overflow to infinity: the mean "
                   "square is taken in fp32, as in your rms_norm. parts.rms_norm does so.")
def lm_head(x, norm_weight, head_weight, eps=EPS):
    last = x[-1]
    return (last * torch.rsqrt(last.square().mean() + eps) * norm_weight) @ head_weight.T


@LM_HEAD.near_miss("one mean square serves all tokens", says="Each row has a scale of its own, and only the last one is "
                   "wanted: take the mean over x[-1], not over x.")
def lm_head(x, norm_weight, head_weight, eps=EPS):
    scale = torch.rsqrt(x.float().square().mean() + eps)
    return ((x[-1].float() * scale).to(x.dtype) * norm_weight) @ head_weight.T


@LM_HEAD.near_miss("it is the norm with a mean", says="LayerNorm centres its input; the final norm is an RMSNorm too.")
def lm_head(x, norm_weight, head_weight, eps=EPS):
    last = x[-1].float()
    last = last - last.mean()
    return ((last * torch.rsqrt(last.square().mean() + eps)).to(x.dtype) * norm_weight) @ head_weight.T


@LM_HEAD.alternate("by hand, with F.linear")
def lm_head(x, norm_weight, head_weight, eps=EPS):
    last = x[-1:].float()
    last = last / torch.sqrt(last.pow(2).mean(-1, keepdim=True) + eps)
    return F.linear(last.to(x.dtype) * norm_weight, head_weight).squeeze(0)


@LM_HEAD.alternate("in fp32 to the end, as a sum of products")
def lm_head(x, norm_weight, head_weight, eps=EPS):
    last = x[-1].float()
    last = last / ((last @ last) / last.numel() + eps).sqrt() * norm_weight.float()
    return (head_weight.float() * last).sum(dim=1).to(x.dtype)


EXERCISES = [ATTENTION, RMS_NORM, ROPE, HALF_SPLIT, GQA, SWIGLU, BLOCK, LM_HEAD, *KERNELS]
