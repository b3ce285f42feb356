"""The watcher: how a session stands, by its traits; it follows a turn, a compaction, a restore; twins."""

from __future__ import annotations

import asyncio
import threading

import pytest
from builders import assistant, session, step, usage, user
from reports.hostile import hostile, intruders

import ctxkit as ck
from ctxkit import tokens
from ctxkit.agent.live import LiveSession
from ctxkit.errors import BadArguments
from ctxkit.models.scripted import Scripted
from ctxkit.models.scripts import script
from ctxkit.policies.rules import Rules
from ctxkit.policies.summary import Summary
from ctxkit.store.workspace import Workspace

COUNT = tokens.named("chars/4")


@pytest.fixture
def live(tmp_path):
    model = Scripted(
        script("audit").turns, name="audit", counter=COUNT, clock=lambda: 0.0, context_window=32_000
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
    assert "Context: 300/1,000 (30%)" in shown.gauge.value
    assert 'aria-valuenow="300"' in shown.gauge.value
    assert "done" in shown.calls.value
    assert shown.state.state == ""


def test_a_live_session_is_followed_through_a_turn(live):
    shown = ck.watch(live)
    assert "No call yet" in shown.growth.value
    states = []
    live.listen(lambda e: states.append(shown.state.state) if e.kind == "model_response" else None)
    asyncio.run(live.turn("go"))
    assert set(states) == {"running"}
    assert shown.state.state == "at rest"
    assert shown.state.used == live.agent.compactor.context.tokens
    assert "<svg" in shown.growth.value
    assert "write_file" in shown.calls.value
    assert "no LLM was called" in shown.gauge.value


def test_it_follows_from_another_thread(live):
    shown = ck.watch(live)
    worker = threading.Thread(target=lambda: asyncio.run(live.turn("go")))
    worker.start()
    worker.join(30)
    assert "6 calls" in shown.gauge.value


def test_a_compaction_and_a_restore_are_seen(live):
    asyncio.run(live.turn("go"))
    asyncio.run(live.turn("go on"))
    shown = ck.watch(live)
    full = shown.state.used
    asyncio.run(live.compact(Summary(keep_turns=1)))
    assert "Compactions: 1" in shown.gauge.value
    assert shown.state.used < full
    live.restore(0)
    assert "Compactions: 0" in shown.gauge.value
    assert f"{full:,}/" in shown.gauge.value


def test_stopped_it_stays_as_it_is(live):
    shown = ck.watch(live)
    shown.stop()
    was = shown.gauge.value
    asyncio.run(live.turn("go"))
    assert shown.gauge.value == was


def test_a_name_is_followed_also_where_the_session_is_opened_anew(shell):
    run(shell, "%%agent --session billing\nWrite it")
    shown = ck.watch("billing")
    run(
        shell, "%%agent --rules swe_agent_mask\nCheck it"
    )  # other rules: the session is opened again
    assert "8 calls" in shown.gauge.value
    assert ck.watch().name == "billing"


def test_a_kept_session_of_no_shell_is_read_from_disk(shell):
    run(shell, "%%agent --session kept\nWrite it")
    shell.run_line_magic("unload_ext", "ctxkit")
    assert "4 calls" in ck.watch("kept").gauge.value


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
