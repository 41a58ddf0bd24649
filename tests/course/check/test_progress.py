"""The learner's progress file: concurrent notebooks, damage, other versions, folders that cannot be written."""

import json
import multiprocessing
import os
import subprocess
import sys

import pytest

from course.check import progress
from course.check.progress import FILE, record
from course.sources import Answer

A, B = "kv_cache.KVCache", "kv_cache.cost"


def test_a_check_is_noted_with_tries_mistake_and_digest(tmp_path):
    assert record(A, "x = 1  \n", False, "wrong values", tmp_path) == ""
    assert record(A, "x = 2", True, "", tmp_path) == ""
    entry = progress.read(tmp_path).entries[A]
    assert (entry["tries"], entry["solved"], entry["mistake"]) == (2, True, "")
    assert entry["digest"] == Answer("\r\nx = 2\r\n").digest
    record(A, "x = 3", False, "wrong values", tmp_path)
    entry = progress.read(tmp_path).entries[A]
    assert (entry["solved"], entry["was_solved"]) == (False, True)


def test_only_a_learners_copy_leaves_a_trace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    record(A, "x", True)
    assert list(tmp_path.iterdir()) == []
    work = tmp_path / "exercises" / "work"
    work.mkdir(parents=True)
    monkeypatch.chdir(work)
    record(A, "x", True)
    assert progress.read(work).entries[A]["solved"]


def _note_many(folder, name, count):
    for i in range(count):
        assert record(name, str(i), i % 2 == 0, "", folder) == ""


def test_notebooks_that_write_at_the_same_time_lose_nothing(tmp_path):
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_note_many, args=(tmp_path, name, 40)) for name in (A, B, A, B)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0, 0, 0, 0]
    assert {name: entry["tries"] for name, entry in progress.read(tmp_path).entries.items()} == {A: 80, B: 80}


DAMAGE = {
    "half a file": b'{"v": 1, "exercises": {"kv_cache.K',
    "empty": b"",
    "not text": b"\xff\xfe\x00\x01",
    "a list": b"[1, 2]",
    "a version that is no number": b'{"v": "one", "exercises": {}}',
    "no entries": b'{"v": 1}',
    "deeply nested": b"[" * 100_000,
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_file_is_set_aside_and_said(tmp_path, kind):
    (tmp_path / FILE).write_bytes(DAMAGE[kind])
    assert "damaged" in progress.read(tmp_path).note
    assert (tmp_path / FILE).read_bytes() == DAMAGE[kind], "reading changes nothing"
    said = record(A, "x", True, "", tmp_path)
    (kept,) = tmp_path.glob(".progress.damaged-*.json")
    assert kept.read_bytes() == DAMAGE[kind]
    assert kept.name in said
    assert progress.read(tmp_path).entries[A]["solved"]
    assert record(A, "x", True, "", tmp_path) == "", "said once"


def test_of_a_file_with_one_bad_entry_the_others_live_on(tmp_path):
    good = {"tries": 3, "solved": True, "mistake": ""}
    text = json.dumps({"v": 1, "exercises": {A: good, B: {"tries": "many"}}})
    (tmp_path / FILE).write_text(text)
    assert B in record(B, "x", False, "", tmp_path)
    entries = progress.read(tmp_path).entries
    assert (entries[A], entries[B]["tries"]) == (good, 1)
    (kept,) = tmp_path.glob(".progress.damaged-*.json")
    assert kept.read_text() == text
    (tmp_path / FILE).write_text("{")
    record(A, "x", True, "", tmp_path)
    assert len(list(tmp_path.glob(".progress.damaged-*.json"))) == 2, "two damaged files are both kept"


def test_a_file_of_the_first_releases_is_understood(tmp_path):
    (tmp_path / FILE).write_text(json.dumps({A: {"tries": 2, "solved": True, "digest": "d", "mistake": "", "when": 1}}))
    assert record(A, "x", False, "", tmp_path) == ""
    entry = progress.read(tmp_path).entries[A]
    assert (entry["tries"], entry["solved"]) == (3, False)
    assert json.loads((tmp_path / FILE).read_text())["v"] == progress.VERSION


def test_a_file_of_a_later_release_is_kept_as_it_is(tmp_path):
    text = json.dumps({"v": 7, "something": [1]})
    (tmp_path / FILE).write_text(text)
    assert "later release" in record(A, "x", True, "", tmp_path)
    assert (tmp_path / FILE).read_text() == text
    assert "later release" in progress.read(tmp_path).note


def test_unknown_exercises_and_fields_stay(tmp_path):
    entries = {"gone.exercise": {"tries": 1, "solved": True}, A: {"tries": 1, "solved": False, "stars": 5}}
    (tmp_path / FILE).write_text(json.dumps({"v": 1, "exercises": entries}))
    record(A, "x", True, "", tmp_path)
    after = progress.read(tmp_path).entries
    assert after["gone.exercise"] == entries["gone.exercise"]
    assert after[A]["stars"] == 5


RECORD = """
import resource, signal, sys
from pathlib import Path
from course.sources import Answer
from course.check import progress
if "full" in sys.argv:  # every write beyond this many bytes fails, as on a full disk
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))
print(progress.record("kv_cache.KVCache", "x", True, "", Path(sys.argv[1])))
"""


def _record_elsewhere(folder, *words):
    done = subprocess.run([sys.executable, "-c", RECORD, str(folder), *words], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, timeout=60, check=True,
                          cwd="/")
    return done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="file size limits are POSIX")
def test_a_full_disk_is_said_and_the_old_state_stays(tmp_path):
    record(B, "x", True, "", tmp_path)
    before = (tmp_path / FILE).read_bytes()
    said = _record_elsewhere(tmp_path, "full")
    assert "cannot be written" in said
    assert "Your answers are in the notebook" in said
    assert (tmp_path / FILE).read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [FILE, f"{FILE}.lock"]


def _record_as_nobody(folder, answers):
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    answers.put(record(A, "x", True, "", folder))


@pytest.mark.skipif(sys.platform == "win32", reason="folder permissions are POSIX")
def test_a_read_only_folder_is_said(tmp_path):
    """In a fork of this process: root may write anywhere, and an ordinary user may not be able to start Python."""
    (tmp_path / FILE).write_text("{}")
    for path in (tmp_path, *tmp_path.parents[:2]):
        path.chmod(0o755)
    tmp_path.chmod(0o555)
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=_record_as_nobody, args=(tmp_path, answers))
    child.start()
    child.join(60)
    tmp_path.chmod(0o755)
    assert child.exitcode == 0
    assert "cannot be written (Permission denied)" in answers.get()
    assert (tmp_path / FILE).read_text() == "{}"


def test_an_unreadable_file_is_said(tmp_path):
    (tmp_path / FILE).mkdir()
    assert "cannot be read" in progress.read(tmp_path).note
    assert "cannot be written" in record(A, "x", True, "", tmp_path)
