"""libdevice against torch, atomics on bf16, and what is said where a GPU is needed."""

import inspect
import math
import re

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.libdevice import tanh as imported_by_name

import kernelcheck
from kernelcheck import _triton
from kernelcheck.libdevice import twin

X = torch.tensor([*np.linspace(-6, 6, 59), 0.0, -0.0, math.inf, -math.inf, math.nan], dtype=torch.float32)
POSITIVE = X.abs() + 0.25
UNIT = (X / 6).clamp(-1, 1)
SPECIAL = torch.special

UNARY = [
    ("abs", X, torch.abs), ("acos", UNIT, torch.acos), ("acosh", POSITIVE + 1, torch.acosh), ("asin", UNIT, torch.asin),
    ("asinh", X, torch.asinh), ("atan", X, torch.atan), ("atanh", UNIT, torch.atanh), ("ceil", X, torch.ceil),
    ("cos", X, torch.cos), ("cosh", X, torch.cosh), ("cyl_bessel_i0", X, SPECIAL.i0), ("cyl_bessel_i1", X, SPECIAL.i1),
    ("erf", X, torch.erf), ("erfc", X, torch.erfc), ("erfcx", X, SPECIAL.erfcx), ("erfinv", UNIT, torch.erfinv),
    ("exp", X, torch.exp), ("exp10", X, lambda x: 10.0**x), ("exp2", X, torch.exp2), ("expm1", X, torch.expm1),
    ("fast_cosf", X, torch.cos), ("fast_exp10f", X, lambda x: 10.0**x), ("fast_expf", X, torch.exp),
    ("fast_log10f", POSITIVE, torch.log10), ("fast_log2f", POSITIVE, torch.log2), ("fast_logf", POSITIVE, torch.log),
    ("fast_sinf", X, torch.sin), ("fast_tanf", X, torch.tan), ("floor", X, torch.floor),
    ("j0", X, SPECIAL.bessel_j0), ("j1", X, SPECIAL.bessel_j1), ("y0", POSITIVE, SPECIAL.bessel_y0),
    ("y1", POSITIVE, SPECIAL.bessel_y1), ("lgamma", POSITIVE, torch.lgamma), ("log", X, torch.log),
    ("log10", X, torch.log10), ("log1p", X, torch.log1p), ("log2", X, torch.log2), ("nearbyint", X, torch.round),
    ("normcdf", X, SPECIAL.ndtr), ("normcdfinv", UNIT.abs(), SPECIAL.ndtri), ("rcp_rn", X, torch.reciprocal),
    ("rint", X, torch.round), ("rsqrt", X, torch.rsqrt), ("rsqrt_rn", X, torch.rsqrt),
    ("saturatef", X, lambda x: x.clamp(0, 1).nan_to_num(0.0)), ("sin", X, torch.sin), ("sinh", X, torch.sinh),
    ("sqrt", X, torch.sqrt), ("sqrt_rn", X, torch.sqrt), ("tan", X, torch.tan), ("tanh", X, torch.tanh),
    ("trunc", X, torch.trunc),
    ("tgamma", POSITIVE, lambda x: torch.lgamma(x).exp()),
    ("erfcinv", UNIT + 1, lambda x: -SPECIAL.ndtri(x / 2) / math.sqrt(2)),
    ("cbrt", X, lambda x: x.sign() * x.abs() ** (1 / 3)), ("rcbrt", POSITIVE, lambda x: x ** (-1 / 3)),
]  # fmt: skip
BINARY = [
    ("add_rn", torch.add), ("atan2", torch.atan2), ("copysign", torch.copysign), ("div_rn", torch.div),
    ("fast_dividef", torch.div), ("fmod", torch.fmod), ("hypot", torch.hypot), ("mul_rn", torch.mul),
    ("pow", torch.pow), ("fast_powf", torch.pow), ("sub_rn", torch.sub),
    ("fdim", lambda x, y: torch.where(x.isnan() | y.isnan(), torch.nan, (x - y).clamp(min=0))),
]  # fmt: skip


