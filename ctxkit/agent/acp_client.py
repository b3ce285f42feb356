"""Client of agents that speak the Agent Client Protocol: their process, updates and own logs.

The protocol is JSON-RPC, one message a line (<https://agentclientprotocol.com>). Messages are read
leniently: missing or new fields are no errors. The agent is offered no files and no terminal of
this process; it has its own, and asks before it uses them.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from ctxkit._internal.distribution_version_and_conflicts import get_version
from ctxkit._internal.formatting_and_sanitizing import sanitize_line
from ctxkit.agent.child_processes import ChildProcess
from ctxkit.agent.event_loop_threads import EventLoopClientBase, EventLoopThread
from ctxkit.errors import BadArguments, ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


PROTOCOL_VERSION = 1
MAX_RUNNING_AGENTS = 8
"""Programs that may run at the same time in a kernel."""
_QUEUE_SIZE = 1000
"""Messages that may wait for a turn; beyond, the agent has to wait."""
_POLL_SECONDS = 0.01
"""Seconds between two looks at whether a full queue has space again."""
_AUTH_REQUIRED = -32000
"""Error code of an agent that needs a login first."""
_METHOD_NOT_FOUND = -32601


# Two event loops
#
# The agent's process and its pipes live on a loop of their own, so that they outlast a turn. A turn
# runs on another loop and calls over with `EventLoopThread.run`. Messages of the agent go back
# through the turn's bounded queue (`TurnInbox`): a full queue blocks the reader, and so the agent.
# Without a turn, requests of the agent are refused and updates are dropped; messages for a turn
# whose loop has ended are dropped too.
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
        self._inbox: TurnInbox | None = None

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

    def begin_turn(self) -> TurnInbox:
        """Return a queue that gets the agent's messages until `end_turn`.

        It gets requests and updates, and at last the answer to the prompt, `{"result": ...}` or
        `{"error": ...}`; None says that the agent has ended.
        """
        self._inbox = TurnInbox()
        return self._inbox

    async def prompt(self, parts: list[dict[str, Any]]) -> None:
        """Send a prompt; one whose turn is cancelled meanwhile is still sent, and can be cancelled.

        Args:
            parts: content blocks of the protocol.
        """
        await asyncio.shield(self._open_loop.run(self._start_prompt(parts)))

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
        await self._inbox.put(message)

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


class TurnInbox:
    """Messages of the agent for one turn: a bounded queue between two event loops.

    An `asyncio.Queue` belongs to one loop. A `put` that the agent's loop schedules on the turn's
    loop never returns once that loop has ended, and the reader would wait for it forever.
    """

    def __init__(self) -> None:
        self._turn_loop = asyncio.get_running_loop()
        self._messages: deque[dict[str, Any] | None] = deque()
        self._arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._messages)

    async def put(self, message: dict[str, Any] | None) -> None:
        """Add a message, on the agent's loop; wait while the queue is full.

        Args:
            message: it is dropped where the turn's loop has ended; None: the agent has ended.
        """
        while len(self._messages) >= _QUEUE_SIZE and not self._turn_loop.is_closed():  # noqa: ASYNC110  no event of this loop
            await asyncio.sleep(_POLL_SECONDS)
        self._messages.append(message)
        try:
            self._turn_loop.call_soon_threadsafe(self._arrived.set)
        except RuntimeError:  # it is closed: nobody will read them
            self._messages.clear()

    async def get(self) -> dict[str, Any] | None:
        """Return the next message, on the turn's loop; wait for one if there is none."""
        while not self._messages:
            # A message that arrives from here on sets the event after it is cleared.
            self._arrived.clear()
            await self._arrived.wait()
        return self._messages.popleft()


def _as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _request_number(value: Any) -> int:
    """Return the id of a request of ours; 0, which no request has, if it is not a number."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
