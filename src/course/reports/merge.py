"""Several runs and shards of one class, brought together: what replaces what, and what cannot be compared."""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from pathlib import Path

from course.classroom.identity import bare_name, renamed, told_apart
from course.classroom.names import shown
from course.classroom.settings import Settings
from course.grade.batch import Graded, Mark
from course.reports.score import best

SAID_SINGLY = 3  # replaced results that are named one by one


def merge(folders: list[Path], roster: dict[str, str] | None = None) -> list[Graded]:
    """Graded submissions of several report folders together.

    roster: student by match, for parts that were graded without it. Raises ValueError for a folder without a report,
    for one that another release made, and when two folders say different things of one student's chapter.
    """
    found: list[Graded] = []
    seen: dict[tuple[str, str], Path] = {}
    for folder in dict.fromkeys(folder.resolve() for folder in folders):
        mine = [renamed(item, roster) for item in _read(folder)] if roster else _read(folder)
        for item in mine:
            key = (item.student, item.stem or item.path)
            if seen.get(key, folder) == folder:
                seen[key] = folder
                found.append(item)
            elif not any(_same(item, other) for other in found if (other.student, other.stem) == key):
                raise ValueError(
                    f"{shown(item.student)}, {item.stem}: graded in {seen[key]} and in {folder}, on different files. "
                    "Shards of one run never share a student: grade the submissions of both in one run, and if these "
                    "are two people of one name, give --roster"
                )
    return told_apart(found) if roster else found


def _same(one: Graded, other: Graded) -> bool:
    return (one.digest, one.unreadable, one.marks) == (other.digest, other.unreadable, other.marks)


def _read(folder: Path) -> list[Graded]:
    try:
        data = json.loads((folder / "grades.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{folder} holds no finished report of `course grade` ({error})") from None
    try:
        return [Graded(**{**entry, "marks": [Mark(**mark) for mark in entry["marks"]]}) for entry in data]
    except (TypeError, KeyError, AttributeError):
        raise ValueError(f"{folder} holds a report that another release of the course wrote: keep it, and give a new "
                         "folder with --report") from None


def together(earlier: list[Graded], fresh: list[Graded], settings: Settings, all_attempts: bool = False,
             same_names: bool = True) -> tuple[list[Graded], list[str]]:
    """What was graded before into the same folder, with the fresh results in the place of older ones; and what there is
    to say about it.

    A file that was graded again counts as it is now, whoever it was thought to be of (unless not ``same_names``, where
    the caller names the student). Otherwise a fresh result replaces that of the same student and chapter, or with
    attempt = "best" only a worse one.
    """
    replaced: list[tuple[Graded, Graded]] = []
    paths = {os.path.abspath(item.path) for item in fresh}
    by_task: dict[tuple[str, str], list[Graded]] = defaultdict(list)
    for item in fresh:
        by_task[bare_name(item), item.stem].append(item)
    kept = []
    for item in earlier:
        rivals = [new for new in by_task[bare_name(item), item.stem] if _one_person(item, new)]
        if os.path.abspath(item.path) in paths and (same_names or rivals):
            continue
        if rivals and (settings.attempt != "best" or all_attempts):
            replaced.append((item, rivals[-1]))
            continue
        kept.append(item)
    united = told_apart(kept + fresh)
    return (best(united, settings) if settings.attempt == "best" and not all_attempts else united), [
        *_replaced_notes(replaced, settings)]


def _replaced_notes(replaced: list[tuple[Graded, Graded]], settings: Settings) -> list[str]:
    """What was graded before and is no longer looked at; of many together one sentence."""
    lines = [f"{old.student}, {old.stem}: {new.path} takes the place of {old.path}" for old, new in replaced]
    if len(lines) > SAID_SINGLY:
        lines = [f"{len(lines)} earlier results give way to files of the same students and chapters that lie "
                 f"elsewhere. The first: {lines[0]}"]
    more = "; attempts are counted within a run, so give all that was handed in at once" if settings.attempts else ""
    return [line + more for line in lines]


def _one_person(one: Graded, other: Graded) -> bool:
    """Of two results under one name: are they of one person, as far as the platform's numbers tell?"""
    return not one.lms_id or not other.lms_id or one.lms_id == other.lms_id


def earlier(folder: Path | None) -> list[Graded]:
    """What was graded into this folder before. Raises ValueError when another release of the course did."""
    return merge([folder]) if folder and (folder / "grades.json").is_file() else []


def outdated(graded: list[Graded], version: str) -> list[str]:
    """A note on results of other checkers than this version's (see :func:`course.grade.batch.version`), if any."""
    names = sorted({item.student for item in graded if item.checkers != version})
    return [f"graded by other checkers than today's, or with other constants: {', '.join(names)}. Their points may not "
            "be comparable: grade them once more, together with the others"] if names else []


def versions_differ(graded: list[Graded]) -> list[str]:
    """A note when not all results come from the same checkers."""
    versions = Counter(item.checkers for item in graded)
    return outdated(graded, versions.most_common(1)[0][0]) if len(versions) > 1 else []
