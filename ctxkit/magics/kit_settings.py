"""What `%config CtxKit` sets, and what the magics of a kernel know of its sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core.magic import Magics
from traitlets import Bool, CUnicode, Int, Unicode

from ctxkit.magics.registry import Registry

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from ctxkit.session import Session


class KitSettings(Magics):
    """The settings, and the sessions by name."""

    session_file = Unicode("", help="A session file that is read when none is active yet.").tag(
        config=True
    )
    contributors = Int(3, min=0, help="How many of the largest messages `%context` names.").tag(
        config=True
    )

    model = Unicode(
        "scripted/tour", help="The model of `%%agent` unless --model names another."
    ).tag(config=True)
    summary_model = Unicode(
        "", help="The model that writes summaries; empty: the session's own."
    ).tag(config=True)
    rules = Unicode("standard", help="The rules of `%%agent` unless --rules names others.").tag(
        config=True
    )
    tools = Unicode("files", help="The tools of `%%agent` unless --tools names others.").tag(
        config=True
    )
    root = Unicode("", help="The folder of the file tools; empty: a scratch folder.").tag(
        config=True
    )
    allow = Unicode("", help="Protected names the file tools may write.").tag(config=True)
    system = Unicode("", help="Instructions of new sessions: a text, a file, a variable.").tag(
        config=True
    )
    sections = Unicode("on", help="Sections put into prompts: on, off, names, or -name.").tag(
        config=True
    )
    memory = Unicode("", help="Memory: see --memory; empty: on, off for scripts.").tag(config=True)
    approve = Unicode("", help="Tools that ask before each call, or files, or all.").tag(
        config=True
    )
    export = Unicode(
        "", help="Where spans of sessions go: an OTLP/HTTP address, or env; empty: nowhere."
    ).tag(config=True)
    export_content = Bool(
        default_value=False, help="Whether those spans say what was said."
    ).tag(config=True)
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
