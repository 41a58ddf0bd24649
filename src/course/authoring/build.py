"""From ``solutions/NN_topic.py`` to the notebooks: one source, three products.

A solution file is a jupytext percent script. Its cells:

    # %% [markdown] key="kv_cache.append-task" role="task"      heading and text of the task
    # %% key="kv_cache.append" role="answer"                    the answer, its solution between region marks
    # %% key="race" role="given"                                code the learner is given
    # %% [markdown] key="intro"                                 prose

``course build`` puts the import cell in front, a line of facts below each task's heading, a check cell below every
answer (and a try-in-model cell where the exercise has one), the cell that shows progress at the end, and writes

    exercises/NN_topic.ipynb    solutions cut out, pristine, without outputs
    solutions/NN_topic.ipynb    complete and executed; only check cells keep their output
    exercises/manifest.json     which cells count for how much, and the digests of the stubs

byte for byte the same on every run and machine.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
import tempfile
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_output

import course
from course import paths
from course.chapters import file_stem
from course.judging.feedback import passed_line
from course.sources import Answer
from course.specs import CHAPTERS, exercise, exercises
from course.specs.exercise import Exercise
from course.specs.solutions import MARKS, answers, without_marks

BEGIN, END = MARKS
KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}
CELL_SECONDS = 300
COURSE_IMPORT = "from course.check import check, hint, predict, reveal, status, try_in_model"
STATUS = "status()  # where you stand, and what comes next"
KERNEL_IMPORTS = "from course.check import kernel_report\nfrom course.check.kernels import tl, triton"


class AuthoringError(ValueError):
    """A solution file breaks a rule; the message names the file and the cell."""


def build(root: Path | None = None, out: Path | None = None, execute: bool = True, only: str | None = None
          ) -> dict[Path, bytes]:
    """Build all notebooks and the manifest. Returns their bytes by path relative to the course's root.

    ``only``: the notebooks of this chapter alone, and the manifest with its entry. Writes them below ``out`` (default:
    ``root``) once everything has succeeded. All sources are read before anything is executed.
    """
    root = root or paths.root()
    products: dict[Path, bytes] = {}
    manifest: dict = {"v": 1, "release": course.__version__, "notebooks": {}}
    sources = {stem: root / "solutions" / f"{file_stem(stem)}.py" for stem in CHAPTERS}
    if only is not None:
        exercises(only)  # says which chapters there are when there is no such one
    made = {stem: make(source, stem) for stem, source in sources.items()}
    for stem, source in sources.items():
        solved, released = made[stem]
        name = f"{source.stem}.ipynb"
        if only not in (None, stem):
            settle(released, stem, outputs=False)
            manifest["notebooks"][name] = manifest_entry(stem, released)
            continue
        if execute:
            run(solved, source.parent)
        settle(solved, stem)
        settle(released, stem, outputs=False)
        products[Path("solutions", name)] = to_bytes(solved)
        products[Path("exercises", name)] = to_bytes(released)
        manifest["notebooks"][name] = manifest_entry(stem, released)
    products[Path("exercises", "manifest.json")] = (json.dumps(manifest, indent=1, ensure_ascii=False) + "\n").encode()
    target = out or root
    for path, data in products.items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        temporary = (target / path).with_suffix(".tmp")
        temporary.write_bytes(data)
        temporary.replace(target / path)
    return products


def changed(root: Path | None = None) -> list[Path]:
    """Products that differ from what lies in the course, found by building into a temporary folder."""
    root = root or paths.root()
    with tempfile.TemporaryDirectory() as folder:
        products = build(root, Path(folder))
    return [
        path for path, data in products.items() if not (root / path).is_file() or (root / path).read_bytes() != data
    ]


def make(source: Path, stem: str) -> tuple[NotebookNode, NotebookNode]:
    """The complete notebook and the released one, not yet executed. Raises :class:`AuthoringError`."""
    script = jupytext.reads(source.read_text(encoding="utf-8"), fmt="py:percent")
    items = {item.id: item for item in exercises(stem)}
    solved = nbformat.v4.new_notebook()
    solved.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"},
                       "course": {"v": 1, "stem": stem, "release": course.__version__,
                                  "cells": [item.cell_id for item in items.values()]}}
    cells: list[NotebookNode] = []
    seen: list[str] = []
    for cell in script.cells:
        key, role = cell.metadata.get("key"), cell.metadata.get("role", "text")
        where = f"{source.name}, cell {key or cell.source[:40]!r}"
        if not key:
            raise AuthoringError(f"{where}: give it a key")
        cell = _cell(cell, key, role)
        if role == "task":
            if key.removesuffix("-task") not in items:
                raise AuthoringError(f"{where}: the key of a task is its exercise's id and -task: {stem}.name-task")
            heading, _, rest = cell.source.partition("\n")
            cell.source = f"{heading}\n\n{facts(exercise(key.removesuffix('-task')))}\n{rest}"
        if role == "answer":
            if Answer(cell.source).marked_id != key:
                raise AuthoringError(f"{where}: its first line must be `# answer: {key}`")
            if key not in items:
                raise AuthoringError(f"{where}: there is no spec {key!r}")
            seen.append(key)
        cells.append(cell)
        if role == "answer":
            cells += _below(items[key])
        if len(cells) == 1:
            cells.append(_setup(list(items.values())))
    if seen != list(items):
        raise AuthoringError(f"{source.name} answers {seen}, the spec lists {list(items)}: same ids in the same order")
    solved.cells = [*cells, _given(STATUS, "status")]
    released = copy.deepcopy(solved)
    for cell in solved.cells:
        cell.source = without_marks(cell.source)
    for cell in released.cells:
        if cell.metadata["course"]["role"] == "answer":
            cell.source = strip(cell.source, cell.id)
        _nbgrader(cell, items)
    for cell in solved.cells:
        _nbgrader(cell, items)
    return solved, released


def _cell(cell: NotebookNode, key: str, role: str) -> NotebookNode:
    extra = {name: value for name, value in cell.metadata.items() if name not in {"key", "role", "lines_to_next_cell"}}
    metadata = {"course": {"v": 1, "role": role, "key": key}, **extra}
    node = NotebookNode(id=key.replace(".", "-"), cell_type=cell.cell_type, source=cell.source, metadata=metadata)
    if cell.cell_type == "code":
        node.update(outputs=[], execution_count=None)
    return nbformat.from_dict(node)


def _setup(items: list[Exercise]) -> NotebookNode:
    """The import cell: every line of the exercises' preludes once, then the course's own names.

    Triton comes by way of the course, which switches it to the interpreter first.
    """
    lines = [line for item in items for line in item.prelude.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("import triton")]
    plain = [line for line in dict.fromkeys(lines) if not line.startswith("from course.")]
    given = [line for line in dict.fromkeys(lines) if line.startswith("from course.")]
    kernels = KERNEL_IMPORTS.splitlines() if any(item.track == "kernel" for item in items) else []
    return _given("\n".join([*plain, "", COURSE_IMPORT, *kernels, *given]), "setup")


def _given(source: str, key: str) -> NotebookNode:
    """A code cell of our own. It is settled without an execution count, so nbval runs it and compares no output."""
    cell = new_code_cell(source, id=key.replace(".", "-"))
    cell.metadata = {"course": {"v": 1, "role": "given", "key": key}}
    return cell


def _below(item: Exercise) -> list[NotebookNode]:
    """The check cell of an answer, and the cell that tries it in the model."""
    check = new_code_cell(f'check("{item.id}")', id=f"{item.cell_id}-check")
    check.metadata = {"course": {"v": 1, "role": "check", "key": item.id}}
    cells = [check]
    if item.in_model:
        cells.append(_given(f'try_in_model("{item.id}")', f"{item.id}-try"))
    return cells


def facts(item: Exercise) -> str:
    """The line below a task's heading: what it is worth and what it costs."""
    kind = "core" if item.core else "extra"
    points = "1 point" if item.points == 1 else f"{item.points} points"
    return (f"{kind} · {points} · difficulty {item.difficulty} of 5 · about {item.minutes} minutes · "
            f'stuck: `hint("{item.id}")`')


