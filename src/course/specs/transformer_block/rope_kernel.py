"""RoPE in Triton."""

from __future__ import annotations

import torch

from course.specs.exercise import KERNEL_PRELUDE, Case, Draw, Exercise, Tolerance
from course.specs.kernels import HALF, power, size
from course.specs.transformer_block.shared import PAGE, PRIMER, widened


def launch(kernel, x, cos, sin, heads_block, half_block):
    tokens, heads, dim = x.shape
    y = torch.empty(x.shape, dtype=x.dtype)
    kernel[(tokens,)](
        x, cos, sin, y, x.stride(0), x.stride(1), heads, dim // 2,
        HEADS=heads_block, HALF=half_block,
    )
    return y


def reference(x, cos, sin, heads_block, half_block):
    first, second = widened(x).chunk(2, dim=-1)
    cos, sin = widened(cos)[:, None], widened(sin)[:, None]
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1).to(x.dtype)


def cases(draw: Draw) -> list[Case]:
    def case(tokens, heads, dim, label, dtype=torch.float32, room=0, gap=0, tolerance=None, wider=1):
        """room: elements between the heads of one token and those of the next; gap: between a head and the next."""
        x = draw.randn(tokens, heads * (dim + gap) + room, dtype=dtype)[:, : heads * (dim + gap)]
        x = x.unflatten(-1, (heads, dim + gap))[..., :dim]
        angles = draw.ints(0, 4000, tokens)[:, None] * 10000.0 ** (-torch.arange(0, dim, 2) / dim)
        blocks = wider * power(heads), wider * power(dim // 2)
        return Case((x, angles.cos(), angles.sin(), *blocks), label=label, tolerance=tolerance)

    return [
        case(2, 3, 10, "2 tokens, 3 heads of 10"),
        case(2, 2, 6, "heads cut out of a fused projection: tokens lie 20 elements apart", room=8),
        case(2, 3, 6, "heads of 6 that lie 10 elements apart", gap=4),
        case(1, 4, 8, "4 heads of 8: the block is full"),
        case(1, 1, 2, "a single token, one pair"),
        case(1, 5, 6, "fp16, 5 heads of 6", torch.float16, tolerance=HALF),
        case(1, 3, 14, "bf16, 3 heads of 14", torch.bfloat16, tolerance=HALF),
        case(3, 2, 6, "2 heads of 6, blocks of 4 and 8", wider=2),
    ]


ROPE_KERNEL = Exercise(
    id="transformer_block.rope_kernel",
    title="RoPE in Triton",
    signature="rope_kernel(X, COS, SIN, Y, token_stride, head_stride, num_heads, half, HEADS: tl.constexpr, "
              "HALF: tl.constexpr)",
    reference=reference,
    cases=cases,
    hints=(
        "One program, one token. Its heads are a tile [HEADS, HALF] of first channels and a second one, half further on; "
        "the angles are one row of HALF that all heads share.",
        "p = X + token * token_stride + head[:, None] * head_stride + pair[None, :] points at first channels, p + half at "
        "their partners. Mask with (head < num_heads) & (pair < half).",
        "a = tl.load(p, mask=inside, other=0.0).to(tl.float32); b = tl.load(p + half, ...); store a * cos - b * sin at "
        "Y + (token * num_heads + head[:, None]) * 2 * half + pair[None, :] and a * sin + b * cos at half further",
    ),
    section=f"{PAGE}#rope",
    points=3,
    track="kernel",
    difficulty=4,
    minutes=30,
    tolerance=Tolerance(c=8.0, K=2),
    prelude=KERNEL_PRELUDE,
    drive=launch,
    argument_names=("x", "cos", "sin", "heads_block", "half_block"),
    bytes_bound=lambda x, cos, sin, heads_block, half_block: 2 * size(x) + size(cos, sin),
    in_model=True,
    seconds=30.0,
)


@ROPE_KERNEL.near_miss(
    "neighbours are pairs",
    says="This model pairs channel i with i + half; 2i with 2i + 1 is the other layout.",
    section=f"{PAGE}#which-two-channels-are-a-pair",
)
def rope_kernel(X, COS, SIN, Y, token_stride, head_stride, num_heads, half, HEADS: tl.constexpr, HALF: tl.constexpr):
    token = tl.program_id(0)
    head, pair = tl.arange(0, HEADS)[:, None], tl.arange(0, HALF)[None, :]
    inside = (head < num_heads) & (pair < half)
    cos = tl.load(COS + token * half + pair, mask=pair < half, other=0.0)
    sin = tl.load(SIN + token * half + pair, mask=pair < half, other=0.0)
    p = X + token * token_stride + head * head_stride + 2 * pair
    a = tl.load(p, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(p + 1, mask=inside, other=0.0).to(tl.float32)
    q = Y + (token * num_heads + head) * 2 * half + 2 * pair
    tl.store(q, a * cos - b * sin, mask=inside)
    tl.store(q + 1, a * sin + b * cos, mask=inside)


ROPE_KERNEL.near_miss(
    "it turns the other way",
    {
        "first * cos - second * sin": "first * cos + second * sin",
        "first * sin + second * cos": "second * cos - first * sin",
    },
    says="(a, b) becomes (a cos - b sin, a sin + b cos): the minus stands in the first line.",
)

ROPE_KERNEL.near_miss(
    "the second channel meets the turned first one",
    {
        "target = Y": "first = first * cos - second * sin\ntarget = Y",
        "tl.store(target, first * cos - second * sin,": "tl.store(target, first,",
    },
    says="Both lines need the channel as it was loaded: keep a until b is turned too.",
)

ROPE_KERNEL.near_miss(
    "every token takes the angles of the first",
    {"COS + token * half": "COS", "SIN + token * half": "SIN"},
    says="COS and SIN have a row of `half` angles for each token: COS + token * half + pair.",
    section=f"{PRIMER}#strides",
)

ROPE_KERNEL.near_miss(
    "the heads are not masked",
    {"(head < num_heads)": "(head >= 0)"},
    says="HEADS is num_heads rounded up: the extra rows of the tile belong to the next token or to nobody. Mask "
    "with (head < num_heads) & (pair < half).",
    section=f"{PRIMER}#a-strided-tile",
)

ROPE_KERNEL.near_miss(
    "it takes X to be contiguous",
    {"token * token_stride + head * head_stride": "(token * num_heads + head) * 2 * half"},
    says="X may be cut out of a fused projection: the next token starts token_stride further. Only Y is contiguous.",
    section=f"{PRIMER}#strides",
)


@ROPE_KERNEL.near_miss(
    "it loads the angles for every head",
    says="All heads of a token share its angles: load one row of them and let it broadcast.",
    section=f"{PRIMER}#what-one-byte-costs",
)
def rope_kernel(X, COS, SIN, Y, token_stride, head_stride, num_heads, half, HEADS: tl.constexpr, HALF: tl.constexpr):
    token = tl.program_id(0)
    pair = tl.arange(0, HALF)
    inside = pair < half
    for head in range(num_heads):
        cos = tl.load(COS + token * half + pair, mask=inside, other=0.0)
        sin = tl.load(SIN + token * half + pair, mask=inside, other=0.0)
        p = X + token * token_stride + head * head_stride + pair
        a = tl.load(p, mask=inside, other=0.0).to(tl.float32)
        b = tl.load(p + half, mask=inside, other=0.0).to(tl.float32)
        q = Y + (token * num_heads + head) * 2 * half + pair
        tl.store(q, a * cos - b * sin, mask=inside)
        tl.store(q + half, a * sin + b * cos, mask=inside)


ROPE_KERNEL.near_miss(
    "it takes heads to lie 2 * half apart",
    {"head * head_stride": "head * 2 * half"},
    says="Something else may lie between the heads of X: the next one starts head_stride further. Only in Y do "
    "heads follow each other.",
)

ROPE_KERNEL.near_miss(
    "the second channels are half a block away",
    {"source + half": "source + HALF", "target + half": "target + HALF"},
    says="HALF is half rounded up to a power of two; channel i is paired with i + half.",
)


@ROPE_KERNEL.alternate("head by head, the angles loaded before")
def rope_kernel(X, COS, SIN, Y, token_stride, head_stride, num_heads, half, HEADS: tl.constexpr, HALF: tl.constexpr):
    token = tl.program_id(0)
    pair = tl.arange(0, HALF)
    inside = pair < half
    cos = tl.load(COS + token * half + pair, mask=inside)
    sin = tl.load(SIN + token * half + pair, mask=inside)
    for head in range(num_heads):
        p = X + token * token_stride + head * head_stride + pair
        a, b = tl.load(p, mask=inside), tl.load(p + half, mask=inside)
        q = Y + (token * num_heads + head) * 2 * half + pair
        tl.store(q, (a * cos - b * sin).to(a.dtype), mask=inside)
        tl.store(q + half, (b * cos + a * sin).to(a.dtype), mask=inside)
