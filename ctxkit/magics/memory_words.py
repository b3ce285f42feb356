"""The memory of a session from the words that name it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.display.markup import line
from ctxkit.errors import BadArguments, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ctxkit.agent.remembering import SessionMemory
    from ctxkit.memory import Memories
    from ctxkit.models.model import Model

ON, OFF, LOCAL, DIGEST, MODEL = "on", "off", "local", "digest", "model"
WORDS = (ON, OFF, LOCAL, DIGEST, MODEL)


def memories() -> Memories:
    """Return what is remembered for the working folder."""
    from ctxkit.agent.remembering import homes
    from ctxkit.memory import Memories

    return Memories(homes())


def known_words(words: str, names: Mapping[str, Any]) -> list[str]:
    """Return the words that name a memory, one by one.

    Raises:
        BadArguments: a word is none, and no variable holds a provider of that name.
    """
    from ctxkit.agent.remembering import MemoryProvider

    asked = [w.strip() for w in words.split(",") if w.strip()]
    for word in asked:
        held = names.get(word)
        if word not in WORDS and not isinstance(held, (MemoryProvider, dict)):
            raise BadArguments(
                f"There is no memory {line(word, 60)!r}: it is {', '.join(WORDS)}, or a variable"
                f" that holds a webhook (ctxkit.memory.Webhook).{did_you_mean(word, WORDS)}"
            )
    if OFF in asked and len(asked) > 1:
        raise BadArguments("`off` stands alone: it says that nothing is remembered.")
    return asked


def remembering(words: str, model: Model, names: Mapping[str, Any]) -> SessionMemory | None:
    """Return the memory that words name; None: nothing is remembered.

    Raises:
        BadArguments: a word names none.
    """
    from ctxkit.agent.remembering import LocalMemory, SessionMemory, provider_of
    from ctxkit.memory import Budgets

    asked = known_words(words, names)
    if asked == [OFF] or (not asked and model.notice.startswith("scripted")):
        return None
    held = memories()
    providers: list[Any] = []
    for word in asked:
        found = names.get(word)
        if word in (LOCAL, DIGEST):
            providers.append(LocalMemory(held, Budgets() if word == DIGEST else None))
        elif word not in (ON, MODEL):
            providers.append(provider_of(found, held) if isinstance(found, dict) else found)
    whole = ON in asked or set(asked) <= {MODEL}
    return SessionMemory(held, providers, whole=whole, by_model=MODEL in asked)
