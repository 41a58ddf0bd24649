"""One transformer block, from scratch: RMSNorm, RoPE, grouped-query attention, SwiGLU, and the LM head.

Sequences are packed, heads before dimension: q is [T, Hq, D], k and v are [T, Hkv, D], where T counts tokens,
Hq and Hkv query and key/value heads, and D is head_dim. Everything here is plain torch. What the model calls
through `ops` is registered here as its torch implementation.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from . import ops
from .config import ModelConfig, RopeScaling


@dataclass(frozen=True)
class LayerWeights:
    """The nine tensors of one block. Every projection is stored [out, in]."""

    attention_norm: Tensor  # [hidden]
    q_proj: Tensor  # [Hq * D, hidden]
    k_proj: Tensor  # [Hkv * D, hidden]
    v_proj: Tensor  # [Hkv * D, hidden]
    o_proj: Tensor  # [hidden, Hq * D]
    mlp_norm: Tensor  # [hidden]
    gate_proj: Tensor  # [intermediate, hidden]
    up_proj: Tensor  # [intermediate, hidden]
    down_proj: Tensor  # [hidden, intermediate]


@ops.register("linear", "torch")
def linear(x: Tensor, weight: Tensor) -> Tensor:
    """x @ weight.T. x: [..., in], weight: [out, in] -> [..., out]."""
    return F.linear(x, weight)


@ops.register("rms_norm", "torch")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Scale each row to root mean square 1, then each channel by its weight (Zhang & Sennrich, 2019).

    x: [..., hidden], weight: [hidden] -> [..., hidden]. The mean square is taken in fp32 at least, and the
    row is cast back before the weight, as Llama does.
    """
    wide = x.to(_at_least_fp32(x.dtype))
    mean_square = wide.pow(2).mean(-1, keepdim=True)
    return (wide * torch.rsqrt(mean_square + eps)).to(x.dtype) * weight


def rope_frequencies(head_dim: int, theta: float, scaling: RopeScaling | None = None) -> Tensor:
    """Angle per position of each pair of channels: theta^(-2i/D), in fp32 -> [D/2] (Su et al., 2021)."""
    frequencies = 1.0 / theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    if scaling is None:
        return frequencies
    if scaling.kind == "linear":
        return frequencies / scaling.factor
    return _llama3_frequencies(frequencies, scaling)


def _llama3_frequencies(frequencies: Tensor, scaling: RopeScaling) -> Tensor:
    """Llama 3.1's scaling: a pair that turns many times within the original length keeps its frequency, one
    that does not finish a turn is slowed by `factor`, and those between are blended.
    """
    turns = scaling.original_max_position_embeddings * frequencies / (2 * math.pi)
    keep = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    keep = keep.clamp(0, 1)
    return keep * frequencies + (1 - keep) * frequencies / scaling.factor


def rope_cos_sin(positions: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """positions: [T] integers, frequencies: [D/2] -> cos and sin of every angle, each [T, D/2] in fp32."""
    angles = positions.to(torch.float32)[:, None] * frequencies
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair (i, i + D/2) of each head by its position's angle. x: [T, H, D] -> [T, H, D]."""
    first, second = x.chunk(2, dim=-1)
    cos, sin = cos[:, None], sin[:, None]  # the same angle for every head
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)


@ops.register("apply_rope", "torch")
def apply_rope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """q: [T, Hq, D], k: [T, Hkv, D], cos and sin: [T, D/2] -> both rotated. V carries no position."""
    return rotate(q, cos, sin), rotate(k, cos, sin)


def causal_mask(
    num_queries: int, num_keys: int, window: int | None = None, device: torch.device | None = None
) -> Tensor:
    """True where a query may look -> [Tq, Tk]. The queries stand at the last Tq of Tk positions.

    A query sees itself and what came before; with a window, the last `window` keys, itself included.
    """
    key = torch.arange(num_keys, device=device)
    query = key[num_keys - num_queries :, None]
    visible = key <= query
    if window is not None:
        visible &= key > query - window
    return visible


def attention_weights(q: Tensor, k: Tensor, scale: float, window: int | None = None) -> Tensor:
    """How much each query takes from each key: softmax(q k^T scale) over the visible keys, in fp32 at least.

    q: [Tq, Hq, D], k: [Tk, Hkv, D] -> [Hq, Tq, Tk], each row summing to 1.
    """
    _check_attention(q, k, window)
    num_queries, num_heads, _ = q.shape
    num_keys = len(k)
    wide = _at_least_fp32(q.dtype)  # before the product, not after it
    queries, keys = _by_kv_head(q, k.shape[1]).to(wide), k.permute(1, 2, 0).to(wide)
    scores = (queries @ keys).view(num_heads, num_queries, num_keys) * scale
    visible = causal_mask(num_queries, num_keys, window, q.device)
    return scores.masked_fill(~visible, -math.inf).softmax(dim=-1)


