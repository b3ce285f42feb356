"""Questions to the user before a tool call runs.

The call is shown as it will run. A front end saves what it displays and what it prompts for: so the
call is in a display of its own, which its form without keys replaces however the question ends,
and the prompt names the tool only.
"""

from __future__ import annotations

import html
import json
import re
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ctxkit._internal.formatting import NO_MATHJAX, make_visible, sanitize_line
from ctxkit._internal.redaction import redact, redact_json
from ctxkit.agent.tools.runner import run_in_thread
from ctxkit.agent.tools.tool_selection import (
    TOOL_NAMES,
    make_inert_brief_and_summary_tools,
    make_tools,
)
from ctxkit.errors import BadArguments, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

    from ctxkit.agent.tools.confined_root import RootFolder
    from ctxkit.session.messages import ToolCall

    AskPerson = Callable[["ApprovalQuestion"], Awaitable[str]]
    """Puts a question to a person and returns the answer."""
ALL_TOOLS = "all"
_TRIES = 3
_YES, _NO, _ALWAYS = ("y", "yes", "allow"), ("n", "no", "deny"), ("a", "always")


class ToolApprover:
    """Ask a person before calls of some tools run; a value for `Agent.approve`.

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
        question = make_approval_question(call)
        for _ in range(_TRIES):
            answer = (await self._ask(question)).strip().lower()
            for word, words in (("always", _ALWAYS), ("allow", _YES), ("deny", _NO)):
                if answer in words:
                    self._always.update([call.name] if word == "always" else [])
                    return word
        return "deny"


def select_approval_tools(words: str, tools: Iterable[str], root: RootFolder) -> frozenset[str]:
    """Return the tools that need a word: names, groups of them such as `files`, `all`.

    Args:
        words: as `--approve` has them, separated by commas.
        tools: names of the session's tools.
        root: the folder of its file tools.

    Returns:
        Names of the session's tools; groups are replaced by their members.

    Raises:
        BadArguments: there is no such tool.
    """
    names, tool_names = {w.strip() for w in words.split(",") if w.strip()}, list(tools)
    for name in sorted(names.difference(tool_names, TOOL_NAMES, {ALL_TOOLS})):
        raise BadArguments(
            f"`--approve {sanitize_line(name, 60)}`: the session has no such tool; it has"
            f" {', '.join(tool_names)}.{did_you_mean(name, [*tool_names, *TOOL_NAMES, ALL_TOOLS])}"
        )
    groups = make_tools(
        sorted(names.intersection(TOOL_NAMES)), root, {}, work=make_inert_brief_and_summary_tools()
    )
    names |= {t.name for t in groups}
    return frozenset(tool_names if ALL_TOOLS in names else names)


MOST_SHOWN = 100_000
"""Characters of a call, as it is shown, that a person is asked about."""
UNASKED = "This call needs a person's word, and nobody can be asked here; it was not run."
CAPTURED = (
    "This call needs a person's word, and the output of this cell is captured, so nobody would see"
    " it; it was not run."
)
UNSAFE = (
    "This call needs a person's word and holds a key, and what is printed here goes to a file; it"
    " was not run: ask from a terminal or a notebook."
)
_CHOICES = "[y]es, [n]o, or [a]lways for this tool: "
_NOTE = " (keys included; they are taken out here once it is answered)"
_PLAIN_KEY = re.compile(r"[\w-][\w .-]*")
_STYLE = "white-space:pre-wrap;overflow-wrap:anywhere;direction:ltr"


# What a person allows must be what runs. `whole` is the call as it will run, with every character
# visible, and each row begins with a mark, so no argument can imitate the question. `clean` is the
# call with keys redacted; it replaces `whole` in what the front end saves. A call that cannot be
# shown whole (too long, nested too deep) is refused and never shortened.
@dataclass(frozen=True)
class ApprovalQuestion:
    """The question to a person about one tool call; made by `make_approval_question`."""

    name: str
    """The tool's name in a line, without keys."""
    whole: str
    """The call as it will run."""
    clean: str
    """The call without keys."""

    @property
    def prompt(self) -> str:
        """The prompt of the input field; a notebook saves it."""
        return f"May the agent call {self.name}, as shown above? {_CHOICES}"

    @property
    def hides_keys(self) -> bool:
        """True if the call contains secrets, so that it must not be saved with the notebook."""
        return self.whole != self.clean


