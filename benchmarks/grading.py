"""How long does a class take? 200 submissions with two torch answers each, and 20 with two kernels, on all cores.

    python benchmarks/grading.py            # prints two lines and writes benchmarks/grading.json

Each submission's answers differ by a comment, so that nothing is answered from what was graded before.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import tempfile
import time
from pathlib import Path

from course.authoring.build import solution_sources
from course.classroom.identity import Handed
from course.grade import batch
from course.running.worker import Worker
from course.specs import exercise

CLASSES = {  # submissions, and what each answers
    "torch": (200, ("transformer_block.rms_norm", "transformer_block.swiglu")),
    "kernels": (20, ("transformer_block.rms_norm_kernel", "transformer_block.swiglu_kernel")),
}


def notebook(number: int, answers: tuple[str, ...], sources: dict[str, str]) -> dict:
    cells = [
        {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "id": f"c{i}",
         "source": f"{sources[name].rstrip()}\n# student {number}\n"}
        for i, name in enumerate(answers)
    ]
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}


def grade(submissions: int, answers: tuple[str, ...], sources: dict[str, str], workers: int) -> float:
    """Seconds for a class; every answer must get its points."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        handed = []
        for number in range(submissions):
            path = root / f"s{number:03}_03_transformer_block.ipynb"
            path.write_text(json.dumps(notebook(number, answers, sources)), encoding="utf-8")
            handed.append(Handed(f"s{number:03}", path, "transformer_block"))
        start = time.perf_counter()
        done = list(batch.grade_all(handed, b"benchmark", batch.Marks(root / "marks", b"benchmark"), workers))
        seconds = time.perf_counter() - start
    points = sum(exercise(name).points for name in answers)
    if any(graded.points != points for graded in done):
        raise RuntimeError("an honest answer lost points")
    return seconds


def main() -> None:
    sources = solution_sources()
    workers = os.cpu_count() or 1
    with Worker() as worker:
        sandbox = worker.probe.label
    result: dict = {"workers": workers, "sandbox": sandbox, "machine": platform.machine(),
                    "python": platform.python_version(), "torch": importlib.metadata.version("torch")}
    for name, (submissions, answers) in CLASSES.items():
        load = os.getloadavg()[0]
        seconds = grade(submissions, answers, sources, workers)
        count = submissions * len(answers)
        result[name] = {"submissions": submissions, "answers": count, "seconds": round(seconds, 1),
                        "answers_per_second": round(count / seconds, 2), "load_before": round(load, 2)}
        print(f"{count} answers ({name}) in {seconds:.1f} s on {workers} workers ({sandbox}): "
              f"{count / seconds:.1f} a second")
    Path(__file__).with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
