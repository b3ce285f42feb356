"""The folder of what is kept for speed and may be deleted at any time."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """Return `CTXKIT_CACHE_DIR`, else `ctxkit` in the user's cache; it is not made here."""
    named = os.environ.get("CTXKIT_CACHE_DIR")
    if named:
        return Path(named)
    home = Path(os.path.expanduser("~"))  # noqa: PTH111  Path.home() raises where there is no home
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "ctxkit"
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "ctxkit"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "ctxkit"
