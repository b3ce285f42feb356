"""Where the published runs lie that the tables are made from; none of them ships here."""

from __future__ import annotations

import os
from pathlib import Path

from ctxkit.errors import BadArguments
from ctxkit.faces import listed

__all__ = ["COMPLEXITY_TRAP", "MASKED", "folder", "source"]
__dir__ = listed(__all__)

COMPLEXITY_TRAP = "complexity-trap/experiment_instance_costs_combined.csv"
"""One row a task and run: github.com/Recursive-Safeguarding/the-complexity-trap, commit 1b07dec,
`auxiliary-data/`, MIT. Paper: The Complexity Trap, arXiv 2508.21433."""
MASKED = "sweagent-masked"
"""Trajectories of SWE-agent (June 2024, Claude 3.5 Sonnet) on SWE-bench Verified, run with the last
five observations shown: github.com/UKGovernmentBEIS/inspect_ai, commit 2b9870e,
`benchmarks/swe_bench/resources/tests/20240620_sweagent_claude3.5sonnet/trajs`, MIT."""


def folder() -> Path | None:
    """Return the folder that `CTXKIT_STUDIES` names, else `studies` beside `CTXKIT_SESSIONS`."""
    named, sessions = (os.environ.get(f"CTXKIT_{n}") for n in ("STUDIES", "SESSIONS"))
    if not named and not sessions:
        return None
    found = Path(named) if named else Path(sessions or "").resolve().parent / "studies"
    return found if found.is_dir() else None


def source(name: str, root: Path | None = None) -> Path:
    """Return a file or folder of published runs.

    Args:
        name: `COMPLEXITY_TRAP` or `MASKED`.
        root: the folder that holds both; None: as `folder` finds it.

    Raises:
        BadArguments: it is not there.
    """
    root = root or folder()
    found = None if root is None else root / name
    if found is None or not found.exists():
        raise BadArguments(f"Set CTXKIT_STUDIES to a folder that holds {name}.")
    return found
