"""A checked run: every access is looked at before it happens.

    with kernelcheck.checked(races="raise", shuffle=0) as t:
        kernel[grid](x, y, n, BLOCK=128)
    print(t.report())

A run belongs to the thread that opened it. Blocks may be nested: the inner one sees the launches inside it.
"""

import contextlib
import inspect
import os
import random
import sys

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import (
    _triton,
    faults,
    floats,
    interpreter,
    libdevice,
    memory,
    races,
    repair_extern,
    repair_launch,
    repair_numbers,
    repair_python,
    state,
    traffic,
    values,
)
from .faults import KernelFault, Place
from .memory import FIRST_WINDOW, WINDOW_BITS, Argument, Region, Shadow, distinct, make_region, window_base
from .races import Races
from .traffic import ATOMIC, LOAD, STORE, Traffic
from .values import Values

_OURS = (_triton, faults, floats, interpreter, memory, races, traffic, values)
_OURS += (libdevice, repair_extern, repair_launch, repair_numbers, repair_python, state)
_INFRASTRUCTURE = {__file__, *(module.__file__ for module in _OURS)}
_OUT_OF_BOUNDS = (faults.OUT_OF_BOUNDS_LOAD, faults.OUT_OF_BOUNDS_STORE, faults.OUT_OF_BOUNDS_ATOMIC)
_is_kernel_code: dict[object, bool] = {}


