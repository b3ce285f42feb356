"""An agent of another program, driven over ACP, recorded as a live session.

It leads itself: its model, its tools, its compactions. The gauge is what it tells of its context; a
compaction is a fall of that, and marked as derived. Its own log knows more (`own_log`).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit._internal.formatting import sanitize_line
from ctxkit.agent.acp_client import ReplyBuilder, parse_acp_usage, with_call_id
from ctxkit.agent.agent import Agent, tool_result_payload
from ctxkit.agent.models.model import Delta
from ctxkit.agent.transcript import INTERRUPTED_RESULT
from ctxkit.agent.turn import LimitReached, SpentInTurn, Turn
from ctxkit.errors import BadArguments, ModelError
from ctxkit.formats.fields import as_dict
from ctxkit.session.messages import Edit, Image, Message, ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import NoReturn

    from ctxkit.agent.acp_client import AcpClient
    from ctxkit.agent.models.model import Emit, Request
    from ctxkit.agent.tools.tool import Tool
    from ctxkit.policies.protocols import Policy
    from ctxkit.session.messages import Usage


COMPACTION_DROP = 1 / 3
"""Share of its context by which the gauge of an agent falls at a compaction, at least."""
ACP_SESSION_KEY = "acp_session"
"""Where `Message.details` has the id of the agent's own conversation."""
_SILENCE_SECONDS = 900.0


