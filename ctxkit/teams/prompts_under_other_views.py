"""Comparison of context views of a recorded team: the prompts of each agent, and their cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pandas as pd

from ctxkit._internal.formatting_and_sanitizing import (
    escape_html,
    format_percent,
    sanitize_line,
    sanitize_text,
)
from ctxkit._internal.tables import TERMINAL_COLUMNS, TEXT_COLOR_CSS, Cell, Column, Table
from ctxkit.engine import make_log_from_session, run_rules
from ctxkit.engine.replay import find_context_window
from ctxkit.errors import BadArguments, StoreError, did_you_mean
from ctxkit.metrics.cost.replay_cost_model import ReplayCostModel, bill_replay
from ctxkit.metrics.cost.session_bill import bill_session
from ctxkit.metrics.item_index_and_rule_matching import ItemIndex
from ctxkit.metrics.losable_items import MessageItemCache
from ctxkit.metrics.loss_analysis import LossAnalysis
from ctxkit.metrics.loss_tables import make_loss_columns
from ctxkit.metrics.message_visibility import get_rules_run_visibility
from ctxkit.metrics.prompt_sizes_and_contents import RunPromptSizes
from ctxkit.metrics.prompt_sizes_and_contents import get_prompt_sizes as plain_prompts
from ctxkit.metrics.team_agent_logs_and_turns import (
    ARTIFACTS,
    HANDOFF,
    HANDOFF_KEY,
    find_compacted_calls,
    get_agent_logs,
    get_team_turns,
    get_tool_agent_logs,
    tabulate_team_turns,
)
from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.history.growing_columns_and_sums import ASSISTANT
from ctxkit.policies.policy_base_and_chains import BasePolicy, Chain
from ctxkit.policies.texts.message_content_and_truncation import get_path_argument
from ctxkit.policies.validated_settings_and_scheduled_prunings import ScheduledPruning
from ctxkit.presets.config_key_mapping import ConfigSection
from ctxkit.presets.fuseraft_config import VIEW_KEYS, make_history_filters
from ctxkit.session.messages import OTHER_AGENT_KINDS, Message, Text
from ctxkit.session.titles import get_title
from ctxkit.session.tool_call_paths_and_descriptions import is_write_tool, map_results_by_call
from ctxkit.teams.handoffs_and_contracts import (
    SUMMARY_FILE,
    ContextSourceInputs,
    TurnFilesAndCommands,
    format_declared_context,
    make_turn_changes,
    parse_context_sources,
)
from ctxkit.teams.member_config_and_views import (
    FRESH_TURN_KEY,
    ISOLATIONS,
    TaskAndOwnRepliesFilter,
    get_own_history_limits,
)
from ctxkit.teams.team_definition import TeamPlan
from ctxkit.tokens.message_sizes_from_recorded_prompts import MessageSizes
from ctxkit.tokens.token_counters import default_counter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ctxkit.engine import RulesRun
    from ctxkit.metrics.team_agent_logs_and_turns import OwnAndSharedSession, TeamTurn
    from ctxkit.policies.schedules.pruning_changes_at_new_calls import ScheduleView
    from ctxkit.session.messages import Provenance, ToolCall
    from ctxkit.session.session import Session
    from ctxkit.teams.team_definition import ContextSource
    from ctxkit.tokens import ContextBudget


SOURCE_KEYS = ("ContextWindow", "Context", "Isolation")
"""Keys of an agent that define its view; a view may also have those of a ContextWindow."""
SHARED_VIEW = "shared"
"""The view in which all agents see everything; the others are compared with it."""
DEFAULT_VIEWS: dict[str, dict[str, Any]] = {
    "text only": {"TextOnly": True},
    "last 3 replies": {"MaxTurnAge": 3},
    "artifacts": {
        "Context": [{"Source": s} for s in ("session_context", "changes_recent:5", "own_history")]
    },
    "fresh": {"Isolation": "Fresh"},
}
"""Views that are compared by default."""


@dataclass(frozen=True, kw_only=True, repr=False)
class IsolationFilter(ScheduledPruning):
    """Show the messages of other agents that an isolation allows, and the agent's own hand-offs."""

    agent: str = ""
    isolation: str = "fresh"
    """`fresh`: none; `fork`: those before the agent's own first reply; `shared`: all."""
    handoffs: bool = True
    """False if declared sources replace them."""

    def schedule(self, view: ScheduleView, _budget: ContextBudget) -> None:
        """Hide each message of another agent when it arrives."""
        for p in view.new("user", "assistant"):
            message = view.rows.message(p)
            spoke = view.memory.get("spoke", False)
            if view.role(p) == ASSISTANT:
                view.memory["spoke"] = True
            elif message.kind == HANDOFF and message.details.get(HANDOFF_KEY) == self.agent:
                if not self.handoffs:
                    view.change(p, None, since=view.arrival(p))
            elif message.kind in (*OTHER_AGENT_KINDS, HANDOFF) and not self._hears_others(
                spoke=spoke
            ):
                view.change(p, None, since=view.arrival(p))

    def _hears_others(self, *, spoke: bool) -> bool:
        return self.isolation == "shared" or (self.isolation == "fork" and not spoke)


