"""Write docs/systems.md, what each system does, from the presets: `python docs/make_systems.py`."""

from __future__ import annotations

import inspect
import re
import sys
from dataclasses import MISSING, Field, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from ctxkit.policies import triggers as t
from ctxkit.policies.base import Chain, Fallback
from ctxkit.policies.compaction_and_pruning_rules import unwrap_function
from ctxkit.policies.summary_compaction import Summary
from ctxkit.presets.inert_settings import list_inert_settings
from ctxkit.presets.registry_and_setting_checks import names, preset, preset_differences

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "systems.md"
LONGEST_VALUE = 60
"""Characters of a setting's value on the page; of a longer one only the length is shown."""
KEPT = re.compile(
    r"keep|retain|preserve|tail|protect|target|floor|recent|window_size|^n$|restored|user_message"
)
GUARDED = re.compile(
    r"exclude|deny|pin_|identifier|protect|quality|min_|minimum|at_least|paid_back_share|attempts|first_user"
)


def words(trigger: Any, reserve: int = 0) -> str:
    """Say in words when a trigger fires."""
    if isinstance(trigger, (t.Either, t.Both)):
        joined = " or " if isinstance(trigger, t.Either) else " and "
        parts = [words(p, reserve) for p in trigger.parts]
        nested = [
            isinstance(p, (t.Either, t.Both)) and type(p) is not type(trigger)
            for p in trigger.parts
        ]
        return joined.join(
            f"({said})" if inner else said for said, inner in zip(parts, nested, strict=True)
        )
    at = "≥" if getattr(trigger, "or_equal", False) else ">"
    by = " by its own estimate" if getattr(trigger, "estimated", False) else ""
    if isinstance(trigger, t.Above):
        return f"prompt {at} {trigger.limit:,.0f} tokens{by}"
    if isinstance(trigger, t.Share):
        what = "the window" if trigger.of == "limit" else f"the window less {reserve:,}"
        return f"prompt {at} {'' if trigger.share == 1 else f'{trigger.share:.0%} of '}{what}{by}"
    if isinstance(trigger, t.Count):
        return f"≥ {trigger.n} messages{' (' + ', '.join(trigger.roles) + ')' if trigger.roles else ''}"
    if isinstance(trigger, t.Overflow):
        return "after a context error" if trigger.recorded else "prompt > the window"
    if isinstance(trigger, t.Turns):
        return f"{trigger.n} turns after the last"
    if isinstance(trigger, (t.Idle, t.ReplyCutShort)):
        if isinstance(trigger, t.ReplyCutShort):
            what = "reply that was cut off"
        else:
            what = f"pause of {trigger.seconds / 60:g} minutes"
        return f"after a {what}"
    trigger = unwrap_function(trigger)
    said = inspect.getdoc(trigger if inspect.isfunction(trigger) else type(trigger)) or repr(
        trigger
    )
    line = said.split("\n")[0].rstrip(".").replace("Return whether ", "where ")
    return line[:1].lower() + line[1:]


def describe_policy(policy: Any, *, whole: bool = True) -> str:
    """Say what a policy does as it is set: the sentence of its class, then the settings in force.

    Args:
        policy: a policy, pruning or guard, or a chain of them.
        whole: give every setting that is on; without it only the short ones that the preset sets
            otherwise than the class, of which the sentence does not speak.
    """
    if isinstance(policy, (Chain, Fallback)):
        return " Then: ".join(describe_policy(p, whole=whole) for p in policy.parts)
    line = " ".join((inspect.getdoc(type(policy)) or "").split("\n\n")[0].split())
    settings = list_settings_in_force(policy, whole=whole)
    return f"{line.rstrip('.')} ({', '.join(settings)})." if settings else line


def list_settings_in_force(policy: Any, *, whole: bool) -> list[str]:
    """Return the settings that a policy works with, each as `name=value`."""
    out = []
    for name, value, is_default in _read_settings(policy):
        is_short = not is_dataclass(value) and len(repr(value)) <= LONGEST_VALUE
        is_off = value is None or value is False or value in ("", (), "off")
        if (not is_default and (whole or is_short)) or (whole and not is_off):
            out.append(f"`{name}={format_value(value)}`")
    return out


def _read_settings(policy: Any) -> list[tuple[str, Any, bool]]:
    """Return name and value of each setting, and whether the class has it so by default."""
    own = [f for f in fields(policy) if f.init] if is_dataclass(policy) else []
    return [
        (f.name, value := getattr(policy, f.name), repr(value) == repr(_get_default(f)))
        for f in own
    ]


def _get_default(of: Field[Any]) -> Any:
    return of.default if of.default_factory is MISSING else of.default_factory()


