"""The words of the course: each is linked to the glossary where it comes first, and links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat

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
}
"""Words of every day, too: before they are linked they may stand for what they mean there."""


def anchor(word: str) -> str:
    return word.replace(" ", "-")


def prose(path: Path) -> list[str]:
    """The text of a notebook, without code, a cell each."""
    cells = nbformat.read(path, as_version=4).cells
    return [re.sub(r"`[^`]*`", "", c.source) for c in cells if c.cell_type == "markdown"]


def test_there_are_as_many_words_as_the_glossary_says():
    assert len(WORDS) == 34
    assert "Thirty-four words" in GLOSSARY


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
