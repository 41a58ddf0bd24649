"""RMSNorm."""

from __future__ import annotations

import torch

from course.specs.exercise import Case, Draw, Exercise, Tolerance
from course.specs.transformer_block.shared import EXACT, PAGE, one_magnitude, widened


def reference(x, weight, eps):
    wide = widened(x)
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * scale).to(x.dtype) * weight


def cases(draw: Draw) -> list[Case]:
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
        Case((draw.randn(hidden), draw.randn(hidden), 1e-5), label="no leading axis, a single row"),
        Case(one_magnitude(draw, 3, hidden), label="bf16, rows of one magnitude", tolerance=EXACT),
    ]


RMS_NORM = Exercise(
    id="transformer_block.rms_norm",
    title="RMSNorm",
    signature="rms_norm(x, weight, eps)",
    reference=reference,
    cases=cases,
    hints=(
        "Three steps along the last axis: square, mean, divide by the root. Keep the axis, so that shapes broadcast.",
        "fp16 overflows at 65,504 and 300 squared is 90,000: do the statistics in fp32, then go back to x.dtype.",
        "wide = x.float(); y = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps); "
        "return y.to(x.dtype) * weight",
    ),
    section=f"{PAGE}#rmsnorm",
    points=2,
    difficulty=1,
    minutes=10,
    tolerance=Tolerance(c=8.0, K=24),
    denied=("rms_norm", "RMSNorm", "layer_norm"),
    in_model=True,
)

RMS_NORM.near_miss(
    "it subtracts the mean",
    {"wide = x.float()": "wide = x.float() - x.float().mean(-1, keepdim=True)"},
    says="LayerNorm centres its input; RMSNorm leaves the mean where it is.",
)

RMS_NORM.near_miss(
    "eps is outside the root",
    {
        "wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)":
            "wide / (wide.square().mean(-1, keepdim=True).sqrt() + eps)",
    },
    says="eps guards the mean square, so it is added under the root.",
)

RMS_NORM.near_miss(
    "the statistics stay in half precision",
    {"wide = x.float()": "wide = x"},
    says="Squares of large fp16 values overflow to infinity: compute the mean square in fp32.",
)

RMS_NORM.near_miss(
    "it sums where it should average",
    {".mean(": ".sum("},
    says="Divide by the number of elements: mean, not sum.",
)

RMS_NORM.near_miss(
    "it averages over the whole tensor",
    {".mean(-1, keepdim=True)": ".mean()"},
    says="Every row has its own scale: reduce over the last axis.",
)

RMS_NORM.near_miss(
    "eps is a number of its own",
    {"+ eps)": "+ 1e-5)"},
    says="Models differ in eps (1e-5, 1e-6): use the argument.",
)

RMS_NORM.near_miss(
    "the weight is missing",
    {" * weight": ""},
    says="Each channel has a scale of its own: multiply by weight at the end.",
)

RMS_NORM.near_miss(
    "one is added to the weight",
    {"* weight": "* (1 + weight)"},
    says="Gemma stores weight - 1 and adds 1; this model's weight is the scale itself.",
)

RMS_NORM.near_miss(
    "the scale is rounded to half precision",
    {"wide = x.float()": "wide = x.float() if x.dtype == torch.float16 else x"},
    says="bf16 has the range of fp32 and keeps 8 bits: no square overflows, but a mean square or a scale that is rounded to "
    "them is wrong for the whole row. fp32 for every half precision, until the row is scaled.",
)


@RMS_NORM.alternate("by division, in fp64")
def rms_norm(x, weight, eps):
    wide = x.double()
    root = (wide.pow(2).sum(dim=-1, keepdim=True) / x.shape[-1] + eps) ** 0.5
    return (wide / root).to(x.dtype) * weight


@RMS_NORM.alternate("the weight in fp32, rounded once")
def rms_norm(x, weight, eps):
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)
