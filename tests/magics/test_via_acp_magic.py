"""`%%agent --via acp:COMMAND`: an agent of another program in the cell, kept as a session of ours."""

from __future__ import annotations

import asyncio
import builtins
import json
import sys
import threading
import time
from pathlib import Path

import agent.tools.test_images as pictures
import pytest
from waiting import HANG, PATIENCE, wait_until

import ctxkit as ck
from ctxkit.agent.acp_reply_builder import MISSING_RESULT, parse_acp_usage
from ctxkit.agent.child_processes import ChildProcess
from ctxkit.errors import BadArguments, ModelError
from ctxkit.session import Usage

PROGRAM = Path(__file__).parents[1] / "outside" / "acp_agent.py"


@pytest.fixture
def via(shell, monkeypatch, tmp_path):
    """Take a turn with the stand-in in a manner; `said` answers its questions."""

    def turn(manner="good", words="Do it", *, said="y", options=""):
        monkeypatch.setattr(builtins, "input", lambda _: said)
        command = f"acp:{sys.executable} {PROGRAM} {manner} {tmp_path / 'heard.jsonl'}"
        done = shell.run_cell(f'%%agent --via "{command}" {options}\n{words}')
        done.raise_error()
        return done.result

    turn.live = lambda: shell.magics_manager.registry["CtxKit"].lives.get("main")
    turn.shell, turn.heard = shell, tmp_path / "heard.jsonl"
    return turn


def parts(message):
    return [(type(p).__name__, getattr(p, "text", getattr(p, "name", ""))) for p in message.parts]


def test_a_turn_is_kept_as_a_conversation(via, capsys):
    answer = via()
    roles = [m.role for m in answer.session.messages]
    assert roles == ["user", "assistant", "tool", "tool", "assistant", "tool", "assistant"]
    first, changed = answer.session.messages[1], answer.session.messages[5]
    assert parts(first) == [
        ("Thinking", "Two things."),
        ("Text", "I look first."),
        ("ToolCall", "read"),
        ("ToolCall", "read"),
    ]
    assert [m.text for m in answer.session.messages[2:4]] == ["file 1", "file 2"]
    assert changed.text == "--- a.py\n+++ a.py\n@@ -1 +1 @@\n-x = 1\n+x = 2"
    assert answer.text == "Changed it."
    assert first.model == "acp/stand-in"
    assert (
        repr(answer).split("\n")[0]
        == "3 calls · 0 fresh / 0 cached / 0 out · $0.0100 · context 2,500/100,000 (2 %) · 0 compactions"
    )
    shown = capsys.readouterr().out
    assert "▸ read(path=a.py)" in shown
    assert "2,500/100,000 tokens" in shown
    assert ck.read(".ctxkit/sessions/main.jsonl").messages == answer.session.messages


@pytest.mark.parametrize(("said", "option", "ends"), [
    ("y", "once", "Changed it."), ("a", "once", "Changed it."), ("n", "no", "Then not."), ("hm", "no", "Then not."),
])  # fmt: skip
def test_its_questions_are_asked_in_the_cell(via, said, option, ends):
    assert via(said=said).text == ends
    answers = [json.loads(r) for r in via.heard.read_text().splitlines() if '"outcome"' in r]
    assert answers[-1]["result"]["outcome"]["optionId"] == option
    again = via(said="n")  # "always" holds for the session
    assert again.text == ("Changed it." if said == "a" else "Then not.")


def test_a_question_holds_all_that_was_told_of_the_call(via, monkeypatch):
    seen = []
    monkeypatch.setattr(builtins, "input", lambda prompt: seen.append(prompt) or "y")
    command = f"acp:{sys.executable} {PROGRAM} good"
    via.shell.run_cell(f'%%agent --via "{command}"\nDo it').raise_error()
    (question,) = seen
    assert question.splitlines()[:4] == [
        "May the agent call edit?", "  | path: a.py", "  | its title: Write a.py", "  | its kind: edit",
    ]  # fmt: skip


def test_where_nobody_can_be_asked_the_answer_is_no(via, monkeypatch):
    def nobody(_):
        raise EOFError

    monkeypatch.setattr(builtins, "input", nobody)
    done = via.shell.run_cell(f'%%agent --via "acp:{sys.executable} {PROGRAM} good"\nDo it')
    assert done.result.text == "Then not."


