"""Exercises of the Triton primer: masked add, row sum, transposed tile, row softmax.

Blanks first, the signature alone last. A kernel is launched by the exercise's ``drive``, so that grid, block and
strides are the same for everyone; its source travels with the job.
"""

from __future__ import annotations

import torch

from course.specs.exercise import KERNEL_PRELUDE, Case, Draw, Exercise, Tolerance

PAGE = "triton_primer.html"
HALF = Tolerance(c=2.0, K=16)  # of cases whose result is in half precision: there eps alone is large


def padded(draw: Draw, rows: int, columns: int, stride: int, dtype=torch.float32, scale: float = 1.0) -> torch.Tensor:
    """[rows, columns] whose rows lie ``stride`` elements apart: what lies between them belongs to nobody."""
    return draw.randn(rows, stride, dtype=dtype, scale=scale)[:, :columns]


def size(*tensors: torch.Tensor) -> int:
    """Bytes of the elements of all tensors, each once."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


# --- masked_add ------------------------------------------------------------------------------------------


def _add_launch(kernel, x, y):
    import triton

    out = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), BLOCK=256)
    return out


def _add_cases(draw: Draw) -> list[Case]:
    def case(n, label, dtype=torch.float32, tolerance=None):
        return Case((draw.randn(n, dtype=dtype), draw.randn(n, dtype=dtype)), label=label, tolerance=tolerance)

    prime = draw.choice([523, 613, 769])
    return [
        case(1000, "1,000 elements, four blocks of 256"),
        case(512, "512 elements: the last block is full"),
        case(257, "257 elements: one in the last block"),
        case(1, "a single element"),
        case(prime, f"{prime} elements in fp16", torch.float16, HALF),
        case(300, "300 elements in bf16", torch.bfloat16, HALF),
    ]


MASKED_ADD = Exercise(
    id="triton_primer.masked_add",
    title="Masked add",
    signature="masked_add(X, Y, OUT, n, BLOCK: tl.constexpr)",
    reference=lambda x, y: x + y,
    cases=_add_cases,
    hints=(
        "Two lines are missing: which BLOCK elements are this program's, and which of them exist. tl.arange(0, BLOCK) "
        "counts lanes; pid says how many blocks lie before this one.",
        "Program pid owns elements pid * BLOCK to pid * BLOCK + BLOCK - 1. An element exists when its index is below n.",
        "i = pid * BLOCK + tl.arange(0, BLOCK); inside = i < n",
    ),
    section=f"{PAGE}#masked-add",
    track="kernel",
    difficulty=1,
    minutes=10,
    prelude=KERNEL_PRELUDE,
    drive=_add_launch,
    argument_names=("x", "y"),
    bytes_bound=lambda x, y: size(x, y, x),
    seconds=30.0,
)


@MASKED_ADD.near_miss("no lane is masked", section=f"{PAGE}#the-missing-mask",
                      says="The last block reaches past the tensor: let only lanes with i < n load and store.")
def masked_add(X, Y, OUT, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    i = pid * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + i)
    y = tl.load(Y + i)
    tl.store(OUT + i, x + y)


@MASKED_ADD.near_miss("the mask lets one lane too many through", section=f"{PAGE}#the-missing-mask",
                      says="n elements have the indices 0 to n - 1: the mask is i < n, not i <= n.")
def masked_add(X, Y, OUT, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    i = pid * BLOCK + tl.arange(0, BLOCK)
    inside = i <= n
    x = tl.load(X + i, mask=inside)
    y = tl.load(Y + i, mask=inside)
    tl.store(OUT + i, x + y, mask=inside)


@MASKED_ADD.near_miss("an element at the edge is left out", section=f"{PAGE}#the-missing-mask",
                      says="The elements are 0 to n - 1, and one of them is written by nobody. If it is the first: tl.arange "
                           "counts from 0, and so does i. If it is the last: the mask is i < n, not i < n - 1.")
def masked_add(X, Y, OUT, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    i = pid * BLOCK + tl.arange(0, BLOCK)
    inside = i < n - 1
    x = tl.load(X + i, mask=inside)
    y = tl.load(Y + i, mask=inside)
    tl.store(OUT + i, x + y, mask=inside)


@MASKED_ADD.near_miss("every program works on the first block",
                      says="tl.arange counts from 0 in each program: add pid * BLOCK, or all programs write the same "
                           "elements and nobody writes the others.")
def masked_add(X, Y, OUT, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    inside = i < n
    x = tl.load(X + i, mask=inside)
    y = tl.load(Y + i, mask=inside)
    tl.store(OUT + i, x + y, mask=inside)


@MASKED_ADD.near_miss("the blocks are counted from one",
                      says="Program ids start at 0: program pid begins at pid * BLOCK. As it is, nobody writes the "
                           "first block.")
def masked_add(X, Y, OUT, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    i = (pid + 1) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    x = tl.load(X + i, mask=inside)
    y = tl.load(Y + i, mask=inside)
    tl.store(OUT + i, x + y, mask=inside)


@MASKED_ADD.near_miss("its lanes lie a block apart",
                      says="pid + BLOCK * lane takes one element of each block. A program's lanes are neighbours: "
                           "pid * BLOCK + lane.")
def masked_add(X, Y, OUT, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    i = pid + BLOCK * tl.arange(0, BLOCK)
    inside = i < n
    x = tl.load(X + i, mask=inside)
    y = tl.load(Y + i, mask=inside)
    tl.store(OUT + i, x + y, mask=inside)


@MASKED_ADD.near_miss("it loads x twice", section=f"{PAGE}#what-one-byte-costs",
                      says="A second tl.load goes to memory again. Load once, keep the value.")
def masked_add(X, Y, OUT, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    i = pid * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    x = tl.load(X + i, mask=inside)
    y = tl.load(Y + i, mask=inside)
    total = x + y
    x = tl.load(X + i, mask=inside)
    tl.store(OUT + i, tl.where(x == x, total, x), mask=inside)


@MASKED_ADD.alternate("pointers moved to the block first")
def masked_add(X, Y, OUT, n, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    lane = tl.arange(0, BLOCK)
    inside = lane < n - start
    x = tl.load(X + start + lane, mask=inside, other=0.0)
    y = tl.load(Y + start + lane, mask=inside, other=0.0)
    tl.store(OUT + start + lane, x + y, mask=inside)


# --- row_sum ---------------------------------------------------------------------------------------------


def _row_sum_launch(kernel, x):
    import triton

    out = torch.empty(x.shape[0], dtype=torch.float32)
    kernel[(x.shape[0],)](x, out, x.stride(0), x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out


def _row_sum_reference(x):
    return (x if x.dtype == torch.float64 else x.float()).sum(-1)


def _row_sum_cases(draw: Draw) -> list[Case]:
    columns = draw.choice([37, 53, 100])
    large = draw.randn(2, 700, dtype=torch.float64).abs() * 60 + 60
    return [
        Case((draw.randn(3, columns),), label=f"3 rows of {columns}"),
        Case((padded(draw, 2, 37, 48),), label="rows of 37 that lie 48 elements apart"),
        Case((draw.randn(2, 64),), label="rows of 64: the block is full"),
        Case((draw.randn(2, 1),), label="rows of one element"),
        Case((large.half(),), label="fp16, sums beyond its range"),
        Case((draw.randn(2, 129, dtype=torch.bfloat16),), label="bf16, rows of 129"),
    ]


ROW_SUM = Exercise(
    id="triton_primer.row_sum",
    title="Row sum",
    signature="row_sum(X, OUT, stride, n, BLOCK: tl.constexpr)",
    reference=_row_sum_reference,
    cases=_row_sum_cases,
    hints=(
        "One program, one row. The row starts at X + row * stride, and its n elements are neighbours.",
        "Masked lanes take part in tl.sum: say what they hold with other=0.0. Sum in fp32: x.to(tl.float32).",
        "i = tl.arange(0, BLOCK); x = tl.load(X + row * stride + i, mask=i < n, other=0.0); "
        "total = tl.sum(x.to(tl.float32), axis=0)",
    ),
    section=f"{PAGE}#row-sum",
    track="kernel",
    difficulty=2,
    minutes=10,
    tolerance=Tolerance(c=8.0, K=700),
    prelude=KERNEL_PRELUDE,
    drive=_row_sum_launch,
    argument_names=("x",),
    bytes_bound=lambda x: size(x) + 4 * x.shape[0],
    seconds=30.0,
)


@ROW_SUM.near_miss("no lane is masked", section=f"{PAGE}#the-missing-mask",
                   says="BLOCK is the next power of two, so lanes beyond n read what belongs to the next row or to "
                        "nobody: mask them with i < n.")
def row_sum(X, OUT, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(X + row * stride + i)
    tl.store(OUT + row, tl.sum(x.to(tl.float32), axis=0))


@ROW_SUM.near_miss("the mask lets one lane too many through", section=f"{PAGE}#the-missing-mask",
                   says="n elements have the indices 0 to n - 1: the mask is i < n, not i <= n.")
def row_sum(X, OUT, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(X + row * stride + i, mask=i <= n, other=0.0)
    tl.store(OUT + row, tl.sum(x.to(tl.float32), axis=0))


@ROW_SUM.near_miss("masked lanes hold anything", section=f"{PAGE}#masked-lanes",
                   says="Without other= a masked lane holds whatever was there, and tl.sum adds it. Zero is what a sum "
                        "does not notice: other=0.0.")
def row_sum(X, OUT, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(X + row * stride + i, mask=i < n)
    tl.store(OUT + row, tl.sum(x.to(tl.float32), axis=0))


@ROW_SUM.near_miss("masked lanes hold one", section=f"{PAGE}#masked-lanes",
                   says="Each of the BLOCK - n masked lanes adds its `other` to the sum: make it 0.0.")
def row_sum(X, OUT, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(X + row * stride + i, mask=i < n, other=1.0)
    tl.store(OUT + row, tl.sum(x.to(tl.float32), axis=0))


@ROW_SUM.near_miss("it takes rows to lie n apart", section=f"{PAGE}#strides",
                   says="Rows may have room between them. The distance from one to the next is `stride`: "
                        "row * stride, not row * n.")
def row_sum(X, OUT, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(X + row * n + i, mask=i < n, other=0.0)
    tl.store(OUT + row, tl.sum(x.to(tl.float32), axis=0))


@ROW_SUM.near_miss("every program stores to the first element", section=f"{PAGE}#a-race",
                   says="All rows end in OUT[0], and which one stays is a matter of luck: store to OUT + row.")
def row_sum(X, OUT, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(X + row * stride + i, mask=i < n, other=0.0)
    tl.store(OUT, tl.sum(x.to(tl.float32), axis=0))


@ROW_SUM.near_miss("it sums in half precision",
                   says="fp16 ends at 65,504 and keeps 11 bits: go to fp32 before the sum, x.to(tl.float32).")
def row_sum(X, OUT, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(X + row * stride + i, mask=i < n, other=0.0)
    tl.store(OUT + row, tl.sum(x, axis=0))


@ROW_SUM.near_miss("it averages", says="The sum is asked for: do not divide by n.")
def row_sum(X, OUT, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(X + row * stride + i, mask=i < n, other=0.0)
    tl.store(OUT + row, tl.sum(x.to(tl.float32), axis=0) / n)


@ROW_SUM.alternate("masked lanes replaced after the load")
def row_sum(X, OUT, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    X += row * stride
    i = tl.arange(0, BLOCK)
    inside = i < n
    x = tl.load(X + i, mask=inside).to(tl.float32)
    tl.store(OUT + row, tl.sum(tl.where(inside, x, 0.0)))


# --- transpose -------------------------------------------------------------------------------------------


def _transpose_launch(kernel, x):
    import triton

    rows, cols = x.shape
    out = torch.empty(cols, rows, dtype=x.dtype)
    kernel[(triton.cdiv(rows, 8), triton.cdiv(cols, 16))](x, out, rows, cols, x.stride(0), BLOCK_R=8, BLOCK_C=16)
    return out


def _transpose_cases(draw: Draw) -> list[Case]:
    return [
        Case((draw.randn(11, 35),), label="11 rows, 35 columns"),
        Case((draw.randn(8, 16),), label="one full tile"),
        Case((padded(draw, 11, 9, 20),), label="rows of 9 that lie 20 elements apart"),
        Case((draw.randn(1, 33),), label="a single row"),
        Case((draw.randn(17, 1),), label="a single column"),
        Case((draw.randn(5, 21, dtype=torch.float16),), label="fp16, 5 rows, 21 columns"),
    ]


TRANSPOSE = Exercise(
    id="triton_primer.transpose",
    title="A strided tile",
    signature="transpose(X, OUT, rows, cols, stride, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr)",
    reference=lambda x: x.T.contiguous(),
    cases=_transpose_cases,
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
    drive=_transpose_launch,
    argument_names=("x",),
    bytes_bound=lambda x: 2 * size(x),
    seconds=30.0,
)


@TRANSPOSE.near_miss("no lane is masked", section=f"{PAGE}#the-missing-mask",
                     says="Tiles at the right and lower edge stick out: mask with r < rows and c < cols.")
def transpose(X, OUT, rows, cols, stride, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    r = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    tile = tl.load(X + r[:, None] * stride + c[None, :])
    tl.store(OUT + c[None, :] * rows + r[:, None], tile)


@TRANSPOSE.near_miss("only the rows are masked", section=f"{PAGE}#a-strided-tile",
                     says="A tile sticks out at the right edge too: (r < rows) & (c < cols).")
def transpose(X, OUT, rows, cols, stride, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    r = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = (r[:, None] < rows) & (c[None, :] >= 0)
    tile = tl.load(X + r[:, None] * stride + c[None, :], mask=inside)
    tl.store(OUT + c[None, :] * rows + r[:, None], tile, mask=inside)


@TRANSPOSE.near_miss("only the columns are masked", section=f"{PAGE}#a-strided-tile",
                     says="A tile sticks out at the lower edge too: (r < rows) & (c < cols).")
def transpose(X, OUT, rows, cols, stride, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    r = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = (r[:, None] >= 0) & (c[None, :] < cols)
    tile = tl.load(X + r[:, None] * stride + c[None, :], mask=inside)
    tl.store(OUT + c[None, :] * rows + r[:, None], tile, mask=inside)


@TRANSPOSE.near_miss("the rows of the result lie `cols` apart", section=f"{PAGE}#strides",
                     says="OUT is [cols, rows]: its rows have `rows` elements, so element (c, r) lies at c * rows + r.")
def transpose(X, OUT, rows, cols, stride, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    r = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = (r[:, None] < rows) & (c[None, :] < cols)
    tile = tl.load(X + r[:, None] * stride + c[None, :], mask=inside)
    tl.store(OUT + c[None, :] * cols + r[:, None], tile, mask=inside)


@TRANSPOSE.near_miss("it copies without transposing", section=f"{PAGE}#a-strided-tile",
                     says="Load from r * stride + c, store to c * rows + r: row and column change places.")
def transpose(X, OUT, rows, cols, stride, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    r = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = (r[:, None] < rows) & (c[None, :] < cols)
    tile = tl.load(X + r[:, None] * stride + c[None, :], mask=inside)
    tl.store(OUT + r[:, None] * cols + c[None, :], tile, mask=inside)


@TRANSPOSE.near_miss("it takes the rows of X to lie `cols` apart", section=f"{PAGE}#strides",
                     says="There may be room between the rows of X: the next one starts `stride` further, not `cols`.")
def transpose(X, OUT, rows, cols, stride, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    r = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = (r[:, None] < rows) & (c[None, :] < cols)
    tile = tl.load(X + r[:, None] * cols + c[None, :], mask=inside)
    tl.store(OUT + c[None, :] * rows + r[:, None], tile, mask=inside)


@TRANSPOSE.near_miss("the two program ids are exchanged", section=f"{PAGE}#a-strided-tile",
                     says="The grid is (row blocks, column blocks): axis 0 counts rows, axis 1 columns. Exchanged, "
                          "some tiles are done by nobody.")
def transpose(X, OUT, rows, cols, stride, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    r = tl.program_id(1) * BLOCK_R + tl.arange(0, BLOCK_R)
    c = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = (r[:, None] < rows) & (c[None, :] < cols)
    tile = tl.load(X + r[:, None] * stride + c[None, :], mask=inside)
    tl.store(OUT + c[None, :] * rows + r[:, None], tile, mask=inside)


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


# --- row_softmax -----------------------------------------------------------------------------------------


def _softmax_launch(kernel, x):
    import triton

    out = torch.empty(x.shape, dtype=x.dtype)
    kernel[(x.shape[0],)](x, out, x.stride(0), x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out


def _softmax_reference(x):
    return (x if x.dtype == torch.float64 else x.float()).softmax(-1).to(x.dtype)


def _softmax_cases(draw: Draw) -> list[Case]:
    columns = draw.choice([37, 53, 100])
    late = torch.linspace(20, 110, 23).repeat(2, 1) + draw.randn(2, 23)
    return [
        Case((draw.randn(3, columns, scale=4.0),), label=f"3 rows of {columns}"),
        Case((padded(draw, 2, 37, 48),), label="rows of 37 that lie 48 elements apart"),
        Case((draw.randn(2, 64),), label="rows of 64: the block is full"),
        Case((late,), label="values up to 110, the largest last"),
        Case((draw.randn(2, 19) - 130,), label="every value near -130"),
        Case((draw.randn(2, 1),), label="rows of one element"),
        Case((draw.randn(1, 45, dtype=torch.float16, scale=4.0),), label="fp16", tolerance=HALF),
        Case((draw.randn(1, 21, dtype=torch.bfloat16, scale=4.0),), label="bf16", tolerance=HALF),
    ]


SOFTMAX = Exercise(
    id="triton_primer.row_softmax",
    title="Row softmax",
    signature="row_softmax(X, OUT, stride, n, BLOCK: tl.constexpr)",
    reference=_softmax_reference,
    cases=_softmax_cases,
    hints=(
        "One program, one row: load it once, then tl.max, tl.exp, tl.sum on the values you hold, then store. OUT's rows "
        "lie n apart.",
        "Two reductions meet the masked lanes. A maximum does not notice minus infinity, and exp makes it 0, which a sum "
        'does not notice: other=-float("inf").',
        'x = tl.load(X + row * stride + i, mask=i < n, other=-float("inf")).to(tl.float32); '
        "e = tl.exp(x - tl.max(x, axis=0)); tl.store(OUT + row * n + i, e / tl.sum(e, axis=0), mask=i < n)",
    ),
    section=f"{PAGE}#row-softmax",
    points=2,
    track="kernel",
    difficulty=3,
    minutes=20,
    tolerance=Tolerance(c=16.0, K=64),
    denied=("softmax",),
    prelude=KERNEL_PRELUDE,
    drive=_softmax_launch,
    argument_names=("x",),
    bytes_bound=lambda x: 2 * size(x),
    seconds=30.0,
)


@SOFTMAX.near_miss("it takes exp of the values as they are",
                   says="exp overflows beyond 88 and is 0/0 far below: subtract the row's maximum first. It cancels in "
                        "the division.")
def row_softmax(X, OUT, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(X + row * stride + i, mask=i < n, other=-float("inf")).to(tl.float32)
    e = tl.exp(x)
    tl.store(OUT + row * n + i, e / tl.sum(e, axis=0), mask=i < n)


@SOFTMAX.near_miss("it divides by the largest instead of the sum",
                   says="The weights of a row sum to 1: divide by tl.sum(e), not by tl.max(e).")
def row_softmax(X, OUT, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(X + row * stride + i, mask=i < n, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(OUT + row * n + i, e / tl.max(e, axis=0), mask=i < n)


@SOFTMAX.near_miss("it subtracts the sum instead of the maximum",
                   says="Any number cancels in the division, but only the maximum keeps exp in range: tl.max, not tl.sum.")
def row_softmax(X, OUT, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(X + row * stride + i, mask=i < n, other=0.0).to(tl.float32)
    e = tl.where(i < n, tl.exp(x - tl.sum(x, axis=0)), 0.0)
    tl.store(OUT + row * n + i, e / tl.sum(e, axis=0), mask=i < n)


@SOFTMAX.near_miss("masked lanes hold anything", section=f"{PAGE}#masked-lanes",
                   says='Without other= a masked lane holds whatever was there, and both reductions see it: '
                        'other=-float("inf").')
def row_softmax(X, OUT, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(X + row * stride + i, mask=i < n).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(OUT + row * n + i, e / tl.sum(e, axis=0), mask=i < n)


@SOFTMAX.near_miss("masked lanes hold zero", section=f"{PAGE}#masked-lanes",
                   says='Zero is neutral for a sum, but here exp comes first and exp(0 - max) is counted: '
                        'other=-float("inf").')
def row_softmax(X, OUT, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(X + row * stride + i, mask=i < n, other=0.0).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(OUT + row * n + i, e / tl.sum(e, axis=0), mask=i < n)


@SOFTMAX.near_miss("no lane is masked", section=f"{PAGE}#the-missing-mask",
                   says="BLOCK is the next power of two: lanes beyond n belong to the next row or to nobody. Mask the "
                        "load and the store with i < n.")
def row_softmax(X, OUT, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(X + row * stride + i).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(OUT + row * n + i, e / tl.sum(e, axis=0))


@SOFTMAX.near_miss("it takes the rows of X to lie n apart", section=f"{PAGE}#strides",
                   says="The next row of X starts `stride` elements further; only OUT's rows lie n apart.")
def row_softmax(X, OUT, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(X + row * n + i, mask=i < n, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(OUT + row * n + i, e / tl.sum(e, axis=0), mask=i < n)


@SOFTMAX.near_miss("it loads the row three times", section=f"{PAGE}#what-one-byte-costs",
                   says="One pass for the maximum, one for the sum, one for the result: the row fits in one program, "
                        "so load it once and reuse what you hold.")
def row_softmax(X, OUT, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    p = X + row * stride + i
    m = tl.max(tl.load(p, mask=i < n, other=-float("inf")).to(tl.float32), axis=0)
    s = tl.sum(tl.exp(tl.load(p, mask=i < n, other=-float("inf")).to(tl.float32) - m), axis=0)
    x = tl.load(p, mask=i < n, other=-float("inf")).to(tl.float32)
    tl.store(OUT + row * n + i, tl.exp(x - m) / s, mask=i < n)


@SOFTMAX.alternate("in powers of two")
def row_softmax(X, OUT, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    inside = i < n
    x = tl.load(X + row * stride + i, mask=inside, other=float("-inf")).to(tl.float32) * 1.4426950408889634
    e = tl.exp2(x - tl.max(x, 0))
    y = e * (1.0 / tl.sum(e, 0))
    tl.store(OUT + row * n + i, y.to(OUT.dtype.element_ty), mask=inside)


@SOFTMAX.alternate("masked lanes replaced after the load, by way of the logarithm")
def row_softmax(X, OUT, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    inside = i < n
    x = tl.load(X + row * stride + i, mask=inside, other=0.0).to(tl.float32)
    x = tl.where(inside, x, -1e30)
    top = tl.max(x)
    total = top + tl.log(tl.sum(tl.exp(x - top)))
    tl.store(OUT + row * n + i, tl.exp(x - total), mask=inside)


EXERCISES = [MASKED_ADD, ROW_SUM, TRANSPOSE, SOFTMAX]
