"""`ctxkit rules` and `exam`: the user's rules, and answers to exact questions, that survive
compactions.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ctxkit._internal.redaction import redact
from ctxkit.cli import arguments_and_output
from ctxkit.cli.arguments_and_output import (
    RULES_WORD,
    CommandOutput,
    TableColumn,
    convert_frame_to_records,
    print_json,
    print_text_or_write_html,
    print_to_stderr,
    print_wrapped_lines,
    resolve_session,
)

if TYPE_CHECKING:
    from ctxkit.metrics.user_rule_loss_and_breaches import UserRuleTimeline


RULE_COLUMNS = (
    TableColumn("stated_call", "stated", "count"),
    TableColumn("stood", "stood until"),
    TableColumn("last", "last seen", "count"),
    TableColumn("against_call", "against", "count"),
    TableColumn("rule", "rule of the user", wide=True),
)
_COMMAND_HELP = "A program: messages as JSON on stdin, what is left of them on stdout."
_MAX_QUOTED = 8
"""Rules out of sight that are printed in full."""
_LEGEND = (
    "stated, last seen, against: numbers of calls. against: with the rule out of sight, the call"
    " wrote or ran something that the rule names; read it before you judge (--json has it whole)."
)
_CARRY_ON = (
    "To carry rules over compactions: ck.policies.rules_modifiers.keep_rules(rules), or "
    "'| keep_rules' after a policy; in the tool itself, its file of instructions (CLAUDE.md, "
    "AGENTS.md)."
)


@click.command()
@arguments_and_output.session_argument
@click.option(
    "--rules", "-r", type=RULES_WORD, help="Show the session as compacted by a preset or a chain."
)
@arguments_and_output.add_json_and_html_options
def rules_(out: CommandOutput, *, session: str, rules: str | None) -> None:
    """List what the user demanded in SESSION, and until which compaction it stood.

    A rule is a sentence that binds, forbids or chooses: "never touch prod", "answer in German".
    """
    from ctxkit.engine.replay import replay
    from ctxkit.metrics.user_rule_loss_and_breaches import trace_user_rules

    resolved = resolve_session(session)
    trace = trace_user_rules(resolved if rules is None else replay(resolved, rules))
    if not out.json and out.html is None:
        print_wrapped_lines(f"{trace.answer}\n")
    lost = [fate for fate in trace.fates if not fate.in_sight]
    notes = [*_quote_lost(lost), _LEGEND, _CARRY_ON] if lost else []
    out.table(trace.answer, RULE_COLUMNS, map(_make_row, trace.fates), notes)


def _quote_lost(lost: list[UserRuleTimeline]) -> list[str]:
    """Return the rules that are out of sight in full, as sentences of the report."""
    quoted = [f"Gone since call {f.last_call + 1}: {redact(f.rule)}" for f in lost[:_MAX_QUOTED]]
    more = [f"{len(lost) - _MAX_QUOTED} more: --json has them."] if len(lost) > _MAX_QUOTED else []
    return [*quoted, *more]


def _make_row(fate: UserRuleTimeline) -> dict[str, object]:
    until = "stands" if fate.removed_by is None else f"compaction {fate.removed_by}"
    return {
        **fate._asdict(),
        "rule": redact(fate.rule),
        "against": None if fate.against is None else redact(fate.against),
        "stood": until,
        "last": None if fate.in_sight else fate.last_call,
    }


@click.command()
@arguments_and_output.session_argument
@arguments_and_output.rules_option
@click.option("--command", "commands", metavar="COMMAND", multiple=True, help=_COMMAND_HELP)
@click.option(
    "--prompt",
    "prompts",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    help="A file with a prompt that asks for the summary; --model writes it.",
)
@click.option("--model", help="Ask this model, too; default: no model is called.")
@click.option("--yes", is_flag=True, help="Do not ask before the model is called.")
@click.option("--questions", default=10, show_default=True, type=click.IntRange(1, 200))
@click.option("--repeat", default=1, show_default=True, type=click.IntRange(1, 20))
@arguments_and_output.why_option
@arguments_and_output.add_json_and_html_options
def exam_(
    out: CommandOutput,
    *,
    session: str,
    rules: tuple[str, ...],
    commands: tuple[str, ...],
    prompts: tuple[Path, ...],
    model: str | None,
    yes: bool,
    questions: int,
    repeat: int,
    why: bool,
) -> None:
    """Put exact questions about what a compaction of SESSION took away to ways to compact.

    The recorded compaction, RULES, programs and prompts get the same messages; the table says
    whose result still shows the answers. With --model that model answers, without knowing whose
    result it reads.
    """
    from ctxkit.experiments.exams_comparing_ways_to_compact import (
        CompactorCandidate,
        SummaryPromptCandidate,
        exam,
    )
    from ctxkit.experiments.gates.compactor_gate_and_subprocess import command

    candidates: dict[str, object] = dict(zip(rules, rules, strict=True))
    candidates |= {words: CompactorCandidate(command(words)) for words in commands}
    candidates |= {
        path.name: SummaryPromptCandidate(path.read_text(encoding="utf-8", errors="replace"))
        for path in prompts
    }

    def confirm(cost: str) -> None:
        print_to_stderr(cost)
        if not yes:
            click.confirm("Go on?", abort=True, err=True)

    report = exam(
        resolve_session(session),
        candidates,
        model=model,
        questions=questions,
        repeats=repeat,
        confirm=confirm,
    )
    if out.json:
        print_json(convert_frame_to_records(report.frame()))
    else:
        print_text_or_write_html(out, "Exam", report, why=why)
