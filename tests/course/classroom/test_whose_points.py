"""Can a report be wrong? Names that meet, files under false names, reports of other runs, a grader that fails."""

import csv
import dataclasses
import io
import json
import unicodedata
from pathlib import Path

import pytest

from course import paths
from course.authoring.build import solution_sources
from course.chapters import file_stem
from course.classroom import gradescope, identity, settings
from course.classroom.names import folders, safe
from course.classroom.roster import read_roster, roster_rows
from course.cli import main
from course.grade import batch
from course.grade.batch import Graded, Mark
from course.judging.judge import Verdict
from course.reports import gradebook, score
from course.specs import exercises

SOURCES = solution_sources()
RENE = "Ren\u00e9"
DECOMPOSED = unicodedata.normalize("NFD", RENE)
BLOCK, CACHE = "transformer_block", "kv_cache"


def notebook(path: Path, stem: str, changes=None) -> Path:
    """A completed notebook of a chapter at ``path``; of a change None keeps the stub."""
    data = json.loads((paths.exercises() / f"{file_stem(stem)}.ipynb").read_text(encoding="utf-8"))
    for cell in data["cells"]:
        about = cell["metadata"]["course"]
        source = {**SOURCES, **(changes or {})}.get(about.get("key")) if about["role"] == "answer" else None
        cell["source"] = source.splitlines(True) if source else cell["source"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def rows(path):
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))


@pytest.fixture
def quick(monkeypatch):
    """Answers with the word WRONG earn nothing, those with FAILS make the grader fail, others pass; nothing is run."""

    def verdict(worker, item, source, secret):
        kinds = {"FAILS": "infra", "WRONG": "timeout"}
        return Verdict(next((kind for word, kind in kinds.items() if word in (source or "")), "pass"), item)

    monkeypatch.setattr(batch.grading, "grade_answer", verdict)
    monkeypatch.setenv("COURSE_GRADE_SECRET", "a secret of this class")


def grade(*arguments) -> int:
    return main(["grade", *map(str, arguments)])


def possible(stem):
    return sum(item.points for item in exercises(stem))


def test_a_chapter_under_the_name_of_another_counts_once(quick, tmp_path):
    notebook(tmp_path / "in" / "jane" / "03_transformer_block.ipynb", BLOCK)
    notebook(tmp_path / "in" / "jane" / "04_kv_cache.ipynb", BLOCK)
    notebook(tmp_path / "in" / "jane" / "mine.ipynb", CACHE)
    notebook(tmp_path / "in" / "ole" / "04_kv_cache.ipynb", CACHE)
    assert grade(tmp_path / "in", "--report", tmp_path / "out") == 0
    grades = {(row["student"], row["chapter"]): row for row in rows(tmp_path / "out" / "grades.csv")}
    assert set(grades) == {("jane", BLOCK), ("jane", CACHE), ("ole", CACHE)}
    results = json.loads((tmp_path / "out" / "students" / "jane" / "results.json").read_text(encoding="utf-8"))
    assert results["score"] == possible(BLOCK) + possible(CACHE)
    canvas = {row["Student"]: row for row in rows(tmp_path / "out" / "canvas.csv")}
    assert float(canvas["jane"]["03_transformer_block"]) == possible(BLOCK)


def test_all_attempts_are_reported_and_one_counts(quick, tmp_path):
    for number, source in (("", None), ("-1", "WRONG = 1")):
        changes = {"kv_cache.cost": source} if source else {}
        notebook(tmp_path / "in" / f"jane_1_2_04_kv_cache{number}.ipynb", CACHE, changes)
    toml = tmp_path / "course.toml"
    lost = next(item.points for item in exercises(CACHE) if item.id == "kv_cache.cost")
    for attempt, points in (("latest", possible(CACHE) - lost), ("best", possible(CACHE))):
        toml.write_text(f"[grading]\nattempt = '{attempt}'\n")
        out = tmp_path / attempt
        grade(tmp_path / "in", "--report", out, "--settings", toml, "--all-attempts")
        found = rows(out / "grades.csv")
        assert sorted(row["counts"] for row in found) == ["no, another attempt", "yes"]
        assert [float(row["points"]) for row in found if row["counts"] == "yes"] == [points]
        assert json.loads((out / "students" / "jane" / "results.json").read_text())["score"] == points
        assert float(rows(out / "canvas.csv")[1]["04_kv_cache"]) == points


