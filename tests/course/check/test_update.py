"""Updating a learner's notebook: whatever the release changed and the learner did, no answer and no cell is lost."""

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course import paths
from course.authoring.build import solution_sources
from course.check import progress, update
from course.notebooks import editions
from course.notebooks import submission as submissions
from course.sources import Answer
from course.specs import exercises
from course.specs.exercise import substitute

STEM, NAME = "kv_cache", "04_kv_cache.ipynb"
ITEMS = list(exercises(STEM))
SOURCES = solution_sources()
PRISTINE = json.loads((paths.exercises() / NAME).read_text(encoding="utf-8"))
FIRST = ITEMS[0]


def find(notebook, name):
    return next(cell for cell in notebook["cells"] if cell.get("id") == name)


def write(notebook, name, source):
    find(notebook, name)["source"] = source.splitlines(True)


def own(source, kind="code", **more):
    name = f"own-{Answer(source).digest[:8]}"
    cell = {"cell_type": kind, "id": name, "metadata": {}, "source": source.splitlines(True)}
    return {**cell, **({"outputs": [], "execution_count": 7} if kind == "code" else {}), **more}


def insert_after(notebook, name, cell):
    notebook["cells"].insert(notebook["cells"].index(find(notebook, name)) + 1, cell)


def solved(notebook=PRISTINE):
    mine = copy.deepcopy(notebook)
    for item in ITEMS:
        if any(cell.get("id") == item.cell_id for cell in mine["cells"]):
            write(mine, item.cell_id, SOURCES[item.id])
    return mine


def restub(cell):
    cell["metadata"]["course"]["stub"] = Answer("".join(cell["source"])).digest


def next_release():
    """The released notebook with a text mended, a cell new, a cell gone."""
    new = copy.deepcopy(PRISTINE)
    new["metadata"]["course"]["release"] = "2027.1"
    title = find(new, "title")
    title["source"] = ["# A better title"]
    restub(title)
    fresh = {"cell_type": "markdown", "id": "fresh", "source": ["A new text."],
             "metadata": {"course": {"v": 1, "role": "text", "key": "fresh", "stub": Answer("A new text.").digest}}}
    insert_after(new, "setup", fresh)
    new["cells"].remove(find(new, "predict-text"))
    return new


def texts(notebook):
    return [submissions.source_of(cell) for cell in notebook["cells"]]


def answers(notebook):
    return submissions.extract(notebook, "", ITEMS).answers


def test_nothing_to_do_is_told_and_touches_nothing(tmp_path):
    path = tmp_path / NAME
    mine = solved()
    insert_after(mine, "setup", own("x = 1"))
    path.write_text(json.dumps(mine))
    before = path.read_bytes()
    done = update.update_file(path, paths.exercises() / NAME, ITEMS)
    assert done.says() == "up to date"
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_new_cells_come_and_answers_stay():
    done = update.merge(solved(), next_release(), ITEMS)
    assert answers(done.notebook) == answers(solved())
    assert "A new text." in texts(done.notebook)
    assert "# A better title" in texts(done.notebook)
    assert all(cell.get("id") != "predict-text" for cell in done.notebook["cells"])
    says = done.says()
    for words in (f"{len(ITEMS)} answers kept", "new: fresh", "1 cell of the course mended"):
        assert words in says, says
    assert update.merge(done.notebook, next_release(), ITEMS).says() == "up to date"


def test_the_learners_own_cells_stand_where_they_stood():
    mine = solved()
    mine["cells"].insert(0, own("# my notes", "markdown"))
    insert_after(mine, "predict-text", own("before_the_removed = 1"))
    insert_after(mine, f"{FIRST.cell_id}-check", own("print('after the check')"))
    write(mine, "end", "".join(find(mine, "end")["source"]) + "\n\nMy own summary.")
    done = update.merge(mine, next_release(), ITEMS)
    found = texts(done.notebook)
    assert found[0] == "# my notes"
    at = found.index("print('after the check')")
    assert found[at - 1] == f'check("{FIRST.id}")'
    assert "before_the_removed = 1" in found
    assert any(text.endswith("My own summary.") for text in found), "an edited text of the course is the learner's"
    assert done.own_cells == 4
    assert len({cell["id"] for cell in done.notebook["cells"]}) == len(done.notebook["cells"])


def test_a_prediction_stays_as_it_was_written():
    mine = solved()
    cell = next(cell for cell in mine["cells"] if "".join(cell["source"]).startswith("predict("))
    text = "".join(cell["source"]).replace("...", "12345")
    assert "12345" in text
    cell["source"] = text.splitlines(True)
    done = update.merge(mine, next_release(), ITEMS)
    assert [source for source in texts(done.notebook) if source.startswith("predict(")].count(text) == 1


def test_outputs_of_what_did_not_change_stay():
    mine = solved()
    output = [{"output_type": "stream", "name": "stdout", "text": ["mine\n"]}]
    find(mine, FIRST.cell_id)["outputs"] = output
    assert find(update.merge(mine, next_release(), ITEMS).notebook, FIRST.cell_id)["outputs"] == output