class ExternalAgent(Agent):
    """An agent of another program at work on one session; takes what `Agent` takes, and the agent.

    Args:
        acp: the agent.
        folder: where it works.
        servers: MCP servers that it is told of, as the protocol has them.
    """

    def __init__(
        self,
        session: Any,
        *,
        acp: AcpClient,
        folder: str,
        servers: Sequence[dict[str, Any]] = (),
        **more: Any,
    ) -> None:
        self.acp, self._folder, self._servers = acp, folder, servers
        self.used, self.size, self._dollars = 0, 0, 0.0
        self._fresh_start = False
        super().__init__(session, **more)

    def _offer_tools(self, tools: Sequence[Tool]) -> tuple[Tool, ...]:  # noqa: ARG002  those of its own
        return ()

    def _new_spending(self) -> SpentInTurn:
        return SpentInTurn(free=True)  # no price is known before the agent tells one

    def gauge(self) -> tuple[int, int]:
        """Return the tokens of its context and its window, as told; else as counted here."""
        used, size = super().gauge()
        return (self.used or used), (self.size or size)

    def move(self, session: Any, keep: Any = None) -> None:
        """Stand elsewhere; the agent, which cannot go back, begins anew there."""
        super().move(session, keep)
        self._fresh_start = True

    async def compact(
        self,
        policy: Policy | None = None,  # noqa: ARG002  an agent's shape
        *,
        focus: str = "",  # noqa: ARG002
        instead: Policy | None = None,  # noqa: ARG002
    ) -> tuple[Edit, ...]:
        """Refuse: the agent compacts by itself.

        Raises:
            BadArguments: always.
        """
        raise BadArguments(
            f"{self.model.name} compacts by itself; many do so when asked `/compact`."
        )

    # -- the turn --------------------------------------------------------------------------------

    def _begin_turn(self, prompt: Message, heard: Sequence[Message]) -> Turn:
        if self.limits.tokens is not None:  # which only the agent itself could keep
            raise BadArguments(
                f"{self.model.name} counts its tokens by itself: give --max-seconds or --max-calls."
            )
        return super()._begin_turn(prompt, heard)

    async def _answer_prompt(self, turn: Turn) -> str:
        turn.spent.free, turn.spent.cost_usd, turn.dollars = False, None, self._dollars
        await self._opened()
        said = self.transcript.session.messages[-1]
        if not self.acp.pictures and any(isinstance(p, Image) for p in said.parts):
            raise ModelError(f"{self.model.name} takes no pictures: leave --attach out.")
        told = ReplyBuilder(self.model.name)
        queue = await self.acp.prompt([to_acp_content(p) for p in said.parts])
        try:
            return await self._listen(queue, told, turn)
        except (asyncio.CancelledError, LimitReached) as e:
            await stop_acp_turn(self.acp, queue)
            self._left(told, turn, e)
            raise
        except ModelError:
            self._left(told, turn, None)
            raise
        finally:
            self.acp.done()

    async def _opened(self) -> None:
        said = (e.details.get(ACP_SESSION_KEY) for e in reversed(self.transcript.session.messages))
        known = next(filter(None, said), None)
        running, before = self.acp.session, bool(self.transcript.session.calls)
        if self._fresh_start:
            self.acp.session, running, known = None, None, None
        goes_on = await self.acp.open(self._folder, again=known or running, servers=self._servers)
        self._fresh_start = False
        if before and not goes_on:
            why = "it begins anew here, and knows nothing of what was said before"
            self.tell("model_wait", {"why": f"{self.model.name}: {why}"})

    async def _listen(self, queue: asyncio.Queue[Any], told: ReplyBuilder, turn: Turn) -> str:
        """Take what comes until the agent answers the prompt; return what must be said of that."""
        while True:
            try:
                message = await asyncio.wait_for(queue.get(), _SILENCE_SECONDS)
            except TimeoutError:
                if turn.late:
                    raise
                raise ModelError(
                    f"{self.model.name} said nothing for {_SILENCE_SECONDS:g} s; it was given up."
                ) from None
            turn.hold()
            if message is None:
                raise ModelError(self.acp.gone or f"{self.model.name} is gone.")
            if "method" not in message:
                return self._ended(message, told, turn)
            if "id" in message:
                await self._requested(message, told, turn)
            elif message["method"] == "session/update":
                self._update(as_dict(as_dict(message.get("params")).get("update")), told, turn)

    def _update(self, update: dict[str, Any], told: ReplyBuilder, turn: Turn) -> None:
        kind = update.get("sessionUpdate")
        if kind in ("agent_message_chunk", "agent_thought_chunk"):
            word = "thinking" if kind == "agent_thought_chunk" else "text"
            self._keep(told.say(word, update), turn)
            if told.usage is not None and told.usage.prompt_tokens:
                self._measured(told.usage.prompt_tokens)
            piece = as_dict(update.get("content")).get("text")
            if isinstance(piece, str):
                delta = Delta(word, piece)  # type: ignore[arg-type]  # one of two of its words
                self.tell("delta", {"kind": delta.kind, "text": delta.text})
        elif kind in ("tool_call", "tool_call_update"):
            self._called(update, told, turn)
        elif kind == "usage_update":
            self._gauged(update, turn)

    def _called(self, update: dict[str, Any], told: ReplyBuilder, turn: Turn) -> None:
        ident = str(update.get("toolCallId") or "")
        known = told.knows(ident)
        self._keep(told.call(update), turn)
        call = told.called(ident)
        if not known:
            self.tell("tool_call", {"tool_name": call.name, "args": call.arguments})

    def _gauged(self, update: dict[str, Any], turn: Turn) -> None:
        """Take what the agent tells of its context, and of its cost."""
        used, size, cost = (update.get(k) for k in ("used", "size", "cost"))
        if type(size) is int and size > 0:
            self.size = size
        amount = as_dict(cost).get("amount")
        if as_dict(cost).get("currency", "USD") == "USD" and isinstance(amount, (int, float)):
            self._dollars = max(float(amount), self._dollars)
            turn.spent.cost_usd = self._dollars - turn.dollars
        if type(used) is int and used >= 0:
            self._measured(used)

    def _measured(self, used: int) -> None:
        """Take how much the agent's context holds; a fall is a compaction."""
        before, self.used = self.used, used
        if before and self.used < before * (1 - COMPACTION_DROP):
            mark = make_derived_compaction(f"fall{len(self.transcript.session.log)}", before, used)
            self.transcript.edit((mark,))
            self.compactor.made += 1
            sizes = {"tokens_before": before, "tokens_after": used}
            self.tell("compaction_end", {"outcome": "compacted", "trigger": "its own", **sizes})

    def _keep(self, messages: Iterator[Message], turn: Turn) -> None:
        """Write what is whole; a reply counts as a call."""
        ids: dict[str, str] = {}
        for message in messages:
            if message.role == "tool":
                kept = self._record(self.transcript.add(with_call_id(message, ids), "r"))
                self.tell("tool_result", tool_result_payload(kept))
                continue
            details = {
                ACP_SESSION_KEY: self.acp.session,
                **({"used": self.used} if self.used else {}),
            }
            begun = self.transcript.session.context_window
            window = self.size if self.size and self.size != begun else None
            reply = replace(message, details=details, context_window=window)
            kept = self._record(self.transcript.add(reply, "a"))
            calls = zip(message.tool_calls, kept.tool_calls, strict=True)
            ids = {was.id: now.id for was, now in calls}
            turn.last, turn.sent, turn.steps = kept, self.gauge()[0], turn.steps + 1
            turn.spent.calls += 1
            if kept.usage is not None:
                add_reported_usage(turn, kept.usage)
            how = {"model": kept.model, "finish_reason": kept.stop, "call_seq": turn.spent.calls}
            self.tell("model_response", how)
            most, dollars = self.limits.calls, self.limits.cost_usd
            if most is not None and turn.spent.calls >= most and kept.tool_calls:
                raise LimitReached(f"the limit of {most} calls")
            if dollars is not None and self._dollars - turn.dollars > dollars:
                raise LimitReached(f"the limit of ${dollars:g}")

    def _ended(self, answer: dict[str, Any], told: ReplyBuilder, turn: Turn) -> str:
        self._keep(told.end(), turn)
        if "error" in answer:
            raise ModelError(self.acp.failure(answer["error"], "session/prompt"))
        result = as_dict(answer.get("result"))
        usage = parse_acp_usage(result.get("usage"))
        if usage is not None and not turn.spent.tokens:  # else each reply told its own
            add_reported_usage(turn, usage)
        return describe_stop_reason(result.get("stopReason"), answered=bool(turn.last.text))

    def _left(self, told: ReplyBuilder, turn: Turn, why: BaseException | None) -> None:
        """Keep what was said of a turn that did not end; calls without an end say so."""
        with suppress(LimitReached):
            self._keep(told.end(), turn)
        if isinstance(why, asyncio.CancelledError):
            self.tell("cancelled", {"why": turn.over if turn.late else INTERRUPTED_RESULT})

    # -- what it asks ----------------------------------------------------------------------------

    async def _requested(self, message: dict[str, Any], told: ReplyBuilder, turn: Turn) -> None:
        params = as_dict(message.get("params"))
        if message["method"] != "session/request_permission":
            await self.acp.refuse(message["id"], str(message["method"]))
            return
        call = as_dict(params.get("toolCall"))
        self._called({**call, "sessionUpdate": "tool_call"}, told, turn)
        word = await self._permitted(told.asked(str(call.get("toolCallId") or "")), turn)
        chosen = choose_permission_option(params.get("options"), word)
        taken = {"outcome": "selected", "optionId": chosen}
        outcome = {"outcome": taken if chosen else {"outcome": "cancelled"}}
        await self.acp.answer(message["id"], outcome)

    async def _permitted(self, call: ToolCall, turn: Turn) -> str:
        """Ask the person: `allow`, `always` or `deny`; where nobody can be asked it is a no."""
        ask = getattr(self.approve, "permit", None)
        if ask is None:
            return "deny"
        async with turn.paused(self._clock):
            try:
                return str(await ask(call))
            except BadArguments as e:
                self.tell("model_wait", {"why": str(e)})
                return "deny"


