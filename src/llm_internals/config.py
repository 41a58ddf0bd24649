"""The numbers that fix a Llama model's shape, read from a Hugging Face `config.json`."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ROPE_KINDS = ("linear", "llama3")
LLAMA3_FIELDS = ("low_freq_factor", "high_freq_factor", "original_max_position_embeddings")


@dataclass(frozen=True)
class RopeScaling:
    """How RoPE's frequencies are stretched for texts longer than the model was first trained on.

    `linear` divides every frequency by `factor`. `llama3` keeps the fast ones, divides the slow ones and
    blends between; the last three fields belong to it alone.
    """

    kind: str
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 8192

    def __post_init__(self) -> None:
        if self.kind not in ROPE_KINDS:
            raise ValueError(f"RoPE scaling {self.kind!r} is not supported; use one of {ROPE_KINDS}")
        for name in ("factor", *LLAMA3_FIELDS):
            if not _is_number(getattr(self, name)):
                raise ValueError(f"RoPE scaling needs a number as {name}, got {getattr(self, name)!r}")
        if self.factor < 1:
            raise ValueError(f"RoPE scaling factor must be at least 1, got {self.factor}")
        if self.original_max_position_embeddings <= 0:
            raise ValueError(
                f"original_max_position_embeddings must be positive, got {self.original_max_position_embeddings}"
            )
        if self.kind == "llama3" and not 0 < self.low_freq_factor < self.high_freq_factor:
            raise ValueError(
                "llama3 RoPE scaling needs 0 < low_freq_factor < high_freq_factor, "
                f"got {self.low_freq_factor} and {self.high_freq_factor}"
            )


@dataclass(frozen=True)
class ModelConfig:
    """Shape of a Llama model. `num_heads` query heads share `num_kv_heads` key/value heads, in groups."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    rms_norm_eps: float = 1e-5
    max_position_embeddings: int = 2048
    tie_word_embeddings: bool = False
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        sizes = ("vocab_size", "hidden_size", "intermediate_size", "num_layers", "num_heads", "num_kv_heads",
                 "head_dim", "max_position_embeddings")  # fmt: skip
        for name in sizes:
            value = getattr(self, name)
            if not _is_count(value) or value < 1:
                raise ValueError(f"{name} must be a positive integer, got {value!r}")
        if self.num_heads % self.num_kv_heads:
            raise ValueError(f"num_heads ({self.num_heads}) must be a multiple of num_kv_heads ({self.num_kv_heads})")
        if self.head_dim % 2:
            raise ValueError(f"head_dim must be even, since RoPE rotates pairs; got {self.head_dim}")
        for name in ("rope_theta", "rms_norm_eps"):
            value = getattr(self, name)
            if not _is_number(value) or value <= 0:
                raise ValueError(f"{name} must be positive, got {value!r}")
        if not isinstance(self.tie_word_embeddings, bool):
            raise ValueError(f"tie_word_embeddings must be true or false, got {self.tie_word_embeddings!r}")
        for token_id in (*self.eos_token_ids, *([] if self.bos_token_id is None else [self.bos_token_id])):
            if not _is_count(token_id):
                raise ValueError(f"bos_token_id and eos_token_id must be token ids, got {token_id!r}")

    @property
    def group_size(self) -> int:
        """Query heads per key/value head."""
        return self.num_heads // self.num_kv_heads

    @classmethod
    def from_hf(cls, hf: Mapping[str, Any]) -> "ModelConfig":
        """Read the contents of a Hugging Face `config.json`; ValueError if it is not a plain Llama."""
        if not isinstance(hf, Mapping):
            raise ValueError(f"a model config is a JSON object, {{...}}, not {hf!r:.40}")
        _require_plain_llama(hf)
        try:
            hidden_size, num_heads = hf["hidden_size"], hf["num_attention_heads"]
            theta, scaling = _rope(hf)
            return cls(
                vocab_size=hf["vocab_size"],
                hidden_size=hidden_size,
                intermediate_size=hf["intermediate_size"],
                num_layers=hf["num_hidden_layers"],
                num_heads=num_heads,
                num_kv_heads=hf.get("num_key_value_heads") or num_heads,
                head_dim=hf.get("head_dim") or _share(hidden_size, num_heads),
                rope_theta=theta,
                rope_scaling=scaling,
                rms_norm_eps=hf.get("rms_norm_eps", 1e-6),
                max_position_embeddings=hf.get("max_position_embeddings", 2048),
                tie_word_embeddings=hf.get("tie_word_embeddings", False),
                bos_token_id=hf.get("bos_token_id"),
                eos_token_ids=as_token_ids(hf.get("eos_token_id")),
            )
        except KeyError as missing:
            raise ValueError(f"the model config has no {missing.args[0]!r}") from None


def _require_plain_llama(hf: Mapping[str, Any]) -> None:
    """Refuse what this library would silently compute wrongly."""
    required = {
        "model_type": "llama",
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "partial_rotary_factor": 1.0,
        "quantization_config": None,
    }
    for name, supported in required.items():
        if hf.get(name, supported) != supported:
            raise ValueError(f"this library supports {name} = {supported!r} only, got {hf[name]!r}")


def _rope(hf: Mapping[str, Any]) -> tuple[float, RopeScaling | None]:
    """RoPE's base and scaling: under `rope_parameters` since transformers 5, two separate keys before.

    Where both are given, `rope_scaling` replaces `rope_parameters` whole, base and all, as in transformers.
    """
    rope = hf.get("rope_scaling") or hf.get("rope_parameters") or {}
    if not isinstance(rope, Mapping):
        raise ValueError(f"rope_scaling and rope_parameters are JSON objects, {{...}}, not {rope!r:.40}")
    theta = rope.get("rope_theta", hf.get("rope_theta", 10_000.0))
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return theta, None
    if kind not in ROPE_KINDS:
        raise ValueError(f"RoPE scaling {kind!r} is not supported; use one of {ROPE_KINDS}")
    names = ("factor", *LLAMA3_FIELDS) if kind == "llama3" else ("factor",)
    return theta, RopeScaling(kind, **{name: rope[name] for name in names})


def as_token_ids(token_ids: int | list[int] | None) -> tuple[int, ...]:
    """Hugging Face writes one id, several, or null."""
    if token_ids is None:
        return ()
    return tuple(token_ids) if isinstance(token_ids, list) else (token_ids,)


def _share(hidden_size: Any, num_heads: Any) -> int:
    """What each head gets of the hidden state, where the config does not say it."""
    if not _is_count(hidden_size) or not _is_count(num_heads) or num_heads == 0:
        raise ValueError(f"hidden_size and num_heads must be positive integers, got {hidden_size!r} and {num_heads!r}")
    return hidden_size // num_heads


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
