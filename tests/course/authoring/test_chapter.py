"""A new chapter's stubs lie where all chapters have their files, and run as they are written."""

import os
import shutil
import subprocess
import sys

import pytest
import yaml

from course import paths
from course.authoring import chapter as chapters
from course.chapters import CHAPTERS, chapter

NEW = "sampling_stub"
# The primer teaches Triton, not a part of the library or of the model.
LESS = {("triton_primer", place) for place in chapters.FILES.values() if "internals" in place or "in_model" in place}


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A course with one chapter more than this one, its stubs written by the command."""
    root = tmp_path_factory.mktemp("course")
    for name in ("src", "book", "solutions", "tests/course/book", "tests/llm_internals"):
        shutil.copytree(paths.root() / name, root / name,
                        ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "_build", "vendor"))
    for name in ("_config.yml", "requirements.txt", "pyproject.toml"):
        shutil.copyfile(paths.root() / name, root / name)
    (root / "exercises").mkdir()
    listed = root / "src" / "course" / "chapters.py"
    text = listed.read_text(encoding="utf-8")
    entry = f'        Chapter("16", "{NEW}", "A new chapter", CHOOSING, ""),\n    )\n'
    listed.write_text(text.replace("    )\n}", f"{entry}}}"), encoding="utf-8")
    return root


def run(root, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(root / "src"), "COURSE_ROOT": str(root), "COLUMNS": "200"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)


def test_the_stubs_are_written_proved_and_tested(copy):
    done = run(copy, "-m", "course.cli", "new-chapter", NEW)
    assert done.returncode == 0, done.stderr
    made = [line for line in done.stdout.splitlines() if line.startswith(str(copy))]
    assert len(made) == len(chapters.FILES) + 1
    again = run(copy, "-m", "course.cli", "new-chapter", NEW)
    assert str(copy) not in again.stdout
    built = run(copy, "-c", "from course.authoring.build import build; build(execute=False)")
    assert built.returncode == 0, built.stderr
    proof = run(copy, "-m", "course.cli", "proof", NEW)
    assert proof.returncode == 0, proof.stdout + proof.stderr
    assert "3 near-misses" in proof.stdout
    tests = [f"tests/llm_internals/test_{NEW}.py", f"tests/course/book/test_drawings_{NEW}.py"]
    tested = run(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert "2 passed" in tested.stdout
    table = yaml.safe_load((copy / "book" / "_toc.yml").read_text(encoding="utf-8"))
    assert [[entry["file"] for entry in part["chapters"]] for part in table["parts"]
            if part["caption"] == "Choosing the next token"] == [[f"16_{NEW}"]]


def test_the_page_is_not_taken_for_written(copy):
    """The build names what is missing, and nothing that the stub already has."""
    code = ("from course.book.template import faults; import sys; "
            "print(*faults(open(sys.argv[1]).read(), minutes=10), sep='\\n')")
    run(copy, "-m", "course.cli", "new-chapter", NEW)
    said = run(copy, "-c", code, str(copy / "book" / f"16_{NEW}.md"))
    assert said.returncode == 0, said.stderr
    assert "two or three bugs" in said.stdout
    assert "five points" in said.stdout
    assert len(said.stdout.splitlines()) == 2, said.stdout


def test_a_stem_that_nobody_registered_is_refused():
    done = run(paths.root(), "-m", "course.cli", "new-chapter", "kv_cash")
    assert done.returncode == 2
    assert "there is no chapter 'kv_cash'" in done.stderr


def test_every_written_chapter_has_the_files_that_a_new_one_gets():
    """But for names of their own: `first` is the example's."""
    for made in CHAPTERS.values():
        if made.written:
            for place in chapters.FILES.values():
                if "first.py" not in place:
                    path = paths.root() / place.format(name=made.name, stem=made.stem)
                    assert path.exists() or (made.stem, place) in LESS, path


def test_the_table_of_contents_follows_the_list_of_chapters():
    table = yaml.safe_load((paths.root() / "book" / "_toc.yml").read_text(encoding="utf-8"))
    entries = [(part["caption"], entry["file"]) for part in table["parts"] for entry in part["chapters"]]
    known = {made.name: made for made in CHAPTERS.values()}
    chapters_there = [(caption, known[name]) for caption, name in entries if name in known]
    assert [made for _, made in chapters_there] == [made for made in CHAPTERS.values() if made.written]
    assert all(caption == made.part for caption, made in chapters_there)


def test_chapters_are_found_by_stem_and_by_name():
    assert chapter("kv_cache") is chapter("04_kv_cache")
    with pytest.raises(ValueError, match="there are tokenization"):
        chapter("nothing")
