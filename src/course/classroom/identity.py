"""Whose is it? Student and attempt from the names that Canvas, Moodle and Classroom give to files and folders."""

from __future__ import annotations

import dataclasses
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course.chapters import named_in
from course.classroom.names import nfc
from course.notebooks import submission as submissions
from course.specs import CHAPTERS

# Canvas: doejane_12345_678901_04_kv_cache-2.ipynb, with _LATE after the name when it was late
CANVAS = re.compile(r"^(?P<who>[^_]+)(?P<late>_LATE)?_(?P<id>\d+)_\d+_.*?(?:-(?P<attempt>\d+))?\.[^.]+$")
# Moodle: "Jane Doe_123456_assignsubmission_file_/04_kv_cache.ipynb", or the same in front of the file's name
MOODLE = re.compile(r"^(?P<who>.+?)_(?P<id>\d+)_assignsubmission_file_?")

SKIPPED = {".ipynb_checkpoints", "__MACOSX", ".git", ".venv", "node_modules"}


@dataclass(frozen=True)
class Handed:
    """One notebook that was handed in."""

    student: str
    path: Path
    stem: str  # of the chapter; "" when neither its answers nor its name tell
    attempt: int = 0
    when: float = 0.0
    lms_id: str = ""  # the number that Canvas or Moodle put into the name
    late: bool = False  # Canvas says so in the name


def identify(path: Path, root: Path, roster: dict[str, str] | None = None, archive: bool = False) -> Handed:
    """Student, chapter and attempt of a notebook found below ``root``.

    A student names the files in their own folder, so the outermost name decides, and a name such as a platform gives
    counts below another folder only where ``archive`` says that this is a platform's archive.
    """
    stem = _stem(path.name)
    inside = path.relative_to(root) if root in path.parents else Path(path.name)
    parts = [nfc(part) for part in inside.parts]
    platform = _platform(parts, archive)
    if platform:
        student, lms_id = platform["who"], platform["id"]
    else:
        bare = re.sub(rf"_?(?:\d\d_)?{stem}", "", path.stem).strip("_- ") if stem else path.stem
        student, lms_id = (parts[0] if len(parts) > 1 else nfc(bare) or nfc(path.resolve().parent.name)), ""
    groups = platform.groupdict() if platform else {}
    student = _enrolled(parts, platform, roster or {}) or student
    when = path.lstat().st_mtime if path.exists() or path.is_symlink() else 0.0
    return Handed(student, path, stem, int(groups.get("attempt") or 0), when, lms_id, bool(groups.get("late")))


def _platform(parts: list[str], archive: bool) -> re.Match | None:
    """The outermost name that Canvas or Moodle gave; below another folder only in an archive of theirs."""
    for depth, part in enumerate(parts):
        found = MOODLE.match(part) or (CANVAS.match(part) if depth == len(parts) - 1 else None)
        if found and (archive or depth == 0):
            return found
    return None


def _stem(name: str) -> str:
    found = named_in(name)
    return found.stem if found is not None and found.stem in CHAPTERS else ""


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


def _enrolled(parts: list[str], platform: re.Match | None, roster: dict[str, str]) -> str | None:
    """The student of the roster whose path this is: a whole name outranks a part of it.

    Only the outermost name is looked at, or what a platform put into it: what lies in a folder was named by whoever
    owns that. A match with a slash in it (``section1/jane``) is where a path begins. None begins or ends in the middle
    of a word: jan is not jane.
    """
    if platform:
        names = {platform.string, Path(platform.string).stem, platform["who"], platform["id"]}
        text = f"{platform['who']}_{platform['id']}"
    else:
        text = parts[0]
        names = {text, Path(text).stem if len(parts) == 1 else text}
        names |= {"/".join(parts[:depth]) for depth in range(2, len(parts) + 1)}
    whole = [match for match in roster if match in names] or [match for match in roster if match == text.split("_")[0]]
    found = whole or [match for match in roster if _in_words(match, text)]
    return roster[max(found, key=len)] if found else None


def renamed(item: Any, roster: dict[str, str]) -> Any:
    """What was graded without this roster, under the name that it gives to whoever handed in; else as it is.

    item: a dataclass with student and lms_id.
    """
    name = bare_name(item)
    if name in roster.values():
        return item
    platform = CANVAS.match(f"{name}_{item.lms_id}_0_.ipynb") if item.lms_id else None
    student = _enrolled([name], platform, roster)
    return dataclasses.replace(item, student=student) if student else item


def _in_words(match: str, text: str) -> bool:
    return bool(re.search(rf"(?<![^\W_]){re.escape(match)}(?![^\W_])", text))


def find(paths: list[Path], roster: dict[str, str] | None = None) -> list[Handed]:
    """All notebooks in files and folders; checkpoints and what a Mac adds to archives left out.

    Of a student with several notebooks each is read, as data, so that its answers say which chapter it is of, and not
    its name. Raises ValueError when there is no notebook.
    """
    found: list[Handed] = []
    for path in paths:
        if path.is_dir():
            notebooks = [file for file in _files(path) if is_notebook(file)]
            archive = _is_archive(notebooks, path)
            found += [identify(notebook, path, roster, archive) for notebook in notebooks]
        elif path.exists() or path.is_symlink():
            found.append(identify(path, path.parent, roster))
        else:
            raise ValueError(f"{path}: there is no such file or folder")
    if not found:
        raise ValueError(f"no notebooks (.ipynb) in {', '.join(map(str, paths))}: unpack archives first")
    unique = {os.path.abspath(item.path): item for item in reversed(found)}  # a folder may be named inside another
    return told_apart(_chapters([item for item in found if unique[os.path.abspath(item.path)] is item]))


