"""Chapter 01's figures: a text is cut where its tokens end, and nothing is lost."""

import pytest

from course.book.drawings import tokenization as drawings
from llm_internals.tokenization import Tokenizer, train_bpe

TOKENIZER = Tokenizer.from_merges(train_bpe("мама mom mom mom mom washed the the the frame " * 3, vocab_size=256 + 12))


def cut(text):
    return [TOKENIZER.id_to_bytes[i] for i in TOKENIZER.encode(text)]


@pytest.mark.parametrize("text", ["mom", "the frame", "да 👩‍🚀!", "a" * 120, "中文", ""])
@pytest.mark.parametrize("width", [96, 336, 680])
def test_boxes_cover_the_text_without_gaps(text, width):
    boxes, characters, height = drawings.runs(text, cut(text), width)
    assert len(characters) == len(text)
    assert {number for *_, number in boxes} == set(range(len(cut(text))))
    for line in {y for _, y, _, _ in boxes}:
        row = sorted((x, x + wide) for x, y, wide, _ in boxes if y == line)
        assert row[0][0] == 0
        assert all(right == pytest.approx(left) for (_, right), (left, _) in zip(row, row[1:]))
        assert row[-1][1] <= width
    assert height >= 27


def test_a_token_that_ends_inside_a_character_cuts_its_box():
    boxes, _, _ = drawings.runs("д", ["д".encode()[:1], "д".encode()[1:]], 80)
    assert [(x, wide) for x, _, wide, _ in boxes] == [(0, 4), (4, 4)]


def test_the_bill_names_every_vocabulary_and_its_count():
    scene = drawings.bill("mom", {"one": [b"mom"], "three": [b"m", b"o", b"m"]}, 336)
    texts = [element.text for element in scene.elements.values()]
    assert {"one", "three", "1 token", "3 tokens"} <= set(texts)


def test_a_strip_and_a_curve_are_drawn():
    assert "English" in drawings.mama(TOKENIZER, "mom", "мама", "C.").html
    assert drawings.growth([0, 64], {"a": [1, 2], "b": [1, 2], "c": [1, 1]}, "C.").name == "fig-growth"


def test_the_figure_of_merges_says_what_each_word_costs():
    shown = drawings.merges(TOKENIZER, "mom the мама", "C.")
    assert "SmolLM2, “mom”" in shown.html
    assert "SmolLM2, “␣the”" in shown.html
    assert "1 byte," not in shown.html.replace("1 bytes", "!")
    assert "cf-narrow" in shown.html
