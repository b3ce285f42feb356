"""One session with all that can enter a prompt: live, log and replay agree to the token."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest
from agent.memory.webhook_server import hook
from stand_in_models import COUNT, run

import ctxkit as ck
from ctxkit.agent import (
    ContextStore,
    LiveSession,
    LocalMemoryProvider,
    MemoryStore,
    ScriptedModel,
    SessionMemory,
    WebhookMemoryProvider,
    Workspace,
    import_files,
    make_reply,
)
from ctxkit.policies import Chain, LessonRecall, make_entry
from ctxkit.session import Message, ToolCall
from ctxkit.tokens import estimate_schema_tokens

TURNS = 5


def asks(ident, name, **arguments):
    call = ToolCall(id=ident, name=name, arguments=arguments)
    return Message(role="assistant", parts=(call,), stop="tool")


def turns():
    """Each turn reads a large file (offloaded), writes one, reads it again, and decides something."""
    for n in range(TURNS):
        yield (
            asks(f"a{n}", "read_file", path="large.txt"),
            asks(
                f"b{n}",
                "write_file",
                path=f"part{n}.py",
                content=f"def part{n}():\n    return {n}\n" * 9,
            ),
            asks(f"c{n}", "read_file", path=f"part{n}.py"),
            asks(f"d{n}", "read_file", path="guide.md"),
            make_reply(
                f"It was decided to keep part {n} in a file of its own because it is short."
            ),
        )


@pytest.fixture
def place(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    (root / "AGENTS.md").write_text("Keep lines short.\n" * 20)
    (root / ".gitignore").write_text("build/\n" * 150)
    (root / "guide.md").write_text("word " * 900)
    (root / "large.txt").write_text("row of a table\n" * 3_000)
    ContextStore(tmp_path).put(
        "guide", import_files(root / "guide.md").files, description="how it is done"
    )
    return tmp_path


@pytest.mark.parametrize(
    "mode",
    [
        "lossless",
        *(pytest.param(m, marks=pytest.mark.long) for m in ("hybrid", "intent", "window")),
    ],
)
def test_live_log_and_replay_agree_with_all_layers_on(place, mode):
    """F1, F25: Sections, store, memory of both kinds, a webhook, offloading, prunings, compaction."""
    ticks = count(1_800_000_000, 1_900)  # the hour is said again, turn by turn

    def tick():
        return float(next(ticks))

    held = MemoryStore([place / "home"], place)
    held.add(make_entry("runner", "Use pytest -q.", "feedback"))
    rules = ck.presets.fuseraft(
        context_window=30_000, mode=mode, trigger_turn_count=8, keep_recent_turns=3, token_budget=9_000,
        max_in_turn_tool_pairs=3, max_tool_result_tokens=4_000, in_turn_tool_window=4, max_tool_result_chars=3_000,
        max_replay_chars=1_000, offload_chars=20_000,
    )  # fmt: skip
    rules = replace(rules, counter=COUNT, policy=Chain.of(rules.policy, LessonRecall()))
    with hook(block="The user prefers tabs.") as (url, asked):
        memory = SessionMemory(
            held,
            [
                LocalMemoryProvider(held),
                WebhookMemoryProvider(load_url=url, save_url=url, save_every=2),
            ],
        )
        model = ScriptedModel(tuple(turns()), name="made", counter=COUNT, clock=tick)
        with LiveSession("main", model=model, rules=rules, clock=tick, workspace=Workspace(place),
                         memory=memory, root=place / "root") as live:  # fmt: skip
            live.inject("on", "You keep a library.")
            for n in range(TURNS):
                assert (
                    run(live.turn(f"Always keep the order of part {n}. What is part {n}?")).ended
                    == "answered"
                )
                held.add(make_entry(f"learnt {n}", "x" * 40))
            now = live.session
    assert len(asked) == TURNS + TURNS // 2  # each turn's block, and the talk of every second
    log = ck.read(place / ".ctxkit/sessions/main.jsonl")
    fixed = estimate_schema_tokens(t.schema for t in live.agent.tools.values())
    again = ck.replay(log, rules, tokens=[COUNT.message(m) for m in log.messages], fixed=fixed)
    names = {name for m in log.messages for name, _, _ in m.sections}
    assert names >= {"base", "own", "runtime", "project", "gitignore", "store", "memory", "time"}
    assert len(now.edits) >= 2
    for c in range(0, len(now.calls), 3):
        prompts = [s.calls[c].message.usage.prompt_tokens for s in (now, log, again)]
        shown = [[i for i in s.sent(c) if i.message.kind != "fixed"] for s in (now, again)]
        sent = [[i.message.parts for i in items] for items in shown]
        assert prompts[0] == prompts[1] == prompts[2]
        assert sent[0] == sent[1]  # the log alone knows no prunings: its rules say them again
    stubs = [i.message.text for i in now.sent(1) if i.message.role == "tool"]
    assert stubs[0].startswith("[result offloaded")
    costs = [ck.experiments.sections(s) for s in (now, log)]
    assert costs[0].equals(costs[1])
