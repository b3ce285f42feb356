"""One threshold for all sessions of a person, validated on sessions that it was not chosen from."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ctxkit._internal.formatting_and_sanitizing import (
    NO_MATHJAX,
    escape_html,
    format_percent,
    format_usd,
    pluralize,
    wrap_lines,
)
from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit._internal.progress_bar import make_progress_bar
from ctxkit._internal.tables import TERMINAL_COLUMNS, TEXT_COLOR_CSS, Cell, Column, Table
from ctxkit.errors import BadArguments
from ctxkit.formats.sessions_from_arguments import as_sessions
from ctxkit.metrics.bootstrap_and_paired_tests import FEW_SESSIONS, bootstrap_mean
from ctxkit.metrics.context_growth_and_floor import GrowthProfile
from ctxkit.metrics.optimal_trigger_floor_and_wait import EXTRA_LOSS, when_to_compact
from ctxkit.metrics.threshold_replays import (
    average_loss_at_threshold,
    average_usd_at_threshold,
    choose_threshold,
    list_price_steps,
    list_spaced_and_step_thresholds,
    measure_costs_by_threshold,
    validate_on_later_sessions,
)
from ctxkit.metrics.trigger_setting_instructions_by_agent import (
    describe_trigger_setting,
    find_default_trigger,
)
from ctxkit.session.titles import get_title

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.formats.sessions_from_arguments import SessionsLike
    from ctxkit.metrics.optimal_trigger_floor_and_wait import TriggerFloorWaitAdvice
    from ctxkit.metrics.threshold_replays import LaterSessionsTrial, SessionThresholdCosts
    from ctxkit.session.session import Session


__all__ = ["SharedThreshold", "when"]
__dir__ = make_dunder_dir(__all__)


def when(
    sessions: SessionsLike,
    *,
    context_window: int | None = None,
    floor: int | None = None,
    summary_tokens: int | None = None,
    extra_loss: float = EXTRA_LOSS,
    tool: str | None = None,
    progress: bool = True,
) -> TriggerFloorWaitAdvice | SharedThreshold:
    """Recommend the prompt size at which to compact, for one session or for many together.

    For one session see `metrics.when_to_compact`. For several sessions the threshold is the
    cheapest that removes at most 5 % more of the items that are used again than the tool's default,
    in replays of all sessions; it aims at 4 %, because a few sessions show the loss only roughly.
    Each session is billed with its own growth, pauses, cache writes and price tiers. No threshold
    is within 5 % of a price step. The choice is also validated: made from the earlier half of the
    sessions and tried on the later half.

    Args:
        sessions: recorded sessions with text, usage and prices, or a folder of them.
        context_window: tokens of the window; None: that of most sessions.
        floor: tokens that a compaction leaves; None: the median of each log's own compactions, else
            its smallest prompt plus a summary; never less than what must stay.
        summary_tokens: tokens of a summary; None: the median of each log's own, else 1,000.
        extra_loss: for several sessions, the share of the items used again that may be removed in
            addition to what the default removes; 0: none.
        tool: the format of the logs to use; None: the format with most calls.
        progress: show a progress bar where it takes longer than a second.

    Returns:
        A `TriggerFloorWaitAdvice` for one session, else a `SharedThreshold`. Both print as
        sentences and a table, and have `answer`, `setting`, `best` and `window`.

    Raises:
        BadArguments: no session has usage, a price and growing prompts, or none is from the tool.

    Example:
        >>> import ctxkit as ck
        >>> logs = [ck.samples.path(name) for name in ("billing", "research")]
        >>> answer = ck.when(logs)
        >>> answer.sessions_n, answer.best <= answer.window
        (2, True)
    """
    session_list = as_sessions(sessions)
    if len(session_list) == 1:
        return when_to_compact(
            session_list[0],
            context_window=context_window,
            floor=floor,
            summary_tokens=summary_tokens,
            progress=progress,
        )
    if not 0 <= extra_loss <= 1:
        raise BadArguments(f"A share of loss is from 0 to 1, not {extra_loss}.")
    group, notes = _select_tool(session_list, tool)
    profiles, reasons = _profile_sessions(group)
    if not profiles:
        raise BadArguments(
            f"None of {pluralize(len(group), 'session')} can be replayed: {next(iter(reasons))}"
        )
    notes += _describe_left_out(reasons)
    log_format = _get_format(group[0])
    window = context_window or round(median(p.window[0] for p in profiles))
    default = find_default_trigger(log_format, window)
    sizes = list_spaced_and_step_thresholds(
        window, default, {s for p in profiles for s in list_price_steps(p)}
    )
    bar = make_progress_bar(profiles, desc="when", unit="session", disable=not progress)
    measured = [
        measure_costs_by_threshold(p, sizes, floor=floor, summary_tokens=summary_tokens)
        for p in bar
    ]
    return _make_threshold(
        tuple(measured),
        log_format,
        window,
        default=default,
        extra_loss=extra_loss,
        notes=tuple(notes),
    )


def _get_format(session: Session) -> str:
    return (session.origin or session).format


def _select_tool(sessions: Sequence[Session], tool: str | None) -> tuple[list[Session], list[str]]:
    """Return the sessions of one tool by time, and a note on the others."""
    calls = Counter[str]()
    for session in sessions:
        calls[_get_format(session)] += len(session.calls)
    name = tool or (calls.most_common(1)[0][0] if calls else "")
    group = [s for s in sessions if _get_format(s) == name]
    if not group:
        others = ", ".join(sorted(calls)) or "none"
        raise BadArguments(f"There is no session of {name or 'any tool'}; there are: {others}.")
    group.sort(key=lambda s: next((m.time for m in s.messages if m.time is not None), 0.0))
    others = ", ".join(f for f in sorted(calls) if f != name)
    return group, [f"Sessions of {others} are not in this answer: a tool has one setting."] * bool(
        others
    )


def _profile_sessions(
    sessions: Sequence[Session],
) -> tuple[list[GrowthProfile], Counter[str]]:
    """Return the profiles of replayable sessions, and counts of the reasons against others."""
    profiles, reasons = [], Counter[str]()
    for session in sessions:
        try:
            profiles.append(GrowthProfile(session))
        except BadArguments as error:
            reasons[str(error).replace(f" of “{get_title(session, 60)}”", "")] += 1
    return profiles, reasons


def _describe_left_out(reasons: Counter[str]) -> list[str]:
    return [f"{pluralize(n, 'session')} left out: {reason}" for reason, n in reasons.items()]


_COLUMNS = (
    Column("", "where the context is compacted", number=False, firm=True),
    Column("threshold", "tokens of the prompt at which it is compacted"),
    Column("a session", "mean dollars of a session"),
    Column("saved", "mean dollars that a session saves, with its 90 % interval"),
    Column("at stake", "share of what is used again that is removed before its use"),
)


class MeanInterval(NamedTuple):
    """A mean over sessions, with its 90 % bootstrap interval."""

    mean: float
    low: float | None
    high: float | None
    """None for fewer than five sessions."""


class SharedThreshold(NamedTuple):
    """One threshold for many sessions, with its savings and losses."""

    format: str
    """The format of the logs, which identifies the tool."""
    best: int
    """Tokens of the prompt at which to compact."""
    default: int
    """Tokens at which the tool compacts by default."""
    is_default_known: bool
    """False where the default is unknown; `default` is then the window."""
    window: int
    session_costs: tuple[SessionThresholdCosts, ...]
    """The sessions, by time."""
    extra_loss: float
    later_sessions_trial: LaterSessionsTrial | None
    """The choice of the earlier half, tried on the later half; None: too few sessions."""
    notes: tuple[str, ...] = ()

    @property
    def sessions_n(self) -> int:
        """Number of sessions that were replayed."""
        return len(self.session_costs)

    @property
    def keep(self) -> int:
        """Tokens of the newest messages and the summary that a compaction leaves (median)."""
        return round(median(m.keep for m in self.session_costs))

    @property
    def saved_usd(self) -> MeanInterval:
        """Dollars that a session saves compared with the default."""
        return self.compare_usd(self.best)

    @property
    def more_loss(self) -> MeanInterval | None:
        """Share of the items used again that is lost in addition to the default's loss."""
        return self.compare_loss(self.best)

    def compare_usd(self, size: int) -> MeanInterval:
        """Return the dollars that a session saves at a size compared with the default."""
        return _interval(
            [m.costs[self.default].usd - m.costs[size].usd for m in self.session_costs]
        )

    def compare_loss(self, size: int) -> MeanInterval | None:
        """Return the loss at a size less that of the default; None: nothing is used again."""
        pairs = [(m.costs[size].loss, m.costs[self.default].loss) for m in self.session_costs]
        differences = [a - b for a, b in pairs if a is not None and b is not None]
        return _interval(differences) if differences else None

    @property
    def is_change(self) -> bool:
        """True where the answer differs from the default."""
        return self.best != self.default

    @property
    def setting(self) -> str:
        """The setting to change, in the syntax of the tool; empty where nothing changes."""
        return (
            describe_trigger_setting(self.format, self.best, self.window) if self.is_change else ""
        )

    @property
    def answer(self) -> str:
        """The threshold with its saving and loss, in one sentence."""
        n = pluralize(self.sessions_n, "session")
        name = "the default" if self.is_default_known else "the window's own limit"
        if not self.is_change:
            return (
                f"Keep {name} of {self.default:,} tokens: over {n} no other threshold costs less"
                f" with {self._describe_bound()}."
            )
        saved, more = self.saved_usd, self.more_loss
        word = "less" if saved.mean >= 0 else "more, as the default lies at a price step"
        loss = f"; {_describe_change(more)} of what is used again is at stake" if more else ""
        return (
            f"Compact at {self.best:,} tokens, not at {name} of {self.default:,}: a session costs"
            f" {_describe_usd(saved)} {word}{loss}. Over {n}."
        )

    def _describe_bound(self) -> str:
        if not self.extra_loss:
            return "no more loss"
        return f"at most {100 * self.extra_loss:g} points more loss"

    def sentences(self) -> tuple[str, ...]:
        """Return the result on the later sessions, and the limits, as sentences."""
        reach_default, reach_best = (
            sum(m.peak > size for m in self.session_costs) for size in (self.default, self.best)
        )
        reach = (
            f"{reach_default} of {pluralize(self.sessions_n, 'session')} reach the default,"
            f" {reach_best} the threshold."
        )
        out = [self._describe_held_out(), reach]
        if self.sessions_n < FEW_SESSIONS:
            out.append("Fewer than five sessions have no interval: they say little about the next.")
        out += self._describe_other_bounds()
        steps = sorted({s for m in self.session_costs for s in m.steps if s < self.window})
        if steps:
            named = ", ".join(f"{s:,}" for s in steps)
            out.append(f"Prompts above {named} tokens are dearer: no threshold within 5 % of that.")
        return (*out, *self.notes)

    def _describe_held_out(self) -> str:
        tried = self.later_sessions_trial
        if tried is None:
            return "Not tried on later sessions: that needs two in each half."
        start = (
            f"Tried: the first {tried.earlier_n} sessions alone choose {tried.size:,}. On the"
            f" later {tried.later_n}"
        )
        if tried.size == self.default:
            return f"{start} that is the default itself: nothing is saved."
        loss = ""
        if tried.loss is not None and tried.default_loss is not None:
            loss = (
                f", with {format_percent(tried.loss)} at stake, not"
                f" {format_percent(tried.default_loss)}"
            )
        return (
            f"{start} it costs {format_usd(tried.usd)} a session, not"
            f" {format_usd(tried.default_usd)}{loss}."
        )

    def _describe_other_bounds(self) -> list[str]:
        """Return the thresholds without more loss and without a bound on loss, as sentences."""
        out = []
        lossless = choose_threshold(self.session_costs, self.default)
        if lossless not in {None, self.best}:
            usd = _describe_usd(self.compare_usd(lossless))
            it = f"the default, {lossless:,}" if lossless == self.default else f"{lossless:,}"
            saves = "" if lossless == self.default else f", which saves {usd} a session"
            out.append(f"With no more loss than the default's it would be {it}{saves}.")
        cheapest = self._find_cheapest()
        if cheapest is not None and cheapest < self.best:
            loss = self.compare_loss(cheapest)
            stake_clause = f", but {_describe_change(loss)} is at stake" if loss else ""
            out.append(f"In dollars alone it would be {cheapest:,}{stake_clause}.")
        return out

    def _find_cheapest(self) -> int | None:
        return min(
            self._list_common(),
            key=lambda n: average_usd_at_threshold(self.session_costs, n),
            default=None,
        )

    def _list_common(self) -> list[int]:
        return sorted(set.intersection(*(set(m.costs) for m in self.session_costs)))

    @property
    def table(self) -> Table:
        """The threshold, the default and others, by size."""
        named = {"default" if self.is_default_known else "window": self.default, "best": self.best}
        cheapest = self._find_cheapest()
        named |= {"dollars alone": cheapest} if cheapest is not None else {}
        common = self._list_common()
        wide = {f"{n:,}": n for n in common[:: max(len(common) // 6, 1)]}
        sizes = {size: name for name, size in {**wide, **named}.items()}
        rows = []
        for size in sorted(sizes):
            loss, saved = (
                average_loss_at_threshold(self.session_costs, size),
                self.compare_usd(size),
            )
            name = sizes[size] if sizes[size] in named else ""
            rows.append(
                (
                    Cell(name, None, "", "good" if size == self.best else ""),
                    Cell(f"{size:,}", size),
                    Cell(format_usd(average_usd_at_threshold(self.session_costs, size))),
                    Cell("" if size == self.default else _describe_usd(saved), saved.mean),
                    Cell("" if loss is None else format_percent(loss), loss),
                )
            )
        return Table(_COLUMNS, tuple(rows))

    def to_text(self, *, why: bool = False) -> str:
        """Return the answer, the setting, the reasons and the table as lines of 80 columns.

        Args:
            why: add the basis of the figures.
        """
        lines = [*wrap_lines(self.answer, TERMINAL_COLUMNS), *self.setting.splitlines(), ""]
        lines += [w for s in self.sentences() for w in wrap_lines(s, TERMINAL_COLUMNS)]
        lines += ["", self.table.to_text()]
        if why:
            lines += ["", *wrap_lines(self.assumptions(), TERMINAL_COLUMNS)]
        return "\n".join(lines)

    def assumptions(self) -> str:
        """Return the basis of the figures as one paragraph."""
        source = (
            "that of the tool's preset"
            if self.is_default_known
            else "not known, so the window's limit stands for it"
        )
        return (
            f"Window {self.window:,}; the default is {source}. Each session is replayed as it"
            " went, with compactions to its own floor; after another compaction an agent may go"
            " another way. At stake is what is removed before its use, an upper bound of the loss:"
            " a summary may state it. The intervals are those of drawing sessions anew (90 %), not"
            " of the cache model."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain values."""
        return {
            "tool": self.format,
            "best": self.best,
            "default": self.default,
            "window": self.window,
            "sessions_n": self.sessions_n,
            "saved_usd": self.saved_usd._asdict(),
            "more_loss": None if self.more_loss is None else self.more_loss._asdict(),
            "held_out": None
            if self.later_sessions_trial is None
            else self.later_sessions_trial._asdict(),
            "sessions": [{**m._asdict(), "costs": _list_costs(m)} for m in self.session_costs],
            "notes": self.notes,
        }

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        reasons = "".join(f"<li>{escape_html(s, 600)}</li>" for s in self.sentences())
        return (
            f'<div class="ctxkit-when {NO_MATHJAX}" style="{TEXT_COLOR_CSS}">'
            f'<strong style="font-size:120%">{escape_html(self.answer, 600)}</strong>'
            f'<div style="white-space:pre-wrap">{escape_html(self.setting, 400)}</div>'
            f"<ul>{reasons}</ul>{self.table.to_html(is_sortable=False)}"
            "<details><summary>What these figures rest on</summary>"
            f"<p>{escape_html(self.assumptions(), 1500)}</p></details></div>"
        )


def _make_threshold(
    measured: tuple[SessionThresholdCosts, ...],
    log_format: str,
    window: int,
    *,
    default: int | None,
    extra_loss: float,
    notes: tuple[str, ...],
) -> SharedThreshold:
    size = window if default is None else default
    usable = tuple(m for m in measured if size in m.costs)
    if len(usable) < len(measured):
        n = pluralize(len(measured) - len(usable), "session")
        notes = (*notes, f"{n} left out: a compaction leaves more than the default, or no price.")
    best = choose_threshold(usable, size, extra_loss)
    if best is None:
        raise BadArguments(
            "No threshold lies above what compactions leave in these sessions: give a floor or a"
            " larger window."
        )
    return SharedThreshold(
        format=log_format,
        best=best,
        default=size,
        is_default_known=default is not None,
        window=window,
        session_costs=usable,
        extra_loss=extra_loss,
        later_sessions_trial=validate_on_later_sessions(usable, size, extra_loss),
        notes=notes,
    )


def _list_costs(measured: SessionThresholdCosts) -> list[dict[str, Any]]:
    return [{"threshold": size, **cost._asdict()} for size, cost in measured.costs.items()]


def _interval(values: Sequence[float]) -> MeanInterval:
    mean, low, high = bootstrap_mean(np.array(values, float), np.random.default_rng(0))
    enough = len(values) >= FEW_SESSIONS
    return MeanInterval(mean or 0.0, low if enough else None, high if enough else None)


def _describe_usd(saved: MeanInterval) -> str:
    mean = format_usd(abs(saved.mean)) if saved.mean >= 0 else f"-{format_usd(-saved.mean)}"
    if saved.low is None or saved.high is None:
        return mean
    ends = (f"-{format_usd(-v)}" if v < 0 else format_usd(v) for v in (saved.low, saved.high))
    return f"{mean} ({' to '.join(ends)})"


def _describe_change(change: MeanInterval) -> str:
    """Return a change of a share in words, in percentage points."""
    ends = ""
    if change.low is not None and change.high is not None:
        ends = f" ({100 * change.low:+.1f} to {100 * change.high:+.1f})"
    if round(100 * change.mean, 1) == 0:
        return f"no more{ends}"
    return f"{abs(100 * change.mean):.1f} points{ends} {'more' if change.mean > 0 else 'less'}"
