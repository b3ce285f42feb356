"""Display a running turn in a cell, a background handle or a terminal.

A cell's live view is emptied again at its end, and what stays is displayed again, once: a tool that
runs notebooks again and drops updates of displays (nbval) then sees the same as one that follows
them.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, cast

from ctxkit._internal.chart_style import BUDGET_WARNING_CSS
from ctxkit._internal.formatting_and_sanitizing import (
    NO_MATHJAX,
    TextAndHtml,
    escape_html,
    format_percent,
    pluralize,
    sanitize_line,
    sanitize_text,
    shorten_litellm_error,
)
from ctxkit.session.compactions_and_prunings import group_edits
from ctxkit.session.messages import ATTEMPT_OUTCOMES
from ctxkit.tokens.live_prompt_sizes import get_sizes_around_compaction

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.agent.live_session import LiveSession
    from ctxkit.agent.turn_state_and_events import LiveEvent
    from ctxkit.plots.xy_figure import XyDrawing


_MAX_SCREEN_CHARS = 6000
"""Maximum number of characters of a turn on the screen while it runs."""
_MAX_FINAL_BYTES = 2200
"""Bytes of a turn's words that stay in the notebook, escaped; the session has all of them."""
_TAIL = 2000
"""Maximum number of characters of a folded text."""
_STYLE = "color:var(--jp-content-font-color1,inherit);line-height:1.45"
_PRE = "white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere;margin:0;font:inherit"
_CUT = "… (the session has the whole turn)\n"
_MAX_CUT_NOTICES = 3
"""Notices that stay of the part of a turn that is cut; `%context compactions` has all."""


class TurnNotice(str):
    """A line that says what the kit did or could not do: bold, and not cut with the text."""

    __slots__ = ()


