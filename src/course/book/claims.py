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
With a chapter, the ledger is a list of its claims, a line each, linked to the one page that has the arithmetic;
without, it is that page: a bar of verdicts, the rules by which they were given, every claim. The build warns (and
so fails, under ``-W``) when a chapter page leaves a claim of its chapter unmet, and when a page shows more than two
correcting cards.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, fields
from functools import cache
from html import escape
from pathlib import Path

import yaml
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.addnodes import pending_xref
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

from course import chapters

logger = logging.getLogger(__name__)

VERDICTS = {
    "right": "The document holds",
    "rounded": "Right to the digits shown",
    "imprecise": "Where the document is loose",
    "depends": "Where it depends",
    "opinion": "Where it is a matter of taste",
    "outdated": "Where the document has aged",
    "slip": "Where the translation slipped",
    "wrong": "Where the document errs",
}
RULES = {
    "right": "It holds as stated.",
    "rounded": "Its number is ours, to within 2% or one in the last digit printed.",
    "imprecise": "It becomes right once what was left out is put in, or one step, unit or range is mended.",
    "depends": "It holds in some cases and not in others, and does not say in which.",
    "opinion": "A preference; no measurement decides it.",
    "outdated": "It did hold.",
    "slip": "A word went astray in translation, not the matter. Not counted among the wrong.",
    "wrong": "Arithmetic, a run, a source or the document itself contradicts it.",
}
HOWS = {
    "closed_form": "arithmetic",
    "cpu": "run on a CPU",
    "gpu": "needs a GPU",
    "source": "read in a source",
}
# Name of a chapter's page -> its title. The claims belong to the numbered chapters.
CHAPTERS = {chapter.name: chapter.title for chapter in chapters.CHAPTERS.values() if chapter.number}
WORDS = 5  # a claim of fewer is a label, not a statement
LEDGER = "ledger"  # the page that holds every claim
CARDS_A_PAGE = 2  # correcting cards; the others belong in the chapter's ledger


@dataclass(frozen=True)
class Claim:
    """One claim: what the document says, in our words; `given` is its figure as printed, `correct` is ours.

    `given` is empty where the document prints no figure, formula or name; `source` says what was read for it.
    """

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

    @property
    def place(self) -> str:
        """The title of the document's section, without its number."""
        return self.section.partition(" ")[2]


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
        if not isinstance(value, str) or (not value.strip() and name not in ("note", "given")):
            raise ValueError(f"claims: {expected}: {name} must be a non-empty string (quote it), got {value!r}")
    for name, allowed in (("verdict", VERDICTS), ("how", HOWS), ("chapter", CHAPTERS)):
        if row[name] not in allowed:
            raise ValueError(f"claims: {expected}: {name} {row[name]!r} is not one of {', '.join(allowed)}")
    if not re.match(r"D\d\d \S", row["section"]):
        raise ValueError(
            f"claims: {expected}: section {row['section']!r} must read 'D01 Title', as the document has it"
        )
    if len(row["claim"].split()) < WORDS or not row["claim"].endswith("."):
        raise ValueError(
            f"claims: {expected}: {row['claim']!r} is no statement: write a sentence of {WORDS} words or more that can "
            "be right or wrong by itself, and end it with a full stop"
        )
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
        title=f"The document says: {claim.claim} What holds: {claim.correct}",
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


class ClaimCount(SphinxRole, _Claims):
    """How many claims there are (``all``) or have a verdict: ``{claim-count}`wrong` ``."""

    def run(self):
        counts = verdict_counts(self.claims().values())
        names = [name.strip() for name in self.text.split("+")]
        if names != ["all"] and (unknown := [name for name in names if name not in VERDICTS]):
            message = f"no verdict {unknown[0]!r}; write all, or one or several of {', '.join(VERDICTS)} with + between"
            return [], [self.inliner.reporter.error(message, line=self.lineno)]
        found = sum(counts.values()) if names == ["all"] else sum(counts.get(name, 0) for name in names)
        return [nodes.Text(str(found))], []


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
        printed = [("As printed", claim.given)] if claim.given else []
        card += _definitions([*printed, ("What holds", claim.correct)])
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


def _checked(claim: Claim) -> str:
    if claim.source == "unconfirmed":
        return "no source was found"
    return HOWS[claim.how] + (f"; {claim.source}" if claim.source else "")


