"""`%%team`: run a team of agents on a task."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ctxkit.errors import BadArguments
from ctxkit.magics.approvals import Approvals, ask_here, select_approval_tools
from ctxkit.magics.arguments import get_settings
from ctxkit.magics.commands import TextPage
from ctxkit.magics.settings import TeamLine
from ctxkit.magics.turn_handle import TurnInterrupted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ctxkit.agent.live_session import LiveSession
    from ctxkit.magics.kit_state import KitState
    from ctxkit.teams.runner import Team


_DEFAULTS = {name: default for name, (default, _) in get_settings(TeamLine).items()}
"""How a team is opened that was not begun yet, and of which nothing is said."""


def run_team(kit: KitState, asked: TeamLine, task: str) -> TextPage:
    """Let a team work on a task; an empty one is the one that it has."""
    from ctxkit.teams import team as opened

    if asked.out and not asked.out.isidentifier():
        raise BadArguments(
            f"{asked.out!r} is no name of a variable: give `--out` one, such as team."
        )
    named = {k: v for k, v in asdict(asked).items() if k not in ("name", "out") and v is not None}
    before = {**_previous_settings(asked.name, named), **kit.teams.get(asked.name, {})}
    how = {"approve": kit.approve, **before, **named}
    made = opened(
        how["config"],
        name=asked.name,
        model=how["model"],
        tools=_split_words(how["tools"]),
        models=how.get("models"),
        root=how["root"] or None,
        allow=_split_words(how["allow"]),
        memory=_split_words(how["memory"]),
        seed=kit.seed,
        words={"approve": how["approve"]},
    )
    try:
        _set_approvals(kit, made, how["approve"])
        kit.teams[asked.name] = how
        made.run(task)
    except KeyboardInterrupt:
        raise TurnInterrupted(
            f"Interrupted. `%team {asked.name}` goes on where it stood."
        ) from None
    finally:
        for live in made.lives:
            kit.sessions.put(live.session, f"{asked.name}.{live.session.agent}")
        made.close()
    if asked.out:
        kit.shell.user_ns[asked.out] = made
    return TextPage(_describe_run(made))


def _previous_settings(name: str, named: Mapping[str, Any]) -> dict[str, Any]:
    """Return how a team was opened last, in any kernel; as usual where it is new, or is given
    another config.
    """
    from ctxkit.agent.store.workspace import Workspace
    from ctxkit.teams.build import read_team_settings

    workspace = Workspace()
    if "config" in named or not workspace.begun(name):
        return _DEFAULTS
    words = read_team_settings(workspace, name)
    lists = {k: ",".join(words.get(k, ())) for k in ("tools", "allow", "memory")}
    known = ("config", "model", "models", "root", "approve")
    return {**_DEFAULTS, **{k: words[k] for k in known if k in words}, **lists}


def _set_approvals(kit: KitState, made: Team, words: str) -> None:
    """Let agents ask a person before the calls that words name."""
    confirmed = select_approval_tools(words, made.tool_names, made.root)

    def ask(live: LiveSession) -> None:
        live.agent.approve = Approvals(confirmed, kit.lives.always(live.name), ask_here)

    made.sessions.each(ask)


def _describe_run(made: Team) -> str:
    """Say what followed from each turn, what each agent used, and who had no turn."""
    from ctxkit.presets.config_keys import join_names

    lines = list(made.notes)
    for move in made.ledger.moves(of_task=True):
        if move["agent"]:
            on = f" -> {move['to']}" if "to" in move else ""
            lines.append(
                f"{move['turn']:>3}  {move['agent']}: {move['kind'].replace('_', ' ')}{on}"
            )
    lines += [
        f"{row.title}: {row.calls_n} calls, {row.prompt_tokens:,} tokens sent,"
        f" {row.output_tokens:,} written"
        for row in made.account.itertuples()
    ]
    silent = [m.name for m in made.plan.members if m.name not in made.sessions.opened]
    lines += [f"Without a turn: {join_names(silent)}."] if silent else []
    standing = made.standing
    return "\n".join(
        [*lines, f"{standing.ended}: {standing.why}" if standing.ended else "It goes on."]
    )


def _split_words(text: str) -> tuple[str, ...]:
    return tuple(w.strip() for w in text.split(",") if w.strip())
