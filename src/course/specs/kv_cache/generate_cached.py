"""Generate with a cache: the loop around the forward pass."""

from __future__ import annotations

import torch

from course.specs.exercise import Case, Draw, Exercise
from course.specs.kv_cache.shared import PAGE, WITH_MODELS, build, continued, prompt


def drive(generate_cached, model, token_ids, max_new_tokens):
    """The new tokens, and how many tokens the answer gave to each forward pass; counted where no answer can write."""
    passes = []

    class Counted(type(model)):
        def __call__(self, token_ids, cache):
            token_ids = list(token_ids)
            logits = super().__call__(token_ids, cache)
            passes.append(len(token_ids))
            return logits

    model.__class__ = Counted
    tokens = generate_cached(model, token_ids, max_new_tokens)
    tokens = list(tokens) if hasattr(tokens, "__next__") else tokens
    return {"returned": tokens, "tokens given to each pass": passes}


def reference(model, token_ids, max_new_tokens):
    whole = model._model  # without its cache: whole sequences, every time
    tokens = continued(whole, token_ids, max_new_tokens)[0]
    passes = [len(token_ids)] + [1] * (max_new_tokens - 1) if max_new_tokens else []
    return {"returned": tokens, "tokens given to each pass": passes}


def cases(draw: Draw) -> list[Case]:
    made = []
    for length, new, label in (
        (draw.choice([5, 7]), 6, "a prompt of several tokens"),
        (1, draw.choice([6, 8]), "a prompt of one token"),
        (draw.choice([3, 9]), 1, "one new token: the prompt's pass is enough"),
        (4, 3, "three new tokens"),
    ):
        seed, token_ids = prompt(draw, length, new)
        made.append(Case((build(seed, "cached_llama"), token_ids, new), label=label))
    for end in (0, 2):
        seed, token_ids = prompt(draw, 9, 6, first=end)
        label = f"a continuation that begins with token {end}"
        made.append(Case((build(seed, "cached_llama"), token_ids, 6), label=label))
    length = draw.int(129, 150)
    seed, token_ids = prompt(draw, length, 3)
    made.append(Case((build(seed, "cached_llama"), token_ids, 3), label=f"a prompt of {length} tokens"))
    model = build(draw.int(0, 9999), "cached_llama")
    return [*made, Case((model, draw.ints(0, 61, 4).tolist(), 0), label="no new tokens: no pass")]


GENERATE_CACHED = Exercise(
    id="kv_cache.generate_cached",
    title="Generate with a cache",
    signature="generate_cached(model, token_ids, max_new_tokens)",
    reference=reference,
    cases=cases,
    drive=drive,
    hints=(
        "One pass takes the prompt, every later one the token that was chosen last. What you feed changes, the cache "
        "stays the same object.",
        "new = token_ids at first, then [token]. The token you choose last is never fed: nobody asks for what follows.",
        "cache = model.new_cache(len(token_ids) + max_new_tokens); new, out = token_ids, []; each turn: "
        "out.append(int(model(new, cache)[-1].argmax())); new = out[-1:]",
    ),
    section=f"{PAGE}#with-a-cache",
    points=2,
    difficulty=2,
    minutes=15,
    given=("kv_cache",),
    prelude=WITH_MODELS,
    in_model=True,
)

GENERATE_CACHED.near_miss(
    "the last two tokens go in each time",
    {"out[-1:]": "out[-2:]"},
    says="The one before the last has gone in already and is appended a second time. Give only the newest: [token].",
)

GENERATE_CACHED.near_miss(
    "it gives the whole sequence to every pass",
    {
        "new = out[-1:]": "new = token_ids + out",
        "len(token_ids) + max_new_tokens": "(len(token_ids) + max_new_tokens) ** 2",
    },
    says="The cache already holds the earlier tokens; given again, they are appended a second time. Give each pass "
    "only what is new.",
)

GENERATE_CACHED.near_miss(
    "it gives the whole sequence to every pass, until the cache is full",
    {"new = out[-1:]": "new = token_ids + out"},
    says="The cache has room for each token once. It already holds the earlier ones; given again, they are appended "
    "a second time. Give each pass only what is new.",
)

