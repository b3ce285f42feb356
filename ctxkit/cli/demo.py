"""`ctxkit demo`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ctxkit.cli import compare_sweep_advise_gate_commands, list_report_spend_watch_commands
from ctxkit.cli.arguments_and_output import print_wrapped_lines

DEMO_SAMPLE = "billing"
DEMO_RULES = ("pi", "claude_code", "codex", "none")
"""Presets beside the record: three that many use, and no compaction at all."""


@click.command()
@click.argument("folder", default="ctxkit-demo", type=click.Path(file_okay=False, path_type=Path))
@click.pass_context
def demo_(context: click.Context, folder: Path) -> None:
    """Answer four questions about a bundled session; write its report and notebook to FOLDER."""
    from ctxkit.formats.reading import read
    from ctxkit.formats.samples import path
    from ctxkit.metrics.cost.spend_by_turn_tool_file import spend
    from ctxkit.metrics.optimal_trigger_floor_and_wait import when_to_compact
    from ctxkit.widgets.reports import export

    file = str(path(DEMO_SAMPLE))
    session = read(file)
    folder.mkdir(parents=True, exist_ok=True)

    _print_question("What fills the window?")
    context.invoke(
        list_report_spend_watch_commands.report_, session=file, call=-1, as_json=False, html=None
    )
    _print_question("Where did the money go?")
    bill = spend(session)
    print_wrapped_lines("\n".join([bill.answer, "", *bill.sentences]))
    _print_question("When to compact?")
    print_wrapped_lines(when_to_compact(session).to_text())
    _print_question("What would other rules have cost, and lost?")
    context.invoke(
        compare_sweep_advise_gate_commands.compare_,
        session=file,
        rules=DEMO_RULES,
        max_loss=None,
        why=False,
        as_json=False,
        html=None,
    )

    page, notebook = (export(session, folder / f"{DEMO_SAMPLE}.{end}") for end in ("html", "ipynb"))
    sys.stdout.write(f"\npage:     {page}\nnotebook: {notebook}\n")
    print_wrapped_lines(
        f"To open the notebook: jupyter lab {notebook}. Sessions of your own: ctxkit list, then "
        "ctxkit report last."
    )


def _print_question(question: str) -> None:
    sys.stdout.write(f"\n{question}\n{'─' * len(question)}\n")
