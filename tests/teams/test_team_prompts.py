"""What is in the prompts of a team's agents before anybody speaks: files of its config, memory."""

from __future__ import annotations

import pytest
from teams.small_teams import clock, config, made, shown

import ctxkit as ck
from ctxkit.agent import (
    ContextStore,
    MemoryStore,
    get_ctxkit_and_fuseraft_memory_folders,
    import_files,
)
from ctxkit.policies import make_entry
from ctxkit.teams import make_scripted_agent

FILES = """
Orchestration:
  SystemPromptPath: prompts/base.md
  SystemPrompt: not this one
  Agents:
    - AgentFile: agents/writer.yaml
    - AgentFile: agents/writer.yaml
      Name: Editor
      Instructions: You edit.
      ContextWindow: {}
      FunctionChoice: auto
  Termination: {MaxIterations: 2}
"""
WRITER = """
Agent:
  Name: Writer
  Instructions: You write.
  ContextWindow: {TextOnly: true}
  MaxToolCallsPerTurn: 3
"""


@pytest.fixture
def place(tmp_path):
    (tmp_path / "agents").mkdir()
    (tmp_path / "prompts").mkdir()
    (tmp_path / "agents/writer.yaml").write_text(WRITER)
    (tmp_path / "prompts/base.md").write_text("Be brief.\n")
    (tmp_path / "team.yaml").write_text(FILES)
    return tmp_path


def opened(place, **more):
    tick = clock()
    parts = {name: make_scripted_agent(name, [["Hi."]], tick) for name in ("Writer", "Editor")}
    return ck.team(place / "team.yaml", models=parts, folder=place, clock=tick, seed="7", **more)


def test_an_agent_is_read_from_its_file_and_what_is_written_beside_goes_before(place):
    with opened(place) as team:
        team.run("Work.")
        writer, editor = team.plan.members
        assert (writer.name, editor.name) == ("Writer", "Editor")
        assert shown(team, "Writer", 0)[0] == ("system", "Be brief.\n\nYou write.")
        assert shown(team, "Editor", 0)[0] == ("system", "Be brief.\n\nYou edit.")
        assert editor.view_keys == writer.view_keys == {"ContextWindow": {"TextOnly": True}}
        assert editor.max_calls == 3
        assert not any("not obeyed" in n for n in team.notes)
    (place / "agents/writer.yaml").unlink()
    with ck.team(
        name="team",
        folder=place,
        models=dict.fromkeys(("Writer", "Editor"), make_scripted_agent("x", [], lambda: 1.0)),
    ) as again:
        assert again.plan.members == team.plan.members  # it continues as it was begun


@pytest.mark.parametrize(("file", "words"), [
    ("agents/none.yaml", "There is no such file"), ("../outside.yaml", "leads out"),
    ("/etc/hostname", "leads out"), ("link.yaml", "leads out"), ("agents/list.yaml", "no keys and values"),
])  # fmt: skip
def test_a_file_that_is_none_of_the_configs_folder_is_a_sentence(
    place, file, words, tmp_path_factory
):
    far = tmp_path_factory.mktemp("far") / "secret.yaml"
    far.write_text("Name: Secret\n")
    (place / "link.yaml").symlink_to(far)
    (place / "agents/list.yaml").write_text("- 1\n")
    (place / "team.yaml").write_text(FILES.replace("agents/writer.yaml", file))
    with pytest.raises(ck.BadArguments, match=words):
        opened(place)
    (place / "team.yaml").write_text(FILES.replace("prompts/base.md", file))
    if file != "agents/list.yaml":
        with pytest.raises(ck.BadArguments, match="SystemPromptPath"):
            opened(place)


