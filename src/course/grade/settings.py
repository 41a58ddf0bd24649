"""``course.toml``: what counts, for how much, and what students are shown."""

from __future__ import annotations

import dataclasses
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from course.specs import exercises

SHOW = ("mistake", "verdict", "full")


@dataclass(frozen=True)
class Settings:
    """Defaults count every exercise at its own points and show students the name of their mistake."""

    count: str = "all"  # "all" or "core"
    leave_out: tuple[str, ...] = ()
    weights: dict[str, float] = field(default_factory=dict)  # exercise id -> factor
    show: str = "mistake"

    def weight(self, exercise_id: str) -> float:
        """Factor on an exercise's points; 0 leaves it out."""
        core = {item.id: item.core for item in exercises()}
        if exercise_id in self.leave_out or (self.count == "core" and not core.get(exercise_id)):
            return 0.0
        return self.weights.get(exercise_id, 1.0)


def read(path: Path | None) -> Settings:
    """Settings from a file, or the defaults. Raises ValueError that names the line to mend."""
    if path is None:
        return Settings()
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: {error}") from None
    grading = data.get("grading", {})
    known = {each.name for each in dataclasses.fields(Settings)}
    unknown = sorted(set(grading) - known)
    if unknown:
        raise ValueError(f"{path}: [grading] knows {', '.join(sorted(known))}, not {', '.join(unknown)}")
    ids = {item.id for item in exercises()}
    strange = sorted((set(grading.get("leave_out", [])) | set(grading.get("weights", {}))) - ids)
    if strange:
        raise ValueError(f"{path}: there is no exercise {', '.join(strange)}")
    if grading.get("show", "mistake") not in SHOW or grading.get("count", "all") not in ("all", "core"):
        raise ValueError(f'{path}: show is one of {", ".join(SHOW)}; count is "all" or "core"')
    return Settings(grading.get("count", "all"), tuple(grading.get("leave_out", ())), dict(grading.get("weights", {})),
                    grading.get("show", "mistake"))
