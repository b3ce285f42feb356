"""Files to sessions: one file a format, and a catalogue that sniffs by content."""

from __future__ import annotations

from ctxkit.faces import face

_NAMES = {
    **dict.fromkeys(("Reader", "names", "register", "sniff"), "members"),
    **dict.fromkeys(("as_session", "as_sessions"), "given"),
    **dict.fromkeys(("read", "read_all"), "reader_names"),
    "Sessions": "session_list",
    "Source": "source",
}

__all__ = [*_NAMES]  # noqa: PLE0604  names are strings, made above
__getattr__, __dir__ = face(__name__, _NAMES)
