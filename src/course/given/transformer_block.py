"""The parts of a block that earlier exercises ask for, plainly written, for exercises that build on them.

Shapes as everywhere in the course: x [T, hidden], q [T, Hq, D], k and v [T, Hkv, D], weights [out, in].
"""

import math

import torch


def rms_norm(x, weight, eps):
    """x: [..., hidden], weight: [hidden] -> [..., hidden], in x.dtype."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return (wide / (wide.square().mean(-1, keepdim=True) + eps).sqrt()).to(x.dtype) * weight


def apply_rope(x, cos, sin):
    """Turn the pairs (i, i + D/2) of every head. x: [T, H, D], cos and sin: [T, D/2] -> [T, H, D]."""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1).to(x.dtype)


def swiglu(gate, up):
    """silu(gate) * up. gate, up: [..., intermediate]."""
    return gate * torch.sigmoid(gate) * up


def attention(q, k, v, scale):
    """Causal; the last query sees the last key. q: [Tq, Hq, D], k and v: [Tk, Hkv, D] -> [Tq, Hq, D]."""
    group = q.shape[1] // k.shape[1]
    wide = torch.promote_types(q.dtype, torch.float32)
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    scores = torch.einsum("qhd,khd->hqk", q.to(wide), k.to(wide)) * scale
    hidden = torch.ones(scores.shape[1:], dtype=torch.bool).triu(len(k) - len(q) + 1)
    weights = scores.masked_fill(hidden, -math.inf).softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights, v.to(wide)).to(q.dtype)


def causal_attention():
    """What a block calls when nothing is cached: attend(q, k, v, scale) over the tokens at hand."""
    return attention


def cached_attention(k_past, v_past):
    """What a block calls when earlier tokens are cached: attend(q, k, v, scale) over those and the new ones."""

    def attend(q, k, v, scale):
        return attention(q, torch.cat([k_past, k]), torch.cat([v_past, v]), scale)

    return attend
