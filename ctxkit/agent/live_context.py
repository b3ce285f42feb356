"""Prompts of a live session: prepared by the replay engine, recorded as sent, held to a budget."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ctxkit.engine import (
    Compaction,
    Run,
    advance_run,
    compute_billing_offset,
    make_log_from_session,
)
from ctxkit.engine.session_prompts import PruningRecorder, SentPrompts
from ctxkit.errors import StoreError
from ctxkit.policies.base import CompositePolicy, apply_policy
from ctxkit.policies.context_rules import RecordedCompactionsPolicy, get_warn_and_cutover_tokens
from ctxkit.policies.offload import ResultOffload, find_artifact_in_stub
from ctxkit.policies.protocols import name_of
from ctxkit.policies.schedules.unpruned_messages import HistoryRows
from ctxkit.policies.texts.message_content import format_call_hint, replace_text
from ctxkit.policies.triggers import NearMessageCap
from ctxkit.policies.window_compaction import get_last_resort_stages
from ctxkit.session.messages import Edit, Message, get_plain_text
from ctxkit.tokens.live_prompt_sizes import (
    COUNTED_TOKENS_KEY,
    collect_bills,
    estimate_billed_tokens,
    get_billed_prompt,
)

if TYPE_CHECKING:
    from ctxkit.agent.turn_state_and_events import Limits
    from ctxkit.engine import BlockedCompaction
    from ctxkit.policies.base import BasePolicy
    from ctxkit.policies.context_rules import Rules
    from ctxkit.policies.history.history import History
    from ctxkit.policies.protocols import Policy
    from ctxkit.session.messages import ToolCall, Usage
    from ctxkit.session.session import Session

_replace = msgspec.structs.replace


# Live context
#
# A live session is a replay whose log grows: `LiveContext` owns the same `Run` that replays a
# recorded session, appends each message to its log and opens the next call. So live and replayed
# prompts are equal by construction.
#
# * Sizes are the token counter's, not scaled to usage. The provider's bill of the last reply
#   corrects them by one offset (`log.fixed`), which covers what no counter sees: chat templates,
#   hidden instructions. A compaction resets the offset, as it was measured on another prompt.
# * At the start the recorded edits are replayed with a policy that only repeats them, so the run
#   is at the end of the log with every recorded edit in force and no rule fired.
# * Trimming and unsaved artifacts change a prompt after the engine made it. `SentPrompts` keeps
#   such prompts by call, so `session.sent(call)` returns what really went out.


class PreparedCall(NamedTuple):
    """The prompt of the next call, and what was done to prepare it."""

    messages: tuple[Message, ...]
    tokens: int
    edits: tuple[Edit, ...]
    """Edits of the compactions before this call; the caller stores them in the session."""
    warned: tuple[str, ...]
    """Names of the warnings whose condition was met."""
    blocked: tuple[BlockedCompaction, ...]
    """Compactions that were due and changed nothing."""


class LiveContext:
    """The context of a running session: add messages, prepare calls, compact.

    Args:
        session: the session so far; its edits are in force.
        rules: the rules from now on.
        schema_tokens: tokens of each prompt outside the messages (tool schemas).
        limit: the model's window in tokens, used if the rules name none.
        save_artifact: stores the results that stubs name; None: results stay whole.
        shorten_unsaved: cuts a result that could not be stored.
        prompts: records the prompts that are sent.

    Example:
        >>> import ctxkit as ck
        >>> from ctxkit.agent import LiveContext
        >>> from ctxkit.policies import Rules
        >>> from ctxkit.session import Message, Text
        >>> context = LiveContext(ck.Session(id="demo"), Rules())
        >>> context.add(Message(role="user", parts=(Text("hello there"),)))
        >>> prepared = context.prepare(0.0)
        >>> len(prepared.messages), prepared.tokens, prepared.edits
        (1, 2, ())
    """

    def __init__(
        self,
        session: Session,
        rules: Rules,
        *,
        schema_tokens: int = 0,
        limit: int | None = None,
        save_artifact: SaveArtifact | None = None,
        shorten_unsaved: Callable[[str], str] = str,
        prompts: SentPrompts | None = None,
    ) -> None:
        self._offloader = ArtifactOffloader(save_artifact, shorten_unsaved)
        self.schemas = schema_tokens
        """Tokens of each prompt outside the messages, as counted."""
        self.rules = rules
        counter = rules.counter
        self.log = make_log_from_session(
            session, rules, fixed=schema_tokens, tokens=_count_messages(session, counter)
        )
        self.log.fixed = schema_tokens
        self.run = Run(self.log, rules, limit)
        self._replay_record()
        self._prepared_view = self._sent_view = self.run.last_prompt()
        self.prompts = prompts or SentPrompts()
        self.prompts.begin(self.run, schema_tokens)
        self._pruning_recorder = PruningRecorder(session.prunings.at(None))
        self._next_compaction = len(session.edits)
        self._label = rules.label

    def _replay_record(self) -> None:
        """Advance the run to the end of the log, with all recorded edits in force."""
        # A run that only repeats the recorded edits, without triggers, pruning and guards.
        no_actions: dict[str, Any] = {"trigger": None, "pruning": None, "on_compacted": None}
        record_rules = self.rules.but(policy=RecordedCompactionsPolicy(), guards=(), **no_actions)
        record_run = Run(self.log, record_rules, self.run.budget.limit)
        advance_run(record_run, record_rules, self.log.calls)
        # Edits after the last reply belong to the call that comes next; no call has applied them.
        was = history = record_run.history.at(self.log.calls)
        for call, edit in self.log.recorded:
            if call == self.log.calls:
                history = history.apply(edit)
        if history is not was:
            record_run.by_hand(history, "recorded", "recorded")
        self.run.resume(record_run)
        # The usage of the last reply corrects later sizes, unless an edit changed the prompt since.
        edited = bool(self.log.recorded) and self.log.recorded[-1][0] == self.log.calls
        if self.log.calls and not edited and self.log.replies[-1] is not None:
            reply, call = self.log.replies[-1], self.log.calls - 1
            counted_now = reply.details.get(COUNTED_TOKENS_KEY)
            run_size = record_run.sizes(call, call + 1)[0]
            counted = self.schemas + counted_now if isinstance(counted_now, int) else run_size
            self.log.fixed = self.schemas + compute_billing_offset(reply, counted)

    def add(self, message: Message) -> None:
        """Add a message; the usage of a reply corrects the sizes of later prompts."""
        self.log.append(message)
        if message.role == "assistant" and self.run.call == self.log.calls:
            call, offset_before = self.run.call - 1, self.log.fixed - self.schemas
            estimated = self.run.sizes(call, call + 1)[0]
            self.log.owe((get_billed_prompt(message) or self._sent_view.tokens) - estimated)
            self.log.fixed = self.schemas + compute_billing_offset(
                message, self.schemas + self.counted, offset_before
            )

    @property
    def counted(self) -> int:
        """Tokens of the messages of the last prompt, as counted."""
        return self._sent_view.tokens - self.log.fixed_at[self.run.call - 1]

    def prepare(self, time: float, agent: str | None = None) -> PreparedCall:
        """Open the next call: compact if the rules say so, prune, and return the prompt."""
        run = self.run
        compactions, warnings, blocked_so_far = (
            len(run.compactions),
            len(run.warned),
            len(run.blocked),
        )
        self.log.open(time, agent)
        advance_run(run, self.rules, self.log.calls)
        if len(run.compactions) > compactions:
            self.log.fixed = self.schemas  # the last usage was measured on another prompt
        view = run.last_prompt()
        self._prepared_view = self._sent_view = self._offloader.store_artifacts(run, view)
        if self._prepared_view is not view:
            self.prompts.changed(self._prepared_view.messages, "not offloaded")
        return PreparedCall(
            self._prepared_view.messages,
            self._prepared_view.tokens,
            self._number_edits(run.compactions[compactions:]),
            tuple(name for _, name in run.warned[warnings:]),
            tuple(run.blocked[blocked_so_far:]),
        )

    def record_pruning(self) -> dict[str, Any]:
        """Return what prunings changed of the last prompt, as details of its reply."""
        return self._pruning_recorder.record(self.prompts)

    @property
    def stages(self) -> tuple[Any, ...]:
        """Policies that trim a prompt that does not fit, from the mildest to the strongest."""
        return get_last_resort_stages(self.rules.pruning)

    def trim(self, stage: int) -> History:
        """Trim the prepared prompt to a stage (-1: untrimmed) and return it as the one to send.

        The session does not change.
        """
        view = self._prepared_view
        self._sent_view = (
            view if stage < 0 else apply_policy(self.stages[stage], view, self.run.budget)
        )
        return self._sent_view

    def preview(self) -> tuple[tuple[Message, ...], int]:
        """Return the next prompt if nothing were compacted, and its tokens; changes nothing."""
        view = self.run.coming()
        return view.messages, view.tokens

    def try_policy(self, policy: Policy) -> Compaction | None:
        """Return the compaction that a policy would make now, or None; changes nothing."""
        before = self.run.history.at(self.run.call)
        after = apply_policy(policy, before, self.run.budget)
        return (
            None
            if after is before
            else Compaction(self.run.call, before, after, "manual", name_of(policy))
        )

    def compact(self, policy: Policy, trigger: str = "manual") -> tuple[Edit, ...]:
        """Apply a policy now; return its edits for the caller to store, none if it does nothing.

        Raises:
            ModelError: the summariser failed.
        """
        planned = self.try_policy(policy)
        if planned is None:
            return ()
        done = self.run.by_hand(planned.new, trigger, planned.by)
        self.log.fixed = self.schemas
        return self._number_edits([done])

    @property
    def next_prompt_tokens(self) -> int:
        """Tokens of the next prompt, pruned and not compacted, as triggers see it."""
        return self.run.coming().tokens

    def estimate_size(self, compacted: History | None = None) -> int:
        """Estimate the billed tokens of the next prompt, pruned.

        Args:
            compacted: the history that a compaction would leave; None: the current one.
        """
        view = self.run.coming(compacted)
        billed_prompts = collect_bills(self.log.replies, self.schemas)
        return estimate_billed_tokens(self.schemas + view.tokens - view.fixed, billed_prompts)

    @property
    def tokens(self) -> int:
        """Tokens of the next prompt before any pruning."""
        return self.run.history.at(self.run.call).tokens

    @property
    def messages(self) -> int:
        """Number of messages of the next prompt."""
        return len(self.run.history.at(self.run.call))

    def _number_edits(self, compactions: list[Compaction]) -> tuple[Edit, ...]:
        out: list[Edit] = []
        for compaction in compactions:
            for i, edit in enumerate(compaction.edits):
                name = f"{self._label}-{self._next_compaction}.{i}"
                inserted = tuple(_with_id(m, name, k) for k, m in enumerate(edit.inserted))
                out.append(_replace(edit, id=name, inserted=inserted))
            self._next_compaction += 1
        return tuple(out)


def _with_id(message: Message, edit: str, number: int) -> Message:
    """Return a message inserted by an edit with an id, made from the edit's if it has none."""
    return message if message.id else _replace(message, id=f"{edit}/{number}")


