"""Sessions that ship with the kit, made by a script, for a first look and for the course."""

from __future__ import annotations

from pathlib import Path

from ctxkit._internal.lazy import public_dir
from ctxkit.errors import BadArguments, did_you_mean

__all__ = ["names", "path", "paths"]
__dir__ = public_dir(__all__)

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
    """Return the names of the sessions that ship with the kit.

    `billing`: two days of coding, compacted twice. `chat`: mostly talk. `inbox`: 60,000 tokens of
    tool schemas that no message of the log holds. `incident`: large logs, another provider.
    `migration`: long, never compacted. `research`: long pages in a window of 200,000.
    """
    return list(_FILES)


def path(name: str = "billing") -> Path:
    """Return the file of a session that ships with the kit, to be given to `ctxkit.read`.

    Raises:
        BadArguments: there is none of that name.
    """
    if name not in _FILES:
        known = f"No sample is called {name!r}; there is {', '.join(_FILES)}."
        raise BadArguments(f"{known}{did_you_mean(name, _FILES)}")
    return _FOLDER / _FILES[name]


def paths() -> list[Path]:
    """Return the files of all of them: the shelf of sessions for whatever takes several."""
    return [path(name) for name in _FILES]
