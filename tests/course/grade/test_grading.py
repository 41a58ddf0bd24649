"""The grader end to end: a real worker process, right and wrong answers, and the nbval route beside the direct one."""

import json
import os
import subprocess
import sys
import time
from xml.etree import ElementTree

import pytest

from course import paths
from course.authoring.build import solution_sources
from course.grade import graft, secret
from course.grade.grading import grade_answer, grade_file
from course.running.worker import Worker, parse_frames
from course.specs import Draw, exercise, exercises
from gradeworker.answer import Job

RMS = exercise("transformer_block.rms_norm")
RIGHT = solution_sources()[RMS.id]
KEY = b"test secret"


@pytest.fixture(scope="module")
def worker():
    with Worker() as running:
        yield running


def verdict(worker, source, item=RMS):
    return grade_answer(worker, item, source, KEY)


def hurt(line):
    """The right answer with one more line at its beginning."""
    return RIGHT.replace("    wide = x.float()", f"    {line}\n    wide = x.float()", 1)


def test_grading_imports_nothing_that_it_can_do_without():
    """Each of these costs more than grading ten answers."""
    code = ("import sys; from course.grade import graft; from course.reports import class_run; "
            "from course.specs import exercises as e; e();"
            "print(sorted({'IPython', 'nbformat', 'jsonschema', 'triton', 'sympy', 'regex', 'jinja2'}"
            " & set(sys.modules)))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_kernel_is_graded_by_a_worker_that_graded_torch_before():
    item = next(each for each in exercises() if each.track == "kernel")
    with Worker() as running:
        assert verdict(running, RIGHT).kind == "pass"
        assert not running._zygote.knows_kernels
        assert verdict(running, solution_sources()[item.id], item).kind == "pass"
        assert running._zygote.knows_kernels
        assert verdict(running, RIGHT).kind == "pass"


def test_an_answer_has_its_address_space_whatever_the_libraries_take(worker):
    """Torch with CUDA takes 3 GB more than without; a grade must not depend on which of them the grader has."""
    source = "def f():\n    import resource\n    return resource.getrlimit(resource.RLIMIT_AS)[0]"
    [outcome] = worker.run(Job("x.f", "f", source, cases=[((), {})], free=True), 10).outcomes
    assert outcome.value > worker.limits.address_space + (300 << 20)


def test_the_right_answer_passes(worker):
    assert verdict(worker, RIGHT).kind == "pass"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("raise SystemExit(0)", "error"),
        ("x += 1", "wrong"),
        ("return x", "wrong"),
        ("return None", "wrong"),
        ("return rms_norm(x, weight, eps)", "error"),
        ("import os", "policy"),
        ("F.rms_norm(x, x.shape[-1:])", "policy"),
        ("F.rms_norm", "pass"),  # named, not called
        ("torch.ops.aten", "error"),
        ("raise KeyboardInterrupt", "killed"),
    ],
)
def test_each_end_has_its_verdict(worker, line, kind):
    assert verdict(worker, hurt(line)).kind == kind


def test_an_answer_that_starts_many_processes_is_ended_before_its_neighbours_feel_it(worker):
    """Thirty busy processes for the whole of a time limit would make a class wait twenty times as long."""
    source = ("def f():\n    import os\n    for _ in range(30):\n        if os.fork() == 0:\n            while True:\n"
              "                pass\n    while True:\n        pass")
    result = worker.run(Job("x.f", "f", source, cases=[((), {})], free=True), 20)
    assert result.ended == "killed"
    assert result.seconds < 5


def test_missing_and_untouched_answers_are_missing(worker):
    stub = "# answer: x\ndef rms_norm(x, weight, eps):\n    # YOUR CODE HERE\n    raise NotImplementedError()"
    assert verdict(worker, None).kind == "missing"
    assert verdict(worker, stub).kind == "missing"


def test_a_right_answer_above_the_stubs_two_lines_counts(worker):
    assert verdict(worker, RIGHT.rstrip() + "\n    # YOUR CODE HERE\n    raise NotImplementedError()\n").kind == "pass"


def test_an_endless_loop_is_stopped_and_the_worker_lives_on(worker):
    item = type(RMS)(**{**vars(RMS), "seconds": 1.0})
    start = time.monotonic()
    assert verdict(worker, hurt("while True: pass"), item).kind == "timeout"
    assert time.monotonic() - start < 30
    assert verdict(worker, RIGHT).kind == "pass"


def test_a_near_miss_is_named(worker):
    for near_miss in RMS.near_misses:
        found = verdict(worker, near_miss.source)
        assert found.kind == "wrong"
        assert found.mistake.name == near_miss.name


def test_forged_output_on_stdout_is_not_a_result(worker):
    source = hurt("print('transformer_block.rms_norm: all checks pass'); raise SystemExit(0)")
    assert verdict(worker, source).kind == "error"


def test_a_killed_worker_is_started_again(worker):
    assert verdict(worker, RIGHT).kind == "pass"
    worker.process.kill()
    worker.process.wait()
    assert verdict(worker, RIGHT).kind == "pass"


def test_no_process_is_left_behind():
    with Worker() as running:
        verdict(running, RIGHT)
        pid = running.process.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("data", [b"x", b"\x00" * 7, b"\xff" * 8, (5).to_bytes(8, "little") + b"abcde"])
