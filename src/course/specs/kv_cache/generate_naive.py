"""Generate without a cache, and count."""

from __future__ import annotations

import torch

from course.specs.exercise import Case, Draw, Exercise
from course.specs.kv_cache.shared import PAGE, WITH_MODELS, build, continued, prompt


def drive(generate_naive, model, token_ids, max_new_tokens):
    """What the answer returns, and how many tokens it gave to each forward pass; counted where no answer can write."""
    passes = []

    class Counted(type(model)):
        def __call__(self, token_ids):
            passes.append(len(token_ids))
            return super().__call__(token_ids)

    model.__class__ = Counted
    result = generate_naive(model, token_ids, max_new_tokens)
    return {"returned": result, "tokens given to each pass": passes}


def reference(model, token_ids, max_new_tokens):
    lengths = range(len(token_ids), len(token_ids) + max_new_tokens)
    counters = {
        "forward_calls": max_new_tokens,
        "rows_projected": sum(lengths),
        "score_pairs_masked": sum(length**2 for length in lengths),
    }
    tokens = continued(model, token_ids, max_new_tokens)[0]
    return {"returned": (tokens, counters), "tokens given to each pass": list(lengths)}


def cases(draw: Draw) -> list[Case]:
    made = []
    for length, new, label in (
        (draw.choice([5, 7]), 6, "a prompt of several tokens"),
        (1, draw.choice([7, 9]), "a prompt of one token"),
        (draw.choice([3, 11]), 1, "one new token"),
    ):
        seed, token_ids = prompt(draw, length, new)
        made.append(Case((build(seed), token_ids, new), label=label))
    for end in (0, 2):
        seed, token_ids = prompt(draw, 9, 6, first=end)
        made.append(Case((build(seed), token_ids, 6), label=f"a continuation that begins with token {end}"))
    return [*made, Case((build(draw.int(0, 9999)), draw.ints(0, 61, 3).tolist(), 0), label="no new tokens")]


GENERATE_NAIVE = Exercise(
    id="kv_cache.generate_naive",
    title="Generate without a cache, and count",
    signature="generate_naive(model, token_ids, max_new_tokens)",
    reference=reference,
    cases=cases,
    drive=drive,
    hints=(
        "Keep one list of all tokens, a copy of the prompt. Each turn: run the model on it, choose, append.",
        "The last row of the logits scores the next token: model(whole)[-1].argmax(). Count before you append: "
        "a pass over n tokens projects n rows and computes n * n scores.",
        "whole = list(token_ids); each turn: n = len(whole); calls += 1; rows += n; pairs += n * n; "
        "whole.append(int(model(whole)[-1].argmax())); at the end return whole[len(token_ids):] and the counters",
    ),
    section=f"{PAGE}#without-a-cache",
    points=2,
    core=True,
    difficulty=1,
    minutes=15,
    given=("kv_cache",),
    prelude=WITH_MODELS,
    in_model=True,
)

GENERATE_NAIVE.near_miss(
    "it counts calls where it should count rows",
    {'["rows_projected"] += len(whole)': '["rows_projected"] += 1'},
    says="One call over n tokens projects n rows: add len(whole) each turn, not 1. That is the whole difference "
    "between 200 and 20,100.",
)

GENERATE_NAIVE.near_miss(
    "it counts after it has appended",
    {
        "logits = model(whole)\n": "whole.append(int(model(whole)[-1].argmax()))\n",
        "\nwhole.append(int(logits[-1].argmax()))": "",
    },
    says="The pass that chooses token n has seen n tokens, not n + 1: count before you append the new one.",
)

GENERATE_NAIVE.near_miss(
    "it counts only the scores that the mask keeps",
    {"len(whole) ** 2": "len(whole) * (len(whole) + 1) // 2"},
    says="score_pairs_masked is the whole n x n rectangle, masked squares included: n * n for a pass over n tokens. "
    "n * (n + 1) / 2 is the other counter, score_pairs_causal.",
    section=f"{PAGE}#what-it-costs-in-all",
)

