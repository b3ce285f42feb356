"""Approval of tool calls by a person, and the handle of a turn that runs in the background."""

# A call is shown as it will run. A front end saves what it displays and what it prompts for. So the
# call is in a display of its own, which its form without keys replaces however the question ends,
# and the prompt names the tool only.

from __future__ import annotations

import asyncio
import html
import json
import re
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ctxkit._internal.formatting_and_sanitizing import (
    NO_MATHJAX,
    TextAndHtml,
    escape_html,
    escape_invisible_characters,
    sanitize_line,
    sanitize_text,
)
from ctxkit._internal.redaction import redact, redact_json
from ctxkit.agent.tools.execution_and_results import run_in_thread
from ctxkit.agent.tools.python_shell_and_summary_tools import (
    TOOL_NAMES,
    make_inert_brief_and_summary_tools,
    make_tools,
)
from ctxkit.errors import BadArguments, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from ctxkit.agent.event_loop_threads import BackgroundTask
    from ctxkit.agent.tools.confined_root import RootFolder
    from ctxkit.agent.turn_state_and_events import Outcome
    from ctxkit.session.messages import ToolCall
    from ctxkit.session.session import Session

    AskPerson = Callable[["ApprovalQuestion"], Awaitable[str]]
    """Puts a question to a person and returns the answer."""

ALL_TOOLS = "all"
_TRIES = 3
_YES, _NO, _ALWAYS = ("y", "yes", "allow"), ("n", "no", "deny"), ("a", "always")


