"""Part i of n of a class, for machines that grade side by side."""

from __future__ import annotations

import hashlib

from course.classroom.identity import Handed


def parse_shard(text: str) -> tuple[int, int]:
    """Part and count of "2/5", from 1. Raises ValueError for anything else."""
    try:
        part, count = (int(number) for number in text.split("/"))
    except ValueError:
        raise ValueError(
            f"--shard takes i/n such as 2/5, not {text!r}; in a Kubernetes Indexed Job: "
            "--shard $((JOB_COMPLETION_INDEX + 1))/20"
        ) from None
    if not 1 <= part <= count:
        raise ValueError(f"--shard {text}: i goes from 1 to n")
    return part, count


def shard(handed: list[Handed], text: str) -> list[Handed]:
    """The i-th of n parts ("2/5"): by student, so that nobody is split. Raises ValueError for anything else."""
    part, count = parse_shard(text)

    def home(item: Handed) -> int:
        return int(hashlib.sha256(item.student.encode("utf-8", "surrogatepass")).hexdigest(), 16) % count

    return [item for item in handed if home(item) == part - 1]
