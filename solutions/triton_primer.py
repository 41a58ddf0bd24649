# %% [markdown] key="title"
# # First kernels
#
# Four kernels, from two missing lines to the signature alone. No GPU is needed: `check` runs them on the CPU,
# looks at every access before it happens, and stops at the first one that is wrong. Keep the page *First kernels*
# open beside this notebook.
#
# The launch is given with each task. A kernel's cell holds `@triton.jit` functions and nothing else; inside, there is
# `tl`, the parameters, and what you define.

# %% [markdown] key="guess"
# ## Before you start
#
# A tensor of 1,000 elements, blocks of 256. How many lanes of the last block have nothing to do? Write your guess in
# place of `...`.

# %% key="guess-lanes" role="given"
predict("idle lanes of the last block", ...)

# %% key="reveal-lanes" role="given"
blocks = -(-1000 // 256)
reveal("idle lanes of the last block", blocks * 256 - 1000)

# %% [markdown] key="triton_primer.masked_add-task" role="task"
# ## Masked add
#
# `OUT[i] = X[i] + Y[i]` for i below `n`. Program `pid` takes care of one block of `BLOCK` neighbouring elements. Two
# lines are missing: `i`, the indices of this program's elements, and `inside`, true where such an element exists.
#
# With `n = 5` and `BLOCK = 4`, program 1 has `i = [4, 5, 6, 7]` and `inside = [True, False, False, False]`. Helps:
# *Masked add*.
#
# The launch: `masked_add[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)`, with blocks of 256 and of other sizes

# %% key="triton_primer.masked_add" role="answer"
# answer: triton_primer.masked_add
@triton.jit
def masked_add(X, Y, OUT, n, BLOCK: tl.constexpr):
    """X, Y, OUT: [n], contiguous."""
    pid = tl.program_id(0)
    ### BEGIN SOLUTION
    i = pid * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    ### END SOLUTION
    x = tl.load(X + i, mask=inside)
    y = tl.load(Y + i, mask=inside)
    tl.store(OUT + i, x + y, mask=inside)

# %% [markdown] key="try"
# A kernel that passes can be launched right here, on tensors of yours. Outside `checked()` nobody looks at what it touches.
#
# ```python
# from kernelcheck import checked
#
# x, y = torch.arange(5.0), torch.ones(5)
# with checked():
#     out = torch.empty(5)
#     masked_add[(2,)](x, y, out, 5, BLOCK=4)
# ```

# %% [markdown] key="triton_primer.row_sum-task" role="task"
# ## Row sum
#
# One program, one row: `OUT[row]` is the sum of row `row` of `X`, in fp32 whatever X holds. The row begins at
# `X + row * stride`; its `n` elements are neighbours. `BLOCK` is a power of two of at least `n`, so some lanes have no
# element, and `tl.sum` adds all lanes.
#
# `X = [[1., 2., 3.], [4., 5., 6.]]` gives `[6., 15.]` with `BLOCK = 4`, and the fourth lane must not count. Helps:
# *Row sum* and *Masked lanes*.
#
# The launch: `row_sum[(rows,)](x, out, x.stride(0), n, BLOCK=triton.next_power_of_2(n))`, once with a larger block

# %% key="triton_primer.row_sum" role="answer"
# answer: triton_primer.row_sum
@triton.jit
def row_sum(X, OUT, stride, n, BLOCK: tl.constexpr):
    """X: [rows, n], rows `stride` elements apart; OUT: [rows], fp32."""
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    ### BEGIN SOLUTION
    x = tl.load(X + row * stride + i, mask=i < n, other=0.0)
    total = tl.sum(x.to(tl.float32), axis=0)
    ### END SOLUTION
    tl.store(OUT + row, total)

# %% [markdown] key="triton_primer.transpose-task" role="task"
# ## A strided tile
#
# Write X `[rows, cols]` into OUT `[cols, rows]`, transposed, tile by tile. Program `(p, q)` of the two-dimensional
# grid moves the tile of `BLOCK_R` rows and `BLOCK_C` columns that begins at row `p * BLOCK_R` and column
# `q * BLOCK_C`. The rows of X lie `stride` apart; OUT is contiguous. Tiles stick out at two edges.
#
# `[[1., 2., 3.], [4., 5., 6.]]` becomes `[[1., 4.], [2., 5.], [3., 6.]]`. Helps: *A strided tile*.
#
# The launch: `transpose[(triton.cdiv(rows, BLOCK_R), triton.cdiv(cols, BLOCK_C))](x, out, rows, cols, x.stride(0),
# BLOCK_R=BLOCK_R, BLOCK_C=BLOCK_C)`, with tiles of 8 x 16 and of other shapes

# %% key="triton_primer.transpose" role="answer"
# answer: triton_primer.transpose
@triton.jit
def transpose(X, OUT, rows, cols, stride, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    """X: [rows, cols], rows `stride` apart; OUT: [cols, rows], contiguous."""
    r = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    ### BEGIN SOLUTION
    inside = (r[:, None] < rows) & (c[None, :] < cols)
    tile = tl.load(X + r[:, None] * stride + c[None, :], mask=inside)
    tl.store(OUT + c[None, :] * rows + r[:, None], tile, mask=inside)
    ### END SOLUTION

# %% [markdown] key="triton_primer.row_softmax-task" role="task"
# ## Row softmax
#
# The signature alone. One program, one row: each row of X `[rows, n]` becomes weights that sum to 1, in OUT
# `[rows, n]` of X's dtype. The rows of X lie `stride` apart, those of OUT lie `n` apart. Values reach ±130, so subtract
# the row's maximum before `tl.exp`; compute in fp32; read every element once. Write it without
# `tl.softmax`.
#
# A row `[1., 1., 1.]` becomes three times 0.333. Helps: *Row softmax*.
#
# The launch: `row_softmax[(rows,)](x, out, x.stride(0), n, BLOCK=triton.next_power_of_2(n))`, once with a larger block

# %% key="triton_primer.row_softmax" role="answer"
# answer: triton_primer.row_softmax
@triton.jit
def row_softmax(X, OUT, stride, n, BLOCK: tl.constexpr):
    """X: [rows, n], rows `stride` apart; OUT: [rows, n], contiguous."""
    ### BEGIN SOLUTION
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    inside = i < n
    x = tl.load(X + row * stride + i, mask=inside, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(OUT + row * n + i, e / tl.sum(e, axis=0), mask=inside)
    ### END SOLUTION

# %% [markdown] key="report"
# ## What it would cost
#
# `kernel_report` runs a kernel that passes and prints what it moved, tensor by tensor, against what the exercise
# allows, and the least time that these bytes take on a card: a bound, computed from the maker's data sheet, never a
# measurement. With `gpu=True` it also compiles the kernel for two cards that you need not have (sm_80 and sm_90) and
# says how many registers it takes, whether they spill, and how wide its loads are. It prints and is never graded.

# %% key="report-softmax" role="given"
kernel_report("triton_primer.row_softmax", card="l4")
