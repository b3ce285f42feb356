"""Ask the user before a tool call runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit._internal.formatting import sanitize_line
from ctxkit.agent.tools.builtin import TOOL_NAMES, make_inert_work_tools, make_tools
from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.magics.approval_questions import question_about

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from ctxkit.agent.tools.root import Root
    from ctxkit.magics.approval_questions import Question
    from ctxkit.session.messages import ToolCall

    AskPerson = Callable[[Question], Awaitable[str]]
    """Puts a question to a person and returns the answer."""
ALL_TOOLS = "all"
_TRIES = 3
_YES, _NO, _ALWAYS = ("y", "yes", "allow"), ("n", "no", "deny"), ("a", "always")


class Approvals:
    """Says whether a call may run; a value for `Agent.approve`.

    Args:
        names: tools that need a word.
        always: tools that were allowed for good; it grows.
        ask: puts the question.
    """

    def __init__(self, names: frozenset[str], always: set[str], ask: AskPerson) -> None:
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


def select_approval_tools(words: str, tools: Iterable[str], root: Root) -> frozenset[str]:
    """Return the tools that need a word: names, groups of them such as `files`, `all`.

    Args:
        words: as `--approve` has them, separated by commas.
        tools: names of the session's tools.
        root: the folder of its file tools.

    Raises:
        BadArguments: there is no such tool.
    """
    names, known = {w.strip() for w in words.split(",") if w.strip()}, list(tools)
    for name in sorted(names.difference(known, TOOL_NAMES, {ALL_TOOLS})):
        raise BadArguments(
            f"`--approve {sanitize_line(name, 60)}`: the session has no such tool; it has"
            f" {', '.join(known)}.{did_you_mean(name, [*known, *TOOL_NAMES, ALL_TOOLS])}"
        )
    groups = make_tools(
        sorted(names.intersection(TOOL_NAMES)), root, {}, work=make_inert_work_tools()
    )
    names |= {t.name for t in groups}
    return frozenset(known if ALL_TOOLS in names else names)
