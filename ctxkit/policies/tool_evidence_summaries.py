"""Summaries from the record of tool calls: intents, evidence, hybrid, fuseraft's narrative."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from ctxkit._internal.formatting_and_sanitizing import format_error_line
from ctxkit.errors import ModelError
from ctxkit.policies.offline_summarisers import (
    ExtractiveSummariser,
    SummariserInput,
    get_summary_text,
    may_call_model,
    put_record_before_summary,
    with_summary_error,
)
from ctxkit.policies.protocols import EVIDENCE_METHOD, INTENT_METHOD
from ctxkit.policies.summary_compaction import LOCAL_SUMMARISERS, Summary
from ctxkit.policies.texts import (
    message_content_and_truncation,
    summary_prompts_and_audits,
    tool_outcomes_and_files,
)
from ctxkit.policies.texts.message_content_and_truncation import format_one_line
from ctxkit.policies.texts.summary_prompts_and_audits import FUSERAFT_SECTIONS
from ctxkit.session.messages import Message, Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ctxkit.policies.history.history import History
    from ctxkit.policies.texts.tool_outcomes_and_files import ToolCallOutcome
    from ctxkit.policies.validated_settings_and_scheduled_prunings import Natural, Positive
    from ctxkit.tokens import ContextBudget


@dataclass(frozen=True, kw_only=True)
class ToolCallSummariser:
    """A summariser without a model: one line per tool call, with tool, target and outcome."""

    quirks: bool = False
    """Write lines as fuseraft's program does: no commands, the error last."""
    name = INTENT_METHOD
    needs_model = False
    is_from_record = True
    """No model writes such a text, neither here nor in the reproduced system."""

    def __call__(self, passage: SummariserInput) -> str:
        """Return the intent record of a passage."""
        turns = [int(t) for t in passage.history.turns[list(passage.positions)]]
        agent = passage.history.log.agent
        return write_tool_call_lines(passage.messages, turns, agent, quirks=self.quirks)


@dataclass(frozen=True, kw_only=True)
class ToolEvidenceSummariser:
    """A summariser without a model: facts proved by the tool calls up to the end of a passage."""

    name = EVIDENCE_METHOD
    needs_model = False
    is_from_record = True
    """See `ToolCallSummariser`."""

    def __call__(self, passage: SummariserInput) -> str:
        """Return the evidence record of a passage."""
        return write_evidence_before(passage.history, passage.before)


@dataclass(frozen=True, kw_only=True)
class HybridSummariser:
    """A summariser that writes the evidence, then another summariser's text if it succeeds."""

    summariser: Any = field(default_factory=ExtractiveSummariser)
    """Writes the text: ``(passage) -> text``."""
    name = "hybrid"

    @property
    def needs_model(self) -> bool:
        """True where the other summariser may call a model."""
        return may_call_model(self.summariser)

    def __call__(self, passage: SummariserInput) -> Message:
        """Return evidence and text; where the text fails, evidence with a note that says why."""
        evidence = ToolEvidenceSummariser()(passage)
        try:
            narrative = self.summariser(passage)
        except (ModelError, OSError, ValueError, RuntimeError) as error:
            reason = format_one_line(format_error_line(error), 200)
            text_without_narrative = f"{evidence}\n\n[no narrative: {reason}]"
            return with_summary_error(
                put_record_before_summary(text_without_narrative, "", ""), error
            )
        text = get_summary_text(narrative)
        return put_record_before_summary(evidence, text if text.strip() else "", BLOCK_SEPARATOR)


@dataclass(frozen=True, kw_only=True, repr=False)
class ToolCallRecordSummary(Summary):
    """Replace old messages by a record of their tool calls; it needs no model.

    Example:
        >>> import ctxkit as ck
        >>> above = ck.policies.triggers.Above(4_000)
        >>> rules = ck.policies.Rules(ToolCallRecordSummary(keep_tokens=2000), above)
        >>> replay = ck.replay(ck.read(ck.samples.path("incident")), rules)
        >>> [(edit.kind, edit.tokens_before, edit.tokens_after) for edit in replay.edits][:1]
        [('summarised', 4472, 1691)]
    """

    summariser: ToolCallSummariser = ToolCallSummariser()
    apart: bool = False


