"""`ctxkit watch`: a line for each new call of a session that another program is writing."""

from __future__ import annotations

import sys
import time
from itertools import count
from typing import TYPE_CHECKING, Any

import click

from ctxkit.commands.finding import meant, opened
from ctxkit.commands.options import one_session
from ctxkit.commands.printing import fitted, width, written
from ctxkit.display.markup import line
from ctxkit.errors import ReadError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.session import Session

_BAR = 16
_LAST = 10


@click.command()
@one_session
@click.option(
    "--every",
    default=1.0,
    show_default=True,
    type=click.FloatRange(min=0.1),
    help="Seconds between two looks.",
)
@click.option("--times", type=click.IntRange(min=1), help="Stop after so many looks.")
def watch_(session: str, every: float, times: int | None) -> None:
    """Follow SESSION while it grows: a line for each call and each compaction. Ctrl-C ends it."""
    path, sighting = meant(session)
    shown, state = -1, None
    for look in count(1):
        now = _stamp(path)
        if now != state:
            state = now
            try:
                found = opened(path, sighting)
            except ReadError:
                if look == 1:
                    raise
                state = None  # it is being written: the next look finds it whole
            else:
                rows = list(told(found))
                shown = max(len(rows) - _LAST, 0) if shown < 0 else min(shown, len(rows))
                for each in rows[shown:]:
                    sys.stdout.write(fitted(each, width()) + "\n")
                shown = len(rows)
                sys.stdout.flush()
        if look == times:
            return
        time.sleep(every)


def _stamp(path: str) -> tuple[float, int]:
    from ctxkit.commands.seen import file

    found = file(path)
    return found.modified, found.size


def told(session: Session) -> Iterator[str]:
    """Yield a line for each call and each compaction, in their order."""
    from ctxkit.frames.per_call import rows
    from ctxkit.messages import Edit

    of: dict[str, list[Any]] = rows([session])
    calls = dict(zip(of["position"], range(len(of["call"])), strict=True))
    for position, entry in enumerate(session.path):
        if isinstance(entry, Edit):
            yield f"       compaction: {line(entry.reason or 'no reason is told', 60)}"
        elif position in calls:
            yield _call({name: values[calls[position]] for name, values in of.items()})


def _call(row: dict[str, Any]) -> str:
    tokens, limit = row["prompt_tokens"], row["context_limit"]
    full = f"{_gauge(tokens / limit)} {tokens / limit:4.0%} " if tokens and limit else ""
    size = f"{tokens:>9,}" if tokens is not None else f"{'':9}"
    cost = written(row["cost_usd"], "usd")
    return f"#{row['call']:<5} {full}{size} {cost:>8} {line(row['model'] or '', 24)}".rstrip()


def _gauge(full: float) -> str:
    n = round(min(max(full, 0.0), 1.0) * _BAR)
    return "█" * n + "░" * (_BAR - n)
