"""Where an exercise or a near-miss says "reread", the built book has that page and that anchor."""

import os
import re
from pathlib import Path

import pytest

from course.specs import exercises

pytestmark = pytest.mark.browser

HTML = Path(os.environ.get("COURSE_BOOK_HTML", "_build/html")).resolve()
SECTIONS = sorted({
    (item.id, section)
    for item in exercises()
    for section in (item.section, *(near_miss.section for near_miss in item.near_misses))
})


def anchors(page: Path) -> set[str]:
    return set(re.findall(r'\bid="([^"]+)"', page.read_text(encoding="utf-8")))


@pytest.mark.parametrize(("exercise", "section"), SECTIONS, ids=lambda part: part.replace("/", "-"))
def test_the_section_to_reread_exists(exercise, section):
    if not HTML.is_dir():
        pytest.fail(f"no built book at {HTML}: run make book first")
    name, _, anchor = section.partition("#")
    page = HTML / name
    assert page.is_file(), f"{exercise}: the book has no page {name}"
    assert anchor, f"{exercise}: {section} names no section of the page"
    found = anchors(page)
    assert anchor in found, f"{exercise}: {name} has no #{anchor}; its sections are {sorted(found)}"