def test_an_agent_remembers_what_its_own_folder_holds(tmp_path):
    """F2, F13, F14, F23: EnableMemory and Memory of one agent and of all; others' memory is not
    shown.
    """
    for name, words in (("Red Fox", "Use pytest -q."), ("Owl", "The owl knows.")):
        folder = (
            get_ctxkit_and_fuseraft_memory_folders()[0].parent
            / "agents"
            / name.lower().replace(" ", "_")
        )
        MemoryStore([folder], tmp_path).add(make_entry("tests", words, "feedback"))
    plan = config([{"Name": "Red Fox", "EnableMemory": True, "Instructions": "You run."}, "Owl"],
                  Termination={"MaxIterations": 2})  # fmt: skip
    parts = {"Red Fox": [["Hi."]], "Owl": [["Hi."]]}
    with made(tmp_path / "one", parts, plan, memory=("user",)) as team:
        team.run("Work.")
        system = shown(team, "Red Fox", 0)[0][1]
        heading = "MEMORY — facts recalled from prior sessions:\n[feedback] tests: Use pytest -q."
        assert f"\n{heading}\n" in f"\n{system}\n"
        assert not any("owl knows" in t or "pytest" in t for _, t in shown(team, "Owl", 0))
    plan = config(["Red Fox", {"Name": "Owl", "Context": [{"Source": "own_history"}]}],
                  Memory={"Provider": "local"}, Termination={"MaxIterations": 4})  # fmt: skip
    parts = {"Red Fox": [["Hi."]] * 2, "Owl": [["Hi."]] * 2}
    with made(tmp_path / "two", parts, plan, memory=("user",)) as team:
        team.run("Work.")
        for call in (0, 1):  # a declared context leaves what is remembered in sight
            assert any("The owl knows." in t for _, t in shown(team, "Owl", call))
            assert any("Use pytest -q." in t for _, t in shown(team, "Red Fox", call))
        assert not any("Memory" in n for n in team.notes)


def test_a_folder_that_bears_the_agents_name_letter_by_letter_is_read(tmp_path):
    """F16: fuseraft's document writes `agents/Developer/`, its program `agents/developer/`."""
    agents = get_ctxkit_and_fuseraft_memory_folders()[0].parent / "agents"
    for folder, words in (
        ("Red Fox", "Use pytest -q."),
        ("red_fox", "Use ruff."),
        ("Owl", "Hoot."),
    ):
        MemoryStore([agents / folder], tmp_path).add(make_entry(words[4:8], words, "feedback"))
        (agents / folder / "MEMORY.md").unlink()
    plan = config([{"Name": "Red Fox", "EnableMemory": True}, "Owl"], Termination={"MaxIterations": 2})  # fmt: skip
    with made(
        tmp_path / "one", {"Red Fox": [["Hi."]], "Owl": [["Hi."]]}, plan, memory=("user",)
    ) as team:
        team.run("Work.")
        block = shown(team, "Red Fox", 0)[0][1]
    assert "Use pytest -q." in block
    assert "Use ruff." in block
    assert "Hoot." not in block


def kept_entries():
    """Each file of memory of this user: which folder it is in, and its text."""
    found = get_ctxkit_and_fuseraft_memory_folders()[0].parent.rglob("memory_*.md")
    return [(path.parent.name, path.read_text()) for path in found]


def test_a_team_remembers_in_a_folder_of_its_own(tmp_path):
    """F13: Without a word of the user's, no agent reads or writes what its namesakes keep."""
    mine = get_ctxkit_and_fuseraft_memory_folders()[0].parent / "agents/writer"
    MemoryStore([mine], tmp_path).add(
        make_entry("mine", "Nobody's business of a team.", "feedback")
    )
    before = kept_entries()
    plan = config([{"Name": "Writer", "EnableMemory": True}], Termination={"MaxIterations": 1})
    parts = {"Writer": [["Hi."]] * 3}
    with made(tmp_path / "one", parts, plan) as team:
        team.run("Always use tabs for indentation in this project, never spaces.")
        assert not any("business" in t for _, t in shown(team, "Writer", 0))
    fresh = [row for row in kept_entries() if row not in before]
    assert [name for name, _ in fresh] == ["writer"]
    assert "tabs" in fresh[0][1]
    assert not any("tabs" in path.read_text() for path in mine.glob("*.md"))
    with made(tmp_path / "one", parts, plan) as team:  # it has it the next time
        team.run("Go on.")
        assert any("tabs" in t for _, t in shown(team, "Writer", 1)[:1])
    with made(tmp_path / "two", parts, plan) as team:  # another folder's team of that name has not
        team.run("Go on.")
        assert not any("tabs" in t for _, t in shown(team, "Writer", 0))


