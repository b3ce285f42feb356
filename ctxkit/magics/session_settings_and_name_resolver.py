"""Settings of `%config CtxKit`, sessions by name, and the models, rules, tools and memory that
options name.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from IPython.core.magic import Magics
from traitlets import Bool, CUnicode, Int, Unicode

from ctxkit._internal.formatting_and_sanitizing import sanitize_line
from ctxkit._internal.safe_files import expand_home
from ctxkit.agent.models.model_factory import LOOKUP_NAME
from ctxkit.agent.models.scripted_and_lookup_models import SCRIPTS
from ctxkit.agent.tools.confined_root import RootFolder
from ctxkit.agent.tools.execution_and_results import OutputLimits
from ctxkit.agent.tools.tool import Tool, tool
from ctxkit.errors import BadArguments, StoreError, did_you_mean
from ctxkit.magics.cell_magic_arguments import AgentArguments
from ctxkit.magics.line_parser import get_setting_defaults_and_help
from ctxkit.magics.mcp_servers_and_acp_agents import parse_acp_command, parse_mcp_servers
from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.summary_compaction import Summary
from ctxkit.policies.triggers import Share
from ctxkit.tokens.prices import price

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from IPython.core.interactiveshell import InteractiveShell

    from ctxkit.agent.memory.entry_store import MemoryStore
    from ctxkit.agent.memory.session_memory import SessionMemory
    from ctxkit.agent.models.model import Model
    from ctxkit.magics.mcp_servers_and_acp_agents import McpServerCommand
    from ctxkit.session.session import Session


class SessionRegistry:
    """Sessions by name, in the order in which they were first used."""

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}
        self.active_name: str | None = None

    def add(self, session: Session, name: str | None = None) -> str:
        """Keep a session and make it the active one; return its name.

        Without a name it is called after its id, with a number where another session has that name
        already.

        Args:
            session: the session.
            name: its name; it replaces another session of that name. None: derive one from its id.
        """
        base_name = name or sanitize_line(session.id, 40).replace(" ", "-") or "session"
        chosen, n = base_name, 2
        # Only a name derived from the id gets a number; one that was given replaces what it named.
        while (
            name is None
            and chosen in self._sessions
            and not _is_same_session(self._sessions[chosen], session)
        ):
            chosen, n = f"{base_name}-{n}", n + 1
        self._sessions[chosen] = session
        self.active_name = chosen
        return chosen

    def update(self, session: Session, name: str) -> None:
        """Store the new state of a session; it becomes the active one if there was none.

        Args:
            session: the session as it is after a turn.
            name: its name in this kernel.
        """
        self._sessions[name] = session
        self.active_name = self.active_name or name

    def get(self, name: str) -> Session:
        """Return a session by its name.

        Raises:
            BadArguments: there is none of that name.
        """
        if name not in self._sessions:
            known_names = ", ".join(self._sessions) or "none yet"
            raise BadArguments(
                f"No session is called {name!r}; known:"
                f" {known_names}.{did_you_mean(name, self._sessions)}"
            )
        return self._sessions[name]

    @property
    def active(self) -> Session:
        """The session that magics speak of when no other is named.

        Raises:
            BadArguments: none was read yet.
        """
        if self.active_name is None:
            raise BadArguments("No session is active: read one with `%context use FILE`.")
        return self._sessions[self.active_name]

    def __contains__(self, name: object) -> bool:
        return name in self._sessions

    def __iter__(self) -> Iterator[str]:
        return iter(self._sessions)

    def items(self) -> list[tuple[str, Session]]:
        """Names and sessions."""
        return list(self._sessions.items())


def _is_same_session(one: Session, other: Session) -> bool:
    return one is other or (
        one.id == other.id and one.path_ is not None and one.path_ == other.path_
    )


def _text_setting(default: str, help: str) -> Any:  # noqa: A002  the word that traitlets uses
    return Unicode(default, help=help).tag(config=True)


class KitSettings(Magics):
    """The settings, and the sessions by name."""

    session_file = _text_setting("", "A session file that is read when none is active yet.")
    contributors = Int(3, min=0, help="How many of the largest messages `%context` names.").tag(
        config=True
    )

    # Each option with a setting becomes a trait of the class under the same name.
    vars().update(
        (name, _text_setting(default, f"For sessions without --{name.replace('_', '-')}: {words}."))
        for name, (default, words) in get_setting_defaults_and_help(AgentArguments).items()
    )
    approve: str
    sections: str
    export = _text_setting(
        "", "Where spans of sessions go: an OTLP/HTTP address, or env; empty: nowhere."
    )
    export_content = Bool(
        default_value=False, help="Whether those spans contain the texts of messages."
    ).tag(config=True)
    seed = CUnicode("", help="Ids of new sessions follow from it; empty: by chance.").tag(
        config=True
    )

    shell: InteractiveShell

    def __init__(self, shell: InteractiveShell, **traits: Any) -> None:
        super().__init__(shell, **traits)
        self.sessions = SessionRegistry()
        self.teams: dict[str, dict[str, str]] = {}
        """Of each team that worked in this kernel: what it was opened with."""

    @property
    def rich(self) -> bool:
        """True in a front end that can update a display in place; a terminal cannot."""
        return hasattr(self.shell, "kernel")

    def read_stored_session(self, name: str) -> Session | None:
        """Return a session that is kept in the working folder, or None."""
        from ctxkit.agent.ctxkit_folder_and_session_trust import Workspace

        return Workspace().session(name)


MEMORY_ON, MEMORY_OFF, MEMORY_LOCAL, MEMORY_DIGEST, MEMORY_BY_MODEL = (
    "on",
    "off",
    "local",
    "digest",
    "model",
)
MEMORY_WORDS = (MEMORY_ON, MEMORY_OFF, MEMORY_LOCAL, MEMORY_DIGEST, MEMORY_BY_MODEL)


def open_memory_store() -> MemoryStore:
    """Return the memory store of the working folder."""
    from ctxkit.agent.memory.entry_store import MemoryStore, get_ctxkit_and_fuseraft_memory_folders

    return MemoryStore(get_ctxkit_and_fuseraft_memory_folders())


def parse_memory_option(option_value: str, user_variables: Mapping[str, Any]) -> list[str]:
    """Split the value of `--memory` into words and check them.

    Args:
        option_value: `MEMORY_WORDS` or names of variables, separated by commas.
        user_variables: the user's variables.

    Returns:
        The words in their order; empty: the default.

    Raises:
        BadArguments: a word is none, and no variable holds a provider of that name.
    """
    from ctxkit.agent.memory.providers import MemoryProvider

    memory_words = [w.strip() for w in option_value.split(",") if w.strip()]
    for name in memory_words:
        value = user_variables.get(name)
        if name not in MEMORY_WORDS and not isinstance(value, (MemoryProvider, dict)):
            raise BadArguments(
                f"There is no memory {sanitize_line(name, 60)!r}: it is "
                f"{', '.join(MEMORY_WORDS)}, or a variable"
                " that holds a webhook (ctxkit.agent.WebhookMemoryProvider)."
                f"{did_you_mean(name, MEMORY_WORDS)}"
            )
    if MEMORY_OFF in memory_words and len(memory_words) > 1:
        raise BadArguments("`off` stands alone: it says that nothing is remembered.")
    return memory_words


def make_session_memory(
    option_value: str, model: Model, user_variables: Mapping[str, Any]
) -> SessionMemory | None:
    """Return the memory of a session for the words of `--memory`; None: no memory.

    Args:
        option_value: as `parse_memory_option` takes them.
        model: model of the session; a scripted one has no memory unless words ask for it.
        user_variables: the user's variables, which may hold providers.

    Returns:
        The memory over the user's store; `local`, `digest` and variables add providers to it.

    Raises:
        BadArguments: a word names none.
    """
    from ctxkit.agent.memory.providers import LocalMemoryProvider, make_memory_provider
    from ctxkit.agent.memory.session_memory import SessionMemory
    from ctxkit.policies.memory_ranking_and_digests import MemoryDigestLimits

    selected = parse_memory_option(option_value, user_variables)
    if selected == [MEMORY_OFF] or (not selected and model.notice.startswith("scripted")):
        return None
    store = open_memory_store()
    providers: list[Any] = []
    for name in selected:
        value = user_variables.get(name)
        if name in (MEMORY_LOCAL, MEMORY_DIGEST):
            providers.append(
                LocalMemoryProvider(store, MemoryDigestLimits() if name == MEMORY_DIGEST else None)
            )
        elif name not in (MEMORY_ON, MEMORY_BY_MODEL):
            providers.append(
                make_memory_provider(value, store) if isinstance(value, dict) else value
            )
    whole = MEMORY_ON in selected or set(selected) <= {MEMORY_BY_MODEL}
    return SessionMemory(store, providers, whole=whole, by_model=MEMORY_BY_MODEL in selected)


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


class ModelRulesAndToolResolver:
    """Resolves the names in session settings to models, rules and tools of one kernel.

    Args:
        kit: the magics; its variables and sessions are what names may mean.
    """

    def __init__(self, kit: KitSettings) -> None:
        self._kit = kit

    def load_instructions(self, settings: Mapping[str, Any]) -> str:
        """Return the instructions that settings name; empty where they name none.

        Raises:
            BadArguments: they are no text that can be read.
        """
        root = expand_home(settings["root"]) if settings["root"] else None
        words: str = settings["system"]
        return load_system_instructions(words, self._kit.shell.user_ns, root) if words else ""

    def resolve_config(self, settings: Mapping[str, Any]) -> LiveSessionConfig:
        """Return the objects that the names in the settings stand for.

        Raises:
            BadArguments: a model, rules or a tool do not exist.
        """
        for key in ("model", "summary_model"):
            self._check_model(settings[key])
        rules = self.resolve_rules(settings["rules"])
        return LiveSessionConfig(
            model=settings["model"],
            summary_model=settings["summary_model"],
            rules_name=settings["rules"],
            rules=rules,
            tools=tuple(self._resolve_tools(settings["tools"])),
            via=parse_acp_command(settings["via"]),
            mcp=parse_mcp_servers(settings["mcp"], self._kit.shell.user_ns),
            root=expand_home(settings["root"]) if settings["root"] else None,
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
            self.resolve_model(name, STANDARD_RULES)

    def resolve_model(self, name: str, rules: Rules) -> Model:
        """Return a model by name; `scripted/NAME` also takes a session that the magics know.

        Args:
            name: name of the model, as LiteLLM or ctxkit spells it.
            rules: the rules, whose token counter a scripted model uses.
        """
        from ctxkit.agent.models.model_factory import make_model
        from ctxkit.tokens import default_counter

        counter: Any = rules.counter or default_counter()
        return make_model(
            name, counter=counter, clock=time.time, scripts=dict(self._kit.sessions.items())
        )

    def resolve_rules(self, name: str, *, once: bool = False) -> Rules:
        """Return the rules that a setting names.

        Args:
            name: a variable that holds rules, "standard", words for a policy, or a preset.
            once: the policy is applied once by hand, so that no trigger is needed.

        Raises:
            UnknownName: there are none of that name.
        """
        from ctxkit.presets.registry_and_setting_checks import resolve_rules

        value = self._kit.shell.user_ns.get(name) if name.isidentifier() else None
        # A variable of the user's comes before a preset of the same name.
        if value is not None and (isinstance(value, (Rules, str)) or callable(value)):
            return resolve_rules(value, once=once)
        if name == STANDARD_RULES.name:
            return STANDARD_RULES
        return resolve_rules(name, once=once)

    def resolve_memory(self, option_value: str, model: Model) -> SessionMemory | None:
        """Return the memory that a setting names; None: no memory.

        Args:
            option_value: words for the memory; empty: on, but off for a scripted model.
            model: model of the session.

        Raises:
            BadArguments: a word names no memory.
        """
        return make_session_memory(option_value, model, self._kit.shell.user_ns)

    def resolve_tools(self, option_value: str) -> list[Any]:
        """Return tools by name: `files`, `shell`, `python`, or functions of the user's; separated
        by commas.

        Raises:
            BadArguments: there is no such tool.
        """
        return [
            value if isinstance(value, (str, Tool)) else tool(value)
            for value in self._resolve_tools(option_value)
        ]

    def _resolve_tools(self, option_value: str) -> list[Any]:
        """Return what the names of tools stand for: words for the kit's own, else functions of the
        user's.
        """
        from ctxkit.agent.tools.python_shell_and_summary_tools import TOOL_NAMES

        variables = self._kit.shell.user_ns
        names = [w.strip() for w in option_value.split(",") if w.strip()]
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


def load_system_instructions(
    option_value: str, user_variables: Mapping[str, Any], root: Path | None
) -> str:
    """Return the instructions of `--system`: a text, or the content of a file.

    Args:
        option_value: a variable's name, a path in the working folder or else in the root, or the
            text.
        user_variables: the user's variables.
        root: folder of the file tools; None: a scratch folder.

    Raises:
        BadArguments: a file that is not there, no text, or too large; or nothing is said.
    """
    value = user_variables.get(option_value) if option_value.isidentifier() else None
    text = value if isinstance(value, str) else _read_instruction_file(option_value, root)
    text = option_value if text is None else text
    if not text.strip():
        raise BadArguments(
            f"`--system {sanitize_line(option_value, 60)}` says nothing; leave it out."
        )
    return text


_MAX_INSTRUCTION_BYTES = 200_000
"""Bytes of a file of instructions."""
_INSTRUCTION_SUFFIXES = (".md", ".txt", ".prompt", ".rst")


def _read_instruction_file(words: str, root: Path | None) -> str | None:
    """Return the content of a file, or None if the words are no path."""
    if "\n" in words or len(words) > 1000:
        return None
    here = expand_home(words)
    if os.path.isfile(here):  # noqa: PTH113  a name too long is no error here
        with here.open("rb") as file:
            return _decode_instructions(file.read(_MAX_INSTRUCTION_BYTES + 1), words)
    if root is not None and root.is_dir():
        # Within the root a file is read through `RootFolder`, which refuses paths that leave it.
        place = RootFolder(root)
        with suppress(StoreError):
            if place.is_file(place.parts(words)):
                return _decode_instructions(place.read(words, _MAX_INSTRUCTION_BYTES + 1), words)
    if here.suffix in _INSTRUCTION_SUFFIXES and " " not in words:
        raise BadArguments(
            f"There is no file {sanitize_line(words, 200)!r}, neither here nor in the root."
        )
    return None


def _decode_instructions(data: bytes, name: str) -> str:
    if len(data) > _MAX_INSTRUCTION_BYTES:
        raise BadArguments(
            f"{sanitize_line(name, 200)!r} has more than {_MAX_INSTRUCTION_BYTES:,} bytes: "
            "that is no prompt."
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadArguments(f"{sanitize_line(name, 200)!r} is no text in UTF-8.") from None
