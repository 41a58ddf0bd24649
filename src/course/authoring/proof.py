"""Prove the checkers: solutions pass on many seeds, near-misses fail with their own name, alternates pass, stubs fail.

Everything that runs here is the course's own code, so it runs in this process.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace

from course.authoring.build import solution_sources, stub_sources
from course.judging import feedback, gate, judge
from course.judging.judge import Memory
from course.specs import exercises
from course.specs.exercise import Draw, Exercise, NearMiss, assignments, substitute
from gradeworker.answer import run

SEEDS = 20
WRONG_SEEDS = 4


@dataclass
class Row:
    """Of one exercise: how many of each kind behaved, and what did not."""

    exercise: Exercise
    edition: str = ""  # its constants, where they are not the printed ones
    seeds: int = 0
    near_misses: int = 0
    alternates: int = 0
    stub: bool = False
    faults: list[str] = field(default_factory=list)


def prove(stem: str | None = None, seeds: int = SEEDS) -> list[Row]:
    """A row for each exercise; a checker is proved when its row has no faults."""
    with contextlib.suppress(ImportError):  # kernels are proved in this process: Triton must be imported repaired
        import kernelcheck

        kernelcheck.install()
    items = exercises(stem)
    solutions, stubs = solution_sources(), stub_sources()
    rows = []
    for item in items:
        solution, stub = solutions.get(item.id), stubs.get(item.id)
        rows.append(prove_one(item, solution, stub, seeds))
        for constants in item.editions() if solution and stub and not _unreadable(item) else []:
            row = prove_one(item.for_student(constants), substitute(solution, constants), substitute(stub, constants),
                            max(2, seeds // 4))
            row.edition = assignments(constants)
            rows.append(row)
    return rows


def prove_one(item: Exercise, solution: str | None, stub: str | None, seeds: int = SEEDS) -> Row:
    """Prove one checker."""
    row = Row(item)
    for name, value in {**{name: some[0] for name, some in item.variants.items()}, **item.constants}.items():
        if solution and assignments({name: value}) not in substitute(solution, {name: value}).splitlines():
            row.faults.append(f"the answer's cell has no line `{assignments({name: value})}`")
    if solution is None or stub is None:
        row.faults.append("no solution or no stub in the notebooks: run `course build`")
        return row
    if len(item.near_misses) < 3:
        row.faults.append(f"only {len(item.near_misses)} near-misses; at least 3 are needed")
    unreadable = _unreadable(item)
    row.faults += unreadable.values()
    item = replace(item, near_misses=[near for near in item.near_misses if near.name not in unreadable])
    draws = [(name, Memory(item, cases)) for name, cases in _seeded(item, seeds)]
    _prove_right(row, "the solution", solution, draws)
    row.seeds = seeds
    for alternate in item.alternates:
        if _prove_right(row, f"alternate {alternate.name!r}", alternate.source, draws[: max(2, seeds // 4)]):
            row.alternates += 1
    if not item.alternates:
        row.faults.append("no alternate right answer")
    for near_miss in item.near_misses:
        row.near_misses += _prove_wrong(row, item, near_miss, draws[:WRONG_SEEDS])
    row.stub = _prove_stub(row, stub)
    return row


def _unreadable(item: Exercise) -> dict[str, str]:
    """Near-misses whose edit does not fit, by name, and what is wrong with it."""
    found = {}
    for near_miss in item.near_misses:
        try:
            assert near_miss.source
        except ValueError as error:
            found[near_miss.name] = str(error)
    return found


def _seeded(item: Exercise, count: int):
    yield "public", list(judge.public_cases(item.id, item.edition))
    for seed in range(1, count):
        yield f"seed {seed}", item.cases(Draw(f"proof/{item.id}/{seed}"))


def _prove_right(row: Row, what: str, source: str, draws: list[tuple[str, Memory]]) -> bool:
    item = row.exercise
    findings = gate.inspect(source, item.given, item.track == "kernel", item.denied)
    if findings:
        row.faults.append(f"{what} is stopped by the gate: line {findings[0].line}, {findings[0].message}")
        return False
    for name, memory in draws:
        outcomes = run(row.exercise.job(source, judge.calls(memory.cases)))
        verdict = judge.judge(row.exercise, memory.cases, outcomes, diagnose=False, memory=memory)
        if not verdict.passed:
            row.faults.append(f"{what} fails ({name}): {feedback.text(verdict)}")
            return False
    return True


def _prove_wrong(row: Row, item: Exercise, near_miss: NearMiss, draws: list[tuple[str, Memory]]) -> int:
    for name, memory in draws:
        verdict = judge.judge(item, memory.cases, memory.outcomes(near_miss), memory=memory)
        if verdict.passed:
            row.faults.append(f"near-miss {near_miss.name!r} passes ({name})")
            return 0
        if verdict.mistake is None or verdict.mistake.name != near_miss.name:
            other = verdict.mistake.name if verdict.mistake else "nothing"
            row.faults.append(f"near-miss {near_miss.name!r} is taken for {other!r} ({name})")
            return 0
        if near_miss.name not in feedback.text(verdict):
            row.faults.append(f"the feedback on near-miss {near_miss.name!r} does not name it")
            return 0
    return 1


def _prove_stub(row: Row, stub: str) -> bool:
    verdict = judge.practice(row.exercise, stub, diagnose=False)
    kind = verdict.error["type"] if verdict.error else verdict.kind
    if verdict.passed or kind != "NotImplementedError":
        row.faults.append(f"the stub ends in {kind}, not in a kind word")
        return False
    return "is not written yet" in feedback.text(verdict)
