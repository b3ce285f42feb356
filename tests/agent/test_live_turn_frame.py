"""The turns of a live session, its log of snapshots, its record and a replay of it say the same."""

from __future__ import annotations

import asyncio

import msgspec
import pandas as pd
import pytest
from builders import assistant, session, user
from conftest import examples
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from stand_in_models import COUNT, ECHO, Says, agent, live, run, said

import ctxkit as ck
from ctxkit.agent.event_snapshot_and_report_files import _billed_turns
from ctxkit.errors import ModelError
from ctxkit.policies import Above, Count, Rules, Summary, TokensSpent
from ctxkit.presets import preset
from ctxkit.session import ToolCall, Usage

RULES = {
    "spent": Rules(
        policy=Summary(keep_turns=1),
        trigger=TokensSpent(4000),
        warnings=(TokensSpent(2000),),
        counter=COUNT,
    ),
    "count": Rules(policy=Summary(keep_messages=2), trigger=Count(7), counter=COUNT),
    "above": Rules(policy=Summary(keep_tokens=100), trigger=Above(300), counter=COUNT),
}


@pytest.fixture(autouse=True)
def extractive(monkeypatch):
    monkeypatch.setattr(Says, "notice", "scripted")  # no model writes its summaries


def reply(size, tokens, *, calls):
    words = ToolCall(id="c", name="echo", arguments={"x": "ab " * size})
    usage = Usage(input_tokens=tokens, output_tokens=size) if tokens else None
    return said(words, usage=usage, stop="tool") if calls else said("fine " * size, usage=usage)


@pytest.fixture(autouse=True, scope="module")
def one_storage():
    """pandas before 3 keeps a text in another way than frames do, which come from Arrow."""
    with pd.option_context("mode.string_storage", "pyarrow"):
        yield


def same(one):
    """Hold the live frame against the log of snapshots and the frame of the record."""
    log = ck.snapshots.turns(ck.read_snapshots(one.workspace.snapshots(one.id)))
    upto = log.columns.get_loc("compaction_occurred") + 1
    assert len(log) == len(one.turns)
    for name in log.columns[:upto]:
        pd.testing.assert_series_equal(one.turns[name], log[name], obj=name)
    assert log[log.columns[upto:]].drop(columns="source").isna().all(axis=None)
    assert set(log["source"]) <= {"recorded"}
    record = _billed_turns(ck.read(one.log.path))
    pd.testing.assert_frame_equal(one.turns, record)
    return log


STEP = st.tuples(st.integers(1, 120), st.sampled_from([0, 40, 900, 1500]))
BACK = st.none() | st.floats(0, 0.99)
"""Where the session goes back to after a turn, as a share of its entries; None: it continues."""
TURN = st.tuples(st.lists(STEP, min_size=1, max_size=4), st.booleans(), BACK)


@pytest.mark.parametrize("name", RULES)
def test_live_is_log_is_record(name, tmp_path_factory):
    @settings(
        max_examples=examples(8),
        suppress_health_check=[HealthCheck.too_slow],
        phases=[Phase.generate],
    )
    @given(st.lists(TURN, min_size=1, max_size=5))
    def check(script):
        folder = tmp_path_factory.mktemp("live")
        replies = [
            reply(size, tokens, calls=i + 1 < len(steps))
            for steps, *_ in script
            for i, (size, tokens) in enumerate(steps)
        ]
        with live(folder, *replies, rules=RULES[name], tools=[ECHO]) as one:
            table = one.turns
            for _, by_hand, back in script:
                run(one.turn("go on, please"))
                assert one.turns is table
                if by_hand:
                    run(one.compact())
                if back is not None:
                    one.move(int(len(one.session.log) * back))
                same(one)

    check()


def test_the_thresholds_stand_in_each_row_also_under_other_rules(tmp_path):
    replies = [reply(5, 900, calls=False) for _ in range(3)]
    with live(tmp_path, *replies, rules=RULES["spent"]) as one:
        run(one.turn("go"))
        run(one.turn("on"))
        assert one.turns[["warn_at", "cutover_at"]].iloc[-1].tolist() == [2000, 4000]
        lines = {line["name"] for line in ck.plots.budget(one.session).to_plotly()["data"]}
        assert {"warn at 2,000", "cutover at 4,000"} < lines
    other = Rules(policy=Summary(), trigger=TokensSpent(7000), counter=COUNT)
    with live(tmp_path, reply(5, 900, calls=False), rules=other) as one:
        assert len(one.turns) == 2
        run(one.turn("and on"))
        assert same(one)["cumulative_input_tokens"].tolist() == [900, 1800, 2700]
        assert one.turns["cutover_at"].tolist() == [4000, 4000, 7000]
        assert one.turns["warn_at"].isna().tolist() == [False, False, True]