@dataclass(frozen=True, kw_only=True, repr=False)
class ToolEvidenceSummary(Summary):
    """Replace old messages by the evidence record (fuseraft's lossless mode); it needs no model.

    Example:
        >>> import ctxkit as ck
        >>> above = ck.policies.triggers.Above(4_000)
        >>> rules = ck.policies.Rules(ToolEvidenceSummary(keep_tokens=2000), above)
        >>> replay = ck.replay(ck.read(ck.samples.path("incident")), rules)
        >>> [(edit.kind, edit.tokens_before, edit.tokens_after) for edit in replay.edits][:1]
        [('summarised', 4472, 1691)]
    """

    summariser: Any = ToolEvidenceSummariser()
    apart: bool = False


@dataclass(frozen=True, kw_only=True, repr=False)
class HybridSummary(Summary):
    """Replace old messages by the evidence record and a summary.

    Example:
        >>> import ctxkit as ck
        >>> above = ck.policies.triggers.Above(4_000)
        >>> rules = ck.policies.Rules(HybridSummary(keep_tokens=2000), above)
        >>> replay = ck.replay(ck.read(ck.samples.path("incident")), rules)
        >>> [(edit.kind, edit.tokens_before, edit.tokens_after) for edit in replay.edits][:1]
        [('summarised', 4472, 1796)]
    """

    summariser: Any = HybridSummariser()
    """Writes the evidence record and the summary behind it, ``(passage) -> text``."""
    apart: bool = False
    """True: the first part of a split turn gets a summary of its own."""

    def using(self, summariser: Any) -> Self:
        """Return the policy with a summariser for the text, where it has the default one."""
        if getattr(self.summariser, "summariser", self.summariser) != ExtractiveSummariser():
            return self
        return replace(self, summariser=HybridSummariser(summariser=summariser))


SUMMARY_RETRIES = 4
"""Retries of a summary call that is too large; each cuts messages to 0.8 of the last cap."""
MIN_MESSAGE_CHARS = 200
"""Minimum cap of a message, in characters."""
BLOCK_SEPARATOR = "\n\n---\n\n"


