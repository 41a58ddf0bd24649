# %% [markdown] key="title"
# # The KV cache
#
# Seven tasks beside the page *The KV cache*: the obvious generator, the memory that makes it affordable, the forward
# pass that uses it, and three questions: when it is right, what a token weighs, what it all costs. Every answer is
# checked on its own.
#
# The answers run on a small Llama with random weights, `tiny_llama(seed)`: three layers, six query heads that share
# two key/value heads, RoPE, a vocabulary of 61 ids. It knows nothing, and computes as the real one does.
# What passes is then run on SmolLM2.

# %% [markdown] key="predict-text"
# ## Before you start: predict
#
# SmolLM2 is to write 60 tokens after a prompt of one. How many rows does each generator push through $W_K$ in each
# layer, and how many times faster is the one with the cache? Write numbers in place of the dots.

# %% key="predict" role="given"
predict("rows without a cache", ...)
predict("rows with a cache", ...)
predict("times faster", ...)

# %% key="measure" role="given"
from itertools import zip_longest
from time import perf_counter

from course.check.trial import checkpoint
from llm_internals import kv_cache


def race(prompt, max_new_tokens):
    """Both generators take turns, token by token, so that whatever else this machine does slows both alike."""
    model, tokenizer, _ = checkpoint()
    counters, seconds, texts = [kv_cache.Counters(), kv_cache.Counters()], [0.0, 0.0], [[], []]
    runners = [
        generate(model, tokenizer.encode(prompt), max_new_tokens, counters=count)
        for generate, count in zip((kv_cache.generate_naive, kv_cache.generate_cached), counters)
    ]
    for _ in range(max_new_tokens):
        for which, runner in enumerate(runners):
            start = perf_counter()
            texts[which].append(next(runner))
            seconds[which] += perf_counter() - start
    return counters, seconds, texts


(naive, cached), (naive_seconds, cached_seconds), (one, other) = race("Once", 60)
reveal("rows without a cache", naive.rows_projected)
reveal("rows with a cache", cached.rows_projected)
reveal("times faster", naive_seconds / cached_seconds)
print("the same 60 tokens:", one == other)

# %% [markdown] key="kv_cache.generate_naive-task" role="task"
# ## Generate without a cache, and count
#
# Write the generator that keeps nothing. `model(ids)` takes a list of token ids and returns logits `[T, vocab_size]`;
# row $i$ scores the token that follows token $i$. For each new token, run the model on everything so far and take
# the largest logit of the last row. This model has no end token: go on for `max_new_tokens`, whatever comes.
#
# Return the new tokens, and a dict of three counts, summed over all passes. A pass over $n$ tokens is one
# `forward_calls`, projects $n$ rows in each layer (`rows_projected`), and computes an $n × n$ rectangle of scores in
# each head (`score_pairs_masked`: masked squares included). The check also looks at the passes you really made: one for
# each new token.
#
# Example: a prompt of 2 tokens and `max_new_tokens=3` takes passes over 2, 3 and 4 tokens. So `forward_calls` is 3,
# `rows_projected` 2 + 3 + 4 = 9, `score_pairs_masked` 4 + 9 + 16 = 29.
#
# Page: *Without a cache*.

# %% key="kv_cache.generate_naive" role="answer"
# answer: kv_cache.generate_naive
def generate_naive(model, token_ids, max_new_tokens):
    """model(ids) -> logits [T, vocab_size]; token_ids: list of ints, left as it is.

    Returns (new tokens as a list of ints,
             {"forward_calls": int, "rows_projected": int, "score_pairs_masked": int}).
    """
    ### BEGIN SOLUTION
    whole = list(token_ids)
    counters = {"forward_calls": 0, "rows_projected": 0, "score_pairs_masked": 0}
    for _ in range(max_new_tokens):
        logits = model(whole)
        counters["forward_calls"] += 1
        counters["rows_projected"] += len(whole)
        counters["score_pairs_masked"] += len(whole) ** 2
        whole.append(int(logits[-1].argmax()))
    return whole[len(token_ids) :], counters
    ### END SOLUTION


# %% [markdown] key="kv_cache.KVCache-task" role="task"
# ## The cache itself
#
# Write the memory: keys and values of every layer, in tensors that are made once, with room for `capacity` tokens.
#
# - `append(layer, k, v)` copies new keys and values, each `[T, num_kv_heads, head_dim]`, behind those of that layer.
#   When they do not fit it raises `ValueError`, and what was there stays as it was.
# - `keys(layer)`, `values(layer)` return what has been appended to that layer, `[tokens, num_kv_heads, head_dim]`:
#   views of your memory, which stays where it is.
# - `seq_len` is the number of tokens that **every** layer holds. In the middle of a forward pass the lower layers
#   are ahead of the upper ones.
# - `truncate(seq_len)` forgets all tokens but the first `seq_len`, of which every layer holds at least that many; some
#   layers may hold more than others.
# - Two caches know nothing of each other.
#
# Example: two layers, three tokens in each, so `seq_len` is 3. Now `append(0, k, v)` with one token:
# `len(cache.keys(0))` is 4, `len(cache.keys(1))` is 3, `seq_len` is still 3. After `append(1, k, v)` it is 4.
#
# Page: *With a cache*, *The shape of a cache*.

