"""A compactor of one's own: pairs, order, what outlives the rounds, and programs that misbehave."""

from __future__ import annotations

import dataclasses
import sys
import time

import pytest
from _internal.redaction.secret_corpus import B64, drawn
from waiting import PATIENCE

import ctxkit as ck
from ctxkit.experiments.gates.compactor_fact_survival import (
    Canary,
    CompactionRoundResult,
    FactSurvival,
    find_message_faults,
    make_canaries,
    split_into_rounds,
)
from ctxkit.experiments.gates.regression_gate import load_baseline

SAMPLE = ck.samples.path("billing")


@pytest.fixture(scope="module")
def session():
    return ck.read(SAMPLE)


def same(messages):
    return messages


def newest(n):
    def compact(messages):
        kept = messages[-n:]
        while kept and kept[0]["role"] == "tool":
            kept = kept[1:]
        return [messages[0], *(m for m in kept if m is not messages[0])]

    return compact


def test_a_compactor_that_does_nothing_loses_nothing(session):
    found = ck.gates.measure_fact_survival(same, session, 4)
    assert found.survived == 1
    assert found.cliff == 5
    assert found.faults == ()
    assert found.tokens_left == 1
    assert [r.stale_values_n for r in found.rounds] == [
        0,
        1,
        2,
        3,
    ]  # each value replaced, the old one still there


def test_facts_fall_off_where_they_are_dropped(session):
    found = ck.gates.measure_fact_survival(newest(150), session, 6)
    assert (found.get_share(1), found.get_share(3), found.cliff) == (1, 0, 2)
    assert 0 < found.get_share(2) < 0.5
    assert found.get_share(1, "decision") == 1
    assert "Facts fall off after 2 compactions" in found.to_text()


def test_a_value_whose_new_one_is_gone_is_wrong(session):
    def forgets_news(messages):
        return [m for m in messages if " now." not in (m["content"] or "") or m["role"] != "user"]

    assert [r.wrong_n for r in ck.gates.measure_fact_survival(forgets_news, session, 3).rounds] == [
        0,
        1,
        2,
    ]


def test_parts_of_a_session_are_all_of_it_and_part_no_call(session):
    whole = [m for part in split_into_rounds(session, 1) for m in part]
    parts = list(split_into_rounds(session, 6))
    assert [m for part in parts for m in part] == whole
    assert len(whole) == len(session.messages)
    assert all(part[0]["role"] != "tool" and not find_message_faults(part, part) for part in parts)
    with pytest.raises(ck.BadArguments, match="ask for fewer rounds"):
        list(split_into_rounds(session, 10_000))


def test_words_of_facts_stand_nowhere_else(session):
    facts, values = make_canaries(6, 0)
    keys = [f.key for f in facts] + [c.key for v in values for c in v]
    assert len(set(keys)) == len(keys) == 18 + 10
    assert not [k for k in keys if k in SAMPLE.read_text()]


def _call(name):
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": name, "type": "function", "function": {"name": "f", "arguments": "{}"}}
        ],
    }


def _result(name):
    return {"role": "tool", "tool_call_id": name, "content": "x"}


SYSTEM, USER, REPLY = ({"role": r, "content": r} for r in ("system", "user", "assistant"))


@pytest.mark.parametrize(
    ("back", "told"),
    [
        ([SYSTEM, USER, _call("a"), _result("a"), REPLY], None),
        ([SYSTEM, {"role": "user", "content": "summary"}, REPLY], None),
        ([SYSTEM, USER, _result("a"), REPLY], "result of 'a', a call that is not before it"),
        ([SYSTEM, USER, _call("a"), REPLY], "The call 'a' of message 2 has lost its result"),
        ([SYSTEM, _call("a"), _result("a"), _result("a")], "result of 'a'"),
        ([SYSTEM, _call("a"), USER, _result("a")], "lost its result"),
        ([SYSTEM, REPLY, USER], "stands after one that was said later"),
        ([USER, REPLY], "system message does not stand first"),
    ],
)
def test_what_cannot_be_sent_is_told(back, told):
    given = [SYSTEM, USER, _call("a"), _result("a"), REPLY]
    found = find_message_faults(given, back)
    assert (found == []) if told is None else any(told in f for f in found), found


def test_only_calls_of_the_last_message_may_be_without_a_result():
    two = {**_call("a"), "tool_calls": [*_call("a")["tool_calls"], *_call("b")["tool_calls"]]}
    given = [USER, two, _result("a"), _result("b"), REPLY]
    lost = "The call {} of message 1 has lost its result."
    for back, calls in (
        (given[:2], ()),  # both may still be running
        (given[:3], ["'b'"]),
        ([*given[:2], _result("b")], ["'a'"]),
        (given[:4], ()),
        ([USER, two, REPLY], ["'a'", "'b'"]),
    ):
        assert find_message_faults(given, back) == [lost.format(call) for call in calls]


