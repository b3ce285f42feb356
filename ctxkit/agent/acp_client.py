"""Client of agents that speak the Agent Client Protocol: their process, updates and own logs.

The protocol is <https://agentclientprotocol.com>: JSON-RPC, a message a line. What an agent says is
read as far as it goes: fields that are missing or new are no errors. We offer it no files and no
terminal of ours: it has its own, and asks before it uses them.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import os
import threading
from collections import deque
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec.structs import replace

from ctxkit._internal.distribution import get_version
from ctxkit._internal.formatting import sanitize_line
from ctxkit._internal.redaction import redact
from ctxkit.agent.child_process import ChildProcess
from ctxkit.agent.event_loops import LoopOwner, LoopThread
from ctxkit.agent.tools.runner import OutputLimits
from ctxkit.errors import BadArguments, ModelError
from ctxkit.formats.discovery import iter_session_files
from ctxkit.formats.reading import read_all
from ctxkit.session.messages import Image, Message, Text, Thinking, ToolCall, Usage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ctxkit.session.session import Session


PROTOCOL_VERSION = 1
MOST_AT_ONCE = 8
"""Programs that run at the same time in a kernel."""
_QUEUE_SIZE = 1000
"""Messages that wait for a turn to take them, at most; the agent waits then."""
_AUTH_REQUIRED = -32000
"""What the protocol answers where somebody must log in first."""
_METHOD_NOT_FOUND = -32601


class AcpClient(LoopOwner):
    """An agent that runs beside us; it is begun at the first `open`, and again where it ended.

    Args:
        command: the program and its arguments.
        seconds: how long it may take to begin and to open a session.
    """

    _LOOP = "ctxkit-acp"
    _running: ClassVar[list[AcpClient]] = []
    """Those whose program was begun and not ended, in this order."""
    _counting: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, command: Sequence[str], *, seconds: float = 60.0) -> None:
        super().__init__()
        if not command:
            raise BadArguments("Name the agent's command, such as acp:'gemini --experimental-acp'.")
        self.command, self._seconds = list(command), seconds
        self.name = os.path.basename(command[0])  # noqa: PTH119  a name, not a place
        self.told: dict[str, Any] = {}
        """What it said of itself."""
        self.session: str | None = None
        """The id of the conversation that it holds."""
        self._child = ChildProcess(self._said)
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self._late: deque[asyncio.Task[None]] = deque(
            maxlen=8
        )  # held, so that they are not collected
        self._pump: asyncio.Task[None] | None = None
        self._inbox: (
            tuple[asyncio.AbstractEventLoop, asyncio.Queue[dict[str, Any] | None]] | None
        ) = None

    # -- what a turn does, from its own loop -----------------------------------------------------

    async def open(
        self, folder: str, *, again: str | None = None, servers: Sequence[Mapping[str, Any]] = ()
    ) -> bool:
        """Have a conversation in a folder; return whether it goes on with the one of the id
        `again`.

        Raises:
            ModelError: it cannot be started, does not answer, speaks something else, or wants a
                login.
        """
        loop = self._on_loop()
        if self.session is not None and not self._child.over:
            return self.session == again
        return await loop.hear(self._opened(folder, again, list(servers)))

    async def prompt(self, parts: list[dict[str, Any]]) -> asyncio.Queue[dict[str, Any] | None]:
        """Send a prompt; what follows is in the queue: requests, updates, at last the answer.

        The answer is `{"result": ...}` or `{"error": ...}`; None: the agent is gone.
        """
        queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue(_QUEUE_SIZE)
        self._inbox = asyncio.get_running_loop(), queue
        await self._here.hear(self._prompted(parts))
        return queue

    async def answer(self, ident: Any, result: Mapping[str, Any]) -> None:
        """Answer a request of the agent."""
        await self._here.hear(
            self._child.send({"jsonrpc": "2.0", "id": ident, "result": dict(result)})
        )

    async def refuse(self, ident: Any, method: str) -> None:
        """Refuse a request of the agent: it is one that we do not serve."""
        error = {
            "code": _METHOD_NOT_FOUND,
            "message": f"{sanitize_line(method, 60)} is not served here",
        }
        await self._here.hear(self._child.send({"jsonrpc": "2.0", "id": ident, "error": error}))

    async def cancel(self) -> None:
        """Ask the agent to end its turn."""
        await self._here.hear(self._child.send({
            "jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": self.session},
        }))  # fmt: skip

    def done(self) -> None:
        """Take nothing more for the turn that ended."""
        self._inbox = None

    @property
    def gone(self) -> str:
        """Why nothing more comes from it; empty: it runs."""
        return self._child.over

    @property
    def pictures(self) -> bool:
        """Whether it takes pictures with a prompt."""
        takes = _as_dict(_as_dict(self.told.get("agentCapabilities")).get("promptCapabilities"))
        return takes.get("image") is True

    # -- on its own loop -------------------------------------------------------------------------

    @property
    def _said(self) -> str:
        return f"The agent {sanitize_line(self.name, 60)!r}"

    @property
    def _here(self) -> LoopThread:
        if self._loop is None:
            raise ModelError(f"{self._said} is closed.")
        return self._loop

    async def _opened(
        self, folder: str, again: str | None, servers: list[Mapping[str, Any]]
    ) -> bool:
        await self._stop()
        try:
            async with asyncio.timeout(self._seconds):
                await self._begun()
                place = {"cwd": folder, "mcpServers": servers}
                loads = _as_dict(self.told.get("agentCapabilities")).get("loadSession") is True
                if again and loads:
                    with suppress(ModelError):  # it may have forgotten it
                        await self._request("session/load", {**place, "sessionId": again})
                        self.session = again
                        return True
                found = await self._request("session/new", place)
        except TimeoutError:
            why = f"{self._said} did not answer within {self._seconds:g} s{self._child.words()}"
            await self._stop()
            raise ModelError(why) from None
        except (BadArguments, ModelError) as e:
            await self._stop()
            raise ModelError(str(e)) from None
        ident = found.get("sessionId")
        if not isinstance(ident, str) or not ident:
            await self._stop()
            raise ModelError(
                f"{self._said} opened a session without an id: it speaks half of the protocol."
            )
        self.session = ident
        return False

    async def _begun(self) -> None:
        """Start the program and greet it."""
        self._count_in()
        self._child = ChildProcess(self._said)
        await self._child.begin(self.command, env=os.environ)
        self._pump = asyncio.ensure_future(self._heard(self._child))
        self.told = await self._request("initialize", {
            "protocolVersion": PROTOCOL_VERSION,
            "clientCapabilities": {"fs": dict.fromkeys(("readTextFile", "writeTextFile"), False)},
            "clientInfo": {"name": "ctxkit", "version": get_version()},
        })  # fmt: skip
        own = _as_dict(self.told.get("agentInfo")).get("name")
        self.name = (
            sanitize_line(redact(own), 60) if isinstance(own, str) and own.strip() else self.name
        )
        self._child.name = self._said
        if self.told.get("protocolVersion") != PROTOCOL_VERSION:
            spoken = sanitize_line(redact(str(self.told.get("protocolVersion"))), 20)
            raise ModelError(
                f"{self._said} speaks version {spoken} of the protocol; here it is "
                f"{PROTOCOL_VERSION}."
            )

    def _count_in(self) -> None:
        """Take a place among those that run.

        Raises:
            ModelError: there is none.
        """
        with self._counting:
            alive = [sanitize_line(each.name, 30) for each in self._running if not each.gone]
            if len(alive) >= MOST_AT_ONCE:
                raise ModelError(
                    f"{MOST_AT_ONCE} agents of other programs run already ({', '.join(alive)}), and"
                    f" no more run at once: end one by `%context reset` in its session, then"
                    f" ask {self._said.removeprefix('The agent ')} again."
                )
            self._running.append(self)

    async def _request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a request.

        Raises:
            ModelError: it is an error, no object, or the agent is gone.
        """
        answer = await (await self._asking(method, params))
        if answer is None:
            raise ModelError(self._child.over or f"{self._said} is gone.")
        if "error" in answer:
            raise ModelError(self.failure(answer["error"], method))
        return _as_dict(answer.get("result"))

    async def _asking(self, method: str, params: Mapping[str, Any]) -> asyncio.Future[Any]:
        self._number += 1
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked[self._number] = future
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": dict(params)}
        await self._child.send(message)
        if self._child.over:
            self._lost()
        return future

    async def _prompted(self, parts: list[dict[str, Any]]) -> None:
        future = await self._asking("session/prompt", {"sessionId": self.session, "prompt": parts})
        future.add_done_callback(
            lambda f: self._late.append(asyncio.ensure_future(self._deliver(f.result())))
        )

    async def _heard(self, child: ChildProcess) -> None:
        """Hand on what the agent says, in its order."""
        while (message := await child.receive()) is not None:
            if "method" in message:
                await self._deliver(message)
                continue
            future = self._asked.pop(_request_number(message.get("id")), None)
            if future is not None and not future.done():
                future.set_result(message)
        self._lost()

    async def _deliver(self, message: dict[str, Any] | None) -> None:
        """Put a message into the turn's queue; where there is no turn, requests are refused."""
        if self._inbox is None:
            if message is not None and "id" in message and "method" in message:
                error = {"code": _METHOD_NOT_FOUND, "message": "no turn is under way"}
                await self._child.send({"jsonrpc": "2.0", "id": message["id"], "error": error})
            return
        loop, queue = self._inbox
        with suppress(RuntimeError):  # the turn's loop is closed
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(queue.put(message), loop))

    def _lost(self) -> None:
        """Tell all who wait that nothing more comes."""
        for future in self._asked.values():
            if not future.done():
                future.set_result(None)
        self._asked.clear()

    async def _stop(self) -> None:
        pump, self._pump, self.session = self._pump, None, None
        with self._counting:
            self._running[:] = [each for each in self._running if each is not self]
        if pump is not None:
            await self._child.end()
            pump.cancel()
            with suppress(asyncio.CancelledError):
                await pump
        self._lost()

    def failure(self, error: Any, method: str) -> str:
        """Return what an error says, as a sentence."""
        told = _as_dict(error)
        said = sanitize_line(redact(str(told.get("message") or "no reason")), 300).rstrip(".")
        more = _as_dict(told.get("data")).get("details")
        more = f" ({sanitize_line(redact(str(more)), 200)})" if more else ""
        if told.get("code") == _AUTH_REQUIRED:
            ways = self.told.get("authMethods")
            names = (
                [str(_as_dict(w).get("name") or "") for w in ways] if isinstance(ways, list) else []
            )
            offered = sanitize_line(redact(", ".join(filter(None, names))), 200)
            how = f" (it offers: {offered})" if offered else ""
            how = f"{how}: log in with it, in a terminal"
            return f"{self._said} asks for a login{how}. It said: {said}."
        if told.get("code") == _METHOD_NOT_FOUND:
            return (
                f"{self._said} does not know {method}: it does not speak the Agent Client Protocol."
            )
        return f"{self._said} answered {method} with an error: {said}{more}."


