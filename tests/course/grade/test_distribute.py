"""Grading on a Ray cluster: the same grades, whatever happens to a node; and what is said when there is none."""

import csv
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from course import paths
from course.authoring.build import solution_sources
from course.classroom import identity
from course.cli import main
from course.grade import batch, distribute
from course.specs import exercise, exercises

SOURCES = solution_sources()
RMS = exercise("transformer_block.rms_norm")
NAME = "03_transformer_block.ipynb"
SECRET = b"s"


def notebook(path: Path, changes=None):
    everything = {**SOURCES, **(changes or {})}
    data = json.loads((paths.exercises() / NAME).read_text(encoding="utf-8"))
    for cell in data["cells"]:
        if cell["metadata"]["course"]["role"] == "answer":
            cell["source"] = everything[cell["metadata"]["course"]["key"]]
            cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "x" * 1000}]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


class RayTaskError(Exception):
    def __init__(self, cause):
        super().__init__(str(cause))
        self.cause = cause


class RayError(Exception):
    pass


class FakeRay:
    """Runs calls here, when they are asked for; ``fate`` may lose or break one."""

    exceptions = SimpleNamespace(RayTaskError=type("RayTaskError", (RayTaskError, RayError), {}), RayError=RayError)

    def __init__(self, fate=lambda order, number: None):
        self.fate, self.sent, self.cancelled, self.shut = fate, [], [], False

    def remote(self, function):
        self.function = function
        return SimpleNamespace(options=self.options)

    def options(self, **options):
        assert options["max_retries"] == 0
        return SimpleNamespace(remote=self.send)

    def send(self, order):
        self.sent.append(order)
        return len(self.sent) - 1

    def wait(self, references, num_returns):
        return references[:num_returns], references[num_returns:]

    def get(self, reference):
        order = self.sent[reference]
        self.fate(order, sum(other.handed == order.handed for other in self.sent[: reference + 1]))
        try:
            return self.function(order)
        except Exception as error:
            raise self.exceptions.RayTaskError(error) from None

    def cluster_resources(self):
        return {"CPU": 2.0}

    def cancel(self, reference, force):
        self.cancelled.append(reference)

    def shutdown(self):
        self.shut = True


def grade(folder, ray, **more):
    handed = identity.find([folder / "in"])
    marks = batch.Marks(folder / "marks", SECRET)
    return {each.student: each for each in distribute.grade_all(handed, SECRET, marks, "x", ray=ray, **more)}


@pytest.fixture
def two(tmp_path):
    notebook(tmp_path / "in" / "anna" / NAME)
    notebook(tmp_path / "in" / "ben" / NAME, {RMS.id: RMS.near_misses[0].source})
    return tmp_path


def test_the_same_grades_as_on_one_machine_and_every_mark_is_kept(two):
    (two / "in" / "cleo").mkdir()
    (two / "in" / "cleo" / NAME).write_text("{")
    ray = FakeRay()
    graded = grade(two, ray)
    handed = identity.find([two / "in"])
    here = {g.student: g for g in batch.grade_all(handed, SECRET, batch.Marks(two / "other", SECRET), 1)}
    assert {k: v.marks for k, v in graded.items()} == {k: v.marks for k, v in here.items()}
    assert {k: v.path for k, v in graded.items()} == {k: v.path for k, v in here.items()}
    assert {p.name for p in (two / "marks").iterdir()} == {p.name for p in (two / "other").iterdir()}
    assert len(ray.sent) == 2, "what cannot be read need not travel"
    assert "xxx" not in ray.sent[0].notebook
    assert SECRET.decode() not in repr(ray.sent[0]).split("handed")[0]
    assert ray.shut
    again = FakeRay()
    assert grade(two, again).keys() == graded.keys()
    assert again.sent == [], "known marks need no machine"


