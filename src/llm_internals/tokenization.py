"""Byte-level byte-pair encoding: train it, encode with it, decode, and watch every merge.

A text becomes ids in four steps: special tokens are cut out, the rest is split into words, each word
becomes its UTF-8 bytes, and neighbouring pieces are merged, lowest rank first, until no merge applies. What
this module does not do: Unicode normalization, WordPiece, SentencePiece, byte fallback.
"""

import codecs
import heapq
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal, NoReturn

import jinja2
import regex
from jinja2.sandbox import ImmutableSandboxedEnvironment

Pair = tuple[bytes, bytes]
Splitter = Callable[[str], list[str]]

# The split that GPT-2 published and most byte-level tokenizers still use: English contractions, letters,
# digits and other signs, each with at most one leading space, and runs of white space.
GPT2_SPLIT = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
SINGLE_DIGITS = r"\p{N}|\P{N}+"
LONG_WORD = 64  # bytes; from here on merge_long wins


def regex_splitter(*patterns: str) -> Splitter:
    """A function from text to its pieces, cut by each pattern in turn; text between matches stays."""
    compiled = [regex.compile(pattern) for pattern in patterns]

    def split(text: str) -> list[str]:
        pieces = [text] if text else []
        for pattern in compiled:
            pieces = [part for piece in pieces for part in _matches_and_gaps(pattern, piece)]
        return pieces

    return split


def _matches_and_gaps(pattern: regex.Pattern, text: str) -> Iterator[str]:
    end = 0
    for match in pattern.finditer(text):
        if end < match.start():
            yield text[end : match.start()]
        if match.group():
            yield match.group()
        end = match.end()
    if end < len(text):
        yield text[end:]


split_words = regex_splitter(SINGLE_DIGITS, GPT2_SPLIT)


# ----------------------------------------------------------------- merging


@dataclass(frozen=True)
class MergeStep:
    """The pieces of a word, and the merge that led here: which pair, its rank, the place of the new piece.

    In the first step, before any merge, those three are None.
    """

    pieces: tuple[bytes, ...]
    pair: Pair | None = None
    rank: int | None = None
    position: int | None = None


def merge_steps(pieces: Sequence[bytes], ranks: Mapping[Pair, int]) -> Iterator[MergeStep]:
    """Apply merges one at a time: of all neighbouring pairs the one of lowest rank, of equals the leftmost.

    `ranks` says in which order training made the merges. The time grows with the square of the word.
    """
    pieces = list(pieces)
    yield MergeStep(tuple(pieces))
    while True:
        candidates = [(ranks[pair], i) for i, pair in enumerate(pairwise(pieces)) if pair in ranks]
        if not candidates:
            return
        rank, i = min(candidates)
        pair = (pieces[i], pieces[i + 1])
        pieces[i : i + 2] = [pair[0] + pair[1]]
        yield MergeStep(tuple(pieces), pair, rank, i)


def merge(pieces: Sequence[bytes], ranks: Mapping[Pair, int]) -> list[bytes]:
    """The pieces that are left when no merge applies: the last of `merge_steps`."""
    pieces = list(pieces)
    while len(pieces) > 1:
        pairs = [ranks.get(pair) for pair in pairwise(pieces)]
        lowest = min((rank for rank in pairs if rank is not None), default=None)
        if lowest is None:
            break
        i = pairs.index(lowest)
        pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]
    return pieces


def merge_long(pieces: Sequence[bytes], ranks: Mapping[Pair, int]) -> list[bytes]:
    """The fast twin of `merge`: n log n for n pieces, so that a long run without a space cannot hang.

    Candidate merges wait in a heap by (rank, place). Pieces form a linked list; a candidate is stale, and is
    dropped, when one of its two pieces has been merged since.
    """
    pieces: list[bytes | None] = list(pieces)
    following = list(range(1, len(pieces) + 1))
    previous = list(range(-1, len(pieces) - 1))
    heap = [(ranks[pair], i, pair) for i, pair in enumerate(pairwise(pieces)) if pair in ranks]
    heapq.heapify(heap)

    def offer(left: int, right: int) -> None:
        if left >= 0 and right < len(pieces):
            pair = (pieces[left], pieces[right])
            if pair in ranks:
                heapq.heappush(heap, (ranks[pair], left, pair))

    while heap:
        _, left, pair = heapq.heappop(heap)
        right = following[left]
        if right >= len(pieces) or (pieces[left], pieces[right]) != pair:
            continue
        pieces[left], pieces[right] = pair[0] + pair[1], None
        following[left] = following[right]
        if following[right] < len(pieces):
            previous[following[right]] = left
        offer(previous[left], left)
        offer(left, following[left])
    return [piece for piece in pieces if piece is not None]


