"""Memory providers: the local store, or a webhook over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ctxkit._internal.formatting_and_sanitizing import sanitize_line, sanitize_text
from ctxkit._internal.redaction import redact
from ctxkit.errors import BadArguments, StoreError
from ctxkit.policies.memory_ranking_and_digests import (
    MAX_BLOCK_CHARS,
    MemoryDigestLimits,
    format_digest,
    format_memory_block,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ctxkit.agent.memory.entry_store import MemoryStore


MAX_ANSWER_BYTES = 1_000_000
"""Bytes of an answer; a longer one is refused."""
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, kw_only=True)
class WebhookMemoryProvider:
    """A memory provider behind HTTP.

    `load_url` gets ``{"agent": name}`` and answers ``{"block": text}``; `save_url` gets
    ``{"agent": name, "history": [{"role", "content"}]}``. Redirects are not followed.

    Example:
        >>> from ctxkit.agent.memory import WebhookMemoryProvider
        >>> hook = WebhookMemoryProvider(load_url="https://memory.example/load", seconds=5)
        >>> hook.seconds, hook.save_every
        (5, 10)
    """

    load_url: str = ""
    """Requested before each turn; empty: never."""
    save_url: str = ""
    """Gets the conversation after turns; empty: never."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Headers of each request; `${NAME}` is an environment variable, empty if it is not set."""
    seconds: float = 10.0
    """Seconds that one request may take in total."""
    save_every: int = 10
    """Turns between two savings of the conversation."""

    def __post_init__(self) -> None:
        for url in filter(None, (self.load_url, self.save_url)):
            if not re.fullmatch(r"https?://[^/\s@?#]+([/?#]\S*)?", url):
                raise BadArguments(
                    "The address of a webhook begins with http:// or "
                    "https://, and holds no password."
                )
        if not (self.load_url or self.save_url) or not 0 < self.seconds <= 600:
            raise BadArguments("A webhook needs a load_url or a save_url, and 0 to 600 seconds.")

    async def before(self, agent: str, prompt: str = "") -> str:  # noqa: ARG002  any provider's shape
        """Return the block for the next turn, cut to `MAX_BLOCK_CHARS` characters.

        Args:
            agent: name of the agent.
            prompt: prompt of the turn.

        Raises:
            StoreError: there was no valid answer; the sentence says why.
        """
        if not self.load_url:
            return ""
        body = await self._request(self.load_url, {"agent": agent})
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            raise StoreError("The memory's webhook answered something that is no JSON.") from None
        block = answer.get("block") if isinstance(answer, dict) else None
        if not isinstance(answer, dict) or "block" not in answer:
            raise StoreError("The memory's webhook answered without a block.")
        if block is None:  # the same as an empty block
            return ""
        if not isinstance(block, str):
            raise StoreError("The memory's webhook gave a block that is no text.")
        note = "" if len(block) <= MAX_BLOCK_CHARS else f"\n(cut to {MAX_BLOCK_CHARS:,} characters)"
        return sanitize_text(block[:MAX_BLOCK_CHARS]).strip() + note

    async def after(self, agent: str, history: Sequence[tuple[str, str]], turns: int) -> bool:
        """Save the conversation every `save_every` turns; return whether it was saved.

        Args:
            agent: name of the agent.
            history: role and text of each message.
            turns: turns so far.

        Raises:
            StoreError: the webhook did not accept it; the sentence says why.
        """
        if not self.save_url or turns % max(1, self.save_every):
            return False
        rows = [{"role": role, "content": redact(text)} for role, text in history]
        await self._request(self.save_url, {"agent": agent, "history": rows})
        return True

    async def _request(self, url: str, body: dict[str, Any]) -> bytes:
        try:
            import httpx  # imported late: it takes far longer than all else in here
        except ModuleNotFoundError:
            raise StoreError(
                "The memory's webhook needs httpx: pip install 'jupyter-ctxkit[live]'."
            ) from None

        headers = {
            k: _check_header(k, expand_variables(v).strip()) for k, v in self.headers.items()
        }
        headers["Accept-Encoding"] = "identity"  # a compressed answer could be a decompression bomb
        try:
            async with asyncio.timeout(self.seconds):
                return await _post_json(url, body, headers)
        except TimeoutError:
            failure = f"did not answer within {self.seconds:g} seconds"
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, OSError) as e:
            failure = f"could not be asked ({sanitize_line(str(e), 120) or type(e).__name__})"
        raise StoreError(f"The memory's webhook {failure}.")