def test_a_fall_of_its_gauge_is_a_compaction_that_was_derived(via):
    via("compacts")
    answer = via("compacts", "more")
    (mark,) = answer.session.edits
    assert (mark.tokens_before, mark.tokens_after, mark.source) == (90_000, 21_000, "derived")
    assert "$0.5000" in repr(answer)
    assert "40 fresh / 60 cached / 20 out" in repr(answer)
    assert "1 compaction" in repr(answer)
    assert ck.frame(answer.session, per="compaction").tokens_before[0] == 90_000


def test_a_conversation_goes_on_in_one_program_and_is_loaded_in_the_next(via):
    first = via("loads")
    assert via("loads", "again").session.messages[-1].details["acp_session"] == "s1"
    via.live().agent.acp.close()
    third = via("loads", "and again")
    assert "replayed" not in [m.text for m in third.session.messages]
    asked = [json.loads(r) for r in via.heard.read_text().splitlines()]
    assert [m["method"] for m in asked if m.get("method", "").startswith("session/")] == [
        "session/new", "session/prompt", "session/prompt", "session/load", "session/prompt"]  # fmt: skip
    assert first.session.id == third.session.id


def test_its_program_ends_when_its_session_is_closed(via):
    via()
    acp = via.live().agent.acp
    process = acp._child._process
    assert process.returncode is None
    via.shell.run_line_magic("context", "reset")
    assert acp.end_reason
    assert process.returncode is not None


def test_one_that_cannot_go_on_says_that_it_begins_anew(via, capsys):
    via()
    via.live().agent.acp.close()
    via()
    assert "knows nothing of what was said before" in capsys.readouterr().out


@pytest.mark.parametrize(("manner", "said"), [
    ("unknown", "does not speak the Agent Client Protocol"),
    ("newer", "speaks version 2 of the protocol; here"),
    ("half", "without an id: it speaks half of the protocol"),
    ("login", r"asks for a login \(it offers: Log in on the web\): log in with it"),
])  # fmt: skip
def test_an_agent_that_speaks_half_a_protocol_is_a_sentence(via, manner, said):
    with pytest.raises(ModelError, match=said):
        via(manner)
    assert via.live().session.messages[0].text == "Do it"


@pytest.mark.parametrize(("words", "said"), [
    ("gemini", "write acp:COMMAND"), ("acp:", "write acp:COMMAND"), ("acp:'x", "No closing quotation"),
])  # fmt: skip
def test_what_names_no_agent_is_a_sentence(shell, words, said):
    with pytest.raises(BadArguments, match=said):
        shell.run_cell(f'%%agent --via "{words}"\nHello').raise_error()


def test_a_program_that_is_not_there_and_one_that_is_no_agent(shell):
    for command, said in (
        ("no-such-program", "cannot be started"),
        ("false", "ended with exit code 1"),
    ):
        with pytest.raises(ModelError, match=said):
            shell.run_cell(
                f'%%agent --session {command} --via "acp:{command}"\nHello'
            ).raise_error()


def test_what_it_died_of_is_told_and_not_what_it_said_after_that(shell):
    (Path.cwd() / "node").write_text("echo Error: no such file >&2; echo Node.js v20 >&2; exit 3\n")
    with pytest.raises(ModelError, match=r"exit code 3\. It said: Error: no such file"):
        shell.run_cell('%%agent --via "acp:sh node"\nHello').raise_error()


def test_nonsense_is_passed_over_and_files_are_refused(via):
    answer = via("nonsense")
    assert "fs/read_text_file is not served here" in answer.text
    assert "the agent ended with None" in repr(answer)


def test_an_agent_that_dies_leaves_what_it_said(via):
    with pytest.raises(
        ModelError, match=r"'stand-in' ended with exit code 9\. It said: panic: out of luck"
    ):
        via("dies")
    log = via.live().session.messages
    assert [m.role for m in log] == ["user", "assistant", "tool"]
    assert log[2].text == MISSING_RESULT
    assert log[2].is_error


@pytest.mark.parametrize("manner", ["hangs", "deaf", "floods"])
def test_a_turn_that_takes_too_long_is_ended(via, manner, monkeypatch):
    monkeypatch.setattr("ctxkit.agent.acp_agent._CANCEL_SECONDS", 0.5)
    monkeypatch.setattr("ctxkit.agent.child_processes._EXIT_SECONDS", 0.5)
    for seconds in (2, 30, HANG):  # where the agent was not even heard, it gets more time
        if manner != "floods" and seconds > 2:
            via.shell.run_line_magic("context", "reset")
        began = time.monotonic()
        answer = via(manner, options=f"--max-seconds {seconds}")
        assert time.monotonic() - began < seconds + PATIENCE
        assert f"stopped at the limit of {seconds:g} seconds" in repr(answer)
        if len(via.live().session.messages) > 1:
            break
    assert via.live().session.messages[-1].is_error is (manner != "floods")  # no call is open there
    cancelled = '"session/cancel"' in via.heard.read_text()
    assert cancelled is (manner == "hangs")  # the deaf one reads nothing any more


