"""What breaks in mid-batch: processes that are killed, a full disk, a folder that cannot be written.

Every mark that was made is kept, the rest is graded when the fault is gone, and the message says what to do.
"""

import csv
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from course import paths
from course.authoring.build import solution_sources
from course.classroom import identity
from course.grade import batch, grading, secret
from course.running import sandbox
from course.running.worker import Worker
from course.specs import exercises
from gradeworker import linux

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="signals, mounts and /proc of Linux")
KEY = b"faults"
NAME = "01_tokenization.ipynb"
ITEMS = exercises("tokenization")
SOURCES = solution_sources()
SLOW = "BUSY = sum(range(60_000_000))\n"  # about a second, in which something can be killed


def notebook(folder: Path, first: str = "") -> Path:
    """A completed notebook of chapter 01; ``first`` stands at the top of its first answer."""
    data = json.loads((paths.exercises() / NAME).read_text(encoding="utf-8"))
    for cell in data["cells"]:
        if cell["metadata"]["course"]["role"] == "answer":
            key = cell["metadata"]["course"]["key"]
            source = SOURCES[key]
            if key == ITEMS[0].id:
                marker, rest = source.split("\n", 1)
                source = f"{marker}\n{first}{rest}"
            cell["source"] = source
    folder.mkdir(parents=True, exist_ok=True)
    (folder / NAME).write_text(json.dumps(data), encoding="utf-8")
    return folder / NAME


def grade(worker, marks, path: Path) -> batch.Graded:
    return batch.grade_one(worker, identity.identify(path, path.parent.parent), KEY, marks)


def victim(worker, which: str) -> int | None:
    """The process to kill: bubblewrap itself, the zygote, or the answer's own; None while no answer runs."""
    family = linux.descendants(worker.process.pid) if worker.process else []
    above = 3 if worker.backend == "bwrap" else 1  # bubblewrap, its init, the zygote
    if len(family) <= above:
        return None
    return {"sandbox": family[0], "zygote": family[above - 1], "answer": family[-1]}[which]


@pytest.mark.parametrize("backend", [name for name in ("bwrap", "landlock") if sandbox._try(name) is None])
@pytest.mark.parametrize("which", ["answer", "zygote", "sandbox"])
def test_a_process_killed_while_an_answer_runs_costs_nobody_a_point(tmp_path, backend, which):
    marks = batch.Marks(tmp_path / "marks", KEY)
    killed = []

    def kill(worker):
        deadline = time.monotonic() + 60
        while not killed and time.monotonic() < deadline:
            found = victim(worker, which)
            if found is not None:
                os.kill(found, signal.SIGKILL)
                killed.append(found)
            time.sleep(0.01)

    with Worker(backend) as worker:
        assert not [mark for mark in grade(worker, marks, notebook(tmp_path / "anna")).marks if not mark.points]
        killer = threading.Thread(target=kill, args=(worker,))
        path = notebook(tmp_path / "ben", SLOW + f"# {which}\n")
        killer.start()
        graded = grade(worker, marks, path)
        killer.join()
        assert killed, "nothing ran long enough to be killed"
        assert [mark.verdict for mark in graded.marks] == ["pass"] * len(ITEMS), graded.marks
        assert not [mark for mark in grade(worker, marks, notebook(tmp_path / "cora")).marks if not mark.points]


