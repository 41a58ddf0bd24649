"""Code by name: the text on the page is the text in the file, and a wrong name says what exists."""

import inspect
import re

import pytest

from course.book import svg
from course.book.code import find


def test_the_source_is_the_objects_own():
    assert find("course.book.svg.text_width").source == inspect.getsource(svg.text_width).rstrip()


def test_a_method_is_dedented_and_knows_its_line():
    found = find("course.book.svg.Scene.circle")
    assert re.match(r"def circle\(\s*self", found.source)
    assert found.qualname == "Scene.circle"
    assert inspect.getsourcelines(svg.Scene.circle)[1] == found.line


def test_decorators_belong_to_the_object():
    assert find("course.book.svg.Element").source.startswith("@dataclass(frozen=True)\nclass Element")


def test_a_constant_can_be_shown():
    assert find("course.book.svg.MIN_FONT").source.startswith("MIN_FONT = 11")


def test_docstrings_can_be_left_out():
    full, bare = find("course.book.svg.Element"), find("course.book.svg.Element", strip_docstring=True)
    assert '"""' in full.source
    assert '"""' not in bare.source
    compile(bare.source, "bare", "exec")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("course.book.svg.nothing", "has no 'nothing' there; it has .*text_width"),
        ("course.book.svg.Scene.nothing", "it has .*circle"),
        ("course.book.svg", "is a module; name an object in it"),
        ("no_such_package.thing", "no module named 'no_such_package'"),
    ],
)
def test_a_wrong_name_says_what_exists(name, message):
    with pytest.raises(ValueError, match=message):
        find(name)
