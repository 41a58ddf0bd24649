"""A checked run: every access is looked at before it happens.

    with kernelcheck.checked(races="raise", shuffle=0) as t:
        kernel[grid](x, y, n, BLOCK=128)
    print(t.report())

A run belongs to the thread that opened it. Blocks may be nested: the inner one sees the launches inside it.
"""

import bisect
import contextlib
import inspect
import os
import random
import sys

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import _triton, faults, floats, interpreter, traffic
from .faults import KernelFault, Place
from .memory import WINDOW_BITS, Argument, Elements, Region, Shadow, distinct, make_region, window_base
from .traffic import ATOMIC, LOAD, STORE

_OUT_OF_BOUNDS = (faults.OUT_OF_BOUNDS_LOAD, faults.OUT_OF_BOUNDS_STORE, faults.OUT_OF_BOUNDS_ATOMIC)

# Poison is a NaN that no arithmetic makes by itself: the seven top bits of its significand are 0x6D, and they
# survive conversion between fp64, fp32, fp16 and bf16. (Mask of the bits compared, poison) by dtype.
_TOP = 0x6D
POISON_BITS = {
    "fp64": (0x7FFFE00000000000, 0x7FF0000000000000 | _TOP << 45),
    "fp32": (0x7FFF0000, 0x7F800000 | _TOP << 16),
    "fp16": (0x7FF8, 0x7C00 | _TOP << 3),
    "bf16": (0x7FFF, 0x7F80 | _TOP),
    "fp8e4nv": (0x7F, 0x7F),
    "fp8e5": (0x7F, 0x7F),
}
_INFRASTRUCTURE = {
    module.__file__ for module in (sys.modules[__name__], interpreter, floats, traffic, faults, _triton)
}
_is_kernel_code: dict[object, bool] = {}


