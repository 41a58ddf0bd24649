"""The two generators against each other, and the counters against what the operations really received."""

import sys
from dataclasses import astuple, replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_internals import kv_cache, ops
from llm_internals.kv_cache import Counters, KVCache, generate_cached, generate_naive


def run(generate, *args, **kwargs):
    counters = Counters()
    return list(generate(*args, counters=counters, **kwargs)), counters


def test_counters_of_two_hundred_tokens(small_llama):
    """A prompt of one token, n = 200: sums of t, of t squared, and of t (t + 1) / 2."""
    naive_ids, naive = run(generate_naive, small_llama, [3], 200)
    cached_ids, cached = run(generate_cached, small_llama, [3], 200)
    assert naive_ids == cached_ids
    assert len(naive_ids) == 200
    assert naive == Counters(200, 20_100, 2_686_700, 1_353_400)
    assert cached == Counters(200, 200, 20_100, 20_100)


def measured(generate, model, prompt, n):
    """Count by looking at the tensors that attention and W_Q really received in the first layer."""
    attended = []

    def attention(q, k, v, scale, window=None):
        attended.append((len(q), len(k)))
        return ops.attention(q, k, v, scale, window)

    projected = []

    def linear(x, weight):
        if weight is model.layers[0].q_proj:
            projected.append(len(x))
        return ops.linear(x, weight)

    with ops.use(attention=attention, linear=linear):
        list(generate(model, prompt, n))
    first_layer = attended[:: model.config.num_layers]
    causal = sum(sum(range(tk - tq + 1, tk + 1)) for tq, tk in first_layer)
    return Counters(len(projected), sum(projected), sum(tq * tk for tq, tk in first_layer), causal)


@pytest.mark.parametrize("generate", [generate_naive, generate_cached])
@pytest.mark.parametrize(("prompt", "n"), [([3], 7), ([3, 1, 4, 1, 5], 6), (list(range(30)), 1), ([2], 0)])
def test_counters_equal_what_the_model_did(small_llama, generate, prompt, n):
    assert run(generate, small_llama, prompt, n)[1] == measured(generate, small_llama, prompt, n)


def test_counters_grow_step_by_step(small_llama):
    """What a race between the two draws: at each token, the work done for it is counted already."""
    counters = Counters()
    rows = [counters.rows_projected for _ in generate_naive(small_llama, [1, 2], 4, counters=counters)]
    assert rows == [2, 5, 9, 14]
    counters = Counters()
    steps = [replace(counters) for _ in generate_cached(small_llama, [1, 2], 3, counters=counters)]
    assert [astuple(step) for step in steps] == [(1, 2, 4, 3), (2, 3, 7, 6), (3, 4, 11, 10)]


@given(
    prompt=st.lists(st.integers(0, 96), min_size=1, max_size=20),
    n=st.integers(0, 15),
    temperature=st.sampled_from([0.0, 0.7, 1.5]),
    seed=st.integers(0, 2**31),
)
@settings(deadline=None, max_examples=30)
def test_naive_equals_cached(small_llama, prompt, n, temperature, seed):
    options = {"temperature": temperature, "seed": seed}
    naive, cached = (list(g(small_llama, prompt, n, **options)) for g in (generate_naive, generate_cached))
    assert naive == cached
    assert len(naive) == n


def test_naive_equals_cached_on_smollm2(smollm2):
    prompt = smollm2.tokenizer.encode("The capital of France is")
    naive = list(generate_naive(smollm2.model, prompt, 10))
    assert naive == list(generate_cached(smollm2.model, prompt, 10))
    assert smollm2.tokenizer.decode(naive).startswith(" Paris.")


def test_seeds(small_llama):
    def draw(seed, generate=generate_cached):
        return list(generate(small_llama, [5], 40, temperature=1.0, seed=seed))

    assert draw(1) == draw(1) == draw(1, generate_naive)
    assert draw(1) != draw(2)
    assert draw(None) != draw(None)
    assert draw(1) != list(generate_cached(small_llama, [5], 40))


def test_generation_leaves_torchs_random_state_alone(small_llama):
    before = torch.get_rng_state()
    list(generate_cached(small_llama, [5], 3, temperature=1.0))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("generate", [generate_naive, generate_cached])
def test_a_stop_token_is_the_last(small_llama, generate):
    free = list(generate(small_llama, [3], 30))
    stop = free[4]
    stopped, counters = run(generate, small_llama, [3], 30, stop_token_ids={stop})
    assert stopped == free[: free.index(stop) + 1]
    assert counters.forward_calls == len(stopped)


@pytest.mark.parametrize("generate", [generate_naive, generate_cached])
def test_the_callers_prompt_is_left_alone(small_llama, generate):
    prompt = [1, 2, 3]
    list(generate(small_llama, prompt, 5))
    assert prompt == [1, 2, 3]
    assert list(generate(small_llama, torch.tensor(prompt), 5)) == list(generate(small_llama, prompt, 5))


