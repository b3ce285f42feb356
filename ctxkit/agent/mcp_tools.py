"""Tools of MCP servers, which run as child processes; each becomes a tool of the agent."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from hashlib import sha256
from importlib import util
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit._internal.environment_secrets import get_environment_without_secrets
from ctxkit._internal.formatting_and_sanitizing import sanitize_line
from ctxkit._internal.redaction import redact
from ctxkit.agent.child_processes import ChildProcess
from ctxkit.agent.event_loop_threads import EventLoopClientBase
from ctxkit.agent.tools.execution_and_results import image_from_bytes
from ctxkit.agent.tools.tool import Tool
from ctxkit.errors import BadArguments, CtxkitError
from ctxkit.session.messages import Attachment, ToolSchema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


MAX_TOOLS, MAX_SCHEMA_CHARS, MAX_DESCRIPTION_CHARS = 200, 50_000, 4_000
"""Tools of a server; characters of a tool's schema, and of its description."""
_MAX_PAGES = 20


# The package `mcp` is asynchronous and holds its session in a task group, which must be entered and
# left in one task. So `_run_session` is a task on the server's own loop that opens the session and
# sleeps until it is cancelled. Two in-memory streams connect the session with the child process;
# the package's own transport is not used, as `ChildProcess` bounds lines and ends process trees.
# Descriptions and schemas of tools come from outside: they are redacted, bounded, and numbered at
# most MAX_TOOLS.


class McpServer(EventLoopClientBase):
    """An MCP server in a child process, started at the first `tools` and again after it ended.

    Args:
        command: the program and its arguments.
        name: name of the server in the names of its tools; empty: its own.
        env: environment variables beside those of this process, which it gets without secrets.
        seconds: seconds that a call may take, and the start.

    Raises:
        BadArguments: the command is empty.

    Example:
        >>> from ctxkit.agent.mcp_tools import McpServer
        >>> server = McpServer(["uvx", "mcp-server-time"], name="time")
        >>> server.tools()  # doctest: +SKIP
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
        self.command = list(command)
        self.name = name
        self._env = dict(env or {})
        self._seconds = seconds
        self.notes: list[str] = []
        """Sentences for the user on tools that were left out."""
        self._child = ChildProcess(self._label)
        self._session: Any = None
        self._session_task: asyncio.Task[None] | None = None

    def tools(self) -> list[Tool]:
        """Return the server's tools, named `mcp__SERVER__TOOL`.

        Raises:
            BadArguments: it cannot be started, does not answer, or does not speak MCP.
        """
        if util.find_spec("mcp") is None:
            raise BadArguments(
                "MCP servers need the package mcp: pip install 'jupyter-ctxkit[live]'."
            )
        try:
            descriptions = self._on_loop().wait(self._list_on_loop(), self._seconds)
        except TimeoutError:
            self.close()
            stderr = self._child.quote_stderr()
            raise BadArguments(
                f"{self._label} did not answer within {self._seconds:g} s{stderr}"
            ) from None
        except CtxkitError:
            self.close()
            raise
        tools_by_name: dict[str, Tool] = {}
        self.notes = []
        for each in descriptions[:MAX_TOOLS]:
            self._add_tool(each, tools_by_name)
        if len(descriptions) > MAX_TOOLS:
            self.notes.append(
                f"{self._label} offers {len(descriptions):,} tools; the first {MAX_TOOLS} are"
                " taken."
            )
        return list(tools_by_name.values())

    # -- inside ----------------------------------------------------------------------------------

    @property
    def _label(self) -> str:
        return f"The MCP server {sanitize_line(self.name or self.command[0], 60)!r}"

    def _add_tool(self, description_fields: dict[str, Any], tools: dict[str, Tool]) -> None:
        """Add a tool by its description, unless it is too large or there already."""
        server_tool = str(description_fields.get("name") or "")
        name = make_safe_tool_name(f"mcp__{self.name}__{server_tool}")
        description = redact(str(description_fields.get("description") or ""))[
            :MAX_DESCRIPTION_CHARS
        ]
        schema = description_fields.get("inputSchema")
        parameters = schema if isinstance(schema, dict) else {"type": "object"}
        size = len(
            msgspec.json.encode(
                {"name": name, "description": description, "parameters": parameters}
            )
        )
        if name in tools or size > MAX_SCHEMA_CHARS:
            why = "is there twice" if name in tools else f"has a schema of {size:,} characters"
            quoted = sanitize_line(server_tool, 60)
            self.notes.append(f"{self._label}: its tool {quoted!r} {why}, and is left out.")
            return

        async def run(**arguments: Any) -> Any:
            return await self._call_tool(server_tool, arguments)

        tool_schema = ToolSchema(
            name=name, description=description, parameters=parameters, chars=size
        )
        tools[name] = Tool(schema=tool_schema, run=run, needs="mcp", free=True)

    async def _call_tool(self, tool: str, arguments: dict[str, Any]) -> Any:
        """Call a tool from the loop of a turn.

        Raises:
            CtxkitError: the tool failed, with the server's message; or the server did.
        """
        result = await self._on_loop().run(self._call_on_loop(tool, arguments))
        parts = [parse_result_part(p) for p in result.get("content") or () if isinstance(p, dict)]
        if not parts and result.get("structuredContent") is not None:
            parts = [result["structuredContent"]]
        if result.get("isError"):
            words = [s if isinstance(s, str) else "[a picture]" for s in parts]
            raise CtxkitError("\n".join(words) or f"{self._label} says that {tool} failed.")
        return (
            parts
            if any(isinstance(s, Attachment) for s in parts)
            else "\n".join(map(to_part_text, parts))
        )

    # -- on the server's loop --------------------------------------------------------------------

    async def _call_on_loop(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            async with asyncio.timeout(self._seconds):
                await self._ensure_running()
                result = await self._session.call_tool(tool, arguments)
        except TimeoutError:
            raise CtxkitError(
                f"{self._label} did not answer {tool} within {self._seconds:g} s."
            ) from None
        except CtxkitError:
            raise
        except Exception as e:  # noqa: BLE001  the package raises many kinds
            raise CtxkitError(self._describe_failure(e)) from None
        return dict(result.model_dump(by_alias=True, mode="json"))

    async def _list_on_loop(self) -> list[dict[str, Any]]:
        await self._ensure_running()
        out: list[dict[str, Any]] = []
        cursor: str | None = None
        try:
            for _ in range(_MAX_PAGES):
                more = {"params": make_page_params(cursor)} if cursor else {}
                page = (await self._session.list_tools(**more)).model_dump(
                    by_alias=True, mode="json"
                )
                out += page.get("tools") or []
                cursor = page.get("nextCursor")
                if not cursor or len(out) > MAX_TOOLS:
                    break
        except Exception as e:  # noqa: BLE001  as above
            raise BadArguments(self._describe_failure(e)) from None
        return out

    async def _ensure_running(self) -> None:
        """Start the server and its session unless they run."""
        if (
            self._session_task is not None
            and not self._session_task.done()
            and not self._child.over
        ):
            return
        await self._stop_client()
        self._child = ChildProcess(self._label)
        await self._child.begin(
            self.command, env={**get_environment_without_secrets(), **self._env}
        )
        greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._session_task = asyncio.ensure_future(self._run_session(self._child, greeted))
        await greeted

    async def _run_session(self, child: ChildProcess, greeted: asyncio.Future[None]) -> None:
        """Hold the MCP session open until the task is cancelled."""
        import anyio
        from mcp import ClientSession

        from_server, read = anyio.create_memory_object_stream[Any](16)
        write, to_server = anyio.create_memory_object_stream[Any](16)
        failure = ""
        try:
            async with anyio.create_task_group() as group, ClientSession(read, write) as session:
                group.start_soon(_forward_received, child, from_server)
                group.start_soon(_forward_sent, child, to_server)
                answer = (await session.initialize()).model_dump(by_alias=True, mode="json")
                info = answer.get("serverInfo")
                self.name = (
                    self.name or str(info.get("name") if isinstance(info, dict) else "") or "server"
                )
                self._session, child.name = session, self._label
                greeted.set_result(None)
                await anyio.sleep_forever()
        except asyncio.CancelledError:
            raise
        except BaseException as e:  # noqa: BLE001  exception groups, too
            failure = self._describe_failure(e)
        finally:
            await child.end()
        if failure and not greeted.done():  # last, as the waiting caller then cancels this task
            greeted.set_exception(BadArguments(failure))

    async def _stop_client(self) -> None:
        serving, self._session_task = self._session_task, None
        if serving is not None:
            serving.cancel()
            with suppress(asyncio.CancelledError):
                await serving

    def _describe_failure(self, error: BaseException) -> str:
        """Return why the server failed: how it ended, or its invalid answer."""
        if self._child.over:
            return self._child.over
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        message = sanitize_line(str(error), 200)
        why = f"{type(error).__name__}: {message}"
        return f"{self._label} did not answer as the protocol asks ({why})."


async def _forward_received(child: ChildProcess, to: Any) -> None:
    """Forward the server's messages to the session; its stream is closed at their end."""
    from mcp.shared.message import SessionMessage

    async with to:
        while (message := await child.receive()) is not None:
            with suppress(ValueError):  # invalid messages are skipped
                await to.send(SessionMessage(to_rpc_message(message)))


