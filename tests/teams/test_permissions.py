"""Capabilities and the change envelope of a config are obeyed: what may not be written is not."""

from __future__ import annotations

import json

import pytest
from agent import sample_documents as documents
from teams.small_teams import config, made

from ctxkit.errors import BadArguments
from ctxkit.teams import WritableFiles

ENVELOPE = {"Security": {"FileSystemSandboxPath": ".", "ChangeEnvelope": ["output/**", "*.md"]}}
READS = {"Plugins": ["FileSystem", "Shell"], "Capabilities": {"FileSystem": ["read"]}}


def write(path, tool="write_file", **more):
    return tool, {"path": path, "content": "x", **more}


def results(team, agent):
    return [m for m in team.sessions[agent].session.messages if m.role == "tool"]


def ran(folder, calls, *agents, **more):
    """A team of one turn of its first agent."""
    first = agents[0] if isinstance(agents[0], str) else agents[0]["Name"]
    team = made(folder, {first: [[*calls, "Over."]]},
                config(agents, Termination={"MaxIterations": 1}, **more), root=folder / "root",
                tools=("files", "shell"))  # fmt: skip
    team.run("Work.")
    return team


def test_an_agent_that_may_only_read_writes_no_file(tmp_path):
    calls = [write("no.txt"), ("patch_file", {"path": "a.txt", "oldText": "a", "newText": "b"}),
             ("read_file", {"path": "a.txt", "startLine": 1})]  # fmt: skip
    (tmp_path / "root").mkdir()
    (tmp_path / "root/a.txt").write_text("a")
    with ran(tmp_path, calls, {"Name": "Reader", **READS}) as team:
        refused, _, read = results(team, "Reader")
        assert "write_file" not in team.sessions["Reader"].agent.tools
    assert not (tmp_path / "root/no.txt").exists()
    assert (tmp_path / "root/a.txt").read_text() == "a"
    assert refused.is_error
    assert read.text == "a"


def test_an_agent_without_the_tag_run_has_no_shell(tmp_path):
    reads = {"Name": "R", "Plugins": ["FileSystem", "Shell"], "Capabilities": {"Shell": ["read"]}}
    with ran(
        tmp_path, [("shell_run", {"command": "touch no.txt"}), write("yes.txt")], reads
    ) as team:
        assert [m.is_error for m in results(team, "R")] == [True, False]
    assert [p.name for p in (tmp_path / "root").iterdir()] == ["yes.txt"]


def test_a_tag_that_is_none_is_refused(tmp_path):
    wrong = {"Name": "R", "Capabilities": {"FileSystem": ["raed"]}}
    with pytest.raises(BadArguments, match="'raed'; there are read, write, delete"):
        made(tmp_path, {}, config([wrong]), model="scripted/tour")


def test_no_agent_writes_outside_of_the_envelope(tmp_path):
    calls = [write("other/o.txt"), write("output/../src/evil.py"), write("output/a/b.txt"),
             ("patch_file", {"path": "src/a.py", "old": "1", "new": "2"}), write("notes.md"),
             write("docs/notes.md")]  # fmt: skip
    (tmp_path / "root/src").mkdir(parents=True)
    (tmp_path / "root/src/a.py").write_text("1")
    with ran(tmp_path, calls, "W", **ENVELOPE) as team:
        said = results(team, "W")
    assert [m.is_error for m in said] == [True, True, False, True, False, True]
    assert "'other/o.txt' lies outside of the change envelope" in said[0].text
    assert said[0].text.endswith("and was not written; files of output/**, *.md may be.")
    written = sorted(p.relative_to(tmp_path / "root").as_posix()
                     for p in (tmp_path / "root").rglob("*") if p.is_file())  # fmt: skip
    assert written == ["notes.md", "output/a/b.txt", "src/a.py"]
    assert (tmp_path / "root/src/a.py").read_text() == "1"


def test_a_refusal_names_five_globs_and_cuts_long_paths(tmp_path):
    globs, path = [*(f"g{n}" for n in range(5)), "g" * 80], f"{'p' * 150}/{'p' * 150}"
    for count, named in ((5, "g0, g1, g2, g3, g4"), (6, "g0, g1, g2, g3, g4 and 1 more")):
        security = {"ChangeEnvelope": globs[:count]}
        with ran(tmp_path / str(count), [write(path)], "W", Security=security) as team:
            text = results(team, "W")[0].text
        assert f"files of {named} may be." in text
        assert f"'{path[:199]}…' lies outside" in text
    security = {"ChangeEnvelope": globs[::-1]}
    with ran(tmp_path / "long", [write("no.txt")], "W", Security=security) as team:
        assert f"files of {'g' * 59}…, g4, g3, g2, g1 and 1 more may" in results(team, "W")[0].text


