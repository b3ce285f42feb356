"""Exact token counters by tiktoken, and the vocabularies that they load."""

from __future__ import annotations

import binascii
import gzip
import hashlib
import os
import re
import sys
import tempfile
import threading
import zlib
from contextlib import suppress
from functools import cache
from importlib import util
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ctxkit._internal.safe_files import SafeFolder, get_ctxkit_cache_folder
from ctxkit.data import DATA_DIR
from ctxkit.errors import BadArguments, StoreError, did_you_mean
from ctxkit.tokens.message_token_counting import count_message_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import ModuleType

    import tiktoken

    from ctxkit.session.messages import Message, Provenance


MEMO_BYTES = 256 * 2**20
"""Bytes of text that a counter remembers; beyond it the oldest half is removed."""

_SHORT_TEXT_CHARS = 400
"""Characters below which tiktoken returns a list of tokens faster than a buffer."""
_LAST_ADDITIVE_CUT = re.compile(r"(?s).*[A-Za-z0-9](?=[\x00-&(-/:-@\[-`{-\x7f])")
"""Matches up to the last place where the count of a text is the sum of the counts of its halves.

In the patterns of OpenAI's vocabularies no piece continues from an ASCII letter or digit to an
ASCII character of another kind, except to an apostrophe (as in `don't`), and a piece that ends
there does not depend on the text that follows.
"""

_LINE_END = re.compile(r"\n(?<=\S\n)(?=[^\s/])")
"""An end of line at which the count of a text is the sum of the counts of both sides."""


