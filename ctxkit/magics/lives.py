"""The live sessions of a kernel: opened by name, one turn at a time, their files in the working
folder.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from ctxkit.agent.resumes import kept
from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.injected import chosen
from ctxkit.magics.named_parts import NamedParts
from ctxkit.magics.servers import Servers
from ctxkit.magics.visits import guest_session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ctxkit.agent.events import Listener
    from ctxkit.agent.live import LiveSession
    from ctxkit.agent.sent_prompts import Prompts
    from ctxkit.agent.span_exports import SpanAddress
    from ctxkit.agent.threads import Background
    from ctxkit.magics.kit_settings import KitSettings
    from ctxkit.magics.named_parts import Parts

SETTINGS = (
    "model", "summary_model", "rules", "tools", "via", "mcp", "root", "allow", "system",
    "sections", "memory", "approve", "output",
)  # fmt: skip
"""What a session remembers of how it was opened."""
FIRST = "main"
"""Name of a session that nobody named."""


class Lives:
    """Live sessions by name.

    Args:
        kit: the magics; its settings are the defaults.
    """

    def __init__(self, kit: KitSettings) -> None:
        self._kit, self.named = kit, NamedParts(kit)
        self._known: dict[str, LiveSession] = {}
        self._made: dict[str, Parts] = {}
        self._remembered: dict[str, dict[str, Any]] = {}
        self._running: dict[str, Background[Any]] = {}
        self._always: dict[str, set[str]] = {}
        self.servers = Servers()
        self.current: str | None = None

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def get(self, name: str | None = None) -> LiveSession:
        """Return a session that is open; without a name the active one, else the one that was last
        talked to.

        Raises:
            BadArguments: it is not open, or none is.
        """
        wanted = name or self.standing
        if wanted is None or wanted not in self._known:
            said = f"No live session is called {wanted!r}" if wanted else "No live session is open"
            begin = f"%%agent --session {wanted}" if wanted else "%%agent"
            raise BadArguments(
                f"{said}: begin one with `{begin}`.{did_you_mean(wanted or '', self._known)}"
            )
        return self._known[wanted]

    @property
    def standing(self) -> str | None:
        """Name of the session that is meant where none is named; None: there is none yet."""
        active = self._kit.sessions.active_name
        return active if active in self._known or active in self._remembered else self.current

    def open(self, name: str, **asked: Any) -> LiveSession:
        """Return a session ready for a turn: opened, resumed from its file, or as it is with what
        was asked anew.

        Raises:
            BadArguments: it is busy; or a model, rules or a tool do not exist.
            StoreError: another process holds it.
        """
        self.free(name)
        settings = self.settings(name, asked)
        parts = self.named.parts(settings)  # refuses what is not there before anything is closed
        old = self._known.get(name)
        begun = old is not None and bool(old.session.log)
        system = self.named.system(settings) if asked.get("system") or not begun else ""
        chosen(settings["sections"])
        heard: tuple[Listener, ...] = ()
        sent: Prompts | None = None
        if old is not None and (self._made[name] != parts or old.log.stopped):
            del self._known[name]
            self._remembered[name], heard = old.settings, old.listeners
            sent = old.agent.prompts
            old.close()
        if name not in self._known:
            self._known[name] = self._opened(name, settings, parts, sent)
            self._made[name] = parts
            for hear in heard:
                self._known[name].listen(hear)
            if old is not None:  # what differs was named in this kernel
                self._known[name].notes = ()
        live = self._known[name]
        if not parts.via:
            live.inject(
                settings["sections"], system if asked.get("system") or not live.session.log else ""
            )
        live.settings = settings
        self.current = name
        self._kit.sessions.add(live.session, name)
        return live

    def always(self, name: str) -> set[str]:
        """Return the tools of a session that were allowed for good; it may grow."""
        return self._always.setdefault(name, set())

    def remember(self, name: str, settings: Mapping[str, Any]) -> None:
        """Note what a session that is not open yet shall be made of, and go on with it."""
        self._remembered[name], self.current = dict(settings), name

    def free(self, name: str) -> None:
        """Check that no turn of a session is running.

        Raises:
            BadArguments: one is.
        """
        running, live = self._running.get(name), self._known.get(name)
        beside = running is not None and running.state in ("running", "stopping")
        if beside or (live is not None and live.busy):
            from ctxkit.agent.live import busy

            raise busy(name)

    def runs(self, name: str, handle: Background[Any]) -> None:
        """Note that a turn runs in the background."""
        self._running[name] = handle

    def close(self, name: str | None = None) -> None:
        """Close one session, or all.

        Raises:
            StoreError: the file of one was replaced or cut; the sentence says where its content is.
        """
        with ExitStack() as closing:  # all are closed, also where one has something to say
            for each in [name] if name else list(self._known):
                live = self._known.pop(each, None)
                self._always.pop(each, None)
                closing.callback(self.servers.close, each)
                if live is not None:
                    handle = self._running.pop(each, None)
                    if handle is not None:
                        handle.stop()
                        handle.wait(5)
                    closing.callback(live.close)

    # -- what a session is made of ----------------------------------------------------------------

    def settings(self, name: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a session: what was asked now, before, or else the kit's."""
        live = self._known.get(name)
        before = live.settings if live is not None else self._remembered.get(name)
        if before is None:
            found = kept(self._kit.kept(name))
            before = found.words if found is not None else {}
        defaults = {k: getattr(self._kit, k) for k in SETTINGS}
        given = {**defaults, **before, **{k: v for k, v in asked.items() if v is not None}}
        if given["via"]:  # the agent's model is its own affair
            given["model"] = ""
        return {k: given[k] for k in defaults}

    def _opened(
        self, name: str, settings: dict[str, Any], parts: Parts, sent: Prompts | None
    ) -> LiveSession:
        from ctxkit.agent.live import LiveSession

        if parts.via:
            return guest_session(
                name,
                parts.via,
                root=parts.root,
                servers=parts.mcp,
                settings=settings,
                seed=self._kit.seed,
            )
        model = self.named.model(parts.model, parts.rules)
        to = self._exported()
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
        if to is not None:
            live.export(to)
        return live

    def _exported(self) -> SpanAddress | None:
        """Return where the spans of sessions go; None: nowhere."""
        if not self._kit.export:
            return None
        from ctxkit.agent.span_exports import SpanAddress

        return SpanAddress.of(self._kit.export, content=self._kit.export_content)
