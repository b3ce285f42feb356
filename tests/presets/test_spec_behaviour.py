"""What the five documents say that rules do, each held against the weaker form of its sentence."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest
from builders import assistant, result, session, step, tool_call, usage, user
from histories import shown, texts

import ctxkit as ck
from ctxkit import presets
from ctxkit.agent import OutputLimits
from ctxkit.errors import ModelError
from ctxkit.policies import History, MessageLog, UnprunedForecast, result_clearing_and_cache_ttl
from ctxkit.session import Message, Text, Thinking, ToolCall
from ctxkit.tokens import AI, PULSE_CODER, TYRUM

LAYERS = {
    "view": ({"text_only": True, "max_tail_messages": 20}, {"pruning"}),
    "offloading": ({"offload_chars": 0}, {"pruning"}),
    "pairs": ({"max_in_turn_tool_pairs": 12}, {"pruning"}),
    "compaction": ({"keep_recent_turns": 8, "mode": "intent"}, {"policy"}),
    "budget": ({"warn_at": 80_000, "cutover_at": 120_000}, {"trigger", "guards", "warnings"}),
}


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_is_set_without_the_others(layer):
    """F1: The settings of one layer change the rules of that layer, and of no other one."""
    settings, own = LAYERS[layer]
    plain, rules = presets.fuseraft(), presets.fuseraft(**settings)
    names = {field.name for field in fields(plain)} - {"parameters"}
    assert {n for n in names if repr(getattr(plain, n)) != repr(getattr(rules, n))} == own


def by(agent, text="", tool=""):
    """A reply of an agent; with a tool, its call and the result of it."""
    if not tool:
        return (assistant(text, agent=agent),)
    asked = tool_call("bash", tool, command=tool)
    return assistant("", asked, agent=agent), result(f"result of {tool}", asked)


def test_excluded_agents_take_all_results_with_them_without_text_only():
    """F31: With ExcludeAgents no result of an earlier turn is sent, of whichever agent's call, though
    TextOnly is off; nor is a call that would be left without its result.
    """
    log = session(user("Go"), *by("Dev", tool="d1"), *by("Dev", "built"), *by("Tester", tool="t1"),
                  *by("Tester", "tested"), user("Next"), *by("Dev", "done"))  # fmt: skip
    rules = presets.fuseraft(exclude_agents=("Tester",))
    assert rules.parameters["text_only"] is False
    sent = [i.message for i in ck.replay(log, rules).sent(-1)]
    assert [m.text for m in sent] == ["Go", "built", "Next"]
    assert not any(m.tool_calls or m.role == "tool" for m in sent)


def test_window_mode_drops_the_oldest_and_keeps_the_newest_in_one_piece():
    """F64: What is left after pairs were dropped is the end of the conversation, within the budget."""
    rows = [m for n in range(40) for m in
            (user(f"ask {n} " + "word " * 60), assistant(f"reply {n} " + "word " * 60))]  # fmt: skip
    done = ck.replay(
        session(*rows), presets.fuseraft(mode="window", token_budget=2_000, context_window=100_000)
    )
    assert done.edits
    sent = [i.message.text for i in done.sent(-1) if i.message.role != "system"]
    whole = [m.text for m in rows[:-1]]
    assert 2 < len(sent) < len(whole)
    assert sent == whole[-len(sent) :]


def test_what_was_thought_stands_before_a_summary_unless_include_reasoning_is_off():
    """F70: Where a file says nothing, a summary begins with what was thought in its turns."""
    talk = [
        m
        for n in range(6)
        for m in (user(f"ask {n} " * 90), assistant("ok", thinking="because so"))
    ]

    def made(**settings):
        rules = presets.fuseraft(
            trigger_turn_count=5, keep_recent_turns=1, summariser=lambda _: "by a model", **settings
        )
        (edit,) = ck.replay(session(*talk), rules).edits
        return edit.inserted[0].text

    text = made()
    assert text.index("[REASONING EXCERPTS") < text.index("because so") < text.index("by a model")
    assert "because so" not in made(include_reasoning=False)


FIELDS = {
    "compactor": {"MaxMessages": 60, "MaxTokens": 9_000, "KeepRecent": 6, "KeepRecentTokens": 3_000,
                  "ReserveTokens": 12_000, "ToolCallCutoff": 4, "ToolSummaryStrategy": "heuristic",
                  "AutoCompact": False},
    "toolOutput": {"MaxLines": 50, "MaxBytes": 6_000, "MaxChars": 7_000,
                   "LargeOutputThreshold": 8_000, "TruncateMode": "head"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("part", "field"), [(p, f) for p, fields in FIELDS.items() for f in fields]
)
def test_each_field_of_ai_has_its_name(tmp_path, part, field):
    """A1, A4, A7, A10, A22: A setting of ai's file is named as its document names it."""
    value = FIELDS[part][field]
    path = tmp_path / "config.json"
    path.write_text(json.dumps({part: {field[0].lower() + field[1:]: value}}))
    name = "".join(f"_{c.lower()}" if c.isupper() else c for c in field).lstrip("_")
    assert ck.load_rules(path, system="ai").parameters[name] == value


