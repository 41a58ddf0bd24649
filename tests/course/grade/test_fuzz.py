"""Whatever is handed in and whatever comes back: one verdict for each exercise, and the next one is graded.

The whole way of an answer in the trusted process is gone through, the worker aside, which a stand-in replaces with
hostile outcomes. `make test-full` tries ten thousand inputs of each sort.
"""

import json
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from course import paths
from course.chapters import file_stem
from course.classroom.identity import identify
from course.classroom.settings import Settings
from course.grade import batch, grading
from course.judging import feedback
from course.reports import pages
from course.running import sandbox
from course.running.worker import Result, parse_frames
from course.sources import Answer
from course.specs import exercises
from gradeworker import wire
from gradeworker.answer import Outcome

KEY = b"a secret for the fuzz" * 2
ITEMS = [item for item in exercises() if item.track == "torch"]
VERDICTS = {"pass", "wrong", "error", "policy", "missing", "timeout", "memory", "killed", "unreadable",
            "nondeterministic", "infra"}
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
LONG = settings(max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck))

huge = st.integers(min_value=1, max_value=60_000).map(lambda bits: (1 << bits) - 1)
names = st.sampled_from(["f", "torch", "x", "__class__", "gi_frame", "softmax", "_C", "course", "self", "\ud800", "é"])


def expression(children):
    return st.one_of(
        st.tuples(children, names).map(lambda pair: f"{pair[0]}.{pair[1]}"),
        st.tuples(children, children).map(lambda pair: f"({pair[0]} + {pair[1]})"),
        st.tuples(children, children).map(lambda pair: f"{pair[0]}({pair[1]})"),
        children.map(lambda inner: f"[{inner} for x in {inner}]"),
        children.map(lambda inner: f"f'{{{inner}}}'"),
        children.map(lambda inner: f"(lambda x: {inner})"),
        st.tuples(children, st.integers(1, 3_000)).map(lambda pair: "-" * pair[1] + pair[0]),
    )


expressions = st.recursive(names | st.just("1") | huge.map(hex) | st.just("'t'"), expression, max_leaves=12)
statements = st.one_of(
    expressions, expressions.map(lambda e: f"x = {e}"),
    expressions.map(lambda e: f"@({e})\ndef f(x={e}) -> {e}:\n    return {e}"),
    expressions.map(lambda e: f"raise NotImplementedError({e})"), expressions.map(lambda e: f"class C({e}):\n    pass"),
    names.map(lambda n: f"import {n}"), names.map(lambda n: f"from {n} import {n}"),
    expressions.map(lambda e: f"match {e}:\n    case C(x={'1'}):\n        pass"),
    st.just("# YOUR CODE HERE\nraise NotImplementedError()"), st.text(max_size=40),
)
sources = st.lists(statements, max_size=6).map("\n".join)

scalars = st.one_of(st.none(), st.booleans(), st.floats(), st.text(max_size=20), st.binary(max_size=20), huge,
                    huge.map(lambda value: -value), st.integers())
values = st.recursive(scalars, lambda inner: st.one_of(
    st.lists(inner, max_size=4), st.lists(inner, max_size=3).map(tuple),
    st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=3),
    st.just(None).map(lambda _: wire.Opaque("x" * 300, "\x1b[2J\u202e")),
), max_leaves=10)


class StandIn:
    """A worker that gives back what it was told to."""

    def __init__(self, outcomes):
        self.outcomes = outcomes

    def run(self, job, seconds):
        data = b"".join(len(each).to_bytes(8, "little") + each for each in (one.to_bytes() for one in self.outcomes))
        found, whole = parse_frames(data)
        return Result(found, "done" if whole else "unreadable")

    def close(self):
        pass

    probe = sandbox.probe("none")


def test_sources_of_all_kinds_get_a_verdict():
    _sources(QUICK)


@pytest.mark.slow
def test_ten_thousand_sources_get_a_verdict():
    _sources(LONG)


def _sources(how):
    parsed = []

    @how
    @given(source=sources, item=st.sampled_from(ITEMS))
    def check(source, item):
        verdict = grading.grade_answer(StandIn([]), item, f"# answer: {item.id}\n{source}", KEY)
        assert verdict.kind in VERDICTS - {"infra", "pass"}, verdict
        mark = batch.mark_of(verdict)
        json.dumps(mark.says)
        parsed.append(Answer(source).tree is not None)

    check()
    assert sum(parsed) > len(parsed) // 8, "else nothing but the parser would be tried"


def test_values_of_all_kinds_get_a_verdict():
    _values(QUICK)


@pytest.mark.slow
def test_ten_thousand_values_get_a_verdict():
    _values(LONG)


