"""Summaries from the record of tool calls (intents, evidence, hybrid) and fuseraft's narrative
compaction.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from ctxkit._internal.redaction import failure_text
from ctxkit.errors import ModelError
from ctxkit.policies.offline_summarisers import (
    Extractive,
    Passage,
    may_ask,
    summary_text,
    written_instead,
)
from ctxkit.policies.summary import LOCAL_SUMMARISERS, Summary
from ctxkit.policies.texts import content, summary_prompts, tool_actions
from ctxkit.policies.texts.summary_prompts import FUSERAFT_SECTIONS
from ctxkit.session.messages import Message, Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ctxkit.policies.base import Natural, Positive
    from ctxkit.policies.history.history import History
    from ctxkit.policies.texts.tool_actions import ToolAction
    from ctxkit.tokens import ContextBudget


@dataclass(frozen=True, kw_only=True)
class IntentSummariser:
    """Writes one line a tool call: what was asked, of what, and how it ended."""

    quirks: bool = False
    """Lines as fuseraft's program writes them: no commands, the error last."""
    name = "intents"
    needs_model = False

    def __call__(self, passage: Passage) -> str:
        """Return the record of a passage."""
        turns = [int(t) for t in passage.history.turns[list(passage.positions)]]
        agent = passage.history.log.agent
        return write_intents(passage.messages, turns, agent, quirks=self.quirks)


@dataclass(frozen=True, kw_only=True)
class EvidenceSummariser:
    """Writes what the record proves of a passage, and of all before it."""

    name = "evidence"
    needs_model = False

    def __call__(self, passage: Passage) -> str:
        """Return the evidence."""
        return write_evidence_before(passage.history, passage.before)


@dataclass(frozen=True, kw_only=True)
class HybridSummariser:
    """Writes the evidence, then another summariser's words; evidence alone where those fail."""

    summariser: Any = field(default_factory=Extractive)
    """Writes the words: ``(passage) -> text``."""
    name = "hybrid"

    @property
    def needs_model(self) -> bool:
        """True where what writes the words may ask a model."""
        return may_ask(self.summariser)

    def __call__(self, passage: Passage) -> Message | str:
        """Return evidence and words; evidence alone as a message that says why."""
        evidence = EvidenceSummariser()(passage)
        try:
            narrative = self.summariser(passage)
        except (ModelError, OSError, ValueError, RuntimeError) as error:
            text_without_narrative = (
                f"{evidence}\n\n[no narrative: {content.one_line(failure_text(error), 200)}]"
            )
            return written_instead(text_without_narrative, error)
        text = summary_text(narrative)
        return f"{evidence}\n\n---\n\n{text}" if text.strip() else evidence


@dataclass(frozen=True, kw_only=True, repr=False)
class Intents(Summary):
    """Put the record of tool calls in the place of old messages; needs no model."""

    summariser: IntentSummariser = IntentSummariser()
    apart: bool = False


@dataclass(frozen=True, kw_only=True, repr=False)
class Evidence(Summary):
    """Put the evidence in the place of old messages (fuseraft's lossless mode); needs no model."""

    summariser: Any = EvidenceSummariser()
    apart: bool = False


@dataclass(frozen=True, kw_only=True, repr=False)
class Hybrid(Summary):
    """Put the evidence and a summary in the place of old messages."""

    summariser: Any = HybridSummariser()
    apart: bool = False

    def using(self, summariser: Any) -> Self:
        """Return the policy with the words written by another summariser."""
        return replace(self, summariser=HybridSummariser(summariser=summariser))


SUMMARY_RETRIES = 4
"""How often a summary call that was too large is made again, each message cut to 0.8 of before."""
MIN_MESSAGE_CHARS = 200
"""Characters below which a message is not cut."""
BLOCK_SEPARATOR = "\n\n---\n\n"


