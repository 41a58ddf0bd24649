"""A learner's own function inside the real model: text, logits error against the course's own, tokens per second."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from course.check import judge
from course.specs.exercise import Exercise
from gradeworker.answer import _given_modules, load

MODEL = "smollm2-135m"
NEW_TOKENS = 24

_checkpoint = None


@dataclass(frozen=True)
class Trial:
    """How an answer takes part: a context in which the model uses it, and a function that continues a prompt.

    ``continue_text(checkpoint, prompt, max_tokens)`` -> list of token ids, ``encode(text)`` -> ids and
    ``decode(ids)`` -> text; None means the course's own.
    """

    context: Callable[[], AbstractContextManager] = nullcontext
    continue_text: Callable | None = None
    encode: Callable[[str], list[int]] | None = None
    decode: Callable[[list[int]], str] | None = None
    note: str = ""


def checkpoint():
    """The real model, loaded once a process."""
    global _checkpoint
    if _checkpoint is None:
        from llm_internals.checkpoint import load as load_checkpoint

        _checkpoint = load_checkpoint(MODEL, dtype=torch.float32)
    return _checkpoint


def swap(**functions) -> Callable[[], AbstractContextManager]:
    """A context factory that puts functions in the place of the model's own operations."""
    from llm_internals import ops

    return lambda: ops.use(**functions)


def run(item: Exercise, source: str, prompt: str) -> str:
    """Three lines: what the model says with the answer inside, how far its logits moved, how fast it is.

    One line when the answer does not pass its check yet. Raises ValueError when the exercise has no place in the model.
    """
    if item.in_model is None:
        raise ValueError(f"{item.id} has no place inside the model to be tried in")
    verdict = judge.practice(item, source, diagnose=False)
    if not verdict.passed:
        return f'{item.id} does not pass its check yet: see check("{item.id}")'
    loaded = checkpoint()
    with _given_modules(item.job("", []).modules):
        answer = load(_job(item, source))
        trial = item.in_model(answer, loaded)
        ids = loaded.tokenizer.encode(prompt)
        reference = loaded.model(torch.tensor(ids))
        my_ids = trial.encode(prompt) if trial.encode else ids
        if my_ids != ids:
            return f"{prompt!r} became {my_ids}; SmolLM2's own tokenizer says {ids}"
        with trial.context():
            mine = loaded.model(torch.tensor(my_ids))
            start = time.perf_counter()
            tokens = (trial.continue_text or _own_generator)(loaded, prompt, NEW_TOKENS)
            seconds = time.perf_counter() - start
    error = (mine - reference).abs().max().item()
    lines = [
        f"{prompt}|{(trial.decode or loaded.tokenizer.decode)(tokens)}",
        f"largest change of a logit: {error:.2g} (logits reach {reference.abs().max().item():.0f})",
        f"{len(tokens) / seconds:.1f} tokens/s with your {item.entry}",
    ]
    return "\n".join(lines + ([trial.note] if trial.note else []))


def _job(item: Exercise, source: str):
    job = item.job(source, [])
    job.driver = ""  # the model calls the answer itself
    return job


def _own_generator(loaded, prompt: str, max_tokens: int) -> list[int]:
    from llm_internals.kv_cache import generate_cached

    return list(generate_cached(loaded.model, loaded.tokenizer.encode(prompt), max_tokens))