def _as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _request_number(value: Any) -> int:
    """Return the number of one of our requests; 0, which none has, for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


_CHARS = 1_000_000
"""Characters of a reply's text that are taken."""
_CALLS = 1_000
"""Calls of a reply; what is told of more begins another one."""
_DIFF = 20_000
"""Characters of a file beyond which a change is told by its sizes."""
_MOST = 10**9
_ENDED = ("completed", "failed")
MISSING_RESULT = "The agent did not say how this call ended."


class ReplyBuilder:
    """Puts updates together: a reply ends where the agent goes on after it called a tool.

    Messages come out in the order of a conversation: a reply with its calls, then their results.

    Args:
        model: the name that stands in the replies.
    """

    def __init__(self, model: str) -> None:
        self.model = model
        self.usage: Usage | None = None
        """What the call of the open reply took, where the agent tells that."""
        self._parts: list[Text | Thinking] = []
        self._calls: dict[str, dict[str, Any]] = {}
        self._message: Any = None
        self._room = _CHARS

    def say(self, kind: str, update: dict[str, Any]) -> Iterator[Message]:
        """Take a piece of text (`text`, `thinking`); yield what is whole before it."""
        piece = _block_text(update.get("content"))
        ident = update.get("messageId")
        other = ident is not None and self._message is not None and ident != self._message
        if self._calls or other:
            yield from self.end()
        self._message = ident or self._message
        self.usage = parse_acp_usage(_find_meta(update, "usage")) or self.usage
        piece, self._room = piece[: self._room], max(self._room - len(piece), 0)
        part = Thinking if kind == "thinking" else Text
        if self._parts and isinstance(self._parts[-1], part):
            self._parts[-1] = part(self._parts[-1].text + piece)
        elif piece:
            self._parts.append(part(piece))

    def call(self, update: dict[str, Any]) -> Iterator[Message]:
        """Take what is told of a tool's call, first or later; yield what is whole before it."""
        ident = str(update.get("toolCallId") or "")
        if ident not in self._calls:
            ended = any(c.get("status") in _ENDED for c in self._calls.values())
            if ended or len(self._calls) >= _CALLS:
                yield from self.end()
        known = self._calls.setdefault(ident, {})
        known.update({k: v for k, v in update.items() if v is not None})

    def knows(self, ident: str) -> bool:
        """Say whether a call was told of in the reply that is open."""
        return ident in self._calls

    def called(self, ident: str) -> ToolCall:
        """Return a call as it stands."""
        return _to_tool_call(ident, self._calls.get(ident, {}))

    def asked(self, ident: str) -> ToolCall:
        """Return a call with everything that was told of it, for a person to judge."""
        told = self._calls.get(ident, {})
        given, content = told.get("rawInput"), told.get("content")
        parts = content if isinstance(content, list) else [content]
        arguments = {
            **(given if isinstance(given, dict) else {"its input": given}),
            **{f"its {k}": told.get(k) for k in ("title", "kind", "locations")},
            **{f"its content {n}": _judged(part) for n, part in enumerate(parts, 1)},
        }
        shown = {k: v for k, v in arguments.items() if v is not None}
        return replace(self.called(ident), arguments=shown)

    def end(self) -> Iterator[Message]:
        """Yield the reply that is open, and the results of its calls."""
        calls = list(self._calls.items())
        parts = (*self._parts, *(_to_tool_call(i, c) for i, c in calls))
        self._parts, self._calls, self._message, self._room = [], {}, None, _CHARS
        usage, self.usage = self.usage, None
        if not parts:
            return
        stop = "tool" if calls else "stop"
        yield Message(role="assistant", parts=parts, model=self.model, stop=stop, usage=usage)
        for ident, call in calls:
            name = _to_tool_call(ident, call).name
            text, images = _result_parts(call)
            told = call.get("status") in _ENDED
            text = text or ("(no output)" if told else MISSING_RESULT)
            text = OutputLimits().cut(text)
            failed = call.get("status") == "failed" or not told
            yield Message(
                role="tool", tool=name, call_id=ident, parts=(Text(text), *images), is_error=failed
            )


