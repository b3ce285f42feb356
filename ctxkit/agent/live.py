"""A live session: an agent whose every word is on disk before it is shown, with its snapshots, events and artifacts."""

from __future__ import annotations

import asyncio
import os
import traceback
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from msgspec.structs import replace

from ctxkit.agent.agent import COMPACT, Agent
from ctxkit.agent.events import Event, Listener, deaf
from ctxkit.agent.turns import Turns
from ctxkit.errors import BadArguments, CtxkitError, StoreError
from ctxkit.policies.thresholds import thresholds
from ctxkit.redaction import redact, redacted
from ctxkit.session import Session
from ctxkit.snapshots.write import SnapshotWriter
from ctxkit.store.artifacts import Artifacts
from ctxkit.store.checkpoints import checkpoint
from ctxkit.store.events_log import EventsLog
from ctxkit.store.session_log import SessionLog
from ctxkit.store.workspace import Workspace, checked, new_id
from ctxkit.tools.files import file_tools
from ctxkit.tools.kernel import python_tool, shell_tool
from ctxkit.tools.root import Root
from ctxkit.tools.tool import Tool

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd

    from ctxkit.agent.limits import Limits
    from ctxkit.agent.outcome import Outcome
    from ctxkit.agent.prompts import Prompts
    from ctxkit.agent.running import Approve
    from ctxkit.engine.sent import SentItem
    from ctxkit.messages import Edit
    from ctxkit.models.model import Model
    from ctxkit.policies.rules import Rules

_ADDED = os.O_WRONLY | os.O_CREAT | os.O_APPEND
FILES = "files"
"""The five file tools together; `shell` and `python` must be named."""
TOOLS = (FILES, "shell", "python")


