"""RoPE as one kernel: queries and keys of a token are rotated together, by one read of its angles."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .. import ops
from .launch import check_dtype


@triton.jit
def rotate_heads(x_ptr, out_ptr, head_stride, num_heads, half, cos, sin, HEADS: tl.constexpr, HALF: tl.constexpr):
    """Rotate pairs (i, i + half) of every head of one token. cos and sin: [HALF]."""
    head = tl.arange(0, HEADS)[:, None]
    pair = tl.arange(0, HALF)[None, :]
    inside = (head < num_heads) & (pair < half)
    source = x_ptr + head * head_stride + pair
    first = tl.load(source, mask=inside, other=0.0)
    second = tl.load(source + half, mask=inside, other=0.0)
    target = out_ptr + head * (2 * half) + pair
    tl.store(target, (first * cos - second * sin).to(first.dtype), mask=inside)
    tl.store(target + half, (second * cos + first * sin).to(first.dtype), mask=inside)


@triton.jit
def rope_kernel(
    q_ptr, k_ptr, q_out_ptr, k_out_ptr, cos_ptr, sin_ptr,
    q_token_stride, q_head_stride, k_token_stride, k_head_stride,
    num_heads, num_kv_heads, half,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """One program rotates all heads of one token. The sizes in capitals are rounded up to powers of two."""
    token = tl.program_id(0).to(tl.int64)
    pair = tl.arange(0, HALF)
    cos = tl.load(cos_ptr + token * half + pair, mask=pair < half, other=0.0)[None, :]
    sin = tl.load(sin_ptr + token * half + pair, mask=pair < half, other=0.0)[None, :]
    q_ptr += token * q_token_stride
    k_ptr += token * k_token_stride
    q_out_ptr += token * num_heads * 2 * half
    k_out_ptr += token * num_kv_heads * 2 * half
    rotate_heads(q_ptr, q_out_ptr, q_head_stride, num_heads, half, cos, sin, HEADS, HALF)
    rotate_heads(k_ptr, k_out_ptr, k_head_stride, num_kv_heads, half, cos, sin, KV_HEADS, HALF)


@ops.register("apply_rope", "triton")
def apply_rope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """q: [T, Hq, D], k: [T, Hkv, D], cos and sin: [T, D/2] -> q, k. The twin of transformer_block's."""
    check_dtype(q, k)
    check_dtype(cos, sin)
    num_tokens, num_heads, head_dim = q.shape
    num_kv_heads, half = k.shape[1], head_dim // 2
    q, k = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k))
    q_out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    k_out = torch.empty(k.shape, dtype=k.dtype, device=k.device)
    if num_tokens:
        rope_kernel[(num_tokens,)](
            q, k, q_out, k_out, cos.contiguous(), sin.contiguous(),
            q.stride(0), q.stride(1), k.stride(0), k.stride(1),
            num_heads, num_kv_heads, half,
            *map(triton.next_power_of_2, (num_heads, num_kv_heads, half)),
        )  # fmt: skip
    return q_out, k_out
