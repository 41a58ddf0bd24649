"""The front page's figure: the recording is what the model does, branches included."""

import pytest
import torch

from course.book.enter import CHOICES, cut, figure, record
from llm_internals.checkpoint import load


@pytest.fixture(scope="module")
def loaded():
    return load("smollm2-135m", dtype=torch.float32)


@pytest.fixture(scope="module")
def recording(loaded):
    model, tokenizer, _ = loaded
    return record(model, tokenizer, "A fact", "The capital of France is", 4)


def greedy(model, ids, count):
    """The same without a cache."""
    ids = list(ids)
    for _ in range(count):
        ids.append(int(model(torch.tensor(ids))[-1].argmax()))
    return ids


def test_the_answer_and_every_branch_are_what_the_model_writes_without_a_cache(loaded, recording):
    model, tokenizer, _ = loaded
    ids = list(recording.ids)
    answer = greedy(model, ids, 4)
    assert recording.answer == "".join(tokenizer.decode([i]) for i in answer[len(ids) :])
    assert len(recording.branches) == 3
    for n, branch in enumerate(recording.branches):
        start = answer[: len(ids) + n]
        second = int(model(torch.tensor(start))[-1].topk(2).indices[1])
        expected = greedy(model, [*start, second], 3 - n)[len(start) + 1 :]
        assert [step.choice for step in branch] == [tokenizer.decode([i]) for i in expected], n


def test_rows_times_and_shares(recording):
    assert [step.rows for step in recording.passes] == [5, 6, 7, 8]
    assert [[step.rows for step in branch] for branch in recording.branches] == [[6, 7, 8], [7, 8], [8]]
    for step in (*recording.passes, *(step for branch in recording.branches for step in branch)):
        assert step.ms > 0
        assert len(step.top) == CHOICES
        shares = [p for _, p in step.top]
        assert shares == sorted(shares, reverse=True)
        assert 0 < sum(shares) <= 1 + 1e-9


def test_a_long_prompt_is_drawn_by_its_ends():
    pieces = [f"{n}" for n in range(100)]
    drawn = cut(pieces, 10)
    assert drawn == ["0", "1", "2", "… 91 more …", *map(str, range(94, 100))]
    assert len(drawn) == 10
    assert cut([" a", "b\n"]) == ["␣a", "b⏎"]


def test_the_figure_says_in_words_what_it_shows(recording):
    html = figure([recording], 30, "Caption.").html
    assert "5 tokens. Prefill takes" in html
    assert "<svg" in html, "paper and pages without scripts have a picture"
