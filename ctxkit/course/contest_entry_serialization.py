"""Contest entries as data: rules that a file can hold, and the files of a contest.

Only parts of the kit and plain settings (numbers, words, lists) are written. Nothing that a file
holds is executed: a part is looked up by its name among the kit's policies, triggers and guards.
"""

from __future__ import annotations

import getpass
import os
import re
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit._internal.safe_files import SafeFolder
from ctxkit.errors import BadArguments, CtxkitError, short_repr
from ctxkit.policies import guards, triggers
from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.guards import BaseGuard
from ctxkit.policies.policy_base_and_chains import BasePolicy, Chain
from ctxkit.policies.registry import MEMBERS
from ctxkit.policies.triggers import BaseTrigger
from ctxkit.presets.registry_and_setting_checks import PRESETS, preset, resolve_rules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ctxkit.presets.registry_and_setting_checks import RulesLike


__all__ = [
    "ContestEntryRules",
    "decode_rules",
    "encode_rules",
    "get_notebook_folder",
    "read_entries",
    "store_entry",
]

MAX_FILE_BYTES = 1_000_000
"""Bytes of a file that is read."""
MAX_ENTRIES = 200
"""Entries of one file that are read."""
MAX_FILES = 1_000
"""Files of a folder that are read."""
_SHARED_MODE = 0o644
"""A file of a shared folder is read by the others and written by its owner alone."""
_PARTS = ("policy", "trigger", "pruning", "guards")
_NUMBERS = ("window", "reserve")
_MOST_PARTS = 20
"""Members of one list of parts or settings."""
_DEEPEST = 6
"""Levels of parts within parts."""
_ASKS_A_MODEL = ("summariser", "otherwise", "model", "url")
"""Settings that name who writes a summary: an entry is judged without asking anybody."""


def encode_rules(rules: RulesLike) -> dict[str, Any]:
    """Return rules as plain data: a preset with its settings, or the parts of `Rules`.

    Raises:
        BadArguments: they are no rules, or hold a function, a model or another object that a file
            cannot hold.
    """
    resolved = resolve_rules(rules)
    if not isinstance(resolved, Rules):
        raise BadArguments("Give rules: Rules(policy=..., trigger=...), or the name of a preset.")
    data = _encode_preset(resolved) if resolved.name in PRESETS else None
    return data or _encode_parts(resolved)


def decode_rules(data: object) -> Rules:
    """Return the rules that `encode_rules` wrote.

    Raises:
        BadArguments: the data names a part that the kit does not have, or settings that it refuses.
    """
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise BadArguments("The entry holds no rules.")
    try:
        if "preset" in data:
            settings = data.get("settings", {})
            _check_settings(settings)
            return preset(str(data["preset"]), **_decode_settings(settings))
        if unknown := set(data) - {*_PARTS, *_NUMBERS, "name"}:
            raise BadArguments(f"Rules of an entry have no setting {min(unknown)!r}.")
        parts = {key: _decode_value(data[key], 0) for key in _PARTS if key in data}
        parts |= {key: data[key] for key in _NUMBERS if key in data}
        return Rules(**parts, name=str(data.get("name", "")))
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise BadArguments(f"The entry's rules cannot be made: {error}.") from None


class ContestEntryRules(msgspec.Struct, frozen=True, kw_only=True):
    """One entry as a file has it: rules, and no figures."""

    name: str
    rules: dict[str, Any]
    by: str = ""
    """The user of a shared folder."""


def read_entries(path: Path) -> tuple[ContestEntryRules, ...]:
    """Return the entries of a file, or of all files of a shared folder.

    Args:
        path: a file of one reader, or a folder with a file for each entry.

    Returns:
        The entries, by file name; of a folder at most `MAX_FILES` files are read.

    Raises:
        OSError: the file cannot be read; of a folder such a file is left out.
        msgspec.MsgspecError: it holds something else; of a folder such a file is left out.
    """
    if not path.is_dir():
        return _read_file(path)
    entries: list[ContestEntryRules] = []
    for file in sorted(path.glob("*.json"))[:MAX_FILES]:
        try:
            entries += _read_file(file)
        except (OSError, msgspec.MsgspecError):
            continue
    return tuple(entries)


def store_entry(path: Path, entry: ContestEntryRules) -> None:
    """Write an entry, in the place of one of the same name by the same user.

    Args:
        path: the contest's file, or a folder with one file per entry.
        entry: the entry.

    Raises:
        BadArguments: it cannot be written.
    """
    try:
        if path.is_dir():
            _store_in_folder(path, entry)
        else:
            _store_in_file(path, entry)
    except OSError as error:
        raise BadArguments(
            f"The table cannot be kept in {str(path)!r} ({error.strerror}): name another place, "
            "as in ck.contest('contest.json')."
        ) from None


def get_user_name() -> str:
    """Return the name of the system's user, as it may be in the name of a file."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):
        name = str(os.getuid()) if hasattr(os, "getuid") else "user"
    return re.sub(r"[^\w.-]", "_", name)[:40] or "user"


def get_notebook_folder() -> Path:
    """Return the folder in which the notebook was opened, also where a cell has left it."""
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    return Path(getattr(shell, "starting_dir", "") or Path.cwd())


def _encode_preset(rules: Rules) -> dict[str, Any] | None:
    """Return a preset's name and settings; None where rules were changed since it made them."""
    try:
        settings = {name: _encode_value(value, 0) for name, value in rules.parameters.items()}
        again = preset(rules.name, **_decode_settings(settings))
    except CtxkitError:
        return None
    if again != rules:
        return None
    default = preset(rules.name).parameters
    changed = {n: v for n, v in settings.items() if rules.parameters[n] != default[n]}
    return {"preset": rules.name, "settings": changed}