# A state machine over the events of a turn. `_open` collects the text that is being written,
# `_fold` the thinking or the arguments of a call; every event but a piece of text and a result of a
# tool closes both. An error of the model is held in `_error` and becomes a line only when another
# line or the end of the turn follows; where the caller gets the error, the end drops it. The line
# of a compaction has estimated sizes until the next reply, whose prompt gives the true ones;
# `_estimated` holds the places of such lines.
class TurnRenderer:
    """A turn as it is shown: text, and its twin in HTML.

    Args:
        live: the session.
        raises: True where whoever waits for the turn gets its last error, or the limit that held
            it, in words; then it is not shown a second time.
    """

    def __init__(self, live: LiveSession, *, raises: bool = False) -> None:
        self._live, self._raises = live, raises
        self.lines: list[str] = []
        self._open: list[str] = []
        self._fold, self._error = FoldedStreamText(""), ""
        self._estimated: list[tuple[int, int, dict[str, Any]]] = []
        """Lines of compactions behind which no prompt was sent yet: place of the line, number of
        the compaction, and what was told of it."""
        self.note = live.agent.model.notice

    def on_event(self, event: LiveEvent) -> None:
        """Take an event."""
        if event.kind == "delta":
            self._add_piece(event.payload["kind"], event.payload["text"])
            return
        if event.kind != "tool_result":
            self._close_text()
        if event.kind == "turn_end":
            self._end_turn(event.payload["ended"])
        elif event.kind == "model_error":
            self._show_error()
            error = sanitize_line(shorten_litellm_error(str(event.payload["error"])), 300)
            self._error = f"! the model failed: {error}"
        elif line := _event_line(event.kind, event.payload):
            self._show_error()
            self._add_line(line)
        if event.kind == "compaction_end" and "messages" in event.payload:
            number = len(group_edits(self._live.session)) - 1
            self._estimated.append((len(self.lines) - 1, number, event.payload))
        elif event.kind == "model_response" and self._estimated:
            self._update_sizes()

    def _update_sizes(self) -> None:
        """Put the sizes of the prompts that were sent into the lines of compactions."""
        session = self._live.session
        groups = group_edits(session)
        for place, number, payload in self._estimated:
            first, edits = groups[number].position, groups[number].edits
            size = get_sizes_around_compaction(session, first, first + len(edits) - 1)
            if size is not None:
                before, after, source = size
                sizes = {"tokens_before": before, "tokens_after": after, "tokens_source": source}
                self.lines[place] = TurnNotice(_compaction_line({**payload, **sizes}))
        self._estimated.clear()

    def _add_piece(self, kind: str, text: str) -> None:
        if kind == "text":
            self._end_fold()
            self._open.append(text)
        elif kind == "thinking":
            self._add_folded("thinking", text)
        elif kind == "tool_call":
            self._add_folded(f"writing a call of {sanitize_line(text, 60)}", "", anew=True)
        elif kind == "arguments":
            self._add_folded(self._fold.label or "writing a call", text)

    def _add_folded(self, label: str, text: str, *, anew: bool = False) -> None:
        if anew or label != self._fold.label:
            self._end_fold()
            self._flush_text()
            self._fold = FoldedStreamText(label)
        self._fold.add(text)

    def _end_fold(self) -> None:
        """Close the folded text; thinking leaves a line, a call gets one of its own."""
        if self._fold.label == "thinking":
            self._add_line(f"· thought {self._fold.chars:,} characters")
        self._fold = FoldedStreamText("")

    def _close_text(self) -> None:
        self._end_fold()
        self._flush_text()

    def _flush_text(self) -> None:
        if text := "".join(self._open).strip():
            self.lines.append(text)
        self._open = []

    def _show_error(self) -> None:
        """Show the error of a model after which the turn continued."""
        if self._error:
            self._add_line(self._error)
        self._error = ""

    def _end_turn(self, ended: str) -> None:
        if self._raises and ended == "error":
            self._error = ""
        last = self.lines[-1] if self.lines else ""
        if self._raises and ended == "limit" and last.startswith("! limit"):
            self.lines.pop()
        self._show_error()

    def _add_line(self, line: str) -> None:
        """Add a line, unless it says what the last one says."""
        if not self.lines or self.lines[-1] != line:
            self.lines.append(TurnNotice(line) if line.startswith(("! ", "✂ ")) else line)

    # -- how it looks ----------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """All lines and the text that is being written."""
        opened = "".join(self._open)
        return "\n".join([*self.lines, *([opened] if opened.strip() else [])])

    def bar(self) -> tuple[int, int]:
        """Return the tokens of the context and the model's window."""
        return self._live.agent.gauge()

    def plain(self, *, is_final: bool = False) -> str:
        """Return the turn as text; `is_final`: bounded, as it stays in a notebook."""
        fold = "" if is_final else self._fold.line()
        used, limit = self.bar()
        share = used / limit
        bar = f"[{_render_bar(share)}] {used:,}/{limit:,} tokens ({format_percent(share)})"
        return "\n".join([self._visible_text(is_final=is_final), *([fold] if fold else []), bar])

    def html(self, *, is_final: bool = False) -> str:
        """Return the turn as HTML; `is_final`: bounded, as it stays in a notebook."""
        words = f'<pre style="{_PRE}">{self._visible_html(is_final=is_final)}</pre>'
        fold = "" if is_final else self._fold.html()
        used, limit = self.bar()
        note = f" · {escape_html(self.note)}" if self.note else ""
        label = f"context {used:,} of {limit:,} tokens ({format_percent(used / limit)})"
        meter = _render_meter(used, limit, label)
        return (
            f'<div class="{NO_MATHJAX}" style="{_STYLE}">'
            f"{words}{fold}{meter}<small>{escape_html(label)}{note}</small></div>"
        )

    def _visible_text(self, *, is_final: bool) -> str:
        if is_final:
            return self._final_text()
        whole = sanitize_text(
            self.text[-4 * _MAX_SCREEN_CHARS :]
        )  # what is out of sight costs nothing
        return whole if len(whole) <= _MAX_SCREEN_CHARS else "…" + whole[-_MAX_SCREEN_CHARS:]

    def _final_text(self) -> str:
        """Return the end of the turn as it stays, behind the notices of the part that is cut."""
        whole = sanitize_text(self.text)
        final_text = truncate_start(whole, _MAX_FINAL_BYTES)
        if final_text == whole:
            return whole
        dropped_notices = [n for n in self._notices() if n not in final_text][-_MAX_CUT_NOTICES:]
        head = "".join(f"{n}\n" for n in dropped_notices)
        return head + truncate_start(whole, _MAX_FINAL_BYTES - len(escape_html(head).encode()))

    def _notices(self) -> list[str]:
        return [sanitize_text(n) for n in self.lines if isinstance(n, TurnNotice)]

    def _visible_html(self, *, is_final: bool) -> str:
        """Return the text escaped, its notices bold, warnings about a budget on yellow."""
        notices = {line for n in self._notices() for line in n.split("\n")}
        lines = self._visible_text(is_final=is_final).split("\n")
        return "\n".join(
            f"<b{_notice_style(n)}>{escape_html(n)}</b>" if n in notices else escape_html(n)
            for n in lines
        )


