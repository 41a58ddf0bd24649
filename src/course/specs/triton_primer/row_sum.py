"""Row sum: a reduction, and what masked lanes hold."""

from __future__ import annotations

import torch

from course.specs.exercise import KERNEL_PRELUDE, Case, Draw, Exercise, Tolerance
from course.specs.kernels import padded, power, size
from course.specs.triton_primer.shared import PAGE


def launch(kernel, x, block):
    out = torch.empty(x.shape[0], dtype=torch.float32)
    kernel[(x.shape[0],)](x, out, x.stride(0), x.shape[1], BLOCK=block)
    return out


def reference(x, block):
    return (x if x.dtype == torch.float64 else x.float()).sum(-1)


def cases(draw: Draw) -> list[Case]:
    columns = draw.choice([37, 53, 100])
    large = draw.randn(2, 700, dtype=torch.float64).abs() * 60 + 60

    def case(x, label, wider=1):
        return Case((x, wider * power(x.shape[1])), label=label)

    return [
        case(draw.randn(3, columns), f"3 rows of {columns}"),
        case(padded(draw, 2, 37, 48), "rows of 37 that lie 48 elements apart"),
        case(draw.randn(2, 64), "rows of 64: the block is full"),
        case(draw.randn(2, 1), "rows of one element"),
        case(large.half(), "fp16, sums beyond its range"),
        case(draw.randn(2, 129, dtype=torch.bfloat16), "bf16, rows of 129"),
        case(draw.randn(5, 20), "rows of 20, a block of 128", wider=4),
    ]


ROW_SUM = Exercise(
    id="triton_primer.row_sum",
    title="Row sum",
    signature="row_sum(X, OUT, stride, n, BLOCK: tl.constexpr)",
    reference=reference,
    cases=cases,
    hints=(
        "One program, one row. The row starts at X + row * stride, and its n elements are neighbours.",
        "Masked lanes take part in tl.sum: say what they hold with other=0.0. Sum in fp32: x.to(tl.float32).",
        "i = tl.arange(0, BLOCK); x = tl.load(X + row * stride + i, mask=i < n, other=0.0); "
        "total = tl.sum(x.to(tl.float32), axis=0)",
    ),
    section=f"{PAGE}#row-sum",
    track="kernel",
    difficulty=2,
    minutes=10,
    tolerance=Tolerance(c=8.0, K=700),
    prelude=KERNEL_PRELUDE,
    drive=launch,
    argument_names=("x", "block"),
    bytes_bound=lambda x, block: size(x) + 4 * x.shape[0],
    seconds=30.0,
)

ROW_SUM.near_miss(
    "no lane is masked",
    {", mask=i < n, other=0.0": ""},
    says="BLOCK is the next power of two, so lanes beyond n read what belongs to the next row or to nobody: mask "
    "them with i < n.",
    section=f"{PAGE}#the-missing-mask",
)

ROW_SUM.near_miss(
    "the mask lets one lane too many through",
    {"i < n": "i <= n"},
    says="n elements have the indices 0 to n - 1: the mask is i < n, not i <= n.",
    section=f"{PAGE}#the-missing-mask",
)

ROW_SUM.near_miss(
    "masked lanes hold anything",
    {", other=0.0": ""},
    says="Without other= a masked lane holds whatever was there, and tl.sum adds it. Zero is what a sum does not "
    "notice: other=0.0.",
    section=f"{PAGE}#masked-lanes",
)

ROW_SUM.near_miss(
    "masked lanes hold one",
    {"other=0.0": "other=1.0"},
    says="Each of the BLOCK - n masked lanes adds its `other` to the sum: make it 0.0.",
    section=f"{PAGE}#masked-lanes",
)

ROW_SUM.near_miss(
    "it takes rows to lie n apart",
    {"row * stride": "row * n"},
    says="Rows may have room between them. The distance from one to the next is `stride`: row * stride, not row * n.",
    section=f"{PAGE}#strides",
)

ROW_SUM.near_miss(
    "every program stores to the first element",
    {"OUT + row": "OUT"},
    says="All rows end in OUT[0], and which one stays is a matter of luck: store to OUT + row.",
    section=f"{PAGE}#a-race",
)

ROW_SUM.near_miss(
    "it sums in half precision",
    {"x.to(tl.float32)": "x"},
    says="fp16 ends at 65,504 and keeps 11 bits: go to fp32 before the sum, x.to(tl.float32).",
)

ROW_SUM.near_miss(
    "it averages",
    {"axis=0)": "axis=0) / n"},
    says="The sum is asked for: do not divide by n.",
)


@ROW_SUM.alternate("masked lanes replaced after the load")
def row_sum(X, OUT, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    X += row * stride
    i = tl.arange(0, BLOCK)
    inside = i < n
    x = tl.load(X + i, mask=inside).to(tl.float32)
    tl.store(OUT + row, tl.sum(tl.where(inside, x, 0.0)))