def _encode_parts(rules: Rules) -> dict[str, Any]:
    data: dict[str, Any] = {"name": rules.name} if rules.name else {}
    # without the summariser that rules lend to their policy
    parts = {"policy": rules.bare} | {name: getattr(rules, name) for name in _PARTS[1:]}
    data |= {name: _encode_value(part, 0) for name, part in parts.items() if part}
    default = Rules()
    data |= {n: getattr(rules, n) for n in _NUMBERS if getattr(rules, n) != getattr(default, n)}
    if decode_rules(data) != rules.but(parameters={}):
        raise BadArguments(
            "These rules have settings that an entry cannot keep: it keeps policy, trigger, "
            "pruning, guards, window and reserve."
        )
    return data


def _encode_value(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (tuple, list, frozenset, set)) and len(value) <= _MOST_PARTS:
        return [_encode_value(each, depth) for each in value]
    name = type(value).__name__
    if is_dataclass(value) and _list_parts().get(name) is type(value) and depth < _DEEPEST:
        settings = {
            f.name: _encode_value(getattr(value, f.name), depth + 1)
            for f in fields(value)
            if f.init and not _is_default(f, getattr(value, f.name))
        }
        _check_settings(settings)
        return {name: settings}
    function = getattr(value, "function", value)
    what = getattr(function, "__name__", None) or short_repr(value)
    raise BadArguments(
        f"An entry is run again by others, and a file holds no code: {what} cannot be entered. "
        "Say it with the kit's policies, triggers and guards; try functions with `contest().tried`."
    )


def _decode_value(value: Any, depth: int) -> Any:
    if isinstance(value, list):
        if len(value) > _MOST_PARTS:
            raise BadArguments(f"A list of an entry holds at most {_MOST_PARTS} parts.")
        return tuple(_decode_value(each, depth) for each in value)
    if not isinstance(value, dict):
        return value
    if len(value) != 1 or depth >= _DEEPEST:
        raise BadArguments("A part of an entry is one name with its settings.")
    ((name, settings),) = value.items()
    if name not in _list_parts():
        raise BadArguments(f"The kit has no part {short_repr(name)} that an entry may name.")
    _check_settings(settings)
    return _list_parts()[name](**_decode_settings(settings, depth + 1))


def _decode_settings(settings: dict[str, Any], depth: int = 0) -> dict[str, Any]:
    return {name: _decode_value(value, depth) for name, value in settings.items()}


def _check_settings(settings: Mapping[str, Any]) -> None:
    if not isinstance(settings, dict) or len(settings) > 2 * _MOST_PARTS:
        raise BadArguments("Settings of an entry are names with values.")
    for name in _ASKS_A_MODEL:
        if settings.get(name) is not None:
            raise BadArguments(
                f"An entry is judged without a model: leave {name!r} at its default."
            )


def _is_default(setting: Any, value: object) -> bool:
    default = setting.default
    if setting.default_factory is not MISSING:
        default = setting.default_factory()
    return type(default) is type(value) and default == value


@cache
def _list_parts() -> dict[str, Any]:
    """Return the kit's policies, triggers and guards by the names of their classes."""
    paths = [path.split(":") for path in MEMBERS.values()]
    classes: list[Any] = [getattr(import_module(f"ctxkit.policies.{m}"), c) for m, c in paths]
    classes += [getattr(module, n) for module in (triggers, guards) for n in module.__all__]
    bases = (BasePolicy, BaseTrigger, BaseGuard)
    parts = [c for c in (*classes, Chain) if isinstance(c, type) and issubclass(c, bases)]
    return {c.__name__: c for c in parts if is_dataclass(c)}


def _read_file(path: Path) -> tuple[ContestEntryRules, ...]:
    if path.is_symlink() or path.stat().st_size > MAX_FILE_BYTES:
        raise OSError(0, "it is a link, or too large")
    entries = msgspec.json.decode(path.read_bytes(), type=list[ContestEntryRules])
    return tuple(entries[:MAX_ENTRIES])


def _store_in_file(path: Path, entry: ContestEntryRules) -> None:
    with SafeFolder.open_or_create(path.parent) as folder, folder.lock():
        try:
            entries = list(_read_file(path))
        except FileNotFoundError:
            entries = []
        except (OSError, msgspec.MsgspecError):
            # what cannot be read is kept beside the new table
            folder.rename(path.name, f"{path.stem}.damaged.json")
            entries = []
        others = [each for each in entries if each.name != entry.name]
        folder.write(path.name, (_encode_entries([*others, entry]),))


def _store_in_folder(path: Path, entry: ContestEntryRules) -> None:
    """Write a file of its own, so that users need no right to each other's files."""
    name = f"{entry.by}-{sha256(entry.name.encode()).hexdigest()[:12]}.json"
    with SafeFolder(path.resolve()) as folder:
        folder.write(name, (_encode_entries([entry]),), _SHARED_MODE)
        # a umask that hides new files would hide the entry from the class
        handle = folder.open(name, os.O_RDONLY)
        try:
            if hasattr(os, "fchmod"):
                os.fchmod(handle, _SHARED_MODE)
        finally:
            os.close(handle)


def _encode_entries(entries: list[ContestEntryRules]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(entries), indent=1)
