"""Gemini CLI's own compression on real sessions: what is left behind the snapshot."""

from __future__ import annotations

import json

import numpy as np
import pytest
from engines.external_programs import Tally, ask, sessions, version

from ctxkit import presets
from ctxkit.engine import make_log_from_session
from ctxkit.policies import History
from ctxkit.presets import find_split_point
from ctxkit.session import Attachment, Text, ToolCall
from ctxkit.tokens import ContextBudget, get_counter

pytestmark = pytest.mark.engines


class OwnSizes:
    """A history whose messages weigh what the program says."""

    def __init__(self, history, chars):
        self._history, self.chars = history, chars

    def __getattr__(self, name):
        return getattr(self._history, name)

    def __len__(self):
        return len(self._history)

    def __getitem__(self, p):
        return self._history[p]


def contents(messages):
    """Messages as contents of the API, and of each content the place of its first message."""
    out, first = [], []
    for n, m in enumerate(messages):
        if m.role == "system":
            continue
        parts = [p for p in map(part, m.parts) if p]
        if m.role == "tool":
            said = "\n".join(p.text for p in m.parts if isinstance(p, Text))
            about = {"id": m.call_id, "name": m.tool, "response": {"output": said}}
            parts = [{"functionResponse": about}]
            if out and "functionResponse" in out[-1]["parts"][0]:
                out[-1]["parts"] += parts
                continue
        role = "model" if m.role == "assistant" else "user"
        out.append({"role": role, "parts": parts or [{"text": ""}]})
        first.append(n)
    return out, first


def part(p):
    if isinstance(p, Text):
        return {"text": p.text}
    if isinstance(p, ToolCall):
        return {"functionCall": {"id": p.id, "name": p.name, "args": p.arguments}}
    return (
        {"inlineData": {"mimeType": p.media_type, "data": ""}}
        if isinstance(p, Attachment)
        else None
    )


def test_what_is_left_of_a_compressed_chat(engines, real, tmp_path):
    package = "@google/gemini-cli-core"
    tally = Tally("gemini", version(package), "what is left behind the snapshot")
    policy = presets.gemini().bare.using(lambda _: "S")
    looked, jobs = [], []
    for i, (path, session) in enumerate(sessions(real, 3, 300, size=1_600_000)):
        log = make_log_from_session(session, presets.gemini())
        picked = [*range(1, log.calls, max(1, log.calls // 12))]
        said = [History.start(log, call) for call in picked]
        if not said or any(m.role == "tool" and not m.call_id for m in said[-1].messages):
            continue
        held, first = contents(said[-1].messages)
        (file := tmp_path / f"{i}.json").write_text(json.dumps(held), encoding="utf-8")
        upto = [sum(n < len(each) for n in first) for each in said]
        jobs.append({"file": str(file), "upto": upto})
        looked.append((path.name, first, said, upto))
    found = ask("gemini.mjs", str(engines / package), jobs=jobs)
    for (name, first, said, upto), answers in zip(looked, found, strict=True):
        for history, n, answer in zip(said, upto, answers, strict=True):
            left, cut = kept(policy, history)
            mine = left, sorted(cut)
            theirs = answered(answer, first, len(history), n), sorted(answer["cut"])
            why = "size of a message" if theirs[0] == by_its_sizes(answer, first, history) else ""
            why = why if theirs[1] == mine[1] or theirs[0] != mine[0] else ""
            tally.add(theirs == mine, why, (name, history.call, theirs, mine))
    tally.done(200)


def answered(answer, first, size, n):
    """The place of the first message that the program leaves; None: it changes nothing."""
    if answer["left"] is None:
        return None
    return first[n - answer["left"]] if answer["left"] else size


def kept(policy, history):
    """The place of the first message that the preset leaves, and the results that it cuts there."""
    new = policy(history, ContextBudget(10**9, 0, get_counter("chars/4")))
    if not any(m.role == "summary" for m in new.messages):
        return None, []
    place = {m.id: p for p, m in enumerate(history.messages)}
    rest = [m for m in new.messages if m.role not in ("summary", "system")]
    left = [place[m.id.split("~")[0]] for m in rest]
    cut = [m.call_id for m in rest if m.role == "tool" and m.id not in place]
    return (min(left) if left else len(history)), cut


def by_its_sizes(answer, first, history):
    """Where the preset would cut if each message weighed what the program says."""
    chars = np.zeros(len(history), dtype=np.int64)
    chars[[p for p in first if p < len(history)]] = answer["sizes"]
    return find_split_point(OwnSizes(history, chars), 0.7) or None
