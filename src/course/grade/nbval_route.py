"""The nbval route for many submissions: graft each into a folder of its own, run one pytest for each, read the JUnit.

    OUT/index.json                       who handed in what, and what could not be read
    OUT/<student>/<NN_topic>/graded.ipynb
    OUT/<student>/<NN_topic>/junit.xml   what pytest says of every cell

The grade is manifest x verdicts: an exercise earns its points when the cell that grades it is there and passed. What is
absent, skipped, an expected failure or an unexpected pass earns nothing; the exit status of pytest is not looked at.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from course import paths
from course.classroom.identity import Handed
from course.classroom.names import folders, safe
from course.grade import graft as grafts
from course.notebooks.submission import Unreadable

CELL_SECONDS = 300
INDEX = "index.json"
FIRST_LINE = re.compile(r"^\[(\w+)\] ([\w.]+)(?::|$)", re.M)
GRADE_CALL = re.compile(r'grade\("([\w.]+)"\)')


@dataclass
class Entry:
    """One submission on its way through the route. ``verdicts``: by exercise id, once pytest has run."""

    student: str
    stem: str
    source: str
    notebook: str = ""  # relative to the folder of the route; "" when the submission could not be read
    unreadable: str = ""
    warnings: list[str] = field(default_factory=list)
    verdicts: dict[str, str] = field(default_factory=dict)
    points: int = 0
    possible: int = 0


def graft_all(handed: list[Handed], out: Path, personal: bool = False) -> list[Entry]:
    """Graft every submission below ``out`` and write the index. Nothing of a submission is executed.

    ``personal``: students have constants of their own.
    """
    entries: list[Entry] = []
    taken: set[Path] = set()
    places = folders(item.student for item in handed)
    for item in handed:
        entry = Entry(item.student, item.stem, str(item.path))
        folder = out / places[item.student] / safe(item.path.stem)
        number = 1
        while folder in taken:
            number += 1
            folder = out / places[item.student] / f"{safe(item.path.stem)}-{number}"
        taken.add(folder)
        target = folder / "graded.ipynb"
        target.unlink(missing_ok=True)
        try:
            entry.warnings = grafts.graft(item.path, target, student=item.student if personal else "").warnings
        except Unreadable as error:
            entry.unreadable = str(error)
        else:
            entry.notebook = str(target.relative_to(out))
            entry.stem = json.loads(target.read_text(encoding="utf-8"))["metadata"]["course"]["stem"]
        entries.append(entry)
    write_index(out, entries)
    return entries


def write_index(out: Path, entries: list[Entry]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    temporary = out / f"{INDEX}.{os.getpid()}.tmp"
    temporary.write_text(json.dumps([asdict(entry) for entry in entries], indent=1, ensure_ascii=False) + "\n",
                         encoding="utf-8", errors="replace")
    temporary.replace(out / INDEX)


def read_index(out: Path) -> list[Entry]:
    """The entries that ``course graft FOLDER -o OUT`` wrote. Raises ValueError when there are none."""
    try:
        return [Entry(**item) for item in json.loads((out / INDEX).read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(f"{out} holds no grafted notebooks ({error}): make them with `course graft FOLDER -o {out}`"
                         ) from None


def run_all(out: Path, workers: int = 0) -> list[Entry]:
    """Run pytest --nbval on every grafted notebook of the index, one process each; note verdicts and points."""
    entries = read_index(out)
    manifest = {book["stem"]: book["exercises"] for book in _manifest()["notebooks"].values()}

    def one(entry: Entry) -> None:
        wanted = manifest.get(entry.stem, [])
        found = run(out / entry.notebook) if entry.notebook else {}
        absent = "unreadable" if entry.unreadable else "missing"
        entry.verdicts = {item["id"]: found.get(item["id"], absent) for item in wanted}
        entry.points = sum(item["points"] for item in wanted if entry.verdicts[item["id"]] == "pass")
        entry.possible = sum(item["points"] for item in wanted)

    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        list(pool.map(one, entries))
    write_index(out, entries)
    return entries


def command(notebook: Path, configuration: Path, junit: Path) -> list[str]:
    """pytest on one grafted notebook, deaf to whatever lies beside it: no conftest, our own configuration and root."""
    return [
        sys.executable, "-P", "-m", "pytest", "--nbval", "--nbval-current-env", "--nbval-cell-timeout",
        str(CELL_SECONDS), "--noconftest", "-c", str(configuration), "--rootdir", str(notebook.parent),
        "-p", "course.notebooks.light_nbformat", "-p", "no:cacheprovider", "-p", "no:xdist", "--color=no", "-q",
        f"--junitxml={junit}", str(notebook),
    ]


def run(notebook: Path) -> dict[str, str]:
    """Verdicts of one grafted notebook by exercise id; an exercise whose cell did not report is not in it."""
    notebook = notebook.resolve()
    if not notebook.is_file():
        return {}
    junit = notebook.with_name("junit.xml")
    junit.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="course-nbval-") as folder:
        configuration = Path(folder, "pytest.ini")
        configuration.write_text("[pytest]\n", encoding="utf-8")
        environment = {**os.environ, "COURSE_ROOT": str(paths.root()), "PYTHONNOUSERSITE": "1"}
        environment.pop("PYTEST_ADDOPTS", None)
        environment.pop("PYTEST_PLUGINS", None)
        subprocess.run(command(notebook, configuration, junit), cwd=notebook.parent, env=environment,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return verdicts(notebook, junit)


def verdicts(notebook: Path, junit: Path) -> dict[str, str]:
    """What the JUnit file says of each grading cell.

    nbval numbers the code cells of a notebook, from 0 or 1 by its version, so cells are told by their order; a report
    with more or fewer cells than the notebook has is believed in nothing.
    """
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    try:
        cases = list(ElementTree.parse(junit).getroot().iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return {}
    if len(cases) != len(sources):
        return {}
    found = {}
    for source, case in zip(sources, cases):
        call = GRADE_CALL.fullmatch(source.strip())
        if call:
            found[call[1]] = _verdict(case, call[1])
    return found


def _verdict(case: ElementTree.Element, exercise_id: str) -> str:
    outcomes = {child.tag: child for child in case if child.tag in {"failure", "error", "skipped"}}
    if not outcomes:
        return "pass"
    if "skipped" in outcomes:  # also what pytest calls xfail
        return "skipped"
    text = " ".join(f"{child.get('message', '')}\n{child.text or ''}" for child in outcomes.values())
    said = next((match for match in FIRST_LINE.finditer(text) if match[2] == exercise_id), None)
    return said[1] if said and said[1] != "pass" else "infra"


def differences(entries: list[Entry], graded: list) -> list[str]:
    """Where this route and ``course grade`` differ, in words; empty when they agree on every exercise."""
    direct = {item.path: {mark.id: mark.verdict for mark in item.marks} for item in graded}
    known = {(item.student, item.stem) for item in graded}
    found = []
    for entry in entries:
        theirs = direct.get(entry.source)
        if theirs is None:
            if (entry.student, entry.stem) not in known:  # else another attempt is the best, and counts
                found.append(f"{entry.student}, {entry.stem}: not in the report")
            continue
        for name, verdict in entry.verdicts.items():
            if theirs.get(name) != verdict:
                found.append(f"{entry.student}, {name}: nbval says {verdict}, the report {theirs.get(name)}")
    return found


def _manifest() -> dict:
    path = paths.exercises() / "manifest.json"
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read ({error}): restore it from the release") from None
