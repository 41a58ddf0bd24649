"""Exercises of chapter 03: the parts of one transformer block."""

from __future__ import annotations

import torch

from course.specs.exercise import Case, Draw, Exercise, Tolerance

PAGE = "03_transformer_block.html"


def _wide(x: torch.Tensor) -> torch.Tensor:
    """Statistics are computed in fp32 at least; in fp64 when the input is fp64."""
    return x if x.dtype == torch.float64 else x.float()


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
        Case((draw.randn(3, hidden, scale=300, dtype=torch.float16), draw.randn(hidden, dtype=torch.float16), 1e-5),
             label="fp16, squares beyond its range"),
        Case((draw.randn(3, hidden, dtype=torch.bfloat16), draw.randn(hidden, dtype=torch.bfloat16), 1e-6),
             label="bf16"),
        Case((draw.strided(6, hidden), draw.randn(hidden), 1e-5), label="rows not contiguous in memory"),
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


@RMS_NORM.alternate("by division, in fp64")
def rms_norm(x, weight, eps):
    wide = x.double()
    root = (wide.pow(2).sum(dim=-1, keepdim=True) / x.shape[-1] + eps) ** 0.5
    return (wide / root).to(x.dtype) * weight


EXERCISES = [RMS_NORM]
