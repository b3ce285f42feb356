"""Asking the person before a tool runs: in the cell's own input field, or by the buttons of a turn
beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.display.markup import line
from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.magics.questions import question_about
from ctxkit.tools.named_tools import TOOLS, tools_of
from ctxkit.tools.work import described

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from ctxkit.magics.questions import Question
    from ctxkit.messages import ToolCall
    from ctxkit.tools.root import Root

    Ask = Callable[[Question], Awaitable[str]]
    """Puts a question to a person and returns the answer."""
EVERY = "all"
_TRIES = 3
_YES, _NO, _ALWAYS = ("y", "yes", "allow"), ("n", "no", "deny"), ("a", "always")


class Approvals:
    """Says whether a call may run; a value for `Agent.approve`.

    Args:
        names: tools that need a word.
        always: tools that were allowed for good; it grows.
        ask: puts the question.
    """

    def __init__(self, names: frozenset[str], always: set[str], ask: Ask) -> None:
        self.tools, self._always, self._ask = names, always, ask
        """Tools that a person is asked about."""

    async def __call__(self, call: ToolCall) -> bool:
        """Ask for a call where it is needed; what is no clear answer is asked again, then a no.

        Raises:
            BadArguments: nobody can be asked, or the call cannot be shown whole.
        """
        if call.name not in self.tools or call.name in self._always:
            return True
        return await self.permit(call) != "deny"

    async def permit(self, call: ToolCall) -> str:
        """Ask for a call: `allow`, `always` or `deny`; a tool that was allowed for good is not
        asked for.

        Raises:
            BadArguments: nobody can be asked, or the call cannot be shown whole.
        """
        if call.name in self._always:
            return "always"
        question = question_about(call)
        for _ in range(_TRIES):
            answer = (await self._ask(question)).strip().lower()
            for word, words in (("always", _ALWAYS), ("allow", _YES), ("deny", _NO)):
                if answer in words:
                    self._always.update([call.name] if word == "always" else [])
                    return word
        return "deny"


def needed(words: str, tools: Iterable[str], root: Root) -> frozenset[str]:
    """Return the tools that need a word: names, groups of them such as `files`, `all`.

    Args:
        words: as `--approve` has them, separated by commas.
        tools: names of the session's tools.
        root: the folder of its file tools.

    Raises:
        BadArguments: there is no such tool.
    """
    names, known = {w.strip() for w in words.split(",") if w.strip()}, list(tools)
    for name in sorted(names.difference(known, TOOLS, {EVERY})):
        raise BadArguments(
            f"`--approve {line(name, 60)}`: the session has no such tool; it has"
            f" {', '.join(known)}.{did_you_mean(name, [*known, *TOOLS, EVERY])}"
        )
    groups = tools_of(sorted(names.intersection(TOOLS)), root, {}, work=described())
    names |= {t.name for t in groups}
    return frozenset(known if EVERY in names else names)