def test_a_failing_grader_is_nobodys_zero_in_any_report(quick, tmp_path, capsys):
    notebook(tmp_path / "in" / "jane" / "04_kv_cache.ipynb", CACHE, {"kv_cache.cost": "FAILS = 1"})
    out = tmp_path / "out"
    assert grade(tmp_path / "in", "--report", out) == 1
    assert "no zero" in " ".join(capsys.readouterr().out.split())
    (row,) = rows(out / "grades.csv")
    assert (row["points"], row["not_graded"]) == ("", "kv_cache.cost")
    assert {row["exercise"]: row["points"] for row in rows(out / "exercises.csv")}["kv_cache.cost"] == ""
    assert rows(out / "canvas.csv")[1]["04_kv_cache"] == rows(out / "moodle.csv")[0]["04_kv_cache"] == ""
    folder = out / "students" / "jane"
    (report,) = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    assert report["points"] is None
    assert report["not_graded"] == ["kv_cache.cost"]
    assert "It is no zero" in (folder / "feedback.html").read_text(encoding="utf-8")
    assert not (folder / "results.json").exists(), "without it Gradescope says that the autograder failed"
    assert 'errors="1"' in (out / "junit.xml").read_text(encoding="utf-8")
    assert "the grader failed on kv_cache.cost" in (out / "overview.html").read_text(encoding="utf-8")


def test_the_best_attempt_is_not_known_while_the_grader_fails():
    mark = Mark("kv_cache.cost", "wrong", 0, 2)
    fails = Graded("a", "1", CACHE, [dataclasses.replace(mark, verdict="infra")])
    worse = Graded("a", "2", CACHE, [mark])
    assert score.best([fails, worse], settings.Settings()) == [fails]
    right = dataclasses.replace(mark, verdict="pass", points=2)
    assert score.best([fails, Graded("a", "3", CACHE, [right])], settings.Settings())[0].path == "3"


def test_a_name_is_never_anothers_folder():
    crafted = safe("a b")
    names = ["a b", crafted, "Jane", "jane", "JANE", DECOMPOSED, RENE, "nul", "a_b"]
    places = folders(names)
    assert len({unicodedata.normalize("NFC", place).casefold() for place in places.values()}) == len(names)
    assert folders(["jane", "ben"]) == {"jane": "jane", "ben": "ben"}


def test_a_name_in_two_forms_of_unicode_is_one_student_and_fits_the_roster(tmp_path):
    (tmp_path / "r.csv").write_text(f"match,student\n{DECOMPOSED},{RENE} D\n", encoding="utf-8")
    roster = read_roster(tmp_path / "r.csv")
    for form in ("NFC", "NFD"):
        path = tmp_path / unicodedata.normalize(form, RENE) / "04_kv_cache.ipynb"
        assert identity.identify(path, tmp_path, roster).student == f"{RENE} D"
        assert identity.identify(path, tmp_path).student == RENE


