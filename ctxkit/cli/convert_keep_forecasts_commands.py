"""`ctxkit convert`, `keep` and `forecasts`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from ctxkit.cli import arguments_and_output
from ctxkit.cli.arguments_and_output import (
    RULES_WORD,
    CommandOutput,
    TableColumn,
    convert_frame_to_records,
    print_json,
    print_text_or_write_html,
    print_to_stderr,
    resolve_session,
    session_argument,
    write_and_announce_forecast,
)
from ctxkit.formats.archive_and_search import keep
from ctxkit.formats.writing import WRITE_FORMATS, write


@click.command()
@session_argument
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--to", "format_", type=click.Choice(WRITE_FORMATS), default="native", show_default=True
)
@click.option("--replace", is_flag=True, help="Write over a file that is there.")
def convert_(session: str, file: Path, format_: str, replace: bool) -> None:
    """Write SESSION to FILE in another format, and say what that format cannot hold."""
    if file.exists() and not replace:
        raise click.UsageError(f"{str(file)!r} is there already: --replace writes over it.")
    written = write(resolve_session(session), file, format_)
    lost = ", ".join(f"{n:,} {name}" for name, n in written.lost.items()) or "nothing"
    print_to_stderr(f"written: {written.path} ({written.format}); lost: {lost}")


KEEP_COLUMNS = (
    TableColumn("tool", "tool", most=11),
    TableColumn("path", "file", wide=True),
    TableColumn("what", "what"),
    TableColumn("size_bytes", "bytes", "count"),
    TableColumn("packed_bytes", "packed", "count"),
)


@click.command()
@click.argument("folder", type=click.Path(file_okay=False))
@arguments_and_output.tool_option
@arguments_and_output.add_json_and_html_options
def keep_(out: CommandOutput, *, folder: str, tool: str | None) -> None:
    """Copy the sessions of known tools into FOLDER: only what is new of them, when called again."""
    rows = convert_frame_to_records(keep(folder, tools=tool))
    counts = Counter(row["what"] for row in rows)
    note = ", ".join(f"{n:,} {what}" for what, n in counts.items()) or "no session was found"
    listed = rows if out.json else [r for r in rows if r["what"] != "same"]
    out.table(f"Kept in {folder}", KEEP_COLUMNS, listed, [f"{note}."])


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@click.option(
    "--add", "rules", type=RULES_WORD, help="Forecast under a preset; `recorded`: no change."
)
@arguments_and_output.add_json_and_html_options
def forecasts_(out: CommandOutput, *, folder: str, rules: str | None) -> None:
    """Say what was predicted in the archive FOLDER, and what came true of it, per tool.

    --add writes what the sessions of FOLDER let expect of the next ones.
    """
    from ctxkit.experiments.next_session_forecasts_and_outcomes import forecasts

    if rules is not None:
        write_and_announce_forecast(folder, rules, "forecasts")
    report = forecasts(folder)
    if out.json:
        print_json({"answer": report.answer, "forecasts": report.rows()})
    else:
        print_text_or_write_html(out, "Forecasts", report)
