"""Tools of MCP servers that run as child processes."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from hashlib import sha256
from importlib import util
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit._internal.formatting import sanitize_line
from ctxkit._internal.redaction import environment_without_secrets, redact
from ctxkit.agent.child_process import ChildProcess
from ctxkit.agent.event_loops import LoopOwner
from ctxkit.agent.tools.images import image_from_bytes
from ctxkit.agent.tools.tool import Tool
from ctxkit.errors import BadArguments, CtxkitError
from ctxkit.session.messages import Image, ToolSchema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


MAX_TOOLS, MAX_SCHEMA_CHARS, MAX_DESCRIPTION_CHARS = 200, 50_000, 4_000
"""Tools of a server, characters of the schema of one, and of its description, at most."""
_MAX_PAGES = 20


class McpServer(LoopOwner):
    """A server of tools; it is started at `tools` and again where it ended.

    Args:
        command: the program and its arguments.
        name: what it is called in the names of its tools; empty: as it calls itself.
        env: variables that it gets beside the environment, which it gets without keys.
        seconds: how long a call may take, and how long the start.
    """

    _LOOP = "ctxkit-mcp"

    def __init__(
        self,
        command: Sequence[str],
        *,
        name: str = "",
        env: Mapping[str, str] | None = None,
        seconds: float = 60.0,
    ) -> None:
        super().__init__()
        if not command:
            raise BadArguments("Name the command of the MCP server, such as 'uvx mcp-server-time'.")
        self.command, self.name, self._env, self._seconds = (
            list(command),
            name,
            dict(env or {}),
            seconds,
        )
        self.notes: list[str] = []
        """What must be said of its tools: sentences for the user."""
        self._child = ChildProcess(self._said)
        self._session: Any = None
        self._serving: asyncio.Task[None] | None = None

    def tools(self) -> list[Tool]:
        """Return its tools, under the names `mcp__SERVER__TOOL`.

        Raises:
            BadArguments: it cannot be started, does not answer, or speaks no MCP.
        """
        if util.find_spec("mcp") is None:
            raise BadArguments(
                "MCP servers are spoken to through the package mcp: "
                "pip install 'jupyter-ctxkit[live]'."
            )
        try:
            found = self._on_loop().wait(self._listed(), self._seconds)
        except TimeoutError:
            self.close()
            raise BadArguments(
                f"{self._said} did not answer within {self._seconds:g} s{self._child.words()}"
            ) from None
        except CtxkitError:
            self.close()
            raise
        known: dict[str, Tool] = {}
        self.notes = []
        for each in found[:MAX_TOOLS]:
            self._take(each, known)
        if len(found) > MAX_TOOLS:
            self.notes.append(
                f"{self._said} offers {len(found):,} tools; the first {MAX_TOOLS} are taken."
            )
        return list(known.values())

    # -- inside ----------------------------------------------------------------------------------

    @property
    def _said(self) -> str:
        return f"The MCP server {sanitize_line(self.name or self.command[0], 60)!r}"

    def _take(self, said: dict[str, Any], known: dict[str, Tool]) -> None:
        """Make a tool of what the server says of it, unless it is too large or there already."""
        own = str(said.get("name") or "")
        name = safe_tool_name(f"mcp__{self.name}__{own}")
        description = redact(str(said.get("description") or ""))[:MAX_DESCRIPTION_CHARS]
        schema = said.get("inputSchema")
        parameters = schema if isinstance(schema, dict) else {"type": "object"}
        size = len(
            msgspec.json.encode(
                {"name": name, "description": description, "parameters": parameters}
            )
        )
        if name in known or size > MAX_SCHEMA_CHARS:
            why = "is there twice" if name in known else f"has a schema of {size:,} characters"
            self.notes.append(
                f"{self._said}: its tool {sanitize_line(own, 60)!r} {why}, and is left out."
            )
            return

        async def run(**arguments: Any) -> Any:
            return await self._call(own, arguments)

        told = ToolSchema(name=name, description=description, parameters=parameters, chars=size)
        known[name] = Tool(schema=told, run=run, needs="mcp", free=True)

    async def _call(self, tool: str, arguments: dict[str, Any]) -> Any:
        """Call a tool from the loop of a turn.

        Raises:
            CtxkitError: it failed, in the server's words; or the server did.
        """
        result = await self._on_loop().hear(self._asked(tool, arguments))
        shown = [to_result_part(p) for p in result.get("content") or () if isinstance(p, dict)]
        if not shown and result.get("structuredContent") is not None:
            shown = [result["structuredContent"]]
        if result.get("isError"):
            words = [s if isinstance(s, str) else "[a picture]" for s in shown]
            raise CtxkitError("\n".join(words) or f"{self._said} says that {tool} failed.")
        return (
            shown
            if any(isinstance(s, Image) for s in shown)
            else "\n".join(map(to_part_text, shown))
        )

    # -- on the server's loop --------------------------------------------------------------------

    async def _asked(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            async with asyncio.timeout(self._seconds):
                await self._ready()
                result = await self._session.call_tool(tool, arguments)
        except TimeoutError:
            raise CtxkitError(
                f"{self._said} did not answer {tool} within {self._seconds:g} s."
            ) from None
        except CtxkitError:
            raise
        except Exception as e:  # noqa: BLE001  the package raises many kinds
            raise CtxkitError(self._why(e)) from None
        return dict(result.model_dump(by_alias=True, mode="json"))

    async def _listed(self) -> list[dict[str, Any]]:
        await self._ready()
        out: list[dict[str, Any]] = []
        cursor: str | None = None
        try:
            for _ in range(_MAX_PAGES):
                more = {"params": page_params(cursor)} if cursor else {}
                page = (await self._session.list_tools(**more)).model_dump(
                    by_alias=True, mode="json"
                )
                out += page.get("tools") or []
                cursor = page.get("nextCursor")
                if not cursor or len(out) > MAX_TOOLS:
                    break
        except Exception as e:  # noqa: BLE001  as above
            raise BadArguments(self._why(e)) from None
        return out

    async def _ready(self) -> None:
        """Have a server that runs and was greeted."""
        if self._serving is not None and not self._serving.done() and not self._child.over:
            return
        await self._stop()
        self._child = ChildProcess(self._said)
        await self._child.begin(self.command, env={**environment_without_secrets(), **self._env})
        greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._serving = asyncio.ensure_future(self._serve(self._child, greeted))
        await greeted

    async def _serve(self, child: ChildProcess, greeted: asyncio.Future[None]) -> None:
        """Hold the conversation open until it is cancelled."""
        import anyio
        from mcp import ClientSession

        from_server, read = anyio.create_memory_object_stream[Any](16)
        write, to_server = anyio.create_memory_object_stream[Any](16)
        failed = ""
        try:
            async with anyio.create_task_group() as group, ClientSession(read, write) as session:
                group.start_soon(_forward_received, child, from_server)
                group.start_soon(_forward_sent, child, to_server)
                told = (await session.initialize()).model_dump(by_alias=True, mode="json")
                info = told.get("serverInfo")
                self.name = (
                    self.name or str(info.get("name") if isinstance(info, dict) else "") or "server"
                )
                self._session, child.name = session, self._said
                greeted.set_result(None)
                await anyio.sleep_forever()
        except asyncio.CancelledError:
            raise
        except BaseException as e:  # noqa: BLE001  groups of exceptions, too
            failed = self._why(e)
        finally:
            await child.end()
        if failed and not greeted.done():  # only now: whoever waits for it stops this task
            greeted.set_exception(BadArguments(failed))

    async def _stop(self) -> None:
        serving, self._serving = self._serving, None
        if serving is not None:
            serving.cancel()
            with suppress(asyncio.CancelledError):
                await serving

    def _why(self, error: BaseException) -> str:
        """Return what went wrong in a sentence: how the server ended, or what it said wrongly."""
        if self._child.over:
            return self._child.over
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        said = sanitize_line(redact(str(error)), 200)
        return f"{self._said} did not answer as the protocol asks ({type(error).__name__}: {said})."


async def _forward_received(child: ChildProcess, to: Any) -> None:
    """Hand on what a server says; at its end the conversation is closed."""
    from mcp.shared.message import SessionMessage

    async with to:
        while (message := await child.receive()) is not None:
            with suppress(ValueError):  # what is no message of the protocol says nothing
                await to.send(SessionMessage(to_rpc_message(message)))


async def _forward_sent(child: ChildProcess, of: Any) -> None:
    async with of:
        async for message in of:
            await child.send(
                message.message.model_dump(by_alias=True, mode="json", exclude_unset=True)
            )


MAX_NAME_CHARS = 64
"""Characters of a tool's name that providers take."""


