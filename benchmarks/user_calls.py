"""What a person types, one call in a fresh process: `python benchmarks/user_calls.py NAME [N]`.

It prints CPU seconds, memory and a digest of the result as JSON. It uses nothing that an earlier
ctxkit has not, so that `PYTHONPATH` names the one that is measured.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import sys
import time
import warnings
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import msgspec

import ctxkit as ck
from ctxkit.experiments.setting_grids_and_labels import resolve_rules_list
from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.offline_summarisers import FixedSizeSummariser
from ctxkit.policies.summary_compaction import Summary
from ctxkit.policies.triggers import Above
from ctxkit.session.messages import Edit, Message, Text, ToolCall, Usage
from ctxkit.session.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    Deed = Callable[[], str]

REAL = Path(os.environ.get("CTXKIT_SESSIONS", ""))
PI = "pi/before-compaction.jsonl"
CLAUDE = "claude-code/entire-7f78a542.jsonl"
EIGHT = (
    PI,
    CLAUDE,
    "claude-code/episodic-memory-long-conversation.jsonl",
    "codex/rollout-2025-10-31T19-02-58-c61729d4-da6d-46a4-9a29-ec2c614e5e23.jsonl",
    "codex/rollout-2025-11-13T16-00-16-019a7fa9-a846-7393-8d7a-9997d08b0096.jsonl",
    "opencode/prsui-0560b8613.json",
    "pi/prsui-019f8412.jsonl",
    "openhands/multi-swe-bench-output.jsonl",
)


def real(name: str) -> Session:
    """The largest session of a log."""
    return max(ck.read_all(REAL / name), key=lambda s: len(s.calls))


def made(calls: int, name: str = "made") -> Session:
    """A session of any length: a file is read and a step told at each call, all prefixes cached."""
    log: list[Any] = []
    for i in range(calls):
        now = 10_000 + 60 * i
        text = f"step {i} in src/part{i % 40}/file{i % 9}.py " + "word " * 380
        usage = Usage(
            input_tokens=0, cache_read_tokens=now - 60, cache_write_tokens=60, output_tokens=100
        )
        log.append(Message(role="user", id=f"u{i}", parts=(Text(text),), time=10.0 * i))
        reply = Message(
            role="assistant", id=f"a{i}", parts=(Text(f"src/part{i % 37}/file{i % 9}.py"),)
        )
        more = {"usage": usage, "model": "claude-sonnet-4-5", "time": 10.0 * i + 2, "latency": 1.0}
        log.append(msgspec.structs.replace(reply, **more))
    return Session(id=name, log=tuple(log))


def talk(calls: int, compacted: int = 0) -> Session:
    """A session of any length: a prompt, a command and its result at each call, a rule of the
    user's and a decision at each fifth; compacted after every so many calls (0: never).
    """
    log, shown, size, sent = list[Any](), list[str](), 10_000, 0
    for i in range(calls):
        if compacted and i and i % compacted == 0:
            summary = Message(role="summary", id=f"s{i}", parts=(Text("So far: " + "word " * 200),))
            log.append(
                Edit(kind="summarised", id=f"e{i}", targets=tuple(shown), inserted=(summary,))
            )
            shown, size, sent = [summary.id], 10_300, 0
        rule = f"Always keep rule {i} for src/part{i % 40}.py in mind."
        asked, way = (rule, f"Decided: way {i}.") if i % 5 == 0 else (f"Step {i}.", f"So {i}.")
        output = f"{i} passed " + "word " * 30
        command = ToolCall(f"c{i}", "bash", {"command": f"pytest tests/test_{i % 97}.py -q"})
        usage = Usage(
            input_tokens=0, cache_read_tokens=sent, cache_write_tokens=size - sent, output_tokens=40
        )
        reply = Message(role="assistant", id=f"a{i}", parts=(Text(way), command))
        more = {"usage": usage, "model": "claude-sonnet-4-5", "time": 10.0 * i + 2, "latency": 1.0}
        new = (
            Message(role="user", id=f"u{i}", parts=(Text(asked),), time=10.0 * i),
            msgspec.structs.replace(reply, **more),
            Message(role="tool", id=f"r{i}", parts=(Text(output),), call_id=f"c{i}", tool="bash"),
        )
        log += new
        shown += [m.id for m in new]
        size, sent = size + 80, size
    return Session(id="talk", log=tuple(log))


def again(session: Session, times: int) -> Session:
    """A session that says the same several times over, without its compactions."""
    log = [
        msgspec.structs.replace(m, id=f"{k}.{m.id}") for k in range(times) for m in session.messages
    ]
    return Session(id=session.id, log=tuple(log))


def csv(frame: pd.DataFrame) -> str:
    """The figures of a frame."""
    return str(frame.drop(columns=[c for c in ("key", "of") if c in frame]).to_csv())


def grid() -> Any:
    """Fased under 200 settings, everything else as it ships."""
    reserve, keep = range(10_000, 60_000, 2_500), range(5_000, 45_000, 4_000)
    return ck.grid(ck.presets.fased, reserve_tokens=reserve, keep_recent_tokens=keep)


def sweep(settings: int, *, loss: bool = False) -> Deed:
    """A sweep of the Pi log over the first settings."""
    session, rules = real(PI), list(grid())[:settings]
    return lambda: csv(ck.sweep([session], rules, loss=loss, progress=False))


def compare(session: Session, presets: int = 0) -> Deed:
    """Every preset, or so many of the first, with losses."""
    rules = resolve_rules_list("all")[:presets] if presets else "all"
    return lambda: csv(ck.compare(session, rules, progress=False))


def advise() -> Deed:
    """Which setting for these eight sessions."""
    sessions = [real(name) for name in EIGHT]
    return lambda: csv(ck.advise(sessions))


def frontier(presets: int) -> Deed:
    """The first presets, with losses, over all sessions with text that a folder holds."""
    found = [x for s in ck.read_all(REAL) for x in (s, *s.children) if x.has_text and x.calls]
    rules = resolve_rules_list("all")[:presets]
    return lambda: csv(ck.sweep(found, rules, loss=True, progress=False))


def score(cuts: int) -> Deed:
    """The score of a replay of the Pi log said twice, with about so many compactions."""
    limit = {400: 5_200, 200: 7_700, 100: 13_000, 50: 25_000}[cuts]
    policy = Summary(keep_tokens=1_500, must_shrink=False, summariser=FixedSizeSummariser(300))
    rules = Rules(policy=policy, trigger=Above(limit), window=200_000)
    replay = ck.replay(again(real(PI), 2), rules)
    return lambda: f"{len(replay.edits)} {dict(ck.score(replay))}"


def calibrated(how: Callable[[Session], Any], session: Session) -> str:
    """What estimates make of a session, as figures or as a chart."""
    made = how(session)
    return str(made.to_plotly() if hasattr(made, "to_plotly") else csv(made.calls))


SMALL = "pi:context_window=40_000,reserve_tokens=8_000,keep_recent_tokens=8_000"
"""Rules that compact a `talk` about each 115 calls."""


def with_memory(calls: int) -> Deed:
    """What a memory is worth to a session: two runs with their losses."""
    session = talk(calls)
    return lambda: csv(ck.experiments.with_memory(session, SMALL))


def without_memory(calls: int) -> Deed:
    """The same session under the same rules, beside what was recorded."""
    session = talk(calls)
    return lambda: csv(ck.compare(session, [SMALL], progress=False))


def written(calls: int) -> Deed:
    """A file of OpenTelemetry spans of a session that is compacted now and then."""
    session = talk(calls, compacted=200)

    def write() -> str:
        with TemporaryDirectory() as folder:
            path = Path(folder, "spans.json")
            lost = ck.write(session, path, format="otel").lost
            return f"{path.stat().st_size} {lost}"

    return write


def views(messages: int) -> Deed:
    """The prompts of all calls."""
    roles = ("user", "assistant")
    log = [
        Message(role=roles[i % 2], id=f"m{i}", parts=(Text(f"said {i}"),)) for i in range(messages)
    ]
    session = Session(id="views", log=tuple(log))
    return lambda: str(sum(len(shown) for _, shown in session.views()))


def tyrum(megabytes: int) -> Deed:
    """A replay under Tyrum's rules of a session that is mostly results of tools."""
    texts, log, n = [m.text for m in real(PI).messages if len(m.text) > 2000], list[Any](), 0
    while n < megabytes * 1_000_000:
        i, text = len(log), f"{n}\n" + texts[len(log) % len(texts)] * 4
        call = ToolCall(id=f"c{i}", name="read", arguments={"path": f"src/{i}.ts"})
        log.append(Message(role="assistant", id=f"a{i}", parts=(call,)))
        log.append(
            Message(role="tool", id=f"t{i}", parts=(Text(text),), tool="read", call_id=f"c{i}")
        )
        n += len(text)
    session = Session(id="tyrum", log=(Message(role="user", id="u", parts=(Text("go"),)), *log))
    return lambda: str(len(ck.replay(session, ck.presets.tyrum()).log))


