"""Widgets: scrub through a session, turn the settings of rules, watch a session while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.faces import listed
from ctxkit.readers.given import as_session, of_session

if TYPE_CHECKING:
    from typing import Any

    from ctxkit.presets.naming import AnyRules
    from ctxkit.readers.given import Given
    from ctxkit.session import Session
    from ctxkit.widgets.explorer import Explorer
    from ctxkit.widgets.tuner import Tuner
    from ctxkit.widgets.watcher import Watcher

__all__ = ["explore", "tune", "watch"]
__dir__ = listed(__all__)


@of_session
def explore(session: Session, call: int = -1) -> Explorer:
    """Return a widget to scrub through the calls of a session, see what fills each prompt and read its messages.

    Args:
        session: any session, the path of a log, or a list of messages.
        call: the call shown first; negatives count from the end.

    Raises:
        BadArguments: not a session, or it has no such call.
    """
    from ctxkit.widgets.explorer import Explorer
    from ctxkit.widgets.scenes import Scenes

    index = session.call(call).index if session.calls else 0
    return Explorer(Scenes(session), index)


def tune(session: Given, rules: AnyRules, **ranges: tuple[float, ...]) -> Tuner:
    """Return a widget with a slider for each numeric setting; the replay of the session is drawn as they move.

    Args:
        session: a recorded session, the path of a log, or a list of messages; of a replay the
            recorded one is taken.
        rules: the name of a preset, rules (with the settings that they have), or a function of yours that makes rules
            from numbers that it has defaults for, such as ``def rules(trigger=30_000, keep=8_000)``.
        ranges: ends (and step) of a setting's slider, such as ``keep=(1_000, 20_000, 500)``.

    Raises:
        BadArguments: not a session; rules without a numeric setting; a range for a setting that does not exist.
    """
    from ctxkit.widgets.knobs import knobs
    from ctxkit.widgets.trials import Trials
    from ctxkit.widgets.tuner import Tuner

    given = as_session(session)
    recorded = given.origin or given
    return Tuner(Trials(recorded), knobs(rules, recorded, ranges))


def watch(session: Any = None) -> Watcher:
    """Return a widget that shows how full a context is, how it grew, and its last calls.

    Args:
        session: the name of a session of `%%agent`, or a live session: it is followed while it runs; a session, the
            path of a log or a list of messages: it is shown as it stands. None: the session that the magics speak of.

    Raises:
        BadArguments: there is no such session.
    """
    from ctxkit.widgets.sources import source
    from ctxkit.widgets.watcher import Watcher

    return Watcher(*source(session))