@dataclass(frozen=True, kw_only=True, repr=False)
class FuseraftSummary(Summary):
    """fuseraft's compaction: replace old turns by one message of record blocks and a summary.

    Example:
        >>> import ctxkit as ck
        >>> above = ck.policies.triggers.Above(24_000)
        >>> rules = ck.policies.Rules(FuseraftSummary(keep_replies=4), above)
        >>> replay = ck.replay(ck.read(ck.samples.path("incident")), rules)
        >>> [(edit.kind, edit.tokens_before, edit.tokens_after) for edit in replay.edits][:1]
        [('summarised', 25633, 14004)]
    """

    on_failure: ClassVar[str] = "a marker of the failure stands in the place of the old turns"
    """Result where the summary fails, for tables."""
    mode: Literal["llm", "intent", "lossless", "hybrid"] = "llm"
    """`llm`: a summary; `intent`: tool calls; `lossless`: evidence; `hybrid`: evidence, summary."""
    keep_replies: Positive = 10
    """Number of newest replies to keep, with the message that the oldest of them answers."""
    include_reasoning: bool = True
    """Put the model's reasoning of the old turns, if recorded, before the summary."""
    include_symbols: bool = True
    """Put names that written files define before the summary."""
    include_exploration: bool = True
    """Put the files and searches of the old turns before the summary."""
    max_chars_per_message: Natural = 8000
    """Maximum characters of a message that the summariser reads; 0: all."""
    signals: tuple[str, ...] = ()
    """Keywords of handoffs; the last one is repeated at the end where it would be lost."""
    sections: tuple[str, ...] = FUSERAFT_SECTIONS
    """Headings that the summariser is asked for."""
    without_model: Any = None
    """A trigger; where it is due, `llm` and `hybrid` use `intent` instead, without a model."""
    quirks: bool = False
    """As fuseraft's program: `keep_replies` counts messages, and intent lines are its own."""

    @property
    def writer(self) -> Any:
        """The source of the summary: a summariser; in two modes the record only."""
        records = {
            "intent": ToolCallSummariser(quirks=self.quirks),
            "lossless": ToolEvidenceSummariser(),
        }
        return records.get(self.mode, self.maker)

    def find_cut(self, history: History, _budget: ContextBudget) -> int:
        """Return the first position that is kept."""
        n = len(history)
        if n < 2:
            return 0
        if self.quirks:
            first = n - min(self.keep_replies, n - 1)
            return history.safe(first) or history.safe_before(first)
        # Keep the newest replies, with the user messages right before the oldest of them.
        first = history.nth_last("assistant", self.keep_replies)
        users = history.role("user")
        while first > 0 and users[first - 1]:
            first -= 1
        return history.safe_before(max(first, 0))

    def __call__(self, history: History, budget: ContextBudget) -> History:
        """Return the history with its old turns replaced by one message."""
        asks = self.mode in ("llm", "hybrid") and self.without_model is not None
        if asks and self.without_model(history, budget):
            return replace(self, mode="intent", summariser=None, without_model=None)(
                history, budget
            )
        new = super().__call__(history, budget)
        return new if new is history or not self.signals else self._repeat_signal(history, new)

    def write_summary(self, history: History, first: int) -> Message | str | int:
        """Return the text of the message, or its size where only that is known."""
        passage = SummariserInput(
            history, first, self.front(history), self.limit, self.summary_instructions()
        )
        if self.mode == "intent":
            return str(self.writer(passage))
        turns = [int(t) for t in history.turns[list(passage.positions)]]
        evidence = "" if self.mode == "llm" else ToolEvidenceSummariser()(passage)
        if self.mode == "lossless":
            return evidence
        try:
            summary = self._summarise_with_retries(passage)
        except ModelError as error:
            instead = evidence or make_failure_marker(turns, format_error_line(error))
            return with_summary_error(put_record_before_summary(instead, "", ""), error)
        if isinstance(summary, int):
            return summary
        head = format_turns_heading("CONVERSATION SUMMARY", turns)
        blocks = [
            b for b in (evidence, *self._record_blocks(passage, turns, history.log.agent)) if b
        ]
        record = BLOCK_SEPARATOR.join(blocks)
        if not evidence:
            record = f"{head}\n\n{record}" if record else head
        return put_record_before_summary(record, summary, BLOCK_SEPARATOR if blocks else "\n\n")

    def _record_blocks(self, passage: SummariserInput, turns: list[int], agent: str) -> list[str]:
        acts = tool_outcomes_and_files.collect_actions(passage.messages, turns, agent)
        out = []
        if self.include_symbols:
            written = set(tool_outcomes_and_files.list_written_files(acts))
            texts = (
                (path, str(value))
                for message in passage.messages
                for call in message.tool_calls
                if (path := message_content_and_truncation.get_path_argument(call)) in written
                for value in call.arguments.values()
            )
            out.append(tool_outcomes_and_files.format_symbols_block(acts, texts))
        if self.include_reasoning:
            out.append(
                tool_outcomes_and_files.format_reasoning_block(passage.messages, turns, agent)
            )
        if self.include_exploration:
            out.append(tool_outcomes_and_files.format_exploration_block(acts))
        return out

    def _summarise_with_retries(self, passage: SummariserInput) -> str | int:
        """Return the summary; where the call is too large, retry with shorter messages."""
        maker = self.maker
        if isinstance(maker, LOCAL_SUMMARISERS):
            return self._summary_text(maker, passage)
        cap = self.max_chars_per_message or max(
            (
                len(summary_prompts_and_audits.get_text_without_reasoning(m))
                for m in passage.messages
            ),
            default=0,
        )
        # A model gets the change log as ground truth, and shorter messages after each overflow.
        grounded = replace(
            passage, instructions=f"{passage.instructions}\n\n{format_files_and_commands(passage)}"
        )
        for left in range(SUMMARY_RETRIES, -1, -1):
            short = replace(
                grounded, history=truncate_messages_before(passage.history, passage.before, cap)
            )
            try:
                return self._summary_text(maker, short)
            except ModelError as error:
                if not error.overflow or not left:
                    raise
                cap = max(int(cap * 0.8), MIN_MESSAGE_CHARS)
            except (OSError, ValueError, RuntimeError) as error:
                raise ModelError(f"{error}") from error
        raise AssertionError  # pragma: no cover  the last round returns or raises

    def _summary_text(self, maker: Any, passage: SummariserInput) -> str | int:
        summary = self._once(maker, passage)
        return summary if isinstance(summary, int) else get_summary_text(summary)

    def _repeat_signal(self, was: History, new: History) -> History:
        """Return the history with the last handoff signal repeated, where it was removed."""
        for message in reversed(was.messages):
            word = next(
                (
                    s
                    for s in self.signals
                    if s in summary_prompts_and_audits.get_text_without_reasoning(message)
                ),
                None,
            )
            if word is None:
                continue
            if any(
                word in summary_prompts_and_audits.get_text_without_reasoning(m)
                for m in new.messages
                if m.role != "summary"
            ):
                return new
            who = message.agent or was.log.agent
            text = f"[Resume: pre-compaction routing signal from {who}]\n{word}"
            again = Message(role="user", kind="injected", parts=(Text(text),))
            return new.insert(len(new), again, "a pinned signal")
        return new


