"""The user's rules: until which compaction each stood, and what went against it."""

from __future__ import annotations

import pytest
from builders import assistant, call, result, session, step, summarised, tool_call, user

import ctxkit as ck
from ctxkit.metrics import (
    UserRuleTimeline,
    UserRuleTimelines,
    trace_user_rules,
    user_rules,
)

BAN, TONGUE = "Never push to main.", "Please answer in German."


def compacted(*after, summary="Work went on."):
    asked, reply = user(f"{BAN} {TONGUE}"), assistant("Yes.")
    return session(asked, reply, summarised([asked, reply], summary), user("Go on."), *after)


def test_a_rule_that_went_is_dated():
    rows = user_rules(compacted(assistant("One."), assistant("Two."))).to_dict("records")
    assert [(r["rule"], r["binds"]) for r in rows] == [(BAN, True), (TONGUE, False)]
    assert {(r["stated_call"], r["removed_by"], r["last_call"], r["in_sight"]) for r in rows} == {
        (0, 0, 0, False)
    }


def test_a_summary_in_other_words_keeps_it_in_sight():
    s = compacted(assistant("One."), summary="The user said one must never push anything to main.")
    assert [f.in_sight for f in trace_user_rules(s).fates] == [True, False]


def test_a_rule_that_is_stated_again_is_in_sight_again():
    s = compacted(assistant("One."), user(BAN), assistant("Two."))
    ban = trace_user_rules(s).fates[0]
    assert (ban.removed_by, ban.in_sight, ban.spans) == (0, True, ((0, 1), (2, 3)))


@pytest.mark.parametrize(
    ("tool", "arguments", "against"),
    [
        ("bash", {"command": "git push origin main"}, 2),
        ("bash", {"command": "git push origin feature"}, None),
        ("bash", {"command": "git checkout main"}, None),
        ("read_file", {"path": "push/main"}, None),
    ],
)
def test_an_action_against_a_ban_out_of_sight_is_named(tool, arguments, against):
    act = call(tool, **arguments)
    ban = trace_user_rules(compacted(assistant("One."), act, result("ok", act))).fates[0]
    assert ban.against_call == against
    assert ban.against == (None if against is None else "bash git push origin main")


def test_an_action_while_the_ban_is_in_sight_is_the_agents_own_fault():
    act = assistant("", tool_call("bash", command="git push origin main"))
    s = session(user(BAN), act, result("ok", act))
    assert trace_user_rules(s).fates[0].against_call is None


def test_a_verb_that_names_everything_needs_no_word_in_the_action():
    asked, reply = user("Do not touch the ledger table."), assistant("Yes.")
    act = call("bash", command="psql -c 'drop table ledger'")
    s = session(asked, reply, summarised([asked, reply]), user(), act, result("ok", act))
    assert trace_user_rules(s).fates[0].against_call == 1


def test_logs_without_text_rules_or_compactions_give_an_answer():
    assert len(user_rules(session())) == 0
    assert "no rule" in trace_user_rules(session(user("Hi."), assistant())).answer
    assert "nothing was compacted" in trace_user_rules(session(user(BAN), assistant())).answer


def test_a_replay_is_traced_like_a_record():
    s = ck.read(ck.samples.path("billing"))
    rules = ck.policies.Rules("window:keep_tokens=4000", ck.policies.triggers.Above(20_000))
    gone, carried = (
        user_rules(ck.replay(s, r)) for r in (rules, ck.policies.rules_modifiers.keep_rules(rules))
    )
    assert not gone["in_sight"].any()
    assert carried["in_sight"].all()


def test_the_chart_has_a_row_for_each_rule_and_a_point_for_each_act():
    act = call("bash", command="git push origin main")
    s = compacted(assistant("One."), act, result("ok", act))
    chart = ck.plots.user_rules(s)
    assert [row[3] for row in chart.rows] == ["compaction 0", "compaction 0"]
    assert chart.rows[0][5] == "call 2: bash git push origin main"
    assert [t.name for t in chart.drawing.traces] == ["in sight", "acted against"]


def test_keys_in_a_rule_are_not_shown():
    secret = "sk-ant-api03-" + "Ab3xY9" * 15
    s = session(user(f"Always use the key {secret} for prod."), *step(), assistant())
    assert secret not in str(ck.plots.user_rules(s).rows)


