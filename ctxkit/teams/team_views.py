"""Views to be compared: what every agent of a recorded team would have been shown of the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ctxkit.display.markup import plain
from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.heard.heard_words import FOR, HANDOFF
from ctxkit.history.columns import ASSISTANT
from ctxkit.messages import FROM_OTHERS
from ctxkit.policies.chain import Chain, Part
from ctxkit.policies.rules import Rules
from ctxkit.policies.scheduled import Scheduled
from ctxkit.presets.history_filters import history_filters
from ctxkit.teams.config_fields import Fields
from ctxkit.teams.filters import ANEW, OwnTurns, own_turns
from ctxkit.teams.handoffs import sources
from ctxkit.teams.roles import ISOLATIONS, WINDOW_KEYS

if TYPE_CHECKING:
    from ctxkit.schedules import ScheduleView
    from ctxkit.teams.rosters import ContextSource
    from ctxkit.tokens import Room

KEYS = ("ContextWindow", "Context", "Isolation")
SHARED = "shared"
"""The view in which all hear everything, against which the others are held."""
USUAL: dict[str, dict[str, Any]] = {
    "text only": {"TextOnly": True},
    "last 3 replies": {"MaxTurnAge": 3},
    "artifacts": {
        "Context": [{"Source": s} for s in ("session_context", "changes_recent:5", "own_history")]
    },
    "fresh": {"Isolation": "Fresh"},
}
"""Views that are compared where none are named."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Isolated(Scheduled):
    """Hear of the others what an isolation lets through, and the hand-offs made for oneself."""

    agent: str = ""
    isolation: str = "fresh"
    """`fresh`: nothing; `fork`: what was said before one's own first reply; `shared`: all."""
    handoffs: bool = True
    """False where declared sources take their place."""

    def schedule(self, view: ScheduleView, _room: Room) -> None:
        """Hide each word of another as it comes."""
        for p in view.new("user", "assistant"):
            message = view.rows.message(p)
            spoke = view.memory.get("spoke", False)
            if view.role(p) == ASSISTANT:
                view.memory["spoke"] = True
            elif message.kind == HANDOFF and message.details.get(FOR) == self.agent:
                if not self.handoffs:
                    view.change(p, None, since=view.arrival(p))
            elif message.kind in (*FROM_OTHERS, HANDOFF) and not self._hears(spoke=spoke):
                view.change(p, None, since=view.arrival(p))

    def _hears(self, *, spoke: bool) -> bool:
        return self.isolation == "shared" or (self.isolation == "fork" and not spoke)


@dataclass(frozen=True)
class TeamView:
    """One view, for all agents alike."""

    name: str
    window: tuple[Part, ...]
    """What it leaves of the history with which a turn begins."""
    isolation: str
    context: tuple[ContextSource, ...]
    anew: bool = False
    """Whether each turn begins without one's own earlier ones, as some selections have it."""

    def rules(self, agent: str) -> Rules:
        """Return the rules by which an agent is shown this view of all that was said."""
        if self.context:
            hears = Isolated(agent=agent, isolation="fresh", handoffs=False)
            turns, chars = own_turns(self.context)
            pruning = Chain.of(hears, OwnTurns(turns=turns, max_chars=chars))
            return Rules(name=self.name, pruning=pruning)
        hears = Isolated(agent=agent, isolation=self.isolation)
        parts: list[Any] = [hears] if self.isolation != "shared" else []
        parts += [OwnTurns(heard=True)] if self.anew else []
        parts += self.window
        return Rules(name=self.name, pruning=Chain.of(*parts) if parts else None)


def views_of(given: object) -> list[TeamView]:
    """Return views from a mapping of names to the keys of a config, or the usual ones; that in
    which all hear everything is always among them.

    Raises:
        BadArguments: a view has other keys, or a value of the wrong kind.
    """
    named = USUAL if given == "views" else given
    if not isinstance(named, Mapping) or not named:
        raise BadArguments("Give views: 'views', or names with the keys of a ContextWindow each.")
    all_of = {SHARED: {}, **named}
    return [view_of(plain(str(name), 60), keys) for name, keys in all_of.items()]


def view_of(name: str, keys: object) -> TeamView:
    """Return one view from the keys of a config.

    Raises:
        BadArguments: it has other keys, or a value of the wrong kind.
    """
    if not isinstance(keys, Mapping):
        raise BadArguments(f"View {name!r} needs keys and values, such as {{'TextOnly': True}}.")
    f = Fields(keys)
    known = [*KEYS, *WINDOW_KEYS]
    section = f.section("ContextWindow")
    for key in (*f, *(section or ())):
        if key.casefold() not in {k.casefold() for k in (*known, ANEW)}:
            raise BadArguments(
                f"View {name!r} has a key {plain(key, 40)!r}; there are {', '.join(known)}."
                f"{did_you_mean(key, known)}"
            )
    inner = section or Fields({k: v for k, v in keys.items() if str(k).casefold() not in
                               {x.casefold() for x in KEYS}})  # fmt: skip
    isolation = (f.text("Isolation") or "shared").casefold()
    if isolation not in ISOLATIONS:
        raise BadArguments(f"Isolation of view {name!r} is Shared, Fresh or Fork.")
    context = sources(f.rows("Context"), f"Context of view {name!r}", own=True)
    return TeamView(name, _window(inner), isolation, context, f.flag(ANEW))


def _window(f: Fields) -> tuple[Part, ...]:
    by_tool = f.section("ToolResultCharOverrides") or Fields({})
    return tuple(
        history_filters(
            text_only=f.flag("TextOnly"),
            exclude_agents=f.texts("ExcludeAgents"),
            max_turn_age=f.number("MaxTurnAge"),
            max_tail_messages=f.number("MaxTailMessages"),
            max_tool_result_chars=f.number("MaxToolResultChars"),
            tool_result_char_overrides={tool: by_tool.number(tool) for tool in by_tool},
            max_replay_chars=f.number("MaxReplayChars"),
            besides_prompt=True,
        )
    )
