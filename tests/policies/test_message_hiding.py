"""Keep policies, with the cases of fuseraft's ContextWindowFilterTests."""

import pytest
from builders import assistant, result, step, system, tool_call, user
from histories import CHARS, ROOM, ids, shown, texts

from ctxkit.engine import run_rules
from ctxkit.errors import BadArguments
from ctxkit.policies import MessageLog, RoleFilter, Rules, Tail, TextOnly, TurnAge, WithoutAgents

CALL = tool_call("read_file", path="a")
MIXED = [assistant("Looking.", CALL, agent="Dev"), result("data", CALL)]


def test_fu1_text_only_drops_tool_messages_and_pure_call_frames():
    """TextOnly keeps users and text, drops results and frames with calls only; the author stays"""
    new = TextOnly()(shown(user("go"), step(), MIXED, assistant("done")), ROOM)
    assert texts(new) == ["go", "Looking.", "done"]
    assert new.messages[1].agent == "Dev"
    assert not new.messages[1].tool_calls


def test_fu2_excluded_agents_are_compared_without_case():
    """ExcludeAgents drops replies and calls of the agent, whatever the case of its name"""
    call = tool_call("bash", "c1", command="make")
    rows = [user("go"), assistant("t", agent="Tester"), assistant("", call, agent="Tester"),
            result("made", call), assistant("d", agent="Dev")]  # fmt: skip
    new = WithoutAgents(agents=("tester",))(shown(*rows), ROOM)
    assert texts(new) == ["go", "d"]
    assert not any(m.tool_calls for m in new.messages)


def test_fu3_a_tail_of_three_of_ten():
    """MaxTailMessages 3 of 10 messages keeps 8, 9 and 10"""
    assert texts(Tail(messages=3)(shown(*(user(f"{i}") for i in range(1, 11))), ROOM)) == [
        "8",
        "9",
        "10",
    ]


def test_fu4_text_only_comes_before_the_tail():
    """TextOnly and MaxTailMessages 2 are applied in that order"""
    new = (TextOnly() | Tail(messages=2))(shown(user("a"), step(), step(), assistant("b")), ROOM)
    assert texts(new) == ["a", "b"]


def test_fu5_text_only_takes_most_of_a_noisy_history():
    """30 messages with tool noise become 6"""
    noisy = [
        m
        for i in range(3)
        for m in (user(f"u{i}"), *(x for _ in range(4) for x in step()), assistant(f"a{i}"))
    ]
    assert len(noisy) == 30
    assert len(TextOnly()(shown(*noisy), ROOM)) == 6


def test_fu6_turn_age_keeps_the_last_turns_with_their_question():
    """MaxTurnAge 2 of [task, t0, c1, t1, c2, t2] keeps [c1, t1, c2, t2]; the program's older version begins with t1"""
    h = shown(
        user("task"), assistant("t0"), user("c1"), assistant("t1"), user("c2"), assistant("t2")
    )
    assert texts(TurnAge(turns=2)(h, ROOM)) == ["c1", "t1", "c2", "t2"]
    assert texts(TurnAge(turns=2, from_reply=True)(h, ROOM)) == ["t1", "c2", "t2"]
    assert TurnAge(turns=1)(h, ROOM).messages[0].role == "user"
    assert TurnAge(turns=9)(h, ROOM) is h


def test_fu7_corrections_are_pinned_in_a_tail_and_not_counted():
    """a correction message stays beside the last N, in order"""
    new = Tail(messages=2)(
        shown(user("RETRY now"), assistant("a"), user("b"), assistant("c")), ROOM
    )
    assert texts(new) == ["RETRY now", "b", "c"]
    plain = Tail(messages=2, pin_corrections=False)(
        shown(user("RETRY now"), assistant("a"), user("b"), assistant("c")), ROOM
    )
    assert texts(plain) == ["b", "c"]


def test_no_setting_changes_nothing():
    h = shown(user(), step())
    for policy in (Tail(), TurnAge(), WithoutAgents()):
        assert policy(h, ROOM) is h


def test_a_tail_never_begins_with_a_result():
    c = tool_call()
    h = shown(
        user("u"), assistant("", c, id="ask"), result("r", c, id="got"), assistant("x", id="end")
    )
    assert ids(Tail(messages=2)(h, ROOM)) == ["end"]


def test_system_pinned_and_pending_messages_stay():
    h = shown(system("s"), user("pinned", pinned=True), MIXED, user("last"))
    assert texts(Tail(messages=1)(h, ROOM)) == ["s", "pinned", "last"]
    waiting = shown(user("u"), assistant("", CALL), result("?", CALL, pending=True), user("last"))
    assert len(TextOnly()(waiting, ROOM)) == 4


def test_roles_without_tool_keep_the_words_of_a_reply():
    new = RoleFilter(roles=("assistant",))(
        shown(system("s"), user("u"), MIXED, user("go on")), ROOM
    )
    assert texts(new) == ["s", "Looking.", "go on"]


def test_unknown_roles_and_negative_numbers_are_refused():
    with pytest.raises(BadArguments, match="assistant"):
        RoleFilter(roles=("asistant",))
    with pytest.raises(BadArguments, match="messages"):
        Tail(messages=-1)


def test_a_label_shows_what_is_not_default():
    assert repr(Tail(messages=3)) == "Tail(messages=3)"
    assert repr(TextOnly()) == "TextOnly()"


def test_what_each_part_of_a_chain_did_is_remembered():
    h = shown(user("a"), assistant("b"), step(), user("c"), assistant("d"))
    new = (TextOnly() | Tail(messages=2))(h, ROOM)
    assert texts(new) == ["c", "d"]
    assert [e.reason for e in new.edits] == ["TextOnly", "Tail"]


def test_a_tail_counts_the_input_of_the_turn_but_not_its_calls():
    said = [user("a"), assistant("b"), user("c"), assistant("d"), user("go on")]
    for own in ([], [*step(text="r1")], [*step(text="r1"), *step(text="r2")]):
        kept = texts(Tail(messages=2)(shown(*said, *own), ROOM))
        assert kept[:2] == ["d", "go on"]
        assert len(kept) == 2 + len(own)
        besides = Tail(messages=2, besides_prompt=True)(shown(*said, *own), ROOM)
        assert texts(besides)[:3] == ["c", "d", "go on"]


def test_what_a_turn_said_is_filtered_with_the_next_one_and_billed_so():
    """a turn's prompts only grow; the next one's shares with them what comes before the first tool call"""
    one, two = step(text="r" * 400), step(text="r" * 80)
    log = MessageLog.of(
        [user("u" * 40), *one, *two, assistant("a" * 40), user("v" * 40), *step()], CHARS
    )
    log.open()
    done = run_rules(log, Rules(pruning=TextOnly(), counter=CHARS))
    size = log.tokens.sizes
    within = [size[0], sum(size[:3]), sum(size[:5])]
    assert done.prompts[:3].tolist() == within
    assert done.fresh_tokens[:3].tolist() == [size[0], sum(size[1:3]), sum(size[3:5])]
    stripped = size[0] + size[5] + size[6]
    assert done.prompts[3:].tolist() == [stripped, stripped + sum(size[7:9])]
    assert done.fresh_tokens[3:].tolist() == [size[5] + size[6], sum(size[7:9])]