def make_approval_question(call: ToolCall) -> ApprovalQuestion:
    """Return what a person is asked about a call, every character of which can be seen.

    Raises:
        BadArguments: the call cannot be shown whole; the sentence goes to the model, too.
    """
    name = sanitize_line(call.name, 60)
    try:
        whole = _format_call(call.name, call.arguments)
        clean = _format_call(redact(call.name), redact_json(call.arguments))
    except RecursionError:
        why = "its arguments are nested too deep"
    else:
        if len(whole) <= MOST_SHOWN:
            heading, _, rows = whole.partition("\n")
            call_text = f"{heading}{_NOTE}\n{rows}" if whole != clean else whole
            return ApprovalQuestion(name, call_text, clean)
        why = f"it takes {len(whole):,} characters, and at most {MOST_SHOWN:,} are shown"
    raise BadArguments(
        f"This call of {name} needs a person's word and cannot be shown whole ({why}); it was not"
        " run: make smaller calls."
    )


def _format_call(name: str, arguments: Mapping[str, Any]) -> str:
    """Return a call in rows; each is marked, so that none looks like the question."""
    rows: list[str] = []
    for key, value in arguments.items():
        label = key if _PLAIN_KEY.fullmatch(key) else _as_json(key)
        first, *rest = value.split("\n") if isinstance(value, str) else [_as_json(value)]
        rows += [f"{label}{':' if isinstance(value, str) else ' ='} {first}"]
        rows += ["  " + row for row in rest]
    if sum(map(len, rows)) > MOST_SHOWN:  # making them visible only adds to them
        return "\n".join(rows)
    marked = "\n".join(f"  | {make_visible(row)}" for row in rows or ["(no arguments)"])
    return f"May the agent call {make_visible(name)}?\n{marked}"


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def format_question_html(text: str) -> str:
    """Return a question as HTML that wraps, so that no part of it is out of sight.

    Args:
        text: every character visible already.

    Returns:
        Escaped HTML; formulas in it are not typeset.
    """
    return f'<pre class="{NO_MATHJAX}" style="{_STYLE}">{html.escape(text)}</pre>'


@contextmanager
def show_question(question: ApprovalQuestion) -> Iterator[str]:
    """Show a question while a person thinks; yields the prompt for the input field.

    In a notebook the call is a display, which has no keys when the block is left.

    Raises:
        BadArguments: nobody would see it, or its keys would stay in a file.
    """
    shell = _find_shell()
    if shell is None or not hasattr(shell, "kernel"):
        # Without a kernel what is printed cannot be replaced, so keys would stay in a file.
        if question.hides_keys and not sys.stdout.isatty():
            raise BadArguments(UNSAFE)
        yield f"{question.whole}\n{_CHOICES}"
        return
    from IPython.core.displaypub import CapturingDisplayPublisher
    from IPython.display import display

    # A program that executes notebooks allows no input.
    if not getattr(shell.kernel, "_allow_stdin", True):
        raise BadArguments(UNASKED)
    if isinstance(shell.display_pub, CapturingDisplayPublisher):
        raise BadArguments(CAPTURED)
    display_handle = display(_make_bundle(question.whole), raw=True, display_id=True)  # type: ignore[no-untyped-call]
    try:
        yield question.prompt
    finally:
        with suppress(Exception):  # a front end that is gone must not cost the turn
            display_handle.update(_make_bundle(question.clean), raw=True)


def _make_bundle(text: str) -> dict[str, str]:
    return {"text/plain": text, "text/html": format_question_html(text)}


def _find_shell() -> Any:
    """Return the IPython that runs here; None where there is none."""
    from IPython import get_ipython

    return get_ipython()


async def ask_in_cell(question: ApprovalQuestion) -> str:
    """Ask in the input field of the cell that runs, or in the terminal.

    Args:
        question: the call, every character of it visible.

    Returns:
        The words that were typed.

    Raises:
        BadArguments: nobody can be asked.
    """
    with show_question(question) as prompt:
        # In a thread, since `input` blocks and the event loop must continue.
        return str(await run_in_thread(lambda: _read_answer(prompt)))


def ask_blocking(question: ApprovalQuestion) -> str:
    """Ask as `ask_in_cell` does; the calling thread waits.

    Args:
        question: the call, every character of it visible.

    Returns:
        The words that were typed.

    Raises:
        BadArguments: nobody can be asked.
    """
    with show_question(question) as prompt:
        return _read_answer(prompt)


def _read_answer(prompt: str) -> str:
    try:
        return input(prompt)
    except (EOFError, NotImplementedError, OSError):
        raise BadArguments(UNASKED) from None
