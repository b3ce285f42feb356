"""Regression gates for CI: figures of rules, or of one's own compactor, against a baseline."""

from __future__ import annotations

from ctxkit._internal.lazy import lazy_exports

_NAMES = {
    "gate": "regression_gate",
    "gate_compactor": "compactor_gate",
    "survival": "compactor_gate",
    "command": "compactor_command",
    "FIGURES": "regression_gate",
}

__all__ = [*_NAMES]  # noqa: PLE0604  names are strings, made above
__getattr__, __dir__ = lazy_exports(__name__, _NAMES)
