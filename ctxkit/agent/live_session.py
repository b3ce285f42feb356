"""A live session: an agent with its session, events, snapshots and artifacts on disk."""

from __future__ import annotations

import asyncio
import os
import traceback
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from msgspec.structs import replace

from ctxkit._internal.redaction import redact
from ctxkit.agent.agent import COMPACT_TOOL, Agent
from ctxkit.agent.artifact_store import ArtifactStore
from ctxkit.agent.ctxkit_folder_and_session_trust import Workspace, check_session_name
from ctxkit.agent.document_store import ContextStore
from ctxkit.agent.event_snapshot_and_report_files import (
    ChangeIntentEvidenceWriter,
    ContextReportStore,
    EventLog,
    TurnSnapshotRowWriter,
)
from ctxkit.agent.memory.session_memory import MemoryLifecycle
from ctxkit.agent.session_log import SessionLog, get_checkpoint
from ctxkit.agent.session_settings_seal_and_changes import (
    describe_settings_changes,
    describe_tool_changes,
    make_unsealed_session_settings,
    read_session_settings,
    refuse_scripted_model_after_real,
    restore_limits,
    with_session_settings,
)
from ctxkit.agent.span_export import SpanExporter
from ctxkit.agent.system_prompt import (
    PromptSectionSources,
    PromptSectionUpdater,
    parse_section_names,
)
from ctxkit.agent.tools.confined_root import RootFolder
from ctxkit.agent.tools.file_tools_and_pdf_office_text import (
    CombinedExtraFiles,
    describe_artifact_reading,
)
from ctxkit.agent.tools.python_shell_and_summary_tools import FILE_TOOLS, make_tools
from ctxkit.agent.turn_limits_and_token_budgets import Limits
from ctxkit.agent.turn_state_and_events import (
    Listener,
    LiveEvent,
    ignore_event,
    is_successful_compaction,
)
from ctxkit.errors import BadArguments, CtxkitError, StoreError
from ctxkit.formats.snapshots.token_log_writer import SnapshotWriter
from ctxkit.policies.compaction_and_pruning_rules import get_warn_and_cutover_tokens
from ctxkit.session.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pandas as pd

    from ctxkit.agent.memory.session_memory import SessionMemory
    from ctxkit.agent.models.model import Model
    from ctxkit.agent.span_export import OtlpCollectorSettings
    from ctxkit.agent.tools.execution_and_results import Approve, OutputLimits
    from ctxkit.agent.tools.tool import Tool
    from ctxkit.agent.turn_state_and_events import LiveEvent, Outcome
    from ctxkit.engine.run_segments_and_prompts import SentItem
    from ctxkit.engine.sent_prompts import SentPrompts
    from ctxkit.policies.compaction_and_pruning_rules import Rules
    from ctxkit.policies.memory_entries import MemoryEntry
    from ctxkit.policies.protocols import Policy
    from ctxkit.session.messages import Attachment, Edit, Message, ToolSchema

MEMORY_GRACE = 2.0
"""Seconds for saving the conversation to memory after a turn that used up its time."""
_APPEND_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND


# What a live session adds to an agent
#
# * The session log is appended to before anything is shown, so a killed kernel loses nothing that
#   a user saw (`SessionLog`). Events, snapshots, reports and work files are derived from it: where
#   one of them cannot be written, the turn continues.
# * One turn or compaction at a time (`alone`). The flag is not a lock: all work on a session runs
#   on one event loop at a time, and a second request is an error for the user, not a wait.
# * Every event goes, in this order, to the event log, the work files, the turn log, memory, and
#   then to the listeners. A listener that raises is removed, and its failure is logged.
# * The settings (model, rules, tools, limits) are stored under the user's seal whenever they
#   change, so a resumed session can say what is different (`session_settings_seal_and_changes`).


