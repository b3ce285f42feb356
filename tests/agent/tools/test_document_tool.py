"""The tool `document`, and the context store beside the root."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from agent import sample_documents as made

from ctxkit.agent import ContextStore, RootFolder, make_file_tools
from ctxkit.agent.tools.file_tools_and_pdf_office_text import DOCUMENT_MODULES, make_document_tool
from ctxkit.errors import BadArguments, StoreError

pytestmark = pytest.mark.skipif(
    not all(map(find_spec, DOCUMENT_MODULES.values())),
    reason="needs the extra jupyter-ctxkit[documents]",
)


@pytest.fixture
def root(tmp_path):
    return RootFolder(tmp_path / "root")


def test_a_single_sheet_a_page_and_a_range(root):
    """F12: Documents met in a session are read by a tool, single sheets too."""
    read = make_document_tool(root).run
    made.xlsx(root.folder / "a.xlsx")
    made.pdf(root.folder / "a.pdf", "one", "two", "three")
    made.pptx(root.folder / "a.pptx")
    assert read("a.xlsx") == "Rates: 29 characters\nNotes 2026: 6 characters"
    assert read("a.xlsx", "Notes 2026") == "closed"
    assert read("a.pdf", "2") == read("a.pdf", "page 2") == "two"
    assert read("a.pdf", "2-9") == "## page 2\n\ntwo\n\n## page 3\n\nthree"
    assert read("a.pptx", "slides 1") == "First\nBody of First"
    assert read("a.xlsx", "Rates", start=2, end=2) == "C1\t1\t\t1.5\n"
    assert read("a.xlsx", "all").startswith("## Rates\n\nC0")


def test_what_is_not_there_is_said(root, tmp_path):
    read = make_document_tool(root).run
    made.xlsx(root.folder / "a.xlsx")
    with pytest.raises(BadArguments, match="has no part 'Rate'; it has 'Rates', 'Notes 2026'"):
        read("a.xlsx", "Rate")
    (root.folder / "a.txt").write_text("x")
    with pytest.raises(BadArguments, match="is no document"):
        read("a.txt")
    made.pdf(tmp_path / "out.pdf", "out")
    (root.folder / "link.pdf").symlink_to(tmp_path / "out.pdf")
    for path in ("../out.pdf", "link.pdf", str(tmp_path / "out.pdf"), "lost.pdf"):
        with pytest.raises(StoreError):
            read(path)


def test_the_store_is_read_and_listed_beside_a_root_that_does_not_hold_it(root, tmp_path):
    library = ContextStore(tmp_path)
    library.put("specs", {"a.md": (b"one\ntwo\n", 8), "b.txt": (b"B", 1)})
    tools = {t.name: t.run for t in make_file_tools(root, library)}
    assert tools["read_file"](".ctxkit/context/specs/a.md", 2) == "two\n"
    assert tools["list_files"](".ctxkit/context/specs", "*.md") == ".ctxkit/context/specs/a.md"
    assert tools["list_files"](".ctxkit/context/specs", "*.py") == "(no files)"
    (root.folder / "mine.md").write_text("mine")
    assert tools["read_file"]("mine.md") == "mine"
    for path in (".ctxkit/context/specs/../../sessions/x.jsonl", ".ctxkit/sessions/x.jsonl"):
        with pytest.raises(StoreError):
            tools["read_file"](path)
    with pytest.raises(StoreError, match="runs by itself"):
        tools["write_file"](".fuseraft/context/index.json", "x")
    assert "there is no" in _said(tools["read_file"], ".ctxkit/context/specs/c.md").lower()


def _said(call, *words) -> str:
    with pytest.raises(StoreError) as e:
        call(*words)
    return str(e.value)
