"""`course proof --mutate`: what the machine changes, and what it says of the changes that pass."""

import ast
from dataclasses import replace

import pytest
import torch

from course.authoring import mutate
from course.authoring.build import solution_sources
from course.judging import judge
from course.specs import exercise, exercises
from course.specs.exercise import Case

ID = "kv_cache.is_cache_safe"
SOLUTION = solution_sources()[ID]
FUNCTION = """
def f(x, y):
    total = 0
    for i in range(1, len(x)):
        if x[i] < y and i != 3:
            total += x[i] - y
    return total
"""


def changes(source, **more):
    return [mutant.change for mutant in mutate.mutants(source, **more)]


@pytest.mark.parametrize("change", [
    "total = 0 -> total = 1",
    "for i in range(1, len(x)): -> for i in range(1, len(y)):",
    "if x[i] < y and i != 3: -> if x[i] <= y and i != 3:",
    "if x[i] < y and i != 3: -> if x[i] < y or i != 3:",
    "if x[i] < y and i != 3: -> if x[i + 1] < y and i != 3:",
    "if x[i] < y and i != 3: -> if i != 3:",
    "total += x[i] - y -> total -= x[i] - y",
    "total += x[i] - y -> total += y - x[i]",
    "total += x[i] - y -> total += x[i]",
    "total += x[i] - y -> pass",
    "(nothing) -> break",
])
def test_the_usual_slips_are_made(change):
    assert change in changes(FUNCTION)


def test_mutants_differ_from_the_answer_and_from_each_other():
    texts = [mutant.source for mutant in mutate.mutants(FUNCTION)]
    assert len(set(texts)) == len(texts) > 20
    assert ast.unparse(ast.parse(FUNCTION)) not in texts


def test_a_step_is_rounded_where_cases_are_in_half_precision():
    source = "def f(x):\n    y = x.float() * 2\n    return y"
    change = "y = x.float() * 2 -> y = (x.float() * 2).to(x.dtype)"
    assert change in changes(source, half=True)
    assert change not in changes(source)


def test_statements_that_do_not_touch_each_other_are_not_exchanged():
    apart = changes("def f(x, y):\n    a = x\n    b = y\n    return a, b")
    assert not {f"(nothing) -> {line}; {line} -> (nothing)" for line in ("a = x", "b = y")} & set(apart)
    together = changes("def f(x):\n    a = x\n    b = a\n    return a, b")
    assert {f"(nothing) -> {line}; {line} -> (nothing)" for line in ("a = x", "b = a")} & set(together)


def test_a_mutant_that_the_cases_let_pass_is_shown(monkeypatch):
    """Of an exercise with one easy case most mutants pass."""
    easy = Case((torch.ones(1, 1, dtype=torch.bool), 1), label="one token")
    item = replace(exercise(ID), cases=lambda draw: [easy])
    monkeypatch.setattr(judge, "public_cases", lambda *_: (easy,))
    found = mutate.mutate_one(item, SOLUTION, {"a -> b"})
    assert "looks_ahead = mask.triu(1) -> looks_ahead = mask.triu(2)" in found.survivors
    assert found.stale == ["a -> b"]
    assert not found.public


def test_a_mutant_that_only_hidden_cases_find_is_shown_as_such(monkeypatch):
    item, easy = exercise(ID), Case((torch.ones(1, 1, dtype=torch.bool), 1), label="one token")
    monkeypatch.setattr(judge, "public_cases", lambda *_: (easy,))
    assert "looks_ahead = mask.triu(1) -> looks_ahead = mask.triu(2)" in mutate.mutate_one(item, SOLUTION).public


def test_an_endless_mutant_is_ended(monkeypatch):
    monkeypatch.setattr(mutate, "SECONDS", 0.2)
    item = exercise(ID)
    source = "def is_cache_safe(mask, num_prompt_tokens):\n    while True:\n        try:\n            1\n" \
             "        except Exception:\n            pass"
    assert not mutate._passes(item, source, judge.Memory(item, list(judge.public_cases(ID))[:1]))


@pytest.mark.parametrize("id", ["kv_cache.is_cache_safe", "kv_cache.generate_cached", "transformer_block.rms_norm"])
def test_nothing_is_left_to_be_judged(id):
    item = exercise(id)
    found = mutate.mutate_one(item, solution_sources()[id], mutate.equivalents(item))
    assert (found.survivors, found.public, found.stale) == ([], [], [])


def test_what_is_listed_as_right_as_well_is_made_of_the_solution():
    sources = solution_sources()
    for item in exercises():
        known = mutate.equivalents(item)
        if known:
            assert known <= set(changes(sources[item.id], kernel=item.track == "kernel", half=True)), item.id
