"""Vocabularies of exact counting, found on this machine and checked by hash."""

from __future__ import annotations

import binascii
import gzip
import hashlib
import os
import re
import tempfile
import threading
import zlib
from contextlib import suppress
from functools import cache
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxkit._internal.safe_fs import SafeFolder, cache_folder
from ctxkit.data import DATA_DIR
from ctxkit.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    import tiktoken

ENCODING_ALIASES = {"o200k_harmony": "o200k_base", "p50k_edit": "p50k_base"}
"""Encodings that differ from another one in their special tokens only, so that texts
count alike.
"""
ENCODINGS = ("o200k_base", "cl100k_base", "p50k_base", *ENCODING_ALIASES)

BUNDLED_VOCABULARIES = {
    "o200k_base": "fb374d419588a4632f3f557e76b4b70aebbca790",
    "cl100k_base": "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
}
"""Vocabularies that the kit's wheel carries, packed, and the names of their files in tiktoken's
caches.
"""

_POSSESSIVE = re.compile(r"([?*+]|\{\d,\d\})\+")

_lock = threading.Lock()
_loaded: dict[str, tiktoken.Encoding] = {}


@cache
def find_litellm_tokenizers() -> Path | None:
    """Return the folder of vocabularies in litellm's wheel, without running any of litellm; None
    without litellm.
    """
    spec = util.find_spec("litellm")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "litellm_core_utils" / "tokenizers"
    return folder if folder.is_dir() else None


def load_encoding(name: str, *, allow_download: bool = False) -> tiktoken.Encoding:
    """Return tiktoken's encoding, made from a vocabulary on this machine; loaded once in a process.

    Raises:
        StoreError: the vocabulary is not here and no download was allowed, or the download failed.
    """
    name = ENCODING_ALIASES.get(name, name)
    with _lock:
        if name not in _loaded:
            import tiktoken

            told = get_encoding_definition(name, allow_download=allow_download)
            quick = {"pat_str": _for_an_automaton(told["pat_str"])}
            _loaded[name] = tiktoken.Encoding(**told | quick)
        return _loaded[name]


def get_encoding_definition(name: str, *, allow_download: bool = False) -> dict[str, Any]:
    """Return what tiktoken publishes of an encoding, as `tiktoken.Encoding` takes it.

    Raises:
        StoreError: as `encoding` does.
    """
    rules = _rules()
    rules.__dict__["load_tiktoken_bpe"] = lambda url, expected_hash=None: _ranks(
        name, url, expected_hash, allow_download=allow_download
    )
    told: dict[str, Any] = getattr(rules, name)()
    return told


def _for_an_automaton(pattern: str) -> str:
    """The same pieces by a pattern that tiktoken's regex engine matches faster: counts take 0.5 to
    0.8 times as long.

    As soon as one alternative looks ahead, the engine tries them one by one; those before it, in a
    group, are one automaton. Possessive quantifiers would keep them from being one. In the patterns
    of the vocabularies above what follows such a quantifier matches nothing that it takes, so that
    the greedy one takes the same.
    """
    plain, look_ahead, rest = _POSSESSIVE.sub(r"\1", pattern).partition(r"|\s+(?!\S)")
    return f"(?:{plain}){look_ahead}{rest}"


def is_encoding_available(name: str) -> bool:
    """Return True where the vocabulary is loaded or lies on this machine, so that counting needs no
    download.
    """
    name = ENCODING_ALIASES.get(name, name)
    if name in _loaded:
        return True
    try:
        load_encoding(name)
    except StoreError:
        return False
    return True


def _rules() -> ModuleType:
    """A private copy of tiktoken's table of encodings, so that our loader is seen by
    nobody else.
    """
    spec = util.find_spec("tiktoken_ext.openai_public")
    if spec is None or spec.loader is None:
        raise StoreError("tiktoken is installed without its encodings; install tiktoken again.")
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _ranks(name: str, url: str, digest: str, *, allow_download: bool) -> dict[bytes, int]:
    data = _find(name, url, digest) or (_download(name, url, digest) if allow_download else None)
    if data is None:
        raise StoreError(
            f"The vocabulary {name!r} is not on this machine. Install jupyter-ctxkit[live]"
            " (LiteLLM's wheel carries it), or allow the download with"
            f" tokens.exact_counter({name!r}, allow_download=True),"
            " or estimate with tokens.get_counter('chars/4')."
        )
    words = data.split()  # token and rank in turn
    return dict(zip(map(binascii.a2b_base64, words[::2]), map(int, words[1::2]), strict=True))


def _find(name: str, url: str, digest: str) -> bytes | None:
    own = _own_copy(name)
    for path in (own, *_other_locations(url), DATA_DIR / f"{name}.tiktoken.gz"):
        data = _read(path)
        if data is not None and hashlib.sha256(data).hexdigest() == digest:
            if path != own:
                _save_own_copy(own, data)
            return data
    return None


def _own_copy(name: str) -> Path:
    return cache_folder() / "vocabularies" / f"{name}.tiktoken"


def _other_locations(url: str) -> Iterator[Path]:
    """Where else the file may lie, under the name that tiktoken gives it: the hash of
    its address.
    """
    key = hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest()
    carried = find_litellm_tokenizers()
    if carried is not None:
        yield carried / key
    folders = [
        os.environ.get(v)
        for v in ("CUSTOM_TIKTOKEN_CACHE_DIR", "TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR")
    ]
    for folder in (*folders, str(Path(tempfile.gettempdir()) / "data-gym-cache")):
        if folder:
            yield Path(folder) / key


def _read(path: Path) -> bytes | None:
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if path.suffix == ".gz" else data
    except (OSError, EOFError, zlib.error):
        return None


def _save_own_copy(path: Path, data: bytes) -> None:
    """Write our own copy, whole or not at all. A folder that cannot be written costs nothing but
    the next search.
    """
    with suppress(OSError), SafeFolder.own(path.parent) as folder:
        folder.write(path.name, (data,))


def _download(name: str, url: str, digest: str) -> bytes:
    from tiktoken.load import read_file

    try:
        data: bytes = read_file(url)
    except Exception as error:  # whatever requests raises, and it has many roots
        raise StoreError(
            f"The vocabulary {name!r} could not be downloaded ({type(error).__name__}); try again."
        ) from error
    if hashlib.sha256(data).hexdigest() != digest:
        raise StoreError(f"The vocabulary {name!r} came damaged from the network; try again.")
    _save_own_copy(_own_copy(name), data)
    return data


def find_anthropic_tokenizer() -> Path:
    """Return the path of the tokenizer that Anthropic published for Claude 2, as litellm's wheel
    carries it.

    Raises:
        StoreError: litellm is not installed, or without that file.
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
    """Return a `tokenizers.Tokenizer` of a file."""
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(path))
