"""Scripted turns through each branch of the agent loop, written down whole: messages, events, outcomes, files.

`PYTHONPATH=.:tests python tests/agent/recorded_turns.py` writes what the agent does now into `recorded_turns/`, one value a line. The
clock ticks one second at each reading and the models are scripts, so that a run is the same on each machine. A change
of the loop is then seen in the diff, event by event: read it before it is committed.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from contextlib import chdir
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import msgspec
from agent.recorded_work import WORK
from builders import assistant, session, tool_call, user

from ctxkit import presets, tokens
from ctxkit.agent import (
    Agent,
    Delta,
    Limits,
    LiveSession,
    RootFolder,
    ScriptedModel,
    Workspace,
    make_file_tools,
    tool,
)
from ctxkit.errors import CtxkitError, ModelError
from ctxkit.policies import Above, Clear, Rules, Summary
from ctxkit.session import Message, Text, Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ctxkit.agent import LiveEvent, Outcome
    from ctxkit.session import Session

FOLDER = Path(__file__).with_suffix("")
COUNT = tokens.get_counter("chars/4")
TOO_LONG = ModelError("prompt is too long", overflow=True)


class Answers:
    """A model that gives one answer after the other, or raises it; the last one stays."""

    notice, context_window = "test model", 50_000

    def __init__(self, *answers: Message | Exception, name: str = "test/answers") -> None:
        self.name, self.answers = name, list(answers)

    async def __call__(self, request: Any, emit: Any) -> Message:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        for text in answer.text.split(" ") if answer.text else ():
            emit(Delta("text", text + " "))
        return answer


def reply(text: str, stop: str = "stop", *calls: Any, **more: Any) -> Message:
    """Return a reply with usage of each class."""
    used = Usage(input_tokens=70, cache_read_tokens=900, cache_write_tokens=30, output_tokens=20)
    parts = (*((Text(text),) if text else ()), *calls)
    return Message(role="assistant", parts=parts, stop=stop, usage=used, **more)


def make_clock() -> Callable[[], float]:
    """Return a clock that ticks one second at each reading."""
    ticks = count(1_800_000_000)
    return lambda: float(next(ticks))


class Record:
    """What an agent did: its events as they came, the ends of its turns, its log."""

    def __init__(self) -> None:
        self.lines: list[Any] = []

    def hear(self, event: LiveEvent) -> None:
        """Note an event."""
        self.lines.append(
            ["event", event.turn, event.kind, event.time - 1_800_000_000, event.payload]
        )

    def add_outcome(self, outcome: Outcome) -> None:
        """Note the end of a turn."""
        spent = {name: getattr(outcome.spent, name) for name in ("calls", "fresh", "cached", "output", "tokens", "unbilled", "cost_usd", "seconds")}  # fmt: skip
        self.lines.append(
            ["outcome", outcome.ended, outcome.why, outcome.text, outcome.account(), spent]
        )

    def add_session(self, at: Session) -> None:
        """Note the log of a session."""
        self.lines += [["entry", msgspec.to_builtins(entry)] for entry in at.log]
        self.lines.append(["view", [m.id for m in at.view()]])

    def take_turns(self, model: Any, prompts: Sequence[str], **more: Any) -> Agent:
        """Run an agent's turns and note them."""
        agent = Agent(
            more.pop("at", None) or session(),
            model=model,
            rules=more.pop("rules", None) or Rules(counter=COUNT),
            clock=make_clock(),
            listener=self.hear,
            **more,
        )
        for prompt in prompts:
            try:
                self.add_outcome(asyncio.run(agent.turn(prompt)))
            except CtxkitError as error:
                self.lines.append(["error", str(error)])
        return agent


def make_long_session() -> Session:
    """Return a session of six turns, each with a large result."""
    log = []
    for n in range(6):
        log += [
            user(f"ask {n}", id=f"ask-{n}"),
            assistant("", tool_call("read_file", f"c{n}", path=f"f{n}"), id=f"look-{n}"),
            Message(role="tool", id=f"t{n}", parts=(Text("y" * 9000),), call_id=f"c{n}", tool="read_file"),
            assistant("ok", id=f"ok-{n}"),
        ]  # fmt: skip
    return session(*log)


# -- the turns; each function notes one run ------------------------------------------------------


