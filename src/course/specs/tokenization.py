"""Exercises of chapter 01: byte-pair encoding, trained, used, undone, streamed, and kept apart from its own markers."""

from __future__ import annotations

import codecs
import functools

from course.given.tokenization import encode as given_encode
from course.specs.exercise import Case, Draw, Exercise

PAGE = "01_tokenization.html"
WORDS = ["low", "lower", "lowest", "newer", "newest", "wider", "widest", "the", "then", "there", "other", "another", "mother", "brother", "weather", "gather", "мама", "мыла", "раму", "рама", "мыло", "мыли", "мал", "мала", "рам", "banana", "bananas", "ananas", "aaaa", "aaaaaaa", "abababa", "2024", "20242024", "🙂", "🙂🙂", "👩\u200d🚀", "naïve", "déjà", "vu"]
TEXTS = (
    "the weather", "мама мыла раму", "aaaaaaa", "banana ananas", "déjà vu", "👩‍🚀 🙂🙂🙂", "20242024", "lowest newest",
    "x", "a\n\n\tb", "мамама", "thethe", "абвгд", "ab" * 9, "\x00\x7f", "ёж и 中文",
)


# ---------------------------------------------------------------------------------------------------- references


def _merge_pair(pieces, pair):
    merged, i = [], 0
    while i < len(pieces):
        if tuple(pieces[i : i + 2]) == tuple(pair):
            merged.append(pair[0] + pair[1])
            i += 2
        else:
            merged.append(pieces[i])
            i += 1
    return merged


def _train(words, num_merges):
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
        split = [(_merge_pair(pieces, best), count) for pieces, count in split]
    return merges


def _encode(text, ranks, bos=None):
    return ([] if bos is None else [bos]) + given_encode(text, ranks)


def _decode(ids, vocab):
    return b"".join(vocab[i] for i in ids).decode("utf-8", errors="replace")


def _stream(ids, vocab):
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    return [decoder.decode(vocab[i]) for i in ids] + [decoder.decode(b"", final=True)]


def _encode_special(text, ranks, special, allowed):
    ids, plain, i = [], "", 0
    names = sorted(allowed, key=len, reverse=True)
    while i < len(text):
        name = next((name for name in names if text.startswith(name, i)), None)
        if name is None:
            plain += text[i]
            i += 1
            continue
        ids += [*given_encode(plain, ranks), special[name]]
        plain, i = "", i + len(name)
    return ids + given_encode(plain, ranks)


# ---------------------------------------------------------------------------------------------------- cases


def _counts(draw: Draw, size: int) -> dict[str, int]:
    return {word: draw.int(1, 9) for word in draw.random.sample(WORDS, size)}


def _ranks(draw: Draw) -> dict[bytes, int]:
    """One of a few small vocabularies: the bytes, then what training on some of the words joins."""
    return _trained(draw.int(0, 5))


@functools.cache
def _trained(number: int) -> dict[bytes, int]:
    ranks = {bytes([byte]): byte for byte in range(256)}
    often = {"aaaa": 8, "banana": 5, "мама": 7, "the": 9, "other": 4, "weather": 4}
    for left, right in _train({**_counts(Draw(number), 24), **often}, 50):
        ranks.setdefault(left + right, len(ranks))
    return ranks


def _renumbered(ranks: dict[bytes, int], draw: Draw) -> dict[bytes, int]:
    """The same tokens, numbered as real vocabularies are: special ids first, the bytes in an order of their own."""
    bytes_first = draw.random.sample(list(ranks)[:256], 256)
    return {piece: rank for rank, piece in enumerate([*bytes_first, *list(ranks)[256:]], start=3)}


def _text(draw: Draw) -> str:
    return " ".join(draw.random.choices(TEXTS, k=draw.int(2, 4)))


def _merge_pair_cases(draw: Draw) -> list[Case]:
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


