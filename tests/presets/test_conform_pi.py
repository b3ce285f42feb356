"""Pi 0.58.3: the PI cases (a block of 4 characters is a token)."""

import json

import pytest
from builders import assistant, call, result, step, user
from histories import shown

from ctxkit import presets
from ctxkit.engine import RulesRun, advance_run
from ctxkit.errors import BadArguments
from ctxkit.formats import read
from ctxkit.policies import History, MessageLog, PiSummary
from ctxkit.policies.texts import summary_prompts_and_audits
from ctxkit.session import Usage
from ctxkit.tokens import PI, ContextBudget, get_counter

ROOM = ContextBudget(100_000, 10_000, PI)


def block(n, make=user, **more):
    return make("abcd" * n, **more)


def alternating():
    return [block(10, make, id=f"e{i}") for i, make in enumerate([user, assistant] * 3)]


def parts(policy, history):
    """What the summaries are made of, and the first message kept."""
    asked = []
    new = policy.using(lambda p: asked.append(len(p.messages)) or "S")(history, ROOM)
    return asked, next((m.id for m in new.messages if m.role != "summary"), None)


def test_pi2_a_split_turn_has_two_summaries():
    """keep 25: the first kept is e3, two messages are summarised and a prefix of one"""
    assert parts(PiSummary(keep_tokens=25), shown(alternating(), counter=PI)) == ([2, 1], "e3")


def results_at_the_end():
    c = call("read", id="c", path="a")
    rows = [
        block(10),
        block(5, assistant),
        block(10),
        block(5, assistant),
        c,
        block(100, lambda t, **m: result(t, c, **m)),
    ]
    return shown(rows, counter=PI)


@pytest.mark.parametrize("keep", [50, 100])
def test_pi4_a_large_last_result_is_cut_before_unless_quirks(keep):
    """nothing is cut by the program; the preset cuts before the call, and with quirks nothing"""
    h = results_at_the_end()
    assert PiSummary(keep_tokens=keep, quirks=True, summariser=lambda p: "S")(h, ROOM) is h
    assert [
        m.role for m in PiSummary(keep_tokens=keep, summariser=lambda p: "S")(h, ROOM).messages
    ] == [
        "summary",
        "assistant",
        "tool",
    ]


@pytest.mark.parametrize(("quirks", "lost"), [(True, 2), (False, 0)])
def test_pi8_messages_kept_once_are_lost_at_the_second_compaction(quirks, lost):
    """e2 and e3, kept by the first compaction, are in no summary of the program; the preset summarises four"""
    log = MessageLog(PI)
    rows = [block(10, make, id=f"e{i}") for i, make in enumerate([user, assistant] * 4)]
    asked = []
    policy = PiSummary(
        keep_tokens=20,
        must_shrink=False,
        quirks=quirks,
        summariser=lambda p: asked.append([m.id for m in p.messages]) or "S",
    )
    for m in rows[:4]:
        log.append(m)
    log.open()
    first = policy(History.start(log, log.calls - 1), ROOM)
    for m in [block(10, assistant, id="x"), *rows[4:], block(10, id="last")]:
        log.append(m)
    policy(History(log, first.head, first.lo, len(log), log.calls, first.since), ROOM)
    kept_before, summarised = {"e2", "e3"}, {i for a in asked[1:] for i in a}
    assert asked[0] == ["e0", "e1"]
    assert len(kept_before - summarised) == lost


def test_pi10_usage_is_the_sum_of_its_parts():
    """1000 in, 500 out, 200 read, 100 written: 1800"""
    u = Usage(input_tokens=1000, output_tokens=500, cache_read_tokens=200, cache_write_tokens=100)
    assert u.prompt_tokens + u.output_tokens == 1800


@pytest.mark.parametrize(
    ("tokens", "due"), [(95_000, True), (89_000, False), (90_000, False), (90_001, True)]
)
def test_pi11_due_above_the_window_less_the_reserve(tokens, due):
    """95000 of 100000 with a reserve of 10000 is due, 89000 and exactly 90000 are not; disabled never"""
    rules = presets.pi(context_window=100_000, reserve_tokens=10_000)
    h = shown(block(tokens), counter=PI)
    assert rules.trigger(h, rules.context_budget(h.log)) is due


def test_pi11_disabled_compacts_nothing():
    """enabled false: nothing is compacted"""
    log = MessageLog.of(
        [block(50_000), block(10, assistant), block(50_000), block(1, assistant)], PI
    )
    rules = presets.pi(context_window=60_000, enabled=False)
    assert advance_run(RulesRun(log, rules), rules, log.calls).compactions == []


def test_pi12_tool_results_are_cut_for_the_summariser():
    """5000 characters become 2000 and a note; 1500 are unchanged"""
    c = call("read", path="a.py", limit=3)
    text = summary_prompts_and_audits.write_pi_transcript([c, result("x" * 5000, c)])
    assert (
        text
        == '[Assistant tool calls]: read(path="a.py", limit=3)\n\n[Tool result]: '
        + "x" * 2000
        + "\n\n[... 3000 more characters truncated]"
    )
    assert (
        summary_prompts_and_audits.write_pi_transcript([result("x" * 1500)])
        == "[Tool result]: " + "x" * 1500
    )


