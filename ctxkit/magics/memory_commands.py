"""`%memory` and its subcommands: list, show, add, edit, forget, why, extract, consolidate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctxkit._internal.formatting_and_sanitizing import sanitize_line
from ctxkit.errors import BadArguments
from ctxkit.magics.line_parser import option_field, positional_field, remaining_text_field
from ctxkit.magics.session_report_commands import (
    EmptyArguments,
    LiveSessionArguments,
    sanitize_text_columns,
)
from ctxkit.magics.session_settings_and_name_resolver import open_memory_store
from ctxkit.magics.subcommand_dispatch import PreformattedText, Subcommand
from ctxkit.policies.memory_entries import make_entry

if TYPE_CHECKING:
    import pandas as pd

    from ctxkit.magics.kernel_sessions import KitState

LIST_SUBCOMMAND = "list"


@dataclass(frozen=True)
class MemoryListArguments:
    """The line of `%memory list`."""

    all: bool = option_field("whatever folder it was saved in", default=False)


@dataclass(frozen=True)
class MemoryEntryArguments:
    """The line of `%memory show`, `forget` and `why`."""

    name: str = positional_field(
        "name of the entry, or the beginning of its guid", completes="entry"
    )


@dataclass(frozen=True)
class MemoryAddArguments:
    """The line of `%memory add`."""

    description: str = remaining_text_field("what is to be remembered, in one line")
    name: str = option_field("its name; without one, its first words", default="")
    type: str = option_field("user, feedback, project, reference, preference, fact or procedure",
                       default="user", completes="memory_type")  # fmt: skip
    body: str = option_field("more text, or a variable that holds it", default="")
    fuseraft: bool = option_field("keep it in fuseraft's folder", default=False)


@dataclass(frozen=True)
class MemoryEditArguments(MemoryEntryArguments):
    """The line of `%memory edit`."""

    rename: str | None = option_field("another name")
    description: str | None = option_field("what it says, in quotes")
    type: str | None = option_field("another type", completes="memory_type")
    body: str | None = option_field("more text, or a variable that holds it")


def list_memory_entries(_: KitState, arguments: MemoryListArguments) -> pd.DataFrame:
    """Return one row per memory entry that sessions in this folder see, in the order of
    its block.
    """
    import pandas as pd

    from ctxkit.policies.memory_ranking_and_digests import rank_by_score

    store = open_memory_store()
    for fault in store.faults():
        print(f"Note: {fault}")  # noqa: T201  beside the table
    entries = rank_by_score(store.entries(everywhere=arguments.all))
    columns = ["type", "description", "chars", "guid"]
    rows = [(e.type, e.description, len(e.head) + len(e.body), e.guid[:8]) for e in entries]
    index = pd.Index([sanitize_line(e.name, 120) for e in entries], name="entry", dtype="object")
    return sanitize_text_columns(pd.DataFrame(rows, columns=columns, index=index))


def show_memory_entry(_: KitState, arguments: MemoryEntryArguments) -> PreformattedText:
    """Show an entry whole."""
    folder, entry = open_memory_store().find_entry(arguments.name)
    body = [f"  {row}" for row in entry.body.split("\n")] if entry.body else []
    return PreformattedText("\n".join([entry.head, *body, f"({entry.guid}, in {folder.path})"]))


def add_memory_entry(kit: KitState, arguments: MemoryAddArguments) -> PreformattedText:
    """Add a memory entry for this folder, or change the entry of that name.

    Args:
        arguments: description, and optionally name, type and text of the entry.

    Returns:
        A sentence that names the entry.

    Raises:
        BadArguments: there is no description.
    """
    from ctxkit.policies.memory_entries import make_entry_name

    if not arguments.description.strip():
        raise BadArguments(
            "Say what is to be remembered: `%memory add Use pytest -q. --type feedback`."
        )
    description = arguments.description.strip()
    fresh = make_entry(
        arguments.name or make_entry_name(description) or description,
        description,
        arguments.type,
        _get_body(kit, arguments.body),
    )
    entry = open_memory_store().add(fresh, home=1 if arguments.fuseraft else 0)
    return PreformattedText(f"Remembered {entry.head}")


def edit_memory_entry(kit: KitState, arguments: MemoryEditArguments) -> PreformattedText:
    """Change an entry.

    Args:
        arguments: name of the entry, and what is to change.

    Returns:
        A sentence that names the entry.

    Raises:
        BadArguments: nothing is to change, or there is no such entry.
    """
    values = {
        "name": arguments.rename,
        "description": arguments.description,
        "type": arguments.type,
    }
    changes = {k: v for k, v in values.items() if v is not None}
    if arguments.body is not None:
        changes["body"] = _get_body(kit, arguments.body)
    if not changes:
        raise BadArguments("Say what is to change: --description, --type, --body or --rename.")
    return PreformattedText(f"Changed {open_memory_store().edit(arguments.name, **changes).head}")


def forget_memory_entry(_: KitState, arguments: MemoryEntryArguments) -> PreformattedText:
    """Delete an entry; later extractions do not add it again."""
    return PreformattedText(
        f"Forgot {sanitize_line(open_memory_store().forget(arguments.name).name, 120)}."
    )


def show_memory_entry_history(_: KitState, arguments: MemoryEntryArguments) -> PreformattedText:
    """Show who saved an entry, when, and from which messages of which session."""
    entry, rows = open_memory_store().get_audit_rows(arguments.name)
    lines = [entry.head]
    for row in rows:
        parts = [f"{row.get('time')} {row.get('what')} by {row.get('by')}"]
        parts += [f"in session {row['session']}"] if row.get("session") else []
        parts += [f"at its {row['why']}"] if row.get("why") else []
        ids = row.get("messages") if isinstance(row.get("messages"), list) else []
        parts += [f"from {', '.join(map(str, ids))}"] if ids else []
        lines.append(sanitize_line(", ".join(parts), 400))
    return PreformattedText(
        "\n".join(lines if rows else [*lines, "Nobody noted who saved it: a person may have."])
    )


def extract_memory_entries(kit: KitState, arguments: LiveSessionArguments) -> PreformattedText:
    """Extract memory entries from the session: by its model, else by patterns."""
    from ctxkit.agent.event_loop_threads import run_coroutine

    live = kit.lives.get(arguments.session)
    kit.lives.check_idle(live.name)
    entries, cost = run_coroutine(live.remember())
    names = ", ".join(sanitize_line(e.name, 60) for e in entries)
    summary = f"Remembered {len(entries)}: {names}." if entries else "Nothing new to remember."
    return PreformattedText(summary + (f" {cost}" if cost else ""))


def prune_surplus_extracted_memory_entries(
    _: KitState,
    arguments: EmptyArguments,  # noqa: ARG001  the shape of a subcommand
) -> PreformattedText:
    """Delete extracted entries above the limits; entries that a person wrote stay."""
    from ctxkit.agent.memory.session_memory import EXTRACTED_BY

    gone = open_memory_store().consolidate(EXTRACTED_BY)
    lines = [sanitize_line(f"Forgot {entry.name}: {why}.", 300) for entry, why in gone]
    return PreformattedText("\n".join(lines or ["Nothing is too much."]))


def _get_body(kit: KitState, words: str) -> str:
    value = kit.shell.user_ns.get(words) if words.isidentifier() else None
    return value if isinstance(value, str) else words


MEMORY_SUBCOMMANDS = {
    s.name: s
    for s in (
        Subcommand(
            LIST_SUBCOMMAND, "What is remembered here.", MemoryListArguments, list_memory_entries
        ),
        Subcommand("show", "An entry, whole.", MemoryEntryArguments, show_memory_entry),
        Subcommand("add", "Remember something.", MemoryAddArguments, add_memory_entry),
        Subcommand("edit", "Change an entry.", MemoryEditArguments, edit_memory_entry),
        Subcommand("forget", "Remove an entry.", MemoryEntryArguments, forget_memory_entry),
        Subcommand(
            "why",
            "Who saved an entry, when, from which messages.",
            MemoryEntryArguments,
            show_memory_entry_history,
        ),
        Subcommand(
            "consolidate",
            "Remove extracted entries that repeat others or pass the limits.",
            EmptyArguments,
            prune_surplus_extracted_memory_entries,
        ),
        Subcommand(
            "extract",
            "Take what is worth remembering from a session.",
            LiveSessionArguments,
            extract_memory_entries,
        ),
    )
}
