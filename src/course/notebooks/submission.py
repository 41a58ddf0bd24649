"""Read a submitted notebook as data and find its answers. Nothing of it is ever executed here."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import stat
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import course
from course.chapters import named_in
from course.notebooks import slim
from course.sources import MAX_SOURCE, Answer, as_code, defined_in, split_at_markers
from course.specs import CHAPTERS, exercises
from course.specs.exercise import Exercise

MAX_FILE = 256 * 1024 * 1024  # with outputs; without them slim.MAX_BYTES
MOST_READ = 5 * MAX_SOURCE  # characters of all cells that are parsed to find the answers; a chapter has a tenth
IN_PROCESS = 8 * 1024 * 1024  # larger files are parsed by a process with a memory limit, outputs dropped
PARSE_SECONDS = 120.0
# Blanks, not \s: over empty lines \s would look again from each of them.
COURSE_CALL = re.compile(r"^[ \t]*(check|hint|try_in_model|predict|reveal)\(", re.M)
NBVAL_DIRECTIVE = re.compile(r"^([ \t]*#+[ \t]*)((?:PYTEST_VALIDATE|NBVAL)_\w+)[ \t]*$", re.M)


class Unreadable(ValueError):
    """The file is not a notebook that can be graded; the message says why and what to do."""


class _Reading:
    """How much of a notebook's code is still parsed: whoever reads it works for others too."""

    def __init__(self):
        self.left = MOST_READ
        self.read: dict[int, Answer] = {}  # by id, what counts already; kept, so that its id stays its own
        self.stopped = False

    def may(self, source: Answer) -> bool:
        """Is this text still parsed? One that was stays so."""
        if id(source) in self.read:
            return True
        if len(source) > min(self.left, MAX_SOURCE):
            self.stopped |= len(source) <= MAX_SOURCE
            return False
        self.left -= len(source)
        self.read[id(source)] = source
        return True


@dataclass
class Submission:
    """What was handed in: answers by exercise id (as the learner wrote them), and what was odd about it."""

    name: str
    answers: dict[str, Answer] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def digest(self) -> str:
        """SHA-256 over the normalised answers, in order of id."""
        text = json.dumps([[key, answer.normal] for key, answer in sorted(self.answers.items())])
        return hashlib.sha256(text.encode("ascii")).hexdigest()


def read(path: Path, whole: bool = False) -> dict:
    """The notebook's JSON; of a file of more than 8 MB only what grading needs, without outputs.

    ``whole``: keep everything, however large; for a learner's own file, not for what others hand in.
    Raises :class:`Unreadable` for anything but a plain notebook of format 4.
    """
    data = _read_bytes(path)
    try:
        return slim.parse(data) if whole or len(data) <= IN_PROCESS else _read_large(data)
    except slim.NotANotebook as error:
        raise Unreadable(str(error)) from None