def format_files_and_commands(passage: SummariserInput) -> str:
    """Return the files and commands in the record, as ground truth for a summariser."""
    acts = tool_outcomes_and_files.collect_actions(passage.messages)
    files = [f"  {p}" for p in tool_outcomes_and_files.list_written_files(acts)]
    perhaps = [
        f"  {p} [outcome unknown]"
        for p in tool_outcomes_and_files.list_written_files(acts, "unknown")
    ]
    runs = [
        f"  {format_one_line(a.target, 120)} [{_COMMAND_OUTCOMES.get(a.outcome, 'FAILED')}]"
        for a in tool_outcomes_and_files.select_shell_commands(acts)
    ]
    rows = ["AUTHORITATIVE CHANGE LOG — ground truth, it goes before what agents say of themselves"]
    rows += ["Files written:", *files, *perhaps] if files or perhaps else []
    return "\n".join(rows + (["Commands run:", *runs] if runs else []))


def truncate_messages_before(history: History, before: int, cap: int) -> History:
    """Return the history with the messages before a position cut to `cap` characters; 0: no cut.

    Summaries stay whole. Reasoning and tool calls do not count, and stay.

    Args:
        history: the messages in force.
        before: index of the first message that stays whole.
        cap: characters of a text; 0: no cut.
    """
    if cap <= 0:
        return history
    positions = np.flatnonzero(
        (history.chars > cap) & (np.arange(len(history)) < before) & ~history.role("summary")
    )
    changes: dict[int, Message | str] = {}
    for p in positions.tolist():
        text = summary_prompts_and_audits.get_text_without_reasoning(history[p])
        if len(text) > cap:
            short = f"{text[:cap]} [TRUNCATED — {len(text):,} chars total]"
            changes[p] = message_content_and_truncation.replace_text(history[p], short)
    return history.shorten(changes, reason="for the summariser")


