"""Every tool call that is shown has its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.history.invariants.invariant import parted

if TYPE_CHECKING:
    from ctxkit.history.view import View


class CallsHaveResults:
    """A call that was answered before the coming call is shown only with its answer."""

    name = "every tool call has its result"

    def broken(self, view: View) -> str | None:
        """Return a sentence that names a call that lost its result, or None."""
        log = view.log
        for group, reply, results in parted(view):
            if reply is None:
                continue
            said = [r for r in log.results.get(group, ()) if r < view.hi]
            answered = {log.messages[r].call_id for r in said}
            shown = {m.call_id for m in results}
            for call in reply.tool_calls:
                if call.id in answered - shown:
                    return f"Tool call {call.name} ({call.id}) lost its result."
            if reply.tool_calls and None in answered and len(results) < len(said):
                return (
                    f"Tool call {reply.tool_calls[0].name} ({reply.tool_calls[0].id}) lost its"
                    " result."
                )
        return None