def test_a_task_that_changed_keeps_the_answer_and_shows_the_new_stub(tmp_path):
    new = next_release()
    stub = find(new, FIRST.cell_id)
    text = "".join(stub["source"]).replace("raise NotImplementedError()", "raise NotImplementedError()  # now faster")
    stub["source"] = text.splitlines(True)
    restub(stub)
    done = update.merge(solved(), new, ITEMS)
    assert done.changed == [FIRST.id]
    assert f"the task of {FIRST.id} changed" in done.says()
    assert answers(done.notebook)[FIRST.id] == SOURCES[FIRST.id]
    note = find(done.notebook, f"{FIRST.cell_id}-note")
    assert "# now faster" in "".join(note["source"])
    assert update.merge(done.notebook, new, ITEMS).says() == "up to date"
    later = copy.deepcopy(new)
    later["metadata"]["course"]["release"] = "2027.2"
    assert all(cell["id"] != note["id"] for cell in update.merge(done.notebook, later, ITEMS).notebook["cells"])
    progress.record(FIRST.id, "x", True, "", tmp_path)
    progress.reopen(done.changed, "the task changed", tmp_path)
    assert progress.read(tmp_path).entries[FIRST.id]["solved"] is False
    assert progress.read(tmp_path).entries[FIRST.id]["was_solved"] is True


def test_an_exercise_that_is_no_more_keeps_its_answer_as_an_own_cell():
    new = next_release()
    last = ITEMS[-1]
    new["cells"] = [cell for cell in new["cells"] if cell["metadata"]["course"]["key"].split("-")[0] != last.id]
    done = update.merge(solved(), new, ITEMS[:-1])
    assert done.gone == [last.id]
    assert SOURCES[last.id].strip() in {text.strip() for text in texts(done.notebook)}
    assert f"{last.id} is no longer part of the course" in done.says()


def test_an_exercise_that_is_new_comes_as_a_stub():
    old = copy.deepcopy(PRISTINE)
    last = ITEMS[-1]
    old["cells"] = [cell for cell in old["cells"] if cell["metadata"]["course"]["key"].split("-")[0] != last.id]
    done = update.merge(solved(old), PRISTINE, ITEMS)
    assert last.id in done.new
    assert answers(done.notebook)[last.id] == submissions.source_of(find(PRISTINE, last.cell_id))


def lose_metadata(mine):
    for cell in mine["cells"]:
        cell["metadata"] = {}
    mine["metadata"] = {"kernelspec": {"name": "mine", "display_name": "Mine", "language": "python"}}


def lose_ids(mine):
    mine["nbformat_minor"] = 4
    for cell in mine["cells"]:
        cell.pop("id", None)


def lose_both(mine):
    lose_metadata(mine)
    lose_ids(mine)


def lose_markers_too(mine):
    for item in ITEMS:
        write(mine, item.cell_id, SOURCES[item.id].partition("\n")[2])
    lose_both(mine)


def answer_twice(mine):
    insert_after(mine, "setup", own(SOURCES[FIRST.id] + "\n# an earlier try"))


def split(mine):
    source = SOURCES[FIRST.id]
    write(mine, FIRST.cell_id, source)
    insert_after(mine, FIRST.cell_id, own("def helper():\n    return 1"))


def copied(mine):
    cell = copy.deepcopy(find(mine, FIRST.cell_id))
    cell["id"] = "copied"
    insert_after(mine, f"{FIRST.cell_id}-check", cell)


def bad_ids(mine):
    insert_after(mine, "setup", own("x = 1", id="../../x"))
    insert_after(mine, "setup", own("y = 1", id="title"))


def surrogate(mine):
    insert_after(mine, "setup", own("text = '\ud800'"))


@pytest.mark.parametrize("saved", [lose_metadata, lose_ids, lose_both, lose_markers_too, answer_twice, split, copied,
                                   bad_ids, surrogate])
def test_whatever_an_editor_did_the_answers_and_own_cells_stay(tmp_path, saved):
    mine = solved()
    saved(mine)
    path, new = tmp_path / NAME, tmp_path / "new.ipynb"
    path.write_text(json.dumps(mine))
    new.write_text(json.dumps(next_release()))
    expected = {key: update._unmarked(source) for key, source in answers(mine).items()}
    done = update.update_file(path, new, ITEMS)
    after = json.loads(path.read_text())
    assert {key: update._unmarked(source) for key, source in answers(after).items()} == expected
    assert "A new text." in texts(after)
    for cell in mine["cells"]:
        if str(cell.get("id", "")).startswith("own-"):
            assert submissions.source_of(cell) in texts(after)
    assert done.backup.read_text() == json.dumps(mine)
    assert not done.backup.name.endswith(".ipynb")
    assert update.update_file(path, new, ITEMS).says() == "up to date"


