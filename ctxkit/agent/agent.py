"""An agent that works on a session: one turn asks the model and runs tools until it is answered or a limit holds it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ctxkit.agent.compactor import Compactor
from ctxkit.agent.contents import Contents
from ctxkit.agent.events import Event, Listener, deaf
from ctxkit.agent.limits import Limits, Spent
from ctxkit.agent.memories import Memory
from ctxkit.agent.outcome import Ended, Outcome
from ctxkit.agent.running import Approve, Offload, run_tool
from ctxkit.agent.transcript import INTERRUPTED, LOST, Keep, Transcript
from ctxkit.agent.trims import STAGES, payload_bytes, trimmed
from ctxkit.errors import BadArguments, ModelError
from ctxkit.messages import Message, Text, Usage
from ctxkit.models.model import Delta, Model, Request
from ctxkit.models.overflow import is_overflow, overflowed_silently
from ctxkit.redaction import redact
from ctxkit.tools.tool import Tool, tool

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ctxkit.messages import Edit
    from ctxkit.policies.rules import Rules
    from ctxkit.session import Session
    from ctxkit.tools.root import Root

GO_ON = "Your reply was cut by its limit of length. Go on exactly where it ended."


class _LimitReached(Exception):
    """The next call would pass a limit; its text names which."""


class Agent:
    """An agent at work on one session.

    Args:
        session: where it goes on; its edits are in force.
        model: answers.
        rules: the context manager, the same that a replay takes.
        tools: what it may do; `compact_conversation` is always among them.
        keep: writes entries; what it returns is the session from then on. None: memory only.
        limits: of each turn.
        clock: seconds since 1970.
        hear: is told every event.
        approve: asked before each tool call; None: all may run.
        offload: keeps results that are too large.
        summary_model: writes summaries; None: `model`, unless that is a scripted one (then the rules' own summariser).
        summary_seconds: how long a summary may take.
        memory: the folder in which `memory/` lies, for rules that save before they compact; None: nothing is saved.
    """

    def __init__(
        self,
        session: Session,
        *,
        model: Model,
        rules: Rules,
        tools: Sequence[Tool] = (),
        keep: Keep | None = None,
        limits: Limits | None = None,
        clock: Callable[[], float],
        hear: Listener = deaf,
        approve: Approve | None = None,
        offload: Offload | None = None,
        summary_model: Model | None = None,
        summary_seconds: float = 120.0,
        memory: Root | None = None,
    ) -> None:
        self.model, self.rules, self.limits = model, rules, limits or Limits()
        self.tools = {t.name: t for t in (*tools, tool(self._asked_to_compact, name="compact_conversation"))}
        self._hear, self._approve, self._offload, self._clock = hear, approve, offload, clock
        self._writer = summary_model or (None if model.notice.startswith("scripted") else model)
        self._seconds = summary_seconds
        self._memory = Memory(rules.flush, memory, self._writer, clock, self._tell) if rules.flush and memory else None
        self._spent, self._attempts, self._wanted, self._sent = Spent(), 0, False, 0
        self._steps = 0
        """Replies of this turn so far: failed calls do not count, so a retry asks for the same step."""
        self._contents = Contents()
        self._last, self._began = Message(role="assistant"), 0.0
        self._deadline: asyncio.Timeout | None = None
        self.transcript = Transcript(session, keep, clock)
        self.compactor = self._stand()

    @property
    def session(self) -> Session:
        """The session as it stands."""
        return self.transcript.session

    # -- the turn ------------------------------------------------------------------------------------------------

    async def turn(self, prompt: str) -> Outcome:
        """Take one turn.

        Raises:
            BadArguments: the prompt is empty, or a limit cannot be kept.
            asyncio.CancelledError: the turn was interrupted; what was said so far is in the session, marked.
        """
        if not prompt.strip():
            raise BadArguments("Say what the agent shall do.")
        ended: Ended = "answered"
        self._begin(prompt)
        try:
            async with asyncio.timeout(self.limits.seconds) as self._deadline:
                why = await self._answer()
        except TimeoutError:
            ended, why = "limit", self._over()
            self._tell("limit_reached", {"limit": why})
        except _LimitReached as e:
            ended, why = "limit", f"stopped at {e}"
            self._tell("limit_reached", {"limit": str(e)})
        except ModelError as e:
            ended, why = "error", str(e)
        except Exception:
            self.compactor.stand()  # what is not in the session did not happen
            raise
        return self._end(ended, why)

    async def compact(self, policy: Any = None, *, trigger: str = "manual", focus: str = "") -> tuple[Edit, ...]:
        """Compact now (see `Compactor.compact`)."""
        return await self.compactor.compact(self._spent, self.limits, policy, trigger=trigger, focus=focus)

    def move(self, session: Session, keep: Keep | None = None) -> None:
        """Go on from another place: a branch, an earlier checkpoint, another session."""
        self.transcript = Transcript(session, keep, self._clock)
        self.compactor = self._stand()

    def _begin(self, prompt: str) -> None:
        spent = Spent(free=bool(self.model.notice))
        spent.exceeded(
            self.limits, self.model.name, 0
        )  # a limit that cannot be kept is said before anything is written
        self._spent, self._attempts, self.compactor.made, self._wanted = spent, 0, 0, False
        self._last, self._began, self._steps = Message(role="assistant"), self._clock(), 0
        for call in self.transcript.unanswered():  # the kernel was killed, or the kit failed, while a tool ran
            self._said(self.transcript.unrun(call, LOST))
        self.transcript.begin()
        self.compactor.budget.begin()
        self._said(self.transcript.user(prompt))
        self._tell("turn_start", {"content_chars": len(prompt)})

    async def _answer(self) -> str:
        """Ask and run tools until the model is done; return what must be said of its last reply."""
        while True:
            self._last = reply = await self._call()
            if reply.tool_calls:
                await self._run(reply)
            if reply.stop == "length":
                if self._attempts >= self.limits.attempts:
                    return "the reply was cut by its limit of length"
                self._attempts += 1
                await self.compactor.force(self._spent, self.limits, "length")
                if not reply.tool_calls:
                    self._said(self.transcript.user(GO_ON, kind="injected"))
            elif not reply.tool_calls:
                return "" if _answer(reply).strip() else "the model gave an empty reply"
            if self._wanted:
                self._wanted = False
                await self.compactor.force(self._spent, self.limits, "agent_requested")

    def _end(self, ended: Ended, why: str) -> Outcome:
        s = self._spent
        s.seconds = self._clock() - self._began
        counts = {"input_tokens": s.fresh + s.cached, "output_tokens": s.output, "cached_input_tokens": s.cached}
        self._tell(
            "turn_end", {**counts, "elapsed_ms": round(s.seconds * 1000), "tool_rounds": s.calls, "ended": ended}
        )
        return Outcome(
            text=_answer(self._last),
            ended=ended,
            why=why,
            spent=s,
            compactions=self.compactor.made,
            context_tokens=self._sent,
            context_window=self.compactor.context.run.room.limit,
            notice=self.model.notice,
        )

    # -- one call ------------------------------------------------------------------------------------------------

    async def _call(self) -> Message:
        """Make a call and recover from an overflow: compact and ask again, then trim for the call, then give up."""
        stage, compacted = -1, False
        while True:
            self._check(self.compactor.context.tokens)
            prepared = await self.compactor.prepare(self._spent, self.limits)
            self._sent = prepared.tokens
            messages, stage = self._within_payload(prepared.messages, stage)
            try:
                return self._replied(await self._ask(messages, prepared.tokens))
            except ModelError as e:
                self._failed(e)
                if not e.overflow or self._attempts >= self.limits.attempts:
                    raise
                self._attempts += 1
                if not compacted:
                    compacted = True
                    if await self.compactor.force(self._spent, self.limits, "overflow"):
                        continue
                stage += 1
                if stage >= len(STAGES):
                    raise
                self._trimmed(stage)

    def _check(self, tokens: int) -> None:
        self._spent.seconds = self._clock() - self._began
        reason = self._spent.exceeded(self.limits, self.model.name, tokens)
        if reason:
            raise _LimitReached(reason)

    def _trimmed(self, stage: int, **more: Any) -> None:
        self._tell("context_exceeded_recovery", {"stage": stage + 1, "chars": STAGES[stage], **more})
        self._tell("context_budget_cutover", {"reason": "context_exceeded"})

    def _within_payload(self, whole: tuple[Message, ...], stage: int) -> tuple[tuple[Message, ...], int]:
        """Trim to the stage, and further before the stream starts where the prompt has more bytes than may be sent."""
        limit = self.limits.payload_bytes
        messages = whole if stage < 0 else trimmed(whole, stage)
        while limit is not None and payload_bytes(messages) > limit and stage + 1 < len(STAGES):
            stage += 1
            messages = trimmed(whole, stage)
            self._trimmed(stage, payload=limit)
        return messages, stage

    async def _ask(self, messages: tuple[Message, ...], tokens: int) -> Message:
        schemas = tuple(t.schema for t in self.tools.values())
        request = Request(messages=messages, tools=schemas, turn=self.transcript.turn, step=self._steps)
        chars, seq = sum(s.chars or 0 for s in schemas), self._spent.calls + 1
        self._tell("inner_call_context", self._contents.of(messages, seq=seq, schema_chars=chars, tokens=tokens))
        self._tell("model_call", {"model": self.model.name, "message_count": len(messages), "call_seq": seq})
        heard: list[str] = []

        def hear(delta: Delta) -> None:
            if delta.kind == "text":
                heard.append(delta.text)
            self._tell("delta", {"kind": delta.kind, "text": redact(delta.text)})

        try:
            reply = await self.model(request, hear)
        except asyncio.CancelledError:
            why = self._over() if self._late else "interrupted by the user"
            self._said(self.transcript.failed(self.model.name, why, "aborted", "".join(heard)))
            self._tell("cancelled", {"chars": sum(map(len, heard)), "why": why})
            raise
        except ModelError as e:
            raise ModelError(redact(str(e)), overflow=e.overflow) from None
        except Exception as e:  # noqa: BLE001  a model of the user's may raise anything
            raise ModelError(
                f"{self.model.name}: {type(e).__name__}: {redact(str(e))[:1000]}", overflow=is_overflow(e)
            ) from None
        window = self.compactor.context.run.room.limit
        if overflowed_silently(reply, window):
            self._spent.add_summary(
                reply.usage or Usage(), self.model.name, free=self._spent.free
            )  # billed all the same
            raise ModelError(f"{self.model.name} cut the prompt: it is larger than {window:,} tokens.", overflow=True)
        return reply

    def _replied(self, reply: Message) -> Message:
        kept = self._said(self.transcript.add(reply, "a"))
        self._steps += 1
        self._spent.add(kept.usage, self.model.name, self._sent)
        u = kept.usage
        self.compactor.budget.called(u)
        counts = {"input_tokens": u and u.prompt_tokens, "output_tokens": u and u.output_tokens}
        self._tell(
            "model_response", {"model": kept.model, "finish_reason": kept.stop, **counts, "call_seq": self._spent.calls}
        )
        return kept

    def _failed(self, error: ModelError) -> None:
        self._spent.add(None, self.model.name)
        self._said(self.transcript.failed(self.model.name, str(error)))
        self._tell("model_error", {"error": str(error), "overflow": error.overflow})

    async def _run(self, reply: Message) -> None:
        """Run the tools of a reply, one after the other; an interrupt leaves a result for each call."""
        for i, call in enumerate(reply.tool_calls):
            self._tell("tool_call", {"tool_name": call.name, "args": call.arguments})
            try:
                result = await run_tool(call, self.tools, approve=self._approve, offload=self._offload)
            except asyncio.CancelledError:
                why = f"{self._over().capitalize()}, before it ended." if self._late else INTERRUPTED
                for left in reply.tool_calls[i:]:
                    self._said(self.transcript.unrun(left, why))
                self._tell("cancelled", {"tool": call.name, "why": why})
                raise
            kept = self._said(self.transcript.add(result, "r"))
            self._tell(
                "tool_result", {"tool_name": call.name, "result_chars": len(kept.text), "is_error": kept.is_error}
            )

    # -- inside --------------------------------------------------------------------------------------------------

    def _stand(self) -> Compactor:
        return Compactor(
            self.transcript,
            self.rules,
            tools=tuple(t.schema for t in self.tools.values()),
            limit=self.model.context_window,
            writer=self._writer,
            seconds=self._seconds,
            memory=self._memory,
            tell=self._tell,
        )

    @property
    def _late(self) -> bool:
        return self._deadline is not None and self._deadline.expired()

    def _over(self) -> str:
        return f"stopped at the limit of {self.limits.seconds or 0:g} seconds"

    def _said(self, message: Message) -> Message:
        self.compactor.context.add(message)
        return message

    def _asked_to_compact(self) -> str:
        """Ask for the conversation to be compacted after this step, when it has grown long."""
        self._wanted = True
        return "COMPACT_REQUESTED"

    def _tell(self, kind: str, payload: dict[str, Any]) -> None:
        self._hear(Event(kind, self._clock(), self.transcript.turn, payload))


def _answer(reply: Message) -> str:
    """Return what a reply says to the user: its text, without the thinking."""
    return "\n".join(p.text for p in reply.parts if isinstance(p, Text))
