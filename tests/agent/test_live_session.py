"""A live session on disk: killed at any moment it loses nothing acknowledged; restore, events, snapshots, artifacts."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from hashlib import sha256
from itertools import count
from pathlib import Path

import pytest
from builders import assistant, tool_call
from conftest import ALL, SEED
from stand_in_models import live as live_with_model

import ctxkit as ck
from ctxkit import tokens
from ctxkit.agent import LiveSession, ScriptedModel, Workspace, get_script, list_checkpoints, tool
from ctxkit.errors import BadArguments, StoreError
from ctxkit.policies import Above, Rules, Summary

COUNT = tokens.get_counter("chars/4")
RULES = Rules(
    policy=Summary(keep_tokens=4_000), trigger=Above(12_000), counter=COUNT, window=32_000
)


def clock():
    ticks = count(1_800_000_000)
    return lambda: float(next(ticks))


def live(folder, *turns, name="one", rules=RULES, **more):
    turns = turns or get_script("audit").turns
    model = ScriptedModel(turns, name="audit", counter=COUNT, clock=clock(), context_window=32_000)
    return LiveSession(
        name, model=model, rules=rules, clock=clock(), workspace=Workspace(folder), **more
    )


def run(coroutine):
    return asyncio.run(coroutine)


def say_all(session, prompts):
    return [run(session.turn(p)) for p in prompts]


def test_a_session_is_resumed_by_name_in_another_process(tmp_path):
    with live(tmp_path) as first:
        say_all(first, get_script("audit").prompts[:4])
        written = first.session
    with live(tmp_path) as second:
        assert second.session == written
        assert run(second.turn("go on")).text.startswith("harbour")
    assert Workspace(tmp_path).names() == ["one"]


def test_everything_lies_under_the_working_folder_for_the_owner_alone(tmp_path):
    with live(tmp_path) as s:
        run(s.turn("go"))
        run(s.turn("go"))
    assert {p.name for p in tmp_path.iterdir()} == {".ctxkit"}
    kept = [
        p
        for p in (tmp_path / ".ctxkit").rglob("*")
        if p.is_file() and "scratch" not in p.parts and p.name != ".gitignore"
    ]
    assert kept
    assert {p.stat().st_mode & 0o077 for p in kept} == {0}


def test_snapshots_have_a_row_a_turn_and_a_marker_a_compaction(tmp_path):
    with live(tmp_path) as s:
        outcomes = say_all(s, get_script("audit").prompts)
    rows = [json.loads(line) for line in s.workspace.snapshots(s.id).read_text().splitlines()]
    turns = [r for r in rows if r["agent"] != "system"]
    assert [r["turn_input_tokens"] for r in turns] == [
        o.spent.fresh + o.spent.cached for o in outcomes
    ]
    assert [r["turn"] for r in turns] == list(range(9))
    assert len(rows) - len(turns) == len(s.session.edits) >= 2
    frame = ck.read_snapshots(s.workspace.snapshots(s.id))
    assert frame["turn_input_tokens"].sum() == sum(r["turn_input_tokens"] for r in turns)


def test_events_have_fuserafts_shape(tmp_path):
    with live(tmp_path) as s:
        run(s.turn("go"))
    events = [json.loads(line) for line in s.workspace.events(s.id).read_text().splitlines()]
    assert [e["event_type"] for e in events][:3] == [
        "turn_start",
        "inner_call_context",
        "model_call",
    ]
    assert [e["event_type"] for e in events][-2:] == ["turn_end", "context_report_created"]
    assert {*events[0]} == {"ts", "session", "agent", "turn", "event_type", "payload"}


def test_restore_goes_back_before_a_compaction_and_keeps_both_branches(tmp_path):
    with live(tmp_path) as s:
        say_all(s, get_script("audit").prompts)
        whole, places = s.session, list_checkpoints(s.session)
        assert [p.number for p in places] == list(range(len(whole.edits)))
        s.restore(1)
        assert len(s.session.edits) == 1
        assert s.agent.compactor.context.tokens > 4_000
        (edit,) = run(s.compact(Summary(keep_turns=1), focus="ids"))
        assert edit.trigger == "manual"
        assert s.session.log[: len(whole.log)] == whole.log
        with pytest.raises(BadArguments, match="no checkpoint 9"):
            s.restore(9)
    with live(tmp_path) as again:
        assert len(again.session.edits) == 2


def test_a_large_result_goes_to_an_artifact_that_can_be_read(tmp_path):
    """A23, A24: The stub has the path of the file, and the SHA-256 of what is in it."""

    def flood() -> str:
        return "row\n" * 100_000

    turn = (assistant("", tool_call("flood")), assistant("ok"))
    with live(tmp_path, turn, tools=["files", tool(flood)]) as s:
        run(s.turn("go"))
        stub = next(m.text for m in s.session.messages if m.role == "tool")
        name = stub.split(" are in ")[1].split(",")[0]
        assert len(stub) < 500
        digest = sha256(b"row\n" * 100_000).hexdigest()
        assert f"\nSHA256: {digest}\n" in stub
        assert s.agent.tools["read_file"].run(name, start=100_000, end=100_000) == "row\n"


def test_the_stub_of_a_large_result_has_its_size_and_its_first_words(tmp_path):
    """30,000 rows of 9 characters with 29,999 line ends between them are 299,999 characters."""
    rows = "\n".join(f"row {n:>5}" for n in range(30_000))
    turn = (assistant("", tool_call("flood")), assistant("ok"))
    with live(tmp_path, turn, tools=["files", tool(lambda: rows, name="flood")]) as s:
        run(s.turn("go"))
        stub = next(m.text for m in s.session.messages if m.role == "tool")
    first, *_, last = stub.splitlines()
    assert first.startswith("[result offloaded: 299,999 characters of flood are in ")
    assert first.endswith(", 30,000 lines]")
    assert last == "It begins: row     0"


def test_an_unknown_tool_is_named(tmp_path):
    with pytest.raises(BadArguments, match="'shel'"):
        live(tmp_path, tools=["shel"])
    live(tmp_path).close()  # the failed one gave the session free


def test_shell_and_kernel_are_off_until_named(tmp_path):
    with live(tmp_path) as s:
        assert not {"shell", "python"} & set(s.agent.tools)
    with live(tmp_path, tools=["files", "shell", "python"], namespace={}) as s:
        assert {"shell", "python"} <= set(s.agent.tools)


def test_when_the_kit_fails_the_session_is_whole_and_says_how_to_go_on(tmp_path, monkeypatch):
    monkeypatch.setenv("PLANTED_API_KEY", "planted-secret-1234")
    with live(tmp_path) as s:
        monkeypatch.setattr(
            s.agent.compactor.context.run,
            "last_prompt",
            lambda: 1 / 0 if "planted-secret-1234" else None,
        )
        with pytest.raises(StoreError, match="send the prompt again"):
            run(s.turn("go"))
        crash = s.workspace.crash(s.id).read_text()
        assert "ZeroDivisionError" in crash
        assert "planted-secret" not in crash
    with live(tmp_path) as again:
        assert run(again.turn("go")).ended == "answered"


# -- killed at random moments ----------------------------------------------------------------------------------------------

CHILD = """
    import asyncio, os, sys
    sys.path.insert(0, {tests!r}); sys.path.insert(0, {here!r})
    import test_live_session as t
    from ctxkit.agent import get_script as script
    def work(folder):
        s = t.live(folder)
        print("begun", os.getpid(), flush=True)
        keep = s.agent.transcript._append
        def acknowledged(*entries):
            session = keep(*entries)
            print(len(session.log), flush=True)
            return session
        s.agent.transcript._append = acknowledged
        for p in script("audit").prompts:
            asyncio.run(s.turn(p))
    for folder in sys.stdin:
        pid = os.fork()
        if not pid:
            try:
                work(folder.strip())
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        print("ended", flush=True)
"""


@pytest.fixture(scope="module")
def workers():
    """A process that has imported all and forks one that works in each folder it is told."""
    code = textwrap.dedent(CHILD).format(
        tests=str(Path(__file__).parents[1]), here=str(Path(__file__).parent)
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "CTXKIT_SEED": str(SEED)},
    ) as child:
        yield child
        child.stdin.close()


def kill_once(workers: subprocess.Popen[str], folder: Path, after: float) -> int:
    """Run a scripted session, kill it, and return how many entries it had acknowledged."""
    print(folder, file=workers.stdin, flush=True)
    begun, pid = workers.stdout.readline().split()
    assert begun == "begun"
    time.sleep(after)
    os.kill(int(pid), signal.SIGKILL)
    said, line = [0], workers.stdout.readline()
    while not line.endswith("ended\n"):  # behind half a line of the killed one, if need be
        assert line, "the process that forks has gone"
        said.append(int(line))
        line = workers.stdout.readline()
    return max(said)


@pytest.mark.parametrize("seed", [SEED + i for i in range(20 if ALL else 2)])
def test_a_killed_session_loses_no_acknowledged_line_and_resumes(tmp_path, workers, seed):
    """Ten moments for each seed: 20 in the suite, 200 where everything is taken."""
    moments = random.Random(seed)
    for i in range(10):
        folder = tmp_path / str(i)
        acknowledged = kill_once(workers, folder, moments.uniform(0.0, 0.5))
        with live(folder) as s:
            assert len(s.session.log) >= acknowledged, (seed, i)
            assert run(s.turn("go on")).ended == "answered"
        assert not ck.read(s.log.path).faults


def test_a_session_is_free_after_a_close_that_failed(tmp_path, monkeypatch):
    def fails():
        raise OSError("no space left")

    first = live(tmp_path)
    monkeypatch.setattr(first.agent.model, "close", fails, raising=False)
    with pytest.raises(OSError, match="no space left"):
        first.close()
    live(tmp_path).close()


def test_a_script_cannot_continue_the_session_of_a_model(tmp_path):
    """The error names the model that answered last."""
    for name in ("test/before", "test/says"):
        with live_with_model(tmp_path, assistant("Hello.", model=name)) as s:
            s.agent.model.name = name
            run(s.turn("Hi."))
    path = tmp_path / ".ctxkit/sessions/main.jsonl"
    written = path.read_bytes()
    with pytest.raises(BadArguments) as e:
        live(tmp_path, (assistant("invented"),), name="main")
    assert str(e.value) == (
        "Session 'main' is a conversation with test/says, and scripted/audit would write invented "
        "turns into it: name a model, for instance `%%agent --session main --model test/says`, or "
        "begin another session."
    )
    assert path.read_bytes() == written
    with live_with_model(tmp_path, assistant("Hello again.")) as s:
        assert run(s.turn("Hi again.")).text == "Hello again."
