"""Chapter 04's figures: drawn from counters and times, refused when they would show something else."""

import json
import re
from itertools import accumulate

import pytest
import torch

from course.book.drawings import kv_cache as drawings
from llm_internals.config import ModelConfig
from llm_internals.kv_cache import Counters, KVCache


def steps(rows, seconds):
    """One step for each number of rows in a pass."""
    made, total, pairs = [], 0, 0
    for n, count in enumerate(rows, start=1):
        total, pairs = total + count, pairs + count * n
        made.append(drawings.Step(n % 7, seconds, Counters(n, total, pairs, pairs)))
    return made


NAIVE, CACHED = steps(range(1, 41), 0.4), steps([1] * 40, 0.1)


def data_of(display):
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', display.html, re.S)[1])


def test_totals_are_running_totals():
    made = drawings.totals(NAIVE)
    assert made["rows"] == list(accumulate(range(1, 41)))
    assert made["pairs"][:3] == [1, 5, 14]
    assert made["seconds"][-1] == pytest.approx(16)


def test_the_race_carries_both_runs_and_the_prediction():
    shown = drawings.race(NAIVE, CACHED, "race", "C.")
    data = data_of(shown)
    assert data["prediction"] == "race"
    assert data["naive"]["rows"][-1] == 820
    assert data["cached"]["rows"][-1] == 40
    assert "is done when the one without has written 10 tokens" in shown.html
    assert shown.html.count("rows projected") >= 4


def test_a_race_of_two_texts_is_refused():
    other = [drawings.Step(step.token_id + 1, step.seconds, step.counters) for step in CACHED]
    with pytest.raises(AssertionError, match="same text"):
        drawings.race(NAIVE, other, "race", "C.")


def test_generators_take_turns_and_are_counted():
    counters = Counters(), Counters()
    order = []

    def runner(name, count, rows):
        for n in range(3):
            count.rows_projected += rows
            order.append(name)
            yield n

    made = drawings.take_turns([runner("a", counters[0], 5), runner("b", counters[1], 1)], counters, 3)
    assert order == ["a", "b"] * 3
    assert [step.counters.rows_projected for step in made[0]] == [5, 10, 15]
    assert [step.token_id for step in made[1]] == [0, 1, 2]


def test_medians_are_taken_size_by_size():
    calls = []
    typical = drawings.typical_seconds((1, 4), calls.append, turns=3)
    assert calls == [1, 4] * 3
    assert set(typical) == {1, 4}
    assert drawings.reading_seconds([torch.ones(4)], turns=2) > 0


def test_the_powers_have_their_slopes():
    assert "slope 3.0" in drawings.powers(steps(range(1, 201), 1.0), steps([1] * 200, 1.0), "C.").html
    with pytest.raises(AssertionError):
        drawings.powers(CACHED, CACHED, "C.")


def test_the_figure_of_passes_draws_every_pass():
    assert "measured alone" in drawings.passes(NAIVE, CACHED, {1: 0.1, 40: 0.4}, "C.").html


def test_news_are_refused_when_the_mask_lets_them_through():
    causal, both = torch.zeros(3, 4), torch.rand(3, 4) + 0.1
    causal[:, -1], both[0] = 1.0, torch.tensor([0.0, 0, 0, 1])
    assert "causal mask" in drawings.news(causal, both, [0, 1, 2], list("abcd"), "C.").html
    causal[1, 0] = 0.01
    with pytest.raises(AssertionError, match="do not move"):
        drawings.news(causal, both, [0, 1, 2], list("abcd"), "C.")


def test_triangles_are_causal_and_sum_to_one():
    weights = torch.eye(4)
    assert drawings.triangles({"head": weights}, list("abcd"), "C.").name == "fig-alpha"
    with pytest.raises(AssertionError):
        drawings.triangles({"head": weights.roll(1, 1)}, list("abcd"), "C.")


def recorded(sizes, num_layers=3):
    """Bytes of each layer of a real cache, after passes that bring it to so many tokens."""
    config = ModelConfig(
        vocab_size=53, hidden_size=40, intermediate_size=56, num_layers=num_layers, num_heads=4, num_kv_heads=2,
        head_dim=6,
    )
    cache, made = KVCache(config, 20, dtype=torch.float16), []
    for size in sizes:
        new = torch.ones(size - cache.seq_len, 2, 6).half()
        for layer in range(num_layers):
            cache.append(layer, new, new)
        made.append(drawings.bytes_held(cache))
    return made


def test_bytes_held_are_those_in_use():
    assert recorded([7, 8]) == [[7 * 2 * 2 * 6 * 2] * 3, [8 * 2 * 2 * 6 * 2] * 3]


def test_what_a_cache_holds_is_drawn_and_told():
    shown = drawings.held(recorded([7, 8, 9]), list("abc"), 20, "C.")
    assert "3 panels of 3 bars" in shown.html
    assert shown.html.count(">384 bytes a layer<") == shown.html.count(">1,152 in all<") == 2  # wide and narrow
    assert "After the pass that chose &#x27;b&#x27;, 8 tokens: 384 bytes in each layer, 1,152 in all." in shown.html
    assert "adds 48 bytes to each layer, 144 in all. Room is taken for 20 tokens." in shown.html
    wide = shown.html.split("cf-narrow")[0]
    drawn = [re.search(rf'<path transform="translate\([\d. ]+\)" d="([^"]+)" fill="var\(--fig-{tint}\)"', wide)[1]
             for tint in ("blue", "orange")]
    assert [path.count("z") for path in drawn] == [3, 3]


@pytest.mark.parametrize(
    ("passes", "why"),
    [
        ([[40, 40], [80, 40]], "every layer"),
        ([[40, 40], [80, 80], [160, 160]], "each decode step"),
        ([[50, 50], [90, 90]], "the prompt"),
    ],
)
def test_bytes_that_no_cache_holds_are_refused(passes, why):
    with pytest.raises(AssertionError, match=why):
        drawings.held(passes, list("abc")[: len(passes)], 20, "C.")