# ----------------------------------------------------------------- training


def train_bpe(text: str, vocab_size: int, split: Splitter = split_words, min_count: int = 2) -> list[Pair]:
    """Learn merges from a text: again and again, join the pair of neighbours that occurs most often.

    Returns the merges in the order they were learnt; their number is vocab_size - 256, or less when no pair
    occurs `min_count` times any more. Of equally frequent pairs the one whose pieces are older wins (bytes
    are oldest, in GPT-2's order). Counts are kept up to date: a merge revisits only the places where its pair
    stands.
    """
    if vocab_size < 256:
        raise ValueError(f"vocab_size must be at least 256, one token per byte; got {vocab_size}")
    age = {piece: i for i, piece in enumerate(BYTE_ORDER)}
    words = _WordCounts(text, split)
    heap = [(-count, age[a], age[b], (a, b)) for (a, b), count in words.pair_counts.items()]
    heapq.heapify(heap)
    merges: list[Pair] = []
    while heap and len(merges) < vocab_size - 256:
        negative_count, _, _, best = heapq.heappop(heap)
        if words.pair_counts[best] != -negative_count:
            continue  # an old entry: the count has changed since, and was offered again
        if words.pair_counts[best] < min_count:
            break
        merges.append(best)
        age[best[0] + best[1]] = len(age)
        for a, b in words.merge(best):
            heapq.heappush(heap, (-words.pair_counts[a, b], age[a], age[b], (a, b)))
    return merges


class _WordCounts:
    """The different words of a text as pieces, how often each pair of neighbours occurs, and where.

    All pieces stand in one row, each word's linked to its neighbours in the word. A place is named by where its
    piece began, so it keeps its name when the piece grows to the right. A merge touches only the places of its
    pair: all merges of a text of n bytes take time n log n, however long its words are.
    """

    def __init__(self, text: str, split: Splitter):
        self.pieces: list[bytes | None] = []
        self.following: list[int] = []  # the place of the next piece of the word, or -1
        self.previous: list[int] = []
        self.weights: list[int] = []  # how often the text holds the word
        self.pair_counts: Counter[Pair] = Counter()
        self.places: dict[Pair, list[int]] = defaultdict(list)  # where a pair stands, or stood
        for word, count in Counter(split(text)).items():
            self._add(_as_bytes(word), count)

    def _add(self, pieces: list[bytes], count: int) -> None:
        start, end = len(self.pieces), len(self.pieces) + len(pieces)
        self.pieces += pieces
        self.following += [*range(start + 1, end), -1]
        self.previous += [-1, *range(start, end - 1)]
        self.weights += [count] * len(pieces)
        for place in range(start, end - 1):
            self._count(place, +1)

    def merge(self, pair: Pair) -> set[Pair]:
        """Join a pair wherever it occurs, left to right; returns the pairs whose counts have changed and are not 0."""
        changed: set[Pair] = set()
        for place in sorted(self.places.pop(pair)):
            right = self.following[place]
            if right < 0 or (self.pieces[place], self.pieces[right]) != pair:
                continue  # one of the two has been merged since
            left, after = self.previous[place], self.following[right]
            around = [i for i in (left, place, right) if i >= 0 and self.following[i] >= 0]
            changed |= {self._count(i, -1) for i in around}
            self.pieces[place], self.pieces[right] = pair[0] + pair[1], None
            self.following[place] = after
            if after >= 0:
                self.previous[after] = place
            around = [i for i in (left, place) if i >= 0 and self.following[i] >= 0]
            changed |= {self._count(i, +1) for i in around}
        return {other for other in changed if self.pair_counts[other] > 0}

    def _count(self, place: int, sign: int) -> Pair:
        """Count the pair that begins at a place in (+1) or out (-1)."""
        pair = (self.pieces[place], self.pieces[self.following[place]])
        self.pair_counts[pair] += sign * self.weights[place]
        if sign > 0:
            self.places[pair].append(place)
        return pair


