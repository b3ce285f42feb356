"""Options of the cell magics, settings of `%config CtxKit`, and what their names stand for.

An option with a `setting` is said once, in its line: `%config CtxKit` has a setting of that name,
which holds for sessions that are opened without the option.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from IPython.core.magic import Magics
from traitlets import Bool, CUnicode, Int, Unicode

from ctxkit._internal.formatting import sanitize_line
from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.magics.line_parser import get_settings, option, rest, word

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from IPython.core.interactiveshell import InteractiveShell

    from ctxkit.agent.memory.folders import MemoryStore
    from ctxkit.agent.memory.session_memory import SessionMemory
    from ctxkit.agent.models.model import Model
    from ctxkit.session.session import Session

_SESSION, _TOOLS, _PROMPT = "Session", "Tools and files", "Prompt"
_LIMITS, _RESULT, _TEAM = "Limits of the turn", "Result", "Team"
"""Headings under which the help groups options."""


@dataclass(frozen=True)
class AgentArguments:
    """The line of `%%agent`."""

    prompt: str = rest("what the agent shall do (a cell's body is added)")
    session: str | None = option(
        "name of the session; one that exists is continued", completes="session", task=_SESSION
    )
    model: str | None = option(
        "scripted[/NAME] (needs no key), local[/FILE], or a provider's model as LiteLLM names it",
        setting="scripted/tour",
        task=_SESSION,
    )
    summary_model: str | None = option(
        "model that writes the summaries; without it --model does, and for a script an extract",
        setting="",
        task=_SESSION,
    )
    rules: str | None = option(
        "when and how to compact: a preset, `standard`, `none`, a variable, or words for a policy",
        completes="rules",
        setting="standard",
        task=_SESSION,
    )
    tools: str | None = option(
        "files, document, work, shell, python, or functions of yours; separated by commas",
        completes="tools",
        setting="files",
        task=_TOOLS,
    )
    via: str | None = option(
        "an agent of another program instead: acp:COMMAND, such as acp:'gemini --acp'",
        setting="",
        task=_SESSION,
    )
    mcp: str | None = option(
        "an MCP server that brings tools: a command in quotes, a file with mcpServers, a variable",
        completes="path",
        setting="",
        task=_TOOLS,
    )
    root: str | None = option(
        "folder that the file tools read and write; without it a scratch folder",
        completes="path",
        setting="",
        task=_TOOLS,
    )
    allow: str | None = option(
        "protected names that the file tools may write, such as conftest.py; separated by commas",
        setting="",
        task=_TOOLS,
    )
    system: str | None = option(
        "instructions a session begins with: a text in quotes, a file, or a variable",
        completes="path",
        setting="",
        task=_PROMPT,
    )
    sections: str | None = option(
        "parts of the system prompt: on, off, names, or names with - or + before them",
        completes="section",
        setting="on",
        task=_PROMPT,
    )
    memory: str | None = option(
        "on, off, local (read anew each turn), digest, model (it says at the end what to remember),"
        " or variables that hold a webhook; separated by commas; without it on, for a script off",
        completes="memory",
        setting="",
        task=_PROMPT,
    )
    approve: str | None = option(
        "tools that ask you before each call, or files, or all; separated by commas",
        completes="tools",
        setting="",
        task=_TOOLS,
    )
    output: str | None = option(
        "how much of a tool's output is kept: lines=N,chars=N,bytes=N,mode=head,spill=N",
        setting="",
        task=_TOOLS,
    )
    attach: str | None = option(
        "pictures that go with the prompt: files, or variables that hold a figure; by commas",
        completes="path",
        task=_PROMPT,
    )
    trust: bool = option(
        "continue a session that came with the folder and was not made here",
        default=False,
        task=_SESSION,
    )
    max_calls: int | None = option("calls to the model in this turn, at most", task=_LIMITS)
    max_cost: float | None = option(
        "dollars in this turn, at most; checked before each call", task=_LIMITS
    )
    max_tokens: int | None = option("tokens billed in this turn, at most", task=_LIMITS)
    max_seconds: float | None = option("seconds of this turn, at most", task=_LIMITS)
    out: str | None = option(
        "variable that gets the answer; with --background the handle", task=_RESULT
    )
    background: bool = option(
        "run beside the notebook; gives a handle with a Stop button", default=False, task=_RESULT
    )
    expand: bool = option(
        "put the values of variables in place of {{name}}", default=False, task=_PROMPT
    )
    dry_run: bool = option("show what would be sent, and send nothing", default=False, task=_RESULT)


@dataclass(frozen=True)
class CompactArguments:
    """The line of `%compact`."""

    focus: str = rest("what the summary shall keep, in plain words")
    session: str | None = option("another live session than the current one", completes="session")
    rules: str | None = option(
        "use the policy of other rules this once: a preset, a variable, words", completes="rules"
    )
    keep: int | None = option("number of newest turns that stay as they are")
    dry_run: bool = option("show what it would do, and do nothing", default=False)


@dataclass(frozen=True)
class TeamArguments:
    """The line of `%%team`."""

    name: str = word("name of the team; one that was begun is continued", default="team")
    config: str | None = option(
        "orchestration file; without one a team that needs no key",
        completes="path",
        setting="scripted",
        task=_TEAM,
    )
    model: str | None = option(
        "model of all agents: scripted[:FILE] (needs no key), or a provider's",
        setting="",
        task=_TEAM,
    )
    tools: str | None = option(
        "tools that agents may have at most: files, document, shell, python; separated by commas",
        setting="files",
        task=_TOOLS,
    )
    root: str | None = option(
        "folder in which all agents work; without it a scratch folder",
        completes="path",
        setting="",
        task=_TOOLS,
    )
    allow: str | None = option(
        "protected names that agents may write, separated by commas", setting="", task=_TOOLS
    )
    memory: str | None = option(
        "memory to use beside the team's own: user, webhook", setting="", task=_TEAM
    )
    approve: str | None = option(
        "tools that ask you before each call, or files, or all", completes="tools", task=_TOOLS
    )
    out: str | None = option("variable that gets the team", task=_RESULT)


class SessionRegistry:
    """Sessions by name, in the order in which they were first used."""

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}
        self.active_name: str | None = None

    def add(self, session: Session, name: str | None = None) -> str:
        """Keep a session and make it the active one; return its name.

        Without a name it is called after its id, with a number where another session has that name
        already.
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
        """Keep what a session has become; the active one stays the active one, if there was one."""
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
        for name, (default, words) in get_settings(AgentArguments).items()
    )
    approve: str
    sections: str
    export = _text_setting(
        "", "Where spans of sessions go: an OTLP/HTTP address, or env; empty: nowhere."
    )
    export_content = Bool(default_value=False, help="Whether those spans say what was said.").tag(
        config=True
    )
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
        from ctxkit.agent.store.project_folder import Workspace

        return Workspace().session(name)


