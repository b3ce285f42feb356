"""The memory of a session, from the words of `--memory`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit._internal.formatting import sanitize_line
from ctxkit.errors import BadArguments, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ctxkit.agent.memory.folders import MemoryStore
    from ctxkit.agent.memory.session_memory import SessionMemory
    from ctxkit.agent.models.model import Model

ON, OFF, LOCAL, DIGEST, MODEL = "on", "off", "local", "digest", "model"
MEMORY_WORDS = (ON, OFF, LOCAL, DIGEST, MODEL)


def open_memory() -> MemoryStore:
    """Return the memory store of the working folder."""
    from ctxkit.agent.memory.folders import MemoryStore
    from ctxkit.agent.memory.session_memory import default_memory_folders

    return MemoryStore(default_memory_folders())


def parse_memory_option(words: str, names: Mapping[str, Any]) -> list[str]:
    """Split the value of `--memory` into words and check them.

    Raises:
        BadArguments: a word is none, and no variable holds a provider of that name.
    """
    from ctxkit.agent.memory.session_memory import MemoryProvider

    names_of_memory = [w.strip() for w in words.split(",") if w.strip()]
    for word in names_of_memory:
        value = names.get(word)
        if word not in MEMORY_WORDS and not isinstance(value, (MemoryProvider, dict)):
            raise BadArguments(
                f"There is no memory {sanitize_line(word, 60)!r}: it is "
                f"{', '.join(MEMORY_WORDS)}, or a variable"
                f" that holds a webhook (ctxkit.memory.Webhook).{did_you_mean(word, MEMORY_WORDS)}"
            )
    if OFF in names_of_memory and len(names_of_memory) > 1:
        raise BadArguments("`off` stands alone: it says that nothing is remembered.")
    return names_of_memory


def make_session_memory(words: str, model: Model, names: Mapping[str, Any]) -> SessionMemory | None:
    """Return the memory of a session for the words of `--memory`; None: no memory.

    Raises:
        BadArguments: a word names none.
    """
    from ctxkit.agent.memory.session_memory import LocalMemory, SessionMemory, make_memory_provider
    from ctxkit.policies.memory_entries import MemoryDigestBudgets

    selected = parse_memory_option(words, names)
    if selected == [OFF] or (not selected and model.notice.startswith("scripted")):
        return None
    store = open_memory()
    providers: list[Any] = []
    for word in selected:
        value = names.get(word)
        if word in (LOCAL, DIGEST):
            providers.append(LocalMemory(store, MemoryDigestBudgets() if word == DIGEST else None))
        elif word not in (ON, MODEL):
            providers.append(
                make_memory_provider(value, store) if isinstance(value, dict) else value
            )
    whole = ON in selected or set(selected) <= {MODEL}
    return SessionMemory(store, providers, whole=whole, by_model=MODEL in selected)
