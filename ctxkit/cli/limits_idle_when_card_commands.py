"""`ctxkit when`, `idle`, `limits`, `card`, and `ctxkit` alone: answers, each with its price."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ctxkit._internal.formatting_and_sanitizing import pluralize
from ctxkit.cli import arguments_and_output
from ctxkit.cli.arguments_and_output import (
    LAST_WORD,
    CommandOutput,
    print_json,
    print_text_or_write_html,
    print_to_stderr,
    print_wrapped_lines,
    resolve_session,
    write_and_announce_forecast,
)
from ctxkit.errors import BadArguments

if TYPE_CHECKING:
    from ctxkit.session.session import Session


@click.command()
@arguments_and_output.newest_sessions_argument
@click.option(
    "--window", type=click.IntRange(min=1), help="Tokens of the window; default: the sessions'."
)
@click.option(
    "--extra-loss",
    type=click.FloatRange(0, 1),
    default=0.05,
    show_default=True,
    help="For several sessions: share of what is used again that may be lost beyond the default's.",
)
@arguments_and_output.tool_option
@arguments_and_output.forecast_option
@arguments_and_output.why_option
@arguments_and_output.add_json_and_html_options
def when_(
    out: CommandOutput,
    *,
    sessions: tuple[str, ...],
    window: int | None,
    extra_loss: float,
    tool: str | None,
    forecast: str | None,
    why: bool,
) -> None:
    """Say at which size to compact, what that saves and loses, and the setting for it.

    For several SESSIONS or a folder: one setting, also tried on the later half of them. Without
    SESSIONS: for the newest one.
    """
    from ctxkit.metrics.compaction_threshold_for_many_sessions import when

    timing = when(
        arguments_and_output.resolve_sessions(sessions),
        context_window=window,
        extra_loss=extra_loss,
        tool=tool,
    )
    if forecast is not None:
        from ctxkit.experiments.next_session_forecasts_and_outcomes import format_trigger_setting

        write_and_announce_forecast(forecast, format_trigger_setting(timing), "when")
    if out.json:
        print_json({"answer": timing.answer, "setting": timing.setting, **timing.to_dict()})
    else:
        print_text_or_write_html(out, "When to compact", timing, why=why)


@click.command()
@arguments_and_output.sessions_argument
@arguments_and_output.why_option
@arguments_and_output.add_json_and_html_options
def idle_(out: CommandOutput, *, sessions: tuple[str, ...], why: bool) -> None:
    """Price the pauses of SESSIONS: do nothing, keep warm, compact ahead, or an hour's cache.

    Give the sessions of one person, as the chance of coming back is theirs.
    """
    from ctxkit.metrics.cost.pause_cost_by_choice import idle

    ledger = idle(arguments_and_output.resolve_sessions(sessions))
    if out.json:
        pauses = [
            {**p._asdict(), "prices": p.prices._asdict(), "gap": p.gap} for p in ledger.pauses
        ]
        print_json({"answer": ledger.answer, "usd": ledger.choices_usd, "pauses": pauses})
    else:
        print_text_or_write_html(out, "Pauses", ledger, why=why)


@click.command()
@arguments_and_output.sessions_argument
@arguments_and_output.add_json_and_html_options
def limits_(out: CommandOutput, *, sessions: tuple[str, ...]) -> None:
    """Say what used up five hours and a week of a subscription, by session and by cause.

    Give the SESSIONS of one plan, or their folder. Shares are of what was used, by list prices: no
    log says what a plan allows.
    """
    from ctxkit.metrics.cost.dollars_per_subscription_span import limits

    report = limits(arguments_and_output.resolve_sessions(sessions))
    if out.json:
        print_json({"answer": report.answer, **report.to_dict()})
    else:
        print_text_or_write_html(out, "Limits", report)


@click.command()
@arguments_and_output.session_argument
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--compaction", type=int, default=-1, show_default=True, help="Number, from 0; -1: the last."
)
def card_(*, session: str, file: Path, compaction: int) -> None:
    """Write what a compaction took and what was needed later as a page to post: .html or .svg.

    Secrets, home folders and the session's title are not in it.
    """
    from ctxkit.widgets.reports.compaction_card import write_card

    page = write_card(resolve_session(session), file, compaction=compaction)
    print_to_stderr(f"{page.stat().st_size:,} bytes written to {page}.")


def print_newest_session_advice() -> None:
    """Print when to compact the newest session, and what it cost."""
    from ctxkit.session.titles import get_title

    session = resolve_session(LAST_WORD)
    print_wrapped_lines("\n".join([*_answer_when(session), _answer_spend(session), ""]))
    calls = pluralize(len(session.calls), "call")
    print_wrapped_lines(
        f"Session: {get_title(session)} ({session.format}, {calls}). Why: ctxkit when last, ctxkit "
        "spend last. Other settings: ctxkit compare last. All sessions: ctxkit list. Help: ctxkit "
        "-h."
    )


def _answer_when(session: Session) -> list[str]:
    from ctxkit.metrics.optimal_trigger_floor_and_wait import when_to_compact

    try:
        timing = when_to_compact(session)
    except BadArguments as error:
        return [str(error)]
    return [timing.answer, *filter(None, [timing.setting])]


def _answer_spend(session: Session) -> str:
    from ctxkit.metrics.cost.spend_by_turn_tool_file import spend

    return spend(session).answer
