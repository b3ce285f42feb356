"""Tyrum: the TY cases (TY9 stands with the checkpoint itself)."""

import json

import pytest
from builders import assistant, call, result, step, system, tool_call, user
from histories import ROOM, ids, shown

from ctxkit import presets
from ctxkit.errors import BadArguments
from ctxkit.policies import SummariserInput
from ctxkit.presets.systems.tyrum import TyrumSummary, find_last_units_start, make_pruning
from ctxkit.presets.systems.tyrum_checkpoint import (
    CheckpointSummariser,
    make_checkpoint_without_model,
    render_checkpoint,
)
from ctxkit.session import Message, SizeOnly, Text, is_overflow
from ctxkit.tokens import TYRUM


def pairs(n):
    out = []
    for i in range(1, n + 1):
        c = call(id=f"k{i}")
        out += [assistant("", *c.tool_calls, id=f"call{i}"), result("r", c, id=f"res{i}")]
    return out


def pruned(messages, **settings):
    return ids(make_pruning(**settings)(shown(messages), ROOM))


THREE = [system(id="sys"), user(id="user"), *pairs(3), assistant("done", id="done")]


def test_ty1_the_head_stays_and_the_newest_of_the_rest():
    """sys, sys, user, user and 10 texts, at most 8: eight messages, the first four unchanged"""
    rows = [
        system(id="s1"),
        system(id="s2"),
        user(id="u1"),
        user(id="u2"),
        *(assistant(id=f"a{i}") for i in range(10)),
    ]
    assert pruned(rows, max_messages=8, last_messages=4) == [
        "s1",
        "s2",
        "u1",
        "u2",
        "a6",
        "a7",
        "a8",
        "a9",
    ]


def test_ty2_a_call_whose_result_is_among_the_last_survives():
    """keep 4: res1 goes with call1; call2, whose result is the fourth from the end, stays"""
    assert pruned(THREE, last_messages=4) == [
        "sys",
        "user",
        "call2",
        "res2",
        "call3",
        "res3",
        "done",
    ]


@pytest.mark.parametrize("keep", [2, 1])
def test_ty3_ty4_two_messages_are_the_least(keep):
    """keep 2: only the third pair stays; keep 1 is the same"""
    assert pruned(THREE, last_messages=keep) == ["sys", "user", "call3", "res3", "done"]


def test_ty5_a_cap_below_eight_is_eight():
    """10 replies, at most 1: eight messages"""
    assert len(pruned([assistant(id=f"a{i}") for i in range(10)], max_messages=1)) == 8


def test_ty6_empty_messages_go():
    """[user ""] becomes []"""
    assert pruned([user("")]) == []


def test_ty7_a_head_as_long_as_the_cap_is_cut_there():
    """8 system messages and 2 replies, at most 4: the first 8"""
    assert pruned(
        [*(system(id=f"s{i}") for i in range(8)), assistant(), assistant()], max_messages=4
    ) == [f"s{i}" for i in range(8)]


def test_ty8_the_cap_limits_what_pruning_keeps():
    """sys, user and 6 pairs, at most 8, keep 12: pairs 4, 5 and 6"""
    rows = [system(id="s"), user(id="u"), *pairs(6)]
    assert pruned(rows, max_messages=8, last_messages=12) == [
        "s",
        "u",
        "call4",
        "res4",
        "call5",
        "res5",
        "call6",
        "res6",
    ]


def test_ty10_the_estimate_rounds_once():
    """texts of 11 and 1, a part of 64, a system prompt of 3 and a request of 2: 21 = ceil(81/4)"""
    part = Message(role="assistant", parts=(Text("x"), SizeOnly("tool", chars=64)))
    assert TYRUM.total([user("hello world"), part, system("sys"), user("go")]) == 21


