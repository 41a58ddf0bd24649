"""What a page says of other chapters, of its exercises, and of code that waits for the reader's own."""

from io import StringIO

import pytest
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

from course.book.chapters import core_minutes
from course.book.sphinx_ext import DESCRIBED, description
from course.specs import exercises


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """Build a page beside a written chapter 04; returns its HTML and the warnings."""

    def run(text):
        folder = tmp_path_factory.mktemp("chapters")
        (folder / "index.md").write_text(f"# Page\n\n{text}\n\n```{{toctree}}\n04_kv_cache\n```\n", encoding="utf-8")
        (folder / "04_kv_cache.md").write_text("# The KV cache\n", encoding="utf-8")
        extensions = ["myst_parser", "course.book.chapters", "course.book.code"]
        (folder / "conf.py").write_text(f"extensions = {extensions}\nnitpicky = True\n", encoding="utf-8")
        warnings = StringIO()
        with docutils_namespace():
            Sphinx(folder, folder, folder / "out", folder / "doctrees", "html", status=None, warning=warnings).build()
        return (folder / "out" / "index.html").read_text(encoding="utf-8"), warnings.getvalue()

    return run


def test_a_written_chapter_is_linked_and_another_is_to_come(build):
    html, warnings = build("See {chapter}`04` and {chapter}`09`.")
    assert warnings == ""
    assert 'href="04_kv_cache.html"' in html
    assert "chapter 04, The KV cache" in html
    assert '<span class="to-come">chapter 09, Sliding window (to come)</span>' in html


def test_a_chapter_that_does_not_exist_is_an_error(build):
    assert "no chapter '77'" in build("See {chapter}`77`.")[1]


def test_exercises_are_listed_with_their_minutes(build):
    html, warnings = build("```{exercises} kv_cache\n```")
    assert warnings == ""
    core = [item for item in exercises("kv_cache") if item.core]
    assert f"Together {sum(item.minutes for item in core)} minutes" in html
    assert core_minutes("kv_cache") == sum(item.minutes for item in core)
    assert all(item.id.partition(".")[2] in html for item in exercises("kv_cache"))
    assert core_minutes("triton_primer") == sum(item.minutes for item in exercises("triton_primer"))


def test_an_unknown_list_of_exercises_is_an_error(build):
    assert "there is no chapter 'nothing'" in build("```{exercises} nothing\n```")[1]


CODE = "```{code-object} llm_internals.kv_cache.generate_naive\n:strip-docstring:\n:after: EXERCISE\n```"


def test_code_waits_for_the_readers_own(build):
    html, warnings = build(CODE.replace("EXERCISE", "kv_cache.generate_naive"))
    assert warnings == ""
    opening = html.index('<details class="after-writing">')
    assert "Open it when your <code>kv_cache.generate_naive</code> passes" in html[opening:]
    assert opening < html.index("def</span>") < html.index("</details>", opening)
    assert "kv_<wbr>cache.<wbr>generate_<wbr>naive" in html


def test_code_that_waits_for_no_exercise_is_an_error(build):
    assert "there is no exercise 'kv_cache.nothing'" in build(CODE.replace("EXERCISE", "kv_cache.nothing"))[1]


def test_a_page_is_described_by_its_first_sentences():
    document = nodes.document(None, None)
    document += nodes.paragraph("", "Short.")
    assert description(document) == ""
    document += nodes.paragraph("", "You can train a tokenizer, " + "and say what it costs, " * 20)
    words = description(document)
    assert words.startswith("You can train")
    assert words.endswith(" …")
    assert len(words) <= DESCRIBED + 2