def run_tools(record: Record, folder: Path) -> None:
    """Tools that succeed, fail, do not exist, are refused, and return much."""

    def flood() -> str:
        return "row\n" * 20_000

    def broken() -> str:
        raise RuntimeError("boom")

    def add(a: int, b: int = 2) -> int:
        return a + b

    first = assistant("I look.", tool_call("add", "c1", a=1), tool_call("broken", "c2"))
    second = assistant("", tool_call("brocken", "c3"), tool_call("flood", "c4"))
    third = assistant("", tool_call("add", "c5", a="one"), tool_call("write_file", "c6", path="a.txt", content="x"))  # fmt: skip
    model = ScriptedModel(
        ((first, second, third, assistant("done")),), name="s", counter=COUNT, clock=make_clock()
    )
    agent = record.take_turns(
        model,
        ["go", "and now?"],
        tools=[tool(flood), tool(broken), tool(add), *make_file_tools(RootFolder(folder))],
        approve=lambda call: call.name != "write_file",
    )
    record.add_session(agent.session)


def compact_at_a_threshold(record: Record, folder: Path) -> None:
    """The rules compact before a call, a second time in the same turn, and by hand."""
    calls = [assistant("", tool_call("flood", f"c{n}")) for n in range(5)]
    model = ScriptedModel(
        ((*calls, assistant("done")),), name="s", counter=COUNT, clock=make_clock()
    )

    def flood() -> str:
        return "row\n" * 3_000

    rules = Rules(policy=Summary(keep_tokens=2_000), trigger=Above(6_000), counter=COUNT, window=32_000)  # fmt: skip
    agent = record.take_turns(model, ["go", "on"], rules=rules, tools=[tool(flood)])
    edits = asyncio.run(agent.compact(focus="the rows"))
    record.lines.append(["by hand", [e.trigger for e in edits], agent.gauge()])
    record.add_session(agent.session)


def recover_from_overflows(record: Record, folder: Path) -> None:
    """A prompt that is too long is compacted once, then trimmed three times, then given up."""
    rules = Rules(policy=Summary(keep_tokens=3_000), trigger=Above(10**6), counter=COUNT)
    writer = Answers(reply("notes"), name="test/writer")
    agent = record.take_turns(
        Answers(TOO_LONG, reply("fine")), ["go on"], rules=rules, at=make_long_session(), summary_model=writer
    )  # fmt: skip
    record.lines.append(["edits", [msgspec.to_builtins(e) for e in agent.session.edits]])
    for attempts in (4, 2):
        record.take_turns(
            Answers(TOO_LONG), ["go on"], at=make_long_session(), limits=Limits(attempts=attempts), summary_model=writer
        )  # fmt: skip


def continue_cut_replies(record: Record, folder: Path) -> None:
    """A reply that is cut is continued behind a compaction; one without text is named."""
    rules = Rules(policy=Summary(keep_tokens=3_000), trigger=Above(10**6), counter=COUNT)
    cut = reply("half", "length")
    agent = record.take_turns(
        Answers(cut, reply("whole")), ["go on"], rules=rules, at=make_long_session(), summary_model=Answers(reply("notes"))
    )  # fmt: skip
    record.lines += [["entry", msgspec.to_builtins(e)] for e in agent.session.log[24:]]
    for answer in (cut, reply(""), reply("", "content_filter"), ModelError("no such model")):
        record.take_turns(Answers(answer), ["go"], limits=Limits(attempts=1))


def stop_at_limits(record: Record, folder: Path) -> None:
    """Limits of calls, tokens, dollars and seconds, each before the call that would pass it."""

    def act() -> str:
        return "acted"

    again = reply("", "tool", *assistant("", tool_call("act", "c1")).tool_calls)
    for limits in (
        Limits(calls=2),
        Limits(tokens=2_500),
        Limits(seconds=30),
        Limits(cost_usd=0.012),
        Limits(calls=4, messages=5),
        Limits(calls=3, payload_bytes=400),
    ):
        model = Answers(again, name="claude-opus-4-5")
        model.notice = ""
        record.lines.append(["limits", str(limits)])
        agent = record.take_turns(model, ["go " + "x" * 300], limits=limits, tools=[tool(act)])
        record.lines.append([len(agent.session.calls), *agent.gauge()])
    model.name = "nobody/knows"
    record.take_turns(model, ["hi"], limits=Limits(cost_usd=1), tools=[tool(act)])


