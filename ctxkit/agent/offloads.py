"""What the stubs of a prompt name is kept before the prompt goes out; else the result goes whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ctxkit.errors import StoreError
from ctxkit.policies.chain import applied, in_a_row
from ctxkit.policies.offload import Offload, artifact_named

if TYPE_CHECKING:
    from ctxkit.engine import Run
    from ctxkit.history import History
    from ctxkit.messages import Message

Save = Callable[[str, str], None]
"""Keeps an artifact (its id, its text); raises `StoreError` or `OSError` where it cannot."""


class Offloads:
    """Keeps artifacts, each once.

    Args:
        save: None: there is no place for them, so that no result is offloaded.
    """

    def __init__(self, save: Save | None) -> None:
        self._save = save
        self._kept: set[str] = set()

    def settled(self, run: Run, shown: History) -> tuple[tuple[Message, ...], int]:
        """Return the messages of the last call, without stubs that would name nothing, and its tokens."""
        sent, tokens, log = list(shown.messages), shown.tokens, run.log
        named = {i: name for i, m in enumerate(sent) if (name := artifact_named(m)) is not None}
        missing = set(named.values()) - self._kept
        given = _given(run) if missing else {}
        self._kept.update(n for n in missing if n in given and self._saved(n, given[n].text))
        for i, name in named.items():
            if name not in self._kept and name in given:
                stub, whole = sent[i], given[name]
                same = whole.call_id == stub.call_id
                sent[i] = whole if same else replace(stub, parts=whole.parts)
                tokens += log.measure(sent[i]) - log.measure(stub)
        return tuple(sent), tokens

    def _saved(self, artifact: str, text: str) -> bool:
        if self._save is None:
            return False
        try:
            self._save(artifact, text)
        except (StoreError, OSError):
            return False
        return True


def _given(run: Run) -> dict[str, Message]:
    """Return the results of the last call that may have been offloaded, by their artifacts."""
    pruning = run.rules.pruning
    found: dict[str, Message] = {}
    parts = () if pruning is None else in_a_row(pruning)
    view = run.history.at(max(run.call - 1, 0))
    for part in parts:
        if isinstance(part, Offload):
            found.update(part.artifacts(view.messages))
        view = applied(part, view, run.room)
    return found
