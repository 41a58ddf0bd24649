"""CUDA's libdevice on the CPU: what each function computes, from NumPy and torch, in fp64 and rounded once at the end.

`twin(symbol)` takes the name that Triton gives to the compiler, as in "__nv_tanhf": f at the end marks fp32. The fast
functions (`fast_expf` ...) compute what their exact namesakes do; on a card they differ from them in the last digits.
Functions that round another way than to nearest, and a few rarities, have no twin.
"""

import math
from collections.abc import Callable

import numpy as np
import torch


def _torch(name: str) -> Callable:
    function = getattr(torch.special, name)

    def call(x):
        return function(torch.from_numpy(np.ascontiguousarray(x))).numpy().reshape(np.shape(x))

    return call


def _each(function: Callable[..., float], otype=np.float64) -> Callable:
    """One of `math`'s functions, which raise where a GPU returns infinity or NaN, on arrays."""

    def safe(*x):
        try:
            return function(*x)
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan

    return np.vectorize(safe, otypes=[otype])


def _gamma(x):
    """math.gamma, but for its pole at 0, which has a sign."""
    with np.errstate(all="ignore"):
        return np.where(x == 0, 1 / x, np.where(x == -np.inf, np.nan, _each(math.gamma)(x)))


def _half_away(x):
    """C's round: halves go away from zero."""
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(1.0, x), np.copysign(whole, x))


def _binary_exponent(x):
    mantissa, exponent = np.frexp(x)
    return np.where(x == 0, -np.inf, np.where(np.isfinite(mantissa), exponent - 1.0, np.abs(x)))


def _positive_difference(x, y):
    return np.where(np.isnan(x) | np.isnan(y), np.nan, np.where(x > y, x - y, 0.0))


def _turn(function: Callable) -> Callable:
    """sin or cos of pi x, exact where x is a multiple of a half."""

    def call(x):
        rest = np.fmod(x, 2.0)
        exact = {(0.0, np.sin): 0.0, (0.5, np.sin): 1.0, (1.0, np.sin): 0.0, (1.5, np.sin): -1.0,
                 (0.0, np.cos): 1.0, (0.5, np.cos): 0.0, (1.0, np.cos): -1.0, (1.5, np.cos): 0.0}  # fmt: skip
        result = function(np.pi * rest)
        for (at, which), value in exact.items():
            if which is function:
                result = np.where(np.abs(rest) == at, value * (np.sign(rest) if function is np.sin else 1.0), result)
        return result

    return call


def _norm(*parts):
    return np.sqrt(sum(part * part for part in parts))


FLOATS: dict[str, Callable] = {
    "fabs": np.abs, "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh,
    "atan": np.arctan, "atanh": np.arctanh, "cbrt": np.cbrt, "ceil": np.ceil, "cos": np.cos, "cosh": np.cosh,
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "floor": np.floor, "log": np.log, "log10": np.log10,
    "log1p": np.log1p, "log2": np.log2, "nearbyint": np.rint, "rint": np.rint, "sin": np.sin, "sinh": np.sinh,
    "sqrt": np.sqrt, "tan": np.tan, "tanh": np.tanh, "trunc": np.trunc, "llrint": np.rint,
    "exp10": lambda x: np.power(10.0, x), "rsqrt": lambda x: 1 / np.sqrt(x), "rcbrt": lambda x: 1 / np.cbrt(x),
    "round": _half_away, "llround": _half_away, "logb": _binary_exponent, "ilogb": _binary_exponent,
    "sinpi": _turn(np.sin), "cospi": _turn(np.cos), "saturate": lambda x: np.where(np.isnan(x), 0.0, np.clip(x, 0, 1)),
    "erf": _each(math.erf), "erfc": _each(math.erfc), "erfcx": _torch("erfcx"), "erfinv": _torch("erfinv"),
    "erfcinv": lambda x: -_torch("ndtri")(x / 2) / math.sqrt(2), "normcdf": _torch("ndtr"),
    "normcdfinv": _torch("ndtri"), "lgamma": _torch("gammaln"), "tgamma": _gamma,
    "j0": _torch("bessel_j0"), "j1": _torch("bessel_j1"), "y0": _torch("bessel_y0"), "y1": _torch("bessel_y1"),
    "cyl_bessel_i0": _torch("i0"), "cyl_bessel_i1": _torch("i1"),
    "atan2": np.arctan2, "copysign": np.copysign, "fdim": _positive_difference, "fmod": np.fmod, "hypot": np.hypot,
    "pow": np.power, "powi": np.power, "rhypot": lambda x, y: 1 / np.hypot(x, y),
    "remainder": _each(math.remainder), "ldexp": lambda x, n: np.ldexp(x, n.astype(np.int32)),
    "fma": lambda x, y, z: x * y + z, "norm3d": _norm, "norm4d": _norm,
    "rnorm3d": lambda *x: 1 / _norm(*x), "rnorm4d": lambda *x: 1 / _norm(*x),
}  # fmt: skip
FLOATS["scalbn"] = FLOATS["ldexp"]
for _name in ("cos", "exp10", "exp", "log10", "log2", "log", "pow", "sin", "tan", "tanh"):
    FLOATS[f"fast_{_name}"] = FLOATS[_name]
