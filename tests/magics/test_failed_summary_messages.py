"""Who wrote a summary, and that one failed, as the cell, `%compact` and `%context compactions` say it."""

from __future__ import annotations

import re
from contextlib import ExitStack

import pytest
from agent.models.fake_provider_server import Play, wire
from magics.test_agent_magic import kit, run

import ctxkit as ck
from ctxkit import presets
from ctxkit.errors import ModelError
from ctxkit.policies import Count, Rules, Summary, Window

pytestmark = pytest.mark.filterwarnings("default")
REFUSED = Play(status=401, said="Incorrect API key provided")
NOTES, BAD = "openai/notes-model", "openai/bad-model"
RULES = {
    name: presets.preset(
        name,
        **{
            "fuseraft": {"trigger_turn_count": 3, "keep_recent_turns": 1},
            "pulse_coder": {"compact_trigger": 300, "compact_target": 200, "keep_last_turns": 1},
            "roo": {"context_window": 200_000},
        }[name],
    )
    for name in ("fuseraft", "pulse_coder", "roo")
}
RULES["hybrid"] = presets.fuseraft(trigger_turn_count=3, keep_recent_turns=1, mode="hybrid")
STANDS = {
    "fuseraft": "COMPACTION FAILED",
    "hybrid": "CONTEXT RECONSTRUCTION",
    "pulse_coder": "nothing",
    "roo": "nothing",
}


@pytest.fixture
def talk(shell, monkeypatch):
    """Begin a session under rules: one loopback server answers the talk, the other writes summaries."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with ExitStack() as servers:

        def begin(rules, *notes, turns=4):
            up = servers.enter_context(
                wire("chat", Play("It is so. " + "x" * 600, usage="counted"))
            )
            writer = servers.enter_context(wire("chat", *notes))
            shell.user_ns["rules"] = rules
            models = f"--model 'openai/own-model?api_base={up.url}'"
            models += f" --summary-model '{BAD if notes[0].status == 401 else NOTES}?api_base={writer.url}'"
            for n in range(turns):
                run(shell, f"%%agent {models} --rules rules --tools work\ngo {n} " + "word " * 200)
            return shell

        yield begin


@pytest.mark.parametrize("name", ["fuseraft", "hybrid"])
def test_the_cell_and_the_table_say_that_a_summary_failed(talk, name, capsys):
    shell = talk(RULES[name], REFUSED)
    shown = capsys.readouterr().out
    [line] = [s for s in shown.splitlines() if s.startswith("✂")]
    assert re.search(r" tokens \(message_count.*\); the summary failed: .*Incorrect API key", line)
    table = run(shell, "%context compactions")
    assert repr(table).splitlines()[1].split()[2] == "failed:"
    assert re.search(r"The last summary failed \(.*AuthenticationError: Incorrect API key provided\)"
                     r": a note stands in the place of what it took\.", table._repr_html_())  # fmt: skip
    assert "litellm" not in table._repr_html_().split("title=")[0]
    assert table["error"].str.contains("Incorrect API key").all()
    assert STANDS[name] in kit(shell).session().edits[0].inserted[0].text


@pytest.mark.parametrize("name", RULES)
def test_compact_says_that_the_model_was_asked_and_failed(talk, name):
    shell = talk(RULES[name].but(trigger=None, auto=False), REFUSED)
    done = run(shell, "%compact keep the numbers")
    assert "· the summary failed (" in done.one_line
    assert "Incorrect API key" in done.one_line
    assert done.one_line.endswith(f"), {BAD} was asked")
    assert "no LLM" not in repr(done) + done._repr_html_()
    assert STANDS[name] in (done.summary or "nothing")
    assert ck.frame(kit(shell).session(), per="compaction")["model"].tolist() == [BAD]


def test_compact_says_that_the_history_is_kept_where_nothing_stands_in_its_place(talk):
    shell = talk(presets.pi(keep_recent_tokens=100).but(auto=False), REFUSED)
    with pytest.raises(ModelError, match=r"failed, and the history is kept as it was: .*API key"):
        run(shell, "%compact")
    assert kit(shell).session().edits == ()


@pytest.mark.parametrize("usage", ["told", "none"])
def test_compact_names_the_model_that_wrote(talk, usage):
    shell = talk(RULES["fuseraft"].but(auto=False), Play("Short notes.", usage=usage))
    assert run(shell, "%compact").one_line.endswith(f" · summary by {NOTES}")


def notes(passage):
    """Write as a function of the user's does, which may ask whom it likes."""
    return "Short notes."


