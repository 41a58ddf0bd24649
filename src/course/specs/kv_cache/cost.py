"""The counters of both generators in closed form."""

from __future__ import annotations

from course.specs.exercise import Case, Draw, Exercise
from course.specs.kv_cache.shared import PAGE, WITH_MODELS


def reference(num_prompt_tokens, max_new_tokens):
    naive_rows = naive_pairs = cached_rows = cached_pairs = 0
    for step in range(max_new_tokens):
        length = num_prompt_tokens + step
        new = length if step == 0 else 1
        naive_rows, naive_pairs = naive_rows + length, naive_pairs + length**2
        cached_rows, cached_pairs = cached_rows + new, cached_pairs + new * length
    return {
        "naive": {"rows_projected": naive_rows, "score_pairs_masked": naive_pairs},
        "cached": {"rows_projected": cached_rows, "score_pairs_masked": cached_pairs},
    }


def cases(draw: Draw) -> list[Case]:
    return [
        Case((1, 200), label="one token of prompt, 200 new ones"),
        Case((draw.int(3, 9), draw.int(11, 99)), label="a short prompt"),
        Case((draw.int(1000, 4000), draw.int(3, 20)), label="a long prompt"),
        Case((draw.int(2, 9), 1), label="one new token"),
        Case((5, 0), label="no new tokens, no pass"),
        Case((draw.int(1_000_000, 1_300_000), draw.int(3, 20)), label="a prompt of a million: exact, not rounded"),
    ]


COST = Exercise(
    id="kv_cache.cost",
    title="The cost in closed form",
    signature="cost(num_prompt_tokens, max_new_tokens)",
    reference=reference,
    cases=cases,
    hints=(
        "Write P for the prompt and N for the new tokens. Without a cache the passes take P, P + 1, ..., P + N - 1 "
        "tokens; with one, P, 1, 1, ..., 1.",
        "Sums: 1 + 2 + ... + n = n (n + 1) / 2 and 1 + 4 + ... + n^2 = n (n + 1) (2n + 1) / 6. A sum that starts at P "
        "is the sum to its end minus the sum to P - 1.",
        "naive rows N * P + N (N - 1) / 2; naive pairs S(P + N - 1) - S(P - 1) with S the sum of squares; cached rows "
        "P + N - 1; cached pairs P^2 + (N - 1) * P + N (N - 1) / 2. With N = 0 all four are 0.",
    ),
    section=f"{PAGE}#what-it-costs-in-all",
    points=2,
    difficulty=2,
    minutes=15,
    given=("kv_cache",),
    prelude=WITH_MODELS,
)

COST.near_miss(
    "score pairs of one pass only",
    {"squares(p + n - 1) - squares(p - 1)": "(p + n - 1) ** 2 if n else 0"},
    says="n * n is one pass over n tokens. Without a cache there is such a pass for every new token, each one "
    "longer: sum the squares.",
)

COST.near_miss(
    "the prompt is left out",
    {"p, n = num_prompt_tokens,": "p, n = 1,"},
    says="The first pass takes the whole prompt: P rows and P * P scores. From a one-token prompt the formulas look "
    "the same, from a long one they do not.",
)

COST.near_miss(
    "one step too many",
    {"p, n = num_prompt_tokens, max_new_tokens": "p, n = num_prompt_tokens, max_new_tokens + 1"},
    says="N new tokens take N passes, and the prompt's own pass gives the first of them: P, P + 1, ..., P + N - 1. "
    "The token chosen last is never fed.",
)

COST.near_miss(
    "with a cache, scores are taken to be linear",
    {"p * p + (n - 1) * p + n * (n - 1) // 2": "p + n - 1"},
    says="A cached step projects one row, and scores it against all keys so far: step by step P + 1, P + 2, ... "
    "pairs. Their sum grows with the square of the length.",
)

COST.near_miss(
    "masked squares are left out",
    {
        "squares(p + n - 1) - squares(p - 1)": "sum(x * (x + 1) // 2 for x in range(p, p + n))",
        "p * p +": "p * (p + 1) // 2 +",
    },
    says="score_pairs_masked counts the whole rectangle of a pass, P * P for the prompt, masked squares included.",
)


@COST.near_miss(
    "it divides with /",
    says="/ gives a float, and beyond 2^53 floats skip whole numbers. Divide with //: n (n + 1) is always even.",
)
def cost(num_prompt_tokens, max_new_tokens):
    p, n = num_prompt_tokens, max_new_tokens

    def squares(x):
        return x * (x + 1) * (2 * x + 1) / 6

    return {
        "naive": {"rows_projected": n * p + n * (n - 1) / 2, "score_pairs_masked": squares(p + n - 1) - squares(p - 1)},
        "cached": {
            "rows_projected": p + n - 1 if n else 0,
            "score_pairs_masked": p * p + (n - 1) * p + n * (n - 1) / 2 if n else 0,
        },
    }


@COST.alternate("summed step by step")
def cost(num_prompt_tokens, max_new_tokens):
    naive = {"rows_projected": 0, "score_pairs_masked": 0}
    cached = dict(naive)
    held = 0
    for length in range(num_prompt_tokens, num_prompt_tokens + max_new_tokens):
        naive["rows_projected"] += length
        naive["score_pairs_masked"] += length * length
        cached["rows_projected"] += length - held
        cached["score_pairs_masked"] += (length - held) * length
        held = length
    return {"naive": naive, "cached": cached}
