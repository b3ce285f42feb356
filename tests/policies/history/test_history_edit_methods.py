"""Verbs: what they do, what they never do, and that their edits say the same."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from builders import assistant, call, result, step, system, tool_call, user
from hypothesis import given
from hypothesis import strategies as st
from late_result_messages import late_talk
from random_sessions import Fours, by_chance, shown

from ctxkit.engine import run_rules
from ctxkit.errors import BadArguments, UnsoundHistory
from ctxkit.policies import History, MessageLog, Window
from ctxkit.policies.history.invariants import INVARIANTS
from ctxkit.presets import preset
from ctxkit.session import Message, Text, apply_edit
from ctxkit.tokens import ContextBudget


def roles(h):
    return [m.role for m in h.messages]


def short(m, text):
    return msgspec.structs.replace(m, parts=(Text(text),))


VERBS = {
    "summarise": lambda h, p, q: h.summarise(p, "So far: nothing.", "why", start=min(p, q)),
    "size": lambda h, p, q: h.summarise(p, 77, "why"),
    "drop range": lambda h, p, q: h.drop(max(p, q), "why", start=min(p, q)),
    "drop some": lambda h, p, q: h.drop(list(range(min(p, q), max(p, q), 2)), "why"),
    "keep": lambda h, p, q: h.keep(np.arange(len(h)) >= p, "why"),
    "placeholder": lambda h, p, q: h.shorten(h.role("tool"), "[gone]", "why"),
    "shorten": lambda h, p, q: h.shorten(
        dict.fromkeys(range(min(p, q), max(p, q)), "!"), reason="why"
    ),
    "replace": lambda h, p, q: (
        h.replace({p: "much longer than it was " * 9}, reason="why") if p < len(h) else h
    ),
    "insert": lambda h, p, q: h.insert(
        h.safe(p), Message(role="user", parts=(Text("note"),)), "why"
    ),
    "become": lambda h, p, q: h.become(
        [m for i, m in enumerate(h.messages) if h.stays[i] or h.groups[i] % 2], "why"
    ),
}


@given(
    st.integers(0, 10**6),
    st.lists(
        st.tuples(st.sampled_from(sorted(VERBS)), st.floats(0, 1), st.floats(0, 1)), max_size=4
    ),
)
def test_any_verbs_leave_a_sound_history_whose_edits_say_the_same(seed, verbs):
    talk = by_chance(seed, 14)
    log = MessageLog.of(talk.messages, Fours())
    h = History.start(log, 9)
    for name, a, b in verbs:
        before = h.messages
        new = VERBS[name](h, round(a * len(h)), round(b * len(h)))
        assert h.messages == before  # nothing was changed in place
        assert (new is h) == (new.steps == h.steps)
        h = new
    assert [i.broken(h) for i in INVARIANTS] == [None] * len(INVARIANTS)
    view = list(History.start(log, 9).messages)
    for edit in h.edits:
        view = apply_edit(view, edit)
        assert edit.reason == "why"
    assert view == list(h.messages)
    assert len({m.id for m in view}) == len(view)
    if h.steps:
        assert h.edits[-1].tokens_after == h.tokens
        same = sum(n for n, _ in same_prefix(History.start(log, 9), h))
        assert (
            h.stable == same if len(h.steps) == 1 else h.stable <= same
        )  # a later verb may undo an earlier one


def same_prefix(a, b):
    for p in range(min(len(a), len(b))):
        if a[p] != b[p]:
            return
        yield a.item(p).tokens, p


def test_what_stays_stays_in_its_place():
    h = shown(system(), user(), user("never!", pinned=True), *step(), user())
    assert roles(h.summarise(len(h), "S")) == ["system", "summary", "user"]
    assert [m.text for m in h.drop(len(h)).messages] == ["You are an agent.", "never!"]
    assert h.shorten({0: ".", 2: "."}) is h


@pytest.mark.parametrize("has_head", [False, True])
def test_one_text_for_all_results_leaves_out_the_protected_ones(has_head):
    """A pinned result and one that waits for an approval, in the log or in an edited head."""
    asked = call("rm", "a", path="x")
    waiting = result("waits " * 40, asked, pending=True)
    pinned = call("cat", "b", path="x")
    h = shown(
        user("first"),
        *step(text="old " * 40),
        *(asked, waiting),
        *step(text="new " * 40),
        *(pinned, result("pinned " * 40, pinned, pinned=True)),
        user("Go on."),
    )
    if has_head:
        h = h.replace({8: "noted " * 40, 9: "Go on at once."}, reason="test").drop([0])
    new = h.shorten(h.role("tool"), "[gone]")
    assert [m.text.split()[0] for m in new.messages if m.role == "tool"] == [
        "[gone]",
        "waits",
        "[gone]",
        "pinned",
    ]


def test_a_text_that_a_message_has_already_is_no_change():
    h = shown(user(), *step(), *step(), user())
    once = h.replace(h.role("tool"), "[a longer text than before]")
    assert len(once.edits) == 1
    assert once.replace(once.role("tool"), "[a longer text than before]") is once
    other = once.replace(once.role("tool"), "[another text]")
    assert [m.text for m in other.messages if m.role == "tool"] == ["[another text]"] * 2


def test_a_protected_result_before_a_summary_keeps_its_text():
    asked = call("cat", "b", path="x")
    pinned = result("pinned " * 40, asked, pinned=True)
    h = shown(asked, pinned, *step(), *step(), *step(), user()).summarise(8, "So far: nothing.")
    assert roles(h) == ["assistant", "tool", "summary", "user"]
    assert h.shorten(h.role("tool"), "[gone]") is h


def test_a_cut_behind_what_stays_changes_nothing():
    h = shown(system(), system("And be kind."), user(), *step(), user())
    assert h.drop(2) is h
    assert h.summarise(2, "S") is h
    assert h.summarise(1, 50) is h
    assert roles(h.summarise(3, 50)) == ["system", "system", "summary", "assistant", "tool", "user"]


def test_a_group_of_which_one_goes_goes_whole():
    asked = assistant("", tool_call("ls", "a"), tool_call("ls", "b"))
    h = shown(user(), asked, result("1", "a"), result("2", "b"), user("go on"))
    assert roles(h.drop([2])) == ["user", "user"]
    assert roles(h.drop(2)) == ["user"]  # the cut moves on to the next safe one
    assert roles(h.summarise(3, "S")) == ["summary", "user"]


def test_a_range_begins_at_the_next_place_that_parts_no_call_from_its_result():
    h = shown(user(), *step(), user("more"), *step(), user("go on"))
    for start in (2, 3):  # position 2 is the result of the call before it
        assert h.drop(6, start=start).messages == (*h.messages[:3], h.messages[6])
    assert h.drop(3, start=2) is h
    last = shown(user(), *step())
    assert last.drop(3, start=2) is last


def test_a_pending_group_stays_whole():
    asked = call("rm", "a", path="x")
    h = shown(user(), asked, result("waits", "a", pending=True), user("go on"))
    assert roles(h.drop(len(h))) == ["assistant", "tool"]


def test_calls_can_be_stripped_with_their_results():
    asked = assistant("I look.", tool_call("ls", "a"))
    h = shown(user(), asked, result("1", "a", "ls"))
    new = h.replace({1: short(asked, "I look."), 2: None}, reason="text only")
    assert [m.text for m in new.messages] == ["Do it.", "I look."]
    assert [e.kind for e in new.edits] == ["replaced", "dropped"]
    with pytest.raises(UnsoundHistory, match=r"result of ls \(a\) lost its call"):
        h.replace({1: short(asked, "I look.")})


def test_shorten_never_makes_longer_and_replace_may():
    h = shown(user("hi"), *step("ls", "ok"))
    assert h.shorten(h.role("tool"), "[result omitted]") is h
    assert h.replace(h.role("tool"), "[result omitted]").tokens > h.tokens


def test_text_that_is_no_unicode_can_be_changed():
    h = shown(user("\ud800" * 90), user())
    assert h.shorten({0: "\ud800"}).tokens < h.tokens


def test_tool_calls_remain_when_a_text_is_shortened():
    h = shown(user(), assistant("a long thought", tool_call("ls", "a")), result("1", "a"))
    assert h.shorten({1: ""})[1].tool_calls == h[1].tool_calls
    assert h.shorten([False, True, False], "…")[1].text == "…"


def test_one_text_has_one_size_whoever_put_it_there():
    log = MessageLog(Fours())
    log.append(user("x" * 400), tokens=300)  # three times what the counter says
    log.append(user("x" * 400), tokens=60)
    log.append(assistant())
    log.scale = 1.5
    h = History.start(log, 0)
    text = "x" * 40
    by_mask, by_place = h.shorten([True, True], text), h.shorten({0: text, 1: text})
    by_message = h.become([msgspec.structs.replace(m, parts=(Text(text),)) for m in h.messages])
    assert [new.sizes.tolist() for new in (by_mask, by_place, by_message)] == [[15, 15]] * 3


def test_what_is_shorter_has_no_more_tokens_than_its_row():
    log = MessageLog(Fours())
    log.append(user("x" * 400), tokens=60)
    log.append(assistant())
    assert History.start(log, 0).replace({0: "x" * 390}).tokens == 60


def test_a_measure_of_its_own_is_kept_beside():
    class Threes(Fours):
        def message(self, m):
            return 3

    log = MessageLog.of(
        [user("x" * 400), user("y" * 400), assistant()], Fours(), estimator=Threes()
    )
    h = History.start(log, 0)
    assert (h.tokens, h.estimated) == (200, 6)
    new = h.summarise(1, "S" * 40)
    assert (new.tokens, new.estimated, new.back(4, estimated=True)) == (110, 6, 0)


@pytest.mark.parametrize("mask", [[True], [9], [-9], "x"])
def test_masks_that_do_not_fit_are_refused(mask):
    with pytest.raises(BadArguments, match=r"mask|Positions"):
        shown(user(), user()).drop(mask)


def test_a_mask_needs_a_text():
    h = shown(user(), user())
    with pytest.raises(BadArguments, match="give 'shortened' a text"):
        h.shorten([True, False])


def test_a_message_does_not_part_a_pair():
    h = shown(user(), *step())
    with pytest.raises(UnsoundHistory, match="part a tool call"):
        h.insert(2, user("note", id=""))


def test_a_late_result_binds_all_between():
    asked = call("slow", "late")
    h = shown(
        user(),
        asked,
        assistant("meanwhile"),
        user("and?"),
        result("done", "late", "slow"),
        user("well"),
    )
    assert h.safe(2) == 5
    assert roles(h.drop(3)) == ["user"]


@given(st.integers(0, 10**6), st.lists(st.integers(0, 40), max_size=9), st.booleans())
def test_positions_say_the_same_as_a_mask(seed, at, compacted):
    h = shown(*by_chance(seed).messages)
    if compacted:
        h = h.summarise(h.safe(len(h) // 3), 50, "old")
    at = [p for p in at if p < len(h)]
    mask = np.zeros(len(h), bool)
    mask[at] = True
    rising = np.flatnonzero(mask)
    views = [
        h.shorten(which, "[gone]", "why")
        for which in (mask, rising, rising[::-1], np.array(at, np.int64), at)
    ]
    assert all(v.messages == views[0].messages for v in views)
    assert all((v.tokens, v.estimated) == (views[0].tokens, views[0].estimated) for v in views)


@pytest.mark.parametrize("at", [[-1], [5, 99], [-99, 1]])
def test_positions_that_are_not_shown_are_refused_or_count_from_the_end(at):
    h = shown(user("a " * 90), assistant("b " * 90), user("c " * 90))
    at = np.array(at)
    if at.min() < -3 or at.max() >= 3:
        with pytest.raises(BadArguments, match="Positions are from 0 to 2"):
            h.shorten(at, "[gone]")
    else:
        assert h.shorten(at, "[gone]").messages[-1].text == "[gone]"


def test_under_one_measure_a_summary_of_a_known_size_is_as_large_in_both():
    h = shown(user("a " * 90), assistant("b " * 90), user("c " * 90), assistant("d " * 90))
    new = h.summarise(2, "So far.", "why", tokens=40)
    assert new.estimated == new.tokens - new.fixed
    later = new.shorten([2], "[gone]", "why")
    assert later.estimated == later.tokens - later.fixed


def test_a_result_that_came_after_its_call_was_dropped_is_nobodys_fault():
    call, other = tool_call("shell"), tool_call("shell")
    late = (user("go"), assistant("", call), user("on"), assistant("", other), result("x", other))
    log = MessageLog.of((*late, result("late", call), assistant("a"), assistant("b")), Fours())
    h = History.start(log, 1).drop(np.array([1]), "why").at(log.calls - 1)
    assert [i.broken(h) for i in INVARIANTS].count(None) == len(INVARIANTS) - 1
    said = next(p for p, m in enumerate(h.messages) if m.text == "a")
    changed = short(h[said], "something longer")
    assert h.replace({said: changed}, reason="why")[said].text == "something longer"
    assert len(h.become([m for m in h.messages if m.text != "a"], "why")) == len(h) - 1
    sound = shown(user("go"), assistant("", other), result("x", other))
    with pytest.raises(UnsoundHistory, match="lost its result"):
        sound.become([m for m in sound.messages if m.role != "tool"], "why")


def test_rules_that_replace_can_be_replayed_where_a_result_came_late():
    log = MessageLog.of(late_talk(6, 25), Fours())
    rules = preset("agent_framework").but(window=9_000, assumed=True, reserve=1_000)
    assert run_rules(log, rules).compactions


def test_an_edit_says_why_a_summary_failed_and_one_that_puts_it_back_does_not():
    h = History.start(MessageLog.of([user(), assistant(), user(), assistant()], counter=Fours()))
    told = Message(role="summary", parts=(Text("none"),), details={"error": "down"})
    failed = h.summarise(2, told)
    dropped = h.drop(2).instead_of("down")
    assert [e.details.get("error") for e in (*failed.edits, *dropped.edits)] == ["down", "down"]
    before = failed.insert(0, user("a note"))
    assert before.edits[1].inserted[-1].text == "none"
    assert [e.details.get("error") for e in before.edits] == ["down", None]
    assert h.instead_of("down") is h


def test_a_message_that_is_changed_twice_is_named_after_its_original():
    h = shown(user("x" * 400), user("y" * 400), user())
    twice = h.shorten({0: "a" * 80, 1: "b" * 80}).shorten({0: "a" * 8, 1: "b" * 8})
    for place in (0, 1):
        assert twice[place].id.startswith(f"{h[place].id}~")
        assert twice[place].id.count("~") == 1


class Equal(Fours):
    """An estimate that is the same for every message."""

    def __init__(self, tokens):
        self.tokens = tokens

    def message(self, m):
        return self.tokens


@pytest.mark.parametrize(
    ("estimate", "keep_tokens", "estimated", "left_n"),
    [
        (3, 150, False, 1),
        (3, 150, True, 3),
        (3, 6, False, 1),
        (3, 6, True, 2),
        (900, 300, False, 3),
        (900, 300, True, 1),
    ],
)
def test_a_window_counts_by_the_measure_that_it_is_told(estimate, keep_tokens, estimated, left_n):
    log = MessageLog.of(
        [user("x" * 400), user("y" * 400), user("z" * 400), assistant()],
        Fours(),
        estimator=Equal(estimate),
    )
    history = History.start(log, 0)
    assert (history.tokens, history.estimated) == (300, 3 * estimate)
    window = Window(keep_tokens=keep_tokens, estimated=estimated)
    assert len(window(history, ContextBudget(1_000, 0, Fours()))) == left_n


def test_the_summaries_that_stay_are_counted_by_the_same_measure():
    summary = Message(role="summary", parts=(Text("s" * 400),))
    later = [user(letter * 400) for letter in "xyz"]
    log = MessageLog.of(
        [user("w" * 400), summary, *later, assistant()], Fours(), estimator=Equal(3)
    )
    left = Window(keep_tokens=9, estimated=True)(
        History.start(log, 0), ContextBudget(1_000, 0, Fours())
    )
    assert [m.text[0] for m in left.messages] == ["s", "y", "z"]


@pytest.mark.parametrize(
    ("keep_tokens", "estimated", "left"),
    [(250, False, 2), (249, False, 1), (9, True, 3), (6, True, 2), (5, True, 1)],
)
def test_a_window_counts_the_fixed_part_in_tokens_only(keep_tokens, estimated, left):
    """A system's own estimate is of messages; system prompt and tools are outside of it."""
    messages = [user("x" * 400), user("y" * 400), user("z" * 400), user("w" * 400), assistant()]
    log = MessageLog.of(messages, Fours(), estimator=Equal(3), fixed=50)
    history = History.start(log, 0)
    assert (history.tokens, history.estimated) == (450, 12)
    window = Window(keep_tokens=keep_tokens, estimated=estimated)
    assert len(window(history, ContextBudget(1_000, 0, Fours()))) == left
