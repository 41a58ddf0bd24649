"""Four real vocabularies as small scripts, so that a page can tokenize what a reader types, offline.

The scripts are made when the book is built, from the packages that hold the vocabularies; none is in the repository.
Each sets ``CourseVocabularies.NAME``: the pattern that splits text into words and the tokens or merges, packed.
A test compares what the page does with what the packages do.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

# White_Space is what `\\s` means in these tokenizers; JavaScript's own `\\s` differs.
S, NOT_S = r"\p{White_Space}", r"\P{White_Space}"
SUFFIX = r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])"
TAIL = rf"{S}*[\r\n]+|{S}+(?!{NOT_S})|{S}+"
CL100K = rf"{SUFFIX}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^{S}\p{{L}}\p{{N}}]+[\r\n]*|{TAIL}"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+(?:{SUFFIX})?|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*(?:{SUFFIX})?"
    rf"|\p{{N}}{{1,3}}| ?[^{S}\p{{L}}\p{{N}}]+[\r\n/]*|{TAIL}"
)
QWEN3 = CL100K.replace(r"\p{N}{1,3}", r"\p{N}", 1)
GPT2 = rf"'s|'t|'re|'ve|'m|'ll|'d| ?\p{{L}}+| ?\p{{N}}+| ?[^{S}\p{{L}}\p{{N}}]+|{S}+(?!{NOT_S})|{S}+"

# name -> (what the reader sees, splits applied one after another, NFC first)
VOCABULARIES = {
    "smollm2": ("SmolLM2", [r"\p{N}|\P{N}+", GPT2], False),
    "cl100k": ("cl100k (GPT-4)", [CL100K], False),
    "o200k": ("o200k (GPT-4o)", [O200K], False),
    "qwen3": ("Qwen3", [QWEN3], True),
}


def describe() -> list[dict]:
    """What the page needs to know before it loads a vocabulary."""
    return [{"id": name, "label": label} for name, (label, _, _) in VOCABULARIES.items()]


def write(folder: Path) -> None:
    """Write one script for each vocabulary below ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (_, splits, nfc) in VOCABULARIES.items():
        tokens, merges = _smollm2() if name == "smollm2" else (_tokens(name), None)
        data = {"split": splits, "nfc": nfc, "sizes": _packed_sizes(tokens), "bytes": _base64(b"".join(tokens))}
        if merges is not None:
            data["merges"] = _base64(b"".join(left.to_bytes(2, "little") + right.to_bytes(2, "little")
                                              for left, right in merges))
        text = json.dumps(data, separators=(",", ":"))
        script = f"(window.CourseVocabularies ??= {{}}).{name} = {text};\n"
        (folder / f"{name}.js").write_text(script, encoding="utf-8")


def _tokens(name: str) -> list[bytes]:
    """All ordinary tokens by id; b"" where there is none."""
    import quicktok

    names = {"cl100k": "cl100k_base", "o200k": "o200k_base"}
    encoding = quicktok.get_encoding(names.get(name, name))
    tokens = []
    for i in range(encoding.max_token_value + 1):
        try:
            tokens.append(b"" if encoding.is_special_token(i) else encoding.decode_single_token_bytes(i))
        except Exception:  # a gap in the numbering
            tokens.append(b"")
    while tokens and not tokens[-1]:
        tokens.pop()
    return tokens


def _smollm2() -> tuple[list[bytes], list[tuple[int, int]]]:
    """SmolLM2's tokens by id and its merges as pairs of ids, in order: its pairs, not the joined bytes, have ranks."""
    from llm_internals.preparation import prepare_smollm2
    from llm_internals.tokenizer_files import read_tokenizer

    tokenizer = read_tokenizer(prepare_smollm2())
    tokens = [b""] * tokenizer.vocab_size
    for piece, i in tokenizer.vocab.items():
        tokens[i] = piece
    return tokens, [(tokenizer.vocab[left], tokenizer.vocab[right]) for left, right in tokenizer.ranks]


def _packed_sizes(tokens: list[bytes]) -> str:
    longest = max(map(len, tokens))
    if longest > 255:
        raise ValueError(f"a token has {longest} bytes; the page's format allows 255")
    return _base64(bytes(map(len, tokens)))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
