"""`ctxkit compare`, `sweep`, `advise` and `gate`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ctxkit.cli import EXIT_WORSE, arguments_and_output
from ctxkit.cli.arguments_and_output import (
    SESSION_WORD,
    CommandOutput,
    TableColumn,
    convert_frame_to_records,
    get_screen_width,
    print_json,
    print_text_or_write_html,
    print_to_stderr,
    print_wrapped_lines,
    resolve_session,
    write_and_announce_forecast,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.experiments.gates.regression_gate import GateReport


@click.command()
@arguments_and_output.newest_session_argument
@arguments_and_output.rules_option
@arguments_and_output.max_loss_option
@arguments_and_output.why_option
@arguments_and_output.add_json_and_html_options
def compare_(
    out: CommandOutput, *, session: str, rules: tuple[str, ...], max_loss: float | None, why: bool
) -> None:
    """Show what SESSION would have cost and lost under each of some RULES (all presets).

    Without SESSION: for the newest one.
    """
    from ctxkit.experiments.rules_comparison_on_one_session import compare

    table = compare(
        resolve_session(session),
        list(rules) or "all",
        progress=sys.stderr.isatty(),
        max_loss=max_loss,
    )
    if out.html is not None:
        from ctxkit.widgets.reports import export

        print_to_stderr(f"written: {export(table, out.html)}")
        return
    if out.json:
        print_json(convert_frame_to_records(table))
    else:
        print_wrapped_lines(table.to_text(why=why))


@click.command()
@arguments_and_output.sessions_argument
@arguments_and_output.rules_option
@click.option("--loss/--no-loss", default=True, show_default=True, help="Work out losses too.")
@arguments_and_output.max_loss_option
@click.option(
    "--out",
    "resume_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Keep finished runs in a file; what it holds is not done again.",
)
@arguments_and_output.add_json_and_html_options
def sweep_(
    out: CommandOutput,
    *,
    sessions: tuple[str, ...],
    rules: tuple[str, ...],
    loss: bool,
    max_loss: float | None,
    resume_file: Path | None,
) -> None:
    """Run SESSIONS (files, folders, ids) under RULES (all presets), and sum up by rules.

    Money and loss are means over sessions with their 90 % interval; --json has every run.
    """
    from ctxkit.experiments.sweep_runs import sweep

    resolved = arguments_and_output.resolve_sessions(sessions)
    show_bar = sys.stderr.isatty()
    runs = sweep(
        resolved,
        list(rules) or "all",
        out=resume_file,
        loss=loss,
        progress=show_bar,
        max_loss=max_loss,
    )
    if out.json:
        print_json(convert_frame_to_records(runs))
    elif out.html is not None:
        from ctxkit.widgets.reports import export

        print_to_stderr(f"written: {export(runs, out.html)}")
    else:
        print_wrapped_lines(runs.display.to_text(get_screen_width()))


@click.command()
@arguments_and_output.sessions_argument
@arguments_and_output.rules_option
@arguments_and_output.forecast_option
@arguments_and_output.add_json_and_html_options
def advise_(
    out: CommandOutput,
    *,
    sessions: tuple[str, ...],
    rules: tuple[str, ...],
    forecast: str | None,
) -> None:
    """Say which RULES (of all presets) no other beats on SESSIONS, each with price and risk."""
    from ctxkit.experiments.setting_advice import advise, get_advised_setting

    show_bar = sys.stderr.isatty()
    advice = advise(
        arguments_and_output.resolve_sessions(sessions), list(rules) or "all", progress=show_bar
    )
    if forecast is not None:
        write_and_announce_forecast(forecast, get_advised_setting(advice), "advise")
    if out.json:
        print_json(convert_frame_to_records(advice))
    else:
        print_text_or_write_html(out, "Advice", advice.display)


GATE_COLUMNS = (
    TableColumn("rules", "rules", wide=True),
    TableColumn("figure", "figure"),
    TableColumn("sessions_n", "sessions", "count"),
    TableColumn("before", "before"),
    TableColumn("now", "now"),
    TableColumn("floor", "noise"),
    TableColumn("state", "state"),
)


def _number_option(
    name: str, default: float, kind: click.IntRange | click.FloatRange, help_text: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(name, default=default, show_default=True, type=kind, help=help_text)


@click.command()
@click.argument("sessions", type=SESSION_WORD, nargs=-1)
@arguments_and_output.rules_option
@click.option(
    "--baseline",
    "-b",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The JSON file of figures to hold against.",
)
@click.option("--update", is_flag=True, help="Write the figures of now into the baseline.")
@_number_option(
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
@_number_option("--rounds", 6, click.IntRange(1, 100), "How often the program is asked.")
@_number_option("--repeat", 1, click.IntRange(1, 100), "How often all is done, to see the noise.")
@_number_option("--timeout", 120.0, click.FloatRange(min=0.1), "Seconds for one answer.")
@_number_option(
    "--least", 0.0, click.FloatRange(0, 1), "Share of facts that must outlive all rounds."
)
@click.option("--exam", is_flag=True, help="Ask exact questions about what is taken away, too.")
@arguments_and_output.add_json_and_html_options
@click.pass_context
def gate_(
    context: click.Context,
    out: CommandOutput,
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
    exam: bool,
) -> None:
    """Hold SESSIONS under RULES, or a compactor of your own, against a baseline that you keep.

    Exit code 0: nothing got worse by more than its noise; 1: something did, and the table says
    what and by how much; 2: it could not be judged, and a sentence says why.

    --compacted judges a program: facts are planted, it is asked round after round as a session
    grows, and what comes back must keep calls with their results, and the order.
    """
    from ctxkit.experiments.gates.compactor_gate_and_subprocess import gate_compactor
    from ctxkit.experiments.gates.regression_gate import gate

    if update and baseline is None:
        raise click.UsageError("--update writes a baseline: name its file with --baseline.")
    if compacted is not None:
        if rules:
            raise click.UsageError("Give --rules or --compacted, not both.")
        report: GateReport = gate_compactor(
            compacted,
            arguments_and_output.resolve_sessions(sessions) if sessions else None,
            baseline,
            rounds=rounds,
            repeat=repeat,
            timeout=timeout,
            least=least,
            update=update,
            tolerance=tolerance,
            exam=exam,
        )
    else:
        # a gate of rules needs all three; a program brings its own planted facts
        if not (sessions and rules and baseline):
            raise click.UsageError(
                "Give sessions, --rules and --baseline, or a program with --compacted."
            )
        resolved = arguments_and_output.resolve_sessions(sessions)
        report = gate(
            resolved, list(rules), baseline, update=update, tolerance=tolerance, exam=exam
        )
    _print_report(out, report)
    if not report.ok:
        context.exit(EXIT_WORSE)


def _print_report(out: CommandOutput, report: GateReport) -> None:
    rows = [c._asdict() for c in report.changes]
    if out.json:
        answer = {
            "ok": report.ok,
            "changes": rows,
            "faults": report.faults,
            "notes": report.notes,
            "untested": report.untested,
        }
        print_json(answer)
    elif out.html is not None:
        notes = [*report.faults, *report.notes, *report.untested, report.sentence]
        out.table("Gate", GATE_COLUMNS, rows, notes)
    else:
        print_wrapped_lines(report.to_text())
