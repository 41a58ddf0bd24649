"""A class on GitHub: the workflow keeps its promises, and its steps grade hostile repositories without running them."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from course import paths
from course.authoring.build import solution_sources
from course.chapters import file_stem
from course.classroom import collect, settings
from course.classroom.new_class import new_class
from course.classroom.roster import Enrolled
from course.cli import main
from course.grade import variants
from course.running import sandbox
from course.specs import exercise, exercises
from course.specs.exercise import substitute

RMS = exercise("transformer_block.rms_norm")
NAME = "03_transformer_block.ipynb"
TOML = "[grading]\n"


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    folder = tmp_path_factory.mktemp("new") / "class"
    new_class(folder, "our-class/llm-internals", "0123abc", shards=2)
    return folder


@pytest.fixture(scope="module")
def workflow(repository):
    return yaml.safe_load((repository / ".github/workflows/grade.yml").read_text(encoding="utf-8"))


def steps(workflow):
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_only_the_instructor_can_start_it(workflow):
    assert set(workflow[True]) == {"workflow_dispatch", "repository_dispatch"}  # YAML reads `on` as true
    assert workflow["permissions"] == {"contents": "read"}
    assert not any("permissions" in job for job in workflow["jobs"].values())


def test_checkouts_are_ours_pinned_and_keep_no_credentials(workflow):
    checkouts = [step["with"] for step in steps(workflow) if step.get("uses", "").startswith("actions/checkout")]
    assert len(checkouts) == 4
    for each in checkouts:
        assert each["persist-credentials"] is False
        assert "submodules" not in each
        assert "lfs" not in each
        assert each.get("repository", "our-class/llm-internals") == "our-class/llm-internals"
        assert each.get("ref", "0123abc") == "0123abc"
    assert all(re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"]) for step in steps(workflow) if "uses" in step)


def test_no_expression_stands_inside_a_script(workflow):
    scripts = [step["run"] for step in steps(workflow) if "run" in step]
    assert scripts
    assert not any("${{" in script for script in scripts)


def test_secrets_reach_only_the_steps_that_need_them(workflow):
    assert "env" not in workflow
    assert not any("env" in job for job in workflow["jobs"].values())
    holders = {name: [step["name"] for step in steps(workflow) if name in json.dumps(step)]
               for name in ("secrets.COURSE_GRADE_SECRET", "secrets.STUDENT_REPOSITORIES_TOKEN")}
    assert holders["secrets.STUDENT_REPOSITORIES_TOKEN"] == ["students' notebooks, as data"]
    assert holders["secrets.COURSE_GRADE_SECRET"] == ["grade", "the same once more by nbval, and compared"]


def test_the_sandbox_is_prepared_and_required(workflow):
    text = json.dumps(workflow)
    assert "kernel.apparmor_restrict_unprivileged_userns=0" in text
    assert "bubblewrap" in text
    assert "--require-sandbox" in text
    assert workflow["jobs"]["grade"]["strategy"]["matrix"]["shard"] == ["1/2", "2/2"]
    upload = next(s for s in steps(workflow) if s.get("uses", "").startswith("actions/upload") and "path" in s["with"])
    assert "!report/secret" in upload["with"]["path"].split("\n")


def test_a_folder_with_something_in_it_and_odd_names_are_refused(tmp_path):
    (tmp_path / "x").write_text("mine")
    with pytest.raises(ValueError, match="not empty"):
        new_class(tmp_path, "a/b", "c")
    for course, ref, words in (("a", "c", "--course"), ("a/b", "$(x)", "--ref"), ("a/b`x`", "c", "--course")):
        with pytest.raises(ValueError, match=words):
            new_class(tmp_path / "new", course, ref)
    with pytest.raises(ValueError, match="--shards"):
        new_class(tmp_path / "new", "a/b", "c", shards=0)
    assert not (tmp_path / "new").exists()


def git(folder, *arguments):
    settings = ["-c", "user.name=s", "-c", "user.email=s@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *settings, "-C", str(folder), *arguments], check=True, capture_output=True)


def completed(changes):
    """Text of a notebook of chapter 03 with everything solved but ``changes``."""
    sources = {**solution_sources(), **changes}
    data = json.loads((paths.exercises() / NAME).read_text(encoding="utf-8"))
    for cell in data["cells"]:
        if cell["metadata"]["course"]["role"] == "answer":
            cell["source"] = sources[cell["metadata"]["course"]["key"]]
    return json.dumps(data)


def student(folder: Path, changes, trap: Path) -> Path:
    """A student's repository with a notebook, and everything that could make a careless grader run code."""
    work = folder / "exercises" / "work"
    work.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    (work / NAME).write_text(completed(changes), encoding="utf-8")
    shutil.copyfile(paths.exercises() / NAME, folder / "exercises" / NAME)
    code = f"open({str(trap)!r}, 'a').write(__name__ + '\\n')\n"
    for name in ("conftest.py", "sitecustomize.py", "usercustomize.py", "torch.py", "course.py", "pytest.py", "json.py",
                 "setup.py"):
        for place in (folder, work):
            (place / name).write_text(code)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --collect-only\n")
    (work / "pyproject.toml").write_text("[tool.pytest.ini_options]\naddopts = '--collect-only'\n")
    (folder / ".gitattributes").write_text("*.ipynb filter=evil\n")
    (folder / ".lfsconfig").write_text("[lfs]\nurl = https://example.invalid\n")
    (folder / "04_kv_cache.ipynb").symlink_to("/etc/passwd")
    (folder / ".github" / "workflows").mkdir(parents=True)
    (folder / ".github" / "workflows" / "x.yml").write_text("on: push\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "x")
    for hook in ("post-checkout", "post-merge", "pre-commit"):
        path = folder / ".git" / "hooks" / hook
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\necho hook >> {trap}\n")
        path.chmod(0o755)
    return folder


def test_the_steps_grade_hostile_repositories_and_run_nothing_of_them(tmp_path, workflow, repository):
    """Every `run:` step but those that install, as the runner does: in one folder, with the step's own environment."""
    trap = tmp_path / "trap"
    anna = student(tmp_path / "repos" / "anna", {}, trap)
    ben = student(tmp_path / "repos" / "ben", {RMS.id: RMS.near_misses[0].source}, trap)
    runner = tmp_path / "runner"
    shutil.copytree(repository, runner / "class")
    with (runner / "class" / "roster.csv").open("a", encoding="utf-8") as file:
        file.write(f"anna,Anna Ås,{anna}\nben,Ben,{ben}\n")
    require = "--require-sandbox" if sandbox.probe().backend != "none" else ""  # where there is none, test the rest
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "course").write_text(f'#!/bin/sh\nexec {sys.executable} -P -m course.cli "$@"\n')
    (commands / "course").chmod(0o755)
    base = {"PATH": f"{commands}:{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(tmp_path),
            "PYTHONPATH": str(Path(paths.__file__).resolve().parents[1]), "COURSE_ROOT": str(paths.root()),
            "OMP_NUM_THREADS": "1", "LANG": "C.UTF-8"}
    values = {"secrets.COURSE_GRADE_SECRET": "s3cret", "secrets.STUDENT_REPOSITORIES_TOKEN": ""}
    said = []

    def run(job, replaced):
        for step in workflow["jobs"][job]["steps"]:
            if "run" not in step or step["name"] in {"sandbox", "install"}:
                continue
            environment = {name: replaced[text.strip("${} ")] for name, text in step.get("env", {}).items()}
            script = step["run"].replace("--require-sandbox", require)
            done = subprocess.run(["bash", "-eo", "pipefail", "-c", script], cwd=runner, text=True, timeout=500,
                                  env={**base, **environment}, capture_output=True, check=False)
            assert done.returncode == 0, f"{step['name']}\n{done.stdout}\n{done.stderr}"
            said.append(done.stdout)

    run("grade", {**values, "matrix.shard": "1/1"})
    (runner / "reports").mkdir()
    shutil.move(runner / "report", runner / "reports" / "report-0")  # what the upload and download do
    run("merge", values)
    grades = {row["student"]: row for row in csv.DictReader((runner / "class-report" / "grades.csv").open())}
    full = sum(item.points for item in exercises("transformer_block"))
    assert float(grades["Anna Ås"]["points"]) == full
    assert float(grades["Ben"]["points"]) == full - RMS.points
    assert any("both routes agree" in text for text in said)
    assert any("04_kv_cache.ipynb is no regular file" in text for text in said)
    assert not trap.exists(), trap.read_text()
    assert not list(runner.rglob("secret"))


