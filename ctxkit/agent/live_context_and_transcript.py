"""Transcript and prompts of a live session."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ctxkit._internal.environment_secrets import get_environment_secrets
from ctxkit._internal.redaction import REDACTION_MARK, redact_json
from ctxkit.engine import (
    Compaction,
    RulesRun,
    advance_run,
    compute_billing_offset,
    make_log_from_session,
    with_message_ids,
)
from ctxkit.engine.sent_prompts import PruningRecorder, SentPrompts
from ctxkit.errors import BadArguments, StoreError
from ctxkit.policies.compaction_and_pruning_rules import RecordedCompactionsPolicy
from ctxkit.policies.compaction_without_summary import get_last_resort_stages
from ctxkit.policies.policy_base_and_chains import PolicyWithParts, apply_policy
from ctxkit.policies.protocols import name_of
from ctxkit.policies.result_excerpts_and_offload import ResultOffload, find_artifact_in_stub
from ctxkit.policies.schedules.messages_without_any_pruning import UnprunedMessages
from ctxkit.policies.texts.message_content_and_truncation import format_call_hint, replace_text
from ctxkit.session.messages import Edit, Message, Part, Text, Thinking, ToolCall, get_plain_text
from ctxkit.tokens.live_prompt_sizes import (
    COUNTED_TOKENS_KEY,
    estimate_billed_tokens,
    get_billed_prompt,
    list_counted_and_billed_prompts,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ctxkit.engine import BlockedCompaction
    from ctxkit.policies.compaction_and_pruning_rules import Rules
    from ctxkit.policies.history.history import History
    from ctxkit.policies.policy_base_and_chains import BasePolicy
    from ctxkit.policies.protocols import Policy
    from ctxkit.session.session import Session


_replace = msgspec.structs.replace


# Live context
#
# A live session is a replay whose log grows: `LiveContext` owns the same `RulesRun` that replays a
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


class PromptPreparation(NamedTuple):
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
        self.run = RulesRun(self.log, rules, limit)
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
        record_run = RulesRun(self.log, record_rules, self.run.budget.limit)
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
            self.log.bill_extra((get_billed_prompt(message) or self._sent_view.tokens) - estimated)
            self.log.fixed = self.schemas + compute_billing_offset(
                message, self.schemas + self.counted, offset_before
            )

    @property
    def counted(self) -> int:
        """Tokens of the messages of the last prompt, as counted."""
        return self._sent_view.tokens - self.log.fixed_at[self.run.call - 1]

    def prepare(self, time: float, agent: str | None = None) -> PromptPreparation:
        """Open the next call: compact if the rules say so, prune, and return the prompt.

        Args:
            time: seconds since 1970.
            agent: name of the agent that calls; None: the session's own.
        """
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
        return PromptPreparation(
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
        """Trim the prepared prompt and return it as the one to send.

        The session does not change.

        Args:
            stage: index of the trimming policy, from 0; -1: no trimming.
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

        Args:
            policy: the policy to apply.
            trigger: the reason in the log of compactions.

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
        billed_prompts = list_counted_and_billed_prompts(self.log.replies, self.schemas)
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
                out.append(_replace(edit, id=name))
            self._next_compaction += 1
        return tuple(out)


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

    def store_artifacts(self, run: RulesRun, view: History) -> History:
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
        results, rows = _find_offloaded(run, missing), UnprunedMessages(run.history.at(call))
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


def _find_offloaded(run: RulesRun, artifact_ids: set[str]) -> dict[str, Message]:
    """Return the results that were offloaded at the last call, by artifact id."""
    results: dict[str, Message] = {}

    def apply_part(part: BasePolicy, view: History) -> History:
        if isinstance(part, PolicyWithParts):  # each part works on the view that the last one left
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


AppendEntries = Callable[..., "Session"]
"""Appends entries to the session, in memory or by `SessionLog.append`, and returns it."""
LOST_RESULT = "The session ended before this call's result was kept; whether it ran is not known."
INTERRUPTED_RESULT = "Interrupted by the user before it ended."