def _train_cases(draw: Draw) -> list[Case]:
    run = draw.int(2, 5)
    return [
        Case(({"low": 5, "lower": 2, "newest": 6, "widest": 3}, 8), label="four words with counts"),
        Case((_counts(draw, 12), 17), label="twelve words of several alphabets"),
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


def _encode_cases(draw: Draw) -> list[Case]:
    ranks = _ranks(draw)
    trap = {bytes([b]): b for b in range(256)} | {b"bc": 256, b"ab": 257, b"cd": 258, b"de": 259}
    trap |= {b"bcd": 260, b"aa": 261, b"uvw": 262}
    return [
        Case(("abcabcd", trap), label="the first pair is not the one of lowest rank"),
        Case(("bcde", trap), label="the longer token has the higher rank"),
        Case(("uvw", trap), label="a token that no merge leads to"),
        Case(("aaaaax", trap), label="an odd run of one letter"),
        Case(("abcdabcd", trap, draw.int(300, 999)), label="with a BOS id"),
        Case((_text(draw), ranks), label="a line of text"),
        Case((_text(draw), ranks, 1), label="a line of text with a BOS id"),
        Case(("мама мыла раму", ranks), label="Cyrillic"),
        Case(("👩‍🚀 ёж 中文", ranks, 0), label="characters of three and four bytes, BOS id 0"),
        Case(("", ranks), label="no text"),
        Case(("", ranks, 7), label="no text, with a BOS id"),
        Case((f" The {_text(draw)}\n ", ranks), label="white space at both ends, a capital"),
        Case((_text(draw), _renumbered(ranks, draw), 1), label="a byte's id is not its value"),
        Case(("\x00", ranks), label="one byte"),
    ]


def _vocab_of(ranks: dict[bytes, int]) -> dict[int, bytes]:
    return {i: piece for piece, i in ranks.items()}


def _decode_cases(draw: Draw) -> list[Case]:
    ranks = _ranks(draw)
    vocab = _vocab_of(ranks)
    other, line = dict(draw.random.sample(list(_renumbered(ranks, draw).items()), len(ranks))), _text(draw)
    emoji = list("👩‍🚀".encode())
    return [
        Case((given_encode(_text(draw), ranks), vocab), label="a line of text"),
        Case((list("déjà vu".encode()), vocab), label="one id for each byte"),
        Case((emoji, vocab), label="characters of four bytes, one id a byte"),
        Case((emoji[: draw.choice([1, 2, 3])], vocab), label="the text ends inside a character"),
        Case(([0xFF, 0x41, 0xC3, 0x41], vocab), label="bytes that are no UTF-8"),
        Case(([0x41, 0xFF, 0xFE, 0x80, 0x42], vocab), label="three such bytes in a row"),
        Case(([0x41, 0x00, 0x42], vocab), label="id 0, a byte 0"),
        Case((given_encode(line, other), _vocab_of(other)), label="a byte's id is not its value"),
        Case((given_encode("  two  spaces\n", ranks), vocab), label="white space"),
        Case(([], vocab), label="no ids"),
    ]


def _stream_cases(draw: Draw) -> list[Case]:
    ranks = _ranks(draw)
    vocab = _vocab_of(ranks)
    cut = draw.choice([1, 2, 3])
    return [
        Case((given_encode(_text(draw), ranks), vocab), label="a line of text"),
        Case((list("да 🙂!".encode()), vocab), label="one id for each byte"),
        Case((list("🙂".encode())[:cut], vocab), label="the stream ends inside a character"),
        Case(([0x41, 0xFF, 0x42], vocab), label="a byte that can begin no character"),
        Case(([0xE2, 0x82, 0x41, 0x42], vocab), label="a character that is broken off by the next"),
        Case(([0x41, 0xF4, 0x90, 0x42, 0xC0], vocab), label="two bytes that look like a character's beginning and are none"),
        Case((list("a\ufffdb".encode()), vocab), label="U+FFFD itself is in the text"),
        Case((given_encode("the weather", ranks), vocab), label="plain ASCII"),
        Case(([], vocab), label="no ids"),
    ]


def _special_cases(draw: Draw) -> list[Case]:
    ranks = _ranks(draw)
    special = {"<|im_start|>": 1001, "<|im_end|>": 1002, "<|im|>": 1003, "<|im|>x": 1004, "><|im_end|>!": 1005}
    every = sorted(special)
    ranks = ranks | {b">u": len(ranks), b"?<": len(ranks) + 1}  # merges that reach across a marker's edge
    chat = "<|im_start|>user\nмама?<|im_end|>\n<|im_start|>assistant\n"
    return [
        Case((chat, ranks, special, every), label="a conversation, all allowed"),
        Case((chat, ranks, special, []), label="a stranger's text, none allowed"),
        Case((chat, ranks, special, ["<|im_end|>"]), label="only one of them allowed"),
        Case(("a<|im|>xb<|im|>y", ranks, special, every), label="one special token begins with another"),
        Case(("a<|im|>xb", ranks, special, ["<|im_end|>", "<|im|>"]), label="the longer one is not allowed, the shorter is"),
        Case(("<|im_start|><|im_end|><|im|>", ranks, special, ["<|im_end|>"]), label="between two that are not allowed"),
        Case(("<|im|><|im_end|>!", ranks, special, every), label="two overlap: the one that begins earlier counts"),
        Case(("<|im_end|><|im_end|>", ranks, special, every), label="nothing between them"),
        Case(("<|im_en|> <|", ranks, special, every), label="almost a special token"),
        Case(("the " * draw.int(1, 3), ranks, special, every), label="none in the text"),
        Case(("", ranks, special, every), label="no text"),
    ]


# ---------------------------------------------------------------------------------------------------- in the model


def _encode_in_model(answer, checkpoint):
    from course.check.trial import Trial

    tokenizer = checkpoint.tokenizer

    def encode(text: str) -> list[int]:
        return [i for word in tokenizer.split(text) for i in answer(word, tokenizer.vocab)]

    return Trial(encode=encode, note="your ids, word by word, with SmolLM2's own vocabulary")


def _decode_in_model(answer, checkpoint):
    from course.check.trial import Trial

    return Trial(decode=lambda ids: answer(ids, checkpoint.tokenizer.id_to_bytes))


def _stream_in_model(answer, checkpoint):
    from course.check.trial import Trial

    return Trial(decode=lambda ids: "".join(answer(ids, checkpoint.tokenizer.id_to_bytes)))


# ---------------------------------------------------------------------------------------------------- exercises

MERGE_PAIR = Exercise(
    id="tokenization.merge_pair",
    title="One merge",
    signature="merge_pair(pieces, pair)",
    reference=_merge_pair,
    cases=_merge_pair_cases,
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


@MERGE_PAIR.near_miss("it joins only the first occurrence", says="A merge holds everywhere: go on to the end of the list.")
def merge_pair(pieces, pair):
    out = list(pieces)
    for i in range(len(out) - 1):
        if (out[i], out[i + 1]) == tuple(pair):
            return out[:i] + [pair[0] + pair[1]] + out[i + 2 :]
    return out


@MERGE_PAIR.near_miss("it walks from right to left", says="Of overlapping pairs the leftmost is joined: a a a gives aa, a.")
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


@MERGE_PAIR.near_miss("it uses a piece twice", says="After a merge, go on behind both pieces: i grows by 2, not by 1.")
def merge_pair(pieces, pair):
    out, i = [], 0
    while i < len(pieces):
        if i + 1 < len(pieces) and (pieces[i], pieces[i + 1]) == tuple(pair):
            out.append(pair[0] + pair[1])
        else:
            out.append(pieces[i])
        i += 1
    return out


@MERGE_PAIR.near_miss("it looks at bytes instead of pieces",
                      says="b'a', b'bc' holds the bytes ab but not the pair a, b: compare whole pieces.")
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


@MERGE_PAIR.near_miss("the last piece is lost", says="When the loop stops one piece early, a last piece that is not merged "
                      "must still be appended.")
def merge_pair(pieces, pair):
    out, i = [], 0
    while i < len(pieces) - 1:
        if (pieces[i], pieces[i + 1]) == tuple(pair):
            out.append(pair[0] + pair[1])
            i += 2
        else:
            out.append(pieces[i])
            i += 1
    return out


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


TRAIN = Exercise(
    id="tokenization.train",
    title="Learn the merges",
    signature="train(words, num_merges)",
    reference=_train,
    cases=_train_cases,
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


@TRAIN.near_miss("it counts every word once", says="A word that occurs 6 times counts 6 times: add its count, not 1.")
def train(words, num_merges):
    split = [[bytes([b]) for b in word.encode()] for word in words]
    merges = []
    for _ in range(num_merges):
        counts = {}
        for pieces in split:
            for pair in zip(pieces, pieces[1:]):
                counts[pair] = counts.get(pair, 0) + 1
        if not counts:
            break
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        merges.append(best)
        for pieces in split:
            i = 0
            while i < len(pieces) - 1:
                if (pieces[i], pieces[i + 1]) == best:
                    pieces[i : i + 2] = [best[0] + best[1]]
                i += 1
    return merges


@TRAIN.near_miss("it counts only once, before the first merge",
                 says="Every merge changes the neighbours: count again after each, or the new pieces never join.")
def train(words, num_merges):
    counts = {}
    for word, count in words.items():
        pieces = [bytes([b]) for b in word.encode()]
        for pair in zip(pieces, pieces[1:]):
            counts[pair] = counts.get(pair, 0) + count
    return sorted(counts, key=lambda pair: (-counts[pair], pair))[:num_merges]


@TRAIN.near_miss("of equally frequent pairs it takes the larger", says="The task breaks ties towards the smaller pair, "
                 "compared as Python compares tuples of bytes.")
def train(words, num_merges):
    split = [([bytes([b]) for b in word.encode()], count) for word, count in words.items()]
    merges = []
    for _ in range(num_merges):
        counts = {}
        for pieces, count in split:
            for pair in zip(pieces, pieces[1:]):
                counts[pair] = counts.get(pair, 0) + count
        if not counts:
            break
        best = max(counts, key=lambda pair: (counts[pair], pair))
        merges.append(best)
        for pieces, _ in split:
            i = 0
            while i < len(pieces) - 1:
                if (pieces[i], pieces[i + 1]) == best:
                    pieces[i : i + 2] = [best[0] + best[1]]
                i += 1
    return merges


@TRAIN.near_miss("it joins across words", says="Words are apart: no pair spans the end of one and the start of the next.")
def train(words, num_merges):
    pieces = [bytes([b]) for word, count in words.items() for _ in range(count) for b in word.encode()]
    merges = []
    for _ in range(num_merges):
        counts = {}
        for pair in zip(pieces, pieces[1:]):
            counts[pair] = counts.get(pair, 0) + 1
        if not counts:
            break
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        merges.append(best)
        i = 0
        while i < len(pieces) - 1:
            if (pieces[i], pieces[i + 1]) == best:
                pieces[i : i + 2] = [best[0] + best[1]]
            i += 1
    return merges


@TRAIN.near_miss("it starts from characters", says="Byte-level BPE starts from the bytes of UTF-8: м is two pieces, not one.")
def train(words, num_merges):
    split = [([c.encode() for c in word], count) for word, count in words.items()]
    merges = []
    for _ in range(num_merges):
        counts = {}
        for pieces, count in split:
            for pair in zip(pieces, pieces[1:]):
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


@TRAIN.near_miss("in each word it joins only the first occurrence", says="abab becomes ab, ab after one merge: join every "
                 "occurrence, or the counts drift from the text.")
def train(words, num_merges):
    split = [([bytes([b]) for b in word.encode()], count) for word, count in words.items()]
    merges = []
    for _ in range(num_merges):
        counts = {}
        for pieces, count in split:
            for pair in zip(pieces, pieces[1:]):
                counts[pair] = counts.get(pair, 0) + count
        if not counts:
            break
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        merges.append(best)
        for pieces, _ in split:
            for i in range(len(pieces) - 1):
                if (pieces[i], pieces[i + 1]) == best:
                    pieces[i : i + 2] = [best[0] + best[1]]
                    break
    return merges


@TRAIN.near_miss("ties are broken by the joined bytes",
                 says="Compare the pairs as tuples: (a, zz) comes before (ab, a), since a is smaller than ab, although "
                 "aba is smaller than azz.")
def train(words, num_merges):
    split = [([bytes([b]) for b in word.encode()], count) for word, count in words.items()]
    merges = []
    for _ in range(num_merges):
        counts = {}
        for pieces, count in split:
            for pair in zip(pieces, pieces[1:]):
                counts[pair] = counts.get(pair, 0) + count
        if not counts:
            break
        best = min(counts, key=lambda pair: (-counts[pair], pair[0] + pair[1]))
        merges.append(best)
        for pieces, _ in split:
            i = 0
            while i < len(pieces) - 1:
                if (pieces[i], pieces[i + 1]) == best:
                    pieces[i : i + 2] = [best[0] + best[1]]
                i += 1
    return merges


@TRAIN.near_miss("a run of one piece is counted without overlap",
                 says="Count every pair of neighbours: aaaa holds a a at three places, though only two can be joined.")
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


@TRAIN.near_miss("a word counts a pair once", says="A word that holds a pair twice gives it twice its count: zip(pieces, "
                 "pieces[1:]) as it is, not a set of it.")
def train(words, num_merges):
    split = [([bytes([b]) for b in word.encode()], count) for word, count in words.items()]
    merges = []
    for _ in range(num_merges):
        counts = {}
        for pieces, count in split:
            for pair in set(zip(pieces, pieces[1:])):
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


@TRAIN.near_miss("of equally frequent pairs it takes the one seen first",
                 says="max(counts, key=counts.get) keeps the pair it met first. The task breaks ties towards the smaller "
                 "pair: min over (-count, pair).")
def train(words, num_merges):
    split = [([bytes([b]) for b in word.encode()], count) for word, count in words.items()]
    merges = []
    for _ in range(num_merges):
        counts = {}
        for pieces, count in split:
            for pair in zip(pieces, pieces[1:]):
                counts[pair] = counts.get(pair, 0) + count
        if not counts:
            break
        best = max(counts, key=counts.get)
        merges.append(best)
        for pieces, _ in split:
            i = 0
            while i < len(pieces) - 1:
                if (pieces[i], pieces[i + 1]) == best:
                    pieces[i : i + 2] = [best[0] + best[1]]
                i += 1
    return merges


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


ENCODE = Exercise(
    id="tokenization.encode",
    title="Encode",
    signature="encode(text, ranks, bos=None)",
    reference=_encode,
    cases=_encode_cases,
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
    in_model=_encode_in_model,
)


@ENCODE.near_miss("it joins the first pair it meets", says="The order of training decides: the pair of lowest rank first, "
                  "wherever it stands, not the leftmost that fits.")
def encode(text, ranks, bos=None):
    pieces = [bytes([b]) for b in text.encode()]
    i = 0
    while i < len(pieces) - 1:
        if pieces[i] + pieces[i + 1] in ranks:
            pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]
            i = 0
        else:
            i += 1
    return ([] if bos is None else [bos]) + [ranks[p] for p in pieces]


@ENCODE.near_miss("it takes the longest token that fits", says="That is another algorithm (WordPiece does it): BPE replays "
                  "the merges in the order they were learnt.")
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


@ENCODE.near_miss("it starts from characters", says="Start from bytes([b]) for b in text.encode(): a character of several "
                  "bytes need not be a token.")
def encode(text, ranks, bos=None):
    pieces = [c.encode() for c in text]
    while True:
        found = [(ranks[a + b], i) for i, (a, b) in enumerate(zip(pieces, pieces[1:])) if a + b in ranks]
        if not found:
            return ([] if bos is None else [bos]) + [ranks[p] for p in pieces]
        _, i = min(found)
        pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]


@ENCODE.near_miss("of equal pairs it joins the last", says="aaa is aa, a: of equal ranks the leftmost pair is joined first.")
def encode(text, ranks, bos=None):
    pieces = [bytes([b]) for b in text.encode()]
    while True:
        found = [(ranks[a + b], -i) for i, (a, b) in enumerate(zip(pieces, pieces[1:])) if a + b in ranks]
        if not found:
            return ([] if bos is None else [bos]) + [ranks[p] for p in pieces]
        i = -min(found)[1]
        pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]


