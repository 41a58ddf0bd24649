"""The student edition: nothing of an answer is in it, and a learner cannot tell it from the whole course."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from course import paths
from course.authoring import release as releasing
from course.authoring.build import AuthoringError, solution_sources, stub_sources
from course.chapters import file_stem
from course.cli import main
from course.judging import feedback, judge
from course.specs import CHAPTERS, exercise, exercises, recorded

SOLUTIONS, STUBS = solution_sources(), stub_sources()


@pytest.fixture(scope="module")
def edition(tmp_path_factory):
    folder = tmp_path_factory.mktemp("release") / "student"
    releasing.release(folder)
    return folder


def learner(edition, arguments, **more):
    """Run Python as a learner does: with the packages of this environment and the student edition's sources."""
    environment = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "COURSE_ROOT", "TRITON_INTERPRET"}}
    environment.update(PYTHONPATH=str(edition / "src"), OMP_NUM_THREADS="1")
    return subprocess.run([sys.executable, *arguments], cwd=more.pop("cwd", edition), env=environment, text=True,
                          capture_output=True, timeout=600, check=False, **more)


def test_no_part_of_an_answer_is_in_it(edition):
    lines = releasing.telling_lines()
    assert len(lines) > 500
    for kind in ("solution", "near-miss", "alternate", "reference"):
        assert any(where.startswith(kind) for where in lines.values())
    assert releasing.leaks(edition, lines) == []


@pytest.mark.parametrize("form", ["plain", "json"])
def test_the_search_finds_what_is_hidden_in_text_and_in_json(tmp_path, form):
    line = next(line for line in releasing.telling_lines() if '"' in line)
    (tmp_path / "x.bin").write_bytes(b"\0\xff" + (line if form == "plain" else json.dumps(line)).encode() + b"\0")
    assert len(releasing.leaks(tmp_path)) == 1


def test_it_has_no_author_and_no_grader(edition):
    for name in ("solutions", "tests", "benchmarks", ".ci", ".github", "src/course/authoring",
                 "src/course/grade/batch.py", "src/course/specs/kv_cache", "exercises/work"):
        assert not (edition / name).exists(), name
    assert "public" in (edition / "README.md").read_text(encoding="utf-8")


def test_questions_for_a_person_stay_with_the_teacher(edition):
    pages = {path.stem for path in (edition / "book").glob("*.md")}
    contents = (edition / "book" / "_toc.yml").read_text(encoding="utf-8")
    assert {path.stem for path in (paths.root() / "book").glob("*.md")} - pages == set(releasing.TEACHERS)
    assert not any(name in contents for name in releasing.TEACHERS)
    assert all(stem in contents for stem in pages)


SESSION = """
import json, sys
from course.judging import feedback, judge
from course.running.worker import Worker
from course.specs import exercise
import course
said = []
with Worker() as worker:
    for name, source in json.load(sys.stdin):
        item = exercise(name)
        run = lambda job: worker.run(job, 120).outcomes
        said.append(feedback.text(judge.practice(item, source, runner=run)))
print(json.dumps([course.__file__, said]))
"""


def _some(all_of_them):
    """Of each chapter the first exercise of each track, or all."""
    first = {(item.stem, item.track): item for item in reversed(exercises())}
    return exercises() if all_of_them else sorted(first.values(), key=lambda item: item.id)


