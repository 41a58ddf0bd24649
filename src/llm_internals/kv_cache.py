"""Generation without a KV cache and with one, and exact counters of what each of them computes.

Both generators ask for the same tokens; `generate_naive` runs the whole sequence through the model for each
of them, `generate_cached` only what is new, and keeps the keys and values of the rest.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from . import ops
from .config import ModelConfig


class Model(Protocol):
    """What generation asks of a model, as `model.Llama` gives it."""

    config: ModelConfig

    @property
    def device(self) -> torch.device: ...

    @property
    def dtype(self) -> torch.dtype: ...

    def __call__(self, input_ids: Tensor, cache: "KVCache | None" = None, *, last_only: bool = False) -> Tensor:
        """input_ids: [T] -> logits [T, vocab_size], or [1, vocab_size] with `last_only`."""


class KVCache:
    """The keys and values of one sequence, for every layer, in memory taken once for `capacity` tokens.

    `storage` is [2, num_layers, batch, num_kv_heads, capacity, head_dim]; index 0 of the first axis holds
    the keys, already rotated by RoPE, index 1 the values. Queries are not kept: no later token asks for
    them. With `batch` above 1 the memory holds several sequences; `row(i)` is the cache of one.
    """

    def __init__(
        self,
        config: ModelConfig,
        capacity: int,
        batch: int = 1,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ):
        if capacity < 1 or batch < 1:
            raise ValueError(f"capacity and batch must be at least 1, got {capacity} and {batch}")
        shape = (2, config.num_layers, batch, config.num_kv_heads, capacity, config.head_dim)
        self._start(torch.zeros(shape, device=device, dtype=dtype))

    def _start(self, storage: Tensor) -> None:
        self.storage = storage
        self._lengths = [0] * storage.shape[1]  # per layer: during a forward pass the first layers are ahead

    @classmethod
    def for_model(cls, model: Model, capacity: int) -> "KVCache":
        """An empty cache on the model's device, in its dtype."""
        return cls(model.config, capacity, device=model.device, dtype=model.dtype)

    def row(self, i: int) -> "KVCache":
        """An empty cache for sequence i, in the same memory. Its length is its own, so keep the object."""
        if not 0 <= i < self.storage.shape[2]:
            raise ValueError(f"this cache has rows 0 to {self.storage.shape[2] - 1}, got {i}")
        one = object.__new__(KVCache)
        one._start(self.storage[:, :, i : i + 1])
        return one

    @property
    def capacity(self) -> int:
        return self.storage.shape[4]

    @property
    def seq_len(self) -> int:
        """Tokens that every layer holds."""
        return min(self._lengths)

    @property
    def shape(self) -> tuple[int, ...]:
        """[2, num_layers, batch, num_kv_heads, seq_len, head_dim]: the part of the memory that is in use."""
        return (*self.storage.shape[:4], self.seq_len, self.storage.shape[5])

    @property
    def nbytes(self) -> int:
        """Bytes of memory taken, whatever is in use."""
        return self.storage.nbytes

    def begin(self) -> None:
        """Before a forward pass: drop what one that was interrupted left in the first layers."""
        self.truncate(self.seq_len)

    def append(self, layer: int, k: Tensor, v: Tensor) -> None:
        """Add the keys and values of new tokens to one layer. k, v: [T, num_kv_heads, head_dim]."""
        start = self._lengths[layer]
        end = start + len(k)
        self._check_new(k, v, end)
        self.storage[0, layer, 0, :, start:end] = k.transpose(0, 1)
        self.storage[1, layer, 0, :, start:end] = v.transpose(0, 1)
        self._lengths[layer] = end

    def _check_new(self, k: Tensor, v: Tensor, end: int) -> None:
        _, _, batch, num_kv_heads, capacity, head_dim = self.storage.shape
        if batch != 1:
            raise ValueError("this cache holds several sequences: append to one of them, cache.row(i)")
        if k.shape != v.shape or k.shape[1:] != (num_kv_heads, head_dim):
            raise ValueError(
                f"k and v must be [T, num_kv_heads, head_dim] = [T, {num_kv_heads}, {head_dim}], "
                f"got {list(k.shape)} and {list(v.shape)}"
            )
        if (k.dtype, k.device) != (self.storage.dtype, self.storage.device):
            raise ValueError(
                f"this cache keeps {self.storage.dtype} on {self.storage.device}, k is {k.dtype} on {k.device}; "
                "KVCache.for_model makes one that fits a model"
            )
        if end > capacity:
            raise ValueError(
                f"the cache is full: it has room for {capacity} tokens, holds {end - len(k)}, and "
                f"{len(k)} more came; make it with capacity={end} or more"
            )

    def keys(self, layer: int) -> Tensor:
        """A view of one layer's keys, [tokens, num_kv_heads, head_dim]."""
        return self.storage[0, layer, 0, :, : self._lengths[layer]].transpose(0, 1)

    def values(self, layer: int) -> Tensor:
        """A view of one layer's values, [tokens, num_kv_heads, head_dim]."""
        return self.storage[1, layer, 0, :, : self._lengths[layer]].transpose(0, 1)

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float
    ) -> Tensor:
        """What the model calls in each block: keep the new keys and values, then attend to all of them.

        q: [T, num_heads, head_dim], k and v: [T, num_kv_heads, head_dim] -> [T, num_heads, head_dim].
        """
        self.append(layer, k, v)
        return ops.attention(q, self.keys(layer), self.values(layer), scale)

    def truncate(self, seq_len: int) -> None:
        """Forget all but the first `seq_len` tokens."""
        if not 0 <= seq_len <= self.seq_len:
            raise ValueError(f"cannot truncate a cache of {self.seq_len} tokens to {seq_len}")
        self._lengths = [seq_len] * len(self._lengths)


