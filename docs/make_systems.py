"""Write docs/systems.md, what each system does, from the presets: `python docs/make_systems.py`."""

from __future__ import annotations

import inspect
import re
import sys
from dataclasses import MISSING, Field, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxkit.policies import triggers as t
from ctxkit.policies.compaction_and_pruning_rules import unwrap_function
from ctxkit.policies.policy_base_and_chains import Chain, Fallback
from ctxkit.policies.summary_compaction import Summary
from ctxkit.presets.inert_settings import INERT_SETTINGS
from ctxkit.presets.registry_and_setting_checks import names, preset, preset_differences

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "systems.md"
HEAD = """# Systems

```python
import ctxkit as ck
help(ck.presets.codex)  # explains each setting
rules = ck.presets.codex(model_auto_compact_token_limit=150_000)
```

This page lists what each preset does with its default settings. `python docs/make_systems.py` writes it from the
presets. The first table compares the systems; then each has its own table. The settings in force
follow each step in brackets; a setting that is not named there is off. Under every preset, system messages, pinned
messages and pending approvals stay, a tool call stays together with its result, and the session's log keeps all
messages.

The rows *no effect* name settings that change nothing; the brackets say which other setting causes this, and why. The
row *differs in* names the points on which a system's documentation, its program and the preset differ. The row *not
confirmed* names what no source states. A row that does not apply is left out.
"""
LONGEST_VALUE = 60
"""Characters of a setting's value on the page; of a longer one only the length is shown."""
_SOURCE_LABELS = ("Source", "Not confirmed")
"""First words of the paragraphs in a preset's docstring that say what the preset was made from."""
_KEPT_SETTINGS = re.compile(
    r"keep|retain|preserve|tail|protect|target|floor|recent|window_size|^n$|restored|user_message"
)
_PROTECTING_SETTINGS = re.compile(
    r"exclude|deny|pin_|identifier|protect|quality|min_|minimum|at_least|paid_back_share|attempts|first_user"
)


def describe_trigger(trigger: Any, reserve: int = 0) -> str:
    """Return in words when a trigger fires."""
    if isinstance(trigger, (t.Either, t.Both)):
        joined = " or " if isinstance(trigger, t.Either) else " and "
        parts = [describe_trigger(p, reserve) for p in trigger.parts]
        nested = [
            isinstance(p, (t.Either, t.Both)) and type(p) is not type(trigger)
            for p in trigger.parts
        ]
        return joined.join(
            f"({part})" if is_nested else part
            for part, is_nested in zip(parts, nested, strict=True)
        )
    sign = "≥" if getattr(trigger, "or_equal", False) else ">"
    by = " by its own estimate" if getattr(trigger, "estimated", False) else ""
    if isinstance(trigger, t.Above):
        return f"prompt {sign} {trigger.limit:,.0f} tokens{by}"
    if isinstance(trigger, t.Share):
        size = "the window" if trigger.of == "limit" else f"the window less {reserve:,}"
        return f"prompt {sign} {'' if trigger.share == 1 else f'{trigger.share:.0%} of '}{size}{by}"
    if isinstance(trigger, t.Count):
        return f"≥ {trigger.n} messages{' (' + ', '.join(trigger.roles) + ')' if trigger.roles else ''}"
    if isinstance(trigger, t.Overflow):
        return "after a context error" if trigger.recorded else "prompt > the window"
    if isinstance(trigger, t.Turns):
        return f"{trigger.n} turns after the last"
    if isinstance(trigger, (t.Idle, t.ReplyCutShort)):
        if isinstance(trigger, t.ReplyCutShort):
            event = "reply that was cut off"
        else:
            event = f"pause of {trigger.seconds / 60:g} minutes"
        return f"after a {event}"
    trigger = unwrap_function(trigger)
    docstring = inspect.getdoc(trigger if inspect.isfunction(trigger) else type(trigger)) or repr(
        trigger
    )
    line = docstring.split("\n")[0].rstrip(".").replace("Return whether ", "where ")
    return line[:1].lower() + line[1:]


def describe_policy(policy: Any, *, whole: bool = True) -> str:
    """Return what a policy does: the summary of its class, then the settings in force.

    Args:
        policy: a policy, pruning or guard, or a chain of them.
        whole: give every setting that is on; otherwise only the short ones whose values are not
            the defaults of the class.
    """
    if isinstance(policy, (Chain, Fallback)):
        return " Then: ".join(describe_policy(part, whole=whole) for part in policy.parts)
    line = " ".join((inspect.getdoc(type(policy)) or "").split("\n\n")[0].split())
    settings = list_settings_in_force(policy, whole=whole)
    return f"{line.rstrip('.')} ({', '.join(settings)})." if settings else line


def list_settings_in_force(policy: Any, *, whole: bool) -> list[str]:
    """Return the settings of a policy that have an effect, each as `name=value`."""
    settings = []
    for name, value, is_default in _read_settings(policy):
        is_short = not is_dataclass(value) and len(repr(value)) <= LONGEST_VALUE
        is_off = value is None or value is False or value in ("", (), "off")
        if (not is_default and (whole or is_short)) or (whole and not is_off):
            settings.append(f"`{name}={format_value(value)}`")
    return settings


def _read_settings(policy: Any) -> list[tuple[str, Any, bool]]:
    """Return name and value of each setting, and whether the value is the default of the class."""
    init_fields = [field for field in fields(policy) if field.init] if is_dataclass(policy) else []
    return [
        (field.name, value := getattr(policy, field.name), repr(value) == repr(_get_default(field)))
        for field in init_fields
    ]