class FoldedStreamText:
    """A folded text that grows: thinking, or the arguments of a call."""

    def __init__(self, label: str) -> None:
        self.label, self.chars, self._tail = label, 0, ""

    def add(self, text: str) -> None:
        """Take a piece."""
        self.chars += len(text)
        self._tail = (self._tail + text)[-_TAIL:]

    def line(self) -> str:
        """Return its size and its newest words in a line."""
        if not self.label:
            return ""
        return f"… {self.label}, {self.chars:,} characters: {sanitize_line(self._tail[-80:], 80)}"

    def html(self) -> str:
        """Return the line, which unfolds to the newest part."""
        if not self.label:
            return ""
        more = f'<pre style="{_PRE}">{escape_html(self._tail)}</pre>'
        return f"<details><summary>{escape_html(self.line())}</summary>{more}</details>"


def truncate_start(text: str, max_bytes: int) -> str:
    """Return the end of a text that takes at most `max_bytes` bytes as escaped HTML.

    Args:
        text: the text, not escaped.
        max_bytes: bytes of UTF-8, those of the mark at the cut included.
    """
    if len(escape_html(text).encode()) <= max_bytes:
        return text
    max_bytes -= len(escape_html(_CUT).encode())
    # Binary search: the escaped size grows with the number of characters.
    low, high = 0, min(len(text), max_bytes)
    while low < high:  # the longest end that fits
        half = (low + high + 1) // 2
        low, high = (
            (half, high)
            if len(escape_html(text[-half:]).encode()) <= max_bytes
            else (low, half - 1)
        )
    return _CUT + (text[-low:] if low else "")


def _event_line(kind: str, payload: dict[str, Any]) -> str:
    """Return an event as a line; empty where it has none."""
    if kind == "tool_call":
        arguments = ", ".join(
            f"{k}={sanitize_line(str(v), 60)}" for k, v in payload["args"].items()
        )
        return f"▸ {payload['tool_name']}({sanitize_line(arguments, 160)})"
    if kind == "tool_result":
        pictures = (
            f", {pluralize(payload['pictures'], 'picture')}" if payload.get("pictures") else ""
        )
        failed = " failed" if payload["is_error"] else ""
        return f"  → {payload['result_chars']:,} characters{pictures}{failed}"
    if kind == "sections_said":
        return "" if payload["top"] else f"· said with the prompt: {', '.join(payload['names'])}"
    if kind in _EVENT_LINES:
        return _EVENT_LINES[kind](payload)
    if kind in ("context_exceeded_recovery", "limit_reached"):
        words = (str(v) if isinstance(v, str) else f"{k} {v}" for k, v in payload.items())
        return f"! {kind.replace('_', ' ')}: {sanitize_line(', '.join(words), 160)}"
    return ""


def _memory_line(payload: dict[str, Any]) -> str:
    """Return a line on saved memory, or on a failure; of a flush its file."""
    names = payload.get("names", [])
    if not names:
        return f"! {sanitize_line(str(payload['error']), 200)}" if payload.get("error") else ""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"· remembered: {sanitize_line(', '.join(names[:3]), 160)}{more} (%memory list)"


def _compaction_line(payload: dict[str, Any]) -> str:
    failed = sanitize_line(shorten_litellm_error(str(payload.get("error") or "")), 160)
    outcome, more = payload.get("outcome"), _summary_bill_words(payload)
    if outcome in ATTEMPT_OUTCOMES and "messages" not in payload:
        if wait := payload.get("retry_after_calls"):
            more += f" · not asked again for {pluralize(wait, 'call')}"
        reason = sanitize_line(shorten_litellm_error(str(payload.get("reason") or failed)), 160)
        mark = "" if outcome == "skipped" else "! "
        advice = _ATTEMPT_ADVICE.get(outcome, "") if "summary_model" in payload else ""
        return f"{mark}compaction {outcome}: {reason}; the history is kept as it was{more}{advice}"
    before, after = payload["tokens_before"], payload["tokens_after"]
    guess = ", estimated" if payload.get("tokens_source") == "estimated" else ""
    grew = "; the prompt has grown" if after > before else ""
    why = f"; the summary failed: {failed}" if failed else ""
    sizes = f"{before:,} → {after:,} tokens ({payload.get('trigger')}{guess})"
    return f"✂ compacted {sizes}{grew}{why}{more}" + (_FAILED_ADVICE if failed else "")


