"""How each agent's context grew, call by call: plain values that the growth charts draw."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ctxkit.frames import per_compaction
from ctxkit.frames.occupancy import prompts
from ctxkit.plots.chart_words import size
from ctxkit.sizes.windows import window_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.messages import Source
    from ctxkit.session import Session


class CompactionMark(NamedTuple):
    """A compaction on the chart: before which call, from what size to what."""

    number: int | None
    """None: a fall that no mark explains."""
    call: int
    agent: str
    before: int | None
    after: int | None
    why: str

    @property
    def height(self) -> int:
        """Where it is marked."""
        return self.before if self.before is not None else 0

    def told(self) -> str:
        """Say what it did, in lines."""
        sizes = f"{size(self.before)} → {size(self.after)} tokens"
        what = "no mark in the log" if self.number is None else f"compaction {self.number}"
        return "\n".join(filter(None, [what, sizes, self.why]))


class GrowthLine(NamedTuple):
    """One agent's context in one session."""

    name: str
    calls: tuple[int, ...]
    tokens: tuple[int, ...]
    turns: tuple[int, ...]
    models: tuple[str | None, ...]
    times: tuple[float | None, ...]
    cuts: tuple[CompactionMark, ...]
    falls: tuple[CompactionMark, ...]
    """Falls of the prompt that no mark explains."""
    limit: int | None
    source: Source | None


def lines(name: str, session: Session) -> Iterator[GrowthLine]:
    """Yield a line for each agent of a session, without calls of which no size is known."""
    sizes, source = prompts(session)
    agents = dict.fromkeys(c.agent for c in session.calls)
    found, first = _cuts(session), next(iter(agents), None)
    for agent in agents:
        calls = [c for c in session.calls if c.agent == agent and sizes[c.index] is not None]
        models = [c.message.model or session.model for c in calls]
        limits = [
            window_of(session, m, c.message).tokens for c, m in zip(calls, models, strict=True)
        ]
        mine = [c for c in found if c.agent == agent or (c.agent not in agents and agent == first)]
        yield GrowthLine(
            name if len(agents) == 1 else f"{name} · {agent}" if name != agent else agent,
            tuple(c.index for c in calls),
            tuple(n for c in calls if (n := sizes[c.index]) is not None),
            tuple(c.turn for c in calls),
            tuple(models),
            tuple(c.message.time for c in calls),
            tuple(c for c in mine if c.number is not None),
            tuple(c for c in mine if c.number is None),
            next((limit for limit in reversed(limits) if limit is not None), None),
            source if calls else None,
        )


def _cuts(session: Session) -> tuple[CompactionMark, ...]:
    n, data = len(session.calls), dict(per_compaction.rows([session], unmarked=True))
    columns = ("compaction", "call", "agent", "tokens_before", "tokens_after", "method", "trigger")
    data["call"] = [n if call is None else call for call in data["call"]]
    return tuple(
        CompactionMark(k, call, agent, before, after, " · ".join(filter(None, why)))
        for k, call, agent, before, after, *why in zip(*(data[c] for c in columns), strict=True)
    )
