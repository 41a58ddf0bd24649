"""From outcomes to a verdict: what is wrong first, on which case, and whether it is a mistake with a name."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from course.judging import compare, gate, operations
from course.judging.compare import Difference, Expected
from course.sources import Answer
from course.specs import exercise as exercise_named
from course.specs.exercise import Case, Draw, Exercise, NearMiss
from course.specs.recorded import RecordedExercise
from gradeworker.answer import LOADING, Outcome, run

PUBLIC_SEED = "public"
TRAFFIC_SLACK = 1.05
STUB = "stub"  # note: the learner has not begun
ELSEWHERE = "elsewhere"  # note: another cell of the notebook defines the missing name
UNMARKED = "unmarked"  # note: another cell, without the marker, answers
NOTHING_STORED = "the kernel stored nothing: what it computes reaches a tensor by tl.store"
NUMBER = re.compile(r"(?<![\w\\])\d+(?!\w)")
COUNT = re.compile(r"(\d+) of (\d+) (?:active lanes|elements were)")


@dataclass(frozen=True)
class Verdict:
    """Of one answer. ``kind``: pass, wrong, error, policy, missing, timeout, memory, killed, unreadable,
    nondeterministic, infra."""

    kind: str
    exercise: Exercise
    case: Case | None = None
    difference: Difference | None = None
    error: dict | None = None
    got: object = None
    expected: Expected | None = None
    mistake: NearMiss | None = None
    findings: tuple = ()
    printed: str = ""
    note: str = ""
    line: str = ""  # of the answer, where it raised; only practice knows it
    cases_right: int = 0
    cases_total: int = 0

    @property
    def passed(self) -> bool:
        return self.kind == "pass"


def calls(cases: list[Case]) -> list[Case]:
    """The calls that an answer is put through: every case, then every case again, in reverse order.

    An answer that keeps something between calls gives itself away the second time.
    """
    return [*cases, *reversed(cases)]


class Memory:
    """What does not depend on the answer: expected values, and what the near-misses do, for one list of cases."""

    def __init__(self, exercise: Exercise, cases: list[Case]):
        self.exercise, self.cases = exercise, cases
        self._expected: dict[int, Expected] = {}
        self._near: dict[str, list[Outcome]] = {}
        self._first: dict[str, Outcome | None] = {}
        if isinstance(exercise, RecordedExercise):  # a student edition, which cannot compute them
            self._expected = {index: Expected(*parts) for index, parts in enumerate(exercise.recorded.expected)}
            self._near = exercise.recorded.outcomes

    def expected(self, index: int) -> Expected:
        if index not in self._expected:
            self._expected[index] = compare.expect(self.exercise, self.cases[index])
        return self._expected[index]

    def outcomes(self, near_miss: NearMiss) -> list[Outcome]:
        if near_miss.name not in self._near:
            self._near[near_miss.name] = list(run(self.exercise.job(near_miss.source, calls(self.cases))))
        return self._near[near_miss.name]

    def first_outcome(self, near_miss: NearMiss) -> Outcome | None:
        """Of the first call alone, which is the same whether or not others follow, and tells most mistakes apart."""
        if near_miss.name in self._near:
            return self._near[near_miss.name][0] if self._near[near_miss.name] else None
        if near_miss.name not in self._first:
            self._first[near_miss.name] = next(run(self.exercise.job(near_miss.source, self.cases[:1])), None)
        return self._first[near_miss.name]


def judge(exercise: Exercise, cases: list[Case], outcomes: Iterable[Outcome], diagnose: bool = True,
          memory: Memory | None = None) -> Verdict:
    """The verdict on an answer from its outcomes, one for each of ``calls(cases)``.

    A call without an outcome means that the worker ended early: verdict "killed". Only data is looked at here.
    ``memory`` may be shared by verdicts on the same cases.
    """
    memory = memory or Memory(exercise, cases)
    outcomes, total = list(outcomes), len(cases)
    got = {outcome.index: outcome for outcome in outcomes}
    borrowed = operations.findings(exercise, outcomes)
    if borrowed:
        return Verdict("policy", exercise, findings=tuple(borrowed), cases_total=total)
    if LOADING in got:
        return Verdict("error", exercise, error=got[LOADING].error, printed=got[LOADING].printed, cases_total=total)
    first: Verdict | None = None
    right = 0
    for index, case in enumerate(cases):
        expected = memory.expected(index)
        first_time, second_time = got.get(index), got.get(2 * total - 1 - index)
        once = _judge_call(exercise, case, expected, first_time)
        again = once if _equal(first_time, second_time) else _judge_call(exercise, case, expected, second_time)
        if once is None and again is None:
            right += 1
        elif first is None:
            first = once or dataclasses.replace(again, kind="nondeterministic" if again.kind == "wrong" else again.kind)
    if first is None:
        return Verdict("pass", exercise, cases_right=right, cases_total=total)
    mistake = name_mistake(memory, got) if diagnose else None
    return dataclasses.replace(first, mistake=mistake, cases_right=right, cases_total=total)


def _judge_call(exercise: Exercise, case: Case, expected: Expected, outcome: Outcome | None) -> Verdict | None:
    if outcome is None:
        return Verdict("killed", exercise, case=case)
    if outcome.error is not None:
        return Verdict("error", exercise, case=case, error=outcome.error, printed=outcome.printed)
    wrong = compare.difference(outcome.value, expected) or _traffic(exercise, case, outcome)
    mutated = compare.mutated(exercise, case, outcome.inputs_after)
    if wrong is None and mutated is None:
        return None
    note = f"{mutated.got}: an input that is written to may spoil the result" if wrong and mutated else ""
    if wrong and outcome.measured and not outcome.measured["stored"]:
        note = NOTHING_STORED
    return Verdict("wrong", exercise, case=case, difference=wrong or mutated, got=outcome.value, expected=expected,
                   printed=outcome.printed, note=note)


def _equal(one: Outcome | None, other: Outcome | None) -> bool:
    """Are two outcomes of the same call plainly the same, so that the verdict on one is the verdict on the other?"""
    if one is None or other is None or one.error is not None or other.error is not None:
        return False
    return (one.measured == other.measured and _identical(one.value, other.value)
            and _identical(one.inputs_after, other.inputs_after))


def _identical(a: object, b: object) -> bool:
    """False where it would take thought to tell: NaN, tensors of another device, what has no encoding."""
    if type(a) is not type(b):
        return False
    if type(a) is torch.Tensor:
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if type(a) in (list, tuple):
        return len(a) == len(b) and all(map(_identical, a, b))
    if type(a) is dict:
        return len(a) == len(b) and all(map(_identical, a.items(), b.items()))
    return a is None or (type(a) in (bool, int, float, str, bytes) and a == b)


def name_mistake(memory: Memory, got: dict[int, Outcome]) -> NearMiss | None:
    """The near-miss that does in every call what the answer did, or None."""
    exercise, called = memory.exercise, calls(memory.cases)
    for near_miss in exercise.near_misses:
        first = memory.first_outcome(near_miss)
        if first is not None and not _alike(exercise, called[0], got.get(first.index), first):
            continue
        pairs = zip(called, memory.outcomes(near_miss))
        if all(_alike(exercise, case, got.get(theirs.index), theirs) for case, theirs in pairs):
            return near_miss
    return None


def _traffic(exercise: Exercise, case: Case, outcome: Outcome) -> Difference | None:
    """A kernel that moves more bytes than the exercise allows is not right yet, however right its numbers are."""
    bound = exercise.bound(case)
    if bound is None or outcome.measured is None or outcome.measured["traffic"] <= TRAFFIC_SLACK * bound:
        return None
    moved = outcome.measured["traffic"]
    return Difference("traffic", "", f"{moved:,} bytes moved, {moved / bound:.2f} x what is needed", f"{bound:,} bytes")


def _alike(exercise: Exercise, case: Case, mine: Outcome | None, theirs: Outcome) -> bool:
    """Same value within the tolerance, same inputs afterwards, or the same error (see :func:`_same_error`)."""
    if mine is None or (mine.error is None) != (theirs.error is None):
        return False
    if theirs.error is not None:
        return _same_error(mine.error, theirs.error)
    if theirs.measured and mine.measured:
        moved, their_bytes = mine.measured["traffic"], theirs.measured["traffic"]
        if abs(moved - their_bytes) > 0.02 * their_bytes:
            return False
    expected = Expected(theirs.value, compare.to_fp64(theirs.value), case.tolerance or exercise.tolerance)
    return compare.difference(mine.value, expected) is None and compare.same(theirs.inputs_after, mine.inputs_after)


def _same_error(mine: dict, theirs: dict) -> bool:
    """Of one kind; and where both messages are one sentence, the numbers in it are the same.

    "The cache has room for 7 tokens, holds 7, and 1 came" is another mistake than "room for 13, holds 7, and 8 came".
    Messages that an answer words itself are not compared. A kernel's fault also says in which line it is, which is
    another one in every cell; how many lanes are wrong is in its kind.
    """
    if _kind_of(mine) != _kind_of(theirs):
        return False
    if theirs["type"] == "KernelFault":
        return True
    one, other = mine["message"], theirs["message"]
    return NUMBER.sub("0", one) != NUMBER.sub("0", other) or NUMBER.findall(one) == NUMBER.findall(other)


def _kind_of(error: dict) -> tuple:
    """What makes two errors the same: their type; of a kernel's fault also its kind and how many lanes or elements."""
    if error["type"] != "KernelFault":
        return (error["type"],)
    return error["type"], error["name"], COUNT.findall(error["message"])[:1]


