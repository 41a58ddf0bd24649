"""Answers of chapter 01 as SmolLM2's tokenizer."""

from __future__ import annotations

from course.check.in_model import Trial


def encode(answer, checkpoint):
    tokenizer = checkpoint.tokenizer

    def ids(text: str) -> list[int]:
        return [i for word in tokenizer.split(text) for i in answer(word, tokenizer.vocab)]

    return Trial(encode=ids, note="your ids, word by word, with SmolLM2's own vocabulary")


def decode(answer, checkpoint):
    return Trial(decode=lambda ids: answer(ids, checkpoint.tokenizer.id_to_bytes))


def stream(answer, checkpoint):
    return Trial(decode=lambda ids: "".join(answer(ids, checkpoint.tokenizer.id_to_bytes)))
