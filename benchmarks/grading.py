"""How long does a class take? 200 submissions with two torch answers each, on this machine's cores.

    python benchmarks/grading.py            # prints one line and writes benchmarks/grading.json

Each submission's answers differ by a comment, so that nothing is answered from what was graded before.
"""

from __future__ import annotations

import json
import os
import platform
import tempfile
import time
from pathlib import Path

from course.authoring.build import solution_sources
from course.grade import batch
from course.grade.identity import Handed
from course.grade.worker import Worker
from course.specs import exercise

SUBMISSIONS = 200
ANSWERS = ("transformer_block.rms_norm", "transformer_block.swiglu")


def notebook(number: int, sources: dict[str, str]) -> dict:
    cells = [
        {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "id": f"c{i}",
         "source": f"{sources[name].rstrip()}\n# student {number}\n"}
        for i, name in enumerate(ANSWERS)
    ]
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}


def main() -> None:
    sources = solution_sources()
    workers = os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        handed = []
        for number in range(SUBMISSIONS):
            path = root / f"s{number:03}_03_transformer_block.ipynb"
            path.write_text(json.dumps(notebook(number, sources)), encoding="utf-8")
            handed.append(Handed(f"s{number:03}", path, "transformer_block"))
        start = time.perf_counter()
        done = list(batch.grade_all(handed, b"benchmark", batch.Marks(root / "marks", b"benchmark"), workers))
        seconds = time.perf_counter() - start
    points = sum(exercise(name).points for name in ANSWERS)
    assert all(graded.points == points for graded in done), "an honest answer lost points"
    with Worker() as worker:
        sandbox = worker.probe.label
    result = {
        "submissions": SUBMISSIONS, "answers": SUBMISSIONS * len(ANSWERS), "seconds": round(seconds, 1),
        "workers": workers, "sandbox": sandbox, "machine": platform.machine(), "python": platform.python_version(),
        "load": os.getloadavg()[0],
    }
    Path(__file__).with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"{result['answers']} answers in {seconds:.1f} s on {workers} workers ({sandbox})")


if __name__ == "__main__":
    main()