def test_a_turn_beside_the_notebook_is_stopped(via):
    handle = via("hangs", options="--background")
    wait_until(lambda: via.heard.exists() and '"session/prompt"' in via.heard.read_text())
    handle.stop()
    with pytest.raises(KeyboardInterrupt, match="Stopped"):
        handle.result(PATIENCE)
    assert '"session/cancel"' in via.heard.read_text()


def test_a_turn_that_is_stopped_while_its_prompt_is_being_sent_is_cancelled(via, monkeypatch):
    send, prompt_sent = ChildProcess.send, threading.Event()

    async def send_slowly(child, message):
        await send(child, message)
        if message.get("method") == "session/prompt":
            prompt_sent.set()
            await asyncio.sleep(0.5)

    monkeypatch.setattr(ChildProcess, "send", send_slowly)
    handle = via("hangs", options="--background")
    assert prompt_sent.wait(PATIENCE)
    handle.stop()
    with pytest.raises(KeyboardInterrupt, match="Stopped"):
        handle.result(PATIENCE)
    assert '"session/cancel"' in via.heard.read_text()
    assert not via.live().agent.acp.end_reason, "it answers, and need not be killed"


def test_a_limit_that_only_the_agent_could_keep_is_refused(via):
    with pytest.raises(BadArguments, match="counts its tokens by itself"):
        via(options="--max-tokens 1000")


def test_calls_are_limited(via, monkeypatch):
    monkeypatch.setattr("ctxkit.agent.acp_agent._CANCEL_SECONDS", 0.5)
    answer = via(options="--max-calls 1")
    assert answer.outcome.ended == "limit"
    assert '"session/cancel"' in via.heard.read_text()


def test_a_flood_arrives_whole(via):
    answer = via("chatty")
    assert answer.text == "".join(f"{i} " for i in range(3000))


def test_pictures_go_along_where_it_takes_them(via, tmp_path):
    (tmp_path / "plot.png").write_bytes(pictures.PNG)
    via(options="--attach plot.png")
    sent = [json.loads(r) for r in via.heard.read_text().splitlines() if "session/prompt" in r]
    assert [p["type"] for p in sent[-1]["params"]["prompt"]] == ["text", "image"]


def test_pictures_that_it_does_not_take_are_a_sentence(via, tmp_path):
    (tmp_path / "plot.png").write_bytes(pictures.PNG)
    with pytest.raises(ModelError, match="acp/stand-in takes no pictures"):
        via("blind", options="--attach plot.png")


@pytest.mark.parametrize(
    "option", ["--model scripted/tour", "--rules pi", "--tools files", "--system x"]
)
def test_options_that_it_has_no_use_for_are_refused(via, option):
    with pytest.raises(BadArguments, match="leads itself: leave --"):
        via(options=option)


def test_what_it_does_not_do_is_said(via):
    via()
    with pytest.raises(BadArguments, match="compacts by itself"):
        via.shell.run_cell("%compact").raise_error()
    with pytest.raises(BadArguments, match="its own affair"):
        via(options="--dry-run")


def test_its_own_log_is_found_by_its_conversation(via, tmp_path, monkeypatch):
    from ctxkit.agent import find_agent_log

    folder = tmp_path / ".qwen/projects/p/chats"
    folder.mkdir(parents=True)
    golden = Path(__file__).parents[1] / "formats/golden"
    sample = next(p for p in golden.rglob("*") if "qwen" in p.name)
    ident = ck.read(sample).id
    (folder / f"{ident}.jsonl").write_bytes(sample.read_bytes())
    assert find_agent_log(ident, time.time(), str(tmp_path)).format == ck.read(sample).format
    assert find_agent_log("another", time.time(), str(tmp_path)) is None
    assert find_agent_log(ident, time.time() + 100, str(tmp_path)) is None


