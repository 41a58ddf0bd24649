"""The command `course` as a learner uses it, in a copy of the course."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from course import paths
from course.authoring.build import solution_sources
from course.check import progress
from course.cli import main
from course.running import sandbox
from course.specs import exercise

RMS = "transformer_block.rms_norm"
SOLUTION = solution_sources()[RMS]


@pytest.fixture
def course_copy(tmp_path, monkeypatch):
    """A folder with exercises and nothing of the learner's yet."""
    (tmp_path / "_config.yml").write_text("")
    shutil.copytree(paths.exercises(), tmp_path / "exercises", ignore=shutil.ignore_patterns("work"))
    monkeypatch.setenv("COURSE_ROOT", str(tmp_path))
    return tmp_path


def answer(path, source):
    data = json.loads(path.read_text(encoding="utf-8"))
    for cell in data["cells"]:
        if cell["id"] == RMS.replace(".", "-"):
            cell["source"] = source.splitlines(True)
    path.write_text(json.dumps(data), encoding="utf-8")


def test_start_copies_what_is_missing_and_overwrites_nothing(course_copy, capsys):
    assert main(["start"]) == 0
    mine = course_copy / "exercises" / "work" / "03_transformer_block.ipynb"
    answer(mine, "# answer: mine")
    before = mine.read_bytes()
    assert main(["start"]) == 0
    assert mine.read_bytes() == before
    assert "new:" in capsys.readouterr().out


def test_update_brings_new_cells_and_keeps_answers(course_copy, capsys):
    main(["start"])
    mine = course_copy / "exercises" / "work" / "03_transformer_block.ipynb"
    answer(mine, SOLUTION)
    assert main(["update"]) == 0
    assert "03_transformer_block.ipynb: up to date" in capsys.readouterr().out
    released = course_copy / "exercises" / "03_transformer_block.ipynb"
    data = json.loads(released.read_text(encoding="utf-8"))
    data["metadata"]["course"]["release"] = "2030.1"
    data["cells"][0]["source"] = ["# Another title"]
    released.write_text(json.dumps(data), encoding="utf-8")
    (mine.parent / "04_kv_cache.ipynb").write_text("{broken", encoding="utf-8")
    main(["start"])
    assert "03_transformer_block.ipynb is of another release: `course update`" in capsys.readouterr().out
    assert main(["update"]) == 1
    out = capsys.readouterr().out
    assert "03_transformer_block.ipynb: 1 answer kept" in out
    assert "04_kv_cache.ipynb: left alone" in out
    text = mine.read_text(encoding="utf-8")
    assert "# Another title" in text
    assert json.dumps(SOLUTION.splitlines()[-1])[1:-1] in text


def test_check_says_what_passes(course_copy, capsys):
    main(["start"])
    mine = course_copy / "exercises" / "work" / "03_transformer_block.ipynb"
    answer(mine, SOLUTION)
    assert main(["check", str(mine)]) == 1
    out = capsys.readouterr().out
    assert f"{RMS}: all checks pass" in out
    assert "transformer_block.rope: rope is not written yet" in out
    noted = progress.read(course_copy / "exercises" / "work").entries
    assert {name: (entry["tries"], entry["solved"]) for name, entry in noted.items()} == {RMS: (1, True)}


def test_checking_a_notebook_elsewhere_is_not_noted(course_copy, tmp_path):
    main(["start"])
    copy = tmp_path / "03_transformer_block.ipynb"
    shutil.copyfile(course_copy / "exercises" / "work" / copy.name, copy)
    assert main(["check", str(copy)]) == 1
    assert progress.read(course_copy / "exercises" / "work").entries == {}


def test_reset_puts_the_stub_back_and_keeps_the_answer(course_copy, capsys):
    main(["start"])
    mine = course_copy / "exercises" / "work" / "03_transformer_block.ipynb"
    answer(mine, SOLUTION)
    assert main(["reset", RMS]) == 0
    text = mine.read_text(encoding="utf-8")
    assert SOLUTION.splitlines()[-1].strip() not in text
    (backup,) = mine.parent.glob("transformer_block-rms_norm.*.py")
    assert backup.read_text(encoding="utf-8").strip() == SOLUTION.strip()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["reset", "kv_cache.apend"], "did you mean"),
        (["reset", RMS], "course start"),
        (["check", "nowhere.ipynb"], "no such file"),
        (["proof", "nowhere"], "there is no chapter"),
        (["grade", "nowhere"], "no such file or folder"),
        (["graft", "nowhere.ipynb", "-o", "x.ipynb"], "no such file"),
    ],
)
def test_mistakes_are_met_with_one_clear_line(course_copy, capsys, arguments, words):
    assert main(arguments) == 2
    assert words in capsys.readouterr().err


def test_status_shows_what_was_solved_and_what_comes_next(course_copy, monkeypatch, capsys):
    main(["start"])
    monkeypatch.chdir(course_copy / "exercises" / "work")
    progress.record(RMS, "x", True)
    progress.record("transformer_block.rope", "x", False, "it rotates V too")
    assert main(["status"]) == 0
    out = capsys.readouterr().out
    for words in ("solved", "it rotates V too", "next: transformer_block.attention", "2 of 11"):
        assert words in out, out
    assert main(["status", "kv_cache"]) == 0
    assert "transformer_block.rope " not in capsys.readouterr().out
    assert main(["status", "nowhere"]) == 2


def test_a_kernels_mistake_is_named_in_a_process_of_its_own(tmp_path):
    """As `course check` and `course grade` run: Triton has not been imported by anything before."""
    item = exercise("triton_primer.masked_add")
    data = json.loads((paths.exercises() / "triton_primer.ipynb").read_text(encoding="utf-8"))
    for cell in data["cells"]:
        if cell["id"] == item.cell_id:
            cell["source"] = f"# answer: {item.id}\n{item.near_misses[0].source}"
    path = tmp_path / "triton_primer.ipynb"
    path.write_text(json.dumps(data), encoding="utf-8")
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    for command in ("check", "grade"):
        done = subprocess.run([sys.executable, "-m", "course.cli", command, str(path)], capture_output=True, text=True,
                              env=environment, cwd=paths.root(), timeout=300, check=False)
        assert item.near_misses[0].name in done.stdout, done.stdout + done.stderr


def test_doctor_runs(capsys):
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert "torch" in said
    assert sandbox.probe().label in said

