"""Gather, scatter, atomics: embedding rows, KV-cache writes, histograms, a table of pointers."""

import torch
import triton
import triton.language as tl

from . import Case


@triton.jit
def embed(IDS, TABLE, OUT, D: tl.constexpr):
    row = tl.program_id(0)
    d = tl.arange(0, D)
    tl.store(OUT + row * D + d, tl.load(TABLE + tl.load(IDS + row) * D + d))


def _run_embed(t):
    out = torch.empty(t["ids"].numel(), 32, dtype=t["table"].dtype, device=t["table"].device)
    embed[(t["ids"].numel(),)](t["ids"], t["table"], out, D=32)
    return {"out": out}


@triton.jit
def write_kv(K, CACHE, SLOTS, WIDTH: tl.constexpr):
    """One token a program; a slot of -1 is never written."""
    token = tl.program_id(0)
    slot = tl.load(SLOTS + token)
    if slot >= 0:
        i = tl.arange(0, WIDTH)
        tl.store(CACHE + slot * WIDTH + i, tl.load(K + token * WIDTH + i))


def _kv_inputs(dtype):
    slots = torch.randperm(24)[:9]
    slots[4] = -1
    return {"k": torch.randn(9, 2, 16).to(dtype), "cache": torch.randn(6, 4, 2, 16).to(dtype), "slots": slots}


def _run_write_kv(t):
    cache = t["cache"].clone()
    write_kv[(9,)](t["k"], cache, t["slots"], WIDTH=32)
    return {"cache": cache}


def _kv_reference(t):
    cache = t["cache"].clone().view(24, 2, 16)
    used = t["slots"] >= 0
    cache[t["slots"][used]] = t["k"][used]
    return {"cache": cache.view(6, 4, 2, 16)}


@triton.jit
def count_bytes(X, COUNTS, n, BLOCK: tl.constexpr):
    """Each program counts its own part, then adds the counts up atomically."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    counts = tl.histogram(tl.load(X + offs, mask=mask, other=0).to(tl.int32), 256, mask=mask)
    tl.atomic_add(COUNTS + tl.arange(0, 256), counts)


def _run_count_bytes(t):
    counts = torch.zeros(256, dtype=torch.int32, device=t["x"].device)
    count_bytes[(triton.cdiv(t["x"].numel(), 256),)](t["x"], counts, t["x"].numel(), BLOCK=256)
    return {"counts": counts}


@triton.jit
def scatter_add(IDX, X, OUT, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.atomic_add(
        OUT + tl.load(IDX + offs, mask=mask, other=0),
        tl.load(X + offs, mask=mask, other=0.0).to(tl.float32),
        mask=mask,
    )


def _run_scatter_add(t):
    out = torch.zeros(10, device=t["x"].device)
    scatter_add[(2,)](t["idx"], t["x"], out, 100, BLOCK=64)
    return {"out": out}


@triton.jit
def unsorted_gather(X, IDX, OUT, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(OUT + i, tl.gather(tl.load(X + i), tl.load(IDX + i), 0))


def _run_gather(t):
    out = torch.empty_like(t["x"])
    unsorted_gather[(1,)](t["x"], t["idx"], out, N=64)
    return {"out": out}


CASES = [
    Case(
        "embedding",
        "gather",
        lambda d: {"ids": torch.randint(0, 50, (13,)), "table": torch.randn(50, 32).to(d)},
        _run_embed,
        lambda t: {"out": t["table"][t["ids"]]},
        exact=True,
    ),
    Case("KV write", "scatter", _kv_inputs, _run_write_kv, _kv_reference, exact=True),
    Case(
        "histogram",
        "atomics",
        lambda d: {"x": torch.randint(0, 256, (1000,), dtype=torch.uint8)},
        _run_count_bytes,
        lambda t: {"counts": torch.bincount(t["x"].long(), minlength=256)},
        exact=True,
        dtypes=(torch.float32,),
    ),
    Case(
        "scatter add",
        "atomics",
        lambda d: {"idx": torch.randint(0, 10, (100,)), "x": torch.randn(100).to(d)},
        _run_scatter_add,
        lambda t: {"out": torch.zeros(10).double().index_add(0, t["idx"].cpu(), t["x"].cpu())},
        8,
    ),
    Case(
        "gather",
        "gather",
        lambda d: {"x": torch.randn(64).to(d), "idx": torch.randint(0, 64, (64,), dtype=torch.int32)},
        _run_gather,
        lambda t: {"out": t["x"][t["idx"].long()]},
        exact=True,
    ),
]
