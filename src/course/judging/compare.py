"""Is a result right? Exact shape, dtype and device; finite; error against an fp64 reference within a derived bound."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from course.specs.exercise import Case, Exercise, Tolerance
from gradeworker import wire
from gradeworker.answer import build, given_modules

NUMBER = (int, float)


@dataclass(frozen=True)
class Expected:
    """What a case should give: in the case's own dtype, in fp64, and the tolerance."""

    value: Any
    exact: Any
    tolerance: Tolerance


@dataclass(frozen=True)
class Difference:
    """The first thing that is not right: where, in words, and as numbers when there are any."""

    what: str  # "dtype", "shape", "type", "value", "nan", "length", "device", "mutated", "keys"
    where: str  # "" or "[0]", "['k']" ... inside the result
    got: str
    expected: str
    error: float | None = None
    allowed: float | None = None
    index: tuple[int, ...] | None = None


def expect(exercise: Exercise, case: Case) -> Expected:
    """Run the reference on the case in its own dtype and in fp64. Given modules are importable meanwhile."""
    modules = exercise.job("", []).modules
    with given_modules(modules):
        args, kwargs = build(wire.clone((case.args, case.kwargs), allow_build=True))
        value = exercise.reference(*args, **kwargs)
        args, kwargs = build(to_fp64(wire.clone((case.args, case.kwargs), allow_build=True)))
        exact = exercise.reference(*args, **kwargs)
    return Expected(wire.clone(_listed(value)), wire.clone(_listed(exact)), case.tolerance or exercise.tolerance)


def _listed(value: Any) -> Any:
    return list(value) if hasattr(value, "__next__") else value


def to_fp64(value: Any) -> Any:
    """The same value with every floating tensor in fp64; what is built with a `dtype` is built in float64."""
    if isinstance(value, wire.Build):
        kwargs = {name: "float64" if name == "dtype" else to_fp64(item) for name, item in value.kwargs.items()}
        return wire.Build(value.module, value.name, kwargs)
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, (list, tuple)):
        return type(value)(to_fp64(item) for item in value)
    if isinstance(value, dict):
        return {key: to_fp64(item) for key, item in value.items()}
    return value


def difference(got: Any, expected: Expected) -> Difference | None:
    """None when ``got`` is right, else the first difference."""
    return _differ(got, expected.value, expected.exact, expected.tolerance, "")


def mutated(exercise: Exercise, case: Case, after: Any) -> Difference | None:
    """None unless the answer changed an input that the exercise does not allow it to change."""
    if not (isinstance(after, tuple) and len(after) == 2):
        return Difference("mutated", "", "the inputs did not come back", "the inputs, unchanged")
    args, kwargs = after
    named = dict(zip(exercise.parameters, zip(case.args, args))) if isinstance(args, tuple) else {}
    if isinstance(kwargs, dict):
        named.update({name: (value, kwargs.get(name)) for name, value in case.kwargs.items()})
    for name, (before, now) in named.items():
        if name not in exercise.mutates and not same(before, now):
            return Difference("mutated", name, f"{name} was changed by the call", f"{name} as it was")
    return None


def same(a: Any, b: Any) -> bool:
    """Bit for bit the same data; objects that were built are taken to be the same."""
    if isinstance(a, wire.Build):
        return True
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)):
            return False
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        equal = a == b
        if a.is_floating_point():
            equal |= a.isnan() & b.isnan()
        return bool(equal.all())
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return type(a) is type(b) and (a == b or (a != a and b != b))


def kind(value: Any) -> str:
    """Name of a value's type as a learner would say it."""
    if isinstance(value, wire.Opaque):
        name = value.type.removeprefix("builtins.")
        return "sparse or quantized tensor" if name == "torch.Tensor" else name
    if isinstance(value, (torch.Tensor, wire.OnDevice)):
        return "torch.Tensor"
    return "None" if value is None else type(value).__name__


