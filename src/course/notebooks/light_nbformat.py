"""nbformat without the grammar of addresses that jsonschema loads with it; imported from here, or first by ``-p``.

It is there to check the format "iri", which no schema of notebooks asks for, where JupyterLab has brought it along; it
takes two seconds to build, in every process that reads a notebook.
"""

import sys

sys.modules.setdefault("rfc3987_syntax", None)

import nbformat  # noqa: E402, F401