# Counts are memoised, also for texts on which tiktoken crashes.
class MemoizingCounter(dict[str, int]):
    """A counter that tokenises each text once: a dict from texts to counts that fills itself.

    A text that was counted before costs one dict look-up. Bounded by `MEMO_BYTES`.
    """

    source: Provenance = "derived"

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self._stored_bytes = 0
        self._lock = threading.Lock()

    if TYPE_CHECKING:

        def __call__(self, text: str, /) -> int:
            """Tokens of a text."""
            ...

    else:
        __call__ = dict.__getitem__

    def __missing__(self, text: str) -> int:
        tokens = self.count_uncached(text)
        size = sys.getsizeof(text)
        if size <= MEMO_BYTES:
            if self._stored_bytes + size > MEMO_BYTES:
                self._remove_oldest_half()
            self._stored_bytes += size
            self[text] = tokens
        return tokens

    def _remove_oldest_half(self) -> None:
        with self._lock:
            for text in list(islice(self, (len(self) + 1) // 2)):
                self.pop(text, None)
            self._stored_bytes = sum(map(sys.getsizeof, list(self)))

    def count_uncached(self, text: str) -> int:
        """Return the tokens of a text without storing the count."""
        raise NotImplementedError

    def find_split(self, text: str) -> int:  # noqa: ARG002
        """Return the last position at which counts add up, or 0 where there is none."""
        return 0

    def count_by_lines(self, text: str) -> int:
        """Return the tokens of a text, counted line by line, so that lines are remembered."""
        return self[text]

    def message(self, message: Message) -> int:
        """Return the tokens of a message; see `counters.count_message_tokens`."""
        return count_message_tokens(self, message)

    def count_composed(self, message: Message) -> int:
        """Return the same number as `message`, counted line by line, for a message of a rule."""
        return count_message_tokens(self.count_by_lines, message)

    def total(self, messages: Iterable[Message]) -> int:
        """Return the sum over messages."""
        return sum(map(self.message, messages))

    __hash__ = object.__hash__  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    def __bool__(self) -> bool:
        return True  # also while the dict is empty

    def __repr__(self) -> str:
        return f"<counter {self.name}>"


class TiktokenCounter(MemoizingCounter):
    """Counts the tokens of any text as tiktoken does.

    Special tokens count as plain text, and lone surrogates are replaced.

    Args:
        name: name of tiktoken's encoding, such as `o200k_base`.
        allow_download: whether a vocabulary that is not on this machine may be downloaded.

    Example:
        >>> from ctxkit import tokens
        >>> counter = tokens.TiktokenCounter("o200k_base")
        >>> counter("Hello, world"), counter.source
        (3, 'derived')
    """

    def __init__(self, name: str, *, allow_download: bool = False) -> None:
        super().__init__(name)
        self._allow_download = allow_download
        self._count: Callable[[str], int] | None = None

    def count_uncached(self, text: str) -> int:
        """Return the tokens of a text without storing the count.

        Raises:
            StoreError: the vocabulary is not on this machine.
        """
        count = self._count or self._load()
        if len(text) >= LONG_RUN_CHARS and has_long_run(text):
            return self._by_pieces(text)
        try:
            return count(text)
        except UnicodeEncodeError:
            return self.count_uncached(replace_surrogates(text))
        except BaseException as error:
            # a panic of tiktoken's Rust code derives from BaseException and has no public class
            if type(error).__name__ != "PanicException":
                raise
            return self._by_pieces(text)

    def _load(self) -> Callable[[str], int]:
        enc = load_encoding(self.name, allow_download=self._allow_download)
        core = enc._core_bpe  # noqa: SLF001
        encode_to_list, encode_to_buffer = core.encode_ordinary, core.encode_to_tiktoken_buffer
        no_special_tokens = frozenset[str]()

        def count(text: str) -> int:
            if len(text) < _SHORT_TEXT_CHARS:
                return len(encode_to_list(text))
            # four bytes a token; a tenth faster than a list
            return memoryview(encode_to_buffer(text, no_special_tokens)).nbytes // 4

        self._count = count
        return count

    def _by_pieces(self, text: str) -> int:
        """Count with the text split outside of tiktoken, whose own splitter has a small stack."""
        return count_in_pieces(load_encoding(self.name), replace_surrogates(text))

    def find_split(self, text: str) -> int:
        """Return the last position at which counts add up, or 0."""
        match = _LAST_ADDITIVE_CUT.match(text)
        return match.end() if match else 0

    def count_by_lines(self, text: str) -> int:
        """Return the tokens of a text, counted line by line, so that lines are remembered.

        In all patterns a piece crosses an end of line only to white space or a slash, and an end of
        line after other characters is a piece by itself or ends one. So counts add up there.
        """
        ends = [end.end() for end in _LINE_END.finditer(text)]
        return sum([self[text[a:b]] for a, b in pairwise([0, *ends, len(text)])])

    def __reduce__(self) -> tuple[Any, ...]:
        return exact_counter, (self.name,)


class Claude2Counter(MemoizingCounter):
    """Counts by Anthropic's published tokenizer of Claude 2.

    That of later Claude models is not public; for these the counts are estimates.

    Example:
        >>> from ctxkit import tokens
        >>> counter = tokens.anthropic_counter()
        >>> counter.name, counter.source
        ('anthropic', 'estimated')
    """

    source: Provenance = "estimated"

    def __init__(self) -> None:
        super().__init__("anthropic")
        self._tokenizer: Any = None

    def count_uncached(self, text: str) -> int:
        """Return the tokens of a text without storing the count.

        Raises:
            StoreError: LiteLLM, which has the tokenizer, is not installed.
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

    Args:
        encoding: name of the encoding.
        allow_download: whether the vocabulary may be downloaded. It is loaded at the first count
            from ctxkit's cache or wheel, LiteLLM's wheel or a cache of tiktoken where it can be.

    Returns:
        A counter that tokenises each text once.

    Raises:
        BadArguments: there is no such encoding.

    Example:
        >>> from ctxkit import tokens
        >>> tokens.exact_counter("o200k_base")("Hello, world")
        3
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
    """Return the counter by Claude 2's tokenizer; for later Claude models it is an estimate."""
    return Claude2Counter()


def encoding_for_model(model: str) -> str | None:
    """Return the name of an OpenAI model's encoding; None where tiktoken has none.

    Args:
        model: name of the model; a provider's prefix (`azure/`) is ignored.

    Example:
        >>> encoding_for_model("azure/gpt-4o"), encoding_for_model("llama-4")
        ('o200k_base', None)
    """
    from tiktoken.model import encoding_name_for_model

    try:
        name = cast("str", encoding_name_for_model(model.rsplit("/", 1)[-1]))
    except KeyError:
        return None
    return name if name in ENCODINGS else None


def can_count_exactly(encoding: str = "o200k_base") -> bool:
    """Return whether exact counting works on this machine without a download.

    Args:
        encoding: name of tiktoken's encoding.

    Example:
        >>> from ctxkit import tokens
        >>> tokens.can_count_exactly("o200k_base")
        True
    """
    return is_encoding_available(ENCODING_ALIASES.get(encoding, encoding))


# Texts on which tiktoken fails.
#
# tiktoken splits a text into pieces by a pattern and merges the bytes of each piece to tokens. At a
# million white-space characters its splitter overflows the stack, and merging a long run of one
# character takes very long. Such texts are split by the package `regex` with the same pattern, and
# of a run only `_MERGED_CHARS` characters are merged: its tokens are periodic, so the rest is
# counted as whole periods. The period is checked by two more merges; where the check fails, all is
# merged. The count is tiktoken's in any case.

LONG_RUN_CHARS = 50_000
"""Texts shorter than this need no search for long runs."""
_RUN_BLOCK = LONG_RUN_CHARS // 2
_REPEATED = re.compile(r"(?s)(.)\1{24999,}")
_SURROGATE_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_MERGED_CHARS = 8_000
"""Characters of a run that are merged; the rest counts as whole periods."""


def has_long_run(text: str) -> bool:
    """Return whether `LONG_RUN_CHARS` characters in a row are white space or one character.

    Each such run covers a whole block of half its length, so only blocks whose first and last
    characters fit are compared. A run of half that length may be found, too.
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
    """Join surrogate pairs, and replace lone surrogates by U+FFFD, as tiktoken does."""
    return _LONE_SURROGATE.sub("\ufffd", _SURROGATE_PAIR.sub(_join_surrogate_pair, text))


def _join_surrogate_pair(pair: re.Match[str]) -> str:
    return pair[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def count_in_pieces(encoding: tiktoken.Encoding, text: str) -> int:
    """Count a text as tiktoken does, split by `regex` with the encoding's own pattern.

    Args:
        encoding: encoding of tiktoken.
        text: the text to count.
    """
    import regex  # type: ignore[import-untyped]  # comes with tiktoken

    core = encoding._core_bpe  # noqa: SLF001  no public way around the splitter
    counts: dict[str, int] = {}
    total = 0
    for piece in regex.findall(encoding._pat_str, text):  # noqa: SLF001
        if piece not in counts:
            counts[piece] = (
                _count_long_piece(piece, core)
                if len(piece) >= LONG_RUN_CHARS
                else len(core.encode_single_piece(piece.encode()))
            )
        total += counts[piece]
    return total


def _count_long_piece(piece: str, core: Any) -> int:
    """Count a piece with its longest run shortened by whole periods.

    Inside a run of one character the same token repeats. Its length is the period, found by merging
    a few thousand characters.
    """

    def count(text: str) -> int:
        return len(core.encode_single_piece(text.encode()))

    run = max(_REPEATED.finditer(piece), key=lambda m: m.end() - m.start(), default=None)
    if run is None or len(piece) - (run.end() - run.start()) > _RUN_BLOCK:
        return count(piece)
    char, length = run[1], run.end() - run.start()
    tokens = core.encode_single_piece((char * _MERGED_CHARS).encode())
    middle = tokens[len(tokens) // 2]
    period, remainder = divmod(len(core.decode_single_token_bytes(middle)), len(char.encode()))
    if remainder or tokens.count(middle) < len(tokens) - 16:  # not periodic
        return count(piece)
    merged = _MERGED_CHARS + (length - _MERGED_CHARS) % period
    head, tail = piece[: run.start()], piece[run.end() :]
    base, one_more, seven_more = (
        count(head + char * (merged + periods * period) + tail) for periods in (0, 1, 7)
    )
    if (one_more - base, seven_more - base) != (1, 7):  # a period is not one token
        return count(piece)
    return base + (length - merged) // period


ENCODING_ALIASES = {"o200k_harmony": "o200k_base", "p50k_edit": "p50k_base"}
"""Encodings that differ from another one in their special tokens only, so that texts
count alike.
"""
ENCODINGS = ("o200k_base", "cl100k_base", "p50k_base", *ENCODING_ALIASES)

BUNDLED_VOCABULARIES = {
    "o200k_base": "fb374d419588a4632f3f557e76b4b70aebbca790",
    "cl100k_base": "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
}
"""Vocabularies in ctxkit's wheel, with the names of their files in tiktoken's caches."""

_POSSESSIVE = re.compile(r"([?*+]|\{\d,\d\})\+")

_lock = threading.Lock()
_loaded: dict[str, tiktoken.Encoding] = {}


@cache
def find_litellm_tokenizers() -> Path | None:
    """Return the folder of vocabularies of an installed LiteLLM; None without LiteLLM.

    LiteLLM is not imported.
    """
    spec = util.find_spec("litellm")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "litellm_core_utils" / "tokenizers"
    return folder if folder.is_dir() else None


# A vocabulary is searched on this machine, checked by its hash, and downloaded only where that is
# allowed.
def load_encoding(name: str, *, allow_download: bool = False) -> tiktoken.Encoding:
    """Load a tiktoken encoding from a vocabulary on this machine, once in a process.

    Args:
        name: name of the encoding, such as `o200k_base`, or an alias.
        allow_download: download a vocabulary that is missing.

    Raises:
        StoreError: the vocabulary is not here and no download was allowed, or the download failed.
    """
    name = ENCODING_ALIASES.get(name, name)
    with _lock:
        if name not in _loaded:
            import tiktoken

            definition = get_encoding_definition(name, allow_download=allow_download)
            definition["pat_str"] = _faster_pattern(definition["pat_str"])
            _loaded[name] = tiktoken.Encoding(**definition)
        return _loaded[name]


def get_encoding_definition(name: str, *, allow_download: bool = False) -> dict[str, Any]:
    """Return tiktoken's definition of an encoding: the arguments of `tiktoken.Encoding`.

    Args:
        name: name of the encoding, such as `o200k_base`.
        allow_download: download a vocabulary that is missing.

    Raises:
        StoreError: as for `load_encoding`.
    """
    encodings = _copy_of_tiktoken_encodings()
    encodings.__dict__["load_tiktoken_bpe"] = lambda url, expected_hash=None: _load_ranks(
        name, url, expected_hash, allow_download=allow_download
    )
    definition: dict[str, Any] = getattr(encodings, name)()
    return definition


def _faster_pattern(pattern: str) -> str:
    """Return an equivalent pattern by which counts take 0.5 to 0.8 times as long.

    tiktoken's regex engine tries alternatives one by one as soon as one of them looks ahead. In a
    group, those before it are compiled to one automaton, but not with possessive quantifiers. These
    are made greedy: in the patterns of the vocabularies above, what follows such a quantifier
    matches no character that the quantifier can, so the greedy one matches the same.
    """
    plain, look_ahead, rest = _POSSESSIVE.sub(r"\1", pattern).partition(r"|\s+(?!\S)")
    return f"(?:{plain}){look_ahead}{rest}"


def is_encoding_available(name: str) -> bool:
    """Return whether the vocabulary is on this machine, so that counting needs no download."""
    name = ENCODING_ALIASES.get(name, name)
    if name in _loaded:
        return True
    try:
        load_encoding(name)
    except StoreError:
        return False
    return True


def _copy_of_tiktoken_encodings() -> ModuleType:
    """Return a private copy of tiktoken's module of encodings, in which the loader is replaced."""
    spec = util.find_spec("tiktoken_ext.openai_public")
    if spec is None or spec.loader is None:
        raise StoreError("tiktoken is installed without its encodings; install tiktoken again.")
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _load_ranks(name: str, url: str, digest: str, *, allow_download: bool) -> dict[bytes, int]:
    data = _find_vocabulary(name, url, digest) or (
        _download(name, url, digest) if allow_download else None
    )
    if data is None:
        raise StoreError(
            f"The vocabulary {name!r} is not on this machine. Install jupyter-ctxkit[live]"
            " (LiteLLM's wheel carries it), or allow the download with"
            f" tokens.exact_counter({name!r}, allow_download=True), or estimate with"
            " tokens.get_counter('chars/4')."
        )
    words = data.split()  # token and rank in turn
    return dict(zip(map(binascii.a2b_base64, words[::2]), map(int, words[1::2]), strict=True))


# Search order: ctxkit's cache, LiteLLM's wheel, the caches of tiktoken, ctxkit's wheel. A file
# counts only with the hash that tiktoken publishes, so a damaged or foreign file is skipped, and
# the first good one is copied to ctxkit's cache.


def _find_vocabulary(name: str, url: str, digest: str) -> bytes | None:
    cached = _cached_copy(name)
    for path in (cached, *_other_locations(url), DATA_DIR / f"{name}.tiktoken.gz"):
        data = _read_vocabulary(path)
        if data is not None and hashlib.sha256(data).hexdigest() == digest:
            if path != cached:
                _save_copy(cached, data)
            return data
    return None


def _cached_copy(name: str) -> Path:
    return get_ctxkit_cache_folder() / "vocabularies" / f"{name}.tiktoken"


def _other_locations(url: str) -> Iterator[Path]:
    """Yield other paths of the file, under the name that tiktoken uses: the hash of its address."""
    key = hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest()
    litellm_folder = find_litellm_tokenizers()
    if litellm_folder is not None:
        yield litellm_folder / key
    variables = ("CUSTOM_TIKTOKEN_CACHE_DIR", "TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR")
    folders = [os.environ.get(v) for v in variables]
    for folder in (*folders, str(Path(tempfile.gettempdir()) / "data-gym-cache")):
        if folder:
            yield Path(folder) / key


def _read_vocabulary(path: Path) -> bytes | None:
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if path.suffix == ".gz" else data
    except (OSError, EOFError, zlib.error):
        return None


def _save_copy(path: Path, data: bytes) -> None:
    """Write a copy to our cache atomically; where that fails, the next process searches again."""
    with suppress(OSError), SafeFolder.open_or_create(path.parent) as folder:
        folder.write(path.name, (data,))


def _download(name: str, url: str, digest: str) -> bytes:
    from tiktoken.load import read_file

    try:
        data: bytes = read_file(url)
    except Exception as error:  # requests has errors of many classes
        raise StoreError(
            f"The vocabulary {name!r} could not be downloaded ({type(error).__name__}); try again."
        ) from error
    if hashlib.sha256(data).hexdigest() != digest:
        raise StoreError(f"The vocabulary {name!r} came damaged from the network; try again.")
    _save_copy(_cached_copy(name), data)
    return data


def find_anthropic_tokenizer() -> Path:
    """Return the path of Anthropic's tokenizer of Claude 2 in an installed LiteLLM.

    Raises:
        StoreError: LiteLLM is not installed, or has no such file.
    """
    folder = find_litellm_tokenizers()
    path = None if folder is None else folder / "anthropic_tokenizer.json"
    if path is None or not path.is_file():
        raise StoreError(
            "Anthropic's tokenizer for Claude 2 is not on this machine; install"
            " jupyter-ctxkit[live]: LiteLLM's wheel carries it."
        )
    return path


def load_tokenizer(path: Path) -> Any:
    """Load a `tokenizers.Tokenizer` from a file."""
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(path))
