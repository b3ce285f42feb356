"""Thresholds chosen from the first half of a developer's sessions, tried on the second half.

Developers are made: each has a tool, a model, and habits of an own (calls of a task, tokens that a
call adds, how often earlier files are read again, pauses, tasks of a session). The cache is that of
the documentation: a prefix lives five minutes from its last use, or an hour.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit._internal.lazy import public_dir
from ctxkit.metrics.growth_profile import GrowthProfile
from ctxkit.metrics.threshold_costs import (
    ALLOWANCE_USED,
    average_usd,
    choose_size,
    hold_out,
    is_near_step,
    list_sizes,
    measure_costs_by_size,
)
from ctxkit.metrics.tool_setting_syntax import find_default_trigger
from ctxkit.session.messages import Message, SizeOnly, Text, ToolCall, Usage
from ctxkit.session.session import Session
from ctxkit.tokens.provider_rules import get_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ctxkit.metrics.threshold_costs import LaterSessionsTrial, SessionThresholdCosts
    from ctxkit.session.messages import Role


__all__ = ["DeveloperThresholdHoldOut", "make_developers", "try_thresholds"]
__dir__ = public_dir(__all__)

SESSIONS = 8
"""Sessions of a made developer."""
_TOOLS = (
    ("claude-code", "claude-sonnet-4-5", 200_000),
    ("claude-code", "claude-haiku-5-5", 1_000_000),
    ("claude-code", "claude-opus-5-5", 200_000),
    ("codex", "gpt-5.4", 400_000),
    ("pi", "claude-haiku-5-5", 200_000),
)
"""Tools, models and windows that developers have in turn; the second, fourth and fifth have price
steps within their window."""
_LIVES = (get_value("cache_life", "claude"), get_value("cache_life_1h", "claude"))
"""Seconds that a prefix lives which is written for five minutes, and for an hour."""
_FRONT = 14_000
"""Tokens of system prompt and tools."""


class DeveloperThresholdHoldOut(NamedTuple):
    """The threshold chosen on a developer's first sessions, tried on the later ones."""

    developer: str
    tool: str
    model: str
    window: int
    default: int
    reached_n: int
    """Later sessions that reach the default."""
    held_out: LaterSessionsTrial | None
    """None: nothing could be chosen."""
    near_step: bool
    """True where the choice is within 5 % of a price step."""
    is_possible: bool
    """True where, the later sessions known, a size costs less within the bound of loss."""

    @property
    def is_default(self) -> bool:
        """True where the tool's default is chosen."""
        return self.held_out is not None and self.held_out.size == self.default

    def saves_within(self, extra_loss: float) -> bool:
        """Return whether the later sessions cost less than by default, at so much more loss."""
        tried = self.held_out
        if tried is None:
            return False
        more = (tried.loss or 0.0) - (tried.default_loss or 0.0)
        return tried.usd < tried.default_usd and more <= extra_loss


