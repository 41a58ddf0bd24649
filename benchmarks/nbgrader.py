"""The same notebooks graded by nbgrader's autograde and by `course grade`, side by side in one run.

    python benchmarks/nbgrader.py                    # prints two lines and writes benchmarks/nbgrader.json
    python benchmarks/nbgrader.py --notebooks 4      # a trial run; writes nothing

20 notebooks with two answers each, right and wrong ones mixed. For nbgrader they are an assignment whose hidden tests
compare with a torch reference on inputs of our checkers, in as many calls; for us they are submissions to chapter 03.
Both commands run as an instructor runs them, start-up included. Then a handful of notebooks whose answers are wrong and
try to get points anyway is given to both.

nbgrader gets a virtual environment of its own, since it would change versions in the one that runs this; torch stands
behind it and is not installed twice.
"""

from __future__ import annotations

import argparse
import compileall
import csv
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from pathlib import Path
from typing import NamedTuple

import torch

from course.authoring.build import solution_sources
from course.specs import Draw, exercise

ROOT = Path(__file__).resolve().parents[1]
NBGRADER = "0.9.6"
ASSIGNMENT, NOTEBOOK = "chapter", "03_transformer_block"
ANSWERS = ("transformer_block.rms_norm", "transformer_block.swiglu")
SETUP = "import math\n\nimport torch\nimport torch.nn.functional as F\n"
WRONG_RMS = """# answer: transformer_block.rms_norm
{before}
def rms_norm(x, weight, eps):
    {inside}
    return x * weight
"""
EXPLOITS = {  # what stands before the wrong function, and in it
    "showtraceback patched": ("get_ipython().showtraceback = lambda *a, **k: None", "pass"),
    "comparison patched": ("torch.testing.assert_close = lambda *a, **k: None", "pass"),
    "input transformer": ("get_ipython().input_transformers_cleanup.append(lambda lines: ['pass'])", "pass"),
    "reference read from the caller": (
        "import sys", "return sys._getframe(1).f_globals['reference_rms_norm'](x, weight, eps)"),
    "skip-execution tag on the test": ("", "pass"),
    "os._exit": ("import os", "os._exit(0)"),
}