def test_a_lost_node_is_made_good_once_and_then_is_nobodys_zero(two):
    def lose(order, number):
        if order.handed.student == "ben" or number == 1:
            raise RayError("the node is gone")

    ray, lost = FakeRay(lose), []
    graded = grade(two, ray, on_lost=lost.append)
    assert graded["anna"].points == graded["anna"].possible
    assert {mark.verdict for mark in graded["ben"].marks} == {"infra"}
    assert "lost with its node 2 times" in graded["ben"].marks[0].details
    assert [item.student for item in lost] == ["anna", "ben"]
    kept = {json.loads(path.read_text())["verdict"] for path in (two / "marks").iterdir()}
    assert kept == {"pass"}


def test_a_grader_that_fails_is_not_sent_again(two, monkeypatch):
    monkeypatch.setattr(distribute.course, "__version__", "9.9")
    ray = FakeRay()
    graded = grade(two, ray)
    assert len(ray.sent) == 2
    assert "has release 9.9 of the course" in graded["anna"].marks[0].details


def test_ctrl_c_keeps_what_has_arrived(two):
    def interrupt(order, number):
        if order.handed.student == "ben":
            raise KeyboardInterrupt

    ray = FakeRay(interrupt)
    with pytest.raises(KeyboardInterrupt):
        grade(two, ray)
    assert ray.shut
    assert len(list((two / "marks").glob("*.json"))) == len(exercises("transformer_block"))


def test_without_ray_it_says_what_to_install(two, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    command = ["grade", str(two / "in"), "--ray", "auto"]
    assert main(command) == 2
    assert "--report" in capsys.readouterr().err
    assert main([*command, "--report", str(two / "out")]) == 2
    assert "pip install" in capsys.readouterr().err


@pytest.fixture
def cluster(monkeypatch, tmp_path):
    """A head and a second node, one CPU each; the second keeps its temporary files in a folder of its own."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    source = str(Path(paths.__file__).resolve().parents[1])
    monkeypatch.setenv("PYTHONPATH", source)
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 80 << 20,
                                                         "include_dashboard": False})
    made.scratch = tmp_path / "second"
    made.scratch.mkdir()
    made.second = made.add_node(num_cpus=1, object_store_memory=80 << 20, env_vars={"TMPDIR": str(made.scratch)})
    yield made
    made.shutdown()


@pytest.mark.ray
@pytest.mark.slow
def test_a_node_killed_in_mid_batch_costs_nobody_anything(tmp_path, cluster, monkeypatch):
    """On two real nodes; the second is killed while it is at work."""
    for number in range(6):
        changes = {RMS.id: RMS.near_misses[0].source} if number == 3 else {RMS.id: SOURCES[RMS.id] + f"\n# {number}\n"}
        notebook(tmp_path / "in" / f"s{number}" / NAME, changes)
    command = [sys.executable, "-m", "course.cli", "grade", str(tmp_path / "in"), "--report", str(tmp_path / "out"),
               "--ray", cluster.address]
    environment = {**os.environ, "COURSE_ROOT": str(paths.root()), "COURSE_GRADE_SECRET": "s"}
    killed = []

    def kill_at_work():
        deadline = time.monotonic() + 200
        while time.monotonic() < deadline and not killed:
            if any(cluster.scratch.glob("course-ray-*/in/*")):  # a call is running on the second node
                cluster.remove_node(cluster.second, allow_graceful=False)
                killed.append(time.monotonic())
            time.sleep(0.02)

    killer = threading.Thread(target=kill_at_work)
    killer.start()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
    killer.join()
    assert done.returncode == 0, done.stdout + done.stderr
    assert killed
    assert "lost with their machine and sent once more" in done.stdout
    with (tmp_path / "out" / "grades.csv").open(encoding="utf-8") as file:
        grades = {row["student"]: row for row in csv.DictReader(file)}
    full = sum(item.points for item in exercises("transformer_block"))
    assert {name: float(row["points"]) for name, row in grades.items()} == {
        f"s{number}": full - (RMS.points if number == 3 else 0) for number in range(6)}
    assert len(list((tmp_path / "out" / "marks").glob("*.json"))) >= len(exercises("transformer_block"))
    assert not (tmp_path / "out" / "secret").exists()