def _as_bytes(word: str) -> list[bytes]:
    """A word's UTF-8 bytes, each its own piece."""
    return [bytes([byte]) for byte in _utf8(word)]


# ----------------------------------------------------------------- printable bytes


def _printable_bytes() -> dict[int, str]:
    """GPT-2's way to write any byte as one visible character: printable Latin-1 as itself, the others, in
    order, from U+0100 on. So a space is written Ġ and a line feed Ċ.
    """
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {byte: chr(byte) for byte in visible} | {byte: chr(256 + i) for i, byte in enumerate(hidden)}


BYTE_TO_CHARACTER = _printable_bytes()
CHARACTER_TO_BYTE = {character: byte for byte, character in BYTE_TO_CHARACTER.items()}
BYTE_ORDER = [bytes([CHARACTER_TO_BYTE[character]]) for character in sorted(CHARACTER_TO_BYTE)]


def to_printable(piece: bytes) -> str:
    """b" the" -> "Ġthe": how vocabulary files and figures write a piece."""
    return "".join(BYTE_TO_CHARACTER[byte] for byte in piece)


def from_printable(written: str) -> bytes:
    """The inverse of `to_printable`; KeyError for a character that stands for no byte."""
    return bytes(CHARACTER_TO_BYTE[character] for character in written)


# ----------------------------------------------------------------- the tokenizer

Message = Mapping[str, str]