@dataclass(frozen=True, kw_only=True, repr=False)
class Narrative(Summary):
    """Put one message in the place of old turns: what the record knows, then a model's words."""

    on_failure: ClassVar[str] = "a marker of the failure stands in the place of the old turns"
    """What comes of it where no summary comes about."""
    mode: Literal["llm", "intent", "lossless", "hybrid"] = "llm"
    """`llm` summarises, `intent` lists tool calls, `lossless` gives evidence, `hybrid` evidence and
    summary.
    """
    keep_replies: Positive = 10
    """Replies at the end that are kept, with the message that the oldest of them answers."""
    include_reasoning: bool = True
    """Put the model's thinking of the old turns before the summary, where the session holds it."""
    include_symbols: bool = True
    """Put names that were defined in written files before it."""
    include_exploration: bool = True
    """Put what was read and searched before it."""
    max_chars_per_message: Natural = 8000
    """Characters of one message that the summariser sees; 0: all."""
    signals: tuple[str, ...] = ()
    """Keywords of a handoff; the last one that would be lost is said again at the end."""
    sections: tuple[str, ...] = FUSERAFT_SECTIONS
    without_model: Any = None
    """A trigger: where it is due, `llm` and `hybrid` do as `intent` does, without a model."""
    quirks: bool = False
    """Keep `keep_replies` messages instead of replies; intent lines as the program writes them."""

    @property
    def writer(self) -> Any:
        """What the message comes from: a summariser, or in two modes the record alone."""
        records = {"intent": IntentSummariser(quirks=self.quirks), "lossless": EvidenceSummariser()}
        return records.get(self.mode, self.maker)

    def cut(self, history: History, _room: ContextBudget) -> int:
        """Return the first position that is kept."""
        n = len(history)
        if n < 2:
            return 0
        if self.quirks:
            first = n - min(max(self.keep_replies, 1), n - 1)
            return history.safe(first) or history.safe_before(first)
        first = history.nth_last("assistant", self.keep_replies)
        users = history.role("user")
        while first > 0 and users[first - 1]:
            first -= 1
        return history.safe_before(max(first, 0))

    def __call__(self, history: History, room: ContextBudget) -> History:
        """Return the history with its old turns in one message."""
        asks = self.mode in ("llm", "hybrid") and self.without_model is not None
        if asks and self.without_model(history, room):
            return replace(self, mode="intent", summariser=None, without_model=None)(history, room)
        new = super().__call__(history, room)
        return new if new is history or not self.signals else self._signalled(history, new)

    def written(self, history: History, first: int) -> Message | str | int:
        """Return the message's text, or its size where the summariser only knows that."""
        passage = Passage(history, first, self.front(history), self.limit, self.told())
        if self.mode == "intent":
            return str(self.writer(passage))
        turns = [int(t) for t in history.turns[list(passage.positions)]]
        evidence = "" if self.mode == "llm" else EvidenceSummariser()(passage)
        if self.mode == "lossless":
            return evidence
        try:
            summary = self._told_again(passage)
        except ModelError as error:
            instead = evidence or failure_marker(turns, failure_text(error))
            return written_instead(instead, error)
        if isinstance(summary, int):
            return summary
        head = turns_heading("CONVERSATION SUMMARY", turns)
        blocks = [b for b in (evidence, *self._blocks(passage, turns, history.log.agent)) if b]
        text = BLOCK_SEPARATOR.join([*blocks, summary])
        return text if evidence else f"{head}\n\n{text}"

    def _blocks(self, passage: Passage, turns: list[int], agent: str) -> list[str]:
        acts = tool_actions.collect_actions(passage.messages, turns, agent)
        out = []
        if self.include_symbols:
            calls = (c for m in passage.messages for c in m.tool_calls)
            texts = ((content.call_path(c), str(v)) for c in calls for v in c.arguments.values())
            out.append(tool_actions.symbols_block(acts, texts))
        if self.include_reasoning:
            out.append(tool_actions.reasoning_block(passage.messages, turns, agent))
        if self.include_exploration:
            out.append(tool_actions.exploration_block(acts))
        return out

    def _told_again(self, passage: Passage) -> str | int:
        """Return the summary; where the call was too large, ask again with shorter messages."""
        maker = self.maker
        if isinstance(maker, LOCAL_SUMMARISERS):
            return self._said(maker, passage)
        cap = self.max_chars_per_message or max(
            (len(summary_prompts.plain_text(m)) for m in passage.messages), default=0
        )
        grounded = replace(passage, instructions=f"{passage.instructions}\n\n{change_log(passage)}")
        for left in range(SUMMARY_RETRIES, -1, -1):
            short = replace(grounded, history=cap_messages(passage.history, passage.before, cap))
            try:
                return self._said(maker, short)
            except ModelError as error:
                if not error.overflow or not left:
                    raise
                cap = max(int(cap * 0.8), MIN_MESSAGE_CHARS)
            except (OSError, ValueError, RuntimeError) as error:
                raise ModelError(f"{error}") from error
        raise AssertionError  # pragma: no cover  the last round returns or raises

    def _said(self, maker: Any, passage: Passage) -> str | int:
        summary = self._once(maker, passage)
        return summary if isinstance(summary, int) else summary_text(summary)

    def _signalled(self, was: History, new: History) -> History:
        """Return the history with the last handoff signal said again, where it is gone."""
        for message in reversed(was.messages):
            word = next((s for s in self.signals if s in summary_prompts.plain_text(message)), None)
            if word is None:
                continue
            if any(
                word in summary_prompts.plain_text(m) for m in new.messages if m.role != "summary"
            ):
                return new
            who = message.agent or was.log.agent
            text = f"[Resume: pre-compaction routing signal from {who}]\n{word}"
            again = Message(role="user", kind="injected", parts=(Text(text),))
            return new.insert(len(new), again, "a pinned signal")
        return new


