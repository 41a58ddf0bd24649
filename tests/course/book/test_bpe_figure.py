"""The figure that tokenizes what a reader types gives the ids that the four tokenizers themselves give."""

import os
import random
import shutil
from pathlib import Path

import pytest

from course.book import vocabularies

HTML = Path(os.environ.get("COURSE_BOOK_HTML", Path(__file__).resolve().parents[3] / "_build" / "html"))
CHROMIUM = os.environ.get("COURSE_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
TEXTS = [
    "",
    "The weather is lovely. мама мыла раму 2024",
    "  two  spaces,\ttabs\nand lines\r\n\r\n  ",
    "don't DON'T we'll I've",
    "1234567890 3.14159 ½ ①②",
    "👩‍🚀🙂🙂 naïve déjà ﬁ İstanbul",
    "def f(x):\n    return {'a': x ** 2}  # код",
    "中文 日本語 한국어 ไทย العربية",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "e\u0301 é \u00a0\u3000x\u200bx",
]


def random_texts(count):
    draw = random.Random(5)
    pools = [(0x20, 0x7E), (0xA0, 0x24F), (0x400, 0x4FF), (0x4E00, 0x4EFF), (0x1F600, 0x1F64F), (0x9, 0xD)]
    return ["".join(chr(draw.randint(*draw.choice(pools))) for _ in range(draw.randint(1, 40))) for _ in range(count)]


def encoders():
    import quicktok

    from llm_internals.preparation import prepare_smollm2
    from llm_internals.tokenizer_files import read_tokenizer

    tokenizer = read_tokenizer(prepare_smollm2())
    yield "smollm2", lambda text: tokenizer.encode(text, allowed_special=())
    for name, key in (("cl100k", "cl100k_base"), ("o200k", "o200k_base"), ("qwen3", "qwen3")):
        yield name, quicktok.get_encoding(key).encode_ordinary


@pytest.mark.browser
def test_the_page_tokenizes_as_the_tokenizers_do():
    if CHROMIUM is None:
        why = "needs Chromium: apt-get install chromium"
        pytest.fail(why) if os.environ.get("CI") else pytest.skip(why)
    page_file = HTML / "01_tokenization.html"
    assert page_file.is_file(), f"no {page_file}: run make book first"
    from playwright.sync_api import sync_playwright

    texts = TEXTS + random_texts(150)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(page_file.as_uri())
        for name, encode in encoders():
            got = page.evaluate(
                "async ([name, texts]) => (await CourseBPE.load(name).then((v) => texts.map((t) => v.encode(t))))",
                [name, texts],
            )
            for text, ids in zip(texts, got):
                assert ids == list(encode(text)), (name, text)
        browser.close()


def test_every_vocabulary_is_described():
    assert [entry["id"] for entry in vocabularies.describe()] == list(vocabularies.VOCABULARIES)
