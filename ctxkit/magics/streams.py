"""What a running turn shows: the words as they come, the tools as they are called, and how full the context is."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self

from ctxkit.markup import escape, line, plain

if TYPE_CHECKING:
    from ctxkit.agent.events import Event
    from ctxkit.agent.live import LiveSession

_PAUSE, _CHART_PAUSE = 0.15, 1.5
"""Seconds between two updates of the words, and of the chart."""
_AT_ONCE = ("tool_call", "model_wait")
"""What is always shown at once, as it may take long: a tool that is called, a rate limit that is waited for."""
_LONGEST = 6000
"""Characters of a turn that stay on the screen; the session has all of them."""
_STYLE = "color:var(--jp-content-font-color1,inherit);line-height:1.45"
_PRE = "white-space:pre-wrap;margin:0;font:inherit"


class Turn:
    """A turn as it is shown: text, and its twin in HTML. It is displayed once and updated in place."""

    def __init__(self, live: LiveSession) -> None:
        self._live = live
        self.lines: list[str] = []
        self._open = ""
        self.note = live.agent.model.notice

    def hear(self, event: Event) -> None:
        """Take an event."""
        said = event.payload
        if event.kind == "delta" and said["kind"] == "text":
            self._open += said["text"]
        elif event.kind == "tool_call":
            self._close()
            arguments = ", ".join(f"{k}={line(str(v), 60)}" for k, v in said["args"].items())
            self.lines.append(f"▸ {said['tool_name']}({line(arguments, 160)})")
        elif event.kind == "tool_result":
            failed = " failed" if said["is_error"] else ""
            self.lines.append(f"  → {said['result_chars']:,} characters{failed}")
        elif event.kind == "compaction_end":
            self._close()
            self.lines.append(_compaction(said))
        elif event.kind == "model_wait":
            self._close()
            self.lines.append(f"… {line(str(said['why']), 160)}")
        elif event.kind == "model_error":
            self._close()
            self.lines.append(f"! the model failed: {line(str(said['error']), 300)}")
        elif event.kind == "context_budget_warn":
            self._close()
            self.lines.append(_warning(said))
        elif event.kind in ("context_exceeded_recovery", "limit_reached"):
            self._close()
            words = (str(v) if isinstance(v, str) else f"{k} {v}" for k, v in said.items())
            self.lines.append(f"! {event.kind.replace('_', ' ')}: {line(', '.join(words), 160)}")
        elif event.kind in ("turn_end", "model_response", "cancelled"):
            self._close()

    def _close(self) -> None:
        if self._open.strip():
            self.lines.append(self._open.strip())
        self._open = ""

    @property
    def text(self) -> str:
        """All that was said, the newest part of it where it is long."""
        whole = "\n".join([*self.lines, *([self._open] if self._open.strip() else [])])
        return plain(whole if len(whole) <= _LONGEST else "…" + whole[-_LONGEST:])

    def bar(self) -> tuple[int, int]:
        """Return the tokens of the context and the model's window."""
        context = self._live.agent.compactor.context
        return context.coming, context.run.room.limit

    def __repr__(self) -> str:
        used, limit = self.bar()
        return f"{self.text}\n[{_bar(used / limit)}] {used:,}/{limit:,} tokens ({used / limit:.0%})"

    def _repr_html_(self) -> str:
        used, limit = self.bar()
        share = min(used / limit, 1.0)
        label = f"context {used:,} of {limit:,} tokens ({used / limit:.0%})"
        meter = (
            f'<div role="meter" aria-valuemin="0" aria-valuemax="{limit}" aria-valuenow="{used}" aria-label="{label}" '
            'style="height:8px;background:rgba(119,119,119,.25);border-radius:4px;margin:6px 0 2px">'
            f'<div style="height:8px;width:{share:.1%};background:{"#d55e00" if share > 0.8 else "#0072b2"};'
            'border-radius:4px"></div></div>'
        )
        note = f" · {escape(self.note)}" if self.note else ""
        words = f'<pre style="{_PRE}">{escape(self.text)}</pre>'
        return f'<div style="{_STYLE}">{words}{meter}<small>{escape(label)}{note}</small></div>'


def _compaction(said: dict[str, Any]) -> str:
    if said.get("error"):
        return f"! compaction failed: {line(str(said['error']), 160)}"
    if said.get("outcome") == "skipped":
        return "compaction skipped: too little history"
    return f"✂ compacted {said['tokens_before']:,} → {said['tokens_after']:,} tokens ({said.get('trigger')})"


def _warning(said: dict[str, Any]) -> str:
    if said.get("warn_at"):  # a budget of tokens sent, as fuseraft's
        sent = f"{said['cumulative_input_tokens']:,} tokens sent since the last compaction, warned at"
        cut = f", cut over at {said['cutover_at']:,}" if said.get("cutover_at") else ""
        return f"! context budget: {sent} {said['warn_at']:,}{cut}"
    return f"! context budget: {said['tokens']:,} tokens in the prompt, near the next compaction"


def _bar(share: float, width: int = 30) -> str:
    filled = round(min(share, 1.0) * width)
    return "#" * filled + "." * (width - filled)


class Sketch:
    """A chart that changes while it is shown: its picture alone, as the lab never draws a plotly figure again."""

    def __init__(self, chart: Any) -> None:
        self._chart = chart

    def __repr__(self) -> str:
        return self._chart.to_text() if self._chart is not None else ""

    def _repr_html_(self) -> str:
        if self._chart is None:
            return "<span></span>"
        return f'<div role="img" aria-label="{escape(self._chart.caption, 300)}">{self._chart.drawing.svg()}</div>'


class Screen:
    """Shows a turn while it runs: updated in place in a notebook, printed once at the end in a terminal.

    Args:
        live: the session.
        rich: True in a front end that updates displays.
    """

    def __init__(self, live: LiveSession, *, rich: bool) -> None:
        self.turn, self._live, self._rich = Turn(live), live, rich
        self._words: Any = None
        self._chart: Any = None
        self._last = self._charted = 0.0

    def __enter__(self) -> Self:
        self._live.listen(self.hear)
        if self._rich:
            from IPython.display import display

            self._words = display(self.turn, display_id=True)  # type: ignore[no-untyped-call]
            self._chart = display(self._sketch(), display_id=True)  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *_: object) -> None:
        self._live.unlisten(self.hear)
        if self._rich:
            self._words.update(self.turn)
            self._chart.update(self._growth() if self._live.session.calls else Sketch(None))
        else:
            print(self.turn)  # noqa: T201  a terminal has nothing else

    def hear(self, event: Event) -> None:
        """Take an event, and show it where the last update is long enough ago."""
        self.turn.hear(event)
        now = time.monotonic()
        if not self._rich or self._words is None:
            return
        if event.kind in _AT_ONCE or now - self._last > _PAUSE:
            self._last = now
            self._words.update(self.turn)
        if event.kind == "model_response" and now - self._charted > _CHART_PAUSE:
            self._charted = now
            self._chart.update(self._sketch())

    def _sketch(self) -> Sketch:
        return Sketch(self._growth() if self._live.session.calls else None)

    def _growth(self) -> Any:
        from ctxkit.plots import growth

        return growth({self._live.name: self._live.session})