_PERMISSION_KINDS = {
    "allow": ("allow_once",),
    "always": ("allow_once", "allow_always"),
    "deny": ("reject_once", "reject_always"),
}
"""Which kinds of options a person's word means, the first that is there; "always" is remembered
here, in this session, rather than in the agent's own settings.
"""
_GRACE = 5.0
_STOP_REASONS = {
    "max_tokens": "the reply was cut by its limit of length",
    "max_turn_requests": "the agent stopped at its own limit of calls",
    "refusal": "the agent refused",
    "cancelled": "the agent's turn was cancelled",
}


class AcpModel:
    """The model of an agent that is led elsewhere: a name, which nobody here can call."""

    notice = ""
    context_window: int | None = None

    def __init__(self, agent: AcpClient) -> None:
        self._agent = agent

    @property
    def name(self) -> str:
        """`acp/` and what the agent calls itself, once it has said that."""
        return f"acp/{self._agent.name}"

    @property
    def pictures(self) -> bool | None:
        """Whether the agent takes pictures; None: it was not asked yet."""
        return self._agent.pictures if self._agent.told else None

    def close(self) -> None:
        """End the agent."""
        self._agent.close()

    async def __call__(self, request: Request, emit: Emit) -> NoReturn:  # noqa: ARG002  a model's shape
        """Refuse: only the agent itself asks its model."""
        raise ModelError(f"{self.name} leads itself: its model cannot be asked from here.")


def choose_permission_option(options: Any, word: str) -> str | None:
    """Return the option that a word means; for "always" one that allows once, where there is no
    other.
    """
    offered = [o for o in options if isinstance(o, dict)] if isinstance(options, list) else []
    for kind in _PERMISSION_KINDS.get(word, ()):
        for option in offered:
            if option.get("kind") == kind and isinstance(option.get("optionId"), str):
                return str(option["optionId"])
    return None


def describe_stop_reason(stop: Any, *, answered: bool) -> str:
    """Return what must be said of how an agent ended its turn; nothing where it answered."""
    if stop == "end_turn":
        return "" if answered else "the agent gave no answer"
    return _STOP_REASONS.get(str(stop)) or f"the agent ended with {sanitize_line(str(stop), 40)}"


def make_derived_compaction(ident: str, before: int, used: int) -> Edit:
    """Return the mark of a compaction that shows in nothing but an agent's gauge."""
    return Edit(
        kind="dropped",
        id=ident,
        trigger="auto",
        method="agent",
        reason="the agent's own gauge fell",
        source="derived",
        tokens_before=before,
        tokens_after=used,
    )


async def stop_acp_turn(agent: AcpClient, queue: asyncio.Queue[Any]) -> None:
    """Have an agent end its turn; what it still says is left, and its questions are answered so.

    One that does not end is ended.
    """
    with suppress(ModelError, TimeoutError):
        async with asyncio.timeout(_GRACE):
            await agent.cancel()
            while (message := await queue.get()) is not None and "method" in message:
                if message["method"] == "session/request_permission":
                    await agent.answer(message.get("id"), {"outcome": {"outcome": "cancelled"}})
            return
    agent.close()


def add_reported_usage(turn: Turn, usage: Usage) -> None:
    """Count what an agent told of its usage."""
    turn.spent.fresh += (usage.prompt_tokens or 0) - (usage.cache_read_tokens or 0)
    turn.spent.cached += usage.cache_read_tokens or 0
    turn.spent.output += usage.output_tokens or 0


def to_acp_content(part: Any) -> dict[str, Any]:
    """Return a part of a prompt as the protocol has it."""
    if isinstance(part, Image):
        return {"type": "image", "data": part.data, "mimeType": part.media_type}
    return {"type": "text", "text": part.text}
