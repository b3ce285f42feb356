"""Find words in an archive, or in any folder of logs: messages that hold them, across all tools."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxkit.display.markup import line
from ctxkit.errors import BadArguments, ReadError
from ctxkit.messages import ToolCall
from ctxkit.readers.fields import as_text
from ctxkit.readers.reader_names import read_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from ctxkit.messages import Message
    from ctxkit.session import Session

_ROUND = 60
FOUND = {
    "format": "string",
    "session": "string",
    "path": "string",
    "message": "Int64",
    "role": "string",
    "time": "datetime64[ns, UTC]",
    "text": "string",
}
"""Columns of `find`: `message` is its index in the session, `text` what is around the words."""


def find(folder: str | os.PathLike[str], text: str, most: int = 1_000) -> pd.DataFrame:
    """Return the messages that hold a text, in whatever case, in what the model said, was told and
    called.

    Args:
        folder: an archive of `ck.keep`, or any file, folder or glob that `ck.read_all` takes.
        text: the words to look for; of several words, as they stand together.
        most: rows at most.

    Returns:
        One row a message (columns: `FOUND`); `.attrs["truncated"]` is True where there are more,
        `.attrs["failed"]` the number of files that could not be read.

    Raises:
        BadArguments: no text is given.
        ReadError: there is no such folder.
    """
    import pandas as pd

    if not isinstance(text, str) or not text.strip():
        raise BadArguments("find expects the words to look for.")
    if not isinstance(most, int) or isinstance(most, bool) or most < 1:
        raise BadArguments("find expects `most` as a whole number, one or more.")
    found = read_all(folder, progress=False)
    if not found and not Path(os.fspath(folder)).expanduser().exists():
        raise ReadError("there is no such folder.", Path(os.fspath(folder)))
    rows, more = list[dict[str, Any]](), False
    for session in found:
        for row in _in(session, text.casefold()):
            if len(rows) == most:
                more = True
                break
            rows.append(row)
    columns: dict[str, Any] = {name: [r[name] for r in rows] for name in FOUND}
    columns["time"] = pd.to_datetime(columns["time"], unit="s", utc=True).as_unit("ns")
    frame = pd.DataFrame(columns).astype(FOUND)
    frame.attrs.update(truncated=more, failed=len(found.failed))
    return frame


def _in(session: Session, words: str, path: str | None = None) -> Iterator[dict[str, Any]]:
    path = session.path_ or path
    for n, m in enumerate(session.messages):
        said = _said(m)
        at = said.casefold().find(words)
        if at >= 0:
            yield {
                "format": session.format,
                "session": line(session.id, 200),
                "path": path,
                "message": n,
                "role": m.role,
                "time": m.time,
                "text": line(said[max(at - _ROUND, 0) : at + len(words) + _ROUND], 400),
            }
    for child in session.children:
        yield from _in(child, words, path)


def _said(m: Message) -> str:
    calls = [
        f"{p.name} {p.raw or as_text(p.arguments)}" for p in m.parts if isinstance(p, ToolCall)
    ]
    return "\n".join([m.text, *calls])
