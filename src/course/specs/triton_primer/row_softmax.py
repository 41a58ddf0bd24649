"""Row softmax: the signature alone."""

from __future__ import annotations

import torch

from course.specs.exercise import KERNEL_PRELUDE, Case, Draw, Exercise, Tolerance
from course.specs.kernels import HALF, padded, power, size
from course.specs.triton_primer.shared import PAGE


def launch(kernel, x, block):
    out = torch.empty(x.shape, dtype=x.dtype)
    kernel[(x.shape[0],)](x, out, x.stride(0), x.shape[1], BLOCK=block)
    return out


def reference(x, block):
    return (x if x.dtype == torch.float64 else x.float()).softmax(-1).to(x.dtype)


def cases(draw: Draw) -> list[Case]:
    columns = draw.choice([37, 53, 100])
    late = torch.linspace(20, 110, 23).repeat(2, 1) + draw.randn(2, 23)

    def case(x, label, tolerance=None, wider=1):
        return Case((x, wider * power(x.shape[1])), label=label, tolerance=tolerance)

    return [
        case(draw.randn(3, columns, scale=4.0), f"3 rows of {columns}"),
        case(padded(draw, 2, 37, 48), "rows of 37 that lie 48 elements apart"),
        case(draw.randn(2, 64), "rows of 64: the block is full"),
        case(late, "values up to 110, the largest last"),
        case(draw.randn(2, 19) - 130, "every value near -130"),
        case(draw.randn(2, 1), "rows of one element"),
        case(draw.randn(1, 45, dtype=torch.float16, scale=4.0), "fp16", HALF),
        case(draw.randn(1, 21, dtype=torch.bfloat16, scale=4.0), "bf16", HALF),
        case(draw.randn(4, 11), "rows of 11, a block of 64", wider=4),
    ]


SOFTMAX = Exercise(
    id="triton_primer.row_softmax",
    title="Row softmax",
    signature="row_softmax(X, OUT, stride, n, BLOCK: tl.constexpr)",
    reference=reference,
    cases=cases,
    hints=(
        "One program, one row: load it once, then tl.max, tl.exp, tl.sum on the values you hold, then store. OUT's rows "
        "lie n apart.",
        "Two reductions meet the masked lanes. A maximum does not notice minus infinity, and exp makes it 0, which a sum "
        'does not notice: other=-float("inf").',
        'x = tl.load(X + row * stride + i, mask=i < n, other=-float("inf")).to(tl.float32); '
        "e = tl.exp(x - tl.max(x, axis=0)); tl.store(OUT + row * n + i, e / tl.sum(e, axis=0), mask=i < n)",
    ),
    section=f"{PAGE}#row-softmax",
    points=2,
    track="kernel",
    difficulty=3,
    minutes=20,
    tolerance=Tolerance(c=16.0, K=64),
    denied=("softmax",),
    prelude=KERNEL_PRELUDE,
    drive=launch,
    argument_names=("x", "block"),
    bytes_bound=lambda x, block: 2 * size(x),
    seconds=30.0,
)

SOFTMAX.near_miss(
    "it takes exp of the values as they are",
    {"tl.exp(x - tl.max(x, axis=0))": "tl.exp(x)"},
    says="exp overflows beyond 88 and is 0/0 far below: subtract the row's maximum first. It cancels in the "
    "division.",
)

SOFTMAX.near_miss(
    "it divides by the largest instead of the sum",
    {"tl.sum(e, axis=0)": "tl.max(e, axis=0)"},
    says="The weights of a row sum to 1: divide by tl.sum(e), not by tl.max(e).",
)

SOFTMAX.near_miss(
    "it subtracts the sum instead of the maximum",
    {'-float("inf")': "0.0", "tl.exp(x - tl.max(x, axis=0))": "tl.where(inside, tl.exp(x - tl.sum(x, axis=0)), 0.0)"},
    says="Any number cancels in the division, but only the maximum keeps exp in range: tl.max, not tl.sum.",
)

SOFTMAX.near_miss(
    "masked lanes hold anything",
    {', other=-float("inf")': ""},
    says='Without other= a masked lane holds whatever was there, and both reductions see it: other=-float("inf").',
    section=f"{PAGE}#masked-lanes",
)

SOFTMAX.near_miss(
    "masked lanes hold zero",
    {'-float("inf")': "0.0"},
    says='Zero is neutral for a sum, but here exp comes first and exp(0 - max) is counted: other=-float("inf").',
    section=f"{PAGE}#masked-lanes",
)

SOFTMAX.near_miss(
    "no lane is masked",
    {"i < n": "i >= 0"},
    says="BLOCK is the next power of two: lanes beyond n belong to the next row or to nobody. Mask the load and the "
    "store with i < n.",
    section=f"{PAGE}#the-missing-mask",
)

SOFTMAX.near_miss(
    "it takes the rows of X to lie n apart",
    {"row * stride": "row * n"},
    says="The next row of X starts `stride` elements further; only OUT's rows lie n apart.",
    section=f"{PAGE}#strides",
)


@SOFTMAX.near_miss(
    "it loads the row three times",
    says="One pass for the maximum, one for the sum, one for the result: the row fits in one program, so load it "
    "once and reuse what you hold.",
    section=f"{PAGE}#what-one-byte-costs",
)
def row_softmax(X, OUT, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    p = X + row * stride + i
    m = tl.max(tl.load(p, mask=i < n, other=-float("inf")).to(tl.float32), axis=0)
    s = tl.sum(tl.exp(tl.load(p, mask=i < n, other=-float("inf")).to(tl.float32) - m), axis=0)
    x = tl.load(p, mask=i < n, other=-float("inf")).to(tl.float32)
    tl.store(OUT + row * n + i, tl.exp(x - m) / s, mask=i < n)


@SOFTMAX.alternate("in powers of two")
def row_softmax(X, OUT, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    inside = i < n
    x = tl.load(X + row * stride + i, mask=inside, other=float("-inf")).to(tl.float32) * 1.4426950408889634
    e = tl.exp2(x - tl.max(x, 0))
    y = e * (1.0 / tl.sum(e, 0))
    tl.store(OUT + row * n + i, y.to(OUT.dtype.element_ty), mask=inside)


@SOFTMAX.alternate("masked lanes replaced after the load, by way of the logarithm")
def row_softmax(X, OUT, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    inside = i < n
    x = tl.load(X + row * stride + i, mask=inside, other=0.0).to(tl.float32)
    x = tl.where(inside, x, -1e30)
    top = tl.max(x)
    total = top + tl.log(tl.sum(tl.exp(x - top)))
    tl.store(OUT + row * n + i, tl.exp(x - total), mask=inside)
