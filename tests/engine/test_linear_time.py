"""Four times the calls take about four times the CPU: calibration, spans and memory of long sessions."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from builders import assistant, result, session, tool_call, usage, user

import ctxkit as ck
from ctxkit.formats import otel
from ctxkit.policies import lesson_extraction_and_recall, memory_entries
from ctxkit.session import Edit

SMALL = "pi:context_window=20_000,reserve_tokens=4_000,keep_recent_tokens=4_000"


def talk(calls: int) -> ck.Session:
    """A session without compactions: at each call a rule of the user's, a decision and a command."""
    log = []
    for i in range(calls):
        wish = f"Always keep rule {i} of part {i} in mind."
        command = tool_call("bash", f"c{i}", command=f"pytest tests/test_{i % 19}.py -q")
        bill = usage(0, 5_000 + 90 * (i - 1), 90)
        reply = assistant(f"Decided: way {i}.", command, usage=bill, model="claude-sonnet-4-5")
        log += [user(wish), reply, result(f"{i} passed " + "word " * 30, reply)]
    return session(*log)


DEEDS = {
    "calibrate": ck.calibrate,
    "plots.calibration": ck.plots.calibration,
    "with_memory": lambda s: ck.experiments.with_memory(s, SMALL),
}


@pytest.mark.parametrize("deed", DEEDS)
def test_time_grows_with_the_calls_and_no_faster(deed):
    def seconds(calls: int) -> float:
        made = talk(calls)
        begun = time.thread_time()
        DEEDS[deed](made)
        return time.thread_time() - begun

    seconds(50)
    few = min(seconds(400) for _ in range(3))
    assert any(seconds(1_600) < 8 * few for _ in range(3)), "a round may be disturbed"


def test_each_message_is_encoded_once_however_many_prompts_show_it(monkeypatch, tmp_path):
    encode, encoded = otel._encode_message, Counter()

    def counted(message):
        encoded[message.id] += 1
        return encode(message)

    monkeypatch.setattr(otel, "_encode_message", counted)
    made = talk(100)
    log = list(made.log)
    log.insert(200, Edit(id="e", kind="dropped", targets=tuple(m.id for m in log[:150])))
    ck.write(session(*log), tmp_path / "spans.json", format="otel")
    replies = {c.message.id for c in made.calls}
    assert encoded.keys() == {m.id for m in made.messages[:-1]}, "no call is sent the last result"
    assert {name for name, n in encoded.items() if n > 1} <= replies
    assert max(encoded.values()) == 2, "a reply is an output and then an input"


def test_each_lesson_becomes_an_entry_once_however_many_compactions_recall_it(monkeypatch):
    make, made = memory_entries.make_entry, Counter()

    def counted(name, description, *rest, **more):
        made[description] += 1
        return make(name, description, *rest, **more)

    monkeypatch.setattr(lesson_extraction_and_recall, "make_entry", counted)
    table = ck.experiments.with_memory(talk(300), SMALL).set_index("variant")
    assert table.loc["with memory", "compactions_n"] > 3
    assert len(made) > 300
    assert set(made.values()) == {1}
