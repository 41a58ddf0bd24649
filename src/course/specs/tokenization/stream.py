"""Stream: text as it becomes complete."""

from __future__ import annotations

import codecs

from course.given.tokenization import encode as given_encode
from course.specs.exercise import Case, Draw, Exercise
from course.specs.tokenization.shared import PAGE, random_ranks, random_text, vocab_of


def reference(ids, vocab):
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    return [decoder.decode(vocab[i]) for i in ids] + [decoder.decode(b"", final=True)]


def cases(draw: Draw) -> list[Case]:
    ranks = random_ranks(draw)
    vocab = vocab_of(ranks)
    cut = draw.choice([1, 2, 3])
    return [
        Case((given_encode(random_text(draw), ranks), vocab), label="a line of text"),
        Case((list("да 🙂!".encode()), vocab), label="one id for each byte"),
        Case((list("🙂".encode())[:cut], vocab), label="the stream ends inside a character"),
        Case(([0x41, 0xFF, 0x42], vocab), label="a byte that can begin no character"),
        Case(([0xE2, 0x82, 0x41, 0x42], vocab), label="a character that is broken off by the next"),
        Case(([0x41, 0xF4, 0x90, 0x42, 0xC0], vocab), label="two bytes that look like a character's beginning and are none"),
        Case((list("a\ufffdb".encode()), vocab), label="U+FFFD itself is in the text"),
        Case((given_encode("the weather", ranks), vocab), label="plain ASCII"),
        Case(([7, 3, 5, 9], {3: b"\x99\x82c\xd0", 5: b"\xb4e", 7: b"ab\xf0\x9f", 9: b"f\xc3"}),
             label="letters before an unfinished character, in one token"),
        Case(([], vocab), label="no ids"),
    ]


STREAM = Exercise(
    id="tokenization.stream",
    title="Stream without breaking a character",
    signature="stream(ids, vocab)",
    reference=reference,
    cases=cases,
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
    in_model=True,
)

STREAM.near_miss(
    "it decodes each token by itself",
    {
        "decoder.decode(vocab[i])": 'vocab[i].decode("utf-8", errors="replace")',
        'decoder.decode(b"", final=True)': '""',
    },
    says="Half a character is shown as U+FFFD and its other half too: keep unfinished bytes until the rest has come.",
)

STREAM.near_miss(
    "what is unfinished at the end is dropped",
    {'decoder.decode(b"", final=True)': '""'},
    says="When the ids are over, whatever waits must come out as U+FFFD: nothing of the stream may vanish.",
)

STREAM.near_miss(
    "it repeats the whole text with each token",
    {
        "[decoder.decode(vocab[i]) for i in ids]":
            '[b"".join(vocab[i] for i in ids[: n + 1]).decode("utf-8", "replace") for n in range(len(ids))]',
        'decoder.decode(b"", final=True)': '""',
    },
    says="Give what is new; the caller has shown the rest already.",
)

STREAM.near_miss(
    "it holds everything back until the end",
    {
        "[decoder.decode(vocab[i]) for i in ids]": '[""] * len(ids)',
        'b"", final': 'b"".join(vocab[i] for i in ids), final',
    },
    says="A reader waits for each token: give what is complete at once.",
)


@STREAM.near_miss(
    "it waits whenever the text ends in U+FFFD",
    says="U+FFFD can be in the text itself, and an impossible byte never becomes a character: look at the bytes, "
    "not at the decoded text.",
)
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


@STREAM.near_miss(
    "one bad byte holds up all that follows",
    says="Waiting helps an unfinished character only. A byte that can never become part of one shows as U+FFFD at "
    "once, and the text behind it goes on.",
)
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


@STREAM.near_miss(
    "it goes by the first byte alone",
    says="F4 90 and C0 look like the beginning of a character, and no character begins so. What may follow a first "
    "byte is narrower than 80 to BF; an incremental decoder knows it.",
)
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


STREAM.near_miss(
    "broken bytes vanish",
    {'"replace"': '"ignore"'},
    says="errors='ignore' hides that something is missing; 'replace' shows U+FFFD.",
)


@STREAM.near_miss(
    "every byte of a broken character shows",
    says="The bytes of one unfinished character stand for one character: together they show as one U+FFFD, in the "
    "stream and at its end.",
)
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


@STREAM.near_miss(
    "a token that ends inside a character waits as a whole",
    says="Behind letters that are complete a token may hold the beginning of a character: show the letters at once, keep "
    "only the unfinished bytes. As it is, they wait for the next token, and a byte that never becomes a character holds up "
    "all that follows.",
)
def stream(ids, vocab):
    out, waiting = [], b""
    for i in ids:
        waiting += vocab[i]
        try:
            out.append(waiting.decode("utf-8"))
            waiting = b""
        except UnicodeDecodeError:
            out.append("")
    return out + [waiting.decode("utf-8", errors="replace")]


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
