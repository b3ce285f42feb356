"""What followed a cut: rules given again, acts against lost bans, calls to resume, stale values."""

from __future__ import annotations

import pytest
from builders import assistant, result, session, step, summarised, tool_call, user

import ctxkit as ck
from ctxkit.metrics.user_rule_loss_and_breaches import (
    extract_value_pairs,
    tabulate_compaction_consequences,
)

BAN = "Never write to config/live.yaml, it is finance's."


def one(*after, summary: str = "ok", first: str = BAN):
    """A rule and a value, a cut, and what came then: what followed the cut."""
    asked, told = step("read_file", "x = 1", path="src/a.py")
    old = [user(first), assistant("The retry limit is 3."), user("Make it 5: the retry limit is now 5."),
           assistant("Yes."), asked, told]  # fmt: skip
    s = session(*old, summarised(old, summary), *after)
    [row] = tabulate_compaction_consequences(s).to_dict("records")
    return row, ck.score(s)


def test_a_rule_that_the_user_had_to_say_again_is_told():
    again = user("As I said: do not write to config/live.yaml!")
    row, score = one(user("go"), assistant("done"), again, assistant("sorry"))
    assert row["rules_restated"] == row["rules_lost"] == BAN.rstrip(".")
    assert score["user_rules_restated_n"] == 1
    row, score = one(
        user("go"),
        assistant("done"),
        again,
        assistant(),
        summary="config/live.yaml must never be written to: finance's.",
    )
    assert (row["rules_lost"], score["user_rules_restated_n"]) == ("", 0)


@pytest.mark.parametrize(("said", "n"), [("Never write to config/live.yaml", 0), ("Always put tests under spec/unit", 1)])  # fmt: skip
def test_of_two_lost_rules_only_the_one_that_the_user_stated_again_counts(said, n):
    rules = ["Never write to config/live.yaml", "Always put tests under spec/unit"]
    row, score = one(
        user("go"), assistant(), user(f"{said}!"), assistant(), first=". ".join([*rules, ""])
    )
    assert sorted(row["rules_lost"].splitlines(), reverse=True) == rules
    assert (row["rules_restated"], score["user_rules_restated_n"]) == (rules[n], 1)


@pytest.mark.parametrize(
    ("name", "path", "call"),
    [("write_file", "config/live.yaml", 4), ("read_file", "config/live.yaml", None), ("write_file", "config/test.yaml", None)],
)  # fmt: skip
def test_the_first_act_against_a_lost_ban_is_found_and_a_look_is_none(name, path, call):
    done = tool_call(name, path=path)
    row, score = one(
        user("go"), assistant("first"), assistant("", done), result("ok", done), assistant()
    )
    assert (row["rule_breach_call"] if call else None) == call
    if call:
        assert (row["breached_rule"], score["calls_to_rule_breach"]) == (BAN.rstrip("."), 1.0)


def test_an_act_after_the_ban_is_in_sight_again_is_not_one_against_a_lost_ban():
    done = tool_call("write_file", path="config/live.yaml")
    row, _ = one(
        user("go"),
        assistant("first"),
        user(BAN),
        assistant("", done),
        result("ok", done),
        assistant(),
    )
    assert row["breached_rule"] is None or row["breached_rule"] != row["breached_rule"]


def test_calls_to_resume_are_those_until_something_new_is_asked():
    looks, runs = (
        step("read_file", "x = 1", path="src/a.py"),
        step("bash", "fine", command="pytest -q"),
    )
    _, score = one(user("go"), *looks, *step("read_file", "y", path="src/b.py"), *runs)
    assert score["calls_to_resume"] == 2
    _, score = one(user("go"), *runs, assistant())
    assert score["calls_to_resume"] == 0
    _, score = one(user("go"), *looks, assistant())
    assert score["calls_to_resume"] is ck.score(session(user(), assistant()))["calls_to_resume"]


def test_an_old_value_put_in_beside_the_new_one_is_stale_and_the_new_one_is_not():
    for summary, stale in (
        ("The retry limit is 3.", "retry limit = 3 (now 5)"),
        ("Retry limit: 5.", ""),
        ("ok", ""),
    ):
        row, score = one(user("go"), assistant(), summary=summary)
        assert (row["stale_values"], score["stale_values_n"]) == (stale, int(bool(stale)))


def test_pairs_are_names_with_values():
    text = "the port is 8080, `MAX_RUNS`=3; a-1->b-2 and it is not so. timeout: none"
    assert list(extract_value_pairs(text)) == [("port", "8080"), ("max_runs", "3"), ("a-1", "b-2")]
