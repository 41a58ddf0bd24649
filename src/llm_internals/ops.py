"""The switchboard: what each operation is called with, and who answers the call. There is no maths here.

A chapter module registers the torch implementation of an operation, `kernels/` the Triton one:

    @ops.register("rms_norm", "torch")
    def rms_norm(x, weight, eps): ...

The model calls `ops.rms_norm(x, weight, eps)`. CUDA tensors take the Triton implementation where there is
one; everything else takes torch. `with ops.use(rms_norm=mine):` puts any function of the same signature in
its place, in this thread, until the block ends. Inside `mine`, `ops.rms_norm` means what it meant outside
the block, so that a function which only looks and passes the call on is three lines; `ops.record` is such a
function.
"""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

BACKENDS = ("torch", "triton")

_signatures: dict[str, inspect.Signature] = {}
_implementations: dict[str, dict[str, Callable]] = {}
_overrides: ContextVar[Mapping[str, tuple[Callable, ...]]] = ContextVar(
    "llm_internals_ops", default=MappingProxyType({})
)


def operation(declaration: Callable) -> Callable:
    """Turn a declaration (name, signature, docstring) into a function that passes its calls on."""
    name = declaration.__name__
    _signatures[name] = inspect.signature(declaration)
    _implementations[name] = {}

    @functools.wraps(declaration)
    def call(*args: Any, **kwargs: Any) -> Any:
        overrides = _overrides.get()
        if name not in overrides:
            first = args[0] if args else next(iter(kwargs.values()))
            return implementation(name, first.device)(*args, **kwargs)
        *outer, innermost = overrides[name]
        remaining = {key: stack for key, stack in overrides.items() if key != name}
        token = _overrides.set({**remaining, name: tuple(outer)} if outer else remaining)
        try:
            return innermost(*args, **kwargs)
        finally:
            _overrides.reset(token)

    return call


@operation
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x: [..., hidden], weight: [hidden] -> [..., hidden]."""


@operation
def apply_rope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """q: [T, Hq, D], k: [T, Hkv, D], cos and sin: [T, D/2] -> q, k rotated by pairs (i, i + D/2)."""


@operation
def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """gate, up: [..., intermediate] -> [..., intermediate]."""


@operation
def linear(x: Tensor, weight: Tensor) -> Tensor:
    """x: [..., in], weight: [out, in] -> [..., out]."""


@operation
def attention(q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None = None) -> Tensor:
    """q: [Tq, Hq, D], k and v: [Tk, Hkv, D] -> [Tq, Hq, D]. Causal: the last query sees the last key."""


@operation
def sample(logits: Tensor, temperature: float = 0.0, generators: list[torch.Generator] | None = None) -> Tensor:
    """logits: [R, V], one generator per row -> [R] token ids."""


def register(name: str, backend: str) -> Callable[[Callable], Callable]:
    """Decorator: make a function the implementation of operation `name` for `backend`."""
    if backend not in BACKENDS:
        raise ValueError(f"unknown backend {backend!r}; use one of {BACKENDS}")

    def accept(function: Callable) -> Callable:
        _check(name, function)
        _implementations[name][backend] = function
        return function

    return accept


def implementation(name: str, device: torch.device | str = "cpu") -> Callable:
    """The registered function that answers for tensors on `device`, whatever `use` says."""
    registered = _implementations[_known(name)]
    backend = "triton" if torch.device(device).type == "cuda" and "triton" in registered else "torch"
    if backend not in registered:
        raise RuntimeError(f"no {backend} implementation of {name!r}: import llm_internals.model first")
    return registered[backend]


def backends() -> dict[str, tuple[str, ...]]:
    """Which backends have registered each operation, as in {"rms_norm": ("torch", "triton"), ...}."""
    return {name: tuple(b for b in BACKENDS if b in found) for name, found in _implementations.items()}


@contextmanager
def use(**functions: Callable) -> Iterator[None]:
    """Answer calls of the named operations with these functions until the block ends.

    ValueError for an unknown name, or for a function that cannot be called as the operation is.
    """
    for name, function in functions.items():
        _check(name, function)
    before = _overrides.get()
    token = _overrides.set({**before, **{name: (*before.get(name, ()), f) for name, f in functions.items()}})
    try:
        yield
    finally:
        _overrides.reset(token)


@dataclass(frozen=True)
class Call:
    """One call of an operation: its arguments by name, and what it returned."""

    name: str
    arguments: dict[str, Any]
    result: Any


@contextmanager
def record(*names: str) -> Iterator[list[Call]]:
    """Collect every call of the named operations, in order.

    As in `with ops.record("attention") as calls: model(ids)`. The tensors are the model's own, not copies.
    """
    calls: list[Call] = []

    def spy(name: str) -> Callable:
        operation = globals()[_known(name)]

        @functools.wraps(operation)
        def look(*args: Any, **kwargs: Any) -> Any:
            result = operation(*args, **kwargs)
            bound = _signatures[name].bind(*args, **kwargs)
            bound.apply_defaults()
            calls.append(Call(name, dict(bound.arguments), result))
            return result

        return look

    with use(**{name: spy(name) for name in names}):
        yield calls


def _known(name: str) -> str:
    if name not in _signatures:
        raise ValueError(f"unknown operation {name!r}; the operations are {', '.join(_signatures)}")
    return name


def _check(name: str, function: Callable) -> None:
    """ValueError unless `function` can be called as operation `name` is: by position, options by keyword."""
    expected = _signatures[_known(name)]
    if not callable(function):
        raise ValueError(f"{name} must be a function, got {type(function).__name__}")
    parameters = expected.parameters.values()
    required = [p.name for p in parameters if p.default is p.empty]
    optional = {p.name: p.default for p in parameters if p.default is not p.empty}
    try:
        found = inspect.signature(function)
    except ValueError:  # some functions written in C carry no signature to look at
        return
    try:
        found.bind(*required)
        found.bind(*required, **optional)
    except TypeError as error:
        shown = ", ".join(str(p.replace(annotation=p.empty)) for p in parameters)
        raise ValueError(f"{name} must be callable as {name}({shown}); this function takes {found}: {error}") from None
