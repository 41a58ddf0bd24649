"""Masked add: two lines are missing."""

from __future__ import annotations

import torch

from course.specs.exercise import KERNEL_PRELUDE, Case, Draw, Exercise
from course.specs.kernels import HALF, size
from course.specs.triton_primer.shared import PAGE


def launch(kernel, x, y, block):
    import triton

    out = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), block),)](x, y, out, x.numel(), BLOCK=block)
    return out


def cases(draw: Draw) -> list[Case]:
    def case(n, label, dtype=torch.float32, tolerance=None, block=256):
        x, y = draw.randn(n, dtype=dtype), draw.randn(n, dtype=dtype)
        return Case((x, y, block), label=label, tolerance=tolerance)

    prime = draw.choice([523, 613, 769])
    return [
        case(1000, "1,000 elements, four blocks of 256"),
        case(512, "512 elements: the last block is full"),
        case(257, "257 elements: one in the last block"),
        case(1, "a single element"),
        case(prime, f"{prime} elements in fp16", torch.float16, HALF),
        case(300, "300 elements in bf16", torch.bfloat16, HALF),
        case(1100, "1,100 elements, three blocks of 512", block=512),
        case(41, "41 elements, blocks of 16", block=16),
    ]


MASKED_ADD = Exercise(
    id="triton_primer.masked_add",
    title="Masked add",
    signature="masked_add(X, Y, OUT, n, BLOCK: tl.constexpr)",
    reference=lambda x, y, block: x + y,
    cases=cases,
    hints=(
        "Two lines are missing: which BLOCK elements are this program's, and which of them exist. tl.arange(0, BLOCK) "
        "counts lanes; pid says how many blocks lie before this one.",
        "Program pid owns elements pid * BLOCK to pid * BLOCK + BLOCK - 1. An element exists when its index is below n.",
        "i = pid * BLOCK + tl.arange(0, BLOCK); inside = i < n",
    ),
    section=f"{PAGE}#masked-add",
    track="kernel",
    difficulty=1,
    minutes=10,
    prelude=KERNEL_PRELUDE,
    drive=launch,
    argument_names=("x", "y", "block"),
    bytes_bound=lambda x, y, block: size(x, y, x),
    seconds=30.0,
)

MASKED_ADD.near_miss(
    "no lane is masked",
    {"i < n": "i >= 0"},
    says="The last block reaches past the tensor: let only lanes with i < n load and store.",
    section=f"{PAGE}#the-missing-mask",
)

MASKED_ADD.near_miss(
    "the mask lets one lane too many through",
    {"i < n": "i <= n"},
    says="n elements have the indices 0 to n - 1: the mask is i < n, not i <= n.",
    section=f"{PAGE}#the-missing-mask",
)

MASKED_ADD.near_miss(
    "an element at the edge is left out",
    {"i < n": "i < n - 1"},
    says="The elements are 0 to n - 1, and one of them is written by nobody. If it is the first: tl.arange counts "
    "from 0, and so does i. If it is the last: the mask is i < n, not i < n - 1.",
    section=f"{PAGE}#the-missing-mask",
)

MASKED_ADD.near_miss(
    "every program works on the first block",
    {"pid * BLOCK + tl": "tl"},
    says="tl.arange counts from 0 in each program: add pid * BLOCK, or all programs write the same elements and "
    "nobody writes the others.",
)

MASKED_ADD.near_miss(
    "the blocks are counted from one",
    {"pid * BLOCK": "(pid + 1) * BLOCK"},
    says="Program ids start at 0: program pid begins at pid * BLOCK. As it is, nobody writes the first block.",
)

MASKED_ADD.near_miss(
    "its lanes lie a block apart",
    {"pid * BLOCK + tl.arange": "pid + BLOCK * tl.arange"},
    says="pid + BLOCK * lane takes one element of each block. A program's lanes are neighbours: pid * BLOCK + lane.",
)

MASKED_ADD.near_miss(
    "it loads x twice",
    {"x + y": "tl.load(X + i, mask=inside) + y"},
    says="A second tl.load goes to memory again. Load once, keep the value.",
    section=f"{PAGE}#what-one-byte-costs",
)

MASKED_ADD.near_miss(
    "the block has a size of its own",
    {"pid * BLOCK + tl.arange(0, BLOCK)": "pid * 256 + tl.arange(0, 256)"},
    says="Who launches the kernel chooses the block, and counts the programs by it. With another size some elements are "
    "done by nobody: use BLOCK.",
    section=f"{PAGE}#masked-add",
)


@MASKED_ADD.alternate("pointers moved to the block first")
def masked_add(X, Y, OUT, n, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    lane = tl.arange(0, BLOCK)
    inside = lane < n - start
    x = tl.load(X + start + lane, mask=inside, other=0.0)
    y = tl.load(Y + start + lane, mask=inside, other=0.0)
    tl.store(OUT + start + lane, x + y, mask=inside)
