"""A live session: an agent whose session, events, snapshots and artifacts are kept on disk."""

from __future__ import annotations

import asyncio
import os
import traceback
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from msgspec.structs import replace

from ctxkit._internal.redaction import redact
from ctxkit.agent.agent import COMPACT_TOOL, Agent
from ctxkit.agent.context_store import ContextStore
from ctxkit.agent.memory.session_memory import MemoryPromoter
from ctxkit.agent.resume import (
    check_model,
    describe_differences,
    describe_tool_changes,
    make_session_settings,
    read_session_settings,
    restore_limits,
    with_session_settings,
)
from ctxkit.agent.span_export import SpanExport
from ctxkit.agent.store.session_files import (
    ArtifactStore,
    EventLog,
    ReportStore,
    TurnLog,
    WorkFiles,
)
from ctxkit.agent.store.session_log import SessionLog, get_checkpoint
from ctxkit.agent.store.workspace import Workspace, check_session_name
from ctxkit.agent.system_prompt import PromptSections, PromptSources, parse_section_names
from ctxkit.agent.tools.builtin import FILE_TOOLS, make_tools
from ctxkit.agent.tools.root import Root
from ctxkit.agent.turn import Limits, Listener, LiveEvent, ignore_event, is_compaction
from ctxkit.errors import BadArguments, CtxkitError, StoreError
from ctxkit.formats.snapshots.frame_writer import SnapshotWriter
from ctxkit.policies.rules import budget_thresholds
from ctxkit.session.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pandas as pd

    from ctxkit.agent.live_context import SentPrompts
    from ctxkit.agent.memory.session_memory import SessionMemory
    from ctxkit.agent.models.model import Model
    from ctxkit.agent.span_export import SpanAddress
    from ctxkit.agent.tools.runner import Approve, OutputLimits
    from ctxkit.agent.tools.tool import Tool
    from ctxkit.agent.turn import LiveEvent, Outcome
    from ctxkit.engine.sent import SentItem
    from ctxkit.policies.memory_entries import MemoryEntry
    from ctxkit.policies.protocols import Policy
    from ctxkit.policies.rules import Rules
    from ctxkit.session.messages import Edit, Image, Message, ToolSchema

MEMORY_GRACE = 2.0
"""Seconds in which a memory is told of a turn that used up its time."""
_APPEND_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND


