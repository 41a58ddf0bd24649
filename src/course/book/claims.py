"""The document's claims on the page: chips, cards, ledgers, the crosswalk, and the check that all are met.

``book/claims.yml`` holds every claim the course document makes: what it says, what holds, the verdict, and
how that was checked. In a page::

    The sum is right {claim}`C004`, its unit is not {claim}`C005`.

    ```{claim} C006
    Sum one pass of $k$ rows over $k = 1 … n$: ...
    ```

    ```{claims-ledger}
    :chapter: 04_kv_cache
    ```

A chip links to the entry in the ledger. A card shows the document's figure beside ours, then your own words.
The ledger lists all claims of a chapter, or of the book. The build warns (and so fails, under ``-W``) when a
chapter page leaves a claim of its chapter unmet, and when a page shows more than two correcting cards.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

import yaml
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.addnodes import pending_xref
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

logger = logging.getLogger(__name__)

VERDICTS = {
    "right": "The document holds",
    "rounded": "Right to the digits shown",
    "imprecise": "Where the document is loose",
    "depends": "Where it depends",
    "outdated": "Where the document has aged",
    "wrong": "Where the document errs",
}
HOWS = {
    "closed_form": "arithmetic",
    "cpu": "run on a CPU",
    "gpu": "needs a GPU",
    "source": "read in a source",
}
CHAPTERS = {
    "01_tokenization": "Tokenization",
    "02_embeddings": "Embeddings",
    "03_transformer_block": "The transformer block",
    "04_kv_cache": "The KV cache",
    "05_cache_size": "What a cache weighs",
    "06_prefill_decode": "Prefill and decode",
    "07_chunked_prefill": "Chunked prefill",
    "08_paged_attention": "Paged attention",
    "09_sliding_window": "Sliding window",
    "10_prompt_caching": "Prompt caching",
    "11_sampling": "Sampling",
    "12_speculative_decoding": "Speculative decoding",
    "13_quantization": "Quantization",
    "14_flash_attention": "FlashAttention",
    "15_end_to_end": "End to end",
}
LEDGER = "ledger"  # the page that holds every claim
CARDS_A_PAGE = 2  # correcting cards; the others belong in the chapter's ledger


@dataclass(frozen=True)
class Claim:
    """One claim. `given` is the document's own figure, `correct` ours; `source` says what was read for it."""

    id: str
    section: str
    chapter: str
    claim: str
    given: str
    correct: str
    verdict: str
    note: str
    how: str
    check: str
    source: str = ""

    @property
    def confirms(self) -> bool:
        return self.verdict in ("right", "rounded")


def _claim(position: int, row) -> Claim:
    """The row as a `Claim`, or a ValueError that names the row, the field and what is allowed."""
    expected = f"C{position:03d}"
    if not isinstance(row, dict) or row.get("id") != expected:
        raise ValueError(f"claims: entry {position} must have the id {expected}, got {row!r:.80}")
    known = {f.name for f in fields(Claim)}
    if set(row) - known or known - {"source"} - set(row):
        raise ValueError(
            f"claims: {expected} has unknown fields {sorted(set(row) - known)}, "
            f"lacks {sorted(known - {'source'} - set(row))}"
        )
    for name, value in row.items():
        if not isinstance(value, str) or (not value.strip() and name != "note"):
            raise ValueError(f"claims: {expected}: {name} must be a non-empty string (quote it), got {value!r}")
    for name, allowed in (("verdict", VERDICTS), ("how", HOWS), ("chapter", CHAPTERS)):
        if row[name] not in allowed:
            raise ValueError(f"claims: {expected}: {name} {row[name]!r} is not one of {', '.join(allowed)}")
    if row["how"] == "source" and not row.get("source"):
        raise ValueError(f"claims: {expected} was checked by reading, so it must name its source")
    return Claim(**row)


@cache
def _load(path: Path, stamp: int) -> dict[str, Claim]:
    rows = yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    if not isinstance(rows, list):
        raise ValueError(f"{path} must be a list of claims")
    return {claim.id: claim for claim in (_claim(i, row) for i, row in enumerate(rows, start=1))}


