"""How cuts held: refill, rebound, payback, re-reads; on hand-made sessions and on Pi's."""

from __future__ import annotations

import pytest
from builders import assistant, call, result, session, summarised, user
from msgspec.structs import replace

import ctxkit as ck
from ctxkit.metrics import compaction_outcomes, thrash
from ctxkit.session import Message, Usage
from ctxkit.tokens import measure_sizes

MODEL = "claude-sonnet-4-5"


def said(prompt: int, read: int | None = 0, **more):
    return assistant(
        "ok",
        usage=Usage(input_tokens=prompt, cache_read_tokens=read, output_tokens=10),
        model=MODEL,
        **more,
    )


def sawtooth(*prompts: tuple[int, ...]):
    """Sessions of cycles: each inner tuple is the prompts between two cuts."""
    log, shown = [], []
    for i, cycle in enumerate(prompts):
        if i:
            log.append(summarised(shown))
            shown = []
        for prompt in cycle:
            shown += [user("x" * 40), said(prompt)]
            log += shown[-2:]
    return session(*log)


def test_a_cut_that_fills_up_at_once_does_not_pay():
    s = sawtooth((50_000, 100_000), (90_000, 95_000, 99_000), (40_000,))
    t = thrash(s)
    assert [c.call for c in t.outcomes] == [2, 5]
    assert t.outcomes[0].not_paid_back is True
    assert t.outcomes[0].rebound_calls == 0
    assert t.not_paid_back_n == 1
    assert t.paid_back_share == 0.0


def test_a_prompt_after_a_cut_holds_each_later_message_once():
    s = sawtooth((50_000, 100_000), (90_000, 95_000), (40_000,))
    compactions, _ = compaction_outcomes.get_compactions_and_prompts(s, measure_sizes(s))
    # two messages per call; of the first compaction a summary stays
    assert [(c.messages_before, c.messages_after) for c in compactions] == [(4, 1), (5, 2)]


def test_a_cut_that_holds_is_paid():
    s = sawtooth((50_000, 100_000), tuple(range(20_000, 70_000, 1_000)), (20_000,))
    assert thrash(s).outcomes[0].not_paid_back is False
    assert thrash(s).outcomes[0].rebound_calls is None
    assert thrash(s).paid_back_share == 1.0


def test_without_a_price_no_number_of_unpaid_cuts_is_told():
    s = sawtooth((50_000, 100_000), (90_000, 95_000), (40_000,))
    unknown = session(*(replace(e, model="nobody") if isinstance(e, Message) else e for e in s.log))
    assert (thrash(s).not_paid_back_n, thrash(unknown).not_paid_back_n) == (1, None)


def test_the_last_cut_is_neither():
    assert thrash(sawtooth((100_000,), (20_000,))).outcomes[0].not_paid_back is None


def test_cuts_without_progress_are_counted_in_a_run():
    s = sawtooth((100_000,), (99_000,), (98_000,), (20_000,))
    assert thrash(s).no_progress_streak == 2
    assert compaction_outcomes.measure_longest_run_over_limit(s, 97_000) == 3


def test_a_file_read_again_after_its_result_went():
    a, b = call("read_file", path="a.py"), call("read_file", path="b.py")
    ra, rb = result("A", a), result("B", b)
    again, other = call("read_file", path="a.py"), call("edit", path="a.py")
    s = session(
        user(), a, ra, b, rb, said(50_000), summarised([a, ra]), user(), again, result("A", again), other, result("ok", other), said(9_000)
    )  # fmt: skip
    (cut,) = thrash(s).outcomes
    assert cut.reread_rate == 0.5
    assert cut.reorientation == 1


@pytest.mark.parametrize("key", ["path", "file_path", "filePath", "absolute_path"])
def test_another_part_of_a_file_is_the_same_file_whatever_the_argument_is_called(key):
    first, again = (call("read", **{key: "a.py", "offset": n}) for n in (0, 9))
    old, new = [first, result("A", first)], [again, result("A", again)]
    s = session(user(), *old, said(50_000), summarised(old), user(), *new, said(9_000))
    assert thrash(s).outcomes[0].reread_rate == 1.0