def test_a_config_alone_sends_nothing_to_the_address_that_it_names(tmp_path, monkeypatch):
    """F24: Its webhook is asked once the user says so; who reads `team.notes` knows how."""
    import asyncio

    async def asked(url, body, headers):
        await asyncio.sleep(0)
        sent.append((url, body, headers))
        return b'{"block": "The hook knows."}'

    sent = []
    monkeypatch.setattr("ctxkit.agent.memory.providers._post_json", asked)
    monkeypatch.setenv("SOME_KEY", "k" * 20)
    hook = {"LoadUrl": "http://127.0.0.1:9/load", "Headers": {"X-Key": "${SOME_KEY}"}}
    plan = config(["Writer"], Memory={"Provider": "webhook", "Webhook": hook},
                  Termination={"MaxIterations": 1})  # fmt: skip
    with made(tmp_path / "one", {"Writer": [["Hi."]]}, plan) as team:
        team.run("Work.")
        assert not sent
        assert any("memory=('webhook',)" in n for n in team.notes)
    with made(tmp_path / "two", {"Writer": [["Hi."]]}, plan, memory=("webhook",)) as team:
        team.run("Work.")
        assert [(b, h["X-Key"]) for _, b, h in sent] == [({"agent": "Writer"}, "k" * 20)]
        assert any("The hook knows." in t for _, t in shown(team, "Writer", 0))
        assert not team.notes
    with pytest.raises(ck.BadArguments, match="There is no memory 'all'"):
        made(tmp_path / "three", {"Writer": []}, plan, memory=("all",))


@pytest.mark.parametrize("has_files", [True, False])
@pytest.mark.parametrize("sections", ["", "off"])
def test_each_agent_has_the_gitignore_and_the_index_of_the_store_unasked(
    tmp_path, has_files, sections
):
    """F4, F5, F9: Of the folder in which the team works; where there are none, no word is added."""
    root = tmp_path / "work"
    root.mkdir()
    if has_files:
        (root / ".gitignore").write_text("build/\n*.log\n")
        (tmp_path / "schema.sql").write_text("create table x;")
        found = import_files(tmp_path / "schema.sql")
        ContextStore(tmp_path).put("db", found.files, source="schema.sql", info=found.info)
    plan = config([{"Name": n, "Instructions": f"You are {n}."} for n in "AB"],
                  Termination={"MaxIterations": 2})  # fmt: skip
    more = {"sections": sections} if sections else {}
    with made(tmp_path, {n: [["Hi."]] for n in "AB"}, plan, root=root, **more) as team:
        team.run("Work.")
        for name in "AB":
            first = team.sessions[name].session.messages[0]
            assert first.role == "system"
            if not has_files or sections:
                assert first.text == f"You are {name}."
                continue
            assert first.text.startswith(f"You are {name}.\n")
            assert "## .gitignore" in first.text
            assert "*.log" in first.text
            assert "[db]: .ctxkit/context/db/schema.sql" in first.text
            assert [n for n, _, _ in first.sections] == ["own", "gitignore", "store"]


def test_sections_stand_in_each_agents_system_message(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work/.gitignore").write_text("build/\n")
    plan = config([{"Name": "A", "Instructions": "You are A."}], Termination={"MaxIterations": 1})
    with made(tmp_path, {"A": [["Hi."]]}, plan, sections="on", root=tmp_path / "work") as team:
        team.run("Work.")
        names = [n for n, _, _ in team.sessions["A"].session.messages[0].sections]
        assert {"own", "runtime", "gitignore"} <= set(names)
        live = team.sessions["A"]
        read = ck.read(live.log.path)
        assert (
            ck.experiments.sections(read)["section"].tolist()
            == ck.experiments.sections(live.session)["section"].tolist()
        )