def _read_large(data: bytes) -> dict:
    """Have it parsed by a process of its own, whose memory is limited."""
    command = [sys.executable, "-I", slim.__file__]
    try:
        done = subprocess.run(command, input=data, capture_output=True, timeout=PARSE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise Unreadable(f"reading it took more than {PARSE_SECONDS:g} s: clear its outputs and save again") from None
    if done.returncode == 3:
        raise Unreadable(done.stdout.decode("ascii", "replace").strip())
    if done.returncode:
        raise Unreadable("the file is too large to be read: clear its outputs and save again")
    return json.loads(done.stdout)


def _read_bytes(path: Path) -> bytes:
    """Read once, without following links, only from a regular file of reasonable size with no other name."""
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise Unreadable("there is no such file") from None
    except OSError as error:
        raise Unreadable(f"the file cannot be opened ({error.strerror}): links are not followed") from None
    facts = os.fstat(fd)
    if not stat.S_ISREG(facts.st_mode):
        os.close(fd)
        raise Unreadable("this is not a regular file")
    with os.fdopen(fd, "rb") as stream:
        if facts.st_nlink != 1:
            raise Unreadable(f"the file is a hard link, one of {facts.st_nlink} names: hand in a copy")
        if facts.st_size > MAX_FILE:
            size = f"{facts.st_size / 1e6:.0f} MB"
            raise Unreadable(f"the file has {size}, more than {MAX_FILE >> 20}: clear its outputs and save again")
        try:
            data = stream.read(MAX_FILE + 1)
        except OSError as error:
            raise Unreadable(f"the file cannot be read ({error.strerror})") from None
    if len(data) > MAX_FILE:
        raise Unreadable("the file grew while it was read: hand it in again")
    if not data.strip():
        raise Unreadable("the file is empty")
    return data


def extract(notebook: dict, name: str, exercises: list) -> Submission:
    """Find each exercise's answer: by marker, cell id or metadata, else the one function of that name.

    An answer goes on over following code cells that have no identity of their own and no check in them. Of
    several candidates the last that differs from the stub counts, with a warning. Of a notebook with more code than
    :data:`MOST_READ` the rest is not parsed, with a warning too.
    """
    reading = _Reading()
    warnings, not_asked = _other_release(notebook, exercises)
    submission = Submission(name, warnings=warnings + _other_chapter(notebook, exercises))
    by_cell_id = {item.cell_id: item for item in exercises}
    by_id = {item.id: item for item in exercises}
    found: dict[str, list[Answer]] = {}
    current: str | None = None
    unmarked: dict[int, Answer] = {}  # code cells that are nobody's answer, by their place
    last: dict[str, int] = {}  # where the last cell of an answer stands
    for place, cell in enumerate(notebook["cells"]):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        source = source_of(cell)
        parts = split_at_markers(source) if len(source) <= MAX_SOURCE else [source]
        owners = [_identity(cell, part, by_cell_id, by_id) for part in parts]
        if any(owners):
            for own, part in zip(owners, parts):
                if own:
                    found.setdefault(own, []).append(part)
                    last[own] = place
            current = owners[-1]
            continue
        if role(cell) in {"check", "given"}:
            current = None
        elif current and len(found[current][-1]) + len(source) > MAX_SOURCE:
            current = None  # more than any answer may have: not looked at, and its cell alone is judged
        elif COURSE_CALL.search(source):
            current = None
            unmarked[place] = source
        elif current and source.strip() and not source.marked_id and reading.may(source) and _continues(source):
            found[current][-1] = Answer(f"{found[current][-1]}\n{source}")
            submission.warnings.append(f"{current}: the answer is spread over several cells; they were joined")
        else:
            unmarked[place] = source
    defined = {place: defined_in(as_code(source)) for place, source in unmarked.items() if reading.may(source)}
    elsewhere = frozenset().union(*defined.values())
    for item in exercises:
        candidates = found.get(item.id) or by_name(notebook, item)
        if not candidates or item.id in not_asked:
            continue
        candidates = [source for source in candidates[:-1] if reading.may(source)] + candidates[-1:]
        written = [source for source in candidates if not source.is_stub] or candidates
        if len(candidates) > 1 and len(written) > 1:
            submission.warnings.append(f"{item.id}: {len(candidates)} cells answer it; the last one counts")
        later = [place for place, names in defined.items() if item.entry in names and place > last.get(item.id, place)]
        if later:
            what = "is still as it was given" if written[-1].is_stub else "counts"
            submission.warnings.append(
                f"{item.id}: code cell {_nth_code_cell(notebook, later[-1])} defines {item.entry} too, without the "
                f"line `# answer: {item.id}` at its top, so it was not graded; the marked cell {what}")
        answer = submission.answers[item.id] = disarmed(as_code(written[-1]))
        answer.elsewhere = elsewhere
    if reading.stopped:
        submission.warnings.append(f"the notebook holds more than {MOST_READ:,} characters of code; only the marked "
                                   "cells of the rest were looked at")
    submission.warnings = list(dict.fromkeys(submission.warnings))
    return submission


def _nth_code_cell(notebook: dict, place: int) -> int:
    """The number of a code cell, from 1, as a person counts them."""
    cells = notebook["cells"][: place + 1]
    return sum(isinstance(cell, dict) and cell.get("cell_type") == "code" for cell in cells)


def _other_release(notebook: dict, exercises: list) -> tuple[list[str], set[str]]:
    """Of a notebook that another release of the course handed out: warnings, and the exercises it cannot answer.

    The notebook's own list of cells and signatures says what it was asked. Today's manifest alone says what counts, so
    whoever falsifies that list only loses by it.
    """
    ours = metadata_of(notebook, "course")
    release = ours.get("release")
    if not isinstance(release, str) or release == course.__version__:
        return [], set()
    name = release if re.fullmatch(r"[\w.\-]{1,20}", release) else "of another name"
    warnings = [f"handed out with release {name}, graded by {course.__version__}"]
    cells = ours.get("cells")
    if isinstance(cells, list) and ours.get("stem") in [item.stem for item in exercises]:
        now = {item.cell_id: item for item in exercises}
        asked = [cell for cell in cells if isinstance(cell, str)]
        added = [item.id for item in exercises if item.cell_id not in asked]
        removed = [_printable(cell, 60) for cell in asked if cell not in now][:10]
        if added:
            warnings.append(f"{', '.join(added)}: not in that release, so not answered")
        if removed:
            warnings.append(f"{', '.join(removed)}: no longer part of the course, not graded")
    other = _asked_otherwise(notebook, exercises)
    warnings += [f"{item.id}: that release asked for `{was}`, this one asks for `{item.signature}`; "
                 "the answer was not graded" for item, was in other]
    if len(warnings) > 1:
        warnings.append("the way out: `course update` in the learner's copy keeps the answers and brings the new "
                        "tasks, then hand in again; or grade with the release that handed it out")
    return warnings, {item.id for item, _ in other}


def _printable(text: str, longest: int) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text[:longest])