def change_log(passage: Passage) -> str:
    """Return what the record proves was changed, to go by rather than by what agents claim."""
    acts = tool_actions.collect_actions(passage.messages)
    files = [f"  {p}" for p in tool_actions.written_files(acts)]
    runs = [
        f"  {content.one_line(a.target, 120)} [{'OK' if a.outcome == 'done' else 'FAILED'}]"
        for a in tool_actions.shell_commands(acts)
    ]
    rows = ["AUTHORITATIVE CHANGE LOG — ground truth, it goes before what agents say of themselves"]
    rows += ["Files written:", *files] if files else []
    return "\n".join(rows + (["Commands run:", *runs] if runs else []))


def cap_messages(history: History, before: int, cap: int) -> History:
    """Return the history with its first messages, but summaries, cut to so many characters."""
    if cap <= 0:
        return history
    long = np.flatnonzero(
        (history.chars > cap) & (np.arange(len(history)) < before) & ~history.role("summary")
    )
    changes: dict[int, Message | str] = {}
    for p in long.tolist():
        text = summary_prompts.plain_text(history[p])
        if len(text) > cap:
            short = f"{text[:cap]} [TRUNCATED — {len(text):,} chars total]"
            changes[p] = content.replace_text(history[p], short)
    return history.shorten(changes, reason="for the summariser")


RESUMPTION_NOTE = (
    "RESUMPTION NOTE: made from the record of tool calls, not by a model.\n"
    "Do not run operations marked ✓ again.\n"
    "Operations marked ✗ failed: try them again where the task needs them."
)
EVIDENCE_LIMIT = 20
"""Items of evidence that are listed, newest first."""
SNIPPET_CHARS = 400
"""Characters of a failed command's output that are shown."""


def turns_heading(name: str, turns: Sequence[int]) -> str:
    """Return a heading with the turns it covers, counted from 1."""
    first, last = (min(turns) + 1, max(turns) + 1) if turns else (1, 1)
    return f"[{name} — covers turns {first}–{last}]"


def write_intents(
    messages: Sequence[Message], turns: Sequence[int], agent: str = "main", *, quirks: bool = False
) -> str:
    """Return a line for each tool call: what was asked, of what, and how it ended."""
    acts = tool_actions.collect_actions(messages, turns, agent)
    rows = [
        turns_heading("INTENT-DERIVED RECONSTRUCTION", turns),
        "",
        "OPERATIONS (chronological):",
    ]
    rows += [tool_actions.intent_line(a, quirks=quirks) for a in acts] or [
        "  (no tracked tool calls recorded in this range)"
    ]
    rows += [
        f"WARNING: {a.tool} has no recorded outcome; look before you repeat it."
        for a in acts
        if a.outcome == "pending"
    ]
    return "\n".join([*rows, "", RESUMPTION_NOTE])


def write_evidence_before(history: History, before: int) -> str:
    """Return the evidence of all that was done before a position, whatever was compacted since."""
    return write_evidence(
        tool_actions.actions_before(history, before), newest_team_state(history.said)
    )


