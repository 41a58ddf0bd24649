"""What a run moved: bytes by tensor and by source line, the map of who touched what, and the report.

The model of memory has no cache between two accesses: an element that a program loads twice counts twice, an
element that several lanes of one load share counts once. Real DRAM traffic lies between `compulsory`
(everything once) and `traffic` (this model), depending on what L2 keeps.
"""

import collections
import dataclasses
import linecache
import os

import numpy as np

from .memory import SECTOR_BYTES, Region

LOAD, STORE, ATOMIC = 0, 1, 2
KINDS = ("load", "store", "atomic")


@dataclasses.dataclass
class LineTraffic:
    """Accesses of one source line to one tensor. Bytes: loaded, stored or, for an atomic, both ways each."""

    file: str
    line: int
    tensor: str
    kind: str
    accesses: int
    lanes: int
    bytes: int
    sector_bytes: int

    @property
    def source(self) -> str:
        return linecache.getline(self.file, self.line).strip()


@dataclasses.dataclass
class TensorTraffic:
    """One tensor: bytes loaded and stored, how many distinct bytes of each, its own size, its sectors."""

    name: str
    kernel: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    loaded: int = 0
    stored: int = 0
    distinct_loaded: int = 0
    distinct_stored: int = 0
    sector_bytes: int = 0

    @property
    def traffic(self) -> int:
        return self.loaded + self.stored

    @property
    def coalescing(self) -> float:
        return self.traffic / self.sector_bytes if self.sector_bytes else 1.0


@dataclasses.dataclass
class AccessMap:
    """Every touch of one tensor's elements, in the order in which they happened. All arrays: [touches].

    step: number of the access (one load or store of one program);  program: index of the program, a row of
    `program_ids` [programs, 3];  kind: 0 load, 1 store, 2 atomic;  line: source line;  element: offset from the
    tensor's first element in memory.
    """

    tensor: str
    shape: tuple[int, ...]
    step: np.ndarray
    program: np.ndarray
    kind: np.ndarray
    line: np.ndarray
    element: np.ndarray
    program_ids: np.ndarray
    _offsets: np.ndarray = dataclasses.field(repr=False)

    def count(self, kind: str = "load") -> np.ndarray:
        """How often each element was touched, in the tensor's shape."""
        chosen = self.element[self.kind == KINDS.index(kind)]
        size = int(self._offsets.max()) + 1 if self._offsets.size else 0
        return np.bincount(chosen, minlength=size)[self._offsets]

    def first(self, kind: str = "load") -> np.ndarray:
        """Index of the first program that touched each element, -1 if none did, in the tensor's shape."""
        chosen = self.kind == KINDS.index(kind)
        size = int(self._offsets.max()) + 1 if self._offsets.size else 0
        who = np.full(size, -1)
        who[self.element[chosen][::-1]] = self.program[chosen][::-1]
        return who[self._offsets]