# %% key="kv_cache.KVCache" role="answer"
# answer: kv_cache.KVCache
class KVCache:
    def __init__(self, num_layers, num_kv_heads, head_dim, capacity, dtype=torch.float32):
        ### BEGIN SOLUTION
        self.storage = torch.zeros(2, num_layers, capacity, num_kv_heads, head_dim, dtype=dtype)
        self.lengths = [0] * num_layers
        ### END SOLUTION

    def append(self, layer, k, v):
        """k, v: [T, num_kv_heads, head_dim]. ValueError when there is no room for T more tokens in this layer."""
        ### BEGIN SOLUTION
        start, end = self.lengths[layer], self.lengths[layer] + len(k)
        capacity = self.storage.shape[2]
        if end > capacity:
            raise ValueError(f"the cache has room for {capacity} tokens, {end} came")
        self.storage[0, layer, start:end] = k
        self.storage[1, layer, start:end] = v
        self.lengths[layer] = end
        ### END SOLUTION

    def keys(self, layer):
        """-> [tokens, num_kv_heads, head_dim]"""
        ### BEGIN SOLUTION
        return self.storage[0, layer, : self.lengths[layer]]
        ### END SOLUTION

    def values(self, layer):
        """-> [tokens, num_kv_heads, head_dim]"""
        ### BEGIN SOLUTION
        return self.storage[1, layer, : self.lengths[layer]]
        ### END SOLUTION

    @property
    def seq_len(self):
        """Tokens that every layer holds."""
        ### BEGIN SOLUTION
        return min(self.lengths)
        ### END SOLUTION

    def truncate(self, seq_len):
        """Forget all but the first seq_len tokens."""
        ### BEGIN SOLUTION
        self.lengths = [seq_len] * len(self.lengths)
        ### END SOLUTION


# %% [markdown] key="kv_cache.cached_forward-task" role="task"
# ## A forward pass with a cache
#
# The heart of the chapter. `token_ids` are $T$ new tokens; the cache holds the keys and values of the `cache.seq_len`
# tokens before them. Run only the new ones through the model, add their keys and values to the cache, and return
# their logits `[T, vocab_size]`. $T$ may be 1 (decode), a whole prompt (prefill) or part of one.
#
# The model comes in pieces:
#
# | call | shapes |
# |:--|:--|
# | `model.embed(token_ids)` | `-> x [T, hidden]` |
# | `model.project(layer, x)` | `-> q [T, Hq, D], k, v [T, Hkv, D]`, normalised and projected, not rotated |
# | `model.rotate(x, positions)` | RoPE; `positions` is an int64 tensor `[T]` |
# | `model.attend(q, k, v, visible)` | `visible`: bool `[Tq, Tk]`, True where a query may look; `-> [Tq, Hq, D]` |
# | `model.finish(layer, x, mixed)` | output projection, residual, MLP; `-> x [T, hidden]` of the next layer |
# | `model.logits(x)` | `-> [T, vocab_size]` |
#
# and the cache has `append(layer, k, v)`, `keys(layer)`, `values(layer)` and `seq_len`, as above. The next cell
# prints how the small model runs a whole sequence without a cache: that is your starting point.
#
# Example: with 3 tokens in the cache and `token_ids=[7, 9]`, the positions are 3 and 4, and `visible` is
#
# ```
# [[1, 1, 1, 1, 0],
#  [1, 1, 1, 1, 1]]
# ```
#
# Page: *With a cache*, *Why it is right*.

# %% key="without" role="given"
import inspect

print(inspect.getsource(type(tiny_llama(seed=0)).__call__))

# %% key="kv_cache.cached_forward" role="answer"
# answer: kv_cache.cached_forward
def cached_forward(model, token_ids, cache):
    """token_ids: list of T ints that continue what the cache holds -> logits [T, vocab_size]."""
    ### BEGIN SOLUTION
    start = cache.seq_len
    positions = torch.arange(start, start + len(token_ids))
    visible = torch.arange(start + len(token_ids)) <= positions[:, None]
    x = model.embed(token_ids)
    for layer in range(model.num_layers):
        q, k, v = model.project(layer, x)
        cache.append(layer, model.rotate(k, positions), v)
        q = model.rotate(q, positions)
        mixed = model.attend(q, cache.keys(layer), cache.values(layer), visible)
        x = model.finish(layer, x, mixed)
    return model.logits(x)
    ### END SOLUTION


# %% [markdown] key="kv_cache.generate_cached-task" role="task"
# ## Generate with a cache
#
# Now the loop around it. `model(ids, cache)` runs new tokens, given as a list of ids, through the model and returns
# their logits `[T, vocab_size]`; `model.new_cache(capacity)` makes an empty cache. Return the new tokens as a list of
# ints.
#
# The check looks at the tokens, which are those of `generate_naive`, and at how many tokens you gave to each pass.
#
# Example: a prompt of 5 tokens and `max_new_tokens=4` takes passes of 5, 1, 1 and 1 tokens. With `max_new_tokens=0`
# there is no pass at all.
#
# Page: *With a cache*.

