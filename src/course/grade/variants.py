"""A student's constants, where an exercise has some: from the secret and the student's name, never from a notebook."""

from __future__ import annotations

import hashlib
import hmac
import os
from pathlib import Path
from typing import Any

from course.grade import secret as secrets
from course.specs.exercise import Exercise


def constants(secret: bytes, student: str, item: Exercise) -> dict[str, Any]:
    """The constants of this student's edition of an exercise; empty for one without variants."""
    drawn = {}
    for name, options in item.variants.items():
        parts = "\0".join(["variant", student, item.id, name]).encode("utf-8", "surrogatepass")
        number = int.from_bytes(hmac.new(secret, parts, hashlib.sha256).digest())
        drawn[name] = options[number % len(options)]
    return drawn


def edition(secret: bytes, student: str, item: Exercise) -> Exercise:
    """The exercise as this student has it."""
    return item.for_student(constants(secret, student, item)) if item.variants else item


def shared_secret() -> bytes:
    """The secret that release and grading share. Raises ValueError when none was given: one made up would not be."""
    if not os.environ.get(secrets.ENV) and not os.environ.get(secrets.ENV_FILE):
        raise ValueError(
            f"variants come from a secret that release and grading share: set {secrets.ENV}, or {secrets.ENV_FILE} to "
            "the name of a file that holds it (`openssl rand -hex 32` makes one)"
        )
    return secrets.read(Path())
