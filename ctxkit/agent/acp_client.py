"""Client of agents that speak the Agent Client Protocol: their process, updates and own logs.

The protocol is JSON-RPC, one message a line (<https://agentclientprotocol.com>). Messages are read
leniently: missing or new fields are no errors. The agent is offered no files and no terminal of
this process; it has its own, and asks before it uses them.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import os
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec.structs import replace

from ctxkit._internal.distribution_version_and_conflicts import get_version
from ctxkit._internal.formatting_and_sanitizing import sanitize_line
from ctxkit.agent.child_processes import ChildProcess
from ctxkit.agent.event_loop_threads import EventLoopClientBase, EventLoopThread
from ctxkit.agent.tools.execution_and_results import OutputLimits
from ctxkit.errors import BadArguments, ModelError
from ctxkit.session.messages import Attachment, Message, Text, Thinking, ToolCall, Usage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


PROTOCOL_VERSION = 1
MAX_RUNNING_AGENTS = 8
"""Programs that may run at the same time in a kernel."""
_QUEUE_SIZE = 1000
"""Messages that may wait for a turn; beyond, the agent has to wait."""
_AUTH_REQUIRED = -32000
"""Error code of an agent that needs a login first."""
_METHOD_NOT_FOUND = -32601


# Two event loops
#
# The agent's process and its pipes live on a loop of their own, so that they outlast a turn. A turn
# runs on another loop and calls over with `EventLoopThread.hear`. Messages of the agent go back
# through the turn's bounded queue (`_inbox`): a full queue blocks the reader, and so the agent.
# Without a turn, requests of the agent are refused and updates are dropped.
#
# Requests sent here wait in a table of futures by id. When the program ends, each of them is
# resolved with None, so nobody waits forever.


class AcpClient(EventLoopClientBase):
    """An agent in a process of its own, started at the first `open` and again after it ended.

    Args:
        command: the program and its arguments.
        seconds: seconds that the start and opening a session may take.
    """

    _LOOP = "ctxkit-acp"
    _running: ClassVar[list[AcpClient]] = []
    """Clients with a running program, in the order of their start."""
    _running_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, command: Sequence[str], *, seconds: float = 60.0) -> None:
        super().__init__()
        if not command:
            raise BadArguments("Name the agent's command, such as acp:'gemini --experimental-acp'.")
        self.command, self._seconds = list(command), seconds
        self.name = os.path.basename(command[0])  # noqa: PTH119  a name, not a place
        self.initialize_answer: dict[str, Any] = {}
        """The agent's answer to `initialize`."""
        self.session: str | None = None
        """Id of the open conversation."""
        self._child = ChildProcess(self._label)
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._last_request = 0
        # References, so that running tasks are not garbage-collected.
        self._deliveries: deque[asyncio.Task[None]] = deque(maxlen=8)
        self._pump: asyncio.Task[None] | None = None
        self._inbox: (
            tuple[asyncio.AbstractEventLoop, asyncio.Queue[dict[str, Any] | None]] | None
        ) = None

    # -- called from a turn's loop ---------------------------------------------------------------

    async def open(
        self,
        folder: str,
        *,
        resume_id: str | None = None,
        servers: Sequence[Mapping[str, Any]] = (),
    ) -> bool:
        """Open a conversation in a folder; return whether it continues the one asked for.

        One that is open stays open while its program runs, whatever the arguments are.

        Args:
            folder: working folder of the agent.
            resume_id: id of a conversation to continue, if the agent can.
            servers: MCP servers for the agent.

        Raises:
            ModelError: the agent cannot be started, does not answer, speaks another protocol, or
                needs a login.
        """
        loop = self._on_loop()
        if self.session is not None and not self._child.over:
            return self.session == resume_id
        return await loop.run(self._open_on_loop(folder, resume_id, list(servers)))

    async def prompt(self, parts: list[dict[str, Any]]) -> asyncio.Queue[dict[str, Any] | None]:
        """Send a prompt; return the queue of the agent's messages.

        It gets requests and updates, and at last the answer, `{"result": ...}` or `{"error": ...}`;
        None says that the agent has ended.
        """
        queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue(_QUEUE_SIZE)
        self._inbox = asyncio.get_running_loop(), queue
        await self._open_loop.run(self._start_prompt(parts))
        return queue

    async def answer(self, ident: Any, result: Mapping[str, Any]) -> None:
        """Answer a request of the agent.

        Args:
            ident: id of the JSON-RPC request.
            result: its `result`.
        """
        await self._open_loop.run(
            self._child.send({"jsonrpc": "2.0", "id": ident, "result": dict(result)})
        )

    async def refuse_request(self, ident: Any, method: str) -> None:
        """Refuse a request of the agent for a method that is not served here.

        Args:
            ident: id of the JSON-RPC request.
            method: the method that it names.
        """
        error = {
            "code": _METHOD_NOT_FOUND,
            "message": f"{sanitize_line(method, 60)} is not served here",
        }
        await self._open_loop.run(self._child.send({"jsonrpc": "2.0", "id": ident, "error": error}))

    async def cancel(self) -> None:
        """Ask the agent to cancel its turn."""
        await self._open_loop.run(self._child.send({
            "jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": self.session},
        }))  # fmt: skip

    def end_turn(self) -> None:
        """Stop delivering messages to the turn that ended."""
        self._inbox = None

    @property
    def end_reason(self) -> str:
        """Reason why the program ended; empty while it runs."""
        return self._child.over

    @property
    def pictures(self) -> bool:
        """Whether the agent takes images in a prompt."""
        takes = _as_dict(
            _as_dict(self.initialize_answer.get("agentCapabilities")).get("promptCapabilities")
        )
        return takes.get("image") is True

    # -- on its own loop -------------------------------------------------------------------------

    @property
    def _label(self) -> str:
        return f"The agent {sanitize_line(self.name, 60)!r}"

    @property
    def _open_loop(self) -> EventLoopThread:
        if self._loop is None:
            raise ModelError(f"{self._label} is closed.")
        return self._loop

    async def _open_on_loop(
        self, folder: str, resume_id: str | None, servers: list[Mapping[str, Any]]
    ) -> bool:
        await self._stop_client()
        try:
            async with asyncio.timeout(self._seconds):
                await self._start_program()
                place = {"cwd": folder, "mcpServers": servers}
                loads = (
                    _as_dict(self.initialize_answer.get("agentCapabilities")).get("loadSession")
                    is True
                )
                if resume_id and loads:
                    with suppress(ModelError):  # the agent may no longer have it
                        await self._send_and_wait("session/load", {**place, "sessionId": resume_id})
                        self.session = resume_id
                        return True
                result = await self._send_and_wait("session/new", place)
        except TimeoutError:
            stderr = self._child.quote_stderr()
            why = f"{self._label} did not answer within {self._seconds:g} s{stderr}"
            await self._stop_client()
            raise ModelError(why) from None
        except (BadArguments, ModelError) as e:
            await self._stop_client()
            raise ModelError(str(e)) from None
        ident = result.get("sessionId")
        if not isinstance(ident, str) or not ident:
            await self._stop_client()
            raise ModelError(
                f"{self._label} opened a session without an id: it speaks half of the protocol."
            )
        self.session = ident
        return False

    async def _start_program(self) -> None:
        """Start the program and exchange `initialize` with it."""
        self._register_running()
        self._child = ChildProcess(self._label)
        await self._child.begin(self.command, env=os.environ)
        self._pump = asyncio.ensure_future(self._dispatch_messages(self._child))
        self.initialize_answer = await self._send_and_wait("initialize", {
            "protocolVersion": PROTOCOL_VERSION,
            "clientCapabilities": {"fs": dict.fromkeys(("readTextFile", "writeTextFile"), False)},
            "clientInfo": {"name": "ctxkit", "version": get_version()},
        })  # fmt: skip
        agent_name = _as_dict(self.initialize_answer.get("agentInfo")).get("name")
        self.name = (
            sanitize_line(agent_name, 60)
            if isinstance(agent_name, str) and agent_name.strip()
            else self.name
        )
        self._child.name = self._label
        if self.initialize_answer.get("protocolVersion") != PROTOCOL_VERSION:
            agent_version = sanitize_line(str(self.initialize_answer.get("protocolVersion")), 20)
            raise ModelError(
                f"{self._label} speaks version {agent_version} of the protocol; here it is "
                f"{PROTOCOL_VERSION}."
            )

    def _register_running(self) -> None:
        """Add this client to the running ones.

        Raises:
            ModelError: too many agents run already.
        """
        with self._running_lock:
            alive = [sanitize_line(each.name, 30) for each in self._running if not each.end_reason]
            if len(alive) >= MAX_RUNNING_AGENTS:
                raise ModelError(
                    f"{MAX_RUNNING_AGENTS} agents of other programs run already"
                    f" ({', '.join(alive)}), and no more run at once:"
                    f" end one by `%context reset` in its session, then"
                    f" ask {self._label.removeprefix('The agent ')} again."
                )
            self._running.append(self)

    async def _send_and_wait(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and return its result.

        Raises:
            ModelError: the answer is an error, or the agent has ended.
        """
        answer = await (await self._send_request(method, params))
        if answer is None:
            raise ModelError(self._child.over or f"{self._label} is gone.")
        if "error" in answer:
            raise ModelError(self.failure(answer["error"], method))
        return _as_dict(answer.get("result"))

    async def _send_request(self, method: str, params: Mapping[str, Any]) -> asyncio.Future[Any]:
        self._last_request += 1
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending[self._last_request] = future
        message = {
            "jsonrpc": "2.0",
            "id": self._last_request,
            "method": method,
            "params": dict(params),
        }
        await self._child.send(message)
        if self._child.over:
            self._fail_pending()
        return future

    async def _start_prompt(self, parts: list[dict[str, Any]]) -> None:
        future = await self._send_request(
            "session/prompt", {"sessionId": self.session, "prompt": parts}
        )
        future.add_done_callback(
            lambda f: self._deliveries.append(
                asyncio.ensure_future(self._deliver_message(f.result()))
            )
        )

    async def _dispatch_messages(self, child: ChildProcess) -> None:
        """Dispatch the agent's messages in order: answers to futures, all else to the turn."""
        while (message := await child.receive()) is not None:
            if "method" in message:
                await self._deliver_message(message)
                continue
            future = self._pending.pop(_request_number(message.get("id")), None)
            if future is not None and not future.done():
                future.set_result(message)
        self._fail_pending()

    async def _deliver_message(self, message: dict[str, Any] | None) -> None:
        """Put a message into the turn's queue; without a turn, refuse requests, drop the rest."""
        if self._inbox is None:
            if message is not None and "id" in message and "method" in message:
                error = {"code": _METHOD_NOT_FOUND, "message": "no turn is under way"}
                await self._child.send({"jsonrpc": "2.0", "id": message["id"], "error": error})
            return
        loop, queue = self._inbox
        with suppress(RuntimeError):  # the turn's loop is closed
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(queue.put(message), loop))

    def _fail_pending(self) -> None:
        """Resolve all pending requests with None, as the program has ended."""
        for future in self._pending.values():
            if not future.done():
                future.set_result(None)
        self._pending.clear()

    async def _stop_client(self) -> None:
        pump, self._pump, self.session = self._pump, None, None
        with self._running_lock:
            self._running[:] = [each for each in self._running if each is not self]
        if pump is not None:
            await self._child.end()
            pump.cancel()
            with suppress(asyncio.CancelledError):
                await pump
        self._fail_pending()

    def failure(self, error: Any, method: str) -> str:
        """Return an error of the agent as a sentence.

        Args:
            error: the `error` of a JSON-RPC response.
            method: the method that failed.
        """
        fields = _as_dict(error)
        message = sanitize_line(str(fields.get("message") or "no reason"), 300).rstrip(".")
        more = _as_dict(fields.get("data")).get("details")
        more = f" ({sanitize_line(str(more), 200)})" if more else ""
        if fields.get("code") == _AUTH_REQUIRED:
            auth_methods = self.initialize_answer.get("authMethods")
            names = (
                [str(_as_dict(w).get("name") or "") for w in auth_methods]
                if isinstance(auth_methods, list)
                else []
            )
            offered = sanitize_line(", ".join(filter(None, names)), 200)
            how = f" (it offers: {offered})" if offered else ""
            how = f"{how}: log in with it, in a terminal"
            return f"{self._label} asks for a login{how}. It said: {message}."
        if fields.get("code") == _METHOD_NOT_FOUND:
            protocol = "the Agent Client Protocol"
            return f"{self._label} does not know {method}: it does not speak {protocol}."
        return f"{self._label} answered {method} with an error: {message}{more}."


