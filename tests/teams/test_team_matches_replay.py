"""Live, log and replay of a team agree to the token, whatever is handed on and however it compacts."""

from __future__ import annotations

import pytest
from teams import test_agent_selection as selected
from teams import test_llm_adversarial_scatter_mapreduce as spread
from teams import test_orchestration_files as files
from teams import test_team_summaries as summed
from teams.orchestration_files import BROWNFIELD, DEV, PIPELINE, RESEARCH
from teams.small_teams import config, made
from yaml import safe_load

import ctxkit as ck
from ctxkit.tokens import default_counter, estimate_schema_tokens

SHELL = ("files", "shell")


def compacting(mode, **more):
    """The team of the summaries' tests, whose first agent compacts after three turns."""
    keys = {"TriggerTurnCount": 3, "KeepRecentTurns": 1, "Mode": mode, **more}
    agents = [{"Name": "A", "Plugins": ["FileSystem", "Shell"]}, "B"]
    plan = config(agents, summed.STATES, Contracts=summed.CONTRACTS, Compaction=keys)
    return plan, summed.PARTS, SHELL


LINE = {"Extractor": [["Two records."]], "Transformer": [["Done.\nPIPELINE_COMPLETE"]]}
FOUND = {
    "Researcher": [[files.write("notes/raw.txt", "fact " * 40), "Found.\n\nHANDOFF TO WRITER"]],
    "Writer": [[files.write("report.md", "# Report"), "REPORT COMPLETE"]],
}
BUILT = {"scout": [["There is one file."]], "Builder": [
    [files.write("a.txt", "a"), ("shell", {"command": "echo all tests"}), "BUILT"]], "Surveyor": [
    [("sub_agent_locate", {"query": "Where is main?"}), "RECON COMPLETE"]]}  # fmt: skip
LED = {"boss": [selected.leads("B"), selected.leads("A"), selected.leads("A", done=True)],
       "A": [["Built."]], "B": [["Found."]]}  # fmt: skip
TEAMS = {
    "dev": (safe_load(DEV), files.DEV_PARTS, SHELL),
    "research": (safe_load(RESEARCH), FOUND, ("files",)),
    "pipeline": (safe_load(PIPELINE), LINE, ("files",)),
    "brownfield": (safe_load(BROWNFIELD), BUILT, SHELL),
    "branches": (config(["A", "B", "C"], selected.BRANCHES), selected.BRANCHED, ("files",)),
    "magentic": (config(["A", "B"], Selection=selected.MAGENTIC), LED, ("files",)),
    **{f"{m} mode": compacting(m) for m in ("llm", "intent", "lossless", "hybrid")},
    "window mode": compacting("window", TokenBudget=400),
    **{name: (safe_load(text), parts, ("files",)) for name, (text, parts) in spread.SPREAD.items()},
}


@pytest.mark.parametrize("name", TEAMS)
def test_live_log_and_replay_of_a_team_agree_to_the_token(name, tmp_path):
    plan, parts, tools = TEAMS[name]
    with made(tmp_path, parts, plan, tools=tools) as team:
        assert team.run("Do the work of this team, and say when it is done.").ended == "done"
        assert any(live.session.edits for live in team.lives) == name.endswith(" mode")
        for live in team.lives:
            session, kept = live.session, ck.read(live.log.path)
            sizes = [default_counter().message(m) for m in session.messages]
            fixed = estimate_schema_tokens(t.schema for t in live.agent.tools.values())
            again = ck.replay(kept, live.agent.rules, tokens=sizes, fixed=fixed)
            sent, read, told = ([c.message.usage.prompt_tokens for c in s.calls]
                                for s in (session, kept, again))  # fmt: skip
            assert sent == read == told, live.name
            for call in range(len(session.calls)):
                parts_ = [[i.message.parts for i in s.sent(call)] for s in (session, again)]
                assert parts_[0] == parts_[1], (live.name, call)