class Trace(Traffic, Races, Values):
    """One checked run: the rules it applies, and what it saw. Read-outs: see traffic.Traffic.

    faults: those that did not stop the run (`bounds="log"`, `races="log"`).
    """

    def __init__(
        self,
        *,
        poison=True,
        races="raise",
        bounds="raise",
        shuffle=None,
        tf32=True,
        outputs=None,
        names=None,
        autotune=None,
        record=True,
    ):
        super().__init__(record)
        if races not in ("raise", "log", "ignore"):
            raise ValueError(f"races must be 'raise', 'log' or 'ignore', got {races!r}")
        if bounds not in ("raise", "log"):
            raise ValueError(f"bounds must be 'raise' or 'log', got {bounds!r}")
        if isinstance(outputs, str) or torch.is_tensor(outputs):
            raise ValueError("outputs must be a list of parameter names or tensors, such as outputs=['Y']")
        self.poison, self.races, self.bounds, self.tf32 = poison, races, bounds, tf32
        self.outputs, self.autotune = outputs, autotune
        self.faults: list[KernelFault] = []
        self.fresh: dict[int, object] = {}  # storages made by torch.empty* in this run, by address
        self._names = {t.data_ptr(): name for name, t in (names or {}).items()}
        self._named = dict(names or {})
        self._random = None if shuffle is None else random.Random(shuffle)
        self._shadows: dict[tuple, Shadow] = {}
        self._regions: dict[tuple, Region] = {}
        self._step = 0
        self.launching = False
        self._reset_launch()

    def _reset_launch(self) -> None:
        self._arguments: list[Argument] = []
        self._waiting: list[str] = []
        self._kernel = ""
        self._launch_start = self._program_start = self._step + 1
        self._order = None
        self._program_id = None
        self._poisoned = None
        self._seen: dict[int, int] = {}
        self._releases: dict[tuple, dict[int, int]] = {}

    # ---- launch and program

    def begin_launch(self, function, args, kwargs, constexprs) -> None:
        self._reset_launch()
        self.launching = True
        self._kernel = function.__name__
        self.launches.append(self._kernel)
        known = inspect.signature(function).parameters
        bound = inspect.getcallargs(function, *args, **{k: v for k, v in kwargs.items() if k in known})
        for name, value in bound.items():
            if name not in constexprs:
                self._waiting += _tensor_names(name, value)
        for tensor in self._named.values():
            self._region(tensor, _triton.type_name(tensor)[1:], self._names[tensor.data_ptr()])

    def end_launch(self) -> None:
        self.launching = False
        self._arguments = []
        self._program_id = None

    def argument(self, tensor) -> int:
        """Made-up address of the next tensor argument of this launch."""
        name = self._waiting.pop(0) if self._waiting else "?"
        base = getattr(tensor, "base", tensor)  # triton.reinterpret wraps a tensor
        region = self._region(base, _triton.type_name(tensor).lstrip("*k"), name)
        address = window_base(len(self._arguments), region.address)
        self._arguments.append(Argument(name, region, address))
        return address

    def _region(self, tensor, dtype: str, name: str) -> Region:
        storage = tensor.untyped_storage()
        item = tensor.element_size()
        key = (storage.data_ptr(), storage.nbytes(), item)
        if key not in self._shadows:
            self._shadows[key] = Shadow(storage, item, storage.data_ptr() in self.fresh)
        shadow = self._shadows[key]
        shadow.fresh = storage.data_ptr() in self.fresh
        key = (*key, tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()), dtype)
        if key not in self._regions:
            given = self._names.get(tensor.data_ptr(), name)
            self._regions[key] = make_region(tensor, given, self._kernel, dtype, shadow)
            self.regions.append(self._regions[key])
        return self._regions[key]

    def begin_program(self, program_id, grid) -> tuple[int, int, int]:
        """The program that runs next in place of `program_id`: another one if the order is shuffled."""
        if self._random is not None:
            if self._order is None:
                self._order = list(np.ndindex(*(int(g) for g in grid)))
                self._random.shuffle(self._order)
                self._order.reverse()
            program_id = self._order.pop()
        self._program_id = tuple(int(i) for i in program_id)
        self._program_start = self._step + 1
        self.program_starts.append(self._program_start)
        self.program_ids.append(self._program_id)
        self._poisoned = None
        self._seen = {}
        return self._program_id

    # ---- accesses

    def load(self, pointers, mask, other, np_dtype, dtype: str) -> np.ndarray:
        full = bool(mask.all())
        if full:
            values = np.empty(pointers.shape, np_dtype)
        elif other is not None:
            values = np.array(np.broadcast_to(other, pointers.shape), np_dtype)
        else:
            values = self._fill(pointers.shape, np_dtype, dtype)
        for argument, lanes, elements in self._access(LOAD, pointers, mask, full, np_dtype.itemsize):
            region, shadow = argument.region, argument.region.shadow
            if region.item != np_dtype.itemsize:
                found = shadow.view(np_dtype.itemsize)[self._other_width(argument, pointers, lanes, np_dtype.itemsize)]
            elif lanes is None and elements.in_order and isinstance(elements.index, slice):
                found = shadow.values[elements.shifted(region.start)]
            else:
                found = shadow.values[self._elements(argument, pointers, lanes) + region.start]
            if lanes is None:
                values = np.array(found).reshape(pointers.shape).view(np_dtype)
            else:
                values[lanes] = found.view(np_dtype)
        if not full and other is None and self.poison:
            self._poisoned = self._poisoned or self._place()
        return values

    def store(self, pointers, value, mask, dtype: str) -> None:
        full = bool(mask.all())
        value = np.broadcast_to(value, pointers.shape)
        item = value.itemsize
        for argument, lanes, elements in self._access(STORE, pointers, mask, full, item, value):
            region, shadow = argument.region, argument.region.shadow
            stored = np.ascontiguousarray(value if lanes is None else value[lanes])
            bits = stored.view(f"u{item}").reshape(-1)
            if self._poisoned is not None:
                self._check_poison(argument, stored.reshape(-1), bits, dtype)
            if region.item != item:
                where = self._other_width(argument, pointers, lanes, item).reshape(-1)
                shadow.view(item)[where] = bits
            elif lanes is None and elements.in_order and isinstance(elements.index, slice):
                shadow.values[elements.shifted(region.start)] = bits
            else:
                shadow.values[self._elements(argument, pointers, lanes).reshape(-1) + region.start] = bits

    def atomic(self, pointers, mask, item: int, relaxed: bool) -> np.ndarray:
        """Real addresses for an atomic, which Triton's own code carries out."""
        real = np.zeros_like(pointers)
        full = bool(mask.all())
        for argument, lanes, elements in self._access(ATOMIC, pointers, mask, full, item):
            if not relaxed:
                self._synchronise(argument.region.shadow, elements.shifted(argument.region.start))
            where = slice(None) if lanes is None else lanes
            real[where] = (pointers[where].astype(np.int64) - argument.base + argument.region.address).astype(np.uint64)
        return real

    def _access(self, kind: int, pointers, mask, full: bool, item: int, value=None):
        """Check one access, count it, and yield (argument, lanes or None for all, distinct elements) of each tensor.

        Nearly always that is one tensor; a table of pointers may lead to several.
        """
        active = pointers.reshape(-1) if full else pointers[mask]
        if not active.size:
            return
        argument = self._owner(int(active[0]))
        if argument is not None:
            offset = active.astype(np.int64) - argument.base
            if self._within(argument.region, offset, item):
                yield self._one(kind, argument, pointers, None if full else mask, item, value)
                return
        windows = pointers >> np.uint64(WINDOW_BITS)
        for window in np.unique(windows[mask]):
            lanes = mask & (windows == window)
            argument = self._owner(int(pointers[lanes][0]))
            if argument is None:
                self._wild(kind, pointers[lanes])
            lanes = self._only_inside(kind, argument, pointers, lanes, item)
            if lanes.any():
                yield self._one(kind, argument, pointers, lanes, item, value)

    def _owner(self, pointer: int) -> Argument | None:
        """The argument in whose window the pointer lies; for a real address, the tensor that has it."""
        index = (pointer >> WINDOW_BITS) - FIRST_WINDOW
        if 0 <= index < len(self._arguments):
            return self._arguments[index]
        for region in self.regions:
            if region.address <= pointer < region.address + region.extent * region.item:
                return Argument(region.name, region, region.address)
        return None

    @staticmethod
    def _within(region: Region, offset: np.ndarray, item: int) -> bool:
        if offset.min() < 0 or offset.max() + item > region.extent * region.item:
            return False
        return region.inside is None or bool(region.inside[offset // region.item].all())

    def _only_inside(self, kind: int, argument: Argument, pointers, lanes, item: int):
        """`lanes` without those outside the tensor, which are reported."""
        region = argument.region
        offset = pointers.astype(np.int64) - argument.base
        element = offset // region.item
        bad = lanes & ((offset < 0) | (offset + item > region.extent * region.item))
        gap = np.zeros_like(bad)
        if region.inside is not None:
            rest = lanes & ~bad
            gap[rest] = ~region.inside[element[rest]]
        if not (bad | gap).any():
            return lanes
        outside = element[bad | gap]
        verb = ("reads", "writes", "updates")[kind]
        count = f"{outside.size} of {int(lanes.sum())} active lanes"
        if bad.any():
            valid = f"valid: 0 to {region.extent - 1}" if region.extent else "the tensor is empty"
            problem = (
                f"{argument.name}, shape {list(region.shape)}: {count} outside; "
                f"the first {verb} element {outside[0]} ({valid})"
            )
        else:
            problem = (
                f"{argument.name}, shape {list(region.shape)}, strides {list(region.stride)}: {count} in the padding "
                f"between rows; the first {verb} element {outside[0]}"
            )
        self._fault(
            KernelFault(
                _OUT_OF_BOUNDS[kind],
                problem,
                place=self._place(),
                tensor=argument.name,
                shape=region.shape,
                offsets=outside,
                lanes=outside.size,
                active=int(lanes.sum()),
            ),
            self.bounds,
        )
        return lanes & ~bad & ~gap

    def _wild(self, kind: int, pointers) -> None:
        verb = ("load", "store", "atomic")[kind]
        problem = (
            f"a {verb} of {pointers.size} lanes through an address that belongs to no tensor of this launch "
            "(tensors behind a table of pointers: checked(names={'w0': w0}))"
        )
        raise KernelFault(faults.WILD_POINTER, problem, place=self._place(), lanes=pointers.size, active=pointers.size)

    @staticmethod
    def _elements(argument: Argument, pointers, lanes) -> np.ndarray:
        chosen = pointers if lanes is None else pointers[lanes]
        return (chosen.astype(np.int64) - argument.base) // argument.region.item

    def _other_width(self, argument: Argument, pointers, lanes, item: int) -> np.ndarray:
        """Index of each lane in the storage seen as elements of `item` bytes (a pointer that was cast)."""
        region = argument.region
        chosen = pointers if lanes is None else pointers[lanes]
        byte = chosen.astype(np.int64) - argument.base + region.start * region.item
        if (byte % item).any():
            problem = f"{argument.name}: an address that is no multiple of the {item} bytes accessed"
            raise KernelFault(
                faults.MISALIGNED,
                problem,
                place=self._place(),
                tensor=argument.name,
                shape=region.shape,
                offsets=byte[byte % item != 0] // region.item - region.start,
                active=chosen.size,
            )
        return byte // item

    def _one(self, kind: int, argument: Argument, pointers, lanes, item: int, value):
        """Check for races, count, and note in the history, an access to one tensor."""
        region = argument.region
        touched = self._elements(argument, pointers, lanes)
        if item > region.item:
            touched = (touched[..., None] + np.arange(item // region.item)).reshape(-1)
        elements = distinct(touched)
        self._step += 1
        file, line, _ = self._here()
        self._count(kind, file, line, region, elements, touched.size, self._step)
        shadow, index = region.shadow, elements.shifted(region.start)
        if kind == LOAD:
            self._note_load(argument, shadow, index)
        elif kind == STORE:
            fresh_value = None if item != region.item else value if lanes is None else value[lanes]
            self._note_store(argument, shadow, index, touched.reshape(-1), elements, fresh_value)
        else:
            self._note_atomic(argument, shadow, index)
        return argument, lanes, elements

    # ---- where

    def _here(self) -> tuple[str, int, str]:
        """File, line and function of the kernel code that is running."""
        frame = sys._getframe(1)
        while frame is not None:
            code = frame.f_code
            if code not in _is_kernel_code:
                _is_kernel_code[code] = _outside_triton(code.co_filename)
            if _is_kernel_code[code]:
                return code.co_filename, frame.f_lineno, code.co_name
            frame = frame.f_back
        return "", 0, ""

    def _place(self) -> Place:
        file, line, function = self._here()
        return Place(self._kernel, function, file, line, self._program_id)

    def _fault(self, fault: KernelFault, rule: str) -> None:
        if rule == "raise":
            raise fault
        self.faults.append(fault)


def _outside_triton(filename: str) -> bool:
    import triton

    libraries = (os.path.dirname(triton.__file__) + os.sep, os.path.dirname(np.__file__) + os.sep)
    return filename not in _INFRASTRUCTURE and not filename.startswith(libraries)


def _tensor_names(name: str, value) -> list[str]:
    """Names of the tensors in one launch argument, in the order in which Triton converts them."""
    if hasattr(value, "data_ptr"):
        return [name]
    if isinstance(value, tuple):
        return [n for i, item in enumerate(value) for n in _tensor_names(f"{name}[{i}]", item)]
    if hasattr(value, "block_shape") and hasattr(value, "base"):
        return [name]
    return []


class _Fresh(TorchDispatchMode):
    """Notes which storages torch.empty made in this run; any torch operation that writes to one clears it."""

    MAKERS = (
        "aten::empty",
        "aten::new_empty",
        "aten::empty_like",
        "aten::empty_strided",
        "aten::new_empty_strided",
    )

    def __init__(self, trace: Trace):
        super().__init__()
        self.trace = trace

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would import torch._dynamo, more than a second, to keep it from compiling this mode

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self.trace.launching:  # the interpreter's own copies of the arguments
            return func(*args, **kwargs)
        schema = func._schema
        if schema.is_mutable:
            for value in (*args, *kwargs.values()):
                if isinstance(value, torch.Tensor):
                    self.trace.fresh.pop(value.untyped_storage().data_ptr(), None)
        result = func(*args, **kwargs)
        if schema.name in self.MAKERS and isinstance(result, torch.Tensor) and result.numel():
            storage = result.untyped_storage()
            self.trace.fresh[storage.data_ptr()] = storage
        return result


@contextlib.contextmanager
def checked(
    *,
    poison: bool = True,
    races: str = "raise",
    bounds: str = "raise",
    shuffle: int | None = None,
    tf32: bool = True,
    outputs=None,
    names=None,
    autotune=None,
    record: bool = True,
):
    """Check every memory access of the kernels launched in the block, and count them.

    poison: masked lanes of a load without `other` hold NaN (integers: a large odd number), and storing it is a fault.
    races: "raise", "log" (into `.faults`) or "ignore".
    bounds: "raise", or "log": the lanes outside are reported in `.faults` and do nothing.
    shuffle: run the programs of each launch in a random order, from this seed.
    tf32: fp32 dots use tf32 operands unless the kernel says input_precision="ieee".
    outputs: parameter names or tensors whose every element must be written by the end of the block. Unset, these are
        the tensors made by torch.empty in the block that kernels store to and never load; () checks none.
    names: {name: tensor} for reports, and for tensors that kernels reach through a table of pointers.
    autotune: which config autotuned kernels take in this block; see install().
    record: keep every access for access_map().

    Tensors are to be on the CPU. Yields a Trace. Raises KernelFault at the first fault. Launches by other threads are
    not checked.
    """
    interpreter.install()
    trace = Trace(
        poison=poison,
        races=races,
        bounds=bounds,
        shuffle=shuffle,
        tf32=tf32,
        outputs=outputs,
        names=names,
        autotune=autotune,
        record=record,
    )
    before = state.set_active(trace)
    try:
        with _Fresh(trace):
            yield trace
    finally:
        state.set_active(before)
    trace.check_outputs()
