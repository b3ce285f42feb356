"""Lines of the event log, stored context reports, the files of work records, and the account of a turn."""

from __future__ import annotations

import asyncio
import json
import os

import pytest
from builders import assistant, result, session, tool_call, user
from stand_in_models import Says

from ctxkit.agent import (
    ContextReportStore,
    Limits,
    LiveEvent,
    Outcome,
    SpentInTurn,
    TurnState,
    Workspace,
)
from ctxkit.agent.event_snapshot_and_report_files import ChangeIntentEvidenceWriter, EventLog
from ctxkit.agent.turn_state_and_events import (
    LimitReached,
    LiveEventEmitter,
    is_successful_compaction,
)
from ctxkit.errors import BadArguments

KEY = "sk-ant-api03-" + "Ab3xY9" * 15
NOW = 1_800_000_000.25


def write_events(path, *events, agent="main"):
    log = EventLog(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "s1", agent)
    for args, more in events:
        log.write(*args, **more)
    log.close()
    log.close()  # once is enough
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_an_event_is_one_line(tmp_path):
    payload = {
        "n": 1,
        "none": None,
        "text": f"key {KEY}",
        "rows": [{"a": "x" * 400}, "y" * 401],
        "odd": {3},
    }
    events = [
        (("tool_call", NOW, 2, payload), {}),
        (("turn_end", 0.0, -1, {}), {"agent": "helper"}),
    ]
    first, second = write_events(tmp_path / "a", *events)
    assert first == {
        "ts": "2027-01-15T08:00:00.250000+00:00",
        "session": "s1",
        "agent": "main",
        "turn": 2,
        "event_type": "tool_call",
        "payload": {
            "n": 1,
            "text": "key [redacted]",
            "rows": [{"a": "x" * 400}, "y" * 400 + "… [401 characters]"],
            "odd": [3],
        },
    }
    assert second == {
        "ts": "1970-01-01T00:00:00.000000+00:00", "session": "s1", "agent": "helper", "turn": 0,
        "event_type": "turn_end", "payload": {}}  # fmt: skip
    (line,) = write_events(tmp_path / "b", events[0], agent="own")
    assert line["agent"] == "own"


def talk(turns=1):
    messages = (m for i in range(turns) for m in (user(f"question {i}"), assistant(f"answer {i}")))
    return session(*messages, id="s1")


def test_a_report_is_stored_behind_each_turn_with_a_call(tmp_path):
    Workspace(tmp_path).make()
    store = ContextReportStore(Workspace(tmp_path), "s1")
    assert store.all() == []
    assert store.store(session(), lambda: NOW) is None
    assert store.store(session(user(), assistant(), user()), lambda: NOW) is None  # no call yet
    stored = [store.store(talk(n), lambda: NOW) for n in (1, 2, 2, 2)]
    assert [s.id for s in stored] == ["s1-0", "s1-1", "s1-1-2", "s1-1-3"]
    assert [s.turn for s in stored] == [0, 1, 1, 1]
    assert {s.time for s in stored} == {"2027-01-15T08:00:00+00:00"}
    assert store.all() == stored
    # another process counts on, and skips lines that are no reports
    path = tmp_path / ".ctxkit/logs/context_reports_s1.jsonl"
    with path.open("a") as file:
        file.write("no report\n{}\n")
    again = ContextReportStore(Workspace(tmp_path), "s1")
    assert again.store(talk(2), lambda: NOW).id == "s1-1-4"
    assert again.of("s1-1-2") == stored[2]
    assert len(again.all()) == 5
    with pytest.raises(
        BadArguments, match=r"^No context report is called 's1-9'; `%context reports` lists them\."
    ):
        again.of("s1-9")
    with pytest.raises(BadArguments, match=f"^No context report is called '{'x' * 59}…'"):
        again.of("x" * 90)


def test_a_report_that_cannot_be_written_costs_no_turn(tmp_path):
    store = ContextReportStore(Workspace(tmp_path), "s1")
    path = tmp_path / ".ctxkit/logs/context_reports_s1.jsonl"
    path.mkdir(parents=True)
    assert store.store(talk(), lambda: NOW) is None
    path.rmdir()
    assert store.store(talk(), lambda: NOW).id == "s1-0"


def test_work_records_are_written_behind_tools_at_most_once_a_second(tmp_path):
    call = tool_call("write_file", path="a.txt", content="x")
    log = session(
        user("Write."), assistant("", call), result("Wrote 1 bytes to a.txt.", call), id="s1"
    )
    now, asked = [0.0], []
    writer = ChangeIntentEvidenceWriter(Workspace(tmp_path), lambda: now[0])
    folder = Workspace(tmp_path).state("s1")

    def send(kind):
        writer.on_event(kind, lambda: asked.append(kind) or log)
        return sorted(p.name for p in folder.glob("*")) if folder.is_dir() else []

    assert send("turn_start") == []
    assert send("turn_end") == []  # no tool was used
    assert asked == []
    assert send("tool_call") == ["intents.json"]
    now[0] = 0.9
    send("tool_result")
    assert asked == ["tool_call"]
    now[0] = 1.0
    send("tool_result")
    assert asked == ["tool_call", "tool_result"]
    assert send("turn_end") == ["changes.json", "evidence.json", "intents.json"]
    send("turn_end")
    assert asked == ["tool_call", "tool_result", "turn_end"]