def _count_messages(session: Session, counter: Any) -> list[int]:
    """Return the tokens of every message by the counter alone, not scaled to usage."""
    from ctxkit.tokens import default_counter

    count = (counter or default_counter()).message
    return [count(m) for m in session.messages]


SaveArtifact = Callable[[str, str, str, str], None]
"""Stores an artifact (id, text, tool, hint); raises `StoreError` or `OSError` on failure."""


class ArtifactOffloader:
    """Stores offloaded results before the prompt with their stubs is sent, each once.

    Invariant: no prompt has a stub whose artifact cannot be read. A result that could not be
    stored is sent within the limits of outputs.

    Args:
        save_artifact: stores an artifact; None: nothing is stored, so no result is offloaded.
        shorten_unsaved: cuts a result that could not be stored.
    """

    def __init__(
        self, save_artifact: SaveArtifact | None, shorten_unsaved: Callable[[str], str] = str
    ) -> None:
        self._save_artifact, self._shorten_unsaved = save_artifact, shorten_unsaved
        self._saved_ids: set[str] = set()

    def store_artifacts(self, run: Run, view: History) -> History:
        """Store the artifacts that a prompt's stubs name; return the prompt without dead stubs.

        Args:
            run: the run that made the prompt, of its last call.
            view: the prompt. It is returned itself if every artifact could be stored.
        """
        call = max(run.call - 1, 0)
        artifact_ids = {
            p: name for p, m in enumerate(view.messages) if (name := find_artifact_in_stub(m))
        }
        missing = set(artifact_ids.values()) - self._saved_ids
        if not missing:
            return view
        # Save the texts of new artifacts, as the policies that offloaded them have them.
        results, rows = _find_offloaded(run, missing), HistoryRows(run.history.at(call))
        places = {p: rows.place(view.row(p)) for p in artifact_ids}
        for p, name in artifact_ids.items():
            if name in results and name not in self._saved_ids:
                place = places[p]
                origin = None if place is None else rows.answered_call(place)
                if self._save_result(name, results[name], origin):
                    self._saved_ids.add(name)
        # Undo the stubs of all others: with the offloaded text, else with the history's message.
        sent = list(view.messages)
        for p, name in artifact_ids.items():
            if name not in self._saved_ids:
                place = places[p]
                original = sent[p] if place is None else rows.message(place)
                sent[p] = replace(
                    sent[p], parts=self._shorten_result(results.get(name, original)).parts
                )
        same = all(sent[p] == view.messages[p] for p in artifact_ids)
        return view if same else view.become(sent, "no artifact could be kept")

    def _shorten_result(self, result: Message) -> Message:
        text = get_plain_text(result)
        shortened = self._shorten_unsaved(text)
        return result if shortened == text else replace_text(result, shortened)

    def _save_result(self, artifact: str, result: Message, call: ToolCall | None) -> bool:
        if self._save_artifact is None:
            return False
        tool = result.tool or (call.name if call else "unknown")
        try:
            self._save_artifact(artifact, result.text, tool, format_call_hint(call))
        except (StoreError, OSError):
            return False
        return True


