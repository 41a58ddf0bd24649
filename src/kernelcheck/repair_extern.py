"""Repairs of what lies outside Triton's language: libdevice, inline assembly, atomics on bf16, block pointers."""

import ctypes
import inspect

import numpy as np

from . import _triton, floats, libdevice
from .state import repairs


def _handle(data, dtype):
    return _triton.interpreter().TensorHandle(data, dtype)


@repairs("InterpreterBuilder.create_extern_elementwise")
def _extern(original):
    """libdevice was not there; its functions have twins in NumPy and torch (see libdevice.py)."""

    def create_extern_elementwise(self, libName, libPath, symbol, argList, retType, isPure):
        compute = libdevice.twin(symbol)
        if compute is None:
            raise NotImplementedError(
                f"libdevice's {symbol} has no twin on the CPU. Write the line in Triton for the check, behind a "
                "constexpr: if USE_LIBDEVICE: ... else: ..."
            )
        scalar = retType.scalar
        return _handle(compute([a.data for a in argList], _triton.interpreter()._get_np_dtype(scalar)), scalar)

    return create_extern_elementwise


def _called_by_kernel(function):
    """A function of libdevice for a kernel that is interpreted: it gets the semantics that a compiler would give."""

    def call(*args, **kwargs):
        kwargs["_semantic"] = _triton.interpreter().interpreter_semantic
        try:
            return function(*args, **kwargs)
        except KeyError as types:
            names = ", ".join(str(name) for name in types.args[0]) if types.args else ""
            raise TypeError(f"libdevice.{function.__name__} takes no ({names}): convert first, as with .to(tl.float32)"
                            ) from None

    call.__name__ = function.__name__
    return call


def _register_libdevice() -> None:
    """`triton.language.extra.libdevice` holds empty functions, which the compiler exchanges for the card's own."""
    card, empty = _triton.libdevice_modules()
    for name, function in inspect.getmembers(card, callable):
        if name.startswith("_") or getattr(function, "__module__", None) != card.__name__:
            continue
        for module in (card, empty):
            if hasattr(module, name):
                repairs(f"{module.__name__}:{name}")(lambda original, function=function: _called_by_kernel(function))


_register_libdevice()


@repairs("InterpreterBuilder.create_inline_asm")
def _assembly(original):
    """Inline assembly cannot run on a CPU; the error says so, and what to do."""

    def create_inline_asm(self, inlineAsm, constraints, values, type, isPure, pack):
        raise NotImplementedError(
            f"tl.inline_asm_elementwise: the assembly `{' '.join(str(inlineAsm).split())[:80]}` runs on a GPU only. "
            "Give the kernel a constexpr, and a second way of the same sum in Triton or libdevice for the check: "
            "if USE_ASM: ... else: ... ; compile_report() compiles the way with the assembly"
        )

    return create_inline_asm


def bf16_rmw(operation: str, pointers, values, mask, dtype: str) -> np.ndarray:
    """An atomic on soft floats: each lane, in order, reads, computes in fp32, rounds once and writes.

    Returns the bits that each lane found. Lanes that share an element take turns: the k-th of each go together.
    """
    compute = {"FADD": np.add, "MAX": np.fmax, "MIN": np.fmin, "XCHG": lambda old, new: new}[operation]
    values = np.ascontiguousarray(np.broadcast_to(values, pointers.shape))
    found = np.zeros(pointers.shape, values.dtype)
    lanes = np.flatnonzero(np.broadcast_to(mask, pointers.shape).reshape(-1))
    cell = {1: ctypes.c_uint8, 2: ctypes.c_uint16}[values.itemsize]
    flat, new, old = pointers.reshape(-1), values.reshape(-1), found.reshape(-1)
    while lanes.size:
        _, first = np.unique(flat[lanes], return_index=True)
        turn = lanes[np.sort(first)]
        cells = [cell.from_address(int(address)) for address in flat[turn]]
        old[turn] = [c.value for c in cells]
        result = compute(floats.decode(old[turn], dtype), floats.decode(new[turn], dtype))
        for c, bits in zip(cells, floats.encode(result, dtype).tolist()):
            c.value = bits
        lanes = np.setdiff1d(lanes, turn)
    return old.reshape(pointers.shape)


def no_block_pointers(*args, **kwargs):
    raise NotImplementedError(
        "Triton has no block pointers from release 3.9 on. tl.make_block_ptr(base, shape, strides, offsets, "
        "block_shape, order) becomes tl.make_tensor_descriptor(base, shape, strides, block_shape), whose load and "
        "store are given the offsets; or compute pointers and masks yourself, which runs on every release"
    )