@ENCODE.near_miss("it forgets BOS", says="A model that was trained with a BOS token expects it: put bos in front when it is "
                  "given.")
def encode(text, ranks, bos=None):
    pieces = [bytes([b]) for b in text.encode()]
    while True:
        found = [(ranks[a + b], i) for i, (a, b) in enumerate(zip(pieces, pieces[1:])) if a + b in ranks]
        if not found:
            return [ranks[p] for p in pieces]
        _, i = min(found)
        pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]


@ENCODE.near_miss("it takes BOS id 0 for no BOS", says="0 is an id like any other: ask `bos is not None`, not `if bos`.")
def encode(text, ranks, bos=None):
    pieces = [bytes([b]) for b in text.encode()]
    while True:
        found = [(ranks[a + b], i) for i, (a, b) in enumerate(zip(pieces, pieces[1:])) if a + b in ranks]
        if not found:
            return ([bos] if bos else []) + [ranks[p] for p in pieces]
        _, i = min(found)
        pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]


@ENCODE.near_miss("it takes a byte's value for its id", says="In most vocabularies byte 65 has another id than 65: look "
                  "every piece up in ranks, single bytes too.")
def encode(text, ranks, bos=None):
    pieces = [bytes([b]) for b in text.encode()]
    while True:
        found = [(ranks[a + b], i) for i, (a, b) in enumerate(zip(pieces, pieces[1:])) if a + b in ranks]
        if not found:
            return ([] if bos is None else [bos]) + [p[0] if len(p) == 1 else ranks[p] for p in pieces]
        _, i = min(found)
        pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]


