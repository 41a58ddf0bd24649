"""Batches: whose is whose, what is kept, what is shown, and what a killed run loses (nothing)."""

import csv
import datetime
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from course import paths, sources
from course.authoring.build import solution_sources
from course.classroom import identity, settings, shards
from course.classroom.names import safe
from course.classroom.roster import read_roster, roster_rows
from course.cli import main
from course.grade import batch
from course.grade.batch import Graded, Mark
from course.reports import gradebook, pages, score, similar
from course.sources import Answer
from course.specs import exercise

SOURCES = solution_sources()
RMS = exercise("transformer_block.rms_norm")
CORE = exercise("transformer_block.rope")
ODD = SOURCES[RMS.id] + f"\nTABLE = {list(range(60))}\n"


def notebook(path: Path, changes=None):
    """A completed notebook of chapter 03 at ``path``."""
    everything = {**SOURCES, **(changes or {})}
    data = json.loads((paths.exercises() / "03_transformer_block.ipynb").read_text(encoding="utf-8"))
    for cell in data["cells"]:
        if cell["metadata"]["course"]["role"] == "answer":
            cell["source"] = everything[cell["metadata"]["course"]["key"]].splitlines(True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "student", "attempt"),
    [
        ("doejane_12345_678901_04_kv_cache.ipynb", "doejane", 0),
        ("doejane_LATE_12345_678901_04_kv_cache-2.ipynb", "doejane", 2),
        ("Jane Doe_4711_assignsubmission_file_/04_kv_cache.ipynb", "Jane Doe", 0),
        ("Jane Doe_4711_assignsubmission_file_04_kv_cache.ipynb", "Jane Doe", 0),
        ("kv-cache-jdoe/exercises/work/04_kv_cache.ipynb", "kv-cache-jdoe", 0),
        ("jdoe_04_kv_cache.ipynb", "jdoe", 0),
        ("04_kv_cache_jdoe.ipynb", "jdoe", 0),
    ],
)
def test_students_are_told_from_names(tmp_path, name, student, attempt):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    found = identity.identify(path, tmp_path)
    assert (found.student, found.attempt, found.stem) == (student, attempt, "kv_cache")


def test_the_latest_attempt_counts_and_a_roster_outranks_names(tmp_path):
    for attempt in ("", "-1", "-2"):
        (tmp_path / f"doejane_1_2_04_kv_cache{attempt}.ipynb").write_text("{}")
    roster = tmp_path / "roster.csv"
    roster.write_text("match,student\ndoejane,Jane Doe\n")
    found = identity.find([tmp_path], read_roster(roster))
    kept, replaced = identity.latest(found)
    assert [item.path.stem for item in kept] == ["doejane_1_2_04_kv_cache-2"]
    assert kept[0].student == "Jane Doe"
    assert len(replaced) == 2


def test_a_roster_that_is_none_is_refused(tmp_path):
    (tmp_path / "r.csv").write_text("name\nx\n")
    with pytest.raises(ValueError, match="match,student"):
        read_roster(tmp_path / "r.csv")


def test_shards_share_out_everything_once():
    handed = [identity.Handed(f"student {n}", Path(f"{n}.ipynb"), "kv_cache") for n in range(50)]
    parts = [shards.shard(handed, f"{i}/3") for i in (1, 2, 3)]
    assert sorted(item.student for part in parts for item in part) == sorted(item.student for item in handed)
    assert all(parts)
    for text in ("0/3", "4/3", "x", "1"):
        with pytest.raises(ValueError):
            shards.shard(handed, text)


