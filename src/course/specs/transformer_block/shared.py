"""What the exercises of chapter 03 share: the precision of a reference, and queries and keys with given scores."""

from __future__ import annotations

import math

import torch

from course.specs.exercise import PRELUDE, Draw, Tolerance

PAGE = "03_transformer_block.html"
PRIMER = "triton_primer.html"
GIVEN = "transformer_block"
HALF = Tolerance(c=2.0, K=16)  # of cases in half precision: there eps alone is large
WITH_PARTS = PRELUDE + "\nfrom course.given import transformer_block as parts\n"


def widened(x: torch.Tensor) -> torch.Tensor:
    """Statistics are computed in fp32 at least; in fp64 when the input is fp64."""
    return x if x.dtype == torch.float64 else x.float()


def visible(num_queries: int, num_keys: int) -> torch.Tensor:
    """[Tq, Tk], True where query i, which stands at position Tk - Tq + i, may look."""
    position = torch.arange(num_queries)[:, None] + num_keys - num_queries
    return torch.arange(num_keys) <= position


def steered(draw: Draw, num_queries: int, scores: torch.Tensor, dim: int, dtype=torch.float32, spread: float = 0.2):
    """q and k whose scores q·k/√dim come out near ``scores`` [Tk], the same for every query."""
    direction = draw.randn(dim, dtype=torch.float64)
    direction = direction / direction.norm() * math.sqrt(dim)
    size = scores.abs().max().sqrt() / dim**0.25
    q = size * direction + spread * draw.randn(num_queries, dim, dtype=torch.float64)
    k = (scores / scores.abs().max() * size)[:, None] * direction + spread * draw.randn(len(scores), dim).double()
    return q.to(dtype), k.to(dtype)