def attention_from_scratch(q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None = None) -> Tensor:
    """Causal grouped-query attention, step by step: weights, then a weighted mean of the values.

    q: [Tq, Hq, D], k and v: [Tk, Hkv, D] -> [Tq, Hq, D]. Query head h reads key/value head h // (Hq / Hkv).
    """
    num_queries, num_heads, head_dim = q.shape
    num_kv_heads = v.shape[1]
    weights = attention_weights(q, k, scale, window).to(v.dtype)
    # query heads that share a KV head stand below each other: [Hkv, G * Tq, Tk] @ [Hkv, Tk, D]
    mixed = weights.view(num_kv_heads, -1, len(v)) @ v.transpose(0, 1)
    return mixed.view(num_heads, num_queries, head_dim).transpose(0, 1)


@ops.register("attention", "torch")
def attention(q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None = None) -> Tensor:
    """The fast twin of `attention_from_scratch`: same shapes, same result, scores never stored whole."""
    _check_attention(q, k, window)
    num_queries, num_heads, head_dim = q.shape
    num_keys, num_kv_heads, _ = k.shape
    if num_queries == 1:
        return _attend_from_last_token(q, k, v, scale, window)
    grouped = (num_kv_heads, num_heads // num_kv_heads)
    q = q.transpose(0, 1).unflatten(0, grouped)
    k = k.transpose(0, 1).unsqueeze(1).expand(*grouped, -1, -1)  # stride 0 over the group: a view, not a copy
    v = v.transpose(0, 1).unsqueeze(1).expand(*grouped, -1, -1)
    if num_queries == num_keys and window is None:
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
    else:
        mask = causal_mask(num_queries, num_keys, window, q.device)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    return mixed.reshape(num_heads, num_queries, head_dim).transpose(0, 1)


def _attend_from_last_token(q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None) -> Tensor:
    """Attention of one query, as in every decode step: it sees all keys, or the last `window`, so no mask.

    The query heads that share a key/value head stand in as the rows of one small matrix: [Hkv, G, D].
    """
    if window is not None:
        k, v = k[-window:], v[-window:]
    rows = _by_kv_head(q, k.shape[1])
    keys, values = k.transpose(0, 1), v.transpose(0, 1)
    # a batch axis of 1, without which torch takes its slow path
    mixed = F.scaled_dot_product_attention(rows[None], keys[None], values[None], scale=scale)
    return mixed.reshape(q.shape)


def _check_attention(q: Tensor, k: Tensor, window: int | None) -> None:
    if len(q) > len(k):
        raise ValueError(f"{len(q)} queries but {len(k)} keys: every query's own key must be among them")
    if q.shape[1] % k.shape[1]:
        raise ValueError(f"{q.shape[1]} query heads cannot share {k.shape[1]} key/value heads equally")
    if window is not None and window < 1:
        raise ValueError(f"a window counts the query's own key, so it is at least 1; got {window}")


def _by_kv_head(q: Tensor, num_kv_heads: int) -> Tensor:
    """Stack the query heads that share a key/value head as rows, so that no key is copied for them.

    q: [Tq, Hq, D] -> [Hkv, G * Tq, D].
    """
    return q.transpose(0, 1).reshape(num_kv_heads, -1, q.shape[-1])


@ops.register("swiglu", "torch")
def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up, where silu(x) = x * sigmoid(x) (Shazeer, 2020). Both [..., intermediate]."""
    return F.silu(gate) * up


def mlp(x: Tensor, weights: LayerWeights) -> Tensor:
    """The feed-forward half: [T, hidden] -> [T, intermediate] -> [T, hidden], each token on its own."""
    gate, up = ops.linear(x, weights.gate_proj), ops.linear(x, weights.up_proj)
    return ops.linear(ops.swiglu(gate, up), weights.down_proj)


Attend = Callable[[Tensor, Tensor, Tensor, float], Tensor]


def block(
    x: Tensor,
    weights: LayerWeights,
    cos: Tensor,
    sin: Tensor,
    config: ModelConfig,
    attend: Attend | None = None,
) -> Tensor:
    """One block: attention lets tokens look at earlier ones, the MLP then works on each alone.

    x: [T, hidden] -> [T, hidden]; cos and sin: [T, D/2]. `attend(q, k, v, scale)` is where a cache steps in;
    without one, the tokens of x see only each other.
    """
    attend = attend or ops.attention
    normed = ops.rms_norm(x, weights.attention_norm, config.rms_norm_eps)
    q = ops.linear(normed, weights.q_proj).unflatten(-1, (config.num_heads, config.head_dim))
    k = ops.linear(normed, weights.k_proj).unflatten(-1, (config.num_kv_heads, config.head_dim))
    v = ops.linear(normed, weights.v_proj).unflatten(-1, (config.num_kv_heads, config.head_dim))
    q, k = ops.apply_rope(q, k, cos, sin)
    mixed = attend(q, k, v, config.head_dim**-0.5)
    x = x + ops.linear(mixed.flatten(-2), weights.o_proj)
    return x + mlp(ops.rms_norm(x, weights.mlp_norm, config.rms_norm_eps), weights)


def lm_head(x: Tensor, norm_weight: Tensor, head_weight: Tensor, eps: float) -> Tensor:
    """The last hidden states to a score for every token of the vocabulary: [T, hidden] -> [T, vocab_size]."""
    return ops.linear(ops.rms_norm(x, norm_weight, eps), head_weight)


def _at_least_fp32(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)