@pytest.mark.parametrize("settings", [{"context_window": 20_000}, {"context_window": 0},
                                      {"context_window": 0, "max_tokens": 0}])  # fmt: skip
def test_with_auto_compact_off_ai_compacts_at_no_limit(settings):
    """A10: With AutoCompact false nothing is due, whether by the window, MaxTokens or MaxMessages."""
    log = session(*(m for i in range(40) for m in
                    (user("ask " * 900), assistant("ok", usage=usage(900 * i)))))  # fmt: skip
    assert ck.replay(log, presets.ai(**settings)).edits
    assert not ck.replay(log, presets.ai(auto_compact=False, **settings)).edits


def test_without_usage_ai_estimates_each_visible_message():
    """A46: Where no reply has usage, the size is the estimate of all messages that the agent sees."""
    seen = [user("a" * 401), assistant("b" * 30, thinking="c" * 9), *step("bash", "d" * 1_000)]
    hidden = user("e" * 8_000, visible=False)
    parts = [AI.message(m) for m in seen]
    assert shown(*seen, hidden, counter=AI).tokens == sum(parts) > 360
    rules = presets.ai(context_window=0, max_tokens=sum(parts))
    for limit, due in ((sum(parts), True), (sum(parts) + 1, False)):
        rules = presets.ai(context_window=0, max_tokens=limit)
        history = shown(*seen, hidden, counter=AI)
        assert rules.trigger(history, rules.context_budget(history.log)) is due


def test_pulse_coder_is_due_at_its_trigger_and_when_forced_below_it():
    """P10: At COMPACT_TRIGGER it compacts, one token below it does not; forced, it does there, too."""
    rows = [m for _ in range(10) for m in (user("x" * 400), assistant("y" * 403))]
    size = PULSE_CODER.total(rows)  # whole tokens each, so that nothing is rounded
    for trigger, due in ((size, True), (size + 1, False)):
        rules = presets.pulse_coder(
            compact_trigger=trigger, compact_target=size // 2, summariser=lambda _: "S"
        )
        history = shown(rows, counter=PULSE_CODER)
        budget = rules.context_budget(history.log)
        assert rules.trigger(history, budget) is due
        assert len(rules.policy(history, budget)) < len(
            history
        )  # whoever forces it asks no trigger


