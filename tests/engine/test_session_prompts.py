"""What was sent of a prompt that was changed once more after its rules: cut, left out, added and given back."""

from __future__ import annotations

import pytest
from builders import assistant, result, session, tool_call, user
from msgspec.structs import replace
from random_sessions import Fours

from ctxkit.engine import SentPrompts, run_rules
from ctxkit.policies import Clear, MessageLog, Rules
from ctxkit.session import Text

ONE, TWO = tool_call("read", "c1", path="a"), tool_call("read", "c2", path="b")
LOG = [
    user("u" * 40, id="u"),
    assistant("", ONE, id="a1"),
    result("r" * 400, ONE, id="r1"),
    assistant("", TWO, id="a2"),
    result("q" * 400, TWO, id="r2"),
    assistant("z" * 40, id="a3"),
]


@pytest.fixture
def prompts():
    """The prompts of three calls, of which the last has its first result cleared by the rules."""
    run = run_rules(MessageLog.of(LOG, Fours(), fixed=7), Rules(pruning=Clear(keep_last=1)))
    sent = SentPrompts()
    sent.begin(run, schemas=3)
    return sent


def tell(items):
    return [(i.message.id.split("~")[0], i.tokens, i.raw_tokens, i.changed_by, i.row, i.pruned) for i in items]  # fmt: skip


def test_a_prompt_that_nobody_changed_is_that_of_the_rules(prompts):
    of = prompts.of(session(*LOG))
    assert of.schemas == 3
    assert tell(of.sent(2)) == [
        ("fixed", 7, 7, None, -1, False),
        ("u", 10, 10, None, 0, False),
        ("a1", 4, 4, None, 1, False),
        ("r1", 9, 100, "Clear", 2, True),
        ("a2", 4, 4, None, 3, False),
        ("r2", 100, 100, None, 4, False),
    ]
    assert of.prompt_sizes(3) == [17, 121, 134]
    assert of.left_out(2) == {}
    assert of.counter == "fours"


def test_a_message_that_was_changed_again_is_sent_as_it_is_now(prompts):
    items = [i.message for i in prompts.of(session(*LOG)).sent(2) if i.message.id != "fixed"]
    request, first, cleared, second, last = items
    short = replace(last, parts=(Text("q" * 40),))
    note = user("n" * 20, id="note")
    prompts.changed((request, note, first, LOG[2], second, short), "a trim")
    of = prompts.of(session(*LOG))
    assert tell(of.sent(2)) == [
        ("fixed", 7, 7, None, -1, False),
        ("u", 10, 10, None, 0, False),
        ("note", 5, 0, "a trim", -1, True),
        ("a1", 4, 4, None, 1, False),
        ("r1", 100, 100, None, 2, False),  # given back
        ("a2", 4, 4, None, 3, False),
        ("r2", 10, 100, "a trim", 4, True),
    ]
    assert of.prompt_size(2) == 7 + 10 + 5 + 4 + 100 + 4 + 10
    assert of.prompt_sizes(2) == [17, 121]
    assert cleared.text != LOG[2].text


def test_a_later_attempt_replaces_its_own_and_not_what_others_changed(prompts):
    items = tuple(i.message for i in prompts.of(session(*LOG)).sent(2) if i.message.id != "fixed")
    prompts.changed(items[:2], "a trim")
    prompts.changed(items[:1], "a trim")
    of = prompts.of(session(*LOG))
    assert [i.message.id for i in of.sent(2)] == ["fixed", "u"]
    assert of.prompt_size(2) == 17
    assert set(of.left_out(2)) == {1, 2, 3, 4}
    assert set(of.left_out(2).values()) == {"a trim"}
    assert of.left_out(1) == {}


def test_an_inserted_message_that_is_left_out_is_no_row_of_the_log():
    summary = user("s" * 20, id="summary")
    rules = Rules(pruning=lambda h, _budget: h.insert(0, summary))
    sent = SentPrompts()
    sent.begin(run_rules(MessageLog.of(LOG, Fours()), rules))
    items = sent.of(session(*LOG)).sent(2)
    assert [i.row for i in items] == [-1, 0, 1, 2, 3, 4]
    sent.changed(tuple(i.message for i in items[2:]), "a trim")
    assert sent.of(session(*LOG)).left_out(2) == {0: "a trim"}


def test_rules_prune_the_next_prompt_and_no_call_that_another_process_made():
    rules = Rules(pruning=lambda h, _budget: h.drop(1, "old"))
    sent = SentPrompts()
    sent.begin(run_rules(MessageLog.of(LOG, Fours()), rules))
    of = sent.of(session(*LOG[:-1], assistant("elsewhere", id="x")))
    assert list(of.left_out(None)) == [0]
    assert of.left_out(2) == {}


def test_changes_of_a_changed_call_are_all_of_it(prompts):
    items = tuple(i.message for i in prompts.of(session(*LOG)).sent(2) if i.message.id != "fixed")
    prompts.changed(items[:3], "a trim")
    changes = list(prompts.of(session(*LOG)).prompt_changes())
    assert [(c.call, c.anew, len(c.added)) for c in changes] == [
        (0, True, 1),
        (1, False, 2),
        (2, True, 3),
    ]
    assert [c.fixed for c in changes] == [7, 7, 7]
    assert [c.call for c in prompts.of(session(*LOG)).prompt_changes(1, 2)] == [1]


def test_a_reply_of_another_process_is_not_found(prompts):
    elsewhere = assistant("elsewhere", id="x")
    assert prompts.find(elsewhere) is None
    assert prompts.find(LOG[3])[1] == 1
    assert prompts.latest.run.call == 3
