"""Row sum, RMSNorm, softmax, layer norm in one pass with a combine function, scans, a sum under a lock."""

import torch
import triton
import triton.language as tl

from . import Case


@triton.jit
def row_sum(X, OUT, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    x = tl.load(X + row * n + offs, mask=offs < n, other=0.0).to(tl.float32)
    tl.store(OUT + row, tl.sum(x, 0).to(OUT.dtype.element_ty))


def _run_row_sum(t):
    x = t["x"]
    out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    row_sum[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return {"out": out}


@triton.jit
def rms_norm(X, W, OUT, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(X + row * n + offs, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(W + offs, mask=mask, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, 0) / n + eps)
    tl.store(OUT + row * n + offs, (x * scale * w).to(OUT.dtype.element_ty), mask=mask)


def _run_rms_norm(t):
    x = t["x"]
    out = torch.empty_like(x)
    rms_norm[(x.shape[0],)](x, t["w"], out, x.shape[1], 1e-6, BLOCK=triton.next_power_of_2(x.shape[1]))
    return {"out": out}


@triton.jit
def softmax(X, OUT, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(X + row * n + offs, mask=mask, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, 0))
    tl.store(OUT + row * n + offs, (e / tl.sum(e, 0)).to(OUT.dtype.element_ty), mask=mask)


def _run_softmax(t):
    x = t["x"]
    out = torch.empty_like(x)
    softmax[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return {"out": out}


@triton.jit
def _merge(mean_a, m2_a, n_a, mean_b, m2_b, n_b):
    """Mean and sum of squared deviations of two sets together (Chan, Golub and LeVeque, 1979)."""
    n = n_a + n_b
    delta = mean_b - mean_a
    share = tl.where(n > 0, n_b / tl.maximum(n, 1.0), 0.0)
    return mean_a + delta * share, m2_a + m2_b + delta * delta * n_a * share, n


@triton.jit
def layer_norm(X, OUT, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(X + row * n + offs, mask=mask, other=0.0).to(tl.float32)
    mean, m2, _ = tl.reduce((x, tl.zeros_like(x), mask.to(tl.float32)), 0, _merge)
    tl.store(OUT + row * n + offs, ((x - mean) * tl.rsqrt(m2 / n + eps)).to(OUT.dtype.element_ty), mask=mask)


def _run_layer_norm(t):
    x = t["x"]
    out = torch.empty_like(x)
    layer_norm[(x.shape[0],)](x, out, x.shape[1], 1e-5, BLOCK=triton.next_power_of_2(x.shape[1]))
    return {"out": out}


@triton.jit
def _decay(a, x, b, y):
    return a * b, x * b + y


@triton.jit
def recurrence(A, X, OUT, n, BLOCK: tl.constexpr):
    """h[i] = a[i] h[i - 1] + x[i], as an associative scan."""
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    mask = offs < n
    a = tl.load(A + row * n + offs, mask=mask, other=1.0).to(tl.float32)
    x = tl.load(X + row * n + offs, mask=mask, other=0.0).to(tl.float32)
    _, h = tl.associative_scan((a, x), 0, _decay)
    tl.store(OUT + row * n + offs, h.to(OUT.dtype.element_ty), mask=mask)


def _run_recurrence(t):
    out = torch.empty_like(t["x"])
    recurrence[(out.shape[0],)](t["a"], t["x"], out, out.shape[1], BLOCK=triton.next_power_of_2(out.shape[1]))
    return {"out": out}


def _recurrence_reference(t):
    h, rows = torch.zeros_like(t["x"][:, 0]), []
    for i in range(t["x"].shape[1]):
        h = t["a"][:, i] * h + t["x"][:, i]
        rows.append(h)
    return {"out": torch.stack(rows, 1)}


@triton.jit
def locked_sum(X, OUT, LOCK, n, BLOCK: tl.constexpr):
    """Programs add to OUT one after the other, behind a spin lock."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.load(X + offs, mask=offs < n, other=0.0).to(tl.float32), 0)
    while tl.atomic_cas(LOCK, 0, 1) == 1:
        pass
    tl.store(OUT, tl.load(OUT) + part)
    tl.debug_barrier()
    tl.atomic_xchg(LOCK, 0)


def _run_locked_sum(t):
    x = t["x"]
    out = torch.zeros(1, device=x.device)
    lock = torch.zeros(1, dtype=torch.int32, device=x.device)
    locked_sum[(triton.cdiv(x.numel(), 128),)](x, out, lock, x.numel(), BLOCK=128)
    return {"out": out}


@triton.jit
def last_block_sum(X, PARTS, COUNT, OUT, n, BLOCK: tl.constexpr, PROGRAMS: tl.constexpr):
    """Each program leaves a partial sum; the one that finishes last adds them up."""
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    tl.store(PARTS + pid, tl.sum(tl.load(X + offs, mask=offs < n, other=0.0).to(tl.float32), 0))
    tl.debug_barrier()
    if tl.atomic_add(COUNT, 1) == tl.num_programs(0) - 1:
        i = tl.arange(0, PROGRAMS)
        tl.store(OUT, tl.sum(tl.load(PARTS + i, mask=i < tl.num_programs(0), other=0.0), 0))


def _run_last_block_sum(t):
    x = t["x"]
    grid = triton.cdiv(x.numel(), 128)
    parts = torch.empty(grid, device=x.device)
    count = torch.zeros(1, dtype=torch.int32, device=x.device)
    out = torch.empty(1, device=x.device)
    last_block_sum[(grid,)](x, parts, count, out, x.numel(), BLOCK=128, PROGRAMS=triton.next_power_of_2(grid))
    return {"out": out}


def _rows(dtype, rows=5, n=77, scale=1.0):
    return (torch.randn(rows, n) * scale).to(dtype)


CASES = [
    Case("row_sum", "reduction", lambda d: {"x": _rows(d)}, _run_row_sum, lambda t: {"out": t["x"].sum(1)}, 4),
    Case(
        "rms_norm",
        "reduction",
        lambda d: {"x": _rows(d), "w": _rows(d, 1)[0]},
        _run_rms_norm,
        lambda t: {"out": t["x"] * (t["x"].square().mean(1, keepdim=True) + 1e-6).rsqrt() * t["w"]},
        4,
    ),
    Case(
        "softmax",
        "reduction",
        lambda d: {"x": _rows(d, scale=4)},
        _run_softmax,
        lambda t: {"out": t["x"].softmax(1)},
        4,
    ),
    Case(
        "layer_norm",
        "own combine function",
        lambda d: {"x": _rows(d) + 3},
        _run_layer_norm,
        lambda t: {"out": torch.nn.functional.layer_norm(t["x"], t["x"].shape[1:], eps=1e-5)},
        8,
    ),
    Case(
        "recurrence",
        "scan",
        lambda d: {"a": torch.rand(3, 50).to(d), "x": _rows(d, 3, 50)},
        _run_recurrence,
        _recurrence_reference,
        8,
    ),
    Case(
        "locked_sum",
        "lock",
        lambda d: {"x": _rows(d)},
        _run_locked_sum,
        lambda t: {"out": t["x"].sum()[None]},
        8,
    ),
    Case(
        "last_block_sum",
        "counter",
        lambda d: {"x": _rows(d)},
        _run_last_block_sum,
        lambda t: {"out": t["x"].sum()[None]},
        8,
    ),
]
