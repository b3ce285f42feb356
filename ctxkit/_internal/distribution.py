"""The installed distribution: its name and version, and others that own a module `ctxkit`."""

from __future__ import annotations

import warnings
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution, distributions, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import Distribution

DISTRIBUTION = "jupyter-ctxkit"
"""The name on the package index, where `ctxkit` is another program."""
MODULE = "ctxkit"


def get_version() -> str:
    """Return the version of the installed distribution."""
    return version(DISTRIBUTION)


def other_owners() -> list[str]:
    """Return name and version of each other installed distribution that owns a module `ctxkit`.

    The lists of files are searched as text: some 15 ms for 250 distributions, where
    `importlib.metadata.packages_distributions` takes 350.
    """
    owners = [d for d in distributions() if _owns_module(d)]
    with suppress(PackageNotFoundError):
        owners.append(distribution(MODULE))  # an editable install lists no file of the module
    return sorted({f"{d.name} {d.version}" for d in owners if d.name != DISTRIBUTION})


def describe_conflict() -> str:
    """Name in one sentence the other distributions that own the module; empty if there are none."""
    owners = other_owners()
    if not owners:
        return ""
    names = " ".join(owner.split()[0] for owner in owners)
    return (
        f"{' and '.join(owners)} installs a module {MODULE}, too, and one overwrites the other: "
        f"pip uninstall {names}, then pip install --force-reinstall {DISTRIBUTION}."
    )


def warn_of_conflict() -> None:
    """Warn where another distribution owns the module."""
    if sentence := describe_conflict():
        warnings.warn(sentence, stacklevel=2)


def _owns_module(installed: Distribution) -> bool:
    files = "\n" + (installed.read_text("RECORD") or "")
    if f"\n{MODULE}/" in files or f"\n{MODULE}.py," in files:
        return True
    return MODULE in (installed.read_text("top_level.txt") or "").split()
