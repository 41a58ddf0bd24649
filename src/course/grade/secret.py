"""Hidden inputs come from a secret and the answer itself, so saving again never rerolls them."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

from course.check.progress import normalise
from course.specs.exercise import Case, Draw, Exercise

ENV = "COURSE_GRADE_SECRET"
ENV_FILE = "COURSE_GRADE_SECRET_FILE"


def read(folder: Path) -> bytes:
    """The secret: from $COURSE_GRADE_SECRET, else the file $COURSE_GRADE_SECRET_FILE, else ``folder``/secret.

    The last is made when missing, readable only by its owner.
    """
    if os.environ.get(ENV):
        return os.environ[ENV].encode()
    if os.environ.get(ENV_FILE):
        return Path(os.environ[ENV_FILE]).read_bytes().strip()
    path = folder / "secret"
    try:
        return path.read_bytes()
    except FileNotFoundError:
        pass
    folder.mkdir(parents=True, exist_ok=True)
    fresh = secrets.token_hex(32).encode()
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:  # another grader was faster
        return path.read_bytes()
    with os.fdopen(fd, "wb") as stream:
        stream.write(fresh)
    return fresh


def hidden_cases(secret: bytes, exercise: Exercise, source: str, rounds: int = 2) -> list[Case]:
    """The cases this answer is graded on: ``rounds`` draws, each from its own seed."""
    text = normalise(source).encode("utf-8", "surrogatepass")
    cases: list[Case] = []
    for number in range(rounds):
        message = b"\0".join([hashlib.sha256(text).digest(), exercise.id.encode(), str(number).encode()])
        seed = hmac.new(secret, message, hashlib.sha256).hexdigest()
        cases += exercise.cases(Draw(seed))
    return cases
