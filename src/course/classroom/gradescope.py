"""Who handed in on Gradescope? Its ``submission_metadata.json`` says so, a roster says who that is in the course."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

from course.classroom.roster import Enrolled

KEYS = ("email", "sid", "name")  # of a user, the surest first; "id" is Gradescope's own number
OWN_NUMBERS = {"ID", "Identifier"}  # of Canvas and Moodle, which mean nobody here


def submitter(metadata: Path, roster: list[Enrolled], personal: bool = False) -> str:
    """The student's name: that of the line of the roster with this e-mail address, number or name, else Gradescope's.

    A line fits by ``match``, ``student`` or any other column. Of a group that hands in together the first is named.
    personal: students have constants of their own, so that a group has none. Raises ValueError for that, and for a file
    that names nobody.
    """
    try:
        users = [{key: str(user.get(key) or "") for key in KEYS}
                 for user in json.loads(metadata.read_text(encoding="utf-8-sig"))["users"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{metadata} does not say who handed in ({type(error).__name__}: {error}): it is no "
                         "submission_metadata.json of Gradescope") from None
    names = [_line_of(user, roster) or user["name"] or user["email"] for user in users]
    if not names or not names[0]:
        raise ValueError(f"{metadata} names nobody who handed in")
    if personal and len(set(names)) > 1:
        raise ValueError(f"a group handed in ({', '.join(names)}), and each has constants of their own: everybody "
                         "hands in alone")
    return names[0]


def _line_of(user: dict[str, str], roster: list[Enrolled]) -> str | None:
    """The student of the roster's line for a user: by e-mail address first, by name last."""
    for word in filter(None, map(_plain, user.values())):
        for row in roster:
            columns = [value for name, value in row.columns.items() if name not in OWN_NUMBERS]
            if word in map(_plain, (row.match, row.student, *columns)):
                return row.student
    return None


def _plain(text: str) -> str:
    return unicodedata.normalize("NFC", text).strip().casefold()
