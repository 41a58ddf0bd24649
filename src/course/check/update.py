"""Bring a learner's notebook to the installed release: new cells come, answers and the learner's own cells stay.

Every cell of the course carries ``metadata.course``: its role, its key, and ``stub``, the digest of its source as it
was handed out. From these it is told which of the learner's cells are the course's, which of those were edited, and
which are the learner's own. The result is the pristine notebook with

- each answer in its place (found by the rules of `course.notebooks.submission`),
- a prediction as the learner wrote it,
- every other cell of the learner, and every cell of the course that they changed, below the cell it stood below.

The old file is kept beside it under a dated name. Nothing is written unless the answers found in the result are those
found in the old file.
"""

from __future__ import annotations

import copy
import json
import os
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

import nbformat

from course.notebooks import editions
from course.notebooks import submission as submissions
from course.sources import Answer
from course.specs.exercise import Exercise

BACKUP = ".ipynb.bak"


class CannotUpdate(ValueError):
    """The notebook is left as it is; the message says why and what to do."""


@dataclass
class Update:
    """A merged notebook and what was done to it. ``notebook`` None: there is nothing to do."""

    notebook: dict | None = None
    answers: int = 0
    own_cells: int = 0
    new: list[str] = field(default_factory=list)  # keys of cells that were not there before
    mended: list[str] = field(default_factory=list)  # keys of the course's cells whose text is another now
    changed: list[str] = field(default_factory=list)  # exercises whose stub is another now
    gone: list[str] = field(default_factory=list)  # exercises that are no more; their answers are kept as own cells
    backup: Path | None = None

    def says(self) -> str:
        """What was done, in one line."""
        if self.notebook is None:
            return "up to date"
        parts = [f"{_count(self.answers, 'answer')} kept"]
        if self.own_cells:
            parts.append(f"{_count(self.own_cells, 'cell')} of your own kept")
        if self.new:
            parts.append(f"new: {', '.join(self.new)}")
        if self.mended:
            parts.append(f"{_count(len(self.mended), 'cell')} of the course mended")
        parts += [f"the task of {name} changed: read it and run its check again" for name in self.changed]
        parts += [f"{name} is no longer part of the course: your answer stays as a cell of your own"
                  for name in self.gone]
        if self.backup:
            parts.append(f"the old file is {self.backup.name}")
        return "; ".join(parts)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("s" if number != 1 else "")


def update_file(path: Path, pristine: Path, items: list[Exercise]) -> Update:
    """Update the notebook at ``path`` from the released one. Raises :class:`CannotUpdate`, and then changed nothing."""
    try:
        before = path.read_bytes()
        mine = submissions.read(path, whole=True)
    except submissions.Unreadable as error:
        raise CannotUpdate(f"left alone: {error}") from None
    except OSError as error:
        raise CannotUpdate(f"left alone: it cannot be read ({error.strerror})") from None
    done = merge(mine, _as_theirs(json.loads(pristine.read_text(encoding="utf-8")), mine, items), items)
    if done.notebook is None:
        return done
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(_to_bytes(done.notebook))
        done.backup = _back_up(path, before)
        if path.read_bytes() != before:
            raise CannotUpdate("left alone: it was saved while it was being updated. Close it in your editor, then "
                               "run `course update` again")
        os.replace(temporary, path)
    except OSError as error:
        raise CannotUpdate(f"left alone: the new file cannot be written ({error.strerror})") from None
    finally:
        temporary.unlink(missing_ok=True)
    return done


def _as_theirs(pristine: dict, mine: dict, items: list[Exercise]) -> dict:
    """The released notebook as this learner would be given it: with the constants of their own, where theirs has some.

    Whoever changes them only practises something else: the grader derives them again.
    """
    constants = {item.id: editions.of_notebook(mine, item) for item in items}
    return editions.with_constants(pristine, constants) if any(constants.values()) else pristine


def _to_bytes(notebook: dict) -> bytes:
    try:
        return (json.dumps(notebook, indent=1, ensure_ascii=False) + "\n").encode()
    except UnicodeEncodeError:  # half a surrogate pair in a string: only an escape can say it
        return (json.dumps(notebook, indent=1) + "\n").encode()


def _back_up(path: Path, data: bytes) -> Path:
    """A copy under a name that is free; not a notebook by its name, so that nobody grades it."""
    stem = f"{path.stem}.{time.strftime('%Y%m%d-%H%M%S')}"
    for name in (f"{stem}{suffix}{BACKUP}" for suffix in ("", *(f"-{i}" for i in range(2, 1000)))):
        target = path.with_name(name)
        try:
            with target.open("xb") as stream:
                stream.write(data)
            return target
        except FileExistsError:
            continue
        except OSError:
            target.unlink(missing_ok=True)
            raise
    raise OSError(0, "there are too many old copies")


