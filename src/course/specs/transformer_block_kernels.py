"""Kernel exercises of chapter 03: RMSNorm, RoPE and SwiGLU in Triton.

Rows are odd in length and lie apart, since that is how a model hands them over: q and k are slices of one projection,
gate and up the halves of another. The launch travels with the job, so that grid and strides are the same for everyone.
"""

from __future__ import annotations

import torch

from course.specs.exercise import KERNEL_PRELUDE, Case, Draw, Exercise, Tolerance
from course.specs.triton_primer import HALF, padded, size

PAGE = "03_transformer_block.html"
PRIMER = "triton_primer.html"
SLOW = "your kernel ran in the interpreter, every access checked: its speed says nothing about a GPU"


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x if x.dtype == torch.float64 else x.float()


def _checked(launch, answer):
    """``launch`` with the answer as its kernel, under kernelcheck: no address of it is ever real."""
    import kernelcheck

    kernelcheck.install()

    def call(*args):
        with kernelcheck.checked(record=False):
            return launch(answer, *args)

    return call


# --- rms_norm_kernel -------------------------------------------------------------------------------------


def _rms_norm_launch(kernel, x, weight, eps):
    import triton

    y = torch.empty(x.shape, dtype=x.dtype)
    block = triton.next_power_of_2(x.shape[1])
    kernel[(x.shape[0],)](x, weight, y, x.stride(0), x.shape[1], eps, BLOCK=block)
    return y


def _rms_norm_reference(x, weight, eps):
    wide = _wide(x)
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


def _rms_norm_cases(draw: Draw) -> list[Case]:
    hidden = draw.choice([37, 53, 100])
    half, bf16 = torch.float16, torch.bfloat16
    return [
        Case((draw.randn(3, hidden) + 2, draw.randn(hidden), 1e-5), label=f"3 rows of {hidden}, mean far from 0"),
        Case((padded(draw, 2, 24, 40), draw.randn(24), 1e-5), label="rows of 24 that lie 40 elements apart"),
        Case((draw.randn(2, 64, scale=1e-3), draw.randn(64), 1e-5), label="rows of 64, so small that eps counts"),
        Case((draw.randn(2, 11, scale=1e-3), draw.randn(11), 3e-6), label="rows of 11, so small, with another eps"),
        Case((draw.randn(2, 19, dtype=half, scale=300), draw.randn(19, dtype=half), 1e-5), tolerance=HALF,
             label="fp16, squares beyond its range"),
        Case((draw.randn(2, 21, dtype=bf16), draw.randn(21, dtype=bf16), 1e-6), label="bf16", tolerance=HALF),
    ]


def _rms_norm_in_model(answer, checkpoint):
    from course.check.trial import Trial, swap

    call = _checked(_rms_norm_launch, answer)

    def rms_norm(x, weight, eps):
        return call(x.reshape(-1, x.shape[-1]), weight, eps).view(x.shape)

    return Trial(swap(rms_norm=rms_norm), note=SLOW, new_tokens=4)


RMS_NORM_KERNEL = Exercise(
    id="transformer_block.rms_norm_kernel",
    title="RMSNorm in Triton",
    signature="rms_norm_kernel(X, W, Y, stride, n, eps, BLOCK: tl.constexpr)",
    reference=_rms_norm_reference,
    cases=_rms_norm_cases,
    hints=(
        "Row softmax with another reduction: one program, one row, one load of it, tl.sum, one store.",
        "The mean divides by n, not by BLOCK; masked lanes hold 0. Statistics in fp32; back to x.dtype before the weight.",
        "s = x.to(tl.float32); r = tl.rsqrt(tl.sum(s * s, axis=0) / n + eps); "
        "tl.store(Y + row * n + i, (s * r).to(x.dtype) * w, mask=i < n)",
    ),
    section=f"{PAGE}#rmsnorm",
    points=2,
    track="kernel",
    difficulty=3,
    minutes=20,
    tolerance=Tolerance(c=8.0, K=100),
    prelude=KERNEL_PRELUDE,
    drive=_rms_norm_launch,
    argument_names=("x", "weight", "eps"),
    bytes_bound=lambda x, weight, eps: 2 * size(x) + x.shape[0] * size(weight),
    in_model=_rms_norm_in_model,
    seconds=30.0,
)


