"""RMSNorm in Triton."""

from __future__ import annotations

import torch

from course.specs.exercise import KERNEL_PRELUDE, Case, Draw, Exercise, Tolerance
from course.specs.kernels import HALF, padded, power, size
from course.specs.transformer_block.shared import EXACT, PAGE, PRIMER, one_magnitude, widened


def launch(kernel, x, weight, eps, block):
    y = torch.empty(x.shape, dtype=x.dtype)
    kernel[(x.shape[0],)](x, weight, y, x.stride(0), x.shape[1], eps, BLOCK=block)
    return y


def reference(x, weight, eps, block):
    wide = widened(x)
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


def cases(draw: Draw) -> list[Case]:
    hidden = draw.choice([37, 53, 100])
    half, bf16 = torch.float16, torch.bfloat16

    def case(x, weight, eps, label, tolerance=None, wider=1):
        return Case((x, weight, eps, wider * power(x.shape[1])), label=label, tolerance=tolerance)

    return [
        case(draw.randn(3, hidden) + 2, draw.randn(hidden), 1e-5, f"3 rows of {hidden}, mean far from 0"),
        case(padded(draw, 2, 24, 40), draw.randn(24), 1e-5, "rows of 24 that lie 40 elements apart"),
        case(draw.randn(2, 64, scale=1e-3), draw.randn(64), 1e-5, "rows of 64, so small that eps counts"),
        case(draw.randn(2, 11, scale=1e-3), draw.randn(11), 3e-6, "rows of 11, so small, with another eps"),
        case(draw.randn(2, 19, dtype=half, scale=300), draw.randn(19, dtype=half), 1e-5,
             "fp16, squares beyond its range", HALF),
        case(draw.randn(2, 21, dtype=bf16), draw.randn(21, dtype=bf16), 1e-6, "bf16", HALF),
        case(*one_magnitude(draw, 2, 13), "bf16, rows of one magnitude", EXACT),
        case(draw.randn(5, 12), draw.randn(12), 1e-5, "rows of 12, a block of 64", wider=4),
    ]


RMS_NORM_KERNEL = Exercise(
    id="transformer_block.rms_norm_kernel",
    title="RMSNorm in Triton",
    signature="rms_norm_kernel(X, W, Y, stride, n, eps, BLOCK: tl.constexpr)",
    reference=reference,
    cases=cases,
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
    drive=launch,
    argument_names=("x", "weight", "eps", "block"),
    bytes_bound=lambda x, weight, eps, block: 2 * size(x) + x.shape[0] * size(weight),
    in_model=True,
    seconds=30.0,
)

RMS_NORM_KERNEL.near_miss(
    "the mean divides by BLOCK",
    {"/ n + eps": "/ BLOCK + eps"},
    says="BLOCK is n rounded up to a power of two; the row has n elements.",
    section=f"{PRIMER}#masked-lanes",
)

RMS_NORM_KERNEL.near_miss(
    "eps is outside the root",
    {"tl.rsqrt(tl.sum(wide * wide, axis=0) / n + eps)": "1.0 / (tl.sqrt(tl.sum(wide * wide, axis=0) / n) + eps)"},
    says="eps guards the mean square, so it is added under the root.",
)

RMS_NORM_KERNEL.near_miss(
    "it subtracts the mean",
    {"scale = ": "wide = tl.where(inside, wide - tl.sum(wide, axis=0) / n, 0.0)\nscale = "},
    says="LayerNorm centres its input; RMSNorm leaves the mean where it is.",
)

RMS_NORM_KERNEL.near_miss(
    "masked lanes hold anything",
    {"stride + i, mask=inside, other=0.0": "stride + i, mask=inside"},
    says="Without other= a masked lane holds whatever was there, and its square is summed: other=0.0.",
    section=f"{PRIMER}#masked-lanes",
)

RMS_NORM_KERNEL.near_miss(
    "no lane is masked",
    {"i < n": "i < BLOCK"},
    says="BLOCK is the next power of two: lanes beyond n belong to the next row or to nobody. Mask loads and store "
    "with i < n.",
    section=f"{PRIMER}#the-missing-mask",
)

RMS_NORM_KERNEL.near_miss(
    "it takes the rows of X to lie n apart",
    {"row * stride": "row * n"},
    says="The next row of X starts `stride` elements further; only Y's rows lie n apart.",
    section=f"{PRIMER}#strides",
)

RMS_NORM_KERNEL.near_miss(
    "the squares stay in half precision",
    {"tl.sum(wide * wide, axis=0)": "tl.sum((x * x).to(tl.float32), axis=0)"},
    says="300 squared is beyond fp16: go to fp32 before you square.",
)

RMS_NORM_KERNEL.near_miss(
    "it loads the row twice",
    {
        "tl.store(": "x = tl.load(X + row * stride + i, mask=inside, other=0.0)\ntl.store(",
        "(wide * scale)": "(x.to(tl.float32) * scale)",
    },
    says="Once for the statistics, once for the result: the row is still there after the sum, so use it.",
    section=f"{PRIMER}#what-one-byte-costs",
)

RMS_NORM_KERNEL.near_miss(
    "eps is a number of its own",
    {"+ eps)": "+ 1e-5)"},
    says="Models differ in eps (1e-5, 1e-6): use the parameter.",
)

RMS_NORM_KERNEL.near_miss(
    "the weight is missing",
    {"w = tl.load(W + i, mask=inside, other=0.0)\n": "", ".to(x.dtype) * w": ".to(x.dtype)"},
    says="Each channel has a scale of its own: multiply by the row of W.",
)


@RMS_NORM_KERNEL.alternate("in fp32 to the end, with a square root")
def rms_norm_kernel(X, W, Y, stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    inside = i < n
    x = tl.load(X + row * stride + i, mask=inside).to(tl.float32)
    x = tl.where(inside, x, 0.0)
    y = x / tl.sqrt(tl.sum(x * x) / n + eps) * tl.load(W + i, mask=inside, other=0.0).to(tl.float32)
    tl.store(Y + row * n + i, y.to(Y.dtype.element_ty), mask=inside)
