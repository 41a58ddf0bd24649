"""Predictions: what an author may write, and that a result is folded from its question to its answer."""

import json

import pytest

from course.book import predict

PAGE = """# Page

```{predict} How many?
:key: many
:ask: tokens: how many tokens; half: which half [left | right]

Guess.
```

A figure that gives it away.

```{measured} many
{"tokens": {"value": 3, "shows": "3"}, "half": {"value": "left", "shows": "left"}}
```

After it.
"""


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """Build one page with nothing but this extension; returns its HTML and the warnings."""
    from io import StringIO

    from sphinx.application import Sphinx
    from sphinx.util.docutils import docutils_namespace

    def run(text):
        folder = tmp_path_factory.mktemp("predict")
        (folder / "index.md").write_text(text, encoding="utf-8")
        (folder / "conf.py").write_text("extensions = ['myst_parser', 'course.book.predict']\n", encoding="utf-8")
        warnings = StringIO()
        with docutils_namespace():
            Sphinx(folder, folder, folder / "out", folder / "doctrees", "html", status=None, warning=warnings).build()
        return (folder / "out" / "index.html").read_text(encoding="utf-8"), warnings.getvalue()

    return run


def test_what_lies_between_question_and_answer_is_wrapped(build):
    html, warnings = build(PAGE)
    assert warnings == ""
    box, _, after = html.partition('<div class="predict-result docutils container">')
    assert 'data-predict="many"' in box
    assert "gives it away" in after.split("</div>")[0]
    assert "After it" in after
    assert "gives it away" not in box
    data = json.loads(box.split('<script type="application/json">')[1].split("</script>")[0])
    assert data["page"] == "index"
    assert data["measured"]["tokens"] == {"value": 3, "shows": "3"}
    assert box.count('type="radio"') == 2
    assert box.count('inputmode="decimal"') == 1


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("```{measured} many", "```{measured} money", "never answered"),
        ("```{measured} many", "```{measured} money", "predicts no such thing"),
        ('"tokens": {"value": 3', '"rows": {"value": 3', "is told rows, half"),
        ('{"value": "left"', '{"value": "middle"', "cannot be answered in its field"),
        ('{"value": 3,', '{"value": "three",', "cannot be answered in its field"),
        ("A figure that", "## Elsewhere\n\nA figure that", "must stand"),
        (":key: many", ":key: Many!", "needs a :key:"),
        ("[left | right]", "[left]", "offers 1 choices"),
        ("tokens: how many tokens;", "how many tokens;", "must read"),
    ],
)
def test_each_mistake_of_an_author_is_named(build, old, new, words):
    assert old in PAGE
    assert words in build(PAGE.replace(old, new))[1]


def test_questions_are_read():
    asked = predict.questions("a: one; b_2: two [x | y]")
    assert [(q.name, q.label, q.choices) for q in asked] == [("a", "one", ()), ("b_2", "two", ("x", "y"))]
    with pytest.raises(ValueError, match="one name"):
        predict.questions("a: one; a: two")


def test_measured_values_are_written_as_they_should_be_read():
    made = predict.measured("m", rows=20100, faster=(5.5, "5.5 ×"), half="left")
    assert made.values["rows"] == {"value": 20100.0, "shows": "20,100"}
    assert made.values["faster"] == {"value": 5.5, "shows": "5.5 ×"}
    assert made.values["half"] == {"value": "left", "shows": "left"}
    assert made._repr_mimebundle_()["text/markdown"].startswith("```{measured} m\n{")
    with pytest.raises(ValueError, match="nobody can guess"):
        predict.measured("m", rows=float("nan"))
    with pytest.raises(ValueError, match="needs a value"):
        predict.measured("m")