GENERATE_NAIVE.near_miss(
    "it reads the first row of the logits",
    {"logits[-1]": "logits[0]"},
    says="Row i scores the token after token i, so the next token is in the last row: logits[-1].",
)


@GENERATE_NAIVE.near_miss(
    "it runs only the newest token through the model",
    says="This model keeps nothing between calls: a token that is not in the list does not exist for it. Give it "
    "the whole sequence every time. That it must be so is the reason for a cache.",
)
def generate_naive(model, token_ids, max_new_tokens):
    new, given, calls, rows, pairs = [], list(token_ids), 0, 0, 0
    for _ in range(max_new_tokens):
        n = len(given)
        calls, rows, pairs = calls + 1, rows + n, pairs + n * n
        new.append(int(model(given)[-1].argmax()))
        given = new[-1:]
    counters = {"forward_calls": calls, "rows_projected": rows, "score_pairs_masked": pairs}
    return new, counters


GENERATE_NAIVE.near_miss(
    "it writes into the caller's prompt",
    {
        "whole = list(token_ids)": "whole, start = token_ids, len(token_ids)",
        "whole[len(token_ids) :]": "whole[start:]",
    },
    says="append on token_ids itself changes the caller's list. Start from a copy: whole = list(token_ids).",
)

GENERATE_NAIVE.near_miss(
    "it returns the prompt as well",
    {"return whole[len(token_ids) :]": "return whole"},
    says="Return the new tokens only: whole[len(token_ids):].",
)

GENERATE_NAIVE.near_miss(
    "it runs the model twice for each token",
    {"int(logits[-1].argmax())": "int(model(whole)[-1].argmax())"},
    says="Keep the logits of the one pass in a name and use them. Every further model(...) is a pass that was made "
    "and not counted.",
)

GENERATE_NAIVE.near_miss(
    "one pass too many",
    {"return whole": "model(whole)\nreturn whole"},
    says="The token you choose last need not go through the model: nobody asks what follows it. n new tokens take n "
    "passes, and with max_new_tokens=0 there is none.",
)

GENERATE_NAIVE.near_miss(
    "the row of the prompt's last token is read every time",
    {"logits[-1]": "logits[len(token_ids) - 1]"},
    says="After the first new token the last row is another one: logits[-1], not logits[len(token_ids) - 1].",
)

GENERATE_NAIVE.near_miss(
    "the new tokens are tensors",
    {"int(logits[-1].argmax())": "logits[-1].argmax()"},
    says="argmax() gives a tensor: int(...) or .item() makes the int that is asked for.",
)

GENERATE_NAIVE.near_miss(
    "it stops at token 0",
    {
        "whole.append(int(logits[-1].argmax()))":
            "whole.append(int(logits[-1].argmax()))\n"
            "if whole[-1] == 0:\n"
            "    break",
    },
    says="This model has no end-of-sequence token: 0 is a token like any other, and max_new_tokens are asked for. Where to "
    "stop is another function's business.",
)

GENERATE_NAIVE.near_miss(
    "it stops before token 0",
    {"whole.append(int": "if logits[-1].argmax() == 0:\n    break\nwhole.append(int"},
    says="This model has no end-of-sequence token: 0 is a token like any other, and max_new_tokens are asked for. Where to "
    "stop is another function's business.",
)


@GENERATE_NAIVE.alternate("with tensors, counted afterwards in closed form")
def generate_naive(model, token_ids, max_new_tokens):
    whole = torch.tensor(token_ids)
    for _ in range(max_new_tokens):
        whole = torch.cat([whole, model(whole)[-1:].argmax(dim=-1)])
    first, last = len(token_ids), len(whole) - 1

    def squares(n):
        return n * (n + 1) * (2 * n + 1) // 6

    counters = {
        "forward_calls": max_new_tokens,
        "rows_projected": (first + last) * max_new_tokens // 2,
        "score_pairs_masked": squares(last) - squares(first - 1),
    }
    return whole[first:].tolist(), counters