def _asked_otherwise(notebook: dict, exercises: list) -> list[tuple]:
    """Exercises whose answer cell was handed out with another signature, and that signature."""
    by_cell_id = {item.cell_id: item for item in exercises}
    by_id = {item.id: item for item in exercises}
    found = {}
    for cell in notebook["cells"]:
        was = metadata_of(cell, "course").get("signature") if isinstance(cell, dict) else None
        if not isinstance(was, str) or cell.get("cell_type") != "code":
            continue
        name = _identity(cell, source_of(cell), by_cell_id, by_id)
        if name and was != by_id[name].signature:
            found[name] = (by_id[name], _printable(was, 120))
    return list(found.values())


def _other_chapter(notebook: dict, exercises: list) -> list[str]:
    """A warning when the notebook names another chapter than the one that its answers are of."""
    stem = metadata_of(notebook, "course").get("stem")
    if not exercises or not isinstance(stem, str) or stem == exercises[0].stem:
        return []
    return [f"the notebook says that it is of {stem[:40]!r}; its answers and its name are of {exercises[0].stem}"]


def source_of(cell: dict) -> Answer:
    """What stands in a cell."""
    return Answer(slim.joined(cell.get("source")).replace("\r\n", "\n").replace("\r", "\n"))


def role(cell: dict) -> str:
    return str(metadata_of(cell, "course").get("role", ""))


def metadata_of(cell: dict, key: str) -> dict:
    """What stands below ``key`` in the metadata of a cell or a notebook; empty when that is no mapping."""
    metadata = cell.get("metadata")
    value = metadata.get(key) if isinstance(metadata, dict) else None
    return value if isinstance(value, dict) else {}


def identity(cell: dict, exercises: list) -> str | None:
    """The id of the exercise of this list that a cell answers, or None."""
    by_cell_id, by_id = {item.cell_id: item for item in exercises}, {item.id: item for item in exercises}
    return _identity(cell, source_of(cell), by_cell_id, by_id) if cell.get("cell_type") == "code" else None


def _identity(cell: dict, source: Answer, by_cell_id: dict, by_id: dict) -> str | None:
    """The exercise this cell answers. The marker outranks ids, since it is what survives every editor."""
    marker = source.marked_id
    if marker in by_id:
        return marker
    if marker in by_cell_id:
        return by_cell_id[marker].id
    if role(cell) in {"check", "given"}:
        return None
    for name in (cell.get("id"), metadata_of(cell, "nbgrader").get("grade_id"), metadata_of(cell, "course").get("key")):
        if isinstance(name, str) and name in by_cell_id:
            return by_cell_id[name].id
        if isinstance(name, str) and name in by_id:
            return name
    return None


def _continues(source: Answer) -> bool:
    """Does a cell without identity hold definitions, so that it can belong to the answer above it?"""
    body = source.tree.body if source.tree is not None else ()
    definitions = (ast.FunctionDef, ast.ClassDef)
    others = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)
    return any(isinstance(node, definitions) for node in body) and all(
        isinstance(node, definitions + others) for node in body
    )


def by_name(notebook: dict, item) -> list[Answer]:
    """Code cells that define the exercise's name at top level, if exactly one does."""
    pattern = re.compile(rf"^(?:def|class)\s+{re.escape(item.entry)}\b", re.M)
    cells = [cell for cell in notebook["cells"] if isinstance(cell, dict) and cell.get("cell_type") == "code"]
    hits = [source for source in map(source_of, cells) if pattern.search(source) and not source.marked_id]
    return hits if len(hits) == 1 else []


def load(path: Path, exercises: list, name: str | None = None) -> Submission:
    """Read a notebook and find its answers. Raises :class:`Unreadable`."""
    return extract(read(path), name or path.stem, exercises)


def exercises_of(notebook: dict, path: Path) -> list[Exercise]:
    """The exercises of the chapter that this notebook answers: told by its answers, its file name, its metadata.

    What a notebook says of itself comes last, so that none can choose a chapter with less to do.
    """
    every = list(exercises())
    answered = {identity(cell, every) for cell in notebook["cells"] if isinstance(cell, dict)} - {None}
    counts = {stem: sum(item.split(".")[0] == stem for item in answered) for stem in CHAPTERS}
    by_name = exercises_by_name(path)
    most = max(counts.values())
    if most:
        best = [stem for stem, count in counts.items() if count == most]
        if by_name and by_name[0].stem in best:
            return by_name
        return list(exercises(best[0]))
    if by_name:
        return by_name
    stem = metadata_of(notebook, "course").get("stem")
    if isinstance(stem, str) and stem in CHAPTERS:
        return list(exercises(stem))
    raise Unreadable(
        "it cannot be told which chapter this notebook answers: name the file as it was handed out "
        "(04_kv_cache.ipynb) or keep the lines `# answer: ...`"
    )


def exercises_by_name(path: Path) -> list[Exercise] | None:
    """The exercises of the chapter that stands in the file's name, or None."""
    found = named_in(path.name)
    return list(exercises(found.stem)) if found is not None and found.stem in CHAPTERS else None


def disarmed(source: Answer) -> Answer:
    """The source without comments that would steer nbval; of one that is too long as much as shows that it is."""
    return Answer.of(NBVAL_DIRECTIVE.sub(r"\1(marker removed)", source)[: MAX_SOURCE + 1])
