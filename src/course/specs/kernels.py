"""What the kernel exercises of all chapters share: rows that lie apart, bytes that must move, tolerance in half precision."""

from __future__ import annotations

import torch

from course.specs.exercise import Draw, Tolerance

HALF = Tolerance(c=2.0, K=16)  # of cases whose result is in half precision: there eps alone is large


def padded(draw: Draw, rows: int, columns: int, stride: int, dtype=torch.float32, scale: float = 1.0) -> torch.Tensor:
    """[rows, columns] whose rows lie ``stride`` elements apart: what lies between them belongs to nobody."""
    return draw.randn(rows, stride, dtype=dtype, scale=scale)[:, :columns]


def power(n: int) -> int:
    """The next power of two, n itself if it is one: the smallest block that a row of n fits in."""
    return 1 << (n - 1).bit_length()


def size(*tensors: torch.Tensor) -> int:
    """Bytes of the elements of all tensors, each once."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