def _values(how):
    @how
    @given(item=st.sampled_from(ITEMS), got=st.lists(values, min_size=1, max_size=4), after=values,
           line=st.integers(-2**70, 2**70), called=st.dictionaries(st.text(max_size=9), st.integers(), max_size=4))
    def check(item, got, after, line, called):
        error = {"type": "E", "message": "\x1b" * 2_000, "line": line, "name": "\ud800"} if line % 5 == 0 else None
        outcomes = [Outcome(index, value, after, error if index % 3 == 2 else None, "p" * 9_000, called=called)
                    for index, value in enumerate(got)]
        source = f"# answer: {item.id}\ndef {item.entry}(*args):\n    return 1"
        verdict = grading.grade_answer(StandIn(outcomes), item, source, KEY)
        assert verdict.kind in VERDICTS - {"infra", "pass"}, verdict
        for said in (feedback.text(verdict), feedback.rich(verdict), feedback.after_grading(verdict)):
            assert "\x1b" not in said
        graded = batch.Graded("a", "b", item.stem, [batch.mark_of(verdict)])
        assert "\u202e" not in pages.feedback_page("a", [graded], Settings(show="full"))

    check()


def _files(count: int, folder: Path) -> None:
    """Notebooks with bytes changed, cells of odd types, JSON cut off."""
    chance = random.Random(7)
    whole = (paths.exercises() / f"{file_stem('kv_cache')}.ipynb").read_bytes()
    odd = [None, 3, [], {}, "x", [1, [2]], {"a": {"b": []}}, True, 1e308, -1, "\u202e", ["\n"] * 50]
    for number in range(count):
        kind = number % 4
        if kind == 0:
            data = bytearray(whole)
            for _ in range(chance.randint(1, 40)):
                data[chance.randrange(len(data))] = chance.randrange(256)
        elif kind == 1:
            data = whole[: chance.randrange(len(whole))]
        elif kind == 2:
            data = chance.randbytes(chance.randint(0, 400))
        else:
            book = json.loads(whole)
            for _ in range(8):
                cell = chance.choice(book["cells"])
                if isinstance(cell, dict):
                    cell[chance.choice(["source", "metadata", "id", "cell_type", "outputs"])] = chance.choice(odd)
                book["cells"][chance.randrange(len(book["cells"]))] = chance.choice([cell, chance.choice(odd)])
            data = json.dumps(book).encode()
        path = folder / "04_kv_cache.ipynb"
        path.write_bytes(bytes(data))
        graded = batch.grade_one(StandIn([]), identify(path, folder), KEY, batch.Marks(folder / f"marks{number}", KEY))
        assert graded.points == 0
        assert len(graded.marks) == len(exercises(graded.stem))
        assert {mark.verdict for mark in graded.marks} <= VERDICTS - {"infra", "pass"}


def test_files_of_all_kinds_are_graded(tmp_path):
    _files(80, tmp_path)


@pytest.mark.slow
def test_ten_thousand_files_are_graded(tmp_path):
    _files(10_000, tmp_path)


@pytest.mark.parametrize(
    "source",
    [
        "# YOUR CODE HERE\nraise NotImplementedError(" + "-" * 2_000 + "1)",
        "@(" + "-" * 2_000 + "1)\ndef rms_norm(x, weight, eps):\n    return x",
        "import numpy.f2py.__main__", "import torch.utils.model_dump.__main__", "x = " + "9" * 5_000,
    ],
)
def test_what_once_ended_a_batch_is_its_students_zero(source):
    for item in (exercises("transformer_block")[1], exercises("triton_primer")[0]):
        verdict = grading.grade_answer(StandIn([]), item, f"# answer: {item.id}\n{source}", KEY)
        assert verdict.kind in {"missing", "policy", "error", "killed", "unreadable"}


def test_an_integer_too_long_to_be_written_is_a_wrong_answer():
    item = next(each for each in ITEMS if each.id == "kv_cache.cost")
    verdict = grading.grade_answer(StandIn([Outcome(0, 10**9_000, ((), {}))]), item, f"# answer: {item.id}\nx = 1", KEY)
    assert verdict.kind == "wrong"
    assert "an integer of about 9,001 digits" in feedback.text(verdict)


def test_all_values_of_an_answer_share_one_budget():
    import torch

    one = torch.zeros(8192, dtype=torch.float64)[::130]
    data = Outcome(0, [one] * 400).to_bytes()  # laid out again, 26 MB
    frames = (len(data).to_bytes(8, "little") + data) * 64
    found, whole = parse_frames(frames)
    assert not whole
    assert len(found) < 12
