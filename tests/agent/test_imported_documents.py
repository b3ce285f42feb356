"""What is imported of files and folders, what the store holds of it, and the block that lists it."""

from __future__ import annotations

import json
import re

import pytest

from ctxkit.agent import ContextStore, document_store, format_index_block, import_files
from ctxkit.agent.tools.file_tools_and_pdf_office_text import Document, DocumentPiece
from ctxkit.errors import BadArguments, StoreError

CONTEXT = ".ctxkit/context"
FUSERAFT = ".fuseraft/context"


@pytest.fixture
def documents(monkeypatch):
    """Let documents have given texts and notes by their path, so that no library reads them."""
    texts = {}

    def read_document(file, path):
        text, note = texts[path]
        return Document((DocumentPiece("page 1", text),), len(file.read()), note)

    monkeypatch.setattr(document_store, "read_document", read_document)
    return texts


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name.replace("_", ".")).write_bytes(data)
    return folder


def test_documents_are_imported_as_their_text(tmp_path, documents):
    documents |= {
        "a.pdf": ("", ""),
        "b.pdf": ("page é", ""),
        "b.xlsx": ("row", ""),
        "c.pdf": (" \n", ""),
    }
    folder = write(tmp_path, a_txt=b"plain", b_pdf=b"x" * 50, b_xlsx=b"y" * 40, c_pdf=b"z")
    imported = import_files(folder)
    assert imported.files == {
        "a.txt": (b"plain", 5),
        "b.txt": ("page é".encode(), 50),
        "b.xlsx.txt": (b"row", 40),  # the other name is taken
    }
    assert imported.info == "10 bytes of text out of 2 documents of 90 bytes"
    assert imported.skipped == ["c.pdf (it holds no text; pictures of pages are not read)"]


def test_the_note_of_a_document_is_passed_on(tmp_path, documents):
    documents["a.pdf"] = ("some", "2 pages were left out")
    write(tmp_path, a_pdf=b"x" * 1_500)
    imported = import_files(tmp_path / "a.pdf")
    noted = "some\n\n[2 pages were left out]"
    assert imported.files == {"a.txt": (f"## page 1\n\n{noted}".encode(), 1_500)}
    assert imported.skipped == ["a.pdf (2 pages were left out)"]
    assert imported.info == "40 bytes of text out of a document of 1,500 bytes"


def test_what_is_not_imported_is_named_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(document_store, "MAX_FILE_BYTES", 10)
    folder = write(
        tmp_path, a_txt=b"x" * 10, b_txt=b"x" * 11, c_bin=b"a\0b", _hidden=b"x", _other=b"x"
    )
    (folder / "new\nline").write_bytes(b"x")
    imported = import_files(folder)
    assert imported.files == {"a.txt": (b"x" * 10, 10)}
    assert imported.info == ""
    assert sorted(imported.skipped) == [
        "2 hidden files (add one by its own path)",
        "b.txt (it has more than 10 bytes)",
        "c.bin (it is no text)",
        "new line (its name)",
    ]
    with pytest.raises(BadArguments, match=r"^'b\.txt' is not taken: it has more than 10 bytes\.$"):
        import_files(folder / "b.txt")
    with pytest.raises(
        BadArguments, match=r"^'new line' cannot be the name of a file in the store\.$"
    ):
        import_files(folder / "new\nline")
    with pytest.raises(BadArguments, match=r"^There is no file or folder '.*/none'\.$"):
        import_files(folder / "none")


def test_a_folder_is_imported_up_to_its_limits(tmp_path, monkeypatch):
    monkeypatch.setattr(document_store, "MAX_FILES", 3)
    folder = write(tmp_path / "some", a_txt=b"1", b_txt=b"2", c_txt=b"3")
    assert import_files(folder).skipped == []
    write(folder, d_txt=b"4")
    imported = import_files(folder)
    assert list(imported.files) == ["a.txt", "b.txt", "c.txt"]
    assert imported.skipped == ["all after 3 files"]
    monkeypatch.setattr(document_store, "MAX_TOTAL_BYTES", 3)
    assert len(import_files(folder).files) == 3
    monkeypatch.setattr(document_store, "MAX_TOTAL_BYTES", 2)
    with pytest.raises(BadArguments, match=r"some' holds more than 2 bytes of text: add less\.$"):
        import_files(folder)
    with pytest.raises(BadArguments, match=r"none' holds no text that can be taken\.$"):
        import_files(write(tmp_path / "none", a_bin=b"\0"))


def test_a_file_is_probed_in_its_first_8192_bytes(tmp_path):
    write(tmp_path, a_txt=b"x" * 8192 + b"\0", b_txt=b"x" * 8191 + b"\0")
    assert list(import_files(tmp_path).files) == ["a.txt"]


