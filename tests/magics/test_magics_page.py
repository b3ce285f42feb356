"""Options of the magics, the settings of `%config CtxKit` and the page of both are one table."""

import runpy
from dataclasses import fields
from pathlib import Path

import pytest

from ctxkit.magics.cell_magic_arguments import AgentArguments
from ctxkit.magics.line_parser import get_setting_defaults_and_help
from ctxkit.magics.session_settings_and_name_resolver import KitSettings

MADE = runpy.run_path(str(Path(__file__).resolve().parents[2] / "docs" / "make_magics.py"))


def test_the_page_is_current():
    assert MADE["PAGE"].read_text(encoding="utf-8") == MADE["format_page"]()


@pytest.mark.parametrize("name", get_setting_defaults_and_help(AgentArguments))
def test_an_option_with_a_setting_is_a_setting_of_the_kernel(name, shell):
    default, what = get_setting_defaults_and_help(AgentArguments)[name]
    trait = KitSettings.class_own_traits(config=True)[name]
    assert (trait.default_value, what in trait.help) == (default, True)
    shell.run_line_magic("config", f"CtxKit.{name} = 'other'")
    kit = shell.magics_manager.registry["CtxKit"]
    assert kit.lives.settings("new", {})[name] == ("" if name == "model" and kit.via else "other")
    assert {f.name for f in fields(AgentArguments)} >= set(kit.lives.settings("new", {}))