# %% key="kv_cache.generate_cached" role="answer"
# answer: kv_cache.generate_cached
def generate_cached(model, token_ids, max_new_tokens):
    """model(ids, cache) -> logits [T, vocab_size]; token_ids: list of ints. Returns the new tokens, a list of ints."""
    ### BEGIN SOLUTION
    cache = model.new_cache(len(token_ids) + max_new_tokens)
    new, out = token_ids, []
    for _ in range(max_new_tokens):
        out.append(int(model(new, cache)[-1].argmax()))
        new = out[-1:]
    return out
    ### END SOLUTION


# %% [markdown] key="kv_cache.is_cache_safe-task" role="task"
# ## When is caching right?
#
# `mask` is bool `[n, n]`: `mask[i, j]` is True when query $i$ may look at key $j$, in every layer. The first
# `num_prompt_tokens` tokens go through the model in one pass, the others one by one, and keys and values are kept
# as soon as they are computed. Is the result the same as that of one pass over all $n$ tokens? Return True or False.
#
# Some models let the tokens of a prompt look at each other in both directions (a *prefix LM*); others let a token see
# only the last few. Think about which of these a cache survives.
#
# Example: for a causal mask the answer is True. Set `mask[0, 2] = True` in a causal `[3, 3]` mask: with
# `num_prompt_tokens=3` it is True, with 2 it is False, since token 0's keys are kept before token 2 exists.
#
# Page: *Why it is right*.

# %% key="kv_cache.is_cache_safe" role="answer"
# answer: kv_cache.is_cache_safe
def is_cache_safe(mask, num_prompt_tokens):
    """mask: bool [n, n], True where query i may look at key j; 1 <= num_prompt_tokens <= n -> bool."""
    ### BEGIN SOLUTION
    looks_ahead = mask.triu(1)
    return not bool(looks_ahead[:, num_prompt_tokens:].any())
    ### END SOLUTION


# %% [markdown] key="kv_cache.bytes_per_token-task" role="task"
# ## What a token weighs
#
# How many bytes does one token add to the cache? A key and a value are kept for it, in every layer and for every
# KV head, `head_dim` numbers each; `itemsize` is the number of bytes of one number, 4 in fp32 and 2 in fp16 or bf16.
# All four arguments are ints. Return an exact int.
#
# Example: a model of 2 layers with 3 KV heads of width 5 keeps 15 numbers of keys and 15 of values in each layer, 60
# in both. In fp16 `bytes_per_token(2, 3, 5, 2)` is 120.
#
# Page: *The shape of a cache*.

# %% key="kv_cache.bytes_per_token" role="answer"
# answer: kv_cache.bytes_per_token
def bytes_per_token(num_layers, num_kv_heads, head_dim, itemsize):
    """All ints, at least 1; itemsize: bytes of one number -> int."""
    ### BEGIN SOLUTION
    return 2 * num_layers * num_kv_heads * head_dim * itemsize  # 2: keys and values
    ### END SOLUTION


# %% [markdown] key="kv_cache.cost-task" role="task"
# ## The cost in closed form
#
# Without running anything: what will the counters of both generators show after `max_new_tokens` new tokens from a
# prompt of `num_prompt_tokens`? Return exact ints. `score_pairs_masked` counts the whole rectangle of every pass, a
# pass of $T_q$ new tokens over $T_k$ keys having $T_q × T_k$ squares.
#
# Example: `cost(2, 3)` has passes over 2, 3 and 4 tokens without a cache. With one, passes of 2, 1 and 1 tokens over
# 2, 3 and 4 keys:
#
# ```
# {"naive":  {"rows_projected": 9, "score_pairs_masked": 29},
#  "cached": {"rows_projected": 4, "score_pairs_masked": 11}}
# ```
#
# Page: *What it costs in all*.

# %% key="kv_cache.cost" role="answer"
# answer: kv_cache.cost
def cost(num_prompt_tokens, max_new_tokens):
    """-> {"naive": {"rows_projected": int, "score_pairs_masked": int}, "cached": {the same}}"""
    ### BEGIN SOLUTION
    p, n = num_prompt_tokens, max_new_tokens

    def squares(last):
        return last * (last + 1) * (2 * last + 1) // 6  # 1 + 4 + ... + last * last

    naive = {
        "rows_projected": n * p + n * (n - 1) // 2,
        "score_pairs_masked": squares(p + n - 1) - squares(p - 1),
    }
    cached = {
        "rows_projected": p + n - 1 if n else 0,
        "score_pairs_masked": p * p + (n - 1) * p + n * (n - 1) // 2 if n else 0,
    }
    return {"naive": naive, "cached": cached}
    ### END SOLUTION


# %% [markdown] key="end"
# Done? `course status` in a terminal shows where you are. Chapter 05 asks what such a cache weighs.