@pytest.mark.parametrize(
    ("in_sight", "against", "answer"),
    [
        ([True, True, False], [None, None, None], "2 of 3 rules of the user are still in sight; 1 went with a compaction."),
        ([True, False], [None, 4], "1 of 2 rules of the user is still in sight; 1 went with a compaction; 1 named in an action after that."),
        ([False], [0], "0 of 1 rule of the user are still in sight; 1 went with a compaction; 1 named in an action after that."),
    ],
)  # fmt: skip
def test_the_answer_counts_what_is_in_sight_and_what_was_acted_against(in_sight, against, answer):
    fates = tuple(
        UserRuleTimeline("a rule", True, 0, None, 0, seen, (), call, None)
        for seen, call in zip(in_sight, against, strict=True)
    )
    assert UserRuleTimelines(fates, (1,)).answer == answer
    all_seen = UserRuleTimelines(fates[:1], ()).answer
    assert all_seen == "1 rule of the user, all in sight: nothing was compacted."


def test_a_choice_does_not_bind():
    s = session(user(f"{BAN} Let's use port 8080 for the proxy."), assistant("Yes."))
    assert [(f.rule, f.binds) for f in trace_user_rules(s).fates] == [
        (BAN, True),
        ("Let's use port 8080 for the proxy.", False),
    ]


def test_each_rule_has_the_compaction_that_first_removed_it_and_its_last_prompt():
    first, second = user(BAN), user("Never delete src/ledger.py.")
    log = session(
        *(first, assistant("a"), second, assistant("b")),
        *(summarised([first]), user("on"), assistant("c"), assistant("d")),
        *(summarised([second]), user("on"), assistant("e"), user(BAN), assistant("f")),
        id="s",
    )
    ban, delete = trace_user_rules(log).fates
    assert ban[:6] == (BAN, True, 0, 0, 5, True)
    assert ban.spans == ((0, 2), (5, 6))
    assert delete[:6] == (second.text, True, 1, 1, 3, False)
    assert delete.spans == ((1, 4),)
    assert trace_user_rules(log).compaction_calls == (2, 4)
    assert user_rules(log).astype(object).to_numpy(na_value=None).tolist() == [
        ["s", BAN, True, 0, 0, 5, True, None, None],
        ["s", second.text, True, 1, 1, 3, False, None, None],
    ]
    again = user(BAN)  # both compactions remove it
    twice = session(
        *(first, assistant("a"), summarised([first]), user("on"), assistant("b")),
        *(again, assistant("c"), summarised([again]), user("on"), assistant("d")),
    )
    (ban,) = trace_user_rules(twice).fates
    assert ban[:6] == (BAN, True, 0, 0, 2, False)
    assert ban.spans == ((0, 1), (2, 3))


@pytest.mark.parametrize(
    ("rule", "command", "is_against"),
    [
        ("Never run the migrations.", "make migrations", True),  # any action runs or changes
        ("Do not delete the archive.", "mv archive old", False),
        ("Do not delete the archive.", "delete the archive", True),
        ("Never delete src/ledger.py.", "rm src/ledger.py", True),  # an exact value alone
        ("Never delete src/ledger.py.", "rm src/ledger.pyc", False),
        ("Avoid pushing to main.", "git push origin main", True),
        ("Avoid deleting the fixtures.", "delete all fixtures", True),
        ("Avoid dropping the archive.", "drop table archive", True),
        ("Avoid dropping the archive.", "dropped archive", False),
        ("Avoid using sudo.", "sudo make install", True),
        ("Never change anything before noon.", "change anything", False),
        ("Always push to main.", "git push origin main", False),
    ],
)
def test_an_action_names_the_exact_value_or_the_verb_and_object_of_a_ban(rule, command, is_against):
    asked, reply, act = user(rule), assistant("Yes."), call("bash", command=command + " " * 300)
    log = session(asked, reply, summarised([asked, reply]), user("on"), act, result("ok", act))
    (fate,) = trace_user_rules(log).fates
    assert (fate.against_call, fate.against) == ((1, f"bash {command}") if is_against else (None, None))  # fmt: skip