class LiveSession:
    """A session in a project's workspace, with an agent that continues it.

    Args:
        name: name of the session; an existing one is resumed.
        model: answers the prompts.
        rules: the context manager.
        clock: returns seconds since 1970.
        tools: some of `files`, `document`, `work`, `shell`, `python`, or tools of the user.
        root: folder of the tools; None: a scratch folder of the session.
        allow: protected names (`agent.tools.root.PROTECTED_NAMES`) that its tools may write.
        workspace: folder in which the session is stored; None: the current folder's.
        namespace: the user's variables, for the tool `python`.
        seed: makes the id of a new session reproducible (see `Workspace.new_id`).
        listener: called with every event.
        limits: limits of each turn; None: those stored in the session, else the defaults.
        approve: decides before each tool call whether it may run; None: every call may.
        summary_model: writes summaries; None: as for `Agent`.
        summary_seconds: seconds that a summary may take, where the rules set no limit.
        words: how the user named the parts (`model`, `rules`, `tools`, `root`, ...), stored in the
            session; a part that is missing is stored under its own name.
        prompts: the prompts sent so far; None: none were.
        memory: memory of the session; None: it has none.
        agent: name of the agent; the sessions of a team have several.
        parent: id of the session that this one is part of.
        outputs: limits of a tool's output; None: those of the rules, else the defaults.
        via: makes the agent, with the arguments of `Agent`; None: `Agent` itself.

    Raises:
        StoreError: another process writes the session.
        BadArguments: this user neither began the session here nor trusted it; a tool is unknown;
            or a script would continue a conversation with a model.

    Example:
        >>> import asyncio, tempfile
        >>> from ctxkit.agent import LiveSession, Workspace, make_model
        >>> from ctxkit.policies import Rules
        >>> from ctxkit.tokens import default_counter
        >>> clock = lambda: 0.0
        >>> model = make_model("scripted/tour", counter=default_counter(), clock=clock)
        >>> place = Workspace(tempfile.mkdtemp())
        >>> live = LiveSession("demo", model=model, rules=Rules(), clock=clock, workspace=place)
        >>> asyncio.run(live.turn("List the files.")).ended
        'answered'
        >>> live.close()
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
        listener: Listener = ignore_event,
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
        self.name, self._clock, self._listeners = check_session_name(name), clock, [listener]
        self.workspace.check(name)
        self.root = RootFolder(root or self._open_scratch(), allow)
        self._agent_name = self.name if agent == "main" else agent
        self._has_own_root = root is not None
        self.store = ContextStore(self.workspace.folder.parent)
        work_files = ChangeIntentEvidenceWriter(self.workspace, clock)
        work_tools = work_files.tools(lambda: self.id)
        namespace = {} if namespace is None else namespace
        self._artifacts = self._make_artifact_store()
        files = CombinedExtraFiles(self.store, self._artifacts)
        agent_tools = make_tools(tools, self.root, namespace, files, work_tools)
        schemas = () if via else tuple(t.schema for t in (*agent_tools, COMPACT_TOOL))
        self.settings = {
            "model": model.name,
            "rules": rules.label,
            "root": str(root or ""),
            "tools": ",".join(each if isinstance(each, str) else each.name for each in tools),
            "allow": ",".join(allow),
            **(words or {}),
        }
        """How the user named the parts."""
        new_session = self._make_new_session(
            model, rules, limits or Limits(), schemas, seed=seed, agent=agent, parent=parent
        )
        self.notes: tuple[str, ...] = ()
        """Sentences for the user on what differs from the stored settings."""
        self._is_busy = False
        self._exports: list[SpanExporter] = []
        self.log = SessionLog(self.workspace.sessions, name, new_session, self._trust_session)
        try:
            if self.log.session is new_session:  # its settings are stored already
                limits = limits or Limits()
            else:
                limits = self._store_settings(model, rules, limits, schemas)
            events = self.workspace.open(self.workspace.events(self.id), _APPEND_FLAGS)
            self._event_log = EventLog(events, self.id, agent)
            self._work_files = work_files
            self.agent = (via or Agent)(
                self.log.session,
                model=model,
                rules=rules,
                tools=agent_tools,
                append=self.log.append,
                limits=limits,
                clock=clock,
                listener=self._on_event,
                approve=approve,
                offload=self._artifacts.store_result,
                save=self._artifacts.save,
                summary_model=summary_model,
                summary_seconds=summary_seconds,
                memory=self.root,
                prompts=prompts,
                outputs=outputs,
            )
            self._snapshots = SnapshotWriter(
                self.workspace.snapshots(self.id),
                self.id,
                **get_warn_and_cutover_tokens(rules),
                opener=self.workspace.open,
                now=lambda: datetime.fromtimestamp(clock(), UTC),
            )
            self.reports = ContextReportStore(self.workspace, self.id)
            """Context reports, one per turn."""
            self._turn_log = TurnSnapshotRowWriter(self._snapshots, self.session)
            self._promoter = MemoryLifecycle(memory, lambda: self.session, self._emit)
        except BaseException:
            self.log.close()
            raise

    def _make_artifact_store(self) -> ArtifactStore:
        """Return the store of large tool results; it asks for session and tools when it is used."""
        return ArtifactStore(
            self.workspace,
            lambda: [i for i in (self.id, self.log.session.parent) if i],
            on_failure=lambda tool, error: self._emit(
                "artifact_failed", {"tool_name": tool, "error": error}
            ),
            on_stored=lambda tool, chars, file: self._emit(
                "artifact_stored", {"tool_name": tool, "chars": chars, "file": str(file)}
            ),
            advice=lambda: describe_artifact_reading(t.schema for t in self.agent.tools.values()),
        )

    def _make_new_session(
        self,
        model: Model,
        rules: Rules,
        limits: Limits,
        schemas: tuple[ToolSchema, ...],
        *,
        seed: str,
        agent: str,
        parent: str | None,
    ) -> Session:
        """Return the empty session that the file begins with if there is none of this name."""
        new_session = Session(
            id=self.workspace.new_id(self.name, seed),
            format="live",
            title=self.name,
            product="ctxkit",
            agent=agent,
            parent=parent,
            model=redact(model.name),
            started=self._clock(),
            cwd=str(Path.cwd()),
            context_window=rules.window or model.context_window,
            tools=schemas,
            details={k: n for k, n in get_warn_and_cutover_tokens(rules).items() if n},
        )
        return with_session_settings(
            new_session, make_unsealed_session_settings(self.settings, rules, limits)
        )

    def use_rules(self, rules: Rules, name: str) -> None:
        """Manage the context by other rules from the next call on; past edits stay in force.

        Args:
            rules: the context manager from the next call on.
            name: name of the rules as `%%agent --rules` takes it, stored in the session.

        Raises:
            BadArguments: a turn is running.
        """
        if self._is_busy:
            raise busy_error(self.name)
        schemas = tuple(tool.schema for tool in self.agent.tools.values())
        self.settings["rules"] = name
        self._store_settings(self.agent.model, rules, self.agent.limits, schemas)
        self.agent.use_rules(rules)
        self._emit("moved", {"rules": name})

    @property
    def session(self) -> Session:
        """The session so far, with the prompts that its calls were sent."""
        return self.agent.attach_prompt_source(self.log.session)

    def sent(self, call: int | None) -> tuple[SentItem, ...]:
        """Return the prompt of a call, as `session.sent` does; None: of the next call."""
        return self.session.sent(call)

    def inject(self, words: str, instructions: str = "") -> None:
        """Set the prompt sections from the next turn on.

        Args:
            words: `on`, `off`, names, or names with signs (see
                `agent.system_prompt.parse_section_names`).
            instructions: instructions of the agent; empty: none, or those that the session began
                with. Without sections they are all that the session begins with.

        Raises:
            BadArguments: there is no such section, or the session began with other instructions.
        """
        names = parse_section_names(words)
        memory = self.memory.text if self.memory is not None else None
        root = self.root if self._has_own_root else None
        folder, store = self.root.folder, self.store
        sources = PromptSectionSources(
            folder=folder, root=root, own=instructions, store=store, memory=memory
        )
        sections = PromptSectionUpdater(names, sources)
        if names:
            sections.check(self.session)
        elif instructions:
            self.agent.instruct(instructions)
        self.agent.sections = sections if names else None

    @property
    def id(self) -> str:
        """Id of the session, eight hexadecimal digits."""
        return self.log.session.id

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """The listeners that get every event."""
        return tuple(self._listeners)

    def listen(self, listener: Listener) -> None:
        """Add a listener, called with every event from now on."""
        self._listeners.append(listener)

    def export(self, to: OtlpCollectorSettings) -> SpanExporter:
        """Send the session's spans to an OTLP collector from now on, in the background.

        Args:
            to: address of the collector.

        Returns:
            The exporter.
        """
        spans = SpanExporter(lambda: self.session, to, self._emit)
        self._exports.append(spans)
        self.listen(spans.on_event)
        return spans

    def unlisten(self, listener: Listener) -> None:
        """Remove a listener."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    async def turn(
        self,
        prompt: str,
        preceding: Sequence[Message] = (),
        images: Sequence[Attachment] = (),
        details: Mapping[str, Any] | None = None,
    ) -> Outcome:
        """Run one turn; however it ends, a snapshot row and a context report are written.

        Args:
            prompt: the user's message.
            preceding: messages of other agents since the last turn; they are stored before the
                prompt.
            images: images that are sent with the prompt.
            details: stored with the prompt and never sent.

        Returns:
            How the turn ended, its last reply, and what it has cost.

        Raises:
            StoreError: ctxkit itself failed; the session is intact, and the sentence names the
                crash report.
            BadArguments: a turn or compaction of the session is running, for instance because one
                of its own tools calls this.
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
                        prompt, preceding, images, details, seconds_used
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
        except Exception as e:  # noqa: BLE001  it may hold secrets: a file gets it redacted
            raise StoreError(self._write_crash_report(e)) from None

    @property
    def turns(self) -> pd.DataFrame:
        """The turns so far, with the columns of ``ctxkit.frame(per="turn")``.

        It is always the same DataFrame, updated in place: one more row at the end of each turn, as
        the snapshot log has one more line. After a branch or a restore both hold only the turns on
        the current path; the session log keeps the others.
        """
        return self._turn_log.frame

    async def compact(
        self, policy: Policy | None = None, *, focus: str = "", fallback: Policy | None = None
    ) -> tuple[Edit, ...]:
        """Compact by hand (see `Compactor.compact`); return the edits, none if there is too
        little.

        Args:
            policy: makes the compaction; None: the rules' own policy.
            focus: what the summary should pay attention to.
            fallback: used if `policy` finds nothing to do.
        """
        with self.alone():
            return await self.agent.compact(policy, focus=focus, fallback=fallback)

    @property
    def busy(self) -> bool:
        """True while a turn or a compaction is running."""
        return self._is_busy

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Mark the session as busy inside the block.

        Raises:
            BadArguments: it is busy already.
        """
        if self._is_busy:
            raise busy_error(self.name)
        self._is_busy = True
        try:
            yield
        finally:
            self._is_busy = False

    def limit(self, limits: Limits) -> None:
        """Set the limits of each turn from now on, and store them with the other settings.

        Raises:
            StoreError: they could not be stored.
        """
        self.agent.limits = limits
        settings = make_unsealed_session_settings(self.settings, self.agent.rules, limits)
        before = read_session_settings(self.session)
        if before is None or replace(before, seal="") != settings:
            self.agent.replace_session(
                self.log.revise(with_session_settings(self.session, settings))
            )

    async def remember(self) -> tuple[list[MemoryEntry], str]:
        """Let the model extract memories from the session (see `MemoryLifecycle.remember`).

        Returns:
            The stored entries, and a phrase on what the extraction cost.

        Raises:
            BadArguments: the session has no memory, or is busy.
            ModelError: the model failed; nothing was stored.
            StoreError: an entry cannot be stored.
        """
        with self.alone():
            return await self._promoter.remember(self.agent.writer, self.agent.summary_seconds)

    # -- branch and restore -----------------------------------------------------------------------

    def restore(self, number: int) -> Session:
        """Go back to just before a compaction; later entries stay in the log as another branch.

        Args:
            number: number of the checkpoint; negative numbers count from the end.

        Returns:
            The session as it continues.

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
        """Move to an entry of the log (its index); the next message starts a branch there.

        Returns:
            The session as it continues.
        """
        with self.alone():
            moved = self.log.move(entry)
        self.agent.move(moved, self.log.append)
        self._turn_log.on_move(self.session)
        self._promoter.on_move()
        self._emit("moved", {"entry": entry})
        return moved

    def close(self) -> None:
        """Promote memories, then release the session's files, its lock and the model."""
        with ExitStack() as closing:  # the lock is released last, whatever else fails
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
        """Store the new settings, note what differs from the old ones, return the limits."""
        stored = self.log.session
        refuse_scripted_model_after_real(stored, model, self.name)
        old_settings = read_session_settings(stored)
        limits = limits or restore_limits(old_settings)
        settings = make_unsealed_session_settings(self.settings, rules, limits)
        updated = replace(
            with_session_settings(stored, settings), model=redact(model.name), tools=schemas
        )
        if stored.log:
            self.notes = (
                *describe_settings_changes(stored, old_settings, settings, model),
                *describe_tool_changes(stored, updated),
            )
        if updated != stored:
            self.log.revise(updated)
        return limits

    def _store_report(self) -> None:
        """Store the context report of the turn that ended."""
        stored = self.reports.store(self.session, self._clock)
        if stored is not None:
            sizes = {"tokens": stored.report.prompt_tokens, "turn": stored.turn}
            self._emit("context_report_created", {"context_report_id": stored.id, **sizes})

    def _emit(self, kind: str, payload: dict[str, Any]) -> None:
        self.agent.emit(kind, payload)

    def _on_event(self, event: LiveEvent) -> None:
        if event.kind != "delta":
            self._event_log.write(event.kind, event.time, event.turn, event.payload)
        self._work_files.on_event(event.kind, lambda: self.session)
        if event.kind in ("turn_start", "model_call"):
            self._turn_log.note_call(event.kind)
        elif event.kind == "compaction_end" and is_successful_compaction(event.payload):
            self._turn_log.note_compaction(self.session)
            self._promoter.promote_removed()
        for listener in tuple(self._listeners):
            try:
                listener(event)
            except Exception as e:  # noqa: BLE001  a listener that fails must not end the turn
                self.unlisten(listener)
                payload = {"error": f"{type(e).__name__}: {redact(str(e))[:300]}"}
                self._event_log.write("listener_failed", event.time, event.turn, payload)

    def _trust_session(self, name: str) -> None:
        """Mark a session as this user's; if that fails, a later kernel asks for `--trust`."""
        with suppress(StoreError):
            self.workspace.trust(name)

    def _open_scratch(self) -> Path:
        """Return the session's scratch folder, created without following links."""
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
    """Return the error for a request to a busy session."""
    return BadArguments(
        f"Session {name!r} is busy: wait for its turn, or stop it, before the next one. "
        "A tool cannot ask the session that runs it: give it another one."
    )
