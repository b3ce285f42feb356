"""`ctxkit.budget`: which turns would have warned and compacted under other thresholds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import traitlets as t

from ctxkit._internal.formatting_and_sanitizing import sanitize_line
from ctxkit.errors import BadArguments
from ctxkit.metrics.frames import frame
from ctxkit.plots.cumulative_agent_input_and_threshold_charts import (
    CumulativeInputAndThresholds,
    draw_cumulative_input_chart,
    get_cumulative_input_data,
)
from ctxkit.widgets.base_widget import ChartWidget, build_javascript_module

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.plots.chart import Chart
    from ctxkit.plots.cumulative_agent_input_and_threshold_charts import CumulativeAgentTokens
    from ctxkit.widgets.data_source import WidgetDataSource

_NAME = 80


class ThresholdHits(NamedTuple):
    """Turns at which one agent would have reached the thresholds, as positions in its list."""

    warned: tuple[int, ...]
    cutovers: tuple[int, ...]


def judge_turns(
    inputs: Sequence[int], cumulative: Sequence[int], warn: int, cutover: int, *, restarts_sum: bool
) -> dict[str, list[int]]:
    """Find the turns at which an agent would have warned and compacted; also run in the browser.

    At or over `cutover` a turn compacts, else at or over `warn` it warns; 0 is off.

    Args:
        inputs: input tokens of each turn.
        cumulative: the sums as recorded; where they fall, the record began again.
        warn: tokens.
        cutover: tokens.
        restarts_sum: sum again after each compaction, not as recorded. Where the record
            began again the sum does too, for no log holds what would have come without that.

    Returns:
        `sums`: the tokens that are judged, one a turn; `warned` and `cutovers`: places of turns.
    """
    total = before = 0
    sums: list[int] = []
    warned: list[int] = []
    cutovers: list[int] = []
    for i, recorded in enumerate(cumulative):
        fresh = i == 0 or recorded < before
        before = recorded
        total = inputs[i] + (0 if fresh else total) if restarts_sum else recorded
        sums.append(total)
        if cutover and total >= cutover:
            cutovers.append(i)
            total = 0 if restarts_sum else total
        elif warn and total >= warn:
            warned.append(i)
    return {"sums": sums, "warned": warned, "cutovers": cutovers}


class BudgetWidget(ChartWidget):
    """The widget that `ctxkit.budget` returns: each agent's sum by turn, with two lines to drag.

    `warn` and `cutover` can be set; `verdict` is what the browser shows.
    """

    _esm = build_javascript_module("budget.js", rules=[judge_turns])
    shared: ClassVar = ("data", "warn", "cutover", "again", "picked")
    warn = t.Int(0, min=0).tag(sync=True)
    """Tokens at which a turn warns; 0: off."""
    cutover = t.Int(0, min=0).tag(sync=True)
    """Tokens at which a turn compacts; 0: off."""
    again = t.Bool(False).tag(sync=True)  # noqa: FBT003
    """True if sums start again after each compaction."""
    picked = t.List([]).tag(sync=True)
    """The turn that was clicked: number of the agent, place among its turns."""

    def __init__(
        self,
        feed: WidgetDataSource,
        *,
        warn: int | None = None,
        cutover: int | None = None,
        again: bool = False,
    ) -> None:
        check_thresholds(warn=warn, cutover=cutover)
        self._found = CumulativeInputAndThresholds((), (), None, None)
        super().__init__(feed, again=again)
        first = self._found.warn_at or 0, self._found.cutover_at or 0
        if warn is None and cutover is None and not any(first):
            first = suggest_thresholds(self._found.agents)
        self.warn = first[0] if warn is None else warn
        self.cutover = first[1] if cutover is None else cutover

    @property
    def verdict(self) -> dict[str, ThresholdHits]:
        """The turns that would have warned and compacted, by agent, as in the browser."""
        verdict = {}
        for a in self._found.agents:
            columns = a.inputs.tolist(), a.cumulative.tolist()
            hits = judge_turns(*columns, self.warn, self.cutover, restarts_sum=self.again)
            verdict[a.name] = ThresholdHits(tuple(hits["warned"]), tuple(hits["cutovers"]))
        return verdict

    def _build_data(self) -> dict[str, Any]:
        titles = self.feed.titles
        table = self.feed.frame
        self._found = get_cumulative_input_data(
            frame(self.feed.sessions(), per="turn") if table is None else table
        )
        agents = tuple(a._replace(name=_agent_title(a.name, titles)) for a in self._found.agents)
        self._found = self._found._replace(agents=agents)
        return {
            "agents": [pack_agent_for_browser(a) for a in agents],
            "compactions": list(self._found.compactions),
            "suggested": self._suggested,
        }

    @property
    def _suggested(self) -> list[int] | None:
        """The lines that a log without a budget begins with; None where the log has one."""
        is_set = self._found.warn_at or self._found.cutover_at
        return None if is_set else list(suggest_thresholds(self._found.agents))

    def _build_chart(self) -> Chart:
        cutovers = {name: len(hits.cutovers) for name, hits in self.verdict.items()}
        at = self._found._replace(warn_at=self.warn or None, cutover_at=self.cutover or None)
        chart = draw_cumulative_input_chart(at, cutovers)
        if self._found.agents and [self.warn, self.cutover] == self._suggested:
            return replace(chart, caption=f"{chart.caption} {_SUGGESTED}")
        return chart


_SUGGESTED = (
    "The log sets no budget, so the lines stand at 60 and 80 % of the highest sum: a first guess."
)


def suggest_thresholds(agents: Sequence[CumulativeAgentTokens]) -> tuple[int, int]:
    """Return thresholds for warning and cut-over in tokens, for a log that has neither.

    They are 60 and 80 % of the highest sum, rounded to two digits; 0 and 0 without any sum.
    """
    peak = max((int(a.cumulative.max()) for a in agents), default=0)
    digits = max(len(str(peak)) - 2, 0)
    return int(round(0.6 * peak, -digits)), int(round(0.8 * peak, -digits))


def check_thresholds(**thresholds: Any) -> None:
    """Refuse thresholds that are no numbers of tokens.

    Raises:
        BadArguments: a threshold is no whole number from 0.
    """
    for name, value in thresholds.items():
        if value is not None and (type(value) is not int or value < 0):
            raise BadArguments(f"{name}= takes a number of tokens, 0 for off, not {value!r}.")


def pack_agent_for_browser(agent: CumulativeAgentTokens) -> dict[str, Any]:
    """Return an agent's columns as the browser takes them.

    Turns are steps from one to the next; sums are given where they do not follow from the inputs.
    """
    turns, sums = agent.turns, agent.cumulative
    steps: Any = np.diff(turns).tolist()
    follows = np.concatenate(([0], sums[:-1])) + agent.inputs
    anew = np.flatnonzero(follows != sums)
    return {
        "name": sanitize_line(agent.name, _NAME),
        "first": int(turns[0]),
        "steps": steps[0] if steps and len(set(steps)) == 1 else steps,
        "inputs": agent.inputs.tolist(),
        "anew": [[int(i), int(sums[i])] for i in anew],
    }


def _agent_title(name: str, titles: dict[str, str]) -> str:
    """Return the name of an agent with its session's title instead of the id."""
    session_id, dot, agent = name.rpartition(" · ")
    return f"{titles.get(session_id, session_id)} · {agent}" if dot else name