def write_evidence(acts: Sequence[ToolAction], standing: Mapping[str, Any] | None = None) -> str:
    """Return what the record proves: where a state machine stands and which contracts hold, files
    written, commands with their exit status, failures still open.

    Args:
        acts: what was done.
        standing: of the team that the agent belongs to (see `standings`); None: of no team.
    """
    blocks = ["[CONTEXT RECONSTRUCTION — derived from durable evidence, not summarised by LLM]"]
    blocks += team_state_sections(standing or {})
    written = tool_actions.written_files(acts)
    if written:
        blocks.append("\n".join(["FILES WRITTEN", *(f"  {p}" for p in written)]))
    recent = [a for a in reversed(acts) if a.outcome != "pending"]
    if recent:
        lines = [row for a in recent[:EVIDENCE_LIMIT] for row in _evidence_lines(a)]
        more = (
            [f"  ... and {len(recent) - EVIDENCE_LIMIT} older"]
            if len(recent) > EVIDENCE_LIMIT
            else []
        )
        blocks.append("\n".join(["RECENT EVIDENCE", *lines, *more]))
    failures = tool_actions.unresolved_failures(acts)
    if failures:
        blocks.append(
            "\n".join(["OPEN FAILURES", *(tool_actions.intent_line(a) for a in failures)])
        )
    return "\n\n".join([*blocks, RESUMPTION_NOTE])


def _evidence_lines(action: ToolAction) -> list[str]:
    name = content.one_line(action.target, 120)
    status = "" if action.exit is None else f" [exit {action.exit}]"
    head = (
        f"  {tool_actions.OUTCOME_MARKS[action.outcome]} "
        f"{action.tool}{f' {name}' if name else ''}{status} (turn"
        f" {action.turn + 1})"
    )
    shows_output = (
        action.outcome == "failed"
        and tool_actions.SHELL_TOOL_PATTERN.search(action.tool)
        and action.output
    )
    return (
        [head, f"    {content.one_line(action.output, SNIPPET_CHARS)}"] if shows_output else [head]
    )


def failure_marker(turns: Sequence[int], why: str) -> str:
    """Return the marker that stands where a summary should have been."""
    return "\n".join(
        [
            turns_heading("COMPACTION FAILED", turns),
            f"Summary generation failed: {content.one_line(why, 500)}",
            "- Read the files again before you rely on what they held.",
            "- Look at the change log for what was done.",
            "- Take the next step from what is on disk, not from memory.",
        ]
    )


TEAM_STATE_KEY = "standing"
"""In the details of a turn's prompt: state, states entered, signals, contracts, failures."""
_MAX_ITEMS = 40
_MAX_ITEM_CHARS = 200


def newest_team_state(messages: Iterable[Message]) -> Mapping[str, Any]:
    """Return what is kept of the standing by the newest message that keeps any; else nothing.

    Args:
        messages: of one agent, newest first.
    """
    states = (m.details[TEAM_STATE_KEY] for m in messages if TEAM_STATE_KEY in m.details)
    newest = next(states, None)
    return newest if isinstance(newest, dict) else {}


def team_state_sections(standing: Mapping[str, Any]) -> list[str]:
    """Return fuseraft's sections of a standing: STATE MACHINE POSITION and CONTRACT STATUS (what
    holds first); none where there is no state.

    Both are as of the beginning of the turn under way: the machine looks at a turn's end.
    """
    state = _as_line(standing.get("state"))
    if not state:
        return []
    rows = [f"  State: {state} (agent: {_as_line(standing.get('agent')) or 'unknown'})"]
    for name, key in (("Entered so far", "entered"), ("Signals out of it", "signals")):
        values = [_as_line(x) for x in _as_list(standing.get(key))]
        rows += [f"  {name}: {', '.join(values)}"] if values else []
    rows += [f"  Failed {_as_line(x)}" for x in _as_list(standing.get("failures"))]
    contracts = [c for c in _as_list(standing.get("contracts")) if isinstance(c, dict)]
    fulfilled = [f"  ✓ {_as_line(c.get('name'))}" for c in contracts if not c.get("why")]
    unfulfilled = [f"  ✗ {_as_line(c.get('name'))}\n    Reason: {_as_line(c.get('why'))}"
             for c in contracts if c.get("why")]  # fmt: skip
    out = ["\n".join(["STATE MACHINE POSITION (as this turn began)", *rows])]
    return [*out, "\n".join(["CONTRACT STATUS", *fulfilled, *unfulfilled])] if contracts else out


def _as_list(value: Any) -> list[Any]:
    return list(value)[:_MAX_ITEMS] if isinstance(value, (list, tuple)) else []


def _as_line(value: Any) -> str:
    return content.one_line(str(value), _MAX_ITEM_CHARS) if value is not None else ""