@ENCODE.near_miss("it strips the text", says="Spaces and line ends are tokens too: text.strip() loses what the model must "
                  "see. Encode the text as it came.")
def encode(text, ranks, bos=None):
    pieces = [bytes([b]) for b in text.strip().encode()]
    while True:
        found = [(ranks[a + b], i) for i, (a, b) in enumerate(zip(pieces, pieces[1:])) if a + b in ranks]
        if not found:
            return ([] if bos is None else [bos]) + [ranks[p] for p in pieces]
        _, i = min(found)
        pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]


@ENCODE.near_miss("it joins the pair of highest rank", says="The lowest rank was learnt first and is joined first: min, not "
                  "max.")
def encode(text, ranks, bos=None):
    pieces = [bytes([b]) for b in text.encode()]
    while True:
        found = [(ranks[a + b], i) for i, (a, b) in enumerate(zip(pieces, pieces[1:])) if a + b in ranks]
        if not found:
            return ([] if bos is None else [bos]) + [ranks[p] for p in pieces]
        _, i = max(found, key=lambda item: (item[0], -item[1]))
        pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]


@ENCODE.near_miss("it prefers the longer join", says="Length does not count, only the rank does: the merge that was learnt "
                  "first goes first, however short its token.")
def encode(text, ranks, bos=None):
    pieces = [bytes([b]) for b in text.encode()]
    while True:
        found = [(-len(a + b), ranks[a + b], i) for i, (a, b) in enumerate(zip(pieces, pieces[1:])) if a + b in ranks]
        if not found:
            return ([] if bos is None else [bos]) + [ranks[p] for p in pieces]
        i = min(found)[-1]
        pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]


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


