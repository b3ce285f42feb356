"""What a run leaves behind: compactions that were kept or held back, events of a policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ctxkit.history import History

if TYPE_CHECKING:
    from ctxkit.history import Step
    from ctxkit.messages import Edit

_replace = msgspec.structs.replace


class Kept(msgspec.Struct, frozen=True):
    """A compaction that happened: before which call, and the history without and with it."""

    call: int
    was: History
    new: History
    trigger: str
    by: str = ""
    """What did it, where that is not the policy of the rules."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """The verbs that did it."""
        return self.new.steps

    @property
    def before(self) -> int:
        """Tokens of the prompt without it."""
        return self.was.tokens

    @property
    def after(self) -> int:
        """Tokens of the prompt with it, before any pruning."""
        return self.new.tokens

    @property
    def messages_before(self) -> int:
        """Messages shown without it."""
        return len(self.was)

    @property
    def messages_after(self) -> int:
        """Messages shown with it."""
        return len(self.new)

    @property
    def edits(self) -> tuple[Edit, ...]:
        """What it did as edits that a session can hold; made when asked for."""
        return tuple(_replace(e, trigger=self.trigger) for e in self.new.edits)


class Held(NamedTuple):
    """A compaction that was due and did not happen."""

    call: int
    guard: str
    """What held it back or refused its result; the policy itself where it failed."""
    why: str

    @property
    def said(self) -> str:
        """The same in words for a person."""
        return self.why if self.why.startswith("held back: ") else f"{self.guard}: {self.why}"


class HookEvent(NamedTuple):
    """The start or the end of a policy's work, for hooks and logs."""

    kind: str
    """`start` or `end`."""
    call: int
    policy: str
    messages: int
    tokens: int
    outcome: str = ""
    """At the end: `compacted`, `nothing`, `refused` or `failed`."""
    error: str | None = None
