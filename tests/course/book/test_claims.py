"""The claims: the file is whole, and a build tells a page what it forgot."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml

from course.book.claims import CHAPTERS, RULES, VERDICTS, get, load, unmet, verdict_bar, verdict_counts

BOOK = Path(__file__).parents[3] / "book"


@pytest.fixture(scope="module")
def claims():
    return load(BOOK / "claims.yml")


def test_all_claims_are_there(claims):
    assert list(claims) == [f"C{i:03d}" for i in range(1, 256)]
    counts = Counter(claim.verdict for claim in claims.values())
    assert counts == {
        "right": 114, "rounded": 10, "imprecise": 65, "depends": 24, "opinion": 5, "outdated": 4, "slip": 5,
        "wrong": 28,
    }  # fmt: skip
    assert {claim.chapter for claim in claims.values()} == set(CHAPTERS)


def test_the_sections_follow_each_other_as_in_the_document(claims):
    in_order = list(dict.fromkeys(claim.section for claim in claims.values()))
    assert [section[:3] for section in in_order] == [f"D{i:02d}" for i in range(1, 26)]
    assert len({section[4:] for section in in_order}) == 25
    runs = [
        c.section
        for c, after in zip(claims.values(), [*list(claims.values())[1:], None])
        if after is None or after.section != c.section
    ]
    assert runs == in_order, "the claims of a section stand together"


# Finite verbs, since a label ("order", "the size") has none.
VERB = re.compile(
    r"\b(is|are|was|has|have|had|does|do|can|cannot|may|needs?|takes?|costs?|gives?|goes|go|stays?|use[sd]?|reads?|writes?|adds?|"
    r"appends?|builds?|caches?|keeps?|holds?|returns?|makes?|matters?|works?|becomes?|turns?|divides?|falls?|lies?|runs?|"
    r"finds?|offers?|reports?|counts?|belongs?|shows?|decodes?|shares?|wastes?|raises?|mix|maps?|multiply|projects?|computes?|attends?|grows?|"
    r"waits?|reserves?|finishes|improves?|drops?|mark(?:ed|s)|passes|sets?|applies|checks?|loses?|drifts?|loads?|changes|picks?|differs?|"
    r"puts?|rotates?|encodes?|depends?|helps?|saturates?|fits|leaves?|equals?|freeze|grow|lose|spent|means|measures|depend)\b"
)
# A unit printed with the figure, and how a sentence says it.
UNITS = {
    r"GB": r"GB", r"MB": r"MB", r"ms\b": r"ms\b", r"tok/s": r"tok/s", r"%": r"%", r"\btok(ens?)?\b(?!/)": r"tokens?\b",
    r"\d ?[x×](?! ?[\w(])": r"times\b|makes .* smaller", r"float16": r"float16|fp16", r"pass\b": r"pass(es)?\b",
    r"forward": r"forward|pass", r"pages": r"pages",
}  # fmt: skip
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def numbers(text):
    """The numbers of a text: subscripts as digits, without the commas of thousands."""
    text = text.translate(str.maketrans("₀₁₂₃₄₅₆₇₈₉²", "01234567892"))
    text = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text)
    return {float(found) for found in NUMBER.findall(text)}


def test_a_claim_is_a_statement_with_its_number_and_unit(claims):
    assert [c.id for c in claims.values() if not VERB.search(c.claim)] == [], "no verb"
    assert [c.id for c in claims.values() if not re.match(r"[A-Z0-9\"k]|int", c.claim)] == []
    without = {c.id: numbers(c.given) - numbers(c.claim) for c in claims.values()}
    assert {name: left for name, left in without.items() if left} == {}, "printed, but not in the sentence"
    units = [
        (c.id, printed)
        for c in claims.values()
        for printed, said in UNITS.items()
        if re.search(printed, c.given) and numbers(c.given) and not re.search(said, c.claim)
    ]
    assert units == [], "the figure's unit is not in the sentence"
    bare = [c.id for c in claims.values() if numbers(c.given) and len(re.sub(r"[^A-Za-z]+", " ", c.claim).split()) < 3]
    assert bare == [], "a number needs words that say what is counted"


def test_a_claim_leans_on_no_other(claims):
    """It can be right or wrong by itself: nothing in it points at a sentence before it."""
    pointing = re.compile(r"\b([Tt]hose|[Tt]hat cache|[Tt]hat count|such a|[Aa]ll of this|turns them|the four)\b")
    assert [c.id for c in claims.values() if pointing.search(c.claim)] == []


def test_no_two_claims_say_the_same(claims):
    said = Counter(c.claim for c in claims.values())
    assert [text for text, times in said.items() if times > 1] == []


def test_verdicts_follow_their_rules(claims):
    assert list(RULES) == list(VERDICTS)
    translated = {c.id: c for c in claims.values() if re.search(r"slip of (the )?translation", c.note)}
    assert {c.verdict for c in translated.values()} == {"slip"}
    assert [c.id for c in claims.values() if c.verdict == "slip" and c.id not in translated] == []
    left_out = [c for c in claims.values() if re.search(r"\bleft out\b", f"{c.note} {c.correct}")]
    assert {c.id: c.verdict for c in left_out if c.verdict in ("right", "rounded", "wrong")} == {}
    same = [(c, claims[other]) for c in claims.values() for other in re.findall(r"[Tt]he fault of (C\d{3})", c.note)]
    assert len(same) >= 4
    assert [(c.id, other.id) for c, other in same if c.verdict != other.verdict] == []
    assert [c.id for c in claims.values() if c.verdict == "opinion" and c.how not in ("source", "closed_form")] == []
    assert [c.id for c in claims.values() if not c.confirms and not c.note and c.correct == "as stated"] == []


def test_symbols_are_those_of_the_notation(claims):
    """B is the size of a block and b the batch; an angle's frequency is θ, so no penalty is."""
    texts = {c.id: f"{c.claim} {c.correct} {c.note}" for c in claims.values()}
    assert [name for name, text in texts.items() if re.search(r"\bB (=|≥|>)|\bB·S|\bB/TPOT|\btheta\b", text)] == []


