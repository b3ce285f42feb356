"""The files of a recorded team as they stood at each turn, as far as its own calls wrote them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.errors import StoreError
from ctxkit.teams.handoffs import SUMMARY_FILE
from ctxkit.texts.contents import path
from ctxkit.tools.tool_names import writes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ctxkit.messages import Message, ToolCall

_WHOLE = ("content", "file_text", "text")
_PARTS = (("old", "new"), ("old_string", "new_string"), ("old_str", "new_str"))
"""Arguments that hold a file's whole text, and those that hold what is put in the place of what."""


class PastFiles:
    """Reads like a team's folder, and holds what its agents wrote so far."""

    def __init__(self, folder: str = "") -> None:
        self._texts: dict[str, str] = {}
        self._folder = folder.rstrip("/") + "/" if folder else ""

    def take(self, messages: Iterable[Message]) -> None:
        """Write what the calls of a turn wrote."""
        asked: dict[str | None, ToolCall] = {}
        for m in messages:
            asked |= {c.id: c for c in m.tool_calls}
            call = asked.get(m.call_id) if m.role == "tool" and not m.is_error else None
            if call is not None:
                self._write(call)

    def read(self, name: str, most: int) -> bytes:
        """Return the text of a file.

        Raises:
            StoreError: no call wrote it whole.
        """
        text = self._texts.get(self._plain(name))
        if text is None:
            raise StoreError(f"No call of the record wrote {name!r} whole.")
        return text.encode()[:most]

    def _write(self, call: ToolCall) -> None:
        given = call.arguments
        whole = next((v for k in _WHOLE if isinstance(v := given.get(k), str)), None)
        if call.name == "session_context_write" and whole is not None:
            self._texts[SUMMARY_FILE] = whole
            return
        name = self._plain(path(call))
        if not name or not writes(call.name):
            return
        if whole is not None:
            self._texts[name] = whole
        for old, new in _PARTS:
            before, after = given.get(old), given.get(new)
            if name in self._texts and isinstance(before, str) and isinstance(after, str):
                self._texts[name] = self._texts[name].replace(before, after, 1)

    def _plain(self, name: str) -> str:
        return name.replace("\\", "/").removeprefix(self._folder).removeprefix("./")
