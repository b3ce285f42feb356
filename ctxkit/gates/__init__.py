"""A gate for CI: figures of rules, or of a compactor of one's own, held against a kept baseline."""

from __future__ import annotations

from ctxkit.faces import face

_NAMES = {
    "gate": "holding",
    "validate": "config_faults",
    "gate_compactor": "compactors",
    "survival": "rounds",
    "command": "programs",
    "FIGURES": "readings",
}

__all__ = [*_NAMES]  # noqa: PLE0604  names are strings, made above
__getattr__, __dir__ = face(__name__, _NAMES)
