"""What the exercises of chapter 03 share: the precision of a reference, and queries and keys with given scores."""

from __future__ import annotations

import math

import torch

from course.specs.exercise import PRELUDE, Draw, Tolerance

PAGE = "03_transformer_block.html"
PRIMER = "triton_primer.html"
GIVEN = "transformer_block"
HALF = Tolerance(c=2.0, K=16)  # of cases in half precision: there eps alone is large
EXACT = Tolerance(c=0.25, K=1)  # of cases whose result is a number that half precision knows
ROUNDED_BADLY = (1.171875, 1.296875, 1.3515625, 1.4765625, 1.484375, 1.5390625)  # see one_magnitude
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


def one_magnitude(draw: Draw, rows: int, hidden: int) -> tuple[torch.Tensor, torch.Tensor, float]:
    """x, weight and eps of an RMSNorm in bf16 whose result is exact: every element is +a or -a, every weight a power of 2.

    Divided by its root mean square a row is +1 and -1. With a from ROUNDED_BADLY, a mean square or a scale that is
    rounded to bf16 on the way gives 0.996.
    """
    signs = draw.ints(0, 2, rows, hidden) * 2 - 1
    weight = 2.0 ** draw.ints(-2, 3, hidden)
    return (signs * draw.choice(ROUNDED_BADLY)).bfloat16(), weight.bfloat16(), 1e-6


def cancelling(draw: Draw, num_keys: int, dim: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q [1, dim], k and v [num_keys, dim] of one new token, whose values of some hundreds nearly cancel in the mix."""
    q, k = (draw.randn(rows, dim, dtype=dtype, scale=0.6) for rows in (1, num_keys))
    v = draw.randn(num_keys, dim, dtype=dtype, scale=200.0)
    weights = (q.double() @ k.double().T / math.sqrt(dim)).softmax(-1)
    v[-1:] = (-(weights[:, :-1] @ v[:-1].double()) / weights[:, -1:]).to(dtype)
    return q, k, v
