"""What a checked run raises."""

import dataclasses
import linecache

import numpy as np

OUT_OF_BOUNDS_LOAD = "out-of-bounds load"
OUT_OF_BOUNDS_STORE = "out-of-bounds store"
OUT_OF_BOUNDS_ATOMIC = "out-of-bounds atomic"
WILD_POINTER = "wild pointer"
MISALIGNED = "misaligned pointer"
RACE_WRITE_WRITE = "data race: write/write"
RACE_READ_WRITE = "data race: read/write"
RACE_LANES = "data race: lanes of one store"
POISON = "poison stored"
UNWRITTEN = "unwritten output"
UNINITIALISED = "uninitialised read"
ASSERT = "device_assert failed"


@dataclasses.dataclass(frozen=True)
class Place:
    """A source line of a kernel (or of `function`, which the kernel calls), and the program that ran it."""

    kernel: str
    function: str
    file: str
    line: int
    program_id: tuple[int, int, int] | None

    @property
    def source(self) -> str:
        return linecache.getline(self.file, self.line).strip()


class KernelFault(RuntimeError):
    """A kernel did what no right kernel does. `str()` tells the story; the fields are for programs.

    kind: one of the constants of this module.
    tensor, shape: name (the kernel's parameter) and shape of the tensor concerned, or None.
    kernel, file, line, source: where; line 0 if it is not tied to a line.
    program_id: (x, y, z) of the program that did it; other_program: the second one of a race.
    offset: first element concerned, counted from the tensor's first element in memory; offsets: all of them.
    lanes, active: how many lanes are at fault, of how many that the mask let through.
    `facts()` gives all of it as plain values, for JSON; a fault may be pickled.
    """

    def __init__(
        self,
        kind: str,
        problem: str,
        *,
        place: Place | None = None,
        tensor: str | None = None,
        shape: tuple[int, ...] | None = None,
        offsets=None,
        lanes: int = 0,
        active: int = 0,
        other_program: tuple[int, int, int] | None = None,
    ):
        self.kind = kind
        self.problem = problem
        self.tensor = tensor
        self.shape = shape
        self.kernel = place.kernel if place else None
        self.function = place.function if place and place.function[:1] not in ("", "<") else self.kernel
        self.file = place.file if place else None
        self.line = place.line if place else 0
        self.source = place.source if place else ""
        self.program_id = place.program_id if place else None
        self.other_program = other_program
        self.offsets = np.asarray([] if offsets is None else offsets, np.int64)
        self.offset = int(self.offsets[0]) if self.offsets.size else None
        self.lanes = lanes
        self.active = active
        super().__init__(self._story())

    def facts(self) -> dict:
        """Every field and the message, as numbers, strings, lists and None."""
        plain = {}
        for name, value in vars(self).items():
            plain[name] = (
                value.tolist() if isinstance(value, np.ndarray) else list(value) if isinstance(value, tuple) else value
            )
        return {**plain, "message": str(self)}

    def __reduce__(self):
        return _rebuild, (str(self), vars(self).copy())

    def _story(self) -> str:
        where = ""
        if self.kernel:
            called = f"{self.function} (called by {self.kernel})" if self.function != self.kernel else self.kernel
            where = f" in {called}" + (f", line {self.line}" if self.line else "")
        if self.program_id is not None:
            where += f", program {self.program_id}"
        story = f"{self.kind}{where}: {self.problem}"
        return story + (f"\n    {self.source}" if self.source else "")


def _rebuild(message: str, fields: dict) -> KernelFault:
    fault = KernelFault.__new__(KernelFault)
    fault.args = (message,)
    vars(fault).update(fields)
    return fault
