"""The built book in a real browser, from file://: every page, both themes, wide and narrow.

Needs Chromium and a build. Where ``CI`` is set a missing browser fails; elsewhere the module is skipped and
says why. A missing build always fails.

    COURSE_BOOK_HTML   the built book, default _build/html
    COURSE_CHROMIUM    the browser, default: chromium or google-chrome on PATH
"""

import json
import os
import re
import shutil
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from course.book.claims import CHAPTERS
from course.book.display import STATIC
from course.book.svg import Scene
from course.book.template import stem_of
from course.book.traces import Choice, Knob, dial, lab, scrubber, widget

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
        lab([Choice("speed", [1, 2]), Choice("mask", ["on", "off"])], alt="A bar in four runs",
            steps=lambda speed, mask: [step(speed * i) for i in range(3)],
            labels=lambda speed, mask: [f"Speed {speed}, mask {mask}, step {i}." for i in range(3)]),
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
    """Every figure mounted and unfolded: none is left with the picture that a page without JavaScript shows."""
    page.evaluate("window.CoursePredictions?.open()")
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
        if path != SPECIMEN or figure.get_attribute("data-kind") != "example-dial":
            assert figure.locator("svg.cf-svg").count() >= 1, "a static first frame"
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


def test_a_lab_runs_what_is_chosen_from_its_beginning(browser, address):
    with Visit(browser, address(SPECIMEN)) as visit:
        figure = ready(visit.page).nth(2)
        said = figure.locator(".cf-says")
        assert said.text_content() == "Speed 1, mask on, step 0."
        visit.page.keyboard.press("Tab")
        figure.get_by_role("button", name="Next step").click()
        figure.get_by_role("button", name="2", exact=True).click()
        assert said.text_content() == "Speed 2, mask on, step 0."
        figure.get_by_role("button", name="off").click()
        visit.page.keyboard.press("End")
        assert said.text_content() == "Speed 2, mask off, step 2."
        assert figure.locator("[aria-pressed=true]").all_text_contents() == ["2", "off"]


# --- predictions -------------------------------------------------------------------------------------------------

WITH_PREDICTIONS = [p for p in PAGES if (HTML / p).is_file() and "data-predict=" in (HTML / p).read_text("utf-8")]
FOLDED = "() => document.querySelectorAll('.predict-result[hidden]').length"


def guess(box):
    """Answer every question of a prediction: 12, or the first choice."""
    for field in box.locator("input[type=text]").all():
        field.fill("12")
    for group in box.locator("fieldset").all():
        group.locator("input").first.check()
    box.get_by_role("button", name="Keep my guess").click()


def test_every_chapter_takes_predictions():
    assert {f"{page}" for page in PAGES if stem_of(page.removesuffix(".html"))} <= set(WITH_PREDICTIONS)


@pytest.mark.parametrize("path", WITH_PREDICTIONS)
def test_a_result_is_folded_until_there_is_a_guess_which_stands_beside_it(browser, path):
    with Visit(browser, path) as visit:
        page, boxes = visit.page, visit.page.locator("[data-predict]")
        count = boxes.count()
        assert page.evaluate(FOLDED) == count > 0
        for i in range(count):
            box = boxes.nth(i)
            box.get_by_role("button", name="Keep my guess").click()
            assert box.locator(".predict-says").text_content(), "an empty guess is refused in words"
            guess(box)
            assert page.evaluate(FOLDED) == count - i - 1
            measured = json.loads(box.locator("script").text_content())["measured"]
            said = box.locator(".predict-kept").text_content()
            assert all(value["shows"] in said for value in measured.values())
            assert said.count("your guess") == len(measured)
        page.reload()
        page.wait_for_load_state("load")
        assert page.evaluate(FOLDED) == 0, "the guess is kept"
        boxes.first.get_by_role("button", name="Guess again").click()
        assert page.evaluate(FOLDED) == 1
        boxes.first.get_by_role("button", name="Show the result without one").click()
        assert page.evaluate(FOLDED) == 0
        assert visit.problems == []


@pytest.mark.parametrize("path", WITH_PREDICTIONS)
def test_without_scripts_and_on_paper_every_result_is_open(browser, path):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((HTML / path).as_uri())
    assert page.locator(".predict-result[hidden]").count() == 0
    assert all(not form.is_visible() for form in page.locator(".predict-form").all())
    context.close()
    with Visit(browser, path) as visit:
        visit.page.emulate_media(media="print")
        heights = visit.page.evaluate(
            "[...document.querySelectorAll('.predict-result')].map((r) => r.getBoundingClientRect().height)"
        )
        assert min(heights) > 40


def test_a_link_into_a_folded_result_opens_it(browser):
    with Visit(browser, "04_kv_cache.html", query="#fig-race") as visit:
        visit.page.wait_for_function(f"({FOLDED})() === 0")
        assert visit.page.locator("#fig-race").is_visible()