def test_the_tools_for_brief_and_summary_write_beside_the_records(tmp_path):
    writer = ChangeIntentEvidenceWriter(Workspace(tmp_path), lambda: 0.0)
    tools = {t.name: t.run for t in writer.tools(lambda: "s1")}
    tools["session_context_write"](text="Go on.")
    assert (Workspace(tmp_path).state("s1") / "context_summary.md").read_text() == "Go on."
    assert tools["session_context_read"]() == "Go on."


def make_outcome(spent, **more):
    fields = {"text": "", "ended": "answered", "why": "", "compactions": 0, "context_tokens": 1_500,
              "context_window": 6_000, "notice": ""}  # fmt: skip
    return Outcome(spent=spent, **{**fields, **more}).account()


def test_the_account_of_a_turn():
    spent = SpentInTurn(calls=1, fresh=1_000, cached=2_000, output=30, cost_usd=0.01234)
    assert make_outcome(spent) == (
        "1 call · 1,000 fresh / 2,000 cached / 30 out · $0.0123 · context 1,500/6,000 (25 %) · 0 compactions"
    )
    more = {"compactions": 1, "why": "stopped\nthere", "notice": "local model"}
    assert make_outcome(SpentInTurn(calls=2, cost_usd=None, unbilled=1_234), **more).endswith(
        " · no price known · context 1,500/6,000 (25 %) · 1 compaction"
        " · about 1,234 tokens of which the model told no usage · stopped there · local model"
    )
    assert " · free · " in make_outcome(SpentInTurn(free=True))
    assert " · $0.0000 · " in make_outcome(SpentInTurn())
    assert " · $0.5000 · " in make_outcome(SpentInTurn(free=True, cost_usd=0.5))
    assert "context 1,500/0 (0 %)" in make_outcome(SpentInTurn(), context_window=0)


def make_turn(limits, **more):
    return TurnState(limits=limits, spent=SpentInTurn(), began=100.0, **more)


def test_attempts_and_limits_of_a_turn():
    turn = make_turn(Limits(attempts=2, seconds=5.5))
    assert [turn.start_attempt() for _ in range(3)] == [True, True, False]
    turn.check(Says(), 10, 105.4)
    assert turn.spent.seconds == pytest.approx(5.4)
    with pytest.raises(LimitReached, match=r"^the limit of 5\.5 seconds$"):
        turn.check(Says(), 10, 105.5)
    assert turn.over == "stopped at the limit of 5.5 seconds"
    assert make_turn(Limits()).over == "stopped at the limit of 0 seconds"
    assert not turn.late
    turn.timed_out = True
    assert turn.late


def test_the_clock_of_a_turn_stands_still_while_a_person_decides():
    async def decide():
        now = [110.0]
        async with asyncio.timeout(50) as deadline:
            turn = make_turn(Limits(seconds=50.0), deadline=deadline, task=asyncio.current_task())
            left = deadline.when() - asyncio.get_running_loop().time()
            async with turn.paused(lambda: now[0]):
                assert deadline.when() is None
                now[0] = 130.0
                await asyncio.sleep(0.02)
            assert deadline.when() - asyncio.get_running_loop().time() == pytest.approx(
                left, abs=0.015
            )
            assert turn.began == 120.0  # 20 seconds later
            turn.check_deadline()
            assert not turn.late

    asyncio.run(decide())


def test_a_secret_that_comes_in_pieces_is_not_emitted():
    events = []
    emitter = LiveEventEmitter(events.append, lambda: NOW, lambda: 3)
    for piece in ("the ", KEY[:20], KEY[20:], " it"):
        emitter.emit("delta", {"kind": "text", "text": piece})
    emitter.emit("delta", {"kind": "tool_call", "text": "shell"})
    emitter.emit("model_response", {"text": KEY})
    pieces = [e.payload for e in events if e.kind == "delta"]
    assert "".join(p["text"] for p in pieces if p["kind"] == "text") == "the [redacted] it"
    assert pieces[-1] == {"kind": "tool_call", "text": "shell"}
    assert events[-1] == LiveEvent("model_response", NOW, 3, {"text": "[redacted]"})


@pytest.mark.parametrize(
    ("payload", "expected"),
    [({"outcome": "compacted"}, True), ({"outcome": "failed", "messages": 0}, True), ({"outcome": "failed"}, False),
     ({}, False)],
)  # fmt: skip
def test_a_compaction_that_replaced_messages(payload, expected):
    assert is_successful_compaction(payload) is expected