def _as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _request_number(value: Any) -> int:
    """Return the id of a request of ours; 0, which no request has, if it is not a number."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


_MAX_REPLY_CHARS = 1_000_000
"""Characters of a reply's text that are kept."""
_MAX_REPLY_CALLS = 1_000
"""Tool calls of one reply; a further call begins another reply."""
_MAX_DIFF_CHARS = 20_000
"""Characters of a file beyond which a change is described by its sizes only."""
_MAX_TOKEN_COUNT = 10**9
_ENDED_STATUSES = ("completed", "failed")
MISSING_RESULT = "The agent did not say how this call ended."


# Updates into messages
#
# The protocol streams pieces of text and states of tool calls, without saying where a reply ends. A
# reply is taken as complete when text follows its calls, when the message id changes, when a new
# call comes after one that has ended, or when the turn ends. A piece without text that comes while
# none of the calls has ended is the reply's own usage: Qwen Code from 0.24 on announces a call
# before it reports what the reply cost. Then the reply and the results of its calls come out, in
# the order that a conversation has. Texts and numbers of calls are bounded.


class AcpReplyBuilder:
    """Assembles ACP updates into replies and tool results.

    Args:
        model: name of the model for the replies.

    Example:
        >>> from ctxkit.agent import AcpReplyBuilder
        >>> builder = AcpReplyBuilder("claude-code")
        >>> update = {"content": {"type": "text", "text": "Hello"}}
        >>> list(builder.add_text("agent_message_chunk", update))
        []
        >>> [reply.text for reply in builder.end()]
        ['Hello']
    """

    def __init__(self, model: str) -> None:
        self.model = model
        self.usage: Usage | None = None
        """Usage of the open reply, if the agent reports it."""
        self._parts: list[Text | Thinking] = []
        self._calls: dict[str, dict[str, Any]] = {}
        self._message_id: Any = None
        self._chars_left = _MAX_REPLY_CHARS

    def add_text(self, kind: str, update: dict[str, Any]) -> Iterator[Message]:
        """Add a piece of `text` or `thinking`; yield the messages that are complete before it.

        Args:
            kind: "text" or "thinking".
            update: the notification; a new `messageId` begins another message.
        """
        piece = _block_text(update.get("content"))
        ident = update.get("messageId")
        is_other_message = (
            ident is not None and self._message_id is not None and ident != self._message_id
        )
        is_usage_update = not piece and not self._has_ended_call()
        if is_other_message or (self._calls and not is_usage_update):
            yield from self.end()
        self._message_id = ident or self._message_id
        self.usage = parse_acp_usage(_find_meta(update, "usage")) or self.usage
        piece, self._chars_left = piece[: self._chars_left], max(self._chars_left - len(piece), 0)
        part = Thinking if kind == "thinking" else Text
        if self._parts and isinstance(self._parts[-1], part):
            self._parts[-1] = part(self._parts[-1].text + piece)
        elif piece:
            self._parts.append(part(piece))

    def update_call(self, update: dict[str, Any]) -> Iterator[Message]:
        """Add or update a tool call; yield the messages that are complete before it."""
        ident = str(update.get("toolCallId") or "")
        is_full = self._has_ended_call() or len(self._calls) >= _MAX_REPLY_CALLS
        if ident not in self._calls and is_full:
            yield from self.end()
        fields = self._calls.setdefault(ident, {})
        fields.update({k: v for k, v in update.items() if v is not None})

    def _has_ended_call(self) -> bool:
        return any(c.get("status") in _ENDED_STATUSES for c in self._calls.values())

    def has_call(self, ident: str) -> bool:
        """Say whether the open reply has a call of this id."""
        return ident in self._calls

    def get_call(self, ident: str) -> ToolCall:
        """Return a tool call in its current state."""
        return _to_tool_call(ident, self._calls.get(ident, {}))

    def get_call_for_review(self, ident: str) -> ToolCall:
        """Return a tool call with everything reported about it, for a person to decide on."""
        fields = self._calls.get(ident, {})
        raw_input, content = fields.get("rawInput"), fields.get("content")
        parts = content if isinstance(content, list) else [content]
        arguments = {
            **(raw_input if isinstance(raw_input, dict) else {"its input": raw_input}),
            **{f"its {k}": fields.get(k) for k in ("title", "kind", "locations")},
            **{f"its content {n}": _format_for_review(part) for n, part in enumerate(parts, 1)},
        }
        present = {k: v for k, v in arguments.items() if v is not None}
        return replace(self.get_call(ident), arguments=present)

    def end(self) -> Iterator[Message]:
        """End the open reply: yield it and the results of its calls."""
        calls = list(self._calls.items())
        parts = (*self._parts, *(_to_tool_call(i, c) for i, c in calls))
        self._parts = []
        self._calls = {}
        self._message_id = None
        self._chars_left = _MAX_REPLY_CHARS
        usage, self.usage = self.usage, None
        if not parts:
            return
        stop = "tool" if calls else "stop"
        yield Message(role="assistant", parts=parts, model=self.model, stop=stop, usage=usage)
        for ident, call in calls:
            name = _to_tool_call(ident, call).name
            text, images = _result_parts(call)
            has_ended = call.get("status") in _ENDED_STATUSES
            text = text or ("(no output)" if has_ended else MISSING_RESULT)
            text = OutputLimits().shorten(text)
            failed = call.get("status") == "failed" or not has_ended
            yield Message(
                role="tool", tool=name, call_id=ident, parts=(Text(text), *images), is_error=failed
            )


