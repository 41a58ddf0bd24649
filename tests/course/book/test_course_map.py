"""The map: every chapter once, links only to what exists, the reader's own chapter lit."""

import re
from pathlib import Path

import pytest
import yaml

from course.book.course_map import BETWEEN, ROWS, extent, large, minutes, small, with_map
from course.chapters import CHAPTERS

NAMES = [chapter.name for chapter in CHAPTERS.values()]
SOME = {"01_tokenization": "01_tokenization.html", "04_kv_cache": "04_kv_cache.html"}


def test_every_chapter_stands_on_the_map_once():
    stems = [stem for _, _, row in ROWS for stem in row]
    assert sorted(stems) == sorted(CHAPTERS)
    assert len(BETWEEN) == len(ROWS[0][2]) - 1


@pytest.mark.parametrize("draw", [large, lambda links: small("04_kv_cache", links)], ids=["large", "small"])
def test_links_lead_to_written_chapters_only(draw):
    html = draw(SOME)
    assert set(re.findall(r'href="([^"]+)"', html)) <= set(SOME.values())
    assert html.count("<svg") == html.count('role="group" aria-label="')
    coming = html.count('class="map-box map-coming"')
    layouts = html.count("<svg")
    assert coming == layouts * (len(CHAPTERS) - len(SOME))


def test_all_written_leaves_nothing_coming():
    html = large({name: f"{name}.html" for name in NAMES})
    assert "coming" not in html
    assert all(html.count(f'href="{name}.html"') == 3 for name in NAMES), "wide, narrow, in words"


@pytest.mark.parametrize("name", NAMES)
def test_a_page_lights_its_own_part(name):
    html = small(name, {other: f"{other}.html" for other in NAMES})
    chapter = next(chapter for chapter in CHAPTERS.values() if chapter.name == name)
    assert re.findall(r'map-lit" role="img" aria-label="You are here: ([^"]+)"', html) == [
        f"{chapter.number} {chapter.title}".strip()
    ]
    assert f'href="{name}.html"' not in html


def test_the_map_stands_below_the_title():
    body = with_map("<section><h1>Title</h1><p>Text</p><h1>Other</h1></section>", "04_kv_cache", SOME)
    assert body.startswith("<section><h1>Title</h1><nav ")
    assert body.count("<nav") == 1
    assert with_map("<p>none</p>", "04_kv_cache", SOME) == "<p>none</p>"


def test_no_text_is_small_and_titles_fit_their_boxes():
    html = large({}) + small("04_kv_cache", {})
    assert min(float(size) for size in re.findall(r'font-size="([\d.]+)"', html)) >= 11


def test_the_map_says_how_much_is_written_and_how_long_it_takes():
    page = "**Time:** 30 minutes to read, and more."
    said = extent({"01_tokenization": page, "triton_primer": page})
    assert said.startswith("1 of 15 chapters are written, and “First kernels”: about 3 hours"), said
    assert minutes(CHAPTERS["tokenization"], page) == 30 + 65
    with pytest.raises(ValueError, match="does not say"):
        minutes(CHAPTERS["tokenization"], "soon")


def test_the_table_of_contents_is_in_the_order_of_teaching_and_shows_the_numbers():
    table = yaml.safe_load((Path(__file__).parents[3] / "book" / "_toc.yml").read_text(encoding="utf-8"))
    rows = [(part["caption"], row) for part in table["parts"] for row in part["chapters"]]
    of_chapters = [(caption, row) for caption, row in rows if row["file"] in NAMES]
    assert [row["file"] for _, row in of_chapters] == [c.name for c in CHAPTERS.values() if c.written]
    for caption, row in of_chapters:
        chapter = next(c for c in CHAPTERS.values() if c.name == row["file"])
        assert caption == chapter.part
        assert row.get("title", chapter.title) == f"{chapter.number} {chapter.title}".strip()