def test_a_learner_with_constants_of_their_own_keeps_them(tmp_path):
    items, name = list(exercises("transformer_block")), "03_transformer_block.ipynb"
    rope = next(item for item in items if item.id == "transformer_block.rope")
    released = json.loads((paths.exercises() / name).read_text(encoding="utf-8"))
    mine = editions.with_constants(copy.deepcopy(released), {rope.id: {"THETA": 20_000.0}})
    path, new = tmp_path / name, tmp_path / "new.ipynb"
    path.write_text(json.dumps(mine))
    new.write_text(json.dumps(released))
    assert update.update_file(path, new, items).says() == "up to date"
    assert update.behind(tmp_path, paths.exercises()) == []
    write(mine, rope.cell_id, substitute(SOURCES[rope.id], {"THETA": 20_000.0}))
    path.write_text(json.dumps(mine))
    released["metadata"]["course"]["release"] = "2027.1"
    new.write_text(json.dumps(released))
    done = update.update_file(path, new, items)
    assert (done.answers, done.own_cells, done.changed) == (1, 0, [])
    after = json.loads(path.read_text())
    assert editions.of_notebook(after, rope) == {"THETA": 20_000.0}
    assert f'check("{rope.id}", THETA=20_000.0)' in texts(after)
    assert "THETA = 20_000.0" in submissions.source_of(find(after, rope.cell_id))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_no_own_cell_and_no_answer_is_ever_lost(data):
    """Cells moved, removed, copied and added at random: what is the learner's is there afterwards, whatever else."""
    mine = solved()
    for number in range(data.draw(st.integers(0, 6))):
        at = data.draw(st.integers(0, len(mine["cells"])))
        text = data.draw(st.sampled_from(["x = 1", "def helper(a):\n    return a", "print(2)", "# a note"]))
        kind = data.draw(st.sampled_from(["code", "markdown"]))
        mine["cells"].insert(at, own(f"{text}\n# own {number}", kind))
    for _ in range(data.draw(st.integers(0, 4))):
        action = data.draw(st.sampled_from(["remove", "move", "copy"]))
        cell = mine["cells"][data.draw(st.integers(0, len(mine["cells"]) - 1))]
        if action == "remove" and "# own" not in "".join(cell["source"]):
            mine["cells"].remove(cell)
        elif action == "move":
            mine["cells"].remove(cell)
            mine["cells"].insert(data.draw(st.integers(0, len(mine["cells"]))), cell)
        elif action == "copy":
            mine["cells"].append(copy.deepcopy(cell))
    if data.draw(st.booleans()):
        lose_metadata(mine)
    expected = {key: update._unmarked(source) for key, source in answers(mine).items()}
    try:
        done = update.merge(mine, next_release(), ITEMS)
    except update.CannotUpdate:  # an order of cells in which an answer would become another one
        return
    after = {key: update._unmarked(source) for key, source in answers(done.notebook).items()}
    assert {key: after[key] for key in expected if "NotImplementedError" not in expected[key]} == {
        key: source for key, source in expected.items() if "NotImplementedError" not in source}
    own_before = sorted(text for text in texts(mine) if "# own" in text)
    assert sorted(text for text in texts(done.notebook) if "# own" in text) == own_before


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"{broken", "broken JSON"), (b"", "empty"), (b'{"nbformat": 3, "cells": []}', "format 3"),
     (b'{"nbformat": 4, "cells": [1, 2]}', "cells that are no cells"),
     (b'{"nbformat": 4, "cells": [{"cell_type": "nonsense", "source": "x"}]}', "not a valid notebook")],
)
def test_what_cannot_be_read_is_left_alone(tmp_path, content, words):
    path = tmp_path / NAME
    path.write_bytes(content)
    with pytest.raises(update.CannotUpdate, match="left alone") as error:
        update.update_file(path, paths.exercises() / NAME, ITEMS)
    assert words in str(error.value)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_a_notebook_saved_meanwhile_is_left_alone(tmp_path, monkeypatch):
    path, new = tmp_path / NAME, tmp_path / "new.ipynb"
    path.write_text(json.dumps(solved()))
    new.write_text(json.dumps(next_release()))
    kept = update._back_up

    def slow(*arguments):
        path.write_text(json.dumps(PRISTINE))
        return kept(*arguments)

    monkeypatch.setattr(update, "_back_up", slow)
    with pytest.raises(update.CannotUpdate, match="saved while it was being updated"):
        update.update_file(path, new, ITEMS)
    assert json.loads(path.read_text()) == PRISTINE


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path, new = tmp_path / NAME, tmp_path / "new.ipynb"
    path.write_text(json.dumps(solved()))
    new.write_text(json.dumps(next_release()))
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(update, "_back_up", full)
    with pytest.raises(update.CannotUpdate, match="No space left on device"):
        update.update_file(path, new, ITEMS)
    assert path.read_bytes() == before
    assert sorted(tmp_path.iterdir()) == [path, new]
