"""How an answer takes part in the real model: one module a chapter, one function an exercise, called as its short id.

    function(answer, checkpoint) -> Trial

An exercise whose spec says ``in_model=True`` has one here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from course.specs import exercise
from course.specs.exercise import Exercise

NEW_TOKENS = 24


@dataclass(frozen=True)
class Trial:
    """How an answer takes part in the real model.

    context: inside it the model uses the answer (see :func:`swap`).
    continue_text: ``(checkpoint, prompt, max_tokens)`` -> list of token ids; None is the course's own generator.
    logits: ``(token_ids [T])`` -> logits [T, vocab_size] by the answer, where it does the forward pass itself.
    encode, decode: ``(text)`` -> ids and ``(ids)`` -> text; None is SmolLM2's own tokenizer.
    note: a last line, or a function that makes it once the text is written.
    new_tokens: how many tokens are written; few where the answer is a kernel, which the interpreter runs slowly.
    own: ``(checkpoint, prompt, max_tokens)``: the course's own code that the answer is timed beside; None is the
        generator with a cache. ``compared`` says which it is.
    """

    context: Callable[[], AbstractContextManager] = nullcontext
    continue_text: Callable | None = None
    logits: Callable | None = None
    encode: Callable[[str], list[int]] | None = None
    decode: Callable[[list[int]], str] | None = None
    note: str | Callable[[], str] = ""
    new_tokens: int = NEW_TOKENS
    own: Callable | None = None
    compared: str = "with the course's own code"


def of(exercise_id: str) -> Callable:
    """The function of an exercise. Raises ValueError when it has no place in the model."""
    stem, _, name = exercise_id.partition(".")
    try:
        return getattr(importlib.import_module(f"{__name__}.{stem}"), name)
    except (ModuleNotFoundError, AttributeError):
        raise ValueError(f"{exercise_id} has no place inside the model to be tried in") from None


def swap(**functions) -> Callable[[], AbstractContextManager]:
    """A context factory that puts functions in the place of the model's own operations."""
    from llm_internals import ops

    return lambda: ops.use(**functions)


def launched(exercise_id: str, kernel) -> Callable:
    """A kernel with the launch of its exercise, under kernelcheck: no address of it is ever real."""
    import kernelcheck

    kernelcheck.install()
    drive = load_driver(exercise(exercise_id))

    def call(*args):
        with kernelcheck.checked(record=False):
            return drive(kernel, *args)

    return call


def load_driver(item: Exercise) -> Callable:
    """``drive`` of an exercise, out of the source that travels with a job: a student edition has no other."""
    namespace: dict = {}
    exec(compile(f"{item.prelude}\n{item.driver}", "<driver>", "exec"), namespace)
    return namespace["drive"]