DECODE = Exercise(
    id="tokenization.decode",
    title="Decode",
    signature="decode(ids, vocab)",
    reference=_decode,
    cases=_decode_cases,
    hints=(
        "A token is bytes, not text. Put the bytes together first, turn them into text once.",
        "b''.join(...) and .decode('utf-8', errors='replace'): what is no UTF-8 shows as U+FFFD.",
        "return b''.join(vocab[i] for i in ids).decode('utf-8', errors='replace')",
    ),
    section=f"{PAGE}#and-back",
    points=2,
    core=True,
    difficulty=1,
    minutes=10,
    in_model=_decode_in_model,
)


@DECODE.near_miss("it decodes each token by itself", says="A character may be spread over several tokens: join the bytes "
                  "first, decode once.")
def decode(ids, vocab):
    return "".join(vocab[i].decode("utf-8", errors="replace") for i in ids)


@DECODE.near_miss("it reads bytes as Latin-1", says="The bytes are UTF-8; chr(byte) and latin-1 give é as two letters.")
def decode(ids, vocab):
    return b"".join(vocab[i] for i in ids).decode("latin-1")


@DECODE.near_miss("broken bytes vanish", says="errors='ignore' hides that something is missing; 'replace' shows U+FFFD.")
def decode(ids, vocab):
    return b"".join(vocab[i] for i in ids).decode("utf-8", errors="ignore")


