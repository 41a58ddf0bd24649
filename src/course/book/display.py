"""What a figure function returns: one object that a notebook shows as HTML and the book as a numbered figure.

A caption that lives in cell metadata cannot hold a number computed by the cell. So a figure leaves its cell
twice: as ``text/html`` (JupyterLab, VS Code) and as ``text/markdown`` holding one ``course-figure`` directive
(`course.book.sphinx_ext` defines it; the book's configuration prefers it). The directive's body is parsed as
MyST: a caption may hold maths, roles, citations and values of this very run. Captioned figures are numbered
by Sphinx, and ``name="fig-rows"`` is what ``{numref}`fig-rows` `` refers to.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from html import escape
from pathlib import Path

STATIC = Path(__file__).with_name("static")
MARK = "<!-- course-figure: drawing -->"
_NAME = re.compile(r"[a-z][a-z0-9-]*\Z")


def require_text(value, what: str) -> str:
    """`value` stripped, or a ValueError that says which text is missing."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{what} must be a non-empty string: say what there is to see; got {value!r}")
    return value.strip()


def require_name(name: str | None) -> str | None:
    """A figure name as used by numref: lower case, digits and hyphens, such as ``fig-rows``."""
    if name is not None and not _NAME.match(name):
        raise ValueError(f"name must look like 'fig-rows' (lower case letters, digits, hyphens), got {name!r}")
    return name


def digest(*parts: str) -> str:
    """Eight hex digits that depend only on the parts: ids that are the same on every build."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:8]


@dataclass(frozen=True)
class Display:
    """A figure ready to be shown. `html` is complete; `caption` is MyST or None; `name` is for numref."""

    html: str
    caption: str | None = None
    name: str | None = None
    kind: str = "figure"

    def __post_init__(self):
        require_name(self.name)
        if self.name is not None and not (self.caption or "").strip():
            raise ValueError(f"figure {self.name!r} has a name but no caption: numref can only cite a numbered figure")

    def markdown(self) -> str:
        """The directive that the book parses."""
        caption = (self.caption or "").strip()
        fence = "`" * max(4, 1 + max((len(run) for run in re.findall(r"`+", self.html + caption)), default=0))
        options = f":kind: {self.kind}\n" + (f":name: {self.name}\n" if self.name else "")
        return f"{fence}{{course-figure}}\n{options}\n{caption}\n{MARK}\n{self.html}\n{fence}\n"

    def notebook_html(self) -> str:
        """The figure with its own colours, for a notebook that knows nothing of the book's theme."""
        style = (STATIC / "figures.css").read_text(encoding="utf-8")
        caption = f"<figcaption>{escape(self.caption)}</figcaption>" if self.caption else ""
        return f"<style>{style}</style><figure class='course-notebook'>{self.html}{caption}</figure>"

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"text/html": self.notebook_html(), "text/markdown": self.markdown(), "text/plain": repr(self)}

    def __repr__(self):
        return f"<course {self.kind}{' ' + self.name if self.name else ''}>"
