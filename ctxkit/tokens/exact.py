"""Exact counting with tiktoken, each text once, also for texts on which tiktoken crashes."""

from __future__ import annotations

import re
import sys
import threading
from functools import cache
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, cast

from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.tokens.counters import count_message_tokens
from ctxkit.tokens.vocabularies import (
    ENCODING_ALIASES,
    ENCODINGS,
    find_anthropic_tokenizer,
    is_encoding_available,
    load_encoding,
    load_tokenizer,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import tiktoken

    from ctxkit.session.messages import Message, Provenance


MEMO_BYTES = 256 * 2**20
"""How much text a counter may hold on to, in bytes; beyond it the oldest half is forgotten."""

_SHORT_TEXT_CHARS = 400
"""Characters below which a list of tokens is made faster than a buffer."""
_LAST_ADDITIVE_CUT = re.compile(r"(?s).*[A-Za-z0-9](?=[\x00-&(-/:-@\[-`{-\x7f])")
"""Up to the last place where the count of a text is the sum of the counts of its halves.

No pattern of OpenAI's vocabularies lets a piece go on from an ASCII letter or digit to an ASCII
character that is neither, except to an apostrophe (as in `don't`), nor does a piece that ends there
depend on what follows.
"""

_LINE_END = re.compile(r"\n(?<=\S\n)(?=[^\s/])")
"""A line's end at which the count of a text is the sum of the counts of both sides."""


class MemoizingCounter(dict[str, int]):
    """A counter that tokenises a text once: a mapping from texts to counts that fills itself.

    It is its own memo, so that a text seen before costs one look into a dict. Bounded by
    `MEMO_BYTES`.
    """

    source: Provenance = "derived"

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self._held = 0
        self._lock = threading.Lock()

    if TYPE_CHECKING:

        def __call__(self, text: str, /) -> int:
            """Tokens of a text."""
            ...

    else:
        __call__ = dict.__getitem__

    def __missing__(self, text: str) -> int:
        n = self.fresh(text)
        size = sys.getsizeof(text)
        if size <= MEMO_BYTES:
            if self._held + size > MEMO_BYTES:
                self._forget()
            self._held += size
            self[text] = n
        return n

    def _forget(self) -> None:
        with self._lock:
            for text in list(islice(self, (len(self) + 1) // 2)):
                self.pop(text, None)
            self._held = sum(map(sys.getsizeof, list(self)))

    def fresh(self, text: str) -> int:
        """Tokens of a text, counted anew and not remembered."""
        raise NotImplementedError

    def cut(self, text: str) -> int:  # noqa: ARG002
        """Return the last place at which counts add up, or 0 where none is known."""
        return 0

    def by_lines(self, text: str) -> int:
        """Tokens of a text put together of lines: those seen before are not counted anew."""
        return self[text]

    def message(self, message: Message) -> int:
        """Tokens of a message, by the rules of `counters.message_tokens`."""
        return count_message_tokens(self, message)

    def composed(self, message: Message) -> int:
        """Tokens of a message that a rule made: the same number, its texts counted by lines."""
        return count_message_tokens(self.by_lines, message)

    def total(self, messages: Iterable[Message]) -> int:
        """Sum over the messages."""
        return sum(map(self.message, messages))

    __hash__ = object.__hash__  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    def __bool__(self) -> bool:
        return True  # an empty memo is still a counter

    def __repr__(self) -> str:
        return f"<counter {self.name}>"


class TiktokenCounter(MemoizingCounter):
    """Counts as tiktoken does, for texts of any kind: special tokens are plain text, lone
    surrogates are replaced.
    """

    def __init__(self, name: str, *, allow_download: bool = False) -> None:
        super().__init__(name)
        self._allow_download = allow_download
        self._encode: Callable[[str], int] | None = None

    def fresh(self, text: str) -> int:
        """Tokens of a text, counted anew and not remembered.

        Raises:
            StoreError: the vocabulary is not on this machine.
        """
        encode = self._encode or self._ready()
        if len(text) >= LONG_RUN_CHARS and has_long_run(text):
            return self._by_pieces(text)
        try:
            return encode(text)
        except UnicodeEncodeError:
            return self.fresh(replace_surrogates(text))
        except BaseException as error:
            if (
                type(error).__name__ != "PanicException"
            ):  # tiktoken's panics are no Exception and have no public class
                raise
            return self._by_pieces(text)

    def _ready(self) -> Callable[[str], int]:
        enc = load_encoding(self.name, allow_download=self._allow_download)
        core = enc._core_bpe  # noqa: SLF001
        ordinary, buffer, none = (
            core.encode_ordinary,
            core.encode_to_tiktoken_buffer,
            frozenset[str](),
        )

        def encode(text: str) -> int:
            if len(text) < _SHORT_TEXT_CHARS:
                return len(ordinary(text))
            return (
                memoryview(buffer(text, none)).nbytes // 4
            )  # tokens as bytes: a tenth faster than a list

        self._encode = encode
        return encode

    def _by_pieces(self, text: str) -> int:
        """Count with the splitting done outside of tiktoken, whose splitter has a small stack."""
        return count_in_pieces(load_encoding(self.name), replace_surrogates(text))

    def cut(self, text: str) -> int:
        """Return the last place at which counts add up, or 0."""
        found = _LAST_ADDITIVE_CUT.match(text)
        return found.end() if found else 0

    def by_lines(self, text: str) -> int:
        """Tokens of a text of which only the lines are remembered.

        No piece of a pattern goes over a line's end to anything but white space or a slash, and one
        line's end behind anything but white space is a piece by itself, or ends one, whatever
        follows.
        """
        ends = [end.end() for end in _LINE_END.finditer(text)]
        return sum([self[text[a:b]] for a, b in pairwise([0, *ends, len(text)])])

    def __reduce__(self) -> tuple[Any, ...]:
        return exact_counter, (self.name,)


class Claude2Counter(MemoizingCounter):
    """Counts by the tokenizer that Anthropic published for Claude 2; later Claudes have another
    that is not public.
    """

    source: Provenance = "estimated"

    def __init__(self) -> None:
        super().__init__("anthropic")
        self._tokenizer: Any = None

    def fresh(self, text: str) -> int:
        """Tokens of a text, counted anew and not remembered.

        Raises:
            StoreError: litellm, which carries the tokenizer, is not installed.
        """
        if self._tokenizer is None:
            self._tokenizer = load_tokenizer(find_anthropic_tokenizer())
        try:
            return len(self._tokenizer.encode(text, add_special_tokens=False))
        except (UnicodeEncodeError, TypeError):
            return len(self._tokenizer.encode(replace_surrogates(text), add_special_tokens=False))

    def __repr__(self) -> str:
        return "<counter anthropic: the tokenizer of Claude 2>"

    def __reduce__(self) -> tuple[Any, ...]:
        return anthropic_counter, ()


def exact_counter(encoding: str = "o200k_base", *, allow_download: bool = False) -> TiktokenCounter:
    """Return the exact counter of one of tiktoken's encodings, the same object each time.

    The vocabulary is loaded at the first count, offline: from our cache folder, litellm's wheel, or
    a cache of tiktoken's; a download happens only where `allow_download` says so.

    Raises:
        BadArguments: no such encoding is known here.
    """
    if encoding not in ENCODINGS:
        raise BadArguments(
            f"No encoding {encoding!r} is known; there are"
            f" {', '.join(ENCODINGS)}.{did_you_mean(encoding, ENCODINGS)}"
        )
    counter = _cached_exact_counter(encoding)
    if allow_download:
        counter._allow_download = True  # noqa: SLF001
    return counter


@cache
def _cached_exact_counter(encoding: str) -> TiktokenCounter:
    return TiktokenCounter(encoding)


@cache
def anthropic_counter() -> Claude2Counter:
    """Return the counter by Claude 2's tokenizer, as litellm's wheel carries it; for later Claudes
    an estimate.
    """
    return Claude2Counter()


def encoding_for_model(model: str) -> str | None:
    """Return the name of the encoding that OpenAI names for a model (a provider's prefix is passed
    over), or None.
    """
    from tiktoken.model import encoding_name_for_model

    try:
        name = cast("str", encoding_name_for_model(model.rsplit("/", 1)[-1]))
    except KeyError:
        return None
    return name if name in ENCODINGS else None


def can_count_exactly(encoding: str = "o200k_base") -> bool:
    """Return True where exact counting works on this machine without a download."""
    return is_encoding_available(ENCODING_ALIASES.get(encoding, encoding))


LONG_RUN_CHARS = 50_000
"""Texts shorter than this cannot hold a run that matters."""
_RUN_BLOCK = LONG_RUN_CHARS // 2
_REPEATED = re.compile(r"(?s)(.)\1{24999,}")
_SURROGATE_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_MERGED_CHARS = 8_000
"""Characters of a run that are merged for real; the rest repeats, which is checked."""


def has_long_run(text: str) -> bool:
    """Return True where at least 50,000 characters in a row are white space, or one character.

    tiktoken's regex engine runs out of stack at a million of white space, and long runs of one
    character merge slowly. Every such run covers one of the blocks that are looked at whole.
    """
    for start in range(0, len(text) - _RUN_BLOCK + 1, _RUN_BLOCK):
        first, last = text[start], text[start + _RUN_BLOCK - 1]
        if first != last and not (first.isspace() and last.isspace()):
            continue
        block = text[start : start + _RUN_BLOCK]
        if block.isspace() or block == first * _RUN_BLOCK:
            return True
    return False


def replace_surrogates(text: str) -> str:
    """Return what tiktoken makes of a text: lone halves of a pair become the replacement
    character.
    """
    return _LONE_SURROGATE.sub("\ufffd", _SURROGATE_PAIR.sub(_join_surrogate_pair, text))


def _join_surrogate_pair(pair: re.Match[str]) -> str:
    return pair[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def count_in_pieces(encoding: tiktoken.Encoding, text: str) -> int:
    """Return tiktoken's count of a text, split by `regex` with the encoding's own pattern and
    merged by tiktoken.
    """
    import regex  # type: ignore[import-untyped]  # comes with tiktoken

    core = encoding._core_bpe  # noqa: SLF001  no public way around the splitter
    known: dict[str, int] = {}
    total = 0
    for piece in regex.findall(encoding._pat_str, text):  # noqa: SLF001
        n = known.get(piece)
        if n is None:
            n = known[piece] = (
                _count_long(piece, core)
                if len(piece) >= LONG_RUN_CHARS
                else len(core.encode_single_piece(piece.encode()))
            )
        total += n
    return total


def _count_long(piece: str, core: Any) -> int:
    """Count a piece with its longest run shortened by whole periods.

    Inside a run of one character the same token comes again and again. Its length is the period,
    found by merging a few thousand characters; that each period more is one token more is then
    checked, and else all is merged.
    """

    def count(text: str) -> int:
        return len(core.encode_single_piece(text.encode()))

    run = max(_REPEATED.finditer(piece), key=lambda m: m.end() - m.start(), default=None)
    if run is None or len(piece) - (run.end() - run.start()) > _RUN_BLOCK:
        return count(piece)
    sign, length = run[1], run.end() - run.start()
    tokens = core.encode_single_piece((sign * _MERGED_CHARS).encode())
    middle = tokens[len(tokens) // 2]
    period, odd = divmod(len(core.decode_single_token_bytes(middle)), len(sign.encode()))
    if odd or tokens.count(middle) < len(tokens) - 16:
        return count(piece)
    kept = _MERGED_CHARS + (length - _MERGED_CHARS) % period
    head, tail = piece[: run.start()], piece[run.end() :]
    once, twice, more = (count(head + sign * (kept + i * period) + tail) for i in (0, 1, 7))
    if (twice - once, more - once) != (1, 7):
        return count(piece)
    return once + (length - kept) // period
