"""SwiGLU."""

from __future__ import annotations

import torch

from course.specs.exercise import Case, Draw, Exercise, Tolerance
from course.specs.transformer_block.shared import PAGE, widened


def reference(gate, up):
    wide = widened(gate)
    return (wide * torch.sigmoid(wide) * widened(up)).to(gate.dtype)


def cases(draw: Draw) -> list[Case]:
    n = draw.choice([7, 12, 17])
    half = torch.float16
    large, large_half = draw.randn(3, n, scale=120), draw.randn(3, n, scale=10, dtype=half)
    large[0, 0], large_half[0, 0] = 86, 10  # exp is finite there, x * exp(x) is not
    return [
        Case((draw.randn(4, n), draw.randn(4, n)), label=f"4 tokens, {n} wide"),
        Case((draw.randn(2, 3, n, scale=4), draw.randn(2, 3, n)), label="two leading axes"),
        Case((large, draw.randn(3, n)), label="gates beyond ±100"),
        Case((torch.zeros(1, n), draw.randn(1, n)), label="gates of exactly 0"),
        Case((draw.strided(5, n), draw.strided(5, n)), label="not contiguous in memory"),
        Case((large_half, draw.randn(3, n, dtype=half)), label="fp16"),
        Case((draw.randn(3, n, dtype=torch.bfloat16), draw.randn(3, n, dtype=torch.bfloat16)), label="bf16"),
        Case((draw.randn(0, n), draw.randn(0, n)), label="no tokens"),
        Case((draw.randn(n), draw.randn(n)), label="no leading axis, a single token"),
    ]


SWIGLU = Exercise(
    id="transformer_block.swiglu",
    title="SwiGLU",
    signature="swiglu(gate, up)",
    reference=reference,
    cases=cases,
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
    in_model=True,
)

SWIGLU.near_miss(
    "SiLU is on the up branch",
    {"gate * torch.sigmoid(gate) * up": "gate * up * torch.sigmoid(up)"},
    says="The branch named gate goes through SiLU; up stays linear.",
)

SWIGLU.near_miss(
    "the gate is a sigmoid",
    {"gate * torch": "torch"},
    says="That is the plain GLU of 2017. SiLU multiplies the sigmoid by its own argument.",
)

SWIGLU.near_miss(
    "it is GELU, not SiLU",
    {"gate * torch.sigmoid(gate)": "F.gelu(gate)"},
    says="GeGLU, as in Gemma, uses GELU. SwiGLU uses x · sigmoid(x).",
)

SWIGLU.near_miss(
    "exp overflows",
    {"torch.sigmoid(gate)": "(torch.exp(gate) / (1 + torch.exp(gate)))"},
    says="exp(x) / (1 + exp(x)) is inf/inf for large x. torch.sigmoid, or 1 / (1 + exp(-x)), stays finite.",
)

SWIGLU.near_miss(
    "SiLU is taken of the product",
    {"return gate * torch.sigmoid(gate) * up": "product = gate * up\nreturn product * torch.sigmoid(product)"},
    says="Squash gate first, then multiply by up.",
)

SWIGLU.near_miss(
    "exp overflows, multiplied by the gate",
    {"gate * torch.sigmoid(gate)": "gate * torch.exp(gate) / (1 + torch.exp(gate))"},
    says="exp(x) is infinite for large x, and x · exp(x) a little earlier still; divided by infinity that is NaN. "
    "torch.sigmoid, or 1 / (1 + exp(-x)), stays finite.",
)


@SWIGLU.alternate("by division")
def swiglu(gate, up):
    return gate / (1 + torch.exp(-gate)) * up


@SWIGLU.alternate("through tanh, in fp32")
def swiglu(gate, up):
    g = gate.float()
    return (g * (0.5 + 0.5 * torch.tanh(g / 2)) * up.float()).to(gate.dtype)
