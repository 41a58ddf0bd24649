"""Data races: two programs of one launch touch the same element, one of them to write it, in no fixed order.

The interpreter runs one program after the other, so that a racy kernel looks right in it. What tells is the
history of each element: the step of its last store, and of its first load in this launch. Programs run in
sequence, so a step of this launch before the current program's first belongs to another program.
"""

import bisect

import numpy as np

from . import faults
from .faults import KernelFault
from .memory import Argument, Elements, Region, Shadow


class Races:
    """The part of a Trace that keeps the history of the elements and judges it."""

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

    def _note_store(self, argument: Argument, shadow: Shadow, index, touched, elements: Elements, value) -> None:
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
            problem = (
                f"{argument.name}: several lanes write different values to element {bad[0]}; which one stays is open"
            )
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
