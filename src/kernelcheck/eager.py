"""What eager PyTorch moves: the baseline that a fused kernel is compared with.

with kernelcheck.count_ops() as ops:
    out = (q @ k.T).softmax(-1) @ v
ops.bytes, ops.largest          # every operation reads its inputs and writes its outputs once
"""

import dataclasses

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


@dataclasses.dataclass(frozen=True)
class Op:
    """One operation that ran: its name, the bytes it read and wrote, the shapes of what it made."""

    name: str
    bytes: int
    made: tuple[tuple[int, ...], ...]


def _size(tensor: torch.Tensor) -> int:
    """Bytes of a tensor's distinct elements: an expanded tensor is read once."""
    return tensor.element_size() * _distinct(tensor)


def _distinct(tensor: torch.Tensor) -> int:
    n = 1
    for size, stride in zip(tensor.shape, tensor.stride()):
        n *= size if stride else min(size, 1)
    return n


class count_ops(TorchDispatchMode):
    """Count the bytes of eager operations, and note the largest tensor that they make.

    A view costs nothing and makes nothing, torch.empty makes a tensor but moves nothing. Kernels of Triton are not
    operations: `checked` counts those.
    """

    def __init__(self):
        super().__init__()
        self.ops: list[Op] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # as in trace.py: spares the import of torch._dynamo

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        read = {id(t): t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
        held = {t.untyped_storage().data_ptr() for t in read.values()}
        written = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor)]
        fresh = [t for t in written if t.untyped_storage().data_ptr() not in held and t.numel()]
        mutated = [
            value
            for value, argument in zip(args, func._schema.arguments)
            if isinstance(value, torch.Tensor) and argument.is_write
        ]
        if not fresh and not mutated:
            return result  # a view
        name = func._schema.name.removeprefix("aten::")
        moved = sum(_size(t) for t in (*read.values(), *fresh, *mutated))
        if name in ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"):
            moved = 0
        self.ops.append(Op(name, moved, tuple(tuple(t.shape) for t in fresh)))
        return result

    @property
    def bytes(self) -> int:
        """Bytes read and written by all operations."""
        return sum(op.bytes for op in self.ops)

    @property
    def largest(self) -> tuple[int, ...]:
        """Shape of the largest tensor that an operation made, () if none did."""
        made = [shape for op in self.ops for shape in op.made]
        return max(made, key=lambda shape: torch.Size(shape).numel(), default=())

    @property
    def largest_numel(self) -> int:
        """Elements of that tensor: less than S * S shows that no S x S matrix was made."""
        return torch.Size(self.largest).numel() if self.ops and self.largest else 0