class Trace(traffic.Traffic):
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
                found = shadow.view(np_dtype.itemsize)[
                    self._other_width(argument, pointers, lanes, np_dtype.itemsize)
                ]
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
            real[where] = (pointers[where].astype(np.int64) - argument.base + argument.region.address).astype(
                np.uint64
            )
        return real

    def _fill(self, shape, np_dtype, dtype: str) -> np.ndarray:
        """What masked lanes without `other` hold: undefined on a GPU, so poison here, or zeros if it is off."""
        if not self.poison:
            return np.zeros(shape, np_dtype)
        if dtype in POISON_BITS:
            return np.full(shape, POISON_BITS[dtype][1], f"u{np_dtype.itemsize}").view(np_dtype)
        if np_dtype.kind == "b":
            return np.ones(shape, bool)
        return np.full(
            shape, np.iinfo(np_dtype).max - (0x25 if np_dtype.itemsize > 1 else 0x25 & 0x1F), np_dtype
        )

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
        index = (pointer >> WINDOW_BITS) - 4
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
            problem = f"{argument.name}, shape {list(region.shape)}: {count} outside; the first {verb} element {outside[0]} ({valid})"
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
        raise KernelFault(
            faults.WILD_POINTER, problem, place=self._place(), lanes=pointers.size, active=pointers.size
        )

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

    # ---- history of the elements, and races

    def _others(self, steps: np.ndarray) -> np.ndarray:
        """Which of these steps another program of this launch took."""
        return (steps >= self._launch_start) & (steps < self._program_start)

    def _note_load(self, argument: Argument, shadow: Shadow, index) -> None:
        writer = shadow.writer[index]
        if shadow.fresh and not writer.all():
            self._uninitialised(argument, index, writer)
        if self.races != "ignore":
            if writer.max() >= self._launch_start and (clash := self._others(writer)).any():
                self._race(
                    faults.RACE_READ_WRITE,
                    argument,
                    index,
                    clash,
                    writer,
                    "reads {e}, which {o} writes in the same launch",
                )
            reader = shadow.reader[index]
            shadow.reader[index] = np.where(reader < self._launch_start, self._step, reader)
        shadow.ever_read[index] = True

    def _note_store(
        self, argument: Argument, shadow: Shadow, index, touched, elements: Elements, value
    ) -> None:
        if self.races != "ignore":
            if value is not None and touched.size != elements.count:
                self._check_lanes(argument, touched, np.ascontiguousarray(value).reshape(-1))
            writer, reader = shadow.writer[index], shadow.reader[index]
            written = self._others(writer)
            read = self._others(reader)
            if written.any() or read.any():
                changed = self._changes(shadow, argument.region, touched, elements, value)
                self._race(
                    faults.RACE_WRITE_WRITE,
                    argument,
                    index,
                    written & changed,
                    writer,
                    "writes {e}, which {o} writes in the same launch with another value",
                )
                self._race(
                    faults.RACE_READ_WRITE,
                    argument,
                    index,
                    read & changed,
                    reader,
                    "writes {e}, which {o} reads in the same launch",
                )
        shadow.writer[index] = self._step
        shadow.atomic[index] = False

    def _note_atomic(self, argument: Argument, shadow: Shadow, index) -> None:
        if self.races != "ignore":
            writer, reader = shadow.writer[index], shadow.reader[index]
            self._race(
                faults.RACE_WRITE_WRITE,
                argument,
                index,
                self._others(writer) & ~shadow.atomic[index],
                writer,
                "updates {e} atomically, which {o} writes plainly in the same launch",
            )
            self._race(
                faults.RACE_READ_WRITE,
                argument,
                index,
                self._others(reader),
                reader,
                "updates {e} atomically, which {o} reads plainly in the same launch",
            )
        if shadow.fresh and not (writer := shadow.writer[index]).all():
            self._uninitialised(argument, index, writer)
        shadow.writer[index] = self._step
        shadow.atomic[index] = True

    @staticmethod
    def _changes(shadow: Shadow, region: Region, touched, elements: Elements, value) -> np.ndarray:
        """Which distinct elements the store gives a new value: writing what is there already harms nobody."""
        if value is None:
            return np.ones(elements.count, bool)
        new = np.empty(elements.last - elements.first + 1, shadow.values.dtype)
        new[touched - elements.first] = np.ascontiguousarray(value).reshape(-1).view(shadow.values.dtype)
        return new[elements.array() - elements.first] != shadow.values[elements.shifted(region.start)]

    def _check_lanes(self, argument: Argument, touched: np.ndarray, value: np.ndarray) -> None:
        order = np.argsort(touched, kind="stable")
        element, bits = touched[order], value[order].view(f"u{value.itemsize}")
        clash = (element[1:] == element[:-1]) & (bits[1:] != bits[:-1])
        if clash.any():
            bad = np.unique(element[1:][clash])
            problem = f"{argument.name}: several lanes write different values to element {bad[0]}; which one stays is open"
            self._fault(
                KernelFault(
                    faults.RACE_LANES,
                    problem,
                    place=self._place(),
                    tensor=argument.name,
                    shape=argument.region.shape,
                    offsets=bad,
                    lanes=int(clash.sum()) + 1,
                    active=touched.size,
                    other_program=self._program_id,
                ),
                self.races,
            )

    def _race(self, kind: str, argument: Argument, index, clash, steps, story: str) -> None:
        if not clash.any():
            return
        for step in np.unique(steps[clash]):
            program = self._program_of(int(step))
            if self._seen.get(program, 0) >= step:  # an atomic put the two in order
                continue
            where = np.flatnonzero(clash & (steps == step))
            element = (np.arange(index.start, index.stop) if isinstance(index, slice) else index)[
                where
            ] - argument.region.start
            other = self.program_ids[program]
            text = story.format(e=f"element {element[0]} of {argument.name}", o=f"program {other}")
            advice = "; programs run in no particular order"
            self._fault(
                KernelFault(
                    kind,
                    f"it {text}{advice}",
                    place=self._place(),
                    tensor=argument.name,
                    shape=argument.region.shape,
                    offsets=element,
                    lanes=element.size,
                    active=clash.size,
                    other_program=other,
                ),
                self.races,
            )
            return

    def _program_of(self, step: int) -> int:
        return bisect.bisect_right(self.program_starts, step) - 1

    def _synchronise(self, shadow: Shadow, index) -> None:
        """An atomic that is not relaxed passes on, from its last user, all that this one had seen.

        Only for a few lanes at a time: locks and counters, not histograms.
        """
        elements = range(index.start, index.stop) if isinstance(index, slice) else index.tolist()
        if len(elements) > 32:
            return
        me = len(self.program_ids) - 1
        for element in elements:
            key = (id(shadow), element)
            for program, step in self._releases.get(key, {}).items():
                self._seen[program] = max(step, self._seen.get(program, 0))
            self._releases[key] = {**self._seen, me: self._step}

    # ---- values that nobody gave

    def _uninitialised(self, argument: Argument, index, writer) -> None:
        element = (np.arange(index.start, index.stop) if isinstance(index, slice) else index)[writer == 0]
        element = element - argument.region.start
        problem = (
            f"{argument.name}, shape {list(argument.region.shape)}: {element.size} elements come from torch.empty "
            f"and nobody wrote them; the first is element {element[0]}"
        )
        raise KernelFault(
            faults.UNINITIALISED,
            problem,
            place=self._place(),
            tensor=argument.name,
            shape=argument.region.shape,
            offsets=element,
            lanes=element.size,
            active=writer.size,
        )

    def _check_poison(self, argument: Argument, values, bits, dtype: str) -> None:
        """A store of poison; or of NaN, if the program met poison and no tensor it read holds NaN or infinity."""
        if dtype in POISON_BITS:
            mask, poison = POISON_BITS[dtype]
            bad = (bits & bits.dtype.type(mask)) == bits.dtype.type(poison)
            if not bad.any():
                numbers = floats.decode(values, dtype) if dtype in floats.SOFT else values
                bad = np.isnan(numbers)
                if bad.any() and not self._inputs_finite():
                    return
        elif values.dtype.kind == "b":
            return
        else:
            bad = values == self._fill((), values.dtype, dtype)
        if not bad.any():
            return
        source = self._poisoned
        problem = (
            f"{int(bad.sum())} of {bad.size} values stored to {argument.name} come from masked lanes of the load in "
            f"line {source.line}, which has no other=: `{source.source}`"
        )
        raise KernelFault(
            faults.POISON,
            problem,
            place=self._place(),
            tensor=argument.name,
            shape=argument.region.shape,
            lanes=int(bad.sum()),
            active=bad.size,
        )

    def _inputs_finite(self) -> bool:
        for argument in self._arguments:
            region = argument.region
            if region.dtype not in POISON_BITS or not region.mine(region.shadow.ever_read).any():
                continue
            values = region.shadow.values[region.part]
            if region.dtype in floats.SOFT:
                values = floats.decode(values, region.dtype)
            else:
                values = values.view(
                    {"fp64": np.float64, "fp32": np.float32, "fp16": np.float16}[region.dtype]
                )
            if not np.isfinite(values).all():
                return False
        return True

    def check_outputs(self) -> None:
        """Raise if an output has elements that no kernel wrote.

        Outputs are those named in `outputs`; else every tensor made by torch.empty in the run that a kernel
        stored to and none loaded from.
        """
        for region in self._outputs():
            missing = np.flatnonzero(
                ~region.mine(region.shadow.writer > 0) & (True if region.inside is None else region.inside)
            )
            if not missing.size:
                continue
            problem = (
                f"{region.name}, shape {list(region.shape)}: {missing.size} of {region.numel} elements were written by "
                f"no program; the first is element {missing[0]}"
            )
            raise KernelFault(
                faults.UNWRITTEN,
                problem,
                place=Place(region.kernel, region.kernel, "", 0, None),
                tensor=region.name,
                shape=region.shape,
                offsets=missing,
                lanes=missing.size,
                active=region.numel,
            )

    def _outputs(self) -> list[Region]:
        if self.outputs is None:
            return [
                r
                for r in self.regions
                if r.shadow.fresh
                and r.mine(r.shadow.writer > 0).any()
                and not r.mine(r.shadow.ever_read).any()
            ]
        chosen = []
        for output in self.outputs:
            if isinstance(output, str):
                found = [r for r in self.regions if r.name == output]
            else:
                found = [
                    r
                    for r in self.regions
                    if r.address == output.data_ptr() and r.shape == tuple(output.shape)
                ]
            if not found:
                label = output if isinstance(output, str) else f"a tensor of shape {list(output.shape)}"
                have = ", ".join(r.name for r in self.regions) or "none"
                raise ValueError(
                    f"outputs names {label}, which no kernel of this run was given; it saw: {have}"
                )
            chosen += found
        return chosen

    def device_assert(self, condition: np.ndarray, message: str) -> None:
        if not condition.all():
            problem = f"{int((~condition).sum())} of {condition.size} lanes: {message}"
            raise KernelFault(
                faults.ASSERT,
                problem,
                place=self._place(),
                lanes=int((~condition).sum()),
                active=condition.size,
            )

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
        return (
            False  # torch would import torch._dynamo, more than a second, to keep it from compiling this mode
        )

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

    Yields a Trace. Raises KernelFault at the first fault. Launches by other threads are not checked.
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
    before = interpreter.set_active(trace)
    try:
        with _Fresh(trace):
            yield trace
    finally:
        interpreter.set_active(before)
    trace.check_outputs()