GENERATE_CACHED.near_miss(
    "it makes a new cache for every pass",
    {"out.append(": "cache = model.new_cache(len(token_ids) + max_new_tokens)\nout.append("},
    says="A new cache is empty: the model sees one token and nothing of what came before. Make one cache, before "
    "the loop.",
)

GENERATE_CACHED.near_miss(
    "it is the naive generator with an unused cache",
    {"model(new, cache)": "model(new, model.new_cache(len(new)))", "new = out[-1:]": "new = token_ids + out"},
    says="The tokens are right, the work is not: every pass takes the whole sequence with an empty cache. Keep the "
    "cache and give it only what is new.",
    section=f"{PAGE}#without-a-cache",
)

GENERATE_CACHED.near_miss(
    "the prompt's last token is given twice",
    {
        "new, out = token_ids, []": "max_new_tokens and model(token_ids, cache)\nnew, out = token_ids[-1:], []",
        "+ max_new_tokens)": "+ max_new_tokens + 1)",
    },
    says="The prompt's pass has already put its last token into the cache, and its last row already scores the "
    "first new token. Take that token from it, and go on with the new one.",
)

GENERATE_CACHED.near_miss(
    "one pass too many",
    {"return out": "model(new, cache)\nreturn out"},
    says="The last token you choose need not go through the model: nobody asks what follows it. n new tokens take n "
    "passes, the prompt's included.",
)

GENERATE_CACHED.near_miss(
    "the prompt goes in token by token",
    {
        "new, out = token_ids, []":
            "for token_id in token_ids[:-1] if max_new_tokens else []:\n"
            "    model([token_id], cache)\n"
            "new, out = token_ids[-1:], []",
    },
    says="All of the prompt is known, so one pass can take it whole. Token by token, the weights are read once for "
    "each of its tokens.",
    section=f"{PAGE}#where-did-the-rest-go",
)

GENERATE_CACHED.near_miss(
    "the cache has room for the prompt only",
    {"len(token_ids) + max_new_tokens": "len(token_ids)"},
    says="The new tokens need room as well: len(token_ids) + max_new_tokens - 1 rows, since the last is never fed.",
    section=f"{PAGE}#the-shape-of-a-cache",
)

GENERATE_CACHED.near_miss(
    "it stops at token 0",
    {"new = out[-1:]": "new = out[-1:]\nif out[-1] == 0:\n    break"},
    says="This model has no end-of-sequence token: 0 is a token like any other, and max_new_tokens are asked for. Where to "
    "stop is another function's business.",
)

GENERATE_CACHED.near_miss(
    "it stops before token 0",
    {
        "out.append(int(model(new, cache)[-1].argmax()))": "new = [int(model(new, cache)[-1].argmax())]",
        "new = out[-1:]": "if new == [0]: break\nout += new",
    },
    says="This model has no end-of-sequence token: 0 is a token like any other, and max_new_tokens are asked for. Where to "
    "stop is another function's business.",
)

GENERATE_CACHED.near_miss(
    "the cache has a size of its own",
    {"len(token_ids) + max_new_tokens": "64"},
    says="Whatever number stands there, some prompt is longer. The room that is needed is known before the loop: "
    "len(token_ids) + max_new_tokens.",
    section=f"{PAGE}#the-shape-of-a-cache",
)


@GENERATE_CACHED.alternate("prefill before the loop, the last pass left out")
def generate_cached(model, token_ids, max_new_tokens):
    if max_new_tokens == 0:
        return []
    cache = model.new_cache(len(token_ids) + max_new_tokens - 1)
    logits = model(torch.tensor(token_ids), cache)
    out = [logits[-1].argmax().item()]
    while len(out) < max_new_tokens:
        logits = model(torch.tensor([out[-1]]), cache)
        out.append(logits[-1].argmax().item())
    return out


@GENERATE_CACHED.alternate("a generator")
def generate_cached(model, token_ids, max_new_tokens):
    cache, new = model.new_cache(len(token_ids) + max_new_tokens), token_ids
    for _ in range(max_new_tokens):
        token_id = int(torch.argmax(model(new, cache)[-1]))
        yield token_id
        new = [token_id]