def test_a_roster_with_two_people_of_one_name_is_refused_with_the_line(tmp_path):
    (tmp_path / "r.csv").write_text("match,student\njane1,Jane Doe\nx,X\njane2,jane  doe\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"line 4: .*line 2 too.*\(jane2\)"):
        read_roster(tmp_path / "r.csv")


@pytest.mark.parametrize(
    "name",
    ["bob/jane.ipynb", "bob/jane_04_kv_cache.ipynb", "bob/jane/04_kv_cache.ipynb", "bob/jane_1_2_04_kv_cache.ipynb",
     "bob/jane_7_assignsubmission_file_04_kv_cache.ipynb", "bob_7_assignsubmission_file_/jane_04_kv_cache.ipynb",
     "bob_7_assignsubmission_file_/jane_9_assignsubmission_file_/x.ipynb", "bob_12_34_jane_04_kv_cache.ipynb"],
)
@pytest.mark.parametrize("roster", [{}, {"bob": "bob", "jane": "jane"}])
def test_nobody_hands_in_for_another_by_the_name_of_a_file(tmp_path, name, roster):
    notebook(tmp_path / name, CACHE)
    if "/" in name:
        notebook(tmp_path / name.partition("/")[0].replace("bob", "jane") / "04_kv_cache.ipynb", CACHE)
    found = {str(item.path.relative_to(tmp_path)): item.student for item in identity.find([tmp_path], roster)}
    assert found[name] == "bob"


def test_who_is_not_in_the_roster_is_nobody_of_it(tmp_path):
    roster = {"jan": "Jan", "12": "Twelve", "jane": "Jane"}
    for name in ("bob_9_assignsubmission_file_/jane.ipynb", "janet/04_kv_cache.ipynb", "bob_121_9_jane.ipynb"):
        assert identity.identify(tmp_path / name, tmp_path, roster).student in ("bob", "janet")
    assert identity.identify(tmp_path / "bob_12_9_x.ipynb", tmp_path, roster).student == "Twelve"


def test_a_name_of_the_roster_inside_a_strangers_folder_earns_nobody_anything(quick, tmp_path, capsys):
    notebook(tmp_path / "in" / "mallory" / "chen" / "04_kv_cache.ipynb", CACHE)
    notebook(tmp_path / "in" / "mallory" / "chen.ipynb", CACHE)
    (tmp_path / "r.csv").write_text("match,student\nchen,Chen\nmon/dee,Dee\n")
    notebook(tmp_path / "in" / "mon" / "dee" / "04_kv_cache.ipynb", CACHE)
    assert grade(tmp_path / "in", "--roster", tmp_path / "r.csv", "--report", tmp_path / "out") == 0
    assert [row["student"] for row in rows(tmp_path / "out" / "grades.csv")] == ["Dee", "mallory"]
    said = " ".join(capsys.readouterr().out.split())
    assert "mallory is in no roster, and chen in that folder is: graded as mallory's" in said
    assert "not in the roster: mallory" in said
    assert "nothing handed in: Chen" in said
    found = identity.find([tmp_path / "in" / "mallory"], read_roster(tmp_path / "r.csv"))
    assert {item.student for item in found} == {"Chen"}, "a section, named itself"


def test_a_platforms_archive_may_lie_in_folders(tmp_path):
    for name in ("one/jane_1_2_04_kv_cache.ipynb", "two/ole_LATE_3_4_04_kv_cache.ipynb"):
        notebook(tmp_path / name, CACHE)
    found = identity.find([tmp_path])
    assert [(item.student, item.late) for item in found] == [("jane", False), ("ole", True)]


def test_moodles_new_number_in_each_assignment_makes_nobody_two(tmp_path):
    notebook(tmp_path / "Jane D_11_assignsubmission_file_" / "03_transformer_block.ipynb", BLOCK)
    notebook(tmp_path / "Jane D_22_assignsubmission_file_" / "04_kv_cache.ipynb", CACHE)
    assert {item.student for item in identity.find([tmp_path])} == {"Jane D"}
    graded = [Graded("Jane D", "a", BLOCK, lms_id="11"), Graded("Jane D", "b", CACHE, lms_id="22")]
    moodle = gradebook.gradebook_csv(graded, settings.Settings(), gradebook.MOODLE, {})
    assert moodle.splitlines()[1].startswith("Jane D,,"), "neither number tells Moodle who that is"


def test_two_people_of_one_name_who_come_in_two_runs_both_keep_their_grade(quick, tmp_path):
    out = tmp_path / "out"
    for run, number, source in (("a", 1, "WRONG = 1"), ("b", 2, SOURCES["kv_cache.cost"])):
        notebook(tmp_path / run / f"jane_{number}_9_04_kv_cache.ipynb", CACHE, {"kv_cache.cost": source})
        grade(tmp_path / run, "--report", out)
    found = {row["student"]: float(row["points"]) for row in rows(out / "grades.csv")}
    assert found == {"jane (1)": possible(CACHE) - 2, "jane (2)": possible(CACHE)}
    grade(tmp_path / "a", tmp_path / "b", "--report", out)
    assert {row["student"] for row in rows(out / "grades.csv")} == set(found)
    assert {path.name.split("-")[0] for path in (out / "students").iterdir()} == {"jane_1", "jane_2"}


def test_a_roster_given_later_renames_and_leaves_no_ghost(quick, tmp_path):
    notebook(tmp_path / "in" / "jdoe" / "04_kv_cache.ipynb", CACHE)
    out = tmp_path / "out"
    grade(tmp_path / "in", "--report", out)
    (tmp_path / "r.csv").write_text("match,student\njdoe,Jane\nole,Ole\n", encoding="utf-8")
    grade(tmp_path / "in", "--report", out, "--roster", tmp_path / "r.csv")
    assert [row["student"] for row in rows(out / "grades.csv")] == ["Jane"]
    assert [path.name for path in (out / "students").iterdir()] == ["Jane"]
    assert "nothing handed in: Ole" in (out / "overview.html").read_text(encoding="utf-8")


def test_late_files_replace_and_say_so_and_the_best_stays_the_best(quick, tmp_path, capsys):
    notebook(tmp_path / "first" / "jane" / "04_kv_cache.ipynb", CACHE)
    notebook(tmp_path / "late" / "jane" / "04_kv_cache.ipynb", CACHE, {"kv_cache.cost": "WRONG = 1"})
    for attempt, points in (("latest", possible(CACHE) - 2), ("best", possible(CACHE))):
        (tmp_path / "course.toml").write_text(f"[grading]\nattempt = '{attempt}'\n")
        for folder in ("first", "late"):
            grade(tmp_path / folder, "--report", tmp_path / attempt, "--settings", tmp_path / "course.toml")
        (row,) = rows(tmp_path / attempt / "grades.csv")
        assert float(row["points"]) == points
    assert "takes the place of" in capsys.readouterr().out


def test_a_copy_of_all_submissions_elsewhere_is_said_in_one_line(quick, tmp_path, capsys):
    for run in ("first", "copy"):
        for student in ("ann", "ben", "cem", "dee", "eve"):
            notebook(tmp_path / run / student / "04_kv_cache.ipynb", CACHE)
        capsys.readouterr()
        grade(tmp_path / run, "--report", tmp_path / "out")
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("takes the place of") == 1
    assert "5 earlier results give way" in said
    assert len(rows(tmp_path / "out" / "grades.csv")) == 5


def test_what_is_wrong_with_a_file_is_said_once_and_of_the_file(quick, tmp_path):
    (tmp_path / "in" / "jane").mkdir(parents=True)
    (tmp_path / "in" / "jane" / "04_kv_cache.ipynb").write_text("{")
    assert grade(tmp_path / "in", "--report", tmp_path / "out") == 0
    folder = tmp_path / "out" / "students" / "jane"
    page = (folder / "feedback.html").read_text(encoding="utf-8")
    assert page.count("not a notebook") == page.count("This file could not be read") == 1
    assert "result" not in page
    results = (folder / "results.json").read_text(encoding="utf-8")
    assert results.count("04_kv_cache.ipynb could not be read: the file is not a notebook") == 1
    assert results.count("[unreadable]") == len(exercises(CACHE))
    assert "the file is not a notebook" in (tmp_path / "out" / "junit.xml").read_text(encoding="utf-8")


def test_who_stops_a_run_is_told_how_many_marks_are_on_disk(quick, tmp_path, capsys, monkeypatch):
    for student in ("ann", "ben", "cem"):
        notebook(tmp_path / "in" / student / "04_kv_cache.ipynb", CACHE, {"kv_cache.cost": f"# {student}"})
    judged, calls = batch.grading.grade_answer, []

    def until_stopped(*arguments):
        calls.append(arguments)
        if len(calls) > len(exercises(CACHE)) + 1:
            raise KeyboardInterrupt
        return judged(*arguments)

    monkeypatch.setattr(batch.grading, "grade_answer", until_stopped)
    assert grade(tmp_path / "in", "--report", tmp_path / "out", "--workers", 1) == 130
    said = " ".join(capsys.readouterr().out.split())
    on_disk = len(list((tmp_path / "out" / "marks").glob("*.json")))
    assert on_disk > 0
    assert f"the {on_disk} marks made until now are kept" in said


def test_two_students_named_by_hand_may_use_one_file_after_the_other(quick, tmp_path):
    for student in ("a", "b"):
        notebook(tmp_path / "in" / "04_kv_cache.ipynb", CACHE)
        grade(tmp_path / "in", "--student", student, "--report", tmp_path / "out")
    assert [row["student"] for row in rows(tmp_path / "out" / "grades.csv")] == ["a", "b"]


def test_marks_of_other_checkers_are_not_brought_back_and_those_left_are_named(quick, tmp_path, monkeypatch, capsys):
    out = tmp_path / "out"
    for student in ("jane", "ole"):
        notebook(tmp_path / "in" / student / "04_kv_cache.ipynb", CACHE)
    grade(tmp_path / "in", "--report", out)
    monkeypatch.setattr(batch, "judges_digest", lambda: "mended")
    monkeypatch.setattr(batch.grading, "grade_answer", lambda worker, item, source, secret: Verdict("timeout", item))
    capsys.readouterr()
    grade(tmp_path / "in" / "jane", "--student", "jane", "--report", out)
    points = {row["student"]: float(row["points"]) for row in rows(out / "grades.csv")}
    assert points == {"jane": 0, "ole": possible(CACHE)}
    assert "other checkers than today's, or with other constants: ole." in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("package", ["judging", "notebooks", "specs", "given", "gradeworker", "kernelcheck"])
def test_a_change_in_whatever_judges_makes_marks_anew(package, monkeypatch, tmp_path):
    module = next(each for each in batch.JUDGES if each.__name__.split(".")[-1] == package)
    batch.judges_digest.cache_clear()
    before = batch.judges_digest()
    source = next(Path(module.__file__).parent.glob("[a-z]*.py"))
    original = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: original(path) + b"#" * (path == source))
    batch.judges_digest.cache_clear()
    try:
        assert batch.judges_digest() != before
    finally:
        batch.judges_digest.cache_clear()


