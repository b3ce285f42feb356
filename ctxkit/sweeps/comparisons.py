"""One session under several rules, beside what was recorded: a frame with a display of its own."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from ctxkit.cache.words import foretold
from ctxkit.display.amounts import known, number
from ctxkit.display.markup import NO_MATH, escape, line
from ctxkit.display.sheets import COLUMNS as WIDE
from ctxkit.display.sheets import INK, Box, Heading, Tabular
from ctxkit.metrics.elongation import FLOOR, LEVEL
from ctxkit.readers.given import of_session
from ctxkit.replays import session_of
from ctxkit.sweeps.batches import Bench, Options
from ctxkit.sweeps.renamed import Scores
from ctxkit.sweeps.score_columns import COLUMNS, typed
from ctxkit.sweeps.scores import row_of
from ctxkit.sweeps.sweep_runs import rows_done, settings_of
from ctxkit.sweeps.verdicts import glance
from ctxkit.titles import title_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.engine import Run
    from ctxkit.policies.rules import Rules
    from ctxkit.session import Session
    from ctxkit.sweeps.grids import Refused, Several

SHOWN = {
    "prompt_tokens": "prompt tokens",
    "peak_tokens": "peak",
    "cost_usd": "cost",
    "cost_low_usd": "80 %: from",
    "cost_high_usd": "to",
    "real_low_usd": "of real runs",
    "told_apart": "told apart",
    "needed_later_loss": "needed, lost",
    "summary_recall": "kept by summaries",
    "cuts_n": "cuts",
    "token_savings": "saved: tokens",
    "message_savings": "messages",
    "summary_tokens": "summaries",
    "thrash": "thrash",
    "unpaid_cuts_n": "unpaid",
    "suppressed_n": "held back",
    "hidden_messages_n": "hidden messages",
    "hidden_results_n": "results",
}
"""Columns of the display and their heads; the frame has them all."""
_SAME = 0.01
"""Own prices of a log and those of the table that differ by less are the same."""
_SHARES = ("token_savings", "message_savings", "needed_later_loss", "summary_recall")
_ORDER = {"cheaper": -1.0, "not told apart": 0.0, "dearer": 1.0}
_GROUPS = {
    "cost_usd": "dollars", "cost_low_usd": "dollars", "cost_high_usd": "dollars",
    "real_low_usd": "dollars", "told_apart": "dollars",
    "needed_later_loss": "loss", "summary_recall": "loss",
    "token_savings": "saved by compactions", "message_savings": "saved by compactions",
    "summary_tokens": "saved by compactions",
    "hidden_messages_n": "hidden", "hidden_results_n": "hidden",
}  # fmt: skip
"""Heads that stand together, and under what."""
_MEANINGS = {c.name: c.meaning for c in COLUMNS}


class Comparison(Scores):
    """A frame of scores, one row a setting, the recorded session first, indexed by the names of the
    rules.

    It takes every verb of a DataFrame (whose results are plain frames). Its display says the chief
    figures and one word of each setting, in the order asked for until a head is clicked; `detail`
    has the rest. `replays` holds the session of each row; ``plots.growth(comparison)`` charts them.
    """

    _metadata = ["replays"]  # noqa: RUF012  pandas' own way to carry attributes

    replays: Mapping[str, Session]

    @property
    def caption(self) -> str:
        """What the figures rest on, in a sentence or two."""
        first = self.iloc[0]
        names = ("prediction_error", "prediction_low", "prediction_high", "prediction_note")
        how = foretold(*(first[n] if known(first[n]) else None for n in names))
        riddles = (
            f" {_percent(first['unexplained_misses'])} of the calls missed the cache without an "
            "explanation."
            if known(first["unexplained_misses"])
            else ""
        )
        return (
            f"{number(first['calls_n'])} calls. Replays keep the recorded trajectory: "
            "they tell the bill and what was out of sight, not what the agent would have done. "
            f"{how}{riddles} "
            f"Summaries are billed as fresh input and output.{self._prices()}{self._apart()}"
        )

    def _apart(self) -> str:
        """Say what the intervals of the costs are of, where there are some."""
        if not self["real_low_usd"].notna().any():
            return ""
        return (
            " Of real runs: the cost with as many calls as such policies were found to take "
            f"({LEVEL:.0%} interval). Not told apart: the interval comes within {FLOOR:.0%} of the "
            "record, which is noise."
        )

    def _prices(self) -> str:
        """Say where the log's own prices are others than the table's."""
        own, table = self["cost_usd"].iloc[0], self["table_usd"].iloc[0]
        if not (known(own) and known(table)) or abs(own - table) <= _SAME * own:
            return ""
        return (
            f" By the table of prices, as replays are billed, the record would cost ${table:,.4g}."
        )

    @property
    def notes(self) -> list[str]:
        """What the session's log cannot say or says wrongly."""
        told = self.replays.get("recorded") if hasattr(self, "replays") else None
        return [] if told is None else list(told.notes)

    @property
    def detail(self) -> Tabular:
        """Every figure that says how a setting did, as a table."""
        heads = [Heading(h, _MEANINGS[c], group=_GROUPS.get(c, "")) for c, h in SHOWN.items()]
        rows = [
            (Box(line(str(name), 80)), *(Box(_shown(c, row), _number(c, row[c])) for c in SHOWN))
            for name, row in self.iterrows()
        ]
        return Tabular((Heading("rules", _MEANINGS["rules"], number=False), *heads), tuple(rows))

    def to_text(self) -> str:
        """Return the display as lines of text, 80 columns wide."""
        errors = [
            f"{line(str(n), 60)}: {line(str(e), 300)}" for n, e in self["error"].items() if known(e)
        ]
        made = glance(self)
        under = [*errors, made.legend, self.caption, *(f"Note: {line(n, 400)}" for n in self.notes)]
        return "\n".join(
            [
                self._title(),
                "",
                made.to_text(),
                "",
                *(w for told in under for w in wrap(told, WIDE)),
            ]
        )

    def _title(self) -> str:
        told = self.replays.get("recorded") if hasattr(self, "replays") else None
        return (
            title_of(told, WIDE) if told is not None else line(str(self["session"].iloc[0]), WIDE)
        )

    def _repr_html_(self) -> str:
        errors = "".join(
            f"<li>{escape(str(n), 60)}: {escape(str(e), 300)}</li>"
            for n, e in self["error"].items()
            if known(e)
        )
        told = "".join(f"<br>Note: {escape(n, 400)}" for n in self.notes)
        basis = (
            "<details><summary>What these figures rest"
            f" on</summary>{escape(self.caption, 1300)}</details>"
        )
        full = f"<details><summary>All figures</summary>{self.detail.to_html()}</details>"
        hover = escape(f"id {line(str(self['session'].iloc[0]), 120)}", 200)
        return (
            f'<div class="ctxkit-comparison {NO_MATH}" style="{INK}">'
            f'<strong title="{hover}">{escape(self._title(), 120)}</strong>'
            f"{glance(self).to_html()}{f'<ul>{errors}</ul>' if errors else ''}"
            f"{basis}{full}{told}</div>"
        )

    def __repr__(self) -> str:
        return self.to_text()


