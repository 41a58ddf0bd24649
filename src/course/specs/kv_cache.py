"""Exercises of chapter 04: generation without a KV cache and with one."""

from __future__ import annotations

import torch

from course.given.kv_cache import tiny_llama
from course.specs.exercise import PRELUDE, Build, Case, Draw, Exercise, Tolerance

PAGE = "04_kv_cache.html"
GIVEN = "course.given.kv_cache"
WITH_MODELS = f"{PRELUDE}from {GIVEN} import GrowingCache, cached_llama, tiny_llama\n"
SURE = 0.01  # a gap between the two largest logits that no rounding of fp32 bridges


def _model(seed: int, name: str = "tiny_llama") -> Build:
    return Build(GIVEN, name, {"seed": seed, "dtype": "float32"})


def _continued(model, token_ids, max_new_tokens) -> tuple[list[int], float]:
    """Greedy tokens by the whole sequence each time, and the smallest gap between the two largest logits."""
    whole, gap = list(token_ids), float("inf")
    for _ in range(max_new_tokens):
        best = model(whole)[-1].topk(2)
        gap = min(gap, (best.values[0] - best.values[1]).item())
        whole.append(int(best.indices[0]))
    return whole[len(token_ids) :], gap


def _prompt(draw: Draw, length: int, max_new_tokens: int) -> tuple[int, list[int]]:
    """Seed of a model and a prompt whose greedy continuation is varied, and the same in every precision."""
    while True:
        seed, token_ids = draw.int(0, 9999), draw.ints(0, 61, length).tolist()
        tokens, gap = _continued(tiny_llama(seed, "float64"), token_ids, max_new_tokens)
        if gap > SURE and len(set(tokens)) > min(2, max_new_tokens - 1):
            return seed, token_ids


# --- generate_naive --------------------------------------------------------------------------------------


def _generate_naive_drive(generate_naive, model, token_ids, max_new_tokens):
    """What the answer returns, and how many tokens it gave to each forward pass; counted where no answer can write."""
    passes = []

    class Counted(type(model)):
        def __call__(self, token_ids):
            passes.append(len(token_ids))
            return super().__call__(token_ids)

    model.__class__ = Counted
    result = generate_naive(model, token_ids, max_new_tokens)
    return {"returned": result, "tokens given to each pass": passes}


def _generate_naive_reference(model, token_ids, max_new_tokens):
    lengths = range(len(token_ids), len(token_ids) + max_new_tokens)
    counters = {
        "forward_calls": max_new_tokens,
        "rows_projected": sum(lengths),
        "score_pairs_masked": sum(length**2 for length in lengths),
    }
    tokens = _continued(model, token_ids, max_new_tokens)[0]
    return {"returned": (tokens, counters), "tokens given to each pass": list(lengths)}


def _generate_naive_cases(draw: Draw) -> list[Case]:
    cases = []
    for length, new, label in (
        (draw.choice([5, 7]), 6, "a prompt of several tokens"),
        (1, draw.choice([7, 9]), "a prompt of one token"),
        (draw.choice([3, 11]), 1, "one new token"),
    ):
        seed, token_ids = _prompt(draw, length, new)
        cases.append(Case((_model(seed), token_ids, new), label=label))
    cases.append(Case((_model(draw.int(0, 9999)), draw.ints(0, 61, 3).tolist(), 0), label="no new tokens"))
    return cases


def _generate_naive_in_model(answer, checkpoint):
    from course.check.trial import Trial

    counted = {}

    def continue_text(checkpoint, prompt, max_tokens):
        prompt_token_ids = checkpoint.tokenizer.encode(prompt)
        token_ids, counters = answer(lambda ids: checkpoint.model(torch.as_tensor(ids)), prompt_token_ids, max_tokens)
        counted.update(counters)
        return token_ids

    return Trial(continue_text=continue_text, note=lambda: ", ".join(f"{k}: {n:,}" for k, n in counted.items()))


GENERATE_NAIVE = Exercise(
    id="kv_cache.generate_naive",
    title="Generate without a cache, and count",
    signature="generate_naive(model, token_ids, max_new_tokens)",
    reference=_generate_naive_reference,
    cases=_generate_naive_cases,
    drive=_generate_naive_drive,
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
    in_model=_generate_naive_in_model,
)


@GENERATE_NAIVE.near_miss(
    "it counts calls where it should count rows",
    says="One call over n tokens projects n rows: add len(whole) each turn, not 1. That is the whole difference "
    "between 200 and 20,100.",
)
def generate_naive(model, token_ids, max_new_tokens):
    whole, calls, pairs = list(token_ids), 0, 0
    for _ in range(max_new_tokens):
        calls += 1
        pairs += len(whole) ** 2
        whole.append(int(model(whole)[-1].argmax()))
    counters = {"forward_calls": calls, "rows_projected": calls, "score_pairs_masked": pairs}
    return whole[len(token_ids) :], counters


@GENERATE_NAIVE.near_miss(
    "it counts after it has appended",
    says="The pass that chooses token n has seen n tokens, not n + 1: count before you append the new one.",
)
def generate_naive(model, token_ids, max_new_tokens):
    whole, calls, rows, pairs = list(token_ids), 0, 0, 0
    for _ in range(max_new_tokens):
        whole.append(int(model(whole)[-1].argmax()))
        calls, rows, pairs = calls + 1, rows + len(whole), pairs + len(whole) ** 2
    counters = {"forward_calls": calls, "rows_projected": rows, "score_pairs_masked": pairs}
    return whole[len(token_ids) :], counters


@GENERATE_NAIVE.near_miss(
    "it counts only the scores that the mask keeps",
    says="score_pairs_masked is the whole n x n rectangle, masked squares included: n * n for a pass over n tokens. "
    "n * (n + 1) / 2 is the other counter, score_pairs_causal.",
    section=f"{PAGE}#what-it-costs-in-all",
)
def generate_naive(model, token_ids, max_new_tokens):
    whole, calls, rows, pairs = list(token_ids), 0, 0, 0
    for _ in range(max_new_tokens):
        n = len(whole)
        calls, rows, pairs = calls + 1, rows + n, pairs + n * (n + 1) // 2
        whole.append(int(model(whole)[-1].argmax()))
    counters = {"forward_calls": calls, "rows_projected": rows, "score_pairs_masked": pairs}
    return whole[len(token_ids) :], counters


@GENERATE_NAIVE.near_miss(
    "it reads the first row of the logits",
    says="Row i scores the token after token i, so the next token is in the last row: logits[-1].",
)
def generate_naive(model, token_ids, max_new_tokens):
    whole, calls, rows, pairs = list(token_ids), 0, 0, 0
    for _ in range(max_new_tokens):
        n = len(whole)
        calls, rows, pairs = calls + 1, rows + n, pairs + n * n
        whole.append(int(model(whole)[0].argmax()))
    counters = {"forward_calls": calls, "rows_projected": rows, "score_pairs_masked": pairs}
    return whole[len(token_ids) :], counters


