"""One table of fuseraft's keys serves rules, teams and validation, in any case of letters."""

import warnings
from itertools import combinations

import pytest
import yaml
from presets.test_loaders import SAMPLES

import ctxkit as ck
from ctxkit.presets import fuseraft_config as keys
from ctxkit.presets import load_config
from ctxkit.presets.fuseraft_config import MAX_REASONS, format_ignored_keys, rank_ignored_key
from ctxkit.teams import parse_plan

TABLES = {
    name: [getattr(k, "path", k) for k in getattr(keys, name)]
    for name in dir(keys)
    if name.endswith("_KEYS")
    and not name.startswith("_")
    and name not in ("VIEW_KEYS", "TEAM_SECTION_KEYS", "MINOR_KEYS")
}


SAME_SECTION = [
    pair for pair in combinations(TABLES, 2) if len({"AGENT" in name for name in pair}) == 1
]


@pytest.mark.parametrize(("one", "other"), SAME_SECTION)
def test_a_key_stands_in_one_table(one, other):
    assert not set(TABLES[one]) & set(TABLES[other])


@pytest.mark.parametrize("key", [k for k, why in keys.UNREAD_KEYS.items() if why])
def test_a_team_says_why_it_does_not_obey_a_key(key):
    plan = parse_plan(
        {"Agents": [{"Name": "A"}], key.upper(): {"X": "1"} if key != "SystemPromptPath" else "x"}
    )
    assert plan.notes == (
        f"Not obeyed here, the weightiest first: {key.upper()} ({keys.UNREAD_KEYS[key]}).",
    )


def test_keys_of_files_weigh_least_and_others_lie_between():
    """What changes who works with which tools weighs more than where files lie."""
    order = ["McpServers", "Plugins Git, Http", "Agents.A.FunctionChoice required", "Security",
             "Agents.A.KnowledgeWeight", "Model.Temperature", "SkillCuration", "Output", "Events"]  # fmt: skip
    weights = [rank_ignored_key(key) for key in order]
    assert weights == sorted(set(weights))
    files = ("ChangeTracking", "EvidenceStore", "ChangeLogPath", "Checkpoint", "Events")
    light = ("Output", "Telemetry", "Models", "ApiProfiles", *files)
    assert min(map(rank_ignored_key, light)) > rank_ignored_key("SkillCuration")


def test_the_list_of_what_is_not_obeyed_is_short():
    rows = [(f"Key{n}", (), f"reason {n}") for n in range(20)]
    rows += [("McpServers", ("A", "B", "C", "D", "E"), "none are asked")]
    said = format_ignored_keys(rows)
    assert said.startswith(
        "Not obeyed here, the weightiest first: McpServers of A, B, C and 2 more (none are asked); "
    )
    assert said.endswith(f"; and {21 - MAX_REASONS} more.")
    assert format_ignored_keys([]) == ""


def recased(value):
    """Return a config with every key that the tables name in capitals."""
    named = {
        part.casefold() for names in TABLES.values() for path in names for part in path.split(".")
    }
    named |= {k.casefold() for names in keys.TEAM_SECTION_KEYS.values() for k in names}
    if isinstance(value, dict):
        return {
            k.upper() if str(k).casefold() in named else k: recased(v) for k, v in value.items()
        }
    return [recased(v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    "name", ["every-key.yaml", "dev-team-structured.yaml", "magentic-team.yaml"]
)
def test_upper_and_lower_case_are_alike_for_rules_teams_and_validation(name, tmp_path):
    config = load_config(SAMPLES / name)[0]
    file, other = tmp_path / "team.yaml", tmp_path / "TEAM.yaml"
    file.write_text(yaml.safe_dump(config, sort_keys=False))
    other.write_text(yaml.safe_dump(recased(config), sort_keys=False))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert ck.load_rules(other, system="fuseraft").parameters == ck.load_rules(file).parameters
    faults = [
        list(ck.validate(p, system="fuseraft")["why"].str.replace(str(p), "").str.casefold())
        for p in (file, other)
    ]
    assert faults[0] == faults[1]
    plans = [parse_plan(c) for c in (config, recased(config))]
    assert [m.rules for m in plans[0].members] == [m.rules for m in plans[1].members]
    assert plans[0].states == plans[1].states
    assert [n.casefold() for n in plans[0].notes] == [n.casefold() for n in plans[1].notes]