class Tokenizer:
    """Text to ids and back, with one vocabulary.

    Some vocabularies lack a token for a few byte values (SmolLM2's lacks 21, most of which no UTF-8 text
    contains); as in HF `tokenizers`, such a byte is left out. `missing_bytes` lists them.
    """

    def __init__(
        self,
        vocab: Mapping[bytes, int],
        merges: Sequence[Pair],
        special_tokens: Mapping[str, int] | None = None,
        split: Splitter = split_words,
        *,
        added_tokens: Mapping[str, int] | None = None,
        whole_words_first: bool = False,
        prefix_ids: Sequence[int] = (),
        suffix_ids: Sequence[int] = (),
        bos_token_id: int | None = None,
        eos_token_id: int | None = None,
        chat_template: str | None = None,
        template_names: Mapping[str, str] | None = None,
        num_ids: int = 0,
    ):
        """`special_tokens` steer the model and are no text; `added_tokens` are cut out alike, but stay text.

        whole_words_first: a word that is a token needs no merges (HF's ignore_merges, as in Llama 3).
        prefix_ids, suffix_ids: what `encode` puts around a text, as Llama 3's begin-of-text.
        template_names: what the chat template may call by name, as bos_token.
        num_ids: rows of the model's embedding, where it has more than there are tokens; such an id has no text.
        """
        self.vocab = dict(vocab)
        self.ranks = {pair: rank for rank, pair in enumerate(merges)}
        self.special_tokens = dict(special_tokens or {})
        self.added_tokens = dict(added_tokens or {})
        self.split = split
        self.whole_words_first = whole_words_first
        self.prefix_ids, self.suffix_ids = list(prefix_ids), list(suffix_ids)
        self.bos_token_id = bos_token_id
        self.eos_token_id = eos_token_id
        self.chat_template = chat_template
        self.template_names = dict(template_names or {})
        self.id_to_bytes = {token_id: piece for piece, token_id in self.vocab.items()}
        cut_out = self.special_tokens | self.added_tokens
        self.id_to_bytes |= {token_id: text.encode() for text, token_id in cut_out.items()}
        self._num_ids = max(num_ids, max(self.id_to_bytes, default=-1) + 1)
        self.missing_bytes = frozenset(b for b in range(256) if bytes([b]) not in self.vocab)
        for left, right in self.ranks:
            if left + right not in self.vocab:
                raise ValueError(f"the merge of {left!r} and {right!r} makes no token of the vocabulary")
        self._encode_short = lru_cache(maxsize=1 << 16)(self._encode_word)

    @classmethod
    def from_merges(cls, merges: Sequence[Pair], special_tokens: Sequence[str] = (), **options) -> "Tokenizer":
        """Number the tokens as HF does: special tokens, the 256 bytes in GPT-2's order, the merges."""
        pieces = [*BYTE_ORDER, *(left + right for left, right in merges)]
        vocab = {piece: len(special_tokens) + i for i, piece in enumerate(pieces)}
        return cls(vocab, merges, {text: i for i, text in enumerate(special_tokens)}, **options)

    @property
    def vocab_size(self) -> int:
        """Ids that have a meaning: the largest and all below it, those without a text counted."""
        return self._num_ids

    def encode(
        self,
        text: str,
        allowed_special: Literal["all"] | Collection[str] = "all",
        add_special_tokens: bool = True,
    ) -> list[int]:
        """Text to ids. A special token's text gives its id if it is allowed, else it is text like any other.

        Pass `allowed_special=()` for text from a stranger: then no input can end a turn or forge one.
        `add_special_tokens`: put around the text what this tokenizer was made to, often a begin-of-text.
        """
        special = self.special_tokens if allowed_special == "all" else self._known_special(allowed_special)
        token_ids = self._encode_parts(text, {*special, *self.added_tokens})
        return [*self.prefix_ids, *token_ids, *self.suffix_ids] if add_special_tokens else token_ids

    def _encode_parts(self, text: str, cut_out: Collection[str], unmask: Mapping[int, str] | None = None) -> list[int]:
        token_ids: list[int] = []
        for part in _split_at(text, cut_out):
            if part in cut_out:
                token_ids.append(self.special_tokens[part] if part in self.special_tokens else self.added_tokens[part])
                continue
            for word in self.split(part.translate(unmask) if unmask else part):
                token_ids += self._encode_short(word) if len(word) < LONG_WORD else self._encode_word(word)
        return token_ids

    def _encode_word(self, word: str) -> tuple[int, ...]:
        piece = _utf8(word)
        if self.whole_words_first and piece in self.vocab:
            return (self.vocab[piece],)
        pieces = [piece for piece in _as_bytes(word) if piece in self.vocab]
        merged = (merge if len(pieces) < LONG_WORD else merge_long)(pieces, self.ranks)
        return tuple(self.vocab[piece] for piece in merged)

    def _known_special(self, allowed: Collection[str]) -> Collection[str]:
        if isinstance(allowed, str):
            raise ValueError(
                f'allowed_special is "all" or a collection of special tokens, as in {{{allowed!r}}}; '
                f"got the text {allowed!r} itself"
            )
        unknown = [text for text in allowed if text not in self.special_tokens]
        if unknown:
            raise ValueError(f"not special tokens of this tokenizer: {unknown}")
        return allowed

    def decode_bytes(self, token_ids: Iterable[int], skip_special_tokens: bool = False) -> bytes:
        """The bytes that the ids stand for, none for an id without a text. ValueError for one past the vocabulary."""
        special = set(self.special_tokens.values()) if skip_special_tokens else ()
        token_ids = [int(token_id) for token_id in token_ids]
        for token_id in token_ids:
            if not 0 <= token_id < self.vocab_size:
                raise ValueError(f"id {token_id} is not in the vocabulary of {self.vocab_size} tokens")
        return b"".join(self.id_to_bytes.get(token_id, b"") for token_id in token_ids if token_id not in special)

    def decode(self, token_ids: Iterable[int], skip_special_tokens: bool = False) -> str:
        """The text that the ids stand for; bytes that are not valid UTF-8 become U+FFFD."""
        return self.decode_bytes(token_ids, skip_special_tokens).decode("utf-8", errors="replace")

    def trace(self, word: str) -> list[MergeStep]:
        """Every step from a word's bytes to its tokens. ValueError if `word` splits into several."""
        if len(self.split(word)) != 1:
            raise ValueError(f"{word!r} is not one word but {self.split(word)}: trace them one by one")
        return list(merge_steps([piece for piece in _as_bytes(word) if piece in self.vocab], self.ranks))

    def chat(self, messages: Sequence[Message], add_generation_prompt: bool = True) -> str:
        """A conversation as the text that the model was trained on, written by its own chat template.

        messages: [{"role": "user", "content": "..."}, ...]. `add_generation_prompt` opens the assistant's turn,
        so that the model goes on with its answer.
        """
        check_messages(messages)
        if self.chat_template is None:
            raise ValueError("this tokenizer came with no chat template, so there is no chat format to write in")
        return render_chat(self.chat_template, messages, add_generation_prompt, self.template_names)

    def encode_chat(self, messages: Sequence[Message], add_generation_prompt: bool = True) -> list[int]:
        """A conversation as ids. A special token written inside a message stays plain text.

        Equal to encode(chat(messages)) when no message contains one; what `encode` puts around a text is the
        template's business here. To tell a message's words from the template's, the first character of each
        special token in a message is exchanged for one that no text uses, until the template has run.
        """
        check_messages(messages)
        masked, unmask = _mask(messages, self.special_tokens)
        text = self.chat(masked, add_generation_prompt)
        return self._encode_parts(text, {*self.special_tokens, *self.added_tokens}, unmask)