@GENERATE_NAIVE.near_miss(
    "it runs only the newest token through the model",
    says="This model keeps nothing between calls: a token that is not in the list does not exist for it. Give it the "
    "whole sequence every time. That it must be so is the reason for a cache.",
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


@GENERATE_NAIVE.near_miss(
    "it writes into the caller's prompt",
    says="append on token_ids itself changes the caller's list. Start from a copy: whole = list(token_ids).",
)
def generate_naive(model, token_ids, max_new_tokens):
    start, calls, rows, pairs = len(token_ids), 0, 0, 0
    for _ in range(max_new_tokens):
        n = len(token_ids)
        calls, rows, pairs = calls + 1, rows + n, pairs + n * n
        token_ids.append(int(model(token_ids)[-1].argmax()))
    counters = {"forward_calls": calls, "rows_projected": rows, "score_pairs_masked": pairs}
    return token_ids[start:], counters


@GENERATE_NAIVE.near_miss(
    "it returns the prompt as well",
    says="Return the new tokens only: whole[len(token_ids):].",
)
def generate_naive(model, token_ids, max_new_tokens):
    whole, calls, rows, pairs = list(token_ids), 0, 0, 0
    for _ in range(max_new_tokens):
        n = len(whole)
        calls, rows, pairs = calls + 1, rows + n, pairs + n * n
        whole.append(int(model(whole)[-1].argmax()))
    counters = {"forward_calls": calls, "rows_projected": rows, "score_pairs_masked": pairs}
    return whole, counters


@GENERATE_NAIVE.near_miss(
    "it runs the model twice for each token",
    says="Keep the logits of the one pass in a name and use them. Every further model(...) is a pass that was made and "
    "not counted.",
)
def generate_naive(model, token_ids, max_new_tokens):
    whole, calls, rows, pairs = list(token_ids), 0, 0, 0
    for _ in range(max_new_tokens):
        n = len(whole)
        calls, rows, pairs = calls + 1, rows + n, pairs + n * n
        logits = model(whole)
        whole.append(int(model(whole)[-1].argmax()) if len(logits) else 0)
    counters = {"forward_calls": calls, "rows_projected": rows, "score_pairs_masked": pairs}
    return whole[len(token_ids) :], counters


@GENERATE_NAIVE.near_miss(
    "one pass too many",
    says="The token you choose last need not go through the model: nobody asks what follows it. n new tokens take n "
    "passes, and with max_new_tokens=0 there is none.",
)
def generate_naive(model, token_ids, max_new_tokens):
    whole, calls, rows, pairs = list(token_ids), 0, 0, 0
    logits = model(whole)
    for _ in range(max_new_tokens):
        n = len(whole)
        calls, rows, pairs = calls + 1, rows + n, pairs + n * n
        whole.append(int(logits[-1].argmax()))
        logits = model(whole)
    counters = {"forward_calls": calls, "rows_projected": rows, "score_pairs_masked": pairs}
    return whole[len(token_ids) :], counters


@GENERATE_NAIVE.near_miss(
    "the row of the prompt's last token is read every time",
    says="After the first new token the last row is another one: logits[-1], not logits[len(token_ids) - 1].",
)
def generate_naive(model, token_ids, max_new_tokens):
    whole, calls, rows, pairs = list(token_ids), 0, 0, 0
    for _ in range(max_new_tokens):
        n = len(whole)
        calls, rows, pairs = calls + 1, rows + n, pairs + n * n
        whole.append(int(model(whole)[len(token_ids) - 1].argmax()))
    counters = {"forward_calls": calls, "rows_projected": rows, "score_pairs_masked": pairs}
    return whole[len(token_ids) :], counters


@GENERATE_NAIVE.near_miss(
    "the new tokens are tensors",
    says="argmax() gives a tensor: int(...) or .item() makes the int that is asked for.",
)
def generate_naive(model, token_ids, max_new_tokens):
    whole, calls, rows, pairs = list(token_ids), 0, 0, 0
    for _ in range(max_new_tokens):
        n = len(whole)
        calls, rows, pairs = calls + 1, rows + n, pairs + n * n
        whole.append(model(whole)[-1].argmax())
    counters = {"forward_calls": calls, "rows_projected": rows, "score_pairs_masked": pairs}
    return whole[len(token_ids) :], counters


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


# --- KVCache ---------------------------------------------------------------------------------------------


def _cache_drive(KVCache, k, v, chunks, keep, spare):
    """Fill a cache chunk by chunk, look at it, cut it back to `keep` tokens, fill it again, and overfill it.

    k, v: [num_layers, tokens, num_kv_heads, head_dim]; capacity is tokens + spare.
    """
    num_layers, tokens, num_kv_heads, head_dim = k.shape
    cache = KVCache(num_layers, num_kv_heads, head_dim, tokens + spare, k.dtype)
    another = KVCache(num_layers, num_kv_heads, head_dim, tokens + spare, k.dtype)  # of another conversation

    def length():
        return "a method: put @property above it" if callable(cache.seq_len) else cache.seq_len

    seen = {"seq_len at first": length()}
    addresses: dict[int, set] = {}

    def add(layer, start, end):
        new_k, new_v = k[layer, start:end].clone(), v[layer, start:end].clone()
        cache.append(layer, new_k, new_v)
        new_k.fill_(-9)  # a caller may use its tensors again
        new_v.fill_(-9)

    def look(when):
        held = [(cache.keys(layer), cache.values(layer)) for layer in range(num_layers)]
        seen[f"seq_len {when}"] = length()
        for name, index in (("keys", 0), ("values", 1)):
            parts = [pair[index] for pair in held]
            seen[f"{name} {when}"] = [part.clone() if isinstance(part, torch.Tensor) else part for part in parts]
        for place, part in enumerate(part for pair in held for part in pair):
            if isinstance(part, torch.Tensor) and part.numel():
                addresses.setdefault(place, set()).add(part.data_ptr())

    start = 0
    for number, size in enumerate(chunks, start=1):
        inside, rows = [], []
        for layer in range(num_layers):
            add(layer, start, start + size)
            inside.append(length())
            rows.append([len(cache.keys(layer)), len(cache.values(layer))])
        seen[f"seq_len after each layer of pass {number}"] = inside
        seen[f"rows of keys(layer) and values(layer), after each layer of pass {number}"] = rows
        start += size
        look(f"after pass {number}")
    another.append(0, torch.full_like(k[0, :1], 7), torch.full_like(v[0, :1], 7))
    look("after an append to another KVCache")
    cache.truncate(keep)
    look("after truncate")
    inside = []
    for layer in reversed(range(num_layers)):
        add(layer, keep, tokens)
        inside.append(length())
    seen["seq_len after each layer, the last layer first"] = inside
    look("after truncate and append")
    seen["memory stays where it was"] = all(len(found) == 1 for found in addresses.values())
    too_many = torch.ones(spare + 1, num_kv_heads, head_dim, dtype=k.dtype)
    try:
        cache.append(0, too_many, too_many)
        seen["one token too many"] = "was taken"
    except Exception as error:
        seen["one token too many"] = type(error).__name__
    look("after one token too many")
    return seen


def _cache_reference(k, v, chunks, keep, spare):
    num_layers, tokens = k.shape[:2]
    seen: dict = {"seq_len at first": 0}

    def look(when, length):
        seen[f"seq_len {when}"] = length
        seen[f"keys {when}"] = [k[layer, :length].clone() for layer in range(num_layers)]
        seen[f"values {when}"] = [v[layer, :length].clone() for layer in range(num_layers)]

    start = 0
    for number, size in enumerate(chunks, start=1):
        seen[f"seq_len after each layer of pass {number}"] = [start] * (num_layers - 1) + [start + size]
        start += size
        rows = [[start, start] for _ in range(num_layers)]
        seen[f"rows of keys(layer) and values(layer), after each layer of pass {number}"] = rows
        look(f"after pass {number}", start)
    look("after an append to another KVCache", tokens)
    look("after truncate", keep)
    seen["seq_len after each layer, the last layer first"] = [keep] * (num_layers - 1) + [tokens]
    look("after truncate and append", tokens)
    seen["memory stays where it was"] = True
    seen["one token too many"] = "ValueError"
    look("after one token too many", tokens)
    return seen


def _cache_cases(draw: Draw) -> list[Case]:
    def case(label, layers, chunks, heads, width, keep, spare=0, dtype=torch.float32, strided=False):
        tokens = sum(chunks)
        made = draw.strided if strided else draw.randn
        k, v = (made(layers, tokens, heads, width, dtype=dtype) for _ in range(2))
        return Case((k, v, chunks, keep, spare), label=f"{label}; capacity {tokens + spare}, then truncate({keep})")

    many = draw.choice([5, 7])
    return [
        case(f"2 layers, a prompt of {many} and two steps", 2, [many, 1, 1], 3, 4, keep=draw.int(2, many - 1)),
        # So much room that one length for all layers fits in: only an answer that always raises raises here.
        case("3 layers, one token at a time, room to spare", 3, [1, 1, 1], 1, draw.choice([2, 6]), keep=1, spare=8),
        case("chunks of several tokens, fp16", 2, [2, 3, 2], 2, 5, keep=4, spare=1, dtype=torch.float16),
        case("bf16, keys and values not contiguous", 2, [3, 1], 5, 3, keep=2, dtype=torch.bfloat16, strided=True),
        case("cut back to nothing", 2, [4], 2, 3, keep=0),
    ]


def _cache_in_model(answer, checkpoint):
    from course.check.model_pieces import AnswersCache
    from course.check.trial import Trial
    from llm_internals.kv_cache import generate_cached

    def continue_text(checkpoint, prompt, max_tokens):
        token_ids = checkpoint.tokenizer.encode(prompt)
        cache = AnswersCache(answer, checkpoint.model, len(token_ids) + max_tokens)
        return list(generate_cached(checkpoint.model, token_ids, max_tokens, cache=cache))

    return Trial(continue_text=continue_text)


KV_CACHE = Exercise(
    id="kv_cache.KVCache",
    title="The cache itself",
    signature="class KVCache",
    reference=_cache_reference,
    cases=_cache_cases,
    drive=_cache_drive,
    argument_names=("k", "v", "chunks", "keep", "spare"),
    hints=(
        "Two things to keep: one tensor for all layers, made once with torch.zeros, and one length for each layer.",
        "append writes to storage[0, layer, start:end] with start = the layer's length; seq_len is min(lengths), since "
        "in the middle of a forward pass the first layers are ahead; truncate only sets lengths.",
        "self.storage = torch.zeros(2, num_layers, capacity, num_kv_heads, head_dim, dtype=dtype); "
        "self.lengths = [0] * num_layers; append: end = start + len(k); raise ValueError if end > capacity; "
        "self.storage[0, layer, start:end] = k; keys: self.storage[0, layer, :self.lengths[layer]]",
    ),
    section=f"{PAGE}#with-a-cache",
    points=3,
    core=True,
    difficulty=2,
    minutes=25,
    tolerance=Tolerance(c=0.0),  # a cache computes nothing: what comes out is what went in
    in_model=_cache_in_model,
)


@KV_CACHE.near_miss(
    "seq_len moves before the last layer is done",
    says="A forward pass fills layer 0 first, then layer 1, and so on. Until the last layer has its keys, the pass is "
    "not over and the new tokens do not count: seq_len = min of the layers' lengths. An engine that counted at layer "
    "0 rotated every upper layer one position too far.",
    section=f"{PAGE}#bugs-seen-in-real-engines",
)
class KVCache:
    def __init__(self, num_layers, num_kv_heads, head_dim, capacity, dtype=torch.float32):
        self.storage = torch.zeros(2, num_layers, capacity, num_kv_heads, head_dim, dtype=dtype)
        self.lengths = [0] * num_layers

    def append(self, layer, k, v):
        start, end = self.lengths[layer], self.lengths[layer] + len(k)
        if end > self.storage.shape[2]:
            raise ValueError("full")
        self.storage[0, layer, start:end] = k
        self.storage[1, layer, start:end] = v
        self.lengths[layer] = end

    def keys(self, layer):
        return self.storage[0, layer, : self.lengths[layer]]

    def values(self, layer):
        return self.storage[1, layer, : self.lengths[layer]]

    @property
    def seq_len(self):
        return self.lengths[0]

    def truncate(self, seq_len):
        self.lengths = [seq_len] * len(self.lengths)


@KV_CACHE.near_miss(
    "one length serves all layers",
    says="The first layer that appends moves the length, and the next layer writes its keys behind a gap. Each layer "
    "needs a length of its own.",
)
class KVCache:
    def __init__(self, num_layers, num_kv_heads, head_dim, capacity, dtype=torch.float32):
        self.storage = torch.zeros(2, num_layers, capacity, num_kv_heads, head_dim, dtype=dtype)
        self.seq_len = 0

    def append(self, layer, k, v):
        start, end = self.seq_len, self.seq_len + len(k)
        if end > self.storage.shape[2]:
            raise ValueError("full")
        self.storage[0, layer, start:end] = k
        self.storage[1, layer, start:end] = v
        self.seq_len = end

    def keys(self, layer):
        return self.storage[0, layer, : self.seq_len]

    def values(self, layer):
        return self.storage[1, layer, : self.seq_len]

    def truncate(self, seq_len):
        self.seq_len = seq_len


@KV_CACHE.near_miss(
    "new tensors instead of views of one memory",
    says="torch.cat and clone make a new tensor and copy all that was there: n appends copy n * n / 2 rows. Take the "
    "memory once, capacity rows long, write each new row into its place, and return a slice of it.",
    section=f"{PAGE}#the-shape-of-a-cache",
)
class KVCache:
    def __init__(self, num_layers, num_kv_heads, head_dim, capacity, dtype=torch.float32):
        self.capacity = capacity
        self.k = [torch.zeros(0, num_kv_heads, head_dim, dtype=dtype) for _ in range(num_layers)]
        self.v = [torch.zeros(0, num_kv_heads, head_dim, dtype=dtype) for _ in range(num_layers)]

    def append(self, layer, k, v):
        if len(self.k[layer]) + len(k) > self.capacity:
            raise ValueError("full")
        self.k[layer] = torch.cat([self.k[layer], k])
        self.v[layer] = torch.cat([self.v[layer], v])

    def keys(self, layer):
        return self.k[layer]

    def values(self, layer):
        return self.v[layer]

    @property
    def seq_len(self):
        return min(len(k) for k in self.k)

    def truncate(self, seq_len):
        self.k = [k[:seq_len] for k in self.k]
        self.v = [v[:seq_len] for v in self.v]


@KV_CACHE.near_miss(
    "keys() returns the whole memory",
    says="Rows beyond the length hold zeros or what an earlier text left. A key of zeros still gets a share of the "
    "softmax, so return the filled rows only: storage[0, layer, :length].",
)
class KVCache:
    def __init__(self, num_layers, num_kv_heads, head_dim, capacity, dtype=torch.float32):
        self.storage = torch.zeros(2, num_layers, capacity, num_kv_heads, head_dim, dtype=dtype)
        self.lengths = [0] * num_layers

    def append(self, layer, k, v):
        start, end = self.lengths[layer], self.lengths[layer] + len(k)
        if end > self.storage.shape[2]:
            raise ValueError("full")
        self.storage[0, layer, start:end] = k
        self.storage[1, layer, start:end] = v
        self.lengths[layer] = end

    def keys(self, layer):
        return self.storage[0, layer]

    def values(self, layer):
        return self.storage[1, layer]

    @property
    def seq_len(self):
        return min(self.lengths)

    def truncate(self, seq_len):
        self.lengths = [seq_len] * len(self.lengths)


@KV_CACHE.near_miss(
    "every append starts at row 0",
    says="New keys go behind those that are there: start at the layer's length, not at 0.",
)
class KVCache:
    def __init__(self, num_layers, num_kv_heads, head_dim, capacity, dtype=torch.float32):
        self.storage = torch.zeros(2, num_layers, capacity, num_kv_heads, head_dim, dtype=dtype)
        self.lengths = [0] * num_layers

    def append(self, layer, k, v):
        end = self.lengths[layer] + len(k)
        if end > self.storage.shape[2]:
            raise ValueError("full")
        self.storage[0, layer, : len(k)] = k
        self.storage[1, layer, : len(k)] = v
        self.lengths[layer] = end

    def keys(self, layer):
        return self.storage[0, layer, : self.lengths[layer]]

    def values(self, layer):
        return self.storage[1, layer, : self.lengths[layer]]

    @property
    def seq_len(self):
        return min(self.lengths)

    def truncate(self, seq_len):
        self.lengths = [seq_len] * len(self.lengths)


@KV_CACHE.near_miss(
    "truncate empties the memory but keeps the length",
    says="Zeroed rows still count as tokens. Forgetting means setting the lengths back; the rows beyond them may keep "
    "their old contents, the next append writes over them. A library's reset() made this very mistake.",
    section=f"{PAGE}#bugs-seen-in-real-engines",
)
class KVCache:
    def __init__(self, num_layers, num_kv_heads, head_dim, capacity, dtype=torch.float32):
        self.storage = torch.zeros(2, num_layers, capacity, num_kv_heads, head_dim, dtype=dtype)
        self.lengths = [0] * num_layers

    def append(self, layer, k, v):
        start, end = self.lengths[layer], self.lengths[layer] + len(k)
        if end > self.storage.shape[2]:
            raise ValueError("full")
        self.storage[0, layer, start:end] = k
        self.storage[1, layer, start:end] = v
        self.lengths[layer] = end

    def keys(self, layer):
        return self.storage[0, layer, : self.lengths[layer]]

    def values(self, layer):
        return self.storage[1, layer, : self.lengths[layer]]

    @property
    def seq_len(self):
        return min(self.lengths)

    def truncate(self, seq_len):
        self.storage[:, :, seq_len:] = 0


@KV_CACHE.near_miss(
    "truncate(0) forgets nothing",
    says="0 is a length like any other, but `if seq_len:` takes it for a missing one. Set the lengths whatever it is. "
    "A library's crop(0) kept everything as well.",
    section=f"{PAGE}#bugs-seen-in-real-engines",
)
class KVCache:
    def __init__(self, num_layers, num_kv_heads, head_dim, capacity, dtype=torch.float32):
        self.storage = torch.zeros(2, num_layers, capacity, num_kv_heads, head_dim, dtype=dtype)
        self.lengths = [0] * num_layers

    def append(self, layer, k, v):
        start, end = self.lengths[layer], self.lengths[layer] + len(k)
        if end > self.storage.shape[2]:
            raise ValueError("full")
        self.storage[0, layer, start:end] = k
        self.storage[1, layer, start:end] = v
        self.lengths[layer] = end

    def keys(self, layer):
        return self.storage[0, layer, : self.lengths[layer]]

    def values(self, layer):
        return self.storage[1, layer, : self.lengths[layer]]

    @property
    def seq_len(self):
        return min(self.lengths)

    def truncate(self, seq_len):
        if seq_len:
            self.lengths = [seq_len] * len(self.lengths)


@KV_CACHE.near_miss(
    "a full cache drops the oldest tokens",
    says="That is a sliding window, another model's behaviour: here every key is needed for ever. When the room does "
    "not suffice, raise ValueError and leave what is there as it was.",
    section=f"{PAGE}#the-shape-of-a-cache",
)
class KVCache:
    def __init__(self, num_layers, num_kv_heads, head_dim, capacity, dtype=torch.float32):
        self.storage = torch.zeros(2, num_layers, capacity, num_kv_heads, head_dim, dtype=dtype)
        self.lengths = [0] * num_layers

    def append(self, layer, k, v):
        over = max(0, self.lengths[layer] + len(k) - self.storage.shape[2])
        if over:
            kept = self.storage[:, layer, over : self.lengths[layer]].clone()
            self.storage[:, layer, : kept.shape[1]] = kept
            self.lengths[layer] -= over
        start, end = self.lengths[layer], self.lengths[layer] + len(k)
        self.storage[0, layer, start:end] = k
        self.storage[1, layer, start:end] = v
        self.lengths[layer] = end

    def keys(self, layer):
        return self.storage[0, layer, : self.lengths[layer]]

    def values(self, layer):
        return self.storage[1, layer, : self.lengths[layer]]

    @property
    def seq_len(self):
        return min(self.lengths)

    def truncate(self, seq_len):
        self.lengths = [seq_len] * len(self.lengths)


@KV_CACHE.near_miss(
    "it keeps the caller's tensors",
    says="The caller may write into k and v again for the next token. Copy the numbers into memory of your own.",
)
class KVCache:
    def __init__(self, num_layers, num_kv_heads, head_dim, capacity, dtype=torch.float32):
        self.capacity = capacity
        empty = torch.zeros(0, num_kv_heads, head_dim, dtype=dtype)
        self.k = [[empty] for _ in range(num_layers)]
        self.v = [[empty] for _ in range(num_layers)]

    def append(self, layer, k, v):
        if sum(map(len, self.k[layer])) + len(k) > self.capacity:
            raise ValueError("full")
        self.k[layer].append(k)
        self.v[layer].append(v)

    def keys(self, layer):
        return torch.cat(self.k[layer])

    def values(self, layer):
        return torch.cat(self.v[layer])

    @property
    def seq_len(self):
        return min(sum(map(len, parts)) for parts in self.k)

    def truncate(self, seq_len):
        self.k = [[torch.cat(parts)[:seq_len]] for parts in self.k]
        self.v = [[torch.cat(parts)[:seq_len]] for parts in self.v]


@KV_CACHE.near_miss(
    "keys() waits for the other layers",
    says="A layer needs its own new keys at once, before the layers above have theirs: keys(layer) goes up to this "
    "layer's length. Only seq_len waits for all.",
)
class KVCache:
    def __init__(self, num_layers, num_kv_heads, head_dim, capacity, dtype=torch.float32):
        self.storage = torch.zeros(2, num_layers, capacity, num_kv_heads, head_dim, dtype=dtype)
        self.lengths = [0] * num_layers

    def append(self, layer, k, v):
        start, end = self.lengths[layer], self.lengths[layer] + len(k)
        if end > self.storage.shape[2]:
            raise ValueError("full")
        self.storage[0, layer, start:end] = k
        self.storage[1, layer, start:end] = v
        self.lengths[layer] = end

    def keys(self, layer):
        return self.storage[0, layer, : self.seq_len]

    def values(self, layer):
        return self.storage[1, layer, : self.seq_len]

    @property
    def seq_len(self):
        return min(self.lengths)

    def truncate(self, seq_len):
        self.lengths = [seq_len] * len(self.lengths)


@KV_CACHE.near_miss(
    "seq_len is the last layer's length",
    says="In a pass from below the last layer is the last to be filled, but nothing says that it must be: every layer "
    "counts, min(lengths).",
)
class KVCache:
    def __init__(self, num_layers, num_kv_heads, head_dim, capacity, dtype=torch.float32):
        self.storage = torch.zeros(2, num_layers, capacity, num_kv_heads, head_dim, dtype=dtype)
        self.lengths = [0] * num_layers

    def append(self, layer, k, v):
        start, end = self.lengths[layer], self.lengths[layer] + len(k)
        if end > self.storage.shape[2]:
            raise ValueError("full")
        self.storage[0, layer, start:end] = k
        self.storage[1, layer, start:end] = v
        self.lengths[layer] = end

    def keys(self, layer):
        return self.storage[0, layer, : self.lengths[layer]]

    def values(self, layer):
        return self.storage[1, layer, : self.lengths[layer]]

    @property
    def seq_len(self):
        return self.lengths[-1]

    def truncate(self, seq_len):
        self.lengths = [seq_len] * len(self.lengths)


@KV_CACHE.near_miss(
    "all caches share one memory",
    says="What stands in the class body belongs to all caches: a second conversation changes the first one. Make tensors "
    "and lengths in __init__, as attributes of self.",
)
class KVCache:
    lengths = None

    def __init__(self, num_layers, num_kv_heads, head_dim, capacity, dtype=torch.float32):
        self.storage = torch.zeros(2, num_layers, capacity, num_kv_heads, head_dim, dtype=dtype)
        KVCache.lengths = [0] * num_layers

    def append(self, layer, k, v):
        start, end = self.lengths[layer], self.lengths[layer] + len(k)
        if end > self.storage.shape[2]:
            raise ValueError("full")
        self.storage[0, layer, start:end] = k
        self.storage[1, layer, start:end] = v
        self.lengths[layer] = end

    def keys(self, layer):
        return self.storage[0, layer, : self.lengths[layer]]

    def values(self, layer):
        return self.storage[1, layer, : self.lengths[layer]]

    @property
    def seq_len(self):
        return min(self.lengths)

    def truncate(self, seq_len):
        KVCache.lengths = [seq_len] * len(self.lengths)


@KV_CACHE.near_miss(
    "a cache that would be exactly full is refused",
    says="capacity tokens fit: raise only when the end lies beyond it, end > capacity.",
)
class KVCache:
    def __init__(self, num_layers, num_kv_heads, head_dim, capacity, dtype=torch.float32):
        self.storage = torch.zeros(2, num_layers, capacity, num_kv_heads, head_dim, dtype=dtype)
        self.lengths = [0] * num_layers

    def append(self, layer, k, v):
        start, end = self.lengths[layer], self.lengths[layer] + len(k)
        if end >= self.storage.shape[2]:
            raise ValueError("full")
        self.storage[0, layer, start:end] = k
        self.storage[1, layer, start:end] = v
        self.lengths[layer] = end

    def keys(self, layer):
        return self.storage[0, layer, : self.lengths[layer]]

    def values(self, layer):
        return self.storage[1, layer, : self.lengths[layer]]

    @property
    def seq_len(self):
        return min(self.lengths)

    def truncate(self, seq_len):
        self.lengths = [seq_len] * len(self.lengths)


@KV_CACHE.near_miss(
    "dtype is ignored",
    says="A cache for a bf16 model holds bf16: pass dtype on to the memory, or it takes twice the room and gives back "
    "another dtype.",
)
class KVCache:
    def __init__(self, num_layers, num_kv_heads, head_dim, capacity, dtype=torch.float32):
        self.storage = torch.zeros(2, num_layers, capacity, num_kv_heads, head_dim)
        self.lengths = [0] * num_layers

    def append(self, layer, k, v):
        start, end = self.lengths[layer], self.lengths[layer] + len(k)
        if end > self.storage.shape[2]:
            raise ValueError("full")
        self.storage[0, layer, start:end] = k
        self.storage[1, layer, start:end] = v
        self.lengths[layer] = end

    def keys(self, layer):
        return self.storage[0, layer, : self.lengths[layer]]

    def values(self, layer):
        return self.storage[1, layer, : self.lengths[layer]]

    @property
    def seq_len(self):
        return min(self.lengths)

    def truncate(self, seq_len):
        self.lengths = [seq_len] * len(self.lengths)


@KV_CACHE.alternate("heads before tokens, as the chapter's own cache")
class KVCache:
    def __init__(self, num_layers, num_kv_heads, head_dim, capacity, dtype=torch.float32):
        self.storage = torch.empty(2, num_layers, num_kv_heads, capacity, head_dim, dtype=dtype)
        self.lengths = [0 for _ in range(num_layers)]

    def append(self, layer, k, v):
        start, end = self.lengths[layer], self.lengths[layer] + k.shape[0]
        if end > self.storage.shape[3]:
            raise ValueError(f"room for {self.storage.shape[3]} tokens, {end} came")
        self.storage[0, layer, :, start:end] = k.transpose(0, 1)
        self.storage[1, layer, :, start:end] = v.transpose(0, 1)
        self.lengths[layer] = end

    def keys(self, layer):
        return self.storage[0, layer, :, : self.lengths[layer]].transpose(0, 1)

    def values(self, layer):
        return self.storage[1, layer, :, : self.lengths[layer]].transpose(0, 1)

    @property
    def seq_len(self):
        return min(self.lengths)

    def truncate(self, seq_len):
        self.lengths = [min(length, seq_len) for length in self.lengths]


@KV_CACHE.alternate("two tensors a layer, lengths in a tensor")
class KVCache:
    def __init__(self, num_layers, num_kv_heads, head_dim, capacity, dtype=torch.float32):
        def memory():
            return [torch.zeros(capacity, num_kv_heads, head_dim, dtype=dtype) for _ in range(num_layers)]

        self.k, self.v = memory(), memory()
        self.used = torch.zeros(num_layers, dtype=torch.int64)

    def append(self, layer, k, v):
        start = int(self.used[layer])
        room = len(self.k[layer]) - start
        if k.shape[0] > room:
            raise ValueError(f"room for {room} more tokens, {k.shape[0]} came")
        self.k[layer].narrow(0, start, k.shape[0]).copy_(k)
        self.v[layer].narrow(0, start, k.shape[0]).copy_(v)
        self.used[layer] += k.shape[0]

    def keys(self, layer):
        return self.k[layer][: self.used[layer]]

    def values(self, layer):
        return self.v[layer][: self.used[layer]]

    @property
    def seq_len(self):
        return int(self.used.min())

    def truncate(self, seq_len):
        self.used.clamp_(max=seq_len)


# --- cached_forward --------------------------------------------------------------------------------------


def _forward_drive(cached_forward, model, token_ids, chunks):
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


def _forward_reference(model, token_ids, chunks):
    ends = [sum(chunks[: i + 1]) for i in range(len(chunks))]
    logits = model(token_ids)  # causal: a row does not depend on what comes after it
    return [logits[end - size : end] for end, size in zip(ends, chunks)]


def _forward_cases(draw: Draw) -> list[Case]:
    def case(chunks, label):
        return Case((_model(draw.int(0, 9999)), draw.ints(0, 61, sum(chunks)).tolist(), chunks), label=label)

    prompt = draw.choice([4, 5, 6])
    return [
        case([prompt, 1, 1], f"a prompt of {prompt}, then two steps of one token"),
        case([3, draw.choice([2, 4]), 1], "a prompt in two passes, then a step"),
        case([1, 1, 1, 1], "one token at a time from the start"),
        case([draw.choice([5, 7])], "one pass, an empty cache"),
    ]


def _forward_in_model(answer, checkpoint):
    from course.check.model_pieces import Pieces
    from course.check.trial import Trial
    from llm_internals.kv_cache import KVCache

    pieces = Pieces(checkpoint.model)

    def continue_text(checkpoint, prompt, max_tokens):
        new_token_ids = checkpoint.tokenizer.encode(prompt)
        cache, tokens = KVCache.for_model(checkpoint.model, len(new_token_ids) + max_tokens), []
        for _ in range(max_tokens):
            tokens.append(int(answer(pieces, new_token_ids, cache)[-1].argmax()))
            new_token_ids = tokens[-1:]
        return tokens

    def logits(token_ids):
        return answer(pieces, token_ids.tolist(), KVCache.for_model(checkpoint.model, len(token_ids)))

    return Trial(continue_text=continue_text, logits=logits)


CACHED_FORWARD = Exercise(
    id="kv_cache.cached_forward",
    title="A forward pass with a cache",
    signature="cached_forward(model, token_ids, cache)",
    reference=_forward_reference,
    cases=_forward_cases,
    drive=_forward_drive,
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
    in_model=_forward_in_model,
)


@CACHED_FORWARD.near_miss(
    "every pass counts its positions from 0",
    says="RoPE must turn a new token by its place in the whole sequence: positions start at cache.seq_len. From 0, "
    "every decoded token stands at the start of the text, and still looks like one.",
    section=f"{PAGE}#bugs-seen-in-real-engines",
)
def cached_forward(model, token_ids, cache):
    start, num_new = cache.seq_len, len(token_ids)
    positions = torch.arange(num_new)
    visible = torch.arange(start + num_new) <= start + positions[:, None]
    x = model.embed(token_ids)
    for layer in range(model.num_layers):
        q, k, v = model.project(layer, x)
        cache.append(layer, model.rotate(k, positions), v)
        q = model.rotate(q, positions)
        x = model.finish(layer, x, model.attend(q, cache.keys(layer), cache.values(layer), visible))
    return model.logits(x)


@CACHED_FORWARD.near_miss(
    "it attends before it appends",
    says="The new tokens' own keys and values are not in the cache yet, so they cannot see themselves. Append first, "
    "then attend.",
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


@CACHED_FORWARD.near_miss(
    "cached keys are rotated again",
    says="The keys in the cache were turned when they were appended. Turning all of them at every pass turns the old "
    "ones twice, three times, ... Rotate only the new k, or keep keys unrotated and turn them all on reading.",
    section=f"{PAGE}#bugs-seen-in-real-engines",
)
def cached_forward(model, token_ids, cache):
    start, num_new = cache.seq_len, len(token_ids)
    positions = torch.arange(start, start + num_new)
    visible = torch.arange(start + num_new) <= positions[:, None]
    x = model.embed(token_ids)
    for layer in range(model.num_layers):
        q, k, v = model.project(layer, x)
        cached = model.rotate(cache.keys(layer), torch.arange(start))
        cache.append(layer, model.rotate(k, positions), v)
        keys = torch.cat([cached, cache.keys(layer)[start:]])
        x = model.finish(layer, x, model.attend(model.rotate(q, positions), keys, cache.values(layer), visible))
    return model.logits(x)


@CACHED_FORWARD.near_miss(
    "keys are never rotated",
    says="The query is turned by its position, the keys in the cache are not, so the score no longer depends on the "
    "distance. Rotate k before you append it.",
)
def cached_forward(model, token_ids, cache):
    start, num_new = cache.seq_len, len(token_ids)
    positions = torch.arange(start, start + num_new)
    visible = torch.arange(start + num_new) <= positions[:, None]
    x = model.embed(token_ids)
    for layer in range(model.num_layers):
        q, k, v = model.project(layer, x)
        cache.append(layer, k, v)
        q = model.rotate(q, positions)
        x = model.finish(layer, x, model.attend(q, cache.keys(layer), cache.values(layer), visible))
    return model.logits(x)


@CACHED_FORWARD.near_miss(
    "values are rotated as well",
    says="Position acts on scores, so RoPE turns q and k. Values carry what is passed on, and stay as they are.",
)
def cached_forward(model, token_ids, cache):
    start, num_new = cache.seq_len, len(token_ids)
    positions = torch.arange(start, start + num_new)
    visible = torch.arange(start + num_new) <= positions[:, None]
    x = model.embed(token_ids)
    for layer in range(model.num_layers):
        q, k, v = model.project(layer, x)
        cache.append(layer, model.rotate(k, positions), model.rotate(v, positions))
        q = model.rotate(q, positions)
        x = model.finish(layer, x, model.attend(q, cache.keys(layer), cache.values(layer), visible))
    return model.logits(x)


@CACHED_FORWARD.near_miss(
    "the mask starts in the wrong corner",
    says="Query i of this pass is token start + i of the text: it sees keys 0 to start + i, not 0 to i. With a cache "
    "the mask's diagonal ends in the lower right corner. torch's is_causal=True puts it in the upper left.",
    section=f"{PAGE}#bugs-seen-in-real-engines",
)
def cached_forward(model, token_ids, cache):
    start, num_new = cache.seq_len, len(token_ids)
    positions = torch.arange(start, start + num_new)
    visible = torch.ones(num_new, start + num_new, dtype=torch.bool).tril()
    x = model.embed(token_ids)
    for layer in range(model.num_layers):
        q, k, v = model.project(layer, x)
        cache.append(layer, model.rotate(k, positions), v)
        q = model.rotate(q, positions)
        x = model.finish(layer, x, model.attend(q, cache.keys(layer), cache.values(layer), visible))
    return model.logits(x)


@CACHED_FORWARD.near_miss(
    "no mask at all",
    says="One new token may look at everything, so a decode step passes. In a pass of several tokens each sees those "
    "after it, and what it learns from them goes into the cache. Mask the future whenever T is more than 1.",
    section=f"{PAGE}#why-it-is-right",
)
def cached_forward(model, token_ids, cache):
    start, num_new = cache.seq_len, len(token_ids)
    positions = torch.arange(start, start + num_new)
    visible = torch.ones(num_new, start + num_new, dtype=torch.bool)
    x = model.embed(token_ids)
    for layer in range(model.num_layers):
        q, k, v = model.project(layer, x)
        cache.append(layer, model.rotate(k, positions), v)
        q = model.rotate(q, positions)
        x = model.finish(layer, x, model.attend(q, cache.keys(layer), cache.values(layer), visible))
    return model.logits(x)


@CACHED_FORWARD.near_miss(
    "upper layers start one pass too late",
    says="The length is read again in every layer, when layer 0 has already appended, so the layers above turn their "
    "new tokens too far. Read cache.seq_len once, before the loop.",
    section=f"{PAGE}#bugs-seen-in-real-engines",
)
def cached_forward(model, token_ids, cache):
    num_new, start = len(token_ids), cache.seq_len
    visible = torch.arange(start + num_new) <= torch.arange(start, start + num_new)[:, None]
    x = model.embed(token_ids)
    for layer in range(model.num_layers):
        seen = len(cache.keys(0))
        positions = torch.arange(seen, seen + num_new)
        q, k, v = model.project(layer, x)
        cache.append(layer, model.rotate(k, positions), v)
        q = model.rotate(q, positions)
        x = model.finish(layer, x, model.attend(q, cache.keys(layer), cache.values(layer), visible))
    return model.logits(x)


@CACHED_FORWARD.near_miss(
    "only the last row is returned",
    says="The cases compare all rows of a pass: return [T, vocab_size], one row for each new token.",
)
def cached_forward(model, token_ids, cache):
    start, num_new = cache.seq_len, len(token_ids)
    positions = torch.arange(start, start + num_new)
    visible = torch.arange(start + num_new) <= positions[:, None]
    x = model.embed(token_ids)
    for layer in range(model.num_layers):
        q, k, v = model.project(layer, x)
        cache.append(layer, model.rotate(k, positions), v)
        q = model.rotate(q, positions)
        x = model.finish(layer, x, model.attend(q, cache.keys(layer), cache.values(layer), visible))
    return model.logits(x[-1:])


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


# --- generate_cached -------------------------------------------------------------------------------------


def _cached_drive(generate_cached, model, token_ids, max_new_tokens):
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


def _cached_reference(model, token_ids, max_new_tokens):
    whole = model._model  # without its cache: whole sequences, every time
    tokens = _continued(whole, token_ids, max_new_tokens)[0]
    passes = [len(token_ids)] + [1] * (max_new_tokens - 1) if max_new_tokens else []
    return {"returned": tokens, "tokens given to each pass": passes}


def _cached_cases(draw: Draw) -> list[Case]:
    cases = []
    for length, new, label in (
        (draw.choice([5, 7]), 6, "a prompt of several tokens"),
        (1, draw.choice([6, 8]), "a prompt of one token"),
        (draw.choice([3, 9]), 1, "one new token: the prompt's pass is enough"),
        (4, 3, "three new tokens"),
    ):
        seed, token_ids = _prompt(draw, length, new)
        cases.append(Case((_model(seed, "cached_llama"), token_ids, new), label=label))
    model = _model(draw.int(0, 9999), "cached_llama")
    return [*cases, Case((model, draw.ints(0, 61, 4).tolist(), 0), label="no new tokens: no pass")]


def _cached_in_model(answer, checkpoint):
    from course.check.model_pieces import CachedLlama
    from course.check.trial import Trial

    def continue_text(checkpoint, prompt, max_tokens):
        return list(answer(CachedLlama(checkpoint.model), checkpoint.tokenizer.encode(prompt), max_tokens))

    return Trial(continue_text=continue_text)


GENERATE_CACHED = Exercise(
    id="kv_cache.generate_cached",
    title="Generate with a cache",
    signature="generate_cached(model, token_ids, max_new_tokens)",
    reference=_cached_reference,
    cases=_cached_cases,
    drive=_cached_drive,
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
    in_model=_cached_in_model,
)


@GENERATE_CACHED.near_miss(
    "the last two tokens go in each time",
    says="The one before the last has gone in already and is appended a second time. Give only the newest: [token].",
)
def generate_cached(model, token_ids, max_new_tokens):
    cache = model.new_cache(len(token_ids) + max_new_tokens)
    new, out = token_ids, []
    for _ in range(max_new_tokens):
        out.append(int(model(new, cache)[-1].argmax()))
        new = out[-2:]
    return out


@GENERATE_CACHED.near_miss(
    "it gives the whole sequence to every pass",
    says="The cache already holds the earlier tokens; given again, they are appended a second time. Give each pass "
    "only what is new.",
)
def generate_cached(model, token_ids, max_new_tokens):
    total = len(token_ids) + max_new_tokens
    cache, whole = model.new_cache(total * total), list(token_ids)
    for _ in range(max_new_tokens):
        whole.append(int(model(whole, cache)[-1].argmax()))
    return whole[len(token_ids) :]


@GENERATE_CACHED.near_miss(
    "it gives the whole sequence to every pass, until the cache is full",
    says="The cache has room for each token once. It already holds the earlier ones; given again, they are appended a "
    "second time. Give each pass only what is new.",
)
def generate_cached(model, token_ids, max_new_tokens):
    cache, whole = model.new_cache(len(token_ids) + max_new_tokens), list(token_ids)
    for _ in range(max_new_tokens):
        whole.append(int(model(whole, cache)[-1].argmax()))
    return whole[len(token_ids) :]


@GENERATE_CACHED.near_miss(
    "it makes a new cache for every pass",
    says="A new cache is empty: the model sees one token and nothing of what came before. Make one cache, before the "
    "loop.",
)
def generate_cached(model, token_ids, max_new_tokens):
    new, out = list(token_ids), []
    for _ in range(max_new_tokens):
        cache = model.new_cache(len(token_ids) + max_new_tokens)
        out.append(int(model(new, cache)[-1].argmax()))
        new = out[-1:]
    return out


@GENERATE_CACHED.near_miss(
    "it is the naive generator with an unused cache",
    says="The tokens are right, the work is not: every pass takes the whole sequence with an empty cache. Keep the "
    "cache and give it only what is new.",
    section=f"{PAGE}#without-a-cache",
)
def generate_cached(model, token_ids, max_new_tokens):
    whole = list(token_ids)
    for _ in range(max_new_tokens):
        whole.append(int(model(whole, model.new_cache(len(whole)))[-1].argmax()))
    return whole[len(token_ids) :]


@GENERATE_CACHED.near_miss(
    "the prompt's last token is given twice",
    says="The prompt's pass has already put its last token into the cache, and its last row already scores the first "
    "new token. Take that token from it, and go on with the new one.",
)
def generate_cached(model, token_ids, max_new_tokens):
    out = []
    if max_new_tokens:
        cache = model.new_cache(len(token_ids) + max_new_tokens + 1)
        model(token_ids, cache)
        new = token_ids[-1:]
        for _ in range(max_new_tokens):
            out.append(int(model(new, cache)[-1].argmax()))
            new = out[-1:]
    return out


@GENERATE_CACHED.near_miss(
    "one pass too many",
    says="The last token you choose need not go through the model: nobody asks what follows it. n new tokens take n "
    "passes, the prompt's included.",
)
def generate_cached(model, token_ids, max_new_tokens):
    cache = model.new_cache(len(token_ids) + max_new_tokens)
    logits, out = model(token_ids, cache), []
    for _ in range(max_new_tokens):
        out.append(int(logits[-1].argmax()))
        logits = model(out[-1:], cache)
    return out


@GENERATE_CACHED.near_miss(
    "the prompt goes in token by token",
    says="All of the prompt is known, so one pass can take it whole. Token by token, the weights are read once for "
    "each of its tokens.",
    section=f"{PAGE}#where-did-the-rest-go",
)
def generate_cached(model, token_ids, max_new_tokens):
    cache, out, logits = model.new_cache(len(token_ids) + max_new_tokens), [], None
    for token_id in token_ids if max_new_tokens else []:
        logits = model([token_id], cache)
    for step in range(max_new_tokens):
        out.append(int(logits[-1].argmax()))
        if step + 1 < max_new_tokens:
            logits = model(out[-1:], cache)
    return out


@GENERATE_CACHED.near_miss(
    "the cache has room for the prompt only",
    says="The new tokens need room as well: len(token_ids) + max_new_tokens - 1 rows, since the last is never fed.",
    section=f"{PAGE}#the-shape-of-a-cache",
)
def generate_cached(model, token_ids, max_new_tokens):
    cache, new, out = model.new_cache(len(token_ids)), token_ids, []
    for _ in range(max_new_tokens):
        out.append(int(model(new, cache)[-1].argmax()))
        new = out[-1:]
    return out


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


# --- is_cache_safe ---------------------------------------------------------------------------------------


def _safe_reference(mask, num_prompt_tokens):
    num_tokens = len(mask)
    return not any(
        bool(mask[query, key])
        for query in range(num_tokens)
        for key in range(max(query + 1, num_prompt_tokens), num_tokens)
    )


def _prefix_mask(num_tokens: int, prefix: int) -> torch.Tensor:
    mask = torch.ones(num_tokens, num_tokens, dtype=torch.bool).tril()
    mask[:prefix, :prefix] = True
    return mask


def _safe_cases(draw: Draw) -> list[Case]:
    n, prefix = 4, 2  # small enough to be shown whole
    causal = torch.ones(n, n, dtype=torch.bool).tril()
    hole = causal.clone()
    hole[n - 1, 1] = False
    peek = causal.clone()
    peek[n - 2, n - 1] = True
    early = causal.clone()
    early[0, prefix] = True
    blind = causal.clone()
    blind[n - 1, n - 1] = False
    late = causal.clone()
    late[0, prefix + 1] = True
    later = torch.ones(n + 1, n + 1, dtype=torch.bool).tril()
    later[prefix, prefix + 1] = True
    cases = [
        Case((causal, 1), label="causal"),
        Case((causal.triu(-1), prefix), label="causal, a window of two"),
        Case((hole, 2), label="causal, one early key left out"),
        Case((_prefix_mask(n, prefix), prefix), label="the prompt looks both ways, what follows does not"),
        Case((_prefix_mask(n, prefix), prefix + 1), label="part of the prompt looks both ways"),
        Case((_prefix_mask(n, prefix), prefix - 1), label="the two-way part reaches one token beyond the prompt"),
        Case((_prefix_mask(n, n), prefix), label="all tokens look both ways"),
        Case((_prefix_mask(n, n), n), label="all tokens look both ways, all of them in the prompt"),
        Case((peek, prefix), label="the last token but one looks at the last"),
        Case((early, prefix), label="the first token looks at the first new one"),
        Case((late, prefix), label="the first token looks at the second new one"),
        Case((blind, n - 1), label="the only new token does not look at itself"),
        Case((later, prefix), label="a new token looks one ahead, but not at the last"),
        Case((torch.ones(1, 1, dtype=torch.bool), 1), label="one token"),
    ]
    for reaches_beyond in (False, True):
        n = draw.int(6, 11)
        prompt = draw.int(2, n - 2)
        prefix = draw.int(prompt + 1, n - 1) if reaches_beyond else draw.int(1, prompt)
        mask = _prefix_mask(n, prefix).T.contiguous().T  # the same mask, its columns next to each other in memory
        cases.append(Case((mask, prompt), label=f"{n} tokens, the first {prefix} look both ways, {prompt} in the prompt"))
    return cases


IS_CACHE_SAFE = Exercise(
    id="kv_cache.is_cache_safe",
    title="When is caching right?",
    signature="is_cache_safe(mask, num_prompt_tokens)",
    reference=_safe_reference,
    cases=_safe_cases,
    hints=(
        "A key is final when it is written. Which squares of the mask would make it depend on a token that is not "
        "there yet?",
        "Prompt tokens are all there in the first pass, so they may look at each other. A token that comes later may "
        "be looked at only by itself and by those after it.",
        "Above the diagonal, in the columns of new tokens, nothing may be True: mask.triu(1)[:, num_prompt_tokens:]",
    ),
    section=f"{PAGE}#why-it-is-right",
    points=2,
    difficulty=3,
    minutes=15,
    given=("kv_cache",),
    prelude=WITH_MODELS,
)


@IS_CACHE_SAFE.near_miss(
    "any two-way part is refused",
    says="Tokens of the prompt go through one pass together, so they may look at each other: their keys are final when "
    "that pass is over. Only columns from num_prompt_tokens on matter.",
)
def is_cache_safe(mask, num_prompt_tokens):
    return not bool(mask.triu(1).any())


@IS_CACHE_SAFE.near_miss(
    "only the full triangle passes",
    says="A token may see less than the causal mask allows, as with a sliding window: that adds no dependence on later "
    "tokens. Ask for what is forbidden, not for what is usual.",
)
def is_cache_safe(mask, num_prompt_tokens):
    allowed = torch.ones_like(mask).tril()
    allowed[:num_prompt_tokens, :num_prompt_tokens] = mask[:num_prompt_tokens, :num_prompt_tokens]
    return bool(torch.equal(mask, allowed))


@IS_CACHE_SAFE.near_miss(
    "prompt tokens may look at anything",
    says="A prompt token that looks at a new token needs what does not exist in its pass. This lets a two-way prefix "
    "reach beyond the prompt: check the rows of the prompt too, in the columns of new tokens.",
)
def is_cache_safe(mask, num_prompt_tokens):
    return not bool(mask.triu(1)[num_prompt_tokens:].any())


@IS_CACHE_SAFE.near_miss(
    "it looks at new tokens looking back",
    says="mask[i, j] says whether query i looks at key j: rows look, columns are looked at. Looking back (j < i) is "
    "what the cache is for.",
)
def is_cache_safe(mask, num_prompt_tokens):
    return not bool(mask.tril(-1)[num_prompt_tokens:].any())


@IS_CACHE_SAFE.near_miss(
    "it checks only neighbours",
    says="A token may look further ahead than one step: take the whole triangle above the diagonal, triu(1).",
)
def is_cache_safe(mask, num_prompt_tokens):
    return not bool(mask.diagonal(1)[num_prompt_tokens - 1 :].any())


@IS_CACHE_SAFE.near_miss(
    "a token that looks at itself is refused",
    says="A token's own key is made in its own pass: the diagonal is no look ahead. triu(1), not triu(0).",
)
def is_cache_safe(mask, num_prompt_tokens):
    return not bool(mask.triu(0)[:, num_prompt_tokens:].any())


@IS_CACHE_SAFE.near_miss(
    "the first new column is left out",
    says="Columns count from 0, so the prompt ends with column num_prompt_tokens - 1 and the new ones begin with "
    "num_prompt_tokens: mask[:, num_prompt_tokens:].",
)
def is_cache_safe(mask, num_prompt_tokens):
    return not bool(mask.triu(1)[:, num_prompt_tokens + 1 :].any())


@IS_CACHE_SAFE.near_miss(
    "the prompt's last column is taken for a new one",
    says="The prompt's tokens go through one pass together, its last one too: columns up to num_prompt_tokens - 1 may be "
    "looked at by all of them.",
)
def is_cache_safe(mask, num_prompt_tokens):
    return not bool(mask.triu(1)[:, num_prompt_tokens - 1 :].any())


@IS_CACHE_SAFE.alternate("by loops")
def is_cache_safe(mask, num_prompt_tokens):
    num_tokens = mask.shape[0]
    for key in range(num_prompt_tokens, num_tokens):
        for query in range(key):
            if mask[query, key]:
                return False
    return True


@IS_CACHE_SAFE.alternate("by comparing with the largest safe mask")
def is_cache_safe(mask, num_prompt_tokens):
    position = torch.arange(len(mask))
    known = (position[None, :] <= position[:, None]) | (position[None, :] < num_prompt_tokens)
    return not (mask & ~known).any().item()


# --- cost ------------------------------------------------------------------------------------------------


def _cost_reference(num_prompt_tokens, max_new_tokens):
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


def _cost_cases(draw: Draw) -> list[Case]:
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
    reference=_cost_reference,
    cases=_cost_cases,
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


@COST.near_miss(
    "score pairs of one pass only",
    says="n * n is one pass over n tokens. Without a cache there is such a pass for every new token, each one longer: "
    "sum the squares.",
)
def cost(num_prompt_tokens, max_new_tokens):
    p, n = num_prompt_tokens, max_new_tokens
    return {
        "naive": {"rows_projected": n * p + n * (n - 1) // 2, "score_pairs_masked": (p + n - 1) ** 2 if n else 0},
        "cached": {
            "rows_projected": p + n - 1 if n else 0,
            "score_pairs_masked": p * p + (n - 1) * p + n * (n - 1) // 2 if n else 0,
        },
    }


@COST.near_miss(
    "the prompt is left out",
    says="The first pass takes the whole prompt: P rows and P * P scores. From a one-token prompt the formulas look "
    "the same, from a long one they do not.",
)
def cost(num_prompt_tokens, max_new_tokens):
    n = max_new_tokens
    return {
        "naive": {"rows_projected": n * (n + 1) // 2, "score_pairs_masked": n * (n + 1) * (2 * n + 1) // 6},
        "cached": {"rows_projected": n, "score_pairs_masked": n * (n + 1) // 2},
    }


@COST.near_miss(
    "one step too many",
    says="N new tokens take N passes, and the prompt's own pass gives the first of them: P, P + 1, ..., P + N - 1. The "
    "token chosen last is never fed.",
)
def cost(num_prompt_tokens, max_new_tokens):
    p, n = num_prompt_tokens, max_new_tokens
    lengths = range(p, p + n + 1)
    return {
        "naive": {"rows_projected": sum(lengths), "score_pairs_masked": sum(x * x for x in lengths)},
        "cached": {"rows_projected": p + n, "score_pairs_masked": p * p + sum(lengths[1:])},
    }


@COST.near_miss(
    "with a cache, scores are taken to be linear",
    says="A cached step projects one row, and scores it against all keys so far: step by step P + 1, P + 2, ... pairs. "
    "Their sum grows with the square of the length.",
)
def cost(num_prompt_tokens, max_new_tokens):
    p, n = num_prompt_tokens, max_new_tokens
    lengths = range(p, p + n)
    linear = p + n - 1 if n else 0
    return {
        "naive": {"rows_projected": sum(lengths), "score_pairs_masked": sum(x * x for x in lengths)},
        "cached": {"rows_projected": linear, "score_pairs_masked": linear},
    }


@COST.near_miss(
    "masked squares are left out",
    says="score_pairs_masked counts the whole rectangle of a pass, P * P for the prompt, masked squares included.",
)
def cost(num_prompt_tokens, max_new_tokens):
    p, n = num_prompt_tokens, max_new_tokens
    lengths = range(p, p + n)
    return {
        "naive": {"rows_projected": sum(lengths), "score_pairs_masked": sum(x * (x + 1) // 2 for x in lengths)},
        "cached": {
            "rows_projected": p + n - 1 if n else 0,
            "score_pairs_masked": p * (p + 1) // 2 + sum(lengths[1:]) if n else 0,
        },
    }


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


EXERCISES = [GENERATE_NAIVE, KV_CACHE, CACHED_FORWARD, GENERATE_CACHED, IS_CACHE_SAFE, COST]
