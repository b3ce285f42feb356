"""`ctxkit.watch`: how full a context is, its growth and last calls, while a session runs."""

from __future__ import annotations

import time
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import anywidget
import traitlets as t

from ctxkit._internal.chart_style import COLOURS
from ctxkit._internal.formatting_and_sanitizing import (
    escape_html,
    format_count,
    format_percent,
    pluralize,
    sanitize_line,
)
from ctxkit.metrics.figures_registered_by_view import register_view_values
from ctxkit.metrics.prompt_sizes_and_contents import get_prompt_contents, get_prompt_sizes
from ctxkit.plots.chart import format_exact_token_count, render_small_table
from ctxkit.session.compactions_and_prunings import count_compactions
from ctxkit.session.messages import Edit, Message
from ctxkit.session.tool_call_paths_and_descriptions import describe_message, pair_with_calls
from ctxkit.tokens.context_windows import get_context_window
from ctxkit.tokens.message_token_counting import estimate_message_tokens
from ctxkit.widgets.base_widget import (
    SOFT_COLOUR,
    TEXT_COLOUR,
    StaticOutputsMixin,
    wrap_in_scroll_box,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.agent.live_session import LiveSession
    from ctxkit.agent.turn_state_and_events import LiveEvent
    from ctxkit.session.session import Session
    from ctxkit.widgets.data_source import GrowingLogSession


_REDRAW_SECONDS = 0.25
"""Seconds between two drawings while a turn runs."""
_LIVE_EVENTS = frozenset({"turn_start", "model_response", "tool_result", "inner_call_context"})
_DRAWING_EVENTS = frozenset(
    {"turn_end", "cancelled", "compaction_end", "moved", "model_error", "limit_reached"}
)
"""Events that are drawn where the last drawing is long enough ago, and those that always are."""
_ESM = """
export default { render({ model, el }) {
  el.classList.add("ctxkit-watch");
  for (const name of ["gauge", "ahead", "growth", "calls"]) {
    const box = el.appendChild(document.createElement("div"));
    // our own HTML, in which text of a log is escaped
    const draw = () => { box.innerHTML = model.get(name); };
    model.on("change:" + name, draw); draw();
  }
} };
"""


# Events may come from another thread. `_turning` is true from `turn_start` to `turn_end` or
# `cancelled`. Events of `_DRAWING_EVENTS` always draw. Events of `_LIVE_EVENTS` may come many times
# a second, so they draw only `_REDRAW_SECONDS` after the last drawing. A drawing that was skipped
# is not repeated, since the end of the turn draws in any case.
class Watcher(StaticOutputsMixin, anywidget.AnyWidget):  # type: ignore[misc]
    """The widget that `ctxkit.watch` returns. Front ends without widgets get the same as text and
    as HTML.

    It only listens: a session that runs in the background draws into it from its own thread, and
    nothing waits.

    Args:
        name: name of the session.
        session: returns the session as it stands.
        live: returns the live session, or None where there is none (any more).
        tail: the file that is followed, where another program writes it.
    """

    _esm = _ESM
    gauge = t.Unicode("").tag(sync=True)
    """The gauge of the window as HTML."""
    ahead = t.Unicode("").tag(sync=True)
    """Sentences on the growth by the last call and on the next compaction, as HTML."""
    growth = t.Unicode("").tag(sync=True)
    calls = t.Unicode("").tag(sync=True)
    """The last calls, as a table."""

    def __init__(
        self,
        name: str,
        session: Callable[[], Session],
        live: Callable[[], LiveSession | None],
        tail: GrowingLogSession | None = None,
    ) -> None:
        self.name, self._session, self._live, self._tail = name, session, live, tail
        self._drawn, self._turning = 0.0, False
        super().__init__()
        followed = live()
        if followed is not None:
            followed.listen(self.hear)
        self.draw()
        if tail is not None:
            tail.listen(self.draw)

    def hear(self, event: LiveEvent) -> None:
        """Take an event of the session."""
        if event.kind == "turn_start":
            self._turning = True
        elif event.kind in ("turn_end", "cancelled"):
            self._turning = False
        if event.kind in _DRAWING_EVENTS or (
            event.kind in _LIVE_EVENTS and time.monotonic() - self._drawn > _REDRAW_SECONDS
        ):
            self.draw()

    def draw(self) -> None:
        """Draw the current state of the session."""
        self._drawn = time.monotonic()
        session = self._session()
        self.gauge = self.state.html()
        self.ahead = render_sentences(self.forecast_sentences)
        self.growth = render_growth_picture(session, self.name)
        self.calls = render_recent_calls(session)

    def stop(self) -> None:
        """Stop following the session; the display stays."""
        live = self._live()
        if live is not None:
            live.unlisten(self.hear)
        if self._tail is not None:
            self._tail.stop()

    def close(self) -> None:
        """Stop following, and remove the widget."""
        self.stop()
        super().close()

    @property
    def forecast_sentences(self) -> list[str]:
        """Sentences on the growth by the last call and on the next compaction; log files only."""
        session = self._session()
        if self._tail is None or not session.calls:
            return []
        return [
            s for s in (describe_last_prompt_growth(session), predict_next_compaction(session)) if s
        ]

    @property
    def state(self) -> SessionStatusLine:
        """The state of the session as plain values."""
        session, live = self._session(), self._live()
        done = len(session.calls), count_compactions(session)
        if live is None:
            failed = self._tail.failed if self._tail is not None else ""
            note = failed and f"the last look failed: {failed}"
            state = "followed" if self._tail is not None else ""
            return SessionStatusLine(
                self.name,
                _last_prompt_tokens(session),
                _context_window(session),
                *done,
                state,
                note,
            )
        state = "running" if self._turning else "at rest"
        return SessionStatusLine(
            self.name, *live.agent.gauge(), *done, state, live.agent.model.notice
        )

    def to_text(self) -> str:
        """Return what is shown as text."""
        return "\n".join(
            [self.state.text, *self.forecast_sentences, *format_recent_calls(self._session())]
        )

    def to_html(self) -> str:
        """Return what is shown as HTML that needs no kernel."""
        return f"{self.gauge}{self.ahead}{self.growth}{self.calls}"


def _context_window(session: Session) -> int | None:
    """Return the window of the last call: as recorded, else by the price table."""
    from ctxkit.tokens.context_windows import get_context_window

    if not session.calls:
        return session.context_window
    last = session.calls[-1].message
    return get_context_window(session, last.model or session.model, last).tokens


def _last_prompt_tokens(session: Session) -> int | None:
    """Return the size of the last prompt: as recorded, else as the report works it out.

    A log of whole turns has the size of none.
    """
    sizes = get_prompt_sizes(session)[0]
    if sizes and sizes[-1] is None and session.calls[-1].message.kind != "turn":
        return get_prompt_contents(session, len(sizes) - 1).prompt or None
    return next((n for n in reversed(sizes) if n), None)


RECENT_CALLS = 6
"""Calls in the table."""
_NEARLY_FULL = 0.8
"""Above this share of the window the gauge changes colour; the figure beside it says the same."""
_CALLS_HEAD = ("call", "turn", "prompt", "cached", "out", "then")


class SessionStatusLine(NamedTuple):
    """The state of a session: window, calls, compactions."""

    name: str
    used: int | None
    limit: int | None
    calls: int
    compactions: int | None
    """None: the format of the log cannot tell of one."""
    state: str
    """`running`, `at rest`, or empty if the session is not live."""
    note: str

    @property
    def text(self) -> str:
        """`main · Context: 5,387/16,000 (34 %) · 6 calls · Compactions: 0 · running`."""
        share = (
            f" ({format_percent(self.used / self.limit)})"
            if self.used is not None and self.limit
            else ""
        )
        used = "size unknown"
        if self.used is not None:
            used = f"{self.used:,}" + (f"/{self.limit:,}" if self.limit else "")
        parts = [
            sanitize_line(self.name, 60),
            f"Context: {used}{share}",
            f"{self.calls:,} calls",
            f"Compactions: {format_count(self.compactions)}",
            self.state,
            sanitize_line(self.note, 100),
        ]
        return " · ".join(p for p in parts if p)

    def html(self) -> str:
        """The text, and a bar where the share is known."""
        label = escape_html(self.text, 300)
        label_html = f'<div style="color:{TEXT_COLOUR};line-height:1.6">{label}</div>'
        if self.used is None or not self.limit:
            return label_html
        share = min(self.used / self.limit, 1.0)
        colour = COLOURS[1] if share > _NEARLY_FULL else COLOURS[0]
        return (
            f'{label_html}<div role="meter" aria-label="{label}" aria-valuemin="0"'
            f' aria-valuemax="{self.limit}" aria-valuenow="{self.used}"'
            ' style="height:10px;border-radius:5px;overflow:hidden'
            ';background:rgba(119,119,119,.25)"><div'
            f' style="width:{share:.1%};height:10px;background:{colour}"></div></div>'
        )


def render_growth_picture(session: Session, name: str) -> str:
    """Return the growth of the context as a static picture, cheap enough to be drawn again after
    each call.

    Args:
        session: the session so far.
        name: its name in the legend.
    """
    from ctxkit.plots import growth as chart

    if not session.calls:
        return f'<div style="color:{SOFT_COLOUR}">No call yet.</div>'
    growth_plot = chart({name: session})
    label = escape_html(growth_plot.caption)
    return f'<div role="img" aria-label="{label}">{growth_plot.drawing.svg()}</div>'


def render_sentences(sentences: list[str]) -> str:
    """Return sentences as HTML; empty without any."""
    return "".join(
        f'<div style="color:{TEXT_COLOUR};line-height:1.6">{escape_html(s, 500)}</div>'
        for s in sentences
    )


def list_recent_calls(session: Session) -> list[tuple[str, ...]]:
    """Return the last calls, the newest first: number, recorded sizes, tools called."""
    out = []
    for call in reversed(session.calls[-RECENT_CALLS:]):
        m, u = call.message, call.message.usage
        tools = ", ".join(c.name for c in m.tool_calls) or (
            m.error or sanitize_line(m.text, 60) or "nothing said"
        )
        sizes = (u.prompt_tokens, u.cache_read_tokens, u.output_tokens) if u else (None, None, None)
        out.append(
            (
                str(call.index),
                str(call.turn),
                *map(format_exact_token_count, sizes),
                sanitize_line(tools, 70),
            )
        )
    return out


def render_recent_calls(session: Session) -> str:
    """Return the last calls as a table."""
    recent = list_recent_calls(session)
    return (
        wrap_in_scroll_box(
            render_small_table(
                _CALLS_HEAD, recent, caption=f"The last {len(recent)} calls, the newest first"
            )
        )
        if recent
        else ""
    )


def format_recent_calls(session: Session) -> list[str]:
    """Return the last calls as lines of text."""
    return [
        "  ".join(f"{cell:>9}" for cell in row[:-1]) + f"  {row[-1]}"
        for row in [_CALLS_HEAD, *list_recent_calls(session)]
    ]


_RECENT_STEPS = 20
"""Calls whose growth tells how fast the context grows."""
_MAX_NAMED_TOOLS = 3


def describe_last_prompt_growth(session: Session) -> str:
    """Describe what was added between the last two prompts; empty where it is not known.

    The sum is as recorded where the log has usage; the parts are estimates of their text.
    """
    sizes, source = get_prompt_sizes(session)
    if len(session.calls) < 2 or sizes[-1] is None or sizes[-2] is None:
        return ""
    # The path from one reply to the next one, which it excludes: all that the last prompt has and
    # the prompt before had not.
    first, last = (session.calls[i].position for i in (-2, -1))
    between = session.path[first:last]
    number, grown = session.calls[-1].index, sizes[-1] - sizes[-2]
    if any(isinstance(e, Edit) for e in between):
        return f"Before call {number} it was compacted: {sizes[-2]:,} to {sizes[-1]:,} tokens."
    new_messages = [e for e in between if isinstance(e, Message) and e.visible]
    calls = {id(m): c for m, c in pair_with_calls(new_messages)}
    new_messages.sort(key=estimate_message_tokens, reverse=True)
    sentences = [
        f"{describe_message(m, calls.get(id(m)), session.cwd)} (about "
        f"{estimate_message_tokens(m):,})"
        for m in new_messages[:_MAX_NAMED_TOOLS]
    ]
    more = len(new_messages) - len(sentences)
    parts = "; ".join([*sentences, *([f"{more} more"] if more else [])])
    word = "added" if grown >= 0 else "fell by"
    return sanitize_line(f"Call {number} {word} {abs(grown):,} tokens ({source}): {parts}.", 400)


def predict_next_compaction(session: Session) -> str:
    """Return when the next compaction is due, in a sentence, from what this log itself shows.

    It is due where the last one that came by itself was; without one, where the window is full.
    """
    sizes, _ = get_prompt_sizes(session)
    measured_sizes = [n for n in sizes if n]
    if not measured_sizes:
        return "When a compaction is due cannot be said: the log has no sizes of prompts."
    due, why = _due_at(session, sizes)
    if due is None:
        return (
            "When a compaction is due cannot be said: neither the log nor the price table names the"
            " window."
        )
    left, grows = due - measured_sizes[-1], _growth_per_call(sizes)
    if left <= 0:
        return f"The next compaction is due now ({why})."
    if not grows:
        return f"The next compaction is due in {left:,} tokens ({why}); it has not grown lately."
    # Ceiling division: the call at which the threshold is reached.
    calls = max(-(-left // grows), 1)
    return (
        f"The next compaction is due in about {pluralize(calls, 'call')} ({left:,} tokens, "
        f"{grows:,} a call lately; {why})."
    )


# The threshold is estimated from the last automatic compaction: the size before it as the edit
# records it, else the last known prompt before it. A manual compaction says nothing about a
# threshold. The walk counts assistant messages, whose numbers index `sizes`, and holds the last
# known size. Without an automatic compaction the context window takes its place. Cost: O(entries).
def _due_at(session: Session, sizes: list[int | None]) -> tuple[int | None, str]:
    size, size_before = 0, None
    call = 0
    for entry in session.path:
        if isinstance(entry, Edit):
            if entry.kind == "summarised" and (entry.trigger or "auto") != "manual":
                size_before = entry.tokens_before or size or size_before
        elif entry.role == "assistant":
            size, call = sizes[call] or size, call + 1
    if size_before:
        return size_before, f"its last one came at {size_before:,}"
    last = session.calls[-1].message
    window = get_context_window(session, last.model or session.model, last).tokens
    return window, f"no compaction yet; its window holds {window:,}" if window else ""


def _growth_per_call(sizes: list[int | None]) -> int:
    """Return by how many tokens a call made the context grow lately, in the median."""
    lately = sizes[-_RECENT_STEPS:]
    steps = [b - a for a, b in pairwise(n for n in lately if n) if b > a]
    return round(median(steps)) if steps else 0


@register_view_values("watch")
def _read_figures(session: Session) -> dict[str, object]:
    gauge = Watcher("", lambda: session, lambda: None).state
    figures: dict[str, object] = {"calls_n": gauge.calls, "compactions_n": gauge.compactions}
    is_call = bool(session.calls) and session.calls[-1].message.kind != "turn"
    return figures | ({"last_prompt_tokens": gauge.used} if is_call else {})
