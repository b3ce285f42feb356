"""Forecasts of pruned prompts: tokens by agent, and how many forecasts a log keeps."""

from __future__ import annotations

import pytest
from random_sessions import Fours, by_chance

from ctxkit.engine import RulesRun, make_log_from_session
from ctxkit.engine.pruned_prompt_forecast import PrunedPromptForecast, make_whole_log_forecast
from ctxkit.policies import Clear, Rules, UnprunedForecast

AGENTS = ("writer", "tester")


def make_run(pruning):
    rules = Rules(pruning=pruning, counter=Fours())
    session = by_chance(7, 40, agents=AGENTS)
    return RulesRun(make_log_from_session(session, rules), rules)


@pytest.mark.parametrize("agent", [None, *AGENTS, "nobody"])
@pytest.mark.parametrize("start", [0, 9])
def test_where_nothing_is_pruned_an_agent_has_spent_what_it_has_without_a_pruning(agent, start):
    run = make_run(Clear(keep_last=10_000))
    log, budget, history = run.log, run.budget, run.history
    plain = UnprunedForecast(history, budget)
    sent = lambda first, stop: [plain.size(call) for call in range(first, stop)]
    view = PrunedPromptForecast(history, budget, run.rules.pruning, run.clock, 9, sent=sent)
    found = set()
    for limit in (1, 5_000, 20_000, 40_000, 80_000, 10**9):
        first = view.spent(limit, 9 + start, log.calls, agent=agent)
        assert first == plain.spent(limit, 9 + start, log.calls, agent=agent)
        found.add(first)
    assert len(found) >= (1 if agent == "nobody" else 3)


def test_a_log_keeps_the_newest_sixteen_forecasts():
    run = make_run(None)
    log, budget = run.log, run.budget

    def forecast(keep_last):
        return make_whole_log_forecast(log, budget, Clear(keep_last=keep_last), run.clock)

    made = [forecast(n) for n in range(1, 18)]
    assert [forecast(n) is made[n - 1] for n in range(2, 18)] == [True] * 16
    assert forecast(1) is not made[0]
    assert forecast(2) is not made[1]  # the oldest went for the first one
