"""Live sessions of a kernel, and the models, rules, tools and instructions that their settings
name.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit._internal.formatting import sanitize_line
from ctxkit.agent.models.model_factory import LOOKUP_NAME
from ctxkit.agent.models.scripted import SCRIPTS
from ctxkit.agent.session_settings_seal import read_session_settings
from ctxkit.agent.system_prompt import PROJECT_FILES, parse_section_names
from ctxkit.agent.tools.confined_root import RootFolder
from ctxkit.agent.tools.runner import OutputLimits
from ctxkit.agent.tools.tool import Tool, tool
from ctxkit.errors import BadArguments, StoreError, did_you_mean
from ctxkit.magics.cell_options_and_config import (
    AgentArguments,
    make_session_memory,
    parse_memory_option,
)
from ctxkit.magics.line_parser import get_settings
from ctxkit.magics.mcp_and_acp_programs import (
    McpServers,
    open_external_session,
    parse_servers,
    parse_via,
)
from ctxkit.policies.context_rules import Rules
from ctxkit.policies.summary_compaction import Summary
from ctxkit.policies.triggers import Share
from ctxkit.tokens.prices import price

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ctxkit.agent.event_loops import BackgroundTask
    from ctxkit.agent.live_session import LiveSession
    from ctxkit.agent.memory.session_memory import SessionMemory
    from ctxkit.agent.models.model import Model
    from ctxkit.agent.span_export import OtlpCollectorSettings
    from ctxkit.agent.turn_state_and_events import Listener
    from ctxkit.engine.session_prompts import SentPrompts
    from ctxkit.magics.cell_options_and_config import KitSettings
    from ctxkit.magics.mcp_and_acp_programs import McpServerCommand


SESSION_SETTINGS = tuple(get_settings(AgentArguments))
"""Options that are stored with a session when it is opened."""
DEFAULT_SESSION = "main"
"""Name of a session if the user gives none."""


# A name is unknown, remembered (settings only) or open. `_known` holds open sessions and `_made`
# the parts that each was opened with; where new settings resolve to other parts, the session is
# opened again. `_remembered` holds settings with which a session is opened next, `_running` the
# latest background turn of each, `_always` the tools allowed for good. Only `open` adds to
# `_known`, and no session is closed or changed by `open` while a turn of it runs.
class LiveSessions:
    """Live sessions by name.

    Args:
        kit: the magics; its settings are the defaults.
    """

    def __init__(self, kit: KitSettings) -> None:
        self._kit, self.named = kit, SettingsResolver(kit)
        self._open_sessions: dict[str, LiveSession] = {}
        self._configs: dict[str, LiveSessionConfig] = {}
        self._remembered: dict[str, dict[str, Any]] = {}
        self._running: dict[str, BackgroundTask[Any]] = {}
        self._always: dict[str, set[str]] = {}
        self.servers = McpServers()
        self.current: str | None = None

    def __contains__(self, name: object) -> bool:
        return name in self._open_sessions

    def get(self, name: str | None = None) -> LiveSession:
        """Return a session that is open; without a name the active one, else the one that was last
        talked to.

        Raises:
            BadArguments: it is not open, or none is.
        """
        chosen = name or self.current_name
        if chosen is None or chosen not in self._open_sessions:
            sentence = (
                f"No live session is called {chosen!r}" if chosen else "No live session is open"
            )
            command = f"%%agent --session {chosen}" if chosen else "%%agent"
            suggestion = did_you_mean(chosen or "", self._open_sessions)
            raise BadArguments(f"{sentence}: begin one with `{command}`.{suggestion}")
        return self._open_sessions[chosen]

    @property
    def current_name(self) -> str | None:
        """Name of the session that is meant where none is named; None: there is none yet."""
        active = self._kit.sessions.active_name
        return (
            active if active in self._open_sessions or active in self._remembered else self.current
        )

    def open(self, name: str, **options: Any) -> LiveSession:
        """Return a session ready for a turn: opened, resumed from its file, or as it is with what
        was asked again.

        Raises:
            BadArguments: it is busy; or a model, rules or a tool do not exist.
            StoreError: another process holds it.
        """
        # A session whose parts differ from those it was opened with (or whose log was closed) is
        # closed and opened again from its file; otherwise only what was asked is changed in place.
        self.check_idle(name)
        settings = self.settings(name, options)
        parts = self.named.parts(settings)  # refuses what is not there before anything is closed
        previous = self._open_sessions.get(name)
        has_log = previous is not None and bool(previous.session.log)
        system = self.named.system(settings) if options.get("system") or not has_log else ""
        parse_section_names(settings["sections"])
        listeners: tuple[Listener, ...] = ()
        prompts: SentPrompts | None = None
        if previous is not None and (self._configs[name] != parts or previous.log.stopped):
            del self._open_sessions[name]
            self._remembered[name], listeners = previous.settings, previous.listeners
            prompts = previous.agent.prompts
            previous.close()
        if name not in self._open_sessions:
            self._open_sessions[name] = self._open_session(name, settings, parts, prompts)
            self._configs[name] = parts
            for hear in listeners:
                self._open_sessions[name].listen(hear)
            if previous is not None:  # what differs was named in this kernel
                self._open_sessions[name].notes = ()
        live = self._open_sessions[name]
        if not parts.via:
            live.inject(
                settings["sections"],
                system if options.get("system") or not live.session.log else "",
            )
        live.settings = settings
        self.current = name
        self._kit.sessions.add(live.session, name)
        return live

    def always(self, name: str) -> set[str]:
        """Return the tools of a session that were allowed for good; it may grow."""
        return self._always.setdefault(name, set())

    def remember(self, name: str, settings: Mapping[str, Any]) -> None:
        """Store the settings of a session that is not open yet, and continue it."""
        self._remembered[name], self.current = dict(settings), name

    def check_idle(self, name: str) -> None:
        """Check that no turn of a session is running.

        Raises:
            BadArguments: one is.
        """
        running, live = self._running.get(name), self._open_sessions.get(name)
        in_background = running is not None and running.state in ("running", "stopping")
        if in_background or (live is not None and live.busy):
            from ctxkit.agent.live_session import busy_error

            raise busy_error(name)

    def note_running(self, name: str, handle: BackgroundTask[Any]) -> None:
        """Note that a turn runs in the background."""
        self._running[name] = handle

    def close(self, name: str | None = None) -> None:
        """Close one session, or all.

        Raises:
            StoreError: the file of one was replaced or cut; the sentence says where its content is.
        """
        with ExitStack() as closing:  # all are closed, also where one has something to say
            for each in [name] if name else list(self._open_sessions):
                live = self._open_sessions.pop(each, None)
                self._always.pop(each, None)
                closing.callback(self.servers.close, each)
                if live is not None:
                    handle = self._running.pop(each, None)
                    if handle is not None:
                        handle.stop()
                        handle.wait(5)
                    closing.callback(live.close)

    # -- what a session is made of ----------------------------------------------------------------

    def settings(self, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a session: what was asked now, before, or else the kit's."""
        live = self._open_sessions.get(name)
        before = live.settings if live is not None else self._remembered.get(name)
        if before is None:
            stored = read_session_settings(self._kit.read_stored_session(name))
            before = stored.words if stored is not None else {}
        # Precedence, from low to high: the kit, the session as it was opened, this line.
        defaults = {k: getattr(self._kit, k) for k in SESSION_SETTINGS}
        merged = {**defaults, **before, **{k: v for k, v in options.items() if v is not None}}
        if merged["via"]:  # the agent's model is its own affair
            merged["model"] = ""
        return {k: merged[k] for k in defaults}

    def _open_session(
        self,
        name: str,
        settings: dict[str, Any],
        parts: LiveSessionConfig,
        sent: SentPrompts | None,
    ) -> LiveSession:
        from ctxkit.agent.live_session import LiveSession

        if parts.via:
            return open_external_session(
                name,
                parts.via,
                root=parts.root,
                servers=parts.mcp,
                settings=settings,
                seed=self._kit.seed,
            )
        model = self.named.model(parts.model, parts.rules)
        span_address = self._span_address()
        live = LiveSession(
            name,
            memory=self.named.memory(settings["memory"], model),
            model=model,
            summary_model=(
                self.named.model(parts.summary_model, parts.rules) if parts.summary_model else None
            ),
            rules=parts.rules,
            clock=time.time,
            tools=[*self.named.tools(settings["tools"]), *self.servers.tools(name, parts.mcp)],
            root=parts.root,
            allow=parts.allow,
            namespace=self._kit.shell.user_ns,
            words=settings,
            seed=self._kit.seed,
            prompts=sent,
            outputs=parts.outputs,
        )
        if span_address is not None:
            live.export(span_address)
        return live

    def _span_address(self) -> OtlpCollectorSettings | None:
        """Return where the spans of sessions go; None: nowhere."""
        if not self._kit.export:
            return None
        from ctxkit.agent.span_export import OtlpCollectorSettings

        return OtlpCollectorSettings.of(self._kit.export, content=self._kit.export_content)