class Traffic:
    """The counters of a run, and how to read them. trace.Trace fills them in."""

    def __init__(self, record: bool = True):
        self.regions: list[Region] = []
        self.dots: collections.Counter[str] = collections.Counter()
        self.launches: list[str] = []
        self.program_starts: list[int] = []  # first step of each program, in the order in which they ran
        self.program_ids: list[tuple[int, int, int]] = []
        self.record = record
        self._lines: dict[tuple, list[int]] = {}
        self._events: list[tuple] = []

    # ---- filling in

    def _count(self, kind: int, file: str, line: int, region: Region, elements, lanes: int, step: int) -> None:
        key = (file, line, kind, id(region))
        entry = self._lines.get(key)
        if entry is None:
            entry = self._lines[key] = [0, 0, 0, 0, self.regions.index(region)]
        entry[0] += 1
        entry[1] += lanes
        entry[2] += elements.count * region.item
        entry[3] += elements.sectors(region.address, region.item) * SECTOR_BYTES
        if self.record:
            index = elements.index
            self._events.append(
                (
                    step,
                    len(self.program_ids) - 1,
                    kind,
                    line,
                    region,
                    index if isinstance(index, slice) else index.astype(np.int32),
                )
            )

    def count_dot(self, dtype: str, left: tuple, right: tuple) -> None:
        self.dots[dtype] += 2 * int(np.prod(left, dtype=np.int64)) * right[-1]

    # ---- reading out

    @property
    def lines(self) -> list[LineTraffic]:
        """Traffic by source line and tensor, in the order of the lines."""
        rows = [
            LineTraffic(file, line, self.regions[region].name, KINDS[kind], accesses, lanes, size, sectors)
            for (file, line, kind, _), (accesses, lanes, size, sectors, region) in self._lines.items()
        ]
        return sorted(rows, key=lambda r: (r.file, r.line, r.kind, r.tensor))

    @property
    def tensors(self) -> list[TensorTraffic]:
        """Traffic by tensor, in the order in which kernels were given them."""
        rows = []
        for r in self.regions:
            read = r.shadow.ever_read | r.shadow.atomic
            rows.append(
                TensorTraffic(
                    r.name,
                    r.kernel,
                    r.shape,
                    r.dtype,
                    r.numel * r.item,
                    distinct_loaded=int(r.mine(read).sum()) * r.item,
                    distinct_stored=int(r.mine(r.shadow.writer > 0).sum()) * r.item,
                )
            )
        for (_, _, kind, _), (_, _, size, sectors, region) in self._lines.items():
            row = rows[region]
            row.loaded += size if kind in (LOAD, ATOMIC) else 0
            row.stored += size if kind in (STORE, ATOMIC) else 0
            row.sector_bytes += sectors * (2 if kind == ATOMIC else 1)
        return rows

    def tensor(self, name: str) -> TensorTraffic:
        """The traffic of the tensor that a kernel calls `name`."""
        found = [t for t in self.tensors if t.name == name]
        if len(found) != 1:
            have = ", ".join(f"{t.name} ({t.kernel})" for t in self.tensors) or "none"
            problem = "no tensor" if not found else f"{len(found)} tensors"
            raise ValueError(f"{problem} named {name!r} in this run; it saw: {have}")
        return found[0]

    @property
    def loaded(self) -> int:
        """Bytes loaded."""
        return sum(t.loaded for t in self.tensors)

    @property
    def stored(self) -> int:
        """Bytes stored."""
        return sum(t.stored for t in self.tensors)

    @property
    def traffic(self) -> int:
        """Bytes loaded and stored."""
        return self.loaded + self.stored

    @property
    def compulsory(self) -> int:
        """Bytes that had to move: each element that was read, once, and each that was written, once."""
        return sum(t.distinct_loaded + t.distinct_stored for t in self._without_overlap())

    def _without_overlap(self) -> list[TensorTraffic]:
        """The tensors, each element of a storage counted with the first view that shows it."""
        rows, seen = [], {}
        for r, row in zip(self.regions, self.tensors):
            taken = seen.setdefault(id(r.shadow), np.zeros(r.shadow.writer.size, bool))
            new = r.mine(~taken)
            row.distinct_loaded = int((new & r.mine(r.shadow.ever_read | r.shadow.atomic)).sum()) * r.item
            row.distinct_stored = int((new & r.mine(r.shadow.writer > 0)).sum()) * r.item
            taken[r.part] |= new
            rows.append(row)
        return rows

    @property
    def flops(self) -> int:
        """Floating-point (or integer) operations of tl.dot: 2 M N K each. Element-wise work is not counted."""
        return sum(self.dots.values())

    def coalescing(self) -> float:
        """Useful bytes per byte of the 32-byte sectors touched: 1.0 is best, 0.125 is one float in each sector."""
        moved = sum(t.sector_bytes for t in self.tensors)
        return self.traffic / moved if moved else 1.0

    def access_map(self, tensor: str | None = None):
        """Who touched what, in which order: an AccessMap for the tensor named, or a dict of all by name."""
        if not self.record:
            raise ValueError("this run kept no record of its accesses: use checked(record=True)")
        if tensor is not None:
            self.tensor(tensor)
            return self._map(next(r for r in self.regions if r.name == tensor))
        return {r.name: self._map(r) for r in self.regions}

    def _map(self, region: Region) -> AccessMap:
        columns = [[], [], [], [], []]
        for step, program, kind, line, where, index in self._events:
            if where is not region:
                continue
            element = np.arange(index.start, index.stop) if isinstance(index, slice) else index
            for column, value in zip(columns, (step, program, kind, line)):
                column.append(np.full(element.size, value))
            columns[4].append(element)
        arrays = [np.concatenate(c) if c else np.zeros(0, np.int64) for c in columns]
        ids = np.array(self.program_ids, np.int64).reshape(-1, 3)
        return AccessMap(region.name, region.shape, *arrays, ids, region.offsets())

    def report(self) -> str:
        """A table for people: one row a tensor, the busiest lines, and the sums."""
        return _report(self)