def test_shares_are_those_of_facts_that_went_through_as_many_compactions():
    facts = [
        Canary(family, f"{family[0]}{n}", "", n)
        for n in (1, 2)
        for family in ("constraint", "decision", "reference")
    ]
    rounds = [
        CompactionRoundResult(1, 100, 50, (True, True, False), 0, 0, ("a", "b")),
        CompactionRoundResult(
            2, 0, 30, (True, False, False, True, False, True), 1, 2, ("c",), False
        ),
    ]
    found = FactSurvival(tuple(facts), tuple(rounds))
    # after one compaction 2 of 3 of the first round and 2 of 3 of the second, after two 1 of 3
    assert [found.get_share(n) for n in (1, 2, 3)] == [4 / 6, 1 / 3, None]
    assert found.get_share(1, "decision") == 1 / 2
    assert found.get_share(2, "constraint") == 1
    assert found.cliff == 2
    assert found.survived == 3 / 6
    assert found.tokens_left == (50 / 100 + 30 / 1) / 2
    assert found.faults == ("Round 1: a", "Round 1: b", "Round 2: c")
    assert found.changes
    assert not dataclasses.replace(found, rounds=(rounds[1],)).changes
    half = dataclasses.replace(
        found, rounds=(rounds[0]._replace(is_retained=(True, False)),), facts=tuple(facts[:2])
    )
    assert (half.get_share(1), half.cliff) == (0.5, 2)  # a half is no cliff
    assert half.to_text().endswith("More than half of the facts outlive 1 compaction.")
    gone = dataclasses.replace(found, rounds=(rounds[0]._replace(is_retained=(False,) * 3),))
    assert gone.to_text().endswith("Facts fall off after 1 compaction: less than half stand.")


def test_a_message_said_twice_may_come_back_once_or_twice():
    given = [SYSTEM, USER, REPLY, USER, REPLY]
    assert find_message_faults(given, given) == []
    assert find_message_faults(given, [SYSTEM, REPLY, USER]) == []


PROGRAM = """
import json, sys, time, os
m = json.load(sys.stdin)
{body}
"""


@pytest.fixture
def program(tmp_path):
    def make(body):
        file = tmp_path / "compact.py"
        file.write_text(PROGRAM.format(body=body))
        return f"{sys.executable} {file}"

    return make


def test_a_program_is_asked_as_a_function_is(session, program):
    words = program("print(json.dumps({'messages': m[:1] + m[-40:]}))")
    one = ck.gates.measure_fact_survival(ck.gates.command(words), session, 3)
    assert one == ck.gates.measure_fact_survival(lambda m: m[:1] + m[-40:], session, 3)
    assert one.faults  # it cuts between calls and results


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("time.sleep(300)", "did not answer within 1 s"),
        (
            "sys.stderr.write('first\\nno key is set\\n'); sys.exit(1)",
            "failed with exit code 1. It said: no key is set",
        ),
        ("os.kill(os.getpid(), 9)", "failed with signal 9"),
        ("print('hello \\x1b[2J there')", "is no JSON: it begins 'hello  there'"),
        ("pass", "is no JSON: it is empty"),
        ("print('[]')", "is an empty list"),
        ("print('3')", "is a int"),
        ("print('[3]')", "Message 0 of the compactor's answer has no role"),
        ("print(json.dumps([{'role': 'user', 'content': 3}]))", "content of message 0"),
        ("print('[' * 99999)", "is no JSON"),
        ("sys.stdout.buffer.write(b'\\xff' * 9)", "is no JSON"),
        ("while True: sys.stdout.write('x' * 1000000)", "printed more than"),
    ],
)
def test_a_program_that_misbehaves_is_a_sentence(session, program, monkeypatch, body, told):
    monkeypatch.setattr(
        "ctxkit.experiments.gates.compactor_gate_and_subprocess.MAX_OUTPUT_BYTES", 1 << 20
    )
    begun = time.monotonic()
    with pytest.raises(ck.BadArguments) as error:
        ck.gates.gate_compactor(program(body), session, timeout=1 if "sleep" in body else PATIENCE)
    assert told in str(error.value)
    assert str(error.value).startswith("Round 1: ")
    assert "\x1b" not in str(error.value)
    assert time.monotonic() - begun < PATIENCE


