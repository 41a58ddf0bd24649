"""``course.toml``: what counts, for how much, which attempt, and what students are shown when."""

from __future__ import annotations

import dataclasses
import datetime
import math
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from course.specs import exercises

SHOW = ("mistake", "verdict", "full")
COUNT = ("all", "core", "bonus")
ATTEMPT = ("latest", "best")


@dataclass(frozen=True)
class Settings:
    """Defaults count every exercise at its own points and show students the name of their mistake."""

    count: str = "all"  # "all"; "core": only core exercises; "bonus": core is required, the rest is a bonus
    bonus_cap: float = 0.2  # with count = "bonus": the bonus is at most this share of a chapter's core points
    leave_out: tuple[str, ...] = ()
    weights: dict[str, float] = field(default_factory=dict)  # exercise id -> factor
    attempts: int = 0  # only the first so many submissions of a chapter count; 0: all
    attempt: str = "latest"  # which of those that count: "latest" or "best"
    show: str = "mistake"
    show_later: str = ""  # what students see from show_later_from on; "": as before
    show_later_from: datetime.date | datetime.datetime | None = None
    variants: bool = False  # students have constants of their own, as `course release --roster` wrote them

    def weight(self, exercise_id: str) -> float:
        """Factor on an exercise's points; 0 leaves it out."""
        if exercise_id in self.leave_out or (self.count == "core" and not _core().get(exercise_id)):
            return 0.0
        return self.weights.get(exercise_id, 1.0)

    def score(self, marks: list) -> tuple[float, float]:
        """Weighted points and possible points of one submission's marks."""
        core = _core()
        got, possible = [0.0, 0.0], [0.0, 0.0]  # extra, core
        for mark in marks:
            kind, weight = bool(core.get(mark.id)), self.weight(mark.id)
            got[kind] += mark.points * weight
            possible[kind] += mark.possible * weight
        if self.count != "bonus":
            return sum(got), sum(possible)
        # A chapter without core exercises has nothing that is required: its own points bound the bonus.
        return got[1] + min(got[0], self.bonus_cap * (possible[1] or possible[0])), possible[1]

    def showing(self, now: datetime.datetime | None = None) -> str:
        """What students are shown at this time (default: now, in local time)."""
        start = self.show_later_from
        if not self.show_later or start is None:
            return self.show
        if not isinstance(start, datetime.datetime):
            start = datetime.datetime.combine(start, datetime.time())
        now = now or datetime.datetime.now(start.tzinfo)
        return self.show_later if now >= start else self.show


def _core() -> dict[str, bool]:
    return {item.id: item.core for item in exercises()}


def read(path: Path | None) -> Settings:
    """Settings from a file, or the defaults. Raises ValueError that names the line to mend."""
    if path is None:
        return Settings()
    try:
        return read_text(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError:
        raise ValueError(f"{path}: this is not UTF-8 text: save it as UTF-8") from None


def read_text(text: str, name: str = "course.toml") -> Settings:
    """Settings from TOML text. Raises ValueError that names the line to mend."""
    try:
        return _settings(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{name}: {error}") from None
    except _Mistake as mistake:
        line = _line(text, mistake.word)
        raise ValueError(f"{name}{f', line {line}' if line else ''}: {mistake}") from None


class _Mistake(ValueError):
    """Something in the file is not right; ``word`` is what stands on the line."""

    def __init__(self, word: str, text: str):
        super().__init__(text)
        self.word = word


def _line(text: str, word: str) -> int:
    """The line on which ``word`` stands as a key, a table or a quoted text; 0 when it cannot be told."""
    quoted = re.escape(word)
    for pattern in (rf"^\s*[\"']?{quoted}[\"']?\s*=", rf"^\s*\[\s*{quoted}\s*\]", rf"[\"']{quoted}[\"']"):
        found = re.search(pattern, text, re.M)
        if found:
            return text.count("\n", 0, found.end()) + 1
    return 0


def _settings(data: dict) -> Settings:
    for table in data:
        if table != "grading":
            raise _Mistake(table, f"there is one table, [grading], and no {table}")
    grading = data.get("grading", {})
    if not isinstance(grading, dict):
        raise _Mistake("grading", "grading is a table: write [grading]")
    known = [each.name for each in dataclasses.fields(Settings)]
    for name in grading:
        if name not in known:
            raise _Mistake(name, f"[grading] knows {', '.join(known)}, not {name}")
    values = dict(grading)
    for name, options in (("count", COUNT), ("attempt", ATTEMPT), ("show", SHOW), ("show_later", SHOW)):
        if name in values and values[name] not in options:
            raise _Mistake(name, f"{name} is one of {', '.join(options)}, not {values[name]!r}")
    _check(values, "leave_out", _is_list_of_ids, 'a list of exercises, such as ["kv_cache.KVCache"]')
    _check(values, "weights", lambda value: isinstance(value, dict), "a table: exercise = factor")
    _check(values, "variants", lambda value: isinstance(value, bool), "true or false")
    _check(values, "attempts", lambda value: type(value) is int and value >= 0, "a whole number; 0 counts all")
    _check(values, "bonus_cap", _is_amount, "a number such as 0.2")
    _check(values, "show_later_from", lambda value: isinstance(value, datetime.date), "a date such as 2027-01-15")
    for name, weight in values.get("weights", {}).items():
        if not _is_amount(weight):
            raise _Mistake(name, f"the weight of {name} is a number, 0 or more, not {weight!r}")
    ids = {item.id for item in exercises()}
    for name in (*values.get("leave_out", ()), *values.get("weights", {})):
        if name not in ids:
            raise _Mistake(name, f"there is no exercise {name}")
    if ("show_later" in values) != ("show_later_from" in values):
        given = "show_later" if "show_later" in values else "show_later_from"
        raise _Mistake(given, "show_later and show_later_from belong together")
    if "leave_out" in values:
        values["leave_out"] = tuple(values["leave_out"])
    return Settings(**values)


def _check(values: dict, name: str, good, words: str) -> None:
    if name in values and not good(values[name]):
        raise _Mistake(name, f"{name} is {words}, not {values[name]!r}")


def _is_list_of_ids(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_amount(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value >= 0