# --- how a page looks --------------------------------------------------------------------------------------------

CHAPTERS_BUILT = [p for p in PAGES if stem_of(p.removesuffix(".html"))]
OVERFLOWING = """() => [...document.querySelectorAll('article pre')].filter((pre) => pre.clientWidth &&
    pre.scrollWidth > pre.clientWidth + 1).map((pre) => [pre.textContent.trim().slice(0, 60),
    getComputedStyle(pre).backgroundImage.split('linear-gradient').length - 1])"""


@pytest.mark.parametrize("path", CHAPTERS_BUILT)
def test_code_fits_its_column_and_says_on_a_phone_that_it_goes_on(browser, path):
    with Visit(browser, path) as visit:
        page = visit.page
        page.evaluate("CoursePredictions.open()")
        page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        assert page.evaluate(OVERFLOWING) == []
        page.set_viewport_size({"width": 390, "height": 844})
        page.wait_for_timeout(100)
        assert all(shades == 4 for _, shades in page.evaluate(OVERFLOWING)), "shades at both edges"


@pytest.mark.parametrize("path", CHAPTERS_BUILT)
def test_a_figure_fits_one_phone_screen(browser, path):
    with Visit(browser, path, width=390) as visit:
        for figure in ready(visit.page).all():
            visit.page.wait_for_timeout(100)
            tall = figure.evaluate(
                "(f) => f.querySelector('.cf-steps').getBoundingClientRect().top - f.getBoundingClientRect().top"
            )
            assert tall <= 844, figure.get_attribute("aria-label")


def test_a_leading_blank_in_code_takes_its_place(browser):
    with Visit(browser, "01_tokenization.html") as visit:
        wide = """(text) => [...document.querySelectorAll('article code')].filter((c) => c.textContent === text)
            .map((c) => c.getBoundingClientRect().width)[0]"""
        assert visit.page.evaluate(wide, " the") > visit.page.evaluate(wide, "the") + 5


@pytest.mark.parametrize("path", [*CHAPTERS_BUILT, "intro.html"])
def test_paper_is_white_whatever_the_theme(browser, path):
    with Visit(browser, path, theme="dark") as visit:
        visit.page.emulate_media(media="print", color_scheme="dark")
        shot = Image.open(BytesIO(visit.page.screenshot())).convert("RGB")
        assert min(shot.getpixel((2, 2))) > 250, "the margin"
        assert min(shot.getpixel((shot.width - 3, shot.height - 3))) > 250
        ink = visit.page.evaluate("getComputedStyle(document.querySelector('article p')).color")
        assert max(map(int, re.findall(r"\d+", ink)[:3])) < 90


AXE = Path(__file__).with_name("vendor") / "axe-core" / "axe.min.js"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("path", [p for p in PAGES if not p.startswith("source/") and p not in ("genindex.html",)])
def test_axe_finds_nothing_serious(browser, path, theme):
    with Visit(browser, path, theme=theme) as visit:
        page = visit.page
        page.wait_for_function(MATHS_DONE)
        page.evaluate("window.CoursePredictions?.open()")
        page.wait_for_function("!document.querySelector('.cf-play[aria-busy=true]')")
        page.add_script_tag(path=str(AXE))
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']}).then((r) => r.violations)")
        serious = [
            (one["id"], len(one["nodes"]), one["nodes"][0]["html"][:140])
            for one in found
            if one["impact"] in ("serious", "critical")
        ]
        assert serious == []


@pytest.mark.parametrize("path", [*PAGES, "index.html"])
def test_a_page_says_its_language_and_what_it_is(browser, path):
    text = (HTML / path).read_text(encoding="utf-8")
    assert re.search(r'<html\b[^>]*\blang="en"', text)
    if path not in ("index.html", "search.html", "genindex.html") and not path.startswith("source/"):
        words = re.search(r'<meta name="description" content="([^"]{30,170})"', text)
        assert words, "no description"


# --- the figures, by hand ------------------------------------------------------------------------------------------


def figure_of(page, kind):
    return ready(page).page.locator(f'.cf-play[data-kind="{kind}"]')