_ATTEMPT_ADVICE = {
    "refused": "\n  → nothing is lost: a later trigger or a shorter summary avoids such a call",
    "failed": "\n  → nothing is lost: mend the summary model, or name another by `--summary-model`",
}
_FAILED_ADVICE = (
    "\n  → the earlier messages left the prompt without a model's summary: mend that model, then"
    " `%context checkpoints` and `%context restore N` bring them back"
)


def _summary_bill_words(payload: dict[str, Any]) -> str:
    """Return what the summaries of a compaction cost; empty where no model was asked."""
    if "summary_model" not in payload:
        return ""
    tokens, usd = payload["summary_tokens"], payload["cost_usd"]
    if tokens is None:
        return " · its call reported no usage, so no cost is known"
    cost = "no price known" if usd is None else f"${usd:.4f}" if usd else "free"
    return f" · the summary's call: {tokens:,} tokens, {cost}"


def _relative_path(file: str) -> str:
    """Return a path as seen from the working folder, if it lies below it."""
    path, here = Path(file), Path.cwd()
    return (path.relative_to(here) if path.is_relative_to(here) else path).as_posix()


_BUDGET_WARNING = "! context budget: "


def _notice_style(line: str) -> str:
    return f' style="{BUDGET_WARNING_CSS}"' if line.startswith(_BUDGET_WARNING) else ""


def _warning_line(payload: dict[str, Any]) -> str:
    if payload.get("warn_at"):  # a budget of tokens sent, as fuseraft's
        sent = f"{payload['cumulative_input_tokens']:,} tokens sent since the last compaction"
        cut = f", cutover at {payload['cutover_at']:,}" if payload.get("cutover_at") else ""
        return f"{_BUDGET_WARNING}{sent}, warned at {payload['warn_at']:,}{cut}"
    return f"{_BUDGET_WARNING}{payload['tokens']:,} tokens in the prompt, near the next compaction"


_EVENT_LINES: dict[str, Callable[[dict[str, Any]], str]] = {
    "compaction_end": _compaction_line,
    "context_budget_warn": _warning_line,
    "artifact_stored": lambda event: (
        f"✂ the result of {sanitize_line(str(event['tool_name']), 60)}, {event['chars']:,}"
        " characters, is kept whole in a file; the prompt has a short stub that says how to read it"
        f"\n  → {sanitize_line(_relative_path(event['file']), 240)}"
    ),
    "artifact_failed": lambda event: (
        f"! the result of {sanitize_line(str(event['tool_name']), 60)} could not be stored, and is"
        f" sent within the limits of outputs: {sanitize_line(str(event['error']), 160)}"
    ),
    "memory_promoted": _memory_line,
    "memory_failed": _memory_line,
    "memory_consolidated": lambda event: (
        f"· forgot {len(event['names'])} that are too much (%memory consolidate)"
    ),
    "context_cap_warning": lambda event: (
        f"! {event['messages']:,} messages, of {event['cap']:,} that are shown at most"
    ),
    "reply_cut_short": lambda event: (
        "! the reply was cut by its limit of length"
        + ("; the model is asked to go on where it ended" if event["continues"] else "")
    ),
    "model_wait": lambda event: f"… {sanitize_line(str(event['why']), 160)}",
}
"""Events that are displayed as a line of their own."""


def _render_meter(used: int, limit: int, label: str) -> str:
    share = min(used / limit, 1.0)
    ink = "#d55e00" if share > 0.8 else "#0072b2"
    return (
        f'<div role="meter" aria-valuemin="0" aria-valuemax="{limit}" aria-valuenow="{used}"'
        f' aria-label="{label}"'
        ' style="height:8px;background:rgba(119,119,119,.25);border-radius:4px;margin:6px 0'
        ' 2px"><div'
        f' style="height:8px;width:{share:.1%};background:{ink};border-radius:4px"></div></div>'
    )


