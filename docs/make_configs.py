"""Write `docs/configs.md` from the tables of keys: `python docs/make_configs.py`.

A test compares the page.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ctxkit.presets.config_key_mapping import get_preset_defaults
from ctxkit.presets.rules_from_config_files import SYSTEM_CONFIG_FILES

PAGE = Path(__file__).with_name("configs.md")
HEAD = """# Config files of other systems

<!-- run
import json
from pathlib import Path
import ctxkit as ck
Path("orchestration.yaml").write_text(ck.presets.fuseraft().to_config())
agents = [{"Name": n, "ContextWindow": {"MaxTailMessages": 20}} for n in ("Developer", "Reviewer")]
team = {"Agents": agents, "Compaction": {"TriggerTurnCount": 40}}
Path("team.yaml").write_text(json.dumps({"Orchestration": team}))
session = ck.read(ck.samples.path("billing"))
-->

```python
import ctxkit as ck
rules = ck.load_rules("orchestration.yaml")             # the keys show which system; or pass system=
rules = ck.load_rules("team.yaml", agent="Reviewer")    # one agent of a fuseraft team
print(rules.to_config())                                # in the system's own syntax and spelling
tuner = ck.tune(session, rules)                         # move the sliders, then write the new setting
print(tuner.rules.to_config())
```

`ck.load_rules` reads the settings of another system's config file; `to_config()` writes rules in the syntax of such a
file. `python docs/make_configs.py` writes this page from the tables of keys.

A setting that the file leaves out has the preset's default. One `UserWarning` names unknown keys, keys of a part that
the rules do not have, and settings in which agents differ. A value of the wrong type is an error that names file and
key. The file is read as plain data of at most 1 MB: no path in it is opened, and no variable is expanded.

`to_config()` writes every setting that has a key, and no models, API keys or prompts of your file. You can share the
text, or copy it into your file. A warning names settings without a key. Rules changed with `but` or `|` are refused:
make the change as a setting of the preset.

| system | in its config file |
| --- | --- |
"""
NOTES = (
    ("all", "JSON with comments and trailing commas, YAML (safe loader), TOML or `NAME=VALUE`"),
    ("all", "rules loaded from JSON are written as JSON, from YAML as YAML"),
    (
        "fuseraft",
        "without `agent=` the settings in which all agents agree; defaults for the others, whose keys the warning names",
    ),
    ("fuseraft", "agents but no `Compaction`: never compacts (`auto=False`), as in fuseraft"),
    (
        "fuseraft",
        "keys in any case, with or without the root `Orchestration`; paths such as `AgentFile` stay unread",
    ),
    (
        "fuseraft",
        "handoff keywords of `PinLastRoutingSignal`: from the signals of the state machine or the keyword routes; written as one state `Any`",
    ),
    (
        "fased, openclaw",
        "the same keys; OpenClaw by its own keys or the file's name, all other files as Fased's",
    ),
    ("fased, openclaw", "a `ttl` without a unit is in minutes"),
    ("fased", "mode `default` without `agents.defaults`"),
    ("opencode", "limits of the file's `model`, if `provider` lists it"),
    ("codex", "the profile that `profile` names overrides the top level"),
    (
        "gemini",
        "`experimental.contextManagement` selects the newer pipeline; not confirmed: that its budgets come from `historyWindow`",
    ),
)


def format_page() -> str:
    """Return the page in Markdown."""
    parts = [HEAD, *(f"| {system} | {note} |\n" for system, note in NOTES)]
    for config in SYSTEM_CONFIG_FILES.values():
        defaults = get_preset_defaults(config.system)
        rows = [
            f"| `{key}` | `{name}` | {f'`{defaults[name]!r}`' if defaults[name] is not None else ''} |"
            for name, key in config.keys.items()
            if name in defaults
        ]
        if without_key := [f"`{name}`" for name in defaults if name not in config.keys]:
            rows.append(f"| (no key) | {', '.join(without_key)} |  |")
        parts.append(
            f"\n## {config.system}: `{config.file_name}`\n\n| key | setting of `presets.{config.system}` | default |\n"
            "| --- | --- | --- |\n" + "\n".join(rows) + "\n"
        )
    return "".join(parts)


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(PAGE.read_text(encoding="utf-8") != format_page())
    PAGE.write_text(format_page(), encoding="utf-8")
