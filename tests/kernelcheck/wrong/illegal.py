"""What the interpreter runs and the compiler rejects, or compiles badly."""

import triton
import triton.language as tl
from right.matmul import matmul

FACTOR = 2.0


@triton.jit
def uses_a_dict(X, OUT, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    table = {"two": 2.0}
    tl.store(OUT + i, tl.load(X + i) * table["two"])


@triton.jit
def uses_break(X, OUT, n):
    total = 0.0
    for i in range(n):
        x = tl.load(X + i)
        if x < 0:
            break
        total += x
    tl.store(OUT, total)


@triton.jit
def uses_a_global(X, OUT, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(OUT + i, tl.load(X + i) * FACTOR)


@triton.jit
def uses_if_on_a_vector(X, OUT, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(X + i)
    if x > 0:
        tl.store(OUT + i, x)


@triton.jit
def changes_a_type(X, OUT, n):
    total = 0
    for i in range(n):
        total = total + tl.load(X + i)
    tl.store(OUT, total)


@triton.jit
def odd_block(X, OUT):
    i = tl.arange(0, 100)
    tl.store(OUT + i, tl.load(X + i))


@triton.jit
def returns_early_with_a_value(X, OUT, n):
    if n > 3:
        y = tl.load(X)
    tl.store(OUT, y)


VECTORS = {"X": "*fp32", "OUT": "*fp32"}
COUNTED = {**VECTORS, "n": "i32"}
REJECTED = [
    # kernel, bug, signature, constexprs, what the compiler says
    (uses_a_dict, "illegal Python: dict", VECTORS, {"BLOCK": 64}, "Dict"),
    (uses_break, "illegal Python: break", COUNTED, {}, "Break"),
    (uses_a_global, "illegal Python: plain global", VECTORS, {"BLOCK": 64}, "Cannot access global variable FACTOR"),
    (uses_if_on_a_vector, "illegal Python: if on a vector", VECTORS, {"BLOCK": 64}, "Boolean value of Tensor"),
    (changes_a_type, "illegal Python: loop variable changes type", COUNTED, {}, "total"),
    (odd_block, "block not a power of two", VECTORS, {}, "power of 2"),
    (returns_early_with_a_value, "illegal Python: name not always defined", COUNTED, {}, "y"),
]


@triton.jit
def dot_in_fp32(A, B, C, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The operands are fp16 in memory, and are widened before the product."""
    m = tl.arange(0, BM)[:, None]
    n = tl.arange(0, BN)[None, :]
    k = tl.arange(0, BK)
    a = tl.load(A + m * BK + k[None, :]).to(tl.float32)
    b = tl.load(B + k[:, None] * BN + n).to(tl.float32)
    tl.store(C + m * BN + n, tl.dot(a, b))


@triton.jit
def dot_by_hand(A, B, C, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.arange(0, BM)
    n = tl.arange(0, BN)
    acc = tl.zeros([BM, BN], tl.float32)
    for k in range(BK):
        acc += tl.load(A + m * BK + k)[:, None] * tl.load(B + k * BN + n)[None, :]
    tl.store(C + m[:, None] * BN + n[None, :], acc)


@triton.jit
def down_the_columns(X, OUT, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(OUT + tl.program_id(0) * BLOCK + i, tl.load(X + i * n + tl.program_id(0)))


TILES = {"A": "*fp16", "B": "*fp16", "C": "*fp32"}
SMALL = {"BM": 64, "BN": 64, "BK": 64}
PRODUCT = {"A": "*fp16", "B": "*fp16", "C": "*fp16", "M": "i32", "N": "i32", "K": "i32"}
UNFIT = [
    # name, bug, kernel, signature, constexprs, compile options, assert_gpu_ready options, what it says
    (
        "fp32 dot",
        "fp32 dot where fp16 was meant",
        dot_in_fp32,
        TILES,
        SMALL,
        {},
        {"tensor_cores": "fp16"},
        "with tf32; all should have fp16 operands: cast before tl.dot",
    ),
    (
        "product by hand",
        "no tensor cores",
        dot_by_hand,
        TILES,
        SMALL,
        {},
        {"tensor_cores": True, "vectorized": False},
        "no matrix instruction: tl.dot runs on the plain fp32 units, or there is no tl.dot",
    ),
    (
        "columns",
        "loads not vectorized",
        down_the_columns,
        {"X": "*fp32", "OUT": "*fp32", "n": "i32"},
        {"BLOCK": 1024},
        {},
        {},
        "bytes are loaded 128 bits at a time",
    ),
    (
        "tile too large",
        "register spills",
        matmul,
        PRODUCT,
        {"BM": 128, "BN": 256, "BK": 32},
        {"arch": 80, "aligned": set("ABCMNK")},
        {},
        "instructions spill registers to memory: use a smaller tile or more warps",
    ),
    (
        "too many stages",
        "shared memory over the limit",
        matmul,
        PRODUCT,
        {"BM": 128, "BN": 128, "BK": 64},
        {"arch": 86, "num_warps": 8, "num_stages": 5, "aligned": set("ABCMNK")},
        {"no_spills": False},
        "B of shared memory, allowed are 101,376 B",
    ),
]