async def _forward_sent(child: ChildProcess, of: Any) -> None:
    async with of:
        async for message in of:
            await child.send(
                message.message.model_dump(by_alias=True, mode="json", exclude_unset=True)
            )


MAX_NAME_CHARS = 64
"""Characters of a tool's name that providers accept."""


def to_rpc_message(message: dict[str, Any]) -> Any:
    """Return a message as the package `mcp` has it, in version 2 or version 1."""
    from mcp import types

    mcp_types: Any = types
    adapter = getattr(mcp_types, "jsonrpc_message_adapter", None)
    if adapter is None:
        return mcp_types.JSONRPCMessage.model_validate(message)
    return adapter.validate_python(message, by_name=False)


def make_page_params(cursor: str) -> Any:
    """Return the parameters that request the page of a list at a cursor."""
    from mcp import types

    return types.PaginatedRequestParams(cursor=cursor)


def parse_result_part(part: dict[str, Any]) -> Any:
    """Return a part of a result: text, an image, or a description of anything else."""
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
    resource = part.get("resource")
    if kind == "resource" and isinstance(resource, dict) and isinstance(resource.get("text"), str):
        return resource["text"]
    return (
        f"[{sanitize_line(str(kind), 40)}: "
        f"{sanitize_line(str(part.get('uri') or part.get('mimeType') or ''), 200)}]"
    )


def to_part_text(part: Any) -> str:
    """Return a part as text; a part that is not text as JSON."""
    return part if isinstance(part, str) else msgspec.json.encode(part).decode()


def make_safe_tool_name(name: str) -> str:
    """Return a name that providers accept: letters, digits, `_` and `-`, at most 64 characters.

    A longer name is cut and gets a hash, so that two of them stay different.
    """
    clean = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    if len(clean) <= MAX_NAME_CHARS:
        return clean
    return f"{clean[: MAX_NAME_CHARS - 9]}_{sha256(name.encode()).hexdigest()[:8]}"