def _to_tool_call(ident: str, fields: dict[str, Any]) -> ToolCall:
    """Return a tool call, named by its tool if that is reported, else by its kind."""
    tool_name = _find_meta(fields, "toolName")
    title, kind = str(fields.get("title") or ""), str(fields.get("kind") or "other")
    first = title.split(" ", maxsplit=1)[0] or "tool"
    name = (
        tool_name
        if isinstance(tool_name, str) and tool_name
        else kind
        if kind != "other"
        else first
    )
    raw_input = fields.get("rawInput")
    arguments = dict(raw_input) if isinstance(raw_input, dict) and raw_input else {}
    locations = fields.get("locations")
    if (
        not arguments
        and isinstance(locations, list)
        and locations
        and isinstance(locations[0], dict)
    ):
        arguments = {"path": str(locations[0].get("path") or "")}
    if title and not arguments:
        arguments = {"title": title}
    return ToolCall(ident, name[:200], arguments)


def parse_acp_usage(usage: Any) -> Usage | None:
    """Return a reported usage in disjoint classes of tokens, or None.

    The protocol does not define whether the input includes cached tokens. If the total equals input
    plus output, it does, and they are subtracted.

    Args:
        usage: of a message of the protocol, not validated yet.

    Returns:
        The usage; None where it names no input tokens.

    Example:
        >>> from ctxkit.agent.acp_client import parse_acp_usage
        >>> usage = {"inputTokens": 100, "outputTokens": 10, "cachedReadTokens": 80}
        >>> parse_acp_usage({**usage, "totalTokens": 110}).input_tokens
        20
    """
    names = ("inputTokens", "outputTokens", "cachedReadTokens", "cachedWriteTokens", "totalTokens")
    counts = usage if isinstance(usage, dict) else {}
    uncached, out, read, write, total = (_parse_count(counts.get(n)) for n in names)
    if uncached is None:
        return None
    if total is not None and total == uncached + (out or 0):
        uncached = max(uncached - (read or 0) - (write or 0), 0)
    return Usage(
        input_tokens=uncached, cache_read_tokens=read, cache_write_tokens=write, output_tokens=out
    )


