"""What stands here for an agent of another program: its model, and what a person's word means to
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.errors import ModelError

if TYPE_CHECKING:
    from typing import NoReturn

    from ctxkit.models.model import Emit, Request
    from ctxkit.outside.acp_agents import AcpAgent

_KINDS = {
    "allow": ("allow_once",),
    "always": ("allow_once", "allow_always"),
    "deny": ("reject_once", "reject_always"),
}
"""Which kinds of options a person's word means, the first that is there; "always" is remembered
here,
in this session, rather than in the agent's own settings."""


class Elsewhere:
    """The model of an agent that is led elsewhere: a name, which nobody here can call."""

    notice = ""
    context_window: int | None = None

    def __init__(self, agent: AcpAgent) -> None:
        self._agent = agent

    @property
    def name(self) -> str:
        """`acp/` and what the agent calls itself, once it has said that."""
        return f"acp/{self._agent.name}"

    @property
    def pictures(self) -> bool | None:
        """Whether the agent takes pictures; None: it was not asked yet."""
        return self._agent.pictures if self._agent.told else None

    def close(self) -> None:
        """End the agent."""
        self._agent.close()

    async def __call__(self, request: Request, emit: Emit) -> NoReturn:  # noqa: ARG002  a model's shape
        """Refuse: only the agent itself asks its model."""
        raise ModelError(f"{self.name} leads itself: its model cannot be asked from here.")


def choice(options: Any, word: str) -> str | None:
    """Return the option that a word means; for "always" one that allows once, where there is no
    other.
    """
    offered = [o for o in options if isinstance(o, dict)] if isinstance(options, list) else []
    for kind in _KINDS.get(word, ()):
        for option in offered:
            if option.get("kind") == kind and isinstance(option.get("optionId"), str):
                return str(option["optionId"])
    return None
