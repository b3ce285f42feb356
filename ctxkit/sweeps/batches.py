"""The work of a sweep: some rules on one session, as plain values that travel to other processes
and back.
"""

from __future__ import annotations

import re
from contextlib import nullcontext
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit.engine import identified, log_of, run
from ctxkit.errors import BadArguments, CtxkitError
from ctxkit.garbage import without_collection
from ctxkit.policies.hinges import written
from ctxkit.policies.recorded import AsRecorded
from ctxkit.replays import window
from ctxkit.sweeps.bases import Base
from ctxkit.sweeps.grids import Refused, plain
from ctxkit.sweeps.score_columns import NAMES
from ctxkit.sweeps.scores import run_row

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ctxkit.engine import Run
    from ctxkit.history import Log
    from ctxkit.policies.rules import Rules
    from ctxkit.session import Session

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_NAMES = frozenset(NAMES)
VERSION = 5
"""Of what a row means; files of another version are not gone on with."""


class Options(NamedTuple):
    """What holds for all runs of a sweep."""

    loss: bool = False
    reuse: bool = False


class NamedRules(NamedTuple):
    """One of the rules, under the name that tells it from the others."""

    label: str
    rules: Rules | Refused
    key: str
    parameters: Mapping[str, Any] = {}
    """Those of the rules as a column can hold them, but for names that a row has already."""

    @classmethod
    def of(cls, label: str, rules: Rules | Refused) -> NamedRules:
        """Return the setting with its key: equal for equal rules, in this process and in
        any other.
        """
        told = repr((rules.label, sorted((k, repr(v)) for k, v in rules.parameters.items())))
        if not isinstance(rules, Refused):
            parts = (rules.policy, rules.trigger, rules.pruning, rules.summariser)
            told += repr(rules) + "".join(map(_code, parts))
        parameters = {k: plain(v) for k, v in rules.parameters.items() if k not in _NAMES}
        return cls(label, rules, _digest(_ADDRESS.sub("", told)), parameters)


class Bench:
    """One session and what all runs on it share; the log is read once for each way of counting."""

    def __init__(self, session: Session) -> None:
        self.name = key_of(session)
        self.session = identified(session)
        self.base = Base(self.session)
        self.limit = window(self.session)
        self._logs: dict[Any, tuple[Log, Rules]] = {}

    def log(self, rules: Rules) -> Log:
        """Return the log under the rules' counter and estimator."""
        as_recorded = isinstance(rules.policy, AsRecorded)
        key = (_told_apart(rules.counter), _told_apart(rules.estimator), as_recorded)
        known = self._logs.get(key)
        if known is None:
            anchored = self.base.anchored if rules.counter is None else None
            made = log_of(self.session, rules, as_recorded=as_recorded, anchored=anchored)
            self._logs[key] = known = made, rules  # what is told apart by identity must live on
        return known[0]

    def run(self, rules: Rules | Refused) -> Run:
        """Return the run of the session under rules.

        Raises:
            BadArguments: a setting was refused when the rules were made.
        """
        if isinstance(rules, Refused):
            raise BadArguments(rules.error)
        return run(self.log(rules), rules, self.limit)

    def row(self, setting: NamedRules, options: Options) -> dict[str, Any]:
        """Return the row of one run; a run that fails is a row with its error."""
        rules = setting.rules
        row: dict[str, Any] = {"session": self.session.id, "rules": setting.label}
        try:
            done, (loss, reuse) = self.run(rules), options
            row = run_row(self.base, done, setting.label, loss=loss, reuse=reuse)
        except CtxkitError as error:
            row["error"] = str(error)
        except Exception as error:  # noqa: BLE001  whatever a user's policy raises, the other runs go on
            row["error"] = f"{type(error).__name__}: {error}"
        row |= setting.parameters
        row["key"], row["of"] = setting.key, self.name
        return row

    def rows(self, settings: Sequence[NamedRules], options: Options) -> Iterator[dict[str, Any]]:
        """Yield the rows of runs under some rules, run by run."""
        pause = without_collection if options.loss else nullcontext  # a loss makes much at once
        for setting in settings:
            with pause():
                row = self.row(setting, options)
            yield row


def key_of(session: Session) -> str:
    """Return a name for a session that stays the same as long as the session does."""
    last = session.log[-1].id if session.log else ""
    usages = [
        (c.message.usage.prompt_tokens if c.message.usage else None, c.position)
        for c in session.calls
    ]
    head = session.id, session.format, session.agent, len(session.log), session.leaf
    return _digest(repr((*head, last, usages)))


def _code(part: Any) -> str:
    """Return what a user's function does, as far as its code tells: under the same name it may have
    been changed.
    """
    code = getattr(written(part), "__code__", None)
    return "" if code is None else repr((code.co_code, code.co_consts, code.co_names))


def _told_apart(counter: Any) -> Any:
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
