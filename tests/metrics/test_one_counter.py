"""A record and its rows are counted alike: without a compaction, `none` sends what was sent."""

from __future__ import annotations

import pandas as pd
import pytest
from conftest import sample

import ctxkit as ck
from ctxkit.metrics.prompt_sizes import get_prompt_sizes
from ctxkit.tokens.message_sizes import has_mask_processor


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
