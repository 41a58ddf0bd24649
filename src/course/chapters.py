"""The chapters of the course, in the order of teaching: the one place where a chapter is registered.

Specs, claims, the check of ``_toc.yml``, the map, status and the names of files all read this list.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from course import paths


@dataclass(frozen=True)
class Chapter:
    """One chapter. ``stem`` names its files and modules; ``part`` is the heading it stands under in the book."""

    number: str  # "" for one between two numbers
    stem: str
    title: str
    part: str
    document: str  # which sections of the document it answers, in words

    @property
    def name(self) -> str:
        """Name of its files without their ending: 04_kv_cache, triton_primer."""
        return f"{self.number}_{self.stem}".lstrip("_")

    @property
    def written(self) -> bool:
        """Is its page there?"""
        return (paths.root() / "book" / f"{self.name}.md").is_file()


TOKENS = "From text to tokens"
KERNELS = "Kernels"
MEMORY = "The model and its memory"
SERVING = "Serving many"
CHOOSING = "Choosing the next token"
BYTES = "Fewer bytes"
WHOLE = "The whole"

CHAPTERS = {
    chapter.stem: chapter
    for chapter in (
        Chapter("01", "tokenization", "Tokenization", TOKENS, "trace step 1"),
        Chapter("02", "embeddings", "Embeddings", TOKENS, "token, text and hidden-state embeddings; LLM as embedder"),
        Chapter("", "triton_primer", "First kernels", KERNELS, ""),
        Chapter("03", "transformer_block", "The transformer block", MEMORY, "trace steps 2 to 5"),
        Chapter("04", "kv_cache", "The KV cache", MEMORY, "without and with the cache, its shape, why it is correct"),
        Chapter("05", "cache_size", "What a cache weighs", MEMORY, "size formula; MHA, GQA, MQA"),
        Chapter("06", "prefill_decode", "Prefill and decode", SERVING, "prefill, decode, roofline, TTFT to E2E"),
        Chapter("07", "chunked_prefill", "Chunked prefill", SERVING, "two users, continuous batching, tail latency"),
        Chapter("08", "paged_attention", "Paged attention", SERVING, "traditional and paged allocation, block tables"),
        Chapter("09", "sliding_window", "Sliding window", SERVING, "window, ring buffer, hybrid layers"),
        Chapter("10", "prompt_caching", "Prompt caching", SERVING, "prefix cache, cache_control, usage, prompt order"),
        Chapter("11", "sampling", "Sampling", CHOOSING, "logits, temperature, top-k, top-p, penalties, bias"),
        Chapter("12", "speculative_decoding", "Speculative decoding", CHOOSING, "draft, verify, rejection sampling"),
        Chapter("13", "quantization", "Quantization", BYTES, "fp32 to int2 weights, KV quantization"),
        Chapter("14", "flash_attention", "FlashAttention", BYTES, "standard and tiled attention"),
        Chapter("15", "end_to_end", "End to end", WHOLE, "the whole trace, the performance sheet"),
    )
}


def chapter(stem: str) -> Chapter:
    """The chapter of this stem or file name. Raises ValueError that names those there are."""
    found = CHAPTERS.get(stem) or _by_name().get(stem)
    if found is None:
        raise ValueError(f"there is no chapter {stem!r}; there are {', '.join(CHAPTERS)}")
    return found


def file_stem(stem: str) -> str:
    """Name of a chapter's files without their ending: 04_kv_cache, triton_primer."""
    return CHAPTERS[stem].name


def named_in(text: str) -> Chapter | None:
    """The chapter whose stem stands in this text, a file's name for instance; the longest where several do."""
    lower = text.lower()
    found = [chapter for stem, chapter in CHAPTERS.items() if stem in lower]
    return max(found, key=lambda chapter: len(chapter.stem), default=None)


@functools.cache
def _by_name() -> dict[str, Chapter]:
    return {chapter.name: chapter for chapter in CHAPTERS.values()}
