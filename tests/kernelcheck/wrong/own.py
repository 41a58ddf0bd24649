"""Wrong kernels that are nobody's mutant."""

import torch
import triton
import triton.language as tl

from kernelcheck import faults

from . import Wrong


@triton.jit
def shift_in_place(X, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + i + 1, mask=i + 1 < n, other=0.0)
    tl.store(X + i, x, mask=i < n)


@triton.jit
def one_argument_for_two(X, Y, OUT, n, BLOCK: tl.constexpr):
    """Y lies right behind X in memory, so reading it through X gives the right numbers."""
    i = tl.arange(0, BLOCK)
    tl.store(OUT + i, tl.load(X + i) + tl.load(X + n + i))


def _run_one_argument():
    both = torch.randn(64)
    one_argument_for_two[(1,)](both[:32], both[32:], torch.zeros(32), 32, BLOCK=32)


@triton.jit
def pointer_table(TABLE, OUT, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    pointer = tl.load(TABLE + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    tl.store(OUT + tl.program_id(0) * BLOCK + i, tl.load(pointer + i))


def _run_table():
    weights = [torch.randn(16), torch.randn(16)]
    table = torch.tensor([w.data_ptr() for w in weights])
    pointer_table[(2,)](table, torch.zeros(32), BLOCK=16)


@triton.jit
def cast_pointer(X, OUT, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    wide = (X + 1).to(tl.pointer_type(tl.int32))
    tl.store(OUT + i, tl.load(wide + i))


@triton.jit
def asserts(X, OUT, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(X + i)
    tl.device_assert(x >= 0, "an id is negative")
    tl.store(OUT + i, x)


@triton.jit
def atomic_and_plain(COUNT, BLOCK: tl.constexpr):
    if tl.program_id(0) == 0:
        tl.store(COUNT, 1)
    else:
        tl.atomic_add(COUNT, 1)


@triton.jit
def flag_without_order(DATA, FLAG, OUT):
    """Program 1 trusts that program 0 has run."""
    if tl.program_id(0) == 0:
        tl.store(DATA, 42)
        tl.store(FLAG, 1)
    else:
        if tl.load(FLAG) == 1:
            tl.store(OUT, tl.load(DATA))


@triton.jit
def _square(X, i):
    return tl.load(X + i) * tl.load(X + i)


@triton.jit
def helper_overshoots(X, OUT, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(OUT + i, _square(X, i + 1))


@triton.jit
def far_away(X, OUT, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(OUT + i, tl.load(X + i * 1000000007))


@triton.jit
def wraps_around(X, OUT, stride, BLOCK: tl.constexpr):
    """70000 * 70000 does not fit an int32: the offset comes out negative or small."""
    i = tl.arange(0, BLOCK) * 70000
    tl.store(OUT + tl.arange(0, BLOCK), tl.load(X + i * stride))


def _zeros(n, dtype=torch.float32):
    return torch.zeros(n, dtype=dtype)


WRONG = [
    Wrong(
        "shift in place",
        "write after read",
        lambda: shift_in_place[(4,)](torch.randn(100), 100, BLOCK=32),
        faults.RACE_READ_WRITE,
        "it writes element 32 of X, which program (0, 0, 0) reads in the same launch",
    ),
    Wrong(
        "one argument read through another",
        "overshoot into another argument",
        _run_one_argument,
        faults.OUT_OF_BOUNDS_LOAD,
        "X, shape [32]: 32 of 32 active lanes outside; the first reads element 32 (valid: 0 to 31)",
    ),
    Wrong(
        "table of pointers",
        "wild pointer",
        _run_table,
        faults.WILD_POINTER,
        "a load of 16 lanes through an address that belongs to no tensor of this launch",
    ),
    Wrong(
        "cast pointer",
        "misaligned pointer",
        lambda: cast_pointer[(1,)](_zeros(65, torch.int8), _zeros(8, torch.int32), BLOCK=8),
        faults.MISALIGNED,
        "X: an address that is no multiple of the 4 bytes accessed",
    ),
    Wrong(
        "device_assert",
        "violated assumption",
        lambda: asserts[(1,)](torch.arange(-2, 6), _zeros(8, torch.int64), BLOCK=8),
        faults.ASSERT,
        "2 of 8 lanes: an id is negative",
    ),
    Wrong(
        "atomic and plain",
        "missing synchronisation",
        lambda: atomic_and_plain[(3,)](_zeros(1, torch.int32), BLOCK=1),
        faults.RACE_WRITE_WRITE,
        "it updates element 0 of COUNT atomically, which program (0, 0, 0) writes plainly",
    ),
    Wrong(
        "flag without order",
        "missing synchronisation",
        lambda: flag_without_order[(2,)](_zeros(1), _zeros(1, torch.int32), _zeros(1)),
        faults.RACE_READ_WRITE,
        "it reads element 0 of FLAG, which program (0, 0, 0) writes in the same launch",
    ),
    Wrong(
        "helper overshoots",
        "off by one",
        lambda: helper_overshoots[(1,)](torch.randn(16), _zeros(16), BLOCK=16),
        faults.OUT_OF_BOUNDS_LOAD,
        "in _square (called by helper_overshoots), line",
    ),
    Wrong(
        "far away",
        "wrong pointer",
        lambda: far_away[(1,)](torch.randn(16), _zeros(16), BLOCK=16),
        faults.OUT_OF_BOUNDS_LOAD,
        "X, shape [16]: 15 of 16 active lanes outside; the first reads element 1000000007",
    ),
    Wrong(
        "wraps around",
        "integer overflow",
        lambda: wraps_around[(1,)](torch.randn(16), _zeros(4), 70000, BLOCK=4),
        faults.OUT_OF_BOUNDS_LOAD,
        "X, shape [16]: 3 of 4 active lanes outside; the first reads element 605032704",
    ),
]
