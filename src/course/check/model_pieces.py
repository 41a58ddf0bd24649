"""The real model under the interfaces of the exercises, so that an answer written for a small one runs on it."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from llm_internals import ops
from llm_internals.kv_cache import KVCache
from llm_internals.model import Llama
from llm_internals.transformer_block import lm_head, mlp, rope_cos_sin, rotate


class Pieces:
    """A Llama cut into the pieces that `course.given.kv_cache.TinyLlama` offers, with the same shapes."""

    def __init__(self, model: Llama):
        self._model = model
        self.num_layers = model.config.num_layers
        self.num_heads = model.config.num_heads
        self.num_kv_heads = model.config.num_kv_heads
        self.head_dim = model.config.head_dim
        self.dtype = model.dtype

    def embed(self, token_ids) -> Tensor:
        return F.embedding(torch.as_tensor(token_ids).to(self._model.device), self._model.embedding)

    def project(self, layer: int, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        weights = self._model.layers[layer]
        normed = ops.rms_norm(x, weights.attention_norm, self._model.config.rms_norm_eps)
        parts = (ops.linear(normed, weight) for weight in (weights.q_proj, weights.k_proj, weights.v_proj))
        q, k, v = (part.unflatten(-1, (-1, self.head_dim)) for part in parts)
        return q, k, v

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        return rotate(x, *rope_cos_sin(positions.to(self._model.device), self._model.rope_frequencies))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, visible: Tensor) -> Tensor:
        groups = q.shape[1] // k.shape[1]
        q, k, v = (x.transpose(0, 1) for x in (q, k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)))
        return F.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=visible)[0].transpose(0, 1)

    def finish(self, layer: int, x: Tensor, mixed: Tensor) -> Tensor:
        weights = self._model.layers[layer]
        x = x + ops.linear(mixed.flatten(-2), weights.o_proj)
        return x + mlp(ops.rms_norm(x, weights.mlp_norm, self._model.config.rms_norm_eps), weights)

    def logits(self, x: Tensor) -> Tensor:
        return lm_head(x, self._model.final_norm, self._model.head, self._model.config.rms_norm_eps)


class CachedLlama:
    """A Llama as `course.given.kv_cache.CachedLlama`: model(token_ids, cache), model.new_cache(capacity)."""

    def __init__(self, model: Llama):
        self._model = model
        self.vocab_size = model.config.vocab_size
        self.passes: list[int] = []

    def new_cache(self, capacity: int) -> KVCache:
        return KVCache.for_model(self._model, max(1, capacity))

    def __call__(self, token_ids, cache: KVCache) -> Tensor:
        self.passes.append(len(token_ids))
        return self._model(torch.as_tensor(token_ids), cache)


class AnswersCache:
    """A learner's KVCache as the cache of a Llama (`llm_internals.model.Cache`)."""

    def __init__(self, answer: Callable, model: Llama, capacity: int):
        config = model.config
        self.answer = answer(config.num_layers, config.num_kv_heads, config.head_dim, capacity, model.dtype)

    @property
    def seq_len(self) -> int:
        return self.answer.seq_len

    def begin(self) -> None:
        """Nothing was interrupted: a trial runs to its end."""

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        self.answer.append(layer, k, v)
        return ops.attention(q, self.answer.keys(layer), self.answer.values(layer), scale)
