"""Rotary position embedding; theta may differ from student to student."""

from __future__ import annotations

import math

import torch

from course.specs.exercise import Case, Draw, Exercise, Tolerance
from course.specs.transformer_block.shared import HALF, PAGE, widened

THETA = 10_000.0  # stands at the top of the answer's cell, and may differ from student to student


def reference(x, positions, theta=None, *, THETA=THETA):
    theta, wide = THETA if theta is None else theta, widened(x)
    exponents = torch.arange(0, x.shape[-1], 2, dtype=wide.dtype) / x.shape[-1]
    angles = positions[:, None].to(wide.dtype) * theta**-exponents
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    first, second = wide.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1).to(x.dtype)


def cases(draw: Draw) -> list[Case]:
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


ROPE = Exercise(
    id="transformer_block.rope",
    title="Rotary position embedding",
    signature="rope(x, positions, theta=THETA)",
    variants={"THETA": (THETA, 20_000.0, 30_000.0, 40_000.0, 50_000.0, 80_000.0)},
    reference=reference,
    cases=cases,
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
    in_model=True,
)

ROPE.near_miss(
    "it pairs neighbours",
    {
        "x.float().chunk(2, dim=-1)": "x.float()[..., 0::2], x.float()[..., 1::2]",
        "torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)":
            "torch.stack([first * cos - second * sin, first * sin + second * cos], dim=-1).flatten(-2)",
    },
    says="Channels (2i, 2i + 1) are pairs in Meta's files and in GGUF. These weights pair i with i + D/2.",
    section=f"{PAGE}#which-two-channels-are-a-pair",
)

ROPE.near_miss(
    "it counts the rows instead of reading the positions",
    {"positions.float()": "torch.arange(len(x)).float()"},
    says="Row 0 need not stand at position 0: a decoded token comes after all that is cached. Use the positions "
    "that are given.",
    section=f"{PAGE}#positions-come-from-outside",
)

ROPE.near_miss(
    "the exponent lacks its 2",
    {"torch.arange(0, x.shape[-1], 2)": "torch.arange(x.shape[-1] // 2)"},
    says="Pair i turns by theta**(-2i/D): over the D/2 pairs the exponent runs from 0 almost to -1.",
    section=f"{PAGE}#fast-pairs-and-slow-pairs",
)

ROPE.near_miss(
    "theta is fixed at 10,000",
    {"theta **": "10000.0 **"},
    says="10,000 was the first choice; Llama 3 uses 500,000 and SmolLM2 100,000. Use the argument.",
    section=f"{PAGE}#fast-pairs-and-slow-pairs",
)

ROPE.near_miss(
    "it turns the other way",
    {
        "first * cos - second * sin, first * sin + second * cos":
            "first * cos + second * sin, second * cos - first * sin",
    },
    says="(a, b) goes to (a cos - b sin, a sin + b cos). With the signs swapped distances change sign, and trained "
    "weights expect one direction.",
    section=f"{PAGE}#rope",
)

ROPE.near_miss(
    "the angles are computed in half precision",
    {
        "positions.float()[:, None] * frequencies)[:, None]":
            "positions.to(x.dtype)[:, None] * frequencies.to(x.dtype))[:, None].float()",
    },
    says="bf16 knows no integer between 4,096 and 4,128: neighbouring tokens get one angle. Compute positions * "
    "frequencies in fp32.",
    section=f"{PAGE}#positions-come-from-outside",
)

ROPE.near_miss(
    "the frequencies are rounded to half precision",
    {"* frequencies)": "* frequencies.to(x.dtype).float())"},
    says="The error of a frequency grows with the position: at 5,000 it is a large part of a turn. Libraries that "
    "cast a whole model to bf16 have rounded theirs so.",
)

ROPE.near_miss(
    "the result is laid out in neighbours",
    {"torch.cat(": "torch.stack(", "dim=-1).to(": "dim=-1).flatten(-2).to("},
    says="The turned pairs go back to where they came from: first halves, then second halves, torch.cat. stack and "
    "flatten would interleave them.",
)

ROPE.near_miss(
    "the exponent has lost its minus",
    {"theta ** (-torch": "theta ** (torch"},
    says="theta**(+2i/D) turns pair i faster than the one before it. The frequencies fall, from 1 for the first pair to almost "
    "1/theta: theta**(-2i/D).",
    section=f"{PAGE}#fast-pairs-and-slow-pairs",
)

ROPE.near_miss(
    "positions are counted from 1",
    {"positions.float()[:, None]": "(positions.float() + 1)[:, None]"},
    says="The first token stands at position 0 and is not turned at all. Use the positions as they are given.",
    section=f"{PAGE}#positions-come-from-outside",
)


@ROPE.alternate("frequencies as exp of a logarithm, by index")
def rope(x, positions, theta=THETA):
    half = x.shape[-1] // 2
    angles = positions.unsqueeze(1).float() * torch.exp(torch.arange(half) * (-math.log(theta) / half))
    cos, sin = torch.cos(angles)[:, None, :], torch.sin(angles)[:, None, :]
    out, a, b = torch.empty_like(x), x[..., :half].float(), x[..., half:].float()
    out[..., :half], out[..., half:] = a * cos - b * sin, a * sin + b * cos
    return out


ROPE.near_miss(
    "the angle is added",
    {"first * cos - second * sin, first * sin + second * cos": "first + sin, second + cos"},
    says="RoPE turns pairs; nothing is added. Adding sines and cosines is what the first transformer did.",
    section=f"{PAGE}#rope",
)


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