@triton.jit
def unary(IN, OUT, NAME: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(OUT + i, getattr(libdevice, NAME)(tl.load(IN + i)))


@triton.jit
def binary(A, B, OUT, NAME: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(OUT + i, getattr(libdevice, NAME)(tl.load(A + i), tl.load(B + i)))


def close(found, expected):
    torch.testing.assert_close(found.double(), expected, rtol=2e-6, atol=2e-7, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("name", "x", "expected"), UNARY, ids=[row[0] for row in UNARY])
def test_functions_of_one_number(name, x, expected, dtype):
    if dtype == torch.float64 and (name.startswith("fast_") or name in ("saturatef", "rsqrt_rn")):
        return  # fp32 alone
    out = torch.empty(64, dtype=dtype)
    with kernelcheck.checked():
        unary[(1,)](x.to(dtype), out, NAME=name, N=64)
    close(out, expected(x.double()))


@pytest.mark.parametrize(("name", "expected"), BINARY, ids=[row[0] for row in BINARY])
def test_functions_of_two_numbers(name, expected):
    a, b = X, X.flip(0) * 0.5 + 0.75
    out = torch.empty(64)
    with kernelcheck.checked():
        binary[(1,)](a, b, out, NAME=name, N=64)
    close(out, expected(a.double(), b.double()).float().double())


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("round", [0.5, 1.5, 2.5, -0.5, -2.5, 0.49999997, 8388609.0, 3.2], [1, 2, 3, -1, -3, 0, 8388609, 3]),
        ("sinpi", [0.0, 0.5, 1.0, 1.5, 2.0, -0.5, 1e8, 0.25], [0, 1, 0, -1, 0, -1, 0, math.sqrt(0.5)]),
        ("cospi", [0.0, 0.5, 1.0, 1.5, 2.0, -0.5, 1e8, 0.25], [1, 0, -1, 0, 1, 0, 1, math.sqrt(0.5)]),
        ("logb", [1.0, 2.0, 0.75, 1024.0, 1e-40, 3.0, 0.0, -8.0], [0, 1, -1, 10, -133, 1, -math.inf, 3]),
        ("tgamma", [1.0, 5.0, -0.5, 0.5, 40.0, -1.0, 0.0, -2.0],
         [1, 24, -2 * math.sqrt(math.pi), math.sqrt(math.pi), math.inf, math.nan, math.inf, math.nan]),
    ],
)  # fmt: skip
def test_functions_by_hand(name, values, expected):
    out = torch.empty(8)
    unary[(1,)](torch.tensor(values), out, NAME=name, N=8)
    close(out, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("clz", [32, 31, 0, 0, 16, 1]), ("popc", [0, 1, 32, 1, 1, 31]), ("ffs", [0, 1, 1, 32, 16, 1]),
        ("brev", [0, -(2**31), -1, 1, 1 << 16, -2]), ("abs", [0, 1, 1, -(2**31), 32768, 2**31 - 1]),
    ],
)  # fmt: skip
def test_functions_of_bits(name, expected):
    x = torch.tensor([0, 1, -1, -(2**31), 32768, 2**31 - 1, 0, 0], dtype=torch.int32)
    out = torch.empty(8, dtype=torch.int32)
    unary[(1,)](x, out, NAME=name, N=8)
    assert out[:6].tolist() == expected


@pytest.mark.parametrize(("name", "expected"), [("isnan", X.isnan()), ("isinf", X.isinf()), ("signbit", X.signbit())])
def test_questions(name, expected):
    out = torch.empty(64, dtype=torch.int32)
    unary[(1,)](X, out, NAME=name, N=64)
    known = ~X.isnan() if name == "signbit" else slice(None)
    assert torch.equal((out != 0)[known], expected[known])


