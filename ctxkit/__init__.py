"""ctxkit, the laboratory for agent context: run an agent, read what any left, replay it."""

from __future__ import annotations

from ctxkit._internal.lazy import lazy_exports

# type checkers know the name; importing `typing` would double what a bare interpreter takes
TYPE_CHECKING = False
if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__version__ = "0.1.0"

_NAMES = {
    "read": "formats.reading",
    "read_all": "formats.reading",
    "write": "formats.writing",
    "frame": "metrics.frames",
    "arrow": "metrics.frames",
    "audience": "metrics.frames.per_message",
    "report": "metrics.context_report",
    "read_snapshots": "formats.snapshots.frame_reader",
    "discover": "formats.discovery",
    "keep": "formats.archive",
    "find": "formats.archive",
    "calibrate": "metrics.calibration",
    "load_rules": "presets.loading",
    "validate": "experiments.config_validation",
    "fit": "engine.agent_loop",
    "Context": "engine.agent_loop",
    "history_processor": "engine.agent_loop",
    "replay": "engine.replay",
    "score": "experiments.scores",
    "compare": "experiments.comparison",
    "sweep": "experiments.sweep_runs",
    "grid": "experiments.grids",
    "advise": "experiments.advice",
    "gate": "experiments.gates.regression_gate",
    "sections": "experiments.section_costs",
    "without": "experiments.section_costs",
    "index_or_paste": "experiments.memory_ablation",
    "with_memory": "experiments.memory_ablation",
    "explore": "widgets",
    "tune": "widgets",
    "watch": "widgets",
    "break_even": "widgets",
    "budget": "widgets",
    "savings": "widgets",
    "thrash": "widgets",
    "export": "widgets.reports",
    "team": "teams.build",
    "check": "course.exercises",
    "contest": "course.contests",
    "spend": "metrics.cost.spending",
    "board": "widgets.folder_board",
    "record": "agent.recorders.recording",
    "recorder": "agent.recorders.recording",
    "Session": "session.session",
    "Message": "session.messages",
    "Edit": "session.messages",
    "Usage": "session.messages",
    "History": "policies.history.history",
    "ContextBudget": "tokens.counters",
    "CtxkitError": "errors",
    "ReadError": "errors",
    "UnknownFormat": "errors",
    "UnknownPreset": "errors",
    "UnsoundHistory": "errors",
    "BadArguments": "errors",
    "ModelError": "errors",
    "StoreError": "errors",
}
_ROOMS = {
    "course": "course",
    "gates": "experiments.gates",
    "metrics": "metrics",
    "plots": "plots",
    "policies": "policies",
    "presets": "presets",
    "prices": "tokens.prices",
    "formats": "formats",
    "samples": "formats.samples",
    "snapshots": "formats.snapshots",
    "studies": "experiments.studies",
}

__all__ = [*_NAMES, *_ROOMS]  # noqa: PLE0604  names are strings, made above


__getattr__, __dir__ = lazy_exports(__name__, _NAMES, _ROOMS)


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register `%%agent`, `%compact` and `%context` (for ``%load_ext ctxkit``)."""
    from ctxkit.magics import load

    load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Remove the magics again (for ``%unload_ext ctxkit``)."""
    from ctxkit.magics import unload

    unload(shell)
