"""Summaries in the place of old messages."""

import time

import numpy as np
import pytest
from builders import assistant, call, result, step, system, tool_call, user
from histories import CHARS, ROOM, shown, texts
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.engine import RulesRun, advance_run, run_rules
from ctxkit.errors import BadArguments, ModelError
from ctxkit.policies import Above, FixedSizeSummariser, MessageLog, Rules, Summary
from ctxkit.session import Message, Text

LONG = "word " * 80  # 100 tokens


def turns(n, text=LONG):
    return [m for i in range(n) for m in (user(f"u{i} {text}"), assistant(f"a{i} {text}"))]


def say(text="SUMMARY"):
    return lambda passage: text


def roles(history):
    return [m.role for m in history.messages]


def test_old_messages_become_one_summary():
    new = Summary(keep_tokens=250, summariser=say())(shown(system("s"), turns(5)), ROOM)
    assert texts(new)[0] == "s"
    assert texts(new)[1].endswith("SUMMARY")
    assert roles(new) == ["system", "summary", "assistant", "user", "assistant"]
    assert new.tokens < 400


def test_the_earlier_summary_is_summarised_too():
    seen = []

    def maker(passage):
        seen.append(passage.previous)
        return f"S{len(seen)}"

    policy = Summary(keep_turns=1, summariser=maker)
    first = policy(shown(turns(4)), ROOM)
    log = first.log
    for m in turns(3):
        log.append(m)
    second = policy(first.at(log.calls), ROOM)
    assert seen[0] is None
    assert seen[1].text == "S1"
    assert roles(second).count("summary") == 1


def test_a_split_turn_is_summarised_by_itself():
    asked = []

    def maker(passage):
        asked.append([m.text[:2] for m in passage.messages])
        return "text"

    h = shown(turns(1), user(f"u1 {LONG}"), *(assistant(f"b{i} {LONG}") for i in range(6)))
    new = Summary(keep_tokens=150, summariser=maker)(h, ROOM)
    assert asked[0] == ["u0", "a0"]
    assert asked[1][0] == "u1"
    assert "**Turn Context (split turn):**" in texts(new)[0]


def test_turns_may_be_kept_whole():
    h = shown(turns(1), user("u1"), *(assistant(f"b{i} {LONG}") for i in range(6)))
    new = Summary(keep_tokens=150, split_turns=False, summariser=say())(h, ROOM)
    assert texts(new)[:2] == ["SUMMARY", "u1"]


def test_turns_and_messages_as_measures():
    assert len(Summary(keep_turns=2, summariser=say())(shown(turns(5)), ROOM)) == 5
    assert len(Summary(keep_messages=3, summariser=say())(shown(turns(5)), ROOM)) == 4
    assert len(Summary(keep_share=0.001, summariser=say())(shown(turns(5)), ROOM)) == 3


def test_a_call_keeps_its_result():
    c = call()
    h = shown(turns(4), c, result(LONG * 5, c))
    new = Summary(keep_tokens=300, summariser=say())(h, ROOM)
    assert roles(new)[-2:] == ["assistant", "tool"]


@pytest.mark.parametrize("nothing", [None, "", "  \n"])
def test_a_summariser_that_says_nothing_changes_nothing(nothing):
    with pytest.raises(ModelError, match="returned nothing; it must"):
        Summary(keep_turns=1, summariser=lambda p: nothing)(shown(turns(3)), ROOM)


def test_another_way_is_taken_where_the_summariser_fails():
    def broken(passage):
        raise RuntimeError("no route")

    new = Summary(
        keep_turns=1, summariser=broken, otherwise=lambda p: f"[FAILED {p.instructions}]"
    )(shown(turns(3)), ROOM)
    assert texts(new)[0] == "[FAILED no route]"
    with pytest.raises(ModelError, match="no route"):
        Summary(keep_turns=1, summariser=broken)(shown(turns(3)), ROOM)


def test_a_summary_larger_than_its_input_is_not_taken():
    h = shown(turns(3, ""))
    assert Summary(keep_turns=1, summariser=say(LONG * 20))(h, ROOM) is h


def test_nothing_but_a_summary_is_not_summarised_again():
    policy = Summary(keep_turns=1, summariser=say())
    once = policy(shown(turns(3)), ROOM)
    assert policy(once, ROOM) is once


def test_the_summariser_is_told_what_to_keep():
    told = []
    Summary(
        keep_turns=1,
        sections=("## A",),
        identifiers="strict",
        focus="the bug",
        summariser=lambda p: told.append(p.instructions) or "x",
    )(shown(turns(3)), ROOM)
    assert "## A" in told[0]
    assert "UUIDs" in told[0]
    assert told[0].endswith("Additional focus:\nthe bug")


def test_an_audit_asks_again_and_says_why():
    answers = ["no heading", "## A\nu0 u1 words"]
    told = []

    def maker(passage):
        told.append(passage.instructions)
        return answers.pop(0)

    new = Summary(keep_turns=1, sections=("## A",), retries=2, summariser=maker)(
        shown(turns(3)), ROOM
    )
    assert texts(new)[0].startswith("## A")
    assert "missing_section:## A" in told[1]
    assert len(told) == 2


def test_a_slow_summariser_is_left_behind():
    with pytest.raises(ModelError, match="longer than"):
        Summary(keep_turns=1, seconds=0.05, summariser=lambda p: time.sleep(1) or "late")(
            shown(turns(3)), ROOM
        )
    assert (
        texts(Summary(keep_turns=1, seconds=5, summariser=say())(shown(turns(3)), ROOM))[0]
        == "SUMMARY"
    )


