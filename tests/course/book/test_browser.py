"""The built book in a real browser, from file://: every page, both themes, wide and narrow.

Needs Chromium and a build. Where ``CI`` is set a missing browser fails; elsewhere the module is skipped and
says why. A missing build always fails.

    COURSE_BOOK_HTML   the built book, default _build/html
    COURSE_CHROMIUM    the browser, default: chromium or google-chrome on PATH
"""

import os
import re
import shutil
from pathlib import Path

import pytest

from course.book.claims import CHAPTERS
from course.book.display import STATIC
from course.book.svg import Scene
from course.book.traces import Knob, dial, scrubber, widget

pytestmark = pytest.mark.browser

HTML = Path(os.environ.get("COURSE_BOOK_HTML", "_build/html")).resolve()
CHROMIUM = os.environ.get("COURSE_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
# index.html only redirects to the first page.
PAGES = sorted(
    p.relative_to(HTML).as_posix() for p in HTML.rglob("*.html") if "_static" not in p.parts and p.name != "index.html"
) or ["-"]
SPECIMEN = "specimen"  # a page of our own with one figure of each kind, whatever the book holds
WITH_FIGURES = [SPECIMEN] + [
    p for p in PAGES if (HTML / p).is_file() and 'class="cf-play"' in (HTML / p).read_text("utf-8")
]


def specimen(folder: Path) -> Path:
    """Write a page that holds a scrubber, a dial and a widget, and nothing of the theme."""

    def step(i, width=680):
        scene = Scene(width, 60).rect("bar", 4, 4, 40 * i + 10, 20, fill="blue").text("count", 4, 50, i)
        return scene.rect("extra", width - 30, 4, 20, 20, fill="orange") if i > 1 else scene

    figures = [
        scrubber([step(i) for i in range(4)], narrow=[step(i, 336) for i in range(4)], alt="A bar grows",
                 labels=[f"The bar has grown {i} times." for i in range(4)], interval=0.2),
        dial([Knob("height", [1, 2, 3]), Knob("shift", [0, 5])], alt="A box",
             draw=lambda h, x: (Scene(300, 50).rect("box", x, 0, 20, 10 * h), f"Height {h}, shifted by {x}.")),
        widget("example-dial", {"start": 3}, alt="Tokens in a cache", text_equivalent="One row a token."),
    ]  # fmt: skip
    links = f'<link rel="stylesheet" href="{(STATIC / "figures.css").as_uri()}">' + "".join(
        f'<script defer src="{(STATIC / name).as_uri()}"></script>' for name in ("course-figures.js", "example-dial.js")
    )
    page = folder / "specimen.html"
    body = "".join(figure.html for figure in figures)
    page.write_text(f'<!doctype html><meta charset="utf-8"><title>x</title>{links}<article>{body}</article>', "utf-8")
    return page


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """From a path in the book, or `SPECIMEN`, to the file's address."""
    own = specimen(tmp_path_factory.mktemp("figures"))
    return lambda path: (own if path == SPECIMEN else HTML / path).as_uri()


@pytest.fixture(scope="module")
def browser():
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        sync_playwright = None
    if sync_playwright is None or CHROMIUM is None:
        why = "needs Chromium and playwright: apt-get install chromium; pip install playwright"
        pytest.fail(why) if os.environ.get("CI") else pytest.skip(why)
    if PAGES == ["-"]:
        pytest.fail(f"no built book at {HTML}: run make book first")
    with sync_playwright() as play:
        running = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


class Visit:
    """One page opened from file://, with everything that it complained about or asked for."""

    def __init__(self, browser, path, *, query="", width=1400, theme="light", motion="reduce"):
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=theme, reduced_motion=motion
        )
        self.page = self.context.new_page()
        self.problems, self.requests = [], []
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("requestfailed", lambda request: self.problems.append(f"failed: {request.url}"))
        self.page.goto((path if path.startswith("file:") else (HTML / path).as_uri()) + query)
        self.page.wait_for_load_state("load")

    def _console(self, message):
        if message.type in ("error", "warning"):
            self.problems.append(f"console {message.type}: {message.text}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()


EXCESS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
MATHS_DONE = "!window.MathJax?.startup?.promise || MathJax.startup.promise.then(() => true)"
BARE = """() => [
    ...[...document.querySelectorAll('article img')].filter((img) => !img.alt.trim()),
    ...[...document.querySelectorAll('article svg')].filter((svg) =>
        !svg.closest('button, a, [aria-hidden=true]') && !(svg.getAttribute('aria-label') || '').trim()),
    ...[...document.querySelectorAll('.cf-play')].filter((f) => !f.querySelector('details.cf-steps')),
].map((node) => node.outerHTML.slice(0, 120))"""
SMALL = """() => [...document.querySelectorAll('svg.cf-svg text')].filter((text) => {
    if (!text.textContent.trim() || !text.getClientRects().length) return false;
    const svg = text.ownerSVGElement, scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
    return parseFloat(getComputedStyle(text).fontSize) * scale < 10.9;
}).map((text) => text.textContent)"""


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_silent_offline_described_and_fits_a_phone(browser, path, theme):
    with Visit(browser, path, theme=theme) as visit:
        page = visit.page
        page.wait_for_function(MATHS_DONE)
        assert page.evaluate("document.documentElement.dataset.theme") == theme
        assert page.evaluate(BARE) == [], "a drawing or image without a text alternative"
        assert page.evaluate(EXCESS) <= 0, "sideways scroll at 1400 pixels"
        page.set_viewport_size({"width": 390, "height": 800})
        page.wait_for_timeout(100)
        assert page.evaluate(EXCESS) <= 0, "sideways scroll at 390 pixels"
        assert page.evaluate(SMALL) == [], "text below 11 pixels in a figure at 390 pixels"
        assert visit.problems == []
        assert [url for url in visit.requests if not url.startswith(("file:", "data:", "blob:"))] == []


LOADS = re.compile(
    r"<(?:script|img|iframe|audio|video|source|embed)\b[^>]*?\bsrc=\"([^\"]+)\""
    r"|<link\b(?=[^>]*rel=\"(?:stylesheet|preload|icon|shortcut icon|modulepreload)\")[^>]*?href=\"([^\"]+)\""
)


@pytest.mark.parametrize("path", PAGES)
def test_no_asset_of_a_page_is_external(browser, path):
    assets = ["".join(match) for match in LOADS.findall((HTML / path).read_text(encoding="utf-8"))]
    assert len(assets) > 3, "the pattern finds no assets at all"
    assert [url for url in assets if re.match(r"(?:https?:)?//", url)] == []


def test_the_hamburger_opens_the_menu_on_a_phone(browser):
    with Visit(browser, "intro.html", width=390) as visit:
        menu = visit.page.locator(".bd-sidebar-primary")
        assert not menu.is_visible() or menu.bounding_box()["x"] < 0
        visit.page.locator("button.primary-toggle, label.primary-toggle").first.click()
        visit.page.wait_for_timeout(400)
        shown = visit.page.locator("#pst-primary-sidebar, .bd-sidebar-primary, dialog[open]").first
        box = shown.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["width"] > 150


def test_search_works_from_a_file(browser):
    with Visit(browser, "search.html", query="?q=cache") as visit:
        visit.page.wait_for_selector("#search-results li a", timeout=15_000)
        assert visit.problems == []


def ready(page):
    """Every figure mounted: none is left with the picture that a page without JavaScript shows."""
    assert page.evaluate("[...document.querySelectorAll('.cf-play:not(.cf-live)')].map((f) => f.dataset.kind)") == []
    page.wait_for_function("!document.querySelector('.cf-play[aria-busy=true]')")
    return page.locator(".cf-play")


@pytest.mark.parametrize("path", WITH_FIGURES)
def test_every_figure_answers_the_keyboard(browser, address, path):
    with Visit(browser, address(path)) as visit:
        figures = ready(visit.page)
        for i in range(figures.count()):
            figure = figures.nth(i)
            said = figure.locator(".cf-says")
            before = said.text_content()
            control = figure.locator("input").first
            control.focus()
            if control.get_attribute("type") == "range":
                at_end = control.input_value() == control.get_attribute("max")
                visit.page.keyboard.press("ArrowLeft" if at_end else "ArrowRight")
            else:
                visit.page.keyboard.type("a")
            assert said.text_content() not in ("", before), figure.get_attribute("aria-label")
        assert visit.problems == []


@pytest.mark.parametrize("path", WITH_FIGURES)
def test_every_slider_answers_the_mouse(browser, address, path):
    with Visit(browser, address(path)) as visit:
        figures = ready(visit.page)
        for i in range(figures.count()):
            figure = figures.nth(i)
            said = figure.locator(".cf-says")
            for slider in figure.locator("input[type=range]").all():
                slider.scroll_into_view_if_needed()
                box = slider.bounding_box()
                heard = set()
                for place in (0.06, 0.94):
                    visit.page.mouse.click(box["x"] + place * box["width"], box["y"] + box["height"] / 2)
                    heard.add((slider.input_value(), said.text_content()))
                assert len({value for value, _ in heard}) == 2, figure.get_attribute("aria-label")
                assert len({text for _, text in heard}) == 2, figure.get_attribute("aria-label")


@pytest.mark.parametrize("path", WITH_FIGURES)
def test_scrubbers_step_by_button_and_key_and_draw_what_they_say(browser, address, path):
    with Visit(browser, address(path)) as visit:
        for figure in ready(visit.page).all():
            if figure.get_attribute("data-kind") != "scrubber":
                continue
            said, drawn = figure.locator(".cf-says"), figure.locator(".cf-svg").first
            first, picture = said.text_content(), drawn.inner_html()
            figure.get_by_role("button", name="Next step").click()
            assert said.text_content() != first
            assert drawn.inner_html() != picture
            visit.page.keyboard.press("End")
            sentences = figure.locator(".cf-steps li").all_text_contents()
            assert said.text_content() == sentences[-1]
            visit.page.keyboard.press("ArrowLeft")
            assert said.text_content() == sentences[-2]
            visit.page.keyboard.press("Home")
            assert said.text_content() == sentences[0] == first
            assert drawn.inner_html().replace(" cf-new", "") == picture.replace(" cf-new", "")
            visit.page.evaluate("dispatchEvent(new Event('beforeprint'))")
            assert said.text_content() == sentences[-1], "paper shows the last step"
            visit.page.evaluate("dispatchEvent(new Event('afterprint'))")
            assert said.text_content() == sentences[0]
            figure.get_by_role("button", name="Play").click()
            visit.page.wait_for_function(
                "([node, text]) => node.textContent !== text",
                arg=[said.element_handle(), first],
                timeout=15_000,
            )
            visit.page.keyboard.press("Home")
            assert figure.get_by_role("button", name="Play").count() == 1, "a key stops the player"


@pytest.mark.parametrize("path", WITH_FIGURES)
def test_without_javascript_the_words_and_the_last_step_are_there(browser, address, path):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address(path))
    for figure in page.locator(".cf-play").all():
        assert figure.locator("details.cf-steps").count() == 1
        if figure.get_attribute("data-kind") in ("scrubber", "knobs"):
            assert figure.locator("svg.cf-svg").count() >= 1
    context.close()


CHAPTER_PAGES = [f"{chapter}.html" for chapter in CHAPTERS if f"{chapter}.html" in PAGES]


def test_every_chapter_has_two_figures_and_one_to_take_in_hand():
    lacking = {}
    for path in CHAPTER_PAGES:
        text = (HTML / path).read_text(encoding="utf-8")
        counts = text.count('class="cf-play"'), len(re.findall(r"<figure\b[^>]*course-figure", text))
        if counts[0] < 1 or counts[1] < 2:
            lacking[path] = counts
    assert lacking == {}, "chapter: (figures with controls, figures)"


def test_the_ledger_filters(browser):
    if "ledger.html" not in PAGES:
        pytest.fail("the book has no ledger page")
    with Visit(browser, "ledger.html") as visit:
        page = visit.page
        rows = page.locator("table.ledger-whole tbody tr")
        total = rows.count()
        page.get_by_label("Verdict").select_option("wrong")
        shown = page.locator("table.ledger-whole tbody tr:not([hidden])")
        assert 0 < shown.count() < total
        assert page.locator("tr.verdict-wrong").count() == shown.count()
        assert page.locator(".ledger-filter output").text_content() == f"{shown.count()} of {total} claims"
