"""What a reader declares as recorded, or as not recorded, is compared with its golden sample.

`CAN` and `CANNOT` of a reader are lists of phrases, of which docs/formats.md is made. `FEATURES` gives
each feature a pattern for the words that name it, and a predicate on the sessions of a sample.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from formats.test_golden import SAMPLES
from synthetic_logs import CHECKPOINT, lines
from synthetic_logs_current_layouts import COPILOT
from synthetic_logs_old_layouts import TAU2

import ctxkit as ck
from ctxkit.formats import all_readers
from ctxkit.session import Edit, Message, Session, SizeOnly, Text, Thinking

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

READERS = {reader.NAME: reader for reader in all_readers()}


class Recorded:
    """Sessions, messages and edits of a log, with its branches and subagents."""

    def __init__(self, session: Session) -> None:
        self.sessions = list(iter_sessions(session))
        entries = [e for s in self.sessions for e in s.log]
        self.edits = [e for e in entries if isinstance(e, Edit)]
        self.messages = [e for e in entries if isinstance(e, Message)]
        self.results = [m for m in self.messages if m.role == "tool"]
        self.usages = [m.usage for m in self.messages if m.usage]
        self.details = [{**s.details, **m.details} for s in self.sessions for m in self.messages]

    def parts(self, kind: type, messages: Iterable[Message] | None = None) -> list[Any]:
        chosen = self.messages if messages is None else messages
        return [p for m in chosen for p in m.parts if isinstance(p, kind)]

    def has_usage(self, *, of_turns: bool) -> bool:
        return any(
            m.usage and m.usage.prompt_tokens and (m.kind == "turn") == of_turns
            for m in self.messages
        )


def iter_sessions(session: Session) -> Iterator[Session]:
    yield session
    for child in session.children:
        yield from iter_sessions(child)


FEATURES: dict[str, tuple[str, Callable[[Recorded], bool]]] = {
    "text": (
        r"text|requests|answers",
        lambda r: bool(r.parts(Text, [m for m in r.messages if m.role in ("user", "assistant")])),
    ),
    "thinking": (
        r"thinking|thoughts|(?<!encrypted )reasoning",
        lambda r: any(p.text for p in r.parts(Thinking)),
    ),
    "text of encrypted reasoning": (
        r"encrypted reasoning",
        lambda r: any(p.text and p.hidden for p in r.parts(Thinking)),
    ),
    "system prompt": (
        r"system prompts?",
        lambda r: any(m.role == "system" and m.visible and m.text for m in r.messages),
    ),
    "demonstrations": (r"demonstrations", lambda r: any(m.kind == "demo" for m in r.messages)),
    "tool schemas": (
        r"tool schemas|tools(?! with sizes)",
        lambda r: any(tool.parameters for s in r.sessions for tool in s.tools),
    ),
    "calls": (
        r"(?<!single )calls|actions|commands",
        lambda r: any(m.tool_calls for m in r.messages),
    ),
    "results": (
        r"(?<!sizes of their )results|tool results|observations",
        lambda r: bool(r.parts(Text, r.results)),
    ),
    "sizes of results": (
        r"sizes of their results|tools with sizes",
        lambda r: any(p.chars for p in r.parts(SizeOnly, r.results)),
    ),
    "failed tools": (r"failed tools|success", lambda r: any(m.is_error for m in r.results)),
    "exit codes": (
        r"exit code|return codes",
        lambda r: any({"exit_code", "returncode"} & d.keys() for d in r.details),
    ),
    "usage": (
        r"(?<!with their )usage(?! per|.* per call)|tokens(?= and cost per request)",
        lambda r: any(u.prompt_tokens for u in r.usages),
    ),
    "usage per call": (
        r"usage(?: and occupancy)? per call|single calls|tokens and cost per request",
        lambda r: r.has_usage(of_turns=False),
    ),
    "usage per turn": (r"usage per turn", lambda r: r.has_usage(of_turns=True)),
    "usage of compactions": (
        r"compactions with their usage",
        lambda r: any(e.usage for e in r.edits),
    ),
    "output tokens": (r"output tokens", lambda r: any(u.output_tokens for u in r.usages)),
    "cache reads": (
        r"cache reads|cache(?= by lifetime)|(?<=\()cache(?=\))|cache per call|^cache$",
        lambda r: any(u.cache_read_tokens for u in r.usages),
    ),
    "cache writes": (
        (
            r"cache writes|(?<=cache reads and )writes|cache(?= by lifetime)|(?<=\()cache(?=\))"
            r"|cache per call|^cache$"
        ),
        lambda r: any(u.cache_write_tokens for u in r.usages),
    ),
    "lifetime of cache writes": (
        r"by lifetime",
        lambda r: any(u.cache_write_tokens and u.cache_write_1h_tokens for u in r.usages),
    ),
    "cost": (
        r"cost(?! of a session)",
        lambda r: any(u.cost_usd for u in r.usages),
    ),
    "totals": (
        r"totals?(?! are)",
        lambda r: any({"totals", "input_tokens"} & d.keys() for d in r.details),
    ),
    "times": (r"times", lambda r: any(m.time for m in r.messages)),
    "latency": (r"latency", lambda r: any(m.latency for m in r.messages)),
    "model": (
        r"model",
        lambda r: any([*(s.model for s in r.sessions), *(m.model for m in r.messages)]),
    ),
    "window": (
        r"window",
        lambda r: any(s.context_window for s in r.sessions),
    ),
    "stop reasons": (r"stop reasons", lambda r: any(m.stop for m in r.messages)),
    "compactions": (
        r"(?:marks of )?compactions|compressions|condensations|summaries",
        lambda r: any(
            e.source == "recorded" and e.kind in ("summarised", "dropped") for e in r.edits
        ),
    ),
    "prunings": (r"prunings", lambda r: any(e.method == "prune" for e in r.edits)),
    "truncations": (r"truncated ranges", lambda r: any(e.method == "truncation" for e in r.edits)),
    "derived removals": (
        r"removed messages \(derived\)",
        lambda r: any(e.source == "derived" for e in r.edits),
    ),
    "branches": (r"branches|rewinds", lambda r: any(s.parents for s in r.sessions)),
    "subagents": (r"subagents", lambda r: len(r.sessions) > 1),
    "agents": (
        r"agents?",
        lambda r: any([*(m.agent for m in r.messages), *(s.agent != "main" for s in r.sessions)]),
    ),
    "budgets": (r"budgets", lambda r: any("warn_at" in d for d in r.details)),
    "rewards": (r"rewards", lambda r: any("reward" in d for d in r.details)),
}
"""Pattern and predicate of each feature; patterns match whole words."""
PATTERNS = {
    feature: re.compile(rf"(?<![\w.-])(?:{pattern})(?![\w-])")
    for feature, (pattern, _) in FEATURES.items()
}
NATIVE_FEATURES = set(FEATURES) - {
    *("text of encrypted reasoning", "demonstrations", "sizes of results", "exit codes"),
    *("usage per turn", "usage of compactions", "totals", "prunings", "truncations"),
    *("derived removals", "budgets", "rewards"),
}
"""What "everything that a session contains" means: a session of each format can be copied."""
MAIN_FEATURES = {
    *("thinking", "system prompt", "tool schemas", "cache reads", "cache writes", "cost", "times"),
    *("compactions", "subagents"),
}
"""Features that a reader must declare where its sample has them."""
QUALIFIER = r"(?: of (?:messages|calls|a REPL session)| in older versions| \([^)]*\))*"
"""What may follow a feature in CANNOT: it limits the statement to logs like the sample."""
NO_FEATURE = {
    # about files, not about a session
    "everything that a session contains",
    "(nothing)",
    "companion files",
    "samples",
    "saved contents",
    "several conversations per file",
    "several runs per file",
    "several sessions per database",
    "several sessions per notebook",
    # about content for which there is no predicate
    "output of the program",
    "repository map",
    "file contents",
    "the request",
    "sizes by kind",
    "the answer behind a failed edit",
    "summaries of old history",
    "file contents that Cline shortened in requests (context_history.json)",
    "replies that a framework did not log (taken from the next prompt)",
    "the middle of a long turn (all of it is in the session's own log in .ctxkit)",
    "messages that history processors changed",
    "messages before a summary",
    "messages removed by a truncation",
    "messages that a compaction in an older wire retained",
    "removed messages of earlier checkpoints",
    "Cline's compactions before the latest",
    "sizes of a compaction (terminus-2 marks only its place)",
    "the prompt of a call (stored files omit assistant.usage)",
    "the size of a context (the sums are billed tokens)",
    "the parent of a subagent's log",
    "time zone of V0 events without a completion",
    # about other logs of the format: the sample has the feature, or cannot show its absence
    "text by default",
    "usage if the log has no model events",
    "usage of a V1 conversation without its base_state",
    "calls (few-shot conversations)",
    "in older files (a bare list) usage and times",
    "the system prompt (tau2)",
    "single calls of a run and their results",
    "compressions of recorded chats (only saved contents have their snapshot)",
    "separate system prompts",
    "compactions by the client (those by the API have their own usage)",
    "or in each reply (Cline from 4.0)",
    "unless an exporter adds it",
    "times of messages without a completion",
    "times of tool results",
}
"""Phrases that name no feature, or limit one to logs of which the sample is none."""


def split_phrases(declaration: str) -> list[str]:
    """Return the phrases of CAN or CANNOT, separated by commas and semicolons outside of parentheses."""
    return [p.strip() for p in re.split(r"[,;](?![^()]*\))", declaration)]


def find_features(phrase: str) -> set[str]:
    """Return the features that a phrase of CAN names anywhere."""
    if phrase == "everything that a session contains":
        return NATIVE_FEATURES
    return set() if phrase in NO_FEATURE else {f for f, p in PATTERNS.items() if p.search(phrase)}


def find_excluded_features(phrase: str) -> set[str]:
    """Return the features of a phrase of CANNOT that consists of features and qualifiers alone."""
    pieces = [] if phrase in NO_FEATURE else re.split(r" and (?![^()]*\))", phrase)
    excluded: set[str] = set()
    for piece in pieces:
        named = {
            feature
            for feature, (pattern, _) in FEATURES.items()
            if re.fullmatch(rf"(?:{pattern.replace('^', '').replace('$', '')}){QUALIFIER}", piece)
        }
        if not named:
            return set()
        excluded |= named
    return excluded


def find_held_features(session: Session) -> set[str]:
    recorded = Recorded(session)
    return {feature for feature, (_, is_held) in FEATURES.items() if is_held(recorded)}


@cache
def find_features_of_sample(name: str) -> set[str]:
    return find_held_features(ck.read(SAMPLES[name]))


# -- features that the sample cannot have, as its file is of another layout -------------------------


def write_file(data: bytes) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / "log.json").write_bytes(data)
        return folder / "log.json"

    return write


GEMINI_REWIND = lines(
    {"sessionId": "s", "projectHash": "0", "kind": "main"},
    {"id": "m1", "type": "user", "timestamp": "2026-03-01T10:00:01Z", "content": "One?"},
    {"$rewindTo": "m1"},
    {"id": "m2", "type": "user", "timestamp": "2026-03-01T10:00:02Z", "content": "Two?"},
)


def write_cline_session(folder: Path) -> Path:
    """Write a session of Cline 4 with a subagent."""
    messages = [{"role": "user", "content": "Count."}]
    for name, agent in (("s", "lead"), ("t", "subagent")):
        document = {"agent": agent, "sessionId": name, "messages": messages}
        (folder / "s").mkdir(exist_ok=True)
        (folder / f"s/{name}.messages.json").write_text(json.dumps(document))
    return folder / "s"


def write_truncated_cline_task(folder: Path) -> Path:
    """Write a task of an older Cline, whose last request leaves out the second and third message."""
    history = [
        {"role": role, "content": role, "ts": 1_772_359_200_000 + n}
        for n, role in enumerate(["user", "assistant"] * 3)
    ]
    request = {"say": "api_req_started", "ts": 1_772_359_200_004, "text": '{"tokensIn": 9}'}
    request["conversationHistoryDeletedRange"] = [1, 2]
    (folder / "api_conversation_history.json").write_text(json.dumps(history))
    (folder / "ui_messages.json").write_text(json.dumps([request]))
    return folder


OTHER_LAYOUTS: dict[tuple[str, Callable[[Path], Path]], set[str]] = {
    # A stored file omits what was streamed.
    ("copilot-cli", write_file(COPILOT)): {"usage per call"},
    # The sample is of the REPL.
    ("fuseraft-checkpoint", write_file(CHECKPOINT)): {
        *("agents", "times", "usage per turn", "compactions", "failed tools"),
    },
    # Rewinds are records of chats in JSON lines; the sample is one document.
    ("gemini-cli", write_file(GEMINI_REWIND)): {"branches"},
    # The sample is of tau-bench.
    ("tau-bench", write_file(TAU2)): {"usage", "cost", "times", "failed tools"},
    # The sample is of Roo.
    ("cline", write_cline_session): {"subagents"},
    ("cline", write_truncated_cline_task): {"truncations"},
}
"""Features that only another layout of the format records, and a log of that layout."""


@pytest.mark.parametrize("name", READERS)
def test_a_sample_holds_what_its_reader_declares(name: str):
    declared = {f for phrase in split_phrases(READERS[name].CAN) for f in find_features(phrase)}
    held = find_features_of_sample(name)
    if "calls" in held and "tool errors" not in getattr(READERS[name], "BLIND", ()):
        declared |= {"failed tools"}
    elsewhere = {f for (n, _), features in OTHER_LAYOUTS.items() for f in features if n == name}
    assert declared - held == elsewhere
    assert held & MAIN_FEATURES <= declared


@pytest.mark.parametrize("name", READERS)
def test_a_sample_holds_nothing_that_its_reader_excludes(name: str):
    phrases = split_phrases(READERS[name].CANNOT)
    excluded = {f for phrase in phrases for f in find_excluded_features(phrase)}
    assert excluded & find_features_of_sample(name) == set()


@pytest.mark.parametrize(("name", "write"), OTHER_LAYOUTS)
def test_another_layout_holds_what_the_sample_cannot(name: str, write, tmp_path: Path):
    session = ck.read(write(tmp_path))
    assert session.format == name
    assert OTHER_LAYOUTS[name, write] <= find_held_features(session)


def test_each_phrase_names_a_feature_or_is_listed():
    can = {phrase for reader in READERS.values() for phrase in split_phrases(reader.CAN)}
    cannot = {phrase for reader in READERS.values() for phrase in split_phrases(reader.CANNOT)}
    unknown = {phrase for phrase in can if not find_features(phrase)}
    unknown |= {phrase for phrase in cannot if not find_excluded_features(phrase)}
    assert unknown == NO_FEATURE - {"everything that a session contains"}