ROUNDED_ONCE = {
    "pulse_coder": (PULSE_CODER, lambda n: {"compact_trigger": n, "compact_target": n // 2}),
    "tyrum": (TYRUM, lambda n: {"context_window": n + 9, "reserved_input_tokens": 9}),
}


@pytest.mark.parametrize("system", ROUNDED_ONCE)
@pytest.mark.parametrize("chars", [5, 401])
@pytest.mark.parametrize("call", [9, 33])
def test_characters_are_added_up_before_they_are_divided(system, chars, call):
    """P7, P10: The size that triggers is rounded once, not message by message; in Tyrum, too."""
    counter, limits = ROUNDED_ONCE[system]
    rows = [m for _ in range(40) for m in (user("x" * chars), assistant("y" * chars))]
    prompt, before = rows[: 2 * call + 1], rows[: 2 * call - 1]
    limit = counter.total(prompt)
    assert counter.total(before) < limit < sum(map(counter.message, prompt))
    rules = presets.preset(system, **limits(limit))
    whole = shown(rows, counter=counter)
    forecast = UnprunedForecast(whole, rules.context_budget(whole.log))
    assert rules.trigger.first(forecast, 0, 40) == call
    for messages, due in ((before, False), (prompt, True)):
        opened, log = shown(messages, counter=counter), MessageLog.of(messages, counter)
        for history in (opened, History.start(log, log.calls)):  # its call is opened, or is not
            assert rules.trigger(history, rules.context_budget(history.log)) is due


def test_where_pulse_coders_summary_fails_thinking_and_calls_go_with_all_but_the_last_turns():
    """P16: Of the last turns what was thought and called goes, and what is empty without it; words
    stay.
    """

    def broken(_passage):
        raise ModelError("no route")

    rows = [m for n in range(9) for m in
            (user(f"ask {n}"), Message(role="assistant", id=f"t{n}", parts=(Thinking("why " * 50),)),
             *step("bash", "x" * 900, command=f"make {n}"), assistant(f"reply {n}", thinking="so"))]  # fmt: skip
    rules = presets.pulse_coder(keep_last_turns=3, summariser=broken)
    history = shown(rows, counter=PULSE_CODER)
    new = rules.policy(history, rules.context_budget(history.log))
    assert texts(new) == [text for n in (6, 7, 8) for text in (f"ask {n}", f"reply {n}")]
    kinds = {type(p) for m in new.messages for p in m.parts}
    assert not kinds & {Thinking, ToolCall}


TTL = {"ttl_seconds": 0, "soft_trim_ratio": 0, "hard_clear_ratio": 0, "min_prunable_tool_chars": 0,
       "soft_trim_max_chars": 200, "soft_trim_head_chars": 50, "soft_trim_tail_chars": 50}  # fmt: skip


def test_faseds_pruning_touches_old_results_only_and_not_the_record():
    """D31: Only results are trimmed, for the request: words of both sides are sent as they were, the
    newest results too, and the log has all of it.
    """
    rows = [m for n in range(6) for m in (user(f"ask {n} " * 400), assistant("because " * 400),
                                          *step("bash", f"row {n} " * 2_000))]  # fmt: skip
    log = session(*rows, user("go on"), assistant("ok"))
    pruned = ck.replay(
        log, ck.policies.Rules(pruning=result_clearing_and_cache_ttl.CacheTtl(**TTL), window=10_000)
    )
    sent = [i.message for i in pruned.sent(-1)]
    said = [(m.role, m.text) for m in log.messages[:-1]]
    assert [m.text for m in sent if m.role != "tool"] == [t for role, t in said if role != "tool"]
    before, after = (
        [t for role, t in said if role == "tool"],
        [m.text for m in sent if m.role == "tool"],
    )
    changed = [a != b for a, b in zip(before, after, strict=True)]
    assert changed[0]
    assert not changed[-1]
    assert not pruned.edits
    assert [m.text for m in log.messages if m.role == "tool"] == before


def test_a_large_output_is_cut_before_faseds_pruning_shortens_it_further():
    """D34: What a tool returns is bounded when it is stored; as an old result it is sent shorter."""
    stored = OutputLimits.of(presets.fased()).shorten("row of the output\n" * 60_000)
    assert 4_000 < len(stored) < 60_000
    asked = tool_call("bash", "c1", command="make")
    rows = [user("u"), assistant("", asked), result(stored, asked),
            *(m for n in range(4) for m in (user(f"ask {n}"), assistant("ok")))]  # fmt: skip
    rules = ck.policies.Rules(
        pruning=result_clearing_and_cache_ttl.CacheTtl(**{**TTL, "min_prunable_tool_chars": 10**9}),
        window=10_000,
    )
    sent = next(
        i.message for i in ck.replay(session(*rows), rules).sent(-1) if i.message.role == "tool"
    )
    assert 100 <= len(sent.text) < 600
    assert Text(stored) in rows[2].parts
