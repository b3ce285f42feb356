"""What a real kernel shows of a session's size, held against the account of a server that bills three times as much."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec

import pytest
from agent.models.fake_provider_server import FORMATS, Play, wire
from magics import test_agent_in_a_kernel
from magics.test_agent_in_a_kernel import Kernel, errors, shown

pytestmark = pytest.mark.skipif(not find_spec("ipykernel"), reason="ipykernel is not installed")
KEYS = "import os\nos.environ['OPENAI_API_KEY'] = os.environ['ANTHROPIC_API_KEY'] = 'none'"
RULES = "import ctxkit as ck\nrules = ck.presets.fuseraft(mode='intent', trigger_turn_count={}, keep_recent_turns=1)"
TABLE = "_c = %context compactions\nprint(_c[['tokens_before', 'tokens_after', 'tokens_source']].values.tolist())"
THRASH = """
from ctxkit.metrics import thrash
s = get_ipython().magics_manager.registry['CtxKit'].session()
print(f"{[[c.before, c.after] for c in thrash(s).outcomes]} {ck.frame(s, per='call')['prompt_tokens'].tolist()}")
"""
MORE = {"usage": "counted", "rate": 0.75}
READ = Play("I read.", calls=(("read_file", {"path": "a.txt"}),), **MORE)
DONE = Play("Done.", **MORE)


def last(kernel):
    """Return what the views of a kernel show for the size of the session now: `%agent` exactly, `%context` in short."""
    exact = re.search(r"Context: (-?[\d,]+)/200,000 tokens", shown(kernel.run("%agent")))[1]
    short = re.search(r"Context: (\S+)/200k", shown(kernel.run("%context")))[1]
    return int(exact.replace(",", "")), short


def rounded(n):
    return f"{n / 1000:.0f}k" if n >= 1000 else str(n)


def taken(kernel, up, cell, *plays):
    """Run a turn whose bar and end line show what its last prompt was billed; return what was shown."""
    up.plays[:] = plays
    seen = kernel.run(cell)
    assert errors(seen) == []
    text, now = shown(seen), up.account[-1]
    assert re.findall(r"\] (-?[\d,]+)/200,000 tokens", text)[-1] == f"{now:,}"
    assert re.findall(r"context (-?[\d,]+)/200,000", text) == [f"{now:,}"]
    assert last(kernel) == (now, rounded(now))
    return text


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    """One kernel for both formats, which imports LiteLLM once."""
    folder = tmp_path_factory.mktemp("sizes")
    (folder / "root").mkdir()
    (folder / "root" / "a.txt").write_text("The north had one row with a wrong sign. " * 300)
    kernel = Kernel(folder)
    yield kernel
    kernel.close()


@pytest.mark.parametrize("kind", ["chat", "anthropic"])
def test_line_bar_end_line_table_and_metrics_are_the_account(kind, kernel, monkeypatch):
    monkeypatch.setattr(test_agent_in_a_kernel, "WAIT", 240)  # LiteLLM is imported meanwhile
    with wire(kind, DONE) as up:
        kernel.run(KEYS)
        kernel.run(RULES.format(5))
        model = f"{FORMATS[kind][0]}?api_base={up.url}&context_window=200000"
        head = (
            f"%%agent --session {kind} --model '{model}' --rules rules --root root --memory off\n"
        )
        text = taken(kernel, up, f"{head}go", READ, READ, DONE)
        assert "✂" not in text
        # by its trigger
        text = taken(kernel, up, "%%agent\non", READ, DONE)
        text = taken(kernel, up, "%%agent\nand now", DONE)
        was, now = up.account[-2:]
        assert f"✂ compacted {was:,} → {now:,} tokens (message_count)" in text
        first = [was, now, "recorded"]
        assert shown(kernel.run(TABLE)).strip() == str([first])
        # by hand
        taken(kernel, up, "%%agent\nagain", READ, DONE)
        text = shown(kernel.run("%compact"))
        was = up.account[-1]
        before, after = re.search(
            r"Compacted \(([\d,]+) → ([\d,]+) tokens, estimated", text
        ).groups()
        assert before == f"{was:,}"
        guess = int(after.replace(",", ""))
        assert last(kernel) == (guess, rounded(guess))
        taken(kernel, up, "%%agent\nand then", DONE)
        assert guess == pytest.approx(up.account[-1], rel=0.2)
        second = [was, up.account[-1], "recorded"]
        assert shown(kernel.run(TABLE)).strip() == str([first, second])
        # within a turn
        text = taken(kernel, up, "%%agent\nmuch", *[READ] * 4, DONE)
        line = [s for s in text.splitlines() if s.startswith("✂")][-1]  # the view that stays
        before, after = (int(n.replace(",", "")) for n in re.findall(r"[\d,]+(?= →| tokens)", line))
        assert after in up.account
        assert "estimated" in line  # the result that came since its last prompt is counted
        rows = json.loads(shown(kernel.run(TABLE)).strip().replace("'", '"'))
        assert rows == [first, second, [before, after, "estimated"]]
        told = f"{[row[:2] for row in rows]} {up.account}"
        assert shown(kernel.run(THRASH)).strip() == told
