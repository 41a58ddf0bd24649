"""Hidden inputs come from a secret and the answer itself, so saving again never rerolls them."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
from pathlib import Path

from course.sources import Answer
from course.specs.exercise import Case, Draw, Exercise

ENV = "COURSE_GRADE_SECRET"
ENV_FILE = "COURSE_GRADE_SECRET_FILE"
SHORTEST = 16  # bytes; ours have 64


def read(folder: Path) -> bytes:
    """The secret: from $COURSE_GRADE_SECRET, else the file $COURSE_GRADE_SECRET_FILE, else ``folder``/secret.

    The last is made when missing, readable only by its owner.
    """
    if os.environ.get(ENV):
        return os.environ[ENV].encode()
    if os.environ.get(ENV_FILE):
        return _read_whole(Path(os.environ[ENV_FILE]), f"write a long random text into it, or unset {ENV_FILE}")
    path = folder / "secret"
    if not path.exists():
        _make(path)
    return _read_whole(path, "delete it; a new one is made, and every answer is graded afresh on other inputs")


def _read_whole(path: Path, mend: str) -> bytes:
    """A secret of a file. Raises ValueError when it is too short to be one: a full disk may have cut it off."""
    try:
        found = path.read_bytes().strip()
    except FileNotFoundError:
        raise ValueError(f"{path}: there is no such file; {mend}") from None
    if len(found) < SHORTEST:
        raise ValueError(f"{path} is no secret ({len(found)} bytes, at least {SHORTEST} are needed): {mend}")
    return found


def _make(path: Path) -> None:
    """Write a fresh secret: whole or not at all, never over another grader's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"secret.{os.getpid()}.tmp")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
            stream.write(secrets.token_hex(32).encode())
        try:
            os.link(temporary, path)
        except FileExistsError:
            pass  # another grader was faster: its secret is whole
        except OSError:  # a file system without hard links
            temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def hidden_cases(secret: bytes, exercise: Exercise, source: str, rounds: int = 2) -> list[Case]:
    """The cases this answer is graded on: ``rounds`` draws, each from its own seed."""
    digest = bytes.fromhex(Answer.of(source).digest)
    cases: list[Case] = []
    for number in range(rounds):
        message = b"\0".join([digest, exercise.id.encode(), str(number).encode()])
        seed = hmac.new(secret, message, hashlib.sha256).hexdigest()
        cases += exercise.cases(Draw(seed))
    return cases
