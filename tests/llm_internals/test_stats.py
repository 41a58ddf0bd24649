import pytest

from llm_internals.stats import GenerationStats


def test_by_hand():
    """Asked at 10.0 s; tokens at 10.5, 10.7, 11.0 and 11.1 s."""
    ticks = iter([10.0, 10.5, 10.7, 11.0, 11.1])
    stats = GenerationStats(num_prompt_tokens=5)
    assert list(stats.watch(iter([7, 8, 9, 7]), clock=lambda: next(ticks))) == [7, 8, 9, 7]
    assert stats.ttft == pytest.approx(0.5)
    assert stats.tpot == pytest.approx(0.2)
    assert stats.tokens_per_second == pytest.approx(4 / 1.1)
    assert str(stats) == ("5 prompt tokens, 4 output tokens, TTFT 500 ms, TPOT 200.0 ms, 3.6 tokens/s (1.10 s in all)")


def test_nothing_or_one_token():
    stats = GenerationStats(3)
    assert (stats.ttft, stats.tpot, stats.tokens_per_second) == (None, None, None)
    assert str(stats) == "3 prompt tokens, 0 output tokens"
    stats.arrivals.append(0.25)
    assert (stats.ttft, stats.tpot, stats.tokens_per_second) == (0.25, None, 4.0)
    assert str(stats) == "3 prompt tokens, 1 output tokens, TTFT 250 ms, 4.0 tokens/s (0.25 s in all)"
