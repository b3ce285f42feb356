"""Runner of many rules on one session, which shares its log, sizes and score cache."""

from __future__ import annotations

import re
from contextlib import nullcontext
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit._internal.gc_pause import pause_gc
from ctxkit.engine import get_run_of_replay, make_log_from_session, run_rules, with_message_ids
from ctxkit.engine.replay import build_replay_log, find_context_window
from ctxkit.errors import BadArguments, CtxkitError
from ctxkit.experiments.cost_and_loss_scores import (
    SessionScoreCache,
    map_score_row_to_view_figures,
    score_run,
)
from ctxkit.experiments.grids import RejectedSetting, convert_to_plain
from ctxkit.experiments.score_columns import SCORE_COLUMN_NAMES
from ctxkit.metrics.view_figures import register_view_figures
from ctxkit.policies.context_rules import unwrap_function

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ctxkit.engine import Run
    from ctxkit.policies.context_rules import Rules
    from ctxkit.policies.history.message_log import MessageLog
    from ctxkit.session.session import Session

_MEMORY_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_RESERVED_COLUMNS = frozenset(SCORE_COLUMN_NAMES)
ROW_VERSION = 5
"""Version of the meaning of a row; a journal of another version is not resumed."""


class SweepOptions(NamedTuple):
    """Options of all runs of a sweep (see `ctxkit.sweep`)."""

    loss: bool = False
    reuse: bool = False


class NamedRules(NamedTuple):
    """Rules with their distinct label and a key that identifies them across processes."""

    label: str
    rules: Rules | RejectedSetting
    key: str
    parameters: Mapping[str, Any] = {}
    """Parameters of the rules as plain values, without names that are score columns."""

    @classmethod
    def of(cls, label: str, rules: Rules | RejectedSetting) -> NamedRules:
        """Return the setting with its key, which is equal for equal rules in any process."""
        # Parameters, representation and bytecode; memory addresses differ between processes.
        identity = repr((rules.label, sorted((k, repr(v)) for k, v in rules.parameters.items())))
        if not isinstance(rules, RejectedSetting):
            parts = (rules.policy, rules.trigger, rules.pruning, rules.summariser)
            identity += repr(rules) + "".join(map(_describe_code, parts))
        parameters = {
            k: convert_to_plain(v)
            for k, v in rules.parameters.items()
            if k not in _RESERVED_COLUMNS
        }
        return cls(label, rules, _hash_text(_MEMORY_ADDRESS.sub("", identity)), parameters)


class SessionRunner:
    """Runs rules on one session; the message log is built once per counter and estimator."""

    def __init__(self, session: Session) -> None:
        self.name = make_session_key(session)
        self.session = with_message_ids(session)
        self.base = SessionScoreCache(self.session)
        self.limit = find_context_window(self.session)
        self._logs: dict[Any, tuple[MessageLog, Rules]] = {}

    def log(self, rules: Rules) -> MessageLog:
        """Return the message log sized by the rules' counter and estimator."""
        return build_replay_log(
            self.session,
            self.base.anchored,
            rules,
            self.limit,
            lambda recorded_calls: self._build_log(rules, recorded_calls),
        )

    def _build_log(self, rules: Rules, recorded_calls: int) -> MessageLog:
        counting = (_make_identity_key(rules.counter), _make_identity_key(rules.estimator))
        key = (*counting, recorded_calls)
        cached = self._logs.get(key)
        if cached is None:
            anchored = self.base.anchored if rules.counter is None else None
            message_log = make_log_from_session(
                self.session, rules, recorded_calls=recorded_calls, anchored=anchored
            )
            # the rules keep the counter of an id() key alive
            self._logs[key] = cached = message_log, rules
        return cached[0]

    def run(self, rules: Rules | RejectedSetting) -> Run:
        """Return the run of the session under rules.

        Raises:
            BadArguments: a setting was refused when the rules were made.
        """
        if isinstance(rules, RejectedSetting):
            raise BadArguments(rules.error)
        return run_rules(self.log(rules), rules, self.limit)

    def row(self, setting: NamedRules, options: SweepOptions) -> dict[str, Any]:
        """Return the score row of one run; a failed run gives a row with its error."""
        rules = setting.rules
        row: dict[str, Any] = {"session": self.session.id, "rules": setting.label}
        try:
            run, (loss, reuse) = self.run(rules), options
            row = score_run(self.base, run, setting.label, loss=loss, reuse=reuse)
        except CtxkitError as error:
            row["error"] = str(error)
        except Exception as error:  # noqa: BLE001  whatever a user's policy raises, the other runs continue
            row["error"] = f"{type(error).__name__}: {error}"
        row |= setting.parameters
        row["key"], row["of"] = setting.key, self.name
        return row

    def rows(
        self, settings: Sequence[NamedRules], options: SweepOptions
    ) -> Iterator[dict[str, Any]]:
        """Yield the score rows of runs under several settings, as they finish."""
        pause = pause_gc if options.loss else nullcontext  # loss allocates many objects at once
        for setting in settings:
            with pause():
                row = self.row(setting, options)
            yield row


def make_session_key(session: Session) -> str:
    """Return a hash that identifies the content of a session (not of its texts).

    Args:
        session: recorded.

    Returns:
        A text that stays equal over processes, for journals of sweeps and baselines of gates.
    """
    last = session.log[-1].id if session.log else ""
    usages = [
        (c.message.usage.prompt_tokens if c.message.usage else None, c.position)
        for c in session.calls
    ]
    head = session.id, session.format, session.agent, len(session.log), session.leaf
    return _hash_text(repr((*head, last, usages)))


def _describe_code(part: Any) -> str:
    """Return the bytecode of a user's function, because a name may be redefined; else empty."""
    code = getattr(unwrap_function(part), "__code__", None)
    return "" if code is None else repr((code.co_code, code.co_consts, code.co_names))


def _make_identity_key(counter: Any) -> Any:
    """Return a dictionary key for a counter: itself, or its id where it is not hashable."""
    try:
        hash(counter)
    except TypeError:
        return id(counter)
    return counter


def _hash_text(text: str) -> str:
    return sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


@register_view_figures("compare, sweep and gate")
def _read_figures(session: Session) -> dict[str, Any]:
    """Return what a row of the session's rules shows: a fresh run over its record."""
    run = get_run_of_replay(session)
    if run is None:
        return {}
    runner = SessionRunner(session.origin or session)
    return map_score_row_to_view_figures(runner.row(NamedRules.of("", run.rules), SweepOptions()))
