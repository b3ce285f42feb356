"""pulse-coder: the PC cases. A turn is a user and an assistant message of `s` characters each."""

import os

import pytest
from builders import assistant, user
from histories import shown, texts

import ctxkit as ck
from ctxkit import presets
from ctxkit.errors import BadArguments, CtxkitError
from ctxkit.formats import encode_chat_message
from ctxkit.policies import Above, Rules, Summary
from ctxkit.presets.systems.pulse_coder import estimate_tokens_rounded_as_system
from ctxkit.session import Message, Text, ToolCall
from ctxkit.tokens import PULSE_CODER


def turns(n, s):
    return [m for _ in range(n) for m in (user("x" * s), assistant("y" * s))]


def compacted(messages, summariser=lambda p: "SUM", **settings):
    """The history, due or not (as if forced), and what the policy makes of it."""
    rules = presets.pulse_coder(summariser=summariser, **settings)
    h = shown(messages, counter=PULSE_CODER)
    return rules, h, rules.policy(h, rules.context_budget(h.log))


def due(rules, history):
    return rules.trigger(history, rules.context_budget(history.log))


def test_pc1_the_role_counts():
    """[{user "hello"}] is 3 = ceil(9/4)"""
    assert PULSE_CODER.total([user("hello")]) == 3


def test_pc2_parts_count_as_json():
    """content as a list of parts weighs its JSON, more than its text (the value of a single part: see below)"""
    two = Message(role="assistant", parts=(Text("hi"), ToolCall("c", "t")))
    assert PULSE_CODER.total([two]) > PULSE_CODER.total([assistant("hi")]) == 3


def test_pc3_small_histories_are_not_due():
    """10 turns of 10 characters: not compacted unless forced"""
    rules, h, _ = compacted(turns(10, 10))
    assert not due(rules, h)


def test_pc4_forced_it_keeps_six_turns():
    """10 turns of 400, forced: 13 messages, the first the prefixed summary"""
    _, h, new = compacted(turns(10, 400))
    assert len(new) == 13
    assert texts(new)[0] == "[COMPACTED_CONTEXT]\nSUM"
    assert estimate_tokens_rounded_as_system(h) == 2033


@pytest.mark.parametrize("messages", [turns(5, 400), [user("x")], []])
def test_pc5_pc6_not_more_than_the_turns_kept_is_no_compaction(messages):
    """5 turns, or one message, even when forced: nothing"""
    _, h, new = compacted(messages)
    assert new is h


def test_pc7_above_the_trigger_it_compacts():
    """10 turns of 10000: 50033 tokens, due; 13 messages"""
    rules, h, new = compacted(turns(10, 10_000))
    assert estimate_tokens_rounded_as_system(h) == 50_033
    assert due(rules, h)
    assert len(new) == 13


def test_pc8_a_result_above_the_target_loses_its_summary():
    """8 turns of 20000: 80026 tokens; the 12 messages of the last six turns, no summary"""
    _, h, new = compacted(turns(8, 20_000))
    assert estimate_tokens_rounded_as_system(h) == 80_026
    assert len(new) == 12
    assert new.steps[-1].info[1] == "summary-too-large"
    assert estimate_tokens_rounded_as_system(new) > 32_000


def broken(passage):
    raise RuntimeError("no route")


@pytest.mark.parametrize("summariser", [broken, lambda p: "  "])
def test_pc9_without_a_summary_the_last_turns_are_kept(summariser):
    """PC7 with a failing or blank summary: the 12 messages of the last turns"""
    _, _, new = compacted(turns(10, 10_000), summariser)
    assert len(new) == 12
    assert new.steps[-1].info[1] == "fallback"


def test_pc10_a_prefix_is_not_doubled():
    """a summary that begins with the prefix is taken as it is"""
    _, _, new = compacted(turns(10, 400), lambda p: "[COMPACTED_CONTEXT]\nSUM")
    assert texts(new)[0] == "[COMPACTED_CONTEXT]\nSUM"


def test_trigger_and_target_follow_the_window():
    rules = presets.pulse_coder(context_window_tokens=100_000)
    assert rules.policy.target == 50_000
    assert rules.trigger.parts[0].limit == 75_000


def test_a_trigger_below_its_target_is_refused():
    with pytest.raises(BadArguments, match="compact_target"):
        presets.pulse_coder(compact_trigger=10, compact_target=20)


def test_the_summary_is_the_assistants():
    """P14: It is sent under the role of the assistant; another system's under the user's."""
    rows = [m for n in range(10) for m in (user(f"{n} " * 50), assistant("yes " * 50))]
    due = {"context_window_tokens": 1000, "compact_trigger": 700, "compact_target": 690}
    sent = ck.fit([encode_chat_message(m) for m in rows], presets.pulse_coder(**due))
    assert (sent[0]["role"], sent[0]["content"][:19]) == ("assistant", "[COMPACTED_CONTEXT]")
    other = Rules(policy=Summary(keep_turns=2), trigger=Above(100))
    assert ck.fit([encode_chat_message(m) for m in rows], other)[0]["role"] == "user"


VARIABLES = {
    "CONTEXT_WINDOW_TOKENS": "100000",
    "COMPACT_TRIGGER": "60000",
    "KEEP_LAST_TURNS": "3",
    "PATH": "/bin",
}


def test_variables_of_the_environment_are_its_settings(tmp_path, monkeypatch):
    """P6: Its variables are read from the environment or a file of them, and written back."""
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    path = tmp_path / ".env"
    path.write_text(
        "# mine\nexport CONTEXT_WINDOW_TOKENS='100000'\nCOMPACT_TRIGGER=60000 # early\n"
        "KEEP_LAST_TURNS = 3\n\n"
    )
    for rules in (ck.load_rules(os.environ), ck.load_rules(path)):
        p = rules.parameters
        assert (rules.name, p["context_window_tokens"], p["compact_trigger"]) == (
            "pulse_coder",
            100_000,
            60_000,
        )
        assert (p["keep_last_turns"], p["compact_target"]) == (3, None)
    (tmp_path / "again.env").write_text(rules.to_config())
    assert ck.load_rules(tmp_path / "again.env").parameters == rules.parameters


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ({**VARIABLES, "COMPACT_TRIGGER": "many"}, "COMPACT_TRIGGER must be a whole number"),
        ({**VARIABLES, "COMPACT_TRIGGER": "10"}, "COMPACT_TRIGGER .* must lie above"),
        ({"PATH": "/bin", "HOME": "/"}, "No key in it says whose"),
    ],
)
def test_variables_that_cannot_work_are_refused(variables, why):
    """What the program would take for NaN, and compact before every call, is a sentence here."""
    with pytest.raises(CtxkitError, match=why):
        ck.load_rules(variables)
