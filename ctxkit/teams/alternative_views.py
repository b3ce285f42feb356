"""Alternative views of a recorded team: what each agent would have been shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit._internal.formatting import sanitize_text
from ctxkit.engine import log_from_session, run_rules
from ctxkit.errors import BadArguments, StoreError, did_you_mean
from ctxkit.metrics.prompt_sizes import RunPrompts
from ctxkit.metrics.prompt_sizes import get_prompt_sizes as plain_prompts
from ctxkit.metrics.team_log import ARTIFACTS, HANDOFF, HANDOFF_KEY
from ctxkit.policies.base import BasePolicy, Chain, ScheduledPruning
from ctxkit.policies.history.columns import ASSISTANT
from ctxkit.policies.rules import Rules
from ctxkit.policies.texts.content import call_path
from ctxkit.presets.config_keys import ConfigSection
from ctxkit.presets.fuseraft_config import VIEW_KEYS, history_filters
from ctxkit.session.messages import FROM_OTHERS, Message, Text
from ctxkit.session.tool_calls import is_write_tool, results_by_call
from ctxkit.teams.contracts import TurnChanges, make_turn_changes
from ctxkit.teams.handoffs import SUMMARY_FILE, SourceFiles, format_declared_context, parse_sources
from ctxkit.teams.members import ISOLATIONS
from ctxkit.teams.plan import TeamPlan
from ctxkit.teams.visibility import FRESH_TURN_KEY, OwnTurns, get_own_history_limits
from ctxkit.tokens.registry import default_counter
from ctxkit.tokens.sizes import MessageSizes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ctxkit.metrics.team_log import AgentLog, TeamTurn
    from ctxkit.policies.schedules.schedule_input import ScheduleView
    from ctxkit.session.messages import Provenance, ToolCall
    from ctxkit.session.session import Session
    from ctxkit.teams.plan import ContextSource
    from ctxkit.tokens import ContextBudget


SOURCE_KEYS = ("ContextWindow", "Context", "Isolation")
"""Keys of an agent that say what it is shown; a view may have those of a ContextWindow besides."""
SHARED_VIEW = "shared"
"""The view in which all hear everything, against which the others are held."""
DEFAULT_VIEWS: dict[str, dict[str, Any]] = {
    "text only": {"TextOnly": True},
    "last 3 replies": {"MaxTurnAge": 3},
    "artifacts": {
        "Context": [{"Source": s} for s in ("session_context", "changes_recent:5", "own_history")]
    },
    "fresh": {"Isolation": "Fresh"},
}
"""Views that are compared where none are named."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Isolated(ScheduledPruning):
    """Hear of the others what an isolation lets through, and the hand-offs made for oneself."""

    agent: str = ""
    isolation: str = "fresh"
    """`fresh`: nothing; `fork`: what was said before one's own first reply; `shared`: all."""
    handoffs: bool = True
    """False where declared sources take their place."""

    def schedule(self, view: ScheduleView, _room: ContextBudget) -> None:
        """Hide each word of another as it comes."""
        for p in view.new("user", "assistant"):
            message = view.rows.message(p)
            spoke = view.memory.get("spoke", False)
            if view.role(p) == ASSISTANT:
                view.memory["spoke"] = True
            elif message.kind == HANDOFF and message.details.get(HANDOFF_KEY) == self.agent:
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
    window: tuple[BasePolicy, ...]
    """What it leaves of the history with which a turn begins."""
    isolation: str
    context: tuple[ContextSource, ...]
    anew: bool = False
    """Whether each turn begins without one's own earlier ones, as some selections have it."""

    def rules(self, agent: str) -> Rules:
        """Return the rules by which an agent is shown this view of all that was said."""
        if self.context:
            hears = Isolated(agent=agent, isolation="fresh", handoffs=False)
            turns, chars = get_own_history_limits(self.context)
            pruning = Chain.of(hears, OwnTurns(turns=turns, max_chars=chars))
            return Rules(name=self.name, pruning=pruning)
        hears = Isolated(agent=agent, isolation=self.isolation)
        parts: list[Any] = [hears] if self.isolation != "shared" else []
        parts += [OwnTurns(heard=True)] if self.anew else []
        parts += self.window
        return Rules(name=self.name, pruning=Chain.of(*parts) if parts else None)


