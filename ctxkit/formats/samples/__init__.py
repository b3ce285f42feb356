"""Sample sessions that ship with ctxkit, made by a script, for examples and the course."""

from __future__ import annotations

from pathlib import Path

from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit.errors import BadArguments, did_you_mean

__all__ = ["names", "path", "paths"]
__dir__ = make_dunder_dir(__all__)

_FOLDER = Path(__file__).parent
_FILES = {
    "billing": "billing.jsonl",
    "chat": "chat.jsonl",
    "inbox": "inbox.jsonl",
    "incident": "incident.jsonl.gz",
    "migration": "migration.jsonl.gz",
    "research": "research.jsonl.gz",
}


def names() -> list[str]:
    """Return the names of the sample sessions.

    `billing`: two days of coding, compacted twice. `chat`: mostly talk. `inbox`: 60,000 tokens of
    tool schemas that no message of the log holds. `incident`: large logs, another provider.
    `migration`: long, never compacted. `research`: long pages in a window of 200,000.

    Returns:
        Six names, which `path` takes.

    Example:
        >>> names()
        ['billing', 'chat', 'inbox', 'incident', 'migration', 'research']
    """
    return list(_FILES)


def path(name: str = "billing") -> Path:
    """Return the file of a sample session.

    Args:
        name: one of `names()`.

    Raises:
        BadArguments: no sample has that name.

    Example:
        >>> path("chat").name
        'chat.jsonl'
    """
    if name not in _FILES:
        problem = f"No sample is called {name!r}; there is {', '.join(_FILES)}."
        raise BadArguments(f"{problem}{did_you_mean(name, _FILES)}")
    return _FOLDER / _FILES[name]


def paths() -> list[Path]:
    """Return the files of all sample sessions.

    Example:
        >>> import ctxkit as ck
        >>> len(ck.read_all(paths()))
        6
    """
    return [path(name) for name in _FILES]
