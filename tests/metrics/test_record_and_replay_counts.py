"""A record and its rows are counted alike: without a compaction, `none` sends what was sent."""

from __future__ import annotations

from functools import cache

import pandas as pd
import pytest
from builders import assistant, result, tool_call, usage, user
from builders import session as make_session
from conftest import sample

import ctxkit as ck
from ctxkit.metrics import get_prompt_sizes
from ctxkit.tokens import has_mask_processor


@cache
def all_sessions(real):
    read = [*ck.read_all(real, progress=False), *ck.read_all(ck.samples.path(), progress=False)]
    return [s for top in read for s in (top, *top.children) if s.calls]


def differences(session) -> list[str]:
    """The places where one size of a session's calls is another than the record's."""
    sizes = get_prompt_sizes(session)[0]
    out = [
        f"{session.format} {session.id} call {c}: {name} {n}, record {size}"
        for c, size in ((0, sizes[0]), (len(sizes) - 1, sizes[-1]))
        for name, n in (
            ("report", ck.report(session, c).prompt_tokens),
            ("sent", sum(i.tokens for i in session.sent(c))),
        )
        if size is not None and n != size
    ]
    if session.edits or has_mask_processor(session):  # what was pruned is not what `none` sends
        return out
    table = ck.compare(session, ["none"], loss=False, progress=False)
    for name in ("calls_n", "prompt_tokens", "peak_tokens", "output_tokens"):
        recorded, replayed = table[name]
        if not (pd.isna(recorded) and pd.isna(replayed)) and recorded != replayed:
            out.append(f"{session.format} {session.id}: {name} {replayed}, record {recorded}")
    return out


def test_none_sends_what_was_sent_where_nothing_was_compacted(real):
    sessions = all_sessions(real)
    formats = {s.format: s for s in sessions}  # one of each at least
    chosen = {id(s): s for s in [*formats.values(), *sample(sessions, 12)]}
    assert [d for s in chosen.values() for d in differences(s)] == []


@pytest.mark.long
def test_none_sends_what_was_sent_in_every_log(real):
    assert [d for s in all_sessions(real) for d in differences(s)] == []


def test_rules_that_are_never_due_send_what_was_sent(real):
    """Codex dropped old reasoning without a mark: a trigger above all prompts leaves it so."""
    log = ck.read(next((real / "codex").glob("rollout-2025-11-13*")))
    assert not log.edits
    rules = ck.presets.pi(context_window=10_000_000)
    row = ck.score(ck.replay(log, rules), loss=False)
    assert row["compactions_n"] == 0
    assert row["prompt_tokens"] == ck.score(log, loss=False)["prompt_tokens"]


def unbilled_differences(session) -> list[str]:
    """The views that show another size than the report of a call whose usage the log lacks."""
    view, gauge, out = ck.explore(session).explorer_session, None, []
    view.measure()
    for call in session.calls:
        if call.message.prompt_tokens is None and call.message.kind != "turn":
            size = ck.report(session, call.index).prompt_tokens or None
            shown = {"explore": view.at(call.index).tokens}
            shown["sent"] = sum(i.tokens for i in session.sent(call.index)) or None
            if call.index == len(session.calls) - 1:
                gauge = ck.watch(session).state.used
                shown["watch"] = gauge
            out += [
                f"{session.id} {call.index}: {k} {n}, report {size}"
                for k, n in shown.items()
                if n != size
            ]
    return out


def test_a_call_that_was_not_billed_has_one_size_in_every_view():
    """N14: the gauge showed the call before it, and explore no size."""
    first = assistant("", tool_call(), usage=usage(4_000), model="m")
    session = make_session(user("go"), first, result("word " * 900, first), assistant("done"))
    assert ck.report(session, 1).prompt_tokens > 4_000
    assert unbilled_differences(session) == []
    assert ck.watch(session).state.used == ck.report(session, 1).prompt_tokens
    assert "size unknown" not in ck.explore(session).to_text()


def test_calls_without_usage_have_one_size_in_every_view_of_real_logs(real):
    mixed = [s for s in all_sessions(real) if s.has_usage
             and any(c.message.prompt_tokens is None for c in s.calls)]  # fmt: skip
    zoo = [ck.read(path) for path in sorted(real.rglob("*event-zoo*"))]
    assert len(zoo) >= 2
    codex = next(s for s in zoo if s.format == "codex")  # its texts and pictures are redacted
    assert [ck.report(codex, call).groups()["images"] for call in (5, 8)] == [1_200, 1_200]
    assert [d for s in (*zoo, *sample(mixed, 3)) for d in unbilled_differences(s)] == []