def test_several_compactions_between_two_calls_are_felt_as_one():
    a, b = call("read_file", path="a.py"), call("read_file", path="b.py")
    first, second = [a, result("A", a)], [b, result("B", b)]
    s = session(user(), *first, *second, said(50_000, time=0.0), summarised(first), summarised(second), user(),
                call("read_file", path="a.py"), call("read_file", path="b.py"), said(45_000, time=120.0), model=MODEL)  # fmt: skip
    (cut,) = thrash(s).outcomes
    assert (cut.compaction, cut.call, cut.reread_rate) == (1, 3, 1.0)
    once = (
        thrash(session(*[e for e in s.log if e is not s.edits[0]], model=MODEL))
        .outcomes[0]
        .pays_after
    )
    assert cut.pays_after > once


def test_the_number_of_a_cut_is_that_of_the_frame():
    s = ck.replay(ck.read(ck.samples.path()), ck.presets.semantic_kernel())
    frame = ck.frame(s, per="compaction").set_index("compaction")
    assert [frame.loc[c.compaction, "call"] for c in thrash(s).outcomes] == [
        c.call for c in thrash(s).outcomes
    ]
    assert len(s.edits) >= len(frame) >= len(thrash(s).outcomes) > 1


def test_minutes_until_full_again():
    first, cycle = (
        [user(), said(100_000, time=0.0)],
        [said(20_000, time=60.0), said(80_000, time=240.0)],
    )
    s = session(*first, summarised(first), user(), cycle[0], user(), cycle[1])
    (cut,) = thrash(s).outcomes
    assert (cut.rebound_calls, cut.rebound_minutes) == (1, 3.0)


def test_a_session_without_cuts_says_nothing():
    t = thrash(session(user(), said(10)))
    assert t.outcomes == ()
    assert t.paid_back_share is None
    assert t.refilled_share is None


def test_pis_cuts_are_those_of_the_published_table(real):
    t = thrash(ck.read(real / "pi/before-compaction.jsonl"))
    assert [(c.before, c.after) for c in t.outcomes] == [
        # the table has the last prompt; the last reply would have been sent, too
        (174_738 + 266, pytest.approx(25_739, rel=0.01)),
        (184_915 + 99, pytest.approx(28_617, rel=0.01)),
    ]
    # The table counts 13 re-reads after the first cut; three of the calls in its 24 stood in an aborted reply and never
    # ran, so they are no tool calls here, and the next three take their place.
    assert [c.reread_rate for c in t.outcomes] == [11 / 24, 8 / 24]


@pytest.mark.parametrize(("others_n", "repeats_n"), [(22, 2), (23, 1), (24, 0)])
def test_repeats_are_counted_in_the_next_24_tool_calls(others_n, repeats_n):
    first = [call("read_file", path="a.py"), said(50_000)]
    paths = [*(f"{n}.py" for n in range(others_n)), "a.py", "a.py"]
    later = [*(call("read_file", path=path) for path in paths), call("edit_file", path="a.py")]
    (cut,) = thrash(session(user(), *first, summarised(first), *later, said(9_000))).outcomes
    assert cut.reread_rate == repeats_n / 24
    assert cut.reorientation == others_n + 2
    (unwritten,) = thrash(session(user(), *first, summarised(first), *later[:3])).outcomes
    assert (unwritten.reread_rate, unwritten.reorientation) == (0.0, None)


@pytest.mark.parametrize(("times", "minutes"), [((0.0, 90.0, 210.0), 2.0), ((0.0, 210.0, 90.0), None), ((0.0, None, 90.0), None), ((0.0, 90.0, None), None)])  # fmt: skip
def test_the_minutes_to_the_next_compaction_are_known_where_the_clock_runs_forward(times, minutes):
    log, shown = [], []
    for time in times:
        log += shown and [summarised(shown)]
        shown = [user("x" * 400), said(50_000, time=time)]
        log += shown
    first, last = thrash(session(*log)).outcomes
    assert (first.interval, first.minutes) == (1, minutes)
    assert (last.interval, last.minutes) == (None, None)
