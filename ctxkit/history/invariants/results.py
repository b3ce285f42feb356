"""Every tool result that is shown has its call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.history.invariants.invariant import parted

if TYPE_CHECKING:
    from ctxkit.history.view import View


class ResultsHaveCalls:
    """A result whose call the log has is shown only with that call."""

    name = "every tool result has its call"

    def broken(self, view: View) -> str | None:
        """Return a sentence that names a result that lost its call, or None."""
        for group, reply, results in parted(view):
            asked = {c.id for c in reply.tool_calls} if reply else set()
            for result in results:
                if result.role == "tool" and (
                    reply is None or (result.call_id or "") not in asked | {""}
                ):
                    name = result.tool or view.log.tool(group) or "a tool"
                    return f"The result of {name} ({result.call_id or result.id}) lost its call."
        return None
