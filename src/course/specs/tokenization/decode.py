"""Decode: from ids back to text."""

from __future__ import annotations

from course.given.tokenization import encode as given_encode
from course.specs.exercise import Case, Draw, Exercise
from course.specs.tokenization.shared import PAGE, random_ranks, random_text, renumbered, vocab_of


def reference(ids, vocab):
    return b"".join(vocab[i] for i in ids).decode("utf-8", errors="replace")


def cases(draw: Draw) -> list[Case]:
    ranks = random_ranks(draw)
    vocab = vocab_of(ranks)
    other, line = dict(draw.random.sample(list(renumbered(ranks, draw).items()), len(ranks))), random_text(draw)
    emoji = list("👩‍🚀".encode())
    return [
        Case((given_encode(random_text(draw), ranks), vocab), label="a line of text"),
        Case((list("déjà vu".encode()), vocab), label="one id for each byte"),
        Case((emoji, vocab), label="characters of four bytes, one id a byte"),
        Case((emoji[: draw.choice([1, 2, 3])], vocab), label="the text ends inside a character"),
        Case(([0xFF, 0x41, 0xC3, 0x41], vocab), label="bytes that are no UTF-8"),
        Case(([0x41, 0xFF, 0xFE, 0x80, 0x42], vocab), label="three such bytes in a row"),
        Case(([0x41, 0x00, 0x42], vocab), label="id 0, a byte 0"),
        Case((given_encode(line, other), vocab_of(other)), label="a byte's id is not its value"),
        Case((given_encode("  two  spaces\n", ranks), vocab), label="white space"),
        Case(([], vocab), label="no ids"),
    ]


DECODE = Exercise(
    id="tokenization.decode",
    title="Decode",
    signature="decode(ids, vocab)",
    reference=reference,
    cases=cases,
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
    in_model=True,
)

DECODE.near_miss(
    "it decodes each token by itself",
    {
        'b"".join(vocab[i] for i in ids).decode("utf-8", errors="replace")':
            '"".join(vocab[i].decode("utf-8", errors="replace") for i in ids)',
    },
    says="A character may be spread over several tokens: join the bytes first, decode once.",
)

DECODE.near_miss(
    "it reads bytes as Latin-1",
    {'"utf-8", errors="replace"': '"latin-1"'},
    says="The bytes are UTF-8; chr(byte) and latin-1 give é as two letters.",
)

DECODE.near_miss(
    "broken bytes vanish",
    {'"replace"': '"ignore"'},
    says="errors='ignore' hides that something is missing; 'replace' shows U+FFFD.",
)

DECODE.near_miss(
    "broken bytes raise",
    {', errors="replace"': ""},
    says="A stream may end inside a character: that must show as U+FFFD, not as an error.",
)

DECODE.near_miss(
    "it puts spaces between tokens",
    {'b"".join': 'b" ".join'},
    says="A space belongs to the token that begins with it: join with nothing.",
)

DECODE.near_miss(
    "broken bytes in a row show once",
    {
        'return b"".join(vocab[i] for i in ids).decode("utf-8", errors="replace")':
            'text = b"".join(vocab[i] for i in ids).decode("utf-8", errors="replace")\n'
            'pairs = zip(text, " " + text)\n'
            'return "".join(char for char, before in pairs if char != "\\ufffd" or before != "\\ufffd")',
    },
    says="Each byte that can begin no character gets a U+FFFD of its own, as errors='replace' does it.",
)

DECODE.near_miss(
    "id 0 is lost",
    {"for i in ids": "for i in ids if i"},
    says="0 is an id like any other: take all ids, without asking `if i`.",
)

DECODE.near_miss(
    "the id is taken for a place in the vocabulary",
    {"vocab[i]": "list(vocab.values())[i]"},
    says="vocab is a dict from id to bytes, in any order: vocab[i], not list(vocab.values())[i].",
)


@DECODE.alternate("with a bytearray")
def decode(ids, vocab):
    data = bytearray()
    for i in ids:
        data += vocab[i]
    return str(bytes(data), "utf-8", "replace")
