"""One name, one figure: all views of a session, and of its replays, show one value under a name."""

from __future__ import annotations

import math
import random
from collections import Counter
from importlib import import_module
from pkgutil import walk_packages

import pandas as pd
import pytest
from conftest import SEED, sample

import ctxkit
import ctxkit as ck
from ctxkit.experiments import score_session
from ctxkit.metrics.figures_registered_by_view import get_view_value_sources
from ctxkit.presets import names

REPLAYS = 8


def sources():
    """All registered views; every module that registers one is imported first."""
    for module in walk_packages(ctxkit.__path__, "ctxkit."):
        if module.name.split(".")[1] in ("metrics", "experiments", "widgets", "plots", "cli"):
            import_module(module.name)
    return get_view_value_sources()


def is_missing(value) -> bool:
    return value is None or (not isinstance(value, str) and bool(pd.isna(value)))


def is_same(one, other) -> bool:
    if is_missing(one) or is_missing(other):
        return is_missing(one) and is_missing(other)
    if isinstance(one, (str, bool)):
        return one == other
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)


def disagreements(session, label: str) -> tuple[int, list[str]]:
    """How many pairs of views show a name both, and those that show two values under it."""
    shown: dict[str, list[tuple[str, object]]] = {}
    for view, source in sources().items():
        for name, value in source(session).items():
            shown.setdefault(name, []).append((view, value))
    pairs, out = 0, []
    for name, ((first, value), *others) in shown.items():
        pairs += len(others)
        out += [
            f"{session.format} {session.id[:24]} {label}: {name} is {value} in {first}, {other} in {view}"
            for view, other in others
            if not is_same(value, other)
        ]
    return pairs, out


def all_sessions(real):
    read = [*ck.read_all(real, progress=False), *ck.read_all(ck.samples.path(), progress=False)]
    return [s for top in read for s in (top, *top.children)]


def check(sessions, replays: int) -> int:
    pairs, out = 0, []
    for session in sessions:
        rules = random.Random(f"{SEED} {session.id}").sample(names(), replays)
        made = [(name, ck.replay(session, name)) for name in rules if session.calls]
        for label, one in [("record", session), *made]:
            n, found = disagreements(one, label)
            pairs, out = pairs + n, out + found
    assert out == [], f"{len(out)} of {pairs} pairs differ"
    return pairs


VIEWS_OF_FIGURES = {
    "cache_read_tokens": 7, "calls_n": 6, "calls_usd": 3, "compactions_n": 11, "cost_source": 7,
    "cost_usd": 8, "errors_n": 2, "failed_calls_n": 2, "input_usd": 3, "is_thrashing": 5,
    "last_affected_messages_n": 2, "last_prompt_tokens": 5, "last_removed_tokens": 2,
    "list_price_usd": 4, "not_paid_back_n": 4, "output_tokens": 6, "output_usd": 3,
    "peak_tokens": 8, "prompt_tokens": 6, "summaries_usd": 7, "summary_tokens": 2,
    "token_savings": 5, "tool_errors_n": 2, "turns_n": 5, "with_subagents_usd": 2,
    "written_tokens": 5,
}  # fmt: skip
"""How many views show each figure of a replay; a view that stops showing one cannot disagree."""


def test_every_figure_stands_in_at_least_two_views_and_no_view_has_lost_one():
    replay = ck.replay(ck.samples.path("billing"), "claude_code")
    shown = Counter(name for source in sources().values() for name in source(replay))
    assert shown == VIEWS_OF_FIGURES
    assert min(shown.values()) >= 2


def test_views_agree_on_samples_and_some_real_sessions(real):
    sessions = all_sessions(real)
    formats = {s.format: s for s in sessions}
    chosen = {id(s): s for s in [*formats.values(), *sample(sessions, 4)]}
    assert check(list(chosen.values()), 1) > 500


def counted_differences(session) -> list[str]:
    """The views that show another sum of prompts than a score that had to count them."""
    row = score_session(session, loss=False)
    shown = [(view, name, source(session).get(name)) for view, source in sources().items()
             for name in ("prompt_tokens", "peak_tokens")]  # fmt: skip
    return [
        f"{session.format} {session.id[:24]}: {name} is {value} in {view}, {row[name]} in a score"
        for view, name, value in shown
        if not is_missing(value) and not is_same(value, row[name])
    ]


def sample_by_format(sessions, n: int) -> list:
    """Of a benchmark's two hundred small sessions a few, of other formats all."""
    formats = {s.format: [o for o in sessions if o.format == s.format] for s in sessions}
    return [s for of_format in formats.values() for s in sample(of_format, n)]


def test_totals_that_a_log_states_alone_have_names_of_their_own(real):
    sessions = [s for s in all_sessions(real) if not s.has_usage and s.origin is None]
    sessions = sample_by_format(sessions, 10)
    assert [line for s in sessions for line in counted_differences(s)] == []
    logged = ck.frame(sessions, per="session").dropna(subset="logged_prompt_tokens")
    assert len(logged) >= 2
    assert logged["prompt_tokens"].isna().all()
    assert set(logged["source"]) == {"recorded"}


@pytest.mark.long
def test_views_agree_on_every_session_and_eight_replays_of_each(real):
    assert check(all_sessions(real), REPLAYS) > 50_000


def test_a_view_that_leaves_summaries_out_is_found(monkeypatch):
    from ctxkit.widgets import folder_board_rows

    real_row = folder_board_rows.make_board_row

    def make_row(session, path=""):
        import msgspec

        from ctxkit.metrics import session_bill

        row = real_row(session, path)
        return msgspec.structs.replace(row, usd=session_bill.bill_session(session).calls_usd)

    monkeypatch.setattr(folder_board_rows, "make_board_row", make_row)
    _, found = disagreements(ck.read(ck.samples.path("billing")), "record")
    assert any("cost_usd" in line and "board" in line for line in found)
