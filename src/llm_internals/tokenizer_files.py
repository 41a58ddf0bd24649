"""Read and write a tokenizer in Hugging Face's `tokenizer.json` format, as far as byte-level BPE goes."""

import json
from pathlib import Path
from typing import Any

from .tokenization import GPT2_SPLIT, SINGLE_DIGITS, Tokenizer, from_printable, regex_splitter

NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


def read_tokenizer(folder: Path, num_ids: int = 0) -> Tokenizer:
    """The tokenizer of a checkpoint folder. ValueError for one that is not byte-level BPE.

    num_ids: rows of the model's embedding; ids past the tokens that the folder lists have no text.
    """
    spec = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    model = spec["model"]
    _require(model.get("type", "BPE") == "BPE", f"model type {model.get('type')!r}")
    _require(not model.get("byte_fallback"), "byte fallback")
    _require(spec.get("normalizer") is None, "a normalizer")
    added = spec.get("added_tokens", [])
    _require(
        not any(t.get("lstrip") or t.get("rstrip") or t.get("single_word") for t in added),
        "added tokens that strip white space",
    )
    cut_out = {token["content"]: token["id"] for token in added}
    special_tokens = {token["content"]: token["id"] for token in added if token.get("special", True)}
    vocab = {from_printable(s): i for s, i in model["vocab"].items() if s not in cut_out}
    prefix_ids, suffix_ids = _surroundings(spec.get("post_processor"))
    pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"])
    names = _token_names(folder)
    return Tokenizer(
        vocab,
        [(from_printable(left), from_printable(right)) for left, right in pairs],
        special_tokens,
        regex_splitter(*_patterns(spec["pre_tokenizer"])),
        added_tokens={text: i for text, i in cut_out.items() if text not in special_tokens},
        whole_words_first=model.get("ignore_merges", False),
        prefix_ids=prefix_ids,
        suffix_ids=suffix_ids,
        bos_token_id=cut_out.get(names.get("bos_token")),
        eos_token_id=cut_out.get(names.get("eos_token")),
        chat_template=_chat_template(folder, names),
        template_names={name: names[name] for name in NAMED_TOKENS if isinstance(names.get(name), str)},
        num_ids=num_ids,
    )


def _surroundings(post_processor: dict[str, Any] | None) -> tuple[list[int], list[int]]:
    """The ids that a post-processor puts before a text and after it. ValueError for a kind not known here."""
    if post_processor is None or post_processor["type"] == "ByteLevel":  # the latter mends offsets, not ids
        return [], []
    if post_processor["type"] == "Sequence":
        before, after = [], []
        for part in post_processor["processors"]:  # each later one goes round what the earlier made
            first, last = _surroundings(part)
            before, after = first + before, after + last
        return before, after
    _require(post_processor["type"] == "TemplateProcessing", f"post-processor {post_processor['type']!r}")
    parts = post_processor["single"]
    texts = [i for i, part in enumerate(parts) if "Sequence" in part]
    _require(len(texts) == 1, "a template that does not hold the text once")
    sides = ([], [])
    for i, part in enumerate(parts):
        if i != texts[0]:
            sides[i > texts[0]].extend(post_processor["special_tokens"][part["SpecialToken"]["id"]]["ids"])
    return sides


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


def _chat_template(folder: Path, names: dict[str, Any]) -> str | None:
    """The folder's chat template: a file of its own, or tokenizer_config.json's; of several, the default."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    template = names.get("chat_template")
    if isinstance(template, list):
        template = {entry["name"]: entry["template"] for entry in template}.get("default")
    return template


def _token_names(folder: Path) -> dict[str, Any]:
    """What tokenizer_config.json holds, where there is one, with its named tokens as texts."""
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if not isinstance(config, dict):
        raise ValueError("tokenizer_config.json is no JSON object")
    for name in NAMED_TOKENS:
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