def _to_tool_call(ident: str, told: dict[str, Any]) -> ToolCall:
    """Return a call: under its tool's own name where that is told, else under its kind."""
    own = _find_meta(told, "toolName")
    title, kind = str(told.get("title") or ""), str(told.get("kind") or "other")
    first = title.split(" ", maxsplit=1)[0] or "tool"
    name = own if isinstance(own, str) and own else kind if kind != "other" else first
    given = told.get("rawInput")
    arguments = dict(given) if isinstance(given, dict) and given else {}
    places = told.get("locations")
    if not arguments and isinstance(places, list) and places and isinstance(places[0], dict):
        arguments = {"path": str(places[0].get("path") or "")}
    if title and not arguments:
        arguments = {"title": title}
    return ToolCall(ident, name[:200], arguments)


def parse_acp_usage(told: Any) -> Usage | None:
    """Return the usage of a call or a turn, in disjoint classes; None where the agent tells none.

    The protocol does not say whether the input holds what was read from a cache: the total does.
    """
    names = ("inputTokens", "outputTokens", "cachedReadTokens", "cachedWriteTokens", "totalTokens")
    given = told if isinstance(told, dict) else {}
    fresh, out, read, write, total = (_parse_count(given.get(n)) for n in names)
    if fresh is None:
        return None
    if total is not None and total == fresh + (out or 0):
        fresh = max(fresh - (read or 0) - (write or 0), 0)
    return Usage(
        input_tokens=fresh, cache_read_tokens=read, cache_write_tokens=write, output_tokens=out
    )


