"""What each chapter costs, by the times of the last `make book` and `make test`: the dearest of each kind.

    python benchmarks/budget.py

Nothing fails here: a machine with other work on it is slower. On two quiet cores a chapter keeps to BUDGET seconds.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console
from rich.table import Table

from course.chapters import CHAPTERS, named_in

ROOT = Path(__file__).resolve().parents[1]
TIMES = ROOT / "_build" / "times"
BUDGET = {"page": 40, "tests": 60, "proof": 35, "browser": 20}


def pages() -> dict[str, float]:
    """Seconds of each page's last execution, by stem of the chapter or name of the page."""
    from jupyter_cache import get_cache

    folder = ROOT / "_build" / ".jupyter_cache"
    if not folder.is_dir():
        return {}
    found = {}
    for record in sorted(get_cache(folder).list_cache_records(), key=lambda each: each.created):
        found[owner(Path(record.uri).stem)] = float((record.data or {}).get("execution_seconds") or 0)
    return found


def tests(file: Path) -> dict[str, float]:
    """Seconds of the tests in a JUnit file, by stem of the chapter that stands in their name; "" for all others."""
    found: dict[str, float] = defaultdict(float)
    for case in ElementTree.parse(file).getroot().iter("testcase") if file.is_file() else ():
        found[owner(f"{case.get('classname', '')} {case.get('name', '')}", "")] += float(case.get("time") or 0)
    return dict(found)


def proofs() -> dict[str, float]:
    """Seconds that `course proof STEM` took, by stem."""
    return {file.name.removeprefix("proof-"): float(file.read_text()) for file in TIMES.glob("proof-*")}


def owner(text: str, other: str | None = None) -> str:
    chapter = named_in(text)
    return chapter.stem if chapter is not None else text if other is None else other


def main() -> int:
    """Print the table: a row a chapter, what is over its budget in red."""
    kinds = {"page": pages(), "tests": tests(TIMES / "unit.xml"), "proof": proofs(),
             "browser": tests(TIMES / "browser.xml")}
    table = Table(title="seconds a chapter takes, of one process")
    table.add_column("chapter")
    for kind, seconds in BUDGET.items():
        table.add_column(f"{kind} (≤ {seconds})", justify="right")
    for stem in [stem for stem in CHAPTERS if any(stem in found for found in kinds.values())]:
        cells = [(kinds[kind].get(stem), BUDGET[kind]) for kind in BUDGET]
        table.add_row(stem, *("" if got is None else f"[red]{got:.0f}[/]" if got > most else f"{got:.0f}"
                              for got, most in cells))
    console = Console()
    console.print(table)
    for kind, found in kinds.items():
        if found:
            name = max((name for name in found if name), key=found.get, default="")
            most, whole = found.get(name, 0), sum(found.values())
            console.print(f"dearest {kind}: {name or 'none'}, {most:.0f} s of {whole:.0f} s in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