def merge(mine: dict, pristine: dict, items: list[Exercise]) -> Update:
    """The pristine notebook with what is the learner's put back. Raises :class:`CannotUpdate`."""
    if not all(isinstance(cell, dict) and isinstance(cell.get("cell_type"), str) for cell in mine["cells"]):
        raise CannotUpdate("left alone: it holds cells that are no cells. Open it in Jupyter and save it again")
    if not _differs(mine, pristine):
        return Update()
    done = _Merger(mine, pristine, items).run()
    _prove(mine, done.notebook, items)
    return done


def _differs(mine: dict, pristine: dict) -> bool:
    """Was this notebook handed out as something else than ``pristine``, or has it lost cells of it?"""
    if _course(mine).get("release") != _course(pristine).get("release"):
        return True
    handed = {_key(cell): _course(cell).get("stub") for cell in mine["cells"] if _key(cell)}
    now = {_key(cell): _course(cell).get("stub") for cell in pristine["cells"]}
    return {key: stub for key, stub in handed.items() if key[0] != "note"} != now


def _prove(mine: dict, merged: dict, items: list[Exercise]) -> None:
    """What would be graded is what would have been graded before; and the file is a notebook."""
    try:
        nbformat.validate(nbformat.from_dict(merged))
    except nbformat.ValidationError as error:
        raise CannotUpdate(f"left alone: it is not a valid notebook ({error.message[:120]}). Open it in Jupyter and "
                           "save it again") from None
    before, after = (submissions.extract(notebook, "", items).answers for notebook in (mine, merged))
    for item in items:
        one, two = before.get(item.id), after.get(item.id)
        if one is not None and not one.is_stub and _unmarked(one) != _unmarked(two or ""):
            raise CannotUpdate(f"left alone: your answer to {item.id} could not be carried over unchanged. Move it "
                               f"into one cell whose first line is `# answer: {item.id}`, then run `course update` "
                               "again")


def _unmarked(source: str) -> str:
    """The code of an answer: the marker is ours to add, empty lines are nobody's."""
    lines = source.splitlines()
    return "\n".join(line.rstrip() for line in lines if line.strip() and not Answer(line).marked_id)


def _course(thing: dict) -> dict:
    return submissions.metadata_of(thing, "course")


def _key(cell: dict) -> tuple[str, str] | None:
    """Role and key of a cell of the course, or None for any other."""
    role, key = _course(cell).get("role"), _course(cell).get("key")
    return (role, key) if isinstance(role, str) and isinstance(key, str) else None


def _edited(cell: dict) -> bool:
    """Did the learner change this cell of the course? Of cells without a digest it is taken that they did not."""
    stub = _course(cell).get("stub")
    return isinstance(stub, str) and submissions.source_of(cell).digest != stub


