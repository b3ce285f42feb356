"""The agent loop: call the model and run its tools until it answers or a limit stops the turn."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit._internal.formatting_and_sanitizing import sanitize_line
from ctxkit._internal.redaction import redact
from ctxkit.agent.compaction import Compactor
from ctxkit.agent.live_context_and_transcript import (
    INTERRUPTED_RESULT,
    LOST_RESULT,
    AppendEntries,
    LiveTranscript,
)
from ctxkit.agent.memory.session_memory import MemoryFlusher
from ctxkit.agent.model_calls import ModelCaller
from ctxkit.agent.models.model import accepts_images, images_unsupported_message
from ctxkit.agent.tools.execution_and_results import Approve, OffloadResult, OutputLimits, run_tool
from ctxkit.agent.tools.tool import Tool, tool
from ctxkit.agent.turn_limits_and_token_budgets import (
    LimitReached,
    Limits,
    SpentInTurn,
    TurnTimeExceeded,
)
from ctxkit.agent.turn_state_and_events import (
    Listener,
    LiveEventEmitter,
    Outcome,
    TurnEnd,
    TurnState,
    ignore_event,
)
from ctxkit.engine.sent_prompts import SentPrompts
from ctxkit.errors import BadArguments, ModelError
from ctxkit.policies.result_excerpts_and_offload import is_offloaded
from ctxkit.policies.triggers import ReplyCutShort, has_trigger
from ctxkit.session.messages import (
    CONTINUATION_KEY,
    INJECTED_KIND,
    Attachment,
    Message,
    Text,
    get_plain_text,
)
from ctxkit.tokens.live_prompt_sizes import get_current_size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ctxkit.agent.live_context_and_transcript import SaveArtifact
    from ctxkit.agent.models.model import Model
    from ctxkit.agent.system_prompt import PromptSectionUpdater
    from ctxkit.agent.tools.confined_root import RootFolder
    from ctxkit.policies.compaction_and_pruning_rules import Rules
    from ctxkit.policies.protocols import Policy
    from ctxkit.session.messages import Edit, ToolCall
    from ctxkit.session.session import Session

# The turn as a state machine
#
#   _begin_turn     repair calls without a result, append sections, other agents' messages, prompt
#   _answer_prompt  loop: call the model -> run its tool calls -> react to the stop reason
#                     tool calls         run them one by one, call the model again
#                     "length"           compact once, ask it to continue; at most `Limits.attempts`
#                     no tool call       the turn is answered
#                     compact requested  compact after the step, since a step is never split
#   _end_turn       totals, event `turn_end`, `Outcome`
#
# Invariants, which hold at every await and so also when the turn is cancelled:
# * The transcript is the only state. Whatever is in the context and not in the transcript is
#   dropped by rebuilding the context, so a crash between two writes loses nothing.
# * Every tool call in the transcript has exactly one result. Cancellation writes one for the
#   running call and for each call behind it; a killed kernel is repaired at the next turn.
# * Tools get the arguments as the model sent them; transcript and events get them redacted.
# * Limits are checked before each model call with the prompt about to be sent. Time spent waiting
#   for an approval does not count (`TurnState.paused`).

CONTINUE_PROMPT = "Your reply was cut by its limit of length. Go on exactly where it ended."


def compact_conversation() -> str:
    """Ask for the conversation to be compacted after this step, when it has grown long."""
    return "COMPACT_REQUESTED"


COMPACT_TOOL = tool(compact_conversation)
"""A tool that every agent has; the compaction that it requests runs after the step."""


class Agent:
    """An agent that works on one session.

    Args:
        session: the session to continue; its edits are in force.
        model: answers the prompts.
        rules: the context manager, the same that a replay takes.
        tools: tools that it may call; `compact_conversation` is always added.
        append: appends entries to the session and returns it; None: in memory only.
        limits: limits of each turn.
        clock: returns seconds since 1970.
        listener: called with every event.
        approve: decides before each tool call, given the arguments that the tool will get; None:
            every call may run. The time that it takes counts towards no limit.
        offload: stores tool results that are too large and returns their stubs.
        summary_model: writes summaries; None: `model`, or the rules' own summariser where `model`
            is a scripted one.
        summary_seconds: seconds that a summary may take, where the rules set no limit.
        save: stores the results that stubs of the pruning `offload` name (id, text, tool, hint);
            None: results stay whole.
        prompts: the prompts sent so far; None: none were.
        memory: folder in which `memory/` lies, for rules that save notes before they compact;
            None: nothing is saved.
        sections: prompt sections that the agent adds by itself; None: none.
        outputs: limits of a tool's output; None: those of the rules, else the defaults.

    Example:
        >>> import asyncio
        >>> import ctxkit as ck
        >>> from ctxkit.agent import Agent, make_model
        >>> from ctxkit.policies import Rules
        >>> from ctxkit.tokens import default_counter
        >>> clock = lambda: 0.0
        >>> model = make_model("scripted/tour", counter=default_counter(), clock=clock)
        >>> agent = Agent(ck.Session(id="demo"), model=model, rules=Rules(), clock=clock)
        >>> outcome = asyncio.run(agent.turn("Begin."))
        >>> outcome.ended, outcome.spent.calls
        ('answered', 4)
    """

    def __init__(
        self,
        session: Session,
        *,
        model: Model,
        rules: Rules,
        tools: Sequence[Tool] = (),
        append: AppendEntries | None = None,
        limits: Limits | None = None,
        clock: Callable[[], float],
        listener: Listener = ignore_event,
        approve: Approve | None = None,
        offload: OffloadResult | None = None,
        summary_model: Model | None = None,
        summary_seconds: float = 120.0,
        memory: RootFolder | None = None,
        save: SaveArtifact | None = None,
        prompts: SentPrompts | None = None,
        sections: PromptSectionUpdater | None = None,
        outputs: OutputLimits | None = None,
    ) -> None:
        self.sections, self.outputs = sections, outputs or OutputLimits.of(rules)
        self.model, self.limits = model, limits or Limits()
        self.tools = {t.name: t for t in self._offer_tools(tools)}
        self.approve, self._offload, self._clock = approve, offload, clock
        self._events = LiveEventEmitter(listener, clock, lambda: self.transcript.turn)
        self.writer = summary_model or (None if model.notice.startswith("scripted") else model)
        """The model for summaries and memory; None: no model is called for them."""
        self.summary_seconds = summary_seconds
        self._memory_root, self._compaction_requested, self._save_artifact = memory, False, save
        self.prompts = prompts or SentPrompts()
        self.describe_result: Callable[[Message], Mapping[str, Any]] = lambda _: {}
        """Returns details to store with a tool result, such as the state of an agent's team."""
        self._apply_rules(rules, LiveTranscript(session, append, clock))

    def use_rules(self, rules: Rules) -> None:
        """Manage the context by other rules from the next call on; past edits stay in force."""
        self._apply_rules(rules, self.transcript)

    def _apply_rules(self, rules: Rules, transcript: LiveTranscript) -> None:
        self.rules = rules
        self._memory_flusher = None
        if rules.flush and self._memory_root:
            self._memory_flusher = MemoryFlusher(
                rules.flush, self._memory_root, self.writer, self._clock, self.emit
            )
        self._rebuild_compactor(transcript)

    @property
    def session(self) -> Session:
        """The session so far, with the prompts that its calls were sent."""
        return self.compactor.session

    def attach_prompt_source(self, session: Session) -> Session:
        """Return a session of this agent with the prompts that its calls were sent."""
        return session.set_prompt_source(self.prompts.of(session))

    async def turn(
        self,
        prompt: str,
        preceding: Sequence[Message] = (),
        images: Sequence[Attachment] = (),
        details: Mapping[str, Any] | None = None,
        seconds_used: float = 0.0,
    ) -> Outcome:
        """Run one turn.

        Args:
            prompt: the user's message.
            preceding: messages of other agents since the last turn; they are stored before the
                prompt.
            images: images that are sent with the prompt.
            details: stored with the prompt and never sent.
            seconds_used: seconds of the turn's limit that have passed already.

        Returns:
            How the turn ended, its last reply, and what it has cost.

        Raises:
            BadArguments: the prompt is empty, a limit cannot be kept, or the model takes no images.
            asyncio.CancelledError: the turn was interrupted; the session holds the text so far,
                marked as interrupted.
        """
        if not prompt.strip():
            raise BadArguments("Say what the agent shall do.")
        if images and accepts_images(self.model) is False:
            raise BadArguments(images_unsupported_message(self.model))
        ended: TurnEnd = "answered"
        user = Message(role="user", parts=(Text(prompt), *images), details=dict(details or {}))
        turn, max_seconds = self._begin_turn(user, preceding), self.limits.seconds
        turn.began, turn.task = turn.began - seconds_used, asyncio.current_task()
        try:
            async with asyncio.timeout(
                None if max_seconds is None else max_seconds - seconds_used
            ) as turn.deadline:
                why = await self._answer_prompt(turn)
        except (TimeoutError, TurnTimeExceeded):
            ended, why = "limit", turn.over
            self.emit("limit_reached", {"limit": why})
        except LimitReached as e:
            ended, why = "limit", f"stopped at {e}"
            self.emit("limit_reached", {"limit": str(e)})
        except ModelError as e:
            ended, why = "error", str(e)
        except Exception:
            # The transcript is the only state: drop what the context has beyond it.
            self.compactor.rebuild_context()
            raise
        return self._end_turn(turn, ended, why)

    def instruct(self, text: str) -> None:
        """Store the instructions that the session begins with.

        Raises:
            BadArguments: the session began with others, or with none.
        """
        message = self.transcript.instruct(text)
        if message is not None:
            self._record(message)

    def gauge(self) -> tuple[int, int]:
        """Return the size of the session (see `tokens.live_prompt_sizes`) and its window, in
        tokens.
        """
        return get_current_size(self.session).tokens, self.compactor.context.run.budget.limit

    async def compact(
        self, policy: Policy | None = None, *, focus: str = "", fallback: Policy | None = None
    ) -> tuple[Edit, ...]:
        """Compact by hand (see `Compactor.compact`); the limits count as for a turn of its own.

        Args:
            policy: makes the compaction; None: the rules' own policy.
            focus: what the summary should pay attention to.
            fallback: used if `policy` finds nothing to do.

        Returns:
            The stored edits; none if there is too little to compact.
        """
        return await self.compactor.compact(
            self._new_spending(),
            self.limits,
            policy,
            trigger="manual",
            focus=focus,
            fallback=fallback,
        )

    def move(self, session: Session, append: AppendEntries | None = None) -> None:
        """Continue from another point: a branch, a checkpoint, or another session.

        Args:
            session: the session at its new point.
            append: stores new entries; None: they are only held in memory.
        """
        self._rebuild_compactor(LiveTranscript(session, append, self._clock))

    def emit(self, kind: str, payload: dict[str, Any]) -> None:
        """Emit an event with its payload redacted.

        Args:
            kind: name of the event.
            payload: its data as JSON values.
        """
        self._events.emit(kind, payload)

    def replace_session(self, session: Session) -> None:
        """Replace the session by one with the same entries and other metadata."""
        self.transcript.session = session

    # -- the turn ---------------------------------------------------------------------------------

    def _begin_turn(self, prompt: Message, preceding: Sequence[Message]) -> TurnState:
        limits = self.limits.within(self.rules)
        turn = TurnState(limits, self._new_spending(), began=self._clock())
        # Raises for a limit that cannot be kept, before anything is written.
        turn.spent.exceeded_limit(self.limits, self.model.name, 0)
        self.compactor.compaction_count, self._compaction_requested = 0, False
        # A killed kernel leaves calls without a result, and providers refuse such a conversation.
        for call in self.transcript.find_unanswered_calls():
            self._record(self.transcript.store_unrun(call, LOST_RESULT))
        self.transcript.begin()
        self.compactor.budget.begin_turn()
        section_payload = self._add_sections()
        for message in preceding:
            self._record(self.transcript.add(message, "h"))
        self._record(self.transcript.add(prompt, "u"))
        self.emit("turn_start", {"content_chars": len(prompt.text)})
        if section_payload:
            self.emit("sections_said", section_payload)
        return turn

    async def _answer_prompt(self, turn: TurnState) -> str:
        """Call the model and run its tools until it is done.

        Returns:
            A note on a last reply that is cut or empty, else "".
        """
        while True:
            turn.last = reply = await self._caller.call(turn)
            if reply.tool_calls:
                await self._run_tools(reply, turn)
            if reply.stop == "length":
                if not turn.start_attempt():
                    return "the reply was cut by its limit of length"
                self.emit("reply_cut_short", {"continues": not reply.tool_calls})
                if not has_trigger(self.rules.trigger, ReplyCutShort):  # else the rules compact
                    await self.compactor.force(turn.spent, self.limits, "length")
                if not reply.tool_calls:
                    details = {CONTINUATION_KEY: True}
                    self._record(
                        self.transcript.add_user_message(
                            CONTINUE_PROMPT, kind=INJECTED_KIND, details=details
                        )
                    )
            elif not reply.tool_calls:
                return _explain_empty_reply(reply)
            if self._compaction_requested:
                self._compaction_requested = False
                await self.compactor.force(turn.spent, self.limits, "agent_requested")

    def _end_turn(self, turn: TurnState, ended: TurnEnd, why: str) -> Outcome:
        spent = turn.spent
        spent.seconds = self._clock() - turn.began
        payload = {
            "input_tokens": spent.fresh + spent.cached,
            "output_tokens": spent.output,
            "cached_input_tokens": spent.cached,
            "elapsed_ms": round(spent.seconds * 1000),
            "tool_rounds": spent.calls,
            "ended": ended,
        }
        self.emit("turn_end", payload)
        used, window = self.gauge()
        return Outcome(
            text=get_plain_text(turn.last),
            ended=ended,
            why=redact(why),
            spent=spent,
            compactions=self.compactor.compaction_count,
            context_tokens=used,
            context_window=window,
            notice=self.model.notice,
        )

    async def _run_tools(self, reply: Message, turn: TurnState) -> None:
        """Run the tool calls of a reply one by one, and store one result for each.

        Tools get the arguments as the model sent them (`turn.asked`); events and the transcript
        get the redacted ones (`reply`).
        """
        for i, (call, requested) in enumerate(
            zip(reply.tool_calls, turn.requested_calls, strict=True)
        ):
            self.emit("tool_call", {"tool_name": call.name, "args": call.arguments})
            try:
                turn.check_deadline()
                result = await run_tool(
                    requested,
                    self.tools,
                    approve=self._make_approver(turn),
                    approval_tools=getattr(self.approve, "tools", None),
                    offload=self._offload,
                    output_limits=self.outputs,
                    is_offloaded=self._is_offloaded,
                    takes_images=accepts_images(self.model) is not False,
                )
            except asyncio.CancelledError:
                why = (
                    f"{turn.over.capitalize()}, before it ended."
                    if turn.late
                    else INTERRUPTED_RESULT
                )
                for unrun_call in reply.tool_calls[i:]:
                    self._record(self.transcript.store_unrun(unrun_call, why))
                self.emit("cancelled", {"tool": call.name, "why": why})
                raise
            result = replace(result, tool=call.name, call_id=call.id)
            result = replace(result, details={**result.details, **self.describe_result(result)})
            stored = self._record(self.transcript.add(result, "r"))
            images = sum(isinstance(p, Attachment) for p in stored.parts)
            self.emit(
                "tool_result",
                tool_result_payload(stored) | ({"pictures": images} if images else {}),
            )

    def _add_sections(self) -> dict[str, Any]:
        """Store the prompt sections that are new or changed; return the event's payload, or {}."""
        message = self.sections and self.sections.make_update(
            self.transcript.session, self._clock()
        )
        if not message:
            return {}
        stored = self._record(self.transcript.add(message, message.role[0]))
        names = [name for name, _, _ in stored.sections]
        return {"names": names, "chars": len(stored.text), "top": stored.role == "system"}

    def _offer_tools(self, tools: Sequence[Tool]) -> tuple[Tool, ...]:
        """Return the tools that the model is offered."""
        return (*tools, replace(COMPACT_TOOL, run=self._request_compaction))

    # -- inside -----------------------------------------------------------------------------------

    def _make_approver(self, turn: TurnState) -> Approve | None:
        """Return `approve` such that the time it takes does not count towards the turn's limit."""
        approve = self.approve
        if approve is None:
            return None

        async def approved(call: ToolCall) -> bool:
            async with turn.paused(self._clock):
                answer = approve(call)
                return bool(await answer if inspect.isawaitable(answer) else answer)

        return approved

    def _rebuild_compactor(self, transcript: LiveTranscript) -> None:
        schemas = tuple(t.schema for t in self.tools.values())
        self.transcript = transcript
        self.compactor = Compactor(
            transcript,
            self.rules,
            tools=schemas,
            limit=self.model.context_window,
            writer=self.writer,
            seconds=self.summary_seconds,
            memory=self._memory_flusher,
            emit=self.emit,
            save_artifact=self._save_artifact,
            outputs=self.outputs,
            writer_is_main=self.writer is self.model,
            prompts=self.prompts,
        )
        self._caller = ModelCaller(self.model, schemas, self.compactor, self.emit)

    def _is_offloaded(self, tool: str, chars: int) -> bool:
        """Return whether the rules offload such a result, so that it is stored before any cut."""
        return self._save_artifact is not None and is_offloaded(self.rules.pruning, tool, chars)

    def _new_spending(self) -> SpentInTurn:
        return SpentInTurn(free=bool(self.model.notice))

    def _record(self, message: Message) -> Message:
        self.compactor.context.add(message)
        return message

    def _request_compaction(self) -> str:
        self._compaction_requested = True
        return compact_conversation()


def tool_result_payload(result: Message) -> dict[str, Any]:
    """Return the payload of a `tool_result` event."""
    chars, failed = len(result.text), result.is_error
    return {"tool_name": result.tool, "result_chars": chars, "is_error": failed}


def _explain_empty_reply(reply: Message) -> str:
    """Return a note for a reply without text; empty for any other."""
    if get_plain_text(reply).strip():
        return ""
    if reply.thinks:
        return "the model thought, and gave no answer"
    how = (
        "" if reply.stop in (None, "stop") else f" (it ended with {sanitize_line(reply.stop, 40)})"
    )
    return f"the model gave an empty reply{how}"