def warn_of_budgets(record: Record, folder: Path) -> None:
    """The warnings and the cutover of fuseraft's rules, with a summary that fails and one that does not."""
    for writer in (Answers(reply("notes")), Answers(ModelError("summary model is down"))):
        rules = presets.fuseraft(warn_at=1_500, cutover_at=2_500)
        agent = record.take_turns(
            Answers(reply("fine")), ["one", "two", "three"], rules=rules, at=make_long_session(), summary_model=writer
        )  # fmt: skip
        record.lines.append(["view", [(m.role, len(m.text)) for m in agent.session.view()]])
        record.lines.append(["edits", [msgspec.to_builtins(e) for e in agent.session.edits]])


def prune_results(record: Record, folder: Path) -> None:
    """Old results are cleared, the agent asks for a compaction, other rules take over."""
    rules = Rules(
        pruning=Clear(keep_last=1), policy=Summary(keep_turns=1), trigger=Above(10**6), counter=COUNT
    )  # fmt: skip
    asked = reply("", "tool", *assistant("", tool_call("compact_conversation", "k")).tool_calls)
    agent = record.take_turns(
        Answers(asked, reply("done")), ["tidy up"], rules=rules, at=make_long_session(), summary_model=Answers(reply("notes"))
    )  # fmt: skip
    record.add_session(agent.session)
    agent.use_rules(Rules(counter=COUNT, window=9_000))
    record.add_outcome(asyncio.run(agent.turn("more")))
    record.lines.append(agent.gauge())


def keep_a_session_on_disk(record: Record, folder: Path) -> None:
    """All files of a live session of three turns with a compaction, and of a turn after it is opened again.

    The seals of the user (`seal`, `.mine`) differ from run to run and are left out.
    """

    def flood() -> str:
        return "row\n" * 60_000

    turns = (
        (assistant("", tool_call("flood", "c1")), assistant("first")),
        (assistant("", tool_call("write_file", "c2", path="a.txt", content="one\ntwo")), assistant("second")),
        (assistant("third"),),
    )  # fmt: skip
    rules = Rules(policy=Summary(keep_turns=1), trigger=Above(2_000), counter=COUNT, window=32_000)
    for prompts in (["go", "on", "more"], ["and more"]):
        model = ScriptedModel(turns, name="s", counter=COUNT, clock=make_clock(), context_window=32_000)  # fmt: skip
        with LiveSession(
            "one", model=model, rules=rules, clock=make_clock(), workspace=Workspace(folder), seed="7",
            tools=["files", tool(flood)], listener=record.hear,
        ) as live:  # fmt: skip
            for prompt in prompts:
                record.add_outcome(asyncio.run(live.turn(prompt)))
            record.lines.append(
                ["session", msgspec.to_builtins(msgspec.structs.replace(live.session, log=()))]
            )
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.suffix != ".mine"):
        lines = path.read_bytes()[:20_000].decode(errors="replace").splitlines()
        record.lines.append(["file", str(path.relative_to(folder))])
        record.lines += [["line", line] for line in lines[:60]]


RUNS = {
    f.__name__: f
    for f in (
        run_tools,
        compact_at_a_threshold,
        recover_from_overflows,
        continue_cut_replies,
        stop_at_limits,
        warn_of_budgets,
        prune_results,
        keep_a_session_on_disk,
    )
} | WORK


def record_run(name: str, folder: Path) -> list[str]:
    """Return what one of the runs does, a value a line; long texts stand by their beginning."""
    record = Record()
    with chdir(folder):
        RUNS[name](record, folder)
    return [
        json.dumps(_shorten(line, str(folder)), ensure_ascii=False, default=str)
        for line in record.lines
    ]


def _shorten(value: Any, folder: str) -> Any:
    if isinstance(value, str):
        value = re.sub(r'(?<="seal":")[0-9a-f]{64}', "SEAL", value.replace(folder, "FOLDER"))
        return (
            value
            if len(value) <= 300
            else f"{value[:200]}… ({len(value)} characters) …{value[-80:]}"
        )
    if isinstance(value, dict):
        return {k: "SEAL" if k == "seal" else _shorten(v, folder) for k, v in value.items()}
    return [_shorten(v, folder) for v in value] if isinstance(value, list | tuple) else value


def main() -> None:
    """Write what the runs do now."""
    FOLDER.mkdir(exist_ok=True)
    for name in RUNS:
        with TemporaryDirectory() as folder:
            lines = record_run(name, Path(folder).resolve())
        (FOLDER / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        sys.stdout.write(f"{name}: {len(lines)} lines\n")


if __name__ == "__main__":
    main()
