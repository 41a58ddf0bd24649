"""Read and write a tokenizer in Hugging Face's `tokenizer.json` format, as far as byte-level BPE goes."""

import json
from pathlib import Path
from typing import Any

from .tokenization import GPT2_SPLIT, SINGLE_DIGITS, Tokenizer, from_printable, regex_splitter


def read_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a checkpoint folder. ValueError for one that is not byte-level BPE."""
    spec = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    model = spec["model"]
    _require(model.get("type", "BPE") == "BPE", f"model type {model.get('type')!r}")
    _require(not model.get("byte_fallback"), "byte fallback")
    _require(spec.get("normalizer") is None, "a normalizer")
    special_tokens = {token["content"]: token["id"] for token in spec.get("added_tokens", [])}
    _require(
        not any(t.get("lstrip") or t.get("rstrip") or t.get("single_word") for t in spec.get("added_tokens", [])),
        "added tokens that strip white space",
    )
    vocab = {from_printable(s): i for s, i in model["vocab"].items() if s not in special_tokens}
    pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"])
    names = _token_names(folder)
    return Tokenizer(
        vocab,
        [(from_printable(left), from_printable(right)) for left, right in pairs],
        special_tokens,
        regex_splitter(*_patterns(spec["pre_tokenizer"])),
        whole_words_first=model.get("ignore_merges", False),
        bos_token_id=special_tokens.get(names.get("bos_token")),
        eos_token_id=special_tokens.get(names.get("eos_token")),
        chat_template=names.get("chat_template"),
    )


def _patterns(pre_tokenizer: dict[str, Any] | None) -> list[str]:
    """The regular expressions that split text into words, in order, of a pre-tokenizer's description."""
    _require(pre_tokenizer is not None, "no pre-tokenizer")
    kind = pre_tokenizer["type"]
    if kind == "Sequence":
        return [pattern for part in pre_tokenizer["pretokenizers"] for pattern in _patterns(part)]
    if kind == "Digits":
        return [SINGLE_DIGITS if pre_tokenizer["individual_digits"] else r"\p{N}+|\P{N}+"]
    if kind == "ByteLevel":
        _require(not pre_tokenizer["add_prefix_space"], "a space put before the text")
        return [GPT2_SPLIT] if pre_tokenizer.get("use_regex", True) else []
    plain_split = kind == "Split" and pre_tokenizer["behavior"] == "Isolated" and not pre_tokenizer["invert"]
    _require(plain_split and "Regex" in pre_tokenizer["pattern"], f"pre-tokenizer {kind!r}")
    return [pre_tokenizer["pattern"]["Regex"]]


def _token_names(folder: Path) -> dict[str, Any]:
    """bos_token, eos_token and chat_template of tokenizer_config.json, where there is one."""
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    for name in ("bos_token", "eos_token"):
        if isinstance(config.get(name), dict):
            config[name] = config[name]["content"]
    return config


def _require(condition: bool, part: str) -> None:
    if not condition:
        raise ValueError(f"tokenizer.json: {part} is not supported, only byte-level BPE is")


def smollm2_tokenizer_files(metadata: dict[str, Any]) -> dict[str, str]:
    """File name -> contents, in Hugging Face's format, from the metadata of SmolLM2's GGUF file.

    GGUF names the split by one word, "smollm": digits one by one, then GPT-2's pattern.
    """
    if metadata["tokenizer.ggml.model"] != "gpt2" or metadata["tokenizer.ggml.pre"] != "smollm":
        raise ValueError("the GGUF file does not hold SmolLM2's tokenizer")
    tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    control = 3  # GGUF's token type of special tokens
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": i, "content": text, **flags, "special": True}
            for i, (text, kind) in enumerate(zip(tokens, kinds))
            if kind == control
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {text: i for i, text in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in metadata["tokenizer.ggml.merges"]],
        },
    }
    names = {
        "bos_token": tokens[metadata["tokenizer.ggml.bos_token_id"]],
        "eos_token": tokens[metadata["tokenizer.ggml.eos_token_id"]],
        "chat_template": metadata["tokenizer.chat_template"],
    }
    return {
        "tokenizer.json": json.dumps(tokenizer, ensure_ascii=False),
        "tokenizer_config.json": json.dumps(names, ensure_ascii=False, indent=2),
    }
