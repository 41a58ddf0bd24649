"""Real source on a page, by the name of the object: it cannot drift from the library.

::

    ```{code-object} llm_internals.kv_cache.KVCache.append
    :strip-docstring:
    ```

With ``:after: kv_cache.append``, the name of the exercise that asks for it, the code is folded: it is shown when the
reader has written their own, and says so.

The file is parsed, not imported, so that a page costs nothing to build. It becomes a dependency of the page,
which is rebuilt when the code changes. A name that does not exist is an error that lists what does. The label
links to the whole file, highlighted, inside the book (``source/MODULE.html``).
"""

from __future__ import annotations

import ast
import importlib.util
import re
import textwrap
from dataclasses import dataclass
from html import escape
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from sphinx.util.docutils import SphinxDirective

LONG, LONGEST = (94, 104), 113  # columns from which the library's code is set smaller, and which none may pass
COLUMNS = 84  # of code that fit the text's column at 1,400 pixels; a browser test looks at the page itself
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class CodeObject:
    """The source of one object: its module, the file, the first line's number (from 1), the text."""

    module: str
    qualname: str
    path: Path
    line: int
    source: str


def _module_of(dotted: str) -> tuple[str, Path, list[str]]:
    """The longest prefix of `dotted` that is a module with a source file, and the names left over."""
    parts = dotted.split(".")
    found = None
    for end in range(1, len(parts) + 1):
        try:
            spec = importlib.util.find_spec(".".join(parts[:end]))
        except (ImportError, ValueError):
            break
        if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
            break
        found = ".".join(parts[:end]), Path(spec.origin), parts[end:]
    if found is None:
        raise ValueError(f"code-object {dotted}: no module named {parts[0]!r} can be found")
    return found


def _named(body: list[ast.stmt], name: str):
    for node in body:
        if isinstance(node, _DEFINITIONS) and node.name == name:
            return node
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return node
    return None


def _names(body: list[ast.stmt]) -> list[str]:
    return [node.name for node in body if isinstance(node, _DEFINITIONS)]


def _without_docstring(lines: list[str], node, first: int) -> list[str]:
    """The object's lines without its own docstring and those of its methods."""
    drop = set()
    for inner in ast.walk(node):
        if isinstance(inner, _DEFINITIONS) and ast.get_docstring(inner) is not None and len(inner.body) > 1:
            text = inner.body[0]
            drop.update(range(text.lineno, text.end_lineno + 1))
            after = text.end_lineno + 1
            if after - first < len(lines) and not lines[after - first].strip():
                drop.add(after)
    return [line for number, line in enumerate(lines, start=first) if number not in drop]


def find(dotted: str, *, strip_docstring: bool = False) -> CodeObject:
    """The source of a function, class, method or module-level assignment.

    `dotted` is ``package.module.Class.method``. Raises ValueError, naming what exists, when there is none.
    """
    module, path, names = _module_of(dotted)
    if not names:
        raise ValueError(
            f"code-object {dotted} is a module; name an object in it: "
            f"{', '.join(_names(ast.parse(path.read_text(encoding='utf-8')).body)) or 'it has none'}"
        )
    text = path.read_text(encoding="utf-8")
    node, body = None, ast.parse(text).body
    for name in names:
        node = _named(body, name)
        if node is None:
            raise ValueError(
                f"code-object {dotted}: {module} has no {name!r} there; it has {', '.join(_names(body)) or 'none'}"
            )
        body = getattr(node, "body", [])
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    lines = text.splitlines()[first - 1 : node.end_lineno]
    if strip_docstring:
        lines = _without_docstring(lines, node, first)
    return CodeObject(module, ".".join(names), path, first, textwrap.dedent("\n".join(lines)))


class source_link(nodes.General, nodes.Inline, nodes.Element):
    """The label of a code object; becomes a link to its module's page once the addresses are known."""


class CodeObjectDirective(SphinxDirective):
    required_arguments = 1
    option_spec = {  # noqa: RUF012 (docutils' protocol)
        "strip-docstring": directives.flag,
        "after": directives.unchanged_required,
    }

    def run(self):
        try:
            found = find(self.arguments[0], strip_docstring="strip-docstring" in self.options)
        except ValueError as error:
            raise self.error(str(error)) from error
        self.env.note_dependency(str(found.path))
        if not hasattr(self.env, "course_modules"):
            self.env.course_modules = {}
        self.env.course_modules[found.module] = str(found.path)
        label = nodes.paragraph(classes=["code-object-label"])
        label += source_link(module=found.module, line=found.line, label=f"{found.module}.{found.qualname}")
        block = nodes.literal_block(found.source, found.source, language="python")
        self.set_source_info(block)
        longest = max(map(len, found.source.splitlines()))
        if longest > LONGEST:
            raise self.error(f"code-object {self.arguments[0]} has a line of {longest} columns, at most {LONGEST} fit")
        size = ["code-longest"] if longest > LONG[1] else ["code-long"] if longest > LONG[0] else []
        shown = nodes.container("", label, block, classes=["code-object", *size])
        return self._after(shown, self.options["after"]) if "after" in self.options else [shown]

    def _after(self, shown, exercise_id: str):
        """The code behind a line that says for which exercise it is the answer."""
        from course.specs import exercise

        try:
            exercise(exercise_id)
        except ValueError as error:
            raise self.error(f"code-object {self.arguments[0]}: {error}") from error
        summary = f"The library’s version. Open it when your <code>{escape(exercise_id)}</code> passes."
        opening = nodes.raw("", f'<details class="after-writing"><summary>{summary}</summary>', format="html")
        return [opening, shown, nodes.raw("", "</details>", format="html")]


def _link(app, doctree, docname):
    for node in list(doctree.findall(source_link)):
        if app.builder.format == "html":
            uri = app.builder.get_relative_uri(docname, f"source/{node['module']}") + f"#line-{node['line']}"
            parts = re.split(r"(?<=[._])(?=\w)", node["label"])  # a narrow page may break the name there only
            link = nodes.reference("", "", internal=True, refuri=uri)
            for i, part in enumerate(parts):
                link += ([nodes.raw("", "<wbr>", format="html")] if i else []) + [nodes.Text(part)]
            node.replace_self(link)
        else:
            node.replace_self(nodes.literal("", node["label"]))


def _pages(app):
    """One page of highlighted source for each module that a page shows."""
    if app.builder.format != "html":
        return
    for module, path in sorted(getattr(app.env, "course_modules", {}).items()):
        formatter = HtmlFormatter(lineanchors="line", anchorlinenos=False, wrapcode=True)
        body = highlight(Path(path).read_text(encoding="utf-8"), PythonLexer(), formatter)
        title = module.replace(".", "/") + ".py"
        yield (
            f"source/{module}",
            {"title": title, "body": f'<h1>{escape(title)}</h1><div class="module-source">{body}</div>'},
            "page.html",
        )


def _merge(app, env, docnames, other):
    env.course_modules = {**getattr(env, "course_modules", {}), **getattr(other, "course_modules", {})}


def setup(app):
    app.add_node(source_link)
    app.add_directive("code-object", CodeObjectDirective)
    app.connect("doctree-resolved", _link)
    app.connect("html-collect-pages", _pages)
    app.connect("env-merge-info", _merge)
