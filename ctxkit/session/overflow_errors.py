"""Recognition of context-overflow and rate-limit errors of providers by their texts."""

from __future__ import annotations

import re
from typing import NamedTuple

from ctxkit.session.messages import Message  # noqa: TC001  a value in a public signature


class OverflowErrorPattern(NamedTuple):
    """A provider's error text where the prompt is larger than the context window."""

    provider: str
    pattern: str
    """Regular expression; case is ignored."""
    sample: str
    """A text that it matches, for tests and docs."""


OVERFLOW_TEXTS: tuple[OverflowErrorPattern, ...] = (
    OverflowErrorPattern(
        "Anthropic", r"prompt is too long", "prompt is too long: 213462 tokens > 200000 maximum"
    ),
    OverflowErrorPattern(
        "Anthropic 413",
        r"request_too_large|request exceeds the maximum size",
        '413 {"type":"error","error":{"type":"request_too_large","message":"Request exceeds the'
        ' maximum size"}}',
    ),
    OverflowErrorPattern(
        "Bedrock", r"input is too long for requested model", "input is too long for requested model"
    ),
    OverflowErrorPattern(
        "Bedrock Mantle",
        r"prompt tokens \(\d+\) exceed model maximum",
        "prompt tokens (330095) exceed model maximum (278528)",
    ),
    OverflowErrorPattern(
        "OpenAI",
        r"exceeds the context window",
        "Your input exceeds the context window of this model",
    ),
    OverflowErrorPattern(
        "OpenAI-compatible",
        r"exceeds (?:the )?(?:model'?s )?maximum context length(?: of [\d,]+"
        r" tokens?|\s*\([\d,]+\))",
        "Requested token count exceeds the model's maximum context length of 131072 tokens",
    ),
    OverflowErrorPattern(
        "SGLang",
        r"input length.*exceeds.*context length",
        "Input length (265330) exceeds model's maximum context length (262144).",
    ),
    OverflowErrorPattern(
        "Gemini",
        r"input token count.*exceeds the maximum",
        "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)",
    ),
    OverflowErrorPattern(
        "xAI",
        r"maximum prompt length is \d+",
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens",
    ),
    OverflowErrorPattern(
        "Groq",
        r"reduce the length of the messages",
        "Please reduce the length of the messages or completion",
    ),
    OverflowErrorPattern(
        "OpenRouter",
        r"maximum context length is [\d,]+ tokens",
        "This endpoint's maximum context length is 128000 tokens. However, you requested about"
        " 140000 tokens.",
    ),
    OverflowErrorPattern(
        "Poolside",
        r"exceeds (?:the )?maximum allowed input length of [\d,]+ tokens?",
        "Input length 131393 exceeds the maximum allowed input length of 131040 tokens.",
    ),
    OverflowErrorPattern(
        "Together",
        r"input \(\d+ tokens\) is longer than the model'?s context length \(\d+ tokens\)",
        "The input (516368 tokens) is longer than the model's context length (262144 tokens).",
    ),
    OverflowErrorPattern(
        "GitHub Copilot",
        r"token count of [\d,]+ exceeds the limit of [\d,]+",
        "prompt token count of 130001 exceeds the limit of 128000",
    ),
    OverflowErrorPattern(
        "llama.cpp",
        r"exceeds the available context size",
        "the request exceeds the available context size, try increasing it",
    ),
    OverflowErrorPattern(
        "LM Studio",
        r"greater than the context length",
        "tokens to keep from the initial prompt is greater than the context length",
    ),
    OverflowErrorPattern(
        "MiniMax", r"context window exceeds limit", "invalid params, context window exceeds limit"
    ),
    OverflowErrorPattern(
        "Kimi",
        r"exceeded model token limit",
        "Your request exceeded model token limit: 262144 (requested: 291351)",
    ),
    OverflowErrorPattern(
        "Mistral",
        r"too large for model with [\d,]+ maximum context length",
        "Prompt contains 140000 tokens, too large for model with 131072 maximum context length",
    ),
    OverflowErrorPattern(
        "z.ai", r"model_context_window_exceeded", "finish reason: model_context_window_exceeded"
    ),
    OverflowErrorPattern(
        "Ollama",
        r"prompt too long; exceeded (?:max )?context length",
        "prompt too long; exceeded max context length by 100918 tokens",
    ),
    OverflowErrorPattern(
        "vLLM",
        r"this model.?s maximum context length is [\d,]+",
        "This model's maximum context length is 32768 tokens. However, you requested 4096 output"
        " tokens and your prompt contains at least 30000 input tokens, for a total of at least"
        " 34096 tokens.",
    ),
    OverflowErrorPattern(
        "OpenAI code",
        r"context[_ ]length[_ ]exceeded",
        '{"error":{"code":"context_length_exceeded"}}',
    ),
    OverflowErrorPattern(
        "HTTP 413",
        r"(?:request entity|payload|content) too large",
        "Error code: 413 - Request Entity Too Large",
    ),
    OverflowErrorPattern("generic", r"too many tokens", "too many tokens"),
    OverflowErrorPattern("generic", r"token limit exceeded", "token limit exceeded"),
    OverflowErrorPattern(
        "Cerebras", r"^4(?:00|13)\s*(?:status code)?\s*\(no body\)", "413 status code (no body)"
    ),
    OverflowErrorPattern(
        "LiteLLM",
        r"context ?window ?exceeded ?error",
        "litellm.ContextWindowExceededError: too long",
    ),
    OverflowErrorPattern(
        "Fased", r"context overflow:", "Context overflow: prompt too large for the model"
    ),
    OverflowErrorPattern(
        "Tyrum", r"prompt is too large for this model", "Prompt is too large for this model."
    ),
    OverflowErrorPattern("Chinese proxies", r"上下文过长", "上下文过长"),
    OverflowErrorPattern("Chinese proxies", r"上下文超出", "错误：上下文超出限制"),
    OverflowErrorPattern("Chinese proxies", r"上下文长度超", "上下文长度超过模型限制"),
    OverflowErrorPattern("Chinese proxies", r"超出最大上下文", "请求超出最大上下文"),
    OverflowErrorPattern("Chinese proxies", r"请压缩上下文", "请压缩上下文后重试"),
)