def environment(folder: Path) -> Path:
    """The Python of an environment with nbgrader, made if it is not there."""
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    if not python.exists():
        venv.create(folder, with_pip=False, symlinks=True)
    ask = "import importlib.metadata as m; print(m.version('nbgrader'))"
    if subprocess.run([python, "-c", ask], capture_output=True, text=True).stdout.strip() != NBGRADER:
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", f"nbgrader=={NBGRADER}"]
        subprocess.run(pip, check=True)
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.run([python, "-c", where], check=True, capture_output=True, text=True).stdout.strip()
    Path(site, "behind.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def cell(source: str, name: str, points: int | None = None, solution: bool = False) -> dict:
    grade = {"schema_version": 3, "grade_id": name, "solution": solution, "grade": points is not None,
             "locked": not solution, "task": False, "cell_type": "code"}
    if points is not None:
        grade["points"] = points
    return {"cell_type": "code", "id": name, "metadata": {"nbgrader": grade}, "outputs": [], "execution_count": None,
            "source": source}


def literal(value: object) -> str:
    """Python for an argument of a case."""
    if isinstance(value, torch.Tensor):
        return f"torch.tensor({value.tolist()}, dtype={value.dtype}).reshape({tuple(value.shape)})"
    return repr(value)


def hidden_tests(name: str, sources: dict[str, str]) -> str:
    """A test cell: our checker's kind of inputs, each twice, compared with the reference; inputs must stay."""
    item = exercise(name)
    cases = item.cases(Draw("benchmark"))
    reference = sources[name].replace(f"def {item.entry}(", f"def reference_{item.entry}(")
    given = ",\n    ".join("(" + "".join(f"{literal(value)}, " for value in case.args) + ")" for case in cases)
    return (f"# {item.entry} is compared with a reference\n### BEGIN HIDDEN TESTS\n{reference}\n"
            f"cases = [\n    {given},\n]\n"
            "for given in [*cases, *reversed(cases)]:\n"
            "    before = [value.clone() if isinstance(value, torch.Tensor) else value for value in given]\n"
            f"    torch.testing.assert_close({item.entry}(*given), reference_{item.entry}(*before))\n"
            "    assert all(torch.equal(a, b) for a, b in zip(given, before) if isinstance(a, torch.Tensor))\n"
            "### END HIDDEN TESTS\n")


def assignment(sources: dict[str, str]) -> dict:
    """The instructor's notebook."""
    cells = [cell(SETUP, "setup")]
    for name in ANSWERS:
        item = exercise(name)
        marker, _, body = sources[name].partition("\n")
        solution = f"{marker}\n### BEGIN SOLUTION\n{body}\n### END SOLUTION\n"
        cells += [cell(solution, item.cell_id, solution=True),
                  cell(hidden_tests(name, sources), f"{item.cell_id}-test", item.points)]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {"nbformat": 4, "nbformat_minor": 5, "cells": cells,
            "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}}}


def submission(released: dict, answers: dict[str, str]) -> dict:
    """The released notebook with answers in it."""
    made = json.loads(json.dumps(released))
    for one in made["cells"]:
        for name, source in answers.items():
            if one["metadata"]["nbgrader"]["grade_id"] == exercise(name).cell_id:
                one["source"] = source
    return made


def class_of(number: int, released: dict, sources: dict[str, str]) -> tuple[dict[str, dict], dict[str, int]]:
    """Notebooks by student, every third answer a near-miss, and the points each should get."""
    notebooks, points = {}, {}
    for i in range(number):
        answers, worth = {}, 0
        for j, name in enumerate(ANSWERS):
            item = exercise(name)
            if (i + j) % 3:
                answers[name], worth = f"{sources[name].rstrip()}\n# student {i}\n", worth + item.points
            else:
                wrong = item.near_misses[i % len(item.near_misses)].source
                answers[name] = f"# answer: {name}\n{wrong.rstrip()}\n# student {i}\n"
        notebooks[f"s{i:02}"], points[f"s{i:02}"] = submission(released, answers), worth
    return notebooks, points


def exploits(released: dict) -> dict[str, dict]:
    """By student, who is named after what is tried: one wrong answer and one that is missing."""
    made = {}
    for name, (before, inside) in EXPLOITS.items():
        notebook = submission(released, {ANSWERS[0]: WRONG_RMS.format(before=before, inside=inside)})
        if name.startswith("skip-execution"):
            for one in notebook["cells"]:
                if one["id"].endswith("-test"):
                    one["metadata"]["tags"] = ["skip-execution"]
        made[name.replace(" ", "-").replace(".", "")] = notebook
    return made


class Spent(NamedTuple):
    """Seconds by the clock, and of processor time in all processes."""

    clock: float
    processor: float


def timed(command: list, folder: Path, environment: dict[str, str], check: bool = True) -> Spent:
    """Run a command to its end. Raises RuntimeError with what it said when it fails and ``check`` is set."""
    start, before = time.perf_counter(), os.times()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    clock, after = time.perf_counter() - start, os.times()
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))} failed:\n{done.stdout[-1000:]}{done.stderr[-3000:]}")
    return Spent(clock, after.children_user + after.children_system - before.children_user - before.children_system)


class Nbgrader:
    """A course folder of nbgrader's."""

    def __init__(self, python: Path, folder: Path, source: dict):
        self.python, self.folder = python, folder
        home = folder / "jupyter"
        self.environment = {**os.environ, "IPYTHONDIR": str(home / "ipython"), "PYTHONPATH": "",
                            "PATH": os.pathsep.join([str(python.parent), os.environ["PATH"]]),
                            **{f"JUPYTER_{name}_DIR": str(home / name) for name in ("CONFIG", "DATA", "RUNTIME")}}
        self._put("source", {"": source})
        (folder / "nbgrader_config.py").write_text("c = get_config()\nc.ExecutePreprocessor.timeout = 60\n")
        self.run("generate_assignment", ASSIGNMENT)
        self.released = json.loads((folder / "release" / ASSIGNMENT / f"{NOTEBOOK}.ipynb").read_text())

    def _put(self, step: str, notebooks: dict[str, dict]) -> None:
        for student, notebook in notebooks.items():
            target = self.folder / step / student / ASSIGNMENT
            target.mkdir(parents=True, exist_ok=True)
            (target / f"{NOTEBOOK}.ipynb").write_text(json.dumps(notebook))

    def run(self, *words: str, check: bool = True) -> Spent:
        """What a subcommand takes."""
        return timed([self.python, "-m", "nbgrader", *words], self.folder, self.environment, check)

    def grade(self, notebooks: dict[str, dict], check: bool = True) -> tuple[Spent, dict[str, float]]:
        """What it took, and scores; a notebook whose grading broke off has none."""
        self._put("submitted", notebooks)
        seconds = self.run("autograde", ASSIGNMENT, check=check)
        self.run("export")
        with (self.folder / "grades.csv").open(encoding="utf-8") as stream:
            scores = {row["student_id"]: float(row["score"]) for row in csv.DictReader(stream)}
        return seconds, {student: scores.get(student, 0.0) for student in notebooks}