KEY = "ghp_" + "aB3dE6gH9j" * 4
LINE = drawn(1, B64, 64)


@pytest.mark.parametrize(
    "body",
    [
        f"sys.stderr.write('no access with {KEY}\\n'); sys.exit(1)",
        f"sys.stderr.write('x\\n\\x1b[31m{KEY[:20]}\\x1b[1m{KEY[20:]}\\x1b[0m is bad'); sys.exit(1)",
        f"sys.stderr.write('see\\n{LINE}\\n'); sys.exit(1)",
        "sys.stderr.write('it is Tr0ub4dor3xyz'); sys.exit(1)",
        f"print('{KEY} is no JSON')",
        f"print(json.dumps([{{'role': 'tool', 'tool_call_id': '{KEY}', 'content': 'x'}}]))",
    ],
)
def test_what_is_quoted_of_a_program_holds_no_key(session, program, monkeypatch, body):
    monkeypatch.setenv("DB_PASSWORD", "Tr0ub4dor3xyz")
    try:
        told = ck.gates.gate_compactor(program(body), session).to_text()
    except ck.BadArguments as error:
        told = str(error)
    assert not any(
        s[i : i + 8] in told for s in (KEY, LINE, "Tr0ub4dor") for i in range(len(s) - 7)
    )
    assert "[redacted]" in told


def test_what_a_program_printed_before_it_ended_is_bounded_too(session, program, monkeypatch):
    monkeypatch.setattr(
        "ctxkit.experiments.gates.compactor_gate_and_subprocess.MAX_OUTPUT_BYTES", 1 << 20
    )
    monkeypatch.setattr(
        "ctxkit.experiments.gates.compactor_gate_and_subprocess._POLL_SECONDS", 1.0
    )  # it ends between two looks
    with pytest.raises(ck.BadArguments, match="printed more than 1 MB"):
        ck.gates.gate_compactor(program("print('[' + ' ' * (1 << 20) + ']')"), session)


def test_what_a_hanging_program_started_ends_with_it(session, tmp_path, program):
    begun, go, mark = (tmp_path / name for name in ("begun", "go", "still"))
    waits = f"touch {begun}; while [ ! -e {go} ]; do sleep 0.05; done; touch {mark}"
    body = f"import subprocess; subprocess.Popen(['sh', '-c', '{waits}']); time.sleep(300)"
    with pytest.raises(ck.BadArguments):
        ck.gates.gate_compactor(program(body), session, timeout=3)
    assert begun.exists()
    go.touch()
    time.sleep(0.4)
    assert not mark.exists()


@pytest.mark.parametrize("words", ["", 'a "b', "no-such-program-here"])
def test_what_is_no_command_is_a_sentence(session, words):
    with pytest.raises(ck.BadArguments):
        ck.gates.gate_compactor(words, session)


def test_a_compactor_is_held_against_its_baseline(session, tmp_path):
    path = tmp_path / "b.json"
    assert ck.gates.gate_compactor(same, session, path, update=True).ok
    assert ck.gates.gate_compactor(same, session, path).ok
    report = ck.gates.gate_compactor(newest(150), session, path)
    assert {c.figure for c in report.worse} == {"survived", "cliff_round"}
    assert "survived" in report.to_text()
    with pytest.raises(ck.BadArguments, match="There is no baseline"):
        ck.gates.gate_compactor(same, session, tmp_path / "none.json")


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"baseline": "none.json"}, "There is no baseline"),
        ({"update": True}, "name its file with baseline="),
        ({"baseline": "b.json", "update": True, "tolerance": 1.0}, "between 0 and 1"),
    ],
)
def test_what_cannot_be_held_is_told_before_the_compactor_is_asked(session, tmp_path, more, told):
    where = {"baseline": tmp_path / more["baseline"]} if "baseline" in more else {}
    with pytest.raises(ck.BadArguments, match=told):
        ck.gates.gate_compactor(lambda _: pytest.fail("it was asked"), session, **more | where)


def test_fewer_facts_than_asked_for_are_a_fault(session):
    assert not ck.gates.gate_compactor(newest(150), session, least=0.5).ok
    assert ck.gates.gate_compactor(newest(150), session).ok


def test_repeats_tell_the_noise(session, tmp_path):
    turn = iter(range(100))

    def moody(messages):
        return messages if next(turn) < 6 else newest(150)(messages)

    path = tmp_path / "b.json"
    ck.gates.gate_compactor(moody, session, path, repeat=2, update=True)
    found = load_baseline(path)["compacted"][session.id].figures["survived"]
    assert found.value == 1
    assert found.noise > 0.5