def test_a_change_in_a_solution_makes_marks_anew(monkeypatch):
    """Near-misses are edits of the solutions, so what an answer is told depends on them."""
    batch.judges_digest.cache_clear()
    before = batch.judges_digest()
    original = Path.read_bytes
    source = paths.solutions() / f"{file_stem('kv_cache')}.py"
    monkeypatch.setattr(Path, "read_bytes", lambda path: original(path) + b"#" * (path == source))
    batch.judges_digest.cache_clear()
    try:
        assert batch.judges_digest() != before
    finally:
        batch.judges_digest.cache_clear()


def test_marks_of_another_class_are_not_believed(tmp_path):
    (item,) = (each for each in exercises(CACHE) if each.id == "kv_cache.cost")
    theirs, ours = batch.Marks(tmp_path, b"their secret"), batch.Marks(tmp_path, b"our secret")
    theirs.put(theirs.key(item, "x"), Mark(item.id, "pass", 2, 2))
    assert ours.get(ours.key(item, "x")) is None


def test_shards_that_share_a_student_are_joined_only_where_they_agree(quick, tmp_path, capsys):
    for part in ("1", "2"):
        notebook(tmp_path / part / "jane" / "04_kv_cache.ipynb", CACHE)
        grade(tmp_path / part, "--report", tmp_path / f"out{part}")
    parts = [str(tmp_path / "out1"), str(tmp_path / "out2"), str(tmp_path / "out1")]
    assert main(["merge", *parts, "--report", str(tmp_path / "all")]) == 0
    assert len(rows(tmp_path / "all" / "grades.csv")) == 1
    notebook(tmp_path / "2" / "jane" / "04_kv_cache.ipynb", CACHE, {"kv_cache.cost": "WRONG = 1"})
    grade(tmp_path / "2", "--report", tmp_path / "out2")
    assert main(["merge", *parts, "--report", str(tmp_path / "all")]) == 2
    assert "jane, kv_cache: graded in" in capsys.readouterr().err


