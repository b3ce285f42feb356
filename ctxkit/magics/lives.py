"""The live sessions of a kernel: opened by name, one turn at a time, their files in the working folder."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.policies.rules import Rules
from ctxkit.policies.summary import Summary
from ctxkit.policies.triggers import Share

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ctxkit.agent.live import LiveSession
    from ctxkit.agent.threads import Background
    from ctxkit.magics.kit import CtxKit
    from ctxkit.models.model import Model

FIRST = "main"
"""Name of a session that nobody named."""
STANDARD = Rules(policy=Summary(keep_share=0.3, file_lists=True), trigger=Share(share=0.75), name="standard")
"""The rules of a live session unless others are named: at three quarters of the window, a summary and the last 30 %."""


class Lives:
    """Live sessions by name.

    Args:
        kit: the magics; its settings are the defaults.
    """

    def __init__(self, kit: CtxKit) -> None:
        self._kit = kit
        self._known: dict[str, LiveSession] = {}
        self._made: dict[str, tuple[Any, ...]] = {}
        self._running: dict[str, Background[Any]] = {}
        self.current: str | None = None

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def get(self, name: str | None = None) -> LiveSession:
        """Return a session that is open, the current one without a name.

        Raises:
            BadArguments: it is not open, or none is.
        """
        wanted = name or self.current
        if wanted is None or wanted not in self._known:
            said = f"No live session is called {wanted!r}" if wanted else "No live session is open"
            raise BadArguments(f"{said}: begin one with `%%agent`.{did_you_mean(wanted or '', self._known)}")
        return self._known[wanted]

    def open(self, name: str, **asked: Any) -> LiveSession:
        """Return a session ready for a turn: opened, resumed from its file, or as it is with what was asked anew.

        Raises:
            BadArguments: it is busy; or a model, rules or a tool do not exist.
            StoreError: another process holds it.
        """
        self.free(name)
        settings = self._settings(name, asked)
        key = tuple(sorted((k, repr(v)) for k, v in settings.items()))
        if name in self._known and self._made[name] != key:
            self._known.pop(name).close()
        if name not in self._known:
            self._known[name] = self._opened(name, settings)
            self._made[name] = key
        self.current = name
        live = self._known[name]
        self._kit.sessions.add(live.session, name)
        return live

    def free(self, name: str) -> None:
        """Check that no turn of a session is running.

        Raises:
            BadArguments: one is.
        """
        running = self._running.get(name)
        if running is not None and running.state in ("running", "stopping"):
            raise BadArguments(f"Session {name!r} is busy: wait for its turn, or stop it, before the next one.")

    def runs(self, name: str, handle: Background[Any]) -> None:
        """Note that a turn runs in the background."""
        self._running[name] = handle

    def close(self, name: str | None = None) -> None:
        """Close one session, or all."""
        for each in [name] if name else list(self._known):
            live = self._known.pop(each, None)
            if live is not None:
                handle = self._running.pop(each, None)
                if handle is not None:
                    handle.stop()
                    handle.wait(5)
                live.close()

    # -- what a session is made of -------------------------------------------------------------------------------

    def _settings(self, name: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a session: what was asked now, before, or else the kit's."""
        before = dict(getattr(self._known.get(name), "settings", {}))
        defaults = {k: getattr(self._kit, k) for k in ("model", "summary_model", "rules", "tools", "root")}
        return {k: asked.get(k) or before.get(k) or default for k, default in defaults.items()}

    def _opened(self, name: str, settings: dict[str, Any]) -> LiveSession:
        from ctxkit.agent.live import LiveSession

        rules = self.rules(settings["rules"])
        live = LiveSession(
            name,
            model=self.model(settings["model"], rules),
            summary_model=self.model(settings["summary_model"], rules) if settings["summary_model"] else None,
            rules=rules,
            clock=time.time,
            tools=self.tools(settings["tools"]),
            root=Path(settings["root"]).expanduser() if settings["root"] else None,
            namespace=self._kit.shell.user_ns,
        )
        live.settings = settings
        return live

    def model(self, name: str, rules: Rules) -> Model:
        """Return a model by name; `scripted/NAME` also takes a session that the magics know."""
        from ctxkit.models.catalogue import model
        from ctxkit.tokens import default

        counter: Any = rules.counter or default()
        return model(name, counter=counter, clock=time.time, scripts=dict(self._kit.sessions.items()))

    def rules(self, name: str) -> Rules:
        """Return rules: a variable of the user's that holds some, `standard`, words for a policy, else a preset.

        Raises:
            UnknownPreset: there are none of that name.
        """
        from ctxkit.policies.rules import as_rules
        from ctxkit.presets import preset

        held = self._kit.shell.user_ns.get(name) if name.isidentifier() else None
        if held is not None and (isinstance(held, (Rules, str)) or callable(held)):
            return as_rules(held)
        if name == STANDARD.name:
            return STANDARD
        return as_rules(name) if ":" in name or "|" in name else preset(name)

    def tools(self, words: str) -> list[Any]:
        """Return tools by name: `files`, `shell`, `python`, or functions of the user's; separated by commas."""
        from ctxkit.agent.live import TOOLS
        from ctxkit.tools.tool import Tool, tool

        out: list[Any] = []
        for name in (w.strip() for w in words.split(",") if w.strip()):
            held = self._kit.shell.user_ns.get(name)
            if name in TOOLS:
                out.append(name)
            elif isinstance(held, Tool):
                out.append(held)
            elif callable(held):
                out.append(tool(held))
            else:
                known = [
                    *TOOLS,
                    *(k for k, v in self._kit.shell.user_ns.items() if callable(v) and not k.startswith("_")),
                ]
                raise BadArguments(f"There is no tool {name!r}; there are {', '.join(TOOLS)}, and functions of yours."
                                   f"{did_you_mean(name, known)}")  # fmt: skip
        return out