@DECODE.near_miss("broken bytes raise", says="A stream may end inside a character: that must show as U+FFFD, not as an error.")
def decode(ids, vocab):
    return b"".join(vocab[i] for i in ids).decode("utf-8")


@DECODE.near_miss("it puts spaces between tokens", says="A space belongs to the token that begins with it: join with nothing.")
def decode(ids, vocab):
    return b" ".join(vocab[i] for i in ids).decode("utf-8", errors="replace")


@DECODE.near_miss("broken bytes in a row show once", says="Each byte that can begin no character gets a U+FFFD of its own, "
                  "as errors='replace' does it.")
def decode(ids, vocab):
    text = b"".join(vocab[i] for i in ids).decode("utf-8", errors="replace")
    while "\ufffd\ufffd" in text:
        text = text.replace("\ufffd\ufffd", "\ufffd")
    return text


@DECODE.near_miss("id 0 is lost", says="0 is an id like any other: take all ids, without asking `if i`.")
def decode(ids, vocab):
    return b"".join(vocab[i] for i in ids if i).decode("utf-8", errors="replace")


@DECODE.near_miss("the id is taken for a place in the vocabulary", says="vocab is a dict from id to bytes, in any order: "
                  "vocab[i], not list(vocab.values())[i].")
def decode(ids, vocab):
    pieces = list(vocab.values())
    return b"".join(pieces[i] for i in ids).decode("utf-8", errors="replace")


@DECODE.alternate("with a bytearray")
def decode(ids, vocab):
    data = bytearray()
    for i in ids:
        data += vocab[i]
    return str(bytes(data), "utf-8", "replace")


STREAM = Exercise(
    id="tokenization.stream",
    title="Stream without breaking a character",
    signature="stream(ids, vocab)",
    reference=_stream,
    cases=_stream_cases,
    hints=(
        "Keep the bytes that you have not shown yet. After each token show what is complete, and keep the rest.",
        "An unfinished character at the end is not an error, an impossible byte is: the standard library has an "
        "incremental decoder that knows the difference.",
        "decoder = codecs.getincrementaldecoder('utf-8')('replace'); decoder.decode(piece) for each token, and once "
        "decoder.decode(b'', final=True).",
    ),
    section=f"{PAGE}#one-token-at-a-time",
    points=3,
    difficulty=3,
    minutes=25,
    prelude="import codecs\n",
    in_model=_stream_in_model,
)


@STREAM.near_miss("it decodes each token by itself", says="Half a character is shown as U+FFFD and its other half too: keep "
                  "unfinished bytes until the rest has come.")
def stream(ids, vocab):
    return [vocab[i].decode("utf-8", errors="replace") for i in ids] + [""]


@STREAM.near_miss("what is unfinished at the end is dropped", says="When the ids are over, whatever waits must come out as "
                  "U+FFFD: nothing of the stream may vanish.")
def stream(ids, vocab):
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    return [decoder.decode(vocab[i]) for i in ids] + [""]


@STREAM.near_miss("it repeats the whole text with each token", says="Give what is new; the caller has shown the rest already.")
def stream(ids, vocab):
    return [b"".join(vocab[i] for i in ids[: n + 1]).decode("utf-8", errors="replace") for n in range(len(ids))] + [""]


@STREAM.near_miss("it holds everything back until the end", says="A reader waits for each token: give what is complete at once.")
def stream(ids, vocab):
    return [""] * len(ids) + [b"".join(vocab[i] for i in ids).decode("utf-8", errors="replace")]


@STREAM.near_miss("it waits whenever the text ends in U+FFFD", says="U+FFFD can be in the text itself, and an impossible byte "
                  "never becomes a character: look at the bytes, not at the decoded text.")
def stream(ids, vocab):
    waiting, out = b"", []
    for i in ids:
        waiting += vocab[i]
        text = waiting.decode("utf-8", errors="replace")
        if text.endswith("\ufffd"):
            out.append("")
        else:
            out.append(text)
            waiting = b""
    return out + [waiting.decode("utf-8", errors="replace")]


@STREAM.near_miss("one bad byte holds up all that follows", says="Waiting helps an unfinished character only. A byte that "
                  "can never become part of one shows as U+FFFD at once, and the text behind it goes on.")
def stream(ids, vocab):
    out, waiting = [], b""
    for i in ids:
        waiting += vocab[i]
        try:
            out.append(waiting.decode("utf-8"))
            waiting = b""
        except UnicodeDecodeError as error:
            out.append(waiting[: error.start].decode("utf-8"))
            waiting = waiting[error.start :]
    return out + [waiting.decode("utf-8", errors="replace")]


@STREAM.near_miss("it goes by the first byte alone", says="F4 90 and C0 look like the beginning of a character, and no "
                  "character begins so. What may follow a first byte is narrower than 80 to BF; an incremental decoder "
                  "knows it.")