def test_a_repository_that_cannot_be_read_does_not_stop_the_others(tmp_path, capsys):
    good = student(tmp_path / "good", {}, tmp_path / "trap")
    roster = tmp_path / "roster.csv"
    roster.write_text(f"match,student,repository\nlost,Lost,/nowhere/at/all\nodd,Odd,ext::sh -c x\nnone,None,\n"
                      f"../up,Up,{good}\ngood,Good,{good}\n")
    assert main(["collect", str(roster), "-o", str(tmp_path / "in")]) == 1
    out = capsys.readouterr().out
    assert "4 repositories could not be read" in out
    assert "ext::" in out
    assert [path.name for path in (tmp_path / "in").rglob("*.ipynb")] == [NAME]
    assert (tmp_path / "in" / "good" / NAME).read_text(encoding="utf-8") == completed({})


def test_shards_of_a_roster_share_out_everything_once():
    rows = [Enrolled(f"s{n}", f"S {n}") for n in range(11)]
    parts = [collect.part_of(rows, f"{number}/3") for number in (1, 2, 3)]
    assert sorted(row.match for part in parts for row in part) == sorted(row.match for row in rows)
    with pytest.raises(ValueError, match="JOB_COMPLETION_INDEX"):
        collect.part_of(rows, "0")


def gradescope(repository, root, toml, notebooks):
    """Run the autograder of a class on a submission, as Gradescope would; its results.json, None without one."""
    (root / "source").mkdir(parents=True, exist_ok=True)
    (root / "submission").mkdir()
    (root / "source" / "course.toml").write_text(toml, encoding="utf-8")
    (root / "source" / "secret").write_text("a secret of the class")
    for name, text in notebooks.items():
        (root / "submission" / name).write_text(text, encoding="utf-8")
    command = root / "course"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m course.cli "$@"\n')
    command.chmod(0o755)
    environment = {**os.environ, "AUTOGRADER_ROOT": str(root), "COURSE_COMMAND": str(command),
                   "COURSE_ROOT": str(paths.root())}
    script = repository / "gradescope" / "run_autograder"
    subprocess.run([script], env=environment, check=False, timeout=300, stdout=subprocess.DEVNULL)
    results = root / "results" / "results.json"
    return json.loads(results.read_text(encoding="utf-8")) if results.is_file() else None


