"""What names stand for where a live session is opened: models, rules, tools, a memory."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit.agent.output_limits import OutputLimits
from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.magics.instructions import instructions
from ctxkit.magics.memory_words import known_words, remembering
from ctxkit.magics.servers import told_servers
from ctxkit.magics.visits import via_command
from ctxkit.models.model_names import LOOKUP
from ctxkit.models.scripts import SCRIPTS
from ctxkit.policies.rules import Rules
from ctxkit.policies.summary import Summary
from ctxkit.policies.triggers import Share
from ctxkit.prices import price
from ctxkit.tools.tool import Tool, tool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ctxkit.agent.remembering import SessionMemory
    from ctxkit.magics.kit_settings import KitSettings
    from ctxkit.magics.servers import ServerCommand
    from ctxkit.models.model import Model

STANDARD = Rules(
    policy=Summary(keep_share=0.3, file_lists=True), trigger=Share(share=0.75), name="standard"
)
"""The rules of a live session unless others are named: at three quarters of the window, a summary
and the last 30 %.
"""


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


class NamedParts:
    """What the names in the settings of sessions stand for, in one kernel.

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
        return instructions(words, self._kit.shell.user_ns, root) if words else ""

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
        """Refuse a name that is neither a script, a local model, nor one of a known provider."""
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
            found = held.get(name)
            if name not in TOOLS and not callable(found) and not isinstance(found, Tool):
                own = [k for k, v in held.items() if callable(v) and not k.startswith("_")]
                raise BadArguments(
                    f"There is no tool {name!r}; there are {', '.join(TOOLS)},"
                    " and functions of yours."
                    f"{did_you_mean(name, [*TOOLS, *own])}"
                )
        return [name if name in TOOLS else held[name] for name in names]
