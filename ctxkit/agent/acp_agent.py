"""External agents: another program's agent, driven over ACP and recorded as a live session.

The program chooses its own model, tools and compactions. It reports how full its context is; a drop
of that is recorded as a derived compaction. Its own log has more (`find_agent_log`).
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit._internal.formatting_and_sanitizing import sanitize_line
from ctxkit.agent.acp_reply_builder import AcpReplyBuilder, parse_acp_usage, with_stored_call_id
from ctxkit.agent.agent import Agent, tool_result_payload
from ctxkit.agent.live_context_and_transcript import INTERRUPTED_RESULT
from ctxkit.agent.models.model import Delta
from ctxkit.agent.turn_limits_and_token_budgets import LimitReached, SpentInTurn
from ctxkit.errors import BadArguments, ModelError
from ctxkit.formats.log_discovery import iter_session_files
from ctxkit.formats.reading import read_all
from ctxkit.formats.untrusted_record_parsing import as_dict, float_or_none
from ctxkit.session.messages import REPORTED_CONTEXT_KEY, Attachment, Edit, Message, ToolCall, Usage
from ctxkit.tokens.message_sizes_from_recorded_prompts import measure_sizes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import NoReturn

    from ctxkit.agent.acp_client import AcpClient, TurnInbox
    from ctxkit.agent.models.model import Emit, Request
    from ctxkit.agent.tools.tool import Tool
    from ctxkit.agent.turn_state_and_events import TurnState
    from ctxkit.policies.protocols import Policy
    from ctxkit.session.session import Session


COMPACTION_DROP = 1 / 3
"""Smallest drop of an agent's reported context size, as a share, that counts as a compaction."""
ACP_SESSION_KEY = "acp_session"
"""Key of the agent's own conversation id in `Message.details`."""
_SILENCE_SECONDS = 900.0
_MAX_COST_USD = 1e6
"""The most US dollars that a conversation may report; a larger total is nonsense."""


# A turn of an external agent
#
#   open      a new program, a resumed conversation (its id is in the last message), or a new one
#   prompt    then messages arrive in one queue, in the order of the agent:
#               session/update     text, tool calls, context size -> `AcpReplyBuilder` -> transcript
#               request with id    a permission question, which is answered; others are refused
#               the prompt's own answer   ends the turn
#               None               the program has ended
#   stop      on cancellation or a limit: `session/cancel`, then up to `_CANCEL_SECONDS` for the
#             agent to answer, then its process is killed
#
# Whatever way a turn ends, the text so far is stored, and each open call gets a result that says
# so.