def test_a_killed_grader_leaves_no_process(tmp_path):
    for number in range(4):
        notebook(tmp_path / "in" / f"s{number}", SLOW + f"# {number}\n")
    command = [sys.executable, "-m", "course.cli", "grade", str(tmp_path / "in"), "--report", str(tmp_path / "out"),
               "--workers", "2"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not list((tmp_path / "out" / "marks").glob("*.json")):
        time.sleep(0.02)
    family = linux.descendants(process.pid)
    process.kill()
    process.wait()
    assert len(family) > 2, "no worker ran"
    deadline = time.monotonic() + 20
    left = family[1:]
    while left and time.monotonic() < deadline:
        left = [pid for pid in left if Path(f"/proc/{pid}").exists()]
        time.sleep(0.05)
    assert not left


def test_what_the_grader_could_not_do_is_tried_again_and_never_kept(tmp_path, monkeypatch):
    marks = batch.Marks(tmp_path / "marks", KEY)
    path = notebook(tmp_path / "anna")
    with monkeypatch.context() as patch:
        starts = []
        patch.setattr(Worker, "_start", lambda self: starts.append(1) or real_start_of("false", self))
        with Worker() as worker:
            graded = grade(worker, marks, path)
    assert [mark.verdict for mark in graded.marks] == ["infra"] * len(ITEMS)
    assert len(starts) == 4 * len(ITEMS), "the worker was started twice for each of two tries"
    assert not list((tmp_path / "marks").glob("*")) if (tmp_path / "marks").exists() else True
    with Worker() as worker:
        assert [mark.verdict for mark in grade(worker, marks, path).marks] == ["pass"] * len(ITEMS)


START = Worker._start


def real_start_of(program: str, worker: Worker) -> None:
    """Start the worker with a program in the place of Python that ends at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", shutil.which(program))
        START(worker)


def test_root_who_is_the_only_user_there_grades_in_bubblewrap(tmp_path):
    """As in some rootless containers: root of a namespace that has no other uid to give to an answer."""
    code = ("from course.running import sandbox; from course.running.worker import Worker\n"
            "from gradeworker.answer import Job\n"
            "with Worker() as worker:\n"
            "    job = Job('x.f', 'f', 'def f():\\n    return 7', cases=[((), {})])\n"
            "    print(sandbox.probe().notes, worker.backend, [o.value for o in worker.run(job, 10).outcomes])")
    command = ["unshare", "--user", "--map-root-user", sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "() bwrap [7]", done.stdout + done.stderr


def test_a_sandbox_that_cannot_be_set_up_is_not_the_answers_fault(monkeypatch):
    def impossible(self, *arguments):
        return json.dumps({**json.loads(message(self, *arguments)), "scratch_bytes": -1}).encode()

    message = Worker._message
    monkeypatch.setattr(Worker, "_message", impossible)
    with Worker("bwrap") as worker:
        verdict = grading.grade_answer(worker, ITEMS[0], SOURCES[ITEMS[0].id], KEY)
    assert verdict.kind == "infra"
    assert "could not be set up" in verdict.note


def mounted(tmp_path: Path, script: str) -> subprocess.CompletedProcess:
    """Run a shell script in a mount namespace of its own, in which `out` is a small file system."""
    namespace = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    grading = shlex.join([sys.executable, "-m", "course.cli", "grade", str(tmp_path / "in"), "--workers", "1",
                          "--report", str(tmp_path / "out")])
    text = f"set -u\ncd {shlex.quote(str(tmp_path))}\nmkdir -p out\n" + script.replace("GRADE", grading)
    environment = {**os.environ, "COLUMNS": "1000"}
    return subprocess.run([*namespace, "sh", "-c", text], capture_output=True, text=True, timeout=400, check=False,
                          env=environment)


def points(folder: Path) -> list[tuple[str, str, str]]:
    with (folder / "grades.csv").open(encoding="utf-8", newline="") as file:
        return sorted((row["student"], row["points"], row["possible"]) for row in csv.DictReader(file))


FULL = str(sum(item.points for item in ITEMS))


def test_a_full_disk_keeps_the_marks_that_were_made_and_the_rest_follows(tmp_path):
    for number in range(2):
        notebook(tmp_path / "in" / f"s{number}", f"# {number}\n")
    done = mounted(tmp_path, """
mount -t tmpfs -o size=8m tmpfs out || exit 90
head -c $((8 * 1024 * 1024 - 16 * 1024)) /dev/zero >out/filler || exit 91
GRADE >first.log 2>&1; echo $? >first
ls out/marks >kept; cat out/marks/*.json >kept.json
rm out/filler
GRADE >second.log 2>&1; echo $? >second
ls out/marks >after; cp out/grades.csv .; ls -a out out/marks >all
""")
    assert done.returncode == 0, done.stderr
    said = (tmp_path / "first.log").read_text()
    assert (tmp_path / "first").read_text().strip() == "2", said
    assert "No space left" in said
    assert "make room or name another folder" in " ".join(said.split())
    assert "Traceback" not in said
    kept = (tmp_path / "kept").read_text().split()
    assert kept
    assert all(name.endswith(".json") for name in kept), "half a mark stays"
    assert set(kept) <= set((tmp_path / "after").read_text().split())
    assert (tmp_path / "second").read_text().strip() == "0", (tmp_path / "second.log").read_text()
    assert points(tmp_path) == [("s0", FULL, FULL), ("s1", FULL, FULL)]
    assert ".tmp" not in (tmp_path / "all").read_text()


def test_a_folder_that_became_read_only_keeps_what_is_there(tmp_path):
    notebook(tmp_path / "in" / "s0")
    done = mounted(tmp_path, f"""
mount -t tmpfs -o size=8m tmpfs out || exit 90
GRADE >first.log 2>&1; echo $? >first
ls out/marks >kept
cp -r in/s0 in/s1; sed -i 's/# answer: {ITEMS[0].id}/&\\\\n# mine/' in/s1/{NAME}
mount -o remount,bind,ro out || exit 91
GRADE >second.log 2>&1; echo $? >second
mount -o remount,bind,rw out || exit 92
GRADE >third.log 2>&1; echo $? >third
ls out/marks >after; cp out/grades.csv .
""")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "first").read_text().strip() == "0", (tmp_path / "first.log").read_text()
    said = (tmp_path / "second.log").read_text()
    assert (tmp_path / "second").read_text().strip() == "2", said
    assert "Read-only file system" in said
    assert "run again" in " ".join(said.split())
    assert "Traceback" not in said
    assert (tmp_path / "third").read_text().strip() == "0", (tmp_path / "third.log").read_text()
    kept, after = (set((tmp_path / name).read_text().split()) for name in ("kept", "after"))
    assert kept < after
    assert points(tmp_path) == [("s0", FULL, FULL), ("s1", FULL, FULL)]


def test_a_secret_cut_off_by_a_full_disk_is_refused_not_used(tmp_path, monkeypatch):
    monkeypatch.delenv(secret.ENV, raising=False)
    monkeypatch.delenv(secret.ENV_FILE, raising=False)
    (tmp_path / "secret").write_bytes(b"")
    with pytest.raises(ValueError, match="delete it"):
        secret.read(tmp_path)
    monkeypatch.setenv(secret.ENV_FILE, str(tmp_path / "secret"))
    with pytest.raises(ValueError, match=secret.ENV_FILE):
        secret.read(tmp_path)
    monkeypatch.setenv(secret.ENV_FILE, str(tmp_path / "absent"))
    with pytest.raises(ValueError, match="no such file"):
        secret.read(tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="limits of a process")
def test_a_secret_that_cannot_be_written_leaves_nothing(tmp_path):
    """The limit on file sizes stands for the disk: the first byte does not fit."""
    code = ("import resource, signal, sys; from pathlib import Path; from course.grade import secret; "
            "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); "
            "secret.read(Path(sys.argv[1]))")
    environment = {key: value for key, value in os.environ.items() if key not in {secret.ENV, secret.ENV_FILE}}
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False,
                          env=environment)
    assert done.returncode != 0
    assert "File too large" in done.stderr
    assert list(tmp_path.iterdir()) == []
    assert len(secret.read(tmp_path)) == 64 or os.environ.get(secret.ENV)
