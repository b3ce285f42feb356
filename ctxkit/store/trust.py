"""Which sessions this user began or vouched for: a mark beside each that nobody else can make.

A mark is a keyed hash (HMAC-SHA256) of where the session lies and whose file it is. The key is made
once and stays in the user's own state folder; it also seals how a session is led (`agent.resumes`).
See docs/decisions/007.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path

from ctxkit.errors import StoreError
from ctxkit.held_folders import Folder

_SIZE = 32


def mark(path: Path, owner: int) -> bytes:
    """Return the mark of a file: of its real path and the number of its owner.

    Raises:
        StoreError: there is no key and none can be kept.
    """
    return seal(f"{owner}\n{path}").encode()


def seal(text: str) -> str:
    """Return what only this user can make of a text.

    Raises:
        StoreError: there is no key and none can be kept.
    """
    return hmac.new(_key(), text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def sealed(text: str, by: str) -> bool:
    """Say whether this user made a seal of a text; False where there is no key."""
    with suppress(StoreError):
        return hmac.compare_digest(seal(text).encode(), by.encode("utf-8", "replace"))
    return False


def place() -> Path:
    """Return the folder of what belongs to the user, not to a project (XDG Base Directory)."""
    home = Path(os.path.expanduser("~"))  # noqa: PTH111  Path.home() raises where there is no home
    return Path(os.environ.get("XDG_STATE_HOME") or home / ".local" / "state") / "ctxkit"


def _key() -> bytes:
    folder = place()
    try:
        with Folder.own(folder) as here:
            with suppress(FileExistsError):
                made = here.open("key", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
                os.write(made, secrets.token_bytes(_SIZE))
                os.close(made)
            handle = here.open("key", os.O_RDONLY)
            with os.fdopen(handle, "rb") as file:
                key = file.read(_SIZE + 1)
    except OSError as e:
        raise StoreError(
            f"{folder} cannot keep the kit's key ({e.strerror}): name another place by "
            "XDG_STATE_HOME."
        ) from None
    if len(key) != _SIZE:
        raise StoreError(f"{folder / 'key'} is not the kit's key: remove it; a new one is made.")
    return key