RESUMPTION_NOTE = (
    "RESUMPTION NOTE: made from the record of tool calls, not by a model.\n"
    "Do not run operations marked ✓ again.\n"
    "Operations marked ✗ failed: try them again where the task needs them."
)
UNKNOWN_NOTE = (
    "Of operations marked ? the log does not say whether they failed: look before you repeat them."
)
_COMMAND_OUTCOMES = {"done": "OK", "unknown": "outcome unknown"}
_WRITE_HEADINGS: dict[str, tool_outcomes_and_files.Outcome] = {
    "FILES WRITTEN": "done",
    "FILES PERHAPS WRITTEN": "unknown",
}
EVIDENCE_LIMIT = 20
"""Maximum number of items of evidence in a list, newest first."""
SNIPPET_CHARS = 400
"""Characters of a failed command's output in the evidence."""


def format_turns_heading(name: str, turns: Sequence[int]) -> str:
    """Return a heading with the range of turns, counted from 1.

    Args:
        name: title of the section.
        turns: numbers of the turns covered, from 0; empty: the heading names turn 1.
    """
    first, last = (min(turns) + 1, max(turns) + 1) if turns else (1, 1)
    return f"[{name} — covers turns {first}–{last}]"


def write_tool_call_lines(
    messages: Sequence[Message], turns: Sequence[int], agent: str = "main", *, quirks: bool = False
) -> str:
    """Return the intent record: one line per tool call with tool, target and outcome.

    Args:
        messages: messages in order.
        turns: number of the turn of each message.
        agent: name of the agent for messages that name none.
        quirks: write as fuseraft's program does, not as its document says.
    """
    acts = tool_outcomes_and_files.collect_actions(messages, turns, agent)
    rows = [
        format_turns_heading("INTENT-DERIVED RECONSTRUCTION", turns),
        "",
        "OPERATIONS (chronological):",
    ]
    rows += [tool_outcomes_and_files.format_intent_line(a, quirks=quirks) for a in acts] or [
        "  (no tracked tool calls recorded in this range)"
    ]
    rows += [
        f"WARNING: {a.tool} has no recorded outcome; look before you repeat it."
        for a in acts
        if a.outcome == "pending"
    ]
    return "\n".join([*rows, "", _resumption_note(acts)])


def write_evidence_before(history: History, before: int) -> str:
    """Return the evidence of all actions before a position, compacted or not.

    Args:
        history: the messages in force, and the log behind them.
        before: index of the first message that does not count.
    """
    return write_evidence(
        tool_outcomes_and_files.collect_actions_before(history, before),
        find_newest_team_state(history.messages_newest_first),
    )


def write_evidence(
    actions: Sequence[ToolCallOutcome], team_state: Mapping[str, Any] | None = None
) -> str:
    """Return the evidence record: team state, contracts, files, commands and open failures.

    Args:
        actions: the tool calls with their outcomes.
        team_state: state of the agent's team (see `format_team_state_sections`); None: no team.
    """
    blocks = ["[CONTEXT RECONSTRUCTION — derived from durable evidence, not summarised by LLM]"]
    blocks += format_team_state_sections(team_state or {})
    for heading, outcome in _WRITE_HEADINGS.items():
        written = tool_outcomes_and_files.list_written_files(actions, outcome)
        if written:
            blocks.append("\n".join([heading, *(f"  {p}" for p in written)]))
    recent = [a for a in reversed(actions) if a.outcome != "pending"]
    if recent:
        lines = [row for a in recent[:EVIDENCE_LIMIT] for row in _evidence_lines(a)]
        more = (
            [f"  ... and {len(recent) - EVIDENCE_LIMIT} older"]
            if len(recent) > EVIDENCE_LIMIT
            else []
        )
        blocks.append("\n".join(["RECENT EVIDENCE", *lines, *more]))
    failures = tool_outcomes_and_files.select_unresolved_failures(actions)
    if failures:
        blocks.append(
            "\n".join(
                [
                    "OPEN FAILURES",
                    *(tool_outcomes_and_files.format_intent_line(a) for a in failures),
                ]
            )
        )
    return "\n\n".join([*blocks, _resumption_note(actions)])


