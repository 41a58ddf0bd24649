"""Repairs of how the interpreter accesses memory and launches kernels; a checked run hooks in here."""

import dataclasses
import os
import sys
import traceback

import numpy as np

from . import _triton, floats, state
from .faults import KernelFault, Place
from .repair_extern import bf16_rmw, no_block_pointers
from .state import active, local, lock, repairs


def _handle(data, dtype):
    return _triton.interpreter().TensorHandle(data, dtype)


# ---- memory ----------------------------------------------------------------------------------------------


def _mask(mask) -> np.ndarray:
    """A mask as booleans; Triton 3.6 passes a bare array for block pointers."""
    return np.asarray(mask if isinstance(mask, np.ndarray) else mask.data).astype(bool, copy=False)


@repairs("InterpreterBuilder.create_masked_load")
def _load(original):
    """A mask made of a vector and a scalar condition arrives as int32, which Triton 3.9 rejects."""

    def create_masked_load(self, ptrs, mask, other, *rest, **named):
        import triton.language as tl

        mask = _mask(mask)
        trace = active()
        if trace is None:
            return original(self, ptrs, _handle(mask, tl.int1), other, *rest, **named)
        dtype = ptrs.get_element_ty()
        np_dtype = _triton.interpreter()._get_np_dtype(dtype)
        data = trace.load(ptrs.data, mask, None if other is None else other.data, np_dtype, dtype.name)
        return _handle(data, dtype)

    return create_masked_load


@repairs("InterpreterBuilder.create_masked_store")
def _store(original):
    """As create_masked_load."""

    def create_masked_store(self, ptrs, value, mask, *rest, **named):
        import triton.language as tl

        mask = _mask(mask)
        trace = active()
        if trace is None:
            return original(self, ptrs, value, _handle(mask, tl.int1), *rest, **named)
        return trace.store(ptrs.data, value.data, mask, value.dtype.scalar.name)

    return create_masked_store


@repairs("InterpreterBuilder.create_atomic_rmw")
def _atomic_rmw(original):
    """As create_masked_load; and bf16, whose bits the interpreter could not add."""

    def create_atomic_rmw(self, rmwOp, ptr, val, mask, sem, scope):
        import triton.language as tl

        mask = _handle(_mask(mask), tl.int1)
        trace = active()
        if trace is not None:
            relaxed = sem == _triton.interpreter()._ir.MEM_SEMANTIC.RELAXED
            address = trace.atomic(ptr.data, mask.data, val.data.itemsize, relaxed)
            ptr = _handle(address, ptr.dtype)
        name = val.dtype.scalar.name
        if name in floats.SOFT:
            return _handle(bf16_rmw(rmwOp.name, ptr.data, val.data, mask.data, name), val.dtype.scalar)
        return original(self, rmwOp, ptr, val, mask, sem, scope)

    return create_atomic_rmw


@repairs("InterpreterBuilder.create_atomic_cas")
def _atomic_cas(original):
    """Not repaired, only watched."""

    def create_atomic_cas(self, ptr, cmp, val, sem, scope):
        trace = active()
        if trace is not None:
            relaxed = sem == _triton.interpreter()._ir.MEM_SEMANTIC.RELAXED
            everywhere = np.ones(ptr.data.shape, bool)
            ptr = _handle(trace.atomic(ptr.data, everywhere, val.data.itemsize, relaxed), ptr.dtype)
        return original(self, ptr, cmp, val, sem, scope)

    return create_atomic_cas


@repairs("InterpreterBuilder.create_assert")
def _assert(original):
    """tl.device_assert never fired: the interpreter's options leave debug off. A checked run turns it on."""

    def create_assert(self, condition, message):
        trace = active()
        if trace is None:
            return original(self, condition, message)
        trace.device_assert(np.asarray(condition.data).astype(bool), message)

    return create_assert


# ---- launching -------------------------------------------------------------------------------------------


@repairs("_implicit_cvt")
def _argument(original):
    """A bool argument failed on Triton 3.6; a float stayed a Python double where the GPU gets fp32."""

    def convert(arg):
        import triton.language as tl

        if isinstance(arg, bool):
            return tl.tensor(_handle(np.array([arg], bool), tl.int1), tl.int1)
        if isinstance(arg, float):
            return tl.tensor(_handle(np.array([arg], np.float32), tl.float32), tl.float32)
        trace = active()
        if trace is not None and hasattr(arg, "data_ptr"):
            pointer = _triton.pointer_type(arg)
            return tl.tensor(_handle(np.array([trace.argument(arg)], np.uint64), pointer), pointer)
        return original(arg)

    return convert


@repairs("InterpreterBuilder.set_grid_idx")
def _program(original):
    """Not repaired: a checked run learns which program runs, and may run them in another order."""

    def set_grid_idx(self, x, y, z):
        trace = active()
        if trace is not None:
            x, y, z = trace.begin_program((x, y, z), self.grid_dim)
        return original(self, x, y, z)

    return set_grid_idx


@repairs("InterpreterBuilder.set_grid_dim")
def _grid(original):
    """A grid function that computes with an argument yields tensors where the launcher wants numbers."""

    def set_grid_dim(self, *dims):
        return original(self, *(int(d) if hasattr(d, "handle") else d for d in dims))

    return set_grid_dim