@pytest.mark.parametrize(
    ("text", "words"),
    [("[grading]\nwieghts = {}", "line 2: .*wieghts"), ("[grading]\n\nleave_out = [\n'x.y']", "line 4: .*x.y"),
     ("[grading", "course.toml"), ("[grading]\nshow = 'all'", "line 2: show is one of"),
     ("[grading]\ncount = 'most'", "core, bonus"), ("[grading]\nattempts = -1", "line 2: attempts is a whole number"),
     ("[grading]\nattempt = 'first'", "latest, best"), ("[grading]\nbonus_cap = true", "line 2: bonus_cap is a number"),
     ("[grading]\nweights = 3", "line 2: weights is a table"), ("[grades]\n", "line 1: .*no grades"),
     ("[grading]\n[grading.weights]\n'kv_cache.KVCache' = 'two'", "line 3: the weight of"),
     ("[grading]\n[grading.weights]\n'kv_cache.KVCache' = nan", "line 3: the weight of"),
     ("[grading]\nshow_later = 'full'", "belong together"), ("grading = 1", "line 1"),
     ("[grading]\nshow_later = 'full'\nshow_later_from = 'May'", "line 3: show_later_from is a date")],
)
def test_settings_with_a_mistake_say_which(tmp_path, text, words):
    path = tmp_path / "course.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=words):
        settings.read(path)


def test_settings_decide_what_counts(tmp_path):
    path = tmp_path / "course.toml"
    path.write_text(f'[grading]\ncount = "core"\nweights = {{ "{CORE.id}" = 2.5 }}\n')
    chosen = settings.read(path)
    assert chosen.weight(CORE.id) == 2.5
    assert chosen.weight("transformer_block.swiglu") == 0
    marks = [Mark(CORE.id, "pass", 2, 2), Mark("transformer_block.swiglu", "pass", 1, 1)]
    item = Graded("a", "a", "transformer_block", marks)
    assert score.score(item, chosen) == (5.0, 5.0)


def test_the_template_of_a_class_holds_the_defaults(tmp_path):
    text = (Path(settings.__file__).parent / "class_template" / "course.toml").read_text(encoding="utf-8")
    (tmp_path / "course.toml").write_text(text, encoding="utf-8")
    assert settings.read(tmp_path / "course.toml") == settings.Settings()
    (tmp_path / "course.toml").write_text(text.replace("# show_later", "show_later"), encoding="utf-8")
    assert settings.read(tmp_path / "course.toml").show_later == "full"


@pytest.mark.parametrize(("extra", "points"), [(0, 2.0), (1, 2.4), (3, 2.4)])
def test_a_bonus_is_capped_by_the_core_points(extra, points):
    chosen = settings.Settings(count="bonus", bonus_cap=0.2)
    marks = [Mark(CORE.id, "pass", 2, 2), Mark("transformer_block.swiglu", "x", extra, 3)]
    assert CORE.core
    assert not exercise("transformer_block.swiglu").core
    assert chosen.score(marks) == (pytest.approx(points), 2.0)


def test_more_is_shown_from_a_date_on():
    day = settings.Settings(show="verdict", show_later="full", show_later_from=datetime.date(2027, 1, 15))
    assert day.showing(datetime.datetime(2027, 1, 14, 23, 59)) == "verdict"
    assert day.showing(datetime.datetime(2027, 1, 15)) == "full"
    assert settings.Settings().showing() == "mistake"
    zoned = settings.read_text("[grading]\nshow_later = 'full'\nshow_later_from = 2027-01-15T08:00:00Z")
    assert zoned.showing(datetime.datetime(2027, 1, 15, 8, 0, tzinfo=datetime.UTC)) == "full"
    assert zoned.showing(datetime.datetime(2027, 1, 15, 9, 30,
                                           tzinfo=datetime.timezone(datetime.timedelta(hours=2)))) == "mistake"


def test_what_is_shown_is_what_was_chosen():
    mark = Mark(RMS.id, "wrong", 0, 2, "it centres", "", "it centres. Do not.", "the inputs were 1, 2")
    item = Graded("a", "a", "transformer_block", [mark])
    shown = {show: pages.feedback_page("a", [item], settings.Settings(show=show)) for show in settings.SHOW}
    assert "it centres" not in shown["verdict"]
    assert "it centres" in shown["mistake"]
    assert "the inputs were" in shown["full"]
    assert "the inputs were" not in shown["mistake"]


@pytest.mark.parametrize(
    ("attempts", "attempt", "graded"), [(0, "latest", [3]), (2, "latest", [2]), (2, "best", [1, 2]),
                                        (0, "best", [1, 2, 3]), (9, "latest", [3])])
