"""The memory of a checked run: what a kernel was given, where it lies, and what happened to each element.

A kernel under `checked` never sees a real address. Each tensor argument of a launch gets a window of
2^46 bytes of its own, and the pointer starts in the middle of it: whatever a kernel adds to a pointer, the
window still tells which argument it came from and how far off it is.

The history of an element (`Shadow`) belongs to the torch storage, so that two views of one tensor share it.
Steps count the memory accesses of a run, from 1: `writer[e] == 0` means that no kernel wrote element e.
"""

import dataclasses

import numpy as np
import torch

WINDOW_BITS = 46
FIRST_WINDOW = 4  # real addresses, which a kernel may find in a table of pointers, lie in windows 0 to 3
_INT = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_UINT = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
SECTOR_BYTES = 32  # the granule in which a GPU's L2 and memory move data


class Shadow:
    """One torch storage, seen as elements of `item` bytes: its values and the history of each element.

    writer, reader: step of the last store, and of the first load of the current launch, of each element.
    atomic: whether the last store was an atomic one.  fresh: made by torch.empty in this run, so that an
    element nobody wrote holds whatever was in memory.
    """

    def __init__(self, storage, item: int, fresh: bool = False):
        self.storage = storage  # keeps the memory from being reused while the run lasts
        self.item = item
        self.fresh = fresh
        size = storage.nbytes() // item
        self.values = self.view(item)
        self.writer = np.zeros(size, np.int32)
        self.reader = np.zeros(size, np.int32)
        self.ever_read = np.zeros(size, bool)
        self.atomic = np.zeros(size, bool)

    def view(self, item: int) -> np.ndarray:
        """The storage as unsigned integers of `item` bytes."""
        flat = torch.empty(0, dtype=_INT[item]).set_(self.storage, 0, (self.storage.nbytes() // item,), (1,))
        return flat.numpy().view(_UINT[item])


@dataclasses.dataclass(eq=False)
class Region:
    """A tensor that kernels were given. Elements are counted from its first one in memory.

    start: place of its first element in the shadow; extent: elements from its first to its last, padding
    between strided rows included; inside: which of those belong to the tensor, None if all do.
    """

    name: str
    kernel: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    item: int
    address: int
    start: int
    extent: int
    inside: np.ndarray | None
    shadow: Shadow

    @property
    def numel(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def part(self) -> slice:
        """Its stretch of the shadow's arrays."""
        return slice(self.start, self.start + self.extent)

    def mine(self, flags: np.ndarray) -> np.ndarray:
        """Flags of the shadow, cut to this tensor's own elements: bool [extent]."""
        cut = flags[self.part]
        return cut if self.inside is None else cut & self.inside

    def offsets(self) -> np.ndarray:
        """Offset of every element, in the tensor's shape."""
        grid = np.zeros(self.shape, np.int64)
        for axis, (size, stride) in enumerate(zip(self.shape, self.stride)):
            along = np.arange(size, dtype=np.int64) * stride
            grid += along.reshape([-1 if a == axis else 1 for a in range(len(self.shape))])
        return grid


def make_region(tensor, name: str, kernel: str, dtype: str, shadow: Shadow) -> Region:
    shape, stride = tuple(tensor.shape), tuple(tensor.stride())
    extent, inside = 0, None
    if tensor.numel():
        extent = 1 + sum((size - 1) * step for size, step in zip(shape, stride))
        if extent != tensor.numel():
            flags = torch.zeros(extent, dtype=torch.bool)
            flags.as_strided(shape, stride).fill_(True)
            inside = flags.numpy()
    return Region(
        name,
        kernel,
        shape,
        stride,
        dtype,
        tensor.element_size(),
        tensor.data_ptr(),
        tensor.storage_offset(),
        extent,
        inside,
        shadow,
    )


@dataclasses.dataclass(frozen=True)
class Argument:
    """A tensor argument of the running launch: its parameter name and the made-up address it starts at."""

    name: str
    region: Region
    base: int


def window_base(index: int, address: int) -> int:
    """Made-up address of argument `index`: mid-window, aligned as the real one is (to 128 bytes)."""
    return ((FIRST_WINDOW + index) << WINDOW_BITS) + (1 << (WINDOW_BITS - 1)) + address % 128


@dataclasses.dataclass(frozen=True)
class Elements:
    """The distinct elements of one access, in order. `index`: a slice if they lie side by side, else an array."""

    first: int
    last: int
    count: int
    index: slice | np.ndarray
    in_order: bool  # lane i of the access touches the i-th element

    def shifted(self, start: int) -> slice | np.ndarray:
        """`index` counted from the start of the shadow."""
        if isinstance(self.index, slice):
            return slice(self.index.start + start, self.index.stop + start)
        return self.index + start

    def array(self) -> np.ndarray:
        if isinstance(self.index, slice):
            return np.arange(self.index.start, self.index.stop)
        return self.index

    def sectors(self, address: int, item: int) -> int:
        """How many 32-byte sectors they lie in, the tensor starting at `address`."""
        if isinstance(self.index, slice):
            return (
                (address + (self.last + 1) * item - 1) // SECTOR_BYTES
                - (address + self.first * item) // SECTOR_BYTES
                + 1
            )
        start = (address + self.index * item) // SECTOR_BYTES
        return 1 + int(np.count_nonzero(start[1:] != start[:-1]))


def distinct(lanes: np.ndarray) -> Elements:
    """The distinct elements that `lanes` (any shape) touch."""
    flat = lanes.reshape(-1)
    first, last = int(flat.min()), int(flat.max())
    in_order = bool((flat[1:] > flat[:-1]).all())
    if not in_order:
        turned = lanes.T.reshape(-1)  # a tile loaded as its transpose is in order the other way round
        flat = turned if lanes.ndim == 2 and (turned[1:] > turned[:-1]).all() else np.unique(flat)
    if last - first + 1 == flat.size:
        return Elements(first, last, flat.size, slice(first, last + 1), in_order)
    return Elements(first, last, flat.size, flat, in_order)
