"""A provider's missing key, told before LiteLLM is imported, which takes seconds."""

from __future__ import annotations

import os
import sys
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxkit.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_KEYS = {
    "anthropic": ("ANTHROPIC_API_KEY",),
    "cerebras": ("CEREBRAS_API_KEY",),
    "cohere": ("COHERE_API_KEY",),
    "deepseek": ("DEEPSEEK_API_KEY",),
    "fireworks_ai": ("FIREWORKS_AI_API_KEY",),
    "gemini": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    "groq": ("GROQ_API_KEY",),
    "mistral": ("MISTRAL_API_KEY",),
    "moonshot": ("MOONSHOT_API_KEY",),
    "openai": ("OPENAI_API_KEY",),
    "openrouter": ("OPENROUTER_API_KEY",),
    "perplexity": ("PERPLEXITYAI_API_KEY",),
    "together_ai": ("TOGETHERAI_API_KEY",),
    "xai": ("XAI_API_KEY",),
}
"""Variables of which a provider needs one, as `litellm.validate_environment` has them."""
_OTHERS = {
    "anthropic": ("ANTHROPIC_AUTH_TOKEN",),
    "fireworks_ai": ("FIREWORKS_API_KEY", "FIREWORKSAI_API_KEY", "FIREWORKS_AI_TOKEN"),
}
"""Variables that do as well, and are not what a newcomer sets."""


def at_hand() -> list[str]:
    """Return the variables of known providers that are set; what they hold is not looked at."""
    every = [key for table in (_KEYS, _OTHERS) for keys in table.values() for key in keys]
    return sorted(key for key in every if os.environ.get(key))


def check(name: str, options: Mapping[str, Any]) -> None:
    """Refuse a model whose provider has no key, as far as that can be said without LiteLLM.

    Nothing is said of providers that are not in the table, of an address or a key given by hand,
    where LiteLLM is imported already (it may have been told a key), and where a `.env` file lies
    that it would read.

    Args:
        name: LiteLLM's model string.
        options: what it is called with.

    Raises:
        ModelError: no key; the sentence names the variable to set.
    """
    if options.get("api_key") or options.get("api_base") or "litellm" in sys.modules:
        return
    provider = _provider(name)
    keys = _KEYS.get(provider, ())
    if any(k in os.environ for k in (*keys, *_OTHERS.get(provider, ()))):
        return
    if keys and not _has_env_file():
        raise ModelError(needed(name, keys))


def needed(name: str, keys: Iterable[str]) -> str:
    """Return the sentence that asks for a key."""
    return f"{name} needs a key: set the environment variable {' or '.join(keys)}."


def _provider(name: str) -> str:
    head, slash, _ = name.partition("/")
    if slash:
        return head
    from ctxkit.prices import price

    known = price(name)
    return (known.provider if known else None) or ""


def _has_env_file() -> bool:
    """Say whether LiteLLM would find a `.env` to read keys from.

    It looks above the working folder, or above itself.
    """
    spec = util.find_spec("litellm")
    starts = [Path.cwd(), *([Path(spec.origin).parent] if spec and spec.origin else [])]
    return any((folder / ".env").exists() for s in starts for folder in (s, *s.parents))
