"""Names that somebody else chose: one form for letters, what looks alike, what a terminal and a folder can take."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable

DIGESTED = re.compile(r"-[0-9a-f]{8}$")  # how a folder name ends that holds a digest
DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))}  # on Windows


def nfc(text: str) -> str:
    """One form for letters with marks: a Mac takes them apart, everybody else keeps them whole."""
    return unicodedata.normalize("NFC", text)


def folded(name: str) -> str:
    """What two names have in common that people, or a disk that ignores case, would take for the same."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def shown(name: str) -> str:
    """A name of somebody else's choosing, fit for a terminal: no control characters, no half letters."""
    return "".join(letter if letter.isprintable() else "?" for letter in name)


def plain(text: str) -> str:
    """Text of somebody else's, fit for a report: lines stay, what steers a terminal or turns the reading order goes."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "?" for letter in text)


def lookalikes(names: Iterable[str]) -> list[list[str]]:
    """Groups of different names that differ by case, blanks or the form of their letters only."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name in sorted(set(names)):
        groups[folded(name)].append(name)
    return [group for group in groups.values() if len(group) > 1]


def safe(name: str) -> str:
    """A student's name as a folder name: never a path, and never the same for two students (see :func:`folders`)."""
    cleaned = re.sub(r"[^\w.@+-]+", "_", name).strip("._")
    plain = cleaned and cleaned == name and len(cleaned) <= 100
    if plain and not DIGESTED.search(name) and name.split(".")[0].casefold() not in DEVICES:
        return cleaned
    return _with_digest(name, cleaned)


def _with_digest(name: str, cleaned: str) -> str:
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{cleaned[:90] or 'unnamed'}-{digest}"


def folders(students: Iterable[str]) -> dict[str, str]:
    """A folder for each student, also on a disk that takes ``Jane`` and ``jane`` for one name."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name in sorted(set(students)):
        groups[unicodedata.normalize("NFKC", safe(name)).casefold()].append(name)
    found = {}
    for group in groups.values():
        for name in group:
            alone = len(group) == 1 or DIGESTED.search(safe(name))
            found[name] = safe(name) if alone else _with_digest(name, safe(name))
    return found
