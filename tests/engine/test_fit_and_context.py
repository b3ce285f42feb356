"""Plain dicts in, dicts out: what is not changed comes back as the same object, and pairs are sound."""

from __future__ import annotations

import warnings

import pytest
from conftest import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ctxkit import Context, fit, replay
from ctxkit.errors import BadArguments, UnsoundHistory
from ctxkit.policies import Rules, triggers
from ctxkit.presets import fuseraft


def asked(n, text="x" * 400):
    call = {"id": f"c{n}", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{n}", "content": text},
    ]


def talk(n):
    first = [
        {"role": "system", "content": "You are an agent."},
        {"role": "user", "content": "Do it.", "name": "me"},
    ]
    return first + [m for i in range(n) for m in asked(i)]


def pi(keep, at):
    rules = lambda h, budget: h.summarise(h.safe(h.back(keep)), "So far.", "full")
    return Rules(rules, triggers.Above(at), counter="chars/4")


def clear(h, budget):
    return h.shorten(h.role("tool"), "[gone]")


def test_nothing_due_gives_the_same_objects():
    messages = talk(3)
    out = fit(messages, pi(100, 10_000))
    assert out is not messages
    assert all(a is b for a, b in zip(out, messages, strict=True))


def test_changed_dicts_keep_what_else_they_hold():
    messages = talk(2)
    messages[3]["cache_control"] = {"type": "ephemeral"}
    out = fit(messages, clear)
    assert out[3] == {**messages[3], "content": "[gone]"}
    assert messages[3]["content"] == "x" * 400
    assert [a is b for a, b in zip(out, messages, strict=True)] == [
        True,
        True,
        True,
        False,
        True,
        False,
    ]


@given(st.integers(0, 9), st.integers(1, 500), st.integers(1, 500))
@example(5, 150, 300)  # the suffix of 150 tokens begins with a result
@settings(max_examples=examples(30))
def test_pairs_are_sound_and_the_system_prompt_stays(n, keep, at):
    messages = talk(n)
    out = fit(messages, pi(keep, at))
    ids = [c["id"] for m in out for c in m.get("tool_calls", ())]
    assert ids == [m["tool_call_id"] for m in out if m["role"] == "tool"]
    assert out[0] is messages[0]


def test_a_summary_comes_as_a_user_message():
    out = fit(talk(5), pi(101, 300))
    assert out[1] == {"role": "user", "content": "So far."}
    assert out[2:] == talk(5)[-2:]


def test_an_orphan_is_refused():
    with pytest.raises(UnsoundHistory, match=r"Tool call ls \(c0\) lost its result"):
        fit(talk(2), lambda h, budget: [m for m in h.messages if m.role != "tool"])


@pytest.mark.parametrize("bad", ["hello", {"content": "x"}, {"role": "nobody"}, None])
def test_what_is_no_message_is_named(bad):
    with pytest.raises(BadArguments, match="Message 1 is none"):
        fit([{"role": "user", "content": "x"}, bad], clear)


def test_empty_in_empty_out():
    assert fit([], clear) == []


def test_a_context_remembers_what_it_cut():
    context, messages = Context(pi(250, 500)), talk(12)
    for n in range(2, len(messages) + 1, 2):
        out = context.fit(messages[:n])
    assert len(context.edits) > 1
    assert (
        sum(m["role"] == "user" for m in out) == 1
    )  # one summary: the later one took the earlier one up
    assert out[-1] is messages[-1]
    assert "2" in repr(context)
    assert len(fit(messages, pi(250, 500))) < len(messages)


def test_a_context_gives_what_a_replay_of_its_session_gives():
    context, messages = Context(pi(250, 500)), talk(12)
    for n in range(2, len(messages) + 1, 2):
        context.fit(messages[:n])
    again = replay(context.session, pi(250, 500))
    calls = len(again.calls)
    assert [e.targets for e in again.edits] == [
        e.targets for c in context.run.compactions if c.call < calls for e in c.edits
    ]


def test_the_list_that_was_given_back_may_go_on():
    a, b, mine = Context(pi(250, 500)), Context(pi(250, 500)), []
    messages = talk(12)
    for n in range(0, len(messages), 2):
        mine = a.fit(mine + messages[n : n + 2])
        other = b.fit(messages[: n + 2])
    assert mine == other


def test_fit_twice_is_one_call():
    context = Context(pi(250, 500)).add(*talk(2))
    assert context.fit() == context.fit()
    assert context.run.call == 3  # two replies and the coming call


@pytest.mark.filterwarnings("ignore:The rules")
def test_another_conversation_needs_another_context():
    context = Context(clear)
    context.fit(talk(3))
    with pytest.raises(BadArguments, match="begin a new Context"):
        context.fit([{"role": "user", "content": "Another thing."}])


def test_a_turn_without_reply_does_not_shift_the_edits():
    context = Context(pi(10, 300))
    context.fit(talk(1))
    context.add({"role": "user", "content": "y" * 2000}).fit()
    context.add({"role": "assistant", "content": "Done."}).fit()
    positions = [type(e).__name__ for e in context.session.path]
    assert positions.index("Edit") < len(positions) - 1


