"""The bibliography: sorted by author and year, each entry under the label by which the pages cite it.

Titles stand as they are written in ``references.bib``. Pybtex's styles would write them in lower case but for what is
in braces, and number the entries, while the pages cite by author and year.
"""

from __future__ import annotations

import re

from pybtex.plugin import register_plugin
from pybtex.style.formatting.unsrt import Style
from pybtex.style.labels import BaseLabelStyle
from pybtex.style.sorting import BaseSortingStyle
from pybtex.style.template import field, sentence

STYLE = "course"
PAGE = "bibliography"


def label(entry) -> str:
    """Author and year as ``{cite}`` prints them: one name, two, or the first and "et al."."""
    names = [" ".join([*person.prelast_names, *person.last_names]) for person in entry.persons["author"]]
    said = names[0] if len(names) == 1 else " and ".join(names) if len(names) == 2 else f"{names[0]} et al."
    return f"{said}, {entry.fields['year']}"


class AuthorYearLabels(BaseLabelStyle):
    def format_labels(self, sorted_entries):
        yield from (label(entry) for entry in sorted_entries)


class ByLabel(BaseSortingStyle):
    def sorting_key(self, entry):
        return label(entry).lower()


class CourseStyle(Style):
    default_sorting_style = STYLE
    default_label_style = STYLE

    def format_title(self, e, which_field, as_sentence=True):
        title = field(which_field)
        return sentence[title] if as_sentence else title


def _as_list(app, pagename, template, context, doctree):
    """Docutils puts ``doc-biblioentry`` into a list, where screen readers look for list items."""
    if "citation-list" in context.get("body", ""):
        body = re.sub(r'<div(?: role="list")? class="citation-list">', '<div role="list" class="citation-list">',
                      context["body"])  # fmt: skip
        context["body"] = body.replace('role="doc-biblioentry"', 'role="listitem"')


def setup(app):
    register_plugin("pybtex.style.labels", STYLE, AuthorYearLabels)
    register_plugin("pybtex.style.sorting", STYLE, ByLabel)
    register_plugin("pybtex.style.formatting", STYLE, CourseStyle)
    app.connect("html-page-context", _as_list, priority=950)