def _parse_count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < _MAX_TOKEN_COUNT else None


def _find_meta(update: dict[str, Any], name: str) -> Any:
    """Return a vendor's own field of an update (`_meta`), or None."""
    return next((m[name] for m in _meta_dicts(update.get("_meta")) if name in m), None)


def with_stored_call_id(message: Message, ids: dict[str, str]) -> Message:
    """Return a result with the id under which its call was stored.

    Args:
        message: the result of a tool call.
        ids: stored id by the id that the agent uses; other ids stay.
    """
    return replace(message, call_id=ids.get(message.call_id or "", message.call_id))


def _meta_dicts(meta: Any) -> Iterator[dict[str, Any]]:
    if isinstance(meta, dict):
        yield meta
        yield from (v for v in meta.values() if isinstance(v, dict))


def _result_parts(fields: dict[str, Any]) -> tuple[str, list[Attachment]]:
    """Return the text and the images of a call's result."""
    texts: list[str] = []
    images: list[Attachment] = []
    content = fields.get("content")
    for each in content if isinstance(content, list) else ():
        if not isinstance(each, dict):
            continue
        inner = each.get("content")
        if each.get("type") == "diff":
            texts.append(_format_diff(each))
        elif isinstance(inner, dict) and inner.get("type") == "image":
            kind, data = inner.get("mimeType") or "image/png", inner.get("data") or ""
            images.append(Attachment(str(kind), str(data)))
        else:
            texts.append(_block_text(inner))
    raw = fields.get("rawOutput")
    if not any(texts) and not images and raw is not None:
        texts = [raw if isinstance(raw, str) else json.dumps(raw, ensure_ascii=False)]
    return "\n".join(filter(None, texts)), images


