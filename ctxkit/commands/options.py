"""Options that several commands have."""

from __future__ import annotations

import re
import time
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ctxkit.commands.finding import RULES_WORD, SESSION_WORD, is_path, session_of
from ctxkit.commands.printing import Out
from ctxkit.errors import BadArguments, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ctxkit.session import Session

_SPANS = {"h": 3600, "d": 86400, "w": 7 * 86400}
_SPAN = re.compile(r"(\d{1,5})([hdw])")


def answer(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--json` and `--html`; it gets an `Out` as its first argument."""

    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @click.option(
        "--html", type=click.Path(dir_okay=False, path_type=Path), help="Write a page to a file."
    )
    @wraps(command)
    def with_out(*args: Any, as_json: bool, html: Path | None, **more: Any) -> Any:
        if as_json and html is not None:
            raise click.UsageError("Give --json or --html, not both.")
        return command(Out(json=as_json, html=html), *args, **more)

    return with_out


class Since(click.ParamType):  # type: ignore[type-arg]  # click 8.1 has none
    """A day, a moment, or so long ago."""

    name = "when"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Return seconds since 1970."""
        if isinstance(value, float):
            return value
        span = _SPAN.fullmatch(value)
        if span:
            return time.time() - int(span[1]) * _SPANS[span[2]]
        try:
            return datetime.fromisoformat(value).timestamp()  # of the local time, as it is shown
        except (ValueError, OverflowError, OSError):
            self.fail(
                f"{value!r} is no time: give a day as 2026-08-31, or 12h, 7d, 2w.", param, ctx
            )


since = click.option("--since", type=Since(), help="Only from then on: 2026-08-31, 12h, 7d, 2w.")
project = click.option("--project", help="Only of projects with this in their name.")


def _known(ctx: Any, param: Any, value: str | None) -> str | None:
    """Refuse a tool that nobody knows, which would be answered with nothing."""
    from ctxkit.discoveries.homes import PLACES

    known = {place.tool for place in PLACES}
    if value is None or value in known:
        return value
    from ctxkit.readers.members import names

    known.update(names())
    if value not in known:
        near = did_you_mean(value, known) or f" Known are {', '.join(sorted(known))}."
        raise click.BadParameter(f"there is no tool {value!r}.{near}", ctx, param)
    return value


tool = click.option(
    "--tool", callback=_known, help="Only of this tool: claude-code, codex, pi, ..."
)
one_session = click.argument("session", type=SESSION_WORD)
some_sessions = click.argument("sessions", type=SESSION_WORD, nargs=-1, required=True)
some_rules = click.option(
    "--rules",
    "-r",
    type=RULES_WORD,
    multiple=True,
    help="A preset (`pi`, `pi:reserve_tokens=8000`), a chain, or `all`; again for more.",
)


def sessions_of(words: Sequence[str]) -> list[Session]:
    """Return the sessions that words name; a folder or a glob means all that are below it.

    Raises:
        BadArguments: none is called that.
        ReadError: a file cannot be read.
    """
    from ctxkit.readers.given import as_sessions
    from ctxkit.session import apart

    out: list[Session] = []
    for word in words:
        globbed = any(c in word for c in "*?[")
        out += as_sessions(word) if is_path(word) or globbed else [session_of(word)]
    if not out:
        raise BadArguments("There is no session at these places.")
    return apart(out)