@RMS_NORM_KERNEL.near_miss("the mean divides by BLOCK", section=f"{PRIMER}#masked-lanes",
                           says="BLOCK is n rounded up to a power of two; the row has n elements.")
def rms_norm_kernel(X, W, Y, stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(X + row * stride + i, mask=i < n, other=0.0)
    w = tl.load(W + i, mask=i < n, other=0.0)
    s = x.to(tl.float32)
    r = tl.rsqrt(tl.sum(s * s, axis=0) / BLOCK + eps)
    tl.store(Y + row * n + i, (s * r).to(x.dtype) * w, mask=i < n)


@RMS_NORM_KERNEL.near_miss("eps is outside the root", says="eps guards the mean square, so it is added under the root.")
def rms_norm_kernel(X, W, Y, stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(X + row * stride + i, mask=i < n, other=0.0)
    w = tl.load(W + i, mask=i < n, other=0.0)
    s = x.to(tl.float32)
    r = 1.0 / (tl.sqrt(tl.sum(s * s, axis=0) / n) + eps)
    tl.store(Y + row * n + i, (s * r).to(x.dtype) * w, mask=i < n)


@RMS_NORM_KERNEL.near_miss("it subtracts the mean", says="LayerNorm centres its input; RMSNorm leaves the mean where it is.")
def rms_norm_kernel(X, W, Y, stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(X + row * stride + i, mask=i < n, other=0.0)
    w = tl.load(W + i, mask=i < n, other=0.0)
    s = x.to(tl.float32)
    s = tl.where(i < n, s - tl.sum(s, axis=0) / n, 0.0)
    r = tl.rsqrt(tl.sum(s * s, axis=0) / n + eps)
    tl.store(Y + row * n + i, (s * r).to(x.dtype) * w, mask=i < n)


@RMS_NORM_KERNEL.near_miss("masked lanes hold anything", section=f"{PRIMER}#masked-lanes",
                           says="Without other= a masked lane holds whatever was there, and its square is summed: "
                                "other=0.0.")
def rms_norm_kernel(X, W, Y, stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(X + row * stride + i, mask=i < n)
    w = tl.load(W + i, mask=i < n, other=0.0)
    s = x.to(tl.float32)
    r = tl.rsqrt(tl.sum(s * s, axis=0) / n + eps)
    tl.store(Y + row * n + i, (s * r).to(x.dtype) * w, mask=i < n)


@RMS_NORM_KERNEL.near_miss("no lane is masked", section=f"{PRIMER}#the-missing-mask",
                           says="BLOCK is the next power of two: lanes beyond n belong to the next row or to nobody. "
                                "Mask loads and store with i < n.")
def rms_norm_kernel(X, W, Y, stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(X + row * stride + i)
    w = tl.load(W + i)
    s = x.to(tl.float32)
    r = tl.rsqrt(tl.sum(s * s, axis=0) / n + eps)
    tl.store(Y + row * n + i, (s * r).to(x.dtype) * w)


@RMS_NORM_KERNEL.near_miss("it takes the rows of X to lie n apart", section=f"{PRIMER}#strides",
                           says="The next row of X starts `stride` elements further; only Y's rows lie n apart.")
def rms_norm_kernel(X, W, Y, stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(X + row * n + i, mask=i < n, other=0.0)
    w = tl.load(W + i, mask=i < n, other=0.0)
    s = x.to(tl.float32)
    r = tl.rsqrt(tl.sum(s * s, axis=0) / n + eps)
    tl.store(Y + row * n + i, (s * r).to(x.dtype) * w, mask=i < n)


@RMS_NORM_KERNEL.near_miss("the squares stay in half precision",
                           says="300 squared is beyond fp16: go to fp32 before you square.")
def rms_norm_kernel(X, W, Y, stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(X + row * stride + i, mask=i < n, other=0.0)
    w = tl.load(W + i, mask=i < n, other=0.0)
    s = (x * x).to(tl.float32)
    r = tl.rsqrt(tl.sum(s, axis=0) / n + eps)
    tl.store(Y + row * n + i, (x.to(tl.float32) * r).to(x.dtype) * w, mask=i < n)


@RMS_NORM_KERNEL.near_miss("it loads the row twice", section=f"{PRIMER}#what-one-byte-costs",
                           says="Once for the statistics, once for the result: the row is still there after the sum, "
                                "so use it.")
def rms_norm_kernel(X, W, Y, stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    s = tl.load(X + row * stride + i, mask=i < n, other=0.0).to(tl.float32)
    r = tl.rsqrt(tl.sum(s * s, axis=0) / n + eps)
    x = tl.load(X + row * stride + i, mask=i < n, other=0.0)
    w = tl.load(W + i, mask=i < n, other=0.0)
    tl.store(Y + row * n + i, (x.to(tl.float32) * r).to(x.dtype) * w, mask=i < n)


@RMS_NORM_KERNEL.near_miss("eps is a number of its own", says="Models differ in eps (1e-5, 1e-6): use the parameter.")
def rms_norm_kernel(X, W, Y, stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(X + row * stride + i, mask=i < n, other=0.0)
    w = tl.load(W + i, mask=i < n, other=0.0)
    s = x.to(tl.float32)
    r = tl.rsqrt(tl.sum(s * s, axis=0) / n + 1e-5)
    tl.store(Y + row * n + i, (s * r).to(x.dtype) * w, mask=i < n)


@RMS_NORM_KERNEL.near_miss("the weight is missing", says="Each channel has a scale of its own: multiply by the row of W.")
def rms_norm_kernel(X, W, Y, stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(X + row * stride + i, mask=i < n, other=0.0)
    s = x.to(tl.float32)
    r = tl.rsqrt(tl.sum(s * s, axis=0) / n + eps)
    tl.store(Y + row * n + i, (s * r).to(x.dtype), mask=i < n)


@RMS_NORM_KERNEL.alternate("in fp32 to the end, with a square root")
def rms_norm_kernel(X, W, Y, stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    inside = i < n
    x = tl.load(X + row * stride + i, mask=inside).to(tl.float32)
    x = tl.where(inside, x, 0.0)
    y = x / tl.sqrt(tl.sum(x * x) / n + eps) * tl.load(W + i, mask=inside, other=0.0).to(tl.float32)
    tl.store(Y + row * n + i, y.to(Y.dtype.element_ty), mask=inside)


# --- rope_kernel -----------------------------------------------------------------------------------------


def _rope_launch(kernel, x, cos, sin):
    import triton

    tokens, heads, dim = x.shape
    y = torch.empty(x.shape, dtype=x.dtype)
    kernel[(tokens,)](
        x, cos, sin, y, x.stride(0), x.stride(1), heads, dim // 2,
        HEADS=triton.next_power_of_2(heads), HALF=triton.next_power_of_2(dim // 2),
    )
    return y


def _rope_reference(x, cos, sin):
    first, second = _wide(x).chunk(2, dim=-1)
    cos, sin = _wide(cos)[:, None], _wide(sin)[:, None]
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1).to(x.dtype)


def _rope_cases(draw: Draw) -> list[Case]:
    def case(tokens, heads, dim, label, dtype=torch.float32, room=0, gap=0, tolerance=None):
        """room: elements between the heads of one token and those of the next; gap: between a head and the next."""
        x = draw.randn(tokens, heads * (dim + gap) + room, dtype=dtype)[:, : heads * (dim + gap)]
        x = x.unflatten(-1, (heads, dim + gap))[..., :dim]
        angles = draw.ints(0, 4000, tokens)[:, None] * 10000.0 ** (-torch.arange(0, dim, 2) / dim)
        return Case((x, angles.cos(), angles.sin()), label=label, tolerance=tolerance)

    return [
        case(2, 3, 10, "2 tokens, 3 heads of 10"),
        case(2, 2, 6, "heads cut out of a fused projection: tokens lie 20 elements apart", room=8),
        case(2, 3, 6, "heads of 6 that lie 10 elements apart", gap=4),
        case(1, 4, 8, "4 heads of 8: the block is full"),
        case(1, 1, 2, "a single token, one pair"),
        case(1, 5, 6, "fp16, 5 heads of 6", torch.float16, tolerance=HALF),
        case(1, 3, 14, "bf16, 3 heads of 14", torch.bfloat16, tolerance=HALF),
    ]


def _rope_in_model(answer, checkpoint):
    from course.check.trial import Trial, swap

    call = _checked(_rope_launch, answer)

    def apply_rope(q, k, cos, sin):
        return call(q, cos, sin), call(k, cos, sin)

    return Trial(swap(apply_rope=apply_rope), note=SLOW, new_tokens=4)


ROPE_KERNEL = Exercise(
    id="transformer_block.rope_kernel",
    title="RoPE in Triton",
    signature="rope_kernel(X, COS, SIN, Y, token_stride, head_stride, num_heads, half, HEADS: tl.constexpr, "
              "HALF: tl.constexpr)",
    reference=_rope_reference,
    cases=_rope_cases,
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
    drive=_rope_launch,
    argument_names=("x", "cos", "sin"),
    bytes_bound=lambda x, cos, sin: 2 * size(x) + size(cos, sin),
    in_model=_rope_in_model,
    seconds=30.0,
)


@ROPE_KERNEL.near_miss("neighbours are pairs", section=f"{PAGE}#which-two-channels-are-a-pair",
                       says="This model pairs channel i with i + half; 2i with 2i + 1 is the other layout.")
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


@ROPE_KERNEL.near_miss("it turns the other way",
                       says="(a, b) becomes (a cos - b sin, a sin + b cos): the minus stands in the first line.")
def rope_kernel(X, COS, SIN, Y, token_stride, head_stride, num_heads, half, HEADS: tl.constexpr, HALF: tl.constexpr):
    token = tl.program_id(0)
    head, pair = tl.arange(0, HEADS)[:, None], tl.arange(0, HALF)[None, :]
    inside = (head < num_heads) & (pair < half)
    cos = tl.load(COS + token * half + pair, mask=pair < half, other=0.0)
    sin = tl.load(SIN + token * half + pair, mask=pair < half, other=0.0)
    p = X + token * token_stride + head * head_stride + pair
    a = tl.load(p, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(p + half, mask=inside, other=0.0).to(tl.float32)
    q = Y + (token * num_heads + head) * 2 * half + pair
    tl.store(q, a * cos + b * sin, mask=inside)
    tl.store(q + half, b * cos - a * sin, mask=inside)


@ROPE_KERNEL.near_miss("the second channel meets the turned first one",
                       says="Both lines need the channel as it was loaded: keep a until b is turned too.")
def rope_kernel(X, COS, SIN, Y, token_stride, head_stride, num_heads, half, HEADS: tl.constexpr, HALF: tl.constexpr):
    token = tl.program_id(0)
    head, pair = tl.arange(0, HEADS)[:, None], tl.arange(0, HALF)[None, :]
    inside = (head < num_heads) & (pair < half)
    cos = tl.load(COS + token * half + pair, mask=pair < half, other=0.0)
    sin = tl.load(SIN + token * half + pair, mask=pair < half, other=0.0)
    p = X + token * token_stride + head * head_stride + pair
    a = tl.load(p, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(p + half, mask=inside, other=0.0).to(tl.float32)
    a = a * cos - b * sin
    b = a * sin + b * cos
    q = Y + (token * num_heads + head) * 2 * half + pair
    tl.store(q, a, mask=inside)
    tl.store(q + half, b, mask=inside)


@ROPE_KERNEL.near_miss("every token takes the angles of the first", section=f"{PRIMER}#strides",
                       says="COS and SIN have a row of `half` angles for each token: COS + token * half + pair.")
def rope_kernel(X, COS, SIN, Y, token_stride, head_stride, num_heads, half, HEADS: tl.constexpr, HALF: tl.constexpr):
    token = tl.program_id(0)
    head, pair = tl.arange(0, HEADS)[:, None], tl.arange(0, HALF)[None, :]
    inside = (head < num_heads) & (pair < half)
    cos = tl.load(COS + pair, mask=pair < half, other=0.0)
    sin = tl.load(SIN + pair, mask=pair < half, other=0.0)
    p = X + token * token_stride + head * head_stride + pair
    a = tl.load(p, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(p + half, mask=inside, other=0.0).to(tl.float32)
    q = Y + (token * num_heads + head) * 2 * half + pair
    tl.store(q, a * cos - b * sin, mask=inside)
    tl.store(q + half, a * sin + b * cos, mask=inside)


@ROPE_KERNEL.near_miss("the heads are not masked", section=f"{PRIMER}#a-strided-tile",
                       says="HEADS is num_heads rounded up: the extra rows of the tile belong to the next token or to "
                            "nobody. Mask with (head < num_heads) & (pair < half).")
def rope_kernel(X, COS, SIN, Y, token_stride, head_stride, num_heads, half, HEADS: tl.constexpr, HALF: tl.constexpr):
    token = tl.program_id(0)
    head, pair = tl.arange(0, HEADS)[:, None], tl.arange(0, HALF)[None, :]
    inside = (head >= 0) & (pair < half)
    cos = tl.load(COS + token * half + pair, mask=pair < half, other=0.0)
    sin = tl.load(SIN + token * half + pair, mask=pair < half, other=0.0)
    p = X + token * token_stride + head * head_stride + pair
    a = tl.load(p, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(p + half, mask=inside, other=0.0).to(tl.float32)
    q = Y + (token * num_heads + head) * 2 * half + pair
    tl.store(q, a * cos - b * sin, mask=inside)
    tl.store(q + half, a * sin + b * cos, mask=inside)


@ROPE_KERNEL.near_miss("it takes X to be contiguous", section=f"{PRIMER}#strides",
                       says="X may be cut out of a fused projection: the next token starts token_stride further. Only Y "
                            "is contiguous.")
def rope_kernel(X, COS, SIN, Y, token_stride, head_stride, num_heads, half, HEADS: tl.constexpr, HALF: tl.constexpr):
    token = tl.program_id(0)
    head, pair = tl.arange(0, HEADS)[:, None], tl.arange(0, HALF)[None, :]
    inside = (head < num_heads) & (pair < half)
    cos = tl.load(COS + token * half + pair, mask=pair < half, other=0.0)
    sin = tl.load(SIN + token * half + pair, mask=pair < half, other=0.0)
    where = (token * num_heads + head) * 2 * half + pair
    a = tl.load(X + where, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(X + where + half, mask=inside, other=0.0).to(tl.float32)
    tl.store(Y + where, a * cos - b * sin, mask=inside)
    tl.store(Y + where + half, a * sin + b * cos, mask=inside)


@ROPE_KERNEL.near_miss("it loads the angles for every head", section=f"{PRIMER}#what-one-byte-costs",
                       says="All heads of a token share its angles: load one row of them and let it broadcast.")
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


@ROPE_KERNEL.near_miss("it takes heads to lie 2 * half apart", says="Something else may lie between the heads of X: the next "
                       "one starts head_stride further. Only in Y do heads follow each other.")
def rope_kernel(X, COS, SIN, Y, token_stride, head_stride, num_heads, half, HEADS: tl.constexpr, HALF: tl.constexpr):
    token = tl.program_id(0)
    head = tl.arange(0, HEADS)[:, None]
    pair = tl.arange(0, HALF)[None, :]
    inside = (head < num_heads) & (pair < half)
    cos = tl.load(COS + token * half + pair, mask=pair < half, other=0.0)
    sin = tl.load(SIN + token * half + pair, mask=pair < half, other=0.0)
    source = X + token * token_stride + head * 2 * half + pair
    first = tl.load(source, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(source + half, mask=inside, other=0.0).to(tl.float32)
    target = Y + (token * num_heads + head) * 2 * half + pair
    tl.store(target, first * cos - second * sin, mask=inside)
    tl.store(target + half, first * sin + second * cos, mask=inside)


@ROPE_KERNEL.near_miss("the second channels are half a block away", says="HALF is half rounded up to a power of two; channel i "
                       "is paired with i + half.")
def rope_kernel(X, COS, SIN, Y, token_stride, head_stride, num_heads, half, HEADS: tl.constexpr, HALF: tl.constexpr):
    token = tl.program_id(0)
    head = tl.arange(0, HEADS)[:, None]
    pair = tl.arange(0, HALF)[None, :]
    inside = (head < num_heads) & (pair < half)
    cos = tl.load(COS + token * half + pair, mask=pair < half, other=0.0)
    sin = tl.load(SIN + token * half + pair, mask=pair < half, other=0.0)
    source = X + token * token_stride + head * head_stride + pair
    first = tl.load(source, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(source + HALF, mask=inside, other=0.0).to(tl.float32)
    target = Y + (token * num_heads + head) * 2 * half + pair
    tl.store(target, first * cos - second * sin, mask=inside)
    tl.store(target + HALF, first * sin + second * cos, mask=inside)


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


# --- swiglu_kernel ---------------------------------------------------------------------------------------


def _swiglu_launch(kernel, gate, up):
    import triton

    rows, n = gate.shape
    y = torch.empty(gate.shape, dtype=gate.dtype)
    kernel[(rows, triton.cdiv(n, 32))](gate, up, y, gate.stride(0), up.stride(0), n, BLOCK=32)
    return y


def _swiglu_reference(gate, up):
    wide = _wide(gate)
    return (wide * torch.sigmoid(wide) * _wide(up)).to(gate.dtype)


def _swiglu_cases(draw: Draw) -> list[Case]:
    def case(rows, n, label, dtype=torch.float32, tolerance=None, scale=1.0):
        gate, up = draw.randn(rows, n, dtype=dtype, scale=scale), draw.randn(rows, n, dtype=dtype)
        return Case((gate, up), label=label, tolerance=tolerance)

    n = draw.choice([41, 53, 90])
    fused = draw.randn(2, 2 * 45)
    return [
        case(2, n, f"2 rows of {n}"),
        Case((fused[:, :45], fused[:, 45:]), label="gate and up are the halves of one projection: rows of 45, 90 apart"),
        Case((padded(draw, 2, 37, 40), padded(draw, 2, 37, 50)), label="rows of 37; gate's lie 40 apart, up's 50"),
        case(1, 64, "a row of 64: two full blocks"),
        Case((torch.linspace(-110, 110, 23).repeat(2, 1), draw.randn(2, 23)), label="gates from -110 to 110"),
        case(1, 33, "fp16", torch.float16, HALF, 3.0),
        case(1, 35, "bf16", torch.bfloat16, HALF, 3.0),
    ]


def _swiglu_in_model(answer, checkpoint):
    import triton

    from course.check.trial import Trial, swap

    def launch(kernel, gate, up):
        """The exercise's launch with a larger block: blocks of 32 would be 48 programs a row here."""
        y = torch.empty(gate.shape, dtype=gate.dtype)
        rows, n = gate.shape
        kernel[(rows, triton.cdiv(n, 512))](gate, up, y, gate.stride(0), up.stride(0), n, BLOCK=512)
        return y

    call = _checked(launch, answer)

    def swiglu(gate, up):
        return call(gate.reshape(-1, gate.shape[-1]), up.reshape(-1, up.shape[-1])).view(gate.shape)

    return Trial(swap(swiglu=swiglu), note=SLOW, new_tokens=4)


SWIGLU_KERNEL = Exercise(
    id="transformer_block.swiglu_kernel",
    title="SwiGLU in Triton",
    signature="swiglu_kernel(GATE, UP, Y, gate_stride, up_stride, n, BLOCK: tl.constexpr)",
    reference=_swiglu_reference,
    cases=_swiglu_cases,
    hints=(
        "Masked add on a grid of two axes: axis 0 is the row, axis 1 the block of columns. No reduction at all.",
        "i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK); GATE's rows lie gate_stride apart, UP's up_stride, Y's n. "
        "Compute in fp32; tl.sigmoid survives large gates.",
        "g = tl.load(GATE + row * gate_stride + i, mask=i < n, other=0.0).to(tl.float32); u likewise; "
        "tl.store(Y + row * n + i, g * tl.sigmoid(g) * u, mask=i < n)",
    ),
    section=f"{PAGE}#swiglu",
    points=1,
    track="kernel",
    difficulty=2,
    minutes=15,
    tolerance=Tolerance(c=8.0, K=2),
    prelude=KERNEL_PRELUDE,
    drive=_swiglu_launch,
    argument_names=("gate", "up"),
    bytes_bound=lambda gate, up: 3 * size(gate),
    in_model=_swiglu_in_model,
    seconds=30.0,
)


@SWIGLU_KERNEL.near_miss("the gate itself is missing",
                         says="SiLU(x) is x times sigmoid(x): sigmoid alone only opens and closes.")
def swiglu_kernel(GATE, UP, Y, gate_stride, up_stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(GATE + row * gate_stride + i, mask=i < n, other=0.0).to(tl.float32)
    u = tl.load(UP + row * up_stride + i, mask=i < n, other=0.0).to(tl.float32)
    tl.store(Y + row * n + i, tl.sigmoid(g) * u, mask=i < n)


@SWIGLU_KERNEL.near_miss("SiLU is applied to up", says="The gate goes through SiLU, up stays as it is.")
def swiglu_kernel(GATE, UP, Y, gate_stride, up_stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(GATE + row * gate_stride + i, mask=i < n, other=0.0).to(tl.float32)
    u = tl.load(UP + row * up_stride + i, mask=i < n, other=0.0).to(tl.float32)
    tl.store(Y + row * n + i, u * tl.sigmoid(u) * g, mask=i < n)


@SWIGLU_KERNEL.near_miss("exp of a large gate overflows",
                         says="exp(g) / (1 + exp(g)) is infinity over infinity beyond 88: use tl.sigmoid, or "
                              "1 / (1 + exp(-g)).")
def swiglu_kernel(GATE, UP, Y, gate_stride, up_stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(GATE + row * gate_stride + i, mask=i < n, other=0.0).to(tl.float32)
    u = tl.load(UP + row * up_stride + i, mask=i < n, other=0.0).to(tl.float32)
    tl.store(Y + row * n + i, g * (tl.exp(g) / (1.0 + tl.exp(g))) * u, mask=i < n)


@SWIGLU_KERNEL.near_miss("no lane is masked", section=f"{PRIMER}#the-missing-mask",
                         says="The last block of a row reaches into the next row, or past the tensor: mask with i < n.")
def swiglu_kernel(GATE, UP, Y, gate_stride, up_stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(GATE + row * gate_stride + i).to(tl.float32)
    u = tl.load(UP + row * up_stride + i).to(tl.float32)
    tl.store(Y + row * n + i, g * tl.sigmoid(g) * u)


@SWIGLU_KERNEL.near_miss("it takes rows to lie n apart", section=f"{PRIMER}#strides",
                         says="gate and up may be halves of one projection: their rows lie gate_stride and up_stride "
                              "apart. Only Y's lie n apart.")
def swiglu_kernel(GATE, UP, Y, gate_stride, up_stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(GATE + row * n + i, mask=i < n, other=0.0).to(tl.float32)
    u = tl.load(UP + row * n + i, mask=i < n, other=0.0).to(tl.float32)
    tl.store(Y + row * n + i, g * tl.sigmoid(g) * u, mask=i < n)


@SWIGLU_KERNEL.near_miss("every block of a row works on the first", section=f"{PRIMER}#masked-add",
                         says="Axis 1 of the grid counts the blocks of a row: add tl.program_id(1) * BLOCK.")
def swiglu_kernel(GATE, UP, Y, gate_stride, up_stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    g = tl.load(GATE + row * gate_stride + i, mask=i < n, other=0.0).to(tl.float32)
    u = tl.load(UP + row * up_stride + i, mask=i < n, other=0.0).to(tl.float32)
    tl.store(Y + row * n + i, g * tl.sigmoid(g) * u, mask=i < n)


@SWIGLU_KERNEL.near_miss("it loads the gate twice", section=f"{PRIMER}#what-one-byte-costs",
                         says="Once for the sigmoid and once for the product: one load is enough, keep the value.")
def swiglu_kernel(GATE, UP, Y, gate_stride, up_stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    s = tl.sigmoid(tl.load(GATE + row * gate_stride + i, mask=i < n, other=0.0).to(tl.float32))
    g = tl.load(GATE + row * gate_stride + i, mask=i < n, other=0.0).to(tl.float32)
    u = tl.load(UP + row * up_stride + i, mask=i < n, other=0.0).to(tl.float32)
    tl.store(Y + row * n + i, g * s * u, mask=i < n)


@SWIGLU_KERNEL.alternate("divided by 1 + exp(-gate), the strides added first")
def swiglu_kernel(GATE, UP, Y, gate_stride, up_stride, n, BLOCK: tl.constexpr):
    row, block = tl.program_id(0), tl.program_id(1)
    i = block * BLOCK + tl.arange(0, BLOCK)
    GATE += row * gate_stride
    UP += row * up_stride
    inside = i < n
    g = tl.load(GATE + i, mask=inside).to(tl.float32)
    u = tl.load(UP + i, mask=inside).to(tl.float32)
    tl.store(Y + row * n + i, (u * (g / (1.0 + tl.exp(-g)))).to(Y.dtype.element_ty), mask=inside)


KERNELS = [RMS_NORM_KERNEL, ROPE_KERNEL, SWIGLU_KERNEL]