def many(sessions: int) -> Deed:
    """A sweep with losses over sessions of 2,000 calls: it is asked for its memory."""
    given = [made(2_000, f"made{i}") for i in range(sessions)]
    rules = list(grid())[:2]
    return lambda: csv(ck.sweep(given, rules, loss=True, progress=False))


DEEDS: dict[str, Callable[[int], Deed]] = {
    "sweep": sweep,
    "sweep with losses": lambda n: sweep(n, loss=True),
    "compare pi": lambda n: compare(real(PI), n),
    "compare claude": lambda n: compare(real(CLAUDE), n),
    "compare made": lambda n: compare(made(n)),
    "advise": lambda _: advise(),
    "frontier": frontier,
    "score": score,
    "calibrate": lambda n: partial(calibrated, ck.calibrate, talk(n)),
    "calibration": lambda n: partial(calibrated, ck.plots.calibration, talk(n)),
    "otel": written,
    "with memory": with_memory,
    "without memory": without_memory,
    "views": views,
    "tyrum": tyrum,
    "many": many,
}


def main(name: str, n: int) -> dict[str, Any]:
    """Do it in a kernel that has done its like on the sample before: imports are no part of it."""
    warnings.simplefilter("ignore")
    sample = ck.read(ck.samples.path())
    ck.compare(sample, "all", progress=False)
    deed = DEEDS[name](n)
    start = time.process_time()
    result = deed()
    seconds = time.process_time() - start
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    digest = hashlib.sha256(result.encode()).hexdigest()[:12]
    return {"seconds": seconds, "megabytes": most, "digest": digest}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0)))
