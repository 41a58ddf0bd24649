"""Encode: the merges replayed, lowest rank first."""

from __future__ import annotations

from course.given.tokenization import encode as given_encode
from course.specs.exercise import Case, Draw, Exercise
from course.specs.tokenization.shared import PAGE, random_ranks, random_text, renumbered


def reference(text, ranks, bos=None):
    return ([] if bos is None else [bos]) + given_encode(text, ranks)


def cases(draw: Draw) -> list[Case]:
    ranks = random_ranks(draw)
    trap = {bytes([b]): b for b in range(256)} | {b"bc": 256, b"ab": 257, b"cd": 258, b"de": 259}
    trap |= {b"bcd": 260, b"aa": 261, b"uvw": 262}
    return [
        Case(("abcabcd", trap), label="the first pair is not the one of lowest rank"),
        Case(("bcde", trap), label="the longer token has the higher rank"),
        Case(("uvw", trap), label="a token that no merge leads to"),
        Case(("aaaaax", trap), label="an odd run of one letter"),
        Case(("abcdabcd", trap, draw.int(300, 999)), label="with a BOS id"),
        Case((random_text(draw), ranks), label="a line of text"),
        Case((random_text(draw), ranks, 1), label="a line of text with a BOS id"),
        Case(("мама мыла раму", ranks), label="Cyrillic"),
        Case(("👩‍🚀 ёж 中文", ranks, 0), label="characters of three and four bytes, BOS id 0"),
        Case(("", ranks), label="no text"),
        Case(("", ranks, 7), label="no text, with a BOS id"),
        Case((f" The {random_text(draw)}\n ", ranks), label="white space at both ends, a capital"),
        Case((random_text(draw), renumbered(ranks, draw), 1), label="a byte's id is not its value"),
        Case(("\x00", ranks), label="one byte"),
    ]


ENCODE = Exercise(
    id="tokenization.encode",
    title="Encode",
    signature="encode(text, ranks, bos=None)",
    reference=reference,
    cases=cases,
    hints=(
        "Start from the bytes of text.encode(). As long as some pair of neighbours joins to a token, join the best.",
        "Best means the lowest rank of the joined piece, wherever in the text it stands; of equal ranks the leftmost.",
        "found = [(ranks[a + b], i) for i, (a, b) in enumerate(zip(pieces, pieces[1:])) if a + b in ranks]; take "
        "min(found), join there, repeat. BOS: bos may be 0, so test `is not None`.",
    ),
    section=f"{PAGE}#using-it",
    points=3,
    core=True,
    difficulty=2,
    minutes=25,
    in_model=True,
)

ENCODE.near_miss(
    "it joins the first pair it meets",
    {"min(found)": "found[0]"},
    says="The order of training decides: the pair of lowest rank first, wherever it stands, not the leftmost that "
    "fits.",
)


@ENCODE.near_miss(
    "it takes the longest token that fits",
    says="That is another algorithm (WordPiece does it): BPE replays the merges in the order they were learnt.",
)
def encode(text, ranks, bos=None):
    data, ids, i = text.encode(), [] if bos is None else [bos], 0
    longest = max(map(len, ranks))
    while i < len(data):
        for size in range(min(longest, len(data) - i), 0, -1):
            if data[i : i + size] in ranks:
                ids.append(ranks[data[i : i + size]])
                i += size
                break
    return ids


ENCODE.near_miss(
    "it starts from characters",
    {"[bytes([byte]) for byte in text.encode()]": "[char.encode() for char in text]"},
    says="Start from bytes([b]) for b in text.encode(): a character of several bytes need not be a token.",
)

ENCODE.near_miss(
    "of equal pairs it joins the last",
    {"b], i) for": "b], -i) for", "_, i = min(found)": "i = -min(found)[1]"},
    says="aaa is aa, a: of equal ranks the leftmost pair is joined first.",
)

ENCODE.near_miss(
    "it forgets BOS",
    {"ids if bos is None else [bos, *ids]": "ids"},
    says="A model that was trained with a BOS token expects it: put bos in front when it is given.",
)

ENCODE.near_miss(
    "it takes BOS id 0 for no BOS",
    {"ids if bos is None else [bos, *ids]": "[bos, *ids] if bos else ids"},
    says="0 is an id like any other: ask `bos is not None`, not `if bos`.",
)

ENCODE.near_miss(
    "it takes a byte's value for its id",
    {"ranks[piece] for": "piece[0] if len(piece) == 1 else ranks[piece] for"},
    says="In most vocabularies byte 65 has another id than 65: look every piece up in ranks, single bytes too.",
)

ENCODE.near_miss(
    "it strips the text",
    {"text.encode()": "text.strip().encode()"},
    says="Spaces and line ends are tokens too: text.strip() loses what the model must see. Encode the text as it "
    "came.",
)

ENCODE.near_miss(
    "it joins the pair of highest rank",
    {"min(found)": "max(found, key=lambda item: (item[0], -item[1]))"},
    says="The lowest rank was learnt first and is joined first: min, not max.",
)

ENCODE.near_miss(
    "it prefers the longer join",
    {"[(ranks[a + b], i)": "[(-len(a + b), ranks[a + b], i)", "_, i = min(found)": "i = min(found)[-1]"},
    says="Length does not count, only the rank does: the merge that was learnt first goes first, however short its "
    "token.",
)


@ENCODE.alternate("rank by rank, all occurrences at once")
def encode(text, ranks, bos=None):
    pieces = [bytes([b]) for b in text.encode()]
    while len(pieces) > 1:
        lowest = min((ranks.get(a + b, 1 << 60) for a, b in zip(pieces, pieces[1:])), default=1 << 60)
        if lowest == 1 << 60:
            break
        out, i = [], 0
        while i < len(pieces):
            if i + 1 < len(pieces) and ranks.get(pieces[i] + pieces[i + 1]) == lowest:
                out.append(pieces[i] + pieces[i + 1])
                i += 2
            else:
                out.append(pieces[i])
                i += 1
        pieces = out
    ids = [ranks[piece] for piece in pieces]
    return ids if bos is None else [bos, *ids]


@ENCODE.alternate("with a heap over spans of the bytes")
def encode(text, ranks, bos=None):
    import heapq

    raw = text.encode()
    end = {i: i + 1 for i in range(len(raw))}  # of the piece that begins at i
    before = {i + 1: i for i in range(len(raw))}  # where the piece begins that ends there
    heap = []

    def offer(i):
        j = end.get(i)
        if j in end and raw[i : end[j]] in ranks:
            heapq.heappush(heap, (ranks[raw[i : end[j]]], i, j, end[j]))

    for i in range(len(raw)):
        offer(i)
    while heap:
        _, i, j, stop = heapq.heappop(heap)
        if end.get(i) != j or end.get(j) != stop:
            continue
        end[i], before[stop] = stop, i
        del end[j], before[j]
        offer(i)
        if i in before:
            offer(before[i])
    ids, i = [] if bos is None else [bos], 0
    while i < len(raw):
        ids.append(ranks[raw[i : end[i]]])
        i = end[i]
    return ids
