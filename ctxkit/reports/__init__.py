"""Reports that leave the notebook: one HTML file that opens offline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ctxkit.errors import BadArguments

if TYPE_CHECKING:
    from ctxkit.session import Session

__all__ = ["export"]


def export(x: Session, path: str | Path) -> Path:
    """Write a report as one HTML file with everything in it (about 5 MB) and return its path; a file there is replaced.

    Args:
        x: a session.
        path: the file, which ends in `.html`.

    Raises:
        BadArguments: `x` is nothing that can be exported, the path does not end in `.html`, or cannot be written.
    """
    from ctxkit.session import Session

    target = Path(path).expanduser()
    if target.suffix.lower() not in (".html", ".htm"):
        raise BadArguments(f"A report is an HTML file: give a path that ends in .html, not {target.name!r}.")
    if not isinstance(x, Session):
        raise BadArguments(f"A session can be exported, not {type(x).__name__}.")
    from ctxkit.reports.sessions import session_page

    text = session_page(x)
    try:
        target.write_text(text, encoding="utf-8", errors="replace")
    except OSError as e:
        why = "its folder does not exist" if isinstance(e, FileNotFoundError) else e.strerror or type(e).__name__
        raise BadArguments(f"{str(target)!r} cannot be written: {why}.") from None
    return target