def test_a_turn_that_fails_or_is_interrupted_has_its_row(tmp_path):
    steps = [reply(9, 500, calls=True), ModelError("no"), reply(9, 400, calls=True)]
    with live(
        tmp_path, *steps, asyncio.CancelledError(), rules=RULES["count"], tools=[ECHO]
    ) as one:
        run(one.turn("go"))
        with pytest.raises(asyncio.CancelledError):
            run(one.turn("and on"))
        assert same(one)["turn_input_tokens"].tolist() == [500, 400]


REPLAYED = {
    **RULES,
    "mask": preset("swe_agent_mask", n=2).but(counter=COUNT),
    "ai": preset("ai").but(counter=COUNT, window=6_000, assumed=True, reserve=500),
    "fuseraft": preset("fuseraft", warn_at=2_000, cutover_at=5_000).but(counter=COUNT),
}
BILL = st.tuples(st.integers(1, 4_000), st.integers(0, 1_400))
"""Uncached and cached tokens of a bill: some are believed as the size of a prompt, some are not.

None is over a window: what an overflow forces upon a session is not made again by a replay.
"""


@pytest.mark.parametrize("name", REPLAYED)
def test_a_replay_of_the_record_is_the_same_frame(name, tmp_path_factory):
    """All columns, whatever the calls were billed; the compactions fire where they fired."""

    @settings(
        max_examples=examples(5),
        suppress_health_check=[HealthCheck.too_slow],
        phases=[Phase.generate],
    )
    @given(st.lists(st.tuples(st.integers(1, 120), BILL), min_size=4, max_size=16))
    def check(script):
        steps = []
        for n, (size, (fresh, cached)) in enumerate(script):
            usage = Usage(input_tokens=fresh, cache_read_tokens=cached, output_tokens=size)
            step = reply(size, 0, calls=n % 3 != 2)
            steps.append(msgspec.structs.replace(step, usage=usage, model="gpt-4o"))
        end = said("done", usage=Usage(input_tokens=700, cache_read_tokens=9, output_tokens=1))
        rules, folder = REPLAYED[name], tmp_path_factory.mktemp("live")
        with live(folder, *steps, end, rules=rules, tools=[ECHO]) as one:
            for _ in range(len(steps) // 3 + 1):
                run(one.turn("go on, please"))
            again = ck.replay(ck.read(one.log.path), rules, last_usage=True)
            # the cache and the dollars of a replay are those of its bill, which is modelled
            billed = ["cache_read_tokens", "cost_usd"]
            frames = [ck.frame(again, per="turn"), one.turns]
            pd.testing.assert_frame_equal(
                *(f.drop(columns=billed, errors="ignore") for f in frames)
            )
            cuts = [[(e.kind, e.trigger, e.targets) for e in s.edits] for s in (again, one.session)]
            assert cuts[0] == cuts[1]
            sums = [
                sum(i.tokens for i in s.sent(c))
                for s in (one.session, again)
                for c in range(len(steps))
            ]
            assert sums[: len(steps)] == sums[len(steps) :]
            runs = [one.agent.compactor.context.run, again.prompt_source]
            assert runs[0].prompts.tolist() == runs[1].prompts.tolist()
            assert {r.total for r in runs} == {runs[0].prompts.sum()}
            if all(c.message.usage for c in one.session.calls):  # none failed
                assert runs[0].total == one.turns["turn_input_tokens"].sum()

    check()


@pytest.mark.parametrize("how", ["by hand", "an overflow", "a model's words"])
def test_from_what_a_replay_cannot_do_again_its_figures_are_its_own(how, tmp_path):
    steps = [reply(60 + 9 * n, 1_000 + 700 * (n % 3), calls=n % 3 != 2) for n in range(12)]
    if how == "an overflow":
        full = ModelError("too long: the maximum context length is 9000 tokens", overflow=True)
        steps.insert(6, full)
    rules = RULES["above"].but(trigger=Above(2_500 if how == "a model's words" else 90_000))
    notes = Says(*[said("Notes. " * 40)] * 9) if how == "a model's words" else None
    with live(tmp_path, *steps, rules=rules, tools=[ECHO], summary_model=notes) as one:
        for turn in range(4):
            if how == "by hand" and turn == 2:
                run(one.compact())
            run(one.turn("go on, please"))
        again = ck.replay(ck.read(one.log.path), rules, last_usage=True)
    told = [ck.frame(s, per="turn") for s in (again, one.session)]
    calls = [
        ck.frame(s, per="compaction")["call"].dropna()[:1].tolist() for s in (again, one.session)
    ]
    assert len(one.session.edits) > 0
    if how == "a model's words":
        assert calls[0] == calls[1]  # due at the same call
    else:
        assert not again.edits
    until = one.session.calls[int(calls[1][0])].turn
    whole = [t[:until].drop(columns="compaction_occurred") for t in told]
    pd.testing.assert_frame_equal(*whole)
    assert not told[0].equals(told[1])


def test_a_budget_counts_what_was_billed(tmp_path):
    steps = [reply(200, n, calls=False) for n in (3_900, 50, 3_000, 3_000, 900)]
    with live(tmp_path, *steps, rules=RULES["spent"]) as one:
        for _ in range(5):
            run(one.turn("go"))
        assert same(one)["cumulative_input_tokens"].tolist() == [3_900, 3_950, 6_950, 3_000, 3_900]
        assert one.turns["compaction_occurred"].tolist() == [False, False, True, False, False]


def test_a_compaction_behind_a_turn_without_a_bill_counts_for_the_last_billed_one(tmp_path):
    steps = [reply(60, tokens, calls=False) for tokens in (500, 0, 0, 600)]
    with live(tmp_path, *steps, rules=RULES["count"]) as one:
        for _ in range(4):
            run(one.turn("go"))
        record = ck.frame(one.session, per="turn")
        assert record["compaction_occurred"].tolist() == [False, False, True, False]
        assert same(one)["turn_input_tokens"].tolist() == [500, 600]
        assert one.turns["compaction_occurred"].tolist() == [True, False]


def test_the_events_log_reads_back_with_its_compactions(tmp_path):
    steps = [reply(40, 600, calls=i % 3 != 2) for i in range(12)]
    with live(tmp_path, *steps, rules=RULES["above"], tools=[ECHO]) as one:
        for _ in range(4):
            run(one.turn("go on, please"))
        run(one.compact())
        made = ck.frame(one.session, per="compaction").dropna(subset="compaction")
    read = ck.read(one.workspace.events(one.id))
    told = ck.frame(read, per="compaction")
    assert len(told) == len(made) > 1
    assert told["call"].tolist() == made["call"].tolist()
    assert told["trigger"].tolist() == made["trigger"].tolist()


def test_after_a_restore_the_log_holds_the_turns_that_stand(tmp_path):
    steps = [reply(30 + i, 600 + i, calls=i % 3 != 2) for i in range(18)]
    with live(tmp_path, *steps, rules=RULES["above"], tools=[ECHO]) as one:
        for _ in range(3):
            run(one.turn("go on, please"))
        before, inode = (
            one.workspace.snapshots(one.id).read_bytes(),
            one.workspace.snapshots(one.id).stat().st_ino,
        )
        last = len(one.session.edits) - 1
        one.restore(last)
        assert len(same(one)) < 4
        run(one.turn("elsewhere"))
        log = same(one)
        assert log["turn"].is_monotonic_increasing
        assert log["turn"].is_unique
        now = one.workspace.snapshots(one.id)
        assert now.stat().st_ino == inode
        assert now.read_bytes()[:300] == before[:300]  # what stands is as it was written
        record, rows = ck.read(one.log.path), iter(one.session.prompt_source.row_sizes)
        sizes = [next(rows) if m.visible else 0 for m in record.messages]
        again = ck.replay(record, RULES["above"], tokens=sizes, fixed=one.session.sent(0)[0].tokens)
        for name in ("turn", "compaction_occurred", "calls_n"):
            pd.testing.assert_series_equal(ck.frame(again, per="turn")[name], one.turns[name])
    now.write_bytes(now.read_bytes()[:-40])  # torn, as after a kill
    with live(tmp_path, rules=RULES["above"], tools=[ECHO]) as one:
        same(one)


def test_the_frame_that_grows_stays_one_frame_of_one_shape(tmp_path):
    replies = [reply(5, 900 + n, calls=False) for n in range(4)]
    with live(tmp_path, *replies, rules=RULES["spent"]) as one:
        table = one.turns
        shape = ck.frame([], per="turn").dtypes
        other = {"table": table}  # somebody else who holds it
        for n in range(4):
            run(one.turn("go"))
            assert other["table"] is one.turns
            pd.testing.assert_series_equal(table.dtypes, shape)
            assert table.index.tolist() == list(range(n + 1))
            assert table["turn_input_tokens"].tolist() == [900 + k for k in range(n + 1)]
            assert table.loc[table["turn"] == n, "turn_input_tokens"].tolist() == [900 + n]
            pd.testing.assert_frame_equal(table.copy(), ck.frame(one.session, per="turn"))


def test_what_is_written_before_the_next_turn_belongs_to_the_last():
    call = ToolCall(id="c", name="echo", arguments={})
    begun = session(user("go", turn=0), assistant("", call, turn=0))  # killed while the tool ran
    one = agent(said("done"), at=begun, tools=[ECHO])
    run(one.turn("and on"))
    assert [m.turn for m in one.session.messages] == [0, 0, 0, 1, 1]