def test_which_attempts_are_graded(attempts, attempt, graded):
    handed = [identity.Handed("a", Path(f"{n}.ipynb"), "kv_cache", n) for n in (3, 1, 2)]
    kept, left = identity.choose(handed, attempts, attempt)
    assert [item.attempt for item in kept] == graded
    assert len(kept) + len(left) == 3


def test_the_best_attempt_counts_when_the_class_says_so(tmp_path):
    for number, change in ((1, RMS.near_misses[0].source), (2, SOURCES[RMS.id]), (3, "def rms_norm(: no")):
        name = f"anna_1_2_03_transformer_block{'' if number == 1 else f'-{number - 1}'}.ipynb"
        notebook(tmp_path / "in" / name, {RMS.id: change})
    toml = tmp_path / "course.toml"
    expected = {("latest", 0): False, ("best", 0): True, ("latest", 2): True, ("latest", 1): False}
    for (attempt, attempts), full in expected.items():
        toml.write_text(f"[grading]\nattempt = '{attempt}'\nattempts = {attempts}\n")
        out = tmp_path / "out"
        assert main(["grade", str(tmp_path / "in"), "--report", str(out), "--settings", str(toml)]) == 0
        (row,) = rows(out / "grades.csv")
        assert (row["points"] == row["possible"]) is full, (attempt, attempts)


@pytest.fixture(scope="module")
def graded_class(tmp_path_factory):
    """A class of four, graded once by the command."""
    folder = tmp_path_factory.mktemp("class")
    hand_in = folder / "in"
    notebook(hand_in / "anna" / "03_transformer_block.ipynb", {RMS.id: ODD})
    notebook(hand_in / "ben" / "03_transformer_block.ipynb", {RMS.id: RMS.near_misses[0].source})
    notebook(hand_in / "=cmd|evil" / "03_transformer_block.ipynb", {RMS.id: "import os"})
    (hand_in / "dora").mkdir()
    (hand_in / "dora" / "03_transformer_block.ipynb").write_bytes(b"{")
    assert main(["grade", str(hand_in), "--report", str(folder / "out"), "--workers", "2"]) == 0
    return folder


def rows(path):
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))


def test_points_of_a_class(graded_class):
    grades = {row["student"]: row for row in rows(graded_class / "out" / "grades.csv")}
    full = float(grades["anna"]["possible"])
    assert float(grades["anna"]["points"]) == full > 0
    assert float(grades["ben"]["points"]) == full - RMS.points
    assert float(grades["'=cmd|evil"]["points"]) == full - RMS.points
    assert float(grades["dora"]["points"]) == 0
    assert "JSON" in grades["dora"]["unreadable"]


def test_feedback_names_the_mistake_and_hides_the_inputs(graded_class):
    page = (graded_class / "out" / "students" / "ben" / "feedback.html").read_text(encoding="utf-8")
    assert RMS.near_misses[0].name in page
    assert RMS.near_misses[0].section.split("#")[1].replace("-", " ") in page
    assert "float32 [" not in page
    report = json.loads((graded_class / "out" / "students" / "ben" / "report.json").read_text(encoding="utf-8"))
    assert "float32 [" not in json.dumps(report)


def test_what_is_odd_is_for_the_instructor_to_look_at_and_costs_nothing(graded_class):
    out = graded_class / "out"
    grades = {row["student"]: row for row in rows(out / "grades.csv")}
    assert "a literal of 60 entries" in grades["anna"]["look_at"]
    assert grades["ben"]["look_at"] == ""
    assert "a literal of 60 entries" in (out / "overview.html").read_text(encoding="utf-8")
    report = json.loads((out / "students" / "anna" / "report.json").read_text(encoding="utf-8"))
    assert report[0]["look_at"]
    assert "60 entries" not in (out / "students" / "anna" / "feedback.html").read_text(encoding="utf-8")


def test_machines_can_read_it(graded_class):
    out = graded_class / "out"
    tree = ElementTree.parse(out / "junit.xml")
    assert len(tree.findall(".//testsuite")) == 4
    results = json.loads((out / "students" / "anna" / "results.json").read_text(encoding="utf-8"))
    assert results["score"] == sum(test["max_score"] for test in results["tests"])
    possible, *students = rows(out / "canvas.csv")
    assert possible["Student"] == "Points Possible"
    assert {row["Student"]: row["03_transformer_block"] for row in students}["anna"] == \
        possible["03_transformer_block"]
    assert "it subtracts the mean" in (out / "overview.html").read_text(encoding="utf-8")
    assert (out / "secret").stat().st_mode & 0o777 == 0o600


