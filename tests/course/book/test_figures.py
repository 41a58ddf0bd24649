"""Figures: themed colours only, an alternative text always, the same bytes on every build."""

import re

import numpy as np
import pytest

from course.book.display import MARK, STATIC, Display
from course.book.figures import COLORS, bar_rows, heatmap, show, table, token_strip
from course.book.svg import COLORS as NAMES
from course.book.svg import Scene, color


def line(fig):
    ax = fig.subplots()
    ax.plot([1, 2, 3], [1, 4, 9], label="squares")
    ax.plot([1, 2, 3], [1, 2, 3], label="identity")
    ax.fill_between([1, 2, 3], [0, 1, 2], [1, 2, 3], alpha=0.2)
    ax.set(xlabel="$n$", ylabel="rows", title="A title")
    ax.legend()


def test_every_colour_is_a_variable_of_the_theme():
    html = show(line, alt="two curves").html
    assert not re.findall(r"#[0-9a-f]{6}\b(?![^<]*url)", re.sub(r"url\(#[^)]*\)|href=\"#[^\"]*\"", "", html))
    assert {"var(--fig-blue)", "var(--fig-orange)", "var(--fig-ink)"} <= set(re.findall(r"var\(--fig-\w+\)", html))


def test_both_layouts_have_the_alternative_text():
    html = show(line, alt='says "more"').html
    assert html.count('role="img" aria-label="says &quot;more&quot;"') == 2


@pytest.mark.parametrize("alt", ["", "   ", None, 3])
def test_a_figure_without_alternative_text_is_refused(alt):
    with pytest.raises(ValueError, match="alt must be a non-empty string"):
        show(line, alt=alt)
    with pytest.raises(ValueError, match="alt must be"):
        Scene(10, 10).svg(alt)


def test_the_same_drawing_gives_the_same_bytes():
    assert show(line, alt="a").html == show(line, alt="a").html


def test_ids_differ_between_figures_and_every_reference_resolves():
    html = show(line, alt="a").html + show(line, alt="b").html
    ids = re.findall(r'\bid="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', html)) <= set(ids)


def test_a_colour_outside_the_palette_is_refused():
    with pytest.raises(ValueError, match="#ff0000 do not follow the theme"):
        show(lambda fig: fig.subplots().plot([1, 2], color="#ff0000"), alt="a")


def test_a_raster_is_refused():
    with pytest.raises(ValueError, match="raster image"):
        show(lambda fig: fig.subplots().imshow(np.eye(3)), alt="a")


def test_small_text_is_refused():
    with pytest.raises(ValueError, match="less than 11 CSS pixels"):
        show(lambda fig: fig.text(0.5, 0.5, "tiny", fontsize=6), alt="a")
    with pytest.raises(ValueError, match="unreadable"):
        Scene(10, 10).text("t", 0, 0, "tiny", size=8)


def test_palettes_of_plots_and_diagrams_agree_with_the_style_sheet():
    css = STATIC / "figures.css"
    text = css.read_text(encoding="utf-8")
    assert set(vars(COLORS)) == set(NAMES)
    for name in NAMES:
        assert text.count(f"--fig-{name}:") == 3, f"{name} needs a light value and two dark ones"


def luminance(value: str) -> float:
    channels = [int(value[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def test_text_colours_have_contrast_4_5_on_the_page():
    css = (STATIC / "figures.css").read_text(encoding="utf-8")
    blocks = re.findall(r"\{[^{}]*--fig-paper: #[0-9a-f]{6};[^{}]*\}", css)
    assert len(blocks) == 3
    for block in blocks:
        value = dict(re.findall(r"--fig-(\w+): (#[0-9a-f]{6})", block))
        for name in ("blue", "orange", "green", "purple", "gold", "red", "ink", "muted"):
            a, b = sorted((luminance(value[name]), luminance(value["paper"])))
            assert (b + 0.05) / (a + 0.05) >= 4.5, (name, value[name])


def test_the_markdown_of_a_figure_is_one_directive():
    shown = show(line, alt="a", caption="Rows of ````x```` at $n$.", name="fig-rows").markdown()
    fence = re.match(r"(`{4,})\{course-figure\}\n", shown)[1]
    assert len(fence) > 4
    assert shown.count(fence) == 2
    assert MARK in shown
    assert ":name: fig-rows" in shown


def test_a_name_needs_a_caption_and_a_plain_form():
    with pytest.raises(ValueError, match="no caption"):
        Display("<svg/>", None, "fig-a")
    with pytest.raises(ValueError, match="name must look like"):
        Display("<svg/>", "c", "Fig A")


def test_notebook_html_brings_its_own_colours():
    assert "--fig-blue" in show(line, alt="a")._repr_mimebundle_()["text/html"]


def test_heatmap_leaves_masked_cells_empty_and_shares_paths():
    values = np.full((8, 8), np.nan)
    values[np.tril_indices(8)] = 0.5
    html = heatmap(values, alt="a").html
    wide = html.split("cf-narrow")[0]
    assert wide.count("h-") == 36
    assert wide.count("<path") == 1


def test_heatmap_refuses_labels_that_do_not_fit():
    with pytest.raises(ValueError, match="do not fit a 2 x 3 matrix"):
        heatmap(np.zeros((2, 3)), rows=["a"], alt="a")
    with pytest.raises(ValueError, match="one shape"):
        heatmap({"a": np.zeros((2, 3)), "b": np.zeros((3, 2))}, alt="a")


def test_token_strip_shows_spaces_and_wraps_within_the_width():
    html = token_strip([("English", ["mom", " washed"] * 30, list(range(60)))], alt="a").html
    assert "·washed" in html
    assert "60 tokens" in html
    right = [
        float(x) + float(w)
        for x, w in re.findall(r'<rect transform="translate\(([\d.]+) [\d.]+\)" width="([\d.]+)"', html)
    ]
    assert max(right) <= 700
    with pytest.raises(ValueError, match="2 tokens but 1 ids"):
        token_strip([("x", ["a", "b"], [1])], alt="a")


def test_bars_are_in_proportion():
    html = bar_rows([("a", 10), ("b", 5)], alt="bars").html.split("cf-narrow")[0]
    long, short = (float(w) for w in re.findall(r'width="([\d.]+)" height="21"', html))
    assert long == pytest.approx(2 * short, rel=1e-2)
    with pytest.raises(ValueError, match="not negative"):
        bar_rows([("a", -1)], alt="bars")


def test_table_is_numbered_with_a_caption_and_escapes_bars():
    made = table([("a|b", 1)], head=["x", "y"], caption="C", name="tab-a").markdown()
    assert made.startswith("::::{table} C\n:name: tab-a")  # not backticks: they could not stand before `code`
    assert "a\\|b" in made
    with pytest.raises(ValueError, match="has 1 cells, the head has 2"):
        table([("a",)], head=["x", "y"])


def test_scene_keys_are_unique_and_colours_named():
    scene = Scene(10, 10).rect("a", 0, 0, 1, 1)
    with pytest.raises(ValueError, match="already has"):
        scene.rect("a", 0, 0, 1, 1)
    with pytest.raises(ValueError, match="unknown colour"):
        color("#ff0000")
