"""The live sessions of a kernel: opened by name, one turn at a time, their files in the working
folder.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit.agent.output_limits import OutputLimits
from ctxkit.agent.resumes import kept
from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.injected import chosen
from ctxkit.magics.instructions import instructions
from ctxkit.magics.memory_words import known_words, remembering
from ctxkit.magics.servers import Servers, told_servers
from ctxkit.magics.visits import guest_session, via_command
from ctxkit.models.model_names import LOOKUP
from ctxkit.models.scripts import SCRIPTS
from ctxkit.policies.rules import Rules
from ctxkit.policies.summary import Summary
from ctxkit.policies.triggers import Share
from ctxkit.prices import price
from ctxkit.tools.tool import Tool, tool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ctxkit.agent.events import Listener
    from ctxkit.agent.live import LiveSession
    from ctxkit.agent.remembering import SessionMemory
    from ctxkit.agent.sent_prompts import Prompts
    from ctxkit.agent.span_exports import SpanAddress
    from ctxkit.agent.threads import Background
    from ctxkit.magics.kit_settings import KitSettings
    from ctxkit.magics.servers import ServerCommand
    from ctxkit.models.model import Model


class Parts(NamedTuple):
    """What a live session is made of; where it differs from before, the session is opened anew."""

    model: str
    summary_model: str
    said: str
    """How the rules were named."""
    rules: Rules
    tools: tuple[Any, ...]
    via: tuple[str, ...]
    mcp: dict[str, ServerCommand]
    root: Path | None
    allow: tuple[str, ...]
    memory: tuple[str, ...]
    outputs: OutputLimits


SETTINGS = (
    "model", "summary_model", "rules", "tools", "via", "mcp", "root", "allow", "system",
    "sections", "memory", "approve", "output",
)  # fmt: skip
"""What a session remembers of how it was opened."""
FIRST = "main"
"""Name of a session that nobody named."""
STANDARD = Rules(
    policy=Summary(keep_share=0.3, file_lists=True), trigger=Share(share=0.75), name="standard"
)
"""The rules of a live session unless others are named: at three quarters of the window, a summary
and the last 30 %.
"""


class Lives:
    """Live sessions by name.

    Args:
        kit: the magics; its settings are the defaults.
    """

    def __init__(self, kit: KitSettings) -> None:
        self._kit = kit
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
        parts = self.parts(settings)  # what does not exist is refused before anything is closed
        begun = name in self._known and bool(self._known[name].session.log)
        system = self.system(settings) if asked.get("system") or not begun else ""
        chosen(settings["sections"])
        heard: tuple[Listener, ...] = ()
        again = name in self._known
        sent: Prompts | None = None
        if name in self._known and (self._made[name] != parts or self._known[name].log.stopped):
            old = self._known.pop(name)
            self._remembered[name], heard = old.settings, old.listeners
            sent = old.agent.prompts
            old.close()
        if name not in self._known:
            self._known[name] = self._opened(name, settings, parts, sent)
            self._made[name] = parts
            for hear in heard:
                self._known[name].listen(hear)
            if again:  # what differs was named in this kernel
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

    def system(self, settings: Mapping[str, Any]) -> str:
        """Return the instructions that settings name; empty where they name none.

        Raises:
            BadArguments: they are no text that can be read.
        """
        root = Path(settings["root"]).expanduser() if settings["root"] else None
        words: str = settings["system"]
        return instructions(words, self._kit.shell.user_ns, root) if words else ""

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

    def parts(self, settings: Mapping[str, Any]) -> Parts:
        """Return what the names in the settings stand for.

        Raises:
            BadArguments: a model, rules or a tool do not exist.
        """
        for key in ("model", "summary_model"):
            self._check_model(settings[key])
        rules = self.rules(settings["rules"])
        return Parts(
            model=settings["model"],
            summary_model=settings["summary_model"],
            said=settings["rules"],
            rules=rules,
            tools=tuple(self._held(settings["tools"])),
            via=via_command(settings["via"]),
            mcp=told_servers(settings["mcp"], self._kit.shell.user_ns),
            root=Path(settings["root"]).expanduser() if settings["root"] else None,
            allow=tuple(w.strip() for w in settings["allow"].split(",") if w.strip()),
            memory=tuple(known_words(settings["memory"], self._kit.shell.user_ns)),
            outputs=OutputLimits.of(rules, settings["output"]),
        )

    def _check_model(self, name: str) -> None:
        """Refuse a name that is neither a script, a local model, nor one that a provider is known
        for.
        """
        if name and "/" not in name and name not in ("scripted", "local") and price(name) is None:
            scripts = [f"scripted/{s}" for s in (*SCRIPTS, LOOKUP, *self._kit.sessions)]
            near = next((s for s in scripts if s.endswith(f"/{name}")), None)
            said = f" Did you mean {near!r}?" if near else did_you_mean(name, scripts)
            raise BadArguments(
                f"No model is called {name!r}: write PROVIDER/MODEL, local, or one of"
                f" {', '.join(scripts)}.{said}"
            )
        if name.startswith("scripted/"):
            self.model(name, STANDARD)

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
        model = self.model(parts.model, parts.rules)
        to = self._exported()
        live = LiveSession(
            name,
            memory=self.memory(settings["memory"], model),
            model=model,
            summary_model=(
                self.model(parts.summary_model, parts.rules) if parts.summary_model else None
            ),
            rules=parts.rules,
            clock=time.time,
            tools=[*self.tools(settings["tools"]), *self.servers.tools(name, parts.mcp)],
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

    def model(self, name: str, rules: Rules) -> Model:
        """Return a model by name; `scripted/NAME` also takes a session that the magics know."""
        from ctxkit.models.model_names import model
        from ctxkit.tokens import default

        counter: Any = rules.counter or default()
        return model(
            name, counter=counter, clock=time.time, scripts=dict(self._kit.sessions.items())
        )

    def rules(self, name: str, *, once: bool = False) -> Rules:
        """Return rules: a variable of the user's that holds some, `standard`, words for a policy,
        else a preset.

        `once`: they are asked by hand, so they need no trigger.

        Raises:
            UnknownPreset: there are none of that name.
        """
        from ctxkit.presets.naming import as_rules

        held = self._kit.shell.user_ns.get(name) if name.isidentifier() else None
        if held is not None and (isinstance(held, (Rules, str)) or callable(held)):
            return as_rules(held, once=once)
        if name == STANDARD.name:
            return STANDARD
        return as_rules(name, once=once)

    def memory(self, words: str, model: Model) -> SessionMemory | None:
        """Return the memory that words name; empty: on, and off for a script, which is nobody's
        talk.

        Raises:
            BadArguments: a word names no memory.
        """
        return remembering(words, model, self._kit.shell.user_ns)

    def tools(self, words: str) -> list[Any]:
        """Return tools by name: `files`, `shell`, `python`, or functions of the user's; separated
        by commas.

        Raises:
            BadArguments: there is no such tool.
        """
        return [held if isinstance(held, (str, Tool)) else tool(held) for held in self._held(words)]

    def _held(self, words: str) -> list[Any]:
        """Return what the names of tools stand for: words for the kit's own, else functions of the
        user's.
        """
        from ctxkit.tools.named_tools import TOOLS

        names, held = [w.strip() for w in words.split(",") if w.strip()], self._kit.shell.user_ns
        for name in names:
            if (
                name not in TOOLS
                and not callable(held.get(name))
                and not isinstance(held.get(name), Tool)
            ):
                own = [k for k, v in held.items() if callable(v) and not k.startswith("_")]
                raise BadArguments(
                    f"There is no tool {name!r}; there are {', '.join(TOOLS)},"
                    " and functions of yours."
                    f"{did_you_mean(name, [*TOOLS, *own])}"
                )
        return [name if name in TOOLS else held[name] for name in names]
