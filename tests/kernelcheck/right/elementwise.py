"""Masked add, SwiGLU, RoPE, a strided tile."""

import torch
import triton
import triton.language as tl

from . import Case


@triton.jit
def add(X, Y, OUT, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(OUT + offs, tl.load(X + offs, mask=mask) + tl.load(Y + offs, mask=mask), mask=mask)


def _run_add(t):
    out = torch.empty_like(t["x"])
    add[(triton.cdiv(out.numel(), 256),)](t["x"], t["y"], out, out.numel(), BLOCK=256)
    return {"out": out}


@triton.jit
def _silu(x):
    return x / (1 + tl.exp(-x))


@triton.jit
def swiglu(GATE, UP, OUT, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    gate = tl.load(GATE + offs, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(UP + offs, mask=mask, other=0.0).to(tl.float32)
    tl.store(OUT + offs, (_silu(gate) * up).to(OUT.dtype.element_ty), mask=mask)


def _run_swiglu(t):
    out = torch.empty_like(t["gate"])
    swiglu[(triton.cdiv(out.numel(), 128),)](t["gate"], t["up"], out, out.numel(), BLOCK=128)
    return {"out": out}


@triton.jit
def rope(X, COS, SIN, OUT, num_heads, D: tl.constexpr):
    pos = tl.program_id(0)
    head = tl.program_id(1)
    half = tl.arange(0, D // 2)
    row = (pos * num_heads + head) * D
    a = tl.load(X + row + half).to(tl.float32)
    b = tl.load(X + row + D // 2 + half).to(tl.float32)
    cos = tl.load(COS + pos * (D // 2) + half).to(tl.float32)
    sin = tl.load(SIN + pos * (D // 2) + half).to(tl.float32)
    tl.store(OUT + row + half, (a * cos - b * sin).to(OUT.dtype.element_ty))
    tl.store(OUT + row + D // 2 + half, (b * cos + a * sin).to(OUT.dtype.element_ty))


def _rope_inputs(dtype):
    angle = torch.rand(7, 16) * 6
    return {"x": torch.randn(7, 3, 32).to(dtype), "cos": angle.cos().to(dtype), "sin": angle.sin().to(dtype)}


def _run_rope(t):
    x = t["x"]
    out = torch.empty_like(x)
    rope[(x.shape[0], x.shape[1])](x, t["cos"], t["sin"], out, x.shape[1], D=x.shape[2])
    return {"out": out}


def _rope_reference(t):
    a, b = t["x"].chunk(2, -1)
    cos, sin = t["cos"][:, None], t["sin"][:, None]
    return {"out": torch.cat([a * cos - b * sin, b * cos + a * sin], -1)}


@triton.jit
def transpose(X, OUT, rows, cols, stride, B: tl.constexpr):
    r = tl.program_id(0) * B + tl.arange(0, B)[:, None]
    c = tl.program_id(1) * B + tl.arange(0, B)[None, :]
    mask = (r < rows) & (c < cols)
    tile = tl.load(X + r * stride + c, mask=mask, other=0.0)
    tl.store(OUT + tl.trans(c) * rows + tl.trans(r), tl.trans(tile), mask=tl.trans(mask))


def _run_transpose(t):
    x = t["base"][:, :45]
    out = torch.empty(x.shape[1], x.shape[0], dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(x.shape[0], 16), triton.cdiv(x.shape[1], 16))
    transpose[grid](x, out, x.shape[0], x.shape[1], x.stride(0), B=16)
    return {"out": out}


@triton.jit
def bf16_arithmetic(X, Y, OUT, n, BLOCK: tl.constexpr):
    """No cast to fp32: sums, products, comparisons and a constant in the dtype of the input."""
    offs = tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(X + offs, mask=mask, other=0.0)
    y = tl.load(Y + offs, mask=mask, other=0.0)
    one = tl.full([BLOCK], 1.0, X.dtype.element_ty)
    value = tl.where(x > y, x * y, tl.maximum(x, -y) + one)
    tl.store(OUT + offs, value, mask=mask)


def _run_arithmetic(t):
    out = torch.empty_like(t["x"])
    bf16_arithmetic[(1,)](t["x"], t["y"], out, out.numel(), BLOCK=128)
    return {"out": out}


CASES = [
    Case(
        "add",
        "element-wise",
        lambda d: {"x": torch.randn(1000).to(d), "y": torch.randn(1000).to(d)},
        _run_add,
        lambda t: {"out": t["x"] + t["y"]},
        1,
    ),
    Case(
        "swiglu",
        "element-wise",
        lambda d: {"gate": torch.randn(5, 77).to(d) * 3, "up": torch.randn(5, 77).to(d)},
        _run_swiglu,
        lambda t: {"out": torch.nn.functional.silu(t["gate"]) * t["up"]},
        2,
    ),
    Case("rope", "rotation", _rope_inputs, _run_rope, _rope_reference, 2),
    Case(
        "transpose",
        "strided tile",
        lambda d: {"base": torch.randn(37, 64).to(d)},
        _run_transpose,
        lambda t: {"out": t["base"][:, :45].T},
        exact=True,
    ),
    Case(
        "arithmetic in the input's dtype",
        "element-wise",
        lambda d: {"x": torch.randn(100).to(d), "y": torch.randn(100).to(d)},
        _run_arithmetic,
        lambda t: {"out": torch.where(t["x"] > t["y"], t["x"] * t["y"], torch.maximum(t["x"], -t["y"]) + 1)},
        2,
    ),
]