def written(tmp_path, *entries):
    """A Pi file of entries `(id, parent, kind, more)`."""
    lines = [
        {
            "type": "session",
            "version": 3,
            "id": "s",
            "timestamp": "2026-01-01T00:00:00.000Z",
            "cwd": "/w",
        }
    ]
    for id_, parent, kind, more in entries:
        entry = {
            "type": kind,
            "id": id_,
            "parentId": parent,
            "timestamp": "2026-01-01T00:00:00.000Z",
            **more,
        }
        if kind in ("user", "assistant"):
            entry |= {
                "type": "message",
                "message": {
                    "role": kind,
                    "content": [{"type": "text", "text": id_}],
                    "timestamp": 1,
                },
            }
        lines.append(entry)
    path = tmp_path / "s.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    return read(path)


def chain(*steps):
    before = None
    for id_, kind, more in steps:
        yield id_, before, kind, more
        before = id_


def test_pi13_a_compaction_shows_its_summary_and_what_is_kept(tmp_path):
    """u, a, u2, a2, compaction(u2), u3, a3: five messages, the first the summary"""
    s = written(
        tmp_path,
        *chain(
            ("u", "user", {}),
            ("a", "assistant", {}),
            ("u2", "user", {}),
            ("a2", "assistant", {}),
            ("c", "compaction", {"summary": "S", "firstKeptEntryId": "u2", "tokensBefore": 1}),
            ("u3", "user", {}),
            ("a3", "assistant", {}),
        ),
    )
    assert [m.text for m in s.view()] == ["S", "u2", "a2", "u3", "a3"]


def test_pi14_only_the_last_compaction_counts(tmp_path):
    """two compactions, the second keeps u3: five messages, only the second summary"""
    s = written(
        tmp_path,
        *chain(
            ("u", "user", {}),
            ("a", "assistant", {}),
            ("c1", "compaction", {"summary": "S1", "firstKeptEntryId": "u"}),
            ("u3", "user", {}),
            ("a3", "assistant", {}),
            ("c2", "compaction", {"summary": "S2", "firstKeptEntryId": "u3"}),
            ("u4", "user", {}),
            ("a4", "assistant", {}),
        ),
    )
    assert [m.text for m in s.view()] == ["S2", "u3", "a3", "u4", "a4"]


def test_pi15_a_branch_is_another_path(tmp_path):
    """1→2→3→4→compaction(keep 3)→6→7, and 8, 9 and a branch summary under 3, then 11"""
    comp = {"summary": "S", "firstKeptEntryId": "3"}
    entries = [
        *chain(
            ("1", "user", {}),
            ("2", "assistant", {}),
            ("3", "user", {}),
            ("4", "assistant", {}),
            ("5", "compaction", comp),
            ("6", "user", {}),
            ("7", "assistant", {}),
        )
    ]
    assert [m.text for m in written(tmp_path, *entries).view()] == ["S", "3", "4", "6", "7"]
    entries += [
        ("8", "3", "assistant", {}),
        ("9", "8", "user", {}),
        ("10", "3", "branch_summary", {"fromId": "9", "summary": "B"}),
        ("11", "10", "user", {}),
    ]
    shown_ = [m.text for m in written(tmp_path, *entries).view()]
    assert [shown_[i] for i in (0, 1, 2, 4)] == ["1", "2", "3", "11"]
    assert "B" in shown_[3]


def test_pi_rules_that_cannot_work_are_refused():
    with pytest.raises(BadArguments, match="frees nothing"):
        presets.pi(context_window=30_000)
    with pytest.raises(BadArguments, match="leaves no room"):
        presets.pi(context_window=10_000)


def test_pi_summaries_have_at_most_a_share_of_the_reserve():
    policy = presets.pi(version="0.73.1").policy
    assert (policy.limit, policy.split_limit) == (13107, 8192)
    assert presets.pi().policy.limit is None  # from 1.x on the model's own limit


def test_custom_instructions_reach_the_summariser():
    told = []
    rules = presets.pi(
        keep_recent_tokens=10,
        custom_instructions="the tests",
        summariser=lambda p: told.append(p.instructions) or "S",
    )
    rules.policy(shown(alternating(), counter=get_counter("pi")), ROOM)
    assert "Additional focus: the tests" in told[0]


def test_pi_compacts_after_an_overflow():
    """overflow compaction, reason overflow: the prompt was refused though it was below the limit"""
    rules = presets.pi()
    refused = assistant(error="prompt is too long: 213462 tokens > 200000 maximum")
    h = shown(user("x"), refused, user("again"))
    assert rules.trigger(h, rules.context_budget(h.log))
    assert not rules.trigger(
        shown(user("x"), assistant(error="500"), user("again")), rules.context_budget(h.log)
    )


def test_the_program_does_not_look_between_the_calls_of_a_run():
    """checked after the agent's end and before a prompt"""
    for quirks, due in ((False, True), (True, False)):
        rules = presets.pi(
            context_window=20_000, reserve_tokens=19_900, keep_recent_tokens=10, quirks=quirks
        )
        h = shown(user("x" * 400), *step("bash", "y" * 400))
        assert rules.trigger(h, rules.context_budget(h.log)) is due
        h = shown(user("x" * 400), *step("bash", "y" * 400), assistant(), user())
        assert rules.trigger(h, rules.context_budget(h.log))
