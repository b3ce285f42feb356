"""Config files of other systems become the rules that they say, or a sentence that names file and key."""

import warnings
from pathlib import Path

import pytest
from presets.fuseraft_snippets import SNIPPETS

import ctxkit as ck
from ctxkit.errors import BadArguments, ReadError, UnknownFormat, UnknownName

SAMPLES = Path(__file__).parent / "configs"
FUSERAFT = {
    "article-review-pipeline.yaml": ("llm", 20, 6, True),
    "brownfield.yaml": ("lossless", 30, 10, True),
    "cross-system-flow-analyzer.yaml": ("intent", 40, 8, True),
    "dev-team-structured.yaml": ("lossless", 25, 10, True),
    "dev-team-template.yaml": ("lossless", 30, 8, True),
    "devops-team.json": ("lossless", 30, 8, True),
    "devops-team.yaml": ("lossless", 30, 8, True),
    "etl-pipeline.yaml": ("llm", 50, 10, False),
    "fuseraft-designer.yaml": ("llm", 50, 10, False),
    "magentic-team.yaml": ("llm", 50, 10, False),
    "open-webui.yaml": ("lossless", 15, 6, True),
    "orchestration.yaml": ("lossless", 25, 10, True),
    "playwright-mcp.yaml": ("llm", 50, 10, False),
    "production-mcp-http.yaml": ("llm", 50, 10, False),
    "red-team.yaml": ("lossless", 30, 10, True),
    "research-team.yaml": ("lossless", 20, 6, True),
}