def _find_offloaded(run: Run, artifact_ids: set[str]) -> dict[str, Message]:
    """Return the results that were offloaded at the last call, by artifact id."""
    results: dict[str, Message] = {}

    def apply_part(part: BasePolicy, view: History) -> History:
        if isinstance(part, CompositePolicy):  # each part works on the view that the last one left
            for each in part.parts:
                view = apply_part(each, view)
            return view
        if isinstance(part, ResultOffload) and artifact_ids - results.keys():
            artifacts = part.artifacts(view.messages)
            results.update({name: artifacts[name] for name in artifact_ids & artifacts.keys()})
        return apply_policy(part, view, run.budget)

    if run.rules.pruning is not None:
        apply_part(run.rules.pruning, run.history.at(max(run.call - 1, 0)))
    return results


class LiveBudget:
    """Prompt tokens since the last compaction and in this turn, and events about their thresholds.

    A cycle lasts from one compaction to the next; the cap on messages is warned of once a cycle.

    Args:
        rules: their settings `warn_at`, `cutover_at` and `max_single_turn_input_tokens` (fuseraft's
            names), or a trigger on tokens spent.
        session: the session so far.
        emit: called with each event (kind, payload).
    """

    def __init__(
        self, rules: Rules, session: Session, emit: Callable[[str, dict[str, Any]], None]
    ) -> None:
        thresholds = get_warn_and_cutover_tokens(rules)
        self.warn_at: int | None = thresholds["warn_at"] or None
        self.cutover_at: int | None = thresholds["cutover_at"] or None
        self.max_turn_tokens: int | None = (
            rules.parameters.get("max_single_turn_input_tokens") or None
        )
        self.cumulative, self.turn = _tokens_since_compaction(session), 0
        self._emit, self._cap_warned = emit, False
        self._rules_cap: tuple[int, float] = (
            rules.parameters.get("max_tail_messages") or 0,
            rules.parameters.get("context_cap_fraction") or 0.0,
        )

    def begin_turn(self) -> None:
        """Begin a turn."""
        self.turn = 0

    def add_call(self, usage: Usage | None) -> None:
        """Add the prompt tokens of a call."""
        tokens = (usage.prompt_tokens if usage else None) or 0
        self.cumulative += tokens
        self.turn += tokens

    def emit_warning(self, trigger: str, tokens: int, messages: int) -> None:
        """Emit a warning whose condition was met."""
        if trigger == NearMessageCap.word:
            self._emit_near_cap(messages, *self._rules_cap)
            return
        sums = {
            "cumulative_input_tokens": self.cumulative,
            "warn_at": self.warn_at,
            "cutover_at": self.cutover_at,
        }
        self._emit("context_budget_warn", {**sums, "trigger": trigger, "tokens": tokens})

    def emit_cutover(self, trigger: str | None, tokens: int, window: int) -> None:
        """Emit `context_budget_cutover` with the budget that was exceeded."""
        if self.max_turn_tokens and self.turn >= self.max_turn_tokens:
            payload: dict[str, Any] = {
                "input_tokens": self.turn,
                "cutover_at": self.max_turn_tokens,
            }
            payload["reason"] = "single_turn_limit"
        elif self.cutover_at and self.cumulative >= self.cutover_at:
            payload = {"cumulative_input_tokens": self.cumulative, "cutover_at": self.cutover_at}
        else:
            payload = {"input_tokens": tokens, "context_window": window, "reason": trigger}
        self._emit("context_budget_cutover", payload)

    def begin_cycle(self) -> None:
        """Start a new cycle after a compaction."""
        self.cumulative, self._cap_warned = 0, False

    def warn_near_message_cap(self, messages: int, limits: Limits) -> None:
        """Emit a warning, once a cycle, if a prompt is near the cap on messages."""
        if limits.messages is None or self._cap_warned:
            return
        if messages > int(limits.messages * limits.messages_share):
            self._cap_warned = True
            self._emit_near_cap(messages, limits.messages, limits.messages_share)

    def _emit_near_cap(self, messages: int, cap: int, share: float) -> None:
        payload = {
            "messages": messages,
            "cap": cap,
            "fraction": share,
            "threshold": int(cap * share),
        }
        self._emit("context_cap_warning", payload)


def _tokens_since_compaction(session: Session) -> int:
    since = takewhile(lambda entry: not isinstance(entry, Edit), reversed(session.path))
    usages = (entry.usage for entry in since if isinstance(entry, Message) and entry.usage)
    return sum(usage.prompt_tokens or 0 for usage in usages)