class ExternalAgent(Agent):
    """An agent of another program that works on one session.

    Args:
        session: the session to continue.
        acp: client of the agent.
        folder: its working folder.
        servers: MCP servers for the agent, as the protocol describes them.
        more: the other arguments of `Agent`.
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
        self.used, self.size = 0, 0
        self._spending = ReportedRunningCost()
        self._needs_new_session = False
        super().__init__(session, **more)

    def _offer_tools(self, tools: Sequence[Tool]) -> tuple[Tool, ...]:  # noqa: ARG002  those of its own
        return ()

    def _new_spending(self) -> SpentInTurn:
        return SpentInTurn(free=True)  # no price is known before the agent reports a cost

    @property
    def session(self) -> Session:
        """The session so far. What the agent's prompts held is known to the agent alone."""
        return self.transcript.session

    def attach_prompt_source(self, session: Session) -> Session:
        """Return the session as it is, as no prompt of the agent is known here."""
        return session

    def gauge(self) -> tuple[int, int]:
        """Return the tokens of the context and the window, as reported, else as counted here."""
        session = self.session
        last = session.calls[-1].message if session.calls else None
        window = (last.context_window if last else None) or session.context_window
        used = (
            self.used
            or (last.prompt_tokens if last else None)
            or measure_sizes(session).modelled_tokens()
        )
        return used, self.size or window or self.compactor.context.run.budget.limit

    def move(self, session: Any, append: Any = None) -> None:
        """Continue from another point; the agent cannot go back, so it gets a new conversation."""
        super().move(session, append)
        self._needs_new_session = True

    async def compact(
        self,
        policy: Policy | None = None,  # noqa: ARG002  an agent's shape
        *,
        focus: str = "",  # noqa: ARG002
        fallback: Policy | None = None,  # noqa: ARG002
    ) -> tuple[Edit, ...]:
        """Refuse, as the agent compacts by itself.

        Raises:
            BadArguments: always.
        """
        raise BadArguments(
            f"{self.model.name} compacts by itself; many do so when asked `/compact`."
        )

    # -- the turn --------------------------------------------------------------------------------

    def _begin_turn(self, prompt: Message, preceding: Sequence[Message]) -> TurnState:
        if self.limits.tokens is not None:  # only the agent itself could keep this limit
            raise BadArguments(
                f"{self.model.name} counts its tokens by itself: give --max-seconds or --max-calls."
            )
        return super()._begin_turn(prompt, preceding)

    async def _answer_prompt(self, turn: TurnState) -> str:
        turn.spent.free, turn.spent.cost_usd = False, None
        await self._open_session()
        self._spending.begin_turn()
        prompt = self.transcript.session.messages[-1]
        if not self.acp.pictures and any(isinstance(p, Attachment) for p in prompt.parts):
            raise ModelError(f"{self.model.name} takes no pictures: leave --attach out.")
        builder = AcpReplyBuilder(self.model.name)
        queue = self.acp.begin_turn()
        try:
            await self.acp.prompt([to_acp_content(p) for p in prompt.parts])
            return await self._receive_messages(queue, builder, turn)
        except (asyncio.CancelledError, LimitReached) as e:
            await stop_acp_turn(self.acp, queue)
            self._store_unfinished(builder, turn, e)
            raise
        except ModelError:
            self._store_unfinished(builder, turn, None)
            raise
        finally:
            self.acp.end_turn()

    async def _open_session(self) -> None:
        session_ids = (
            e.details.get(ACP_SESSION_KEY) for e in reversed(self.transcript.session.messages)
        )
        stored_id = next(filter(None, session_ids), None)
        open_id, has_calls = self.acp.session, bool(self.transcript.session.calls)
        if self._needs_new_session:
            self.acp.session, open_id, stored_id = None, None, None
        resumed = await self.acp.open(
            self._folder, resume_id=stored_id or open_id, servers=self._servers
        )
        self._needs_new_session = False
        self._spending.open(self._find_stored_cost() if resumed else 0.0, self.acp.session)
        if has_calls and not resumed:
            why = "it begins anew here, and knows nothing of what was said before"
            self.emit("model_wait", {"why": f"{self.model.name}: {why}"})

    def _find_stored_cost(self) -> float:
        """Return the total that the agent had reported of its conversation, as the log has it."""
        replies = reversed(self.transcript.session.calls)
        totals = (c.message.details.get(TOTAL_COST_KEY) for c in replies)
        return float(next((n for n in totals if isinstance(n, (int, float))), 0.0))

    async def _receive_messages(
        self, queue: TurnInbox, builder: AcpReplyBuilder, turn: TurnState
    ) -> str:
        """Process messages until the agent answers the prompt; return a note on how it ended, or
        "".
        """
        while True:
            try:
                message = await asyncio.wait_for(queue.get(), _SILENCE_SECONDS)
            except TimeoutError:
                if turn.late:
                    raise
                raise ModelError(
                    f"{self.model.name} said nothing for {_SILENCE_SECONDS:g} s; it was given up."
                ) from None
            turn.check_deadline()
            if message is None:
                raise ModelError(self.acp.end_reason or f"{self.model.name} is gone.")
            if "method" not in message:
                return self._finish_answer(message, builder, turn)
            if "id" in message:
                await self._answer_request(message, builder, turn)
            elif message["method"] == "session/update":
                self._apply_update(
                    as_dict(as_dict(message.get("params")).get("update")), builder, turn
                )

    def _apply_update(
        self, update: dict[str, Any], builder: AcpReplyBuilder, turn: TurnState
    ) -> None:
        kind = update.get("sessionUpdate")
        if kind in ("agent_message_chunk", "agent_thought_chunk"):
            delta_kind = "thinking" if kind == "agent_thought_chunk" else "text"
            self._store_messages(builder.add_text(delta_kind, update), turn)
            if builder.usage is not None and builder.usage.prompt_tokens:
                self._apply_context_size(builder.usage.prompt_tokens)
            piece = as_dict(update.get("content")).get("text")
            if isinstance(piece, str):
                delta = Delta(delta_kind, piece)  # type: ignore[arg-type]  # one of two of its words
                self.emit("delta", {"kind": delta.kind, "text": delta.text})
        elif kind in ("tool_call", "tool_call_update"):
            self._apply_tool_call(update, builder, turn)
        elif kind == "usage_update":
            self._apply_usage_update(update, turn)

    def _apply_tool_call(
        self, update: dict[str, Any], builder: AcpReplyBuilder, turn: TurnState
    ) -> None:
        ident = str(update.get("toolCallId") or "")
        is_reported = builder.has_call(ident)
        self._store_messages(builder.update_call(update), turn)
        call = builder.get_call(ident)
        if not is_reported:
            self.emit("tool_call", {"tool_name": call.name, "args": call.arguments})

    def _apply_usage_update(self, update: dict[str, Any], turn: TurnState) -> None:
        """Apply the context size and the cost that the agent reports."""
        used, size, cost = (update.get(k) for k in ("used", "size", "cost"))
        if type(size) is int and size > 0:
            self.size = size
        amount = float_or_none(as_dict(cost).get("amount"))
        is_usd = as_dict(cost).get("currency", "USD") == "USD"
        if is_usd and amount is not None and amount <= _MAX_COST_USD:
            self._spending.report(amount)
            turn.spent.cost_usd = self._spending.in_turn
        if type(used) is int and used >= 0:
            self._apply_context_size(used)

    def _apply_context_size(self, used: int) -> None:
        """Set the size of the agent's context; a large drop is recorded as a compaction."""
        before, self.used = self.used, used
        if before and self.used < before * (1 - COMPACTION_DROP):
            mark = make_derived_compaction(f"fall{len(self.transcript.session.log)}", before, used)
            self.transcript.edit((mark,))
            self.compactor.compaction_count += 1
            sizes = {"tokens_before": before, "tokens_after": used}
            self.emit("compaction_end", {"outcome": "compacted", "trigger": "its own", **sizes})

    def _store_messages(self, messages: Iterable[Message], turn: TurnState) -> None:
        """Store complete messages; each reply counts as a model call."""
        ids: dict[str, str] = {}
        for message in messages:
            if message.role == "tool":
                stored = self._record(self.transcript.add(with_stored_call_id(message, ids), "r"))
                self.emit("tool_result", tool_result_payload(stored))
                continue
            details = {
                ACP_SESSION_KEY: self.acp.session,
                **({REPORTED_CONTEXT_KEY: self.used} if self.used else {}),
                **({TOTAL_COST_KEY: self._spending.total} if self._spending.is_known else {}),
            }
            initial_window = self.transcript.session.context_window
            window = self.size if self.size and self.size != initial_window else None
            reply = replace(self._spending.bill(message), details=details, context_window=window)
            stored = self._record(self.transcript.add(reply, "a"))
            calls = zip(message.tool_calls, stored.tool_calls, strict=True)
            ids = {was.id: now.id for was, now in calls}
            turn.last, turn.sent, turn.steps = stored, self.gauge()[0], turn.steps + 1
            turn.spent.calls += 1
            if stored.usage is not None and stored.kind != "turn":
                add_reported_usage(turn, stored.usage)
            payload = {
                "model": stored.model,
                "finish_reason": stored.stop,
                "call_seq": turn.spent.calls,
            }
            self.emit("model_response", payload)
            max_calls, max_cost_usd = self.limits.calls, self.limits.cost_usd
            if max_calls is not None and turn.spent.calls >= max_calls and stored.tool_calls:
                raise LimitReached(f"the limit of {max_calls} calls")
            if max_cost_usd is not None and self._spending.in_turn > max_cost_usd:
                raise LimitReached(f"the limit of ${max_cost_usd:g}")

    def _finish_answer(
        self, answer: dict[str, Any], builder: AcpReplyBuilder, turn: TurnState
    ) -> str:
        result = as_dict(answer.get("result"))
        usage = parse_acp_usage(result.get("usage"))
        messages = list(builder.end())
        if turn.spent.tokens or any(m.usage is not None for m in messages):
            usage = None  # each reply reported its own
        if usage is not None:
            add_reported_usage(turn, usage)
        self._store_messages(self._with_turn_usage(messages, usage), turn)
        if "error" in answer:
            raise ModelError(self.acp.failure(answer["error"], "session/prompt"))
        return describe_stop_reason(result.get("stopReason"), answered=bool(turn.last.text))

    def _with_turn_usage(self, messages: list[Message], usage: Usage | None) -> list[Message]:
        """Return the last messages of a turn, its usage with the last reply.

        Where no reply is left that could carry what was reported, an empty one does.
        """
        if usage is None and not self._spending.is_owed:
            return messages
        usage = usage or Usage()
        last = next((i for i, m in enumerate(messages) if m.role == "assistant"), None)
        if last is None:
            messages.append(Message(role="assistant", model=self.model.name, stop="stop"))
            last = len(messages) - 1
        if messages[last].usage is None:
            messages[last] = replace(messages[last], usage=usage, kind="turn")
        return messages

    def _store_unfinished(
        self, builder: AcpReplyBuilder, turn: TurnState, error: BaseException | None
    ) -> None:
        """Store the unfinished reply of a turn; open calls get a result that says so."""
        with suppress(LimitReached):
            self._store_messages(self._with_turn_usage(list(builder.end()), None), turn)
        if isinstance(error, asyncio.CancelledError):
            self.emit("cancelled", {"why": turn.over if turn.late else INTERRUPTED_RESULT})

    # -- requests of the agent -------------------------------------------------------------------

    async def _answer_request(
        self, message: dict[str, Any], builder: AcpReplyBuilder, turn: TurnState
    ) -> None:
        params = as_dict(message.get("params"))
        if message["method"] != "session/request_permission":
            await self.acp.refuse_request(message["id"], str(message["method"]))
            return
        call = as_dict(params.get("toolCall"))
        self._apply_tool_call({**call, "sessionUpdate": "tool_call"}, builder, turn)
        decision = await self._ask_permission(
            builder.get_call_for_review(str(call.get("toolCallId") or "")), turn
        )
        chosen = choose_permission_option(params.get("options"), decision)
        selection = {"outcome": "selected", "optionId": chosen}
        outcome = {"outcome": selection if chosen else {"outcome": "cancelled"}}
        await self.acp.answer(message["id"], outcome)

    async def _ask_permission(self, call: ToolCall, turn: TurnState) -> str:
        """Ask the user for `allow`, `always` or `deny`; `deny` if nobody can be asked."""
        ask = getattr(self.approve, "permit", None)
        if ask is None:
            return "deny"
        async with turn.paused(self._clock):
            try:
                return str(await ask(call))
            except BadArguments as e:
                self.emit("model_wait", {"why": str(e)})
                return "deny"


