"""A scripted model whose next step depends on what it is shown: what it cannot see it looks up.

It is asked for the sum of ports that stand in files, a service each. A number that its prompt does
not show it reads from the file, for the first time or again. So rules that take a number away which
is still needed make it take another step: what a replay, which keeps the recorded steps, cannot
know. After `PATIENCE` steps of one question it gives up.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ctxkit.messages import Message, Text, ToolCall
from ctxkit.models.scripted import Scripted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ctxkit.models.model import Emit, Request
    from ctxkit.tokens import Counter

__all__ = ["GIVEN_UP", "PATIENCE", "Lookup", "known", "path", "wanted"]

PATIENCE = 6
"""Files that it reads for one question, at most."""
GIVEN_UP = "I cannot find all of it."
_FACT = re.compile(r"\b([a-z]+)_port = (\d+)")
_QUESTION = re.compile(r"the ports? of ([a-z][a-z, ]*)")


def known(messages: Iterable[Message]) -> dict[str, int]:
    """Return the ports by service that stand in messages, in a result or in a summary."""
    return {found[1]: int(found[2]) for m in messages for found in _FACT.finditer(m.text)}


def wanted(question: str) -> tuple[str, ...]:
    """Return the services of the last question in a text: `... the ports of archive and zone?`."""
    found = _QUESTION.findall(question)
    return tuple(w for w in re.split(r"[, ]+|\band\b", found[-1]) if w) if found else ()


def path(name: str) -> str:
    """Return the file of a service."""
    return f"etc/{name}.toml"


class Lookup(Scripted):
    """Answers from what it is shown; billed as any scripted model.

    Args:
        tool: reads a file, given its `path`.
        blind: it does not look, but believes what it was ever told: it takes the same steps under
            any rules, so that what a replay foretells must come true.
        name, counter, context_window, clock: see `Scripted`.
    """

    def __init__(
        self,
        *,
        tool: str = "read_file",
        blind: bool = False,
        name: str = "ports",
        counter: Counter,
        context_window: int | None = None,
        clock: Callable[[], float],
    ) -> None:
        super().__init__((), name=name, counter=counter, context_window=context_window, clock=clock)
        self._tool, self._blind, self._told = tool, blind, dict[str, int]()
        self._asked: Request | None = None

    async def __call__(self, request: Request, emit: Emit) -> Message:
        """Look at the prompt, then answer as a scripted model does."""
        self._asked = request
        return await super().__call__(request, emit)

    def reply(self, turn: int, step: int) -> Message:
        """Return the next step: read the first file whose number is not in sight, else answer."""
        assert self._asked is not None  # noqa: S101  it is called with a request
        messages = self._asked.messages
        shown = known(messages)
        if self._blind:
            self._told |= shown
            shown = self._told
        said = (wanted(m.text) for m in reversed(messages) if m.role in ("user", "summary"))
        asked = next(filter(None, said), ())  # what rules attach is no question
        missing = next((name for name in asked if name not in shown), None)
        if missing is not None and step >= PATIENCE:
            return _said(GIVEN_UP)
        if missing is not None:
            call = ToolCall(f"read_{turn}_{step}", self._tool, {"path": path(missing)})
            return Message(role="assistant", parts=(call,), stop="tool")
        if not asked:
            return _said("Ask me for the sum of the ports of some services.")
        return _said(f"The sum is {sum(shown[name] for name in asked)}.")


def _said(text: str) -> Message:
    return Message(role="assistant", parts=(Text(text),), stop="stop")
