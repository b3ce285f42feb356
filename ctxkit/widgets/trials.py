"""What a tuner tries: one session under many settings, with all that does not depend on them made
once.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit.engine import identified, log_of, run
from ctxkit.errors import CtxkitError
from ctxkit.frames.occupancy import prompts as recorded_prompts
from ctxkit.metrics.size import spots_of
from ctxkit.metrics.when import when
from ctxkit.policies.chain import Chain
from ctxkit.policies.summarisers import Extractive, Fixed
from ctxkit.replays import session_of, window
from ctxkit.sweeps.bases import Base
from ctxkit.sweeps.scores import lost, row_of, run_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.engine import Run
    from ctxkit.history import Log
    from ctxkit.policies.rules import Rules
    from ctxkit.session import Session


class TrialStep(NamedTuple):
    """One compaction of a trial, or one that was held back (`after` is None then, and `why` says
    what held it).
    """

    call: int
    before: int
    after: int | None
    messages: float | None
    """Share of the messages that it took out of the view."""
    why: str

    @property
    def saved(self) -> float | None:
        """Share of the tokens that it saved."""
        return None if self.after is None or not self.before else 1 - self.after / self.before


class Trial(NamedTuple):
    """A session under one setting."""

    prompts: Sequence[int | None]
    steps: tuple[TrialStep, ...]
    limit: int
    row: dict[str, Any]
    """Its score, as `ctxkit.score` names it; the columns of loss only where they were asked for."""
    done: Run

    @property
    def wrote(self) -> bool:
        """True where a compaction put in a summary."""
        return bool(self.row.get("summary_tokens"))

    def with_loss(self, columns: dict[str, Any]) -> Trial:
        """Return the trial with the columns of loss in its score."""
        return self._replace(row={**self.row, **columns})


class Trials:
    """One session to be tried under many rules; the log, its sizes and its prices are made once.

    Args:
        session: a recorded session.
    """

    def __init__(self, session: Session) -> None:
        self.session, self.base = session, Base(session)
        self._whole, self._limit = identified(session), window(session)
        self._logs: dict[tuple[str, str], Log] = {}

    @cached_property
    def prompts(self) -> list[int | None]:
        """The size of each prompt as the record has it."""
        return recorded_prompts(self.session)[0]

    @cached_property
    def recorded(self) -> dict[str, Any]:
        """The score of the session as it was."""
        return row_of(self.session, self.base, loss=False)

    @property
    def loss_of_record(self) -> dict[str, Any]:
        """What the recorded compactions lost."""
        return lost(self.base, self.session)

    @property
    def when(self) -> tuple[str, str]:
        """When to compact, by the growth, pauses and prices of the log, as HTML; else why not."""
        try:
            memory = self.base.memory if self.session.has_text else None
            return when(self.session, memory=memory)._repr_html_(), ""
        except CtxkitError as error:
            return "", str(error)

    def at(self, rules: Rules, summary: int | None = None) -> Trial:
        """Return the session under rules.

        Args:
            rules: any rules.
            summary: take each extractive summary to have so many tokens instead of writing it,
                which is what takes the time; None: write them, as a replay does.

        Raises:
            BadArguments: the rules cannot work on this session.
        """
        if summary is not None:
            rules = rules.but(policy=sized(rules.policy, summary))
        done = run(self._log(rules), rules, self._limit)
        held = [TrialStep(h.call, 0, None, None, h.said) for h in done.held]
        cuts = [TrialStep(s.call, s.before, s.after, s.message_savings, "") for s in spots_of(done)]
        steps = tuple(sorted([*cuts, *held], key=lambda s: s.call))
        row = run_row(self.base, done, rules.label)
        return Trial(done.prompts.tolist(), steps, done.room.limit, row, done)

    def replayed(self, trial: Trial) -> Session:
        """Return the replay that a trial is, to be drawn by what takes sessions."""
        return session_of(self._whole, trial.done)

    def quick_loss(self, trial: Trial) -> dict[str, Any]:
        """Return what a trial would have lost, where that follows from the record at once; else
        nothing.

        It does without a pruning, which is worked out a second time for this.
        """
        return {} if trial.done.rules.pruning is not None else self.loss(trial)

    def loss(self, trial: Trial) -> dict[str, Any]:
        """Return what a trial would have lost, for any rules.

        The columns are missing where it cannot be said.
        """
        try:
            return lost(self.base, None, trial.done)
        except CtxkitError:
            return {}

    def _log(self, rules: Rules) -> Log:
        """Return the log of the session; rules that count otherwise have one of their own."""
        key = (_named(rules.counter), _named(rules.estimator))
        if key not in self._logs:
            self._logs[key] = log_of(self._whole, rules)
        return self._logs[key]


def average_summary(trial: Trial) -> int:
    """Return the mean size of a trial's summaries in tokens; without any, 800."""
    written, cuts = trial.row.get("summary_tokens") or 0, trial.row.get("cuts_n") or 0
    return max(round(written / cuts), 1) if written and cuts else 800


def sized(policy: Any, tokens: int) -> Any:
    """Return a policy whose extractive summaries are taken to have so many tokens, not written."""
    if isinstance(policy, Chain):
        return replace(policy, parts=tuple(sized(p, tokens) for p in policy.parts))
    if isinstance(getattr(policy, "summariser", None), Extractive):
        return replace(policy, summariser=Fixed(tokens))
    return policy


def _named(counter: Any) -> str:
    return "" if counter is None else str(counter.name)