def test_the_readme_counts_what_the_file_counts(claims):
    readme = (BOOK.parent / "README.md").read_text(encoding="utf-8")
    total, wrong = re.search(r"(\d+) claims\. (\d+) of them are wrong", readme).groups()
    assert (int(total), int(wrong)) == (len(claims), verdict_counts(claims.values())["wrong"])


def test_the_bar_counts_every_claim(claims):
    html = verdict_bar(claims.values())
    parts = [int(n) for n in re.findall(r'style="flex-grow:(\d+)"', html)]
    assert sum(parts) == 255
    assert parts == list(verdict_counts(claims.values()).values())
    assert html.count("<dd>") == len(parts)


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
        ({"claim": "Order of the steps."}, "is no statement"),
        ({"claim": "The cache is read at every step"}, "is no statement"),
        ({"section": "Without KV-cache"}, "must read 'D01 Title'"),
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


LEDGER = "```{verdict-bar}\n```\n\n```{claims-ledger}\n```"


def test_a_right_book_builds_in_silence_and_its_links_lead_somewhere(build):
    chapter = "Of {claim-count}`all` claims {claim-count}`right + rounded` hold."
    chapter += " The sum holds {claim}`C004`.\n\n```{claim} C006\nThe arithmetic.\n```\n\n"
    chapter += "```{claims-ledger}\n:chapter: 04_kv_cache\n```"
    code = "```{code-object} course.book.svg.text_width\n```"
    status, errors, out = build(_04_kv_cache=chapter, ledger=LEDGER, crosswalk="```{crosswalk}\n```", code=code)
    assert (status, errors) == (0, "")

    page = (out / "04_kv_cache.html").read_text(encoding="utf-8")
    assert 'href="ledger.html#C004"' in page
    assert "Of 255 claims 124 hold." in page
    lines = re.search(r'<ul class="claim-lines.*?</ul>', page, re.S)[0]
    assert lines.count("<li>") == 27
    assert lines.count('href="ledger.html#C') == 27
    assert "<table" not in page, "the arithmetic stands in the ledger only"
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
    "{claim-count}`good`": "no verdict 'good'; write all, or one or several of right",
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


# --- colours --------------------------------------------------------------------------------------------------

STATIC = BOOK.parent / "src" / "course" / "book" / "static"


def palettes():
    """The light and the dark palette of figures.css: name -> (r, g, b)."""
    css = (STATIC / "figures.css").read_text(encoding="utf-8")
    blocks = list(re.findall(r"\{([^{}]*--fig-blue:[^{}]*)\}", css))
    for block in (blocks[0], blocks[-1]):
        yield {n: tuple(bytes.fromhex(v)) for n, v in re.findall(r"--fig-([a-z]+): #([0-9a-f]{6})", block)}


def mixed(share, colour, other):
    return tuple(share * a + (1 - share) * b for a, b in zip(colour, other))


def contrast(one, other):
    """The ratio of WCAG 2: from 1 to 21."""

    def luminance(colour):
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in colour)]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_a_verdict_is_readable_on_its_tint_in_both_themes():
    css = (STATIC / "claims.css").read_text(encoding="utf-8")
    text = (
        int(re.search(r"--verdict-text: color-mix\(in srgb, var\(--verdict\) (\d+)%, var\(--fig-ink\)\)", css)[1]) / 100
    )
    tint = int(re.search(r"a\.claim \{.*?background: color-mix\(in srgb, var\(--verdict\) (\d+)%", css)[1]) / 100
    colours = {
        verdict: colour
        for verdicts, colour in re.findall(
            r"^((?:\.claim-[a-z]+,? ?)+)\{ --verdict: var\(--fig-([a-z]+)\)", css.replace("} .", "}\n."), re.M
        )
        for verdict in re.findall(r"claim-([a-z]+)", verdicts)
    }
    assert set(colours) == set(VERDICTS)
    for palette in palettes():
        for verdict, name in colours.items():
            words = mixed(text, palette[name], palette["ink"])
            assert contrast(words, mixed(tint, palette[name], palette["paper"])) >= 4.5, verdict
            assert contrast(words, palette["paper"]) >= 4.5, verdict