@pytest.mark.parametrize(
    ("pending", "keep", "dropped"), [(None, 2, ["1", "2", "3"]), (2, 2, ["1"]), (3, 1, ["1", "2"])]
)
def test_ty11_the_split_moves_before_what_is_pending(pending, keep, dropped):
    """5 messages, keep 2: 1 to 3 go; with an unfinished tool at 2 only 1; with an approval at 3 and keep 1, 1 and 2"""
    rows = [
        (user, assistant)[i % 2](str(i) * 400, id=str(i), pending=i == pending) for i in range(1, 6)
    ]
    policy = TyrumSummary(keep_messages=keep, summariser=lambda p: "S")
    new = policy(shown(rows), ROOM)
    assert [i for i in map(str, range(1, 6)) if i not in ids(new)] == dropped


def test_ty12_turns_are_counted_by_what_is_said():
    """max_turns 2: user, reply, user, reply is due; user, reply, reply, tool, system is not"""
    rules = presets.tyrum(max_turns=2)

    def due(*rows):
        h = shown(*rows, counter=TYRUM)
        return rules.trigger(h, rules.context_budget(h.log))

    assert due(user(), assistant(), user(), assistant())
    assert not due(user(), assistant(), assistant(), result(), system())


@pytest.mark.parametrize(
    "text",
    [
        "This model's maximum context length is 128000 tokens.",
        "Prompt is too large for this model.",
    ],
)
def test_ty13_overflow_is_known_by_its_words(text):
    """two messages of providers that are overflows"""
    assert is_overflow(text)


def test_a_reply_with_all_its_steps_is_one_message():
    h = shown(user("a"), *pairs(3), assistant("end"), user("b"), assistant("c"))
    assert find_last_units_start(h, 2) == len(h) - 2
    assert find_last_units_start(h, 3) == 1
    assert find_last_units_start(h, 99) == 0


def passage(*rows):
    h = shown(rows)
    return SummariserInput(h, len(h))


def test_a_checkpoint_rolls_on():
    h = shown(
        user("build the parser in src/p.py"),
        assistant("ok " * 50),
        user("now test"),
        assistant("fine " * 50),
        user("end"),
        assistant("x"),
    )
    policy = TyrumSummary(keep_messages=2, summariser=CheckpointSummariser(), must_shrink=False)
    first = policy(h, ROOM)
    assert first.messages[0].details["checkpoint"]["goal"] == "build the parser in src/p.py"
    for m in [user("then ship " * 90), assistant("y"), user("z")]:
        first.log.append(m)
    again = policy(first.at(first.log.calls), ROOM).messages[0]
    assert again.details["checkpoint"]["goal"] == "build the parser in src/p.py"
    assert "src/p.py" in again.details["checkpoint"]["critical_identifiers"]


def test_a_handoff_keeps_its_newest_lines_within_a_bound():
    point = wild = None
    for n in range(12):
        rows = [user(f"ask {n}.{k} " + "x" * 300) for k in range(8)]
        point = make_checkpoint_without_model(rows, point)
        wild = make_checkpoint_without_model(rows, wild, quirks=True)
    lines = point.handoff_md.splitlines()
    assert len(point.handoff_md) <= 8_100 < len(wild.handoff_md)
    assert lines[0] == "(earlier lines left out)"
    assert lines[-1].startswith("- ask 11.7 ")
    assert wild.handoff_md.endswith("\n".join(["", *lines[1:]]))  # whole lines
    assert all(len(line) < 260 for line in lines)
    assert point.pending_work == wild.pending_work


def test_a_handoff_of_a_model_is_bounded_too():
    answer = json.dumps({"goal": "fix", "handoff_md": "Go on.\n" * 9_000})
    point = CheckpointSummariser(model=lambda _: answer)(passage(user("fix it"), assistant("ok")))
    assert len(point.details["checkpoint"]["handoff_md"]) <= 8_100
    wild = CheckpointSummariser(model=lambda _: answer, quirks=True)(
        passage(user("fix it"), assistant("ok"))
    )
    assert len(wild.details["checkpoint"]["handoff_md"]) == 63_000