def broken(passage):
    raise ModelError("no route")


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (presets.fuseraft(mode="intent", keep_recent_turns=1), "summary without a model, no LLM was called"),
        (presets.fuseraft(mode="lossless", keep_recent_turns=1), "summary without a model, no LLM was called"),
        (presets.tyrum(keep_last_messages_after_compaction=1), "summary without a model, no LLM was called"),
        (presets.fuseraft(keep_recent_turns=1, summariser=notes), "summary by notes, which the rules name"),
        (presets.fuseraft(keep_recent_turns=1, summariser=broken), "the summary failed (no route)"),
        (presets.fuseraft(keep_recent_turns=1, mode="hybrid", summariser=broken), "the summary failed (no route)"),
        (presets.swe_agent_mask().but(policy=Window(keep_tokens=100)), "no summary, no LLM was called"),
    ],
)  # fmt: skip
def test_compact_says_who_wrote_where_no_model_did(talk, rules, said):
    shell = talk(rules.but(auto=False, trigger=None), REFUSED)
    done = run(shell, "%compact")
    assert done.one_line.endswith(f" · {said}")


def test_a_dry_run_asks_no_model_and_says_so(talk):
    shell = talk(RULES["fuseraft"].but(auto=False), REFUSED)
    would = run(shell, "%compact --dry-run")
    assert would.one_line.endswith(" · extractive summary, no LLM was called")


def test_a_refused_summary_is_a_line_a_row_and_no_compaction(talk, capsys):
    shell = talk(RULES["fuseraft"], Play("x" * 30_000, usage="counted"), turns=6)
    shown = capsys.readouterr().out
    [line] = [s for s in shown.splitlines() if s.startswith("! compaction")]
    assert re.fullmatch(
        r"! compaction refused: not smaller: after it the prompt would have [\d,]+ tokens, before it [\d,]+ \(both as counted here\); the history"
        r" is kept as it was · the summary's call: [\d,]+ tokens, no price known · not asked again for 2 calls",
        line,
    )
    table = run(shell, "%context compactions")
    assert table["kind"].tolist() == ["refused"]
    assert "refused: not" in repr(table)
    assert re.search(r"0 compactions, 1 attempt without an effect\. The last was refused \(not smaller: after it"
                     r" the prompt would have [\d,]+ tokens, .*\): the history is as it was\.", table._repr_html_())  # fmt: skip
    assert "0 compactions" in repr(run(shell, "%agent"))


def test_a_summary_that_fails_and_leaves_the_history_is_a_line_with_the_wait(talk, capsys):
    shell = talk(Rules(Summary(keep_turns=1), Count(n=5)), REFUSED, turns=5)
    lines = [s for s in capsys.readouterr().out.splitlines() if s.startswith("! compaction")]
    assert len(lines) == 1
    assert re.match(r"! compaction failed: openai/bad-model: .*Incorrect API key.*; the history is kept as it was · its call reported no usage, so no cost is known"
                     r" · not asked again for 2 calls$", lines[0])  # fmt: skip
    table = run(shell, "%context compactions")
    assert set(table["kind"]) == {"failed"}
    assert table["error"].str.contains("Incorrect API key").all()


def test_compact_by_hand_says_that_its_result_was_refused(talk):
    shell = talk(RULES["fuseraft"].but(auto=False), Play("x" * 30_000, usage="counted"))
    assert run(shell, "%compact").text.startswith("Compaction refused: not smaller: ")
    table = run(shell, "%context compactions")
    assert (table["kind"].tolist(), table["trigger"].tolist()) == (["refused"], ["manual"])


def test_a_compaction_that_grows_says_so(talk, capsys):
    rules = presets.fuseraft(trigger_turn_count=3, keep_recent_turns=1, quirks=True)
    talk(rules, Play("x" * 30_000, usage="counted"), turns=5)
    [first, *_] = [s for s in capsys.readouterr().out.splitlines() if s.startswith("✂")]
    before, after = (
        int(n.replace(",", "")) for n in re.findall(r"[\d,]+(?= tokens| →)", first)[:2]
    )
    assert after > before
    assert "; the prompt has grown" in first


@pytest.mark.parametrize(
    ("rules", "is_used"),
    [
        (presets.tyrum(), False),
        (presets.fuseraft(mode="intent"), False),
        (presets.fuseraft(mode="llm"), True),
        (presets.fuseraft(mode="hybrid"), True),
        (presets.ai(), True),
        (presets.fased(), True),
    ],
)
def test_a_summary_model_that_the_rules_never_ask_is_named(talk, rules, is_used, capsys):
    """T18: `--summary-model` is used, or the cell says that it is not."""
    talk(rules, Play("notes"), turns=1)
    shown = capsys.readouterr().out
    assert ("ask no model for a summary, so `--summary-model` writes none" in shown) is not is_used
    assert ("ck.presets.tyrum(summariser=...)" in shown) is (rules.label == "tyrum")