@pytest.mark.parametrize("all_of_them", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_practice_says_the_same_as_the_whole_course(edition, all_of_them):
    """The solution, the stub and a near-miss of an exercise, word for word."""
    jobs, chosen = [], _some(all_of_them)
    assert {item.stem for item in chosen} == set(CHAPTERS)
    for item in chosen:
        jobs += [(item.id, SOLUTIONS[item.id]), (item.id, STUBS[item.id]), (item.id, item.near_misses[0].source)]
    done = learner(edition, ["-c", SESSION], input=json.dumps(jobs))
    assert done.returncode == 0, done.stderr
    where, said = json.loads(done.stdout)
    assert Path(where).is_relative_to(edition)
    from course.running.worker import Worker

    with Worker() as worker:
        for (name, source), text in zip(jobs, said):
            verdict = judge.practice(exercise(name), source, runner=lambda job: worker.run(job, 120).outcomes)
            assert text == feedback.text(verdict), name
    for item, (right, stub, wrong) in zip(chosen, zip(said[::3], said[1::3], said[2::3])):
        assert right == feedback.passed_line(item.id)
        assert "is not written yet" in stub
        assert item.near_misses[0].name in wrong


NOTEBOOK = """
from course.check.kernels import tl, triton
from course.check import cells, check, hint, kernel_report, predict, reveal, try_in_model
for name, source in {sources!r}.items():
    cells.remember(name, source)
    check(name)
    try_in_model(name)
    hint(name)
kernel_report("transformer_block.rms_norm_kernel")
predict("tokens", 3)
reveal("tokens", 6)
"""


def test_a_notebook_session(edition, prepared):
    names = ["transformer_block.rms_norm", "transformer_block.rms_norm_kernel", "kv_cache.cached_forward",
             "tokenization.decode"]
    done = learner(edition, ["-c", NOTEBOOK.format(sources={name: SOLUTIONS[name] for name in names})])
    assert done.returncode == 0, done.stdout + done.stderr
    for name in names:
        assert f"{name}: all checks pass" in done.stdout
        assert f"Hint 1 of 3: {exercise(name).hints[0]}" in done.stdout
    assert done.stdout.count("tokens are those of the course's own code") == len(names), done.stdout
    assert "allowed" in done.stdout
    assert "2 x apart" in done.stdout


@pytest.fixture
def prepared():
    """The real model, which trying an answer in it needs."""
    from course.check import trial

    return trial.checkpoint()


def test_the_commands_of_a_learner(edition):
    run = ["-m", "course.cli"]
    assert "new: exercises/work" in learner(edition, [*run, "start"]).stdout
    assert learner(edition, [*run, "status"]).returncode == 0
    name = f"{file_stem('kv_cache')}.ipynb"
    path = edition / "exercises" / "work" / name
    data = json.loads(path.read_text(encoding="utf-8"))
    key = "kv_cache.KVCache"
    for cell in data["cells"]:
        if cell["id"] == exercise(key).cell_id:
            cell["source"] = SOLUTIONS[key].splitlines(True)
    path.write_text(json.dumps(data), encoding="utf-8")
    said = learner(edition, [*run, "check", str(path)]).stdout
    assert f"{key}: all checks pass" in said
    assert "kv_cache.cached_forward: cached_forward is not written yet" in said
    for command in (["grade", str(path)], ["proof"], ["build"], ["release", "x"], ["merge", "x", "--report", "y"]):
        done = learner(edition, [*run, *command])
        assert done.returncode == 2
        assert "instructor's edition" in done.stderr


def test_an_update_keeps_the_learners_copies(edition, tmp_path, monkeypatch):
    again = tmp_path / "again"
    shutil.copytree(edition, again, ignore=shutil.ignore_patterns("work", ".git", releasing.MARKER, "__pycache__"))
    monkeypatch.setattr(releasing, "make", lambda stage: shutil.copytree(again, stage, dirs_exist_ok=True))
    work = edition / "exercises" / "work"
    work.mkdir(exist_ok=True)
    (work / "mine.ipynb").write_text("mine")
    (edition / ".git").mkdir(exist_ok=True)
    page = edition / "book" / "intro.md"
    text = page.read_text(encoding="utf-8")
    page.write_text("changed")
    marker = json.loads((edition / releasing.MARKER).read_text(encoding="utf-8"))
    (edition / "old.txt").write_text("of the release before")
    marker["files"]["old.txt"] = ""
    (edition / releasing.MARKER).write_text(json.dumps(marker))
    done = releasing.release(edition)
    assert done.written == ["book/intro.md"]
    assert done.removed == ["old.txt"]
    assert page.read_text(encoding="utf-8") == text
    assert (work / "mine.ipynb").read_text() == "mine"
    assert not (edition / releasing.STAGE).exists()


def test_make_knows_what_a_learner_needs_and_nothing_else(edition):
    alone = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}  # make may run this test

    def make(*words):
        done = subprocess.run(["make", *words], cwd=edition, env=alone, capture_output=True, text=True, check=True)
        return done.stdout

    said = make("help")
    assert {line.split()[0] for line in said.splitlines()} == {"book", "clean", "help", "lab"}
    assert ".venv/bin/jupyter-book build book" in make("-n", "book")