def parse_views(given: object) -> list[TeamView]:
    """Return views from a mapping of names to the keys of a config, or the usual ones; that in
    which all hear everything is always among them.

    Raises:
        BadArguments: a view has other keys, or a value of the wrong kind.
    """
    named = DEFAULT_VIEWS if given == "views" else given
    if not isinstance(named, Mapping) or not named:
        raise BadArguments("Give views: 'views', or names with the keys of a ContextWindow each.")
    all_of = {SHARED_VIEW: {}, **named}
    return [parse_view(sanitize_text(str(name), 60), keys) for name, keys in all_of.items()]


def parse_view(name: str, keys: object) -> TeamView:
    """Return one view from the keys of a config.

    Raises:
        BadArguments: it has other keys, or a value of the wrong kind.
    """
    if not isinstance(keys, Mapping):
        raise BadArguments(f"View {name!r} needs keys and values, such as {{'TextOnly': True}}.")
    f = ConfigSection(keys)
    known = [*SOURCE_KEYS, *VIEW_KEYS]
    section = f.section("ContextWindow")
    for key in (*f, *section):
        if key.casefold() not in {k.casefold() for k in (*known, FRESH_TURN_KEY)}:
            raise BadArguments(
                f"View {name!r} has a key {sanitize_text(key, 40)!r}; there are {', '.join(known)}."
                f"{did_you_mean(key, known)}"
            )
    inner = section if section.values else f
    isolation = (f.text("Isolation") or "shared").casefold()
    if isolation not in ISOLATIONS:
        raise BadArguments(f"Isolation of view {name!r} is Shared, Fresh or Fork.")
    context = parse_sources(f.rows("Context"), f"Context of view {name!r}", own=True)
    return TeamView(name, _make_window_filter(inner), isolation, context, f.flag(FRESH_TURN_KEY))


def _make_window_filter(f: ConfigSection) -> tuple[BasePolicy, ...]:
    by_tool = f.section("ToolResultCharOverrides")
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


_DERIVED: Provenance = "derived"


def with_view_sizes(log: AgentLog, keys: Mapping[str, Any]) -> AgentLog:
    """Return an agent's log with sizes that go by what its view let through.

    Prompts grow within a turn by what is new, whatever a view hides: that growth against its count
    is the scale of all counts, and what the first prompt has beyond them is its fixed part.

    Args:
        log: of an agent.
        keys: the view under which it was recorded, in the keys of its config; empty: all was sent,
            and the sizes are right as they are.
    """
    view = parse_view("recorded", keys)
    prompts, _ = plain_prompts(log.record)
    rules = view.rules(log.agent)
    if rules.pruning is None or not prompts or not prompts[0]:
        return log
    counter = default_counter()
    counts = [counter.message(m) for m in log.record.messages]
    done = run_rules(log_from_session(log.record, rules, tokens=counts, fixed=0), rules, None)
    sent = RunPrompts(done)
    shown = [sent.prompt(c) for c in range(len(prompts))]
    scale = _scale(prompts, shown)
    fixed = max(round(prompts[0] - scale * shown[0]), 0)
    n, source = len(prompts), tuple(_DERIVED for _ in counts)
    return replace(log, known=MessageSizes(
        session=log.record, counter=counter.name,
        tokens=tuple(max(round(scale * c), 1) if c else 0 for c in counts),
        source=source, fixed=fixed, fixed_at=(fixed,) * n, unsent_at=(0,) * n,
        error=1 / scale - 1, clamped=0, recorded=tuple(prompts),
        modelled=tuple(round(fixed + scale * s) for s in shown), inserted=(),
    ))  # fmt: skip


def _scale(prompts: Sequence[int | None], shown: Sequence[int]) -> float:
    """Return the tokens of one counted token, by the growth of prompts."""
    real = counted = 0
    for before, now, a, b in zip(prompts, prompts[1:], shown, shown[1:], strict=False):
        if before and now and now > before and b > a:
            real, counted = real + now - before, counted + b - a
    return real / counted if real and counted else 1.0


