"""The bibliography: what a page cites stands in the list under the same label, in order, titles as written."""

import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest
from pybtex.database import parse_file

from course.book.bibliography import label

BOOK = Path(__file__).parents[3] / "book"
CONF = """
extensions = ["myst_nb", "sphinxcontrib.bibtex", "course.book.bibliography"]
bibtex_bibfiles = ["references.bib"]
bibtex_reference_style = "author_year"
bibtex_default_style = "course"
nb_execution_mode = "off"
html_theme = "basic"
"""


@pytest.fixture(scope="module")
def entries():
    return parse_file(str(BOOK / "references.bib")).entries


def test_labels_tell_all_entries_apart(entries):
    labels = [label(entry) for entry in entries.values()]
    assert len(set(labels)) == len(labels) >= 37


def test_an_entry_has_where_it_appeared_and_where_to_read_it(entries):
    old = {"gage1994compression", "radford2019gpt2", "yu2022orca"}  # no preprint, no identifier known to us
    assert [key for key, e in entries.items() if not {"url", "doi"} & set(e.fields) and key not in old] == []
    assert [key for key, e in entries.items() if not {"journal", "booktitle", "institution"} & set(e.fields)] == []


def test_the_list_is_sorted_and_labelled_as_the_pages_cite(tmp_path, entries):
    (tmp_path / "conf.py").write_text(CONF, encoding="utf-8")
    (tmp_path / "references.bib").write_bytes((BOOK / "references.bib").read_bytes())
    cites = "\n\n".join(f"{{cite}}`{key}`" for key in entries)
    (tmp_path / "index.md").write_text(f"# Page\n\n{cites}\n\n```{{bibliography}}\n:all:\n```\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", str(tmp_path), str(tmp_path / "out")],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    html = unescape((tmp_path / "out" / "index.html").read_text(encoding="utf-8")).replace("\xa0", " ")
    page, listed = html.split('class="citation-list"')
    cited = {re.sub(r"<[^>]+>", "", found) for found in re.findall(r"\[(<a .*?</a>)\]", page)}
    blocks = re.findall(r'<div class="citation".*?</div>', listed, re.S)
    labels = [
        re.sub(
            r"<[^>]+>|[\[\]]", "", re.search(r'class="label">(.*?)</span>\s*(?:<p>|<span class="back)', b, re.S)[1]
        ).strip()
        for b in blocks
    ]
    assert sorted(labels) == sorted(cited)
    assert [name.lower() for name in labels] == sorted(name.lower() for name in labels)
    assert 'role="doc-biblioentry"' not in html
    assert listed.count('role="listitem"') == len(entries)
    text = re.sub(r"<[^>]+>", "", listed)
    titles = [re.sub(r"[{}]", "", e.fields["title"]).replace("--", "–") for e in entries.values()]
    assert [title for title in titles if title not in text] == [], "titles as written, capitals and all"