def _differ(got: Any, value: Any, exact: Any, tolerance: Tolerance, where: str) -> Difference | None:
    if isinstance(value, torch.Tensor):
        return _differ_tensor(got, value, exact, tolerance, where)
    if isinstance(value, (list, tuple)):
        if not isinstance(got, (list, tuple)):
            return Difference("type", where, kind(got), kind(value))
        if len(got) != len(value):
            return Difference("length", where, f"{len(got)} items", f"{len(value)} items")
        for index, parts in enumerate(zip(got, value, exact)):
            found = _differ(*parts, tolerance, f"{where}[{index}]")
            if found:
                return found
        return None
    if isinstance(value, dict):
        if not isinstance(got, dict):
            return Difference("type", where, kind(got), "dict")
        if got.keys() != value.keys():
            return Difference("keys", where, f"keys {sorted(map(str, got))}", f"keys {sorted(map(str, value))}")
        for key in value:
            found = _differ(got[key], value[key], exact[key], tolerance, f"{where}[{key!r}]")
            if found:
                return found
        return None
    if isinstance(value, float) and not isinstance(value, bool):
        return _differ_float(got, value, exact, tolerance, where)
    if type(got) is not type(value):
        came = kind(got) if got is None else f"{kind(got)} {_show(got)}"
        return Difference("type", where, came, f"{kind(value)} {_show(value)}")
    if got != value:
        return Difference("value", where, _show(got), _show(value))
    return None


def _show(value: Any) -> str:
    text = repr(value) if not isinstance(value, wire.Opaque) else value.text
    return text if len(text) <= 300 else text[:297] + "..."


def _differ_float(got: Any, value: float, exact: float, tolerance: Tolerance, where: str) -> Difference | None:
    if type(got) not in NUMBER:
        return Difference("type", where, kind(got), "float")
    allowed = tolerance.c * 2.0**-52 * math.sqrt(tolerance.K) * max(1.0, abs(exact)) * 2**20
    error = abs(got - exact)
    if got != exact and not error <= allowed:
        return Difference("value", where, repr(got), repr(value), error, allowed)
    return None


def _differ_tensor(got: Any, value: torch.Tensor, exact: torch.Tensor, tolerance: Tolerance,
                   where: str) -> Difference | None:
    if isinstance(got, wire.OnDevice):
        return Difference("device", where, f"a tensor on {got.device}", "a tensor on cpu")
    if not isinstance(got, torch.Tensor):
        return Difference("type", where, kind(got), "torch.Tensor")
    if got.shape != value.shape:
        return Difference("shape", where, f"shape {list(got.shape)}", f"shape {list(value.shape)}")
    if got.dtype != value.dtype:
        return Difference("dtype", where, str(got.dtype), str(value.dtype))
    if not value.dtype.is_floating_point:
        wrong = (got != value).nonzero()
        if len(wrong):
            index = tuple(wrong[0].tolist())
            return Difference("value", where, str(got[index].item()), str(value[index].item()), index=index)
        return None
    if not value.numel() or torch.equal(got, value):  # NaN is equal to nothing, and looked at below
        return None
    return _differ_floating(got, value, exact.double(), tolerance, where)


def bound(value: torch.Tensor, exact: torch.Tensor, tolerance: Tolerance) -> float:
    """The largest error allowed: max(4 x own error of the reference in this dtype, c eps sqrt(K) scale)."""
    finite = exact.isfinite() & value.isfinite()
    if not finite.any():
        return 0.0
    own = (value.double() - exact).abs()[finite].max().item()
    scale = exact.abs()[finite].max().item()
    return max(4 * own, tolerance.c * torch.finfo(value.dtype).eps * math.sqrt(tolerance.K) * scale)


def _differ_floating(got: torch.Tensor, value: torch.Tensor, exact: torch.Tensor, tolerance: Tolerance,
                     where: str) -> Difference | None:
    finite = value.isfinite()
    nan_wanted = value.isnan()
    bad = torch.where(finite, ~got.isfinite(), torch.where(nan_wanted, ~got.isnan(), got != value))
    if bad.any():
        index = tuple(bad.nonzero()[0].tolist())
        return Difference("nan", where, f"{got[index].item()}", f"{exact[index].item():.6g}", index=index)
    allowed = bound(value, exact, tolerance)
    error = torch.where(finite, (got.double() - exact).abs(), torch.zeros_like(exact))
    if not bool((error <= allowed).all()):
        flat = int(error.argmax())
        index = tuple(int(i) for i in np.unravel_index(flat, error.shape))  # torch's own imports sympy: a second
        return Difference("value", where, f"{got[index].item():.6g}", f"{exact[index].item():.6g}",
                          error[index].item(), allowed, index)
    return None