def is_notebook(path: Path) -> bool:
    return path.suffix.lower() == ".ipynb"


def empty_handed(paths: list[Path], roster: dict[str, str] | None, handed: list[Handed]) -> dict[str, list[str]]:
    """By student, the files of those who handed in something, but no notebook: an archive, a PDF, a script."""
    have = {item.student for item in handed} | {bare_name(item) for item in handed}
    found: dict[str, list[str]] = defaultdict(list)
    for root in paths:
        if not root.is_dir():
            continue
        files = list(_files(root))
        archive = _is_archive([file for file in files if is_notebook(file)], root)
        for file in files:
            inside = file.relative_to(root)
            if not is_notebook(file) and (len(inside.parts) > 1 or CANVAS.match(file.name) or MOODLE.match(file.name)):
                found[identify(file, root, roster, archive).student].append(inside.name)
    return {student: names for student, names in sorted(found.items()) if student not in have}


def notes(paths: list[Path], roster: dict[str, str] | None, handed: list[Handed]) -> list[str]:
    """What is odd about who handed in what, in sentences."""
    return [f"{student} handed in no notebook (.ipynb), but {', '.join(names[:5])}: not graded"
            for student, names in empty_handed(paths, roster, handed).items()] + _inner_names(paths, roster, handed)


def _inner_names(paths: list[Path], roster: dict[str, str] | None, handed: list[Handed]) -> list[str]:
    """Somebody who is in no roster has a folder or a file that bears a name of it."""
    inner: dict[str, set[str]] = defaultdict(set)
    for item in handed:
        root = next((root for root in paths if root in item.path.parents), None)
        parts = [nfc(part) for part in item.path.relative_to(root).parts[1:]] if root else []
        if item.student not in (roster or {}).values():
            inner[item.student] |= {*parts, *(Path(part).stem for part in parts)} & set(roster or ())
    return [f"{student} is in no roster, and {', '.join(sorted(names)[:5])} in that folder is: graded as {student}'s. "
            f"Is {student} a section of the class, name its folder itself in the command"
            for student, names in sorted(inner.items()) if names]


def left_out_notes(left_out: list[Handed], graded: list[Handed]) -> list[str]:
    """For each submission that does not count a sentence that says which one does."""
    counts = {(item.student, item.stem or item.path.name): item for item in graded}
    found = []
    for item in left_out:
        winner = counts.get((item.student, item.stem or item.path.name))
        found.append(f"{item.student}, {item.stem}: {winner.path if winner else 'another file'} counts, "
                     f"{item.path} is left out")
    return found


def all_of(student: str, handed: list[Handed]) -> list[Handed]:
    """All of it is this student's, whatever files are called, so that every notebook says of which chapter it is."""
    return _chapters([dataclasses.replace(item, student=student, lms_id="") for item in handed])


def _files(root: Path) -> Iterator[Path]:
    """Files below a folder, in order. Raises ValueError for a folder that cannot be read."""

    def fail(error: OSError) -> None:
        raise ValueError(f"{error.filename} cannot be read ({error.strerror}), and whoever handed in there would be "
                         "left out: make it readable (`chmod -R u+rX` on it) and run again")

    found = []
    for folder, inner, files in os.walk(root, onerror=fail):
        inner[:] = [name for name in inner if name not in SKIPPED]
        found += [Path(folder, name) for name in files if not name.startswith(("._", ".DS_Store"))]
    yield from sorted(found)


def _is_archive(notebooks: list[Path], root: Path) -> bool:
    """Has a platform named most of these? Then it has named all: one such name among others is somebody's own idea."""
    named = [bool(_platform([nfc(part) for part in path.relative_to(root).parts], True)) for path in notebooks]
    return 2 * sum(named) > len(named)


def _chapters(handed: list[Handed]) -> list[Handed]:
    """The chapter that a notebook's answers are of, for students with several: or one could be counted as two."""
    several = Counter(item.student for item in handed)

    def chapter(item: Handed) -> str:
        try:
            return submissions.exercises_of(submissions.read(item.path), item.path)[0].stem
        except submissions.Unreadable:
            return item.stem

    return [dataclasses.replace(item, stem=chapter(item)) if several[item.student] > 1 else item for item in handed]


def bare_name(item: Any) -> str:
    """The student's name without the number that :func:`told_apart` may have added."""
    return item.student.removesuffix(f" ({item.lms_id})") if item.lms_id else item.student


def told_apart(items: list) -> list:
    """Two people of one name, told by their numbers: the number joins the name, so that neither loses a grade.

    items: anything with student, stem and lms_id. Moodle gives everybody a new number in each assignment, so only two
    numbers at one chapter are two people.
    """
    numbers: dict[tuple[str, str], set[str]] = defaultdict(set)
    for item in items:
        if item.lms_id:
            numbers[bare_name(item), item.stem].add(item.lms_id)
    shared = {name for (name, _), found in numbers.items() if len(found) > 1}
    return [
        dataclasses.replace(item, student=f"{bare_name(item)} ({item.lms_id})" if bare_name(item) in shared
                            else bare_name(item)) if item.lms_id else item
        for item in items
    ]
