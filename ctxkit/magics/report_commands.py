"""`%context reports` and `report`: what filled the window at the end of each turn, as kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctxkit.display.markup import line
from ctxkit.magics.arguments import option, word
from ctxkit.magics.subcommands import Subcommand
from ctxkit.magics.table_commands import TableLine
from ctxkit.magics.texts import Page

if TYPE_CHECKING:
    import pandas as pd

    from ctxkit.agent.kept_reports import KeptReports
    from ctxkit.composition import ContextReport
    from ctxkit.magics.kit_state import KitState


@dataclass(frozen=True)
class ReportList(TableLine):
    """The line of `%context reports`."""

    limit: int = option("how many, the newest", default=20)


@dataclass(frozen=True)
class OneReport(TableLine):
    """The line of `%context report`."""

    id: str = word("its id, as `%context reports` has it", default="")


def reports(kit: KitState, asked: ReportList) -> pd.DataFrame:
    """Return one row a kept report, the newest first."""
    import pandas as pd

    found = _kept(kit, asked.session).all()[::-1]
    columns = {
        "ts": [kept.time for kept in found],
        "turn": [kept.turn for kept in found],
        "call": [kept.report.call for kept in found],
        "prompt_tokens": [kept.report.prompt_tokens for kept in found],
        "share": [kept.report.full for kept in found],
    }
    index = pd.Index([kept.id for kept in found], name="report", dtype="object")
    return pd.DataFrame(columns, index=index).head(max(asked.limit, 0))


def report(kit: KitState, asked: OneReport) -> ContextReport:
    """Return a kept report, whole; without an id the newest."""
    held = _kept(kit, asked.session)
    newest = held.all()[-1:] if not asked.id else []
    return newest[0].report if newest else held.of(asked.id).report


def count(kit: KitState, asked: TableLine) -> Page:
    """Say how many tokens the next prompt has: by the provider's own count, and by ours."""
    from ctxkit.agent.threads import run
    from ctxkit.models.model import Request

    live = kit.lives.get(asked.session)
    ask = getattr(live.agent.model, "count", None)
    messages, tokens = live.agent.compactor.context.preview()
    tools = tuple(t.schema for t in live.agent.tools.values())
    told = None if ask is None else run(ask(Request(messages=messages, tools=tools)))
    name = line(live.agent.model.name, 80)
    if not told:
        return Page(f"{tokens:,} tokens, counted here; {name} counts no prompt that is not sent.")
    return Page(f"{told:,} tokens by {name}; {tokens:,} counted here ({tokens / told - 1:+.1%}).")


def _kept(kit: KitState, name: str | None) -> KeptReports:
    from ctxkit.agent.kept_reports import KeptReports
    from ctxkit.store.workspace import Workspace

    wanted = name or kit.lives.standing
    if wanted is not None and wanted in kit.lives:
        return kit.lives.get(wanted).reports
    return KeptReports(Workspace(), kit.session(name).id)


SUBCOMMANDS = (
    Subcommand(
        "reports", "The reports that were kept, one a turn, with id and date.", ReportList, reports
    ),
    Subcommand("count", "The next prompt, as the provider counts it.", TableLine, count),
    Subcommand("report", "A kept report, whole; without an id the newest.", OneReport, report),
)