@functools.lru_cache(maxsize=256)
def public_cases(exercise_id: str, edition: tuple = ()) -> tuple[Case, ...]:
    """The cases a learner meets: always the same. ``edition``: as :attr:`Exercise.edition`."""
    item = _edition(exercise_id, edition)
    if isinstance(item, RecordedExercise):
        return tuple(item.recorded.cases)
    return tuple(item.cases(Draw(f"{PUBLIC_SEED}/{exercise_id}")))


def practice(exercise: Exercise, source: str, runner: Callable = run, diagnose: bool = True) -> Verdict:
    """The verdict on ``source`` with the public cases, run by ``runner`` (in this process unless told otherwise)."""
    source = Answer.of(source)
    if source.is_stub:
        error = {"type": "NotImplementedError", "message": "", "line": 0, "name": ""}
        return Verdict("error", exercise, error=error, note=STUB)
    findings = gate.inspect(source, exercise.given, exercise.track == "kernel", exercise.denied)
    if findings:
        kind = "error" if findings[0].kind == "syntax" else "policy"
        read = line_of(source, {"line": findings[0].line}) if kind == "error" else ""
        return Verdict(kind, exercise, findings=tuple(findings), line=read)
    memory = public_memory(exercise.id, exercise.edition)
    verdict = judge(exercise, memory.cases, runner(exercise.job(source, calls(memory.cases))), diagnose, memory)
    return dataclasses.replace(verdict, line=line_of(source, verdict.error))


def line_of(source: str, error: dict | None) -> str:
    """The line of the answer that raised, or ""."""
    lines, number = source.splitlines(), error["line"] if error else 0
    return lines[number - 1].strip() if 1 <= number <= len(lines) else ""


@functools.lru_cache(maxsize=64)
def public_memory(exercise_id: str, edition: tuple = ()) -> Memory:
    """Shared by all checks of an exercise in this process, so that only the first one is slow."""
    return Memory(_edition(exercise_id, edition), list(public_cases(exercise_id, edition)))


def _edition(exercise_id: str, edition: tuple) -> Exercise:
    item = exercise_named(exercise_id)
    return item.for_student(dict(edition)) if edition else item
