"""The list that `read_all` returns: sessions, and a table of what failed and why."""

from __future__ import annotations

import sys
from collections import UserList
from typing import TYPE_CHECKING, Any

from ctxkit.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd

    from ctxkit.errors import ReadError

_FEW = 8


class Sessions(UserList[Session]):
    """Sessions in the order of their files: a list, and for what reads Arrow a table, a row a
    session.

    It does not inherit from `list`, as DuckDB takes such for values and never asks for the table.

    `failed` is a DataFrame (file, line, why), `failures` the same as plain tuples, `passed_over`
    the files of a folder that are plainly no logs.
    """

    def __init__(self, sessions: Iterable[Session] = ()) -> None:
        super().__init__(sessions)
        self.failures: list[tuple[str, int | None, str]] = []
        self.passed_over: list[str] = []

    def add_failure(self, error: ReadError) -> None:
        """Note a file that could not be read."""
        self.failures.append((error.path or "", error.line, error.why))

    @property
    def failed(self) -> pd.DataFrame:
        """The files that could not be read: file, line (missing: the whole file), why."""
        import pandas as pd

        frame = pd.DataFrame(self.failures, columns=["file", "line", "why"])
        return frame.astype({"file": "str", "line": "Int64", "why": "str"})

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return a row a session as Arrow's C stream (`ctxkit.arrow` streams the other tables)."""
        from importlib import import_module

        streams: Any = import_module("ctxkit.frames.arrows")  # above: no business of a reader
        return streams.arrow(self, "session").__arrow_c_stream__(requested_schema)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:  # noqa: ARG002
        from importlib import import_module

        # far above: no business of a reader
        portraits: Any = import_module("ctxkit.reports.portraits")
        made: dict[str, str] = portraits.of_sessions(self)
        return made

    def __repr__(self) -> str:
        n, bad = len(self), len(self.failures)
        return (
            f"<{n} session{'' if n == 1 else 's'}{f', {bad} failed: see .failed' if bad else ''}>"
        )


def shown(work: Sequence[int], progress: bool) -> Iterable[int]:
    """Return the work with a progress bar around it, where it can be seen and is worth it."""
    seen = sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules)
    if not progress or len(work) < _FEW or not seen:
        return work
    from tqdm.auto import tqdm

    return tqdm(work, desc="reading", unit="file", leave=False)