# The transcript takes messages and edits as they come, redacts them and appends them to the
# session.
class LiveTranscript:
    """A growing session.

    Every text is redacted before it is stored. Ids of entries are unique in the whole log,
    branches included; ids of tool calls are unique in the session, as providers require.

    Args:
        session: the session so far.
        append: appends entries; None: in memory only.
        clock: returns seconds since 1970.
    """

    def __init__(
        self, session: Session, append: AppendEntries | None, clock: Callable[[], float]
    ) -> None:
        self.session = session if append else with_message_ids(session)
        self.clock = clock
        self._append = append or self._append_in_memory
        self.turn = self.session.turns[-1] if self.session.path else -1
        """Number of the current turn; entries written before the next one begins belong to it."""
        self._ids = {e.id for e in self.session.log}
        self._call_ids = {
            c.id for e in self.session.path if isinstance(e, Message) for c in e.tool_calls
        }

    def _append_in_memory(self, *entries: Message | Edit) -> Session:
        return self.session.append(*entries)

    def begin(self) -> int:
        """Begin a turn; return its number."""
        turns = self.session.turns
        has_prompts = any(isinstance(e, Message) and e.role != "system" for e in self.session.path)
        self.turn = turns[-1] + 1 if has_prompts else 0
        return self.turn

    def find_unanswered_calls(self) -> list[ToolCall]:
        """Return the tool calls of the last reply that have no result."""
        # Walk back over the results at the end to the reply that made the calls.
        answered: set[str | None] = set()
        for entry in reversed(self.session.path):
            if not isinstance(entry, Message) or not entry.visible:
                continue
            if entry.role == "assistant":
                return [c for c in entry.tool_calls if c.id not in answered]
            if entry.role != "tool":
                break
            answered.add(entry.call_id)
        return []

    def add(self, message: Message, kind: str) -> Message:
        """Store a redacted message under a new id that starts with `kind`; return it as stored.

        Args:
            message: the message as it came.
            kind: beginning of its new id.
        """
        time, secrets = message.time or self.clock(), get_environment_secrets()
        clean = {
            "parts": self._clean_parts(message.parts, secrets),
            "error": message.error and _clean_text(message.error, secrets),
            "model": message.model and _clean_text(message.model, secrets),
            "tool": message.tool and _clean_name(message.tool, secrets),
            "call_id": message.call_id and _clean_name(message.call_id, secrets),
        }
        stored = replace(message, id=self._new_id(kind), turn=self.turn, time=time, **clean)
        self.session = self._append(stored)
        return stored

    def edit(self, edits: tuple[Edit, ...]) -> None:
        """Store the edits of a compaction."""
        now = self.clock()
        self.session = self._append(*(replace(e, time=now) for e in edits))
        self._ids.update(e.id for e in edits)

    def add_user_message(
        self, text: str, *, kind: str = "", details: dict[str, Any] | None = None
    ) -> Message:
        """Store a user message.

        Args:
            text: the text.
            kind: kind of a message that ctxkit writes in the user's place; empty: the user wrote
                it.
            details: more about the message; None: nothing.

        Returns:
            The message as stored.
        """
        message = Message(role="user", kind=kind, parts=(Text(text),), details=details or {})
        return self.add(message, "u")

    @property
    def instructions(self) -> str:
        """The instructions that the session began with, as stored; empty if it began with a
        prompt.
        """
        first = next((e for e in self.session.path if isinstance(e, Message)), None)
        return first.text if first is not None and first.role == "system" else ""

    def instruct(self, text: str) -> Message | None:
        """Store the instructions that every prompt begins with; None if they are stored already.

        Raises:
            BadArguments: the session began with others, or with none.
        """
        if not self.session.log:
            self.turn = 0
            return self.add(Message(role="system", parts=(Text(text),)), "s")
        if _clean_text(text, get_environment_secrets()) == self.instructions:
            return None
        began = "other instructions" if self.instructions else "no instructions"
        raise BadArguments(
            f"The session began with {began}, and they stay: begin another one, or `%context"
            " reset`."
        )

    def store_failure(  # noqa: PLR0917  the fields of one reply
        self,
        model: str,
        why: str,
        stop: str = "error",
        text: str = "",
        window: int | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> Message:
        """Store a reply that failed or was interrupted; it stays in the log and is never sent.

        Args:
            model: name of the model.
            why: the error, as a sentence.
            stop: why the reply ended, such as "error".
            text: the part of the reply that had arrived.
            window: context window in tokens; None: unknown.
            details: more about the failure; None: nothing.

        Returns:
            The message as stored.
        """
        parts: tuple[Part, ...] = (Text(text),) if text else ()
        reply = Message(role="assistant", parts=parts, is_error=True, visible=False)
        fields = {"model": model, "stop": stop, "error": why, "context_window": window}
        return self.add(replace(reply, **fields, details=dict(details or {})), "a")

    def store_unrun(self, call: ToolCall, why: str = INTERRUPTED_RESULT) -> Message:
        """Store a result for a tool call that did not end, so that no call is without one.

        Args:
            call: the tool call.
            why: text of the result.

        Returns:
            The stored result, an error.
        """
        parts, name = (Text(why),), call.name
        result = Message(role="tool", tool=name, call_id=call.id, parts=parts, is_error=True)
        return self.add(result, "r")

    # -- inside -----------------------------------------------------------------------------------

    def _new_id(self, kind: str) -> str:
        name = f"{kind}{len(self.session.log)}"
        while name in self._ids:
            name += "'"
        self._ids.add(name)
        return name

    def _clean_parts(self, parts: tuple[Part, ...], secrets: list[str]) -> tuple[Part, ...]:
        out: list[Part] = []
        for part in parts:
            if isinstance(part, Text):
                out.append(Text(_clean_text(part.text, secrets)))
            elif isinstance(part, Thinking):
                out.append(_clean_thinking(part, secrets))
            elif isinstance(part, ToolCall):
                out.append(self._clean_call(part, secrets))
            else:
                out.append(part)
        return tuple(out)

    def _clean_call(self, call: ToolCall, secrets: list[str]) -> ToolCall:
        """Return a redacted call with an id that is unique in the session."""
        model_id, n = _clean_name(call.id, secrets) or "call", 1
        call_id = model_id
        while call_id in self._call_ids:
            n += 1
            call_id = f"{model_id}_{n}"
        self._call_ids.add(call_id)
        arguments: dict[str, Any] = redact_json(_replace_surrogates(call.arguments), secrets)
        raw = None if call.raw is None else _clean_text(call.raw, secrets)
        name = _clean_name(call.name, secrets)
        return replace(call, id=call_id, name=name, arguments=arguments, raw=raw)


def _clean_thinking(part: Thinking, secrets: list[str]) -> Thinking:
    """Return thinking redacted; its signature is dropped if the text changed, as it no longer
    fits.
    """
    text = _clean_text(part.text, secrets)
    return part if text == part.text else Thinking(text)


def _clean_text(text: str, secrets: list[str]) -> str:
    """Return text redacted, and with lone surrogates replaced, which UTF-8 cannot hold."""
    return str(redact_json(_replace_surrogates(text), secrets))


def _clean_name(name: str, secrets: list[str]) -> str:
    """Return a redacted name in characters that providers accept in names and ids."""
    return _clean_text(name, secrets).replace(REDACTION_MARK, "redacted")


def _replace_surrogates(value: Any) -> Any:
    """Return a JSON value with lone surrogates replaced by question marks."""
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        if isinstance(value, str):
            return value.encode("utf-8", "replace").decode()
        if isinstance(value, dict):
            return {_replace_surrogates(k): _replace_surrogates(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [_replace_surrogates(v) for v in value]
    return value
