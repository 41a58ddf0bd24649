"""What the exercises of chapter 01 share: words, lines of text, and small vocabularies trained on them."""

from __future__ import annotations

import functools

from course.specs.exercise import Draw

PAGE = "01_tokenization.html"
WORDS = ["low", "lower", "lowest", "newer", "newest", "wider", "widest", "the", "then", "there", "other", "another", "mother", "brother", "weather", "gather", "мама", "мыла", "раму", "рама", "мыло", "мыли", "мал", "мала", "рам", "banana", "bananas", "ananas", "aaaa", "aaaaaaa", "abababa", "2024", "20242024", "🙂", "🙂🙂", "👩\u200d🚀", "naïve", "déjà", "vu"]
TEXTS = (
    "the weather", "мама мыла раму", "aaaaaaa", "banana ananas", "déjà vu", "👩‍🚀 🙂🙂🙂", "20242024", "lowest newest",
    "x", "a\n\n\tb", "мамама", "thethe", "абвгд", "ab" * 9, "\x00\x7f", "ёж и 中文",
)


def join(pieces, pair):
    """Every occurrence of a pair joined, from left to right."""
    merged, i = [], 0
    while i < len(pieces):
        if tuple(pieces[i : i + 2]) == tuple(pair):
            merged.append(pair[0] + pair[1])
            i += 2
        else:
            merged.append(pieces[i])
            i += 1
    return merged


def learn(words, num_merges):
    """The merges of byte-pair encoding, in the order in which they are learnt; of equal counts the smaller pair."""
    split = [([bytes([b]) for b in word.encode()], count) for word, count in words.items()]
    merges = []
    for _ in range(num_merges):
        counts: dict[tuple[bytes, bytes], int] = {}
        for pieces, count in split:
            for pair in zip(pieces, pieces[1:]):
                counts[pair] = counts.get(pair, 0) + count
        if not counts:
            break
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        merges.append(best)
        split = [(join(pieces, best), count) for pieces, count in split]
    return merges


def random_counts(draw: Draw, size: int) -> dict[str, int]:
    return {word: draw.int(1, 9) for word in draw.random.sample(WORDS, size)}


def random_ranks(draw: Draw) -> dict[bytes, int]:
    """One of a few small vocabularies: the bytes, then what training on some of the words joins."""
    return trained(draw.int(0, 5))


@functools.cache
def trained(number: int) -> dict[bytes, int]:
    ranks = {bytes([byte]): byte for byte in range(256)}
    often = {"aaaa": 8, "banana": 5, "мама": 7, "the": 9, "other": 4, "weather": 4}
    for left, right in learn({**random_counts(Draw(number), 24), **often}, 50):
        ranks.setdefault(left + right, len(ranks))
    return ranks


def renumbered(ranks: dict[bytes, int], draw: Draw) -> dict[bytes, int]:
    """The same tokens, numbered as real vocabularies are: special ids first, the bytes in an order of their own."""
    bytes_first = draw.random.sample(list(ranks)[:256], 256)
    return {piece: rank for rank, piece in enumerate([*bytes_first, *list(ranks)[256:]], start=3)}


def random_text(draw: Draw) -> str:
    return " ".join(draw.random.choices(TEXTS, k=draw.int(2, 4)))


def vocab_of(ranks: dict[bytes, int]) -> dict[int, bytes]:
    return {i: piece for piece, i in ranks.items()}