def to_rpc_message(message: dict[str, Any]) -> Any:
    """Return a message as the package has it: version 2 by an adapter, version 1 by a model."""
    from mcp import types

    known: Any = types
    adapter = getattr(known, "jsonrpc_message_adapter", None)
    if adapter is None:
        return known.JSONRPCMessage.model_validate(message)
    return adapter.validate_python(message, by_name=False)


def page_params(cursor: str) -> Any:
    """Return what asks for the page of a list behind a cursor."""
    from mcp import types

    return types.PaginatedRequestParams(cursor=cursor)


def to_result_part(part: dict[str, Any]) -> Any:
    """Return a part of a result: text, a picture, or words for what is neither."""
    kind = part.get("type")
    if kind == "text":
        return str(part.get("text") or "")
    if kind == "image":
        import base64

        try:
            return image_from_bytes(
                base64.b64decode(str(part.get("data") or ""), validate=True), "the picture"
            )
        except (ValueError, BadArguments) as e:
            return f"[a picture that is not shown: {e}]"
    held = part.get("resource")
    if kind == "resource" and isinstance(held, dict) and isinstance(held.get("text"), str):
        return held["text"]
    return (
        f"[{sanitize_line(str(kind), 40)}: "
        f"{sanitize_line(str(part.get('uri') or part.get('mimeType') or ''), 200)}]"
    )


def to_part_text(shown: Any) -> str:
    """Return a part as a text: one that is none as JSON."""
    return shown if isinstance(shown, str) else msgspec.json.encode(shown).decode()


def safe_tool_name(name: str) -> str:
    """Return a name that providers take: letters, digits, `_` and `-`, at most 64."""
    clean = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    if len(clean) <= MAX_NAME_CHARS:
        return clean
    return f"{clean[: MAX_NAME_CHARS - 9]}_{sha256(name.encode()).hexdigest()[:8]}"
