"""Parse a notebook that came from outside, within bounds. Standard library only: also run as a script.

A large file is parsed in a process of its own (``python slim.py <notebook >lean``) whose memory is limited, since
JSON of 200 MB can grow to ten times that; only what grading needs comes back. Exit status 3: not a notebook, and
the reason is on standard output.
"""

from __future__ import annotations

import json
import sys

MAX_BYTES = 50 * 1024 * 1024  # with outputs dropped
MAX_CELLS = 10_000
MEMORY = 6 << 30
_KEPT = ("course", "nbgrader")  # metadata of a cell that tell whose answer it is


class NotANotebook(ValueError):
    """The message says why and what to do."""


def parse(data: bytes) -> dict:
    """The notebook. Raises :class:`NotANotebook` for anything but a notebook of format 4."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise NotANotebook("the file is not UTF-8: save it again from Jupyter, VS Code or Colab") from None
    if text.lstrip().startswith("<<<<<<<") or "\n<<<<<<< " in text:
        raise NotANotebook("the file holds git conflict markers: resolve the conflict and hand it in again")
    try:
        notebook = json.loads(text)
    except RecursionError:
        raise NotANotebook("the file is nested too deeply to be a notebook") from None
    except ValueError as error:
        raise NotANotebook(f"the file is not a notebook (broken JSON: {error}): save it again and hand it in") from None
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        raise NotANotebook("the file is JSON but not a notebook of format 4: open it in Jupyter and save it again")
    if type(notebook.get("nbformat")) is not int or notebook["nbformat"] != 4:
        raise NotANotebook(f"notebook format {str(notebook.get('nbformat'))[:40]} is not supported, 4 is")
    if len(notebook["cells"]) > MAX_CELLS:
        raise NotANotebook(f"the notebook has {len(notebook['cells']):,} cells, more than {MAX_CELLS:,}")
    return notebook


def size_without_outputs(notebook: dict) -> int:
    """Bytes of the notebook as JSON when the outputs of its cells are dropped."""
    bare = [{k: v for k, v in cell.items() if k != "outputs"} if isinstance(cell, dict) else cell
            for cell in notebook["cells"]]
    return len(json.dumps(notebook | {"cells": bare}, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def lean(notebook: dict) -> dict:
    """What grading needs of a notebook: types, ids, sources, and whose answer a cell is."""
    cells = []
    for cell in notebook["cells"]:
        if not isinstance(cell, dict):
            continue
        kept = {key: cell[key] for key in ("cell_type", "id") if isinstance(cell.get(key), str)}
        cells.append(kept | {"source": joined(cell.get("source")), "metadata": _texts(cell.get("metadata"))})
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": _texts(notebook.get("metadata")), "cells": cells}


def joined(source: object) -> str:
    """A cell's source as one text, whether it is stored as a text or as lines; anything else is none."""
    if isinstance(source, list):
        return "".join(line for line in source if isinstance(line, str))
    return source if isinstance(source, str) else ""


def _texts(metadata: object) -> dict:
    """Of the metadata, the short texts below our keys."""
    found = {}
    for key in _KEPT:
        value = metadata.get(key) if isinstance(metadata, dict) else None
        if isinstance(value, dict):
            found[key] = {k: v for k, v in value.items() if isinstance(v, str) and len(k) + len(v) < 500}
    return found


def main() -> int:
    if sys.platform == "linux":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    try:
        notebook = parse(sys.stdin.buffer.read())
        size = size_without_outputs(notebook)
        if size > MAX_BYTES:
            raise NotANotebook(f"the file has {size / 1e6:.0f} MB without its outputs, more than 50: take out what "
                               "is attached or pasted and save again")
        text = json.dumps(lean(notebook))
    except NotANotebook as error:
        text = str(error)
        print(text.encode("ascii", "backslashreplace").decode())
        return 3
    except MemoryError:
        print("the file is too large to be read: clear its outputs and save again")
        return 3
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
