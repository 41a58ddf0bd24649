"""Constants that differ from student to student: from the secret, told by the notebook, never believed from it."""

import csv
import json
import shutil

import pytest

from course import paths
from course.authoring import release as releasing
from course.authoring.build import solution_sources
from course.check import CheckFailed, cells, check
from course.cli import main
from course.grade import variants
from course.judging import feedback, judge
from course.notebooks import editions
from course.specs import exercise, exercises, recorded
from course.specs.exercise import FOREIGN, substitute

ROPE, HEAD = exercise("transformer_block.rope"), exercise("transformer_block.lm_head")
NAME = "03_transformer_block.ipynb"
SECRET = "between release and grading"
SOLUTIONS = solution_sources()


def students_apart():
    """Two students whose THETA differs."""
    names = [f"Student {number}" for number in range(20)]
    first = variants.constants(SECRET.encode(), names[0], ROPE)
    other = next(name for name in names if variants.constants(SECRET.encode(), name, ROPE) != first)
    return names[0], other


def test_constants_depend_on_student_secret_and_exercise_and_on_nothing_else():
    drawn = [variants.constants(SECRET.encode(), f"s{n}", ROPE)["THETA"] for n in range(60)]
    assert set(drawn) == set(ROPE.variants["THETA"])
    assert drawn == [variants.constants(SECRET.encode(), f"s{n}", ROPE)["THETA"] for n in range(60)]
    assert drawn != [variants.constants(b"another", f"s{n}", ROPE)["THETA"] for n in range(60)]
    assert variants.constants(SECRET.encode(), "s", exercise("transformer_block.rms_norm")) == {}


def test_at_least_two_exercises_have_variants_and_the_printed_one_comes_first():
    having = [item for item in exercises() if item.variants]
    assert len(having) >= 2
    for item in having:
        assert item.constants == {}
        for name, options in item.variants.items():
            assert len(options) >= 3
            assert f"{name} = " in SOLUTIONS[item.id]


def test_an_edition_has_its_own_reference_and_names_those_of_others():
    mine = ROPE.for_student({"THETA": 20_000.0})
    memory = judge.public_memory(ROPE.id, mine.edition)
    for item, source, name in (
        (mine, substitute(SOLUTIONS[ROPE.id], {"THETA": 20_000.0}), None),
        (mine, SOLUTIONS[ROPE.id], f"{FOREIGN}: THETA = 10_000.0"),
        (mine, substitute(SOLUTIONS[ROPE.id], {"THETA": 80_000.0}), f"{FOREIGN}: THETA = 80_000.0"),
        (mine, substitute(ROPE.near_misses[0].source, {"THETA": 20_000.0}), ROPE.near_misses[0].name),
    ):
        verdict = judge.practice(item, source)
        assert verdict.passed is (name is None)
        assert (verdict.mistake.name if verdict.mistake else None) == name
    assert memory is judge.public_memory(ROPE.id, mine.edition)
    assert judge.practice(ROPE, SOLUTIONS[ROPE.id]).passed


@pytest.mark.parametrize("constants", [{"THETA": 3.0}, {"EPS": 1e-5}, {"THETA": "20_000.0"}])
def test_an_edition_that_does_not_exist_is_refused(constants):
    with pytest.raises(ValueError, match=r"THETA is one of 10_000\.0"):
        ROPE.for_student(constants)


def test_only_assignments_of_the_constant_are_rewritten():
    text = "THETA = 10_000.0\nMY_THETA = 10_000.0\nx = THETA\n`THETA = 10_000.0`. And 1e-5.\nTHETA == 5\n"
    assert substitute(text, {"THETA": 2.5e-5}) == (
        "THETA = 2.5e-05\nMY_THETA = 10_000.0\nx = THETA\n`THETA = 2.5e-05`. And 1e-5.\nTHETA == 5\n")
    assert substitute("`EPS = 1e-5`.", {"EPS": 1e-6}) == "`EPS = 1e-06`."


@pytest.fixture
def forget(monkeypatch):
    monkeypatch.setattr(editions, "_chosen", {})


def test_the_check_cell_tells_practice_the_edition(forget, capsys):
    cells.remember(ROPE.id, substitute(SOLUTIONS[ROPE.id], {"THETA": 20_000.0}))
    check(ROPE.id, THETA=20_000.0)
    assert capsys.readouterr().out == feedback.passed_line(ROPE.id) + "\n"
    cells.remember(ROPE.id, SOLUTIONS[ROPE.id])
    with pytest.raises(CheckFailed, match=FOREIGN):
        check(ROPE.id, THETA=20_000.0)
    with pytest.raises(ValueError, match="none of its constants"):
        check(ROPE.id, THETA=1.0)


def test_without_a_check_cell_the_answers_own_constant_tells_it(forget):
    assert editions.chosen(ROPE, SOLUTIONS[ROPE.id]) is ROPE
    assert editions.chosen(ROPE, "THETA = 50_000.0\n").constants == {"THETA": 50_000.0}
    for source in ("THETA = 7.0", "def f(: no", "THETA = open"):
        assert editions.chosen(ROPE, source) is ROPE
    for metadata in (None, [], {"constants": 3}, {"constants": {ROPE.id: 3}}, {"constants": {ROPE.id: {"THETA": 7}}}):
        assert editions.of_notebook({"metadata": {"course": metadata}}, ROPE) == {}


