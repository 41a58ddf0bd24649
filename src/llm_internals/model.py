"""A whole Llama on one page.

Importing this module registers the torch implementation of every operation; the first model on a CUDA device
registers the Triton ones.
"""

from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from importlib import import_module
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from . import sampling  # noqa: F401  (registers "sample")
from .config import ModelConfig
from .transformer_block import LayerWeights, block, lm_head, rope_cos_sin, rope_frequencies

# Where Hugging Face checkpoints keep the tensors of a LayerWeights, under "model.layers.<i>."
HF_NAMES = {
    "attention_norm": "input_layernorm.weight",
    "q_proj": "self_attn.q_proj.weight",
    "k_proj": "self_attn.k_proj.weight",
    "v_proj": "self_attn.v_proj.weight",
    "o_proj": "self_attn.o_proj.weight",
    "mlp_norm": "post_attention_layernorm.weight",
    "gate_proj": "mlp.gate_proj.weight",
    "up_proj": "mlp.up_proj.weight",
    "down_proj": "mlp.down_proj.weight",
}


class Cache(Protocol):
    """What the model needs of a KV cache: how far it reaches, and attention over all that it holds.

    One that also has `truncate(seq_len)` is put back to where it was when a forward pass is interrupted.
    """

    seq_len: int

    def begin(self) -> None: ...

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor: ...


class Llama:
    """A decoder-only transformer: an embedding, `num_layers` blocks, an LM head."""

    def __init__(self, config: ModelConfig, weights: Mapping[str, Tensor]):
        """`weights`: tensors by Hugging Face name; ValueError for a missing one or a wrong shape."""
        _check_shapes(config, weights)
        self.config = config
        self.embedding = weights["model.embed_tokens.weight"]  # [vocab_size, hidden]
        self.layers = [
            LayerWeights(**{name: weights[f"model.layers.{i}.{hf}"] for name, hf in HF_NAMES.items()})
            for i in range(config.num_layers)
        ]
        self.final_norm = weights["model.norm.weight"]  # [hidden]
        self.head = self.embedding if config.tie_word_embeddings else weights["lm_head.weight"]
        self.rope_frequencies = rope_frequencies(config.head_dim, config.rope_theta, config.rope_scaling)
        self.rope_frequencies = self.rope_frequencies.to(self.device)
        if self.device.type == "cuda":
            import_module(".kernels", __package__)

    @torch.no_grad()
    def forward(
        self,
        input_ids: Tensor,
        cache: Cache | None = None,
        positions: Tensor | None = None,
        last_only: bool = False,
    ) -> Tensor:
        """input_ids: [T] -> logits [T, vocab_size], or [1, vocab_size] with `last_only`.

        With a cache, input_ids continue what it holds, and their keys and values are added to it. `positions`
        [T] defaults to the next ones: cache.seq_len, cache.seq_len + 1, ...
        """
        _check_ids(input_ids)
        if positions is not None and positions.shape != input_ids.shape:
            raise ValueError(f"positions must have the shape of input_ids, {list(input_ids.shape)}")
        if cache is None:
            return self._forward(input_ids, None, positions, last_only)
        cache.begin()
        num_cached_tokens = cache.seq_len
        try:
            return self._forward(input_ids, cache, positions, last_only)
        except BaseException:  # Ctrl-C too: a pass that gives no logits leaves the cache as it was
            if hasattr(cache, "truncate"):
                cache.truncate(num_cached_tokens)
            raise

    __call__ = forward

    def _forward(self, input_ids: Tensor, cache: Cache | None, positions: Tensor | None, last_only: bool) -> Tensor:
        if positions is None:
            start = 0 if cache is None else cache.seq_len
            positions = torch.arange(start, start + len(input_ids))
        cos, sin = rope_cos_sin(positions.to(self.device), self.rope_frequencies)
        x = F.embedding(input_ids.to(self.device), self.embedding)
        for i, layer in enumerate(self.layers):
            attend = None if cache is None else partial(cache.attend, i)
            x = block(x, layer, cos, sin, self.config, attend)
        if last_only:
            x = x[-1:]
        return lm_head(x, self.final_norm, self.head, self.config.rms_norm_eps)

    @property
    def device(self) -> torch.device:
        return self.embedding.device

    @property
    def dtype(self) -> torch.dtype:
        return self.embedding.dtype

    @property
    def num_parameters(self) -> int:
        """Parameters of the model; a tied embedding counts once."""
        tensors = [self.embedding, self.final_norm]
        tensors += [getattr(layer, field.name) for layer in self.layers for field in fields(layer)]
        if not self.config.tie_word_embeddings:
            tensors.append(self.head)
        return sum(tensor.numel() for tensor in tensors)


def _check_ids(input_ids: Tensor) -> None:
    if input_ids.ndim != 1 or input_ids.dtype not in (torch.int32, torch.int64) or len(input_ids) == 0:
        raise ValueError(
            "input_ids must be a non-empty 1-D integer tensor [T]: one packed sequence, no batch axis; "
            f"got {input_ids.dtype} of shape {list(input_ids.shape)}"
        )


def weight_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """The Hugging Face name and shape of every tensor that a model of this config is made of."""
    hidden, inner = config.hidden_size, config.intermediate_size
    query, key_value = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    layer = {
        "attention_norm": (hidden,),
        "q_proj": (query, hidden),
        "k_proj": (key_value, hidden),
        "v_proj": (key_value, hidden),
        "o_proj": (hidden, query),
        "mlp_norm": (hidden,),
        "gate_proj": (inner, hidden),
        "up_proj": (inner, hidden),
        "down_proj": (hidden, inner),
    }
    shapes = {"model.embed_tokens.weight": (config.vocab_size, hidden), "model.norm.weight": (hidden,)}
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, hidden)
    for i in range(config.num_layers):
        shapes |= {f"model.layers.{i}.{HF_NAMES[name]}": shape for name, shape in layer.items()}
    return shapes


def _check_shapes(config: ModelConfig, weights: Mapping[str, Tensor]) -> None:
    for name, shape in weight_shapes(config).items():
        if name not in weights:
            raise ValueError(f"the checkpoint has no tensor {name!r}")
        if tuple(weights[name].shape) != shape:
            raise ValueError(f"{name} has shape {list(weights[name].shape)}, the config asks for {list(shape)}")