FLOATS["fast_fdivide"] = np.divide
for _name, _operation in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("div", np.divide)):
    FLOATS[f"f{_name}_rn"] = FLOATS[f"d{_name}_rn"] = _operation
for _kind in "fd":
    FLOATS[f"{_kind}rcp_rn"] = lambda x: 1 / x
    FLOATS[f"{_kind}sqrt_rn"] = np.sqrt
FLOATS["frsqrt_rn"] = FLOATS["rsqrt"]
FLOATS["fma_rn"] = FLOATS["fmaf_rn"] = FLOATS["fma"]

TESTS: dict[str, Callable] = {"isnan": np.isnan, "isinf": np.isinf, "finite": np.isfinite, "isfinite": np.isfinite,
                              "signbit": np.signbit}  # fmt: skip


def _unsigned(x):
    return np.asarray(x).view(f"u{np.asarray(x).itemsize}")


def _bits(x) -> np.ndarray:
    """The binary digits of integers, lowest first: [..., width]."""
    width = x.itemsize * 8
    return (_unsigned(x)[..., None] >> np.arange(width, dtype=_unsigned(x).dtype)) & 1


def _leading_zeros(x):
    digits = _bits(x)[..., ::-1]
    return np.where(digits.any(-1), digits.argmax(-1), digits.shape[-1])


def _first_set(x):
    digits = _bits(x)
    return np.where(digits.any(-1), digits.argmax(-1) + 1, 0)


def _reversed_bits(x):
    weights = _unsigned(x).dtype.type(1) << np.arange(x.itemsize * 8, dtype=_unsigned(x).dtype)
    return (_bits(x)[..., ::-1] * weights).sum(-1, dtype=_unsigned(x).dtype).view(x.dtype)


def _high_half(x, y):
    wide = np.asarray(x).astype(object) * np.asarray(y).astype(object)
    return np.asarray(wide >> (x.itemsize * 8)).astype(x.dtype)


INTEGERS: dict[str, Callable] = {
    "abs": np.abs, "llabs": np.abs, "clz": _leading_zeros, "clzll": _leading_zeros, "ffs": _first_set,
    "ffsll": _first_set, "popc": lambda x: _bits(x).sum(-1), "popcll": lambda x: _bits(x).sum(-1),
    "brev": _reversed_bits, "brevll": _reversed_bits, "mulhi": _high_half, "umulhi": _high_half,
    "mul64hi": _high_half, "umul64hi": _high_half,
}  # fmt: skip
RECAST = ("float_as_int", "float_as_uint", "int_as_float", "uint_as_float", "double_as_longlong", "longlong_as_double")


def twin(symbol: str) -> Callable | None:
    """What a libdevice symbol computes: arrays of the arguments, and the NumPy dtype of the result -> array.

    None for a symbol without a twin.
    """
    name = symbol.removeprefix("__nv_")
    if name in RECAST:
        return lambda arguments, dtype: np.ascontiguousarray(arguments[0]).view(dtype).reshape(np.shape(arguments[0]))
    if name in INTEGERS:
        return lambda arguments, dtype: np.asarray(INTEGERS[name](*arguments)).astype(dtype)
    if name in ("nextafter", "nextafterf"):
        return lambda arguments, dtype: np.nextafter(*arguments).astype(dtype)
    for found in (TESTS.get(name), TESTS.get(name[:-1])):
        if found is not None:
            return lambda arguments, dtype: found(*arguments).astype(dtype)
    found = FLOATS.get(name) or (FLOATS.get(name[:-1]) if name.endswith("f") else None)
    if found is None:
        return None

    def compute(arguments, dtype):
        with np.errstate(all="ignore"):
            wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in map(np.asarray, arguments)]
            return np.asarray(found(*wide)).astype(dtype)

    return compute
