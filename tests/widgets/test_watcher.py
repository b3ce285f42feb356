"""The watcher: how a session stands, by its traits; it follows a turn, a compaction, a restore; twins."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading

import pytest
from builders import assistant, session, step, usage, user
from waiting import PATIENCE, wait_until
from widgets.reports.hostile_logs import hostile, intruders

import ctxkit as ck
from ctxkit import tokens
from ctxkit.agent import LiveSession, ScriptedModel, Workspace, get_script
from ctxkit.errors import BadArguments
from ctxkit.policies import Rules, Summary

COUNT = tokens.get_counter("chars/4")


@pytest.fixture
def live(tmp_path):
    model = ScriptedModel(
        get_script("audit").turns,
        name="audit",
        counter=COUNT,
        clock=lambda: 0.0,
        context_window=32_000,
    )
    made = LiveSession(
        "one",
        model=model,
        rules=Rules(counter=COUNT),
        clock=lambda: 1e9,
        workspace=Workspace(tmp_path),
    )
    with made:
        yield made


def run(shell, cell: str):
    done = shell.run_cell(cell)
    done.raise_error()
    return done.result


def test_a_session_at_rest_is_shown_as_it_stands():
    log = session(
        user("go"), step(text="x"), assistant("done", usage=usage(300)), context_window=1_000
    )
    shown = ck.watch(log)
    assert "Context: 300/1,000 (30 %)" in shown.gauge
    assert 'aria-valuenow="300"' in shown.gauge
    assert "done" in shown.calls
    assert shown.state.state == ""


def test_the_last_six_calls_are_listed_the_newest_first():
    replies = [assistant(f"reply {i}", usage=usage(100 + i)) for i in range(8)]
    shown = ck.watch(session(user("go"), *replies))
    assert "The last 6 calls, the newest first" in shown.calls
    assert re.findall(r"reply (\d)", shown.calls) == [*"765432"]
    assert re.findall(r"reply (\d)", shown.to_text()) == [*"765432"]
    few = ck.watch(session(user("go"), *replies[:2]))
    assert "The last 2 calls, the newest first" in few.calls


def test_the_bar_changes_its_colour_above_four_fifths_and_ends_at_the_window():
    bars = {}
    for used in (300, 800, 801, 1_500):
        log = session(user("go"), assistant("done", usage=usage(used)), context_window=1_000)
        gauge = ck.watch(log).gauge
        assert f'aria-valuemax="1000" aria-valuenow="{used}"' in gauge
        bars[used] = re.search(r'style="width:([\d.]+%);height:10px;background:(#\w+)', gauge)
    assert [bar[1] for bar in bars.values()] == ["30.0%", "80.0%", "80.1%", "100.0%"]
    assert bars[300][2] == bars[800][2] != bars[801][2] == bars[1_500][2]


def test_a_live_session_is_followed_through_a_turn(live):
    shown = ck.watch(live)
    assert "No call yet" in shown.growth
    states = []
    live.listen(lambda e: states.append(shown.state.state) if e.kind == "model_response" else None)
    asyncio.run(live.turn("go"))
    assert set(states) == {"running"}
    assert shown.state.state == "at rest"
    assert shown.state.used == live.session.calls[-1].message.usage.prompt_tokens
    assert "<svg" in shown.growth
    assert "write_file" in shown.calls
    assert "no LLM was called" in shown.gauge


def test_it_follows_from_another_thread(live):
    shown = ck.watch(live)
    worker = threading.Thread(target=lambda: asyncio.run(live.turn("go")))
    worker.start()
    worker.join(PATIENCE)
    assert "6 calls" in shown.gauge


def test_a_compaction_and_a_restore_are_seen(live):
    asyncio.run(live.turn("go"))
    asyncio.run(live.turn("go on"))
    shown = ck.watch(live)
    full = shown.state.used
    asyncio.run(live.compact(Summary(keep_turns=1)))
    assert "Compactions: 1" in shown.gauge
    assert shown.state.used < full
    live.restore(0)
    assert "Compactions: 0" in shown.gauge
    assert f"{full:,}/" in shown.gauge


def test_stopped_it_stays_as_it_is(live):
    shown = ck.watch(live)
    shown.stop()
    was = shown.gauge
    asyncio.run(live.turn("go"))
    assert shown.gauge == was


def test_a_name_is_followed_also_where_the_session_is_opened_anew(shell):
    run(shell, "%%agent --session billing\nWrite it")
    shown = ck.watch("billing")
    run(
        shell, "%%agent --rules swe_agent_mask\nCheck it"
    )  # other rules: the session is opened again
    assert "8 calls" in shown.gauge
    assert ck.watch().name == "billing"


def test_a_kept_session_of_no_shell_is_read_from_disk(shell):
    run(shell, "%%agent --session kept\nWrite it")
    shell.run_line_magic("unload_ext", "ctxkit")
    assert "4 calls" in ck.watch("kept").gauge


@pytest.mark.parametrize(
    ("what", "said"),
    [("nobody", "No session is called 'nobody'"), (5, "not int"), (None, "begin one")],
)
def test_what_cannot_be_watched_is_named(shell, what, said):
    with pytest.raises(BadArguments, match=said):
        ck.watch(what)


def test_it_has_a_text_twin_and_an_html_twin(live):
    asyncio.run(live.turn("go"))
    bundle = ck.watch(live)._repr_mimebundle_()
    assert bundle["text/plain"].startswith("one · Context: ")
    assert "patch_file" in bundle["text/plain"]
    assert "<svg" in bundle["text/html"]


def test_text_of_a_log_stays_text():
    shown = ck.watch(hostile())
    assert intruders(shown.to_html()) == []
    assert not {"\x1b", "\u202e"} & set(shown.to_text())


def test_a_log_that_another_program_writes_is_followed_over_torn_lines(tmp_path):
    lines = ck.samples.path("billing").read_bytes().splitlines(keepends=True)
    path = tmp_path / "grows.jsonl"
    path.write_bytes(b"".join(lines[:120]))
    writer = """
