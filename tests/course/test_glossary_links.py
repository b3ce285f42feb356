"""The words of the course: each is linked to the glossary where it comes first, and links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pandas as pd
import pytest

import ctxkit as ck
from ctxkit.policies import Rules, triggers
from ctxkit.tokens import IMAGE_TOKENS, find_rule

ROOT = Path(__file__).parents[2]
GLOSSARY = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
WORDS = re.findall(r"^### (.+)$", GLOSSARY, re.MULTILINE)
LESSONS = sorted((ROOT / "notebooks").glob("0[1-79]*.ipynb"))
PAGES = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs/teaching").glob("*.md"), ROOT / "README.md"]
EVERYDAY = {
    "front",
    "interval",
    "history",
    "item",
    "memory",
    "room",
    "edit",
    "section",
    "record",
    "schedule",
    "rules",
    "approval",
    "image",
    "thinking",
    "judge",
}
"""Words of every day, too: before they are linked they may stand for what they mean there."""


def anchor(word: str) -> str:
    return word.replace(" ", "-")


def prose(path: Path) -> list[str]:
    """The text of a notebook, without code, a cell each."""
    cells = nbformat.read(path, as_version=4).cells
    return [re.sub(r"`[^`]*`", "", c.source) for c in cells if c.cell_type == "markdown"]


def test_there_are_as_many_words_as_the_glossary_says():
    assert len(WORDS) == 53
    assert "Fifty-three words" in GLOSSARY


def test_each_word_is_linked_where_it_comes_first():
    text = [cell for path in LESSONS for cell in prose(path)]
    late = []
    for word in set(WORDS) - EVERYDAY:
        linked = f"glossary.md#{anchor(word)})"
        uses = re.compile(rf"(?<![#\w-]){word}(s|es)?(?![\w-])", re.IGNORECASE)
        first = next((cell for cell in text if uses.search(re.sub(r"\]\([^)]*\)", "]", cell))), "")
        late += [(word, first[:60])] * bool(first and linked not in first)
    assert late == []


def test_links_into_the_glossary_lead_to_a_word():
    anchors = {anchor(word) for word in WORDS}
    text = [p.read_text(encoding="utf-8") for p in (ROOT / "notebooks").glob("*.ipynb")]
    text += [p.read_text(encoding="utf-8") for p in PAGES]
    found = {a for t in text for a in re.findall(r"glossary\.md#([\w-]+)", t)}
    assert len(found) > 15
    assert found - anchors == set()


def test_links_between_pages_and_notebooks_lead_somewhere():
    missing = []
    for path in [*(ROOT / "notebooks").glob("*.ipynb"), *PAGES]:
        targets = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))
        missing += [(path.name, t) for t in targets if not (path.parent / t).resolve().exists()]
    assert missing == []


def test_the_summaries_that_the_glossary_counts_are_those_of_the_logs(real):
    logs = ("claude-code/entire-7f78a542", "claude-code/entire-198393f2", "pi/before-compaction")
    frames = [
        ck.frame(real / f"{name}.jsonl", per="compaction", count="exact")[
            ["tokens_before", "summary_tokens"]
        ]
        for name in logs
    ]
    (before, summary) = (pd.concat(frames)[name] for name in frames[0])
    assert len(summary) == 5
    text = " ".join(GLOSSARY.split())
    assert (
        f"Five recorded summaries (Claude Code, Pi), of prompts of {before.min():,} to {before.max():,} tokens,"
        f" had {summary.min():,} to {summary.max():,}" in text
    )


def test_what_the_glossary_says_of_prices_images_and_reserves_is_so():
    text = " ".join(GLOSSARY.split())
    model = "claude-sonnet-4-5"
    facts = [
        find_rule(fact, model).value for fact in ("cache_life", "cache_life_1h", "write_share_1h")
    ]
    assert facts == [300, 3_600, 2]
    assert (
        "five minutes after its last read at Anthropic, or for an hour where it was written for twice"
        in text
    )
    assert f"taken for {IMAGE_TOKENS:,} tokens" in text
    with pytest.raises(ck.errors.BadArguments, match="leaves no room"):
        Rules(policy="summary", trigger=triggers.Above(9_000), window=10_000, reserve=10_000)
    with pytest.raises(ck.errors.BadArguments, match="frees nothing"):
        Rules(policy="summary:keep_tokens=9000", trigger=triggers.Above(9_000))
