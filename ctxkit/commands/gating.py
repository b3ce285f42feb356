"""`ctxkit gate`: did anything get worse? For CI: exit code 1 where it did."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ctxkit.commands import WORSE, options
from ctxkit.commands.finding import SESSION_WORD
from ctxkit.commands.printing import Out, TableHead, dump, lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.gates.gate_verdicts import GateReport

HEADS = (
    TableHead("rules", "rules", wide=True),
    TableHead("figure", "figure"),
    TableHead("sessions_n", "sessions", "count"),
    TableHead("before", "before"),
    TableHead("now", "now"),
    TableHead("floor", "noise"),
    TableHead("state", "state"),
)


def _number(
    name: str, default: float, kind: click.IntRange | click.FloatRange, told: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(name, default=default, show_default=True, type=kind, help=told)


@click.command()
@click.argument("sessions", type=SESSION_WORD, nargs=-1)
@options.some_rules
@click.option(
    "--baseline",
    "-b",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The JSON file of figures to hold against.",
)
@click.option("--update", is_flag=True, help="Write the figures of now into the baseline.")
@_number(
    "--tolerance",
    0.0,
    click.FloatRange(0, 1, max_open=True),
    "Share that a figure may get worse by.",
)
@click.option(
    "--compacted",
    metavar="COMMAND",
    help="Judge a program: messages on stdin, what is left on stdout.",
)
@_number("--rounds", 6, click.IntRange(1, 100), "How often the program is asked.")
@_number("--repeat", 1, click.IntRange(1, 100), "How often all is done, to see the noise.")
@_number("--timeout", 120.0, click.FloatRange(min=0.1), "Seconds for one answer.")
@_number("--least", 0.0, click.FloatRange(0, 1), "Share of facts that must outlive all rounds.")
@options.answer
@click.pass_context
def gate_(
    context: click.Context,
    out: Out,
    *,
    sessions: tuple[str, ...],
    rules: tuple[str, ...],
    baseline: Path | None,
    update: bool,
    tolerance: float,
    compacted: str | None,
    rounds: int,
    repeat: int,
    timeout: float,
    least: float,
) -> None:
    """Hold SESSIONS under RULES, or a compactor of your own, against a baseline that you keep.

    Exit code 0: nothing got worse by more than its noise; 1: something did, and the table says
    what and by how much; 2: it could not be judged, and a sentence says why.

    --compacted judges a program: facts are planted, it is asked round after round as a session
    grows, and what comes back must keep calls with their results, and the order.
    """
    from ctxkit.gates import gate, gate_compactor

    if update and baseline is None:
        raise click.UsageError("--update writes a baseline: name its file with --baseline.")
    if compacted is not None:
        if rules:
            raise click.UsageError("Give --rules or --compacted, not both.")
        report: GateReport = gate_compactor(
            compacted,
            options.sessions_of(sessions) if sessions else None,
            baseline,
            rounds=rounds,
            repeat=repeat,
            timeout=timeout,
            least=least,
            update=update,
            tolerance=tolerance,
        )
    else:
        if not (sessions and rules and baseline):
            raise click.UsageError(
                "Give sessions, --rules and --baseline, or a program with --compacted."
            )
        given, chosen = options.sessions_of(sessions), list(rules)
        report = gate(given, chosen, baseline, update=update, tolerance=tolerance)
    _tell(out, report)
    if not report.ok:
        context.exit(WORSE)


def _tell(out: Out, report: GateReport) -> None:
    rows = [c._asdict() for c in report.changes]
    if out.json:
        told = {"ok": report.ok, "changes": rows, "faults": report.faults, "notes": report.notes}
        dump(told)
    elif out.html is not None:
        notes = [*report.faults, *report.notes, report.sentence]
        out.table("Gate", HEADS, rows, notes)
    else:
        lines(report.to_text())