TOTAL_COST_KEY = "total_cost_usd"
"""Key of a reply's details for the dollars of the agent's conversation so far, as it reports them.
"""


class ReportedRunningCost:
    """The dollars that an agent reports: a running total of its conversation, billed by turns."""

    def __init__(self) -> None:
        self.total = 0.0
        """The total that was reported last."""
        self.is_known = self._is_billed = False
        self._conversation: str | None = None
        self._turn_start = self._billed = 0.0

    def open(self, total: float, conversation: str | None) -> None:
        """Begin or continue a conversation.

        Args:
            total: US dollars that its log reports so far.
            conversation: id of the conversation; the one that is open already keeps its total.
        """
        if conversation != self._conversation:
            self._conversation, self.total, self._billed = conversation, total, total

    def begin_turn(self) -> None:
        """Begin a turn."""
        self._turn_start, self.is_known, self._is_billed = self.total, False, False

    def report(self, total: float) -> None:
        """Take a total; one below the last is of a process that began to count again."""
        if total < self.total and not self.is_known:
            self._turn_start = self._billed = 0.0
            self.total = total
        self.total, self.is_known = max(total, self.total), True

    @property
    def in_turn(self) -> float:
        """Dollars of the turn so far."""
        return self.total - self._turn_start

    @property
    def is_owed(self) -> bool:
        """Whether the agent reported dollars, zero too, that no reply of the turn carries yet."""
        return self.total > self._billed or (self.is_known and not self._is_billed)

    def bill(self, reply: Message) -> Message:
        """Return a reply that has usage with the dollars reported since the last such reply."""
        if not self.is_known or reply.usage is None:
            return reply
        usage = replace(reply.usage, cost_usd=self.total - self._billed)
        self._billed, self._is_billed = self.total, True
        return replace(reply, usage=usage)


