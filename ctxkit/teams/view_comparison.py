"""Compare views of a recorded team by tokens, dollars and lost information."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from ctxkit._internal.formatting import escape_html, sanitize_line
from ctxkit._internal.tables import TERMINAL_COLUMNS, TEXT_COLOR_CSS, Cell, Column, Table
from ctxkit.engine import log_from_session, run_rules
from ctxkit.engine.replay import find_context_window
from ctxkit.metrics.cost.ledger import build_recorded_ledger
from ctxkit.metrics.cost.replay_bill import ReplayCostModel, bill_replay
from ctxkit.metrics.item_index import ItemIndex
from ctxkit.metrics.items import MessageItemCache
from ctxkit.metrics.loss import make_loss_columns
from ctxkit.metrics.loss_analysis import LossAnalysis
from ctxkit.metrics.prompt_sizes import RunPrompts
from ctxkit.metrics.prompt_sizes import get_prompt_sizes as plain_prompts
from ctxkit.metrics.team_log import (
    find_compacted_calls,
    get_agent_logs,
    get_team_turns,
    get_tool_agent_logs,
    tabulate_turns,
)
from ctxkit.metrics.visibility import get_run_visibility
from ctxkit.policies.rules import Rules
from ctxkit.session.titles import get_title
from ctxkit.teams.alternative_views import (
    SHARED_VIEW,
    add_declared_context,
    parse_views,
    with_view_sizes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ctxkit.engine import Run
    from ctxkit.metrics.team_log import AgentLog, TeamTurn
    from ctxkit.session.session import Session
    from ctxkit.teams.alternative_views import TeamView

RECORDED_VIEW = "recorded"
ALL_AGENTS = "all agents"
_HEADINGS = {
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

    def _tabular(self) -> Table:
        heads = [Column(*words) for words in _HEADINGS.values()]
        rows = []
        for row in self.to_dict("records"):
            first = row["agent"] if row["view"] == RECORDED_VIEW else ""
            cells = (Cell(_format_cell(c, row[c]), _as_number(row[c])) for c in _HEADINGS)
            rows.append(
                (
                    Cell(sanitize_line(str(first), 30)),
                    Cell(sanitize_line(str(row["view"]), 40)),
                    *cells,
                )
            )
        return Table((Column("agent", number=False), Column("view", number=False), *heads),
                       tuple(rows))  # fmt: skip

    def to_text(self) -> str:
        """Return the display as lines of text, 80 columns wide."""
        return "\n".join([self.title, "", self._tabular().to_text(), "",
                          *wrap(self.caption, TERMINAL_COLUMNS)])  # fmt: skip

    def _repr_html_(self) -> str:
        basis = escape_html(self.caption, 900)
        told = f"<details><summary>What these figures rest on</summary>{basis}</details>"
        return (
            '<div class="ctxkit-views" '
            f'style="{TEXT_COLOR_CSS}"><strong>{escape_html(self.title, 120)}</strong>'
            f"{self._tabular().to_html()}{told}</div>"
        )

    def __repr__(self) -> str:
        return self.to_text()


class _AgentView(NamedTuple):
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
    found, turns = parse_views(views), get_team_turns(session)
    shown: Mapping[str, Any] = session.details.get("views", {})
    logs = [with_view_sizes(log, shown.get(log.agent, {})) for log in get_agent_logs(session)]
    asked = get_tool_agent_logs(session)
    seen = {RECORDED_VIEW: [_view_as_recorded(log, reuse=reuse) for log in (*logs, *asked)]}
    for view in found:
        given = add_declared_context(logs, turns, view.context) if view.context else logs
        pairs = zip(given, logs, strict=True)
        seen[view.name] = [_view_agent(log, view, whole, loss=loss) for log, whole in pairs]
        seen[view.name] += [_view_sub_agent(log, reuse=reuse, loss=loss) for log in asked]
    whole = ("prompt_tokens", "peak_tokens", "needed_lost_n", "used_again_n")
    rows = pd.DataFrame(_agent_rows([*logs, *asked], seen), columns=list(_COLUMNS))
    made = ViewComparison(rows.astype(dict.fromkeys(whole, "Int64")))
    made.turns, made.title = _turn_frame(logs, turns, seen), get_title(session, TERMINAL_COLUMNS)
    made.limits = {k: n for k in ("warn_at", "cutover_at") if (n := session.details.get(k))}
    return made


def _view_as_recorded(log: AgentLog, *, reuse: bool) -> _AgentView:
    sizes, source = plain_prompts(log.record)
    known = [n for n in sizes if n]
    row = {
        "prompt_tokens": sum(known) if known else None,
        "peak_tokens": max(known, default=None),
        "cost_usd": build_recorded_ledger(log.record, reuse=reuse).own_usd,
        "source": source,
    }
    return _AgentView(row, sizes, find_compacted_calls(log.record))


def _view_sub_agent(log: AgentLog, *, reuse: bool, loss: bool) -> _AgentView:
    """Return what an agent that is asked as a tool is sent: no view changes it, nothing is lost."""
    seen = _view_as_recorded(log, reuse=reuse)
    lost = {"needed_lost_n": 0, "used_again_n": 0} if loss else {}
    return seen._replace(row={**seen.row, **lost})


def _view_agent(log: AgentLog, view: TeamView, whole: AgentLog, *, loss: bool) -> _AgentView:
    """Return what an agent would have been sent under a view; `whole`: its log as it is kept."""
    base = log_from_session(log.shared, Rules(), anchored=log.anchored)
    done = run_rules(base, view.rules(log.agent), find_context_window(log.shared))
    sent, sheet = RunPrompts(done), ReplayCostModel.of(whole.record, whole.known)
    invoice = bill_replay(sheet, sent)
    row = {"prompt_tokens": invoice.prompts, "peak_tokens": invoice.peak,
           "cost_usd": invoice.total_usd, "source": "derived" if sheet.has_usage else "estimated",
           **(_count_lost(log, done) if loss and log.shared.has_text else {})}  # fmt: skip
    return _AgentView(row, [sent.prompt(c) for c in range(len(sheet.billed))], ())


def _count_lost(log: AgentLog, done: Run) -> dict[str, Any]:
    items = ItemIndex(log.shared, MessageItemCache(log.anchored))
    found = make_loss_columns(LossAnalysis(items, get_run_visibility(items, done)))
    return {k: found[k] for k in ("needed_later_loss", "needed_lost_n", "used_again_n")}


def _agent_rows(
    logs: Sequence[AgentLog], seen: dict[str, list[_AgentView]]
) -> list[dict[str, Any]]:
    """Return the rows, agent by agent, and those of all agents together at the end."""
    out = []
    for n, log in enumerate(logs):
        rows = {view: of[n].row for view, of in seen.items()}
        out += _with_shares(log.agent, rows, len(log.record.calls))
    sums = {view: _sum_rows([s.row for s in of]) for view, of in seen.items()}
    return [*out, *_with_shares(ALL_AGENTS, sums, sum(len(log.record.calls) for log in logs))]


def _with_shares(agent: str, rows: dict[str, dict[str, Any]], calls: int) -> list[dict[str, Any]]:
    whole = rows[SHARED_VIEW]["prompt_tokens"]
    return [
        {"agent": agent, "view": view, "calls_n": calls, **row,
         "token_share": row["prompt_tokens"] / whole if whole and row["prompt_tokens"] else None}
        for view, row in rows.items()
    ]  # fmt: skip


def _sum_rows(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
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


def _turn_frame(
    logs: Sequence[AgentLog], turns: Sequence[TeamTurn], seen: dict[str, list[_AgentView]]
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
        tables.append(tabulate_turns(kept, prompts, outputs, cuts).assign(view=view))
    return pd.concat(tables, ignore_index=True)


def _format_cell(column: str, value: Any) -> str:
    if pd.isna(value):
        return ""
    if column in ("token_share", "needed_later_loss"):
        return f"{value:.0%}" if value >= 0.1 or not value else f"{value:.1%}"
    return f"${value:,.4g}" if column == "cost_usd" else f"{int(value):,}"


def _as_number(value: Any) -> float | None:
    return None if pd.isna(value) else float(value)