ON, OFF, LOCAL, DIGEST, MODEL = "on", "off", "local", "digest", "model"
MEMORY_WORDS = (ON, OFF, LOCAL, DIGEST, MODEL)


def open_memory() -> MemoryStore:
    """Return the memory store of the working folder."""
    from ctxkit.agent.memory.folders import MemoryStore
    from ctxkit.agent.memory.session_memory import default_memory_folders

    return MemoryStore(default_memory_folders())


def parse_memory_option(words: str, names: Mapping[str, Any]) -> list[str]:
    """Split the value of `--memory` into words and check them.

    Args:
        words: `MEMORY_WORDS` or names of variables, separated by commas.
        names: the user's variables.

    Returns:
        The words in their order; empty: the default.

    Raises:
        BadArguments: a word is none, and no variable holds a provider of that name.
    """
    from ctxkit.agent.memory.session_memory import MemoryProvider

    memory_words = [w.strip() for w in words.split(",") if w.strip()]
    for name in memory_words:
        value = names.get(name)
        if name not in MEMORY_WORDS and not isinstance(value, (MemoryProvider, dict)):
            raise BadArguments(
                f"There is no memory {sanitize_line(name, 60)!r}: it is "
                f"{', '.join(MEMORY_WORDS)}, or a variable"
                f" that holds a webhook (ctxkit.agent.Webhook).{did_you_mean(name, MEMORY_WORDS)}"
            )
    if OFF in memory_words and len(memory_words) > 1:
        raise BadArguments("`off` stands alone: it says that nothing is remembered.")
    return memory_words


def make_session_memory(words: str, model: Model, names: Mapping[str, Any]) -> SessionMemory | None:
    """Return the memory of a session for the words of `--memory`; None: no memory.

    Args:
        words: as `parse_memory_option` takes them.
        model: of the session; a scripted one has no memory unless words ask for it.
        names: the user's variables, which may hold providers.

    Returns:
        The memory over the user's store; `local`, `digest` and variables add providers to it.

    Raises:
        BadArguments: a word names none.
    """
    from ctxkit.agent.memory.session_memory import (
        LocalMemoryProvider,
        SessionMemory,
        make_memory_provider,
    )
    from ctxkit.policies.memory_entries import MemoryDigestBudgets

    selected = parse_memory_option(words, names)
    if selected == [OFF] or (not selected and model.notice.startswith("scripted")):
        return None
    store = open_memory()
    providers: list[Any] = []
    for name in selected:
        value = names.get(name)
        if name in (LOCAL, DIGEST):
            providers.append(
                LocalMemoryProvider(store, MemoryDigestBudgets() if name == DIGEST else None)
            )
        elif name not in (ON, MODEL):
            providers.append(
                make_memory_provider(value, store) if isinstance(value, dict) else value
            )
    whole = ON in selected or set(selected) <= {MODEL}
    return SessionMemory(store, providers, whole=whole, by_model=MODEL in selected)
