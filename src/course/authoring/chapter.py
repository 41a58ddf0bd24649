"""`course new-chapter STEM`: the stubs of all files that a chapter has, each at its place, with an example that runs.

The example (one exercise, one drawing, one function) is proved and tested as it is written; what the page lacks is said
by the build, rule by rule, until the chapter is written.
"""

from __future__ import annotations

import functools
from pathlib import Path

import yaml

from course import paths
from course.chapters import CHAPTERS, Chapter, chapter

FILES = {  # template -> place, by stem and by name of files
    "page.md.jinja": "book/{name}.md",
    "solution.py.jinja": "solutions/{name}.py",
    "module.py.jinja": "src/llm_internals/{stem}.py",
    "spec_package.py.jinja": "src/course/specs/{stem}/__init__.py",
    "spec_shared.py.jinja": "src/course/specs/{stem}/shared.py",
    "spec.py.jinja": "src/course/specs/{stem}/first.py",
    "in_model.py.jinja": "src/course/check/in_model/{stem}.py",
    "drawings.py.jinja": "src/course/book/drawings/{stem}.py",
    "test_module.py.jinja": "tests/llm_internals/test_{stem}.py",
    "test_drawings.py.jinja": "tests/course/book/test_drawings_{stem}.py",
}
TOC = "book/_toc.yml"


@functools.cache
def _templates():
    import jinja2

    folder = jinja2.FileSystemLoader(Path(__file__).with_name("templates"))
    return jinja2.Environment(loader=folder, undefined=jinja2.StrictUndefined, keep_trailing_newline=True)


def write(stem: str) -> list[Path]:
    """Write what is missing and return it, the table of contents last. Nothing that is there is touched.

    Raises ValueError for a stem that no chapter of the course has.
    """
    made, new = chapter(stem), []
    for name, place in FILES.items():
        path = paths.root() / place.format(name=made.name, stem=made.stem)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_templates().get_template(name).render(chapter=made), encoding="utf-8")
            new.append(path)
    if enter(paths.root() / TOC, made):
        new.append(paths.root() / TOC)
    return new


def enter(toc: Path, made: Chapter) -> bool:
    """Enter a chapter into the table of contents, at its place; False when it is there."""
    table = yaml.safe_load(toc.read_text(encoding="utf-8"))
    names = [entry["file"] for part in table["parts"] for entry in part["chapters"]]
    if made.name in names:
        return False
    order = [each.name for each in CHAPTERS.values()]
    part = next((part for part in table["parts"] if part["caption"] == made.part), None)
    if part is None:
        part = {"caption": made.part, "chapters": []}
        captions = list(dict.fromkeys(each.part for each in CHAPTERS.values()))
        before = [one["caption"] for one in table["parts"] if one["caption"] in captions[: captions.index(made.part)]]
        table["parts"].insert(len(before), part)
    part["chapters"].append({"file": made.name})
    part["chapters"].sort(key=lambda entry: order.index(entry["file"]))
    toc.write_text(yaml.safe_dump(table, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return True
