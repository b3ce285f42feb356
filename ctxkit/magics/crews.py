"""`%%team` and `%team`: let a team of agents work on a task, or say how it stands."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ctxkit.errors import BadArguments
from ctxkit.magics.approvals import Approvals, needed
from ctxkit.magics.handles import Interrupted
from ctxkit.magics.questions import ask_here
from ctxkit.magics.texts import Page

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ctxkit.agent.live import LiveSession
    from ctxkit.magics.kit_state import KitState
    from ctxkit.magics.line_options import AskTeam
    from ctxkit.teams.working import Team


_USUAL = {"config": "scripted", "model": "", "tools": "files", "root": "", "allow": "",
          "memory": ""}  # fmt: skip
"""How a team is opened that was not begun yet, and of which nothing is said."""


def work(kit: KitState, asked: AskTeam, task: str) -> Page:
    """Let a team work on a task; an empty one is the one that it has."""
    from ctxkit.teams import team as opened

    if asked.out and not asked.out.isidentifier():
        raise BadArguments(
            f"{asked.out!r} is no name of a variable: give `--out` one, such as team."
        )
    named = {k: v for k, v in asdict(asked).items() if k not in ("name", "out") and v is not None}
    before = {**_before(asked.name, named), **kit.teams.get(asked.name, {})}
    how = {"approve": kit.approve, **before, **named}
    made = opened(how["config"], name=asked.name, model=how["model"], tools=_words(how["tools"]),
                  models=how.get("models"), root=how["root"] or None, allow=_words(how["allow"]),
                  memory=_words(how["memory"]), seed=kit.seed,
                  words={"approve": how["approve"]})  # fmt: skip
    try:
        _ask_first(kit, made, how["approve"])
        kit.teams[asked.name] = how
        made.run(task)
    except KeyboardInterrupt:
        raise Interrupted(f"Interrupted. `%team {asked.name}` goes on where it stood.") from None
    finally:
        for live in made.lives:
            kit.sessions.put(live.session, f"{asked.name}.{live.session.agent}")
        made.close()
    if asked.out:
        kit.shell.user_ns[asked.out] = made
    return Page(_told(made))


def _before(name: str, named: Mapping[str, Any]) -> dict[str, Any]:
    """Return how a team was opened last, in any kernel; as usual where it is new, or is given
    another config.
    """
    from ctxkit.store.workspace import Workspace
    from ctxkit.teams.opening import begun_as

    workspace = Workspace()
    if "config" in named or not workspace.begun(name):
        return _USUAL
    words = begun_as(workspace, name)
    lists = {k: ",".join(words.get(k, ())) for k in ("tools", "allow", "memory")}
    known = ("config", "model", "models", "root", "approve")
    return {**_USUAL, **{k: words[k] for k in known if k in words}, **lists}


def _ask_first(kit: KitState, made: Team, words: str) -> None:
    """Let agents ask a person before the calls that words name."""
    confirmed = needed(words, made.tool_names, made.root)

    def ask(live: LiveSession) -> None:
        live.agent.approve = Approvals(confirmed, kit.lives.always(live.name), ask_here)

    made.sessions.each(ask)


def _told(made: Team) -> str:
    """Say what followed from each turn, what each agent used, and who had no turn."""
    from ctxkit.teams.config_fields import listed

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
    lines += [f"Without a turn: {listed(silent)}."] if silent else []
    standing = made.standing
    return "\n".join(
        [*lines, f"{standing.ended}: {standing.why}" if standing.ended else "It goes on."]
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(w.strip() for w in text.split(",") if w.strip())
