"""The exam of compactions: what a model answered after real summaries, as sessions.

Data of algal/pi-openai-server-compaction (see `docs/exam.md`), read beside the real sessions:
histories, what Pi's default compaction made of them, and every answer with its right value.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import ctxkit as ck
from ctxkit.metrics import LosableItem, extract_text_items, losses
from ctxkit.session import Message, Session, Text, ToolCall

if TYPE_CHECKING:
    from pathlib import Path


class Trial(NamedTuple):
    """One history, its summary, and the questions with what is right and whether it was said."""

    session: Session
    """The history, the questions, and a reply that gives every right value."""
    summary: str
    kept_from: int
    """How many messages the recorded summary stands for."""
    asked: tuple[tuple[str, bool], ...]
    """For each question the right value, and whether the model gave it after the compaction."""

    def replay(self, summary: str | None = None) -> Session:
        """The session with Pi's preset compacting before the questions, by a given summary."""
        resumed, text = len(self.session.calls) - 2, self.summary if summary is None else summary
        rules = ck.presets.pi(context_window=272_000, summariser=lambda _: text)
        return ck.replay(
            self.session, rules.but(trigger=lambda history, _: history.call == resumed)
        )


def trials(sessions: Path) -> list[Trial]:
    """The eight trials; empty where the data are not there."""
    folder = sessions.parent / "studies" / "compaction-exam"
    if not (folder / "trials.jsonl").is_file():
        return []
    fixtures = json.loads((folder / "fixtures.json").read_text())
    lines = (folder / "trials.jsonl").read_text().splitlines()
    told = {t["fixtureId"]: t for t in map(json.loads, lines)}
    return [_trial(f, told[f["id"]]) for f in fixtures]


def _trial(fixture: dict[str, Any], trial: dict[str, Any]) -> Trial:
    pi = trial["piDefault"]
    scores = {s["questionId"]: s for s in trial["evaluations"]["pi_default"]["scores"]}
    asked = tuple((q["expected"], scores[q["id"]]["correct"]) for q in fixture["questions"])
    given = [*fixture["messages"], *fixture["sharedTail"]]
    questions = "\n".join(q["question"] for q in fixture["questions"])
    said = [
        *(_message(m, f"m{i}") for i, m in enumerate(given)),
        Message(role="user", id="exam", parts=(Text(questions),)),
        Message(role="assistant", id="right", parts=(Text("\n".join(v for v, _ in asked)),)),
    ]
    session = Session(id=fixture["id"], log=tuple(said))
    return Trial(session, pi["summary"], pi["summarizedMessageCount"], asked)


def _message(told: dict[str, Any], name: str) -> Message:
    content = told["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    mine = tuple(_part(p) for p in parts)
    if told["role"] != "toolResult":
        return Message(role=told["role"], id=name, parts=mine)
    return Message(
        role="tool", id=name, parts=mine, call_id=told["toolCallId"], tool=told["toolName"]
    )


def _part(part: dict[str, Any]) -> Text | ToolCall:
    if part["type"] == "text":
        return Text(part["text"])
    return ToolCall(id=part["id"], name=part["name"], arguments=part["arguments"])


def predicted(trial: Trial, session: Session) -> list[bool]:
    """For each question whether no item of its right value was lost to the reply that needed it."""
    opened = losses(session)
    missed = opened[opened["needed_call"].notna()]
    gone = {LosableItem(f, i) for f, i in zip(missed["family"], missed["item"], strict=True)}
    return [not gone.intersection(extract_text_items(value)) for value, _ in trial.asked]
