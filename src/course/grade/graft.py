"""The nbval route: a graded notebook in which student sources are raw cells and every code cell is pristine.

Its first code cell names the submission's digest; each further one calls ``grade("kv_cache.append")``, which runs
the source of the raw cell in the worker. nbval's kernel never executes student code.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from course.judging.feedback import passed_line
from course.notebooks import submission as submissions
from course.notebooks.submission import Submission, Unreadable

SOURCE_KEY = "course_answer"


def graft(path: Path, output: Path, exercises: list | None = None, student: str = "") -> Submission:
    """Write the graded notebook of a submission to ``output``. Raises :class:`Unreadable`.

    ``student``: whose constants the exercises have; "": those that the course prints.
    """
    from course.notebooks.light_nbformat import nbformat

    notebook = submissions.read(path)
    wanted = exercises if exercises is not None else submissions.exercises_of(notebook, path)
    submission = submissions.extract(notebook, path.stem, wanted)
    grafted = make(submission, wanted, student)
    # JSON by itself may hold half a surrogate pair, UTF-8 may not: what is written is ASCII.
    text = json.dumps(json.loads(nbformat.writes(grafted)), indent=1) + "\n"
    output.parent.mkdir(parents=True, exist_ok=True)
    temporary = output.with_name(f"{output.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="ascii")
        temporary.replace(output)
    finally:
        temporary.unlink(missing_ok=True)
    return submission


def make(submission: Submission, exercises: list, student: str = "") -> dict:
    """The graded notebook as nbformat has it."""
    from course.notebooks.light_nbformat import nbformat

    v4 = nbformat.v4
    opened = f'"{submission.digest}"' + (f", student={json.dumps(student)}" if student else "")
    cells = [
        v4.new_markdown_cell(
            f"# Graded copy of {submission.name}\n\nStudent sources are raw cells; no code cell is theirs.",
            id="graded-head",
        ),
        v4.new_code_cell(f"from course.grade import grade, open_submission\n\nopen_submission({opened})",
                         id="graded-open", execution_count=1),
    ]
    for item in exercises:
        source = submission.answers.get(item.id)
        if source is not None:
            cells.append(v4.new_raw_cell(source, id=item.cell_id, metadata={SOURCE_KEY: item.id}))
        passed = v4.new_output("stream", name="stdout", text=passed_line(item.id) + "\n")
        cells.append(v4.new_code_cell(f'grade("{item.id}")', id=f"{item.cell_id}-grade", execution_count=1,
                                      outputs=[passed]))
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"},
                "course": {"v": 1, "digest": submission.digest, "stem": exercises[0].stem if exercises else ""}}
    return v4.new_notebook(cells=cells, metadata=metadata)


def find(digest: str, folder: Path) -> Submission:
    """The graded notebook in ``folder`` whose raw cells have this digest. Raises :class:`Unreadable`."""
    for path in sorted(folder.glob("*.ipynb")):
        try:
            notebook = submissions.read(path)
        except Unreadable:
            continue
        if submissions.metadata_of(notebook, "course").get("digest") != digest:
            continue
        answers = {}
        for cell in notebook["cells"]:
            metadata = cell.get("metadata") if isinstance(cell, dict) else None
            key = metadata.get(SOURCE_KEY) if isinstance(metadata, dict) else None
            if isinstance(key, str) and cell.get("cell_type") == "raw":
                answers[key] = submissions.source_of(cell)
        found = Submission(path.stem, answers)
        if found.digest == digest:  # else it only says so
            return found
    raise Unreadable(f"no graded notebook here holds answers with the digest {digest[:12]}: run `course graft` again")
