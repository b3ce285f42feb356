"""`%memory`: what is remembered, by whom and since when; add, edit, forget, extract."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctxkit.display.markup import line
from ctxkit.errors import BadArguments
from ctxkit.magics.arguments import option, rest, word
from ctxkit.magics.memory_words import memories
from ctxkit.magics.subcommands import Subcommand
from ctxkit.magics.table_commands import LiveLine, Nothing, shown
from ctxkit.magics.texts import Page
from ctxkit.memory.entry import entry

if TYPE_CHECKING:
    import pandas as pd

    from ctxkit.magics.kit_state import KitState

LIST = "list"


@dataclass(frozen=True)
class EntryList:
    """The line of `%memory list`."""

    all: bool = option("whatever folder it was saved in", default=False)


@dataclass(frozen=True)
class OneEntry:
    """The line of `%memory show`, `forget` and `why`."""

    name: str = word("name of the entry, or the beginning of its guid", completes="entry")


@dataclass(frozen=True)
class Remembered:
    """The line of `%memory add`."""

    description: str = rest("what is to be remembered, in one line")
    name: str = option("its name; without one, its first words", default="")
    type: str = option("user, feedback, project, reference, preference, fact or procedure",
                       default="user", completes="memory_type")  # fmt: skip
    body: str = option("more text, or a variable that holds it", default="")
    fuseraft: bool = option("keep it in fuseraft's folder", default=False)


@dataclass(frozen=True)
class EditedEntry:
    """The line of `%memory edit`."""

    name: str = word("name of the entry, or the beginning of its guid", completes="entry")
    rename: str | None = option("another name")
    description: str | None = option("what it says, in quotes")
    type: str | None = option("another type", completes="memory_type")
    body: str | None = option("more text, or a variable that holds it")


def listed(_: KitState, asked: EntryList) -> pd.DataFrame:
    """Return one row an entry that a session in this folder is told of, in the order of
    its block.
    """
    import pandas as pd

    from ctxkit.memory import newest

    held = memories()
    for fault in held.faults():
        print(f"Note: {fault}")  # noqa: T201  beside the table
    entries = newest(held.entries(everywhere=asked.all))
    columns = ["type", "description", "chars", "guid"]
    rows = [(e.type, e.description, len(e.head) + len(e.body), e.guid[:8]) for e in entries]
    index = pd.Index([line(e.name, 120) for e in entries], name="entry", dtype="object")
    return shown(pd.DataFrame(rows, columns=columns, index=index))


def show(_: KitState, asked: OneEntry) -> Page:
    """Show an entry whole."""
    folder, kept = memories().of(asked.name)
    body = [f"  {row}" for row in kept.body.split("\n")] if kept.body else []
    return Page("\n".join([kept.head, *body, f"({kept.guid}, in {folder.path})"]))


def add(kit: KitState, asked: Remembered) -> Page:
    """Remember something in this folder; an entry of that name is changed."""
    from ctxkit.memory.entry import short_name

    if not asked.description.strip():
        raise BadArguments(
            "Say what is to be remembered: `%memory add Use pytest -q. --type feedback`."
        )
    said = asked.description.strip()
    fresh = entry(asked.name or short_name(said) or said, said, asked.type, _body(kit, asked.body))
    kept = memories().add(fresh, home=1 if asked.fuseraft else 0)
    return Page(f"Remembered {kept.head}")


def edit(kit: KitState, asked: EditedEntry) -> Page:
    """Change an entry."""
    given = {"name": asked.rename, "description": asked.description, "type": asked.type}
    changes = {k: v for k, v in given.items() if v is not None}
    if asked.body is not None:
        changes["body"] = _body(kit, asked.body)
    if not changes:
        raise BadArguments("Say what is to change: --description, --type, --body or --rename.")
    return Page(f"Changed {memories().edit(asked.name, **changes).head}")


def forget(_: KitState, asked: OneEntry) -> Page:
    """Take an entry out; no extraction brings it back."""
    return Page(f"Forgot {line(memories().forget(asked.name).name, 120)}.")


def why(_: KitState, asked: OneEntry) -> Page:
    """Say who saved an entry, when, and from which messages of which session."""
    kept, rows = memories().why(asked.name)
    lines = [kept.head]
    for row in rows:
        told = [f"{row.get('time')} {row.get('what')} by {row.get('by')}"]
        told += [f"in session {row['session']}"] if row.get("session") else []
        told += [f"at its {row['why']}"] if row.get("why") else []
        ids = row.get("messages") if isinstance(row.get("messages"), list) else []
        told += [f"from {', '.join(map(str, ids))}"] if ids else []
        lines.append(line(", ".join(told), 400))
    return Page(
        "\n".join(lines if rows else [*lines, "Nobody noted who saved it: a person may have."])
    )


def extract(kit: KitState, asked: LiveLine) -> Page:
    """Let the session's model say what is worth remembering; without one, sentences are taken."""
    from ctxkit.agent.threads import run

    live = kit.lives.get(asked.session)
    kit.lives.free(live.name)
    kept, cost = run(live.remember())
    names = ", ".join(line(e.name, 60) for e in kept)
    said = f"Remembered {len(kept)}: {names}." if kept else "Nothing new to remember."
    return Page(said + (f" {cost}" if cost else ""))


def consolidate(_: KitState, asked: Nothing) -> Page:  # noqa: ARG001  the shape of a subcommand
    """Take out what was found by itself and is too much; what a person wrote stays."""
    from ctxkit.agent.remembering import EXTRACT

    gone = memories().consolidate(EXTRACT)
    lines = [line(f"Forgot {kept.name}: {why}.", 300) for kept, why in gone]
    return Page("\n".join(lines or ["Nothing is too much."]))


def _body(kit: KitState, words: str) -> str:
    held = kit.shell.user_ns.get(words) if words.isidentifier() else None
    return held if isinstance(held, str) else words


MEMORY = {
    s.name: s
    for s in (
        Subcommand(LIST, "What is remembered here.", EntryList, listed),
        Subcommand("show", "An entry, whole.", OneEntry, show),
        Subcommand("add", "Remember something.", Remembered, add),
        Subcommand("edit", "Change an entry.", EditedEntry, edit),
        Subcommand("forget", "Take an entry out.", OneEntry, forget),
        Subcommand("why", "Who saved an entry, when, from which messages.", OneEntry, why),
        Subcommand("consolidate", "Take out what is too much.", Nothing, consolidate),
        Subcommand("extract", "Take what is worth remembering from a session.", LiveLine, extract),
    )
}