def _render_bar(share: float, width: int = 30) -> str:
    filled = round(min(share, 1.0) * width)
    return "#" * filled + "." * (width - filled)


_PAUSE, _CHART_PAUSE = 0.15, 1.5
"""Seconds between two updates of the words, and of the chart."""
_IMMEDIATE_EVENTS = ("tool_call", "model_wait")
"""What is always shown at once, as it may take long: a tool that is called, a rate limit that is
waited for.
"""
_POINTS, _CIRCLES = 100, 24
"""Points of the line and of the compactions below a turn, so that it does not grow with the
session.
"""


class TurnOutput(Protocol):
    """The output that displays a turn: a cell, a terminal, or a handle."""

    def show(self, display: TextAndHtml) -> None:
        """Display the current state of the turn."""

    def end(self, display: TextAndHtml) -> None:
        """Display the final state of the turn."""


class CellOutput:
    """The output of the cell that runs."""

    def __init__(self) -> None:
        from IPython.display import display

        self._display: Any = display
        self._live = display(TextAndHtml(), display_id=True)  # type: ignore[no-untyped-call]

    def show(self, display: TextAndHtml) -> None:
        """Display the current state in place of the last one."""
        self._live.update(display)

    def end(self, display: TextAndHtml) -> None:
        """Empty the live view; display what stays."""
        self._live.update(TextAndHtml())
        self._display(display)


class TerminalOutput:
    """A terminal, which cannot update its output: the turn is printed at its end."""

    def show(self, display: TextAndHtml) -> None:
        """Do nothing; a terminal is written only at the end."""

    def end(self, display: TextAndHtml) -> None:
        """Print the turn."""
        print(display)  # noqa: T201  a terminal has nothing else


class LiveTurnDisplay:
    """Shows a turn while it runs.

    Args:
        live: the session.
        view: where.
        raises: see `TurnRenderer`.
    """

    def __init__(self, live: LiveSession, view: TurnOutput, *, raises: bool = False) -> None:
        self.turn, self._live, self._view = TurnRenderer(live, raises=raises), live, view
        self.final_view = TextAndHtml()
        """The final text of the turn; empty before its end."""
        self._chart = ""
        self._last = self._charted = 0.0

    def __enter__(self) -> Self:
        self._live.listen(self.on_event)
        return self

    def __exit__(self, *_: object) -> None:
        self._live.unlisten(self.on_event)
        html = self.turn.html(is_final=True) + render_live_growth_chart(self._live)
        self.final_view = TextAndHtml(self.turn.plain(is_final=True), html)
        # A terminal prints the whole turn; a notebook saves the bounded form.
        whole = (
            TextAndHtml(self.turn.plain(), html)
            if isinstance(self._view, TerminalOutput)
            else self.final_view
        )
        self._view.end(whole)

    def on_event(self, event: LiveEvent) -> None:
        """Process an event, and update the display if the last update is long enough ago."""
        self.turn.on_event(event)
        now = time.monotonic()
        if isinstance(self._view, TerminalOutput):
            return
        # The chart takes longer than the words and has a longer pause of its own.
        if event.kind == "model_response" and now - self._charted > _CHART_PAUSE:
            self._chart = render_live_growth_chart(self._live)
            self._charted = time.monotonic()
        elif event.kind not in _IMMEDIATE_EVENTS and now - self._last <= _PAUSE:
            return
        self._view.show(TextAndHtml(self.turn.plain(), self.turn.html() + self._chart))
        self._last = time.monotonic()  # however long it took, the turn continues for a while


def render_live_growth_chart(live: LiveSession) -> str:
    """Return how the context grew as a picture of bounded size; empty before the first call.

    Args:
        live: the session; its chart is thinned to `_POINTS` points.

    Returns:
        An SVG in a block with a description for screen readers.
    """
    from ctxkit.plots import growth

    if not live.session.calls:
        return ""
    chart = growth({live.name: live.session})
    # One session has one pair of axes. A line for each compaction would grow, too.
    axes = cast("XyDrawing", chart.drawing)
    drawing = replace(axes, marks=(), points=_POINTS, circles=_CIRCLES)
    return f'<div role="img" aria-label="{escape_html(chart.caption, 300)}">{drawing.svg()}</div>'
