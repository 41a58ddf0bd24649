"""The exercises of all chapters. A chapter's package lists its exercises, in order, in ``EXERCISES``.

A student edition has recorded chapters in the place of these packages (see :mod:`course.specs.recorded`).
"""

from __future__ import annotations

import functools
import importlib.util

from course.specs import recorded
from course.specs.exercise import Case, Draw, Exercise, Tolerance, given_source

__all__ = ["CHAPTERS", "Case", "Draw", "Exercise", "Tolerance", "exercise", "exercises", "given_source"]

# Number and stem of every chapter, in the order of teaching.
ALL_CHAPTERS = {
    "tokenization": "01",
    "embeddings": "02",
    "triton_primer": "",  # unnumbered: before the kernel exercises of 03
    "transformer_block": "03",
    "kv_cache": "04",
    "cache_size": "05",
    "prefill_decode": "06",
    "chunked_prefill": "07",
    "paged_attention": "08",
    "sliding_window": "09",
    "prompt_caching": "10",
    "sampling": "11",
    "speculative_decoding": "12",
    "quantization": "13",
    "flash_attention": "14",
    "end_to_end": "15",
}


def file_stem(stem: str) -> str:
    """Name of a chapter's files without their ending: 04_kv_cache, triton_primer."""
    return f"{ALL_CHAPTERS[stem]}_{stem}".lstrip("_")


# Those that have exercises: a package of the same stem in this one, or its recording.
CHAPTERS = {
    stem: number
    for stem, number in ALL_CHAPTERS.items()
    if importlib.util.find_spec(f"{__name__}.{stem}") or (recorded.FOLDER / f"{stem}{recorded.ENDING}").is_file()
}


@functools.cache
def exercises(stem: str | None = None) -> tuple[Exercise, ...]:
    """All exercises, or those of one chapter, in the order of the book."""
    if stem is not None and stem not in CHAPTERS:
        raise ValueError(f"there is no chapter {stem!r} with exercises; there are {', '.join(CHAPTERS)}")
    stems = [stem] if stem else list(CHAPTERS)
    return tuple(item for name in stems for item in _chapter(name))


@functools.cache
def _chapter(stem: str) -> tuple[Exercise, ...]:
    if importlib.util.find_spec(f"{__name__}.{stem}"):
        return tuple(importlib.import_module(f"{__name__}.{stem}").EXERCISES)
    return recorded.load(stem)


def exercise(id: str) -> Exercise:
    """The exercise with this id. Raises ValueError with the near names when there is none."""
    known = {item.id: item for item in exercises()}
    if id not in known:
        import difflib

        close = difflib.get_close_matches(str(id), known, n=3, cutoff=0.4) or list(known)
        raise ValueError(f"there is no exercise {id!r}; did you mean {', '.join(close)}?")
    return known[id]

