"""What a call was billed, why it ended and which tools it was offered, as the APIs say it."""

from __future__ import annotations

from typing import Any

from ctxkit.messages import ToolSchema, Usage
from ctxkit.readers.fields import as_text, items, mapping, number, text, word


def uncached(whole: int | None, *cached: int | None) -> int | None:
    """Return an input without the cached tokens in it; where they are more, it never held them."""
    held = sum(n or 0 for n in cached)
    return whole if whole is None or held > whole else whole - held


def whole_usage(
    whole: int | None, read: int | None, write: int | None, output: int | None, **more: Any
) -> Usage:
    """Return a usage whose input held the cached tokens; `more` are its other fields."""
    return Usage(
        input_tokens=uncached(whole, read, write),
        cache_read_tokens=read,
        cache_write_tokens=write,
        output_tokens=output,
        **more,
    )


def to_usage(raw: Any, cost_usd: float | None = None) -> Usage | None:
    """Return a usage object of an OpenAI-like API in disjoint classes; None where it says nothing.

    `prompt_tokens` (Chat Completions, LiteLLM) and `input_tokens` (Responses, LangChain) hold the
    cached tokens too; `input_tokens` beside `cache_read_input_tokens` (Anthropic) does not.
    """
    raw = mapping(raw)
    if not raw:
        return None if cost_usd is None else Usage(cost_usd=cost_usd)
    whole = _first(raw, "prompt_tokens", "promptTokens", "input_tokens")
    detail = mapping(
        raw.get("prompt_tokens_details")
        or raw.get("input_tokens_details")
        or raw.get("input_token_details")
    )
    read = _first(detail, "cached_tokens", "cache_read")
    write = _first(detail, "cache_creation_tokens", "cache_write_tokens", "cache_creation")
    if read is None:
        read = _first(
            raw,
            "cache_read_input_tokens",
            "prompt_cache_hit_tokens",
            "cache_read_tokens",
            "cached_tokens",
        )
    if write is None:
        write = _first(raw, "cache_creation_input_tokens", "cache_write_tokens")
    apart = "prompt_tokens" not in raw and "cache_read_input_tokens" in raw and not detail
    spoken = mapping(
        raw.get("completion_tokens_details")
        or raw.get("output_tokens_details")
        or raw.get("output_token_details")
    )
    return Usage(
        input_tokens=whole if apart else uncached(whole, read, write),
        cache_read_tokens=read,
        cache_write_tokens=write,
        output_tokens=_first(raw, "completion_tokens", "completionTokens", "output_tokens"),
        reasoning_tokens=_first(spoken, "reasoning_tokens", "reasoning"),
        cost_usd=cost_usd,
    )


_STOPS = {
    **dict.fromkeys(("tool_calls", "tool_call", "function_call", "tool_use"), "tool"),
    "end_turn": "stop",
    "max_tokens": "length",
}


def to_stop(raw: Any) -> str | None:
    """Return why a reply ended, in our words where there is one."""
    said = text(raw)
    return _STOPS.get(said, said[:40]) or None


def _first(raw: dict[str, Any], *keys: str) -> int | None:
    for key in keys:
        value = raw.get(key)
        if value is not None and (n := number(value)) is not None:
            return n
    return None


def to_schemas(raw: Any) -> tuple[ToolSchema, ...]:
    """Return tool definitions (OpenAI, Anthropic or flat) with the size of their JSON."""
    out = []
    for tool in items(raw):
        inner = mapping(mapping(tool).get("function")) or mapping(tool)
        name = word(inner.get("name")) or word(inner.get("title"))
        if name:
            schema = mapping(
                inner.get("parameters") or inner.get("input_schema") or inner.get("inputSchema")
            )
            said = text(inner.get("description"))
            out.append(
                ToolSchema(name=name, description=said, parameters=schema, chars=len(as_text(tool)))
            )
    return tuple(out)
