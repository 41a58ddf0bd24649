"""What pytest says of a grafted notebook becomes verdicts; whatever is not a plain pass earns nothing."""

import json

import pytest

from course.grade import nbval_route
from course.grade.nbval_route import Entry

CALLS = ['from course.grade import grade, open_submission\n\nopen_submission("d")', 'grade("a.one")', 'grade("a.two")']


def read(tmp_path, cases):
    notebook, junit = tmp_path / "graded.ipynb", tmp_path / "junit.xml"
    cells = [{"cell_type": "code", "source": text} for text in CALLS]
    cells.insert(1, {"cell_type": "raw", "source": 'grade("a.one")'})
    notebook.write_text(json.dumps({"cells": cells}))
    junit.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    return nbval_route.verdicts(notebook, junit)


def case(inner="", name="Cell"):
    return f'<testcase classname="graded.ipynb" name="{name}">{inner}</testcase>'


def test_a_cell_that_passes_is_a_pass(tmp_path):
    assert read(tmp_path, case() * 3) == {"a.one": "pass", "a.two": "pass"}


@pytest.mark.parametrize(
    ("inner", "verdict"),
    [
        ("<failure message='x'>[wrong] a.one: not yet right</failure>", "wrong"),
        ("<failure message='[timeout] a.one: stopped'/>", "timeout"),
        ("<failure message='[pass] a.one: all checks pass'/>", "infra"),
        ("<failure message='[wrong] a.two: another exercise'/>", "infra"),
        ("<failure/>", "infra"),
        ("<error message='kernel died'/>", "infra"),
        ("<skipped type='pytest.xfail' message='[wrong] a.one: x'/>", "skipped"),
        ("<skipped/>", "skipped"),
    ],
)
def test_anything_else_is_not(tmp_path, inner, verdict):
    assert read(tmp_path, case() + case(inner) + case()) == {"a.one": verdict, "a.two": "pass"}


@pytest.mark.parametrize("cases", ["", case(), case() * 2, case() * 4])
def test_a_report_of_another_number_of_cells_is_believed_in_nothing(tmp_path, cases):
    assert read(tmp_path, cases) == {}


def test_a_report_that_is_missing_or_broken_is_believed_in_nothing(tmp_path):
    assert read(tmp_path, "<oops>") == {}
    (tmp_path / "junit.xml").unlink()
    assert nbval_route.verdicts(tmp_path / "graded.ipynb", tmp_path / "junit.xml") == {}
    assert nbval_route.run(tmp_path / "none.ipynb") == {}


def test_differences_are_told_in_words():
    entry = Entry("a", "x", "a/x.ipynb", verdicts={"x.one": "pass", "x.two": "wrong"})

    class Item:
        student, stem, path = "a", "x", "a/x.ipynb"
        marks = (type("M", (), {"id": "x.one", "verdict": "pass"}), type("M", (), {"id": "x.two", "verdict": "pass"}))

    assert nbval_route.differences([entry], [Item]) == ["a, x.two: nbval says wrong, the report pass"]
    other = Entry("a", "x", "a/x-1.ipynb", verdicts={"x.one": "wrong"})
    assert nbval_route.differences([other], [Item]) == [], "an attempt that does not count"
    assert nbval_route.differences([entry], []) == ["a, x: not in the report"]


def test_a_folder_without_an_index_says_how_to_make_one(tmp_path):
    with pytest.raises(ValueError, match="course graft FOLDER"):
        nbval_route.read_index(tmp_path)


def test_the_command_reads_no_configuration_of_the_submission(tmp_path):
    command = nbval_route.command(tmp_path / "graded.ipynb", tmp_path / "ours.ini", tmp_path / "junit.xml")
    text = " ".join(command)
    for part in (" -P ", "--nbval ", "--nbval-current-env", "--noconftest", f"-c {tmp_path}/ours.ini", "--rootdir"):
        assert part in text
