"""A forward pass of new tokens over a cache."""

from __future__ import annotations

import torch

from course.specs.exercise import Case, Draw, Exercise, Tolerance
from course.specs.kv_cache.shared import PAGE, WITH_MODELS, build


def drive(cached_forward, model, token_ids, chunks):
    """Run token_ids through the answer in passes of these sizes, with one cache; the logits of every pass.

    The model it gets has all the pieces, but cannot be run as a whole: that would do without the cache.
    """
    from course.given.kv_cache import GrowingCache

    class Pieces(type(model)):
        def __call__(self, token_ids):
            raise RuntimeError("model(token_ids) runs a whole sequence without a cache: build the pass from its pieces")

    model.__class__ = Pieces
    cache, logits, start = GrowingCache(model), [], 0
    for size in chunks:
        logits.append(cached_forward(model, token_ids[start : start + size], cache))
        start += size
    return logits


def reference(model, token_ids, chunks):
    ends = [sum(chunks[: i + 1]) for i in range(len(chunks))]
    logits = model(token_ids)  # causal: a row does not depend on what comes after it
    return [logits[end - size : end] for end, size in zip(ends, chunks)]


def cases(draw: Draw) -> list[Case]:
    def case(chunks, label, **more):
        model = build(draw.int(0, 9999), **more)
        return Case((model, draw.ints(0, 61, sum(chunks)).tolist(), chunks), label=label)

    prompt = draw.choice([4, 5, 6])
    layers = draw.choice([1, 2, 5])
    return [
        case([prompt, 1, 1], f"a prompt of {prompt}, then two steps of one token"),
        case([3, draw.choice([2, 4]), 1], "a prompt in two passes, then a step"),
        case([1, 1, 1, 1], "one token at a time from the start"),
        case([draw.choice([5, 7])], "one pass, an empty cache"),
        case([3, 1], f"a model of {layers} layer{'s' * (layers > 1)}", num_layers=layers),
    ]


CACHED_FORWARD = Exercise(
    id="kv_cache.cached_forward",
    title="A forward pass with a cache",
    signature="cached_forward(model, token_ids, cache)",
    reference=reference,
    cases=cases,
    drive=drive,
    argument_names=("model", "token_ids", "chunks"),
    hints=(
        "Copy the order of TinyLlama.__call__ and change three things: where positions start, where keys and values "
        "come from, and how tall and wide the mask is.",
        "start = cache.seq_len, read once before the loop; positions = start ... start + T - 1; the mask is "
        "[T, start + T] and query i sees key j when j <= start + i. Rotate k, append, then attend to the cache.",
        "visible = torch.arange(start + T) <= positions[:, None]; in the loop: q, k, v = model.project(layer, x); "
        "cache.append(layer, model.rotate(k, positions), v); mixed = model.attend(model.rotate(q, positions), "
        "cache.keys(layer), cache.values(layer), visible); x = model.finish(layer, x, mixed)",
    ),
    section=f"{PAGE}#with-a-cache",
    points=4,
    core=True,
    difficulty=3,
    minutes=30,
    tolerance=Tolerance(c=16.0, K=48),
    given=("kv_cache",),
    prelude=WITH_MODELS,
    in_model=True,
)

CACHED_FORWARD.near_miss(
    "every pass counts its positions from 0",
    {
        "torch.arange(start, start + len(token_ids))": "torch.arange(len(token_ids))",
        "<= positions[:, None]": "<= start + positions[:, None]",
    },
    says="RoPE must turn a new token by its place in the whole sequence: positions start at cache.seq_len. From 0, "
    "every decoded token stands at the start of the text, and still looks like one.",
    section=f"{PAGE}#bugs-seen-in-real-engines",
)


@CACHED_FORWARD.near_miss(
    "it attends before it appends",
    says="The new tokens' own keys and values are not in the cache yet, so they cannot see themselves. Append "
    "first, then attend.",
)
def cached_forward(model, token_ids, cache):
    start, num_new = cache.seq_len, len(token_ids)
    positions = torch.arange(start, start + num_new)
    x = model.embed(token_ids)
    for layer in range(model.num_layers):
        q, k, v = model.project(layer, x)
        q, k = model.rotate(q, positions), model.rotate(k, positions)
        keys, values = cache.keys(layer), cache.values(layer)
        if start:
            mixed = model.attend(q, keys, values, torch.ones(num_new, start, dtype=torch.bool))
        else:
            visible = positions <= positions[:, None]
            mixed = model.attend(q, k, v, visible)
        cache.append(layer, k, v)
        x = model.finish(layer, x, mixed)
    return model.logits(x)