def _get_default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def format_value(value: Any) -> str:
    """Return the value of a setting as text: a part by its class and settings, a long value by its size."""
    if is_dataclass(value):
        settings = ", ".join(
            f"{name}={format_value(setting)}"
            for name, setting, is_default in _read_settings(value)
            if not is_default
        )
        return f"{type(value).__name__}({settings})"
    text = repr(value).replace("`", "'")
    if len(text) <= LONGEST_VALUE:
        return text
    return (
        f"a text of {len(value):,} characters" if isinstance(value, str) else f"{len(value)} values"
    )


def format_matching_settings(parameters: dict[str, Any], pattern: re.Pattern[str]) -> str:
    """Return the settings whose names match a pattern, with their defaults."""
    settings = [
        f"`{name}={value!r}`"
        for name, value in parameters.items()
        if pattern.search(name) and value not in (None, "", (), 0)
    ]
    return ", ".join(settings) or "—"


def describe_failure(rules: Any) -> str:
    """Return in words what happens if a compaction fails."""
    policy = rules.policy
    if not isinstance(policy, Summary):
        return "nothing that could fail" if policy is not None or rules.pruning is not None else "—"
    default = (
        "the history stays as it was" if policy.otherwise is None else "a summary without a model"
    )
    parts = [getattr(policy, "on_failure", default)]
    if policy.must_shrink:
        parts.append("a result that is not smaller is refused")
    if policy.retries:
        parts.append(f"asked again {policy.retries} times")
    if policy.seconds:
        parts.append(f"given up after {policy.seconds:g} s")
    return "; ".join(parts)


def format_section(name: str) -> list[str]:
    """Return the lines of the section of one system: a heading and a table."""
    rules = preset(name)
    module = import_module(f"ctxkit.presets.systems.{name}")
    parameters = dict(rules.parameters)
    trigger = (
        describe_trigger(rules.trigger, rules.reserve)
        if rules.policy is not None
        else "never, unless it is set"
    )
    rows = [("trigger", trigger if rules.auto else "by hand only")]
    if rules.policy is not None:
        rows.append(("method", describe_policy(rules.policy)))
    if rules.pruning is not None:
        rows.append(("for each call alone", describe_policy(rules.pruning)))
    if rules.policy is None and rules.pruning is not None:
        rows[0] = ("trigger", "every call; see the method's own settings")
    guards = "; ".join(dict.fromkeys(describe_policy(guard).rstrip(".") for guard in rules.guards))
    protected = format_matching_settings(parameters, _PROTECTING_SETTINGS)
    rows += [
        ("kept", format_matching_settings(parameters, _KEPT_SETTINGS)),
        ("protections", "; ".join(x for x in (guards, protected) if x and x != "—") or "—"),
        ("failure", describe_failure(rules)),
        ("settings", format_names(parameters) or "—"),
        *(("no effect", reason) for reason in list_inert_settings(name)),
    ]
    if differences := preset_differences(name):
        topics = "; ".join(difference.topic for difference in differences)
        rows.append(("differs in", f"{topics} ([conformance](conformance.md#{name}))"))
    docstring = inspect.getdoc(getattr(module, name)) or ""
    rows += [(label.lower(), text) for label, text in read_labelled_paragraphs(docstring)]
    description = " ".join((module.__doc__ or "").split()).rstrip(".")
    return [
        f"## {name}",
        "",
        f"| | {description} |",
        "| --- | --- |",
        *(
            f"| {label} | {text.replace('|', chr(92) + '|')} |"
            for label, text in rows
            if text != "—"
        ),
        "",
    ]


def read_labelled_paragraphs(docstring: str) -> list[tuple[str, str]]:
    """Return label and text of each paragraph of a preset's docstring that names its sources."""
    paragraphs = [" ".join(paragraph.split()) for paragraph in docstring.split("\n\n")]
    return [
        (label, text.rstrip("."))
        for label in _SOURCE_LABELS
        for paragraph in paragraphs
        if (text := paragraph.removeprefix(f"{label}: ")) != paragraph
    ]


def list_inert_settings(name: str) -> list[str]:
    """Return for each reason the settings without effect, with the setting that holds them."""
    settings_by_reason: dict[str, list[str]] = {}
    for inert in INERT_SETTINGS.get(name, ()):
        reason = f"`{inert.controller}`: {inert.why}" if inert.controller else inert.why
        settings_by_reason.setdefault(reason, []).extend(inert.settings)
    return [f"{format_names(names)} ({reason})" for reason, names in settings_by_reason.items()]


def format_names(settings: Iterable[str]) -> str:
    """Return the names of settings as a list in Markdown."""
    return ", ".join(f"`{setting}`" for setting in settings)


def format_overview_row(name: str) -> str:
    """Return the line of one system in the overview."""
    rules = preset(name)
    parts = [part for part in (rules.policy, rules.pruning) if part is not None]
    trigger = (
        describe_trigger(rules.trigger, rules.reserve)
        if rules.policy is not None
        else "every call"
        if parts
        else "never"
    )
    action = (
        " For each call: ".join(describe_policy(part, whole=False) for part in parts)
        or "nothing, unless it is set"
    )
    return f"| [{name}](#{name}) | {trigger} | {action} |"


def format_page() -> str:
    """Return the page in Markdown."""
    overview = [
        "| system | due | what is done |",
        "| --- | --- | --- |",
        *map(format_overview_row, names()),
        "",
    ]
    return "\n".join(
        [HEAD, *overview, *(line for name in names() for line in format_section(name))]
    )


if __name__ == "__main__":
    text = format_page()
    if "--check" in sys.argv:
        sys.exit(
            0
            if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
            else "docs/systems.md is not current"
        )
    PAGE.write_text(text, encoding="utf-8")