@dataclass(frozen=True)
class TeamView:
    """A view that applies to all agents."""

    name: str
    filters: tuple[BasePolicy, ...]
    """Policies that filter the history at the start of a turn."""
    isolation: str
    context: tuple[ContextSource, ...]
    hides_own_earlier_turns: bool = False
    """True if each turn begins without the agent's own earlier turns, as in some selections."""

    def rules(self, agent: str) -> Rules:
        """Return the rules that show an agent this view of the shared history."""
        if self.context:
            hears = IsolationFilter(agent=agent, isolation="fresh", handoffs=False)
            turns, chars = get_own_history_limits(self.context)
            pruning = Chain.of(hears, TaskAndOwnRepliesFilter(turns=turns, max_chars=chars))
            return Rules(name=self.name, pruning=pruning)
        hears = IsolationFilter(agent=agent, isolation=self.isolation)
        parts: list[Any] = [hears] if self.isolation != "shared" else []
        parts += (
            [TaskAndOwnRepliesFilter(keeps_other_agents=True)]
            if self.hides_own_earlier_turns
            else []
        )
        parts += self.filters
        return Rules(name=self.name, pruning=Chain.of(*parts) if parts else None)


def parse_views(views: object) -> list[TeamView]:
    """Return views from a mapping of names to config keys, or the default views.

    The view in which all agents see everything is always included.

    Raises:
        BadArguments: a view has other keys, or a value of the wrong kind.
    """
    named_views = DEFAULT_VIEWS if views == "views" else views
    if not isinstance(named_views, Mapping) or not named_views:
        raise BadArguments("Give views: 'views', or names with the keys of a ContextWindow each.")
    all_of = {SHARED_VIEW: {}, **named_views}
    return [parse_view(sanitize_text(str(name), 60), keys) for name, keys in all_of.items()]


def parse_view(name: str, keys: object) -> TeamView:
    """Return one view from the keys of a config.

    Args:
        name: name of the view, for the error.
        keys: the section of the config.

    Raises:
        BadArguments: it has other keys, or a value of the wrong kind.
    """
    if not isinstance(keys, Mapping):
        raise BadArguments(f"View {name!r} needs keys and values, such as {{'TextOnly': True}}.")
    f = ConfigSection(keys)
    known_keys = [*SOURCE_KEYS, *VIEW_KEYS]
    section = f.section("ContextWindow")
    for key in (*f, *section):
        if key.casefold() not in {k.casefold() for k in (*known_keys, FRESH_TURN_KEY)}:
            raise BadArguments(
                f"View {name!r} has a key {sanitize_text(key, 40)!r}; there are"
                f" {', '.join(known_keys)}."
                f"{did_you_mean(key, known_keys)}"
            )
    inner = section or f
    isolation = (f.text("Isolation") or "shared").casefold()
    if isolation not in ISOLATIONS:
        raise BadArguments(f"Isolation of view {name!r} is Shared, Fresh or Fork.")
    context = parse_context_sources(f.rows("Context"), f"Context of view {name!r}", allow_own=True)
    return TeamView(name, _make_window_filter(inner), isolation, context, f.flag(FRESH_TURN_KEY))


def _make_window_filter(section: ConfigSection) -> tuple[BasePolicy, ...]:
    by_tool = section.section("ToolResultCharOverrides")
    return tuple(
        make_history_filters(
            text_only=section.flag("TextOnly"),
            exclude_agents=section.texts("ExcludeAgents"),
            max_turn_age=section.number("MaxTurnAge"),
            max_tail_messages=section.number("MaxTailMessages"),
            max_tool_result_chars=section.number("MaxToolResultChars"),
            tool_result_char_overrides={tool: by_tool.number(tool) for tool in by_tool},
            max_replay_chars=section.number("MaxReplayChars"),
            besides_prompt=True,
        )
    )


