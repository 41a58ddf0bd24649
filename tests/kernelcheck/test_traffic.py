"""Counted bytes: closed formulas, the table of three attentions, coalescing, the access map, the report."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from right import attention, elementwise, reduction
from right.matmul import matmul

import kernelcheck


@pytest.mark.parametrize("seq", [128, 256, 512, 1024])
def test_flash_attention_moves_exactly_what_the_formula_says(seq):
    inputs = {name: torch.randn(1, seq, 64) for name in "qkv"}
    with kernelcheck.checked() as t:
        attention.run_flash(inputs)
    assert t.traffic == attention.flash_bytes(seq, 64, 64)
    assert t.compulsory == 4 * (4 * seq * 64 + seq)
    tiles = seq // 64
    assert t.flops == 4 * 64 * 64 * 64 * tiles * (tiles + 1) // 2
    kernelcheck.assert_traffic(t, attention.flash_bytes(seq, 64, 64), slack=1.0)


@triton.jit
def scores(Q, K, S, n, scale, D: tl.constexpr, B: tl.constexpr):
    m = tl.program_id(0) * B + tl.arange(0, B)
    k = tl.program_id(1) * B + tl.arange(0, B)
    d = tl.arange(0, D)
    s = tl.dot(tl.load(Q + m[:, None] * D + d[None, :]), tl.load(K + k[None, :] * D + d[:, None])) * scale
    tl.store(S + m[:, None] * n + k[None, :], tl.where(m[:, None] >= k[None, :], s, -float("inf")))


def naive(q, k, v):
    """Three kernels, with the scores and the probabilities in memory between them."""
    n, D = q.shape
    s, p, out = torch.empty(n, n), torch.empty(n, n), torch.empty(n, D)
    scores[(n // 64, n // 64)](q, k, s, n, D**-0.5, D=D, B=64)
    reduction.softmax[(n,)](s, p, n, BLOCK=n)
    matmul[(n // 64, 1)](p, v, out, n, D, n, BM=64, BN=64, BK=64)
    return out


def test_naive_eager_and_flash_in_one_table():
    """Bytes by S, fp32, D = 64: flash wins by more the longer the sequence, and only flash makes no S x S."""
    table = {}
    for seq in (128, 256, 512):
        q, k, v = (torch.randn(seq, 64) for _ in range(3))
        with kernelcheck.checked() as t_naive:
            a = naive(q, k, v)
        with kernelcheck.count_ops() as ops:
            mask = torch.ones(seq, seq, dtype=torch.bool).triu(1)
            b = ((q @ k.T) * 64**-0.5).masked_fill(mask, -torch.inf).softmax(-1) @ v
        with kernelcheck.checked() as t_flash, kernelcheck.count_ops() as flash_ops:
            c = attention.run_flash({"q": q[None], "k": k[None], "v": v[None]})["out"][0]
        assert (a - b).abs().max() < 1e-2
        assert (c - b).abs().max() < 1e-2
        table[seq] = (t_naive.traffic, ops.bytes, t_flash.traffic)
        tile_reads = 2 * (seq // 64) ** 2 * 64 * 64
        naive_bytes = 4 * (tile_reads + seq * seq + 2 * seq * seq + seq * seq + (seq // 64) * seq * 64 + seq * 64)
        assert t_naive.traffic == naive_bytes
        assert ops.largest == (seq, seq)
        assert flash_ops.largest_numel < seq * seq
    ratios = [naive_bytes / flash for naive_bytes, _, flash in table.values()]
    assert ratios == sorted(ratios)
    assert all(eager > naive_bytes > 2.5 * flash for naive_bytes, eager, flash in table.values())


def test_rms_norm_reads_each_row_once():
    x, w = torch.randn(5, 77), torch.randn(77)
    with kernelcheck.checked() as t:
        out = torch.empty_like(x)
        reduction.rms_norm[(5,)](x, w, out, 77, 1e-6, BLOCK=128)
    rows = {r.name: r for r in t.tensors}
    assert (rows["X"].loaded, rows["X"].stored, rows["X"].distinct_loaded) == (1540, 0, 1540)
    assert (rows["W"].loaded, rows["W"].distinct_loaded) == (5 * 308, 308)
    assert (rows["OUT"].loaded, rows["OUT"].stored) == (0, 1540)
    assert (t.loaded, t.stored, t.compulsory) == (3080, 1540, 1540 + 308 + 1540)
    assert [(r.tensor, r.kind, r.bytes, r.accesses) for r in t.lines] == [
        ("X", "load", 1540, 5), ("W", "load", 1540, 5), ("OUT", "store", 1540, 5)]  # fmt: skip
    assert t.lines[0].source.startswith("x = tl.load(X + row * n + offs")


@triton.jit
def copy_rows(X, Y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * n + tl.arange(0, BLOCK)
    tl.store(Y + i, tl.load(X + i))


@triton.jit
def copy_columns(X, Y, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK) * n + tl.program_id(0)
    tl.store(Y + i, tl.load(X + i))


def test_coalescing():
    x, y = torch.randn(64, 64), torch.empty(64, 64)
    for kernel, share in ((copy_rows, 1.0), (copy_columns, 4 / 32)):
        with kernelcheck.checked() as t:
            kernel[(64,)](x, y, 64, BLOCK=64)
        assert t.coalescing() == pytest.approx(share)
        assert t.traffic == 2 * 64 * 64 * 4


def test_a_load_shared_by_lanes_counts_once():
    @triton.jit
    def broadcast(X, Y, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(Y + i, tl.load(X + i // 8))

    with kernelcheck.checked() as t:
        broadcast[(1,)](torch.randn(8), torch.empty(64), BLOCK=64)
    assert t.tensor("X").loaded == 32
    assert t.lines[0].lanes == 64


def test_atomics_count_both_ways():
    @triton.jit
    def bump(X, BLOCK: tl.constexpr):
        tl.atomic_add(X + tl.arange(0, BLOCK), 1.0)

    with kernelcheck.checked() as t:
        bump[(3,)](torch.zeros(16), BLOCK=16)
    assert (t.loaded, t.stored, t.compulsory) == (3 * 64, 3 * 64, 128)


def test_views_of_one_tensor_are_compulsory_once():
    x = torch.randn(64)
    with kernelcheck.checked() as t:
        elementwise.add[(1,)](x, x[:32], torch.empty(32), 32, BLOCK=32)
    assert t.compulsory == 3 * 0 + 128 + 128
    assert t.loaded == 256


def test_access_map():
    x = torch.randn(8, 16).T  # [16, 8], strides (1, 16)
    y = torch.empty(16, 8).contiguous()

    @triton.jit
    def rows(X, Y, sx0, sx1, N: tl.constexpr):
        r = tl.program_id(0)
        i = tl.arange(0, N)
        tl.store(Y + r * N + i, tl.load(X + r * sx0 + i * sx1))

    with kernelcheck.checked(shuffle=3) as t:
        rows[(16,)](x, y, x.stride(0), x.stride(1), N=8)
    maps = t.access_map()
    assert set(maps) == {"X", "Y"}
    m = t.access_map("X")
    assert (m.count("load") == 1).all()
    assert (m.count("store") == 0).all()
    assert (m.first("store") == -1).all()
    assert m.count("load").shape == (16, 8)
    owner = m.program_ids[m.first("load")][..., 0]
    assert (owner == np.arange(16)[:, None]).all()
    assert (np.diff(m.step) >= 0).all()
    assert m.step.size == m.element.size == m.line.size == 128
    assert set(m.kind) == {0}
    with kernelcheck.checked(record=False) as t:
        rows[(16,)](x, y, x.stride(0), x.stride(1), N=8)
    with pytest.raises(ValueError, match="record=True"):
        t.access_map()
    with pytest.raises(ValueError, match=r"no tensor named 'Z' in this run; it saw: X \(rows\), Y \(rows\)"):
        t.tensor("Z")


def test_assert_traffic():
    x = torch.randn(1000)
    with kernelcheck.checked() as t:
        elementwise.add[(4,)](x, x.clone(), torch.empty(1000), 1000, BLOCK=256)
    kernelcheck.assert_traffic(t, 12_000, slack=1.0)
    with pytest.raises(AssertionError) as caught:
        kernelcheck.assert_traffic(t, 8_000)
    assert str(caught.value).startswith(
        "traffic of add is 12,000 B, 1.50 x the bound of 8,000 B (allowed: 1.05 x). Most of it:"
    )
    assert "load of X, 4,000 B: tl.store(OUT + offs" in str(caught.value)
    with pytest.raises(ValueError, match="bound must be positive"):
        kernelcheck.assert_traffic(t, 0)


def test_report_is_a_table_a_learner_can_read():
    x, w = torch.randn(64, 1024), torch.randn(1024)
    with kernelcheck.checked() as t:
        reduction.rms_norm[(64,)](x, w, torch.empty_like(x), 1024, 1e-6, BLOCK=1024)
    text = t.report()
    assert text.splitlines()[0] == "64 programs of rms_norm"
    for part in ("fp32 [64, 1024]", "256 KiB", "64.00x", "reduction.py:", "traffic", "compulsory", "coalescing"):
        assert part in text, text
    assert max(map(len, text.splitlines())) <= 120
    assert "0 programs of no kernel" in kernelcheck.Trace().report()