def test_names_never_become_paths_and_never_meet():
    names = ("../../etc", "a/b", "a_b", "a b", "", "...", "=cmd|evil", "x" * 300, "x" * 301, "J\u00e4ne", "J\u00f6ne")
    for name in names:
        assert "/" not in safe(name)
        assert safe(name).strip(".")
        assert len(safe(name)) <= 100
    assert len({safe(name) for name in names}) == len(names)
    assert safe("jane-doe") == "jane-doe"


def test_a_whole_name_of_the_roster_outranks_a_part(tmp_path):
    roster = {"jan": "Jan", "jane": "Jane", "course": "Nobody"}
    root = tmp_path / "course"
    for name, student in (("jane/04_kv_cache.ipynb", "Jane"), ("jan/04_kv_cache.ipynb", "Jan"),
                          ("jane_04_kv_cache.ipynb", "Jane"), ("kv-jane-x/04_kv_cache.ipynb", "Jane"),
                          ("kv-janet-x/04_kv_cache.ipynb", "kv-janet-x")):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("{}")
        assert identity.identify(root / name, root, roster).student == student


@pytest.mark.parametrize(
    ("text", "words"),
    [("match,student\na,A\na,B\n", "line 3: 'a' is there twice"), ("match,student\na,\n", "line 2"),
     ("", "match,student"), ("\u00e9", "match,student")],
)
def test_a_roster_with_a_mistake_says_where(tmp_path, text, words):
    path = tmp_path / "roster.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=words):
        read_roster(path)


def test_a_second_run_grades_nothing_again(graded_class, monkeypatch):
    def fail(*args):
        raise AssertionError("graded again")

    monkeypatch.setattr(batch.grading, "grade_answer", fail)
    assert main(["grade", str(graded_class / "in"), "--report", str(graded_class / "out")]) == 0


def test_one_exercise_can_be_graded_again(graded_class, monkeypatch):
    again = []
    original = batch.grading.grade_answer

    def note(worker, item, source, secret):
        again.append(item.id)
        return original(worker, item, source, secret)

    monkeypatch.setattr(batch.grading, "grade_answer", note)
    main(["grade", str(graded_class / "in" / "anna"), "--report", str(graded_class / "out"), "--rerun", RMS.id])
    assert again == [RMS.id]
    assert len(rows(graded_class / "out" / "grades.csv")) == 4, "grading one student again keeps the others"


def test_shards_merge_into_the_same_grades(graded_class, tmp_path):
    for part in ("1/2", "2/2"):
        out = str(tmp_path / part[0])
        os.makedirs(out)
        (tmp_path / part[0] / "secret").write_bytes((graded_class / "out" / "secret").read_bytes())
        main(["grade", str(graded_class / "in"), "--report", out, "--shard", part])
    main(["merge", str(tmp_path / "1"), str(tmp_path / "2"), "--report", str(tmp_path / "all")])
    assert rows(tmp_path / "all" / "grades.csv") == rows(graded_class / "out" / "grades.csv")


def test_a_report_folder_that_cannot_be_written_says_so(graded_class, tmp_path, capsys):
    blocked = tmp_path / "out"
    blocked.write_text("a file where a folder should be")
    assert main(["grade", str(graded_class / "in" / "anna"), "--report", str(blocked)]) == 2
    assert "course:" in capsys.readouterr().err


def test_no_sandbox_is_refused_when_one_is_required(graded_class, tmp_path, capsys):
    arguments = ["grade", str(graded_class / "in" / "anna"), "--report", str(tmp_path / "o"), "--backend", "none"]
    assert main([*arguments, "--require-sandbox"]) == 2
    assert "nothing was graded" in capsys.readouterr().err