def format_value(value: Any) -> str:
    """Return the value of a setting: a part by its class and own settings, a long one by its size."""
    if is_dataclass(value):
        own = ", ".join(
            f"{name}={format_value(v)}" for name, v, default in _read_settings(value) if not default
        )
        return f"{type(value).__name__}({own})"
    text = repr(value).replace("`", "'")
    if len(text) <= LONGEST_VALUE:
        return text
    return (
        f"a text of {len(value):,} characters" if isinstance(value, str) else f"{len(value)} values"
    )


def shown(parameters: dict[str, Any], pattern: re.Pattern[str]) -> str:
    """Return the settings whose names say something of a kind, with their defaults."""
    found = [
        f"`{k}={v!r}`"
        for k, v in parameters.items()
        if pattern.search(k) and v not in (None, "", (), 0)
    ]
    return ", ".join(found) or "—"


def failure(rules: Any) -> str:
    """Say what happens where a compaction fails."""
    policy = rules.policy
    if not isinstance(policy, Summary):
        return "nothing that could fail" if policy is not None or rules.pruning is not None else "—"
    plain = (
        "the history stays as it was" if policy.otherwise is None else "a summary without a model"
    )
    out = [getattr(policy, "on_failure", plain)]
    if policy.must_shrink:
        out.append("a result that is not smaller is refused")
    if policy.retries:
        out.append(f"asked again {policy.retries} times")
    if policy.seconds:
        out.append(f"given up after {policy.seconds:g} s")
    return "; ".join(out)


def section(name: str) -> list[str]:
    """Return the lines of one system."""
    rules = preset(name)
    module = import_module(f"ctxkit.presets.systems.{name}")
    doc = (inspect.getdoc(getattr(module, name)) or "").split("\nArgs:")[0]
    parameters = dict(rules.parameters)
    when = (
        words(rules.trigger, rules.reserve)
        if rules.policy is not None
        else "never, unless it is set"
    )
    rows = [("trigger", when if rules.auto else "by hand only")]
    if rules.policy is not None:
        rows.append(("method", describe_policy(rules.policy)))
    if rules.pruning is not None:
        rows.append(("for each call alone", describe_policy(rules.pruning)))
    if rules.policy is None and rules.pruning is not None:
        rows[0] = ("trigger", "every call; see the method's own settings")
    guards = "; ".join(dict.fromkeys(describe_policy(g).rstrip(".") for g in rules.guards))
    protected = shown(parameters, GUARDED)
    rows += [
        ("kept", shown(parameters, KEPT)),
        ("protections", "; ".join(x for x in (guards, protected) if x and x != "—") or "—"),
        ("failure", failure(rules)),
        ("settings", ", ".join(f"`{k}`" for k in parameters) or "—"),
    ]
    about_preset = " ".join(" ".join(p.split()) for p in doc.split("\n\n")).removeprefix("Return ")
    about = f"{(module.__doc__ or '').strip()} {about_preset[:1].upper()}{about_preset[1:]}"
    lines = [f"## {name}", "", about, "", "| | |", "| --- | --- |"]
    lines += [f"| {what} | {said.replace('|', chr(92) + '|')} |" for what, said in rows]
    if preset_differences(name):
        topics = ", ".join(d.topic for d in preset_differences(name))
        lines += [
            "",
            f"Where the preset differs from its document or program ([conformance](conformance.md)): {topics}.",
        ]
    idle = list_inert_settings(name)
    if idle:
        lines += ["", "No effect, as the other settings stand or in a replay:", ""]
        lines += [f"* {reason}" for reason in idle]
    return [*lines, ""]


def row(name: str) -> str:
    """Return the line of one system in the table of all."""
    rules = preset(name)
    parts = [p for p in (rules.policy, rules.pruning) if p is not None]
    due = (
        words(rules.trigger, rules.reserve)
        if rules.policy is not None
        else "every call"
        if parts
        else "never"
    )
    done = (
        " For each call: ".join(describe_policy(p, whole=False) for p in parts)
        or "nothing, unless it is set"
    )
    return f"| [{name}](#{name}) | {due} | {done} |"


def page() -> str:
    """Return the whole page."""
    head = [
        "# Systems",
        "",
        "What each preset does with its default settings. `python docs/make_systems.py` writes this page from the",
        "presets; do not edit by hand.",
        "",
        "Under every preset system messages, pinned messages and pending approvals stay, and a tool call stays",
        "together with its result. A failed summary changes nothing, and compacted messages stay in the session's log.",
        "The active settings follow each sentence; settings that a section does not name are off.",
        "",
    ]
    overview = ["| system | due | what is done |", "| --- | --- | --- |", *map(row, names()), ""]
    return "\n".join([*head, *overview, *(line for name in names() for line in section(name))])


if __name__ == "__main__":
    text = page()
    if "--check" in sys.argv:
        sys.exit(
            0
            if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
            else "docs/systems.md is not current"
        )
    PAGE.write_text(text, encoding="utf-8")