@repairs("GridExecutor.__call__")
def _launch(original):
    """Kernels launched by two threads shared one interpreter state; now they take turns.

    NumPy's warnings about overflow and NaN are silenced, since a GPU gives none. A KernelFault comes out as it is,
    any other error of the kernel keeps its type and says in which line and program it happened.
    """

    def call(self, *args, **kwargs):
        with lock, np.errstate(all="ignore"):
            trace = active()
            builder = _triton.interpreter().interpreter_builder
            options, builder.grid_idx = builder.options, None
            if isinstance(self.grid, list):
                self.grid = tuple(self.grid)
            try:
                if trace is not None:
                    trace.begin_launch(self.fn, args, kwargs, self.constexprs)
                    builder.options = dataclasses.replace(options, debug=True, sanitize_overflow=False)
                return original(self, *args, **kwargs)
            except _triton.interpreter_error() as error:
                fault = _fault_behind(error)
                if fault is not None:
                    raise fault from None
                _say_where(error, self.fn, builder.grid_idx)
                raise
            finally:
                builder.options = options
                if trace is not None:
                    trace.end_launch()

    return call


def _fault_behind(error) -> KernelFault | None:
    while error is not None and not isinstance(error, KernelFault):
        error = error.__cause__
    return error


def _say_where(error, function, program_id) -> None:
    cause = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    lines = [f.lineno for f in traceback.extract_tb(cause.__traceback__) if f.filename == function.__code__.co_filename]
    if lines:
        place = Place(function.__name__, function.__name__, function.__code__.co_filename, lines[-1], program_id)
        error.add_note(f"in {place.kernel}, line {place.line}, program {place.program_id}: {place.source}")


@repairs("_patch_lang")
def _patch(original):
    """Runtime loop bounds failed on Triton 3.6 with NumPy 2.4; a vector counted as true in an `if`, and a scalar
    `other=0.0` of a load as not given. Block pointers, gone from Triton 3.9, end with what to write instead.

    The kernel's module may import only some of Triton's language; both of its modules are patched, since the
    functions of Triton's own library see the other one. What is patched is the same for every kernel, so it is found
    out at the first launch and put there by name at the others.
    """
    found: list[tuple[object, str, object, object]] = []  # whose attribute, its name, what was there, what comes

    class Everything:
        def __init__(self):
            import triton.language as tl

            self.__globals__ = {"tl": tl, "core": tl.core}

    def index(self):
        return int(np.asarray(self.handle.data).reshape(-1)[0])

    def truth(self):
        if os.path.basename(sys._getframe(1).f_code.co_filename) in ("semantic.py", "core.py"):
            return True  # Triton's own `if other:` asks whether there is a tensor, not what is in it
        data = np.asarray(self.handle.data)
        if data.size != 1 or len(self.shape):
            raise TypeError(
                f"a tensor of shape {[int(s) for s in self.shape]} is neither true nor false as a whole: combine masks "
                "with & and |, choose values with tl.where"
            )
        return bool(data.reshape(-1)[0])

    def look():
        import triton.language as tl

        scope = original(Everything())
        scope.set_attr(tl.tensor, "__index__", index)
        scope.set_attr(tl.tensor, "__bool__", truth)
        if _triton.version() >= (3, 9):
            for module in (tl, tl.core):
                scope.set_attr(module, "make_block_ptr", no_block_pointers)
        before = {}
        for owner, name, was in scope._changes:
            before.setdefault((id(owner), name), (owner, name, was))
        comes = [(owner, name, was, getattr(owner, name)) for owner, name, was in before.values()]
        scope.restore()
        return comes

    class Scope:
        def __init__(self, depth):
            self.depth = depth

        def restore(self):
            local.depth = self.depth
            for owner, name, was, _ in found:
                if was is absent:
                    delattr(owner, name)
                else:
                    setattr(owner, name, was)

    absent = _triton.absent()

    def patch_lang(function):
        if not found:
            found.extend(look())
        depth = getattr(local, "depth", 0)
        local.depth = depth + 1
        for owner, name, _, comes in found:
            setattr(owner, name, comes)
        return Scope(depth)

    return patch_lang


@repairs("InterpretedFunction.__call__")
def _device_call(original):
    """Each call of a @triton.jit function from a kernel patched the whole language again, and left it patched."""

    def call(self, *args, **kwargs):
        if not getattr(local, "depth", 0):
            raise RuntimeError(
                f"{self.fn.__name__} is a @triton.jit function: launch it as {self.fn.__name__}[grid](...), or call it "
                "from another kernel"
            )
        return self.rewrite()(*args, **kwargs)

    return call


@repairs("Autotuner.run")
def _autotuned(original):
    """@triton.autotune times its configs, which needs a GPU driver. One config is taken instead."""

    def run(self, *args, **kwargs):
        configs = self.configs
        function = self.fn
        while hasattr(function, "fn") and not isinstance(function, _triton.interpreter().InterpretedFunction):
            function = function.fn
        if not isinstance(function, _triton.interpreter().InterpretedFunction):
            return original(self, *args, **kwargs)
        try:
            self.nargs = dict(zip(self.arg_names, args))
            self.configs = [_choose(list(self.prune_configs(kwargs)), function.fn.__name__)]
            return original(self, *args, **kwargs)
        finally:
            self.configs = configs

    return run


def _choose(configs: list, kernel: str):
    trace = active()
    choice = state.autotune if trace is None or trace.autotune is None else trace.autotune
    if callable(choice):
        return choice(configs)
    if not -len(configs) <= choice < len(configs):
        raise ValueError(f"{kernel} has {len(configs)} autotune configs, so there is no config {choice}")
    return configs[choice]