def test_a_killed_grader_keeps_every_mark_and_goes_on(tmp_path):
    for number in range(6):
        path = tmp_path / "in" / f"s{number}" / "03_transformer_block.ipynb"
        notebook(path, {RMS.id: SOURCES[RMS.id] + f"\n# {number}\n"})
    command = [sys.executable, "-m", "course.cli", "grade", str(tmp_path / "in"), "--report", str(tmp_path / "out"),
               "--workers", "1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    marks = tmp_path / "out" / "marks"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and len(list(marks.glob("*.json"))) < 3:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = len(list(marks.glob("*.json")))
    assert kept >= 3
    assert subprocess.run(command, capture_output=True, timeout=300, check=False).returncode == 0
    grades = rows(tmp_path / "out" / "grades.csv")
    assert len(grades) == 6
    assert all(row["points"] == row["possible"] for row in grades)


def test_identical_answers_are_only_a_hint():
    source = SOURCES["transformer_block.attention"]
    first = Graded("a", "a", "x", shapes={"e": Answer(source).shape})
    second = Graded("b", "b", "x", shapes={"e": Answer(source.replace("wide", "broad") + "\n# mine").shape})
    other = Graded("c", "c", "x", shapes={"e": Answer(SOURCES[RMS.id]).shape})
    assert similar.similar([first, second, other]) == [("e", ["a", "b"])]


def test_a_gradebook_tells_people_by_number_and_leaves_open_what_was_not_graded():
    full = [Mark(RMS.id, "pass", 2, 2)]
    graded = [
        Graded("Jane", "a", "transformer_block", full, lms_id="4711"),
        Graded("Jane", "b", "kv_cache", [Mark("kv_cache.cost", "wrong", 0, 2)], lms_id="4711"),
        Graded("Ole", "c", "transformer_block", [Mark(RMS.id, "infra", 0, 2)]),
    ]
    people = {"Ole": {"SIS Login ID": "ole@school.example", "Email address": "ole@school.example"}}
    canvas = gradebook.gradebook_csv(graded, settings.Settings(), gradebook.CANVAS, people, possible_row=True)
    assert canvas.splitlines() == [
        "Student,ID,SIS User ID,SIS Login ID,Section,03_transformer_block,04_kv_cache",
        "Points Possible,,,,,2,2",
        "Jane,4711,,,,2,0",
        "Ole,,,ole@school.example,,,",
    ]
    moodle = gradebook.gradebook_csv(graded, settings.Settings(), gradebook.MOODLE, people).splitlines()
    assert moodle[1:] == ["Jane,Participant 4711,,,2,0", "Ole,,ole@school.example,,,"]


def test_two_people_of_one_name_both_keep_their_grade(tmp_path):
    for name in ("doejane_1_9_04_kv_cache.ipynb", "doejane_1_9_04_kv_cache-1.ipynb", "doejane_2_8_04_kv_cache.ipynb"):
        (tmp_path / name).write_text("{}")
    kept, replaced = identity.latest(identity.find([tmp_path]))
    assert [item.student for item in kept] == ["doejane (1)", "doejane (2)"]
    assert [item.path.name for item in replaced] == ["doejane_1_9_04_kv_cache.ipynb"]


def test_a_roster_hands_its_other_columns_on(tmp_path):
    (tmp_path / "r.csv").write_text("match,student,ID,Email address\njane,Jane Doe,7,j@school.example\n")
    (row,) = roster_rows(tmp_path / "r.csv")
    assert row.columns == {"ID": "7", "Email address": "j@school.example"}


def test_answers_are_parsed_in_turn():
    """Two threads in ast.parse at once end in a SystemError on CPython 3.11."""
    from concurrent.futures import ThreadPoolExecutor

    functions = (f"def f{n}(a, b):\n    return a + b * {n}" for n in range(300))
    source = "\n".join(["x = " + "(" * 60 + "1" + ")" * 60, *functions])
    with ThreadPoolExecutor(4) as pool:
        assert len(list(pool.map(sources.parse, [source] * 60))) == 60


def test_nothing_that_grades_parses_by_itself():
    course = paths.root() / "src" / "course"
    for path in sorted(course.rglob("*.py")):
        if path == course / "sources.py" or path.is_relative_to(course / "authoring") or "book" in path.parts:
            continue
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if "ast.parse(" in line]
        assert all(line.startswith("_") for line in lines), (path.name, lines)  # at import: one thread only