def _entry(claim: Claim):
    """A row of the ledger: the chip, what the document says and where, what holds and why."""
    says = [nodes.paragraph("", claim.claim)]
    if claim.given:
        says.append(nodes.inline("", f"As printed: {claim.given}", classes=["claim-given"]))
    says.append(nodes.inline("", claim.place, classes=["claim-place"]))
    holds = [nodes.paragraph("", claim.correct)]
    if claim.note:
        holds.append(nodes.inline("", claim.note, classes=["claim-note"]))
    holds.append(nodes.inline("", f"Checked: {_checked(claim)}", classes=["claim-source"]))
    classes = [f"verdict-{claim.verdict}", f"chapter-{claim.chapter}", f"how-{claim.how}"]
    return {"classes": classes, "ids": [claim.id]}, [[nodes.paragraph("", "", _chip(claim))], says, holds]


def verdict_counts(claims) -> dict[str, int]:
    """How many of `claims` have each verdict, in the order of `VERDICTS`, those that occur."""
    found = Counter(claim.verdict for claim in claims)
    return {verdict: found[verdict] for verdict in VERDICTS if found[verdict]}


def verdict_bar(claims) -> str:
    """HTML: a bar whose parts are as long as their verdicts are many, and below it each verdict's count and rule.

    ``ledger-filter.js`` turns both into buttons; without it they are a picture and a list.
    """
    counts = verdict_counts(claims)
    parts = "".join(
        f'<span class="claim-{verdict}" data-verdict="{verdict}" style="flex-grow:{count}"></span>'
        for verdict, count in counts.items()
    )
    rules = "".join(
        f'<div class="claim-{verdict}" data-verdict="{verdict}"><dt><span class="verdict-count">{count}</span> '
        f'<span class="verdict-name">{verdict}</span></dt><dd>{escape(RULES[verdict])}</dd></div>'
        for verdict, count in counts.items()
    )
    said = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    return (
        f'<div class="verdict-bar" role="img" aria-label="{sum(counts.values())} claims: {said}">{parts}</div>'
        f'<dl class="verdict-rules">{rules}</dl>'
    )


class ClaimsLedger(SphinxDirective, _Claims):
    """A chapter's claims, one line each; or, without a chapter, all of them, in full."""

    option_spec = {"chapter": directives.unchanged}  # noqa: RUF012 (docutils' protocol)

    def run(self):
        chapter = self.options.get("chapter")
        if chapter is not None and chapter not in CHAPTERS:
            raise self.error(f"no chapter {chapter!r}; one of {', '.join(CHAPTERS)}")
        chosen = [claim for claim in self.claims().values() if chapter in (None, claim.chapter)]
        self.meet(*chosen)
        if chapter is None:
            return [
                _table(
                    ["Claim", "The document says", "What holds"],
                    [_entry(claim) for claim in chosen],
                    ["ledger", "ledger-whole"],
                )
            ]
        lines = [
            nodes.list_item("", nodes.paragraph("", "", _chip(claim), nodes.Text(" "), nodes.inline("", claim.claim)))
            for claim in chosen
        ]
        return [nodes.bullet_list("", *lines, classes=["claim-lines"])]


class VerdictBar(SphinxDirective, _Claims):
    """The bar of verdicts over all claims, with the rule of each."""

    def run(self):
        return [nodes.raw("", verdict_bar(self.claims().values()), format="html")]


class Crosswalk(SphinxDirective, _Claims):
    """From every section of the document to the chapters that treat it, counted from the claims."""

    def run(self):
        self.env.note_reread()  # it shows which chapters exist
        sections: dict[str, dict[str, list[Claim]]] = {}
        for claim in self.claims().values():
            sections.setdefault(claim.section, {}).setdefault(claim.chapter, []).append(claim)
        rows = []
        for section, treated in sections.items():
            number, _, title = section.partition(" ")
            for chapter, found in treated.items():
                split = ", ".join(f"{count}\u00a0{verdict}" for verdict, count in verdict_counts(found).items())
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
        return [_table(["No.", "Section of the document", "Chapter", "Claims", "Verdicts"], rows, ["crosswalk"])]

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
    app.add_role("claim-count", ClaimCount())
    app.add_directive("claim", ClaimCard)
    app.add_directive("claims-ledger", ClaimsLedger)
    app.add_directive("verdict-bar", VerdictBar)
    app.add_directive("crosswalk", Crosswalk)
    app.connect("doctree-resolved", _link_chips)
    app.connect("env-check-consistency", _check)
    app.connect("env-purge-doc", _purge)
    app.connect("env-merge-info", _merge)
