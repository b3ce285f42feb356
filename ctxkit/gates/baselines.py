"""The baseline of a gate: a JSON file that is kept beside the code and read in a diff."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ctxkit.errors import BadArguments
from ctxkit.gates.readings import Entries, Entry

if TYPE_CHECKING:
    import os

VERSION = 1
"""Of the file; that of the scores stands beside it."""


class Baseline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was measured, and by which kit."""

    gate: int
    scores: int
    ctxkit: str
    entries: dict[str, dict[str, Entry]]


def load(path: str | os.PathLike[str]) -> Entries | None:
    """Return the figures of a baseline; None where there is no file.

    Raises:
        BadArguments: the file is no baseline, or one of another version.
    """
    from ctxkit.sweeps.batches import VERSION as SCORES

    place = Path(path).expanduser()
    try:
        data = place.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise BadArguments(f"The baseline {str(place)!r} cannot be read: {why}.") from None
    again = "--update (update=True) makes it anew."
    try:
        told = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        versions = [msgspec.json.decode(told[n]) for n in ("gate", "scores")]
    except (msgspec.MsgspecError, KeyError, ValueError, RecursionError):
        raise BadArguments(f"{str(place)!r} is no baseline of a gate: {again}") from None
    if versions != [VERSION, SCORES]:
        raise BadArguments(
            f"The baseline {str(place)!r} was made by another version, whose figures mean something"
            f" else (gate {versions[0]}, scores {versions[1]}; here {VERSION}, {SCORES}): {again}"
        )
    try:
        return msgspec.json.decode(data, type=Baseline).entries
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadArguments(f"The baseline {str(place)!r} is damaged ({error}): {again}") from None


def save(path: str | os.PathLike[str], entries: Entries) -> None:
    """Write a baseline, whole or not at all; what it holds of other rules and sessions stays.

    Raises:
        StoreError: it cannot be written.
    """
    from ctxkit.sweeps.batches import VERSION as SCORES
    from ctxkit.writers import save as written

    try:
        kept = load(path) or {}
    except BadArguments:
        kept = {}
    whole = {
        label: {**kept.get(label, {}), **entries.get(label, {})} for label in {**kept, **entries}
    }
    made = Baseline(gate=VERSION, scores=SCORES, ctxkit=version("ctxkit"), entries=whole)
    text = msgspec.json.format(msgspec.json.encode(made, order="sorted"), indent=1)
    written(Path(path).expanduser(), [text, b"\n"])