class _Merger:
    """One merge: slots are the pristine cells by id; what belongs above or below each is collected beside them."""

    def __init__(self, mine: dict, pristine: dict, items: list[Exercise]):
        self.mine, self.items = mine, items
        self.merged = copy.deepcopy(pristine)
        self.slots: dict[str, dict] = {cell["id"]: cell for cell in self.merged["cells"]}
        self.by_key = {_key(cell): cell["id"] for cell in self.merged["cells"]}
        self.pristine = {cell["id"]: submissions.source_of(cell) for cell in self.merged["cells"]}
        self.above: dict[str, list[dict]] = {name: [] for name in self.slots}
        self.below: dict[str, list[dict]] = {name: [] for name in self.slots}
        self.top: list[dict] = []
        self.taken: dict[str, dict] = {}
        self.done = Update()

    def run(self) -> Update:
        answers = self._answers()
        chosen = {id(cells[-1]): name for name, cells in answers.items() if cells}
        others = {id(cell): name for name, cells in answers.items() for cell in cells[:-1]}
        stubs = self._stubs()
        place = self.top
        for cell in self.mine["cells"]:
            if id(cell) in chosen:
                name = chosen[id(cell)]
                self._answer(name, cell)
                place = self.below[name]
            elif id(cell) in others:
                place = self.above[others[id(cell)]]
                place.append(self._own(cell))
            elif id(cell) in stubs:
                name = stubs[id(cell)]
                self.taken.setdefault(name, cell)
                place = self.below[name] if not answers.get(name) else self.above[name]
            elif (name := self._slot(cell)) is not None:
                self._given(name, cell)
                place = self.below[name]
            elif _key(cell):
                place = self._gone(cell, place)
            else:
                place.append(self._own(cell))
        return self._finish()

    def _answers(self) -> dict[str, list[dict]]:
        """By cell id of the exercise: the cells that answer it, in order, without stubs."""
        self.candidates: dict[str, list[dict]] = {item.cell_id: [] for item in self.items}
        by_id = {item.id: item for item in self.items}
        for cell in self.mine["cells"]:
            if cell["cell_type"] == "code":
                name = submissions.identity(cell, self.items)
                if name:
                    self.candidates[by_id[name].cell_id].append(cell)
        for item in self.items:
            if not self.candidates[item.cell_id]:
                named = submissions.by_name(self.mine, item)
                self.candidates[item.cell_id] = [
                    cell for cell in self.mine["cells"] if named and submissions.source_of(cell) == named[0]
                ][:1]
        return {name: [cell for cell in cells if not submissions.source_of(cell).is_stub]
                for name, cells in self.candidates.items()}

    def _stubs(self) -> dict[int, str]:
        return {id(cell): name for name, cells in self.candidates.items() for cell in cells
                if submissions.source_of(cell).is_stub}

    def _slot(self, cell: dict) -> str | None:
        """The pristine cell that this one is a copy of, if it is the first such copy."""
        source = submissions.source_of(cell)
        named = self.by_key.get(_key(cell)) if _key(cell) else cell.get("id")
        if named is None or named not in self.slots:
            named = None if _key(cell) else next((name for name, text in self.pristine.items() if text == source), None)
        fits = named is not None and self.slots[named]["cell_type"] == cell["cell_type"]
        is_answer = fits and _course(self.slots[named]).get("role") == "answer"
        return named if fits and not is_answer and named not in self.taken else None

    def _answer(self, name: str, cell: dict) -> None:
        slot, source = self.slots[name], submissions.source_of(cell)
        item = next(item for item in self.items if item.cell_id == name)
        if source.marked_id is None:
            source = f"# answer: {item.id}\n{source}"
        handed, now = _course(cell).get("stub"), _course(slot)["stub"]
        if isinstance(handed, str) and handed != now:
            self.done.changed.append(item.id)
            self.above[name].append(self._note(item, self.pristine[name]))
        self.taken[name] = cell
        self._fill(slot, cell, source)
        self.done.answers += 1

    def _note(self, item: Exercise, stub: str) -> dict:
        """The new stub, shown above an answer that was written to the old one."""
        text = (f"The task of `{item.id}` changed with this release. Your answer is below as you wrote it; this is the "
                f"cell as it is handed out now:\n\n```python\n{stub}\n```")
        return {"cell_type": "markdown", "id": f"{item.cell_id}-note", "source": text.splitlines(True), "metadata": {
            "course": {"v": 1, "role": "note", "key": item.id, "stub": Answer(text).digest}}}

    def _given(self, name: str, cell: dict) -> None:
        slot, source = self.slots[name], submissions.source_of(cell)
        self.taken[name] = cell
        if source == self.pristine[name]:
            self._fill(slot, cell, source)
        elif not _edited(cell):
            self.done.mended.append(_course(slot)["key"])
        elif slot["metadata"].get("editable") is not False:  # a prediction is there to be written
            self._fill(slot, cell, source)
        else:
            self.below[name].append(self._own(cell))

    def _gone(self, cell: dict, place: list[dict]) -> list[dict]:
        """A cell of the course that is no longer part of it, or a second copy of one: kept where it was edited."""
        role, key = _key(cell)
        if role == "note":
            return place
        if role == "answer" and (role, key) not in self.by_key and not submissions.source_of(cell).is_stub:
            self.done.gone.append(key)
        # What stood below such a cell must not slip into the answer above it.
        for name in self.candidates:
            if place is self.below[name]:
                place = self.below.get(f"{name}-check", place)
        kept = (role, key) in self.by_key or _edited(cell) or (role == "answer" and key in self.done.gone)
        if kept and not submissions.source_of(cell).is_stub:
            place.append(self._own(cell))
        return place

    @staticmethod
    def _fill(slot: dict, cell: dict, source: str) -> None:
        slot["source"] = source.splitlines(True)
        if slot["cell_type"] == "code":
            slot["outputs"] = cell.get("outputs") or []
            slot["execution_count"] = cell.get("execution_count")

    def _own(self, cell: dict) -> dict:
        """A cell of the learner: nothing of the course's metadata, and what the notebook format asks for."""
        kept = copy.deepcopy(cell)
        metadata = kept.get("metadata") if isinstance(kept.get("metadata"), dict) else {}
        ours = _key(cell) is not None
        drop = {"course", "nbgrader"} | ({"editable", "deletable"} if ours else set())
        kept["metadata"] = {key: value for key, value in metadata.items() if key not in drop}
        kept["source"] = submissions.source_of(cell).splitlines(True)
        if kept["cell_type"] == "code":
            kept.setdefault("outputs", [])
            kept.setdefault("execution_count", None)
        self.done.own_cells += bool(submissions.source_of(cell).strip())
        return kept

    def _finish(self) -> Update:
        cells = list(self.top)
        for name, slot in self.slots.items():
            cells += [*self.above[name], slot, *self.below[name]]
        used = set(self.slots)
        for cell in cells:
            if cell.get("id") in self.slots and cell is self.slots[cell["id"]]:
                continue
            if not _fine_id(cell.get("id")) or cell["id"] in used:
                cell["id"] = uuid.uuid4().hex[:12]
            used.add(cell["id"])
        self.merged["cells"] = cells
        own = self.mine.get("metadata") if isinstance(self.mine.get("metadata"), dict) else {}
        self.merged["metadata"] = {**own, **self.merged["metadata"],
                                   **{key: own[key] for key in ("kernelspec", "language_info") if key in own}}
        self.done.new = [_course(slot)["key"] for name, slot in self.slots.items()
                         if name not in self.taken and _course(slot).get("role") not in {"check", "task"}]
        self.done.notebook = self.merged
        return self.done


