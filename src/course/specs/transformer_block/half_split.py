"""Rows of a projection from neighbouring to half-split pairs."""

from __future__ import annotations

import torch

from course.specs.exercise import Case, Draw, Exercise
from course.specs.transformer_block.shared import PAGE


def reference(q_proj, k_proj, num_heads, num_kv_heads):
    def sort_rows(weight, heads):
        dim = len(weight) // heads
        order = [h * dim + start + 2 * i for h in range(heads) for start in (0, 1) for i in range(dim // 2)]
        return weight[order]

    return sort_rows(q_proj, num_heads), sort_rows(k_proj, num_kv_heads)


def cases(draw: Draw) -> list[Case]:
    def case(heads, kv_heads, dim, hidden, label, dtype=torch.float32):
        q, k = draw.randn(heads * dim, hidden, dtype=dtype), draw.randn(kv_heads * dim, hidden, dtype=dtype)
        return Case((q, k, heads, kv_heads), label=label)

    return [
        case(1, 1, 6, 5, "one head"),
        case(3, 3, 4, 5, "3 heads, 3 KV heads"),
        case(4, 2, 8, 7, "4 heads, 2 KV heads: 4 / 2 happens to be 2"),
        case(6, 3, 12, 5, "6 heads, 3 KV heads"),
        case(8, 2, 16, 3, "8 heads, 2 KV heads, bf16", torch.bfloat16),
        Case((draw.strided(4 * 6, 5), draw.strided(2 * 6, 5), 4, 2), label="not contiguous in memory"),
    ]


HALF_SPLIT = Exercise(
    id="transformer_block.half_split",
    title="From neighbouring pairs to half-split pairs",
    signature="half_split(q_proj, k_proj, num_heads, num_kv_heads)",
    reference=reference,
    cases=cases,
    hints=(
        "Only rows move, and only inside a head. Write down where the rows 0, 1, 2, 3 of a head of four go: "
        "0, 2, 1, 3.",
        "View the rows as [heads, D/2, 2]: pair, then which of the two. Half-split wants [heads, 2, D/2].",
        "def rows(w, h): return w.reshape(h, -1, 2, w.shape[-1]).transpose(1, 2).reshape(w.shape); "
        "K has num_kv_heads heads, not num_heads",
    ),
    section=f"{PAGE}#which-two-channels-are-a-pair",
    points=2,
    difficulty=3,
    minutes=20,
    in_model=True,
)

HALF_SPLIT.near_miss(
    "K is cut into num_heads heads",
    {"reorder(k_proj, num_kv_heads)": "reorder(k_proj, num_heads)"},
    says="Under GQA the key projection has num_kv_heads heads. A file loader did the same in 2024.",
    section=f"{PAGE}#bugs-seen-in-real-engines",
)

HALF_SPLIT.near_miss(
    "K is cut into num_heads / num_kv_heads heads",
    {"reorder(k_proj, num_kv_heads)": "reorder(k_proj, num_heads // num_kv_heads)"},
    says="That is the size of a group. With 64 heads and 8 KV heads both are 8, and nobody notices; use "
    "num_kv_heads.",
    section=f"{PAGE}#bugs-seen-in-real-engines",
)

HALF_SPLIT.near_miss(
    "it goes the other way",
    {"(heads, -1, 2)": "(heads, 2, -1)"},
    says="This takes half-split rows to neighbours. Even rows of a head come first, then odd ones.",
)

HALF_SPLIT.near_miss(
    "it sorts across heads",
    {"reorder(q_proj, num_heads)": "reorder(q_proj, 1)", "reorder(k_proj, num_kv_heads)": "reorder(k_proj, 1)"},
    says="Even rows of the whole matrix first mixes the heads. Rows move only inside their own head.",
)

HALF_SPLIT.near_miss(
    "K is left as it was",
    {"reorder(k_proj, num_kv_heads)": "k_proj.clone()"},
    says="Queries and keys are both rotated, so both need their rows in the new order.",
)


@HALF_SPLIT.alternate("head by head, even rows then odd rows")
def half_split(q_proj, k_proj, num_heads, num_kv_heads):
    def rows(w, heads):
        return torch.cat([part[start::2] for part in w.chunk(heads) for start in (0, 1)])

    return [rows(q_proj, num_heads), rows(k_proj, num_kv_heads)]
