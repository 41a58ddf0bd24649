"""Words and numbers as pages write them."""

import pytest

from course.book.prose import counted, machine, readable, say, shown, signed


def test_blanks_and_breaks_can_be_seen():
    assert shown(" the\n") == "␣the⏎"
    assert readable(" да".encode()) == "␣да"
    assert readable("да".encode()[:1]) == "d0"


@pytest.mark.parametrize(("value", "text"), [(1.234, "1.23"), (-1.5, "−1.50"), (-0.001, "0.00"), (0, "0.00")])
def test_a_sign_is_a_minus_and_zero_has_none(value, text):
    assert signed(value) == text


def test_one_is_singular():
    assert [counted(n, "byte") for n in (0, 1, 2, 1024)] == ["0 bytes", "1 byte", "2 bytes", "1,024 bytes"]


def test_a_machine_has_a_name_and_prose_is_markdown():
    assert "thread" in machine()
    assert say("$x$").data == "$x$"
