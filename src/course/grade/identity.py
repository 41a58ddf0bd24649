"""Whose is it? Student and attempt from the names that Canvas, Moodle and Classroom give to files and folders."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from course.specs import CHAPTERS

# Canvas: doejane_12345_678901_04_kv_cache-2.ipynb, with _LATE after the name when it was late
CANVAS = re.compile(r"^(?P<who>[^_]+)(?:_LATE)?_(?P<id>\d+)_\d+_.*?(?:-(?P<attempt>\d+))?\.ipynb$")
# Moodle: "Jane Doe_123456_assignsubmission_file_/04_kv_cache.ipynb", or the same in front of the file's name
MOODLE = re.compile(r"^(?P<who>.+?)_(?P<id>\d+)_assignsubmission_file_?")


@dataclass(frozen=True)
class Handed:
    """One notebook that was handed in."""

    student: str
    path: Path
    stem: str  # of the chapter; "" when the name does not tell
    attempt: int = 0
    when: float = 0.0
    lms_id: str = ""  # the number that Canvas or Moodle put into the name


def identify(path: Path, root: Path, roster: dict[str, str] | None = None) -> Handed:
    """Student, chapter and attempt of a notebook found below ``root``."""
    stem = next((stem for stem in CHAPTERS if stem in path.name), "")
    attempt, lms_id = 0, ""
    canvas, moodle = CANVAS.match(path.name), MOODLE.match(path.name) or MOODLE.match(path.parent.name)
    if moodle:
        student, lms_id = moodle["who"], moodle["id"]
    elif canvas:
        student, lms_id, attempt = canvas["who"], canvas["id"], int(canvas["attempt"] or 0)
    else:
        folders = path.relative_to(root).parts[:-1] if root in path.parents else ()
        bare = re.sub(rf"_?(?:\d\d_)?{stem}", "", path.stem).strip("_- ") if stem else path.stem
        student = folders[0] if folders else bare or path.resolve().parent.name
    student = _enrolled(path, root, roster or {}) or student
    when = path.lstat().st_mtime if path.exists() or path.is_symlink() else 0.0
    return Handed(student, path, stem, attempt, when, lms_id)


def latest(handed: list[Handed]) -> tuple[list[Handed], list[Handed]]:
    """Of each student's submissions to a chapter the last one, and those it replaces."""
    return choose(handed)


def choose(handed: list[Handed], attempts: int = 0, attempt: str = "latest") -> tuple[list[Handed], list[Handed]]:
    """The submissions to grade, and those left out.

    Of each student's submissions to a chapter the first ``attempts`` count (0: all): the last of them is graded, or
    with ``attempt`` "best" every one, in the order of time.
    """
    by_task: dict[tuple[str, str], list[Handed]] = {}
    for item in sorted(handed, key=lambda each: (each.attempt, each.when, str(each.path))):
        by_task.setdefault((item.student, item.stem or item.path.name), []).append(item)
    kept: list[Handed] = []
    for several in by_task.values():
        counting = several[:attempts] if attempts else several
        kept += counting if attempt == "best" else counting[-1:]
    chosen = {id(item) for item in kept}
    kept.sort(key=lambda each: (each.student, each.stem, each.attempt, each.when, str(each.path)))
    return kept, [item for item in handed if id(item) not in chosen]


@dataclass(frozen=True)
class Enrolled:
    """One row of a roster: what names of files and folders hold, who that is, where their repository is."""

    match: str
    student: str
    repository: str = ""
    columns: dict[str, str] = field(default_factory=dict, hash=False)  # all others, by name: for a gradebook


def roster_rows(path: Path) -> list[Enrolled]:
    """The rows of a roster: a CSV file with the columns ``match`` and ``student``, and if need be ``repository``.

    Other columns (``ID``, ``SIS Login ID``, ``Email address``) are handed on to the gradebook that asks for them.
    ``match`` is the name of the student's folder, the login in front of a file's name, or another part of the path.
    Raises ValueError that names the row for any other file, and for a student or a match that comes twice.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: this is not a CSV file in UTF-8 ({error})") from None
    if not rows or not {"match", "student"} <= set(rows[0]):
        raise ValueError(f"{path}: a roster is a CSV file whose first line is match,student (or "
                         "match,student,repository), with a line for each student below it")
    found, seen = [], set()
    for number, row in enumerate(rows, start=2):
        named = {key: (row.pop(key, None) or "").strip() for key in ("match", "student", "repository")}
        one = Enrolled(**named, columns={key: value.strip() for key, value in row.items() if key and value})
        if not one.match and not one.student:
            continue
        if not one.match or not one.student:
            raise ValueError(f"{path}, line {number}: both match and student are needed")
        if one.match in seen:
            raise ValueError(f"{path}, line {number}: {one.match!r} is there twice, so it cannot tell who handed in")
        seen.add(one.match)
        found.append(one)
    return found


def read_roster(path: Path) -> dict[str, str]:
    """Student by match (see :func:`roster_rows`)."""
    return {row.match: row.student for row in roster_rows(path)}


def _enrolled(path: Path, root: Path, roster: dict[str, str]) -> str | None:
    """The student of the roster whose path this is: a whole name outranks a part, a longer part a shorter one."""
    inside = path.relative_to(root) if root in path.parents else Path(path.name)
    names = {*inside.parts, path.stem}
    parts = {name.split("_")[0] for name in inside.parts}
    for known in (names, parts):
        whole = [match for match in roster if match in known]
        if whole:
            return roster[max(whole, key=len)]
    found = [match for match in roster if match in str(inside)]
    return roster[max(found, key=len)] if found else None


def enrolled_only(handed: list[Handed], roster: dict[str, str] | None) -> None:
    """Where constants differ from student to student, all must be known. Raises ValueError that names who is not."""
    if not roster:
        raise ValueError("course.toml says variants = true: give --roster, since every student has own constants")
    strange = sorted({item.student for item in handed} - set(roster.values()))
    if strange:
        raise ValueError(f"not in the roster, so their constants are not known: {', '.join(strange)}. "
                         "Add a line for each")


def safe(name: str) -> str:
    """A student's name as a folder name: never a path, and never the same for two students."""
    cleaned = re.sub(r"[^\w.@+-]+", "_", name).strip("._")
    if cleaned and cleaned == name and len(cleaned) <= 100:
        return cleaned
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    return f"{cleaned[:90] or 'unnamed'}-{digest}"


def find(paths: list[Path], roster: dict[str, str] | None = None) -> list[Handed]:
    """All notebooks in files and folders; checkpoints left out. Raises ValueError when there is none."""
    found: list[Handed] = []
    for path in paths:
        if path.is_dir():
            notebooks = [p for p in path.rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts]
            found += [identify(notebook, path, roster) for notebook in sorted(notebooks)]
        elif path.exists() or path.is_symlink():
            found.append(identify(path, path.parent, roster))
        else:
            raise ValueError(f"{path}: there is no such file or folder")
    if not found:
        raise ValueError(f"no notebooks in {', '.join(map(str, paths))}")
    return _told_apart(found)


def _told_apart(handed: list[Handed]) -> list[Handed]:
    """Two people of one name, told by their numbers: the number joins the name, so that neither loses a grade."""
    numbers: dict[str, set[str]] = defaultdict(set)
    for item in handed:
        if item.lms_id:
            numbers[item.student].add(item.lms_id)
    return [
        dataclasses.replace(item, student=f"{item.student} ({item.lms_id})")
        if item.lms_id and len(numbers[item.student]) > 1 else item
        for item in handed
    ]
