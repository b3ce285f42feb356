"""A prompt counted by the provider that would be sent it: exact, and for nothing, where it counts.

Anthropic, OpenAI, Gemini and their hosts have an endpoint that counts; LiteLLM knows each, and
tells where it had to count by itself, which is no count of the provider's.
"""

from __future__ import annotations

import asyncio
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from ctxkit.models.chat import to_chat, to_tools

if TYPE_CHECKING:
    from types import ModuleType

    from ctxkit.models.model import Request

SECONDS = 20.0
_LOCAL = "local_tokenizer"


async def provider_count(
    litellm: ModuleType, name: str, request: Request, options: dict[str, Any]
) -> int | None:
    """Return the tokens of a prompt as its provider counts them; None where it does not.

    Args:
        litellm: the module.
        name: LiteLLM's name of the model.
        request: what would be sent.
        options: of which `api_base` and `api_key` are used.
    """
    chat = to_chat(request.messages)
    asked: dict[str, Any] = {"messages": chat, "tools": to_tools(request.tools) or None}
    if "claude" in name or name.startswith("anthropic/"):
        asked = _anthropic(chat, request, name)
    clients = getattr(litellm, "in_memory_llm_clients_cache", None)
    if clients is not None:
        clients.flush_cache()  # one of a loop that has ended may be found by the loop's address
    places = {k: options[k] for k in ("api_base", "api_key") if options.get(k)}
    try:
        async with asyncio.timeout(SECONDS):
            told = await litellm.acount_tokens(model=name, **asked, **places)
    except Exception:  # noqa: BLE001  LiteLLM raises many kinds; without its count there is ours
        return None
    counted = told.tokenizer_type != _LOCAL and not told.error
    return int(told.total_tokens) if counted and told.total_tokens > 0 else None


def _anthropic(chat: list[dict[str, Any]], request: Request, name: str) -> dict[str, Any]:
    """Return a prompt in Anthropic's own shape: LiteLLM's counting takes no other one there."""
    from litellm.litellm_core_utils.prompt_templates.factory import anthropic_messages_pt

    system = "\n\n".join(m["content"] for m in chat if m["role"] == "system")
    said = [m for m in chat if m["role"] != "system"]
    tools = [
        {"name": t.name, "description": t.description, "input_schema": deepcopy(t.parameters)}
        for t in request.tools
    ]
    messages = anthropic_messages_pt(said, model=name, llm_provider="anthropic")
    return {"messages": messages, "system": system or None, "tools": tools or None}
