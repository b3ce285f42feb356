"""What goes wrong around a compaction, as a person sees it in a real lab: a failing summary model, a summary that
is not shorter, an offloaded tool result and a reply cut by its length, against servers of this machine."""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from agent.models.fake_provider_server import Play, wire

from browser.jupyterlab_driver import written

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.browser, pytest.mark.long]

MODEL, NOTES = "openai/gpt-4.1-mini", "openai/gpt-4.1-nano"
START = """import os
os.environ["OPENAI_API_KEY"] = "none"
import ctxkit as ck
%load_ext ctxkit"""
TURN = "%%agent --model '{model}' --summary-model '{notes}' --rules rules --root . --tools {tools}\n{prompt}"
REPLY = Play("The invoice service retries three times. " * 12, usage="counted")
LONG = Play("The invoice service retries three times. " * 90, usage="counted")
REFUSED = Play(status=401, said="Incorrect API key provided")
LONG_NOTES = Play("The user asked about the invoice service. " * 800, usage="counted")
SHORT_NOTES = Play("The user asked how invoices are retried; three times.", usage="counted")
FUSERAFT = "rules = ck.presets.fuseraft(trigger_turn_count=3, keep_recent_turns=1)"
PULSE_CODER = (
    "rules = ck.presets.pulse_coder(compact_trigger=50_000, compact_target=700, keep_last_turns=1)"
)
READ = Play(calls=(("read_file", {"path": "invoices.log"}),), usage="counted")
CUT = Play("Retries are handled in three places. First, the queue", stop="length", usage="counted")

SCENES = {
    "failing": (FUSERAFT, [REPLY, REPLY, REPLY, LONG], [REFUSED], ["How are invoices retried?"] * 4),
    "not-shorter": (FUSERAFT, [REPLY], [LONG_NOTES], ["How are invoices retried?"] * 6),
    "offloaded": (
        "rules = ck.presets.fuseraft()",
        [READ, REPLY],
        [SHORT_NOTES],
        ["What stands in invoices.log?"],
    ),
    "cut-short": (PULSE_CODER, [REPLY, REPLY, CUT, REPLY], [SHORT_NOTES], ["How are invoices retried?"] * 3),
}  # fmt: skip


@pytest.fixture
def notebook(tmp_path: Path):
    """Write a scene as a notebook; its servers are up until the test ends."""
    with ExitStack() as servers:

        def write(name: str) -> Path:
            rules, replies, notes, prompts = SCENES[name]
            up = servers.enter_context(wire("chat", *replies))
            writer = servers.enter_context(wire("chat", *notes))
            turn = {
                "model": f"{MODEL}?api_base={up.url}",
                "notes": f"{NOTES}?api_base={writer.url}",
                "tools": "files" if name == "offloaded" else "work",
            }
            rows = "'\\n'.join(f'{n:05d} invoice retried after 503' for n in range(1_600))"
            begin = f"{START}\n{rules}\nopen('invoices.log', 'w').write({rows})"
            cells = [TURN.format(prompt=p, **turn) for p in prompts]
            return written(tmp_path / name, begin, *cells, "%context compactions", "%context")

        yield write


TABLES = {
    "failing": "The last summary failed (openai/gpt-4.1-nano: AuthenticationError: Incorrect API key provided):"
    " a note stands in the place of what it took.",
    "not-shorter": "0 compactions, 1 attempt without an effect. The last was refused (not smaller: after it",
}
"""What `%context compactions` says above its table."""
SEEN = {
    "failing": [
        (4, r"✂ compacted [\d,]+ → [\d,]+ tokens \(message_count.*; the summary failed: openai/gpt-4.1-nano: AuthenticationError: Incorrect API key provided · its call reported no usage, so no cost is known"),
        (4, r"→ the earlier messages left the prompt without a model's summary: .* `%context restore N` bring them back"),
    ],
    "not-shorter": [
        (4, r"! compaction refused: not smaller: after it the prompt would have [\d,]+ tokens, before it [\d,]+ \(both as counted here\); the history is kept as it was · the summary's call: [\d,]+ tokens, \$0\.\d+ · not asked again for 2 calls"),
        (4, r"→ nothing is lost: a later trigger or a shorter summary avoids such a call"),
    ],
    "offloaded": [
        (1, r"✂ the result of read_file, [\d,]+ characters, is kept whole in a file; the prompt has a short stub"),
        (1, r"→ \.ctxkit/artifacts/sessions/\w+/tool-results/\w+\.txt$"),
    ],
    "cut-short": [
        (3, r"! the reply was cut by its limit of length; the model is asked to go on where it ended"),
        (3, r"✂ compacted [\d,]+ → [\d,]+ tokens \(cut_short.*\) · the summary's call: [\d,]+ tokens, \$0\.\d+"),
    ],
}  # fmt: skip
"""For each scene the lines that are bold: index of the turn's cell, and what the line says."""
BOLD = """() => window.notebook.content.widgets.map(cell => [...cell.node.querySelectorAll('pre b')].map(e => {
  const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number).map(
      v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  let box = e; while (box && /rgba\\(0, 0, 0, 0\\)|transparent/.test(getComputedStyle(box).backgroundColor)) box = box.parentElement;
  const [hi, lo] = [getComputedStyle(e).color, getComputedStyle(box || document.body).backgroundColor].map(light).sort((a, b) => b - a);
  return {text: e.textContent, weight: +getComputedStyle(e).fontWeight, contrast: (hi + 0.05) / (lo + 0.05),
          cut: e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0};
}))"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", SCENES)
def test_it_is_seen_what_happened_what_it_cost_and_what_to_do(name, dark, jupyter, notebook):
    bold: list[list[dict]] = []
    seen = jupyter.run(
        notebook(name), dark=dark, act=lambda page, _: bold.extend(page.evaluate(BOLD))
    )
    assert seen.problems == []
    for cell, pattern in SEEN[name]:
        lines = [b for b in bold[cell + 1] if re.search(pattern, b["text"])]
        assert len(lines) == 1, (pattern, bold[cell + 1])
        assert lines[0]["weight"] >= 600
        assert lines[0]["contrast"] >= (7 if dark else 4.5)
        assert not lines[0]["cut"]
    table = next(c["text"] for c in seen.cells if c["source"] == "%context compactions")
    assert TABLES.get(name, "") in table
