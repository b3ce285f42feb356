"""Settings of the magics, `%config CtxKit`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core.magic import Magics
from traitlets import Bool, CUnicode, Int, Unicode

from ctxkit._internal.formatting import sanitize_line
from ctxkit.errors import BadArguments, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from IPython.core.interactiveshell import InteractiveShell

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
        """
        wanted = name or sanitize_line(session.id, 40).replace(" ", "-") or "session"
        chosen, n = wanted, 2
        while (
            name is None
            and chosen in self._sessions
            and not _is_same_session(self._sessions[chosen], session)
        ):
            chosen, n = f"{wanted}-{n}", n + 1
        self._sessions[chosen] = session
        self.active_name = chosen
        return chosen

    def put(self, session: Session, name: str) -> None:
        """Keep what a session has become; the active one stays the active one, if there was one."""
        self._sessions[name] = session
        self.active_name = self.active_name or name

    def get(self, name: str) -> Session:
        """Return a session by its name.

        Raises:
            BadArguments: there is none of that name.
        """
        if name not in self._sessions:
            known = ", ".join(self._sessions) or "none yet"
            raise BadArguments(
                f"No session is called {name!r}; known:"
                f" {known}.{did_you_mean(name, self._sessions)}"
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

    model = _text_setting("scripted/tour", "The model of `%%agent` unless --model names another.")
    summary_model = _text_setting("", "The model that writes summaries; empty: the session's own.")
    rules = _text_setting("standard", "The rules of `%%agent` unless --rules names others.")
    tools = _text_setting("files", "The tools of `%%agent` unless --tools names others.")
    via = _text_setting("", "An agent of another program that works: acp:COMMAND.")
    mcp = _text_setting("", "MCP servers of `%%agent`: a command, a file, a variable.")
    root = _text_setting("", "The folder of the file tools; empty: a scratch folder.")
    allow = _text_setting("", "Protected names the file tools may write.")
    system = _text_setting("", "Instructions of new sessions: a text, a file, a variable.")
    sections = _text_setting("on", "Sections put into prompts: on, off, names, or -name.")
    memory = _text_setting("", "Memory: see --memory; empty: on, off for scripts.")
    output = _text_setting("", "Limits of tools' outputs: see --output.")
    approve = _text_setting("", "Tools that ask before each call, or files, or all.")
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

    def kept(self, name: str) -> Session | None:
        """Return a session that is kept in the working folder, or None."""
        from ctxkit.agent.store.workspace import Workspace

        return Workspace().session(name)
