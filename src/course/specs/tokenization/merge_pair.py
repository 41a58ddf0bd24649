"""One merge: every occurrence of a pair, from left to right."""

from __future__ import annotations

from course.specs.exercise import Case, Draw, Exercise
from course.specs.tokenization.shared import PAGE, join


def cases(draw: Draw) -> list[Case]:
    word = [bytes([b]) for b in draw.choice(["abababab", "bananab", "cababaab"]).encode()]
    return [
        Case((word, (b"a", b"b")), label="the pair occurs several times"),
        Case(([b"a"] * draw.choice([3, 5, 7]), (b"a", b"a")), label="an odd run of one piece"),
        Case(([b"ab", b"c", b"ab", b"c", b"a", b"bc"], (b"ab", b"c")), label="pieces longer than a byte"),
        Case(([b"a", b"bc", b"ab", b"c"], (b"a", b"b")), label="the bytes fit, the pieces do not"),
        Case(([b"b", b"a", b"b", b"a"], (b"a", b"b")), label="the pair the other way round beside it"),
        Case(([], (b"a", b"b")), label="no pieces"),
        Case(([b"a"], (b"a", b"a")), label="one piece"),
        Case((["м".encode()[:1], "м".encode()[1:], b"a", b"b"], (b"a", b"b")), label="the pair at the very end"),
    ]


MERGE_PAIR = Exercise(
    id="tokenization.merge_pair",
    title="One merge",
    signature="merge_pair(pieces, pair)",
    reference=join,
    cases=cases,
    hints=(
        "Walk from left to right with an index you move yourself: by one, or by two after a merge.",
        "Compare neighbours as pieces: pieces[i] == pair[0] and pieces[i + 1] == pair[1]. Mind the last piece.",
        "while i < len(pieces): if (pieces[i], pieces[i+1] if there is one) is the pair, append the join and add 2 to "
        "i; else append pieces[i] and add 1.",
    ),
    section=f"{PAGE}#a-merge",
    points=1,
    difficulty=1,
    minutes=10,
)

MERGE_PAIR.near_miss(
    "it joins only the first occurrence",
    {"i += 2": "return merged + pieces[i + 2 :]"},
    says="A merge holds everywhere: go on to the end of the list.",
)


@MERGE_PAIR.near_miss(
    "it walks from right to left",
    says="Of overlapping pairs the leftmost is joined: a a a gives aa, a.",
)
def merge_pair(pieces, pair):
    out, i = [], len(pieces) - 1
    while i >= 0:
        if i > 0 and (pieces[i - 1], pieces[i]) == tuple(pair):
            out.insert(0, pair[0] + pair[1])
            i -= 2
        else:
            out.insert(0, pieces[i])
            i -= 1
    return out


MERGE_PAIR.near_miss(
    "it uses a piece twice",
    {"i += 2": "i += 1"},
    says="After a merge, go on behind both pieces: i grows by 2, not by 1.",
)


@MERGE_PAIR.near_miss(
    "it looks at bytes instead of pieces",
    says="b'a', b'bc' holds the bytes ab but not the pair a, b: compare whole pieces.",
)
def merge_pair(pieces, pair):
    text, joined, out = b"".join(pieces), pair[0] + pair[1], []
    i = 0
    while i < len(text):
        if text.startswith(joined, i):
            out.append(joined)
            i += len(joined)
        else:
            out.append(text[i : i + 1])
            i += 1
    return out


MERGE_PAIR.near_miss(
    "the last piece is lost",
    {"while i < len(pieces)": "while i + 1 < len(pieces)"},
    says="When the loop stops one piece early, a last piece that is not merged must still be appended.",
)


@MERGE_PAIR.alternate("a stack")
def merge_pair(pieces, pair):
    out, fresh = [], True
    for piece in pieces:
        if out and fresh and (out[-1], piece) == tuple(pair):
            out[-1] += piece
            fresh = False
        else:
            out.append(piece)
            fresh = True
    return out


@MERGE_PAIR.alternate("by recursion")
def merge_pair(pieces, pair):
    if len(pieces) < 2:
        return list(pieces)
    if tuple(pieces[:2]) == pair:
        return [b"".join(pair), *merge_pair(pieces[2:], pair)]
    return pieces[:1] + merge_pair(pieces[1:], pair)