@pytest.mark.parametrize(("told", "usage"), [
    ({"inputTokens": 100, "outputTokens": 20, "cachedReadTokens": 60, "totalTokens": 120},
     Usage(input_tokens=40, cache_read_tokens=60, output_tokens=20)),
    ({"inputTokens": 100, "outputTokens": 20, "cachedReadTokens": 60, "totalTokens": 180},
     Usage(input_tokens=100, cache_read_tokens=60, output_tokens=20)),
    ({"inputTokens": -1}, None), ({"inputTokens": True}, None), ("?", None),
])  # fmt: skip
def test_a_usage_is_split_as_its_total_says(told, usage):
    assert parse_acp_usage(told) == usage


def test_what_goes_both_ways_is_as_the_published_schema_has_it(via):
    schema = pytest.importorskip("acp.schema")
    via("loads")
    via.live().agent.acp.close()
    via("loads", "again")
    kinds = {"initialize": "InitializeRequest", "session/new": "NewSessionRequest", "session/load": "LoadSessionRequest",
             "session/prompt": "PromptRequest", "session/cancel": "CancelNotification"}  # fmt: skip
    heard = [json.loads(r) for r in via.heard.read_text().splitlines()]
    asked = [m for m in heard if "method" in m]
    assert {m["method"] for m in asked} == {
        "initialize",
        "session/new",
        "session/load",
        "session/prompt",
    }
    for message in asked:
        getattr(schema, kinds[message["method"]]).model_validate(message["params"])
    for message in heard:
        if "result" in message:
            schema.RequestPermissionResponse.model_validate(message["result"])


def test_what_it_says_of_itself_is_in_its_session_live_and_read_back(via):
    first = via("bills")
    assert "40 fresh / 60 cached / 20 out · $0.0100 · context 90,001/120,000 (75 %)" in repr(first)
    live, back = first.session, ck.read(".ctxkit/sessions/main.jsonl")
    for session in (live, back):
        turns = ck.frame(session, per="turn")
        row = turns[["turn_input_tokens", "turn_output_tokens", "cost_usd", "context_tokens"]]
        assert row.to_numpy().tolist() == [[100, 20, 0.01, 90_001]]
        whole = ck.frame(session, per="session").iloc[0]
        assert (whole["cost_usd"], whole["peak_tokens"]) == (0.01, 90_001)
        assert ck.compare(session, ["none"]).loc["recorded", "peak_tokens"] == 90_001
    assert ck.report(live).to_text() == ck.report(back).to_text()
    assert ck.report(live).groups() == ck.report(back).groups()
    assert ck.report(live).groups()["not in the log"] > 89_000  # its own prompt and tools
    line = via.shell.run_line_magic("context", "").one_line
    assert line == "Context: 90k/120k (75 %) · Compactions: 0"
    assert "$0.01" in str(via.shell.run_line_magic("context", "spend"))


@pytest.mark.parametrize("manner", ["bills", "bills-anew"])
def test_a_running_total_is_not_billed_as_one_turn_in_another_program(via, manner, capsys):
    """Its conversation is loaded and its total continues; one that cannot load begins again."""
    for _ in range(3):
        via(manner)
    via.shell.run_line_magic("reload_ext", "ctxkit")  # as in another kernel
    last = via(manner)
    assert "$0.0100" in repr(last)
    assert ck.frame(last.session, per="turn").cost_usd.tolist() == pytest.approx([0.01] * 4)
    assert "none before" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "cost",
    [
        {"amount": 1_000_000.01},
        {"amount": 10**400},
        {"amount": float("inf")},
        {"amount": float("nan")},
        {"amount": -0.01},
        {"amount": True},
        {"amount": "0.5"},
        {"amount": 0.5, "currency": "EUR"},
        {},
        "0.5",
        None,
    ],
)
def test_dollars_that_cannot_be_are_left_out(via, cost):
    unknown = via("costs", json.dumps([cost]))
    assert "$" not in repr(unknown)
    assert ck.frame(unknown.session, per="turn").cost_usd.isna().all()
    stored = Path(".ctxkit/sessions/main.jsonl").read_text()
    assert "total_cost_usd" not in stored


@pytest.mark.parametrize("amount", [0, 0.25, 1_000_000])
def test_dollars_within_the_bound_are_the_turns(via, amount):
    nonsense = [{"amount": 1_000_001}, {"amount": -1}]
    answer = via("costs", json.dumps([{"amount": amount}, *nonsense]))
    assert ck.frame(answer.session, per="turn").cost_usd.tolist() == [amount]
    assert ck.read(".ctxkit/sessions/main.jsonl").messages == answer.session.messages