_DERIVED: Provenance = "derived"


def correct_sizes_for_hidden_messages(
    log: OwnAndSharedSession, recorded_view_keys: Mapping[str, Any]
) -> OwnAndSharedSession:
    """Return an agent's log with sizes corrected for what its view hid.

    Within a turn a prompt grows by its new messages only, whatever a view hides. The ratio of this
    growth to its count scales all counts; the rest of the first prompt is its fixed part.

    Args:
        log: log of an agent.
        recorded_view_keys: the view under which it was recorded, in the keys of its config; empty:
            all was sent, and the sizes are right as they are.
    """
    view = parse_view("recorded", recorded_view_keys)
    prompts, _ = plain_prompts(log.record)
    rules = view.rules(log.agent)
    if rules.pruning is None or not prompts or not prompts[0]:
        return log
    counter = default_counter()
    # counts give the relative sizes of messages, the recorded prompts their scale
    counts = [counter.message(m) for m in log.record.messages]
    run = run_rules(make_log_from_session(log.record, rules, tokens=counts, fixed=0), rules, None)
    sent = RunPromptSizes(run)
    shown_sizes = [sent.prompt(c) for c in range(len(prompts))]
    scale = _token_scale(prompts, shown_sizes)
    fixed = max(round(prompts[0] - scale * shown_sizes[0]), 0)
    n, source = len(prompts), tuple(_DERIVED for _ in counts)
    return replace(log, record_sizes=MessageSizes(
        session=log.record, counter=counter.name,
        tokens=tuple(max(round(scale * c), 1) if c else 0 for c in counts),
        source=source, fixed=fixed, fixed_at=(fixed,) * n, unsent_at=(0,) * n,
        plain_count_error=1 / scale - 1, underivable_calls_n=0, recorded=tuple(prompts),
        modelled=tuple(round(fixed + scale * s) for s in shown_sizes), inserted=(),
    ))  # fmt: skip


def _token_scale(prompts: Sequence[int | None], counts: Sequence[int]) -> float:
    """Return billed tokens per counted token, estimated from the growth of prompts.

    Only pairs of calls in which both grow are summed, as nothing was removed between them.
    """
    recorded = counted = 0
    for before, now, a, b in zip(prompts, prompts[1:], counts, counts[1:], strict=False):
        if before and now and now > before and b > a:
            recorded, counted = recorded + now - before, counted + b - a
    return recorded / counted if recorded and counted else 1.0


def add_declared_context(
    logs: Sequence[OwnAndSharedSession],
    turns: Sequence[TeamTurn],
    declared: Sequence[ContextSource],
) -> list[OwnAndSharedSession]:
    """Return the agents' logs with the block of a declared context before each turn's prompt.

    Only files that recorded calls wrote are known; what existed before is missing.

    Args:
        logs: one log per agent.
        turns: all turns of the team, in order.
        declared: the sources of the block.
    """
    by_name = {log.agent: log for log in logs}
    folder = next((log.record.cwd for log in logs if log.record.cwd), "") or ""
    files, changes = ReconstructedTeamFolder(folder), list[TurnFilesAndCommands]()
    blocks: dict[str, dict[int, str]] = {name: {} for name in by_name}
    for number, turn in enumerate(turns):
        if turn.agent not in by_name or not turn.calls:
            continue
        source_files = ContextSourceInputs(
            root=files, brief=TeamPlan.brief_path, changes=tuple(changes)
        )
        # the block is made before the turn's own writes are applied: it shows earlier turns
        blocks[turn.agent][turn.calls[0]] = format_declared_context(source_files, declared)
        messages = _turn_messages(by_name[turn.agent].record, turn.calls)
        files.take(messages)
        change = make_turn_changes(number, turn.agent, messages)
        changes += [change] if change is not None else []
    return [_insert_blocks(log, blocks[log.agent]) for log in logs]


def _turn_messages(session: Session, calls: Sequence[int]) -> list[Message]:
    """Return the replies of some calls and their tool results."""
    replies = [session.calls[c].message for c in calls]
    results_by_id = map_results_by_call(session.messages)
    results = (results_by_id.get(id(c)) for m in replies for c in m.tool_calls)
    kept_ids = {id(m) for m in (*replies, *results)}
    return [m for m in session.messages if id(m) in kept_ids]