def _parse_count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < _MOST else None


def _find_meta(update: dict[str, Any], name: str) -> Any:
    """Return what an agent adds of its own to an update, under a name."""
    return next((m[name] for m in _meta_dicts(update.get("_meta")) if name in m), None)


def with_call_id(message: Message, ids: dict[str, str]) -> Message:
    """Return a result that names its call by the id under which that was kept."""
    return replace(message, call_id=ids.get(message.call_id or "", message.call_id))


def _meta_dicts(meta: Any) -> Iterator[dict[str, Any]]:
    if isinstance(meta, dict):
        yield meta
        yield from (v for v in meta.values() if isinstance(v, dict))


def _result_parts(told: dict[str, Any]) -> tuple[str, list[Image]]:
    """Return the text and the pictures of a call's result."""
    said: list[str] = []
    images: list[Image] = []
    content = told.get("content")
    for each in content if isinstance(content, list) else ():
        if not isinstance(each, dict):
            continue
        inner = each.get("content")
        if each.get("type") == "diff":
            said.append(_format_diff(each))
        elif isinstance(inner, dict) and inner.get("type") == "image":
            kind, data = inner.get("mimeType") or "image/png", inner.get("data") or ""
            images.append(Image(str(kind), str(data)))
        else:
            said.append(_block_text(inner))
    raw = told.get("rawOutput")
    if not any(said) and not images and raw is not None:
        said = [raw if isinstance(raw, str) else json.dumps(raw, ensure_ascii=False)]
    return "\n".join(filter(None, said)), images


