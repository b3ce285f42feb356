"""Newer prices than the kit came with: taken from an installed LiteLLM, kept in the cache."""

from __future__ import annotations

import re
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.caches import cache_folder
from ctxkit.errors import StoreError
from ctxkit.held_folders import Folder

if TYPE_CHECKING:
    from collections.abc import Mapping

_TABLE = "model_prices_and_context_window_backup.json"
_KEPT = re.compile(
    r"litellm_provider|supports_vision|max_(input|output)_tokens|prompt_cache_min_tokens|"
    r"((input|output)_cost_per_token|cache_read_input_token_cost|"
    r"cache_creation_input_token_cost(_above_1hr)?)(_above_\d+k_tokens)?"
)
"""What is kept of a row; LiteLLM's has seven times as much."""


class Table(msgspec.Struct, frozen=True):
    """Prices and limits by LiteLLM's names of models, each row still undecoded."""

    source: str
    """Which version of LiteLLM they are of."""
    date: str
    """The day on which they were taken from it."""
    rows: dict[str, msgspec.Raw]


def of_litellm(date: str) -> bytes:
    """Return the table of the installed LiteLLM, without running any of it.

    Raises:
        StoreError: it is not installed, or has no such table.
    """
    spec = util.find_spec("litellm")
    path = None if spec is None or spec.origin is None else Path(spec.origin).parent / _TABLE
    if path is None or not path.is_file():
        raise StoreError("LiteLLM is not installed here: pip install 'ctxkit[live]' brings it.")
    rows = msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, Any]])
    kept = {name: row for name, full in sorted(rows.items()) if (row := _row(name, full))}
    table = {"source": f"litellm {metadata.version('litellm')}", "date": date, "rows": kept}
    return msgspec.json.format(msgspec.json.encode(table), indent=0) + b"\n"


def _row(name: str, full: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is kept of a row: nothing where it has no price for both directions."""
    if name == "sample_spec" or None in (
        full.get("input_cost_per_token"),
        full.get("output_cost_per_token"),
    ):
        return {}
    return {k: v for k, v in full.items() if _KEPT.fullmatch(k)}


def kept() -> Path:
    """Return where the user's own table is kept."""
    return cache_folder() / "prices.json"


def keep(data: bytes) -> None:
    """Write the user's own table, whole or not at all.

    Raises:
        StoreError: it cannot be written.
    """
    path = kept()
    try:
        with Folder.own(path.parent) as folder:
            folder.write(path.name, (data,))
    except OSError as e:
        raise StoreError(f"The prices could not be kept in {path.parent} ({e.strerror}).") from None
