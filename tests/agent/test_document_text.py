"""Documents give their text; bombs and damaged ones end in a sentence, in bounded time."""

from __future__ import annotations

import time
import zipfile
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
from agent import sample_documents as made
from waiting import PATIENCE

from ctxkit.agent.tools.file_tools_and_pdf_office_text import (
    DOCUMENT_MODULES,
    DocumentReadLimits,
    is_document,
    read_document,
)
from ctxkit.errors import BadArguments, StoreError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    not all(map(find_spec, DOCUMENT_MODULES.values())),
    reason="needs the extra jupyter-ctxkit[documents]",
)


def read(path: Path, *wanted: str, **bounds):
    with path.open("rb") as file:
        return read_document(file, path.name, wanted or None, DocumentReadLimits(**bounds))


def test_each_kind_gives_its_text_piece_by_piece(tmp_path):
    """F11: pdf, docx, pptx and xlsx files give their text."""
    pages = read(made.pdf(tmp_path / "a.pdf", "Page one", "Page two"))
    assert pages.pieces == (("page 1", "Page one"), ("page 2", "Page two"))
    assert pages.raw_bytes == (tmp_path / "a.pdf").stat().st_size
    assert pages.text == "## page 1\n\nPage one\n\n## page 2\n\nPage two"
    assert read(made.docx(tmp_path / "a.docx")).text == (
        "Ledger rules\nAmounts are minor units.\nISK\texponent 0\nwide\tinner\nThe end."
    )
    slides = read(made.pptx(tmp_path / "a.PPTX"))
    assert slides.pieces[1] == ("slide 2", "Second\nBody of Second\nNotes: Say it slowly.")
    sheets = read(made.xlsx(tmp_path / "a.xlsx"))
    assert sheets.pieces[0] == ("Rates", "C0\t0\t\t1.5\nC1\t1\t\t1.5\nC2\t2\t\t1.5")
    assert sheets.note == ""


def test_single_pieces_can_be_asked_for(tmp_path):
    assert read(made.xlsx(tmp_path / "a.xlsx"), "Notes 2026").pieces == (("Notes 2026", "closed"),)
    assert read(made.pdf(tmp_path / "a.pdf", "x", "y"), "page 2").pieces == (("page 2", "y"),)
    assert read(tmp_path / "a.pdf", "page 9").pieces == ()


def test_bounds_end_the_text_with_a_note(tmp_path):
    path = made.xlsx(tmp_path / "a.xlsx", rows=50)
    assert "bound of cells" in read(path, cells=40).pieces[0].text
    assert read(path, cells=40).pieces[0].text.count("\n") == 10
    few = read(made.pdf(tmp_path / "a.pdf", *"abc"), pieces=2)
    assert (len(few.pieces), few.note) == (2, "only the first 2 parts were read")
    assert few.text.endswith("[only the first 2 parts were read]")
    short = read(tmp_path / "a.pdf", chars=1)
    assert "after 1 characters" in short.note
    assert sum(len(p.text) for p in short.pieces) == 1


@pytest.mark.parametrize("name", ["a.pdf", "a.docx", "a.pptx", "a.xlsx"])
@pytest.mark.parametrize(
    "content", [b"", b"no document", b"PK\x03\x04" + b"\0" * 50, b"%PDF-1.7\n"]
)
def test_what_is_no_document_is_said_in_a_sentence(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(StoreError, match=f"'{name}' was not read: ."):
        read(path)


def test_a_file_that_is_too_large_is_refused(tmp_path):
    path = made.pdf(tmp_path / "a.pdf", "x")
    with pytest.raises(StoreError, match="larger than 100 bytes"):
        read(path, file_bytes=100)


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path):
    base = made.docx(tmp_path / "base.docx")
    bomb = made.rewritten(base, tmp_path / "bomb.docx", "word/document.xml", b" " * 20_000_000)
    assert bomb.stat().st_size < 100_000
    with pytest.raises(StoreError, match="would unpack to 20,"):
        read(bomb, unpacked_bytes=10_000_000)


def test_entities_that_multiply_end_in_a_sentence(tmp_path):
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    xml = (f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY e0 "lol">{entities}]>'
           '<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">'
           "<w:body><w:p><w:r><w:t>&e11;</w:t></w:r></w:p></w:body></w:document>").encode()  # fmt: skip
    base = made.docx(tmp_path / "base.docx")
    bomb = made.rewritten(base, tmp_path / "bomb.docx", "word/document.xml", xml)
    with pytest.raises(StoreError, match=r"no docx \(XMLSyntaxError"):
        read(bomb)


