"""Notebooks as people hand them in: whatever an honest editor does to a file, the answers are found."""

import json

import pytest

from course import paths, sources
from course.authoring.build import solution_sources
from course.judging import feedback, judge
from course.judging.judge import Verdict
from course.notebooks import submission as submissions
from course.notebooks.submission import Unreadable
from course.specs import exercises

STEM = "transformer_block"
ITEMS = list(exercises(STEM))
FIRST = ITEMS[0]
SOURCES = solution_sources()


@pytest.fixture
def notebook():
    data = json.loads((paths.exercises() / f"03_{STEM}.ipynb").read_text(encoding="utf-8"))
    for cell in data["cells"]:
        if cell["metadata"]["course"]["role"] == "answer":
            cell["source"] = SOURCES[cell["metadata"]["course"]["key"]].splitlines(True)
    return data


def answers(data):
    return submissions.extract(data, "x", ITEMS).answers


def complete(data):
    found = answers(data)
    return all(found.get(item.id, "").strip() == SOURCES[item.id].strip() for item in ITEMS)


def as_string(data):
    for cell in data["cells"]:
        cell["source"] = "".join(cell["source"])


def without_ids(data):
    data["nbformat_minor"] = 0
    for cell in data["cells"]:
        cell.pop("id", None)


def without_metadata(data):
    for cell in data["cells"]:
        cell["metadata"] = {}
    data["metadata"] = {}


def without_both(data):
    without_ids(data)
    without_metadata(data)


def colab(data):
    without_ids(data)
    data["metadata"] = {"colab": {"provenance": []}}
    for number, cell in enumerate(data["cells"]):
        cell["metadata"] = {"id": f"x{number}"}


def new_ids(data):
    for number, cell in enumerate(data["cells"]):
        cell["id"] = f"c{number}"


def reordered(data):
    data["cells"].reverse()


def extra_cells(data):
    extra = {"cell_type": "code", "metadata": {}, "source": "x = 1", "outputs": [], "execution_count": 3}
    data["cells"] = [part for cell in data["cells"] for part in (dict(extra), cell)]


def crlf(data):
    for cell in data["cells"]:
        cell["source"] = "".join(cell["source"]).replace("\n", "\r\n")


def stub_copy_after(data):
    stub = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None,
            "source": f"# answer: {FIRST.id}\ndef f():\n    # YOUR CODE HERE\n    raise NotImplementedError()"}
    data["cells"].append(stub)


def blank_line_before_marker(data):
    for cell in data["cells"]:
        if cell["cell_type"] == "code":
            cell["source"] = "\n\n" + "".join(cell["source"])


def markers_lost_but_ids_kept(data):
    for cell in data["cells"]:
        cell["source"] = "".join(line for line in cell["source"] if not line.startswith("# answer:"))


@pytest.mark.parametrize(
    "change",
    [as_string, without_ids, without_metadata, without_both, colab, new_ids, reordered, extra_cells, crlf,
     stub_copy_after, blank_line_before_marker],
)
def test_answers_survive_every_editor(notebook, change):
    change(notebook)
    assert complete(notebook)


def test_markers_may_be_lost_when_ids_are_kept(notebook):
    markers_lost_but_ids_kept(notebook)
    assert set(answers(notebook)) == {item.id for item in ITEMS}


def test_without_any_mark_the_only_function_of_that_name_counts(notebook):
    markers_lost_but_ids_kept(notebook)
    without_both(notebook)
    assert FIRST.id in answers(notebook)


def test_of_two_answers_the_last_counts_with_a_warning(notebook):
    again = json.loads(json.dumps(next(c for c in notebook["cells"] if c["id"] == FIRST.cell_id)))
    again["source"].append("\n# second thoughts")
    notebook["cells"].append(again)
    found = submissions.extract(notebook, "x", ITEMS)
    assert "second thoughts" in found.answers[FIRST.id]
    assert any("last one counts" in warning for warning in found.warnings)


def test_an_answer_spread_over_cells_is_joined(notebook):
    index = next(i for i, c in enumerate(notebook["cells"]) if c["id"] == FIRST.cell_id)
    helper = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": 1,
              "source": "def helper(x):\n    return x"}
    notebook["cells"].insert(index + 1, helper)
    found = submissions.extract(notebook, "x", ITEMS)
    assert "def helper" in found.answers[FIRST.id]
    assert any("joined" in warning for warning in found.warnings)


def test_scratch_cells_after_an_answer_are_not_taken_for_it(notebook):
    index = next(i for i, c in enumerate(notebook["cells"]) if c["id"] == FIRST.cell_id)
    scratch = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": 1, "source": "print(1 / 0)"}
    notebook["cells"].insert(index + 1, scratch)
    assert complete(notebook)