def strip(source: str, where: str) -> str:
    """The source with its solution regions replaced by a line that raises NotImplementedError."""
    lines, inside, regions = [], False, 0
    for line in source.splitlines():
        if line.strip() == BEGIN:
            if inside:
                raise AuthoringError(f"{where}: {BEGIN} inside a solution region")
            inside, regions = True, regions + 1
            pad = line[: len(line) - len(line.lstrip())]
            lines += [f"{pad}# YOUR CODE HERE", f"{pad}raise NotImplementedError()"]
        elif line.strip() == END:
            if not inside:
                raise AuthoringError(f"{where}: {END} without its beginning")
            inside = False
        elif not inside:
            lines.append(line)
    if inside or not regions:
        raise AuthoringError(f"{where}: an answer needs {BEGIN} ... {END}")
    return "\n".join(lines)


def run(notebook: NotebookNode, folder: Path) -> None:
    """Execute in place. Raises :class:`AuthoringError`: a solution that fails its own check fails the build.

    Cells that try an answer in the real model are left to nbval: nothing of them is kept.
    """
    trials = [cell for cell in notebook.cells if cell.id.endswith("-try")]
    for cell in trials:
        cell.metadata["tags"] = ["skip-execution"]
    client = NotebookClient(notebook, timeout=CELL_SECONDS, kernel_name="python3", skip_cells_with_tag="skip-execution",
                            resources={"metadata": {"path": str(folder)}}, store_widget_state=False)
    try:
        client.execute()
        for cell in trials:
            del cell.metadata["tags"]
    except CellExecutionError as error:
        cell = notebook.metadata["course"]["stem"]
        raise AuthoringError(f"{cell}: a cell fails: {error.ename}: {error.evalue}\n{error.traceback}") from None


