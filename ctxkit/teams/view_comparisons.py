"""A recorded team under several views: what each agent would have been sent, billed, and lost."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from ctxkit.display.markup import escape, line
from ctxkit.display.sheets import COLUMNS, INK, Box, Heading, Tabular
from ctxkit.engine import log_of, run
from ctxkit.frames.occupancy import prompts as plain_prompts
from ctxkit.heard import agent_logs, asked_logs, cuts_of, team_turns, turn_table
from ctxkit.metrics.bills import Sheet
from ctxkit.metrics.forgotten import Forgotten
from ctxkit.metrics.indexes import Index
from ctxkit.metrics.item_arrays import ItemArrays
from ctxkit.metrics.loss import columns
from ctxkit.metrics.money import recorded
from ctxkit.metrics.shared_prefixes import SentByRun
from ctxkit.metrics.shown import shown_by
from ctxkit.metrics.tallies import bill
from ctxkit.policies.rules import Rules
from ctxkit.replays import window
from ctxkit.teams.declared_blocks import with_blocks
from ctxkit.teams.measured_logs import measured
from ctxkit.teams.team_views import SHARED, views_of
from ctxkit.titles import title_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ctxkit.engine import Run
    from ctxkit.heard import AgentLog, TeamTurn
    from ctxkit.session import Session
    from ctxkit.teams.team_views import TeamView

RECORDED = "recorded"
ALL = "all agents"
_WORDS = {
    "prompt_tokens": ("prompt tokens", "Tokens of the prompts of all its calls, together."),
    "peak_tokens": ("peak", "The largest prompt."),
    "token_share": ("of shared", "Prompt tokens, as a share of those where all hear everything."),
    "cost_usd": ("cost", "Dollars: prompts with the record's cache behaviour, and replies."),
    "needed_later_loss": (
        "needed, lost",
        "Of what was said and is named by the agent later: the share that it did not see then.",
    ),
}
_COLUMNS = ("agent", "view", "calls_n", "prompt_tokens", "peak_tokens", "token_share", "cost_usd",
            "needed_later_loss", "needed_lost_n", "used_again_n", "source")  # fmt: skip


class ViewComparison(pd.DataFrame):
    """A frame with a row for each agent and view, and one for all agents together.

    Columns: `agent view calls_n prompt_tokens peak_tokens token_share cost_usd needed_later_loss
    needed_lost_n used_again_n source`. `turns` has what each turn was billed under each view, in
    the columns of fuseraft's snapshots; ``plots.views(comparison)`` charts it. Agents that others
    ask as tools have rows, too, and no turns: they hear nobody, so no view changes them.
    """

    _metadata = ["turns", "title", "limits"]  # noqa: RUF012  pandas' own way to carry attributes

    turns: pd.DataFrame
    title: str
    limits: dict[str, int]

    @property
    def _constructor(self) -> Callable[..., pd.DataFrame]:
        return pd.DataFrame

    @property
    def caption(self) -> str:
        """What the figures rest on."""
        return (
            "Each view keeps the recorded replies and changes what their prompts held: it tells "
            "the bill and what was out of sight, not what the agents would have done. No view "
            "compacts. Files of a declared context are known as far as the record wrote them. Lost "
            "is counted against all that the team had said by then."
        )

    def _tabular(self) -> Tabular:
        heads = [Heading(*words) for words in _WORDS.values()]
        rows = []
        for row in self.to_dict("records"):
            first = row["agent"] if row["view"] == RECORDED else ""
            cells = (Box(_cell(c, row[c]), _value(row[c])) for c in _WORDS)
            rows.append((Box(line(str(first), 30)), Box(line(str(row["view"]), 40)), *cells))
        return Tabular((Heading("agent", number=False), Heading("view", number=False), *heads),
                       tuple(rows))  # fmt: skip

    def to_text(self) -> str:
        """Return the display as lines of text, 80 columns wide."""
        return "\n".join([self.title, "", self._tabular().to_text(), "",
                          *wrap(self.caption, COLUMNS)])  # fmt: skip

    def _repr_html_(self) -> str:
        basis = escape(self.caption, 900)
        told = f"<details><summary>What these figures rest on</summary>{basis}</details>"
        return (
            f'<div class="ctxkit-views" style="{INK}"><strong>{escape(self.title, 120)}</strong>'
            f"{self._tabular().to_html()}{told}</div>"
        )

    def __repr__(self) -> str:
        return self.to_text()


class _Seen(NamedTuple):
    """One agent under one view."""

    row: dict[str, Any]
    prompts: Sequence[int | None]
    cuts: Sequence[int]


def compare_views(
    session: Session, views: object = "views", *, loss: bool = True, reuse: bool = False
) -> ViewComparison:
    """Return what a recorded team's agents would have been sent under each of several views.

    Args:
        session: a team's session, a session with subagents, or a log with several agents.
        views: "views" for the usual ones, or names with the keys of fuseraft's ContextWindow
            (`TextOnly`, `ExcludeAgents`, `MaxTurnAge`, ...), `Context` or `Isolation`.
        loss: work out what was lost too.
        reuse: of the record, how summaries are billed (see `ck.compare`).

    Raises:
        BadArguments: only one agent speaks in it, or a view has other keys.
    """
    found, turns = views_of(views), team_turns(session)
    shown: Mapping[str, Any] = session.details.get("views", {})
    logs = [measured(log, shown.get(log.agent, {})) for log in agent_logs(session)]
    asked = asked_logs(session)
    seen = {RECORDED: [_recorded(log, reuse=reuse) for log in (*logs, *asked)]}
    for view in found:
        given = with_blocks(logs, turns, view.context) if view.context else logs
        pairs = zip(given, logs, strict=True)
        seen[view.name] = [_viewed(log, view, whole, loss=loss) for log, whole in pairs]
        seen[view.name] += [_hears_nobody(log, reuse=reuse, loss=loss) for log in asked]
    whole = ("prompt_tokens", "peak_tokens", "needed_lost_n", "used_again_n")
    rows = pd.DataFrame(_rows([*logs, *asked], seen), columns=list(_COLUMNS))
    made = ViewComparison(rows.astype(dict.fromkeys(whole, "Int64")))
    made.turns, made.title = _turns(logs, turns, seen), title_of(session, COLUMNS)
    made.limits = {k: n for k in ("warn_at", "cutover_at") if (n := session.details.get(k))}
    return made


def _recorded(log: AgentLog, *, reuse: bool) -> _Seen:
    sizes, source = plain_prompts(log.record)
    known = [n for n in sizes if n]
    row = {"prompt_tokens": sum(known) if known else None, "peak_tokens": max(known, default=None),
           "cost_usd": recorded(log.record, reuse=reuse).own_usd, "source": source}  # fmt: skip
    return _Seen(row, sizes, cuts_of(log.record))


def _hears_nobody(log: AgentLog, *, reuse: bool, loss: bool) -> _Seen:
    """Return what an agent that is asked as a tool is sent: no view changes it, nothing is lost."""
    seen = _recorded(log, reuse=reuse)
    lost = {"needed_lost_n": 0, "used_again_n": 0} if loss else {}
    return seen._replace(row={**seen.row, **lost})


def _viewed(log: AgentLog, view: TeamView, whole: AgentLog, *, loss: bool) -> _Seen:
    """Return what an agent would have been sent under a view; `whole`: its log as it is kept."""
    base = log_of(log.shared, Rules(), anchored=log.anchored)
    done = run(base, view.rules(log.agent), window(log.shared))
    sent, sheet = SentByRun(done), Sheet.of(whole.record, whole.known)
    invoice = bill(sheet, sent)
    row = {"prompt_tokens": invoice.prompts, "peak_tokens": invoice.peak,
           "cost_usd": invoice.total_usd, "source": "derived" if sheet.has_usage else "estimated",
           **(_lost(log, done) if loss and log.shared.has_text else {})}  # fmt: skip
    return _Seen(row, [sent.prompt(c) for c in range(len(sheet.billed))], ())


def _lost(log: AgentLog, done: Run) -> dict[str, Any]:
    items = ItemArrays(log.shared, Index(log.anchored))
    found = columns(Forgotten(items, shown_by(items, done)))
    return {k: found[k] for k in ("needed_later_loss", "needed_lost_n", "used_again_n")}


def _rows(logs: Sequence[AgentLog], seen: dict[str, list[_Seen]]) -> list[dict[str, Any]]:
    """Return the rows, agent by agent, and those of all agents together at the end."""
    out = []
    for n, log in enumerate(logs):
        rows = {view: of[n].row for view, of in seen.items()}
        out += _shares(log.agent, rows, len(log.record.calls))
    sums = {view: _summed([s.row for s in of]) for view, of in seen.items()}
    return [*out, *_shares(ALL, sums, sum(len(log.record.calls) for log in logs))]


def _shares(agent: str, rows: dict[str, dict[str, Any]], calls: int) -> list[dict[str, Any]]:
    whole = rows[SHARED]["prompt_tokens"]
    return [
        {"agent": agent, "view": view, "calls_n": calls, **row,
         "token_share": row["prompt_tokens"] / whole if whole and row["prompt_tokens"] else None}
        for view, row in rows.items()
    ]  # fmt: skip


def _summed(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of all agents together; one that is missing for an agent is missing."""

    def total(name: str) -> Any:
        values = [r.get(name) for r in rows]
        return None if None in values else sum(values)

    lost, again = total("needed_lost_n"), total("used_again_n")
    peaks = [r["peak_tokens"] for r in rows if r["peak_tokens"]]
    return {"prompt_tokens": total("prompt_tokens"), "peak_tokens": max(peaks, default=None),
            "cost_usd": total("cost_usd"), "needed_lost_n": lost, "used_again_n": again,
            "needed_later_loss": lost / again if again else None,
            "source": rows[0]["source"]}  # fmt: skip


def _turns(
    logs: Sequence[AgentLog], turns: Sequence[TeamTurn], seen: dict[str, list[_Seen]]
) -> pd.DataFrame:
    names = {log.agent for log in logs}
    kept = [t for t in turns if t.agent in names and t.calls]
    outputs = {
        log.agent: [c.message.usage.output_tokens if c.message.usage else None
                    for c in log.record.calls] for log in logs
    }  # fmt: skip
    tables = []
    for view, of in seen.items():
        pairs = [*zip(logs, of, strict=False)]  # who is asked takes no turn
        prompts = {log.agent: s.prompts for log, s in pairs}
        cuts = {log.agent: s.cuts for log, s in pairs}
        tables.append(turn_table(kept, prompts, outputs, cuts).assign(view=view))
    return pd.concat(tables, ignore_index=True)


def _cell(column: str, value: Any) -> str:
    if pd.isna(value):
        return ""
    if column in ("token_share", "needed_later_loss"):
        return f"{value:.0%}" if value >= 0.1 or not value else f"{value:.1%}"
    return f"${value:,.4g}" if column == "cost_usd" else f"{int(value):,}"


def _value(value: Any) -> float | None:
    return None if pd.isna(value) else float(value)
