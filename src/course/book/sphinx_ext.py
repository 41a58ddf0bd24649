"""The book's Sphinx extension: theme, figures, claims, code by name, crosswalk.

Loaded by ``_config.yml`` as ``course.book.sphinx_ext``. The pages load every script and style sheet from the
book itself: a build works from ``file://``, and no page asks the network for anything.
"""

from __future__ import annotations

import importlib.util
import os
from html import escape
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

from course.book import bibliography, chapters, claims, code, course_map, freshness, predict, template, vocabularies
from course.book.display import MARK, STATIC

STYLES = ("figures.css", "course.css", "claims.css", "map.css", "intro.css", "bibliography.css")
FIRST_SCRIPTS = ("predict.js", "course-figures.js")  # what the other scripts ask, and where they register
KERNEL_PAGES = ("triton_primer.md",)


class CourseFigure(SphinxDirective):
    """What `course.book.display.Display` writes: a caption in MyST, a mark, a drawing in HTML."""

    has_content = True
    option_spec = {"kind": directives.unchanged, "name": directives.unchanged}  # noqa: RUF012 (docutils' protocol)

    def run(self):
        lines = list(self.content)
        if MARK not in lines:
            raise self.error("course-figure is written by course.book.display, not by hand: the drawing is missing")
        cut = lines.index(MARK)
        figure = nodes.figure(classes=["course-figure", f"course-{self.options.get('kind', 'figure')}"])
        self.set_source_info(figure)
        figure += nodes.raw("", "\n".join(lines[cut + 1 :]), format="html")
        if any(line.strip() for line in lines[:cut]):
            caption = nodes.caption()
            self.set_source_info(caption)
            body = nodes.Element()
            self.state.nested_parse(self.content[:cut], self.content_offset, body)
            for paragraph in body.children:
                if not isinstance(paragraph, nodes.paragraph):
                    raise self.error(f"a caption is prose, it cannot hold a {paragraph.tagname}")
                caption += ([nodes.Text(" ")] if len(caption) else []) + paragraph.children
            figure += caption
        self.add_name(figure)
        return [figure]


def _static_files(app, config):
    """Copy our static files, and the vendored ones, into the build.

    Jupyter Book adds to every page each .js and .css below the static paths it knows; paths appended at this
    event are only copied, so that MathJax's font data is not loaded as a script.
    """
    vendored = Path(app.srcdir).parent / "third_party"
    if not (vendored / "mathjax" / "tex-mml-chtml.js").is_file():
        raise ExtensionError(f"{vendored} has no vendored MathJax; build the book inside a full checkout")
    config.html_static_path += [str(vendored), str(STATIC)]


def _without_triton(app, config):
    """The kernel pages are built unexecuted where Triton is missing (macOS): their code is shown, their results not."""
    if importlib.util.find_spec("triton") is None:
        config.nb_execution_excludepatterns = [*config.nb_execution_excludepatterns, *KERNEL_PAGES]


def _one_page(app, config):
    """With COURSE_PAGE set (`make page`) that page alone is executed; the others are there to be linked to."""
    only = os.environ.get("COURSE_PAGE")
    if only:
        others = [path.name for path in Path(app.srcdir).glob("*.md") if path.stem != only]
        config.nb_execution_excludepatterns = [*config.nb_execution_excludepatterns, *others]
        config.suppress_warnings = [*config.suppress_warnings, "ref.ref"]  # figures of pages that were not executed


def _only_our_assets(app, pagename, template, context, doctree):
    """Drop sphinx-thebe's scripts: it adds them, from a CDN, even when it is switched off."""
    scripts = context.get("script_files")
    if scripts is not None:
        context["script_files"] = [
            script
            for script in scripts
            if "thebe" not in str(getattr(script, "filename", script) or "").lower()
            and "THEBE" not in str(getattr(script, "attributes", {}).get("body", ""))
        ]


DESCRIBED = 155  # characters of a page's description, as search engines show it
INDEX = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<meta http-equiv="refresh" content="0; url={root}.html">
</head>
<body><p><a href="{root}.html">{title}</a></p></body>
</html>
"""


def description(doctree) -> str:
    """The first sentences of a page, for its description; "" when it opens with none."""
    for paragraph in doctree.findall(nodes.paragraph):
        text = " ".join(paragraph.astext().split())
        if len(text) >= 40:
            return text if len(text) <= DESCRIBED else text[:DESCRIBED].rsplit(" ", 1)[0].rstrip(",;:") + " …"
    return ""


def _describe(app, pagename, template, context, doctree):
    """A description for each page."""
    words = description(doctree) if doctree is not None else ""
    if words:
        tag = f'<meta name="description" content="{escape(words, quote=True)}">'
        context["metatags"] = context.get("metatags", "") + "\n" + tag


def _index(app, exception):
    """A first page that leads to the book, with a language and a title, before Jupyter Book writes one without."""
    if not exception and app.builder.format == "html" and app.config.root_doc != "index":
        page = INDEX.format(title=escape(app.config.html_title or app.config.project), root=app.config.root_doc)
        (Path(app.outdir) / "index.html").write_text(page, encoding="utf-8")


def _vocabularies(app, exception):
    """Where a page has a figure of kind "bpe", put the vocabularies it loads beside it."""
    if exception or app.builder.format != "html":
        return
    pages = Path(app.outdir).glob("*.html")
    if any('data-kind="bpe"' in page.read_text(encoding="utf-8") for page in pages):
        vocabularies.write(Path(app.outdir) / "_static" / "vocabularies")


def setup(app):
    app.add_directive("course-figure", CourseFigure)
    claims.setup(app)
    code.setup(app)
    freshness.setup(app)
    course_map.setup(app)
    bibliography.setup(app)
    chapters.setup(app)
    predict.setup(app)
    template.setup(app)
    for style in STYLES:
        app.add_css_file(style, priority=900)
    others = sorted(path.name for path in STATIC.glob("*.js") if path.name not in FIRST_SCRIPTS)
    for script in (*FIRST_SCRIPTS, *others):
        app.add_js_file(script, loading_method="defer", priority=900)
    app.connect("config-inited", _static_files)
    app.connect("config-inited", _without_triton, priority=100)
    app.connect("config-inited", _one_page, priority=100)
    app.connect("html-page-context", _only_our_assets, priority=900)
    app.connect("html-page-context", _describe)
    app.connect("build-finished", _vocabularies)
    app.connect("build-finished", _index)
    return {"version": "1", "env_version": 1, "parallel_read_safe": True, "parallel_write_safe": True}
