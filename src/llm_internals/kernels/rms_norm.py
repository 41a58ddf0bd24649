"""RMSNorm as one kernel: each row is read once and written once."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .. import ops
from .launch import check_dtype


@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, out_ptr, hidden, eps, BLOCK: tl.constexpr):
    """One program normalizes one row of x [rows, hidden]; BLOCK is hidden, rounded up to a power of two."""
    row = tl.program_id(0).to(tl.int64)  # row * hidden may pass 2^31
    columns = tl.arange(0, BLOCK)
    inside = columns < hidden
    x = tl.load(x_ptr + row * hidden + columns, mask=inside, other=0.0)
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
    wide = x.to(tl.float32)
    mean_square = tl.sum(wide * wide, axis=0) / hidden
    normed = (wide * tl.rsqrt(mean_square + eps)).to(x.dtype)
    product = normed.to(tl.float32) * weight.to(tl.float32)  # rounded once more, by the store
    tl.store(out_ptr + row * hidden + columns, product.to(x.dtype), mask=inside)


@ops.register("rms_norm", "triton")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x: [..., hidden], weight: [hidden] -> [..., hidden]. The twin of transformer_block.rms_norm."""
    check_dtype(x, weight)
    hidden = x.shape[-1]
    rows = x.contiguous().view(-1, hidden)
    out = torch.empty_like(rows)
    if len(rows):
        block = triton.next_power_of_2(hidden)
        num_warps = min(max(block // 512, 1), 16)
        rms_norm_kernel[(len(rows),)](rows, weight.contiguous(), out, hidden, eps, block, num_warps=num_warps)
    return out.view(x.shape)
