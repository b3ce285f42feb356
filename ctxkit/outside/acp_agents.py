"""Agents that speak the Agent Client Protocol, version 1, over their input and output.

The protocol is <https://agentclientprotocol.com>: JSON-RPC, a message a line. What an agent says is
read as far as it goes: fields that are missing or new are no errors. We offer it no files and no
terminal of ours: it has its own, and asks before it uses them.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from contextlib import suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from ctxkit.display.markup import line
from ctxkit.errors import BadArguments, ModelError
from ctxkit.outside.children import Child
from ctxkit.outside.own_loop import Loop, Looped
from ctxkit.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VERSION = 1
_WAITING = 1000
"""Messages that wait for a turn to take them, at most; the agent waits then."""
_LOGIN = -32000
"""What the protocol answers where somebody must log in first."""
_UNKNOWN = -32601


class AcpAgent(Looped):
    """An agent that runs beside us; it is begun at the first `open`, and again where it ended.

    Args:
        command: the program and its arguments.
        seconds: how long it may take to begin and to open a session.
    """

    _LOOP = "ctxkit-acp"

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
        self._child = Child(self._said)
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
        queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue(_WAITING)
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
        error = {"code": _UNKNOWN, "message": f"{line(method, 60)} is not served here"}
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
        takes = _dict(_dict(self.told.get("agentCapabilities")).get("promptCapabilities"))
        return takes.get("image") is True

    # -- on its own loop -------------------------------------------------------------------------

    @property
    def _said(self) -> str:
        return f"The agent {line(self.name, 60)!r}"

    @property
    def _here(self) -> Loop:
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
                loads = _dict(self.told.get("agentCapabilities")).get("loadSession") is True
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
        self._child = Child(self._said)
        await self._child.begin(self.command, env=os.environ)
        self._pump = asyncio.ensure_future(self._heard(self._child))
        self.told = await self._request("initialize", {
            "protocolVersion": VERSION,
            "clientCapabilities": {"fs": dict.fromkeys(("readTextFile", "writeTextFile"), False)},
            "clientInfo": {"name": "ctxkit", "version": version("ctxkit")},
        })  # fmt: skip
        own = _dict(self.told.get("agentInfo")).get("name")
        self.name = line(redact(own), 60) if isinstance(own, str) and own.strip() else self.name
        self._child.name = self._said
        if self.told.get("protocolVersion") != VERSION:
            spoken = line(redact(str(self.told.get("protocolVersion"))), 20)
            raise ModelError(
                f"{self._said} speaks version {spoken} of the protocol; here it is {VERSION}."
            )

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
        return _dict(answer.get("result"))

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

    async def _heard(self, child: Child) -> None:
        """Hand on what the agent says, in its order."""
        while (message := await child.receive()) is not None:
            if "method" in message:
                await self._deliver(message)
                continue
            future = self._asked.pop(_number(message.get("id")), None)
            if future is not None and not future.done():
                future.set_result(message)
        self._lost()

    async def _deliver(self, message: dict[str, Any] | None) -> None:
        """Put a message into the turn's queue; where there is no turn, requests are refused."""
        if self._inbox is None:
            if message is not None and "id" in message and "method" in message:
                error = {"code": _UNKNOWN, "message": "no turn is under way"}
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
        if pump is not None:
            await self._child.end()
            pump.cancel()
            with suppress(asyncio.CancelledError):
                await pump
        self._lost()

    def failure(self, error: Any, method: str) -> str:
        """Return what an error says, as a sentence."""
        told = _dict(error)
        said = line(redact(str(told.get("message") or "no reason")), 300).rstrip(".")
        more = _dict(told.get("data")).get("details")
        more = f" ({line(redact(str(more)), 200)})" if more else ""
        if told.get("code") == _LOGIN:
            ways = self.told.get("authMethods")
            names = (
                [str(_dict(w).get("name") or "") for w in ways] if isinstance(ways, list) else []
            )
            offered = line(redact(", ".join(filter(None, names))), 200)
            how = f" (it offers: {offered})" if offered else ""
            how = f"{how}: log in with it, in a terminal"
            return f"{self._said} asks for a login{how}. It said: {said}."
        if told.get("code") == _UNKNOWN:
            return (
                f"{self._said} does not know {method}: it does not speak the Agent Client Protocol."
            )
        return f"{self._said} answered {method} with an error: {said}{more}."


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> int:
    """Return the number of one of our requests; 0, which none has, for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