def _resumption_note(actions: Sequence[ToolCallOutcome]) -> str:
    """Return how to read the marks of outcomes, with the one for unknown ones where it is used."""
    has_unknown = any(a.outcome == "unknown" for a in actions)
    return f"{RESUMPTION_NOTE}\n{UNKNOWN_NOTE}" if has_unknown else RESUMPTION_NOTE


def _evidence_lines(action: ToolCallOutcome) -> list[str]:
    name = format_one_line(action.target, 120)
    status = "" if action.exit is None else f" [exit {action.exit}]"
    head = (
        f"  {tool_outcomes_and_files.OUTCOME_MARKS[action.outcome]} "
        f"{action.tool}{f' {name}' if name else ''}{status} (turn"
        f" {action.turn + 1})"
    )
    shows_output = (
        action.outcome == "failed"
        and tool_outcomes_and_files.SHELL_TOOL_PATTERN.search(action.tool)
        and action.output
    )
    return (
        [head, f"    {format_one_line(action.output, SNIPPET_CHARS)}"] if shows_output else [head]
    )


def make_failure_marker(turns: Sequence[int], why: str) -> str:
    """Return the text in place of a summary that failed.

    Args:
        turns: numbers of the turns that the summary was to cover.
        why: the error; 500 characters of it are used.
    """
    return "\n".join(
        [
            format_turns_heading("COMPACTION FAILED", turns),
            f"Summary generation failed: {format_one_line(why, 500)}",
            "- Read the files again before you rely on what they held.",
            "- Look at the change log for what was done.",
            "- Take the next step from what is on disk, not from memory.",
        ]
    )


TEAM_STATE_KEY = "standing"
"""Key in the details of a turn's prompt for the team's state: state, signals, contracts, ..."""
_MAX_ITEMS = 40
_MAX_ITEM_CHARS = 200


def find_newest_team_state(messages: Iterable[Message]) -> Mapping[str, Any]:
    """Return the team state in the newest message that has one; else an empty mapping.

    Args:
        messages: messages of one agent, newest first.
    """
    states = (m.details[TEAM_STATE_KEY] for m in messages if TEAM_STATE_KEY in m.details)
    newest = next(states, None)
    return newest if isinstance(newest, dict) else {}


def format_team_state_sections(team_state: Mapping[str, Any]) -> list[str]:
    """Return fuseraft's sections of a team state: STATE MACHINE POSITION and CONTRACT STATUS.

    They describe the beginning of the current turn, as the state machine runs at a turn's end.
    There are none without a state.
    """
    state = _as_line(team_state.get("state"))
    if not state:
        return []
    rows = [f"  State: {state} (agent: {_as_line(team_state.get('agent')) or 'unknown'})"]
    for name, key in (("Entered so far", "entered"), ("Signals out of it", "signals")):
        values = [_as_line(x) for x in _as_list(team_state.get(key))]
        rows += [f"  {name}: {', '.join(values)}"] if values else []
    rows += [f"  Failed {_as_line(x)}" for x in _as_list(team_state.get("failures"))]
    contracts = [c for c in _as_list(team_state.get("contracts")) if isinstance(c, dict)]
    fulfilled = [f"  ✓ {_as_line(c.get('name'))}" for c in contracts if not c.get("why")]
    unfulfilled = [f"  ✗ {_as_line(c.get('name'))}\n    Reason: {_as_line(c.get('why'))}"
             for c in contracts if c.get("why")]  # fmt: skip
    out = ["\n".join(["STATE MACHINE POSITION (as this turn began)", *rows])]
    return [*out, "\n".join(["CONTRACT STATUS", *fulfilled, *unfulfilled])] if contracts else out


def _as_list(value: Any) -> list[Any]:
    return list(value)[:_MAX_ITEMS] if isinstance(value, (list, tuple)) else []


def _as_line(value: Any) -> str:
    return format_one_line(str(value), _MAX_ITEM_CHARS) if value is not None else ""
