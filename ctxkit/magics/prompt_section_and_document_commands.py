"""`%context` subcommands for prompt sections and the context store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctxkit._internal.formatting_and_sanitizing import sanitize_line
from ctxkit.agent.document_store import (
    STORE_FOLDERS,
    ContextStore,
    describe_skipped_files,
    import_files,
)
from ctxkit.agent.system_prompt import OFF, parse_section_names
from ctxkit.errors import BadArguments
from ctxkit.magics.line_parser import option_field, positional_field, remaining_text_field
from ctxkit.magics.session_report_commands import (
    FILL_TASK,
    EmptyArguments,
    SessionArguments,
    sanitize_text_columns,
)
from ctxkit.magics.subcommand_dispatch import PreformattedText, Subcommand

if TYPE_CHECKING:
    import pandas as pd

    from ctxkit.agent.live_session import LiveSession
    from ctxkit.magics.kernel_sessions import KitState


@dataclass(frozen=True)
class PromptSectionsArguments(SessionArguments):
    """The line of `%context sections`."""

    words: str = remaining_text_field(
        "on, off, names, or what changes: -name, +name; nothing: what they cost"
    )


@dataclass(frozen=True)
class StoreAddArguments:
    """The line of `%context add`."""

    path: str = positional_field("a file, or a folder", completes="path")
    name: str = option_field("what it is called in the store: letters, digits, - and _", default="")
    desc: str = option_field("one line that says what it is, in quotes", default="")
    fuseraft: bool = option_field("keep it in fuseraft's folder", default=False)


@dataclass(frozen=True)
class StoreRemoveArguments:
    """The line of `%context remove`."""

    name: str = positional_field("what it is called in the store")


def show_or_switch_prompt_sections(
    kit: KitState, arguments: PromptSectionsArguments
) -> pd.DataFrame | PreformattedText:
    """Show the cost of each prompt section, or switch sections from the next prompt on."""
    if not arguments.words.strip():
        from ctxkit.experiments.ablations_of_sections_store_and_memory import sections as costs

        table = sanitize_text_columns(costs(kit.session(arguments.session)))
        return table.drop(columns="session").set_index("section")
    session_name = arguments.session or kit.lives.current_name
    if session_name is None or session_name not in kit.lives:
        if arguments.session is not None:
            kit.lives.get(arguments.session)
        names, kit.sections = _switch_sections(arguments.words.strip(), kit.sections)
        return PreformattedText(f"Sections of new sessions: {', '.join(names) or 'none'}.")
    live = kit.lives.get(session_name)
    kit.lives.check_idle(live.name)
    # Instructions are put only into a session that is still empty.
    own = "" if live.session.log else kit.lives.resolver.load_instructions(live.settings)
    names, words = _switch_sections(arguments.words.strip(), live.settings["sections"])
    live.inject(words, own)
    live.settings["sections"] = words
    live.limit(live.agent.limits)  # it is kept with the session
    lines = [f"Sections of {live.name} from the next prompt on: {', '.join(names) or 'none'}."]
    return PreformattedText("\n".join([*lines, *_describe_remaining(live, names)]))


def _switch_sections(words: str, before: str) -> tuple[tuple[str, ...], str]:
    """Return the sections that are on after a change, and words that select exactly these.

    Names with signs change what words before them switched on.
    """
    names = parse_section_names(words, parse_section_names(before))
    # Words with signs depend on those before; then the names themselves are kept.
    alone = words if parse_section_names(words) == names else ",".join(names)
    return names, alone or OFF


def _describe_remaining(live: LiveSession, names: tuple[str, ...]) -> list[str]:
    """Return a sentence on sections that are now off and still in earlier prompts."""
    session = live.session
    if not session.calls:
        return []
    stand = {name for m in session.view() for name, _, _ in m.sections} - set(names)
    if not stand:
        return []
    from ctxkit.experiments.ablations_of_sections_store_and_memory import sections as costs

    table = costs(session).set_index("section")
    tokens, whole = table.loc[sorted(stand), "tokens"].sum(), live.agent.gauge()[0]
    sentences = (
        f"Said already, and kept so that the cache holds: {', '.join(sorted(stand))} "
        f"({tokens:,} tokens a call). Taking it out would have the whole prompt ({whole:,} tokens) "
        "read anew; `%context reset` begins without."
    )
    return [sentences]


def add_store_item(kit: KitState, arguments: StoreAddArguments) -> PreformattedText:  # noqa: ARG001  the shape of a subcommand
    """Import a file or a folder into the context store; documents are stored as text.

    Args:
        arguments: path and optional name and description.

    Returns:
        Sentences on the bytes of text stored, their path, and what was not taken.

    Raises:
        BadArguments: there is no `--name`, or the path is missing or no text or document.
    """
    if not arguments.name:
        raise BadArguments(
            f"Give it a name: `%context add {sanitize_line(arguments.path, 200)} --name N`."
        )
    imported, home = import_files(arguments.path), STORE_FOLDERS[1 if arguments.fuseraft else 0]
    item = ContextStore().put(
        arguments.name, imported.files, source=arguments.path, description=arguments.desc,
        info=imported.info, home=home,
    )  # fmt: skip
    files = "1 file" if len(item.files) == 1 else f"{len(item.files)} files"
    lines = [(f"Kept {files}, {item.size_bytes:,} bytes of text, as {home}/context/{item.name}: "
             "agents see it in their index and read it with read_file.")]  # fmt: skip
    lines += [imported.info[0].upper() + imported.info[1:] + "."] if imported.info else []
    return PreformattedText(
        "\n".join([*lines, *filter(None, [describe_skipped_files(imported.skipped)])])
    )


def remove_store_item(kit: KitState, arguments: StoreRemoveArguments) -> PreformattedText:  # noqa: ARG001  as above
    """Remove an item from the context store."""
    item = ContextStore().remove(arguments.name)
    return PreformattedText(
        f"Removed {item.name} from the context store; where it came from stays as it was."
    )


def list_store_items(kit: KitState, _: EmptyArguments) -> pd.DataFrame:  # noqa: ARG001  as above
    """Return one row per item of the context store: raw size, extracted size, tokens in prompts."""
    import pandas as pd

    from ctxkit.agent.document_store import INDEX_HEADING, format_index_block

    library = ContextStore()
    for fault in library.faults():
        print(f"Note: {fault}")  # noqa: T201  beside the table
    store = library.items()
    infos = (item.extraction_info for item in store.values())
    columns = {
        "path": list(store),
        "files_n": [len(item.files) for item in store.values()],
        "raw_bytes": [item.raw_bytes for item in store.values()],
        "text_bytes": [item.size_bytes for item in store.values()],
        "injected_chars": [
            len(format_index_block({p: item})) - len(INDEX_HEADING) for p, item in store.items()
        ],
        "description": [item.description or "" for item in store.values()],
        "source": [item.source_path for item in store.values()],
        "info": [info if isinstance(info, str) else "" for info in infos],
    }
    names = [path.rsplit("/", 1)[1] for path in store]
    return sanitize_text_columns(
        pd.DataFrame(columns, index=pd.Index(names, name="item", dtype="object"))
    )


SECTION_AND_STORE_SUBCOMMANDS = (
    Subcommand(
        "sections",
        "What each section of the system prompt costs; names with - or + switch them.",
        PromptSectionsArguments,
        show_or_switch_prompt_sections,
        FILL_TASK,
    ),
    Subcommand(
        "store",
        "What the context store holds, with sizes; `add` and `remove` change it.",
        EmptyArguments,
        list_store_items,
        FILL_TASK,
    ),
    Subcommand(
        "add",
        "Keep a file or a folder in the context store.",
        StoreAddArguments,
        add_store_item,
        FILL_TASK,
        hidden=True,
    ),
    Subcommand(
        "remove",
        "Remove an item from the context store.",
        StoreRemoveArguments,
        remove_store_item,
        FILL_TASK,
        hidden=True,
    ),
)
