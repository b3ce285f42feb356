"""The turn frame in fuseraft's snapshot columns: one row per turn of an agent."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

from ctxkit.metrics.cost.call_and_summary_charges import pick_weakest_source
from ctxkit.metrics.cost.session_bill import charge_calls, get_billed_usages
from ctxkit.metrics.figures_registered_by_view import register_view_values
from ctxkit.metrics.frames.frame_column import BOOL, FLOAT, INT, TEXT, TIME, FrameColumn
from ctxkit.metrics.means_and_prediction_intervals import sum_counts_if_complete, sum_if_complete
from ctxkit.session.compactions_and_prunings import hides_compactions
from ctxkit.session.messages import Edit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.metrics.cost.call_and_summary_charges import CallCharge
    from ctxkit.session.messages import Usage
    from ctxkit.session.session import ModelCall, Session

COLUMNS = (
    FrameColumn("ts", TIME, "UTC", "when the turn's last reply was written"),
    FrameColumn("session", TEXT, "", "id of the session"),
    FrameColumn("agent", TEXT, "", "the agent whose turn it is"),
    FrameColumn("turn", INT, "", "zero-based turn"),
    FrameColumn(
        "turn_input_tokens",
        INT,
        "tokens",
        "prompts of all calls of the turn together: what was billed, not occupancy",
    ),
    FrameColumn("turn_output_tokens", INT, "tokens", "output of all calls of the turn together"),
    FrameColumn(
        "cumulative_input_tokens",
        INT,
        "tokens",
        "`turn_input_tokens` of this agent since the last compaction, whole turns as above",
    ),
    FrameColumn("warn_at", INT, "tokens", "threshold at which the budget warns, where one was set"),
    FrameColumn(
        "cutover_at", INT, "tokens", "threshold at which the budget hands over, where one was set"
    ),
    FrameColumn(
        "compaction_occurred",
        BOOL,
        "",
        "True on the turn after which a compaction fired; see above",
    ),
    FrameColumn(
        "context_tokens",
        INT,
        "tokens",
        "occupancy: the largest prompt of the turn; missing where the log cannot tell",
    ),
    FrameColumn(
        "cache_read_tokens", INT, "tokens", "prompt tokens read from the cache in the turn"
    ),
    FrameColumn(
        "cost_usd",
        FLOAT,
        "US dollars",
        "of the calls of the turn, without summaries; missing where any of them has no cost",
    ),
    FrameColumn(
        "cost_source",
        TEXT,
        "",
        "the weakest of the sources of the costs: recorded, derived, estimated",
    ),
    FrameColumn("model", TEXT, "", "the model that answered last"),
    FrameColumn(
        "calls_n",
        INT,
        "",
        "calls in the turn, failed ones included; missing where the log cannot tell",
    ),
    FrameColumn(
        "source",
        TEXT,
        "",
        "where the token columns come from: recorded (whole turns), derived (sums of recorded"
        " calls)",
    ),
)


def rows(sessions: Sequence[Session]) -> dict[str, list[Any]]:
    """Return the columns of the turn frame as lists."""
    data: dict[str, list[Any]] = {c.name: [] for c in COLUMNS}
    for session in sessions:
        turns, usages = _group_calls_by_turn(session), get_billed_usages(session)
        charges = {c.call: c for c in charge_calls(session)}
        _append_token_columns(session, turns, usages, data)
        for calls in turns:
            of_turn = [charges[c.index] for c in calls if c.index in charges]
            _append_other_columns(session, calls, of_turn, data)
    return data


def _group_calls_by_turn(session: Session) -> list[list[ModelCall]]:
    """Return the calls of each turn of an agent, in order of appearance."""
    out: dict[tuple[int, str], list[ModelCall]] = {}
    for call in session.calls:
        out.setdefault((call.turn, call.agent), []).append(call)
    return list(out.values())


def _find_compacted_rows(
    session: Session, turns: list[list[ModelCall]]
) -> tuple[set[int], set[int]]:
    """Return the rows after which a compaction fired, and the rows that restart running sums.

    A compaction between two calls of a row counts as one before that row, as in a snapshot log,
    where its mark comes before the row that is written at the end of the turn.
    """
    positions = [c.position for c in session.calls]
    row_of_call = {c.index: r for r, turn in enumerate(turns) for c in turn}
    compacted_after, restarts = set[int](), set[int]()
    for position, entry in enumerate(session.path):
        if isinstance(entry, Edit):
            next_call = bisect_left(positions, position)
            next_row = row_of_call[next_call] if next_call < len(positions) else len(turns)
            restarts.add(next_row)
            if next_call:
                compacted_after.add(min(row_of_call[next_call - 1], next_row - 1))
    return compacted_after, restarts


def _append_token_columns(
    session: Session,
    turns: list[list[ModelCall]],
    usage_of_call: list[Usage | None],
    data: dict[str, list[Any]],
) -> None:
    running_sums: dict[str, int] = {}
    compacted_after, restarts = _find_compacted_rows(session, turns)
    is_unknown = hides_compactions(session)
    for r, calls in enumerate(turns):
        if r in restarts:
            running_sums.clear()
        usages = [u for c in calls if (u := usage_of_call[c.index]) is not None]
        prompt_sum = sum_counts_if_complete([u.prompt_tokens for u in usages])
        details = next((c.message.details for c in reversed(calls) if c.message.error is None), {})
        data["turn_input_tokens"].append(prompt_sum)
        data["turn_output_tokens"].append(sum_counts_if_complete([u.output_tokens for u in usages]))
        data["cache_read_tokens"].append(
            sum_counts_if_complete([u.cache_read_tokens for u in usages])
        )
        cumulative: int | None = None
        if prompt_sum is not None:
            name = calls[0].agent.lower()  # fuseraft's running sums ignore the case of names
            recorded = _get_int(details, "cumulative_input_tokens")
            cumulative = running_sums[name] = (
                running_sums.get(name, 0) + prompt_sum if recorded is None else recorded
            )
        data["cumulative_input_tokens"].append(cumulative)
        data["warn_at"].append(_get_setting(session, details, "warn_at"))
        data["cutover_at"].append(_get_setting(session, details, "cutover_at"))
        data["compaction_occurred"].append(None if is_unknown else r in compacted_after)


def _append_other_columns(
    session: Session,
    calls: list[ModelCall],
    charges: list[CallCharge],
    data: dict[str, list[Any]],
) -> None:
    last = calls[-1].message
    is_whole_turn = last.kind == "turn"  # usage of a whole turn: no size of a prompt
    has_usage = any(
        c.message.usage is not None and c.message.usage.prompt_tokens is not None for c in calls
    )
    prompts = [p for c in calls if (p := c.message.prompt_tokens) is not None]
    times = [c.message.time for c in calls if c.message.time is not None]
    data["ts"].append(times[-1] if times else None)
    data["session"].append(session.id)
    data["agent"].append(calls[0].agent)
    data["turn"].append(calls[0].turn)
    data["context_tokens"].append(max(prompts, default=None))
    data["cost_usd"].append(sum_if_complete(c.usd for c in charges) if charges else None)
    data["cost_source"].append(pick_weakest_source([c.source for c in charges]))
    data["model"].append(last.model or session.model)
    data["calls_n"].append(None if is_whole_turn else len(calls))
    data["source"].append(None if not has_usage else "recorded" if is_whole_turn else "derived")


def _get_int(details: dict[str, Any], name: str) -> int | None:
    value = details.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _get_setting(session: Session, details: dict[str, Any], name: str) -> int | None:
    value = _get_int(details, name)  # 0: the threshold was removed
    return (value if value is not None else _get_int(session.details, name)) or None


@register_view_values('frame(per="turn")')
def _read_figures(session: Session) -> dict[str, Any]:
    data = rows([session])
    if not any(n is not None for n in data["turn_input_tokens"]):
        return {}
    columns = ("turn_input_tokens", "cache_read_tokens", "turn_output_tokens")
    by_turn = zip(*(data[name] for name in columns), strict=True)
    # A turn without usage is left out, as its calls are by the session frame.
    billed = [row for row in by_turn if any(n is not None for n in row)]
    prompts, reads, outputs = (
        sum_counts_if_complete(list(values)) for values in zip(*billed, strict=True)
    )
    return {
        "prompt_tokens": prompts,
        "cache_read_tokens": reads,
        "output_tokens": outputs,
        "turns_n": len(data["turn"]),
    }