def _insert_blocks(log: OwnAndSharedSession, blocks: dict[int, str]) -> OwnAndSharedSession:
    """Insert each block before the prompt of its call, if that has one."""
    out: list[Message] = []
    # `prompt` is where the last request stands since the last reply; -1: there was none
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


class ReconstructedTeamFolder:
    """A team's folder, reconstructed from what its agents wrote so far."""

    def __init__(self, folder: str = "") -> None:
        self._texts: dict[str, str] = {}
        self._folder = folder.rstrip("/") + "/" if folder else ""

    def take(self, messages: Iterable[Message]) -> None:
        """Apply the writes of a turn's calls."""
        calls: dict[str | None, ToolCall] = {}
        for m in messages:
            calls |= {c.id: c for c in m.tool_calls}
            call = calls.get(m.call_id) if m.role == "tool" and not m.is_error else None
            if call is not None:
                self._apply_write(call)

    def read(self, name: str, most: int) -> bytes:
        """Return the text of a file.

        Raises:
            StoreError: no call wrote it whole.
        """
        text = self._texts.get(self._plain_name(name))
        if text is None:
            raise StoreError(f"No call of the record wrote {name!r} whole.")
        return text.encode()[:most]

    def _apply_write(self, call: ToolCall) -> None:
        arguments = call.arguments
        # a write of the whole text sets the file; a patch needs a file whose text is known
        whole = next(
            (v for k in _CONTENT_ARGUMENTS if isinstance(v := arguments.get(k), str)), None
        )
        if call.name == "session_context_write" and whole is not None:
            self._texts[SUMMARY_FILE] = whole
            return
        name = self._plain_name(get_path_argument(call))
        if not name or not is_write_tool(call.name):
            return
        if whole is not None:
            self._texts[name] = whole
        for old, new in _PATCH_ARGUMENTS:
            before, after = arguments.get(old), arguments.get(new)
            if name in self._texts and isinstance(before, str) and isinstance(after, str):
                self._texts[name] = self._texts[name].replace(before, after, 1)

    def _plain_name(self, name: str) -> str:
        return name.replace("\\", "/").removeprefix(self._folder).removeprefix("./")


RECORDED_VIEW = "recorded"
ALL_AGENTS = "all agents"
_HEADINGS = {
    "prompt_tokens": ("prompt tokens", "Tokens of the prompts of all its calls, together."),
    "peak_tokens": ("peak", "The largest prompt."),
    "token_share": ("of shared", "Prompt tokens, as a share of those where all hear everything."),
    "cost_usd": ("cost", "Dollars: prompts with the record's cache behaviour, and replies."),
    "needed_later_loss": (
        "needed, lost",
        "Of what was said and is named by the agent later: the share that it did not see then.",
    ),
}
_COLUMNS = ("agent", "view", "calls_n", "prompt_tokens", "peak_tokens", "token_share", "cost_usd",
            "needed_later_loss", "needed_lost_n", "reused_items_n", "source")  # fmt: skip


class ViewComparison(pd.DataFrame):
    """A frame with a row for each agent and view, and one for all agents together.

    Columns: `agent view calls_n prompt_tokens peak_tokens token_share cost_usd needed_later_loss
    needed_lost_n reused_items_n source`. `turns` has what each turn was billed under each view, in
    the columns of fuseraft's snapshots; ``plots.views(comparison)`` charts it. Sub-agents have
    rows, too, and no turns: they see no other agent, so no view changes them.
    """

    _metadata = ["turns", "title", "limits"]  # noqa: RUF012  pandas' own way to carry attributes

    turns: pd.DataFrame
    title: str
    limits: dict[str, int]

    @property
    def _constructor(self) -> Callable[..., pd.DataFrame]:
        return pd.DataFrame

    @property
    def caption(self) -> str:
        """Source of the figures."""
        return (
            "Each view keeps the recorded replies and changes what their prompts held: it tells "
            "the bill and what was out of sight, not what the agents would have done. No view "
            "compacts. Files of a declared context are known as far as the record wrote them. Lost "
            "is counted against all that the team had said by then."
        )

    def _make_table(self) -> Table:
        heads = [Column(*words) for words in _HEADINGS.values()]
        rows = []
        for row in self.to_dict("records"):
            first = row["agent"] if row["view"] == RECORDED_VIEW else ""
            cells = (Cell(_format_cell(c, row[c]), _as_number(row[c])) for c in _HEADINGS)
            rows.append(
                (
                    Cell(sanitize_line(str(first), 30)),
                    Cell(sanitize_line(str(row["view"]), 40)),
                    *cells,
                )
            )
        return Table((Column("agent", number=False), Column("view", number=False), *heads),
                       tuple(rows))  # fmt: skip

    def to_text(self) -> str:
        """Return the display as lines of text, 80 columns wide."""
        return "\n".join([self.title, "", self._make_table().to_text(), "",
                          *wrap(self.caption, TERMINAL_COLUMNS)])  # fmt: skip

    def _repr_html_(self) -> str:
        basis = escape_html(self.caption, 900)
        details = f"<details><summary>What these figures rest on</summary>{basis}</details>"
        return (
            '<div class="ctxkit-views" '
            f'style="{TEXT_COLOR_CSS}"><strong>{escape_html(self.title, 120)}</strong>'
            f"{self._make_table().to_html()}{details}</div>"
        )

    def __repr__(self) -> str:
        return self.to_text()