# Texts that match a pattern above but are no overflow: they win over it.
NOT_OVERFLOW_TEXTS: tuple[OverflowErrorPattern, ...] = (
    OverflowErrorPattern(
        "Bedrock",
        r"^throttling error:",
        "Throttling error: Too many tokens, please wait before trying again.",
    ),
    OverflowErrorPattern(
        "Bedrock", r"^service unavailable:", "Service unavailable: too many tokens in flight"
    ),
    OverflowErrorPattern(
        "AWS", r"throttl", "ThrottlingException: Too many tokens, please wait before trying again."
    ),
    OverflowErrorPattern("any", r"rate.?limit", "Rate limit reached: too many tokens"),
    OverflowErrorPattern("any", r"too many requests", "429 Too Many Requests"),
    OverflowErrorPattern(
        "any",
        r"tokens per (?:minute|day)|\btp[md]\b",
        "Limit 30000, requested 40000 tokens per minute",
    ),
    OverflowErrorPattern(
        "Fased",
        r"context window (?:is )?too small|minimum is",
        "Model context window too small. Minimum is 16000.",
    ),
    OverflowErrorPattern(
        "Fased", r"reasoning is (?:required|mandatory)", "Reasoning is mandatory for this endpoint."
    ),
)

# Errors about the shape of a prompt, which shorter or fewer tool messages may fix (fuseraft's
# classifiable context errors other than the overflow).
SHAPE_TEXTS: tuple[OverflowErrorPattern, ...] = (
    OverflowErrorPattern(
        "Bedrock, Anthropic",
        r"max_tokens\W+must be greater than\W+(?:thinking\.)?budget_tokens",
        "`max_tokens` must be greater than `thinking.budget_tokens`",
    ),
    OverflowErrorPattern(
        "Anthropic",
        r"tool_use\W+ids? were found without\W+tool_result",
        "messages.3: `tool_use` ids were found without `tool_result` blocks immediately after: t1",
    ),
    OverflowErrorPattern(
        "Anthropic",
        r"unexpected\W+tool_use_id\W+found in\W+tool_result",
        "messages.0.content.0: unexpected `tool_use_id` found in `tool_result` blocks: t1",
    ),
    OverflowErrorPattern(
        "OpenAI",
        r"tool_call_ids? did not have response messages|must be followed by tool messages",
        "An assistant message with 'tool_calls' must be followed by tool messages responding to"
        " each 'tool_call_id'. The following tool_call_ids did not have response messages: call_1",
    ),
    OverflowErrorPattern(
        "OpenAI",
        r"role 'tool' must be a response to a prece+ding message",
        "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
    ),
    OverflowErrorPattern(
        "OpenAI Responses",
        r"no tool (?:call|output) found for function call",
        "No tool output found for function call call_1.",
    ),
    OverflowErrorPattern(
        "Gemini",
        r"number of function response parts",
        "Please ensure that the number of function response parts is equal to the number of"
        " function call parts of the function call turn.",
    ),
    OverflowErrorPattern(
        "Bedrock Converse",
        r"toolResult blocks|tooluse blocks",
        "The number of toolResult blocks at messages.2.content exceeds the number of toolUse blocks"
        " of previous turn.",
    ),
)
_SHAPE = re.compile("|".join(f"(?:{row.pattern})" for row in SHAPE_TEXTS), re.IGNORECASE)