class ToolApprover:
    """Ask a person before calls of some tools run; a value for `Agent.approve`.

    Args:
        names: tools whose calls need a decision.
        always: tools that were allowed permanently; it grows.
        ask: puts the question.
    """

    def __init__(self, names: frozenset[str], always: set[str], ask: AskPerson) -> None:
        self.tools, self._always, self._ask = names, always, ask
        """Tools that a person is asked about."""

    async def __call__(self, call: ToolCall) -> bool:
        """Ask about a call where needed; after an unclear answer ask again, then refuse.

        Raises:
            BadArguments: nobody can be asked, or the call cannot be shown whole.
        """
        if call.name not in self.tools or call.name in self._always:
            return True
        return await self.permit(call) != "deny"

    async def permit(self, call: ToolCall) -> str:
        """Ask about a call and return the decision: `allow`, `always` or `deny`.

        There is no question about a tool that was allowed permanently.

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


def parse_approval_tools(
    option_value: str, tools: Iterable[str], root: RootFolder
) -> frozenset[str]:
    """Return the tools that need a word: names, groups of them such as `files`, `all`.

    Args:
        option_value: as `--approve` has them, separated by commas.
        tools: names of the session's tools.
        root: the folder of its file tools.

    Returns:
        Names of the session's tools; groups are replaced by their members.

    Raises:
        BadArguments: there is no such tool.
    """
    names, tool_names = {w.strip() for w in option_value.split(",") if w.strip()}, list(tools)
    for name in sorted(names.difference(tool_names, TOOL_NAMES, {ALL_TOOLS})):
        raise BadArguments(
            f"`--approve {sanitize_line(name, 60)}`: the session has no such tool; it has"
            f" {', '.join(tool_names)}.{did_you_mean(name, [*tool_names, *TOOL_NAMES, ALL_TOOLS])}"
        )
    groups = make_tools(
        sorted(names.intersection(TOOL_NAMES)),
        root,
        {},
        work_tools=make_inert_brief_and_summary_tools(),
    )
    names |= {t.name for t in groups}
    return frozenset(tool_names if ALL_TOOLS in names else names)


MAX_CALL_CHARS = 100_000
"""Characters of a call, as it is shown, that a person is asked about."""
NOBODY_TO_ASK_MESSAGE = (
    "This call needs a person's word, and nobody can be asked here; it was not run."
)
OUTPUT_CAPTURED_MESSAGE = (
    "This call needs a person's word, and the output of this cell is captured, so nobody would see"
    " it; it was not run."
)
KEYS_WOULD_BE_SAVED_MESSAGE = (
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
        if len(whole) <= MAX_CALL_CHARS:
            heading, _, rows = whole.partition("\n")
            call_text = f"{heading}{_NOTE}\n{rows}" if whole != clean else whole
            return ApprovalQuestion(name, call_text, clean)
        why = f"it takes {len(whole):,} characters, and at most {MAX_CALL_CHARS:,} are shown"
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
    if sum(map(len, rows)) > MAX_CALL_CHARS:  # making them visible only adds to them
        return "\n".join(rows)
    marked = "\n".join(
        f"  | {escape_invisible_characters(row)}" for row in rows or ["(no arguments)"]
    )
    return f"May the agent call {escape_invisible_characters(name)}?\n{marked}"


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
def show_question_and_yield_prompt(question: ApprovalQuestion) -> Iterator[str]:
    """Show a question while a person thinks; yields the prompt for the input field.

    In a notebook the call is a display, which has no keys when the block is left.

    Raises:
        BadArguments: nobody would see it, or its keys would stay in a file.
    """
    shell = _find_shell()
    if shell is None or not hasattr(shell, "kernel"):
        # Without a kernel what is printed cannot be replaced, so keys would stay in a file.
        if question.hides_keys and not sys.stdout.isatty():
            raise BadArguments(KEYS_WOULD_BE_SAVED_MESSAGE)
        yield f"{question.whole}\n{_CHOICES}"
        return
    from IPython.core.displaypub import CapturingDisplayPublisher
    from IPython.display import display

    # A program that executes notebooks allows no input.
    if not getattr(shell.kernel, "_allow_stdin", True):
        raise BadArguments(NOBODY_TO_ASK_MESSAGE)
    if isinstance(shell.display_pub, CapturingDisplayPublisher):
        raise BadArguments(OUTPUT_CAPTURED_MESSAGE)
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


async def ask_by_input_async(question: ApprovalQuestion) -> str:
    """Ask in the input field of the cell that runs, or in the terminal.

    Args:
        question: the call, every character of it visible.

    Returns:
        The words that were typed.

    Raises:
        BadArguments: nobody can be asked.
    """
    with show_question_and_yield_prompt(question) as prompt:
        # In a thread, since `input` blocks and the event loop must continue.
        return str(await run_in_thread(lambda: _read_answer(prompt)))


def ask_by_input(question: ApprovalQuestion) -> str:
    """Ask as `ask_by_input_async` does; the calling thread waits.

    Args:
        question: the call, every character of it visible.

    Returns:
        The words that were typed.

    Raises:
        BadArguments: nobody can be asked.
    """
    with show_question_and_yield_prompt(question) as prompt:
        return _read_answer(prompt)


def _read_answer(prompt: str) -> str:
    try:
        return input(prompt)
    except (EOFError, NotImplementedError, OSError):
        raise BadArguments(NOBODY_TO_ASK_MESSAGE) from None


_TICK = 0.1
_LOOK = 0.5
"""Seconds before buttons take an answer: the second of two fast clicks answers no next question."""


class TurnInterrupted(KeyboardInterrupt):
    """The user stopped a turn; it is shown in one line, and the cell counts as interrupted."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


