"""SwiGLU as one kernel: silu(gate) never goes to memory."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .. import ops
from .launch import check_dtype

BLOCK = 1024


@triton.jit
def swiglu_kernel(gate_ptr, up_ptr, out_ptr, size, BLOCK: tl.constexpr):
    """One program computes BLOCK consecutive elements of silu(gate) * up."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < size
    gate = tl.load(gate_ptr + offsets, mask=inside, other=0.0)
    up = tl.load(up_ptr + offsets, mask=inside, other=0.0)
    wide = gate.to(tl.float32)
    silu = (wide * tl.sigmoid(wide)).to(gate.dtype)
    product = silu.to(tl.float32) * up.to(tl.float32)
    tl.store(out_ptr + offsets, product.to(gate.dtype), mask=inside)


@ops.register("swiglu", "triton")
def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """gate, up: [..., intermediate] -> [..., intermediate]. The twin of transformer_block.swiglu."""
    check_dtype(gate, up)
    if gate.shape != up.shape:
        raise ValueError(f"gate and up must have one shape, got {list(gate.shape)} and {list(up.shape)}")
    gate, up = gate.contiguous(), up.contiguous()
    out = torch.empty_like(gate)
    if out.numel():
        swiglu_kernel[(triton.cdiv(out.numel(), BLOCK),)](gate, up, out, out.numel(), BLOCK)
    return out
