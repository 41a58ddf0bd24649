"""The whole block, put together from given parts."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from course.given import transformer_block as parts
from course.specs.exercise import Build, Case, Draw, Exercise, Tolerance
from course.specs.transformer_block.shared import GIVEN, PAGE, WITH_PARTS

NAMES = ("attention_norm", "q_proj", "k_proj", "v_proj", "o_proj", "mlp_norm", "gate_proj", "up_proj", "down_proj")


def reference(x, w, cos, sin, head_dim, eps, attend):
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


def block_weights(draw: Draw, heads: int, kv_heads: int, head_dim: int, inner: int) -> dict[str, torch.Tensor]:
    hidden = heads * head_dim
    shapes = ((hidden,), (hidden, hidden), (kv_heads * head_dim, hidden), (kv_heads * head_dim, hidden),
              (hidden, hidden), (hidden,), (inner, hidden), (inner, hidden), (hidden, inner))
    return {name: draw.randn(*shape, scale=1.0 if len(shape) == 1 else shape[1] ** -0.5) for name, shape in
            zip(NAMES, shapes)}


def cases(draw: Draw) -> list[Case]:
    def case(tokens, start, heads, kv_heads, head_dim, label, scale=1.0, past=0, eps=1e-5):
        w = block_weights(draw, heads, kv_heads, head_dim, draw.choice([10, 14]))
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


BLOCK = Exercise(
    id="transformer_block.block",
    title="The whole block",
    signature="block(x, w, cos, sin, head_dim, eps, attend)",
    reference=reference,
    cases=cases,
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
    in_model=True,
)

BLOCK.near_miss(
    "the residual is taken after the norm",
    {
        'normed = parts.rms_norm(x, w["attention': 'x = normed = parts.rms_norm(x, w["attention',
        'normed = parts.rms_norm(x, w["mlp': 'x = normed = parts.rms_norm(x, w["mlp',
    },
    says="The normed x is for the projections only. What they return is added to x as it came in.",
    section=f"{PAGE}#the-residual-stream",
)

BLOCK.near_miss(
    "both halves use attention_norm",
    {'"mlp_norm"': '"attention_norm"'},
    says="A block has two norms with weights of their own; the second half uses mlp_norm.",
    section=f"{PAGE}#the-whole-block",
)

BLOCK.near_miss(
    "the output projection is missing",
    {' @ w["o_proj"].T': ""},
    says="The heads' results are laid side by side and then mixed by o_proj. Shapes fit without it, results do not.",
    section=f"{PAGE}#the-whole-block",
)

BLOCK.near_miss(
    "V is rotated too",
    {"attend(q, k, v,": "attend(q, k, parts.apply_rope(v, cos, sin),"},
    says="RoPE acts on q and k, so that their product knows the distance. V is what is handed over: it carries no "
    "position.",
    section=f"{PAGE}#rope",
)

BLOCK.near_miss(
    "nothing is rotated",
    {"q, k = parts.apply_rope(q, cos, sin), parts.apply_rope(k, cos, sin)\n": ""},
    says="Without RoPE the block cannot tell one order of the earlier tokens from another. Turn q and k before "
    "attend.",
    section=f"{PAGE}#rope",
)

BLOCK.near_miss(
    "both halves read the same x",
    {"x = x + mixed": "before, x = x, x + mixed", 'rms_norm(x, w["mlp_norm"]': 'rms_norm(before, w["mlp_norm"]'},
    says="This runs attention and MLP side by side, like GPT-J. Here the MLP reads what attention added.",
    section=f"{PAGE}#the-residual-stream",
)

BLOCK.near_miss(
    "the second addition is missing",
    {"return x + parts": "return parts"},
    says="The MLP's result is added to x as well; returning it alone throws the residual stream away.",
    section=f"{PAGE}#the-residual-stream",
)

BLOCK.near_miss(
    "it attends without the cache",
    {"= attend(": "= parts.attention("},
    says="attend knows the tokens that came before; a plain attention does not. Call attend.",
    section=f"{PAGE}#the-whole-block",
)

BLOCK.near_miss(
    "eps is a number of its own",
    {'"attention_norm"], eps)': '"attention_norm"], 1e-5)', '"mlp_norm"], eps)': '"mlp_norm"], 1e-5)'},
    says="Models differ in eps (1e-5, 1e-6): pass the argument on to both norms.",
)

BLOCK.near_miss(
    "a single token does not attend",
    {
        "mixed = attend(q, k, v, head_dim**-0.5)":
            "alone = v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)\n"
            "mixed = attend(q, k, v, head_dim**-0.5) if len(x) > 1 else alone",
    },
    says="With a cache a single new token has many keys to look at; only the very first token of a text sees itself "
    "alone. Call attend for every number of tokens.",
)

BLOCK.near_miss(
    "gate and up are exchanged",
    {"swiglu(gate, up)": "swiglu(up, gate)"},
    says="SiLU acts on what gate_proj gives: parts.swiglu(gate, up).",
    section=f"{PAGE}#swiglu",
)

BLOCK.near_miss(
    "the scale is that of the hidden size",
    {"head_dim**-0.5": "x.shape[-1] ** -0.5"},
    says="A head's score is a sum of head_dim products: the scale is head_dim ** -0.5, whatever the number of heads.",
    section=f"{PAGE}#why-divide-by-d",
)

BLOCK.near_miss(
    "the second norm is missing",
    {'normed = parts.rms_norm(x, w["mlp_norm"], eps)': "normed = x"},
    says="The MLP too reads a normed x: parts.rms_norm(x, w['mlp_norm'], eps).",
)

BLOCK.near_miss(
    "only the queries are rotated",
    {"parts.apply_rope(k, cos, sin)": "k"},
    says="The score depends on the distance only when q and k are both turned.",
    section=f"{PAGE}#rope",
)

BLOCK.near_miss(
    "the values are projected from x",
    {'v = (normed @': 'v = (x @'},
    says="q, k and v all read the normed x: parts.rms_norm comes before the three projections, not before two of them.",
    section=f"{PAGE}#the-whole-block",
)


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
