"""`%%team`: run a team of agents on a task."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ctxkit.errors import BadArguments
from ctxkit.magics.cell_magic_arguments import TeamArguments
from ctxkit.magics.line_parser import get_setting_defaults_and_help
from ctxkit.magics.subcommand_dispatch import PreformattedText
from ctxkit.magics.turn_handle_and_approvals import (
    ToolApprover,
    TurnInterrupted,
    ask_by_input_async,
    parse_approval_tools,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ctxkit.agent.live_session import LiveSession
    from ctxkit.magics.kernel_sessions import KitState
    from ctxkit.plots.chart import Chart
    from ctxkit.teams.runner import Team


_DEFAULTS = {
    name: default for name, (default, _) in get_setting_defaults_and_help(TeamArguments).items()
}
"""Settings of a new team if the line has no options."""


def run_team_magic(kit: KitState, arguments: TeamArguments, task: str) -> PreformattedText:
    """Run a team on a task; an empty task continues the current one.

    Args:
        arguments: the parsed line.
        task: the cell; empty: the task that was begun.

    Returns:
        A page with the decision after each turn and the chart of input tokens.

    Raises:
        BadArguments: `--out` is no name of a variable, or there is no task to continue.
        TurnInterrupted: the user interrupted; the team continues with the next call.
    """
    from ctxkit.teams import team as opened

    _check_task(arguments, task)
    if arguments.out and not arguments.out.isidentifier():
        raise BadArguments(
            f"{arguments.out!r} is no name of a variable: give `--out` one, such as team."
        )
    options = {
        k: v for k, v in asdict(arguments).items() if k not in ("name", "out") and v is not None
    }
    previous = {**_previous_settings(arguments.name, options), **kit.teams.get(arguments.name, {})}
    # Precedence, from low to high: the kit, the team as it was opened last, this line.
    settings = {"approve": kit.approve, **previous, **options}
    opened_team = opened(
        settings["config"],
        name=arguments.name,
        model=settings["model"],
        tools=_split_words(settings["tools"]),
        models=settings.get("models"),
        root=settings["root"] or None,
        allow=_split_words(settings["allow"]),
        memory=_split_words(settings["memory"]),
        seed=kit.seed,
        words={"approve": settings["approve"]},
    )
    try:
        _set_approvals(kit, opened_team, settings["approve"])
        kit.teams[arguments.name] = settings
        opened_team.run(task)
    except KeyboardInterrupt:
        raise TurnInterrupted(
            f"Interrupted. `%team {arguments.name}` goes on where it stood."
        ) from None
    finally:
        for live in opened_team.lives:
            kit.sessions.update(live.session, f"{arguments.name}.{live.session.agent}")
        opened_team.close()
        kit.sessions.update(
            opened_team.session, arguments.name
        )  # open, it would open all of its agents
    if arguments.out:
        kit.shell.user_ns[arguments.out] = opened_team
    return TeamDecisionsAndChart(_describe_run(opened_team), _make_chart(opened_team))


def _check_task(arguments: TeamArguments, task: str) -> None:
    """Refuse a line without a task for a team that has none, before anything is opened for it."""
    from ctxkit.agent.ctxkit_folder_and_session_trust import Workspace

    if not task.strip() and not Workspace().has_session(arguments.name):
        raise BadArguments(
            "Say what the team shall do: write `%%team NAME --config FILE.yaml` above the task, or"
            " `%%team` for the scripted team; `%team NAME` goes on with one that was begun, and"
            " `%team -h` has the options."
        )


@dataclass(frozen=True, repr=False)
class TeamDecisionsAndChart(PreformattedText):
    """The decision after each turn of a team, and the chart of its cumulative input tokens."""

    chart: Chart | None = None
    """None where no agent was billed any input."""

    def _repr_html_(self) -> str:
        return super()._repr_html_() + (self.chart.to_html() if self.chart is not None else "")


def _make_chart(opened_team: Team) -> Chart | None:
    from ctxkit.plots import budget

    return budget(opened_team.session) if opened_team.tokens else None


def _previous_settings(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return how a team was opened last, in any kernel; as usual where it is new, or is given
    another config.
    """
    from ctxkit.agent.ctxkit_folder_and_session_trust import Workspace
    from ctxkit.teams.team_factory import read_team_settings

    workspace = Workspace()
    if "config" in options or not workspace.has_session(name):
        return _DEFAULTS
    words = read_team_settings(workspace, name)
    lists = {k: ",".join(words.get(k, ())) for k in ("tools", "allow", "memory")}
    keys = ("config", "model", "models", "root", "approve")
    return {**_DEFAULTS, **{k: words[k] for k in keys if k in words}, **lists}


def _set_approvals(kit: KitState, opened_team: Team, words: str) -> None:
    """Make agents ask a person before calls of the named tools."""
    tool_names = parse_approval_tools(words, opened_team.tool_names, opened_team.root)

    def ask(live: LiveSession) -> None:
        live.agent.approve = ToolApprover(
            tool_names, kit.lives.always(live.name), ask_by_input_async
        )

    opened_team.sessions.each(ask)


def _describe_run(opened_team: Team) -> str:
    """Describe the decision after each turn, the usage of each agent, and agents without a turn."""
    from ctxkit.presets.config_key_mapping import join_names

    lines = list(opened_team.notes)
    for move in opened_team.ledger.moves(of_task=True):
        if move["agent"]:
            on = f" -> {move['to']}" if "to" in move else ""
            lines.append(
                f"{move['turn']:>3}  {move['agent']}: {move['kind'].replace('_', ' ')}{on}"
            )
    lines += [
        f"{row.title}: {row.calls_n} calls, {row.prompt_tokens:,} tokens sent,"
        f" {row.output_tokens:,} written"
        for row in opened_team.account.itertuples()
    ]
    silent = [m.name for m in opened_team.plan.members if m.name not in opened_team.sessions.opened]
    lines += [f"Without a turn: {join_names(silent)}."] if silent else []
    status = opened_team.status
    return "\n".join([*lines, f"{status.ended}: {status.why}" if status.ended else "It goes on."])


def _split_words(text: str) -> tuple[str, ...]:
    return tuple(w.strip() for w in text.split(",") if w.strip())
