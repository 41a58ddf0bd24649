"""What the exercises of chapter 04 share: small random models, and prompts whose continuation no rounding changes."""

from __future__ import annotations

from course.given.kv_cache import tiny_llama
from course.specs.exercise import PRELUDE, Build, Draw

PAGE = "04_kv_cache.html"
GIVEN = "course.given.kv_cache"
WITH_MODELS = f"{PRELUDE}from {GIVEN} import GrowingCache, cached_llama, tiny_llama\n"
SURE = 0.01  # a gap between the two largest logits that no rounding of fp32 bridges


def build(seed: int, name: str = "tiny_llama", **more) -> Build:
    """A model of the given module, made where the answer runs."""
    return Build(GIVEN, name, {"seed": seed, "dtype": "float32", **more})


def continued(model, token_ids, max_new_tokens) -> tuple[list[int], float]:
    """Greedy tokens by the whole sequence each time, and the smallest gap between the two largest logits."""
    whole, gap = list(token_ids), float("inf")
    for _ in range(max_new_tokens):
        best = model(whole)[-1].topk(2)
        gap = min(gap, (best.values[0] - best.values[1]).item())
        whole.append(int(best.indices[0]))
    return whole[len(token_ids) :], gap


def prompt(draw: Draw, length: int, max_new_tokens: int, first: int | None = None) -> tuple[int, list[int]]:
    """Seed of a model and a prompt whose greedy continuation is varied, and the same in every precision.

    ``first``: the first token of the continuation. ``length`` is then the most that the prompt may have.
    """
    while True:
        seed, token_ids = draw.int(0, 9999), draw.ints(0, 61, length).tolist()
        model = tiny_llama(seed, "float64")
        if first is not None:  # one pass shows what follows each beginning of the prompt
            ends = (model(token_ids).argmax(dim=-1) == first).nonzero()
            if not len(ends):
                continue
            token_ids = token_ids[: int(ends[0]) + 1]
        tokens, gap = continued(model, token_ids, max_new_tokens)
        if gap > SURE and len(set(tokens)) > min(2, max_new_tokens - 1):
            return seed, token_ids