class _AgentView(NamedTuple):
    """One agent under one view."""

    row: dict[str, Any]
    prompts: Sequence[int | None]
    compacted_calls: Sequence[int]


def compare_views(session: Session, views: object, *, loss: bool, reuse: bool) -> ViewComparison:
    """Compare the prompts that a recorded team's agents would have been sent under several views.

    Args:
        session: a team's session, a session with subagents, or a log with several agents.
        views: "views" for the default ones, or names with the keys of fuseraft's ContextWindow
            (`TextOnly`, `ExcludeAgents`, `MaxTurnAge`, ...), `Context` or `Isolation`.
        loss: also compute loss.
        reuse: how recorded summaries are billed (see `ck.compare`).

    Returns:
        A frame with a row for each agent and view, the recorded view first.

    Raises:
        BadArguments: the session has only one agent, or a view has other keys.
    """
    parsed_views, turns = parse_views(views), get_team_turns(session)
    recorded_views: Mapping[str, Any] = session.details.get("views", {})
    logs = [
        correct_sizes_for_hidden_messages(log, recorded_views.get(log.agent, {}))
        for log in get_agent_logs(session)
    ]
    sub_agent_logs = get_tool_agent_logs(session)
    results = {
        RECORDED_VIEW: [_view_as_recorded(log, reuse=reuse) for log in (*logs, *sub_agent_logs)]
    }
    for view in parsed_views:
        view_logs = add_declared_context(logs, turns, view.context) if view.context else logs
        pairs = zip(view_logs, logs, strict=True)
        results[view.name] = [_view_agent(log, view, whole, loss=loss) for log, whole in pairs]
        results[view.name] += [
            _view_sub_agent(log, reuse=reuse, loss=loss) for log in sub_agent_logs
        ]
    # columns of whole numbers that may be missing
    whole = ("prompt_tokens", "peak_tokens", "needed_lost_n", "reused_items_n")
    rows = pd.DataFrame(_agent_rows([*logs, *sub_agent_logs], results), columns=list(_COLUMNS))
    comparison = ViewComparison(rows.astype(dict.fromkeys(whole, "Int64")))
    comparison.turns, comparison.title = (
        _turn_frame(logs, turns, results),
        get_title(session, TERMINAL_COLUMNS),
    )
    comparison.limits = {k: n for k in ("warn_at", "cutover_at") if (n := session.details.get(k))}
    return comparison


def _view_as_recorded(log: OwnAndSharedSession, *, reuse: bool) -> _AgentView:
    sizes, source = plain_prompts(log.record)
    recorded_sizes = [n for n in sizes if n]
    row = {
        "prompt_tokens": sum(recorded_sizes) if recorded_sizes else None,
        "peak_tokens": max(recorded_sizes, default=None),
        "cost_usd": bill_session(log.record, reuse=reuse).cost_usd,
        "source": source,
    }
    return _AgentView(row, sizes, find_compacted_calls(log.record))


def _view_sub_agent(log: OwnAndSharedSession, *, reuse: bool, loss: bool) -> _AgentView:
    """Return the row of a sub-agent: no view changes it, and nothing is lost."""
    recorded = _view_as_recorded(log, reuse=reuse)
    lost = {"needed_lost_n": 0, "reused_items_n": 0} if loss else {}
    return recorded._replace(row={**recorded.row, **lost})


