"""Small sessions that bring out what each chart can draw, and the reference of its three forms.

`python tests/plots/chart_scenarios.py` writes the references anew after a chart was changed on
purpose; the difference is then read as code is.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

HERE = Path(__file__).parent
if __name__ == "__main__":
    sys.path[:0] = [str(HERE.parent), str(HERE.parents[1])]

from builders import assistant, result, session, step, summarised, system, usage, user  # noqa: E402

import ctxkit as ck  # noqa: E402
from ctxkit.plots.chart import PLOTLY_MIME_TYPE, Chart  # noqa: E402
from ctxkit.session import Edit, Message, Text  # noqa: E402
from ctxkit.session.messages import COMPACTION_ATTEMPT_KIND, SUMMARY_ERROR_KEY  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

REFERENCES = HERE / "chart_references"
MODEL = "claude-sonnet-4-5"


def _growing(n: int, *, gap: float = 30.0, first: int = 10_000, **more: Any) -> ck.Session:
    """Return a session of n priced calls, each 2,000 tokens longer, its prefix read from the
    cache."""
    log, before = [], 0
    for i in range(n):
        now = first + 2000 * i
        log += [
            user(f"Look at src/part{i % 3}/file.py. " + "word " * 400, time=gap * i),
            assistant(
                "ok", usage=usage(3, before, now - before, 100), model=MODEL, time=gap * i + 5,
            ),
        ]  # fmt: skip
        before = now
    return session(*log, **{"id": "growing", "title": "growing", **more})


def _attempt(outcome: str) -> Message:
    details = {"outcome": outcome, "tokens": 500, "messages": 4}
    return Message(
        role="system", id=outcome, kind=COMPACTION_ATTEMPT_KIND, visible=False, details=details,
        parts=(Text("no answer from the model"),),
    )  # fmt: skip


def _compacted(name: str = "compacted", **more: Any) -> ck.Session:
    """Return a session with a good compaction, one whose summary failed, one that failed, and a
    fall without a mark."""
    asked = [user(f"{name} {i} " + "x" * 4000) for i in range(6)]
    sizes = (1000, 600, 500, 510, 2600, 700)
    replies = [
        assistant("a", usage=usage(n), model="gpt-5", time=60.0 * i) for i, n in enumerate(sizes)
    ]
    return session(
        *(asked[0], replies[0]),
        summarised([asked[0]], tokens_before=1000, tokens_after=500, trigger="auto", method="tail"),
        *(asked[1], replies[1]),
        summarised(
            [asked[1]], tokens_before=600, tokens_after=400,
            details={SUMMARY_ERROR_KEY: "the model was busy"},
        ),
        *(asked[2], replies[2], _attempt("failed"), _attempt("skipped")),
        *(asked[3], replies[3], asked[4], replies[4], asked[5], replies[5]),
        **{"id": name, "title": name, "context_window": 3000, **more},
    )  # fmt: skip


def _shrinking(name: str, *sizes: tuple[int, int], **more: Any) -> ck.Session:
    log: list[Any] = [user()]
    for before, after in sizes:
        log += [
            summarised([], tokens_before=before, tokens_after=after, method="tail"),
            assistant(usage=usage(after)),
        ]
    return session(*log, id=name, title=name, **more)


def _tools() -> ck.Session:
    """Return a session with a shortened result, a summary and dropped messages."""
    head, ask, (a, r), last = (
        system("s" * 40), user("u" * 80), step("bash", "y" * 400, command="ls"), user("end"),
    )  # fmt: skip
    b, q = step("read_file", "z" * 800, path="src/a.py")
    short = result("y" * 40, a, id="short")
    reply = assistant("seen", usage=usage(900), time=10.0)
    return session(
        *(head, ask, a, r, b, q, reply),
        Edit(kind="shortened", id="e0", targets=(r.id,), inserted=(short,), reason="old result"),
        Edit(
            kind="summarised", id="e1", targets=(ask.id, a.id, "short"), reason="too long",
            inserted=(Message(role="summary", id="sum", parts=(Text("m" * 120),)),),
        ),
        last,
        assistant("done", usage=usage(400), time=20.0),
        Edit(kind="dropped", id="e2", targets=(b.id, q.id), reason="stale"),
        id="tools", title="tools", context_window=4000,
    )  # fmt: skip


def _turn(agent: str, number: int, tokens: int, **more: Any) -> Message:
    return Message(
        role="assistant", id=f"t{number}", kind="turn", agent=agent, turn=number,
        usage=usage(tokens, output=number + 3), details={"warn_at": 2500, "cutover_at": 4000},
        **more,
    )  # fmt: skip


def _team() -> ck.Session:
    turns = [_turn(("Dev", "Rev")[n % 2], n, 900 + 350 * n) for n in range(6)]
    return session(*turns[:3], summarised([]), *turns[3:], id="team", title="team")


def _alternating() -> ck.Session:
    """Return a session of two agents that take turns."""
    replies = [
        assistant(f"reply {n}", agent=("Dev", "Rev")[n % 2], usage=usage(90 + 40 * n))
        for n in range(6)
    ]
    return session(user("Write it, then test it."), *replies, id="pair", title="pair")


def _rules() -> ck.Session:
    """Return a session in which a rule of the user goes out of sight and is acted against."""
    old = [user("Never touch src/a.py or src/b.py."), assistant("I see.", usage=usage(200))]
    touch = step("write_file", "ok", path="src/b.py", content="x")
    return session(
        *(*old, summarised(old, "src/a.py", tokens_before=200, tokens_after=40)),
        *(user("go"), assistant("now src/b.py", usage=usage(90)), *touch),
        *(user("Always run the tests."), assistant("yes", usage=usage(120))),
        id="rules", title="rules",
    )  # fmt: skip


def _runs(sessions: int = 6) -> pd.DataFrame:
    settings = (
        ("a", 1.0, 0.5, 1, 10), ("b", 2.0, 0.1, 2, 10), ("<c>", 2.6, 0.2, 1, 20),
        ("d" * 40, 2.6, 0.2, 1, 20), ("e", 0.5, 0.05, 2, 20), ("f", 9.0, 0.9, 3, 30),
    )  # fmt: skip
    rows = [
        {
            "session": f"s{i}", "rules": rules, "cost_usd": cost + i, "cost_low_usd": cost + i - 2,
            "cost_high_usd": cost + i + 2, "needed_later_loss": loss, "keep": keep, "window": window,
            "first_call_over_window": 4 if rules == "e" else None,
            "session_notes": "The log has no prices." if i == 2 else None,
            "prediction_error": 0.01 * i, "unexplained_miss_share": 0.004 * i,
        }
        for i in range(sessions)
        for rules, cost, loss, keep, window in settings
    ]  # fmt: skip
    return pd.DataFrame(rows)


def _held_back() -> ck.Session:
    held = {"call": 7, "guard": "AntiThrash", "why": "closed"}
    return _shrinking(
        "held", (100, 95), (100, 97), (100, 101), (80, 20), details={"replay": {"held": [held]}}
    )


def _pruned() -> ck.Session:
    return ck.replay(
        _growing(12),
        ck.presets.pi(context_window=40_000, keep_recent_tokens=4000, summariser="fixed"),
    )


SCENARIOS: dict[str, Callable[[], Chart]] = {
    "budget": lambda: ck.plots.budget(_team()),
    "budget of sessions": lambda: ck.plots.budget([_team(), _alternating()]),
    "cache": lambda: ck.plots.cache(_growing(6, gap=400.0)),
    "cache of a replay": lambda: ck.plots.cache(_pruned()),
    "calibration": lambda: ck.plots.calibration(_growing(6)),
    "composition": lambda: ck.plots.composition(_compacted()),
    "composition of many calls": lambda: ck.plots.composition(_growing(61)),
    "composition of one call": lambda: ck.plots.composition(_tools(), 1),
    "diff": lambda: ck.plots.diff(_tools(), 1),
    "diff of a shortened result": lambda: ck.plots.diff(_tools(), 0),
    "frontier": lambda: ck.plots.frontier(_runs()),
    "frontier of few": lambda: ck.plots.frontier(_runs(2)),
    "growth": lambda: ck.plots.growth(_compacted()),
    "growth of several": lambda: ck.plots.growth([_compacted(), _alternating(), _growing(4)]),
    "growth of a replay": lambda: ck.plots.growth(
        {"pruned": _pruned(), "failed": _compacted(), "pair": _alternating()}, small=True
    ),
    "heatmap": lambda: ck.plots.heatmap(_runs(), x="keep", y="window"),
    "heatmap of few": lambda: ck.plots.heatmap(
        _runs(2), x="keep", y="window", z="needed_later_loss"
    ),
    "idle": lambda: ck.plots.idle(_growing(5, gap=900.0)),
    "loss": lambda: ck.plots.loss(_rules()),
    "loss of several": lambda: ck.plots.loss(_pruned()),
    "savings": lambda: ck.plots.savings(_shrinking("one", (100, 40), (50, 60))),
    "savings of several": lambda: ck.plots.savings(
        [_shrinking("one", (100, 40)), _shrinking("two", (5000, 1200)), _compacted()]
    ),
    "strip": lambda: ck.plots.strip(_growing(4), 2),
    "strip of a replay": lambda: ck.plots.strip(_pruned(), -1),
    "thrash": lambda: ck.plots.thrash(_held_back(), window=2),
    "thrash by messages": lambda: ck.plots.thrash(_tools(), by="messages"),
    "user_rules": lambda: ck.plots.user_rules(_rules()),
    "views": lambda: ck.plots.views(ck.compare(_alternating(), "views")),
}
"""The charts by name, which begins with that of the function."""


def write_forms(chart: Chart) -> str:
    """Return text, plotly figure and HTML of a chart, one part a line."""
    forms = chart._repr_mimebundle_()
    figure = forms.get(PLOTLY_MIME_TYPE, {})
    layout = figure.get("layout", {})
    lines = [
        *forms["text/plain"].splitlines(),
        *(f"trace {i}: {_write_json(trace)}" for i, trace in enumerate(figure.get("data", ()))),
        *(f"layout {name}: {_write_json(value)}" for name, value in sorted(layout.items())),
        *forms["text/html"].replace("><", ">\n<").splitlines(),
    ]
    return "\n".join(lines) + "\n"


def _write_json(value: Any) -> str:
    def round_numbers(part: Any) -> Any:
        if isinstance(part, dict):
            return {k: round_numbers(v) for k, v in part.items()}
        if isinstance(part, (list, tuple)):
            return [round_numbers(v) for v in part]
        return float(f"{part:.9g}") if isinstance(part, float) else part

    return json.dumps(round_numbers(value), ensure_ascii=False, sort_keys=True)


def get_reference(name: str) -> Path:
    """Return where the reference of a chart stands."""
    return REFERENCES / f"{name.replace(' ', '-')}.txt"


if __name__ == "__main__":
    REFERENCES.mkdir(exist_ok=True)
    for each, draw in SCENARIOS.items():
        get_reference(each).write_text(write_forms(draw()), encoding="utf-8")