def load(path: Path) -> dict[str, Claim]:
    """All claims by id, in the document's order, checked. Raises ValueError that names the entry at fault."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"no claims at {path}; they lie in book/claims.yml")
    return _load(path, path.stat().st_mtime_ns)


def get(all_claims: dict[str, Claim], claim_id: str) -> Claim:
    """The claim with this id, or a ValueError that says which ids exist."""
    try:
        return all_claims[claim_id]
    except KeyError:
        raise ValueError(f"no claim {claim_id!r}: ids run from C001 to C{len(all_claims):03d}") from None


class claim_chip(nodes.General, nodes.Inline, nodes.Element):
    """A claim's number and verdict; becomes a link to the ledger once the pages' addresses are known."""


def _chip(claim: Claim) -> claim_chip:
    return claim_chip(
        claim=claim.id,
        verdict=claim.verdict,
        title=f"The document: {claim.claim} ({claim.given}). What holds: {claim.correct}",
    )


class _Claims:
    """What the role and the directives share: the claims, and the record of where each is met."""

    def claims(self) -> dict[str, Claim]:
        path = Path(self.env.srcdir) / "claims.yml"
        self.env.note_dependency(str(path))
        return load(path)

    def meet(self, *met: Claim, card: bool = False) -> None:
        record = _record(self.env).setdefault(self.env.docname, {"met": set(), "cards": []})
        record["met"].update(claim.id for claim in met)
        record["cards"] += [claim.id for claim in met if card and not claim.confirms]


def _record(env) -> dict:
    if not hasattr(env, "course_claims"):
        env.course_claims = {}
    return env.course_claims


class ClaimRole(SphinxRole, _Claims):
    def run(self):
        try:
            claim = get(self.claims(), self.text.strip())
        except ValueError as error:
            return [], [self.inliner.reporter.error(str(error), line=self.lineno)]
        self.meet(claim)
        return [_chip(claim)], []


def _definitions(pairs) -> nodes.definition_list:
    items = [
        nodes.definition_list_item("", nodes.term("", term), nodes.definition("", nodes.paragraph("", text)))
        for term, text in pairs
    ]
    return nodes.definition_list("", *items, classes=["claim-figures"])


class ClaimCard(SphinxDirective, _Claims):
    required_arguments = 1
    has_content = True

    def run(self):
        try:
            claim = get(self.claims(), self.arguments[0])
        except ValueError as error:
            raise self.error(str(error)) from error
        if not self.content:
            raise self.error(f"the card of {claim.id} needs a body: the arithmetic, in your own words")
        self.meet(claim, card=True)
        card = nodes.container(classes=["claim-card", f"claim-{claim.verdict}"])
        card += nodes.paragraph(
            "", "", nodes.inline("", VERDICTS[claim.verdict]), _chip(claim), classes=["claim-title"]
        )
        card += nodes.paragraph("", claim.claim, classes=["claim-text"])
        card += _definitions([("The document", claim.given), ("What holds", claim.correct)])
        body = nodes.container(classes=["claim-body"])
        self.state.nested_parse(self.content, self.content_offset, body)
        card += body
        return [card]


def _table(head, rows, classes) -> nodes.table:
    """A docutils table; `rows` are pairs of (attributes of the row, list of cells, each a list of nodes)."""
    group = nodes.tgroup(cols=len(head))
    group += [nodes.colspec(colwidth=1) for _ in head]
    group += nodes.thead("", nodes.row("", *[nodes.entry("", nodes.paragraph("", title)) for title in head]))
    body = nodes.tbody()
    for attributes, cells in rows:
        body += nodes.row("", *[nodes.entry("", *cell) for cell in cells], **attributes)
    group += body
    return nodes.table("", group, classes=classes)


def _entry(claim: Claim, anchor: bool):
    if claim.source == "unconfirmed":
        checked = "no source was found"
    else:
        checked = HOWS[claim.how] + (f"; {claim.source}" if claim.source else "")
    text = nodes.paragraph("", claim.claim)
    if claim.note:
        text += nodes.inline("", claim.note, classes=["claim-note"])
    text += nodes.inline("", f"Checked: {checked}", classes=["claim-source"])
    row = {"classes": [f"verdict-{claim.verdict}", f"chapter-{claim.chapter}", f"how-{claim.how}"]}
    if anchor:
        row["ids"] = [claim.id]
    return row, [
        [nodes.paragraph("", "", _chip(claim))],
        [text],
        [nodes.paragraph("", claim.given)],
        [nodes.paragraph("", claim.correct)],
    ]


class ClaimsLedger(SphinxDirective, _Claims):
    option_spec = {"chapter": directives.unchanged}  # noqa: RUF012 (docutils' protocol)

    def run(self):
        chapter = self.options.get("chapter")
        if chapter is not None and chapter not in CHAPTERS:
            raise self.error(f"no chapter {chapter!r}; one of {', '.join(CHAPTERS)}")
        chosen = [claim for claim in self.claims().values() if chapter in (None, claim.chapter)]
        self.meet(*chosen)
        whole = chapter is None and self.env.docname == LEDGER
        rows = [_entry(claim, anchor=whole) for claim in chosen]
        classes = ["ledger", "ledger-whole" if whole else "ledger-part"]
        return [_table(["Claim", "What it says", "The document", "What holds"], rows, classes)]


class Crosswalk(SphinxDirective, _Claims):
    """From every section of the document to the chapters that treat it, counted from the claims."""

    def run(self):
        self.env.note_reread()  # it shows which chapters exist
        sections: dict[str, dict[str, list[Claim]]] = {}
        for claim in self.claims().values():
            sections.setdefault(claim.section, {}).setdefault(claim.chapter, []).append(claim)
        rows = []
        for section, chapters in sections.items():
            number, _, title = section.partition(" ")
            for chapter, found in chapters.items():
                counts = Counter(claim.verdict for claim in found)
                split = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
                rows.append(
                    (
                        {},
                        [
                            [nodes.paragraph("", number)],
                            [nodes.paragraph("", title)],
                            [self._chapter(chapter)],
                            [nodes.paragraph("", str(len(found)))],
                            [nodes.paragraph("", split)],
                        ],
                    )
                )
        return [_table(["", "Section of the document", "Chapter", "Claims", "Verdicts"], rows, ["crosswalk"])]

    def _chapter(self, chapter: str) -> nodes.paragraph:
        label = f"{chapter[:2]} {CHAPTERS[chapter]}"
        if chapter not in self.env.found_docs:
            return nodes.paragraph("", "", nodes.Text(label), nodes.emphasis("", " (not yet written)"))
        link = pending_xref(
            "",
            nodes.inline("", label),
            refdomain="std",
            reftype="doc",
            reftarget=f"/{chapter}",
            refexplicit=True,
            refdoc=self.env.docname,
            refwarn=True,
        )
        return nodes.paragraph("", "", link)


def _link_chips(app, doctree, docname):
    has_ledger = LEDGER in app.env.found_docs
    for node in list(doctree.findall(claim_chip)):
        words = [nodes.inline("", node["claim"]), nodes.Text(" "), nodes.inline("", node["verdict"])]
        classes = ["claim", f"claim-{node['verdict']}"]
        if app.builder.format != "html" or not has_ledger:
            node.replace_self(nodes.inline("", "", *words, classes=classes))
            continue
        uri = app.builder.get_relative_uri(docname, LEDGER) + f"#{node['claim']}"
        node.replace_self(
            nodes.reference("", "", *words, internal=True, refuri=uri, reftitle=node["title"], classes=classes)
        )


def unmet(all_claims: dict[str, Claim], record: dict, pages) -> dict[str, list[str]]:
    """For each chapter that exists as a page: the claims of the chapter that the page does not meet."""
    missing = {}
    for chapter in CHAPTERS:
        if chapter in pages:
            met = record.get(chapter, {"met": set()})["met"]
            left = [c.id for c in all_claims.values() if c.chapter == chapter and c.id not in met]
            if left:
                missing[chapter] = left
    return missing


def _check(app, env):
    path = Path(app.srcdir) / "claims.yml"
    if not path.is_file() and not _record(env):
        return
    for chapter, ids in unmet(load(path), _record(env), env.found_docs).items():
        logger.warning(
            "claims not met on this page: %s (use {claim}`ID` or {claims-ledger})",
            ", ".join(ids),
            location=chapter,
            type="course",
            subtype="claims",
        )
    for docname, seen in _record(env).items():
        if len(seen["cards"]) > CARDS_A_PAGE:
            logger.warning(
                "%d correcting cards (%s), at most %d a page: move some to the ledger",
                len(seen["cards"]),
                ", ".join(seen["cards"]),
                CARDS_A_PAGE,
                location=docname,
                type="course",
                subtype="claims",
            )


def _purge(app, env, docname):
    _record(env).pop(docname, None)


def _merge(app, env, docnames, other):
    _record(env).update({name: seen for name, seen in _record(other).items() if name in docnames})


def setup(app):
    app.add_node(claim_chip)
    app.add_role("claim", ClaimRole())
    app.add_directive("claim", ClaimCard)
    app.add_directive("claims-ledger", ClaimsLedger)
    app.add_directive("crosswalk", Crosswalk)
    app.connect("doctree-resolved", _link_chips)
    app.connect("env-check-consistency", _check)
    app.connect("env-purge-doc", _purge)
    app.connect("env-merge-info", _merge)
