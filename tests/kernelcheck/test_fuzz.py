"""Drawn shapes, strides, dtypes and masks: results equal the reference, counts equal the closed form."""

import numpy as np
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st
from right import FLOATS
from right.matmul import matmul

import kernelcheck

dtypes = st.sampled_from(FLOATS)
few = settings(max_examples=25, deadline=None)


@triton.jit
def axpy_2d(X, Y, OUT, rows, cols, sx0, sx1, sy0, sy1, a, lo, hi, BM: tl.constexpr, BN: tl.constexpr):
    """OUT = a * X + Y where lo <= column < hi, Y elsewhere; X and Y with any strides."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    n = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    inside = (m < rows) & (n < cols)
    chosen = inside & (n >= lo) & (n < hi)
    x = tl.load(X + m * sx0 + n * sx1, mask=chosen, other=0.0)
    y = tl.load(Y + m * sy0 + n * sy1, mask=inside, other=0.0)
    tl.store(OUT + m * cols + n, y + a * x, mask=inside)


@st.composite
def views(draw, rows: int, cols: int, dtype: torch.dtype):
    """A [rows, cols] view: contiguous, transposed, with padding, or with every second column."""
    layout = draw(st.sampled_from(["contiguous", "transposed", "padded", "stepped", "offset"]))
    if layout == "transposed":
        return torch.randn(cols, rows).to(dtype).T
    if layout == "padded":
        return torch.randn(rows, cols + 5).to(dtype)[:, :cols]
    if layout == "stepped":
        return torch.randn(rows, 2 * cols).to(dtype)[:, ::2]
    if layout == "offset":
        return torch.randn(rows + 1, cols).to(dtype)[1:]
    return torch.randn(rows, cols).to(dtype)


@few
@given(data=st.data())
def test_element_wise(data):
    rows, cols = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 40))
    dtype = data.draw(dtypes)
    x, y = data.draw(views(rows, cols, dtype)), data.draw(views(rows, cols, dtype))
    lo, hi = data.draw(st.integers(-3, 45)), data.draw(st.integers(-3, 45))
    bm, bn = data.draw(st.sampled_from([1, 4, 16])), data.draw(st.sampled_from([1, 8, 32]))
    with kernelcheck.checked(shuffle=data.draw(st.integers(0, 99))) as t:
        out = torch.empty(rows, cols, dtype=dtype)
        axpy_2d[(triton.cdiv(rows, bm), triton.cdiv(cols, bn))](
            x, y, out, rows, cols, *x.stride(), *y.stride(), 2.0, lo, hi, BM=bm, BN=bn
        )
    column = torch.arange(cols)
    wanted = torch.where((column >= lo) & (column < hi), y + 2 * x, y)
    assert torch.equal(out, wanted)
    item, width = x.element_size(), max(0, min(cols, hi) - max(0, lo))
    assert t.loaded == item * rows * (cols + width)
    assert t.stored == item * rows * cols
    assert t.compulsory == item * rows * (2 * cols + width)
    assert 1 / 32 <= t.coalescing() <= 1
    if width:
        assert (t.access_map("X").count("load") == ((column >= lo) & (column < hi)).numpy()).all()


@triton.jit
def reduce_rows(X, TOP, SUM, rows, cols, stride, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    top = tl.full([BM], -float("inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    for start in range(0, cols, BN):
        n = start + tl.arange(0, BN)
        mask = (m[:, None] < rows) & (n[None, :] < cols)
        x = tl.load(X + m[:, None] * stride + n[None, :], mask=mask, other=-float("inf")).to(tl.float32)
        top = tl.maximum(top, tl.max(x, 1))
        total += tl.sum(tl.where(mask, x, 0.0), 1)
    tl.store(TOP + m, top, mask=m < rows)
    tl.store(SUM + m, total, mask=m < rows)


@few
@given(data=st.data())
def test_reduction(data):
    rows, cols = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 90))
    x = torch.randn(rows, cols + data.draw(st.integers(0, 7))).to(data.draw(dtypes))[:, :cols]
    bm, bn = data.draw(st.sampled_from([1, 2, 8])), data.draw(st.sampled_from([2, 16, 64]))
    with kernelcheck.checked(shuffle=data.draw(st.integers(0, 99))) as t:
        top, total = torch.empty(rows), torch.empty(rows)
        reduce_rows[(triton.cdiv(rows, bm),)](x, top, total, rows, cols, x.stride(0), BM=bm, BN=bn)
    assert torch.equal(top, x.float().amax(1))
    assert np.allclose(total, x.double().sum(1), rtol=1e-5, atol=1e-5 * cols)
    assert (t.loaded, t.stored) == (x.numel() * x.element_size(), 8 * rows)
    assert t.compulsory == t.traffic


@few
@given(data=st.data())
def test_matmul(data):
    M, N, K = (data.draw(st.integers(1, 50)) for _ in range(3))
    bm, bn, bk = (data.draw(st.sampled_from([16, 32])) for _ in range(3))
    dtype = data.draw(dtypes)
    a, b = torch.randn(M, K).to(dtype), torch.randn(K, N).to(dtype)
    with kernelcheck.checked(shuffle=data.draw(st.integers(0, 99))) as t:
        c = torch.empty(M, N, dtype=dtype)
        matmul[(triton.cdiv(M, bm), triton.cdiv(N, bn))](a, b, c, M, N, K, BM=bm, BN=bn, BK=bk)
    wanted = a.double() @ b.double()
    eps = 2.0**-10 if dtype == torch.float32 else torch.finfo(dtype).eps
    assert (c - wanted).abs().max() <= 4 * eps * max(1.0, float((a.double().abs() @ b.double().abs()).max()))
    tiles_m, tiles_n, tiles_k = triton.cdiv(M, bm), triton.cdiv(N, bn), triton.cdiv(K, bk)
    assert t.loaded == a.element_size() * (M * K * tiles_n + K * N * tiles_m)
    assert t.stored == a.element_size() * M * N
    assert t.flops == 2 * bm * bn * bk * tiles_m * tiles_n * tiles_k


@triton.jit
def masked_copy(X, OUT, START, COUNT, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.load(START + row) + tl.arange(0, BLOCK)
    mask = tl.arange(0, BLOCK) < tl.load(COUNT + row)
    tl.store(OUT + i, tl.load(X + i, mask=mask, other=0.0), mask=mask)


@few
@given(data=st.data())
def test_a_mask_that_reaches_outside_is_always_found_and_one_that_does_not_never(data):
    n = data.draw(st.integers(1, 60))
    start, count = data.draw(st.integers(-20, 70)), data.draw(st.integers(0, 32))
    outside = [i for i in range(start, start + count) if not 0 <= i < n]
    with kernelcheck.checked(bounds="log") as t:
        out = torch.zeros(n)
        x = torch.randn(n)
        masked_copy[(1,)](x, out, torch.tensor([start]), torch.tensor([count]), BLOCK=32)
    wanted = torch.zeros(n)
    wanted[max(0, start) : max(0, min(n, start + count))] = x[max(0, start) : max(0, min(n, start + count))]
    assert torch.equal(out, wanted)
    assert [f.offsets.tolist() for f in t.faults] == ([outside, outside] if outside else [])