class LiveSession:
    """A session of this project that can be talked to.

    Args:
        name: its name; one that exists is resumed.
        model: answers.
        rules: the context manager.
        tools: names out of `files`, `document`, `work`, `shell`, `python`, or tools of the user's
            own.
        root: folder of the tools; None: a scratch folder of the session.
        allow: names of `agent.tools.root` that its tools may write all the same.
        workspace: where it is kept.
        namespace: the user's variables, for the tool `python`.
        words: how its parts were named, to be kept in it: `model`, `rules`, `tools`, `root`, ...;
            what is not among them is kept as the parts call themselves.
        seed: what the id of a new session follows from (see `Workspace.new_id`).
        limits: of each turn; None: those that it was kept with.
        memory: what is remembered for it; None: nothing is, and nothing is kept.
        agent: its name among others; a team has several.
        parent: id of the session that it is a part of.
        outputs: how much of a tool's output is kept; None: as the rules say, else the usual.
        via: makes what works on it (`guests.Guest`); None: an `Agent`.
        more: what `Agent` takes beside: `approve`, `summary_model`, `summary_seconds`, `prompts`.

    Raises:
        StoreError: another process writes the session.
        BadArguments: the session was not begun here by this user, and nobody vouched for it; an
            unknown tool, or a script for a conversation with a model.
    """

    def __init__(
        self,
        name: str,
        *,
        model: Model,
        rules: Rules,
        clock: Callable[[], float],
        tools: Sequence[str | Tool] = (FILE_TOOLS,),
        root: str | Path | None = None,
        allow: Sequence[str] = (),
        workspace: Workspace | None = None,
        namespace: dict[str, Any] | None = None,
        seed: str = "",
        hear: Listener = ignore_event,
        limits: Limits | None = None,
        approve: Approve | None = None,
        summary_model: Model | None = None,
        summary_seconds: float = 120.0,
        words: Mapping[str, Any] | None = None,
        prompts: SentPrompts | None = None,
        memory: SessionMemory | None = None,
        agent: str = "main",
        parent: str | None = None,
        outputs: OutputLimits | None = None,
        via: Callable[..., Agent] | None = None,
    ) -> None:
        self.memory = memory
        self.workspace = workspace or Workspace()
        self.workspace.make()
        self.name, self._clock, self._listeners = check_session_name(name), clock, [hear]
        self.workspace.check(name)
        self.root = Root(root or self._open_scratch(), allow)
        self._agent_name = self.name if agent == "main" else agent
        self._has_own_root, self.store = (
            root is not None,
            ContextStore(self.workspace.folder.parent),
        )
        work_files = WorkFiles(self.workspace, clock)
        work_tools = work_files.tools(lambda: self.id)
        namespace = {} if namespace is None else namespace
        agent_tools = make_tools(tools, self.root, namespace, self.store, work_tools)
        schemas = () if via else tuple(t.schema for t in (*agent_tools, COMPACT_TOOL))
        self.settings = {
            "model": model.name,
            "rules": rules.label,
            "root": str(root or ""),
            "tools": ",".join(each if isinstance(each, str) else each.name for each in tools),
            "allow": ",".join(allow),
            **(words or {}),
        }
        """How its parts were named."""
        new_session = Session(
            id=self.workspace.new_id(name, seed),
            format="live",
            title=name,
            product="ctxkit",
            agent=agent,
            parent=parent,
            model=redact(model.name),
            started=clock(),
            cwd=str(Path.cwd()),
            context_window=rules.window or model.context_window,
            tools=schemas,
            details={k: n for k, n in budget_thresholds(rules).items() if n},
        )
        new_session = with_session_settings(
            new_session, make_session_settings(self.settings, rules, limits or Limits())
        )
        self.notes: tuple[str, ...] = ()
        """What must be said of how it goes on: sentences for the user."""
        self._is_busy = False
        self._exports: list[SpanExport] = []
        self.log = SessionLog(self.workspace.sessions, name, new_session, self._trust_session)
        try:
            if self.log.session is new_session:  # which says already how it is led
                limits = limits or Limits()
            else:
                limits = self._store_settings(model, rules, limits, schemas)
            events = self.workspace.open(self.workspace.events(self.id), _APPEND_FLAGS)
            self._event_log = EventLog(events, self.id, agent)
            write_artifact = partial(self.workspace.keep, self.workspace.results(self.id))
            artifacts = ArtifactStore(self.root, write_artifact)
            self._work_files = work_files
            self.agent = (via or Agent)(
                self.log.session,
                model=model,
                rules=rules,
                tools=agent_tools,
                keep=self.log.append,
                limits=limits,
                clock=clock,
                hear=self._on_event,
                approve=approve,
                offload=artifacts.keep,
                save=artifacts.save,
                summary_model=summary_model,
                summary_seconds=summary_seconds,
                memory=self.root,
                prompts=prompts,
                outputs=outputs,
            )
            self._snapshots = SnapshotWriter(
                self.workspace.snapshots(self.id),
                self.id,
                **budget_thresholds(rules),
                opener=self.workspace.open,
                now=lambda: datetime.fromtimestamp(clock(), UTC),
            )
            self.reports = ReportStore(self.workspace, self.id)
            """What filled the window at the end of each turn."""
            self._turn_log = TurnLog(self._snapshots, self.session)
            self._promoter = MemoryPromoter(memory, lambda: self.session, self._emit)
        except BaseException:
            self.log.close()
            raise

    def take(self, rules: Rules, name: str) -> None:
        """Go on under other rules from here; what was done stays, and so does the log of it.

        Args:
            rules: the context manager from the next call on.
            name: what names it, as `%%agent --rules` takes it: kept in the session.

        Raises:
            BadArguments: a turn runs.
        """
        if self._is_busy:
            raise busy_error(self.name)
        schemas = tuple(tool.schema for tool in self.agent.tools.values())
        self.settings["rules"] = name
        self._store_settings(self.agent.model, rules, self.agent.limits, schemas)
        self.agent.take(rules)
        self._emit("moved", {"rules": name})

    @property
    def session(self) -> Session:
        """The session as it stands; what its calls were sent is known to it."""
        return self.agent.backed(self.log.session)

    def sent(self, call: int | None) -> tuple[SentItem, ...]:
        """Return what went out at a call, as `session.sent` does; None: what would go out next."""
        return self.session.sent(call)

    def inject(self, words: str, own: str = "") -> None:
        """Set what is put into prompts from the next turn on: sections as
        `agent.system_prompt.parse_section_names` names them.

        Without any, `own` is all that the session begins with.

        Args:
            words: `on`, `off`, names, or names with signs.
            own: the agent's own instructions; empty: none, or those that it began with.

        Raises:
            BadArguments: there is no such section, or the session began with other instructions.
        """
        names = parse_section_names(words)
        memory = self.memory.text if self.memory is not None else None
        root = self.root if self._has_own_root else None
        folder, store = self.root.folder, self.store
        sources = PromptSources(folder=folder, root=root, own=own, store=store, memory=memory)
        sections = PromptSections(names, sources)
        if names:
            sections.check(self.session)
        elif own:
            self.agent.instruct(own)
        self.agent.sections = sections if names else None

    @property
    def id(self) -> str:
        """Its id, eight hexadecimal digits."""
        return self.log.session.id

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """All who are told events."""
        return tuple(self._listeners)

    def listen(self, listener: Listener) -> None:
        """Tell events to one more listener from now on."""
        self._listeners.append(listener)

    def export(self, to: SpanAddress) -> SpanExport:
        """Send the spans of the session to a collector from now on, beside what it does."""
        spans = SpanExport(lambda: self.session, to, self._emit)
        self._exports.append(spans)
        self.listen(spans.hear)
        return spans

    def unlisten(self, listener: Listener) -> None:
        """Tell a listener no more events."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    async def turn(
        self,
        prompt: str,
        preceding: Sequence[Message] = (),
        attached: Sequence[Image] = (),
        details: Mapping[str, Any] | None = None,
    ) -> Outcome:
        """Take one turn; a snapshot row is written at its end, however it ends.

        `preceding` is what other agents said since the last turn: it is written before the prompt;
        `attached` are pictures that go with it, `details` what is kept with it and never sent.

        Raises:
            StoreError: the kit itself failed; the session is whole, and the sentence names the file
                that says more.
            BadArguments: a turn or a compaction of it is running: also where one of its own tools
                asks.
        """
        max_seconds, sections, seconds_used = self.agent.limits.seconds, self.agent.sections, 0.0
        try:
            with self.alone():
                if sections is not None and "memory" in sections.names:
                    started = self._clock()
                    await self._promoter.before(self._agent_name, prompt, max_seconds)
                    seconds_used = self._clock() - started
                try:
                    outcome = await self.agent.turn(
                        prompt, preceding, attached, details, seconds_used
                    )
                finally:
                    self._turn_log.end(self.session)
                    self._store_report()
                seconds_left = (
                    None
                    if max_seconds is None
                    else max(max_seconds - outcome.spent.seconds, MEMORY_GRACE)
                )
                await self._promoter.after(self._agent_name, seconds_left)
                return outcome
        except (CtxkitError, asyncio.CancelledError):
            raise
        except Exception as e:  # noqa: BLE001  the file has its words, which may hold what must not be shown
            raise StoreError(self._write_crash_report(e)) from None

    @property
    def turns(self) -> pd.DataFrame:
        """The turns so far as one DataFrame, with the columns of ``ctxkit.frame(per="turn")``; it
        grows.

        It is the same object each time, a row more at each turn's end, as its log of snapshots has
        a line more. After a branch or a restore it holds the turns that stand, as its log does:
        there, lines of turns that were left are taken back; the session's own log keeps them.
        """
        return self._turn_log.frame

    async def compact(
        self, policy: Policy | None = None, *, focus: str = "", instead: Policy | None = None
    ) -> tuple[Edit, ...]:
        """Compact by hand; empty where there is too little, also for the policy `instead`."""
        with self.alone():
            return await self.agent.compact(policy, focus=focus, instead=instead)

    @property
    def busy(self) -> bool:
        """True while a turn or a compaction runs."""
        return self._is_busy

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the session for one piece of work.

        Raises:
            BadArguments: another is under way.
        """
        if self._is_busy:
            raise busy_error(self.name)
        self._is_busy = True
        try:
            yield
        finally:
            self._is_busy = False

    def limit(self, limits: Limits) -> None:
        """Set the limits of each turn from now on, and keep them with what else was named anew.

        Raises:
            StoreError: they could not be kept.
        """
        self.agent.limits = limits
        settings = make_session_settings(self.settings, self.agent.rules, limits)
        before = read_session_settings(self.session)
        if before is None or replace(before, seal="") != settings:
            self.agent.replace_session(
                self.log.revise(with_session_settings(self.session, settings))
            )

    async def remember(self) -> tuple[list[MemoryEntry], str]:
        """Let the model say what of the session is worth remembering (see `Promotions.remember`).

        Raises:
            BadArguments: the session has no memory, or is busy.
            ModelError: the model failed; nothing was kept.
            StoreError: it cannot be kept.
        """
        with self.alone():
            return await self._promoter.remember(self.agent.writer, self.agent.summary_seconds)

    # -- branch and restore -----------------------------------------------------------------------

    def restore(self, number: int) -> Session:
        """Go back to just before a compaction; what came after stays in the log as a branch.

        Raises:
            BadArguments: there is no such checkpoint.
        """
        checkpoint = get_checkpoint(self.session, number)
        if checkpoint.entry < 0:
            raise BadArguments(
                f"Checkpoint {number} lies before the first message; use `reset` for a fresh"
                " session."
            )
        return self.move(checkpoint.entry)

    def move(self, entry: int) -> Session:
        """Stand at an entry of the log; what is said next begins a branch there."""
        with self.alone():
            moved = self.log.move(entry)
        self.agent.move(moved, self.log.append)
        self._turn_log.moved(self.session)
        self._promoter.moved()
        self._emit("moved", {"entry": entry})
        return moved

    def close(self) -> None:
        """Give the session and its model's memory free; what may outlive the talk is remembered."""
        with ExitStack() as closing:  # the session is free at the end, whatever else fails
            closing.callback(self.log.close)
            closing.callback(self._snapshots.close)
            closing.callback(self._event_log.close)
            closing.callback(getattr(self.agent.model, "close", lambda: None))
            for spans in self._exports:
                closing.callback(spans.close)
            self._promoter.end(self.agent.writer, self.agent.summary_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- inside -----------------------------------------------------------------------------------

    def _store_settings(
        self, model: Model, rules: Rules, limits: Limits | None, schemas: tuple[ToolSchema, ...]
    ) -> Limits:
        """Keep how the session is led from now on; note what differs, return a turn's limits."""
        stored = self.log.session
        check_model(stored, model, self.name)
        old_settings = read_session_settings(stored)
        limits = limits or restore_limits(old_settings)
        settings = make_session_settings(self.settings, rules, limits)
        updated = replace(
            with_session_settings(stored, settings), model=redact(model.name), tools=schemas
        )
        if stored.log:
            self.notes = (
                *describe_differences(stored, old_settings, settings, model),
                *describe_tool_changes(stored, updated),
            )
        if updated != stored:
            self.log.revise(updated)
        return limits

    def _store_report(self) -> None:
        """Keep what filled the window at the end of a turn."""
        stored = self.reports.keep(self.session, self._clock)
        if stored is not None:
            sizes = {"tokens": stored.report.prompt_tokens, "turn": stored.turn}
            self._emit("context_report_created", {"context_report_id": stored.id, **sizes})

    def _emit(self, kind: str, payload: dict[str, Any]) -> None:
        self.agent.tell(kind, payload)

    def _on_event(self, event: LiveEvent) -> None:
        if event.kind != "delta":
            self._event_log.write(event.kind, event.time, event.turn, event.payload)
        self._work_files.hear(event.kind, lambda: self.session)
        if event.kind in ("turn_start", "model_call"):
            self._turn_log.called(event.kind)
        elif event.kind == "compaction_end" and is_compaction(event.payload):
            self._turn_log.compacted(self.session)
            self._promoter.compacted()
        for listener in tuple(self._listeners):
            try:
                listener(event)
            except Exception as e:  # noqa: BLE001  a display that fails must not cost the turn
                self.unlisten(listener)
                payload = {"error": f"{type(e).__name__}: {redact(str(e))[:300]}"}
                self._event_log.write("listener_failed", event.time, event.turn, payload)

    def _trust_session(self, name: str) -> None:
        """Note that a session is this user's; where that cannot be noted, a later kernel asks."""
        with suppress(StoreError):
            self.workspace.vouch(name)

    def _open_scratch(self) -> Path:
        """Return the session's own folder for its tools, made without following links."""
        folder = self.workspace.scratch(self.name)
        with self.workspace.reach(folder, make=0o777):
            return folder

    def _write_crash_report(self, error: Exception) -> str:
        path = self.workspace.crash(self.id)
        text = redact("".join(traceback.format_exception(error)))
        try:
            self.workspace.write(path, text)
            more = f"{path} says what happened."
        except StoreError as e:
            more = f"What happened could not be written down: {e}"
        return (
            f"The kit failed in this turn ({type(error).__name__}); session {self.name!r} is whole,"
            f" send the prompt again to go on. {more}"
        )


def busy_error(name: str) -> BadArguments:
    """Return what is said to whoever asks a session that is at work."""
    return BadArguments(
        f"Session {name!r} is busy: wait for its turn, or stop it, before the next one. "
        "A tool cannot ask the session that runs it: give it another one."
    )
