"""ctxkit, the laboratory for agent context: run agents, read any agent's logs, replay sessions."""

from __future__ import annotations

from ctxkit._internal.lazy_exports_and_late_bound_calls import lazy_exports, register_hooks

# type checkers know the name; importing `typing` would double what a bare interpreter takes
TYPE_CHECKING = False
if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__version__ = "0.1.0"

register_hooks(
    {
        "session.prompt_source": "ctxkit.engine.replay:rebuild_sent_prompts",
        "session.sent": "ctxkit.engine.replay:get_sent_prompt",
        "session.display": "ctxkit.widgets.progress_notice:render_session_with_notice",
        "sessions.display": "ctxkit.widgets.reports.session_summary:render_session_list_summary",
        "chart.display": "ctxkit.widgets.interactive_view_of_still_chart:render_live_chart_slot",
        "sessions.arrow": "ctxkit.metrics.frames:arrow",
    }
)
__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register `%%agent`, `%compact` and `%context` (for ``%load_ext ctxkit``)."""
    from ctxkit.magics import load

    load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Remove the magics again (for ``%unload_ext ctxkit``)."""
    from ctxkit.magics import unload

    unload(shell)