CACHED_FORWARD.near_miss(
    "cached keys are rotated again",
    {
        "cache.append(": "cached = model.rotate(cache.keys(layer), torch.arange(start))\ncache.append(",
        "attend(q, cache.keys(layer),": "attend(q, torch.cat([cached, cache.keys(layer)[start:]]),",
    },
    says="The keys in the cache were turned when they were appended. Turning all of them at every pass turns the "
    "old ones twice, three times, ... Rotate only the new k, or keep keys unrotated and turn them all on "
    "reading.",
    section=f"{PAGE}#bugs-seen-in-real-engines",
)

CACHED_FORWARD.near_miss(
    "keys are never rotated",
    {"model.rotate(k, positions)": "k"},
    says="The query is turned by its position, the keys in the cache are not, so the score no longer depends on the "
    "distance. Rotate k before you append it.",
)

CACHED_FORWARD.near_miss(
    "values are rotated as well",
    {"positions), v)": "positions), model.rotate(v, positions))"},
    says="Position acts on scores, so RoPE turns q and k. Values carry what is passed on, and stay as they are.",
)

CACHED_FORWARD.near_miss(
    "the mask starts in the wrong corner",
    {
        "torch.arange(start + len(token_ids)) <= positions[:, None]":
            "torch.ones(len(token_ids), start + len(token_ids), dtype=torch.bool).tril()",
    },
    says="Query i of this pass is token start + i of the text: it sees keys 0 to start + i, not 0 to i. With a "
    "cache the mask's diagonal ends in the lower right corner. torch's is_causal=True puts it in the upper "
    "left.",
    section=f"{PAGE}#bugs-seen-in-real-engines",
)

CACHED_FORWARD.near_miss(
    "no mask at all",
    {
        "torch.arange(start + len(token_ids)) <= positions[:, None]":
            "torch.ones(len(token_ids), start + len(token_ids), dtype=torch.bool)",
    },
    says="One new token may look at everything, so a decode step passes. In a pass of several tokens each sees "
    "those after it, and what it learns from them goes into the cache. Mask the future whenever T is more than "
    "1.",
    section=f"{PAGE}#why-it-is-right",
)

CACHED_FORWARD.near_miss(
    "upper layers start one pass too late",
    {"q, k, v = model": "positions = len(cache.keys(0)) + torch.arange(len(token_ids))\nq, k, v = model"},
    says="The length is read again in every layer, when layer 0 has already appended, so the layers above turn "
    "their new tokens too far. Read cache.seq_len once, before the loop.",
    section=f"{PAGE}#bugs-seen-in-real-engines",
)

CACHED_FORWARD.near_miss(
    "only the last row is returned",
    {"model.logits(x)": "model.logits(x[-1:])"},
    says="The cases compare all rows of a pass: return [T, vocab_size], one row for each new token.",
)

CACHED_FORWARD.near_miss(
    "only an empty cache gets a mask",
    {
        "torch.arange(start + len(token_ids)) <= positions[:, None]":
            "(torch.arange(start + len(token_ids)) <= positions[:, None]) | (start > 0)",
    },
    says="A prompt may come in several passes, and a pass of several tokens has a future whatever the cache holds: its "
    "tokens must not see those after them. One new token needs no mask, two do.",
    section=f"{PAGE}#why-it-is-right",
)

CACHED_FORWARD.near_miss(
    "the number of layers is a number of its own",
    {"range(model.num_layers)": "range(3)"},
    says="Models differ in their number of layers: run through all of them, model.num_layers.",
)


@CACHED_FORWARD.alternate("unrotated keys in the cache, all of them rotated on reading")
def cached_forward(model, token_ids, cache):
    start, num_new = cache.seq_len, len(token_ids)
    everywhere = torch.arange(start + num_new)
    positions = everywhere[start:]
    x = model.embed(token_ids)
    for layer in range(model.num_layers):
        q, k, v = model.project(layer, x)
        cache.append(layer, k, v)
        keys = model.rotate(cache.keys(layer), everywhere)
        mixed = model.attend(
            model.rotate(q, positions), keys, cache.values(layer), everywhere <= positions.unsqueeze(1)
        )
        x = model.finish(layer, x, mixed)
    return model.logits(x)


@CACHED_FORWARD.alternate("token by token, no mask needed")
def cached_forward(model, token_ids, cache):
    rows = []
    for token_id in token_ids:
        position = torch.tensor([cache.seq_len])
        visible = torch.ones(1, cache.seq_len + 1, dtype=torch.bool)
        x = model.embed([token_id])
        for layer in range(model.num_layers):
            q, k, v = model.project(layer, x)
            cache.append(layer, model.rotate(k, position), v)
            q = model.rotate(q, position)
            x = model.finish(layer, x, model.attend(q, cache.keys(layer), cache.values(layer), visible))
        rows.append(model.logits(x))
    return torch.cat(rows)