def test_the_sizes_of_an_item():
    files = (
        document_store.StoreFile("a", 10),
        document_store.StoreFile("b", 20, raw_bytes=0),
        document_store.StoreFile("c", 30, raw_bytes=99),
    )
    item = document_store.ImportedFileOrFolder("n", files=files)
    assert (item.size_bytes, item.raw_bytes) == (60, 10 + 0 + 99)


def test_items_of_both_stores(tmp_path):
    store = ContextStore(tmp_path)
    store.put("b", {"x/2.md": (b"port two", 8), "1.md": (b"one", 77)}, source="/src", description=" The\nnotes ",
              info="extracted")  # fmt: skip
    store.put("a", {"one.md": (b"port one", 8)})
    store.put("b", {"f.md": (b"fuseraft's", 10)}, home=".fuseraft")
    items = store.items()
    assert list(items) == [f"{CONTEXT}/a", f"{CONTEXT}/b", f"{FUSERAFT}/b"]
    item = items[f"{CONTEXT}/b"]
    assert item.files == (
        document_store.StoreFile("1.md", 3, 77),
        document_store.StoreFile("x/2.md", 8),
    )
    assert (item.source_path, item.description, item.extraction_info) == (
        "/src",
        "The notes",
        "extracted",
    )
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", item.imported_at)
    assert items[f"{CONTEXT}/a"].description is None
    assert items[f"{CONTEXT}/a"].extraction_info is None
    assert store.of("b") == (f"{CONTEXT}/b", item)  # the kit's own goes first
    assert store.list_files(f"./{CONTEXT}/b/") == [f"{CONTEXT}/b/1.md", f"{CONTEXT}/b/x/2.md"]
    assert store.list_files(f"{CONTEXT}/b/x") == [f"{CONTEXT}/b/x/2.md"]
    assert store.list_files(f"{CONTEXT}/b/1.md") == [f"{CONTEXT}/b/1.md"]
    assert len(store.list_files(CONTEXT)) == 3
    assert store.text(f"{CONTEXT}/b", limit=3) == "one\n\npor"
    assert store.search("port (one|two)", CONTEXT, "*").splitlines() == [
        f"{CONTEXT}/a/one.md:1: port one",
        f"{CONTEXT}/b/x/2.md:1: port two",
    ]
    assert store.search("port", f"{CONTEXT}/b", "2*").splitlines() == [
        f"{CONTEXT}/b/x/2.md:1: port two"
    ]
    for path in (f"{CONTEXT}/b", "elsewhere/x/y/z", f"{CONTEXT}/../x/y"):
        with (
            pytest.raises(StoreError, match=r"^There is no file '.*' in the context store\.$"),
            store.open_file(path),
        ):
            pass
    assert store.remove("b") == item
    assert store.remove("b").files == (document_store.StoreFile("f.md", 10),)
    with pytest.raises(BadArguments, match=r"^The context store has no 'b'\..* It has: a\.$"):
        store.remove("b")
    store.remove("a")
    with pytest.raises(BadArguments, match=r"^The context store has no 'b'\. It has: none\.$"):
        store.of("b")
    assert not (tmp_path / CONTEXT / "a").exists()


def test_which_paths_belong_to_the_store(tmp_path):
    store = ContextStore(tmp_path)
    for path in (CONTEXT, FUSERAFT, f" ./{CONTEXT}/n/ ", f"{CONTEXT}/n/x.md"):
        assert store.contains(path)
    for path in (
        "",
        ".ctxkit",
        ".ctxkit/other/n",
        f"x/{CONTEXT}",
        f"{CONTEXT}/../n",
        f"/{CONTEXT}",
    ):
        assert not store.contains(path)


def test_a_store_takes_valid_names_and_files_alone(tmp_path):
    store = ContextStore(tmp_path)
    for more in ({"files": {}}, {"files": {"a": (b"", 0)}, "home": "elsewhere"}):
        with pytest.raises(
            BadArguments, match=r"^Name a store of \.ctxkit, \.fuseraft, and at least one file\.$"
        ):
            store.put("n", **more)
    for name in ("", "a b", "a/b", "x" * 65):
        with pytest.raises(BadArguments, match="is no name for the context store"):
            store.put(name, {"a": (b"", 0)})
    store.put("x" * 64, {"a": (b"", 0)})