async def _post_json(url: str, body: dict[str, Any], headers: dict[str, str]) -> bytes:
    import httpx

    async with (
        httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=600) as client,
        client.stream("POST", url, json=body, headers=headers) as answer,
    ):
        if not answer.is_success:
            raise StoreError(f"The memory's webhook answered with HTTP {answer.status_code}.")
        if answer.headers.get("content-encoding", "identity") != "identity":
            raise StoreError(
                "The memory's webhook compressed its answer, which it was asked not to do."
            )
        data = bytearray()
        async for piece in answer.aiter_raw(65_536):
            data += piece
            if len(data) > MAX_ANSWER_BYTES:
                raise StoreError(
                    f"The memory's webhook answered with more than {MAX_ANSWER_BYTES:,} bytes."
                )
        return bytes(data)


def _check_header(name: str, value: str) -> str:
    """Return a valid header value; the error for an invalid one does not quote it, as it is a
    secret.
    """
    if value.isascii() and value.replace("\t", " ").isprintable():
        return value
    raise StoreError(
        "The memory's webhook could not be asked: the value of its header "
        f"{sanitize_line(name, 60)} holds "
        "a line break or another sign that a header cannot have."
    )


def expand_variables(text: str) -> str:
    """Return a text with each `${NAME}` replaced by that environment variable, empty if not set."""
    return _VARIABLE.sub(lambda match: os.environ.get(match[1], ""), text)


# A provider is asked for a block before each turn and given the conversation after it.
@runtime_checkable
class MemoryProvider(Protocol):
    """A source of memory: asked for a block before each turn, given the conversation after it."""

    async def before(self, agent: str, prompt: str, /) -> str:
        """Return the block for the next turn.

        Args:
            agent: name of the agent.
            prompt: prompt of the turn.
        """

    async def after(self, agent: str, history: Sequence[tuple[str, str]], turns: int, /) -> bool:
        """Save role and text of each message, after `turns` turns; return whether it did.

        Args:
            agent: name of the agent.
            history: role and text of each message.
            turns: turns of the session so far.
        """


class LocalMemoryProvider:
    """Provider that reads a memory store before each turn (fuseraft's `local`).

    It reads the files every time, as another process may have written some.

    Args:
        memories: the store.
        budgets: limits of a digest that fits the prompt, as Tyrum has it; None: the whole block.

    Example:
        >>> import asyncio, tempfile
        >>> from ctxkit.agent import LocalMemoryProvider, MemoryStore
        >>> store = MemoryStore([tempfile.mkdtemp()], tempfile.mkdtemp())
        >>> asyncio.run(LocalMemoryProvider(store).before("main", "Go on."))
        ''
    """

    def __init__(self, memories: MemoryStore, budgets: MemoryDigestLimits | None = None) -> None:
        self._store, self._budgets = memories, budgets

    async def before(self, _agent: str, prompt: str) -> str:
        """Return the block for the next turn."""
        entries = self._store.entries()
        if self._budgets is None:
            return format_memory_block(entries, prompt)
        return (
            f"## Memory digest\n{format_digest(entries, prompt, self._budgets)}" if entries else ""
        )

    async def after(self, _agent: str, _history: Sequence[tuple[str, str]], _turns: int) -> bool:
        """Save nothing: entries are stored by promotion."""
        return False


def make_memory_provider(config: Mapping[str, Any], memories: MemoryStore) -> MemoryProvider:
    """Return the provider that a `Memory:` section of fuseraft names.

    Args:
        config: the section: `Provider`, and `WebhookMemoryProvider` with its URLs and limits.
        memories: the store for `local`.

    Returns:
        A `LocalMemoryProvider` or a `WebhookMemoryProvider`.

    Raises:
        BadArguments: there is no such provider.
    """
    provider = config.get("Provider", "local")
    if provider == "local":
        return LocalMemoryProvider(memories)
    section = config.get("Webhook")
    if provider != "webhook" or not isinstance(section, dict):
        raise BadArguments(
            f"There is no memory provider {sanitize_line(str(provider), 60)!r}: it is local, or "
            "webhook with a section WebhookMemoryProvider."
        )
    keys = {
        "LoadUrl": "load_url",
        "SaveUrl": "save_url",
        "Headers": "headers",
        "TimeoutSeconds": "seconds",
        "SaveEveryNTurns": "save_every",
    }
    return WebhookMemoryProvider(
        **{keys[k]: v for k, v in section.items() if k in keys and v is not None}
    )
