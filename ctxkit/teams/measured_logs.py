"""The sizes of what an agent of a team was sent, where its view left some of it out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ctxkit.engine import log_of, run
from ctxkit.frames.occupancy import prompts as plain_prompts
from ctxkit.metrics.shared_prefixes import SentByRun
from ctxkit.sizes import Sizes
from ctxkit.teams.team_views import view_of
from ctxkit.tokens.counter_names import default

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ctxkit.heard import AgentLog
    from ctxkit.messages import Source

_DERIVED: Source = "derived"


def measured(log: AgentLog, keys: Mapping[str, Any]) -> AgentLog:
    """Return an agent's log with sizes that go by what its view let through.

    Prompts grow within a turn by what is new, whatever a view hides: that growth against its count
    is the scale of all counts, and what the first prompt has beyond them is its fixed part.

    Args:
        log: of an agent.
        keys: the view under which it was recorded, in the keys of its config; empty: all was sent,
            and the sizes are right as they are.
    """
    view = view_of("recorded", keys)
    prompts, _ = plain_prompts(log.record)
    rules = view.rules(log.agent)
    if rules.pruning is None or not prompts or not prompts[0]:
        return log
    counter = default()
    counts = [counter.message(m) for m in log.record.messages]
    done = run(log_of(log.record, rules, tokens=counts, fixed=0), rules, None)
    sent = SentByRun(done)
    shown = [sent.prompt(c) for c in range(len(prompts))]
    scale = _scale(prompts, shown)
    fixed = max(round(prompts[0] - scale * shown[0]), 0)
    n, source = len(prompts), tuple(_DERIVED for _ in counts)
    return replace(log, known=Sizes(
        session=log.record, counter=counter.name,
        tokens=tuple(max(round(scale * c), 1) if c else 0 for c in counts),
        source=source, fixed=fixed, fixed_at=(fixed,) * n, unsent_at=(0,) * n,
        error=1 / scale - 1, clamped=0, recorded=tuple(prompts),
        modelled=tuple(round(fixed + scale * s) for s in shown), inserted=(),
    ))  # fmt: skip


def _scale(prompts: Sequence[int | None], shown: Sequence[int]) -> float:
    """Return the tokens of one counted token, by the growth of prompts."""
    real = counted = 0
    for before, now, a, b in zip(prompts, prompts[1:], shown, shown[1:], strict=False):
        if before and now and now > before and b > a:
            real, counted = real + now - before, counted + b - a
    return real / counted if real and counted else 1.0
