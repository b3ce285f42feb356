"""`ctxkit when`, `idle`, and `ctxkit` alone: answers, each with its price."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ctxkit._internal.formatting import pluralize
from ctxkit.cli import arguments
from ctxkit.cli.arguments import LAST_WORD, resolve_session
from ctxkit.cli.output import CommandOutput, print_json, print_lines, print_message, write_file
from ctxkit.errors import BadArguments

if TYPE_CHECKING:
    from ctxkit.session.session import Session


@click.command()
@arguments.session_argument
@click.option(
    "--window", type=click.IntRange(min=1), help="Tokens of the window; default: the session's."
)
@arguments.forecast_option
@arguments.why_option
@arguments.add_output_options
def when_(
    out: CommandOutput, *, session: str, window: int | None, forecast: str | None, why: bool
) -> None:
    """Say at which size to compact SESSION, what that saves and loses, and the setting for it."""
    from ctxkit.metrics.timing import when_to_compact

    timing = when_to_compact(resolve_session(session), context_window=window)
    if forecast is not None:
        from ctxkit.experiments.forecast_records import write_trigger_setting

        keep_promise(forecast, write_trigger_setting(timing), "when")
    if out.json:
        import msgspec

        print_json(
            {"answer": timing.answer, "setting": timing.setting, **msgspec.to_builtins(timing)}
        )
    else:
        print_answer(out, "When to compact", timing, why=why)


@click.command()
@arguments.sessions_argument
@arguments.why_option
@arguments.add_output_options
def idle_(out: CommandOutput, *, sessions: tuple[str, ...], why: bool) -> None:
    """Price the pauses of SESSIONS: do nothing, keep warm, compact ahead, or an hour's cache.

    Give the sessions of one person, as the chance of coming back is theirs.
    """
    from ctxkit.metrics.cost.idle_ledger import idle

    ledger = idle(arguments.resolve_sessions(sessions))
    if out.json:
        pauses = [
            {**p._asdict(), "prices": p.prices._asdict(), "gap": p.gap} for p in ledger.pauses
        ]
        print_json({"answer": ledger.answer, "usd": ledger.choices_usd, "pauses": pauses})
    else:
        print_answer(out, "Pauses", ledger, why=why)


def keep_promise(archive: str, rules: str, source: str) -> None:
    """Write a forecast under rules into an archive, and say so."""
    from ctxkit.experiments.forecast_records import keep_forecast

    kept = keep_forecast(archive, rules, source=source)
    print_message(f"{pluralize(len(kept), 'forecast')} under {rules} written to {archive}.")


def print_answer(out: CommandOutput, title: str, answer: Any, **options: bool) -> None:
    """Print what has `to_text` and HTML, or write it as a page."""
    if out.html is None:
        print_lines(answer.to_text(**options))
        return
    from ctxkit.widgets.reports.html_page import PageSection, render_page

    html = answer.to_html() if hasattr(answer, "to_html") else answer._repr_html_()
    section = PageSection("", html)
    write_file(out.html, render_page(title, "", [section], plotly=False))


def print_newest_answers() -> None:
    """Print when to compact the newest session, and what it cost."""
    from ctxkit.session.titles import get_title

    session = resolve_session(LAST_WORD)
    print_lines("\n".join([*_answer_when(session), _answer_spend(session), ""]))
    print_lines(
        f"Session: {get_title(session)} ({session.format}, {len(session.calls):,} calls). Why: "
        "ctxkit when last, ctxkit spend last. Other settings: ctxkit compare last. All sessions: "
        "ctxkit list. Help: ctxkit -h."
    )


def _answer_when(session: Session) -> list[str]:
    from ctxkit.metrics.timing import when_to_compact

    try:
        timing = when_to_compact(session)
    except BadArguments as error:
        return [str(error)]
    return [timing.answer, *filter(None, [timing.setting])]


def _answer_spend(session: Session) -> str:
    from ctxkit.metrics.cost.spending import spend

    return spend(session).answer