def test_a_link_does_not_lead_out_of_the_envelope(tmp_path):
    (tmp_path / "root/output").mkdir(parents=True)
    (tmp_path / "root/src").mkdir()
    (tmp_path / "root/output/in").symlink_to("../src")
    with ran(tmp_path, [write("output/in/evil.py")], "W", **ENVELOPE) as team:
        assert results(team, "W")[0].is_error
    assert not list((tmp_path / "root/src").iterdir())


def test_a_discovery_brief_of_an_earlier_run_seeds_the_envelope(tmp_path):
    brief = tmp_path / "root/brief.brownfield.json"
    brief.parent.mkdir()
    brownfield = {"Brownfield": {"DiscoveryBriefPath": brief.name}}
    with ran(tmp_path, [write("outside.py")], "W", **brownfield) as team:
        assert not results(team, "W")[0].is_error  # nothing was discovered yet
    brief.write_text(json.dumps({"in_scope_files": ["src/in.py"]}))
    with ran(tmp_path / "again", [], "W", **brownfield) as team:
        team.close()
    team = made(tmp_path / "2", {"W": [[write("b.py"), write("src/in.py"), "Over."]]},
                config(["W"], Termination={"MaxIterations": 1}, **brownfield),
                root=tmp_path / "root")  # fmt: skip
    with team:
        team.run("Work.")
        assert [m.is_error for m in results(team, "W")] == [True, False]


@pytest.mark.parametrize(
    ("glob", "inside", "outside"),
    [
        ("src/**", "src/a/b.py", "src2/a.py"),
        ("src/*.py", "src/a.py", "src/a/b.py"),
        ("**/test_*.py", "test_a.py", "a/testing.py"),
        ("a/**/b", "a/x/y/b", "a/x/y/c"),
        (".fuseraft/red-team/**", ".fuseraft/red-team/x.md", ".fuseraft/x.md"),
        ("a?.txt", "ab.txt", "a/.txt"),
        ("src/out", "src/out", "src/out/a.py"),
        ("**/test*/**/*.py", "tests/test_a.py", "tests/a.txt"),
        ("**", "anything/at/all", None),
    ],
)
def test_globs_are_matched_as_fuseraft_writes_them(glob, inside, outside):
    envelope = WritableFiles((glob,))
    assert envelope.covers(inside)
    assert outside is None or not envelope.covers(outside)


def test_a_glob_of_many_stars_is_matched_in_no_time():
    assert not WritableFiles(("**/a/" * 60 + "z",)).covers("a/" * 2_000 + "b")


def test_what_the_team_changed_can_be_read(tmp_path):
    """F46: The plugin `Changes` reads the newest entries of the change log."""
    parts = {"Maker": [[write("a.txt"), ("shell", {"command": "false"}), "Made."]],
             "Judge": [[("changes_read_latest", {}), ("changes_read", {}), "Seen."]]}  # fmt: skip
    agents = [{"Name": "Maker", "Plugins": ["FileSystem", "Shell"]},
              {"Name": "Judge", "Plugins": ["Changes"]}]  # fmt: skip
    plan = config(agents, Termination={"MaxIterations": 2})
    with made(tmp_path, parts, plan, tools=("files", "shell")) as team:
        team.run("Work.")
        latest, whole = results(team, "Judge")
    assert latest.text == whole.text
    assert latest.text.splitlines()[1:] == [
        "  Files written:", "    - a.txt", "  Commands run:", "    - false [FAILED]",
    ]  # fmt: skip
    assert latest.text.startswith("[Turn 0] Maker (")


def test_a_document_is_read_under_fuserafts_name_of_the_plugin(tmp_path):
    """F12: The plugin is called Document, and its tools answer to fuseraft's names."""
    pytest.importorskip("openpyxl")
    (tmp_path / "root").mkdir()
    documents.xlsx(tmp_path / "root/a.xlsx")
    agent = {"Name": "Reader", "Plugins": ["Document"]}
    calls = [("document_list_sheets", {"path": "a.xlsx"}),
             ("document_get_sheet", {"path": "a.xlsx", "sheetName": "Notes 2026"})]  # fmt: skip
    team = made(tmp_path, {"Reader": [[*calls, "Over."]]},
                config([agent], Termination={"MaxIterations": 1}), root=tmp_path / "root",
                tools=("files", "document"))  # fmt: skip
    with team:
        assert not [n for n in team.notes if "Document" in n]
        team.run("Read.")
        sheets, sheet = results(team, "Reader")
    assert sheets.text == "Rates: 29 characters\nNotes 2026: 6 characters"
    assert sheet.text == "closed"
