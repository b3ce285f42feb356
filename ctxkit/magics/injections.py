"""`%context sections`, `add`, `remove` and `store`: what is put into prompts, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctxkit.display.markup import line
from ctxkit.errors import BadArguments
from ctxkit.injected import chosen
from ctxkit.injected.catalogue import OFF
from ctxkit.library import HOMES, Library
from ctxkit.library.takes import taken, told
from ctxkit.magics.arguments import option, rest, word
from ctxkit.magics.subcommands import Subcommand
from ctxkit.magics.table_commands import Nothing, TableLine, shown
from ctxkit.magics.texts import Page

if TYPE_CHECKING:
    import pandas as pd

    from ctxkit.agent.live import LiveSession
    from ctxkit.magics.kit_state import KitState


@dataclass(frozen=True)
class Switch(TableLine):
    """The line of `%context sections`."""

    words: str = rest("on, off, names, or what changes: -name, +name; nothing: what they cost")


@dataclass(frozen=True)
class Add:
    """The line of `%context add`."""

    path: str = word("a file, or a folder", completes="path")
    name: str = option("what it is called in the store: letters, digits, - and _", default="")
    desc: str = option("one line that says what it is, in quotes", default="")
    fuseraft: bool = option("keep it in fuseraft's folder", default=False)


@dataclass(frozen=True)
class Remove:
    """The line of `%context remove`."""

    name: str = word("what it is called in the store")


def sections(kit: KitState, asked: Switch) -> pd.DataFrame | Page:
    """Say what the sections of a session cost; or switch them from the next prompt on."""
    if not asked.words.strip():
        from ctxkit.worth import sections as costs

        table = shown(costs(kit.session(asked.session)))
        return table.drop(columns="session").set_index("section")
    wanted = asked.session or kit.lives.standing
    if wanted is None or wanted not in kit.lives:
        if asked.session is not None:
            kit.lives.get(asked.session)
        names, kit.sections = _switched(asked.words.strip(), kit.sections)
        return Page(f"Sections of new sessions: {', '.join(names) or 'none'}.")
    live = kit.lives.get(wanted)
    kit.lives.free(live.name)
    own = "" if live.session.log else kit.lives.named.system(live.settings)
    names, words = _switched(asked.words.strip(), live.settings["sections"])
    live.inject(words, own)
    live.settings["sections"] = words
    live.limit(live.agent.limits)  # it is kept with the session
    lines = [f"Sections of {live.name} from the next prompt on: {', '.join(names) or 'none'}."]
    return Page("\n".join([*lines, *_standing(live, names)]))


def _switched(words: str, before: str) -> tuple[tuple[str, ...], str]:
    """Return the sections that are on once words are taken, and words that say so by themselves.

    Names with signs change what words before them switched on.
    """
    names = chosen(words, chosen(before))
    alone = words if chosen(words) == names else ",".join(names)
    return names, alone or OFF


def _standing(live: LiveSession, names: tuple[str, ...]) -> list[str]:
    """Return what must be said of sections that are off now and stand in the session."""
    session = live.session
    if not session.calls:
        return []
    stand = {name for m in session.view() for name, _, _ in m.sections} - set(names)
    if not stand:
        return []
    from ctxkit.worth import sections as costs

    table = costs(session).set_index("section")
    tokens, whole = table.loc[sorted(stand), "tokens"].sum(), live.agent.gauge()[0]
    said = (
        f"Said already, and kept so that the cache holds: {', '.join(sorted(stand))} "
        f"({tokens:,} tokens a call). Taking it out would have the whole prompt ({whole:,} tokens) "
        "read anew; `%context reset` begins without."
    )
    return [said]


def add(kit: KitState, asked: Add) -> Page:  # noqa: ARG001  the shape of a subcommand
    """Keep a file or a folder in the context store; documents are kept as their text."""
    if not asked.name:
        raise BadArguments(f"Give it a name: `%context add {line(asked.path, 200)} --name N`.")
    found, home = taken(asked.path), HOMES[1 if asked.fuseraft else 0]
    item = Library().put(asked.name, found.files, source=asked.path, description=asked.desc,
                         info=found.info, home=home)  # fmt: skip
    files = "1 file" if len(item.files) == 1 else f"{len(item.files)} files"
    lines = [(f"Kept {files}, {item.size_bytes:,} bytes of text, as {home}/context/{item.name}: "
             "agents see it in their index and read it with read_file.")]  # fmt: skip
    lines += [found.info[0].upper() + found.info[1:] + "."] if found.info else []
    return Page("\n".join([*lines, *filter(None, [told(found.left)])]))


def remove(kit: KitState, asked: Remove) -> Page:  # noqa: ARG001  as above
    """Take something out of the context store."""
    item = Library().remove(asked.name)
    return Page(f"Removed {item.name} from the context store; where it came from stays as it was.")


def store(kit: KitState, _: Nothing) -> pd.DataFrame:  # noqa: ARG001  as above
    """Return one row an item of the context store: sizes raw, extracted, and put into prompts."""
    import pandas as pd

    from ctxkit.library import index_block
    from ctxkit.library.block import HEAD

    library = Library()
    for fault in library.faults():
        print(f"Note: {fault}")  # noqa: T201  beside the table
    held = library.items()
    infos = (item.extraction_info for item in held.values())
    columns = {
        "path": list(held),
        "files_n": [len(item.files) for item in held.values()],
        "raw_bytes": [item.raw_bytes for item in held.values()],
        "text_bytes": [item.size_bytes for item in held.values()],
        "injected_chars": [len(index_block({p: item})) - len(HEAD) for p, item in held.items()],
        "description": [item.description or "" for item in held.values()],
        "source": [item.source_path for item in held.values()],
        "info": [info if isinstance(info, str) else "" for info in infos],
    }
    names = [path.rsplit("/", 1)[1] for path in held]
    return shown(pd.DataFrame(columns, index=pd.Index(names, name="item", dtype="object")))


SUBCOMMANDS = (
    Subcommand(
        "sections",
        "What the sections of the prompts cost; with words: switch them.",
        Switch,
        sections,
    ),
    Subcommand(
        "store", "The context store: what is in it, raw, as text, and in prompts.", Nothing, store
    ),
    Subcommand("add", "Keep a file or a folder in the context store.", Add, add),
    Subcommand("remove", "Take something out of the context store.", Remove, remove),
)
