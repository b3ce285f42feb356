"""`%memory` and its subcommands, and the memory that `--memory` names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctxkit._internal.formatting import sanitize_line
from ctxkit.errors import BadArguments
from ctxkit.magics.arguments import option, rest, word
from ctxkit.magics.commands import Subcommand, TextPage
from ctxkit.magics.memory_selection import open_memory
from ctxkit.magics.session_commands import EmptyLine, LiveSessionLine, clean_texts
from ctxkit.policies.memory_entries import make_entry

if TYPE_CHECKING:
    import pandas as pd

    from ctxkit.magics.kit_state import KitState

LIST_SUBCOMMAND = "list"


@dataclass(frozen=True)
class ListLine:
    """The line of `%memory list`."""

    all: bool = option("whatever folder it was saved in", default=False)


@dataclass(frozen=True)
class EntryLine:
    """The line of `%memory show`, `forget` and `why`."""

    name: str = word("name of the entry, or the beginning of its guid", completes="entry")


@dataclass(frozen=True)
class AddEntryLine:
    """The line of `%memory add`."""

    description: str = rest("what is to be remembered, in one line")
    name: str = option("its name; without one, its first words", default="")
    type: str = option("user, feedback, project, reference, preference, fact or procedure",
                       default="user", completes="memory_type")  # fmt: skip
    body: str = option("more text, or a variable that holds it", default="")
    fuseraft: bool = option("keep it in fuseraft's folder", default=False)


@dataclass(frozen=True)
class EditEntryLine:
    """The line of `%memory edit`."""

    name: str = word("name of the entry, or the beginning of its guid", completes="entry")
    rename: str | None = option("another name")
    description: str | None = option("what it says, in quotes")
    type: str | None = option("another type", completes="memory_type")
    body: str | None = option("more text, or a variable that holds it")


def list_entries(_: KitState, asked: ListLine) -> pd.DataFrame:
    """Return one row an entry that a session in this folder is told of, in the order of
    its block.
    """
    import pandas as pd

    from ctxkit.policies.memory_entries import rank_by_score

    held = open_memory()
    for fault in held.faults():
        print(f"Note: {fault}")  # noqa: T201  beside the table
    entries = rank_by_score(held.entries(everywhere=asked.all))
    columns = ["type", "description", "chars", "guid"]
    rows = [(e.type, e.description, len(e.head) + len(e.body), e.guid[:8]) for e in entries]
    index = pd.Index([sanitize_line(e.name, 120) for e in entries], name="entry", dtype="object")
    return clean_texts(pd.DataFrame(rows, columns=columns, index=index))


def show_entry(_: KitState, asked: EntryLine) -> TextPage:
    """Show an entry whole."""
    folder, kept = open_memory().of(asked.name)
    body = [f"  {row}" for row in kept.body.split("\n")] if kept.body else []
    return TextPage("\n".join([kept.head, *body, f"({kept.guid}, in {folder.path})"]))


def add_entry(kit: KitState, asked: AddEntryLine) -> TextPage:
    """Remember something in this folder; an entry of that name is changed."""
    from ctxkit.policies.memory_entries import make_entry_name

    if not asked.description.strip():
        raise BadArguments(
            "Say what is to be remembered: `%memory add Use pytest -q. --type feedback`."
        )
    said = asked.description.strip()
    fresh = make_entry(
        asked.name or make_entry_name(said) or said, said, asked.type, _get_body(kit, asked.body)
    )
    kept = open_memory().add(fresh, home=1 if asked.fuseraft else 0)
    return TextPage(f"Remembered {kept.head}")


def edit_entry(kit: KitState, asked: EditEntryLine) -> TextPage:
    """Change an entry."""
    given = {"name": asked.rename, "description": asked.description, "type": asked.type}
    changes = {k: v for k, v in given.items() if v is not None}
    if asked.body is not None:
        changes["body"] = _get_body(kit, asked.body)
    if not changes:
        raise BadArguments("Say what is to change: --description, --type, --body or --rename.")
    return TextPage(f"Changed {open_memory().edit(asked.name, **changes).head}")


def forget_entry(_: KitState, asked: EntryLine) -> TextPage:
    """Take an entry out; no extraction brings it back."""
    return TextPage(f"Forgot {sanitize_line(open_memory().forget(asked.name).name, 120)}.")


def show_entry_audit(_: KitState, asked: EntryLine) -> TextPage:
    """Say who saved an entry, when, and from which messages of which session."""
    kept, rows = open_memory().why(asked.name)
    lines = [kept.head]
    for row in rows:
        told = [f"{row.get('time')} {row.get('what')} by {row.get('by')}"]
        told += [f"in session {row['session']}"] if row.get("session") else []
        told += [f"at its {row['why']}"] if row.get("why") else []
        ids = row.get("messages") if isinstance(row.get("messages"), list) else []
        told += [f"from {', '.join(map(str, ids))}"] if ids else []
        lines.append(sanitize_line(", ".join(told), 400))
    return TextPage(
        "\n".join(lines if rows else [*lines, "Nobody noted who saved it: a person may have."])
    )


def extract_entries(kit: KitState, asked: LiveSessionLine) -> TextPage:
    """Let the session's model say what is worth remembering; without one, sentences are taken."""
    from ctxkit.agent.event_loops import run_coroutine

    live = kit.lives.get(asked.session)
    kit.lives.free(live.name)
    kept, cost = run_coroutine(live.remember())
    names = ", ".join(sanitize_line(e.name, 60) for e in kept)
    said = f"Remembered {len(kept)}: {names}." if kept else "Nothing new to remember."
    return TextPage(said + (f" {cost}" if cost else ""))


def consolidate_entries(_: KitState, asked: EmptyLine) -> TextPage:  # noqa: ARG001  the shape of a subcommand
    """Take out what was found by itself and is too much; what a person wrote stays."""
    from ctxkit.agent.memory.session_memory import EXTRACTED_BY

    gone = open_memory().consolidate(EXTRACTED_BY)
    lines = [sanitize_line(f"Forgot {kept.name}: {why}.", 300) for kept, why in gone]
    return TextPage("\n".join(lines or ["Nothing is too much."]))


def _get_body(kit: KitState, words: str) -> str:
    held = kit.shell.user_ns.get(words) if words.isidentifier() else None
    return held if isinstance(held, str) else words


MEMORY_SUBCOMMANDS = {
    s.name: s
    for s in (
        Subcommand(LIST_SUBCOMMAND, "What is remembered here.", ListLine, list_entries),
        Subcommand("show", "An entry, whole.", EntryLine, show_entry),
        Subcommand("add", "Remember something.", AddEntryLine, add_entry),
        Subcommand("edit", "Change an entry.", EditEntryLine, edit_entry),
        Subcommand("forget", "Take an entry out.", EntryLine, forget_entry),
        Subcommand(
            "why", "Who saved an entry, when, from which messages.", EntryLine, show_entry_audit
        ),
        Subcommand("consolidate", "Take out what is too much.", EmptyLine, consolidate_entries),
        Subcommand(
            "extract",
            "Take what is worth remembering from a session.",
            LiveSessionLine,
            extract_entries,
        ),
    )
}
