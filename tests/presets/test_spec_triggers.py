"""When the five documents have a history compacted, and when not: each moment held to the letter."""

from __future__ import annotations

from math import ceil

import pytest
from builders import assistant, session, step, user

import ctxkit as ck
from ctxkit.presets import preset


def talk(turns, chars=4_000):
    """Return turns of a question and an answer of so many characters each."""
    return [m for n in range(turns) for m in (user(f"ask {n} " + "x" * chars),
                                              assistant(f"done {n} " + "y" * chars))]  # fmt: skip


def get_first_call(done):
    """Return the call that the first compaction stands before."""
    return int(ck.frame(done, per="compaction")["call"].iloc[0])


def prompt_texts(done, call):
    return [item.message.text for item in done.sent(call)]


@pytest.mark.parametrize("auto", [True, False])
def test_ai_compacts_by_itself_unless_auto_compact_is_off(auto):
    """A8: AutoCompact is on unless set; off, a history over its limit is sent as it is."""
    switch = {} if auto else {"auto_compact": False}
    rules = preset("ai", context_window=0, keep_recent_tokens=2_000, summariser="fixed:5", **switch)
    assert bool(ck.replay(session(*talk(8)), rules).edits) is auto


def test_tyrum_compacts_near_the_limit_of_the_context():
    """T14: Below the window less its reserve nothing happens; from there on what is old becomes a
    summary, and the newest messages stay.
    """
    messages = talk(20)
    limits = {"context_window": 20_000, "reserved_input_tokens": 4_000}
    done = ck.replay(session(*messages), preset("tyrum", **limits))
    first = get_first_call(done)
    sizes = [sum(len(m.text) for m in messages[: 2 * n + 1]) / 4 for n in range(20)]
    assert sizes[first - 1] < 16_000 <= sizes[first]
    texts = prompt_texts(done, first)
    assert not any(t.startswith("ask 0 x") for t in texts)
    assert [t.split(" x")[0].split(" y")[0] for t in texts[1:]] == [
        f"done {first - 1}",
        f"ask {first}",
    ]
    for reserve, call in ((3_999, first + 1), (4_000, first)):
        # the prompt of the first compaction just reaches the limit, or is a token too small
        exact = {"context_window": ceil(sizes[first]) + 4_000, "reserved_input_tokens": reserve}
        assert get_first_call(ck.replay(session(*messages), preset("tyrum", **exact))) == call


def test_fased_compacts_a_session_that_a_turn_left_over_its_threshold():
    """D17: The turn that passes the threshold is answered; the next prompt is compacted."""
    limits = {"context_window": 12_000, "reserve_tokens": 2_000, "reserve_tokens_floor": 0,
              "keep_recent_tokens": 3_000, "summariser": "fixed:5"}  # fmt: skip
    done = ck.replay(session(*talk(8)), preset("fased", **limits))
    first = get_first_call(done)
    sizes = ck.frame(done, per="call")["prompt_tokens"]
    assert sizes[first] < sizes[first - 1] <= 10_000
    assert ck.frame(done, per="compaction")["tokens_before"].iloc[0] > 10_000
    assert prompt_texts(done, first - 1)[0].startswith("ask 0 x")
    assert not prompt_texts(done, first)[0].startswith("ask 0 x")


def test_pulse_coder_looks_before_each_call_and_within_a_turn():
    """P17: It is tried before each call, so that one within a turn is compacted, too."""
    work = [m for n in range(12) for m in step("bash", "y" * 4_000, command=f"make {n}")]
    log = session(*talk(8, 200), user("Now build all."), *work, assistant("built"))
    rules = preset("pulse_coder", context_window_tokens=12_000, keep_last_turns=2,
                   summariser="fixed:5")  # fmt: skip
    assert get_first_call(ck.replay(log, rules)) > 8  # the last turn begins with call 8


@pytest.mark.parametrize("turns", [2, 3])
def test_pulse_coder_compacts_nothing_where_no_turn_is_old(turns):
    """P11: With no more turns than are kept there is no compaction, though the size is over it."""
    rules = preset("pulse_coder", context_window_tokens=5_000, keep_last_turns=2,
                   compact_target=3_700, summariser="fixed:5")  # fmt: skip
    assert bool(ck.replay(session(*talk(turns, 6_000)), rules).edits) is (turns > 2)
