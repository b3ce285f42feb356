"""What `%config CtxKit` sets, and what the magics of a kernel know of its sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core.magic import Magics
from traitlets import Bool, CUnicode, Int, Unicode

from ctxkit.magics.registry import Registry

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from ctxkit.session import Session


def _words(default: str, help: str) -> Any:  # noqa: A002  the word that traitlets uses
    return Unicode(default, help=help).tag(config=True)


class KitSettings(Magics):
    """The settings, and the sessions by name."""

    session_file = _words("", "A session file that is read when none is active yet.")
    contributors = Int(3, min=0, help="How many of the largest messages `%context` names.").tag(
        config=True
    )

    model = _words("scripted/tour", "The model of `%%agent` unless --model names another.")
    summary_model = _words("", "The model that writes summaries; empty: the session's own.")
    rules = _words("standard", "The rules of `%%agent` unless --rules names others.")
    tools = _words("files", "The tools of `%%agent` unless --tools names others.")
    via = _words("", "An agent of another program that works: acp:COMMAND.")
    mcp = _words("", "MCP servers of `%%agent`: a command, a file, a variable.")
    root = _words("", "The folder of the file tools; empty: a scratch folder.")
    allow = _words("", "Protected names the file tools may write.")
    system = _words("", "Instructions of new sessions: a text, a file, a variable.")
    sections = _words("on", "Sections put into prompts: on, off, names, or -name.")
    memory = _words("", "Memory: see --memory; empty: on, off for scripts.")
    output = _words("", "Limits of tools' outputs: see --output.")
    approve = _words("", "Tools that ask before each call, or files, or all.")
    export = _words("", "Where spans of sessions go: an OTLP/HTTP address, or env; empty: nowhere.")
    export_content = Bool(default_value=False, help="Whether those spans say what was said.").tag(
        config=True
    )
    seed = CUnicode("", help="Ids of new sessions follow from it; empty: by chance.").tag(
        config=True
    )

    shell: InteractiveShell

    def __init__(self, shell: InteractiveShell, **traits: Any) -> None:
        super().__init__(shell, **traits)
        self.sessions = Registry()
        self.teams: dict[str, dict[str, str]] = {}
        """Of each team that worked in this kernel: what it was opened with."""

    @property
    def rich(self) -> bool:
        """True in a front end that can update a display in place; a terminal cannot."""
        return hasattr(self.shell, "kernel")

    def kept(self, name: str) -> Session | None:
        """Return a session that is kept in the working folder, or None."""
        from ctxkit.store.workspace import Workspace

        return Workspace().session(name)
