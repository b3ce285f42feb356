"""`ctxkit compare`, `sweep` and `advise`: sessions under other settings."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ctxkit.commands import options
from ctxkit.commands.finding import session_of
from ctxkit.commands.printing import (
    COST,
    LOSS,
    PEAK,
    PROMPTS,
    RULES,
    SESSIONS,
    UNPAID,
    Out,
    TableHead,
    dump,
    records,
    say,
)

CUTS, THRASH = TableHead("cuts_n", "cuts", "count"), TableHead("thrash", "thrash", "yes")
COMPARED = (RULES, PROMPTS, PEAK, COST, CUTS, UNPAID, LOSS, THRASH)
LOW, HIGH = TableHead("cost_usd_low", "from", "usd"), TableHead("cost_usd_high", "to", "usd")
SWEPT = (RULES, SESSIONS, COST, LOW, HIGH, LOSS, UNPAID)
LOST = "lost: share of what was used again that a cut had taken before (docs/scores.md)."


@click.command()
@options.one_session
@options.some_rules
@options.answer
def compare_(out: Out, *, session: str, rules: tuple[str, ...]) -> None:
    """Show what SESSION would have cost and lost under each of some RULES (all presets)."""
    from ctxkit.sweeps import compare

    found = compare(session_of(session), list(rules) or "all", progress=sys.stderr.isatty())
    if out.html is not None:
        from ctxkit.reports import export

        say(f"written: {export(found, out.html)}")
        return
    errors = [f"{row['rules']}: {row['error']}" for row in records(found) if row["error"]]
    more = [LOST, found.caption, *(f"Note: {n}" for n in found.notes)]
    out.table("Compared", COMPARED, records(found), [*errors, *more])


@click.command()
@options.some_sessions
@options.some_rules
@click.option("--loss/--no-loss", default=True, show_default=True, help="Work out losses too.")
@click.option(
    "--out",
    "kept",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Keep finished runs in a file; what it holds is not done again.",
)
@options.answer
def sweep_(
    out: Out, *, sessions: tuple[str, ...], rules: tuple[str, ...], loss: bool, kept: Path | None
) -> None:
    """Run SESSIONS (files, folders, ids) under RULES (all presets), and sum up by rules.

    Money and loss are means over sessions with their 90 % interval; --json has every run.
    """
    from ctxkit.metrics.pooled import summary
    from ctxkit.sweeps import sweep

    given = options.sessions_of(sessions)
    bar = sys.stderr.isatty()
    runs = sweep(given, list(rules) or "all", out=kept, loss=loss, progress=bar)
    if out.json:
        dump(records(runs))
    elif out.html is not None:
        from ctxkit.reports import export

        say(f"written: {export(runs, out.html)}")
    else:
        failed = runs["error"].notna().sum()
        more = [f"{failed} of {len(runs)} runs failed: --json says why."] if failed else []
        out.table("Sweep", SWEPT, records(summary(runs)), [*more, LOST] if loss else more)


@click.command()
@options.some_sessions
@options.some_rules
@options.answer
def advise_(out: Out, *, sessions: tuple[str, ...], rules: tuple[str, ...]) -> None:
    """Say which RULES (of all presets) no other beats on SESSIONS, each with price and risk."""
    from ctxkit.sweeps import advise

    bar = sys.stderr.isatty()
    found = advise(options.sessions_of(sessions), list(rules) or "all", progress=bar)
    out.table("Advice", SWEPT, records(found), [*found["advice"], LOST])
