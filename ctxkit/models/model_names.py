"""Models by name: `scripted/NAME` (the default), `local/PATH`, and all that LiteLLM knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import msgspec

from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.models.lookups import Lookup
from ctxkit.models.scripted import Scripted, turns_of
from ctxkit.models.scripts import SCRIPTS, script

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.models.model import Model
    from ctxkit.tokens import Counter

DEFAULT = "scripted/tour"
LOOKUP = "ports"
"""A scripted model without a script: it answers from what it is shown (`models.lookups`)."""
SCRIPT_WINDOW = 16_000
"""Window of the shipped scripts, so small that the long one is compacted several times."""


def model(
    name: str,
    *,
    counter: Counter,
    clock: Callable[[], float],
    scripts: dict[str, Any] | None = None,
    **options: Any,
) -> Model:
    """Return a model by its name.

    Args:
        name: `scripted` or `scripted/NAME`; `local` or `local/PATH`; else LiteLLM's name for a
            provider's model, with options after a question mark where there are any:
            `ollama_chat/qwen3:4b?num_ctx=8192&temperature=0`.
        counter: counts for the scripted model.
        clock: seconds since 1970.
        scripts: sessions of the user's own by name, of which `scripted/NAME` replays the replies.
        options: passed to the provider (`api_base`, `temperature`, `server_edits`,
            `context_window`, ...).

    Raises:
        BadArguments: the name is empty, holds a key, or is of a script that does not exist.
        ModelError: there is no local model.
    """
    kind, _, rest = name.strip().partition("/")
    if not kind:
        raise BadArguments(
            "Name a model, for instance scripted/tour or anthropic/claude-sonnet-4-5."
        )
    if kind == "scripted":
        return _scripted(rest or "tour", counter, clock, scripts or {})
    if kind == "local":
        from ctxkit.models.local import Local

        return Local(rest or None, **options)
    name, _, query = name.strip().partition("?")
    return _provider(name, {**_asked(query), **options})


def _asked(query: str) -> dict[str, Any]:
    """Return the options that stand after a model's name; numbers become numbers."""
    out: dict[str, Any] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if "key" in key.lower() or key.lower() == "token":
            raise BadArguments(
                "A key does not belong in a model's name: set the provider's environment variable."
            )
        try:
            out[key] = msgspec.json.decode(value)
        except msgspec.DecodeError:
            out[key] = value
    return out


def _scripted(
    name: str, counter: Counter, clock: Callable[[], float], own: dict[str, Any]
) -> Scripted:
    if name in own:
        turns, window = turns_of(own[name].messages), None
    elif name in SCRIPTS:
        turns, window = script(name).turns, SCRIPT_WINDOW
    elif name == LOOKUP:
        return Lookup(name=name, counter=counter, context_window=SCRIPT_WINDOW, clock=clock)
    else:
        known = [*SCRIPTS, LOOKUP, *own]
        raise BadArguments(
            f"There is no script {name!r}; there are {', '.join(known)}.{did_you_mean(name, known)}"
        )
    return Scripted(turns, name=name, counter=counter, clock=clock, context_window=window)


def _window(name: str, options: dict[str, Any]) -> int | None:
    """Return the window that a server of the user's own tells, or None."""
    if not (base := options.get("api_base")):
        return None
    from ctxkit.models.served import served_window

    return served_window(str(base), name.partition("/")[2])


def _provider(name: str, options: dict[str, Any]) -> Model:
    from ctxkit.models.provider import Provider
    from ctxkit.prices import context_limit

    names = ("attempts", "cache_marks", "server_edits", "context_window", "silence", "pictures")
    own = {k: options.pop(k) for k in names if k in options}
    if "context_window" not in own:  # what Ollama allocates is the limit
        own["context_window"] = (
            options.get("num_ctx") or _window(name, options) or context_limit(name)
        )
    return Provider(name, options=options, **own)
