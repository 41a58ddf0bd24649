"""Learn the merges of byte-pair encoding."""

from __future__ import annotations

from course.specs.exercise import Case, Draw, Exercise
from course.specs.tokenization.shared import PAGE, learn, random_counts


def cases(draw: Draw) -> list[Case]:
    run = draw.int(2, 5)
    return [
        Case(({"low": 5, "lower": 2, "newest": 6, "widest": 3}, 8), label="four words with counts"),
        Case((random_counts(draw, 12), 17), label="twelve words of several alphabets"),
        Case(({"aaaa": run, "aaa": 1, "xy": 2 * run + 2}, 5), label="runs of one letter: aaaa holds the pair a a 3 times"),
        Case(({"ab": 3, "cd": 3, "ba": 3}, 3), label="ties"),
        Case(({"zz": 9, "ab": 8, "azz": 2, "aba": 2}, 4), label="ties between pieces of different lengths"),
        Case(({" The": draw.int(2, 4), "THE": 3, " the": 3}, 6), label="capitals and spaces, which are bytes like any other"),
        Case(({"мама": 2, "мыла": 2, "раму": 1}, 9), label="Cyrillic: two bytes a letter"),
        Case(({"abab": draw.int(3, 6), "xy": draw.int(7, 9)}, 6), label="a word that holds a pair twice"),
        Case(({"ab": 4, "bc": 1}, 10), label="fewer pairs than merges asked for"),
        Case(({}, 3), label="no words"),
        Case(({"solo": 3}, 0), label="no merges asked for"),
    ]


TRAIN = Exercise(
    id="tokenization.train",
    title="Learn the merges",
    signature="train(words, num_merges)",
    reference=learn,
    cases=cases,
    hints=(
        "Three steps, num_merges times: count all pairs of neighbours, choose the most frequent, join it in every word.",
        "A word that occurs 6 times adds 6 to each of its pairs. Ties: min over (-count, pair) takes the smaller pair.",
        "Keep a list of (pieces, count); counts = {}; for each pair of zip(pieces, pieces[1:]) add count; best = "
        "min(counts, key=lambda p: (-counts[p], p)); then rebuild every pieces list with best joined.",
    ),
    section=f"{PAGE}#training",
    points=3,
    core=True,
    difficulty=3,
    minutes=30,
)

TRAIN.near_miss(
    "it counts every word once",
    {"counts.get(pair, 0) + count": "counts.get(pair, 0) + 1"},
    says="A word that occurs 6 times counts 6 times: add its count, not 1.",
)


@TRAIN.near_miss(
    "it counts only once, before the first merge",
    says="Every merge changes the neighbours: count again after each, or the new pieces never join.",
)
def train(words, num_merges):
    counts = {}
    for word, count in words.items():
        pieces = [bytes([b]) for b in word.encode()]
        for pair in zip(pieces, pieces[1:]):
            counts[pair] = counts.get(pair, 0) + count
    return sorted(counts, key=lambda pair: (-counts[pair], pair))[:num_merges]


TRAIN.near_miss(
    "of equally frequent pairs it takes the larger",
    {"min(counts, key=lambda pair: (-counts[pair], pair))": "max(counts, key=lambda pair: (counts[pair], pair))"},
    says="The task breaks ties towards the smaller pair, compared as Python compares tuples of bytes.",
)

TRAIN.near_miss(
    "it joins across words",
    {
        "([bytes([byte]) for byte in word.encode()], count) for word, count in words.items()":
            "([bytes([byte]) for word, count in words.items() for byte in word.encode() * count], 1)",
    },
    says="Words are apart: no pair spans the end of one and the start of the next.",
)

TRAIN.near_miss(
    "it starts from characters",
    {"[bytes([byte]) for byte in word.encode()]": "[char.encode() for char in word]"},
    says="Byte-level BPE starts from the bytes of UTF-8: м is two pieces, not one.",
)

TRAIN.near_miss(
    "in each word it joins only the first occurrence",
    {"pieces[i : i + 2] = [best[0] + best[1]]": "pieces[i : i + 2] = [best[0] + best[1]]\nbreak"},
    says="abab becomes ab, ab after one merge: join every occurrence, or the counts drift from the text.",
)

TRAIN.near_miss(
    "ties are broken by the joined bytes",
    {"(-counts[pair], pair)": "(-counts[pair], pair[0] + pair[1])"},
    says="Compare the pairs as tuples: (a, zz) comes before (ab, a), since a is smaller than ab, although aba is "
    "smaller than azz.",
)


@TRAIN.near_miss(
    "a run of one piece is counted without overlap",
    says="Count every pair of neighbours: aaaa holds a a at three places, though only two can be joined.",
)
def train(words, num_merges):
    split = [([bytes([b]) for b in word.encode()], count) for word, count in words.items()]
    merges = []
    for _ in range(num_merges):
        counts = {}
        for pieces, count in split:
            last = None
            for place, pair in enumerate(zip(pieces, pieces[1:])):
                if last == (place - 1, pair):
                    last = None
                    continue
                last = place, pair
                counts[pair] = counts.get(pair, 0) + count
        if not counts:
            break
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        merges.append(best)
        for pieces, _ in split:
            i = 0
            while i < len(pieces) - 1:
                if (pieces[i], pieces[i + 1]) == best:
                    pieces[i : i + 2] = [best[0] + best[1]]
                i += 1
    return merges


TRAIN.near_miss(
    "a word counts a pair once",
    {"zip(pieces, pieces[1:])": "set(zip(pieces, pieces[1:]))"},
    says="A word that holds a pair twice gives it twice its count: zip(pieces, pieces[1:]) as it is, not a set of "
    "it.",
)

TRAIN.near_miss(
    "of equally frequent pairs it takes the one seen first",
    {"min(counts, key=lambda pair: (-counts[pair], pair))": "max(counts, key=counts.get)"},
    says="max(counts, key=counts.get) keeps the pair it met first. The task breaks ties towards the smaller pair: "
    "min over (-count, pair).",
)


@TRAIN.alternate("with Counter, and words as tuples")
def train(words, num_merges):
    from collections import Counter

    table = Counter({tuple(bytes([b]) for b in word.encode()): count for word, count in words.items()})
    merges = []
    while len(merges) < num_merges:
        counts = Counter()
        for pieces, count in table.items():
            for a, b in zip(pieces[:-1], pieces[1:]):
                counts[a, b] += count
        if not counts:
            return merges
        highest = max(counts.values())
        best = sorted(pair for pair in counts if counts[pair] == highest)[0]
        merges.append(best)
        renewed = Counter()
        for pieces, count in table.items():
            out = []
            for piece in pieces:
                if out and out[-1] == best[0] and piece == best[1] and out[-1] is not None:
                    out[-1] = best[0] + best[1]
                    out.append(None)
                else:
                    out.append(piece)
            renewed[tuple(piece for piece in out if piece is not None)] += count
        table = renewed
    return merges