_MAX_SCANNED_CHARS = 20_000
_OVERFLOW = re.compile(
    "|".join(f"(?:{row.pattern})" for row in OVERFLOW_TEXTS), re.IGNORECASE | re.MULTILINE
)
_NOT_OVERFLOW = re.compile(
    "|".join(f"(?:{row.pattern})" for row in NOT_OVERFLOW_TEXTS), re.IGNORECASE | re.MULTILINE
)
_RATE_LIMIT = re.compile(
    r"rate.?limit|too many requests|throttl|tokens per|\btp[md]\b|\b429\b|overloaded|\b529\b",
    re.IGNORECASE,
)


def is_overflow(error: str | BaseException) -> bool:
    """Return whether an error says that the prompt is larger than the model's context window.

    At most the first 20,000 characters are read. Throttling and rate limits never count as
    overflow.

    Args:
        error: the exception, or its text as a log has it.

    Returns:
        True for the overflow texts of the providers in `OVERFLOW_TEXTS`.

    Example:
        >>> is_overflow("prompt is too long: 210000 tokens > 200000 maximum")
        True
        >>> is_overflow("429 Too Many Requests: rate limit reached")
        False
    """
    text = _error_text(error)
    return not _NOT_OVERFLOW.search(text) and bool(_OVERFLOW.search(text))


def is_malformed_prompt(error: str | BaseException) -> bool:
    """Return whether an error names a tool call without its result, or a thinking budget that the
    reply cannot hold: shorter or fewer tool messages may fix it.
    """
    return bool(_SHAPE.search(_error_text(error)))


_WINDOW_PATTERNS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"tokens? > ([\d,]+) maximum",
        r"exceeds? (?:the )?model(?:'s)? max\w*(?: context length)?(?: of)? \(?([\d,]+)",
        r"(?:maximum|max) (?:context|prompt|allowed input) length(?: of| is)? \(?([\d,]+)",
        r"maximum number of tokens allowed \(([\d,]+)\)",
        r"context length(?: of| is)? \(?([\d,]+)",
        r"exceeds the limit of ([\d,]+)",
        r"model token limit: ?([\d,]+)",
        r"model with ([\d,]+) maximum context",
        r"available context size \(([\d,]+)",
        r'"?n_ctx"?[:= ]+([\d,]+)',
        r"context window(?: size)?(?: of| is|:)? \(?([\d,]+)",
    )
)


def parse_window(text: str) -> int | None:
    """Return the context window, in tokens, that an overflow's text names; None if it names none.

    A number below 256 is no window.

    Args:
        text: the text of an overflow error; its first 20,000 characters are read.

    Returns:
        The window in tokens, or None.

    Example:
        >>> parse_window("prompt is too long: 210000 tokens > 200000 maximum")
        200000
    """
    for pattern in _WINDOW_PATTERNS:
        match = pattern.search(text[:_MAX_SCANNED_CHARS])
        if match and (tokens := int(match[1].replace(",", "") or 0)) >= 256:
            return tokens
    return None


def is_rate_limit(error: str | BaseException) -> bool:
    """Return whether an error is a rate limit: a later retry helps, a compaction does not.

    Args:
        error: the exception, or its text as a log has it.

    Returns:
        True where waiting is the cure; False for an overflow, whatever else its text says.

    Example:
        >>> is_rate_limit("429 Too Many Requests: rate limit reached")
        True
    """
    return not is_overflow(error) and bool(_RATE_LIMIT.search(_error_text(error)))


def _error_text(error: str | BaseException) -> str:
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    if text.startswith("litellm.ContextWindowExceededError"):
        # LiteLLM has classified it already; the text that it quotes may match something else
        return "context_length_exceeded"
    return text[:_MAX_SCANNED_CHARS]


def is_silent_overflow(reply: Message, context_window: int) -> bool:
    """Return whether a reply without an error shows that the prompt did not fit.

    Two cases are known (Pi's overflow table): a normal stop whose prompt is larger than the window
    (z.ai), and a stop by length with no output whose prompt fills at least 99 % of it (Xiaomi
    MiMo). A server that silently
    truncates the prompt cannot be detected.

    Args:
        reply: a reply with its usage; without usage the answer is False.
        context_window: the window of its model, in tokens.

    Returns:
        True in the two cases.

    Example:
        >>> from ctxkit.session import Message, Usage
        >>> reply = Message(role="assistant", stop="stop", usage=Usage(input_tokens=130_000))
        >>> is_silent_overflow(reply, 128_000)
        True
    """
    usage = reply.usage
    if usage is None:
        return False
    prompt = (usage.input_tokens or 0) + (usage.cache_read_tokens or 0)
    if reply.stop in ("stop", "end_turn"):
        return prompt > context_window
    return reply.stop == "length" and not usage.output_tokens and prompt >= 0.99 * context_window