_PERMISSION_KINDS = {
    "allow": ("allow_once",),
    "always": ("allow_once", "allow_always"),
    "deny": ("reject_once", "reject_always"),
}
"""Kinds of options for each decision, in order of preference. "always" prefers to allow once: it is
remembered by this session rather than in the agent's own settings.
"""
_CANCEL_SECONDS = 5.0
_STOP_REASONS = {
    "max_tokens": "the reply was cut by its limit of length",
    "max_turn_requests": "the agent stopped at its own limit of calls",
    "refusal": "the agent refused",
    "cancelled": "the agent's turn was cancelled",
}


class AcpModelPlaceholder:
    """The model of an external agent: it has a name and cannot be called from here."""

    notice = ""
    context_window: int | None = None

    def __init__(self, agent: AcpClient) -> None:
        self._agent = agent

    @property
    def name(self) -> str:
        """`acp/` and the agent's name, as reported once it runs."""
        return f"acp/{self._agent.name}"

    @property
    def pictures(self) -> bool | None:
        """Whether the agent takes images; None: not known before it runs."""
        return self._agent.pictures if self._agent.initialize_answer else None

    def close(self) -> None:
        """End the agent's process."""
        self._agent.close()

    async def __call__(self, request: Request, emit: Emit) -> NoReturn:  # noqa: ARG002  a model's shape
        """Refuse, as only the agent itself can call its model."""
        raise ModelError(f"{self.name} leads itself: its model cannot be asked from here.")