@dataclass
class Counters:
    """What generation has computed so far.

    forward_calls: runs of the model.
    rows_projected: rows of the hidden state multiplied by W_Q, W_K and W_V, in one layer. All layers project
        equally many: times num_layers for the whole model.
    score_pairs_masked: products q . k in one head of one layer, when a forward pass of Tq queries and Tk keys
        computes its whole Tq x Tk rectangle of scores and then masks the future.
    score_pairs_causal: those of them that the mask keeps, all that a kernel which skips the future computes.
    """

    forward_calls: int = 0
    rows_projected: int = 0
    score_pairs_masked: int = 0
    score_pairs_causal: int = 0

    def count(self, num_queries: int, num_keys: int) -> None:
        """Count one forward pass of `num_queries` tokens, the last of `num_keys`."""
        num_cached = num_keys - num_queries
        self.forward_calls += 1
        self.rows_projected += num_queries
        self.score_pairs_masked += num_queries * num_keys
        triangle = num_queries * (num_queries + 1) // 2
        self.score_pairs_causal += num_queries * num_cached + triangle


def generate_naive(
    model: Model,
    prompt_token_ids: Sequence[int],
    max_new_tokens: int,
    *,
    temperature: float = 0.0,
    seed: int | None = None,
    stop_token_ids: Collection[int] = (),
    counters: Counters | None = None,
) -> Iterator[int]:
    """Yield new tokens one by one, running the whole sequence through the model for each.

    Greedy at temperature 0, else sampled; equal seeds give equal tokens. A stop token is yielded, and is the
    last. `counters` are up to date at each yield: the work for the token that is yielded is in them.
    """
    token_ids = check_request(model, prompt_token_ids, max_new_tokens)
    generator = seeded(seed)
    counters = Counters() if counters is None else counters
    for _ in range(max_new_tokens):
        logits = model(torch.tensor(token_ids), last_only=True)
        counters.count(num_queries=len(token_ids), num_keys=len(token_ids))
        token_id = int(ops.sample(logits, temperature, [generator]))
        yield token_id
        if token_id in stop_token_ids:
            return
        token_ids.append(token_id)


def generate_cached(
    model: Model,
    prompt_token_ids: Sequence[int],
    max_new_tokens: int,
    *,
    temperature: float = 0.0,
    seed: int | None = None,
    stop_token_ids: Collection[int] = (),
    counters: Counters | None = None,
    cache: KVCache | None = None,
) -> Iterator[int]:
    """Yield the tokens that `generate_naive` yields, running only new ones through the model.

    The first forward pass takes the prompt (prefill), each later one the token before (decode). A `cache`
    that is given may already hold tokens: the prompt continues them.
    """
    num_cached_tokens = 0 if cache is None else cache.seq_len
    new_token_ids = check_request(
        model, prompt_token_ids, max_new_tokens, num_cached_tokens
    )
    generator = seeded(seed)
    counters = Counters() if counters is None else counters
    room = len(new_token_ids) + max_new_tokens - 1  # the last is never fed back
    if cache is None:
        cache = KVCache.for_model(model, max(1, room))
    check_room(cache, room if max_new_tokens else 0)
    for _ in range(max_new_tokens):
        logits = model(torch.tensor(new_token_ids), cache, last_only=True)
        counters.count(num_queries=len(new_token_ids), num_keys=cache.seq_len)
        token_id = int(ops.sample(logits, temperature, [generator]))
        yield token_id
        if token_id in stop_token_ids:
            return
        new_token_ids = [token_id]


def check_request(
    model: Model, prompt_token_ids: Sequence[int], max_new_tokens: int, num_cached_tokens: int = 0
) -> list[int]:
    """The prompt as a list of its own. ValueError for one that the model cannot take, or take that far."""
    token_ids = [int(token_id) for token_id in prompt_token_ids]
    vocab_size, limit = model.config.vocab_size, model.config.max_position_embeddings
    if not token_ids:
        raise ValueError("the prompt is empty: generation continues at least one token")
    if not all(0 <= token_id < vocab_size for token_id in token_ids):
        raise ValueError(f"the prompt holds ids outside the vocabulary, 0 to {vocab_size - 1}")
    if max_new_tokens < 0:
        raise ValueError(f"max_new_tokens must not be negative, got {max_new_tokens}")
    if num_cached_tokens + len(token_ids) + max_new_tokens > limit:
        raise ValueError(
            f"{num_cached_tokens + len(token_ids)} tokens and {max_new_tokens} new ones are more than the "
            f"{limit} positions of this model: shorten the prompt or lower max_new_tokens"
        )
    return token_ids


def check_room(cache: KVCache, num_new_tokens: int) -> None:
    """ValueError, before the first of them is computed, for more new tokens than a cache has room for."""
    capacity = getattr(cache, "capacity", None)  # a cache of another make may grow
    if capacity is not None and cache.seq_len + num_new_tokens > capacity:
        raise ValueError(
            f"the cache has room for {capacity} tokens and holds {cache.seq_len}, but {num_new_tokens} more may "
            f"come; make it with capacity={cache.seq_len + num_new_tokens} or lower max_new_tokens"
        )


def seeded(seed: int | None) -> torch.Generator:
    """A random generator of its own; without a seed, a different one each time."""
    generator = torch.Generator()
    if seed is None:
        generator.seed()
        return generator
    if not -(2**63) <= seed < 2**64:
        raise ValueError(f"a seed is a whole number of 64 bits, got {seed}")
    return generator.manual_seed(seed)
