"""One call of a user in a fresh process: `python benchmarks/user_calls.py NAME [N]`.

It prints CPU seconds, memory and a digest of the result as JSON. `PYTHONPATH` names the ctxkit that
is measured; the script uses only what an earlier version has, too.
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

    UserCall = Callable[[], str]

SESSIONS = Path(os.environ.get("CTXKIT_SESSIONS", ""))
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


def read_largest_session(name: str) -> Session:
    """Return the session with the most calls of a log."""
    return max(ck.read_all(SESSIONS / name), key=lambda s: len(s.calls))


def make_cached_session(calls: int, name: str = "made") -> Session:
    """Return a session of any length, in which every call reads its whole prefix from the cache."""
    log: list[Any] = []
    for i in range(calls):
        prompt_tokens = 10_000 + 60 * i
        text = f"step {i} in src/part{i % 40}/file{i % 9}.py " + "word " * 380
        usage = Usage(
            input_tokens=0,
            cache_read_tokens=prompt_tokens - 60,
            cache_write_tokens=60,
            output_tokens=100,
        )
        log.append(Message(role="user", id=f"u{i}", parts=(Text(text),), time=10.0 * i))
        reply = Message(
            role="assistant", id=f"a{i}", parts=(Text(f"src/part{i % 37}/file{i % 9}.py"),)
        )
        call_fields = {
            "usage": usage,
            "model": "claude-sonnet-4-5",
            "time": 10.0 * i + 2,
            "latency": 1.0,
        }
        log.append(msgspec.structs.replace(reply, **call_fields))
    return Session(id=name, log=tuple(log))


def make_conversation(calls: int, compact_every: int = 0) -> Session:
    """Return a session of any length: at each call a user message, a command and its result.

    At each fifth call the user states a rule and the reply a decision. The session is compacted
    after every `compact_every` calls; 0: never.
    """
    log, visible_ids, prompt_tokens, cached_tokens = list[Any](), list[str](), 10_000, 0
    for i in range(calls):
        if compact_every and i and i % compact_every == 0:
            summary = Message(role="summary", id=f"s{i}", parts=(Text("So far: " + "word " * 200),))
            log.append(
                Edit(kind="summarised", id=f"e{i}", targets=tuple(visible_ids), inserted=(summary,))
            )
            visible_ids, prompt_tokens, cached_tokens = [summary.id], 10_300, 0
        rule = f"Always keep rule {i} for src/part{i % 40}.py in mind."
        question, answer = (
            (rule, f"Decided: way {i}.") if i % 5 == 0 else (f"Step {i}.", f"So {i}.")
        )
        output = f"{i} passed " + "word " * 30
        command = ToolCall(f"c{i}", "bash", {"command": f"pytest tests/test_{i % 97}.py -q"})
        usage = Usage(
            input_tokens=0,
            cache_read_tokens=cached_tokens,
            cache_write_tokens=prompt_tokens - cached_tokens,
            output_tokens=40,
        )
        reply = Message(role="assistant", id=f"a{i}", parts=(Text(answer), command))
        call_fields = {
            "usage": usage,
            "model": "claude-sonnet-4-5",
            "time": 10.0 * i + 2,
            "latency": 1.0,
        }
        new = (
            Message(role="user", id=f"u{i}", parts=(Text(question),), time=10.0 * i),
            msgspec.structs.replace(reply, **call_fields),
            Message(role="tool", id=f"r{i}", parts=(Text(output),), call_id=f"c{i}", tool="bash"),
        )
        log += new
        visible_ids += [m.id for m in new]
        prompt_tokens, cached_tokens = prompt_tokens + 80, prompt_tokens
    return Session(id="talk", log=tuple(log))


def repeat_session(session: Session, times: int) -> Session:
    """Return a session that repeats the messages of another one, without its compactions."""
    log = [
        msgspec.structs.replace(message, id=f"{pass_number}.{message.id}")
        for pass_number in range(times)
        for message in session.messages
    ]
    return Session(id=session.id, log=tuple(log))


def format_figures(frame: pd.DataFrame) -> str:
    """Return the figures of a frame as CSV."""
    return str(frame.drop(columns=[c for c in ("key", "of") if c in frame]).to_csv())


def make_fased_grid() -> Any:
    """Return 200 settings of Fased, everything else at its default."""
    reserve, keep = range(10_000, 60_000, 2_500), range(5_000, 45_000, 4_000)
    return ck.grid(ck.presets.fased, reserve_tokens=reserve, keep_recent_tokens=keep)


def prepare_sweep(settings: int, *, loss: bool = False) -> UserCall:
    """Prepare a sweep of the Pi log over the first settings of the grid."""
    session, rules = read_largest_session(PI), list(make_fased_grid())[:settings]
    return lambda: format_figures(ck.sweep([session], rules, loss=loss, progress=False))


def prepare_comparison(session: Session, presets: int = 0) -> UserCall:
    """Prepare a comparison with losses under all presets, or the first ones."""
    rules = resolve_rules_list("all")[:presets] if presets else "all"
    return lambda: format_figures(ck.compare(session, rules, progress=False))


def prepare_advice() -> UserCall:
    """Prepare the advice for eight sessions."""
    sessions = [read_largest_session(name) for name in EIGHT]
    return lambda: format_figures(ck.advise(sessions))


def prepare_frontier(presets: int) -> UserCall:
    """Prepare a sweep with losses of the first presets over all sessions with text."""
    sessions = [
        member
        for session in ck.read_all(SESSIONS)
        for member in (session, *session.children)
        if member.has_text and member.calls
    ]
    rules = resolve_rules_list("all")[:presets]
    return lambda: format_figures(ck.sweep(sessions, rules, loss=True, progress=False))


def prepare_score(compactions_n: int) -> UserCall:
    """Prepare the score of a replay of the repeated Pi log, with about so many compactions."""
    limit = {400: 5_200, 200: 7_700, 100: 13_000, 50: 25_000}[compactions_n]
    policy = Summary(keep_tokens=1_500, must_shrink=False, summariser=FixedSizeSummariser(300))
    rules = Rules(policy=policy, trigger=Above(limit), window=200_000)
    replay = ck.replay(repeat_session(read_largest_session(PI), 2), rules)
    return lambda: f"{len(replay.edits)} {dict(ck.score(replay))}"


def format_calibration(calibrate: Callable[[Session], Any], session: Session) -> str:
    """Return the calibration of a session, as figures or as a chart."""
    calibration = calibrate(session)
    return str(
        calibration.to_plotly()
        if hasattr(calibration, "to_plotly")
        else format_figures(calibration.calls)
    )


SMALL_WINDOW_RULES = "pi:context_window=40_000,reserve_tokens=8_000,keep_recent_tokens=8_000"
"""Rules that compact a session of `make_conversation` about every 115 calls."""


def prepare_memory_comparison(calls: int) -> UserCall:
    """Prepare two runs of a session with losses, with and without a memory."""
    session = make_conversation(calls)
    return lambda: format_figures(ck.experiments.with_memory(session, SMALL_WINDOW_RULES))


def prepare_rules_comparison(calls: int) -> UserCall:
    """Prepare a comparison of the same session under the same rules with its record."""
    session = make_conversation(calls)
    return lambda: format_figures(ck.compare(session, [SMALL_WINDOW_RULES], progress=False))


def prepare_otel_file(calls: int) -> UserCall:
    """Prepare a file of OpenTelemetry spans of a session with compactions."""
    session = make_conversation(calls, compact_every=200)

    def write() -> str:
        with TemporaryDirectory() as folder:
            path = Path(folder, "spans.json")
            lost = ck.write(session, path, format="otel").lost
            return f"{path.stat().st_size} {lost}"

    return write


def prepare_views(messages: int) -> UserCall:
    """Prepare the prompts of all calls of a session."""
    roles = ("user", "assistant")
    log = [
        Message(role=roles[i % 2], id=f"m{i}", parts=(Text(f"said {i}"),)) for i in range(messages)
    ]
    session = Session(id="views", log=tuple(log))
    return lambda: str(sum(len(shown) for _, shown in session.views()))


def prepare_tyrum_replay(megabytes: int) -> UserCall:
    """Prepare a replay under Tyrum's rules of a session that consists mostly of tool results."""
    texts, log, chars_n = (
        [m.text for m in read_largest_session(PI).messages if len(m.text) > 2000],
        list[Any](),
        0,
    )
    while chars_n < megabytes * 1_000_000:
        i, text = len(log), f"{chars_n}\n" + texts[len(log) % len(texts)] * 4
        call = ToolCall(id=f"c{i}", name="read", arguments={"path": f"src/{i}.ts"})
        log.append(Message(role="assistant", id=f"a{i}", parts=(call,)))
        log.append(
            Message(role="tool", id=f"t{i}", parts=(Text(text),), tool="read", call_id=f"c{i}")
        )
        chars_n += len(text)
    session = Session(id="tyrum", log=(Message(role="user", id="u", parts=(Text("go"),)), *log))
    return lambda: str(len(ck.replay(session, ck.presets.tyrum()).log))


