"""Compaction of a live session, automatic and by hand, and warnings about token budgets."""

from __future__ import annotations

import asyncio
from dataclasses import replace as but
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit._internal.formatting_and_sanitizing import format_error_line
from ctxkit._internal.redaction import redact
from ctxkit.agent.live_context_and_transcript import LiveContext
from ctxkit.agent.model_summaries_and_backoff import (
    TOOL_SUMMARY_TRIGGER,
    ModelSummariser,
    PromptWithCachedPrefix,
    SummaryBackoff,
    ToolResultsToSummariesPolicy,
    UnsuccessfulCompaction,
    find_llm_result_excerpts,
    find_results_to_summarise,
    make_summary_bill_fields,
    make_unsuccessful_compaction_message,
    sum_usage,
    summarise_result,
)
from ctxkit.agent.tools.execution_and_results import OutputLimits, run_in_thread
from ctxkit.agent.tools.file_tools_and_pdf_office_text import describe_artifact_reading
from ctxkit.agent.turn_limits_and_token_budgets import TokenBudgetMonitor
from ctxkit.engine.sent_prompts import SentPrompts
from ctxkit.errors import BadArguments, ModelError
from ctxkit.policies.compaction_without_summary import KeepTurns
from ctxkit.policies.guards import Smaller, collect_refusals
from ctxkit.policies.offline_summarisers import ExtractiveSummariser, may_call_model
from ctxkit.policies.policy_base_and_chains import PolicyWithParts, as_policy
from ctxkit.policies.result_excerpts_and_offload import with_advice
from ctxkit.policies.summary_compaction import Summary, iter_summary_writers
from ctxkit.policies.tool_evidence_summaries import make_failure_marker
from ctxkit.session.messages import SUMMARY_ERROR_KEY, Edit, Message, join_summary_errors
from ctxkit.tokens.live_prompt_sizes import PromptSize, estimate_schema_tokens, get_current_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.agent.live_context_and_transcript import (
        LiveTranscript,
        PromptPreparation,
        SaveArtifact,
    )
    from ctxkit.agent.memory.session_memory import MemoryFlusher
    from ctxkit.agent.models.model import Model
    from ctxkit.agent.turn_limits_and_token_budgets import Limits, SpentInTurn
    from ctxkit.policies.compaction_and_pruning_rules import Rules
    from ctxkit.policies.policy_base_and_chains import BasePolicy
    from ctxkit.policies.protocols import Policy
    from ctxkit.session.messages import ToolSchema, Usage
    from ctxkit.session.session import Session


_MANUAL_TRIGGERS = ("manual", "agent_requested")
"""Triggers of a user or the model; all others are automatic."""
TOO_LITTLE = "there is too little history to compact"
KEEP_NEWEST_TURN = Summary(keep_turns=1)
"""Fallback if the rules' own policy finds nothing: summarise all but the newest turn."""
DROP_OLD_TURNS = KeepTurns(keep_turns=1)
"""The same for rules that never ask a model, such as fuseraft's window mode."""


# One automatic compaction, in order
#
#   1. ai's `llm` excerpts: a model summarises old tool results (an edit of its own)
#   2. memory flush: notes are saved while the messages are still in the prompt
#   3. prepare: the engine checks triggers, compacts and prunes. `compaction_start` is emitted at
#      the first summary call, or afterwards if no model was called
#   4. store: edits get sizes in billed tokens and the usage of their summaries, go into the
#      transcript, and `compaction_end` is emitted
#   5. flush of dropped messages, where the rules save those rather than the whole prompt
#
# Invariants:
# * Policies are synchronous and may call a summary model, so they run in a thread, and the model
#   runs on this event loop meanwhile (`_run_off_loop`). If the turn is cancelled there, the
#   context has changes that are not in the transcript: it is rebuilt from the transcript.
# * Every summary call is billed once, also if its summary is not used (`_unbilled`).
# * If the summariser raises, nothing is removed, and the error is emitted. A policy may instead
#   catch it and put a marker in place of the messages (`join_summary_errors`); that counts as
#   "failed", too.


