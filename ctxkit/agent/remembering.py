"""Memory in a live session: blocks for its prompts, and what compactions and its end leave behind.

Two blocks are put in, and both may be: the one that was made when the session was opened, and what
providers give before each turn. What is kept is never kept silently: each promotion is told, and
has a row in the audit. No failure of a memory costs a turn.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ctxkit.display.markup import line
from ctxkit.errors import BadArguments, StoreError
from ctxkit.memory import Budgets, Memories, Webhook, digest, memory_block
from ctxkit.messages import INJECTED
from ctxkit.redaction import redact
from ctxkit.store.trust import place
from ctxkit.texts import contents
from ctxkit.texts.lessons import lessons

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ctxkit.memory import MemoryEntry
    from ctxkit.messages import Message
    from ctxkit.session import Session

MOST = 20
"""Entries that one compaction, or the end of a session, leaves behind."""
EXTRACT = "extract"
"""Who saved what was found without a model."""


@runtime_checkable
class MemoryProvider(Protocol):
    """Gives a block before each turn, and is told the talk after it."""

    async def before(self, agent: str, prompt: str, /) -> str:
        """Return the block for the next turn."""

    async def after(self, agent: str, history: Sequence[tuple[str, str]], turns: int, /) -> bool:
        """Take role and text of each message after so many turns; return whether they were kept."""


class LocalMemory:
    """Entries read anew before each turn; another process may have written some (fuseraft's
    `local`).

    Args:
        memories: the entries.
        budgets: a digest within them for what is asked, as Tyrum has it; None: the whole block.
    """

    def __init__(self, memories: Memories, budgets: Budgets | None = None) -> None:
        self._memories, self._budgets = memories, budgets

    async def before(self, _agent: str, prompt: str) -> str:
        """Return the block."""
        held = self._memories.entries()
        if self._budgets is None:
            return memory_block(held, prompt)
        return f"## Memory digest\n{digest(held, prompt, self._budgets)}" if held else ""

    async def after(self, _agent: str, _history: Sequence[tuple[str, str]], _turns: int) -> bool:
        """Keep nothing: what is kept is kept by promotion."""
        return False


class SessionMemory:
    """The memory of one live session.

    Args:
        memories: its entries.
        providers: asked before each turn and told after it, in this order.
        whole: put in the block of entries, made now.
        by_model: the session's model says at its end what is worth remembering.
    """

    def __init__(
        self,
        memories: Memories,
        providers: Iterable[MemoryProvider] = (),
        *,
        whole: bool = True,
        by_model: bool = False,
    ) -> None:
        self.memories, self.providers, self.by_model = memories, tuple(providers), by_model
        self._baked = memory_block(memories.entries()) if whole else ""
        self._fresh: list[str] = []

    def text(self) -> str:
        """Return all blocks for the next prompt; of equal ones, one."""
        return "\n\n".join(dict.fromkeys(filter(None, [self._baked, *self._fresh])))

    async def before(self, agent: str, prompt: str) -> list[str]:
        """Ask the providers; return in sentences what failed, of which nothing is put in."""
        self._fresh, failed = [], []
        for provider in self.providers:
            try:
                self._fresh.append(await provider.before(agent, prompt))
            except Exception as e:  # noqa: BLE001  a provider of the user's may raise anything
                failed.append(_said(provider, e))
        return failed

    async def after(self, agent: str, session: Session) -> list[str]:
        """Tell the providers the talk; return in sentences what failed."""
        failed, said = [], _spoken(session.messages)
        for provider in self.providers:
            try:
                await provider.after(agent, said, len(set(session.turns)))
            except Exception as e:  # noqa: BLE001  as above
                failed.append(_said(provider, e))
        return failed

    def promote(self, session: str, messages: Sequence[Message], why: str) -> list[MemoryEntry]:
        """Keep what messages say that may outlive them; return what is new.

        What was forgotten by hand stays forgotten, and what anybody else wrote stays as it is.

        Args:
            session: id of the session.
            messages: what is about to leave the prompt, or the whole talk.
            why: what ends them: `compaction`, `end`.

        Raises:
            StoreError: it cannot be kept.
        """
        held, rows = self.memories.entries(), self.memories.newest_rows()
        known = {(e.type, e.description) for e in held}
        others = [e for e in held if rows.get(e.guid.casefold(), {}).get("by") != EXTRACT]
        taken = self.memories.forgotten().union(*((e.guid, e.name.casefold()) for e in others))
        found = [(x, x.entry()) for x in lessons(messages)]
        fresh = [(x, e) for x, e in found if (e.type, e.description) not in known]
        wanted = [(x, e) for x, e in fresh if taken.isdisjoint((e.guid, e.name.casefold()))][-MOST:]
        add = partial(self.memories.add, session=session, by=EXTRACT, why=why)
        return [add(e, messages=list(x.sources[:20])) for x, e in wanted]


def homes() -> tuple[Path, Path]:
    """Return the folders of the user's own memory, and of fuseraft's."""
    return place() / "memory" / "repl", Path("~/.fuseraft/memory/repl").expanduser()


def provider_of(config: Mapping[str, Any], memories: Memories) -> MemoryProvider:
    """Return the provider that fuseraft's `Memory:` names.

    Raises:
        BadArguments: it names none that there is.
    """
    named = config.get("Provider", "local")
    if named == "local":
        return LocalMemory(memories)
    told = config.get("Webhook")
    if named != "webhook" or not isinstance(told, dict):
        raise BadArguments(
            f"There is no memory provider {line(str(named), 60)!r}: it is local, or webhook with a "
            "section Webhook."
        )
    keys = {"LoadUrl": "load_url", "SaveUrl": "save_url", "Headers": "headers",
            "TimeoutSeconds": "seconds", "SaveEveryNTurns": "save_every"}  # fmt: skip
    return Webhook(**{keys[k]: v for k, v in told.items() if k in keys and v is not None})


def _spoken(messages: Iterable[Message]) -> list[tuple[str, str]]:
    """Return what the user and the agent said to each other, without keys."""
    spoken = (m for m in messages if m.role in ("user", "assistant") and m.kind != INJECTED)
    return [(m.role, redact(text)) for m in spoken if (text := contents.texts(m)).strip()]


def _said(provider: object, error: Exception) -> str:
    if isinstance(error, StoreError):
        return str(error)
    why = line(redact(str(error)), 200)
    return f"The memory provider {type(provider).__name__} failed ({type(error).__name__}: {why})."
