"""A small Llama with random weights: what the generators of chapter 04 are tried on.

It has everything a real one has (RMSNorm, RoPE, grouped-query attention with fewer key/value heads than query heads,
SwiGLU, several layers), a vocabulary of 61 ids, and no text. `TinyLlama` runs whole sequences and offers the pieces
of its forward pass; `CachedLlama` also continues what a cache holds.
"""

import math

import torch
import torch.nn.functional as F


class TinyLlama:
    """model(token_ids) -> logits [T, vocab_size]: row i scores the token that follows token i."""

    vocab_size = 61
    hidden_size = 32
    intermediate_size = 40
    num_layers = 3
    num_heads = 6
    num_kv_heads = 2
    head_dim = 8

    def __init__(self, seed, dtype=torch.float32, num_layers=num_layers):
        generator = torch.Generator().manual_seed(seed)

        def matrix(rows, columns, gain=1.0):
            drawn = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
            return (drawn * gain / math.sqrt(rows)).to(dtype)

        self.num_layers = num_layers
        heads, kv_heads = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        self.dtype = dtype
        self.embedding = matrix(self.vocab_size, self.hidden_size, gain=math.sqrt(self.vocab_size))
        self.layers = [
            {
                "q": matrix(self.hidden_size, heads, gain=2.0),
                "k": matrix(self.hidden_size, kv_heads, gain=2.0),
                "v": matrix(self.hidden_size, kv_heads, gain=2.0),
                "o": matrix(heads, self.hidden_size, gain=2.0),
                "gate": matrix(self.hidden_size, self.intermediate_size),
                "up": matrix(self.hidden_size, self.intermediate_size),
                "down": matrix(self.intermediate_size, self.hidden_size),
            }
            for _ in range(self.num_layers)
        ]
        self.head = matrix(self.hidden_size, self.vocab_size, gain=2.0)
        self.frequencies = 1.0 / 100.0 ** (torch.arange(0, self.head_dim, 2, dtype=torch.float64) / self.head_dim)

    def __call__(self, token_ids):
        """token_ids: list of ints or [T] -> logits [T, vocab_size], computed from nothing but these tokens."""
        positions = torch.arange(len(token_ids))
        visible = positions <= positions[:, None]
        x = self.embed(token_ids)
        for layer in range(self.num_layers):
            q, k, v = self.project(layer, x)
            mixed = self.attend(self.rotate(q, positions), self.rotate(k, positions), v, visible)
            x = self.finish(layer, x, mixed)
        return self.logits(x)

    def embed(self, token_ids):
        """token_ids: list of ints or [T] -> hidden states [T, hidden_size]."""
        return self.embedding[torch.as_tensor(token_ids)]

    def project(self, layer, x):
        """x: [T, hidden_size] -> q [T, num_heads, head_dim], k and v [T, num_kv_heads, head_dim], not rotated."""
        normed, weights = _normed(x), self.layers[layer]
        heads = [normed @ weights[name] for name in ("q", "k", "v")]
        return tuple(part.unflatten(-1, (-1, self.head_dim)) for part in heads)

    def rotate(self, x, positions):
        """RoPE. x: [T, heads, head_dim], positions: [T] -> x with each token turned by its position."""
        angles = positions[:, None].double() * self.frequencies
        cos, sin = angles.cos()[:, None].to(x.dtype), angles.sin()[:, None].to(x.dtype)
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)

    def attend(self, q, k, v, visible):
        """q: [Tq, num_heads, head_dim], k and v: [Tk, num_kv_heads, head_dim], visible: bool [Tq, Tk], True where
        a query may look -> [Tq, num_heads, head_dim]. Query head h reads key/value head h // group."""
        group = q.shape[1] // k.shape[1]
        q = q.unflatten(1, (-1, group))
        scores = torch.einsum("qhgd,khd->hgqk", q, k) / math.sqrt(self.head_dim)
        weights = scores.masked_fill(~visible, -math.inf).softmax(dim=-1)
        return torch.einsum("hgqk,khd->qhgd", weights, v).flatten(1, 2)

    def finish(self, layer, x, mixed):
        """The rest of a block. x: [T, hidden_size], mixed: [T, num_heads, head_dim] -> x of the next layer."""
        weights = self.layers[layer]
        x = x + mixed.flatten(1) @ weights["o"]
        normed = _normed(x)
        return x + (F.silu(normed @ weights["gate"]) * (normed @ weights["up"])) @ weights["down"]

    def logits(self, x):
        """x: [T, hidden_size] -> [T, vocab_size]."""
        return _normed(x) @ self.head


def _normed(x):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)


def tiny_llama(seed, dtype="float32", num_layers=TinyLlama.num_layers):
    """A TinyLlama whose weights come from this seed; equal seeds give equal models."""
    return TinyLlama(seed, getattr(torch, dtype), num_layers)


class GrowingCache:
    """Keys and values of every layer, each one tensor that is copied into a longer one at every append.

    keys(layer) and values(layer) are [tokens, num_kv_heads, head_dim], in the order in which they were appended;
    seq_len is the number of tokens that all layers hold.
    """

    def __init__(self, model):
        empty = torch.empty(0, model.num_kv_heads, model.head_dim, dtype=model.dtype)
        self._layers = [(empty, empty) for _ in range(model.num_layers)]

    def append(self, layer, k, v):
        """Add the keys and values of T new tokens to one layer. k, v: [T, num_kv_heads, head_dim]."""
        old_k, old_v = self._layers[layer]
        self._layers[layer] = torch.cat([old_k, k]), torch.cat([old_v, v])

    def keys(self, layer):
        return self._layers[layer][0]

    def values(self, layer):
        return self._layers[layer][1]

    @property
    def seq_len(self):
        return min(len(k) for k, _ in self._layers)


class TokenCache:
    """Room for `capacity` tokens of one sequence."""

    def __init__(self, capacity):
        self.capacity = capacity
        self.token_ids = []

    @property
    def seq_len(self):
        return len(self.token_ids)


class CachedLlama:
    """model(token_ids, cache) -> logits [T, vocab_size] of T new tokens, which continue what the cache holds.

    It answers as a forward pass with a KV cache does, and notes in `passes` how many tokens each call was given. How
    such a pass is made is an exercise of its own, so this one keeps ids and recomputes.
    """

    def __init__(self, model):
        self._model = model
        self.vocab_size = model.vocab_size
        self.passes = []

    def new_cache(self, capacity):
        """An empty cache with room for `capacity` tokens."""
        return TokenCache(capacity)

    def __call__(self, token_ids, cache):
        token_ids = [int(token_id) for token_id in token_ids]
        if not token_ids:
            raise ValueError("no new tokens: a forward pass takes at least one")
        if cache.seq_len + len(token_ids) > cache.capacity:
            raise ValueError(
                f"the cache has room for {cache.capacity} tokens, holds {cache.seq_len}, and {len(token_ids)} came"
            )
        self.passes.append(len(token_ids))
        cache.token_ids += token_ids
        return self._model(cache.token_ids)[-len(token_ids) :]


def cached_llama(seed, dtype="float32"):
    """A CachedLlama with the weights of tiny_llama(seed)."""
    return CachedLlama(tiny_llama(seed, dtype))
