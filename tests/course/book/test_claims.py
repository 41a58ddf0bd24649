"""The claims: the file is whole, and a build tells a page what it forgot."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml

from course.book.claims import CHAPTERS, VERDICTS, get, load, unmet

BOOK = Path(__file__).parents[3] / "book"


@pytest.fixture(scope="module")
def claims():
    return load(BOOK / "claims.yml")


def test_all_claims_are_there(claims):
    assert list(claims) == [f"C{i:03d}" for i in range(1, 256)]
    counts = Counter(claim.verdict for claim in claims.values())
    assert counts == {"right": 117, "imprecise": 60, "wrong": 34, "depends": 30, "rounded": 10, "outdated": 4}
    assert {claim.chapter for claim in claims.values()} == set(CHAPTERS)
    assert len({claim.section for claim in claims.values()}) == 25


def test_a_verdict_that_corrects_says_why(claims):
    silent = {c.id for c in claims.values() if not c.confirms and not c.note and c.correct == c.given}
    assert silent == set()


def test_no_entry_names_a_machine_path(claims):
    text = (BOOK / "claims.yml").read_text(encoding="utf-8")
    assert not [root for root in ("/home/", "/tmp/", "/work/", "/root/", "/mnt/") if root in text]


def test_an_unknown_id_says_which_exist(claims):
    with pytest.raises(ValueError, match="from C001 to C255"):
        get(claims, "C256")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": "C002"}, "must have the id C001"),
        ({"verdict": "maybe"}, "verdict 'maybe' is not one of right"),
        ({"chapter": "16_more"}, "chapter '16_more' is not one of"),
        ({"given": 2}, "given must be a non-empty string"),
        ({"claim": " "}, "claim must be a non-empty string"),
        ({"extra": "x"}, r"unknown fields \['extra'\]"),
        ({"how": "source", "source": ""}, "source must be a non-empty string"),
    ],
)
def test_a_faulty_entry_is_named(tmp_path, change, message):
    row = yaml.safe_load((BOOK / "claims.yml").read_text(encoding="utf-8"))[0]
    path = tmp_path / "claims.yml"
    path.write_text(yaml.safe_dump([{**row, **change}]), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        load(path)


def test_a_missing_file_says_where_it_belongs(tmp_path):
    with pytest.raises(ValueError, match=r"book/claims\.yml"):
        load(tmp_path / "claims.yml")


def test_only_chapters_that_exist_must_meet_their_claims(claims):
    assert unmet(claims, {}, ["intro", "glossary"]) == {}
    mine = {c.id for c in claims.values() if c.chapter == "04_kv_cache"}
    record = {"04_kv_cache": {"met": mine - {"C006"}, "cards": []}}
    assert unmet(claims, record, ["04_kv_cache"]) == {"04_kv_cache": ["C006"]}
    assert unmet(claims, {"04_kv_cache": {"met": mine, "cards": []}}, ["04_kv_cache"]) == {}


# --- a small book, built for real -----------------------------------------------------------------------------

CONF = """
extensions = ["myst_nb", "course.book.claims", "course.book.code"]
nb_execution_mode = "off"
html_theme = "basic"
"""


@pytest.fixture
def build(tmp_path):
    def run(**pages):
        (tmp_path / "conf.py").write_text(CONF, encoding="utf-8")
        (tmp_path / "claims.yml").write_bytes((BOOK / "claims.yml").read_bytes())
        toc = "# Book\n\n```{toctree}\n" + "\n".join(name.strip("_") for name in pages) + "\n```\n"
        (tmp_path / "index.md").write_text(toc, encoding="utf-8")
        for name, text in pages.items():
            (tmp_path / f"{name.strip('_')}.md").write_text(f"# {name}\n\n{text}\n", encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", str(tmp_path), str(tmp_path / "out")],
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        return done.returncode, done.stderr, tmp_path / "out"

    return run


LEDGER = "```{claims-ledger}\n```"


def test_a_right_book_builds_in_silence_and_its_links_lead_somewhere(build):
    chapter = "The sum holds {claim}`C004`.\n\n```{claim} C006\nThe arithmetic.\n```\n\n"
    chapter += "```{claims-ledger}\n:chapter: 04_kv_cache\n```"
    code = "```{code-object} course.book.svg.text_width\n```"
    status, errors, out = build(_04_kv_cache=chapter, ledger=LEDGER, crosswalk="```{crosswalk}\n```", code=code)
    assert (status, errors) == (0, "")

    page = (out / "04_kv_cache.html").read_text(encoding="utf-8")
    assert 'href="ledger.html#C004"' in page
    assert "claim-wrong" in page
    assert VERDICTS["wrong"] in page
    assert 'id="C004"' in (out / "ledger.html").read_text(encoding="utf-8")

    crosswalk = (out / "crosswalk.html").read_text(encoding="utf-8")
    assert 'href="04_kv_cache.html"' in crosswalk
    assert crosswalk.count("(not yet written)") > 10

    page = (out / "code.html").read_text(encoding="utf-8")
    anchor = page.split("source/course.book.svg.html#")[1].split('"')[0]
    source = (out / "source" / "course.book.svg.html").read_text(encoding="utf-8")
    assert f'"{anchor}"' in source


MISTAKES = {
    "{claim}`C998`": "no claim 'C998': ids run from C001",
    "```{claim} C999\nx\n```": "no claim 'C999': ids run from C001",
    "```{claim} C007\n```": "the card of C007 needs a body",
    "```{claims-ledger}\n:chapter: 4\n```": "no chapter '4'",
    "```{claim} C002\nx\n```\n\n```{claim} C003\nx\n```\n\n```{claim} C006\nx\n```": "at most 2 a page",
    "```{code-object} course.book.svg.nothing\n```": "has no 'nothing' there; it has",
}


def test_each_mistake_fails_the_build_and_is_named(build):
    status, errors, _ = build(_04_kv_cache="Only {claim}`C004`.", ledger=LEDGER, page="\n\n".join(MISTAKES))
    assert status != 0
    assert "claims not met on this page: C001, C002, C003, C005" in errors
    assert [message for message in MISTAKES.values() if message not in errors] == []