def add_declared_context(
    logs: Sequence[AgentLog], turns: Sequence[TeamTurn], declared: Sequence[ContextSource]
) -> list[AgentLog]:
    """Return the agents' logs with the block of a declared context before each turn's prompt.

    Files are known as far as calls of the record wrote them; what was there before is missing.
    """
    by_name = {log.agent: log for log in logs}
    folder = next((log.record.cwd for log in logs if log.record.cwd), "") or ""
    files, deeds = RecordedFiles(folder), list[TurnChanges]()
    placed: dict[str, dict[int, str]] = {name: {} for name in by_name}
    for number, turn in enumerate(turns):
        if turn.agent not in by_name or not turn.calls:
            continue
        shelf = SourceFiles(root=files, brief=TeamPlan.brief, changes=tuple(deeds))
        placed[turn.agent][turn.calls[0]] = format_declared_context(shelf, declared)
        said = _turn_messages(by_name[turn.agent].record, turn.calls)
        files.take(said)
        deed = make_turn_changes(number, turn.agent, said)
        deeds += [deed] if deed is not None else []
    return [_insert_blocks(log, placed[log.agent]) for log in logs]


def _turn_messages(session: Session, calls: Sequence[int]) -> list[Message]:
    """Return the replies of some calls, and what their tools answered."""
    replies = [session.calls[c].message for c in calls]
    found = results_by_call(session.messages)
    told = (found.get(id(c)) for m in replies for c in m.tool_calls)
    kept = {id(m) for m in (*replies, *told)}
    return [m for m in session.messages if id(m) in kept]


def _insert_blocks(log: AgentLog, blocks: dict[int, str]) -> AgentLog:
    """Put blocks before the prompts of the calls that they belong to, where there is one."""
    out: list[Message] = []
    call, prompt = 0, -1
    for m in log.shared.messages:
        if m.role == "assistant":
            if blocks.get(call) and prompt >= 0:
                block = Message(role="user", kind=ARTIFACTS, parts=(Text(blocks[call]),),
                                id=f"block{call}", turn=m.turn)  # fmt: skip
                out.insert(prompt, block)
            call, prompt = call + 1, -1
        elif m.role == "user" and not m.kind:
            prompt = len(out)
        out.append(m)
    return replace(log, shared=msgspec.structs.replace(log.shared, log=tuple(out)))


_CONTENT_ARGUMENTS = ("content", "file_text", "text")
_PATCH_ARGUMENTS = (("old", "new"), ("old_string", "new_string"), ("old_str", "new_str"))
"""Arguments that hold a file's whole text, and those that hold what is put in the place of what."""


class RecordedFiles:
    """Reads like a team's folder, and holds what its agents wrote so far."""

    def __init__(self, folder: str = "") -> None:
        self._texts: dict[str, str] = {}
        self._folder = folder.rstrip("/") + "/" if folder else ""

    def take(self, messages: Iterable[Message]) -> None:
        """Write what the calls of a turn wrote."""
        asked: dict[str | None, ToolCall] = {}
        for m in messages:
            asked |= {c.id: c for c in m.tool_calls}
            call = asked.get(m.call_id) if m.role == "tool" and not m.is_error else None
            if call is not None:
                self._write(call)

    def read(self, name: str, most: int) -> bytes:
        """Return the text of a file.

        Raises:
            StoreError: no call wrote it whole.
        """
        text = self._texts.get(self._plain(name))
        if text is None:
            raise StoreError(f"No call of the record wrote {name!r} whole.")
        return text.encode()[:most]

    def _write(self, call: ToolCall) -> None:
        given = call.arguments
        whole = next((v for k in _CONTENT_ARGUMENTS if isinstance(v := given.get(k), str)), None)
        if call.name == "session_context_write" and whole is not None:
            self._texts[SUMMARY_FILE] = whole
            return
        name = self._plain(call_path(call))
        if not name or not is_write_tool(call.name):
            return
        if whole is not None:
            self._texts[name] = whole
        for old, new in _PATCH_ARGUMENTS:
            before, after = given.get(old), given.get(new)
            if name in self._texts and isinstance(before, str) and isinstance(after, str):
                self._texts[name] = self._texts[name].replace(before, after, 1)

    def _plain(self, name: str) -> str:
        return name.replace("\\", "/").removeprefix(self._folder).removeprefix("./")