def _fine_id(name: object) -> bool:
    return isinstance(name, str) and 1 <= len(name) <= 64 and name.replace("-", "").replace("_", "").isalnum()


def update_folder(work: Path, exercises: Path) -> tuple[list[str], bool]:
    """Update every notebook of a work folder, and copy those that are missing.

    Returns one line a notebook, and whether all of them could be updated.
    """

    lines, good = [], True
    for pristine in sorted(exercises.glob("*.ipynb")):
        path = work / pristine.name
        if not path.exists() and not path.is_symlink():
            path.write_bytes(pristine.read_bytes())
            lines.append(f"{path.name}: new")
            continue
        items = submissions.exercises_of(json.loads(pristine.read_text(encoding="utf-8")), pristine)
        try:
            done = update_file(path, pristine, items)
        except CannotUpdate as error:
            good = False
            lines.append(f"{path.name}: {error}")
            continue
        lines.append(f"{path.name}: {done.says()}")
        if done.changed:
            _reopen(done.changed, work)
    return lines, good


def _reopen(ids: list[str], work: Path) -> None:
    """An exercise whose task changed is no longer solved, until its check says so."""
    from course.check import progress

    progress.reopen(ids, "the task changed", work)


def behind(work: Path, exercises: Path) -> list[str]:
    """Names of the learner's notebooks that were handed out as something else than what is released now."""

    names = []
    for pristine in sorted(exercises.glob("*.ipynb")):
        try:
            mine = submissions.read(work / pristine.name, whole=True)
        except submissions.Unreadable:
            continue
        released = json.loads(pristine.read_text(encoding="utf-8"))
        released = _as_theirs(released, mine, submissions.exercises_of(released, pristine))
        if all(isinstance(cell, dict) for cell in mine["cells"]) and _differs(mine, released):
            names.append(pristine.name)
    return names


def reset(item: Exercise, path: Path, released: Path) -> Path:
    """Put the stub back into a learner's copy. The answer goes to a text file beside the notebook, which is returned.

    Raises ValueError when there is no copy yet, or no cell of this exercise in it.
    """
    if not path.is_file():
        raise ValueError(f"you have no copy of {path.name} yet: `course start` makes one")
    notebook = json.loads(path.read_text(encoding="utf-8-sig"))
    pristine = json.loads(released.read_text(encoding="utf-8"))
    stub = next(cell["source"] for cell in pristine["cells"] if cell.get("id") == item.cell_id)
    hits = [cell for cell in notebook["cells"]
            if cell.get("id") == item.cell_id or submissions.source_of(cell).marked_id == item.id]
    if not hits:
        raise ValueError(f"{path} has no cell for {item.id}: add one whose first line is `# answer: {item.id}`")
    backup = path.with_name(f"{item.cell_id}.{time.strftime('%Y%m%d-%H%M%S')}.py")
    backup.write_text("\n\n".join(submissions.source_of(cell) for cell in hits) + "\n", encoding="utf-8")
    for cell in hits:
        cell["source"] = stub
        cell["outputs"], cell["execution_count"] = [], None
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(temporary, path)
    return backup