def test_two_summaries_of_a_split_turn_have_one_time_limit():
    history = shown(turns(3), user(f"last {LONG}"), [assistant(LONG) for _ in range(4)])

    def write_slowly(passage):
        time.sleep(0.2)
        return "part"

    def compact(seconds):
        return Summary(keep_tokens=150, seconds=seconds, summariser=write_slowly)(history, ROOM)

    assert "part" in texts(compact(5))[0]
    with pytest.raises(ModelError, match="longer than"):
        compact(0.3)  # enough for each of the two, not for both


def test_sizes_stand_for_summaries_that_nobody_wrote():
    h = shown(turns(5))
    new = Summary(keep_turns=1, summariser=FixedSizeSummariser(7))(h, ROOM)
    assert new.item(0).tokens == 7


class Noted(Summary):
    """What a person adds to whatever a summary says."""

    def write_summary(self, history, first):
        return f"{super().write_summary(history, first)} tokens, and {'more ' * 40}"


class Sized(FixedSizeSummariser):
    """A summariser of a fixed size that changes nothing."""


def test_what_a_class_writes_is_billed_and_sent_for_a_summary_of_a_fixed_size():
    policy = Noted(keep_tokens=300, summariser=FixedSizeSummariser(7))
    log, rules = MessageLog.of(turns(8), CHARS), Rules(policy, Above(900), counter=CHARS)
    done, live = run_rules(log, rules), RulesRun(log, rules)
    for cut in done.compactions:
        advance_run(live, rules, cut.call + 1)
        plain = policy(cut.was, done.budget)
        assert plain.messages == live.last_prompt().messages
        assert plain.tokens == live.last_prompt().tokens == done.prompts[cut.call]
        assert texts(plain)[0].startswith("7 tokens, and more")
    assert done.compactions


@pytest.mark.parametrize("keep", range(100, 700, 50))
def test_a_fixed_size_is_one_whatever_turns_are_split_and_for_its_subclasses(keep):
    h = shown(turns(2), user("now"), *(assistant(LONG) for _ in range(9)))
    made = [
        Summary(keep_tokens=keep, summariser=f(70))(h, ROOM) for f in (FixedSizeSummariser, Sized)
    ]
    assert [new.item(0).tokens for new in made] == [70, 70]


def test_a_prefix_is_not_doubled():
    policy = Summary(keep_turns=1, prefix="[C]\n", summariser=say("[C]\nx"))
    assert texts(policy(shown(turns(3)), ROOM))[0] == "[C]\nx"
    assert (
        texts(Summary(keep_turns=1, prefix="[C]\n", summariser=say("x"))(shown(turns(3)), ROOM))[0]
        == "[C]\nx"
    )


def test_files_are_listed_as_pi_does():
    h = shown(
        user(LONG),
        step("read", path="a"),
        step("read", path="b"),
        step("edit", path="b"),
        user("now"),
    )
    text = texts(Summary(keep_turns=1, file_lists=True, summariser=say("x"))(h, ROOM))[0]
    assert text == "x\n\n<read-files>\na\n</read-files>\n\n<modified-files>\nb\n</modified-files>"


def test_messages_of_a_summariser_are_taken_as_they_are():
    made = Message(role="summary", parts=(Text("mine"),), details={"by": "me"})
    assert Summary(keep_turns=1, summariser=lambda p: made)(shown(turns(3)), ROOM).messages[
        0
    ].details == {"by": "me"}


def test_two_measures_or_none_that_works_are_refused():
    with pytest.raises(BadArguments, match="keep_tokens or keep_turns"):
        Summary(keep_tokens=1, keep_turns=1)
    with pytest.raises(BadArguments, match="strict, off or custom"):
        Summary(identifiers="on")


@given(st.lists(st.integers(0, 3), max_size=12), st.integers(0, 400))
def test_what_is_kept_is_what_was_newest(kinds, keep):
    rows = []
    for k in kinds:
        rows += (
            [user(LONG)]
            if k == 0
            else step("bash", LONG * k)
            if k > 1
            else [assistant("ok", tool_call("bash"))]
        )
    h = shown(rows)
    new = Summary(keep_tokens=keep, summariser=FixedSizeSummariser(1))(h, ROOM)
    tail = [m.id for m in new.messages if m.role != "summary"]
    assert tail == [m.id for m in h.messages][len(h) - len(tail) :]
    assert new.tokens <= h.tokens
    assert CHARS.total(h.messages) == h.tokens


@pytest.mark.parametrize("odd", [3.5, -5, True, ["S"], b"S", {"a": 1}, object()])
@pytest.mark.parametrize("fails", [False, True])
def test_what_no_summary_can_be_is_refused_in_a_sentence(odd, fails):
    def nothing(_passage):
        raise ValueError("no")

    more = (
        {"summariser": nothing, "otherwise": lambda _: odd}
        if fails
        else {"summariser": lambda _: odd}
    )
    with pytest.raises(ModelError, match="must return text, a message or a number of tokens"):
        Summary(keep_messages=2, **more)(shown(turns(4)), ROOM)


def test_a_size_of_numpy_is_a_size():
    new = Summary(keep_messages=2, summariser=lambda _: np.int64(3))(shown(turns(4)), ROOM)
    assert new.head.items[0].tokens == 3