def choose_permission_option(options: Any, word: str) -> str | None:
    """Return the id of the option for a decision, or None if the agent offers none.

    Args:
        options: the options of the agent's request, as it sent them.
        word: the user's decision: `allow`, `always` or `deny`.
    """
    offered = [o for o in options if isinstance(o, dict)] if isinstance(options, list) else []
    for kind in _PERMISSION_KINDS.get(word, ()):
        for option in offered:
            if option.get("kind") == kind and isinstance(option.get("optionId"), str):
                return str(option["optionId"])
    return None


def describe_stop_reason(stop: Any, *, answered: bool) -> str:
    """Return a note on how an agent ended its turn; empty if it answered.

    Args:
        stop: the `stopReason` of the protocol.
        answered: whether the last reply has text.
    """
    if stop == "end_turn":
        return "" if answered else "the agent gave no answer"
    return _STOP_REASONS.get(str(stop)) or f"the agent ended with {sanitize_line(str(stop), 40)}"


def make_derived_compaction(ident: str, before: int, used: int) -> Edit:
    """Return an edit for a compaction that only shows in the reported context size.

    Args:
        ident: id of the edit.
        before: tokens of the context before the drop, as the agent reported them.
        used: tokens after it.
    """
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


async def stop_acp_turn(agent: AcpClient, queue: TurnInbox) -> None:
    """Cancel an agent's turn: drop its messages, cancel its questions, kill it if it continues.

    Args:
        agent: the client of the agent's process.
        queue: messages of the agent that nobody has read yet; None: the turn is over.
    """

    async def cancel_turn() -> None:
        await agent.cancel()
        while (message := await queue.get()) is not None and "method" in message:
            if message["method"] == "session/request_permission":
                await agent.answer(message.get("id"), {"outcome": {"outcome": "cancelled"}})

    # In Python 3.11.2 `asyncio.timeout` does not end in a task that is being cancelled (gh-102780).
    try:
        await asyncio.wait_for(cancel_turn(), _CANCEL_SECONDS)
    except (ModelError, TimeoutError):
        agent.close()


def add_reported_usage(turn: TurnState, usage: Usage) -> None:
    """Add the usage that an agent reported to the turn.

    Args:
        turn: its spending is changed in place.
        usage: tokens of one call or of the whole turn; unknown classes count as 0.
    """
    turn.spent.fresh += (usage.prompt_tokens or 0) - (usage.cache_read_tokens or 0)
    turn.spent.cached += usage.cache_read_tokens or 0
    turn.spent.output += usage.output_tokens or 0


def to_acp_content(part: Any) -> dict[str, Any]:
    """Return a part of a prompt as an ACP content block."""
    if isinstance(part, Attachment):
        return {"type": "image", "data": part.data, "mimeType": part.media_type}
    return {"type": "text", "text": part.text}


def find_agent_log(ident: str, since: float, home: str | None = None) -> Session | None:
    """Return an agent's own log of a conversation as a session, or None.

    Args:
        ident: the conversation's id, as the agent reported it.
        since: seconds since 1970; only files written later are read.
        home: home folder with the tools' folders; None: the user's.

    Returns:
        The session with that id; `_MAX_LOGS_READ` files are read, those named by the id first.
    """
    if not ident:
        return None
    changed = sorted(_recent_logs(ident, since, home), reverse=True)
    for _, _, path in islice(changed, _MAX_LOGS_READ):
        for session in read_all(path, progress=False):
            if ident in (session.id, *session.details.values()) or ident in Path(path).name:
                return session
    return None


def _recent_logs(ident: str, since: float, home: str | None) -> Iterator[tuple[bool, float, str]]:
    for _, entry, _ in iter_session_files(home):
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        is_named = ident[:8] in entry.name
        if status.st_mtime >= since - _CLOCK_SKEW and (is_named or status.st_size < _MAX_LOG_BYTES):
            yield is_named, status.st_mtime, os.fspath(entry.path)


_MAX_LOGS_READ, _MAX_LOG_BYTES = 8, 50_000_000
"""Log files that are read at most, those named by the id first; bytes of any other file."""
_CLOCK_SKEW = 5.0
"""Seconds by which file times may be behind the clock."""
