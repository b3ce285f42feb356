"""Data inside a notebook: a session or rows of scores as text, and back."""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.errors import BadArguments
from ctxkit.readers import native as reader
from ctxkit.readers.source import Source
from ctxkit.sweeps.score_columns import NAMES, typed
from ctxkit.writers import as_native as writer

if TYPE_CHECKING:
    import pandas as pd

    from ctxkit.session import Session

MAX_BYTES = 64 << 20
"""A notebook with more in it can hardly be opened."""


def pack(session: Session) -> str:
    """Return a whole session as text that needs no quoting.

    Raises:
        BadArguments: it is too large to lie in a notebook.
    """
    return _pack(b"".join(writer.lines(session)))


def unpack(text: str) -> Session:
    """Return the session that `pack` was given."""
    return reader.read(Source("notebook", _unpack(text)))[0]


def pack_runs(frame: pd.DataFrame) -> str:
    """Return rows of scores as text that needs no quoting.

    Raises:
        BadArguments: they are too many to lie in a notebook.
    """
    extra = [c for c in frame.columns if c not in NAMES]
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return _pack(msgspec.json.encode({"extra": extra, "rows": rows}, enc_hook=_plain))


def unpack_runs(text: str) -> pd.DataFrame:
    """Return the rows that `pack_runs` was given, indexed by the names of their rules."""
    held = msgspec.json.decode(_unpack(text))
    frame: pd.DataFrame = typed(held["rows"], tuple(held["extra"]))
    return frame


def _pack(data: bytes) -> str:
    packed = zlib.compress(data, 6)
    if len(packed) > MAX_BYTES:
        raise BadArguments(
            f"{len(packed) >> 20} MB do not fit into a notebook: export an .html report, or keep"
            " the data in a file of its own (ctxkit.write, or out= of a sweep)."
        )
    return b64encode(packed).decode("ascii")


def _unpack(text: str) -> bytes:
    return zlib.decompress(b64decode(text))


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)