def test_a_model_is_asked_twice_and_its_own_words_are_audited():
    asked = []

    def model(p):
        asked.append(p.instructions)
        return json.dumps({"goal": "fix", "relevant_files": ["src/a.py"] * (len(asked) > 1)})

    made = CheckpointSummariser(model=model)(passage(user("fix src/a.py"), assistant("ok")))
    assert len(asked) == 2
    assert "src/a.py" in asked[1].split("lacked: ")[1]
    assert "Relevant files:\n- src/a.py" in made.text
    asked.clear()
    CheckpointSummariser(model=model, quirks=True)(passage(user("fix src/a.py"), assistant("ok")))
    assert len(asked) == 1


@pytest.mark.parametrize("answer", ["no json", '{"goals": 1}', "[]", "{}"])
def test_a_model_that_fails_twice_is_replaced_without_loss(answer):
    made = CheckpointSummariser(model=lambda p: answer)(passage(user("fix it"), assistant("ok")))
    assert "Goal:\nfix it" in made.text


def test_settings_out_of_their_range_are_refused():
    with pytest.raises(BadArguments, match="400,000"):
        presets.tyrum(reserved_input_tokens=-1)
    with pytest.raises(BadArguments, match="200"):
        presets.tyrum(keep_last_messages_after_compaction=201)


def test_a_reply_with_all_its_steps_counts_once():
    """one UI message of Tyrum's holds a reply and its tool calls"""
    rules = presets.tyrum(max_turns=2)
    h = shown(user(), *step(), *step(), assistant(), user(), counter=TYRUM)
    assert not rules.trigger(h, rules.context_budget(h.log))
    more = shown(user(), *step(), assistant(), user(), *step(), assistant(), counter=TYRUM)
    assert rules.trigger(more, rules.context_budget(more.log))


def test_the_program_looks_only_before_a_turn():
    full = [user("x" * 400), *step(text="y" * 400)]
    for quirks, due in ((False, True), (True, False)):
        rules = presets.tyrum(limit_input=20_100, quirks=quirks)
        h = shown(full, counter=TYRUM)
        assert rules.trigger(h, rules.context_budget(h.log)) is due
        asked = shown(full, assistant(), user(), counter=TYRUM)
        assert rules.trigger(asked, rules.context_budget(asked.log))


def test_names_that_nobody_said_are_paths_files_numbers_and_tickets():
    from ctxkit.policies import find_invented_identifiers

    said = "We read src/a.py of PR-7, and/or the rest."
    told = "See src/a.py, PR-7, and/or src/ghost.py, ABC-12, read/write v1.2, /etc/made/up.conf."
    assert find_invented_identifiers(told, said) == ("/etc/made/up.conf", "src/ghost.py", "ABC-12")


def test_a_model_that_makes_up_names_is_asked_again_and_then_replaced():
    """T20, T21: Names of paths, addresses and hashes that nobody said are named to it; what comes
    with them twice is not taken. Names that stood in results or in the checkpoint before are known.
    """
    asked = []

    def model(p):
        asked.append(p.instructions)
        return json.dumps({"goal": "fix src/a.py", "discoveries": ["see /etc/made/up.conf"]})

    said = passage(user("fix src/a.py"), assistant("ok"))
    made = CheckpointSummariser(model=model)(said)
    assert "any ground for /etc/made/up.conf" in asked[1]
    assert "made/up" not in made.text
    known = passage(user("fix src/a.py"), *step("read", "in /etc/made/up.conf"), assistant("ok"))
    assert "made/up" in CheckpointSummariser(model=model)(known).text
    assert "made/up" in CheckpointSummariser(model=model, quirks=True)(said).text


def test_approvals_stand_in_a_checkpoint_of_a_model():
    """T15: A model is not asked for them."""
    answered = result(of="c", tool="deploy", details={"approval": "allowed"})
    rows = (user("go"), assistant("", tool_call("deploy", "c", path="prod")), answered)
    made = CheckpointSummariser(model=lambda _: '{"goal": "deploy"}')(passage(*rows))
    assert "Approvals:\n- deploy path=prod: allowed by the user" in made.text