def _split_at(text: str, separators: Collection[str]) -> list[str]:
    """Cut out every separator, the longest where several fit; the parts joined give the text."""
    if not separators:
        return [text]
    by_length = sorted(separators, key=len, reverse=True)
    return regex.split("(" + "|".join(map(regex.escape, by_length)) + ")", text)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the text holds half of a surrogate pair, which is no character: {error}") from None


class StreamingDecoder:
    """Turns ids into text as they come, and never shows part of a character.

    A character of several bytes may be spread over several tokens: its bytes wait until the last has come.
    All that `push` and `flush` return, joined, equals `tokenizer.decode` of all the ids.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool = False):
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_id: int) -> str:
        """The text that this id completes; empty while a character is unfinished."""
        return self._utf8.decode(self._tokenizer.decode_bytes([token_id], self._skip_special_tokens))

    def flush(self) -> str:
        """At the end: U+FFFD for a character that never got its last byte, else nothing."""
        return self._utf8.decode(b"", final=True)


# ----------------------------------------------------------------- chat


def check_messages(messages: Sequence[Message]) -> None:
    """ValueError for what is no conversation."""
    if not messages:
        raise ValueError("a chat needs at least one message")
    for message in messages:
        if not isinstance(message, Mapping) or not {"role", "content"} <= message.keys():
            raise ValueError(f'a message is {{"role": ..., "content": ...}}, got {message!r}')


def render_chat(
    template: str, messages: Sequence[Message], add_generation_prompt: bool, names: Mapping[str, str]
) -> str:
    """Run a chat template, with what such templates may call: `names`, raise_exception, strftime_now, tojson.

    A template is code that came with a download, so it runs in jinja2's sandbox. ValueError for one that cannot
    be run, and for a conversation that it refuses.
    """
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _refuse_chat, "strftime_now": lambda form: datetime.now().strftime(form)}
    try:
        return environment.from_string(template).render(
            messages=messages, add_generation_prompt=add_generation_prompt, tools=None, documents=None, **names
        )
    except (jinja2.TemplateError, TypeError, ArithmeticError, LookupError, AttributeError) as error:
        raise ValueError(f"the chat template does not take this conversation: {error}") from error


def _refuse_chat(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _to_json(value: Any, **options: Any) -> str:
    """jinja2's own filter escapes for HTML, which a model was not trained on."""
    return json.dumps(value, **{"ensure_ascii": False, **options})


def _mask(messages: Sequence[Message], special_tokens: Collection[str]) -> tuple[list[Message], dict[int, str]]:
    """Messages in which no special token can be found, and what turns their characters back."""
    if not special_tokens:
        return list(messages), {}
    starts = regex.compile("(?:" + "|".join(map(regex.escape, special_tokens)) + ")")
    used = {c for message in messages for value in message.values() if isinstance(value, str) for c in value}
    unused = (chr(code) for code in range(0xF0000, 0xFFFFE) if chr(code) not in used)  # a plane for private use
    mask = {first: next(unused) for first in sorted({text[0] for text in special_tokens})}

    def masked(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        at = {match.start() for match in starts.finditer(value, overlapped=True)}
        return "".join(mask[c] if i in at else c for i, c in enumerate(value)) if at else value

    unmask = {ord(stand_in): first for first, stand_in in mask.items()}
    return [{key: masked(value) for key, value in message.items()} for message in messages], unmask