def _size(n: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if n < 10_000:
            return f"{n:,.0f} {unit}" if n == int(n) else f"{n:,.1f} {unit}"
        n /= 1024
    return f"{n:,.1f} GiB"


def _times(moved: int, needed: int) -> str:
    return f"{moved / needed:.2f}x" if needed else "-"


def _table(head: list[str], rows: list[list[str]], left: set[int]) -> list[str]:
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = []
    for row in [head, ["-" * w for w in widths], *rows]:
        lines.append(
            "  ".join(c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))).rstrip()
        )
    return lines


def _report(run: Traffic) -> str:
    tensors = run.tensors
    rows = [
        [
            t.name,
            f"{t.dtype} {list(t.shape)}",
            _size(t.bytes),
            _size(t.loaded),
            _times(t.loaded, t.distinct_loaded),
            _size(t.stored),
            _times(t.stored, t.distinct_stored),
            f"{t.coalescing:.0%}",
        ]
        for t in tensors
    ]
    head = ["tensor", "type", "size", "loaded", "each", "stored", "each", "coalesced"]
    lines = [
        f"{len(run.program_ids)} programs of {', '.join(dict.fromkeys(run.launches)) or 'no kernel'}",
        "",
    ]
    lines += _table(head, rows, {0, 1})
    busiest = sorted(run.lines, key=lambda r: -r.bytes)[:5]
    if busiest:
        cells = [
            [
                f"{os.path.basename(r.file)}:{r.line}",
                r.kind,
                r.tensor,
                _size(r.bytes),
                f"{r.bytes / r.sector_bytes:.0%}",
                r.source[:60],
            ]
            for r in busiest
        ]
        lines += [
            "",
            *_table(["line", "does", "tensor", "bytes", "coalesced", "source"], cells, {0, 1, 2, 5}),
        ]
    compulsory = run.compulsory
    lines += [
        "",
        f"traffic     {_size(run.traffic):>14}   loaded and stored, no cache between accesses",
        f"compulsory  {_size(compulsory):>14}   each element once; traffic is {_times(run.traffic, compulsory)} that",
        f"coalescing  {run.coalescing():>13.0%}    useful share of the 32-byte sectors touched",
    ]
    if run.flops:
        kinds = ", ".join(f"{name} {count:,}" for name, count in run.dots.items())
        lines.append(
            f"tl.dot      {run.flops:>14,}   operations ({kinds}); {run.flops / max(run.traffic, 1):.1f} per byte"
        )
    return "\n".join(lines)


def assert_traffic(run: Traffic, bound: int, slack: float = 1.05) -> None:
    """Raise AssertionError, with the busiest lines, if the run moved more than `slack` x `bound` bytes."""
    if bound <= 0 or slack < 1:
        raise ValueError(f"bound must be positive bytes and slack at least 1, got bound={bound}, slack={slack}")
    if run.traffic <= slack * bound:
        return
    worst = sorted(run.lines, key=lambda r: -r.bytes)[:3]
    where = "".join(f"\n    line {r.line}: {r.kind} of {r.tensor}, {r.bytes:,} B: {r.source}" for r in worst)
    raise AssertionError(
        f"traffic of {', '.join(dict.fromkeys(run.launches))} is {run.traffic:,} B, "
        f"{run.traffic / bound:.2f} x the bound "
        f"of {bound:,} B (allowed: {slack} x). Most of it:{where}"
    )
