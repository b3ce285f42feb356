"""What the stubs of a prompt name is kept before it goes out; else the result goes whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ctxkit.errors import StoreError
from ctxkit.policies.chain import Joined, applied
from ctxkit.policies.offload import Offload, artifact_named
from ctxkit.schedules import Rows
from ctxkit.texts.contents import hint

if TYPE_CHECKING:
    from ctxkit.engine import Run
    from ctxkit.history import History
    from ctxkit.messages import Message, ToolCall
    from ctxkit.policies.chain import Part

Save = Callable[[str, str, str, str], None]
"""Keeps an artifact (id, text, tool, on what); raises `StoreError` or `OSError` where not."""


class Offloads:
    """Keeps artifacts, each once.

    Args:
        save: None: there is no place for them, so that no result is offloaded.
    """

    def __init__(self, save: Save | None) -> None:
        self._save = save
        self._kept: set[str] = set()

    def settled(self, run: Run, shown: History) -> History:
        """Return what the last call is sent, without stubs that name nothing, else `shown`."""
        call = max(run.call - 1, 0)
        named = {p: name for p, m in enumerate(shown.messages) if (name := artifact_named(m))}
        missing = set(named.values()) - self._kept
        if not missing:
            return shown
        given, rows = _given(run, missing), Rows(run.history.at(call))
        places = {p: rows.place(shown.row(p)) for p in named}
        for p, name in named.items():
            if name in given and name not in self._kept:
                place = places[p]
                asked = None if place is None else rows.asked(place)
                if self._saved(name, given[name], asked):
                    self._kept.add(name)
        sent = list(shown.messages)
        for p, name in named.items():
            if name not in self._kept:  # what no part tells of goes as the history has it
                place = places[p]
                said = sent[p] if place is None else rows.message(place)
                sent[p] = replace(sent[p], parts=given.get(name, said).parts)
        same = all(sent[p] == shown.messages[p] for p in named)
        return shown if same else shown.become(sent, "no artifact could be kept")

    def _saved(self, artifact: str, result: Message, call: ToolCall | None) -> bool:
        if self._save is None:
            return False
        tool = result.tool or (call.name if call else "unknown")
        try:
            self._save(artifact, result.text, tool, hint(call))
        except (StoreError, OSError):
            return False
        return True


def _given(run: Run, wanted: set[str]) -> dict[str, Message]:
    """Return the results that were offloaded at the last call, by their artifacts."""
    found: dict[str, Message] = {}

    def walk(part: Part, view: History) -> History:
        if isinstance(part, Joined):  # each works on what the one before left
            for each in part.parts:
                view = walk(each, view)
            return view
        if isinstance(part, Offload) and wanted - found.keys():
            told = part.artifacts(view.messages)
            found.update({name: told[name] for name in wanted & told.keys()})
        return applied(part, view, run.room)

    if run.rules.pruning is not None:
        walk(run.rules.pruning, run.history.at(max(run.call - 1, 0)))
    return found