def test_frames_that_are_not_well_formed_are_not_whole(data):
    assert parse_frames(data) == ([], False)


def test_the_worker_cannot_import_the_course(worker):
    from gradeworker.answer import Job

    for module in ("course.specs", "llm_internals"):
        job = Job("x.f", "f", f"import importlib\ndef f():\n    importlib.import_module('{module}')", cases=[((), {})],
              free=True)
        (only,) = worker.run(job, 10).outcomes
        assert only.error["type"] == "ModuleNotFoundError"


def test_hidden_cases_depend_on_secret_and_answer_but_not_on_how_it_was_saved():
    def first(key, source):
        return secret.hidden_cases(key, RMS, source)[0].args[0].flatten()[:3].tolist()

    assert first(b"a", RIGHT) == first(b"a", RIGHT.replace("\n", "\r\n") + "\n\n")
    assert first(b"a", RIGHT) != first(b"b", RIGHT)
    assert first(b"a", RIGHT) != first(b"a", RIGHT + "# more")
    assert first(b"a", RIGHT) != RMS.cases(Draw("public/" + RMS.id))[0].args[0].flatten()[:3].tolist()


def test_the_secret_is_made_once_and_only_its_owner_may_read_it(tmp_path, monkeypatch):
    monkeypatch.delenv(secret.ENV, raising=False)
    monkeypatch.delenv(secret.ENV_FILE, raising=False)
    made = secret.read(tmp_path / "new")
    assert secret.read(tmp_path / "new") == made
    assert (tmp_path / "new" / "secret").stat().st_mode & 0o777 == 0o600
    monkeypatch.setenv(secret.ENV, "given")
    assert secret.read(tmp_path / "new") == b"given"


def submission(tmp_path, name, sources):
    """A completed exercise notebook of the chapter with the given answers, solutions for the rest."""
    everything = {**solution_sources(), **sources}
    data = json.loads((paths.exercises() / "03_transformer_block.ipynb").read_text(encoding="utf-8"))
    for cell in data["cells"]:
        if cell["metadata"]["course"]["role"] == "answer":
            cell["source"] = everything[cell["metadata"]["course"]["key"]].splitlines(True)
    path = tmp_path / f"{name}.ipynb"
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def test_a_complete_notebook_gets_all_points_and_a_broken_one_loses_only_its_own(worker, tmp_path):
    full = grade_file(worker, submission(tmp_path, "full", {}), None, KEY)
    assert full.points == full.possible > 0
    worse = grade_file(worker, submission(tmp_path, "worse", {RMS.id: hurt("return x")}), None, KEY)
    assert worse.points == full.possible - RMS.points


def test_an_unreadable_file_is_a_report_not_a_crash(worker, tmp_path):
    path = tmp_path / "03_transformer_block.ipynb"
    path.write_bytes(b"{")
    report = grade_file(worker, path, None, KEY)
    assert report.unreadable
    assert {item.kind for item in report.verdicts} == {"unreadable"}


def without_trials(path):
    """Answers in the real model take seconds each, and no verdict depends on them."""
    data = json.loads(path.read_text(encoding="utf-8"))
    data["cells"] = [cell for cell in data["cells"] if not "".join(cell["source"]).startswith("try_in_model(")]
    path.write_text(json.dumps(data), encoding="utf-8")


@pytest.fixture(scope="module")
def nbval_runs(tmp_path_factory):
    """One pytest --nbval process over graded and plain notebooks: verdicts by notebook name."""
    folder = tmp_path_factory.mktemp("nbval")
    wrong = {"mean": RMS.near_misses[0].source, "none": hurt("return None"), "policy": hurt("import os")}
    for name, sources in {"right": {}, **{name: {RMS.id: source} for name, source in wrong.items()}}.items():
        path = submission(folder, name, sources)
        without_trials(path)
        graft.graft(path, folder / "graded" / f"graded_{name}.ipynb")
    report = folder / "report.xml"
    subprocess.run(
        [sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env", "--color=no", "-q", "-p", "no:cacheprovider",
         f"--junitxml={report}", "."],
        cwd=folder, env={**os.environ, secret.ENV: KEY.decode()}, capture_output=True, timeout=600, check=False)
    results: dict[str, list[str | None]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        failure = case.find("failure")
        text = None if failure is None else failure.get("message", "") + (failure.text or "")
        results.setdefault(case.get("classname").split(".")[-2], []).append(text)
    return results


@pytest.mark.parametrize("name", ["right", "mean", "none", "policy"])
def test_nbval_agrees_with_the_direct_route(nbval_runs, name):
    for form in (name, f"graded_{name}"):
        failures = [text for text in nbval_runs[form] if text is not None]
        assert len(nbval_runs[form]) >= 2
        assert len(failures) == (0 if name == "right" else 1)
        assert all(RMS.id in text for text in failures)


def test_the_graded_notebook_holds_no_student_code_cell(tmp_path):
    path = submission(tmp_path, "x", {})
    graft.graft(path, tmp_path / "out" / "graded.ipynb")
    data = json.loads((tmp_path / "out" / "graded.ipynb").read_text(encoding="utf-8"))
    code = ["".join(cell["source"]) for cell in data["cells"] if cell["cell_type"] == "code"]
    assert all(source.startswith(("grade(", "from course.grade import")) for source in code)
