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

Written by `python docs/make_configs.py`; do not edit by hand.

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

rules = ck.load_rules("orchestration.yaml")             # the keys show the system; system= names it
rules = ck.load_rules("team.yaml", agent="Reviewer")    # one agent of a fuseraft team
print(rules.to_config())                                # the same settings, in the system's own syntax and spelling
best = ck.presets.fased(reserve_tokens=40_000)          # rules of a preset can be written too
print(best.to_config())
tuner = ck.tune(session, rules)                         # move the sliders, then write the new setting
print(tuner.rules.to_config())
```

- A setting that the file leaves out has the preset's default. One `UserWarning` names unknown keys, keys of a part that
  these rules do not have, and settings in which agents differ. A value of the wrong type is an error that names file and
  key.
- The file is read as plain data: JSON with comments and trailing commas, YAML by its safe loader, TOML; at most 1 MB.
  No path in it is opened (`AgentFile`, `SystemPromptPath`), and no variable is expanded.
- `to_config()` writes every setting for which the file has a key, also those at their defaults, and nothing else: no
  models, keys or prompts of your file, so that the text can be shared. Copy it into your own file. A warning names
  settings without a key. Rules loaded from JSON are written as JSON, from YAML as YAML.
- Rules changed with `but` or `|` no longer match the preset's parameters, so `to_config()` refuses them: make the change
  as a setting of the preset.
- **fuseraft.** Without `agent=` the settings are those in which all agents agree; the others keep their defaults, and
  the warning names the keys. A file with agents but without `Compaction` never compacts (`auto=False`), as in fuseraft.
  Keys are accepted in any case, with or without the root `Orchestration`. The handoff keywords that
  `PinLastRoutingSignal` repeats come from the state machine's signals or the keyword routes; `to_config()` writes them
  as one state `Any`.
- **Fased and OpenClaw** share their keys. OpenClaw is recognised by its own keys or by the file's name; any other file is
  read as Fased's. A `ttl` without a unit is in minutes. Without `agents.defaults` Fased runs mode `default`.
- **OpenCode.** The limits are those of the file's `model`, if `provider` lists it.
- **Codex.** The profile that `profile` names overrides the top level.
- **Gemini CLI.** `experimental.contextManagement` selects the newer pipeline; it is not confirmed that this pipeline takes
  its budgets from `historyWindow`.
"""


def format_page() -> str:
    """Return the page in Markdown."""
    parts = [HEAD]
    for config in SYSTEM_CONFIG_FILES.values():
        defaults = get_preset_defaults(config.system)
        rows = [
            f"| `{key}` | `{name}` | {f'`{defaults[name]!r}`' if defaults[name] is not None else ''} |"
            for name, key in config.keys.items()
            if name in defaults
        ]
        without_key = ", ".join(f"`{name}`" for name in defaults if name not in config.keys)
        parts.append(
            f"\n## {config.system}: `{config.file_name}`\n\n| key | setting of `presets.{config.system}` | default |\n"
            "| --- | --- | --- |\n" + "\n".join(rows) + f"\n\nWithout a key: {without_key}.\n"
        )
    return "".join(parts)


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(PAGE.read_text(encoding="utf-8") != format_page())
    PAGE.write_text(format_page(), encoding="utf-8")