RULES = Rules(policy=lambda h, _: h.summarise(h.safe(h.back(400)), "So far.", "full"),
              trigger=triggers.Above(900), counter="chars/4")  # fmt: skip


def test_a_growing_list_that_is_fitted_again_is_told_of_the_context():
    messages = talk(20)
    assert len(fit(messages, RULES)) < len(messages)
    messages += asked(20)
    with pytest.warns(UserWarning, match=r"ck\.Context\(rules\)"):
        fit(messages, RULES)


@pytest.mark.parametrize("form", ["replaced", "in place", "again", "others"])
def test_lists_that_go_on_soundly_are_told_nothing(form):
    messages = talk(20)
    for n in range(12):
        if form == "replaced":
            messages = fit(messages, RULES)
        elif form == "in place":
            messages[:] = fit(messages, RULES)
        elif form == "again":
            fit(messages, RULES)
            continue
        else:
            messages = talk(20)
            fit(messages, RULES)
        messages += asked(100 + n)


def test_a_context_keeps_the_beginning_of_its_prompts_where_fit_does_not():
    messages, context, before, broken = talk(2), Context(RULES), [], 0
    for n in range(60):
        messages += asked(n)
        now = context.fit(messages)
        broken += not all(a is b or a == b for a, b in zip(before, now, strict=False))
        before = now
    assert broken == len(context.run.compactions) > 2


def test_rules_that_cut_at_each_call_are_told_once():
    messages, context = talk(0), Context("summary:keep_tokens=50")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for n in range(12):
            messages += asked(n)
            context.fit(messages)
    assert len(context.run.compactions) > 3
    said = [str(w.message) for w in told]
    assert sum("compact at each call" in words for words in said) == 1
    assert len(set(said)) == len(said)


def test_a_result_of_the_responses_api_is_emptied_where_its_output_stands():
    def call(i):
        yield {"type": "function_call", "call_id": f"c{i}", "name": "read", "arguments": "{}"}
        yield {"type": "function_call_output", "call_id": f"c{i}", "output": "long " * 500}

    items = [{"role": "user", "content": "go"}, *call(1), *call(2)]
    shown = fit(items, Rules(pruning="clear:keep_last=1"))
    assert shown[4] is items[4]
    assert shown[2].keys() == items[2].keys()
    assert "long" not in shown[2]["output"]


@pytest.mark.filterwarnings("ignore:No model wrote")
@pytest.mark.parametrize("dropped", [True, False])
def test_a_late_result_is_sent_behind_its_call_or_not_at_all(dropped):
    """The call was summarised while its result was out; a provider would refuse it alone."""
    [call, result] = asked(1, "late")
    said = [{"role": "user", "content": "go " * 400}, call, {"role": "user", "content": "on " * 300},
            {"role": "assistant", "content": "yes " * 300}, {"role": "user", "content": "more"}]  # fmt: skip
    at = 500 if dropped else 50_000
    context = Context(Rules("summary:keep_turns=1", triggers.Above(at), counter="chars/4"))
    assert (call in context.fit(said)) is not dropped
    said += [{"role": "assistant", "content": "ok"}, result, {"role": "user", "content": "and?"}]
    sent = context.fit(said)
    assert (result in sent) is (call in sent) is not dropped
    assert sent[-1] is said[-1]
    sent.append({"role": "assistant", "content": "done"})
    assert context.fit(sent)[-1] is sent[-1]  # the list that was given continues


def test_a_reply_with_a_name_is_that_agents():
    """F30: Rules that leave agents out know them by the names of their messages."""
    call = {"id": "c", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "Work."},
        {"role": "assistant", "name": "Developer", "content": "I list.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "name": "ls", "content": "a.py"},
        {"role": "assistant", "name": "Developer", "content": "Done."},
        {"role": "assistant", "name": "Tester", "content": "Tested."},
    ]
    rules = fuseraft(exclude_agents=["developer"])
    assert fit(messages, rules) == [messages[0], messages[4]]
    assert Context(rules).fit(messages) == [messages[0], messages[4]]
    nameless = [{k: v for k, v in m.items() if k != "name"} for m in messages]
    assert len(fit(nameless, rules)) > 2


def test_a_dict_of_several_results_comes_back_once_where_none_is_changed():
    """One message of the Messages API is a message of the log for each result, and for its text."""

    def call(name):
        return {"type": "tool_use", "id": name, "name": "ls", "input": {}}

    def answer(name, text):
        return {"type": "tool_result", "tool_use_id": name, "content": text}

    results = [answer("a", "x" * 400), answer("b", "y" * 400), {"type": "text", "text": "Go on."}]
    messages = [
        {"role": "user", "content": "List both."},
        {"role": "assistant", "content": [call("a"), call("b")]},
        {"role": "user", "content": results},
        {"role": "assistant", "content": "Done."},
    ]
    unchanged = fit(messages, Rules())
    assert [id(m) for m in unchanged] == [id(m) for m in messages]
    cleared = fit(messages, Rules(pruning="clear:keep_last=1"))
    assert [m["role"] for m in cleared] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "user",
        "assistant",
    ]
    assert [m["content"] for m in cleared[3:5]] == ["y" * 400, "Go on."]
    assert "x" not in cleared[2]["content"]
    assert cleared[5] is messages[3]