def test_nbval_directives_in_an_answer_are_disarmed(notebook):
    for cell in notebook["cells"]:
        if cell.get("id") == FIRST.cell_id:
            cell["source"].append("\n# NBVAL_SKIP\n")
    assert "NBVAL_SKIP" not in answers(notebook)[FIRST.id]


def test_a_notebook_of_another_release_is_told_apart(notebook):
    notebook["metadata"]["course"]["release"] = "2019.1"
    found = submissions.extract(notebook, "x", ITEMS)
    assert complete(notebook)
    assert "release 2019.1" in found.warnings[0]
    assert len(found.warnings) == 1, "the same tasks: nothing else to say"


def of_release(notebook, release="2019.1"):
    notebook["metadata"]["course"]["release"] = release
    return notebook


def test_what_another_release_did_not_ask_is_named_with_the_way_out(notebook):
    notebook["metadata"]["course"]["cells"].remove(FIRST.cell_id)
    notebook["cells"] = [cell for cell in notebook["cells"] if not cell["id"].startswith(FIRST.cell_id)]
    assert submissions.extract(notebook, "x", ITEMS).warnings == []
    found = submissions.extract(of_release(notebook), "x", ITEMS)
    assert FIRST.id not in found.answers
    assert len(found.answers) == len(ITEMS) - 1
    assert f"{FIRST.id}: not in that release" in found.warnings[1]
    assert "course update" in found.warnings[-1]


def test_an_answer_to_an_exercise_that_is_no_more_is_named(notebook):
    notebook["metadata"]["course"]["cells"].append("transformer_block-gelu")
    found = submissions.extract(of_release(notebook), "x", ITEMS)
    assert complete(notebook)
    assert "transformer_block-gelu: no longer part of the course, not graded" in found.warnings[1]
    assert "course update" in found.warnings[-1]


def test_an_answer_to_another_signature_is_refused_with_the_way_out(notebook):
    cell = next(cell for cell in notebook["cells"] if cell["id"] == FIRST.cell_id)
    cell["metadata"]["course"]["signature"] = "attention(q, k)"
    assert complete(notebook), "of this release the manifest alone says what was asked"
    found = submissions.extract(of_release(notebook), "x", ITEMS)
    assert FIRST.id not in found.answers
    assert len(found.answers) == len(ITEMS) - 1
    assert f"asked for `attention(q, k)`, this one asks for `{FIRST.signature}`" in found.warnings[1]
    assert "course update" in found.warnings[-1]


def test_the_same_task_with_another_text_is_graded(notebook):
    cell = next(cell for cell in notebook["cells"] if cell["id"] == FIRST.cell_id)
    cell["metadata"]["course"]["stub"] = "0" * 64
    assert complete(of_release(notebook))


@pytest.mark.parametrize("value", [None, 7, ["x"], {"a": 1}, "x" * 100_000, "../../x\n[red]", "\ud800"])
def test_a_strange_release_is_no_way_in(notebook, value):
    notebook["metadata"]["course"].update(release=value, cells=value, stem=value)
    for cell in notebook["cells"]:
        cell["metadata"]["course"]["signature"] = value
    found = submissions.extract(notebook, "x", ITEMS)
    assert all(len(warning) < 2000 and "\n" not in warning for warning in found.warnings)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"   \n", "empty"),
        (b"{", "broken JSON"),
        (b"[1]", "not a notebook"),
        (b'{"nbformat": 3, "cells": []}', "format 3"),
        (b'{"nbformat": 5, "cells": []}', "format 5"),
        ("{\"name\": \"Müller\"}".encode("latin-1"), "not UTF-8"),
        (b"\xff\xfe{\x00}\x00", "not UTF-8"),
        (b"<<<<<<< HEAD\n{}\n=======", "conflict"),
        (b"[" * 100_000, "nested"),
    ],
)
def test_what_is_no_notebook_is_refused_with_a_reason(tmp_path, data, words):
    path = tmp_path / "x.ipynb"
    path.write_bytes(data)
    with pytest.raises(Unreadable, match=words):
        submissions.read(path)


def test_a_byte_order_mark_is_harmless(tmp_path, notebook):
    path = tmp_path / "x.ipynb"
    path.write_text(json.dumps(notebook), encoding="utf-8-sig")
    assert complete(submissions.read(path))


def test_links_folders_and_pipes_are_refused(tmp_path):
    import os

    target = tmp_path / "real.ipynb"
    target.write_text("{}")
    link = tmp_path / "link.ipynb"
    link.symlink_to(target)
    os.mkfifo(tmp_path / "pipe.ipynb")
    for path in (link, tmp_path, tmp_path / "pipe.ipynb", tmp_path / "absent.ipynb"):
        with pytest.raises(Unreadable):
            submissions.read(path)