def settle(notebook: NotebookNode, stem: str, outputs: bool = True) -> None:
    """Keep the one constant output of check cells; drop all that differs from run to run.

    ``outputs`` False drops that too: an exercise nobody has begun must not say that all checks pass.
    """
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        cell.metadata.pop("execution", None)
        if outputs and cell.metadata["course"]["role"] == "check":
            text = passed_line(cell.metadata["course"]["key"]) + "\n"
            printed = "".join(output.get("text", "") for output in cell.outputs)
            if cell.outputs and printed != text:
                raise AuthoringError(f"{stem}, {cell.id}: the check printed {printed!r}")
            cell.outputs, cell.execution_count = [new_output("stream", name="stdout", text=text)], 1
        else:
            cell.outputs, cell.execution_count = [], None
    notebook.metadata["language_info"] = {"name": "python"}  # without the version of the Python that built it


def _nbgrader(cell: NotebookNode, items: dict[str, Exercise]) -> None:
    """nbgrader schema 3 beside our own metadata, so that an nbgrader course can take the notebook as it is."""
    role, key = cell.metadata["course"]["role"], cell.metadata["course"]["key"]
    answer, check = role == "answer", role == "check"
    if role != "answer" and not cell.source.startswith("predict("):  # a prediction is there to be written
        cell.metadata.update(deletable=False, editable=False)
    else:
        cell.metadata.update(deletable=False)
    cell.metadata["course"]["stub"] = Answer(cell.source).digest  # by which `course update` tells what a learner edited
    if answer:
        cell.metadata["course"]["signature"] = items[key].signature
    if cell.cell_type == "code":
        grade = {"schema_version": 3, "grade_id": cell.id, "solution": answer, "grade": check, "locked": not answer,
                 "task": False, "cell_type": "code"}
        if check:
            grade["points"] = items[key].points
        grade["checksum"] = _checksum(cell, grade)
        cell.metadata["nbgrader"] = grade
    cell.metadata = nbformat.from_dict(dict(sorted(cell.metadata.items())))


def _checksum(cell: NotebookNode, grade: dict) -> str:
    """nbgrader's checksum of a cell: MD5 over source, type, flags, id and points."""
    parts = [cell.source, cell.cell_type, str(grade["grade"]), str(grade["solution"]), str(grade["locked"]),
             grade["grade_id"]]
    if grade["grade"]:
        parts.append(str(float(grade["points"])))
    return hashlib.md5("".join(parts).encode(), usedforsecurity=False).hexdigest()


def manifest_entry(stem: str, released: NotebookNode) -> dict:
    """What counts in a notebook."""
    answers = [cell for cell in released.cells if cell.metadata["course"]["role"] == "answer"]
    stubs = {cell.id: Answer(cell.source).digest for cell in answers}
    return {
        "stem": stem,
        "exercises": [
            {"id": item.id, "cell": item.cell_id, "entry": item.entry, "title": item.title, "points": item.points,
             "core": item.core, "track": item.track, "stub": stubs[item.cell_id]}
            for item in exercises(stem)
        ],
    }


def to_bytes(notebook: NotebookNode) -> bytes:
    """The notebook's canonical text: valid, sorted keys, one trailing newline."""
    nbformat.validate(notebook)
    return (nbformat.writes(notebook, version=nbformat.NO_CONVERT).rstrip("\n") + "\n").encode()


def solution_sources(root: Path | None = None) -> dict[str, str]:
    """The answer cells of the solution files by exercise id."""
    return {name: without_marks(source) for name, source in _answers(root).items()}


def solution_regions(root: Path | None = None) -> dict[str, str]:
    """Of every answer cell, by exercise id, the lines that stand in its solution regions."""
    return {name: "\n".join(re.findall(rf"{BEGIN}\s*\n(.*?){END}", source, re.S))
            for name, source in _answers(root).items()}


def _answers(root: Path | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for stem in CHAPTERS:
        path = (root or paths.root()) / "solutions" / f"{file_stem(stem)}.py"
        found |= answers(path.read_text(encoding="utf-8"))
    return found


def stub_sources(root: Path | None = None) -> dict[str, str]:
    """The released stubs by exercise id, from the exercise notebooks."""
    root = root or paths.root()
    found: dict[str, str] = {}
    for path in sorted((root / "exercises").glob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            source = cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])
            name = Answer(source).marked_id
            if name and re.search(r"NotImplementedError", source):
                found[name] = source
    return found