def test_a_roster_names_whoever_was_graded_without_it_when_parts_are_joined(quick, tmp_path, capsys):
    notebook(tmp_path / "1" / "jdoe" / "04_kv_cache.ipynb", CACHE)
    notebook(tmp_path / "1" / "mallory" / "ole" / "04_kv_cache.ipynb", CACHE)
    notebook(tmp_path / "2" / "ole_77_8_04_kv_cache.ipynb", CACHE)
    for part in ("1", "2"):
        grade(tmp_path / part, "--report", tmp_path / f"out{part}")
    (tmp_path / "r.csv").write_text("match,student,ID\njdoe,Jane Doe,4\nole_77,Ole,5\nfay,Fay,6\n")
    capsys.readouterr()
    parts = [str(tmp_path / "out1"), str(tmp_path / "out2")]
    assert main(["merge", *parts, "--roster", str(tmp_path / "r.csv"), "--report", str(tmp_path / "all")]) == 0
    assert [row["student"] for row in rows(tmp_path / "all" / "grades.csv")] == ["Jane Doe", "Ole", "mallory"]
    said = " ".join(capsys.readouterr().out.split())
    assert "not in the roster: mallory" in said
    assert "nothing handed in: Fay" in said
    notebook(tmp_path / "2" / "Jane Doe" / "04_kv_cache.ipynb", CACHE, {"kv_cache.cost": "WRONG = 1"})
    grade(tmp_path / "2", "--report", tmp_path / "out2")
    assert main(["merge", *parts, "--roster", str(tmp_path / "r.csv"), "--report", str(tmp_path / "all")]) == 2
    assert "Jane Doe, kv_cache: graded in" in capsys.readouterr().err