class LiveSession:
    """A session of this project that can be talked to.

    Args:
        name: its name; one that exists is resumed.
        model: answers.
        rules: the context manager.
        tools: names out of `files`, `shell`, `python`, or tools of the user's own.
        root: folder of the tools; None: a scratch folder of the session.
        allow: names of `tools.protected` that its tools may write all the same.
        workspace: where it is kept.
        namespace: the user's variables, for the tool `python`.
        more: what `Agent` takes beside: `limits`, `approve`, `summary_model`, `summary_seconds`, `prompts`.

    Raises:
        StoreError: another process writes the session.
        BadArguments: the session was not begun here by this user, and nobody vouched for it.
        BadArguments: an unknown tool.
    """

    def __init__(
        self,
        name: str,
        *,
        model: Model,
        rules: Rules,
        clock: Callable[[], float],
        tools: Sequence[str | Tool] = (FILES,),
        root: str | Path | None = None,
        allow: Sequence[str] = (),
        workspace: Workspace | None = None,
        namespace: dict[str, Any] | None = None,
        hear: Listener = deaf,
        limits: Limits | None = None,
        approve: Approve | None = None,
        summary_model: Model | None = None,
        summary_seconds: float = 120.0,
        prompts: Prompts | None = None,
    ) -> None:
        self.workspace = workspace or Workspace()
        self.workspace.make()
        self.name, self._clock, self._listeners = checked(name), clock, [hear]
        self.workspace.check(name)
        self.root = Root(root or self._scratch(), allow)
        chosen = tools_of(tools, self.root, namespace if namespace is not None else {})
        offered = tuple(t.schema for t in (*chosen, COMPACT))
        fresh = Session(id=new_id(), format="live", title=name, product="ctxkit",
                        model=redact(model.name), started=clock(), cwd=str(Path.cwd()),
                        context_window=rules.window or model.context_window,
                        tools=offered, details={k: n for k, n in thresholds(rules).items() if n})  # fmt: skip
        self.settings: dict[str, Any] = {}
        """What whoever opened it wants to remember of how."""
        self.log = SessionLog(self.workspace.sessions, name, fresh, self._begun)
        self.log.session = replace(self.log.session, tools=offered)  # what is offered from now on
        try:
            events = self.workspace.open(self.workspace.events(self.id), _ADDED)
            self._events = EventsLog(events, self.id)
            artifacts = Artifacts(self.root)
            self.agent = Agent(
                self.log.session, model=model, rules=rules, tools=chosen, keep=self.log.append, limits=limits,
                clock=clock, hear=self._told, approve=approve, offload=artifacts.keep, save=artifacts.save,
                summary_model=summary_model, summary_seconds=summary_seconds, memory=self.root, prompts=prompts,
            )  # fmt: skip
            set_at = thresholds(rules)
            self._snapshots = SnapshotWriter(
                self.workspace.snapshots(self.id), self.id, warn_at=set_at["warn_at"],
                cutover_at=set_at["cutover_at"], opener=self.workspace.open,
                now=lambda: datetime.fromtimestamp(clock(), UTC),
            )  # fmt: skip
            self._turns = Turns(self._snapshots, self.session)
        except BaseException:
            self.log.close()
            raise

    @property
    def session(self) -> Session:
        """The session as it stands; what its calls were sent is known to it."""
        return self.agent.backed(self.log.session)

    def sent(self, call: int | None) -> tuple[SentItem, ...]:
        """Return what went out at a call, as `session.sent` does; None: what would go out next."""
        return self.session.sent(call)

    @property
    def id(self) -> str:
        """Its id, eight hexadecimal digits."""
        return self.log.session.id

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """All who are told events."""
        return tuple(self._listeners)

    def listen(self, hear: Listener) -> None:
        """Tell events to one more listener from now on."""
        self._listeners.append(hear)

    def unlisten(self, hear: Listener) -> None:
        """Tell a listener no more events."""
        if hear in self._listeners:
            self._listeners.remove(hear)

    async def turn(self, prompt: str) -> Outcome:
        """Take one turn; a snapshot row is written at its end, however it ends.

        Raises:
            StoreError: the kit itself failed; the session is whole, and the sentence names the file that says more.
        """
        try:
            return await self.agent.turn(prompt)
        except (CtxkitError, asyncio.CancelledError):
            raise
        except Exception as e:  # noqa: BLE001  the file has its words, which may hold what must not be shown
            raise StoreError(self._crashed(e)) from None
        finally:
            self._turns.end(self.session)

    @property
    def turns(self) -> pd.DataFrame:
        """The turns so far as one DataFrame, with the columns of ``ctxkit.frame(per="turn")``; it grows.

        It is the same object each time, a row more at each turn's end, as its log of snapshots has a
        line more. After a branch or a restore it holds the turns that stand.
        """
        return self._turns.frame

    async def compact(self, policy: Any = None, *, focus: str = "", instead: Any = None) -> tuple[Edit, ...]:
        """Compact by hand; empty where there is too little, also for the policy that is tried `instead`."""
        return await self.agent.compact(policy, focus=focus, instead=instead)

    # -- branch and restore ----------------------------------------------------------------------------------------

    def restore(self, number: int) -> Session:
        """Go back to just before a compaction; what came after stays in the log as a branch.

        Raises:
            BadArguments: there is no such checkpoint.
        """
        place = checkpoint(self.session, number)
        if place.entry < 0:
            raise BadArguments(f"Checkpoint {number} lies before the first message; use `reset` for a fresh session.")
        return self.move(place.entry)

    def move(self, entry: int) -> Session:
        """Stand at an entry of the log; what is said next begins a branch there."""
        moved = self.log.move(entry)
        self.agent.move(moved, self.log.append)
        self._turns.moved(self.session)
        self._told(Event("moved", self._clock(), self.agent.transcript.turn, {"entry": entry}))
        return moved

    def close(self) -> None:
        """Give the session free, and the memory that its model holds."""
        free = getattr(self.agent.model, "close", None)
        if callable(free):
            free()
        self._events.close()
        self._snapshots.close()
        self.log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _told(self, event: Event) -> None:
        if event.kind != "delta":  # those are clean already, piece by piece
            event = replace(event, payload=redacted(event.payload))
        if event.kind != "delta":
            self._events.write(event.kind, event.time, event.turn, event.payload)
        if event.kind in ("turn_start", "model_call"):
            self._turns.called(event.kind)
        elif event.kind == "compaction_end" and event.payload.get("outcome") == "compacted":
            self._turns.compacted(self.session)
        for hear in tuple(self._listeners):
            try:
                hear(event)
            except Exception as e:  # noqa: BLE001  a display that fails must not cost the turn
                self.unlisten(hear)
                said = {"error": f"{type(e).__name__}: {redact(str(e))[:300]}"}
                self._events.write("listener_failed", event.time, event.turn, said)

    def _begun(self, name: str) -> None:
        """Note that a session is this user's; where that cannot be noted, a later kernel asks."""
        with suppress(StoreError):
            self.workspace.vouch(name)

    def _scratch(self) -> Path:
        """Return the session's own folder for its tools, made without following links."""
        folder = self.workspace.scratch(self.name)
        with self.workspace.reach(folder, make=0o777):
            return folder

    def _crashed(self, error: Exception) -> str:
        path = self.workspace.crash(self.id)
        text = redact("".join(traceback.format_exception(error)))
        try:
            self.workspace.write(path, text)
            more = f"{path} says what happened."
        except StoreError as e:
            more = f"What happened could not be written down: {e}"
        return (
            f"The kit failed in this turn ({type(error).__name__}); session {self.name!r} is whole, send the prompt "
            f"again to go on. {more}"
        )


def tools_of(named: Sequence[str | Tool], root: Root, namespace: dict[str, Any]) -> list[Tool]:
    """Return the tools that are named, in a root folder and with the user's variables for `python`.

    Raises:
        BadArguments: there is no such tool.
    """
    out: list[Tool] = []
    for each in named:
        if isinstance(each, Tool):
            out.append(each)
        elif each == FILES:
            out.extend(file_tools(root))
        elif each == "shell":
            out.append(shell_tool(root))
        elif each == "python":
            out.append(python_tool(namespace))
        else:
            raise BadArguments(
                f"There is no tool {each!r}; name some of {', '.join(TOOLS)}, or give tools of your own."
            )
    return out