def _block_text(content: Any) -> str:
    """Return the text of a block of content."""
    if not isinstance(content, dict):
        return ""
    if isinstance(content.get("text"), str):
        return str(content["text"])
    held = content.get("resource")
    if isinstance(held, dict) and isinstance(held.get("text"), str):
        return str(held["text"])
    return f"[{content.get('type') or 'content'} {content.get('uri') or ''}]".replace(" ]", "]")


def _judged(part: Any) -> Any:
    """Return a block of a call's content as a person judges it: a change as its lines."""
    if not isinstance(part, dict) or part.get("type") != "diff":
        return part
    path, old, new = _change(part)
    if len(old) + len(new) > _DIFF:
        return f"{path}: all of it becomes\n{new}"
    return _unified(path, old.split("\n"), new.split("\n"))  # other line ends stay to be seen


def _format_diff(told: dict[str, Any]) -> str:
    path, old, new = _change(told)
    if len(old) + len(new) > _DIFF:
        return f"{path}: {len(old):,} characters became {len(new):,}"
    return _unified(path, old.splitlines(), new.splitlines())


def _change(told: dict[str, Any]) -> tuple[str, str, str]:
    """Return the path of a change, and the text before and after it."""
    path, old, new = (str(told.get(k) or "") for k in ("path", "oldText", "newText"))
    return path, old, new


def _unified(path: str, old: list[str], new: list[str]) -> str:
    lines = difflib.unified_diff(old, new, path, path, lineterm="", n=2)
    return "\n".join(lines) or f"{path}: unchanged"


_NEWEST, _LARGEST = 8, 50_000_000
"""Files that are read at most, those named by the id first, and bytes of any other."""
_CLOCK_SKEW = 5.0
"""Seconds by which clocks of files may be behind."""


def find_agent_log(ident: str, since: float, home: str | None = None) -> Session | None:
    """Return the session of a conversation from the logs of known tools, or None.

    Args:
        ident: the conversation's id, as its agent told it.
        since: seconds since 1970; only files written later are looked at.
        home: where the tools' folders are; None: the user's own.
    """
    if not ident:
        return None
    changed = sorted(_recent_logs(ident, since, home), reverse=True)
    for _, _, path in islice(changed, _NEWEST):
        for session in read_all(path, progress=False):
            if ident in (session.id, *session.details.values()) or ident in Path(path).name:
                return session
    return None


def _recent_logs(ident: str, since: float, home: str | None) -> Iterator[tuple[bool, float, str]]:
    for _, entry, _ in iter_session_files(home):
        try:
            told = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        named = ident[:8] in entry.name
        if told.st_mtime >= since - _CLOCK_SKEW and (named or told.st_size < _LARGEST):
            yield named, told.st_mtime, os.fspath(entry.path)