def test_a_report_of_another_release_is_refused_before_anything_is_graded(quick, tmp_path, capsys, monkeypatch):
    out = tmp_path / "out"
    notebook(tmp_path / "in" / "jane" / "04_kv_cache.ipynb", CACHE)
    out.mkdir()
    (out / "grades.json").write_text('[{"student": "x", "path": "x", "stem": "", "marks": [], "moon": 1}]')
    monkeypatch.setattr(batch, "grade_all", lambda *a, **k: pytest.fail("graded"))
    assert grade(tmp_path / "in", "--report", out) == 2
    assert "another release" in capsys.readouterr().err


def test_a_spreadsheet_runs_no_name(tmp_path):
    for name in ("=1", "x;=1", "x\n@A", " +1", "\t=1", "\uff1d1"):
        text = gradebook.grades_csv([Graded(name, "x", CACHE)], settings.Settings())
        (row,) = csv.DictReader(io.StringIO(text))
        pieces = [piece.strip(" ") for line in row["student"].splitlines() for piece in line.split(";")]
        assert not any(piece[:1] in tuple("=+-@\t\uff1d") for piece in pieces if piece), name


def test_a_name_cannot_speak_to_the_terminal(quick, tmp_path, capsys):
    notebook(tmp_path / "in" / "\x1b[31m[/red]" / "04_kv_cache.ipynb", CACHE)
    assert grade(tmp_path / "in") == 0
    assert "\x1b" not in capsys.readouterr().out


def test_who_handed_in_no_notebook_is_named(quick, tmp_path, capsys):
    notebook(tmp_path / "in" / "jane" / "04_KV_CACHE.IPYNB", CACHE)
    notebook(tmp_path / "in" / "__MACOSX" / "jane" / "._04_kv_cache.ipynb", CACHE)
    (tmp_path / "in" / "fay").mkdir()
    (tmp_path / "in" / "fay" / "answers.zip").write_bytes(b"x")
    grade(tmp_path / "in", "--report", tmp_path / "out")
    assert [row["student"] for row in rows(tmp_path / "out" / "grades.csv")] == ["jane"]
    assert "fay handed in no notebook (.ipynb), but answers.zip" in " ".join(capsys.readouterr().out.split())
    assert "answers.zip" in (tmp_path / "out" / "overview.html").read_text(encoding="utf-8")