def load(path, **settings):
    """Return the rules and what the warning says."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        rules = ck.load_rules(path, **settings)
    return rules, " ".join(str(w.message) for w in seen)


@pytest.fixture
def config(tmp_path):
    def write(text, name="config.yaml"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize(("name", "expected"), FUSERAFT.items())
def test_fuserafts_sample_configs_load(name, expected):
    rules, _ = load(SAMPLES / name)
    p = rules.parameters
    assert rules.name == "fuseraft"
    assert (p["mode"], p["trigger_turn_count"], p["keep_recent_turns"], rules.auto) == expected
    assert rules.bare == ck.presets.fuseraft(**p).bare  # a model can still be lent to it


def test_every_documented_key_of_fuseraft_is_taken():
    rules, said = load(SAMPLES / "every-key.yaml")
    assert said == ""
    defaults, p = ck.presets.fuseraft().parameters, rules.parameters
    outside = {"offload_chars", "adaptive_trim", "summariser", "quirks"}  # not keys of the file
    assert {k for k in p if p[k] == defaults[k]} == outside
    assert p["tool_result_char_overrides"] == {"read_file": 6000, "shell_run": 0}
    assert p["exclude_agents"] == ("Planner", "Scribe")
    assert p["routing_signals"] == ("APPROVED", "REVISION REQUIRED")


def test_the_settings_of_an_agent_are_taken_by_its_name():
    reviewer, _ = load(SAMPLES / "dev-team-structured.yaml", agent="reviewer")
    tester, _ = load(SAMPLES / "dev-team-structured.yaml", agent="Tester")
    assert (reviewer.parameters["text_only"], reviewer.parameters["max_in_turn_tool_pairs"]) == (
        True,
        0,
    )
    assert (tester.parameters["text_only"], tester.parameters["max_in_turn_tool_pairs"]) == (
        False,
        12,
    )


def test_without_a_name_agents_give_what_they_agree_in():
    agreed, quiet = load(SAMPLES / "open-webui.yaml")
    differing, said = load(SAMPLES / "orchestration.yaml")
    assert agreed.parameters["text_only"] is True
    assert "differ" not in quiet
    assert differing.parameters["text_only"] is False
    assert "differ in ContextWindow.TextOnly" in said
    assert differing.parameters["context_window"] == 131_072  # both through an alias in Models


def test_what_an_agent_leaves_out_and_what_it_turns_off_are_the_same(config):
    text = "Agents: [{Name: A, ContextWindow: {TextOnly: false, MaxTurnAge: 3}}, {Name: B, ContextWindow: {MaxTurnAge: 3}}]"
    rules, said = load(config(text + "\nCompaction: {Mode: llm}\n"))
    assert rules.parameters["max_turn_age"] == 3
    assert said == ""


def test_an_agent_that_is_not_there_is_named_with_the_nearest():
    with pytest.raises(BadArguments, match=r"no agent 'Reviewr'.*Did you mean 'Reviewer'"):
        load(SAMPLES / "orchestration.yaml", agent="Reviewr")


def test_one_agent_systems_take_no_agent():
    with pytest.raises(BadArguments, match="agent="):
        load(SAMPLES / "pi-settings.json", agent="x")


@pytest.mark.parametrize(
    ("name", "system", "expected"),
    [
        (
            "fased.json",
            "fased",
            {"context_window": 180_000, "ttl_seconds": 5400, "tools_allow": ("exec", "read*")},
        ),
        (
            "fased.json",
            "fased",
            {"soft_threshold_tokens": 6000, "hard_clear": False, "identifier_policy": "custom"},
        ),
        (
            "openclaw.json",
            "openclaw",
            {"recent_turns_preserve": 4, "quality_guard_max_retries": 2, "pruning": None},
        ),
        (
            "ai-config.json",
            "ai",
            {"max_messages": 60, "max_tokens": 9000, "auto_compact": False, "max_chars": 10_000},
        ),
        (
            "pi-settings.json",
            "pi",
            {"reserve_tokens": 20_000, "keep_recent_tokens": 12_000, "enabled": True},
        ),
        ("gemini-settings.json", "gemini", {"variant": "pipeline", "compression_threshold": 0.3}),
        ("gemini-settings.json", "gemini", {"max_tokens": 120_000, "retained_tokens": 30_000}),
        (
            "opencode.jsonc",
            "opencode",
            {"context_window": 400_000, "limit_output": 64_000, "tail_turns": 3},
        ),
        (
            "codex-config.toml",
            "codex",
            {"context_window": 272_000, "model_auto_compact_token_limit": 240_000},
        ),
    ],
)
def test_other_systems_configs_load(name, system, expected):
    rules, _ = load(SAMPLES / name)
    assert rules.name == system
    assert {k: rules.parameters[k] for k in expected} == expected


def test_the_keys_and_not_the_name_say_whose_file_it_is(config):
    text = (SAMPLES / "fased.json").read_text(encoding="utf-8")
    assert load(config(text, "settings.json"))[0].name == "fased"
    assert (
        load(config((SAMPLES / "codex-config.toml").read_text(encoding="utf-8"), "opencode"))[
            0
        ].name
        == "codex"
    )


def test_snippets_without_the_root_load_in_any_case(config):
    rules, said = load(config("compaction:\n  triggerTurnCount: 12\n  KEEPRECENTTURNS: 3\n"))
    assert (rules.parameters["trigger_turn_count"], rules.parameters["keep_recent_turns"]) == (
        12,
        3,
    )
    assert (rules.auto, said) == (True, "")
    assert load(config("ContextWindow: {TextOnly: true}\n"))[0].parameters["text_only"] is True


def test_a_slip_in_a_key_is_named_with_the_nearest(config):
    _, said = load(config("Compaction: {TriggerTurnCount: 12, KeepRecentTurn: 3}\n"))
    assert "Compaction.KeepRecentTurn (Did you mean 'KeepRecentTurns'?)" in said
    _, said = load(
        config('model_provider = "m"\nmodel_context_windw = 5\nnotify = ["x"]\n', "config.toml")
    )
    assert "model_context_windw" in said
    assert "notify" not in said


def test_keys_that_a_team_obeys_are_not_called_missing(config):
    """F69, F131: Rules of one agent do not hold what a team obeys, and that is what is said."""
    _, said = load(
        config("Memory: {Provider: local}\nCompaction: {Model: m, TriggerTurnCount: 20}\n")
    )
    assert "and ck.team obeys: Memory, Compaction.Model." in said
    assert "Not in these rules" not in said
    assert "Selection (but for its signals)" in load(SAMPLES / "research-team.yaml")[1]


def test_what_is_not_obeyed_is_one_list_with_the_weightiest_first(config):
    _, said = load(
        config("EvidenceStore: {Path: a}\nSaga: {}\nScratchpad: {}\nCompaction: {Mode: llm}\n")
    )
    assert "Not in these rules: Saga, Scratchpad, EvidenceStore." in said
    assert "ck.team" not in said


@pytest.mark.parametrize("name", SNIPPETS)
def test_each_snippet_of_the_document_loads_as_a_file(config, name):
    """F131: The 22 snippets, in other words, load without naming the system, and lose no key."""
    assert len(SNIPPETS) == 22
    snippet = SNIPPETS[name]
    rules, said = load(config(snippet.text))
    assert rules.name == "fuseraft"
    assert {k: rules.parameters[k] for k in snippet.settings} == snippet.settings
    assert "Unknown keys" not in said
    assert all(key in said.partition("ck.team obeys: ")[2] for key in snippet.of_team)
    faults = [why for _, why in ck.validate(config(snippet.text)).values if "ck.team" in why]
    assert not faults


@pytest.mark.parametrize(
    "text",
    [
        "MaxPayloadBytes: 9000\n",
        "Agents: [{Name: A, MaxPayloadBytes: 9000}]",
        "Agents: [{Name: A, Model: {ModelId: m, MaxPayloadBytes: 9000}}]",
        "Models: {m: {MaxPayloadBytes: 9000}}\nAgents: [{Name: A, Model: m}, {Name: B, Model: m}]",
        "Models: {m: {MaxPayloadBytes: 9000}}\nAgents: [{Name: A, Model: {ModelId: m}}]",
        "MaxPayloadBytes: 20000\nAgents: [{Name: A, MaxPayloadBytes: 9000}]",
        "MaxPayloadBytes: 9000\nAgents: [{Name: A, MaxPayloadBytes: 20000}]",
    ],
)
def test_limits_of_a_prompt_are_settings_wherever_they_stand(config, text):
    """F107: MaxPayloadBytes and MaxContextTokens of an agent, a model, and the top level."""
    rules, said = load(config(text + "\n"), system="fuseraft")
    assert rules.parameters["max_payload_bytes"] == 9000
    assert "Payload" not in said
    text = text.replace("MaxPayloadBytes", "MaxContextTokens")
    assert load(config(text + "\n"), system="fuseraft")[0].window == 9000


def test_a_file_without_compaction_compacts_nothing(config):
    rules, said = load(config("Orchestration: {Agents: [{Name: A}]}\n"))
    assert (rules.auto, "nothing is compacted" in said) == (False, True)
    rules, said = load(config("Orchestration: {ContextBudget: {CutoverAt: 9000}}\n"))
    assert (rules.auto, "fuseraft refuses ContextBudget.CutoverAt" in said) == (True, True)


def test_fased_without_defaults_runs_the_plain_mode(config):
    rules, said = load(config('{"agents": {"list": []}}', "fased.json"))
    assert rules.parameters["mode"] == "default"
    assert "agents.defaults" in said


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "Compaction: {TriggerTurnCount: many}",
            "Compaction.TriggerTurnCount must be a whole number of 0 or more",
        ),
        (
            "Compaction: {TriggerTurnCount: true}",
            "Compaction.TriggerTurnCount must be a whole number",
        ),
        (
            "Compaction: {TriggerTurnCount: .inf}",
            "Compaction.TriggerTurnCount must be a whole number",
        ),
        (
            "Compaction: {TriggerTurnCount: -1}",
            "Compaction.TriggerTurnCount must be a whole number of 0",
        ),
        (
            "Compaction: {TriggerTurnCount: 2, Mode: fast}",
            "Compaction.Mode must be one of llm, intent",
        ),
        (
            "Compaction: {TriggerTurnCount: 5, KeepRecentTurns: 9}",
            r"Compaction.KeepRecentTurns \(9\) must lie below",
        ),
        (
            "Compaction: {TriggerTurnCount: 1" + "0" * 400 + "}",
            "Compaction.TriggerTurnCount must be a whole number",
        ),
        ("Compaction: {IncludeReasoning: 1}", "Compaction.IncludeReasoning must be true or false"),
        ("Orchestration: {Compaction: [1]}", "Compaction must be a section"),
        (
            "Agents: [{Name: B, ContextWindow: {MaxTurnAge: x}}]",
            "Agents.B.ContextWindow.MaxTurnAge must be",
        ),
        ("Agents: {Name: B}\nCompaction: {Mode: llm}", "Agents must be a list"),
        (
            "{agents: {defaults: {contextPruning: {ttl: soon}}}}",
            "contextPruning.ttl must be a duration",
        ),
    ],
)
def test_a_value_that_cannot_work_is_named_with_file_and_key(config, text, sentence):
    path = config(text)
    with pytest.raises(BadArguments, match=sentence) as caught:
        load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "name", "error"),
    [
        ("just words", "notes.txt", ReadError),
        ("[1, 2]", "list.json", UnknownFormat),
        ("", "empty.yaml", UnknownFormat),
        ("{}", "empty.json", UnknownFormat),
        ('{"name": "x"}', "package.json", UnknownFormat),
        ("a: [", "broken.yaml", ReadError),
        ("[project]\nname = 'x'\n", "pyproject.toml", UnknownFormat),
        ("[features]\nfast = []\n", "Cargo.toml", UnknownFormat),
        ('{"model": "m", "tools": {"a": 1}}', "request.json", UnknownFormat),
        ('{"agents": [{"name": "x"}], "compaction": {}}', "crew.json", UnknownFormat),
        ("[" * 200_000, "deep.yaml", ReadError),
        ("{a:" * 9000, "deep.json5", ReadError),
        ("!!python/object/apply:os.getcwd []", "evil.yaml", ReadError),
        ("x" * 1_100_000, "large.yaml", ReadError),
    ],
)
def test_what_is_no_config_is_refused_in_a_sentence(config, text, name, error):
    with pytest.raises(error, match=name):
        load(config(text, name))


def test_aliases_that_multiply_stay_small(config):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join(f'*a{i - 1}' for _ in range(9))}]" for i in range(1, 12)]
    with pytest.raises(ReadError, match="its aliases unfold to too many values") as caught:
        load(config("\n".join([*lines, "Compaction: {TriggerTurnCount: *a11}"])))
    assert len(str(caught.value)) < 400


def test_control_characters_of_a_file_reach_no_sentence(config):
    _, said = load(config('Compaction: {TriggerTurnCount: 20, "\\e[31mred": 1}\n'))
    assert "red" in said
    assert "\x1b" not in said


def test_gemini_s_older_key_is_read(config):
    rules, said = load(
        config('{"chatCompression": {"contextPercentageThreshold": 0.6}}', "settings.json")
    )
    assert (rules.name, rules.parameters["compression_threshold"], said) == ("gemini", 0.6, "")


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path in (tmp_path, tmp_path / "none.yaml"):
        with pytest.raises(ReadError):
            ck.load_rules(path)


def test_a_system_can_be_named_and_misnamed(config):
    path = config('{"theme": "dark"}', "settings.json")
    assert load(path, system="pi")[0].parameters == ck.presets.pi().parameters
    assert load(config("{}", "settings.json"), system="gemini")[0] == ck.presets.gemini()
    with pytest.raises(BadArguments, match="Did you mean 'codex'"):
        ck.load_rules(path, system="codx")


def test_a_system_without_a_preset_is_said_so(config, monkeypatch):

    monkeypatch.setattr("ctxkit.presets.registry_and_setting_checks.PRESETS", ("pi", "none"))
    with pytest.raises(UnknownName, match="config file of codex, for which the kit has no preset"):
        ck.load_rules(SAMPLES / "codex-config.toml")


def test_paths_in_a_config_are_never_opened(config, tmp_path):
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents/a.yaml").write_text("MaxInTurnToolPairs: 3\n", encoding="utf-8")
    path = config(
        "Orchestration: {Agents: [{AgentFile: agents/a.yaml}], Compaction: {Mode: llm}}\n"
    )
    rules, said = load(path)
    assert rules.parameters["max_in_turn_tool_pairs"] == 0
    assert "Agents.0.AgentFile" in said


@pytest.mark.parametrize(
    ("ttl", "seconds"),
    [('"10"', 600), ("10", 600), ('"90s"', 90), ('"250ms"', 0.25), ('"1h5m"', 3900)],
)
def test_a_bare_duration_is_minutes(config, ttl, seconds):
    text = "{agents: {defaults: {contextPruning: {mode: 'cache-ttl', ttl: " + ttl + "}}}}"
    assert load(config(text, "fased.json"))[0].parameters["ttl_seconds"] == seconds


def test_keys_beside_orchestration_are_named(tmp_path):
    """fuseraft reads everything under its one key"""
    file = tmp_path / "team.yaml"
    file.write_text("ContextBudget: {CutoverAt: 100}\nOrchestration: {Compaction: {Mode: llm}}\n")
    with pytest.warns(UserWarning, match=r"ContextBudget \(beside Orchestration\)"):
        rules = ck.load_rules(file)
    assert rules.parameters["cutover_at"] == 0