@triton.jit
def three_ways(IN, OUT, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(IN + i)
    y = libdevice.fma(x, 2.0, imported_by_name(x))
    tl.store(OUT + i, y + tl.extra.cuda.libdevice.pow(x, 2.0) + libdevice.norm3d(x, x, x))


def test_every_way_to_call_one():
    x, out = X[:32], torch.empty(32)
    with kernelcheck.checked():
        three_ways[(1,)](x, out, N=32)
    close(out, (x * 2 + x.tanh() + x**2 + x.abs() * math.sqrt(3)).double())


def test_a_type_that_the_card_does_not_take():
    with pytest.raises(_triton.interpreter_error(), match=r"libdevice.tanh takes no \(bf16\): convert first"):
        unary[(1,)](X.bfloat16(), torch.empty(64), NAME="tanh", N=64)


def test_one_without_a_twin_says_so():
    with pytest.raises(_triton.interpreter_error(), match=r"__nv_fsqrt_ru has no twin on the CPU.*behind a constexpr"):
        unary[(1,)](X, torch.empty(64), NAME="sqrt_ru", N=64)


def test_most_of_tritons_list_has_a_twin():
    """By the symbols of the module that Triton ships: all that round to nearest and are no conversions."""
    card, _ = _triton.libdevice_modules()
    symbols = set(re.findall(r'"(__nv_\w+)"', inspect.getsource(card)))
    with_twin = {symbol for symbol in symbols if twin(symbol)}
    assert len(with_twin) > 150
    without = {symbol for symbol in symbols - with_twin if not re.search(r"_r[dnuz]$", symbol)}
    assert {re.sub(r"^__nv_", "", symbol) for symbol in without} <= {
        "byte_perm", "double2hiint", "double2loint", "hadd", "uhadd", "rhadd", "urhadd", "hiloint2double", "jn", "jnf",
        "yn", "ynf", "mul24", "umul24", "rcp64h", "sad", "usad",
    }  # fmt: skip


@triton.jit
def scatter_add(X, AT, OUT, FOUND, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(FOUND + i, tl.atomic_add(OUT + tl.load(AT + i), tl.load(X + i), mask=i < N - 3))


@pytest.mark.parametrize("watched", [True, False])
def test_bf16_atomics_round_once_each(watched):
    x, at = torch.randn(64).bfloat16(), torch.randint(0, 5, (64,))
    out, found = torch.randn(5).bfloat16(), torch.zeros(64, dtype=torch.bfloat16)
    expected, seen = out.clone(), torch.zeros(64, dtype=torch.bfloat16)
    for lane in range(61):
        seen[lane] = expected[at[lane]]
        expected[at[lane]] += x[lane]  # torch adds in fp32 and rounds once
    if watched:
        with kernelcheck.checked() as trace:
            scatter_add[(1,)](x, at, out, found, N=64)
        assert trace.tensor("OUT").stored == 5 * 2
    else:
        scatter_add[(1,)](x, at, out, found, N=64)
    assert torch.equal(out, expected)
    assert torch.equal(found[:61], seen[:61])


@triton.jit
def assembly(IN, OUT, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [tl.load(IN + i)], tl.float32, True, 1)
    tl.store(OUT + i, x)


def test_inline_assembly_says_what_to_do():
    with pytest.raises(_triton.interpreter_error(), match=r"`tanh.approx.f32 \$0, \$1;` runs on a GPU only.*constexpr"):
        assembly[(1,)](X, torch.empty(64), N=64)


@triton.jit
def block_pointer(IN, OUT, N: tl.constexpr):
    tile = tl.make_block_ptr(IN, (N,), (1,), (0,), (N,), (0,))
    tl.store(OUT + tl.arange(0, N), tl.load(tile))


def test_block_pointers():
    out = torch.empty(64)
    if _triton.version() < (3, 9):
        block_pointer[(1,)](X, out, N=64)
        assert torch.equal(out.nan_to_num(), X.nan_to_num())
        return
    with pytest.raises(_triton.interpreter_error(), match=r"no block pointers from release 3.9 on.*tensor_descriptor"):
        block_pointer[(1,)](X, out, N=64)