@pytest.mark.parametrize("generate", [generate_naive, generate_cached])
@pytest.mark.parametrize(
    ("prompt", "n", "options", "message"),
    [
        ([], 3, {}, "prompt is empty"),
        ([97], 3, {}, "outside the vocabulary, 0 to 96"),
        ([-1], 3, {}, "outside the vocabulary"),
        ([1], -1, {}, "must not be negative"),
        ([1] * 200, 57, {}, "more than the 256 positions"),
        ([1], 3, {"temperature": -0.5}, "temperature must be 0"),
    ],
)
def test_bad_requests(small_llama, generate, prompt, n, options, message):
    with pytest.raises(ValueError, match=message):
        list(generate(small_llama, prompt, n, **options))


# ----------------------------------------------------------------- the cache


def test_shape_and_size(smollm2):
    cache = KVCache.for_model(smollm2.model, capacity=100)
    smollm2.model(torch.tensor([1, 2, 3, 4, 5]), cache)
    assert cache.seq_len == 5
    assert cache.shape == (2, 30, 1, 3, 5, 64)
    assert cache.storage.shape == (2, 30, 1, 3, 100, 64)
    assert cache.nbytes == 2 * 30 * 1 * 3 * 100 * 64 * 4
    assert cache.keys(0).shape == cache.values(29).shape == (5, 3, 64)
    assert (cache.storage[:, :, :, :, 5:] == 0).all()
    assert (cache.storage[:, :, :, :, :5] != 0).all()