def test_dragging_an_arrow_moves_the_query_and_turning_all_moves_nothing(browser):
    with Visit(browser, "03_transformer_block.html") as visit:
        page = visit.page
        figure = figure_of(page, "rope-dial")
        figure.scroll_into_view_if_needed()
        score = figure.locator("svg text", has_text=re.compile(r"^−?\d+\.\d\d$")).first
        said = figure.locator(".cf-says")
        before = score.text_content()
        together = figure.get_by_label("move everything together")
        together.focus()
        for _ in range(7):
            page.keyboard.press("ArrowRight")
        assert score.text_content() == before, "only the distance matters"
        assert "at position 17" in said.text_content()
        tips = figure.locator("svg circle").all()
        grip = next(t.bounding_box() for t in tips if t.get_attribute("stroke") == "var(--fig-blue)")
        rim = max((t.bounding_box() for t in tips), key=lambda b: b["width"])
        page.mouse.move(grip["x"] + grip["width"] / 2, grip["y"] + grip["height"] / 2)
        page.mouse.down()
        page.mouse.move(rim["x"] + rim["width"] / 2, rim["y"] + rim["height"] + 4, steps=5)
        page.mouse.up()
        assert score.text_content() != before
        assert figure.get_by_label("move the query alone").input_value() != "10"
        token = figure.locator("svg text", has_text="␣Mary").bounding_box()
        page.mouse.click(token["x"] + 4, token["y"] + 4)
        assert "key “␣Mary”" in said.text_content()
        figure.get_by_role("button", name="a name").click()
        assert "key “␣Mary”" in said.text_content()


def test_the_wall_of_heads_is_picked_by_click_and_key(browser):
    with Visit(browser, "03_transformer_block.html") as visit:
        page = visit.page
        figure = figure_of(page, "maps")
        wall, said = figure.locator("canvas"), figure.locator(".cf-says")
        wall.scroll_into_view_if_needed()
        box = wall.bounding_box()
        page.mouse.click(box["x"] + box["width"] * 23.5 / 30, box["y"] + box["height"] * 0.5 / 9)
        assert said.text_content().startswith("Layer 23, head 0 finds the name")
        wall.focus()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowLeft")
        assert said.text_content().startswith("Layer 22, head 1.")
        figure.get_by_role("button", name="code", exact=True).click()
        assert "Layer 22, head 1" in said.text_content()
        assert figure.locator("svg text", has_text="␣return").count() == 1
        figure.get_by_role("button", name="Next head with a name").click()
        assert "looks at itself" in said.text_content()


def test_the_race_starts_at_one_and_shows_the_guesses_inside(browser):
    with Visit(browser, "04_kv_cache.html", motion="no-preference") as visit:
        page = visit.page
        box = page.locator('[data-predict="race"]')
        for field, value in zip(box.locator("input[type=text]").all(), ("5000", "200", "25")):
            field.fill(value)
        box.get_by_role("button", name="Keep my guess").click()
        figure = figure_of(page, "kv-race")
        said = figure.locator(".cf-says")
        assert said.text_content().startswith("Token 1:")
        for text in ("you said 5,000", "you said 200", "you said 25 times faster: it would end here"):
            assert figure.locator("svg text", has_text=text).count() == 1
        figure.get_by_label("tokens written by both").focus()
        page.keyboard.press("End")
        assert "20,100 rows without a cache, 200 with one" in said.text_content()
        figure.get_by_role("button", name="Race by the clock").click()
        page.wait_for_function("(node) => node.textContent.startsWith('After ')", arg=said.element_handle())
        figure.get_by_role("button", name="Stop the race").click()


def test_a_text_is_merged_under_all_vocabularies_at_once(browser):
    with Visit(browser, "01_tokenization.html") as visit:
        page = visit.page
        figure = figure_of(page, "bpe")
        said = figure.locator(".cf-says")
        assert "no merge done yet" in said.text_content(), "it starts before the answer"
        assert figure.locator("svg text", has_text="54 pieces").count() == 4
        figure.get_by_role("button", name="Next merge").click()
        assert said.text_content().startswith("Merge 1 of at most")
        fill = "(r) => parseFloat(r.style.getPropertyValue('--cf-at'))"
        assert 0 < figure.get_by_label("Merges done").evaluate(fill) < 10, "the slider is filled up to its thumb"
        figure.get_by_label("your text").fill("3333")
        assert said.text_content().startswith("The bill for 4 bytes")
        ids = figure.locator(".cf-ids dd").all_text_contents()
        assert [len(line.split(", ")) for line in ids] == [4, 2, 2, 4]
        figure.get_by_label("your text").fill("")
        assert said.text_content().startswith("0 bytes")


def test_the_mask_and_the_block_can_be_changed(browser):
    if "triton_primer.html" not in WITH_FIGURES:
        pytest.skip("built without Triton")
    with Visit(browser, "triton_primer.html") as visit:
        figure = figure_of(visit.page, "lab")
        said = figure.locator(".cf-says")
        assert said.text_content().startswith("4 programs of 256 lanes, i < n")
        visit.page.evaluate("CoursePredictions.keep('lanes', {lanes: 16})")
        figure.get_by_role("button", name="no mask").click()
        visit.page.keyboard.press("End")
        assert "kernelcheck stops at the first" in said.text_content()
        assert said.text_content().endswith("You said 16 lanes, with blocks of 256.")
        figure.get_by_role("button", name="i < n − 1").click()
        figure.get_by_role("button", name="512").click()
        visit.page.keyboard.press("End")
        assert "1 element was never written: unwritten output." in said.text_content()
