"""Other chapters and this chapter's exercises, as a page names them, taken from where they are registered.

``{chapter}`09` `` is a link to a chapter that is written, and its number, title and *to come* where it is not.
A directive lists the exercises of a chapter with their minutes::

    ```{exercises} kv_cache
    ```
"""

from __future__ import annotations

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.util.docutils import SphinxDirective, SphinxRole

from course.chapters import CHAPTERS, Chapter
from course.specs import exercises


def _numbered(number: str) -> Chapter:
    """The chapter with this number. Raises ValueError with the numbers that exist."""
    found = {chapter.number: chapter for chapter in CHAPTERS.values() if chapter.number}
    if number not in found:
        raise ValueError(f"no chapter {number!r}; there are {', '.join(found)}")
    return found[number]


class ChapterRole(SphinxRole):
    def run(self):
        try:
            chapter = _numbered(self.text.strip())
        except ValueError as error:
            return [], [self.inliner.reporter.error(str(error), line=self.lineno)]
        file, label = chapter.name, f"chapter {chapter.number}, {chapter.title}"
        if not (self.env.doc2path(file, base=True) and file in self.env.found_docs):
            return [nodes.inline("", f"{label} (to come)", classes=["to-come"])], []
        link = pending_xref("", nodes.inline("", label), refdomain="std", reftype="doc", reftarget=f"/{file}",
                            refexplicit=True, refdoc=self.env.docname, refwarn=True)  # fmt: skip
        return [link], []


def core_minutes(stem: str) -> int:
    """Minutes for the core exercises of a chapter; for kernels, which have no core, for all of them."""
    items = exercises(stem)
    core = [item for item in items if item.core] or items
    return sum(item.minutes for item in core)


class Exercises(SphinxDirective):
    required_arguments = 1

    def run(self):
        try:
            items = exercises(self.arguments[0])
        except ValueError as error:
            raise self.error(str(error)) from error
        self.env.note_reread()
        core = [item for item in items if item.core] or list(items)
        extra = [item for item in items if item not in core]
        made = nodes.bullet_list("", classes=["exercise-list"])
        for word, group in (("Core", core), ("Extra", extra)):
            if group:
                entry = nodes.paragraph("", "", nodes.strong("", word))
                for i, item in enumerate(group):
                    entry += nodes.Text(", " if i else ": ")
                    entry += nodes.literal("", item.id.partition(".")[2], classes=["exercise-name"])
                    entry += nodes.Text(f" {item.minutes}\u00a0min")
                entry += nodes.Text(f". Together {sum(item.minutes for item in group)} minutes.")
                made += nodes.list_item("", entry)
        return [made]


def setup(app):
    app.add_role("chapter", ChapterRole())
    app.add_directive("exercises", Exercises)
