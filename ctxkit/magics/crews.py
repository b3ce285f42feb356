"""`%%team` and `%team`: let a team of agents work on a task, or say how it stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctxkit.errors import BadArguments
from ctxkit.magics.arguments import option, parse, usage, wants_help, word
from ctxkit.magics.handles import Interrupted
from ctxkit.magics.texts import Page

if TYPE_CHECKING:
    from ctxkit.magics.kit import CtxKit
    from ctxkit.teams.working import Team


@dataclass(frozen=True)
class AskTeam:
    """The line of `%%team`."""

    name: str = word("name of the team; one that was begun goes on", default="team")
    config: str = option("path of a config, or scripted", default="scripted", completes="path")
    model: str = option("model of all agents", default="")
    tools: str = option("what agents may have at most, separated by commas", default="files")
    root: str | None = option("folder in which all work; without it a scratch folder", completes="path")
    allow: str = option("protected names that may be written, separated by commas", default="")
    out: str | None = option("variable that gets the team")


def team(kit: CtxKit, words: str, body: str | None) -> Page:
    """Let a team work on the task in the cell; without one it goes on with the task that it has."""
    if wants_help(words):
        return Page(f"{usage(AskTeam, '%%team')}\n\nThe cell is the task; `%team NAME` goes on with the one it has.")
    from ctxkit.teams import team as opened

    asked = parse(AskTeam, words, "%%team")
    if asked.out and not asked.out.isidentifier():
        raise BadArguments(f"{asked.out!r} is no name of a variable: give `--out` one, such as team.")
    made = opened(asked.config, name=asked.name, model=asked.model, tools=_words(asked.tools), root=asked.root,
                  allow=_words(asked.allow), seed=kit.seed)  # fmt: skip
    try:
        made.run(body or "")
    except KeyboardInterrupt:
        raise Interrupted(f"Interrupted. `%team {asked.name}` goes on where it stood.") from None
    finally:
        for name, live in made.sessions.items():
            kit.sessions.put(live.session, f"{asked.name}.{name}")
        made.close()
    if asked.out:
        kit.shell.user_ns[asked.out] = made
    return Page(_told(made))


def _told(made: Team) -> str:
    """Say what followed from each turn, and what each agent used."""
    lines = list(made.notes)
    for move in made.ledger.moves(of_task=True):
        if move["agent"]:
            on = f" -> {move['to']}" if "to" in move else ""
            lines.append(f"{move['turn']:>3}  {move['agent']}: {move['kind'].replace('_', ' ')}{on}")
    lines += [
        f"{row.title}: {row.calls_n} calls, {row.prompt_tokens:,} tokens sent, {row.output_tokens:,} written"
        for row in made.account.itertuples()
    ]
    standing = made.standing
    return "\n".join([*lines, f"{standing.ended}: {standing.why}" if standing.ended else "It goes on."])


def _words(text: str) -> tuple[str, ...]:
    return tuple(w.strip() for w in text.split(",") if w.strip())