def stream(ids, vocab):
    out, held, need = [], b"", 0
    for i in ids:
        text = ""
        for byte in vocab[i]:
            if need and 0x80 <= byte <= 0xBF:
                held, need = held + bytes([byte]), need - 1
                if not need:
                    text, held = text + held.decode("utf-8", errors="replace"), b""
                continue
            if held:
                text, held, need = text + "\ufffd", b"", 0
            if byte < 0x80:
                text += chr(byte)
            elif 0xC0 <= byte <= 0xF7:
                held, need = bytes([byte]), 1 if byte < 0xE0 else 2 if byte < 0xF0 else 3
            else:
                text += "\ufffd"
        out.append(text)
    return out + ["\ufffd" if held else ""]


@STREAM.near_miss("broken bytes vanish", says="errors='ignore' hides that something is missing; 'replace' shows U+FFFD.")
def stream(ids, vocab):
    decoder = codecs.getincrementaldecoder("utf-8")(errors="ignore")
    return [decoder.decode(vocab[i]) for i in ids] + [decoder.decode(b"", final=True)]


@STREAM.near_miss("every byte of a broken character shows", says="The bytes of one unfinished character stand for one "
                  "character: together they show as one U+FFFD, in the stream and at its end.")
def stream(ids, vocab):
    out, waiting = [], b""
    for i in ids:
        text, waiting = "", waiting + vocab[i]
        while waiting:
            try:
                text, waiting = text + waiting.decode("utf-8"), b""
            except UnicodeDecodeError as error:
                text += waiting[: error.start].decode("utf-8")
                if error.reason == "unexpected end of data":
                    waiting = waiting[error.start :]
                    break
                text += "\ufffd" * (error.end - error.start)
                waiting = waiting[error.end :]
        out.append(text)
    return out + ["\ufffd" * len(waiting)]


@STREAM.alternate("by the reason of the error")
def stream(ids, vocab):
    waiting, out = b"", []
    for i in ids:
        waiting += vocab[i]
        keep = b""
        try:
            waiting.decode("utf-8")
        except UnicodeDecodeError:
            for start in range(max(0, len(waiting) - 3), len(waiting)):
                try:
                    waiting[start:].decode("utf-8")
                except UnicodeDecodeError as tail:
                    if tail.reason == "unexpected end of data" and tail.start == 0 and tail.end == len(waiting[start:]):
                        keep = waiting[start:]
                        break
        out.append(waiting[: len(waiting) - len(keep)].decode("utf-8", errors="replace"))
        waiting = keep
    return out + [waiting.decode("utf-8", errors="replace")]


@STREAM.alternate("byte by byte, by the ranges of the standard")
def stream(ids, vocab):
    out, held, need, low, high = [], b"", 0, 0x80, 0xBF
    for i in ids:
        text = ""
        for byte in vocab[i]:
            if need and low <= byte <= high:
                held, need, low, high = held + bytes([byte]), need - 1, 0x80, 0xBF
                if not need:
                    text, held = text + held.decode(), b""
                continue
            if need:
                text, held, need = text + "\ufffd", b"", 0
            if byte < 0x80:
                text += chr(byte)
            elif 0xC2 <= byte <= 0xF4:
                held, need = bytes([byte]), 1 if byte < 0xE0 else 2 if byte < 0xF0 else 3
                low = {0xE0: 0xA0, 0xF0: 0x90}.get(byte, 0x80)
                high = {0xED: 0x9F, 0xF4: 0x8F}.get(byte, 0xBF)
            else:
                text += "\ufffd"
        out.append(text)
    return out + ["\ufffd" if held else ""]


ENCODE_SPECIAL = Exercise(
    id="tokenization.encode_special",
    title="Special tokens, and text that looks like them",
    signature="encode_special(text, ranks, special, allowed)",
    reference=_encode_special,
    cases=_special_cases,
    hints=(
        "Cut the text at the allowed special tokens; encode what lies between with the given encode.",
        "re.split with a capturing group keeps the separators. Escape them, and put the longest first.",
        "pattern = '(' + '|'.join(re.escape(s) for s in sorted(allowed, key=len, reverse=True)) + ')'; for part in "
        "re.split(pattern, text): special[part] if part in allowed else encode(part, ranks). Without allowed, no split.",
    ),
    section=f"{PAGE}#special-tokens",
    points=2,
    difficulty=2,
    minutes=20,
    prelude="import re\n\nfrom course.given.tokenization import encode\n",
    given=("tokenization",),
)


@ENCODE_SPECIAL.near_miss("it does not ask what is allowed", says="A stranger who types <|im_end|> would end the turn: only "
                          "the allowed strings may become special tokens.")
def encode_special(text, ranks, special, allowed):
    pattern = "(" + "|".join(re.escape(s) for s in sorted(special, key=len, reverse=True)) + ")"
    return [i for part in re.split(pattern, text) for i in ([special[part]] if part in special else encode(part, ranks))]


