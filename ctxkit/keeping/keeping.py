"""Copy known tools' sessions into an archive, packed, resumable; originals are only read."""

from __future__ import annotations

import errno
import os
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from ctxkit.discoveries import tops
from ctxkit.display.markup import plain
from ctxkit.errors import BadArguments, CtxkitError
from ctxkit.keeping.copies import Archive, Copied
from ctxkit.keeping.originals import Original, originals

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pandas as pd

    from ctxkit.discoveries import Place

_MOST = 1_000_000
COLUMNS = {
    "tool": "string",
    "path": "string",
    "kept": "string",
    "what": "string",
    "size_bytes": "Int64",
    "packed_bytes": "Int64",
    "why": "string",
}
"""The columns of `keep`. `what`: `new`, `grown` (its older copy is part of it), `changed` (the
older copy stays beside it; of a database's sessions only the newest), `same` (not copied again) or
`failed` (`why` says why). `size_bytes` of the original, `packed_bytes` of the copy (missing where
nothing was copied)."""


def keep(
    folder: str | os.PathLike[str],
    home: str | os.PathLike[str] | None = None,
    tools: str | Iterable[str] | None = None,
) -> pd.DataFrame:
    """Copy the sessions that `ck.discover` finds into an archive, and what is new of them when
    called again.

    A file keeps its name and its place below the tool's folder, so that readers find what belongs
    together; its bytes are packed with zstd, which every reader unpacks (`ck.read_all(folder)`,
    `ck.find(folder, text)`). Databases are kept as one log of the kit's own format a session. Files
    are readable by their owner alone. A copy that is broken off goes on at the next call; an
    archive holds what the logs hold, secrets included.

    Nothing is written outside the archive: no link in it is followed, and what would lie behind one
    is `failed`. Bytes of a name that are no UTF-8 become U+FFFD in the copy's name.

    Args:
        folder: the archive; made where it is missing.
        home: the home directory to look in; None: this user's, and where environment variables
            point.
        tools: names as in the `tool` column of `ck.discover`; None: all.

    Returns:
        One row a file looked at (columns: `COLUMNS`).

    Raises:
        BadArguments: the archive would lie among a tool's own sessions, or no tool has such a name.
        CtxkitError: the archive cannot be written.
    """
    import pandas as pd

    place = _place(folder)
    wanted = None if tools is None else {tools} if isinstance(tools, str) else set(tools)
    places = list(tops(home))
    _check(place, [top for p, top in places if p.below], wanted, {p.tool for p, _ in places})
    chosen = [(p, top) for p, top in places if wanted is None or p.tool in wanted]
    try:
        with Archive(place) as archive:
            rows = [_row(o, archive) for o in islice(_each(chosen), _MOST)]
    except OSError as e:
        raise CtxkitError(f"The archive could not be written: {plain(_why(e), 300)}.") from None
    frame = pd.DataFrame({n: [r[n] for r in rows] for n in COLUMNS}).astype(COLUMNS)
    return frame.sort_values(["tool", "path"], ignore_index=True, kind="stable")


def _each(chosen: list[tuple[Place, Path]]) -> Iterator[Original]:
    seen: set[str] = set()
    for place, top in chosen:
        for original in originals(place, top):
            if str(original.path) not in seen:
                seen.add(str(original.path))
                yield original


def _row(original: Original, archive: Archive) -> dict[str, object]:
    try:
        done = archive.take(original)
    except (OSError, CtxkitError, UnicodeError) as e:
        said = _why(e)
        done = Copied(what="failed", why=plain(said or type(e).__name__, 300))
    return {
        "tool": original.tool,
        "path": plain(str(original.path)),
        "kept": done.kept,
        "what": done.what,
        "size_bytes": done.size,
        "packed_bytes": done.packed,
        "why": done.why,
    }


def _why(error: Exception) -> str:
    """Return why a file is not kept, with the path or the part of it where that is known."""
    if not isinstance(error, OSError):
        return str(error)
    said = error.strerror or type(error).__name__
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        said = f"{said}; links are not followed: move what lies there away"
    return f"{error.filename}: {said}" if error.filename else said


def _place(folder: object) -> Path:
    if not isinstance(folder, (str, os.PathLike)) or not os.fspath(folder) or "\0" in str(folder):
        raise BadArguments("keep expects the folder of the archive as a path.")
    return Path(os.fspath(folder)).expanduser()


def _check(place: Path, tops: list[Path], wanted: set[str] | None, known: set[str]) -> None:
    strange = sorted((wanted or set()) - known)
    if strange:
        raise BadArguments(f"No tool is called {strange[0]!r}: {', '.join(sorted(known))}.")
    real = place.resolve()
    if real.exists() and not real.is_dir():
        raise BadArguments("keep expects a folder for the archive, found a file.")
    for top in tops:
        if top.name and top not in (Path.home(), Path.cwd()) and real.is_relative_to(top.resolve()):
            why = f"The archive would lie among the sessions of {top}: choose another folder."
            raise BadArguments(why)