import sys, time
lines = open(sys.argv[1], "rb").read().splitlines(keepends=True)
with open(sys.argv[2], "ab", buffering=0) as file:
    for line in lines[120:460]:
        half = len(line) // 2
        file.write(line[:half]); time.sleep(0.001); file.write(line[half:])
    file.write(lines[460][:-9]); time.sleep(0.6); file.write(lines[460][-9:])
"""
    shown = ck.watch(path, every=0.05)
    assert "followed" in shown.gauge
    before, seen = shown.state.calls, []
    shown.observe(lambda c: seen.append(c["new"]), "gauge")
    done = subprocess.Popen(
        [sys.executable, "-c", writer, str(ck.samples.path("billing")), str(path)]
    )
    assert done.wait(PATIENCE) == 0
    wanted = len(ck.read(path).calls)
    wait_until(lambda: shown.state.calls >= wanted)
    shown.stop()
    assert shown.state.calls == wanted > before
    assert not any("failed" in gauge for gauge in seen)
    assert "The next compaction is due" in shown.to_text()
    assert "added" in shown.to_text() or "compacted" in shown.to_text()


def test_what_the_last_call_added_and_when_the_next_compaction_comes():
    from ctxkit.widgets.watcher import describe_last_prompt_growth, predict_next_compaction

    whole = ck.read(ck.samples.path("billing"))
    cut = whole.edits[0]
    before = whole.branch(cut.id)
    later = before.append(*whole.path[len(before.path) : len(before.path) + 20])
    assert "its last one came at" in predict_next_compaction(later)
    assert "calls (" in predict_next_compaction(later)
    assert "compacted" in describe_last_prompt_growth(whole.branch(whole.call(175).message.id))
    told = describe_last_prompt_growth(whole.branch(whole.call(100).message.id))
    assert told.startswith("Call 100 added")
    assert "tokens (recorded): " in told
    assert "cannot be said" in predict_next_compaction(session(user("a"), assistant()))


def test_a_file_that_is_gone_leaves_what_was_read(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(ck.samples.path("billing").read_bytes())
    shown = ck.watch(path, every=60)
    calls = shown.state.calls
    path.write_text("{")
    shown._tail.look()
    shown.draw()
    assert shown.state.calls == calls
    assert "the last look failed" in shown.gauge
    shown.close()
    with pytest.raises(BadArguments, match="every="):
        ck.watch(path, every=0)
