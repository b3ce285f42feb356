"""Threads of raw request bodies: which requests continue which conversation."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.formats.anthropic_compaction import make_raw_key
from ctxkit.formats.claude_code_texts import REMINDER_PREFIX, SUMMARY_PREFIX, WRAPPER_PREFIXES
from ctxkit.formats.untrusted_fields import as_dict, as_list, as_str

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ctxkit.formats.anthropic_compaction import AnthropicConversation

# A request continues the thread whose last request, with its reply, it repeats longest; both
# begin with the same head: what the program added to the prompt, and the first message after it.
# If no thread has that head:
#   - a subagent's request begins a thread, as several may run side by side with the same tools
#   - a request that begins with a summary, or shares a message, continues the thread before it:
#     it was compacted or trimmed
#   - where the index names no part of the program, anything else is a thread of its own
# A thread stores only digests of its messages, so that a comparison costs O(messages).
MAX_THREADS = 1_000
"""Largest number of conversations of a folder; requests that would begin more are left out."""
MAX_NEW_BYTES = 1_000_000_000
"""Bytes of messages, each counted once, that the requests of a folder may hold."""
_AGENT_SOURCE = "agent:"


class BodyThread:
    """One conversation, and the digests of the messages that its next request should repeat."""

    def __init__(self, source: str, conversation: AnthropicConversation) -> None:
        self.source, self.conversation = source, conversation
        self.digests: list[bytes] = []

    def note_reply(self, response: dict[str, Any]) -> None:
        """Add the reply to what the next request should repeat."""
        if as_list(response.get("content")):
            self.digests.append(_digest(make_raw_key({"role": "assistant", **response}))[0])


class BodyThreads:
    """The threads of a folder by session."""

    def __init__(self, open_conversation: Callable[[], AnthropicConversation]) -> None:
        self.by_session: dict[str, list[BodyThread]] = {}
        self.refusal = ""
        """Why the last request had no thread."""
        self._open_conversation = open_conversation
        self._threads = self._new_bytes = 0

    def choose(self, session_id: str, source: str, request: dict[str, Any]) -> BodyThread | None:
        """Return the thread of a request, a new one if need be; None beyond the bounds."""
        messages = request["messages"]
        digests, sizes = [], []
        for raw in messages:
            digest, size = _digest(make_raw_key(raw))
            digests.append(digest)
            sizes.append(size)
        group = self.by_session.get(session_id, [])
        thread = _find_thread([t for t in group if t.source == source], digests, source, messages)
        n_common = _count_common(thread.digests, digests) if thread else 0
        if self._new_bytes + sum(sizes[n_common:]) > MAX_NEW_BYTES:
            self.refusal = f"the messages of the folder exceed {MAX_NEW_BYTES:,} bytes"
            return None
        if thread is None:
            if self._threads >= MAX_THREADS:
                self.refusal = f"a conversation beyond the first {MAX_THREADS:,}"
                return None
            self._threads += 1
            thread = BodyThread(source, self._open_conversation())
            self.by_session.setdefault(session_id, []).append(thread)
        self._new_bytes += sum(sizes[n_common:])
        thread.digests = digests
        return thread


def _find_thread(
    threads: list[BodyThread], digests: list[bytes], source: str, messages: list[Any]
) -> BodyThread | None:
    """Return the thread that a request continues; None: it begins one."""
    is_agent = source.startswith(_AGENT_SOURCE)
    common = [(_count_common(t.digests, digests), t) for t in threads]
    n_common, best = max(common, key=lambda pair: pair[0], default=(0, None))
    if best is not None and n_common >= _count_head(messages):
        is_twin = is_agent and n_common == len(digests) < len(best.digests)
        return None if is_twin else best
    if not threads:
        return None
    if _begins_with_summary(messages):
        return threads[-1]
    if is_agent:
        return None
    request_digests = set(digests)
    sharing = [t for t in threads if not request_digests.isdisjoint(t.digests)]
    return sharing[-1] if sharing else threads[0] if source else None


def _count_head(messages: list[Any]) -> int:
    """Return the number of messages up to the first that the program did not add."""
    return 1 + next((i for i, m in enumerate(messages) if not _is_reminder(m)), 0)


def _is_reminder(raw: Any) -> bool:
    return _first_text(raw).startswith(REMINDER_PREFIX)


def _first_text(raw: Any) -> str:
    content = as_dict(raw).get("content")
    first = next(iter(as_list(content)), None)
    return content if type(content) is str else as_str(as_dict(first).get("text"))


def _count_common(old: list[bytes], new: list[bytes]) -> int:
    """Return the length of the common prefix."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(old), len(new)))


def _digest(key: Any) -> tuple[bytes, int]:
    """Return a digest of a message's key, and the size of the key in bytes."""
    data = msgspec.json.encode(key)
    return blake2b(data, digest_size=16).digest(), len(data)


def _begins_with_summary(messages: list[Any]) -> bool:
    return bool(messages) and _first_text(messages[0]).startswith(SUMMARY_PREFIX)


def split_request_messages(messages: list[Any]) -> list[Any]:
    """Return the messages of a request, with the program's additions to user messages separate.

    Each block of text that begins like a reminder or a command's output is a message of its own.
    """
    return [piece for raw in messages for piece in _split_message(raw)]


def _split_message(raw: Any) -> Iterator[Any]:
    content = as_dict(raw).get("content")
    if as_dict(raw).get("role") != "user" or type(content) is not list or len(content) < 2:
        yield raw
        return
    together: list[Any] = []
    for block in content:
        if as_str(as_dict(block).get("text")).startswith((REMINDER_PREFIX, *WRAPPER_PREFIXES)):
            if together:
                yield {**raw, "content": together}
            together = []
            yield {**raw, "content": [block]}
        else:
            together.append(block)
    if together:
        yield {**raw, "content": together}