def test_an_exercise_to_grade_again_must_exist(quick, tmp_path, capsys):
    notebook(tmp_path / "in" / "jane" / "04_kv_cache.ipynb", CACHE)
    assert grade(tmp_path / "in", "--report", tmp_path / "out", "--rerun", "kv_cache.const") == 2
    assert "kv_cache.const" in capsys.readouterr().err


def test_gradescopes_student_is_the_rosters(tmp_path):
    (tmp_path / "r.csv").write_text("match,student,Email address,ID\njdoe,Jane Doe,J.Doe@x.example,7\nole,Ole,,8\n")
    roster = roster_rows(tmp_path / "r.csv")
    path = tmp_path / "submission_metadata.json"

    def who(*users, personal=False):
        path.write_text(json.dumps({"users": list(users)}), encoding="utf-8")
        return gradescope.submitter(path, roster, personal)

    assert who({"email": "j.doe@X.example", "name": "Ole", "id": 8}) == "Jane Doe"
    assert who({"email": "o@x.example", "name": "ole"}) == "Ole"
    assert who({"email": "q@x.example", "id": 7, "name": "Quinn"}) == "Quinn", "7 is another system's number"
    group = [{"name": "Ole"}, {"name": "Jane Doe"}]
    assert who(*group) == "Ole"
    with pytest.raises(ValueError, match="hands in alone"):
        who(*group, personal=True)
    path.write_text("{}")
    with pytest.raises(ValueError, match="does not say who"):
        gradescope.submitter(path, roster)


def test_settings_that_change_between_runs_are_named_and_apply_to_all(quick, tmp_path, capsys):
    out, toml = tmp_path / "out", tmp_path / "course.toml"
    for student in ("jane", "ole"):
        notebook(tmp_path / "in" / student / "04_kv_cache.ipynb", CACHE)
    toml.write_text("[grading]\ncount = 'core'\n")
    grade(tmp_path / "in", "--report", out, "--settings", toml)
    capsys.readouterr()
    grade(tmp_path / "in" / "jane", "--student", "jane", "--report", out)
    assert "count was 'core' and is 'all'" in " ".join(capsys.readouterr().out.split())
    assert {float(row["possible"]) for row in rows(out / "grades.csv")} == {possible(CACHE)}


def test_a_grafted_file_gets_its_students_constants(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_GRADE_SECRET", "a secret of this class")
    path = notebook(tmp_path / "jane_04_kv_cache.ipynb", CACHE)
    (tmp_path / "r.csv").write_text("match,student\njane,Jane Doe\n")
    (tmp_path / "c.toml").write_text("[grading]\nvariants = true\n")
    made = tmp_path / "out" / "graded.ipynb"
    options = ["--roster", str(tmp_path / "r.csv"), "--settings", str(tmp_path / "c.toml")]
    assert main(["graft", str(path), "-o", str(made), *options]) == 0
    assert "Jane Doe" in made.read_text(encoding="utf-8")
    assert main(["graft", str(path), "-o", str(made), *options[2:]]) == 2, "whose constants?"


def test_a_file_that_is_not_there_is_named(tmp_path, capsys):
    lost = str(tmp_path / "lost")
    for command in (["graft", lost, "-o", str(tmp_path / "x.ipynb")], ["check", lost],
                    ["grade", lost], ["grade", str(tmp_path), "--settings", lost]):
        assert main(command) == 2
        said = capsys.readouterr().err
        assert lost in said
        assert "Errno" not in said


def test_identical_answers_are_seen_over_shards_and_runs(quick, tmp_path):
    for run in ("1", "2"):
        notebook(tmp_path / run / f"s{run}" / "04_kv_cache.ipynb", CACHE)
        grade(tmp_path / run, "--report", tmp_path / f"out{run}")
        grade(tmp_path / run, "--report", tmp_path / "both")
    main(["merge", str(tmp_path / "out1"), str(tmp_path / "out2"), "--report", str(tmp_path / "all")])
    for folder in ("both", "all"):
        assert "kv_cache.KVCache: s1, s2" in (tmp_path / folder / "overview.html").read_text(encoding="utf-8")
        assert "def " not in (tmp_path / folder / "grades.json").read_text(encoding="utf-8"), "no sources in reports"