def try_thresholds(
    developers: Mapping[str, Sequence[Session]], extra_losses: Iterable[float] = (0.0,)
) -> dict[float, list[DeveloperThresholdHoldOut]]:
    """Choose a threshold from the first half of each developer's sessions, try it on the others.

    Args:
        developers: sessions of one tool and model, by time.
        extra_losses: shares of loss beyond the default's that a choice may have; each gives a list.

    Returns:
        For each share the trials, in the order of the developers.
    """
    trials: dict[float, list[DeveloperThresholdHoldOut]] = {share: [] for share in extra_losses}
    for name, sessions in developers.items():
        profiles = [GrowthProfile(session) for session in sessions]
        steps = {tier.above for p in profiles for tier in p.price.tiers}
        first = sessions[0]
        window = first.context_window or profiles[0].window[0]
        default = find_default_trigger(first.format, window) or window
        sizes = list_sizes(window, default, steps)
        measured = [measure_costs_by_size(p, sizes) for p in profiles]
        for share, rows in trials.items():
            held_out = hold_out(measured, default, share)
            rows.append(
                DeveloperThresholdHoldOut(
                    name,
                    first.format,
                    profiles[0].model,
                    window,
                    default,
                    _count_above(measured[len(measured) // 2 :], default),
                    held_out,
                    held_out is not None and is_near_step(held_out.size, steps),
                    _has_cheaper_size(measured[len(measured) // 2 :], default, share),
                )
            )
    return trials


def _has_cheaper_size(
    later: Sequence[SessionThresholdCosts], default: int, extra_loss: float
) -> bool:
    """Return whether the best size for sessions costs less than the default, with them known."""
    best = choose_size(later, default, extra_loss / ALLOWANCE_USED)  # nothing is left to chance
    return (
        best is not None
        and all(default in m.costs for m in later)
        and average_usd(later, best) < average_usd(later, default)
    )


def _count_above(measured: Sequence[SessionThresholdCosts], size: int) -> int:
    return sum(m.peak > size for m in measured)


class _Habits(NamedTuple):
    """Habits of a simulated developer, the same in all sessions."""

    tool: str
    model: str
    window: int
    hour: bool
    growth: int
    """Tokens that a call adds, in the middle."""
    task_calls: int
    """Calls of a task, in the middle."""
    tasks: int
    """Tasks of a session, in the middle."""
    returns: float
    """Share of calls that read a file of an earlier task again."""
    pause: float
    """Seconds between two requests, in the middle."""


def make_developers(
    n: int = 20, seed: int = 0, sessions: int = SESSIONS
) -> dict[str, list[Session]]:
    """Make sessions of developers, by time, each with habits of an own.

    A session is a series of tasks. A task reads and edits files of its own; now and then a call
    reads a file of an earlier task again. The log holds paths, and the sizes of what was read.

    Args:
        n: number of developers.
        seed: of all that is random.
        sessions: sessions of each.

    Example:
        >>> (name, made), = make_developers(1, sessions=2).items()
        >>> name, [session.format for session in made]
        ('dev-0', ['claude-code', 'claude-code'])
    """
    out = {}
    for i in range(n):
        rng = random.Random(f"{seed}-{i}")  # noqa: S311  no secret
        habits = _Habits(
            *_TOOLS[i % len(_TOOLS)],
            hour=rng.random() < 0.3,
            growth=round(500 * 6 ** rng.random()),
            task_calls=rng.randrange(8, 40),
            tasks=rng.randrange(2, 9),
            returns=0.15 * rng.random() ** 2,
            pause=60 * 40 ** rng.random(),
        )
        out[f"dev-{i}"] = [
            _make_session(rng, f"dev-{i}-{k}", habits, 1.76e9 + 86_400 * k) for k in range(sessions)
        ]
    return out


def _make_session(rng: random.Random, name: str, habits: _Habits, start: float) -> Session:
    work = _Work(rng, habits, start)
    for task in range(_draw(rng, habits.tasks)):
        files = [f"src/{_draw_name(rng)}/{_draw_name(rng)}.py" for _ in range(rng.randrange(2, 7))]
        work.add_request(f"Task {task}: mend {files[0]}.", pauses=task > 0)
        for _ in range(_draw(rng, habits.task_calls)):
            is_return = work.earlier and rng.random() < habits.returns
            work.add_call(rng.choice(work.earlier if is_return else files))
        work.earlier += files
    return Session(
        id=name,
        format=habits.tool,
        log=tuple(work.messages),
        model=habits.model,
        context_window=habits.window,
    )


class _Work:
    """A session in the making, never compacted: its messages, prompt and cache."""

    def __init__(self, rng: random.Random, habits: _Habits, start: float) -> None:
        self._rng, self._habits, self._time = rng, habits, start
        self._prompt, self._cached, self._pause = _FRONT, 0, 0.0
        self.messages: list[Message] = []
        self.earlier: list[str] = []
        """Files of the tasks before this one."""

    def add_request(self, text: str, *, pauses: bool) -> None:
        """Add a message of the user, after a pause."""
        self._pause = self._habits.pause * self._rng.lognormvariate(0, 1.2) if pauses else 0.0
        self._time += self._pause
        self.messages.append(self._message("user", parts=(Text(text),)))

    def add_call(self, path: str) -> None:
        """Add a call that reads a file, and its result."""
        read = self._cached if self._pause < _LIVES[self._habits.hour] else 0
        output = self._rng.randrange(80, 500)
        written = self._prompt - read
        usage = Usage(
            input_tokens=0,
            cache_read_tokens=read,
            cache_write_tokens=0 if self._habits.hour else written,
            cache_write_1h_tokens=written if self._habits.hour else 0,
            output_tokens=output,
        )
        self._time += self._rng.uniform(3, 25)
        number = len(self.messages)
        call = ToolCall(id=f"c{number}", name="read_file", arguments={"path": path})
        reply = self._message("assistant", usage=usage, parts=(call,), model=self._habits.model)
        size = max(round(self._habits.growth * self._rng.lognormvariate(-0.2, 0.6)), 60)
        content = (Text(f"{path}: read"), SizeOnly("text", tokens=size))
        result = self._message("tool", parts=content, call_id=call.id, tool=call.name)
        self.messages += [reply, result]
        self._cached, self._pause = self._prompt, 0.0
        self._prompt += output + size

    def _message(self, role: Role, **fields: Any) -> Message:
        return Message(role=role, id=f"{role}-{len(self.messages)}", time=self._time, **fields)


def _draw(rng: random.Random, middle: int) -> int:
    return max(round(middle * rng.lognormvariate(0, 0.35)), 2)


def _draw_name(rng: random.Random) -> str:
    return "".join(rng.choices("abcdefghiklmnoprstu", k=6)) + str(rng.randrange(100, 1_000))
