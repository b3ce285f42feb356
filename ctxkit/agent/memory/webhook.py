"""Memory behind an HTTP webhook: load a block before turns, save the conversation after."""

from __future__ import annotations

import asyncio
import json
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ctxkit._internal.formatting import sanitize_line, sanitize_text
from ctxkit._internal.redaction import redact
from ctxkit.errors import BadArguments, StoreError
from ctxkit.policies.memory_entries import MAX_BLOCK_CHARS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_ANSWER_BYTES = 1_000_000
"""Of an answer; a longer one is none."""
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, kw_only=True)
class Webhook:
    """An endpoint that remembers.

    `load_url` is sent ``{"agent": name}`` and answers ``{"block": text}``; `save_url` is sent
    ``{"agent": name, "history": [{"role", "content"}]}``.
    """

    load_url: str = ""
    """Asked before each turn; empty: never."""
    save_url: str = ""
    """Told after turns; empty: never."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Of each request; `${ENV}` stands for a variable of the environment, empty where missing."""
    seconds: float = 10.0
    """How long a request may take, all in all."""
    save_every: int = 10
    """Turns after which the talk is saved."""

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
        """Return the block for the next turn; of a long one the beginning.

        Raises:
            StoreError: it was not given; the sentence says why.
        """
        if not self.load_url:
            return ""
        body = await self._asked(self.load_url, {"agent": agent})
        try:
            told = json.loads(body)
        except (ValueError, RecursionError):
            raise StoreError("The memory's webhook answered something that is no JSON.") from None
        block = told.get("block") if isinstance(told, dict) else None
        if not isinstance(told, dict) or "block" not in told:
            raise StoreError("The memory's webhook answered without a block.")
        if block is None:  # as an empty one: nothing is remembered
            return ""
        if not isinstance(block, str):
            raise StoreError("The memory's webhook gave a block that is no text.")
        cut = "" if len(block) <= MAX_BLOCK_CHARS else f"\n(cut to {MAX_BLOCK_CHARS:,} characters)"
        return sanitize_text(block[:MAX_BLOCK_CHARS]).strip() + cut

    async def after(self, agent: str, history: Sequence[tuple[str, str]], turns: int) -> bool:
        """Save the talk where it is due; return whether it was.

        Args:
            agent: who talked.
            history: role and text of each message.
            turns: turns so far.

        Raises:
            StoreError: it was not taken; the sentence says why.
        """
        if not self.save_url or turns % max(1, self.save_every):
            return False
        told = [{"role": role, "content": redact(text)} for role, text in history]
        await self._asked(self.save_url, {"agent": agent, "history": told})
        return True

    async def _asked(self, url: str, body: dict[str, Any]) -> bytes:
        try:
            import httpx  # a hundred times what it takes to rank entries
        except ModuleNotFoundError:
            raise StoreError(
                "The memory's webhook needs httpx: pip install 'jupyter-ctxkit[live]'."
            ) from None

        headers = {
            k: _check_header(k, expand_variables(v).strip()) for k, v in self.headers.items()
        }
        headers["Accept-Encoding"] = "identity"  # what is packed may be a bomb
        try:
            async with asyncio.timeout(self.seconds):
                return await _post_json(url, body, headers)
        except TimeoutError:
            said = f"did not answer within {self.seconds:g} seconds"
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, OSError) as e:
            said = f"could not be asked ({sanitize_line(redact(str(e)), 120) or type(e).__name__})"
        raise StoreError(f"The memory's webhook {said}.")


async def _post_json(url: str, body: dict[str, Any], headers: dict[str, str]) -> bytes:
    import httpx

    async with (
        httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=600) as client,
        client.stream("POST", url, json=body, headers=headers) as answer,
    ):
        if not answer.is_success:
            raise StoreError(f"The memory's webhook answered with HTTP {answer.status_code}.")
        if answer.headers.get("content-encoding", "identity") != "identity":
            raise StoreError("The memory's webhook packed its answer, which it was asked not to.")
        data = bytearray()
        async for piece in answer.aiter_raw(65_536):
            data += piece
            if len(data) > MAX_ANSWER_BYTES:
                raise StoreError(
                    f"The memory's webhook answered with more than {MAX_ANSWER_BYTES:,} bytes."
                )
        return bytes(data)


def _check_header(name: str, value: str) -> str:
    """Return the value of a header; the sentence that refuses it does not hold it."""
    if value.isascii() and value.replace("\t", " ").isprintable():
        return value
    raise StoreError(
        "The memory's webhook could not be asked: the value of its header "
        f"{sanitize_line(name, 60)} holds "
        "a line break or another sign that a header cannot have."
    )


def expand_variables(text: str) -> str:
    """Return a text with the environment's variables for `${NAME}`; empty where missing."""
    return _VARIABLE.sub(lambda found: os.environ.get(found[1], ""), text)