def _view_agent(
    log: OwnAndSharedSession, view: TeamView, whole: OwnAndSharedSession, *, loss: bool
) -> _AgentView:
    """Return what an agent would have been sent under a view; `whole` is its log as recorded."""
    base = make_log_from_session(log.shared, Rules(), anchored=log.message_sizes)
    run = run_rules(base, view.rules(log.agent), find_context_window(log.shared))
    sent, sheet = RunPromptSizes(run), ReplayCostModel.of(whole.record, whole.record_sizes)
    bill = bill_replay(sheet, sent)
    row = {"prompt_tokens": bill.prompts, "peak_tokens": bill.peak,
           "cost_usd": bill.cost_usd, "source": "derived" if sheet.has_usage else "estimated",
           **(_count_lost(log, run) if loss and log.shared.has_text else {})}  # fmt: skip
    return _AgentView(row, [sent.prompt(c) for c in range(len(sheet.billed))], ())


def _count_lost(log: OwnAndSharedSession, run: RulesRun) -> dict[str, Any]:
    items = ItemIndex(log.shared, MessageItemCache(log.message_sizes))
    loss_columns = make_loss_columns(LossAnalysis(items, get_rules_run_visibility(items, run)))
    return {k: loss_columns[k] for k in ("needed_later_loss", "needed_lost_n", "reused_items_n")}


def _agent_rows(
    logs: Sequence[OwnAndSharedSession], results: dict[str, list[_AgentView]]
) -> list[dict[str, Any]]:
    """Return the rows by agent, then those of all agents together."""
    out = []
    for n, log in enumerate(logs):
        rows = {view: of[n].row for view, of in results.items()}
        out += _with_shares(log.agent, rows, len(log.record.calls))
    sums = {view: _sum_rows([s.row for s in of]) for view, of in results.items()}
    return [*out, *_with_shares(ALL_AGENTS, sums, sum(len(log.record.calls) for log in logs))]


def _with_shares(agent: str, rows: dict[str, dict[str, Any]], calls: int) -> list[dict[str, Any]]:
    shared_tokens = rows[SHARED_VIEW]["prompt_tokens"]
    return [
        {"agent": agent, "view": view, "calls_n": calls, **row,
         "token_share": row["prompt_tokens"] / shared_tokens
         if shared_tokens and row["prompt_tokens"] else None}
        for view, row in rows.items()
    ]  # fmt: skip


def _sum_rows(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the sums over all agents; a figure that one agent lacks is missing."""

    def total(name: str) -> Any:
        values = [r.get(name) for r in rows]
        return None if None in values else sum(values)

    lost, reused = total("needed_lost_n"), total("reused_items_n")
    peaks = [r["peak_tokens"] for r in rows if r["peak_tokens"]]
    return {"prompt_tokens": total("prompt_tokens"), "peak_tokens": max(peaks, default=None),
            "cost_usd": total("cost_usd"), "needed_lost_n": lost, "reused_items_n": reused,
            "needed_later_loss": lost / reused if reused else None,
            "source": rows[0]["source"]}  # fmt: skip


def _turn_frame(
    logs: Sequence[OwnAndSharedSession],
    turns: Sequence[TeamTurn],
    results: dict[str, list[_AgentView]],
) -> pd.DataFrame:
    names = {log.agent for log in logs}
    agent_turns = [t for t in turns if t.agent in names and t.calls]
    outputs = {
        log.agent: [c.message.usage.output_tokens if c.message.usage else None
                    for c in log.record.calls] for log in logs
    }  # fmt: skip
    tables = []
    for view, of in results.items():
        pairs = [*zip(logs, of, strict=False)]  # who is asked takes no turn
        prompts = {log.agent: s.prompts for log, s in pairs}
        compacted_calls = {log.agent: s.compacted_calls for log, s in pairs}
        tables.append(
            tabulate_team_turns(agent_turns, prompts, outputs, compacted_calls).assign(view=view)
        )
    return pd.concat(tables, ignore_index=True)


def _format_cell(column: str, value: Any) -> str:
    if pd.isna(value):
        return ""
    if column in ("token_share", "needed_later_loss"):
        return format_percent(value) if value >= 0.1 or not value else format_percent(value, 1)
    return f"${value:,.4g}" if column == "cost_usd" else f"{int(value):,}"


def _as_number(value: Any) -> float | None:
    return None if pd.isna(value) else float(value)
