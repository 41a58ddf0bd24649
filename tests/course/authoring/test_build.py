import json

import nbformat
import pytest

from course.authoring import build
from course.authoring.build import AuthoringError
from course.chapters import file_stem
from course.specs import CHAPTERS, exercises


def test_solution_regions_are_cut_out_and_indentation_is_kept():
    source = "def f():\n    a = 1\n    ### BEGIN SOLUTION\n    return a\n    ### END SOLUTION"
    assert build.strip(source, "x").splitlines() == [
        "def f():", "    a = 1", "    # YOUR CODE HERE", "    raise NotImplementedError()",
    ]


@pytest.mark.parametrize("source", ["x", "### BEGIN SOLUTION", "### END SOLUTION",
                                    "### BEGIN SOLUTION\n### BEGIN SOLUTION\n### END SOLUTION"])
def test_broken_regions_are_refused(source):
    with pytest.raises(AuthoringError):
        build.strip(source, "x")


def notebooks(folder):
    return [json.loads((build.paths.root() / folder / f"{file_stem(stem)}.ipynb").read_text(encoding="utf-8"))
            for stem in CHAPTERS]


def test_no_solution_leaks_into_the_exercises():
    for notebook in notebooks("exercises"):
        text = json.dumps(notebook)
        assert build.BEGIN not in text
        for cell in notebook["cells"]:
            if cell["metadata"]["course"]["role"] == "answer":
                assert "raise NotImplementedError()" in "".join(cell["source"])


def test_every_exercise_has_one_answer_cell_and_one_check_cell_below():
    for stem, notebook in zip(CHAPTERS, notebooks("exercises")):
        cells = notebook["cells"]
        answers = [i for i, cell in enumerate(cells) if cell["metadata"]["course"]["role"] == "answer"]
        assert [cells[i]["id"] for i in answers] == [item.cell_id for item in exercises(stem)]
        for i, item in zip(answers, exercises(stem)):
            assert "".join(cells[i + 1]["source"]) == f'check("{item.id}")'
            assert cells[i + 1]["metadata"]["nbgrader"]["points"] == item.points


def test_only_check_cells_of_solutions_keep_outputs():
    for folder in ("exercises", "solutions"):
        for notebook in notebooks(folder):
            nbformat.validate(nbformat.from_dict(notebook))
            for cell in notebook["cells"]:
                if cell["cell_type"] == "code":
                    kept = folder == "solutions" and cell["metadata"]["course"]["role"] == "check"
                    assert bool(cell["outputs"]) == kept


def test_nothing_tells_which_python_built_them():
    for folder in ("exercises", "solutions"):
        for notebook in notebooks(folder):
            assert notebook["metadata"]["language_info"] == {"name": "python"}


def test_nbgrader_metadata_is_pure_and_ids_agree():
    allowed = {"schema_version", "grade_id", "solution", "grade", "locked", "task", "cell_type", "checksum", "points"}
    for notebook in notebooks("exercises"):
        for cell in notebook["cells"]:
            if "nbgrader" in cell["metadata"]:
                assert set(cell["metadata"]["nbgrader"]) <= allowed
                assert cell["metadata"]["nbgrader"]["grade_id"] == cell["id"]


def test_the_manifest_lists_what_counts():
    manifest = json.loads((build.paths.exercises() / "manifest.json").read_text(encoding="utf-8"))
    listed = [entry["id"] for notebook in manifest["notebooks"].values() for entry in notebook["exercises"]]
    assert listed == [item.id for item in exercises()]


def test_one_chapter_is_built_without_the_others(tmp_path):
    products = build.build(out=tmp_path, execute=False, only="kv_cache")
    assert {str(path) for path in products} == {"solutions/04_kv_cache.ipynb", "exercises/04_kv_cache.ipynb",
                                                "exercises/manifest.json"}
    made = tmp_path / "exercises"
    for name in ("04_kv_cache.ipynb", "manifest.json"):
        assert (made / name).read_bytes() == (build.paths.exercises() / name).read_bytes()


def test_a_task_without_its_exercise_is_named_with_its_file(tmp_path):
    source = (build.paths.solutions() / "04_kv_cache.py").read_text(encoding="utf-8")
    wrong = tmp_path / "04_kv_cache.py"
    wrong.write_text(source.replace('key="kv_cache.cost-task"', 'key="costs-task"'), encoding="utf-8")
    with pytest.raises(build.AuthoringError, match=r"04_kv_cache.py, cell 'costs-task': the key of a task"):
        build.make(wrong, "kv_cache")
