"""Where a learner stands: counts, the next suggestion, and both ways of showing them."""

import importlib.util

from course.chapters import file_stem
from course.check import progress, standing, status
from course.check.progress import record
from course.specs import exercises


def noted(folder, **marks):
    for name, passed in marks.items():
        record(name.replace("__", "."), "x", passed, "" if passed else "wrong values", folder)
    return standing.status(folder)


def solve(folder, stem, core=None):
    for item in exercises(stem):
        if core is None or item.core == core:
            record(item.id, "x", True, "", folder)


def test_counts_keep_core_and_extra_apart(tmp_path):
    now = noted(tmp_path, transformer_block__attention=True, transformer_block__swiglu=True,
                transformer_block__rope=False)
    chapter = next(chapter for chapter in now.chapters if chapter.stem == "transformer_block")
    core = [item for item in exercises("transformer_block") if item.core]
    assert standing.solved(chapter.part(True)) == (1, len(core))
    assert standing.points(chapter.part(True)) == (3, sum(item.points for item in core))
    assert standing.solved(chapter.part(False))[0] == 1
    assert chapter.tried == 3
    assert [chapter.stem for chapter in now.chapters if chapter.begun] == ["transformer_block"]


def test_first_the_chapter_begun_then_those_that_follow_then_the_extra_ones(tmp_path):
    assert standing.suggestion(standing.status(tmp_path).chapters).id == "tokenization.train"
    noted(tmp_path, transformer_block__swiglu=True)
    assert standing.suggestion(standing.status(tmp_path).chapters).id == "transformer_block.attention"
    solve(tmp_path, "transformer_block", core=True)
    assert standing.suggestion(standing.status(tmp_path).chapters).id == "kv_cache.generate_naive"
    solve(tmp_path, "kv_cache", core=True)
    assert standing.suggestion(standing.status(tmp_path).chapters).id == "tokenization.train"
    solve(tmp_path, "tokenization", core=True)
    following = standing.status(tmp_path)
    assert not standing.suggestion(following.chapters).core
    assert "all core exercises are solved" in repr(following)


def test_without_triton_no_kernel_is_suggested(tmp_path, monkeypatch):
    for item in exercises():
        if item.track != "kernel":
            record(item.id, "x", True, "", tmp_path)
    assert standing.suggestion(standing.status(tmp_path).chapters).track == "kernel"
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "triton" else found(name))
    assert standing.suggestion(standing.status(tmp_path).chapters) is None
    assert "all exercises are solved" not in repr(standing.status(tmp_path))


def test_all_solved_says_so(tmp_path):
    for item in exercises():
        record(item.id, "x", True, "", tmp_path)
    assert "all exercises are solved" in repr(standing.status(tmp_path))


def test_both_forms_say_the_same(tmp_path):
    now = noted(tmp_path, kv_cache__cost=False, transformer_block__rms_norm=True)
    record("transformer_block.rms_norm", "y", False, "it subtracts <b>the mean</b>", tmp_path)
    now = standing.status(tmp_path)
    plain, markup = repr(now), now._repr_html_()
    for words in ("kv_cache.cost", "wrong values", "solved before", file_stem("kv_cache"), "next: "):
        assert words in plain
        assert words in markup
    assert "it subtracts <b>the mean</b>" in plain
    assert "&lt;b&gt;the mean&lt;/b&gt;" in markup
    assert max(map(len, plain.partition("\nnext: ")[0].splitlines())) <= standing.WIDTH


def test_a_damaged_file_is_told_in_both_forms(tmp_path):
    (tmp_path / progress.FILE).write_text("{broken")
    now = standing.status(tmp_path)
    assert "is damaged" in repr(now)
    assert "is damaged" in now._repr_html_()


def test_a_notebook_outside_the_course_is_told_where_to_go(monkeypatch):
    def nowhere():
        raise FileNotFoundError("no course folder found: run this inside a clone of the course")

    monkeypatch.setattr(progress.paths, "work", nowhere)
    assert "no course folder found" in repr(status())