def test_entries_that_cannot_be_used_are_counted(tmp_path):
    store = ContextStore(tmp_path)
    store.put("a", {"one.md": (b"1", 1)})
    store.put("b", {"one.md": (b"1", 1)}, home=".fuseraft")
    assert store.faults() == []
    (tmp_path / CONTEXT / "a/one.md").unlink()
    (tmp_path / FUSERAFT / "index.json").write_text(
        json.dumps({"items": {"c": 5, "d": {"name": "e"}}})
    )
    assert store.items() == {}
    assert store.faults() == [
        f"1 entry is not used of {CONTEXT}: damaged, or files are not there.",
        f"2 entries are not used of {FUSERAFT}: damaged, or files are not there.",
    ]
    (tmp_path / FUSERAFT / "index.json").write_text("{")
    assert store.faults()[1].startswith("1 entry is not used of")
    with pytest.raises(
        StoreError, match=r"^\.fuseraft/context/index\.json is damaged, and writing it would lose"
    ):
        store.put("n", {"a": (b"", 0)}, home=".fuseraft")


def test_an_index_keeps_what_it_does_not_know():
    before = b'\xef\xbb\xbf{"version": 2, "items": {"z": {"odd": 1}, "b": 5}}'
    item = document_store.ImportedFileOrFolder("m", files=(document_store.StoreFile("a", 1, 2),))
    after = document_store.update_index(before, "m", item)
    assert json.loads(after) == {
        "version": 2,
        "items": {
            "b": 5,
            "m": {"name": "m", "files": [{"relativePath": "a", "sizeBytes": 1, "rawBytes": 2}]},
            "z": {"odd": 1},
        },
    }
    assert list(json.loads(after)["items"]) == ["b", "m", "z"]
    assert after.startswith(b'{\n  "version": 2')
    assert json.loads(document_store.update_index(after, "m", None)) == {
        "version": 2,
        "items": {"z": {"odd": 1}, "b": 5},
    }
    assert json.loads(document_store.update_index(b"", "m", None)) == {"items": {}}
    with pytest.raises(ValueError):
        document_store.update_index(b"[1]", "m", None)
    with pytest.raises(ValueError, match="nested too deeply"):
        document_store.update_index(b'{"items": ' + b'{"a":' * 100_000, "m", None)


def test_the_items_of_an_index_that_are_valid():
    def make(name, path="a"):
        return {"name": name, "files": [{"relativePath": path, "sizeBytes": 1}]}

    items = {
        "z": make("z"),
        "a": make("a"),
        "b": make("other"),
        "c": make("c", "../x"),
        "d d": make("d d"),
        "e": 1,
    }
    sound, faults = document_store.decode_valid_index_items(
        b"\xef\xbb\xbf" + json.dumps({"items": items}).encode()
    )
    assert (list(sound), faults) == (["a", "z"], 4)
    assert document_store.decode_valid_index_items(b"no JSON") == ({}, 1)
    many = {f"n{i:03}": make(f"n{i:03}") for i in range(503)}
    sound, faults = document_store.decode_valid_index_items(json.dumps({"items": many}).encode())
    assert (list(sound), faults) == ([f"n{i:03}" for i in range(500)], 3)


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("a/b c.md", ("a", "b c.md")),
        ("/".join("a" * 32), ("a",) * 32),
        ("/".join("a" * 33), None),
        ("x" * 200, ("x" * 200,)),
        ("x" * 201, None),
        *((bad, None) for bad in ("", "/a", "a/", "a//b", ".", "a/../b", "a\\b", "a\n", "a\x7f")),
    ],
)
def test_a_relative_path_that_is_valid(path, parts):
    assert document_store.split_relative_path(path) == parts


def test_the_block_that_lists_the_store():
    def make(name, count, description=None):
        files = tuple(document_store.StoreFile(f"{i}.md", 1) for i in range(count))
        return document_store.ImportedFileOrFolder(name, description, files=files)

    assert format_index_block({}) == ""
    items = {"p/b": make("b", 22, "Two\nlines"), "q/a": make("a", 1)}
    heading, *lines = format_index_block(items).splitlines()
    assert heading.startswith("CONTEXT — reference material")
    assert lines == [
        "  [a]: q/a/0.md",
        "  [b] — Two lines (22 files):",
        *(f"    p/b/{i}.md" for i in range(20)),
        "    (2 more: list_files p/b)",
    ]
    assert "more" not in format_index_block({"p/b": make("b", 20)})
    # lines of 100 characters each, and one for the line break
    row = {f"p/{i:03}": make(f"{i:03}", 1, "x" * 73) for i in range(100)}
    block = format_index_block(row)
    (length,) = {len(line) for line in block.splitlines()[1:-1]}
    fitting = (8_000 - len(heading)) // (length + 1)
    assert len(block.splitlines()) == 1 + fitting + 1
    assert block.endswith(f"\n  ({100 - fitting} more are not named here: use list_files)")