def _block_text(content: Any) -> str:
    """Return the text of a content block; for other blocks their type and address."""
    if not isinstance(content, dict):
        return ""
    if isinstance(content.get("text"), str):
        return str(content["text"])
    resource = content.get("resource")
    if isinstance(resource, dict) and isinstance(resource.get("text"), str):
        return str(resource["text"])
    return f"[{content.get('type') or 'content'} {content.get('uri') or ''}]".replace(" ]", "]")


def _format_for_review(part: Any) -> Any:
    """Return a block of a call's content for a person to decide on: a file change as a diff."""
    if not isinstance(part, dict) or part.get("type") != "diff":
        return part
    path, old, new = _parse_change(part)
    if len(old) + len(new) > _MAX_DIFF_CHARS:
        return f"{path}: all of it becomes\n{new}"
    # Split at "\n" only, so that other line ends stay visible.
    return _unified_diff(path, old.split("\n"), new.split("\n"))


def _format_diff(change: dict[str, Any]) -> str:
    path, old, new = _parse_change(change)
    if len(old) + len(new) > _MAX_DIFF_CHARS:
        return f"{path}: {len(old):,} characters became {len(new):,}"
    return _unified_diff(path, old.splitlines(), new.splitlines())


def _parse_change(change: dict[str, Any]) -> tuple[str, str, str]:
    """Return the path of a file change, and the text before and after it."""
    path, old, new = (str(change.get(k) or "") for k in ("path", "oldText", "newText"))
    return path, old, new


def _unified_diff(path: str, old: list[str], new: list[str]) -> str:
    lines = difflib.unified_diff(old, new, path, path, lineterm="", n=2)
    return "\n".join(lines) or f"{path}: unchanged"
