"""Memory is saved before a compaction: at a threshold once a cycle, or of what goes; it never holds one back."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from builders import assistant, session, user
from stand_in_models import COUNT, USAGE, Says, agent, run, said

from ctxkit import presets
from ctxkit.agent import MemoryFlusher, RootFolder
from ctxkit.errors import BadArguments, ModelError
from ctxkit.policies import Above, MemoryFlushSettings, Rules, Summary
from ctxkit.session import ToolCall

BEFORE = MemoryFlushSettings(below=45_000)
DROPPED = MemoryFlushSettings(writes=1, message_chars=2_000, seconds=2.5, turn_share=0.1)
TODAY = f"memory/{datetime.fromtimestamp(1_800_000_000, UTC).astimezone():%Y-%m-%d}.md"


def rules(flush, limit=6_000):
    return Rules(
        policy=Summary(keep_tokens=2_000),
        trigger=Above(limit),
        counter=COUNT,
        window=50_000,
        flush=flush,
    )


def full():
    return session(
        *(
            m
            for i in range(9)
            for m in (user(f"{i} must use port 8080. " + "x " * 1500), assistant("ok"))
        )
    )


def saves(*texts):
    return said(
        *(ToolCall(f"s{i}", "save_memory", {"text": t}) for i, t in enumerate(texts)),
        stop="tool",
        usage=USAGE,
    )


class Writer(Says):
    """Answers a flush with the first reply, and writes summaries."""

    def __init__(self, reply):
        super().__init__()
        self.reply, self.flushed = reply, []

    async def __call__(self, request, emit):
        if any(t.name == "save_memory" for t in request.tools):
            self.flushed.append(request)
            if isinstance(self.reply, BaseException):
                raise self.reply
            if self.reply is None:
                await asyncio.sleep(3600)
            return self.reply
        return said("summary")


def flushed(events):
    return [e.payload for e in events if e.kind == "memory_flush"]


def test_at_the_threshold_it_is_saved_before_the_compaction_once_a_cycle(tmp_path):
    writer, heard = Writer(saves("Port 8080.", "sk-abcdefghijklmnop")), []
    a = agent(
        at=full(),
        rules=rules(BEFORE),
        summary_model=writer,
        heard=heard,
        memory=RootFolder(tmp_path),
    )
    for _ in range(3):
        run(a.turn("go on"))
    kinds = [e.kind for e in heard if e.kind in ("memory_flush", "compaction_start")]
    assert kinds[:2] == ["memory_flush", "compaction_start"]
    assert len(writer.flushed) == 1
    note = (tmp_path / TODAY).read_text()
    assert "Port 8080." in note
    assert "[redacted]" in note
    assert flushed(heard)[0]["path"] == TODAY
    assert not any("save_memory" in str(m.tool_calls) for m in a.session.messages)


def test_what_a_compaction_takes_is_saved_with_one_write_and_cut_messages(tmp_path):
    writer, heard = Writer(saves("one", "two")), []
    a = agent(
        at=full(),
        rules=rules(DROPPED),
        summary_model=writer,
        heard=heard,
        memory=RootFolder(tmp_path),
    )
    run(a.turn("go on"))
    (request,) = writer.flushed
    gone = sum(m.id in a.session.edits[0].targets for m in a.session.messages if m.role == "user")
    assert [t.name for t in request.tools] == ["save_memory"]
    assert request.messages[0].text.count("...(truncated)") == gone
    assert (tmp_path / TODAY).read_text().count("## ") == 1
    assert len(a.session.edits) == 1


@pytest.mark.parametrize("reply", [ModelError("down"), ValueError("odd"), None])
def test_a_failed_or_hung_flush_never_holds_a_compaction_back(tmp_path, reply):
    heard = []
    flush = MemoryFlushSettings(seconds=0.05)
    a = agent(
        at=full(),
        rules=rules(flush),
        summary_model=Writer(reply),
        heard=heard,
        memory=RootFolder(tmp_path),
    )
    assert run(a.turn("go on")).ended == "answered"
    assert len(a.session.edits) == 1
    assert flushed(heard)[0]["outcome"] == "failed"
    assert not (tmp_path / "memory").exists()


def test_nothing_to_save_writes_nothing(tmp_path):
    heard = []
    a = agent(
        at=full(),
        rules=rules(BEFORE),
        summary_model=Writer(said("NO_REPLY")),
        heard=heard,
        memory=RootFolder(tmp_path),
    )
    run(a.turn("go on"))
    assert flushed(heard) == [{"outcome": "nothing to save"}]
    assert not (tmp_path / "memory").exists()


def test_without_a_model_the_most_telling_sentences_are_saved(tmp_path):
    class Script(Says):
        notice = "scripted model: no LLM was called"

    heard = []
    a = agent(
        model=Script(), at=full(), rules=rules(DROPPED), heard=heard, memory=RootFolder(tmp_path)
    )
    run(a.turn("go on"))
    assert "must use port 8080" in (tmp_path / TODAY).read_text()
    assert flushed(heard)[0]["by"] == "extract"


def test_its_cost_is_billed(tmp_path):
    a = agent(
        at=full(),
        rules=rules(BEFORE, 10**6),
        summary_model=Writer(saves("x")),
        memory=RootFolder(tmp_path),
    )
    assert run(a.turn("go on")).spent.fresh == 2 * USAGE.input_tokens


@pytest.mark.parametrize(
    ("tokens", "window", "below", "due"),
    [
        (85, 100, 15, True),
        (84, 100, 15, False),
        (96_000, 100_000, 7_000, True),
        (10, 10, 20, False),
    ],
)
def test_the_threshold(tokens, window, below, due):
    assert MemoryFlushSettings(below=below).is_due(tokens, window) is due


def test_a_prompt_of_the_users_own_gets_the_word_for_nothing():
    assert MemoryFlushSettings(prompt="Save it.").full_prompt.endswith("answer NO_REPLY.")
    assert (
        MemoryFlushSettings(prompt="Save it or say NO_REPLY").full_prompt
        == "Save it or say NO_REPLY"
    )
    with pytest.raises(BadArguments):
        MemoryFlushSettings(writes=0)


def test_the_presets_hold_their_systems_settings():
    fased = presets.fased(context_window=200_000).flush
    assert fased.is_due(176_000, 200_000)
    assert not fased.is_due(175_999, 200_000)
    assert presets.fased(memory_flush=False).flush is None
    tyrum = presets.tyrum().flush
    assert (tyrum.writes, tyrum.message_chars, tyrum.seconds, tyrum.below) == (1, 2000, 2.5, None)


def test_the_same_messages_are_saved_once_and_none_never(tmp_path):
    writer, heard = Writer(saves("Port 8080.")), []
    flusher = MemoryFlusher(
        DROPPED,
        RootFolder(tmp_path),
        writer,
        lambda: 1_800_000_000.0,
        lambda kind, payload: heard.append(payload["outcome"]),
    )
    first, second = user("We use port 8080."), user("Never push to main.")
    for messages in ([], [first], [first], [first, second], [first]):
        run(flusher.save(messages))
    assert len(writer.flushed) == 2
    assert heard == ["saved", "saved"]
    assert (tmp_path / TODAY).read_text().count("Port 8080.") == 2