STANDARD_RULES = Rules(
    policy=Summary(keep_share=0.3, file_lists=True), trigger=Share(share=0.75), name="standard"
)
"""The rules of a live session unless others are named: at three quarters of the window, a summary
and the last 30 %.
"""


class LiveSessionConfig(NamedTuple):
    """The parts of a live session. If they differ from before, the session is opened again."""

    model: str
    summary_model: str
    rules_name: str
    """The rules in the user's words."""
    rules: Rules
    tools: tuple[Any, ...]
    via: tuple[str, ...]
    mcp: dict[str, McpServerCommand]
    root: Path | None
    allow: tuple[str, ...]
    memory: tuple[str, ...]
    outputs: OutputLimits


class SettingsResolver:
    """Resolves the names in session settings to models, rules and tools of one kernel.

    Args:
        kit: the magics; its variables and sessions are what names may mean.
    """

    def __init__(self, kit: KitSettings) -> None:
        self._kit = kit

    def system(self, settings: Mapping[str, Any]) -> str:
        """Return the instructions that settings name; empty where they name none.

        Raises:
            BadArguments: they are no text that can be read.
        """
        root = Path(settings["root"]).expanduser() if settings["root"] else None
        words: str = settings["system"]
        return load_instructions(words, self._kit.shell.user_ns, root) if words else ""

    def parts(self, settings: Mapping[str, Any]) -> LiveSessionConfig:
        """Return the objects that the names in the settings stand for.

        Raises:
            BadArguments: a model, rules or a tool do not exist.
        """
        for key in ("model", "summary_model"):
            self._check_model(settings[key])
        rules = self.rules(settings["rules"])
        return LiveSessionConfig(
            model=settings["model"],
            summary_model=settings["summary_model"],
            rules_name=settings["rules"],
            rules=rules,
            tools=tuple(self._resolve_tools(settings["tools"])),
            via=parse_via(settings["via"]),
            mcp=parse_servers(settings["mcp"], self._kit.shell.user_ns),
            root=Path(settings["root"]).expanduser() if settings["root"] else None,
            allow=tuple(w.strip() for w in settings["allow"].split(",") if w.strip()),
            memory=tuple(parse_memory_option(settings["memory"], self._kit.shell.user_ns)),
            outputs=OutputLimits.of(rules, settings["output"]),
        )

    def _check_model(self, name: str) -> None:
        """Refuse a name that is neither a script, a local model, nor one of a known provider."""
        # A name without a provider is accepted only where the price table has it.
        if name and "/" not in name and name not in ("scripted", "local") and price(name) is None:
            scripts = [f"scripted/{s}" for s in (*SCRIPTS, LOOKUP_NAME, *self._kit.sessions)]
            match = next((s for s in scripts if s.endswith(f"/{name}")), None)
            hint = f" Did you mean {match!r}?" if match else did_you_mean(name, scripts)
            raise BadArguments(
                f"No model is called {name!r}: write PROVIDER/MODEL, local, or one of"
                f" {', '.join(scripts)}.{hint}"
            )
        if name.startswith("scripted/"):
            self.model(name, STANDARD_RULES)

    def model(self, name: str, rules: Rules) -> Model:
        """Return a model by name; `scripted/NAME` also takes a session that the magics know."""
        from ctxkit.agent.models.model_factory import make_model
        from ctxkit.tokens import default_counter

        counter: Any = rules.counter or default_counter()
        return make_model(
            name, counter=counter, clock=time.time, scripts=dict(self._kit.sessions.items())
        )

    def rules(self, name: str, *, once: bool = False) -> Rules:
        """Return rules: a variable of the user's that holds some, `standard`, words for a policy,
        else a preset.

        `once`: they are asked by hand, so they need no trigger.

        Raises:
            UnknownPreset: there are none of that name.
        """
        from ctxkit.presets.registry import resolve_rules

        value = self._kit.shell.user_ns.get(name) if name.isidentifier() else None
        # A variable of the user's comes before a preset of the same name.
        if value is not None and (isinstance(value, (Rules, str)) or callable(value)):
            return resolve_rules(value, once=once)
        if name == STANDARD_RULES.name:
            return STANDARD_RULES
        return resolve_rules(name, once=once)

    def memory(self, words: str, model: Model) -> SessionMemory | None:
        """Return the memory that words name; empty: on, and off for a script, which is nobody's
        talk.

        Raises:
            BadArguments: a word names no memory.
        """
        return make_session_memory(words, model, self._kit.shell.user_ns)

    def tools(self, words: str) -> list[Any]:
        """Return tools by name: `files`, `shell`, `python`, or functions of the user's; separated
        by commas.

        Raises:
            BadArguments: there is no such tool.
        """
        return [
            value if isinstance(value, (str, Tool)) else tool(value)
            for value in self._resolve_tools(words)
        ]

    def _resolve_tools(self, words: str) -> list[Any]:
        """Return what the names of tools stand for: words for the kit's own, else functions of the
        user's.
        """
        from ctxkit.agent.tools.tool_selection import TOOL_NAMES

        variables = self._kit.shell.user_ns
        names = [w.strip() for w in words.split(",") if w.strip()]
        for name in names:
            value = variables.get(name)
            if name not in TOOL_NAMES and not callable(value) and not isinstance(value, Tool):
                functions = [
                    k for k, v in variables.items() if callable(v) and not k.startswith("_")
                ]
                raise BadArguments(
                    f"There is no tool {name!r}; there are {', '.join(TOOL_NAMES)},"
                    " and functions of yours."
                    f"{did_you_mean(name, [*TOOL_NAMES, *functions])}"
                )
        return [name if name in TOOL_NAMES else variables[name] for name in names]


