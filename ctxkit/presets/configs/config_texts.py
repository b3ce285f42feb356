"""Rules as the text of their own system's config file: what `rules.to_config()` calls."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from inspect import signature
from typing import TYPE_CHECKING, Any

from ctxkit.errors import BadArguments, UnknownPreset
from ctxkit.presets.configs import syntaxes

if TYPE_CHECKING:
    from ctxkit.policies.rules import Rules
    from ctxkit.presets.configs.key_tables import Config


@dataclass(frozen=True)
class ConfigText:
    """Writes a preset's rules as its system's config file; frozen, so that rules can be pickled."""

    system: str
    """Whose file: the preset's name."""
    subject: str = ""
    """The agent or the model whose settings they are, where the file has several."""
    syntax: str = ""
    """The syntax of the file that the rules were read from; empty: the system's usual one."""

    def __call__(self, rules: Rules) -> str:
        """Return the text, in the system's own syntax and spelling.

        Warns:
            UserWarning: settings that the file has no key for, and that are not at their defaults.

        Raises:
            BadArguments: the rules were changed since the preset made them, so that their
                parameters do not say them.
        """
        from ctxkit.presets.configs.config_files import named

        config, parameters = named(self.system), dict(rules.parameters)
        self._check(rules, parameters)
        self._lost(config, parameters)
        tree = config.tree({**parameters, "subject": self.subject})
        if config.system == "fuseraft" and not rules.auto:
            del tree["Orchestration"]["Compaction"]
        return syntaxes.dump(tree, self.syntax or config.syntax)

    def _check(self, rules: Rules, parameters: dict[str, Any]) -> None:
        from ctxkit.presets.preset_names import preset

        made = preset(self.system, **{**parameters, "summariser": rules.summariser})
        same = replace(
            made,
            name=rules.name,
            parameters=rules.parameters,
            counter=rules.counter,
            cache_life=rules.cache_life,
            on_compacted=rules.on_compacted,
            auto=rules.auto if self.system == "fuseraft" else made.auto,
        )
        if same != rules:
            raise BadArguments(
                f"These rules are no longer what presets.{self.system} makes of their parameters: "
                "make the change as a setting of the preset, then write them."
            )

    def _lost(self, config: Config, parameters: dict[str, Any]) -> None:
        defaults = settings_of(self.system)
        known = {*config.keys, "version"}
        lost = [
            k
            for k, v in parameters.items()
            if v != defaults.get(k) and (v is None) == (k in known)  # no file can say None
        ]
        if lost:
            warnings.warn(
                f"{config.file} has no key for {', '.join(lost)}: not written.",
                UserWarning,
                stacklevel=4,
            )


def settings_of(system: str) -> dict[str, Any]:
    """Return the parameters of a preset with their defaults.

    Raises:
        UnknownPreset: the kit has no such preset.
    """
    from ctxkit import presets
    from ctxkit.presets.preset_names import names

    if system not in names():
        raise UnknownPreset(f"There is no preset {system!r}; there are {', '.join(names())}.")
    return {p.name: p.default for p in signature(getattr(presets, system)).parameters.values()}
