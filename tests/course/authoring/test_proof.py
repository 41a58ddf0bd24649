"""`course proof` reports what it is there to report."""

from dataclasses import replace

import pytest

from course.authoring import proof
from course.authoring.build import solution_sources, stub_sources
from course.check import in_model
from course.specs import exercise, exercises, solutions
from course.specs.exercise import Alternate, NearMiss

ID = "tokenization.decode"
SOLUTION, STUB = solution_sources()[ID], stub_sources()[ID]
WRONG = {
    "it returns None": "def decode(ids, vocab):\n    return None",
    "it returns a list": "def decode(ids, vocab):\n    return [vocab[i] for i in ids]",
    "it upper-cases": SOLUTION.replace('"replace")', '"replace").upper()'),
}


@pytest.fixture
def item():
    """An exercise with three near-misses of our own, which is proved; each test spoils one thing."""
    return replace(exercise(ID), near_misses=[NearMiss(name, "No.", text) for name, text in WRONG.items()],
                   alternates=[Alternate("the solution itself", SOLUTION)])


def faults(item, solution=SOLUTION, stub=STUB):
    return proof.prove_one(item, solution, stub, seeds=2).faults


def test_a_good_checker_is_proved(item):
    row = proof.prove_one(item, SOLUTION, STUB, seeds=2)
    assert (row.faults, row.near_misses, row.alternates, row.stub) == ([], 3, 1, True)


def test_a_solution_that_fails(item):
    (fault,) = faults(item, solution=WRONG["it upper-cases"])
    assert fault.startswith("the solution fails (public): ")


def test_a_solution_that_the_gate_stops(item):
    (fault,) = faults(item, solution=f"import os\n{SOLUTION}")
    assert fault.startswith("the solution is stopped by the gate: line 1")


def test_a_wrong_diagnosis(item):
    item.near_misses.append(NearMiss("it returns nothing", "No.", "def decode(ids, vocab):\n    pass"))
    assert faults(item) == ["near-miss 'it returns nothing' is taken for 'it returns None' (public)"]


def test_a_near_miss_that_passes(item):
    item.near_misses.append(NearMiss("it is right", "No.", SOLUTION))
    assert faults(item) == ["near-miss 'it is right' passes (public)"]


def test_an_alternate_that_fails(item):
    item.alternates.append(Alternate("in capitals", WRONG["it upper-cases"]))
    (fault,) = faults(item)
    assert fault.startswith("alternate 'in capitals' fails (public): ")


def test_too_few_near_misses_and_no_alternate(item):
    found = faults(replace(item, near_misses=item.near_misses[:2], alternates=[]))
    assert found == ["only 2 near-misses; at least 3 are needed", "no alternate right answer"]


@pytest.mark.parametrize(("edit", "said"), [
    ({"vocab[j]": "vocab[i]"}, "'vocab[j]' stands there 0 times, not once"),
    ({"ids": "vocab"}, f"'ids' stands there {SOLUTION.count('ids')} times, not once"),
    ({"vocab[i]": "1", "for i": "for j", "errors": "x"}, "it changes more than 2 places or 3 lines"),
    ({"return": "a\nb\nc\nreturn"}, "it changes more than 2 places or 3 lines"),
    ({"vocab[i] for": "1 for", "for i in ids": "for i in []"}, "overlaps another change"),
])
def test_an_edit_that_does_not_fit(item, edit, said):
    """Named with its exercise, and the other near-misses are proved all the same."""
    item.near_misses = list(item.near_misses)
    item.near_miss("a slip", edit, says="No.")
    row = proof.prove_one(item, SOLUTION, STUB, seeds=2)
    (fault,) = row.faults
    assert fault.startswith(f"{ID}, near-miss 'a slip': ")
    assert said in fault
    assert row.near_misses == 3


def test_an_edit_of_an_alternate_that_is_not_there(item):
    item.near_miss("a slip", {"ids": "vocab"}, says="No.", of="by magic")
    assert faults(item) == [f"{ID}, near-miss 'a slip': there is no alternate 'by magic'"]


def test_a_near_miss_may_start_from_an_alternate(item):
    text = "def decode(ids, vocab):\n    data = b''.join(map(vocab.get, ids))\n    return str(data, 'utf-8', 'replace')"
    item.alternates.append(Alternate("in two steps", text))
    item.near_miss("a space too many", {"return str": "return \" \" + str"}, says="No.", of="in two steps")
    row = proof.prove_one(item, SOLUTION, STUB, seeds=2)
    assert (row.faults, row.near_misses) == ([], 4)


@pytest.mark.parametrize(("stub", "kind"), [
    ("# answer: tokenization.decode\ndef decode(ids, vocab):\n    return ''", "wrong"),
    ("# answer: tokenization.decode\ndef decode(ids, vocab):\n    raise ValueError", "ValueError"),
    (SOLUTION, "pass"),
])
def test_a_stub_that_is_not_kind(item, stub, kind):
    assert faults(item, stub=stub) == [f"the stub ends in {kind}, not in a kind word"]


def test_a_missing_solution(item):
    assert faults(item, solution=None) == ["no solution or no stub in the notebooks: run `course build`"]


def test_an_edit_keeps_the_indentation():
    source = "def f(x):\n    for i in x:\n        a = i\n        b = a\n    return b\n"
    assert solutions.edited(source, {"a = i\nb = a": "b = i\nif b:\n    break"}) == (
        "def f(x):\n    for i in x:\n        b = i\n        if b:\n            break\n    return b\n")
    assert solutions.edited(source, {"a = i\n": "", "b = a": "b = i"}) == (
        "def f(x):\n    for i in x:\n        b = i\n    return b\n")


def test_an_exercise_has_a_place_in_the_model_where_its_spec_says_so():
    for item in exercises():
        if item.in_model:
            assert callable(in_model.of(item.id))
        else:
            with pytest.raises(ValueError, match="no place"):
                in_model.of(item.id)


def test_most_near_misses_are_edits():
    """Whole bodies repeat the solution, and what is wrong in them has to be searched."""
    kinds = [near.text.func.__name__ for item in exercises() for near in item.near_misses]
    assert kinds.count("_edited") > 0.85 * len(kinds)