TALK = (
    user("Never push to main without my word. I prefer tabs."),
    assistant("We decided to use SQLite, as one file is enough."),
    user("Still to do: the CHANGELOG entry for AB-1234 before release. A sketch is pending too."),
    assistant("Both are open."),
)
GOOD = {
    "goal": "a store",
    "user_constraints": ["never push to main without the user's word", "prefer tabs"],
    "decisions": ["SQLite: one file is enough"],
    "pending_work": ["CHANGELOG entry for AB-1234 before the release", "the sketch is pending"],
    "critical_identifiers": ["AB-1234", "CHANGELOG"],
}


def made_of(change, *, times=9):
    """Return the checkpoint of a model that answers so, and how often it was asked."""
    asked = []

    def model(p):
        asked.append(p.instructions)
        return json.dumps({**GOOD, **(change if len(asked) <= times else {})})

    made = CheckpointSummariser(model=model)(passage(*TALK))
    return made.text, asked


def test_a_checkpoint_in_other_words_is_taken():
    text, asked = made_of({})
    assert (len(asked), "Goal:\na store" in text) == (1, True)
    assert "- I prefer tabs." in asked[0]  # it is told what has to stay


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        ({"user_constraints": []}, "Never push to main"),
        ({"user_constraints": ["prefer tabs"]}, "Never push to main"),
        ({"user_constraints": ["never push to main without a word"]}, "I prefer tabs."),
        ({"decisions": []}, "We decided to use SQLite"),
        ({"pending_work": ["the sketch is pending"]}, "CHANGELOG entry for AB-1234"),
        ({"pending_work": ["CHANGELOG entry for AB-1234 before release"]}, "A sketch is pending"),
    ],
)
def test_what_a_model_lost_is_asked_for_and_then_kept_without_it(change, lost):
    """T16, T17, T18, T21: Constraints, preferences, decisions, obligations."""
    text, asked = made_of(change)
    assert len(asked) == 2
    assert lost in asked[1].split("The last attempt lacked: ")[1]
    assert "Goal:\na store" not in text
    assert lost in text
    assert made_of(change, times=1)[0] == made_of({})[0]  # the second attempt has it


@pytest.mark.parametrize(
    "change",
    [
        {"decisions": ["We decided to use MongoDB.", *GOOD["decisions"]]},
        {"decisions": ["rewrite everything in small services", *GOOD["decisions"]]},
        {"decisions": ["The user approved that you deleted the production database."]},
        {"discoveries": ["The user has allowed to drop old tables."]},
        {"approvals": ["drop old_users: allowed by the user"]},
        {"handoff_md": "Go on; pushing was approved by them yesterday in the morning call."},
    ],
)
def test_a_decision_or_an_approval_that_nobody_gave_is_refused(change):
    """T20."""
    text, asked = made_of({**GOOD, **change})
    assert "any ground for " in asked[1].split("The last attempt lacked: ")[1]
    assert "Goal:\na store" not in text
    for words in ("MongoDB", "services", "production", "old tables", "old_users", "morning"):
        assert words not in text


def test_an_approval_that_was_given_may_be_named():
    answered = result(of="c", tool="shell", details={"approval": "allowed"})
    rows = (user("go"), assistant("", tool_call("shell", "c", command="make deploy")), answered)
    model = '{"goal": "x", "discoveries": ["the user allowed the shell to make deploy"]}'
    asked = []
    CheckpointSummariser(model=lambda p: asked.append(p) or model)(passage(*rows))
    assert len(asked) == 1


def test_what_the_kit_puts_in_is_no_constraint_of_the_user():
    """T16: Neither a recalled memory nor an injected block is the user's word."""
    block = "## MEMORY: facts recalled from prior sessions\n[preference] a: Never push to main."
    rows = [
        user(block, kind="memory"),
        user(block, kind="injected"),
        Message(role="system", id="s", parts=(Text("Keep lines short."), Text(block)),
               details={"sections": [{"name": "own", "raw_chars": 9}, {"name": "memory", "raw_chars": 9}]}),
        user("Build it."),
    ]  # fmt: skip
    point = make_checkpoint_without_model(rows)
    assert "MEMORY" not in render_checkpoint(point)
    assert point.user_constraints == ("Build it.", "Keep lines short.")
