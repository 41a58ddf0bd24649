"""A strided tile, transposed."""

from __future__ import annotations

import torch

from course.specs.exercise import KERNEL_PRELUDE, Case, Draw, Exercise
from course.specs.kernels import padded, size
from course.specs.triton_primer.shared import PAGE


def launch(kernel, x, block_r, block_c):
    import triton

    rows, cols = x.shape
    out = torch.empty(cols, rows, dtype=x.dtype)
    grid = triton.cdiv(rows, block_r), triton.cdiv(cols, block_c)
    kernel[grid](x, out, rows, cols, x.stride(0), BLOCK_R=block_r, BLOCK_C=block_c)
    return out


def cases(draw: Draw) -> list[Case]:
    def case(x, label, tile=(8, 16)):
        return Case((x, *tile), label=label)

    return [
        case(draw.randn(11, 35), "11 rows, 35 columns"),
        case(draw.randn(8, 16), "one full tile"),
        case(padded(draw, 11, 9, 20), "rows of 9 that lie 20 elements apart"),
        case(draw.randn(1, 33), "a single row"),
        case(draw.randn(17, 1), "a single column"),
        case(draw.randn(5, 21, dtype=torch.float16), "fp16, 5 rows, 21 columns"),
        case(draw.randn(35, 39), "35 rows, 39 columns, tiles of 32 x 4", (32, 4)),
        case(draw.randn(9, 70), "9 rows, 70 columns, tiles of 4 x 32", (4, 32)),
    ]


TRANSPOSE = Exercise(
    id="triton_primer.transpose",
    title="A strided tile",
    signature="transpose(X, OUT, rows, cols, stride, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr)",
    reference=lambda x, block_r, block_c: x.T.contiguous(),
    cases=cases,
    hints=(
        "A tile of pointers is a column of row numbers plus a row of column numbers: r[:, None] and c[None, :] "
        "broadcast as in torch.",
        "Element (r, c) of X lies at r * stride + c; the same element in OUT, which has `rows` columns, at c * rows + r. "
        "Both bounds go into one mask, with &.",
        "inside = (r[:, None] < rows) & (c[None, :] < cols); tile = tl.load(X + r[:, None] * stride + c[None, :], "
        "mask=inside); tl.store(OUT + c[None, :] * rows + r[:, None], tile, mask=inside)",
    ),
    section=f"{PAGE}#a-strided-tile",
    track="kernel",
    difficulty=3,
    minutes=20,
    prelude=KERNEL_PRELUDE,
    drive=launch,
    argument_names=("x", "block_r", "block_c"),
    bytes_bound=lambda x, block_r, block_c: 2 * size(x),
    seconds=30.0,
)

TRANSPOSE.near_miss(
    "no lane is masked",
    {"(r[:, None] < rows) & (c[None, :] < cols)": "(r[:, None] >= 0) & (c[None, :] >= 0)"},
    says="Tiles at the right and lower edge stick out: mask with r < rows and c < cols.",
    section=f"{PAGE}#the-missing-mask",
)

TRANSPOSE.near_miss(
    "only the rows are masked",
    {"c[None, :] < cols": "c[None, :] >= 0"},
    says="A tile sticks out at the right edge too: (r < rows) & (c < cols).",
    section=f"{PAGE}#a-strided-tile",
)

TRANSPOSE.near_miss(
    "only the columns are masked",
    {"r[:, None] < rows": "r[:, None] >= 0"},
    says="A tile sticks out at the lower edge too: (r < rows) & (c < cols).",
    section=f"{PAGE}#a-strided-tile",
)

TRANSPOSE.near_miss(
    "the rows of the result lie `cols` apart",
    {"* rows": "* cols"},
    says="OUT is [cols, rows]: its rows have `rows` elements, so element (c, r) lies at c * rows + r.",
    section=f"{PAGE}#strides",
)

TRANSPOSE.near_miss(
    "it copies without transposing",
    {"c[None, :] * rows + r[:, None]": "r[:, None] * cols + c[None, :]"},
    says="Load from r * stride + c, store to c * rows + r: row and column change places.",
    section=f"{PAGE}#a-strided-tile",
)

TRANSPOSE.near_miss(
    "it takes the rows of X to lie `cols` apart",
    {"r[:, None] * stride": "r[:, None] * cols"},
    says="There may be room between the rows of X: the next one starts `stride` further, not `cols`.",
    section=f"{PAGE}#strides",
)

TRANSPOSE.near_miss(
    "the two program ids are exchanged",
    {"tl.program_id(0)": "tl.program_id(1)", "tl.program_id(1)": "tl.program_id(0)"},
    says="The grid is (row blocks, column blocks): axis 0 counts rows, axis 1 columns. Exchanged, some tiles are "
    "done by nobody.",
    section=f"{PAGE}#a-strided-tile",
)

TRANSPOSE.near_miss(
    "the store is not masked",
    {"tile, mask=inside)": "tile)"},
    says="The mask on the load keeps lanes from reading what is not there; they still write. Give the store the same mask, "
    "mask=inside.",
    section=f"{PAGE}#a-strided-tile",
)


@TRANSPOSE.alternate("the tile laid out as the result is")
def transpose(X, OUT, rows, cols, stride, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    r = (tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R))[None, :]
    c = (tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C))[:, None]
    inside = (c < cols) & (r < rows)
    tl.store(OUT + c * rows + r, tl.load(X + c + r * stride, mask=inside, other=0.0), mask=inside)


@TRANSPOSE.alternate("the tile turned in registers")
def transpose(X, OUT, rows, cols, stride, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    r = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    tile = tl.load(X + r[:, None] * stride + c[None, :], mask=(r[:, None] < rows) & (c[None, :] < cols))
    inside = (c[:, None] < cols) & (r[None, :] < rows)
    tl.store(OUT + c[:, None] * rows + r[None, :], tl.trans(tile), mask=inside)