@of_session
def compare(
    session: Session,
    rules: Several | Mapping[str, Any] = "all",
    *,
    loss: bool = True,
    reuse: bool = False,
    progress: bool = True,
) -> Comparison:
    """Return a session's score as recorded and under each of several rules, one row each.

    At a prompt, what would take longer than some seconds goes over all cores. Interrupted (Ctrl-C),
    it returns the rows that are done, and says so in ``frame.attrs["interrupted"]``.

    Of a team, `"views"` or a dictionary of views gives a row for each agent and view, as
    `teams.view_comparisons.compare_views` says.

    Args:
        session: a recorded session, the path of a log, or a list of messages; of a replay the
            recorded one is taken.
        rules: rules, policies, names of presets or chains in a list, or ``"all"`` for every preset;
            of a team also views.
        loss: work out what was lost too.
        reuse: the call that writes a summary reads the cached prompt; else it sends what it
            summarises afresh.
        progress: show a bar where it takes longer than a second.

    Raises:
        BadArguments: it is no session, or there are no rules.
        UnknownPreset: a name means nothing; the sentence names the nearest.
    """
    if isinstance(rules, Mapping) or (isinstance(rules, str) and rules == "views"):
        above: Any = import_module("ctxkit.teams.view_comparisons")  # only teams have views
        views: Comparison = above.compare_views(session, rules, loss=loss, reuse=reuse)
        return views
    settings, bench = settings_of(rules), _Remembering(session.origin or session)
    recorded = row_of(bench.session, bench.base, loss=loss, reuse=reuse)
    given, options = [bench.session], Options(loss, reuse)
    done, interrupted = rows_done(
        given, settings, options, "comparison", progress=progress, bench=lambda _: bench
    )
    rows = [recorded, *done]
    frame = Comparison(typed(rows).set_axis([r["rules"] for r in rows], axis=0))
    known = {row["rules"] for row in done if not row.get("error")}
    frame.replays = LazyReplays(bench, {s.label: s.rules for s in settings if s.label in known})
    frame.attrs["interrupted"] = interrupted
    return frame


class _Remembering(Bench):
    """A bench that runs rules once: what a worker ran, when it is asked for."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._runs: dict[int, tuple[Any, Run]] = {}

    def run(self, rules: Rules | Refused) -> Run:
        """Return the run of the session under rules."""
        if id(rules) not in self._runs:
            self._runs[id(rules)] = rules, super().run(rules)
        return self._runs[id(rules)][1]


class LazyReplays(Mapping[str, "Session"]):
    """A recorded session and its replays by name, each made of its run when it is asked for."""

    def __init__(self, bench: Bench, rules: Mapping[str, Rules | Refused]) -> None:
        self._bench, self._rules = bench, rules
        self._made = {"recorded": bench.session}

    def __getitem__(self, name: str) -> Session:
        if name not in self._made:
            run = self._bench.run(self._rules[name])
            self._made[name] = session_of(self._bench.session, run)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(["recorded", *self._rules])

    def __len__(self) -> int:
        return 1 + len(self._rules)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


def _shown(column: str, row: Any) -> str:
    """Return a cell; an interval stands in one, and is sorted by its lower end."""
    if column != "real_low_usd" or not known(row[column]):
        return _cell(column, row[column])
    low, high = row[column], row["real_high_usd"]
    return _cell("cost_usd", low) + (f"–{high:,.2f}" if high > low else "")


def _number(column: str, value: Any) -> float | None:
    """Return what a cell is sorted by."""
    if not known(value):
        return None
    return _ORDER.get(str(value)) if column == "told_apart" else float(value)


def _cell(column: str, value: Any) -> str:
    if not known(value):
        return ""
    if column == "thrash":
        return "yes" if value else "no"
    if column in _SHARES:
        return _percent(value)
    if column == "told_apart":
        return line(str(value), 40)
    return f"${value:,.2f}" if column.endswith("_usd") else number(value)


def _percent(value: Any) -> str:
    return f"{value:.1%}" if abs(value) < 0.1 else f"{value:.0%}"
