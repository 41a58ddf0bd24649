"""The front page, the map and the ledger in a real browser; see test_browser.py for what it needs."""

import os
import re
import shutil
from pathlib import Path

import pytest

pytestmark = pytest.mark.browser

HTML = Path(os.environ.get("COURSE_BOOK_HTML", "_build/html")).resolve()
CHROMIUM = os.environ.get("COURSE_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def browser():
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        sync_playwright = None
    if sync_playwright is None or CHROMIUM is None:
        why = "needs Chromium and playwright: apt-get install chromium; pip install playwright"
        pytest.fail(why) if os.environ.get("CI") else pytest.skip(why)
    if not (HTML / "intro.html").is_file():
        pytest.fail(f"no built book at {HTML}: run make book first")
    with sync_playwright() as play:
        running = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def visit(browser):
    opened = []

    def run(name, width=1400, height=900, motion="reduce"):
        context = browser.new_context(viewport={"width": width, "height": height}, reduced_motion=motion)
        opened.append(context)
        page = context.new_page()
        page.goto((HTML / name).as_uri())
        page.wait_for_load_state("load")
        return page

    yield run
    for context in opened:
        context.close()


def test_the_front_page_plays_an_answer_by_its_clock(visit):
    page = visit("intro.html", motion="no-preference")
    figure = page.locator(".cf-play[data-kind=enter]")
    said = figure.locator(".cf-says")
    bars = figure.locator("svg text", has_text="%")
    assert bars.count() == 5, "the first frame is full"
    assert float(page.evaluate("getComputedStyle(document.querySelector('[data-kind=enter] svg rect')).opacity")) == 1
    first = said.text_content()
    figure.get_by_role("button", name="A tale").click()
    assert said.text_content() != first
    figure.get_by_role("button", name="Press Enter").click()
    page.wait_for_function("s => s.textContent.startsWith('Prefill:')", arg=said.element_handle())
    page.wait_for_function("s => s.textContent.startsWith('Decode')", arg=said.element_handle(), timeout=30_000)
    figure.get_by_role("button", name="Stop").click()
    assert figure.get_by_role("button", name="Press Enter").count() == 1


def test_the_second_choice_leads_elsewhere_by_button_and_by_bar(visit):
    page = visit("intro.html")
    figure = page.locator(".cf-play[data-kind=enter]")
    boxes = lambda: figure.locator("svg text.cf-mono").all_text_contents()  # noqa: E731
    slider = figure.locator("input[type=range]")
    slider.focus()
    page.keyboard.press("End")
    answer = boxes()
    page.keyboard.press("Home")
    figure.get_by_role("button", name=re.compile("instead")).click()
    assert figure.locator(".cf-says").text_content().startswith("You took the second choice")
    slider.focus()
    page.keyboard.press("End")
    other = boxes()
    assert other != answer
    page.keyboard.press("Home")
    figure.get_by_role("button", name=re.compile("Back to")).click()
    slider.focus()
    page.keyboard.press("End")
    assert boxes() == answer
    page.keyboard.press("Home")
    box = figure.locator("svg rect[stroke='var(--fig-ink)']").bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert figure.locator(".cf-says").text_content().startswith("You took the second choice")
    slider.focus()
    page.keyboard.press("End")
    assert boxes() == other


def test_the_figure_fits_a_phone_with_its_controls(visit):
    page = visit("intro.html", width=390, height=844)
    assert page.locator(".cf-play[data-kind=enter]").bounding_box()["height"] <= 844


def test_the_map_leads_to_every_written_chapter_and_lights_the_open_one(visit):
    page = visit("intro.html")
    links = page.locator(".course-map-frame .cf-wide a").all()
    assert len(links) >= 4
    for address in [link.get_attribute("href") for link in links]:
        other = visit(address)
        assert other.locator(".map-strip .map-lit").count() == 1, address
        assert other.locator(".map-strip a").count() == len(links) - 1
    assert page.locator(".course-map-frame .cf-wide .map-coming a, a .map-coming").count() == 0


@pytest.mark.parametrize("width", [1400, 390])
def test_what_can_be_clicked_is_large_enough(visit, width):
    small = """() => [...document.querySelectorAll(
            'a.claim, .map-strip a, .verdict-rules button, .ledger-filter select')]
        .filter((n) => n.getClientRects().length && n.getBoundingClientRect().height < 23.5)
        .map((n) => n.outerHTML.slice(0, 90))"""
    for name in ("intro.html", "ledger.html", "04_kv_cache.html"):
        assert visit(name, width=width).evaluate(small) == [], name


def test_the_bar_of_verdicts_filters(visit):
    page = visit("ledger.html")
    shown = page.locator("table.ledger-whole tbody tr:not([hidden])")
    total = shown.count()
    wrong = page.locator("tr.verdict-wrong").count()
    button = page.locator(".verdict-rules [data-verdict=wrong] button")
    button.click()
    assert (shown.count(), button.get_attribute("aria-pressed")) == (wrong, "true")
    assert page.get_by_label("Verdict").input_value() == "wrong"
    page.locator(".verdict-bar [data-verdict=right]").click()
    assert shown.count() == page.locator("tr.verdict-right").count()
    page.locator(".verdict-bar [data-verdict=right]").click()
    assert shown.count() == total
    button.click()
    page.evaluate("location.hash = '#C001'")
    page.wait_for_function("() => !document.getElementById('C001').hidden")