@pytest.fixture
def handed_out(tmp_path, monkeypatch):
    """Two students' notebooks as `course release DIR --roster` writes them, and the roster."""

    def make(stage):
        (stage / ".gitignore").write_text("x\n")
        shutil.copytree(paths.exercises(), stage / "exercises", ignore=shutil.ignore_patterns("work"))

    monkeypatch.setattr(releasing, "make", make)
    first, second = students_apart()
    roster = tmp_path / "roster.csv"
    roster.write_text(f"match,student\nfirst,{first}\nsecond,{second}\n")
    monkeypatch.setenv("COURSE_GRADE_SECRET", SECRET)
    assert main(["release", str(tmp_path / "edition"), "--roster", str(roster)]) == 0
    return tmp_path, roster, first, second


def solved(path):
    """The notebook's text with every stub written, the constant at its top left as it was given."""
    data = json.loads(path.read_text(encoding="utf-8"))
    mine = data["metadata"]["course"]["constants"]
    for cell in data["cells"]:
        if cell["metadata"]["course"]["role"] == "answer":
            key = cell["metadata"]["course"]["key"]
            cell["source"] = substitute(SOLUTIONS[key], mine.get(key, {}))
    return json.dumps(data)


def test_a_students_notebook_holds_their_constants_in_stub_task_and_check(handed_out):
    folder, _, first, _ = handed_out
    mine = variants.constants(SECRET.encode(), first, ROPE)["THETA"]
    text = (folder / "edition" / "students" / "first" / NAME).read_text(encoding="utf-8")
    sources = ["".join(cell["source"]) for cell in json.loads(text)["cells"]]
    assert sum(f"THETA = {mine:_}" in source for source in sources) == 2, "the stub and the task's text"
    assert f'check("{ROPE.id}", THETA={mine:_})' in sources
    assert "/students/" in (folder / "edition" / ".gitignore").read_text()
    pristine = json.loads((folder / "edition" / "exercises" / NAME).read_text(encoding="utf-8"))
    assert "constants" not in pristine["metadata"]["course"]


def test_the_grader_derives_constants_from_the_student_never_from_the_notebook(handed_out, capsys):
    folder, roster, first, second = handed_out
    own = solved(folder / "edition" / "students" / "first" / NAME)
    for name, text in (("first", own), ("second", own)):  # the second hands in the first one's notebook
        (folder / "in" / name).mkdir(parents=True)
        (folder / "in" / name / NAME).write_text(text, encoding="utf-8")
    toml = folder / "course.toml"
    toml.write_text("[grading]\nvariants = true\n")
    common = ["--roster", str(roster), "--settings", str(toml)]
    assert main(["grade", str(folder / "in"), "--report", str(folder / "out"), *common]) == 0
    with (folder / "out" / "exercises.csv").open(encoding="utf-8") as file:
        got = {(row["student"], row["exercise"]): row for row in csv.DictReader(file)}
    assert all(row["verdict"] == "pass" for (student, _), row in got.items() if student == first)
    assert got[second, ROPE.id]["verdict"] == "wrong"
    assert got[second, ROPE.id]["mistake"].startswith(FOREIGN)
    assert FOREIGN in (folder / "out" / "overview.html").read_text(encoding="utf-8")
    assert main(["graft", str(folder / "in"), "-o", str(folder / "grafted"), *common]) == 0
    capsys.readouterr()
    assert main(["nbval", str(folder / "grafted"), "--against", str(folder / "out")]) == 0
    assert "both routes agree" in capsys.readouterr().out


def test_what_grading_with_variants_needs_is_asked_for(handed_out, monkeypatch, capsys):
    folder, roster, _, _ = handed_out
    (folder / "in" / "stranger").mkdir(parents=True)
    shutil.copyfile(paths.exercises() / NAME, folder / "in" / "stranger" / NAME)
    toml = folder / "course.toml"
    toml.write_text("[grading]\nvariants = true\n")
    command = ["grade", str(folder / "in"), "--report", str(folder / "out"), "--settings", str(toml)]
    assert main(command) == 2
    assert "--roster" in capsys.readouterr().err
    assert main([*command, "--roster", str(roster)]) == 2
    assert "not in the roster" in capsys.readouterr().err
    monkeypatch.delenv("COURSE_GRADE_SECRET")
    roster.write_text("match,student\nstranger,S\n")
    assert main([*command, "--roster", str(roster)]) == 2
    assert "COURSE_GRADE_SECRET" in capsys.readouterr().err
    assert main(["release", str(folder / "edition"), "--roster", str(roster)]) == 2
    assert not (folder / "edition" / releasing.STAGE).exists()


def test_a_recording_knows_every_edition():
    made = [HEAD.for_student(constants) for constants in HEAD.editions()]
    parts = (HEAD, releasing.record(HEAD), [(each, releasing.record(each)) for each in made])
    (again,) = recorded.loads(recorded.dumps([parts]))
    for each in made:
        mine = again.for_student(each.constants)
        assert mine.edition == each.edition
        assert [near.name for near in mine.near_misses] == [near.name for near in each.near_misses]
        memory = judge.Memory(mine, mine.recorded.cases)
        for constants in HEAD.editions():
            source = substitute(SOLUTIONS[HEAD.id], constants)
            verdict = judge.judge(mine, memory.cases, judge.run(mine.job(source, judge.calls(memory.cases))),
                                  memory=memory)
            assert verdict.passed is (constants == each.constants)
            assert verdict.passed or verdict.mistake.name.startswith(FOREIGN)
    with pytest.raises(ValueError, match="no edition"):
        again.for_student({"EPS": 7.0})