def test_gradescope_gets_a_result_for_every_exercise(repository, tmp_path):
    wrong = {RMS.id: RMS.near_misses[0].source}
    found = gradescope(repository, tmp_path, TOML, {f"jane doe {NAME}": completed(wrong)})
    assert found["score"] == sum(item.points for item in exercises(RMS.stem)) - RMS.points
    (lost,) = [test for test in found["tests"] if test["status"] == "failed"]
    assert lost["name"] == RMS.id
    assert RMS.near_misses[0].name in lost["output"]


def test_gradescope_says_what_to_hand_in_when_there_is_no_notebook(repository, tmp_path):
    found = gradescope(repository, tmp_path, TOML, {})
    assert found["score"] == 0
    assert "notebook" in found["output"]


def test_gradescope_gets_no_zero_when_the_grader_fails(repository, tmp_path):
    (tmp_path / "source").mkdir()
    (tmp_path / "submission").mkdir()
    (tmp_path / "submission" / NAME).write_text(completed({}), encoding="utf-8")
    script = repository / "gradescope" / "run_autograder"
    done = subprocess.run([script], env={**os.environ, "AUTOGRADER_ROOT": str(tmp_path), "COURSE_COMMAND": "false"},
                          check=False)
    assert done.returncode
    assert not (tmp_path / "results" / "results.json").exists()


def test_gradescope_draws_the_constants_of_the_student_who_handed_in(repository, tmp_path):
    """The name comes from Gradescope's metadata, through the roster; without a line of it nothing is graded."""
    item = next(each for each in exercises() if each.variants)
    chapter = f"{file_stem(item.stem)}.ipynb"
    data = json.loads((paths.exercises() / chapter).read_text(encoding="utf-8"))
    secret, student = b"a secret of the class", "Jane Doe"
    mine = variants.constants(secret, student, item)
    for cell in data["cells"]:
        if cell["metadata"]["course"]["role"] == "answer" and cell["metadata"]["course"]["key"] == item.id:
            cell["source"] = substitute(solution_sources()[item.id], mine).splitlines(True)
    toml = (repository / "course.toml").read_text(encoding="utf-8").replace("variants = false", "variants = true")
    found = {}
    for name, email in (("in", "J.Doe@school.example"), ("out", "nobody@school.example")):
        root = tmp_path / name
        (root / "source").mkdir(parents=True)
        (root / "source" / "roster.csv").write_text("match,student,Email address\nj1,Jane Doe,j.doe@school.example\n")
        (root / "submission_metadata.json").write_text(json.dumps({"users": [{"email": email, "name": "J"}]}))
        found[name] = gradescope(repository, root, toml, {chapter: json.dumps(data)})
    assert {test["name"]: test["status"] for test in found["in"]["tests"]}[item.id] == "passed"
    assert found["out"] is None


@pytest.mark.parametrize(
    ("origin", "files"),
    [(None, 3), ("/srv/course.git", 3), ("https://gitlab.example/a/b.git", 3), ("git@github.com:a/b.git", 7)],
)
def test_a_clone_from_anywhere_makes_a_class(tmp_path, monkeypatch, capsys, origin, files):
    git(tmp_path, "init", "-q", "clone")
    if origin:
        git(tmp_path / "clone", "remote", "add", "origin", origin)
    git(tmp_path / "clone", "commit", "-q", "--allow-empty", "-m", "x")
    monkeypatch.setattr(paths, "root", lambda: tmp_path / "clone")
    assert main(["new-class", str(tmp_path / "class")]) == 0
    assert sum(path.is_file() for path in (tmp_path / "class").rglob("*")) == files
    said = capsys.readouterr().out
    assert ("does not come from GitHub" in said) == ("course grade SUBMISSIONS" in said) == (files == 3)


def test_a_class_on_this_machine_needs_no_github(tmp_path, capsys):
    assert main(["new-class", str(tmp_path / "class"), "--local"]) == 0
    assert "course grade" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "class").iterdir()) == [".gitignore", "course.toml", "roster.csv"]
    toml = tmp_path / "class" / "course.toml"
    assert settings.read(toml) == settings.Settings()