PROJECT_FILE = PROJECT_FILES[0]
_MOST = 200_000
"""Bytes of a file of instructions."""
_FILES = (".md", ".txt", ".prompt", ".rst")


def load_instructions(words: str, names: Mapping[str, Any], root: Path | None) -> str:
    """Return the instructions of `--system`: a text, or the content of a file.

    Args:
        words: a variable's name, a path in the working folder or else in the root, or the text.
        names: the user's variables.
        root: folder of the file tools; None: a scratch folder.

    Raises:
        BadArguments: a file that is not there, no text, or too large; or nothing is said.
    """
    value = names.get(words) if words.isidentifier() else None
    text = value if isinstance(value, str) else _read_file(words, root)
    text = words if text is None else text
    if not text.strip():
        raise BadArguments(f"`--system {sanitize_line(words, 60)}` says nothing; leave it out.")
    return text


def describe_project_files(root: Path | None, *, read: bool) -> str:
    """Return a note on the project's instruction files in the root: read or not.

    Args:
        root: folder of the tools that the user named; None: a scratch folder.
        read: the section `project` is in the prompt.

    Returns:
        A sentence with the option that changes it; empty without such files.
    """
    if root is None or not root.is_dir():
        return ""
    place = RootFolder(root)
    there = " and ".join(name for name in PROJECT_FILES if place.is_file((name,)))
    if there and read:
        return (
            f"Note: {there} of the root stands in the prompt, as the project's word; "
            "`--sections -project` leaves it out."
        )
    if not place.is_file((PROJECT_FILE,)):
        return ""
    return (
        f"Note: the root has an {PROJECT_FILE}; `--system {PROJECT_FILE}` begins a session with it."
    )


def _read_file(words: str, root: Path | None) -> str | None:
    """Return the content of a file, or None if the words are no path."""
    if "\n" in words or len(words) > 1000:
        return None
    here = Path(words).expanduser()
    if os.path.isfile(here):  # noqa: PTH113  a name too long is no error here
        with here.open("rb") as file:
            return _decode_instructions(file.read(_MOST + 1), words)
    if root is not None and root.is_dir() and not here.is_absolute():
        # Within the root a file is read through `RootFolder`, which refuses paths that leave it.
        place = RootFolder(root)
        with suppress(StoreError):
            if place.is_file(place.parts(words)):
                return _decode_instructions(place.read(words, _MOST + 1), words)
    if here.suffix in _FILES and " " not in words:
        raise BadArguments(
            f"There is no file {sanitize_line(words, 200)!r}, neither here nor in the root."
        )
    return None


def _decode_instructions(data: bytes, name: str) -> str:
    if len(data) > _MOST:
        raise BadArguments(
            f"{sanitize_line(name, 200)!r} has more than {_MOST:,} bytes: that is no prompt."
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadArguments(f"{sanitize_line(name, 200)!r} is no text in UTF-8.") from None
