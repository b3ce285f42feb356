"""Runs many rules on one session, sharing its log, sizes and scores."""

from __future__ import annotations

import re
from contextlib import nullcontext
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit._internal.gc_pause import pause_gc
from ctxkit.engine import log_from_session, run_rules, with_message_ids
from ctxkit.engine.replay import find_context_window
from ctxkit.errors import BadArguments, CtxkitError
from ctxkit.experiments.grids import RejectedSetting, convert_to_plain
from ctxkit.experiments.score_columns import SCORE_COLUMN_NAMES
from ctxkit.experiments.scores import SessionScoreCache, score_run
from ctxkit.policies.rules import RecordedCompactions, unwrap_function

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ctxkit.engine import Run
    from ctxkit.policies.history.log import MessageLog
    from ctxkit.policies.rules import Rules
    from ctxkit.session.session import Session

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_NAMES = frozenset(SCORE_COLUMN_NAMES)
ROW_VERSION = 5
"""Of what a row means; files of another version are not gone on with."""


class RunOptions(NamedTuple):
    """What holds for all runs of a sweep."""

    loss: bool = False
    reuse: bool = False


class NamedRules(NamedTuple):
    """One of the rules, under the name that tells it from the others."""

    label: str
    rules: Rules | RejectedSetting
    key: str
    parameters: Mapping[str, Any] = {}
    """Those of the rules as a column can hold them, but for names that a row has already."""

    @classmethod
    def of(cls, label: str, rules: Rules | RejectedSetting) -> NamedRules:
        """Return the setting with its key: equal for equal rules, in this process and in
        any other.
        """
        told = repr((rules.label, sorted((k, repr(v)) for k, v in rules.parameters.items())))
        if not isinstance(rules, RejectedSetting):
            parts = (rules.policy, rules.trigger, rules.pruning, rules.summariser)
            told += repr(rules) + "".join(map(_code_identity, parts))
        parameters = {
            k: convert_to_plain(v) for k, v in rules.parameters.items() if k not in _NAMES
        }
        return cls(label, rules, _digest(_ADDRESS.sub("", told)), parameters)


class SessionRunner:
    """One session and what all runs on it share; the log is read once for each way of counting."""

    def __init__(self, session: Session) -> None:
        self.name = make_session_key(session)
        self.session = with_message_ids(session)
        self.base = SessionScoreCache(self.session)
        self.limit = find_context_window(self.session)
        self._logs: dict[Any, tuple[MessageLog, Rules]] = {}

    def log(self, rules: Rules) -> MessageLog:
        """Return the log under the rules' counter and estimator."""
        as_recorded = isinstance(rules.policy, RecordedCompactions)
        key = (_identity_key(rules.counter), _identity_key(rules.estimator), as_recorded)
        known = self._logs.get(key)
        if known is None:
            anchored = self.base.anchored if rules.counter is None else None
            made = log_from_session(self.session, rules, as_recorded=as_recorded, anchored=anchored)
            self._logs[key] = known = made, rules  # what is told apart by identity must live on
        return known[0]

    def run(self, rules: Rules | RejectedSetting) -> Run:
        """Return the run of the session under rules.

        Raises:
            BadArguments: a setting was refused when the rules were made.
        """
        if isinstance(rules, RejectedSetting):
            raise BadArguments(rules.error)
        return run_rules(self.log(rules), rules, self.limit)

    def row(self, setting: NamedRules, options: RunOptions) -> dict[str, Any]:
        """Return the row of one run; a run that fails is a row with its error."""
        rules = setting.rules
        row: dict[str, Any] = {"session": self.session.id, "rules": setting.label}
        try:
            done, (loss, reuse) = self.run(rules), options
            row = score_run(self.base, done, setting.label, loss=loss, reuse=reuse)
        except CtxkitError as error:
            row["error"] = str(error)
        except Exception as error:  # noqa: BLE001  whatever a user's policy raises, the other runs go on
            row["error"] = f"{type(error).__name__}: {error}"
        row |= setting.parameters
        row["key"], row["of"] = setting.key, self.name
        return row

    def rows(self, settings: Sequence[NamedRules], options: RunOptions) -> Iterator[dict[str, Any]]:
        """Yield the rows of runs under some rules, run by run."""
        pause = pause_gc if options.loss else nullcontext  # a loss makes much at once
        for setting in settings:
            with pause():
                row = self.row(setting, options)
            yield row


def make_session_key(session: Session) -> str:
    """Return a name for a session that stays the same as long as the session does."""
    last = session.log[-1].id if session.log else ""
    usages = [
        (c.message.usage.prompt_tokens if c.message.usage else None, c.position)
        for c in session.calls
    ]
    head = session.id, session.format, session.agent, len(session.log), session.leaf
    return _digest(repr((*head, last, usages)))


def _code_identity(part: Any) -> str:
    """Return what a user's function does, as far as its code tells: under the same name it may have
    been changed.
    """
    code = getattr(unwrap_function(part), "__code__", None)
    return "" if code is None else repr((code.co_code, code.co_consts, code.co_names))


def _identity_key(counter: Any) -> Any:
    """Return what is equal for equal counters: one that cannot be hashed is equal to
    itself alone.
    """
    try:
        hash(counter)
    except TypeError:
        return id(counter)
    return counter


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