def course_grade(folder: Path, notebooks: dict[str, dict]) -> tuple[Spent, dict[str, float], str]:
    """What `course grade --report` took, its scores and its sandbox."""
    handed = folder / "handed"
    handed.mkdir(parents=True)
    for student, notebook in notebooks.items():
        (handed / student).mkdir()
        (handed / student / f"{NOTEBOOK}.ipynb").write_text(json.dumps(notebook))
    command = [sys.executable, "-m", "course.cli", "grade", str(handed), "--report", str(folder / "out")]
    seconds = timed(command, folder, {**os.environ, "COURSE_ROOT": str(ROOT), "COURSE_GRADE_SECRET": "benchmark" * 4})
    graded = json.loads((folder / "out" / "grades.json").read_text(encoding="utf-8"))
    rows = graded["submissions"] if isinstance(graded, dict) else graded
    scores = {row["student"]: float(sum(mark["points"] for mark in row["marks"])) for row in rows}
    return seconds, {student: scores[student] for student in notebooks}, rows[0]["sandbox"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--notebooks", type=int, default=20)
    parser.add_argument("--venv", type=Path, default=ROOT / "_build" / "nbgrader-venv")
    options = parser.parse_args()
    sources = solution_sources(ROOT)
    python = environment(options.venv.resolve())
    compileall.compile_dir(ROOT / "src", quiet=1)  # as `make` and pip do when they install
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        theirs = Nbgrader(python, Path(folder, "nbgrader"), assignment(sources))
        notebooks, points = class_of(options.notebooks, theirs.released, sources)
        their_time, their_scores = theirs.grade(notebooks)
        our_time, our_scores, sandbox = course_grade(Path(folder, "ours"), notebooks)
        for who, scores in (("nbgrader", their_scores), ("course grade", our_scores)):
            if scores != points:
                raise RuntimeError(f"{who} gave {scores}, {points} is right")
        tries = exploits(theirs.released)
        _, taken_theirs = theirs.grade(tries, check=False)
        _, taken_ours, _ = course_grade(Path(folder, "exploits"), tries)
    result = {
        "notebooks": options.notebooks,
        "answers": options.notebooks * len(ANSWERS),
        "seconds_per_notebook": {"nbgrader autograde": round(their_time.clock / options.notebooks, 2),
                                 "course grade --report": round(our_time.clock / options.notebooks, 3)},
        "ratio": round(their_time.clock / our_time.clock, 1),
        "processor_seconds_per_notebook": {"nbgrader autograde": round(their_time.processor / options.notebooks, 2),
                                           "course grade --report": round(our_time.processor / options.notebooks, 3)},
        "exploits_that_gain_points": {
            "of": list(EXPLOITS),
            "nbgrader": [name for name, score in zip(EXPLOITS, taken_theirs.values()) if score],
            "course grade": [name for name, score in zip(EXPLOITS, taken_ours.values()) if score],
        },
        "versions": {"nbgrader": NBGRADER, "torch": importlib.metadata.version("torch"),
                     "python": platform.python_version()},
        "sandbox": sandbox, "machine": platform.machine(), "cores": os.cpu_count(), "load_before": round(load, 2),
    }
    gained = result["exploits_that_gain_points"]
    print(f"nbgrader {their_time.clock / options.notebooks:.2f} s a notebook, course grade "
          f"{our_time.clock / options.notebooks:.3f} s ({sandbox}): {result['ratio']} x by the clock, "
          f"{their_time.processor / our_time.processor:.1f} x in processor time")
    print(f"of {len(EXPLOITS)} exploits, nbgrader gives points to {len(gained['nbgrader'])}, "
          f"course grade to {len(gained['course grade'])}")
    if options.notebooks == 20:
        Path(__file__).with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