@given(cuts=st.lists(st.integers(1, 6), min_size=1, max_size=5))
@settings(deadline=None, max_examples=20)
def test_any_way_to_cut_a_prompt_gives_the_same_logits_and_cache(small_llama, cuts):
    ids = torch.randint(0, 97, (sum(cuts),), generator=torch.Generator().manual_seed(sum(cuts)))
    whole, parts = (KVCache.for_model(small_llama, len(ids)) for _ in range(2))
    expected = small_llama(ids, whole)
    got = torch.cat([small_llama(part, parts) for part in ids.split(cuts)])
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(parts.storage, whole.storage, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(expected, small_llama(ids), atol=1e-5, rtol=1e-5)


def test_appending_moves_nothing_that_is_there(small_llama):
    cache = KVCache.for_model(small_llama, 8)
    small_llama(torch.tensor([1, 2, 3]), cache)
    before = cache.storage[..., :3, :].clone()
    small_llama(torch.tensor([50, 60]), cache)
    assert torch.equal(cache.storage[..., :3, :], before)


def test_keys_are_views(small_llama):
    cache = KVCache.for_model(small_llama, 8)
    small_llama(torch.tensor([1, 2, 3]), cache)
    assert cache.keys(1).data_ptr() == cache.storage[0, 1].data_ptr()


def test_truncate_and_go_on(small_llama):
    cache = KVCache.for_model(small_llama, 10)
    small_llama(torch.tensor([1, 2, 3, 4, 5, 6]), cache)
    cache.truncate(2)
    assert cache.shape[4] == 2
    got = small_llama(torch.tensor([9, 8]), cache)
    torch.testing.assert_close(got, small_llama(torch.tensor([1, 2, 9, 8]))[2:], atol=1e-5, rtol=1e-5)
    with pytest.raises(ValueError, match="cannot truncate a cache of 4 tokens to 5"):
        cache.truncate(5)


def test_a_full_cache_says_so_and_keeps_what_it_has(small_llama):
    cache = KVCache.for_model(small_llama, 4)
    small_llama(torch.tensor([1, 2, 3]), cache)
    with pytest.raises(ValueError, match=r"room for 4 tokens, holds 3, and 2 more came; make it with capacity=5"):
        small_llama(torch.tensor([4, 5]), cache)
    assert cache.seq_len == 3
    got = small_llama(torch.tensor([4]), cache)
    torch.testing.assert_close(got[0], small_llama(torch.tensor([1, 2, 3, 4]))[3], atol=1e-5, rtol=1e-5)


def test_an_interrupted_forward_pass_leaves_the_cache_usable(small_llama):
    """Ctrl-C in the middle: the first layers have the new token, the others do not."""
    cache = KVCache.for_model(small_llama, 8)
    small_llama(torch.tensor([1, 2, 3]), cache)
    calls = []

    def interrupted(gate, up):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return ops.swiglu(gate, up)

    with pytest.raises(KeyboardInterrupt), ops.use(swiglu=interrupted):
        small_llama(torch.tensor([4]), cache)
    got = small_llama(torch.tensor([7]), cache)
    torch.testing.assert_close(got[0], small_llama(torch.tensor([1, 2, 3, 7]))[3], atol=1e-5, rtol=1e-5)


def test_a_given_cache_is_continued(small_llama):
    cache = KVCache.for_model(small_llama, 20)
    first = list(generate_cached(small_llama, [1, 2], 3, cache=cache))
    assert cache.seq_len == 4  # the third new token was never fed back
    again = list(generate_cached(small_llama, [first[-1], 9], 3, cache=cache))
    assert again == list(generate_naive(small_llama, [1, 2, *first, 9], 3))


def test_rows_share_memory_and_nothing_else(small_llama):
    cache = KVCache(small_llama.config, 6, batch=2)
    with pytest.raises(ValueError, match=r"several sequences: append to one of them, cache.row\(i\)"):
        small_llama(torch.tensor([1]), cache)
    rows = [cache.row(0), cache.row(1)]
    for ids in ([1, 2], [3]):
        for row, token_id in zip(rows, ids):
            small_llama(torch.tensor([token_id]), row)
    assert [row.seq_len for row in rows] == [2, 1]
    got = small_llama(torch.tensor([5]), rows[0])[0]
    torch.testing.assert_close(got, small_llama(torch.tensor([1, 3, 5]))[2], atol=1e-5, rtol=1e-5)
    assert rows[1].keys(0).data_ptr() == cache.storage[0, 0, 1].data_ptr()


def test_append_checks_shapes(small_llama):
    cache = KVCache.for_model(small_llama, 4)
    good, bad = torch.zeros(1, 2, 8), torch.zeros(1, 6, 8)
    with pytest.raises(ValueError, match=r"\[T, 2, 8\], got \[1, 6, 8\] and \[1, 6, 8\]"):
        cache.append(0, bad, bad)
    with pytest.raises(ValueError, match="got"):
        cache.append(0, good, bad)
    with pytest.raises(ValueError, match="at least 1"):
        KVCache(small_llama.config, 0)


# ----------------------------------------------------------------- interrupts, wherever they come

LIBRARY = Path(kv_cache.__file__).parent


def interrupted_at(step, action):
    """Run an action, and raise KeyboardInterrupt at the `step`-th line of the library; True if it got that far."""
    seen = 0

    def trace(frame, event, arg):
        nonlocal seen
        if Path(frame.f_code.co_filename).parent != LIBRARY:
            return None
        if event == "line":
            seen += 1
            if seen == step:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_wherever_ctrl_c_comes_the_cache_is_as_before(small_llama):
    """At every third line of the library that a pass runs: the same length, the same keys, and it goes on."""
    cache = KVCache.for_model(small_llama, 8)
    small_llama(torch.tensor([1, 2, 3]), cache)
    before = cache.storage[..., :3, :].clone()
    tries = 1
    while interrupted_at(tries, lambda: small_llama(torch.tensor([4, 5]), cache)):
        assert cache.seq_len == 3
        assert {len(cache.keys(layer)) for layer in range(3)} == {3}, tries
        assert torch.equal(cache.storage[..., :3, :], before)
        tries += 3
    assert tries > 100
    assert cache.seq_len == 5  # the last try came too late to interrupt
    cache.truncate(3)
    got = small_llama(torch.tensor([7]), cache)
    torch.testing.assert_close(got[0], small_llama(torch.tensor([1, 2, 3, 7]))[3], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["linear", "attention", "rms_norm", "swiglu", "apply_rope"])
def test_whichever_operation_fails_the_cache_is_as_before(small_llama, name):
    cache = KVCache.for_model(small_llama, 8)
    small_llama(torch.tensor([1, 2, 3]), cache)
    with ops.record(name) as calls:
        small_llama(torch.tensor([4]))
    for last in range(len(calls)):
        done = []

        def failing(*args, done=done, last=last, **kwargs):
            done.append(1)
            if len(done) > last:
                raise RuntimeError("out of memory")
            return getattr(ops, name)(*args, **kwargs)

        with pytest.raises(RuntimeError, match="out of memory"), ops.use(**{name: failing}):
            small_llama(torch.tensor([4]), cache)
        assert cache.seq_len == 3


def test_a_given_cache_that_is_too_small_is_refused_before_the_first_token(small_llama):
    cache = KVCache.for_model(small_llama, 6)
    list(generate_cached(small_llama, [1, 2], 2, cache=cache))
    counters = Counters()
    with pytest.raises(ValueError, match=r"room for 6 tokens and holds 3, but 4 more may come; .* capacity=7 or"):
        next(generate_cached(small_llama, [5], 4, cache=cache, counters=counters))
    assert (cache.seq_len, counters) == (3, Counters())
    assert len(list(generate_cached(small_llama, [5], 3, cache=cache))) == 3
    assert cache.seq_len == 6
    assert list(generate_cached(small_llama, [5], 0, cache=cache)) == []


@pytest.mark.parametrize("i", [-1, 2, 5])
def test_a_row_that_is_not_there_is_refused(small_llama, i):
    with pytest.raises(ValueError, match=f"rows 0 to 1, got {i}"):
        KVCache(small_llama.config, 4, batch=2).row(i)


def test_a_cache_of_another_dtype_is_refused_in_our_words(small_llama):
    cache = KVCache(small_llama.config, 4, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match=r"keeps torch.bfloat16 on cpu, k is torch.float32 on cpu; KVCache.for_model"):
        small_llama(torch.tensor([1]), cache)
    assert cache.seq_len == 0


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1, 10**40])
def test_a_seed_of_more_than_64_bits_is_refused(small_llama, seed):
    with pytest.raises(ValueError, match="a seed is a whole number of 64 bits"):
        list(generate_cached(small_llama, [1], 2, temperature=1.0, seed=seed))
