"""Documents as text: which parts are read, how they are listed, and how a reader that fails is described.

A script in place of the reader prints what the file holds, so that no document library is needed.
"""

from __future__ import annotations

import asyncio
import json
from importlib.util import find_spec

import pytest
from builders import tool_call

from ctxkit.agent import RootFolder, run_tool
from ctxkit.agent.tools.file_tools_and_pdf_office_text import (
    Document,
    DocumentPiece,
    DocumentReadLimits,
    is_document,
    make_document_tool,
    read_document,
)
from ctxkit.errors import BadArguments, StoreError

pytestmark = pytest.mark.skipif(find_spec("pypdf") is None, reason="needs the kinds of documents")
READER = """
import json, os, sys, time
request = json.loads(sys.argv[1])
script = json.load(sys.stdin)
for row in script["rows"]:
    if request["wanted"] is None or row.get("name", "") in ("", *request["wanted"]):
        print(json.dumps(row), flush=True)
print(json.dumps({"name": "request", "text": json.dumps([request, sorted(os.environ)])}) if script.get("echo") else "")
print(script.get("torn", ""), end="", flush=True)
time.sleep(script.get("sleep", 0))
sys.exit(script.get("code", 0))
"""
PAGES = [{"name": f"page {n}", "text": f"text {n}\nmore"} for n in (1, 2, 3)]


@pytest.fixture(autouse=True)
def _stand_in_reader(tmp_path, monkeypatch):
    reader = tmp_path / "reader.py"
    reader.write_text(READER)
    monkeypatch.setattr("ctxkit.agent.tools.document_worker.__file__", str(reader))


def read(folder, rows, wanted=None, limits=None, name="a.pdf", **more):
    path = folder / "document"
    path.write_text(json.dumps({"rows": rows, **more}))
    with path.open("rb") as file:
        return path.stat().st_size, read_document(file, name, wanted, limits)


def test_the_pieces_of_a_document(tmp_path):
    size, document = read(tmp_path, PAGES[:2])
    pages = (DocumentPiece("page 1", "text 1\nmore"), DocumentPiece("page 2", "text 2\nmore"))
    assert document == Document(pages, size, "")
    assert document.text == "## page 1\n\ntext 1\nmore\n\n## page 2\n\ntext 2\nmore"
    _, document = read(tmp_path, PAGES, ["page 3"])
    assert document.text == "text 3\nmore"
    _, document = read(tmp_path, [PAGES[0], {"note": "2 pages were left out"}])
    assert document.note == "2 pages were left out"
    assert document.text == "## page 1\n\ntext 1\nmore\n\n[2 pages were left out]"


def test_what_the_reader_is_given(tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "secret")
    limits = DocumentReadLimits()
    _, document = read(tmp_path, [], name="A.PDF", echo=True)
    request, names = json.loads(document.text)
    assert request == {"kind": "pdf", "wanted": None, **limits._asdict()}
    assert "PATH" in names
    assert "SOME_API_KEY" not in names


@pytest.mark.parametrize(
    ("rows", "more", "expected"),
    [
        ([{"error": "it is damaged"}], {}, "it is damaged"),
        ([PAGES[0], {"error": "it is damaged"}], {}, "it is damaged"),
        ([{"note": "all pages were left out"}], {}, "all pages were left out"),
        ([{"error": "x" * 400}], {}, "x" * 299 + "…"),
        ([], {"code": 1}, "reading it took too much memory or time"),
        ([], {"sleep": 60, "limits": DocumentReadLimits(seconds=0.05)}, "reading it was ended after 0.05 seconds"),
    ],
)  # fmt: skip
def test_a_document_that_cannot_be_read(tmp_path, rows, more, expected):
    with pytest.raises(StoreError) as error:
        read(tmp_path, rows, **more)
    assert str(error.value) == f"'a.pdf' was not read: {expected}."


def test_of_a_reader_that_broke_off_the_whole_pieces_are_returned(tmp_path):
    _, document = read(tmp_path, PAGES[:1], torn='{"name": "page 2", "te', code=9)
    assert [p.name for p in document.pieces] == ["page 1"]
    assert document.note == "reading it took too much memory or time"


def use_tool(folder, **arguments):
    (folder / "a.pdf").write_text(json.dumps({"rows": PAGES}))
    (folder / "a.xlsx").write_text(json.dumps({"rows": [{"name": "2", "text": "sheet"}]}))
    tool = make_document_tool(RootFolder(folder))
    arguments = {"path": "a.pdf", **arguments}
    return asyncio.run(run_tool(tool_call("document", **arguments), {"document": tool})).text


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, "page 1: 11 characters\npage 2: 11 characters\npage 3: 11 characters"),
        ({"part": "2"}, "text 2\nmore"),
        ({"part": " Page 2 "}, "text 2\nmore"),
        ({"part": "slides 2"}, "text 2\nmore"),
        ({"part": "2-3"}, "## page 2\n\ntext 2\nmore\n\n## page 3\n\ntext 3\nmore"),
        ({"part": "pages 2 - 9"}, "## page 2\n\ntext 2\nmore\n\n## page 3\n\ntext 3\nmore"),
        ({"part": "all", "start": 6, "end": 8}, "## page 2\n\ntext 2"),
        ({"part": "all", "start": 13, "end": 14}, "text 3\nmore"),
        ({"path": "a.xlsx", "part": "2"}, "sheet"),
        ({"part": "5"}, "'a.pdf' has no part '5'; it has 'page 1', 'page 2', 'page 3'."),
        ({"part": "x" * 90}, f"'a.pdf' has no part '{'x' * 80}'; it has 'page 1', 'page 2', 'page 3'."),
    ],
)  # fmt: skip
def test_the_parts_of_a_document(tmp_path, arguments, expected):
    pytest.importorskip("openpyxl")
    assert use_tool(tmp_path, **arguments).strip() == expected


def test_which_files_are_documents(tmp_path):
    assert [is_document(f"a{end}") for end in (".pdf", ".DOCX", ".pptx", ".xlsx", ".txt", "")] == [
        *[True] * 4,
        *[False] * 2,
    ]
    with pytest.raises(
        BadArguments,
        match=r"^'a\.txt' is no document: those end in \.pdf, \.docx, \.pptx, \.xlsx\.$",
    ):
        read(tmp_path, PAGES, name="a.txt")
