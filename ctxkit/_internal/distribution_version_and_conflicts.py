"""The installed distribution: its name and version, and others that own a module `ctxkit`."""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

DISTRIBUTION = "jupyter-ctxkit"
"""The name on the package index, where `ctxkit` is another program."""
MODULE = "ctxkit"


def get_version() -> str:
    """Return the version of the installed distribution."""
    from importlib.metadata import version

    return version(DISTRIBUTION)


def list_other_owners() -> list[str]:
    """Return name and version of each other installed distribution that owns a module `ctxkit`.

    Each command asks this. `importlib.metadata` takes 40 ms of CPU to import and to read 250
    distributions; files that are searched as bytes take 10.
    """
    folders = [folder for folder in _metadata_folders() if _owns_module(folder)]
    if not folders:
        return []
    from importlib.metadata import Distribution

    owners = [Distribution.at(folder) for folder in folders]
    return sorted({f"{d.name} {d.version}" for d in owners if d.name != DISTRIBUTION})


def describe_module_conflict() -> str:
    """Name in one sentence the other distributions that own the module; empty if there are none."""
    owners = list_other_owners()
    if not owners:
        return ""
    names = " ".join(owner.split()[0] for owner in owners)
    return (
        f"{' and '.join(owners)} installs a module {MODULE}, too, and one overwrites the other: "
        f"pip uninstall {names}, then pip install --force-reinstall {DISTRIBUTION}."
    )


def warn_of_module_conflict() -> None:
    """Warn where another distribution owns the module."""
    if sentence := describe_module_conflict():
        warnings.warn(sentence, stacklevel=2)


def _metadata_folders() -> Iterator[str]:
    """Yield the folders of metadata of the distributions on the path of modules."""
    for place in dict.fromkeys(sys.path):
        with suppress(OSError):
            for name in os.listdir(place or "."):  # noqa: PTH208  as fast as can be
                if name.endswith((".dist-info", ".egg-info")):
                    yield f"{place or '.'}/{name}"


@cache  # the extension may be loaded often; the name of a folder has the version in it
def _owns_module(folder: str) -> bool:
    name = os.path.basename(folder).partition("-")[0]  # noqa: PTH119
    if name == MODULE:  # an editable install lists no file of the module
        return True
    module = MODULE.encode()
    files = b"\n" + _read_bytes(f"{folder}/RECORD")
    if b"\n%b/" % module in files or b"\n%b.py," % module in files:
        return True
    return module in _read_bytes(f"{folder}/top_level.txt").split()


def _read_bytes(path: str) -> bytes:
    """Return what a file holds; nothing where it cannot be read."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return b""
