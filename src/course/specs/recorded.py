"""Exercises of a student edition: the public cases and what they should give, recorded; nothing that makes new ones.

A spec holds references, wrong answers and generators of hidden cases. A student edition has in its place one
file a chapter, ``<stem>.recorded``, with what practice needs: texts, public cases, expected values, and what each
near-miss does on them (not its source). ``course.authoring.release`` writes it, this module reads it.

Layout: a magic line, the SHA-256 of the rest, then a value of :mod:`gradeworker.wire`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from course.specs.exercise import Case, Exercise, NearMiss, Tolerance
from gradeworker import wire
from gradeworker.answer import Outcome

MAGIC = b"course exercises, recorded, 1\n"
ENDING = ".recorded"
FOLDER = Path(__file__).parent
# Fields of an exercise that are data and are recorded as they are.
PLAIN = ("id", "title", "signature", "section", "points", "core", "track", "difficulty", "minutes", "denied", "prelude",
         "given", "argument_names", "seconds", "hints", "in_model")


@dataclass
class Recorded:
    """What one list of cases gave: expected values as (value, fp64 value, tolerance), outcomes by near-miss."""

    cases: list[Case]
    expected: list[tuple[Any, Any, Tolerance]]
    outcomes: dict[str, list[Outcome]] = field(default_factory=dict)


@dataclass
class RecordedExercise(Exercise):
    """An exercise that knows its public cases and no others."""

    recorded: Recorded | None = None
    driver_source: str = ""
    # Near-misses and recording of each student's edition, by its constants.
    recorded_editions: dict[tuple, tuple[list[NearMiss], Recorded]] = field(default_factory=dict)

    def for_student(self, constants: dict[str, Any]) -> RecordedExercise:
        """As :meth:`Exercise.for_student`, out of the recording."""
        mine = {**{name: options[0] for name, options in self.variants.items()}, **constants}
        key = tuple(sorted(mine.items()))
        if key not in self.recorded_editions:
            raise ValueError(f"{self.id}: there is no edition with {mine}")
        near_misses, kept = self.recorded_editions[key]
        return replace(self, constants=mine, near_misses=near_misses, recorded=kept)

    @property
    def driver(self) -> str:
        return self.driver_source


def student_edition() -> bool:
    """Is this a student edition, which has no specs and cannot grade?"""
    return any(FOLDER.glob(f"*{ENDING}"))


def dumps(exercises: list[tuple[Exercise, Recorded, list[tuple[Exercise, Recorded]]]]) -> bytes:
    """The bytes of a chapter's file: each exercise with its recording, and those of its editions."""
    data = wire.encode([_to_plain(*parts) for parts in exercises])
    return MAGIC + hashlib.sha256(data).digest() + data


def loads(data: bytes, name: str = "") -> tuple[RecordedExercise, ...]:
    """The exercises of a chapter's file. Raises ValueError when a single bit of it is not as it was written."""
    head, body = data[: len(MAGIC) + 32], data[len(MAGIC) + 32 :]
    if head[: len(MAGIC)] != MAGIC or hashlib.sha256(body).digest() != head[len(MAGIC) :]:
        raise ValueError(
            f"{name or 'the file with the exercises'} is damaged: take it anew from the release (in a clone: "
            f"`git checkout -- {name or 'src/course/specs'}`)"
        )
    return tuple(_from_plain(item) for item in wire.decode(body, allow_build=True))


def load(stem: str) -> tuple[RecordedExercise, ...]:
    """The exercises of a chapter of this student edition."""
    path = FOLDER / f"{stem}{ENDING}"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}): take it anew from the release") from None
    return loads(data, str(path))


def _to_plain(item: Exercise, recorded: Recorded, editions: list[tuple[Exercise, Recorded]]) -> dict:
    return {
        **{name: getattr(item, name) for name in PLAIN},
        "tolerance": _tolerance(item.tolerance),
        "mutates": sorted(item.mutates),
        "driver": item.driver,
        "variants": item.variants,
        "editions": [[list(map(list, other.edition)), _kept_to_plain(other, kept)] for other, kept in editions],
        **_kept_to_plain(item, recorded),
    }


def _kept_to_plain(item: Exercise, recorded: Recorded) -> dict:
    return {
        "near_misses": [[near.name, near.says, near.section] for near in item.near_misses],
        "cases": [[case.args, case.kwargs, case.label, case.tolerance and _tolerance(case.tolerance), item.bound(case)]
                  for case in recorded.cases],
        "expected": [[value, exact, _tolerance(tolerance)] for value, exact, tolerance in recorded.expected],
        "outcomes": [[name, [outcome.to_bytes() for outcome in outcomes]]
                     for name, outcomes in recorded.outcomes.items()],
    }


def _kept_from_plain(plain: dict) -> tuple[list[NearMiss], Recorded]:
    near_misses = [NearMiss(name, says, "", section) for name, says, section in plain["near_misses"]]
    cases = [Case(args, kwargs, label, tolerance and Tolerance(*tolerance), bound)
             for args, kwargs, label, tolerance, bound in plain["cases"]]
    expected = [(value, exact, Tolerance(*tolerance)) for value, exact, tolerance in plain["expected"]]
    outcomes = {name: [Outcome.from_bytes(data) for data in each] for name, each in plain["outcomes"]}
    return near_misses, Recorded(cases, expected, outcomes)


def _from_plain(plain: dict) -> RecordedExercise:
    near_misses, kept = _kept_from_plain(plain)
    editions = {tuple(map(tuple, constants)): _kept_from_plain(each) for constants, each in plain["editions"]}
    return RecordedExercise(
        **{name: plain[name] for name in PLAIN},
        tolerance=Tolerance(*plain["tolerance"]),
        mutates=frozenset(plain["mutates"]),
        reference=_not_here,
        cases=_not_here,
        near_misses=near_misses,
        recorded=kept,
        recorded_editions=editions,
        variants=plain["variants"],
        driver_source=plain["driver"],
    )


def _tolerance(tolerance: Tolerance) -> tuple:
    return tolerance.c, tolerance.K


def _not_here(*args: Any, **kwargs: Any) -> Any:
    raise ValueError("this is a student edition: it holds public cases only, and the instructor's edition grades")