def prepare_sweep_of_many(sessions: int) -> UserCall:
    """Prepare a sweep with losses over sessions of 2,000 calls, whose memory is measured."""
    made_sessions = [make_cached_session(2_000, f"made{i}") for i in range(sessions)]
    rules = list(make_fased_grid())[:2]
    return lambda: format_figures(ck.sweep(made_sessions, rules, loss=True, progress=False))


USER_CALLS: dict[str, Callable[[int], UserCall]] = {
    "sweep": prepare_sweep,
    "sweep with losses": lambda n: prepare_sweep(n, loss=True),
    "compare pi": lambda n: prepare_comparison(read_largest_session(PI), n),
    "compare claude": lambda n: prepare_comparison(read_largest_session(CLAUDE), n),
    "compare made": lambda n: prepare_comparison(make_cached_session(n)),
    "advise": lambda _: prepare_advice(),
    "frontier": prepare_frontier,
    "score": prepare_score,
    "calibrate": lambda n: partial(format_calibration, ck.calibrate, make_conversation(n)),
    "calibration": lambda n: partial(
        format_calibration, ck.plots.calibration, make_conversation(n)
    ),
    "otel": prepare_otel_file,
    "with memory": prepare_memory_comparison,
    "without memory": prepare_rules_comparison,
    "views": prepare_views,
    "tyrum": prepare_tyrum_replay,
    "many": prepare_sweep_of_many,
}


def main(name: str, n: int) -> dict[str, Any]:
    """Measure a call in a process that already made a comparison, so that imports do not count."""
    warnings.simplefilter("ignore")
    sample = ck.read(ck.samples.path())
    ck.compare(sample, "all", progress=False)
    user_call = USER_CALLS[name](n)
    start = time.process_time()
    result = user_call()
    seconds = time.process_time() - start
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    digest = hashlib.sha256(result.encode()).hexdigest()[:12]
    return {"seconds": seconds, "megabytes": megabytes, "digest": digest}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0)))