def test_any_other_folder_is_refused(tmp_path, capsys):
    (tmp_path / "thesis.tex").write_text("mine")
    assert main(["release", str(tmp_path)]) == 2
    assert "not empty" in capsys.readouterr().err
    (tmp_path / releasing.MARKER).write_text('{"files": {"../x": ""}}')
    with pytest.raises(ValueError, match="outside"):
        releasing.release(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"thesis.tex", releasing.MARKER}


@pytest.fixture
def small(monkeypatch):
    """A release of two files, for what can go wrong on the way."""
    version = ["1"]

    def make(stage):
        (stage / "a").mkdir()
        (stage / "a" / "x").write_text(version[0])
        (stage / "y").write_text(version[0])

    monkeypatch.setattr(releasing, "make", make)
    monkeypatch.setattr(releasing, "leaks", lambda stage: [])
    return version


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_release_that_breaks_off_leaves_the_old_one_or_says_what_to_do(tmp_path, small, monkeypatch, error):
    folder = tmp_path / "r"
    releasing.release(folder)
    small[0] = "2"
    with monkeypatch.context() as patch:
        patch.setattr(releasing, "make", lambda stage: (_ for _ in ()).throw(error))
        with pytest.raises(type(error)):
            releasing.release(folder)
    assert {path.name for path in folder.iterdir()} == {"a", "y", releasing.MARKER}, "the old one, whole"
    assert (folder / "a" / "x").read_text() == (folder / "y").read_text() == "1"
    replace, calls = os.replace, []

    def break_off(source, target):
        calls.append(target)
        if len(calls) == 3:
            raise error
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(releasing.os, "replace", break_off)
        with pytest.raises(type(error), match="run `course release"):
            releasing.release(folder)
    assert not json.loads((folder / releasing.MARKER).read_text())["complete"]
    releasing.release(folder)
    assert (folder / "a" / "x").read_text() == (folder / "y").read_text() == "2"
    assert json.loads((folder / releasing.MARKER).read_text())["complete"]


def test_a_release_that_would_tell_an_answer_is_not_written(tmp_path, small, monkeypatch):
    monkeypatch.setattr(releasing, "leaks", lambda stage: ["y: a line of the solution"])
    with pytest.raises(AuthoringError, match="parts of answers"):
        releasing.release(tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_a_recording_gives_back_what_went_in_and_refuses_a_damaged_one():
    item = exercise("triton_primer.row_sum")
    data = recorded.dumps([(item, releasing.record(item), [])])
    (again,) = recorded.loads(data)
    assert (again.id, again.hints, again.tolerance, again.driver) == (item.id, item.hints, item.tolerance, item.driver)
    assert [near.name for near in again.near_misses] == [near.name for near in item.near_misses]
    assert all(near.source == "" for near in again.near_misses)
    assert again.bound(again.recorded.cases[0]) == item.bound(judge.public_cases(item.id)[0]) > 0
    with pytest.raises(ValueError, match="student edition"):
        again.cases(None)
    for broken in (data[:-1], data[:40], b"", data.replace(b"row", b"raw", 1), data + b"\0"):
        with pytest.raises(ValueError, match="damaged"):
            recorded.loads(broken, "x.recorded")


def test_every_chapter_is_in_it(edition):
    for stem in CHAPTERS:
        assert (edition / "src/course/specs" / f"{stem}{recorded.ENDING}").is_file()
        assert (edition / "exercises" / f"{file_stem(stem)}.ipynb").read_bytes() == (
            paths.exercises() / f"{file_stem(stem)}.ipynb").read_bytes()