# Two threads use a handle: that of the kernel, which runs cells and clicks, and that of the turn's
# event loop, in which `ask` waits. `ask` creates a future and sets `_question`; `answer` settles
# the future by `call_soon_threadsafe`, so only its own loop touches it. At most one question
# stands, its first answer counts, and an answer that names an earlier question does nothing.
# `_unseen` disables the buttons for `_LOOK` seconds after a question appears. After `over` the
# result replaces the widget.
class TurnHandle:
    """A turn in the background: `state`, `stop()`, `result()`; it is a view of the turn, too.

    Args:
        name: name of the session.
        leaves: True: at the end the widget gives way to what a turn in a cell leaves, which is
            saved with the notebook and needs no kernel to be seen.
    """

    running: BackgroundTask[TurnResult]

    def __init__(self, name: str, *, leaves: bool = True) -> None:
        self.name, self._leaves = name, leaves
        self._over = False
        self._question: ApprovalQuestion | None = None
        self._unseen = True
        self._content: TextAndHtml | None = None
        self._answer: asyncio.Future[str] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._views: list[_HandleView] = []

    @property
    def state(self) -> str:
        """`running`, `stopping`, `stopped`, `failed` or `done`."""
        return self.running.state

    def stop(self) -> None:
        """Stop the turn; the text that has arrived is kept."""
        self.running.stop()

    def result(self, seconds: float | None = None) -> TurnResult:
        """Return the answer when it is there.

        Raises:
            TimeoutError: it is not, after so many seconds.
            Interrupted: the turn was stopped.
            BadArguments: it asks for a word, and this cell has no input field; the turn continues
                waiting.
        """
        until = time.monotonic() + (float("inf") if seconds is None else seconds)
        # Waiting in short steps, since a question may come up while this cell waits.
        while not self.running.wait(min(_TICK, max(until - time.monotonic(), 0))):
            if question := self._question:  # this cell waits, so that no click arrives
                self.answer(ask_by_input(question), question)
            if time.monotonic() >= until:
                break
        try:
            return self.running.result(0)
        except asyncio.CancelledError:
            raise TurnInterrupted(
                f"Stopped. What was said so far is kept in session {self.name!r}."
            ) from None

    # -- what it asks ----------------------------------------------------------------------------

    async def ask(self, question: ApprovalQuestion) -> str:
        """Wait for the answer to a question: a click, a call of `allow`, `deny` or `always`."""
        loop = asyncio.get_running_loop()
        self._answer = loop.create_future()
        self._question, self._loop, self._unseen = question, loop, True
        self._draw_all()
        seen = loop.call_later(_LOOK, self._enable_choices)
        try:
            return await self._answer
        finally:
            seen.cancel()
            self._question = None
            self._draw_all()

    def _enable_choices(self) -> None:
        self._unseen = False
        self._draw_all()

    def answer(self, word: str, question: ApprovalQuestion | None = None) -> None:
        """Answer the open question; without one nothing happens.

        Args:
            word: such as `y`, `deny`, `always`.
            question: the question that is meant; another one gets no answer. None: the open one.
        """
        # Read once: the turn's thread may replace it at any time.
        pending = self._answer
        if question is not None and question is not self._question:
            return

        def settle() -> None:
            if pending is not None and not pending.done():
                pending.set_result(word)

        if self._question and self._loop is not None:
            with suppress(RuntimeError):  # the turn is over, and its loop closed
                self._loop.call_soon_threadsafe(settle)

    def allow(self) -> None:
        """Allow the tool call in question."""
        self.answer("allow")

    def deny(self) -> None:
        """Refuse the tool call in question."""
        self.answer("deny")

    def always(self) -> None:
        """Allow the call in question, and all later calls of that tool in this session."""
        self.answer("always")

    # -- on the screen ---------------------------------------------------------------------------

    def __repr__(self) -> str:
        return (
            f"Turn of session {self.name!r} beside the notebook: {self.state}. `.stop()` ends it,"
            " `.result()` waits."
        )

    def _ipython_display_(self) -> None:
        from IPython.display import display

        box = _HandleView(self)
        self._views.append(box)
        self._draw_view(box)
        bundle = box.widget._repr_mimebundle_()
        text = (
            f"Turn of session {self.name!r} beside the notebook: `.result()` waits for its answer."
        )
        bundle_with_text = {**bundle, "text/plain": text}
        box.display = display(bundle_with_text, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        # The turn may have ended while the widget was built.
        self._leave_result(box)

    def show(self, display: TextAndHtml) -> None:
        """Display the current state of the turn."""
        self._content = display
        self._draw_all()

    end = show

    def show_end(self) -> None:
        """Show that the turn is over, and leave its text on the screen."""
        self._over = True
        self._draw_all()
        for box in self._views:
            self._leave_result(box)

    @property
    def _end_note(self) -> str:
        return f"The turn of session {self.name!r} is over; result() returns its answer."

    def _leave_result(self, box: _HandleView) -> None:
        """Put the words of a turn that is over in the place of its widget."""
        if not (self._over and self._leaves and self._content is not None and box.display):
            return
        # Both threads come here when a turn ends while its widget is displayed: one of them writes.
        if box.replaced.acquire(blocking=False):
            html = f"{self._content.html}<small>{escape_html(self._end_note)}</small>"
            final_bundle = {
                "text/html": html,
                "text/plain": f"{self._content.text}\n{self._end_note}",
            }
            box.display.update(final_bundle, raw=True)

    def _draw_all(self) -> None:
        for box in self._views:
            self._draw_view(box)

    def _draw_view(self, box: _HandleView) -> None:
        box.words.value = self._content.html if self._content else ""
        box.question.value = format_question_html(self._question.whole) if self._question else ""
        box.asks.layout.display = "flex" if self._question else "none"
        for choice in box.choices:
            choice.disabled = self._unseen
        if self._over:
            box.stop.disabled = True
            box.label.value = self._end_note


class _HandleView:
    """One display of a handle."""

    def __init__(self, handle: TurnHandle) -> None:
        from ipywidgets import HTML, Button, HBox, Label, Layout, VBox

        def button(name: str, does: Callable[[], None], tip: str) -> Any:
            widget = Button(description=name, tooltip=tip)
            # A click may be on its way when the button is disabled.
            widget.on_click(lambda _: None if widget.disabled else does())
            return widget

        self.stop = button("Stop", handle.stop, f"Stop the turn of session {handle.name}")
        self.label, self.words, self.question = Label(repr(handle)), HTML(), HTML()
        self.choices = [
            button("Allow", handle.allow, "Let this call run"),
            button("Deny", handle.deny, "Do not let it run"),
            button("Always", handle.always, "Let all calls of this tool run in this session"),
        ]
        self.asks = VBox([self.question, HBox(self.choices)], layout=Layout(display="none"))
        self.display: Any = None
        """Display id; None before the first display."""
        self.replaced = threading.Lock()
        """Held for good by the thread that replaces the widget by the result."""
        self.widget: Any = VBox([HBox([self.stop, self.label]), self.words, self.asks])


@dataclass(frozen=True, repr=False)
class TurnResult:
    """The result of a turn: `outcome` has the figures, `session` is the current session.

    `shown` is what stays of a turn beside the notebook; one in a cell has shown it there.
    """

    outcome: Outcome
    session: Session
    final_view: TextAndHtml | None = None
    chart: Path | None = None
    """The page that draws what each turn was sent."""
    own: Session | None = None
    """The external agent's own log of the session, if it was found."""

    @property
    def text(self) -> str:
        """The last reply."""
        return self.outcome.text

    def __repr__(self) -> str:
        before = f"{self.final_view.text}\n" if self.final_view else ""
        return before + "\n".join([sanitize_text(self.outcome.account()), *self._list_places()])

    def _repr_html_(self) -> str:
        before = self.final_view.html if self.final_view else ""
        lines_html = "<br>".join(
            escape_html(t) for t in (self.outcome.account(), *self._list_places())
        )
        return f"{before}<small>{lines_html}</small>"

    def _list_places(self) -> list[str]:
        return (
            [f"Context viz → {sanitize_text(self.chart.as_posix())}"]
            if self.chart is not None
            else []
        )
