"""A learner's own function inside the real model: text, logits error against the course's own, tokens per second."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from contextlib import nullcontext

import torch

from course.check import child, in_model
from course.check.in_model import Trial
from course.judging import judge
from course.specs.exercise import Exercise
from gradeworker.answer import given_modules, load

MODEL = "smollm2-135m"

_checkpoint = None


def checkpoint():
    """The real model, loaded once a process."""
    global _checkpoint
    if _checkpoint is None:
        from llm_internals.checkpoint import load as load_checkpoint

        _checkpoint = load_checkpoint(MODEL, dtype=torch.float32)
    return _checkpoint


def run(item: Exercise, source: str, prompt: str) -> str:
    """What the model says with the answer inside, how that compares with the course's own code, how fast it is.

    One line when the answer does not pass its check yet. Raises ValueError when the exercise has no place in the model.
    """
    if not item.in_model:
        raise ValueError(f"{item.id} has no place inside the model to be tried in")
    kernel = item.track == "kernel"
    if kernel and importlib.util.find_spec("triton") is None:
        return child.NO_TRITON
    verdict = child.practice(item, source) if kernel else judge.practice(item, source, diagnose=False)
    if not verdict.passed:
        return f'{item.id} does not pass its check yet: see check("{item.id}")'
    loaded = checkpoint()
    ids = torch.tensor(loaded.tokenizer.encode(prompt))
    reference = loaded.model(ids)
    with given_modules(item.job("", []).modules):
        trial = in_model.of(item.id)(load(_job(item, source)), loaded)
        own, own_seconds = _timed(trial.own or _own_generator, loaded, prompt, trial.new_tokens)
        my_ids = trial.encode(prompt) if trial.encode else ids.tolist()
        if my_ids != ids.tolist():
            return f"{prompt!r} became {my_ids}; SmolLM2's own tokenizer says {ids.tolist()}"
        with torch.no_grad(), trial.context():
            tokens, seconds = _timed(trial.continue_text or _own_generator, loaded, prompt, trial.new_tokens)
            moved = _logits_line(trial, loaded, ids, reference)
    note = trial.note() if callable(trial.note) else trial.note
    speed = f"{len(tokens) / seconds:.1f} tokens/s with your {item.entry}"
    lines = [f"{prompt}|{(trial.decode or loaded.tokenizer.decode)(tokens)}", _tokens_line(list(tokens), own), moved,
             f"{speed}, {len(own) / own_seconds:.1f} {trial.compared}", note]
    return "\n".join(line for line in lines if line)


def _timed(generate: Callable, loaded, prompt: str, new_tokens: int) -> tuple[list[int], float]:
    start = time.perf_counter()
    tokens = generate(loaded, prompt, new_tokens)
    return tokens, time.perf_counter() - start


def _tokens_line(mine: list[int], own: list[int]) -> str:
    """Are these the tokens that the course's own code writes?"""
    if mine == own:
        return f"all {len(own)} tokens are those of the course's own code"
    same = next((i for i, pair in enumerate(zip(mine, own)) if pair[0] != pair[1]), min(len(mine), len(own)))
    return f"the first {same} tokens are those of the course's own code, then they part"


def _logits_line(trial: Trial, loaded, ids: torch.Tensor, reference: torch.Tensor) -> str:
    """How far the answer moves the logits; empty when it takes no part in a pass. Call it inside the context."""
    if trial.logits is None and trial.context is nullcontext:
        return ""
    mine = trial.logits(ids) if trial.logits else loaded.model(ids)
    error = (mine - reference).abs().max().item()
    return f"largest change of a logit: {error:.2g} (logits reach {reference.abs().max().item():.0f})"


def _job(item: Exercise, source: str):
    job = item.job(source, [])
    job.driver = ""  # the model calls the answer itself
    return job


def _own_generator(loaded, prompt: str, max_tokens: int) -> list[int]:
    from llm_internals.kv_cache import generate_cached

    return list(generate_cached(loaded.model, loaded.tokenizer.encode(prompt), max_tokens))