def test_the_digest_does_not_change_when_a_notebook_is_saved_again(notebook):
    before = submissions.extract(notebook, "x", ITEMS).digest
    crlf(notebook)
    colab(notebook)
    assert submissions.extract(notebook, "x", ITEMS).digest == before


def test_a_helper_in_another_cell_is_told_to_be_moved_in(notebook):
    complete(notebook)
    data = notebook
    place = next(i for i, cell in enumerate(data["cells"]) if cell.get("id") == FIRST.cell_id)
    helper = "WIDE = 3\ndef helper():\n    pass"
    data["cells"].insert(place, {"cell_type": "code", "id": "mine", "metadata": {}, "source": helper})
    answer = submissions.extract(data, "x", ITEMS).answers[FIRST.id]
    assert {"WIDE", "helper"} <= answer.elsewhere
    verdict = Verdict("error", FIRST, error={"type": "NameError", "message": "name 'helper' is not defined", "line": 2,
                                             "name": "helper"}, note=judge.ELSEWHERE)
    assert "move helper into this cell" in feedback.text(verdict)
    assert "move helper into this cell" in feedback.after_grading(verdict)


@pytest.mark.parametrize("stub", [True, False])
def test_an_answer_without_its_marker_is_named_beside_the_marked_cell(notebook, stub):
    complete(notebook)
    if stub:
        marked = next(cell for cell in notebook["cells"] if cell.get("id") == FIRST.cell_id)
        begin = "    # YOUR CODE HERE\n    raise NotImplementedError()"
        marked["source"] = f"# answer: {FIRST.id}\ndef {FIRST.entry}():\n{begin}"
    notebook["cells"].append({"cell_type": "code", "id": "mine", "metadata": {},
                              "source": f"x = 1\ndef {FIRST.entry}(*args):\n    return 7"})
    found = submissions.extract(notebook, "x", ITEMS)
    (said,) = [text for text in found.warnings if FIRST.id in text]
    assert f"defines {FIRST.entry} too, without the line" in said
    assert ("still as it was given" in said) == stub
    assert found.answers[FIRST.id].is_stub == stub


def test_magics_and_checks_become_comments_line_for_line():
    text = ("%%time\n# answer: a.b\n%matplotlib inline\ndef f(x):\n    %time y = 1\n    return x\n!ls\n"
            "from course.check import check\ncheck('a.b')\n")
    found = sources.as_code(text)
    assert found.marked_id == "a.b"
    assert len(found.splitlines()) == len(text.splitlines())
    assert [line for line in found.splitlines() if not line.strip().startswith(("#", "pass"))] == [
        "def f(x):", "    return x"]
    assert found.tree is not None


@pytest.mark.parametrize("text", ["%%bash\nls", "%%html\n<b>", "x = (1 +\n% 2", "s = \"\"\"\n%time\n!x\n\"\"\"\n",
                                  "x = a\\\n% b"])
def test_what_is_another_language_or_plain_python_stays_as_it_is(text):
    assert sources.as_code(text) == text


def test_a_cell_with_several_markers_is_several_answers():
    cell = "%%time\nimport math\n# answer: a.b\nx = 1\n# answer: a.c\ny = 2\n"
    one, two = sources.split_at_markers(sources.Answer(cell))
    assert (one.marked_id, two.marked_id) == ("a.b", "a.c")
    assert one == "# answer: a.b\nimport math\nx = 1\n"
    assert two == "# answer: a.c\nimport math\ny = 2\n"


@pytest.mark.parametrize("above", ["", f"# answer: {FIRST.id}\n", "%time 1\n"])
def test_only_so_much_of_a_notebook_is_parsed(notebook, monkeypatch, above):
    """Whoever reads a class waits for each of its notebooks."""
    body = "".join(f"def f{number}(a):\n    return a\n" for number in range(1_000))
    stub = f"def {FIRST.entry}():\n    # YOUR CODE HERE\n    raise NotImplementedError()\n"
    right = notebook["cells"]
    notebook["cells"] = [*({"cell_type": "code", "metadata": {}, "source": f"{above}# {number}\n{body}{stub}"}
                           for number in range(200)), *right]
    parsed, parse = [], sources.parse
    monkeypatch.setattr(sources, "parse", lambda text: parsed.append(len(text)) or parse(text))
    found = submissions.extract(notebook, "x", ITEMS)
    assert all(found.answers[item.id].strip() == SOURCES[item.id].strip() for item in ITEMS)
    assert sum(parsed) < 3 * submissions.MOST_READ  # a text with magics is parsed twice
    assert any("more than 500,000 characters of code" in warning for warning in found.warnings)
    notebook["cells"] = right
    assert not submissions.extract(notebook, "x", ITEMS).warnings