@ENCODE_SPECIAL.near_miss("it knows no special tokens", says="An allowed special token has one id of its own; as text it would "
                          "be several, which the model never saw in that place.")
def encode_special(text, ranks, special, allowed):
    return encode(text, ranks)


@ENCODE_SPECIAL.near_miss("the shorter special token wins", says="Where one special token begins with another, the longest "
                          "that fits counts: sort by length before you join the pattern.")
def encode_special(text, ranks, special, allowed):
    if not allowed:
        return encode(text, ranks)
    pattern = "(" + "|".join(re.escape(s) for s in sorted(allowed, key=len)) + ")"
    return [i for part in re.split(pattern, text) for i in ([special[part]] if part in allowed else encode(part, ranks))]


@ENCODE_SPECIAL.near_miss("the special tokens themselves are lost", says="str.split and re.split without a group throw the "
                          "separators away: put the pattern into parentheses.")
def encode_special(text, ranks, special, allowed):
    if not allowed:
        return encode(text, ranks)
    pattern = "|".join(re.escape(s) for s in sorted(allowed, key=len, reverse=True))
    return [i for part in re.split(pattern, text) for i in encode(part, ranks)]


@ENCODE_SPECIAL.near_miss("the bars of <|im_end|> act as a pattern", says="| means 'or' in a regular expression: re.escape "
                          "each special token first.")
def encode_special(text, ranks, special, allowed):
    if not allowed:
        return encode(text, ranks)
    pattern = "(" + "|".join(sorted(allowed, key=len, reverse=True)) + ")"
    ids = []
    for number, part in enumerate(re.split(pattern, text)):
        ids += [special[part]] if number % 2 else encode(part, ranks)
    return ids


@ENCODE_SPECIAL.near_miss("a special token that is not allowed hides one that is",
                          says="Only the allowed strings may cut the text: build the pattern from allowed, not from "
                          "special, or a longer one that is not allowed swallows a shorter one that is.")
def encode_special(text, ranks, special, allowed):
    pattern = "(" + "|".join(re.escape(s) for s in sorted(special, key=len, reverse=True)) + ")"
    ids, plain = [], ""
    for part in re.split(pattern, text):
        if part in allowed:
            ids += encode(plain, ranks) + [special[part]]
            plain = ""
        else:
            plain += part
    return ids + encode(plain, ranks)


@ENCODE_SPECIAL.near_miss("a special token that is not allowed still cuts the text",
                          says="What is not allowed is text like all text: merges may reach across its edges. Encode it "
                          "in one piece with what stands around it.")
def encode_special(text, ranks, special, allowed):
    pattern = "(" + "|".join(re.escape(s) for s in sorted(special, key=len, reverse=True)) + ")"
    parts = re.split(pattern, text)
    return [i for part in parts for i in ([special[part]] if part in allowed else encode(part, ranks))]


@ENCODE_SPECIAL.near_miss("it asks what is allowed only when it cuts",
                          says="What lies between two allowed ones may be a special token that is not allowed: ask "
                          "`part in allowed`, not `part in special`.")
def encode_special(text, ranks, special, allowed):
    if not allowed:
        return encode(text, ranks)
    pattern = "(" + "|".join(re.escape(s) for s in sorted(allowed, key=len, reverse=True)) + ")"
    return [i for part in re.split(pattern, text) for i in ([special[part]] if part in special else encode(part, ranks))]


@ENCODE_SPECIAL.near_miss("it looks for the longest first, wherever it stands",
                          says="Read from left to right: of two that overlap the one that begins earlier counts. Length "
                          "decides only between those that begin at the same place.")
def encode_special(text, ranks, special, allowed):
    for name in sorted(allowed, key=len, reverse=True):
        if name in text:
            before, after = text.split(name, 1)
            return [
                *encode_special(before, ranks, special, allowed), special[name],
                *encode_special(after, ranks, special, allowed),
            ]
    return encode(text, ranks)


@ENCODE_SPECIAL.alternate("by hand, without a pattern")
def encode_special(text, ranks, special, allowed):
    ids, start, i = [], 0, 0
    while i < len(text):
        hits = [name for name in allowed if text[i : i + len(name)] == name]
        if hits:
            name = max(hits, key=len)
            ids += encode(text[start:i], ranks) + [special[name]]
            i = start = i + len(name)
        else:
            i += 1
    return ids + encode(text[start:], ranks)


@ENCODE_SPECIAL.alternate("by recursion at the earliest, then longest")
def encode_special(text, ranks, special, allowed):
    found = [(text.find(name), -len(name), name) for name in allowed if name in text]
    if not found:
        return encode(text, ranks)
    at, _, name = min(found)
    rest = encode_special(text[at + len(name) :], ranks, special, allowed)
    return [*encode(text[:at], ranks), special[name], *rest]


EXERCISES = [MERGE_PAIR, TRAIN, ENCODE, DECODE, STREAM, ENCODE_SPECIAL]