class Compactor:
    """Keeps a live context within its rules.

    Args:
        transcript: the session; its edits are in force.
        rules: the context manager.
        tools: tool schemas that every prompt carries beside the messages.
        limit: the model's window in tokens, used if the rules name none.
        writer: the model that writes summaries; None: the rules' own summariser.
        seconds: seconds that a summary may take, where the rules set no limit.
        memory: saves notes before a compaction, if the rules say so.
        emit: called with each event (kind, payload).
        save_artifact: stores the results that stubs name; None: results stay whole.
        outputs: limits of a result that could not be stored; None: the defaults.
        writer_is_main: the writer is the model of the conversation, so that its prompt cache holds
            the beginning of the conversation.
        prompts: records the prompts that are sent.
    """

    def __init__(
        self,
        transcript: LiveTranscript,
        rules: Rules,
        *,
        tools: tuple[ToolSchema, ...],
        limit: int | None,
        writer: Model | None,
        seconds: float,
        memory: MemoryFlusher | None,
        emit: Callable[[str, dict[str, Any]], None],
        save_artifact: SaveArtifact | None = None,
        outputs: OutputLimits | None = None,
        writer_is_main: bool = False,
        prompts: SentPrompts | None = None,
    ) -> None:
        self._writer_is_main = writer_is_main
        self._last_answered: tuple[float, tuple[Message, ...]] = (float("-inf"), ())
        self.prompts = prompts or SentPrompts()
        if rules.pruning is not None:
            pruning = with_advice(rules.pruning, describe_artifact_reading(tools))
            rules = rules if pruning is rules.pruning else rules.but(pruning=pruning)
        self.transcript, self.rules, self._emit = transcript, rules, emit
        self._outputs = outputs or OutputLimits()
        self._summary_model, self._seconds, self._memory_flusher = writer, seconds, memory
        self._summariser: ModelSummariser | None = None
        self._unbilled: list[Usage] = []
        self._tools = tools
        self._limit = limit
        self._start_emitted = False
        self._last_attempt = ""
        """Reason of the last attempt without an effect, without its numbers."""
        settings = rules.label, "" if writer is None else redact(writer.name)
        self._backoff = SummaryBackoff(transcript.session, settings)
        self._result_backoff = SummaryBackoff(
            transcript.session, settings, trigger=TOOL_SUMMARY_TRIGGER
        )
        self._save_artifact = save_artifact
        self.budget = TokenBudgetMonitor(rules, transcript.session, emit)
        self.compaction_count = 0
        """Compactions since the turn began."""
        self.rebuild_context()

    def rebuild_context(self) -> None:
        """Rebuild the context from the transcript; changes that are not stored there are lost."""
        self.context = LiveContext(
            self.transcript.session,
            self.rules,
            schema_tokens=estimate_schema_tokens(self._tools),
            limit=self._limit,
            save_artifact=self._save_artifact,
            shorten_unsaved=self._outputs.shorten,
            prompts=self.prompts,
        )

    def adopt_window(self, window: int) -> None:
        """Use the window that the model named in an error, if it is smaller than assumed.

        The reserve becomes at most a quarter of it, as the one set may exceed the whole window.
        """
        if window < self.context.run.budget.limit:
            reserve = min(self.rules.reserve, window // 4)
            self.rules = self.rules.but(window=window, assumed=True, reserve=reserve)
            self.rebuild_context()

    def note_answered_prompt(self, messages: tuple[Message, ...]) -> None:
        """Note an answered prompt: the provider caches it for `rules.cache_life` seconds."""
        self._last_answered = self.transcript.clock(), messages

    def _cached_prefix(self) -> PromptWithCachedPrefix | None:
        """Return the next prompt if the writer's cache holds its beginning, else None."""
        answered_at, last = self._last_answered
        if (
            not self._writer_is_main
            or not last
            or self.transcript.clock() - answered_at > self.rules.cache_life
        ):
            return None
        # The cache holds the longest common prefix with the last answered prompt.
        log, (prompt, tokens) = self.context.log, self.context.preview()
        common = 0
        while common < min(len(last), len(prompt)) and last[common] == prompt[common]:
            common += 1
        cached_tokens = log.fixed + sum(map(log.measure, prompt[:common]))
        return PromptWithCachedPrefix(
            prompt, self._tools, cached_tokens, tokens, self.context.run.budget.limit
        )

    async def prepare(self, spent: SpentInTurn, limits: Limits) -> PromptPreparation:
        """Prepare the next call: flush memory and compact if the rules say so, then prune.

        Args:
            spent: what the turn has used; summaries are added.
            limits: limits of the turn; they hold for summaries too.

        Returns:
            The prompt to send, and what was done to prepare it.
        """
        await self._summarise_results(spent, limits)
        before, run = get_current_size(self.session), self.context.run
        window, self._start_emitted, run.trigger_reason = run.budget.limit, False, ""
        context_tokens, edits = self.context.tokens, len(self.transcript.session.edits)
        if self._memory_flusher and self._memory_flusher.is_due(context_tokens, window, edits):
            await self._flush_memory(self.context.preview()[0], spent, limits, self._tools)
        context, message_count = self.context, self.context.messages
        prepared: PromptPreparation = await self._run_off_loop(
            lambda: context.prepare(self.transcript.clock()),
            spent,
            limits,
            lambda: self._emit_start(run.trigger_reason, before, message_count),
            auto=not self._backoff.skip_call(),
        )
        for name in prepared.warned:
            self.budget.emit_warning(name, prepared.tokens, message_count)
        if prepared.edits:
            self.budget.emit_cutover(prepared.edits[0].trigger, before.tokens, window)
            self._emit_start(run.trigger_reason, before, message_count)
            self._store_edits(prepared.edits, before, message_count, spent)
            await self._flush_dropped(prepared.edits, spent, limits)
        elif prepared.blocked:
            last, reason = (
                prepared.blocked[-1],
                prepared.blocked[-1].reason_text.removeprefix("failed: "),
            )
            attempt = UnsuccessfulCompaction(
                last.outcome, reason, run.trigger_reason or None, before.tokens, message_count
            )
            self._store_attempt(attempt, spent)
        self._bill_usage(spent, self._take_unbilled())
        self.budget.warn_near_message_cap(len(prepared.messages), limits)
        return prepared

    async def _summarise_results(self, spent: SpentInTurn, limits: Limits) -> None:
        """Replace old tool results by a model's summaries, if the rules have ai's excerpts with
        `llm`.

        If the model fails, excerpts replace them in the prompt, as without a model.
        """
        if self._summary_model is not None and not self._result_backoff.skip_call():
            history = self.context.run.history.at(self.context.run.call)
            summaries: dict[str, str] = {}
            error = ""
            for result in find_results_to_summarise(self.rules.pruning, history.messages):
                if _exceeded_limit(spent, limits, self._summary_model, len(result.text) // 4):
                    break
                text, usage, error = await summarise_result(self._summary_model, result)
                if usage is not None:
                    self._unbilled.append(usage)
                if error:  # the other results would fail too, and cost time
                    break
                summaries[result.id] = text
            if summaries:
                await self.compact(
                    spent,
                    limits,
                    ToolResultsToSummariesPolicy(said=summaries),
                    trigger=TOOL_SUMMARY_TRIGGER,
                )
                self._result_backoff.reset()
            if error:
                tokens, self._start_emitted = get_current_size(self.session).tokens, False
                attempt = UnsuccessfulCompaction(
                    "failed", error, TOOL_SUMMARY_TRIGGER, tokens, self.context.messages
                )
                self._store_attempt(attempt, spent, model_called=True)
        self._bill_usage(spent, self._take_unbilled())

    async def compact(
        self,
        spent: SpentInTurn,
        limits: Limits,
        policy: Policy | None = None,
        *,
        trigger: str,
        focus: str = "",
        fallback: Policy | None = None,
    ) -> tuple[Edit, ...]:
        """Compact now; return the stored edits, none if there is too little to compact.

        Args:
            spent: what the turn has used; summaries are added.
            limits: limits of the turn; they hold for summaries too.
            policy: makes the compaction; None: the rules' own policy.
            trigger: name of the trigger, for the log.
            focus: what the summary should pay attention to.
            fallback: used if `policy` finds nothing to do; None: nothing is.

        Raises:
            ModelError: the summariser failed; the session is unchanged.
        """
        focus = redact(focus)
        context, self._start_emitted = self.context, False
        before, message_count = get_current_size(self.session), context.messages
        self._emit_start(trigger, before, message_count, focus=focus)

        def apply_policies() -> tuple[Edit, ...]:
            with collect_refusals() as refused:
                done = context.compact(self.choose_policy(policy, focus), trigger)
                if not done and fallback is not None:
                    done = context.compact(self.choose_policy(fallback, focus), trigger)
            refusals.extend(refused)
            return done

        refusals: list[str] = []
        attempt = UnsuccessfulCompaction(
            "skipped", TOO_LITTLE, trigger, before.tokens, message_count
        )
        try:
            edits: tuple[Edit, ...] = await self._run_off_loop(apply_policies, spent, limits)
        except ModelError as e:
            self._store_attempt(attempt._replace(outcome="failed", reason=str(e)), spent)
            raise
        if edits:
            edits = self._store_edits(edits, before, message_count, spent)
            await self._flush_dropped(edits, spent, limits)
        else:
            if refusals:
                attempt = attempt._replace(
                    outcome="refused", reason=f"{Smaller.word}: {refusals[-1]}"
                )
            self._store_attempt(attempt, spent)
        self._bill_usage(spent, self._take_unbilled())
        return edits

    async def force(self, spent: SpentInTurn, limits: Limits, trigger: str) -> bool:
        """Compact as the prompt or reply did not fit, or the model asked; return whether it did.

        If the summary fails, nothing is removed, and a marker tells the model so. A prompt that did
        not fit is larger than it was counted: if the rules find too little to compact, all but the
        newest turn is summarised, or dropped where the rules never ask a model.

        Args:
            spent: what the turn has used; summaries are added.
            limits: limits of the turn; they hold for summaries too.
            trigger: name of the trigger, for the log.
        """
        asks = self.rules.policy is None or self._may_call_model
        fallback = None if trigger == "length" else KEEP_NEWEST_TURN if asks else DROP_OLD_TURNS
        try:
            return bool(await self.compact(spent, limits, trigger=trigger, fallback=fallback))
        except ModelError as e:
            marker = self.transcript.add_user_message(
                make_failure_marker([self.transcript.turn], str(e)), kind="injected"
            )
            self.context.add(marker)
            return False

    def choose_policy(
        self, policy: Policy | None = None, focus: str = "", *, draft: bool = False
    ) -> BasePolicy:
        """Return the policy of a compaction by hand.

        Args:
            policy: the policy; None: that of the rules.
            focus: what a summary should focus on; empty: nothing.
            draft: call no model; the summary is then an extract.
        """
        base = self.rules.bare if policy is None else as_policy(policy)
        rules_summariser, writer = self.rules.summariser, None if draft else self._summariser
        if (
            policy is None
            and base is not None
            and not isinstance(rules_summariser, ExtractiveSummariser)
        ):
            writer = None  # the rules name their own summariser
        base = KEEP_NEWEST_TURN if base is None else base
        base = (
            base.using(rules_summariser)
            if writer is None
            else _without_default_summariser(base).using(writer)
        )
        return base.focused(focus) if focus else base

    # -- events, edits and bills ------------------------------------------------------------------

    @property
    def session(self) -> Session:
        """The session so far, with the prompts that its calls were sent."""
        session = self.transcript.session
        return session.set_prompt_source(self.prompts.of(session))

    def _emit_start(
        self, trigger: str, size: PromptSize, messages: int, *, focus: str = ""
    ) -> None:
        if not self._start_emitted:
            self._start_emitted = True
            payload = _compaction_payload(trigger, size.tokens, messages)
            self._emit("compaction_start", {**payload, "focus": focus or None})

    def _emit_end(
        self,
        outcome: dict[str, Any],
        trigger: str | None,
        size: PromptSize,
        messages: int,
        tokens_after: int | None = None,
    ) -> None:
        """Emit `compaction_end`; `tokens_after` None: the size did not change."""
        payload = _compaction_payload(trigger, size.tokens, messages)
        after = {"tokens_after": size.tokens if tokens_after is None else tokens_after}
        self._emit(
            "compaction_end", {**outcome, **payload, "after": self.context.messages, **after}
        )

    def _store_attempt(
        self, attempt: UnsuccessfulCompaction, spent: SpentInTurn, *, model_called: bool = False
    ) -> None:
        """Store a compaction that changed nothing, and emit its events.

        An automatic one that asks no model may be due call after call; it is stored once.

        Args:
            attempt: the attempt.
            spent: what the turn has used; summaries are added.
            model_called: a model was asked beside the summariser of the rules.
        """
        has_called_model = model_called or (
            self._summariser is not None and self._summariser.request_count > 0
        )
        is_manual, kind = attempt.trigger in _MANUAL_TRIGGERS, _without_numbers(attempt.reason)
        is_paid = has_called_model or (attempt.outcome != "skipped" and self._may_call_model)
        if not (is_paid or is_manual or kind != self._last_attempt):
            return
        self._last_attempt = kind
        model, usage = self._summary_model if has_called_model else None, self._take_unbilled()
        self._bill_usage(spent, usage)
        attempt, retry_after = attempt._replace(reason=format_error_line(attempt.reason)), 0
        if is_paid and attempt.outcome != "skipped" and not is_manual:
            is_result = attempt.trigger == TOOL_SUMMARY_TRIGGER
            retry_after = (self._result_backoff if is_result else self._backoff).miss()
        size = PromptSize(attempt.tokens, "estimated")
        self._emit_start(attempt.trigger or "", size, attempt.messages)
        how: dict[str, Any] = {"outcome": attempt.outcome, "reason": attempt.reason}
        how |= {SUMMARY_ERROR_KEY: attempt.reason} if attempt.outcome == "failed" else {}
        how |= make_summary_bill_fields(model, usage)
        how |= {"retry_after_calls": retry_after} if retry_after else {}
        self._emit_end(how, attempt.trigger, size, attempt.messages)
        message = make_unsuccessful_compaction_message(
            attempt,
            settings=self._backoff.settings,
            model=model,
            usage=usage,
            retry_after=retry_after,
        )
        self.context.add(self.transcript.add(message, "x"))

    def _store_edits(
        self, edits: tuple[Edit, ...], before: PromptSize, message_count: int, spent: SpentInTurn
    ) -> tuple[Edit, ...]:
        """Store the edits of a compaction with their sizes and usage; return them so."""
        after = self.context.estimate_size()
        edits = _with_sizes(edits, before.tokens, after)
        usage, writer = self._take_unbilled(), self._summariser
        call_kinds = list(writer.ways) if writer is not None else []
        if self._summary_model is not None and (
            usage is not None or (writer is not None and writer.request_count)
        ):
            details = (
                {**edits[0].details, "summary_calls": call_kinds}
                if call_kinds
                else edits[0].details
            )
            first = replace(
                edits[0], usage=usage, model=redact(self._summary_model.name), details=details
            )
            edits = (first, *edits[1:])
        self._bill_usage(spent, usage)
        self.transcript.edit(edits)
        self._backoff.reset()
        self._last_attempt = ""
        self.compaction_count += 1
        self.budget.begin_cycle()
        removed = sum(len(e.targets) for e in edits)
        payload = {k: v for k, v in edits[0].details.items() if k == "summary_calls"}
        if error := join_summary_errors(edits):
            payload[SUMMARY_ERROR_KEY] = error
        outcome = "failed" if error else "compacted"
        payload |= make_summary_bill_fields(self._summary_model if edits[0].model else None, usage)
        how = {"outcome": outcome, "messages": removed, "tokens_source": "estimated", **payload}
        self._emit_end(how, edits[0].trigger, before, message_count, after)
        return edits

    def _bill_usage(self, spent: SpentInTurn, usage: Usage | None) -> None:
        """Add the usage of summary calls to the turn, also if their summaries are not used."""
        if usage is not None and self._summary_model is not None:
            spent.add_summary(
                usage, self._summary_model.name, free=bool(self._summary_model.notice)
            )

    def _take_unbilled(self) -> Usage | None:
        """Return the usage of summary calls that is not billed yet, and reset it."""
        written = self._summariser.take_usage() if self._summariser is not None else None
        usages, self._unbilled = self._unbilled, []
        usages += [written] if written is not None else []
        return sum_usage(usages) if usages else None

    # -- memory -----------------------------------------------------------------------------------

    async def _flush_dropped(
        self, edits: tuple[Edit, ...], spent: SpentInTurn, limits: Limits
    ) -> None:
        if self._memory_flusher is not None and self._memory_flusher.flush.below is None:
            ids = {t for e in edits for t in e.targets}
            dropped = [m for m in self.transcript.session.messages if m.id in ids]
            await self._flush_memory(dropped, spent, limits, ())

    async def _flush_memory(
        self, messages: Any, spent: SpentInTurn, limits: Limits, tools: tuple[ToolSchema, ...]
    ) -> None:
        assert self._memory_flusher is not None  # noqa: S101  for the type checker
        if self._summary_model is not None and _exceeded_limit(
            spent, limits, self._summary_model, self.context.tokens
        ):
            return
        reply = await self._memory_flusher.save(messages, tools=tools, seconds=limits.seconds)
        if reply is not None:
            self._bill_usage(spent, reply.usage)

    @property
    def _may_call_model(self) -> bool:
        """True if a compaction may ask a model: the summary model, or one that the rules name."""
        policy = self.rules.policy
        writers = () if policy is None else iter_summary_writers(policy)
        is_lent = self._summary_model is not None
        return any(
            may_call_model(w) or (is_lent and isinstance(w, ExtractiveSummariser)) for w in writers
        )

    @property
    def uses_summary_model(self) -> bool:
        """True if a summary model writes the summaries of the rules, or digests of tool results."""
        rules = self.rules
        if find_llm_result_excerpts(rules.pruning) is not None:
            return True
        if rules.bare is None or not isinstance(rules.summariser, ExtractiveSummariser):
            return False
        lent = rules.bare.using(ExtractiveSummariser(tokens=1))
        return list(iter_summary_writers(lent)) != list(iter_summary_writers(rules.bare))

    # -- off the loop -----------------------------------------------------------------------------

    async def _run_off_loop(
        self,
        work: Callable[[], Any],
        spent: SpentInTurn,
        limits: Limits,
        on_first_call: Callable[[], None] | None = None,
        *,
        auto: bool = True,
    ) -> Any:
        """Run blocking work in a thread; the summary model that it may call runs on this loop.

        If it is cancelled, the context is rebuilt from the session, as the work may have changed
        it without storing the change.

        Args:
            work: prepares a prompt or compacts the context.
            spent: what the turn has spent so far; a summary counts towards its limits.
            limits: limits of the turn.
            on_first_call: called before the first summary is requested; None: nothing is.
            auto: False switches automatic compaction off while the work runs, if it could call a
                model.

        Returns:
            What the work returns.
        """
        model, rules = self._summary_model, self.rules
        if model is not None:
            self._summariser = ModelSummariser(
                model,
                asyncio.get_running_loop(),
                self._seconds,
                exceeded_limit=lambda tokens: _exceeded_limit(spent, limits, model, tokens),
                on_first_call=on_first_call,
                cached_prefix=self._cached_prefix,
            )
            if rules.bare is not None and isinstance(rules.summariser, ExtractiveSummariser):
                rules = rules.but(policy=rules.bare.using(self._summariser))
        self.context.rules = rules if auto or not self._may_call_model else rules.but(auto=False)
        try:
            return await run_in_thread(work)
        except asyncio.CancelledError:
            if self._summariser is not None:
                self._summariser.stop()
            self.rebuild_context()
            raise


def _exceeded_limit(spent: SpentInTurn, limits: Limits, model: Model, tokens: int) -> str | None:
    """Return the limit that a summary call would exceed, as a phrase, or None."""
    try:
        return spent.exceeded_limit(limits, model.name, tokens, free=bool(model.notice))
    except BadArguments as e:
        return f"what can be checked: {e}"


def _without_default_summariser(policy: BasePolicy) -> BasePolicy:
    """Return a policy with its extractive summarisers removed, so that another can be set."""
    if isinstance(policy, PolicyWithParts):
        return but(policy, parts=tuple(map(_without_default_summariser, policy.parts)))
    if isinstance(policy, Summary) and isinstance(policy.summariser, ExtractiveSummariser):
        return but(policy, summariser=None)
    return policy


def _with_sizes(edits: tuple[Edit, ...], before: int, after: int) -> tuple[Edit, ...]:
    """Return the edits of one compaction with sizes in billed tokens.

    Only the sizes before the first and after the last edit are known (`before`, `after`); those in
    between are interpolated linearly from the counted ones.
    """
    first, last = edits[0].tokens_before or 0, edits[-1].tokens_after or 0
    rate = (before - after) / (first - last) if first != last else 0.0

    def interpolate_size(counted: int | None) -> int:
        return max(round(after + rate * ((counted or 0) - last)), 0)

    return tuple(
        replace(
            e,
            tokens_before=interpolate_size(e.tokens_before),
            tokens_after=interpolate_size(e.tokens_after),
        )
        for e in edits
    )


def _without_numbers(reason: str) -> str:
    return "".join(filter(str.isalpha, reason))


def _compaction_payload(trigger: str | None, tokens: int, messages: int) -> dict[str, Any]:
    """Return the payload that `compaction_start` and `compaction_end` share."""
    how = {"auto": trigger not in _MANUAL_TRIGGERS, "trigger": trigger}
    return {**how, "before": messages, "tokens_before": tokens}