def test_an_outside_entity_is_not_followed(tmp_path):
    (tmp_path / "secret").write_text("the secret")
    xml = (f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY e SYSTEM "file://{tmp_path}/secret">]>'
           '<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">'
           "<w:body><w:p><w:r><w:t>a&e;b</w:t></w:r></w:p></w:body></w:document>").encode()  # fmt: skip
    base = made.docx(tmp_path / "base.docx")
    bomb = made.rewritten(base, tmp_path / "out.docx", "word/document.xml", xml)
    assert read(bomb).text == "a"


def test_a_sheet_with_one_cell_at_its_far_end_is_short(tmp_path):
    base = made.xlsx(tmp_path / "base.xlsx")
    rows = b'<row r="1"><c r="A1"><v>7</v></c></row><row r="1048576"><c r="B1048576"><v>1</v></c></row>'
    ns = b'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    sheet = b"<worksheet " + ns + b"><sheetData>" + rows + b"</sheetData></worksheet>"
    far = made.rewritten(base, tmp_path / "far.xlsx", "xl/worksheets/sheet1.xml", sheet)
    assert read(far).pieces[0].text == "7\n[1,048,574 empty rows]\n\t1"


def test_a_sheets_name_is_bounded(tmp_path):
    path = made.xlsx(tmp_path / "a.xlsx")
    with zipfile.ZipFile(path) as held:
        body = held.read("xl/workbook.xml").replace(
            b'name="Rates"', b'name="' + b"N" * 2_000_000 + b'"'
        )
    (first, _) = read(made.rewritten(path, tmp_path / "b.xlsx", "xl/workbook.xml", body)).pieces
    assert (len(first.name), first.text[:2]) == (200, "C0")


def test_a_pdf_that_unpacks_without_end_is_refused(tmp_path):
    import zlib

    bomb = made.pdf(tmp_path / "a.pdf", "x", packed=zlib.compress(b"(lol) Tj " * 10_000_000, 1))
    assert bomb.stat().st_size < 1_000_000
    with pytest.raises(StoreError, match=r"'a\.pdf' was not read: "):
        read(bomb)


def test_a_document_that_takes_too_long_is_ended(tmp_path):
    began = time.monotonic()
    with pytest.raises(StoreError, match=r"ended after 0\.2 seconds|too much memory or time"):
        read(made.xlsx(tmp_path / "a.xlsx", rows=20_000), seconds=0.2)
    assert time.monotonic() - began < PATIENCE


def test_a_document_that_takes_too_much_memory_is_ended(tmp_path):
    base = made.docx(tmp_path / "base.docx")
    body = b"<w:p><w:r><w:t>x</w:t></w:r></w:p>" * 700_000
    ns = b'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    xml = b"<w:document " + ns + b"><w:body>" + body + b"</w:body></w:document>"
    bomb = made.rewritten(base, tmp_path / "big.docx", "word/document.xml", xml)
    with pytest.raises(StoreError, match=r"too large|memory"):
        read(bomb, memory=300_000_000)


def test_kinds_are_known_by_their_endings():
    assert is_document("A.PDF")
    assert not is_document("a.txt")
    with pytest.raises(BadArguments, match=r"no document: those end in \.pdf"):
        read_document(None, "a.txt")


def test_the_process_gets_no_key_of_the_environment(tmp_path, monkeypatch):
    from ctxkit.agent.tools import document_worker, file_tools_and_pdf_office_text

    child = tmp_path / "child.py"
    child.write_text(
        "import json, os\nprint(json.dumps({'name': 'env', 'text': ' '.join(os.environ)}))"
    )
    monkeypatch.setenv("SECRET_API_KEY", "x" * 40)
    monkeypatch.setattr(document_worker, "__file__", str(child))
    told = read(made.pdf(tmp_path / "a.pdf", "x")).text
    assert "PATH" in told
    assert "SECRET" not in told
    assert file_tools_and_pdf_office_text.document_worker.__file__ == str(child)


def test_an_archive_with_very_many_files_is_refused(tmp_path):
    path = tmp_path / "many.xlsx"
    with zipfile.ZipFile(path, "w") as held:
        for n in range(300):
            held.writestr(f"f{n}", b"")
    with pytest.raises(StoreError, match="in 300 files"):
        read(path, entries=200)


def test_a_sheet_that_says_it_is_smaller_than_it_is_is_read_whole(tmp_path):
    """Programs write sheets with a size of one cell and a thousand rows behind it."""
    book = pytest.importorskip("openpyxl").Workbook()
    for n in range(1, 6):
        book.active.append([n, f"row {n}"])
    book.save(tmp_path / "right.xlsx")
    with (
        zipfile.ZipFile(tmp_path / "right.xlsx") as old,
        zipfile.ZipFile(tmp_path / "wrong.xlsx", "w") as new,
    ):
        for name in old.namelist():
            new.writestr(name, old.read(name).replace(b'ref="A1:B5"', b'ref="A1"'))
    with (tmp_path / "wrong.xlsx").open("rb") as file:
        assert read_document(file, "wrong.xlsx").text.splitlines()[-1] == "5\trow 5"
