"""Tool results stored as files: their stub, and how they are listed, searched and opened."""

from __future__ import annotations

import json
from hashlib import sha256

import pytest

from ctxkit.agent import ArtifactStore, Workspace
from ctxkit.errors import StoreError

A, B, C = "a" * 12, "b" * 12, "c" * 12
KEY = "sk-ant-api03-" + "Ab3xY9" * 15


def make_store(folder, sessions=("s1",), **more):
    return ArtifactStore(Workspace(folder), lambda: list(sessions), **more)


def test_a_result_is_stored_as_text_and_with_its_origin(tmp_path):
    stored = []
    store = make_store(tmp_path, on_stored=lambda *e: stored.append(e))
    store.save(A, f"two\nlines é {KEY}", "shell", f"ls {KEY}")
    store.save(A, f"two\nlines é {KEY}", "shell")  # it is there
    store.save(B, "x")
    folder = Workspace(tmp_path).results("s1")
    text = "two\nlines é [redacted]"
    assert (folder / f"{A}.txt").read_text("utf-8") == text
    assert stored == [
        ("shell", len(text), folder / f"{A}.txt"),
        ("unknown", 1, folder / f"{B}.txt"),
    ]
    assert json.loads((folder / f"{B}.json").read_text()) == {
        "id": B, "tool": "unknown", "hint": "", "chars": 1, "content": "x"}  # fmt: skip
    make_store(tmp_path).save(C, "y é", "shell", f"ls {KEY}")
    raw = (folder / f"{C}.json").read_text("utf-8")
    assert '\n  "hint": "ls [redacted]"' in raw
    assert '"content": "y é"' in raw


def test_the_stub_of_a_result(tmp_path):
    store = make_store(tmp_path, advice=lambda: "Read {path}.")
    text = "\n  " + "x" * 130 + "\n" * 2_000
    digest = sha256(text.encode()).hexdigest()
    path = f".ctxkit/artifacts/{digest[:12]}.txt"
    assert store.store_result("shell", text) == (
        f"[result offloaded: 2,133 characters of shell are in {path}, 2,002 lines]\n"
        f"SHA256: {digest}\nRead {path}.\nIt begins: {'x' * 120}"
    )
    with store.open_file(path) as file:
        assert file.read().decode() == text
    assert store.store_result("shell", f"key {KEY}").endswith("\nIt begins: key [redacted]")


def test_a_result_that_cannot_be_stored_stays_whole_and_is_reported_once(tmp_path):
    failed, stored = [], []
    store = make_store(
        tmp_path, on_failure=lambda *e: failed.append(e), on_stored=lambda *e: stored.append(e)
    )
    folder = Workspace(tmp_path).results("s1")
    folder.parent.mkdir(parents=True)
    folder.write_text("in the way")
    for _ in range(2):
        assert store.store_result("shell", f"words {KEY}") == "words [redacted]"
    ((tool, error),) = failed
    assert tool == "shell"
    assert error
    with pytest.raises(StoreError):
        store.save(A, "words", "other")
    assert [tool for tool, _ in failed] == ["shell", "other"]
    assert stored == []


def test_artifacts_of_a_session_and_of_the_one_it_was_branched_from(tmp_path):
    make_store(tmp_path, ["first"]).save(B, "one\nport = 80", "shell")
    make_store(tmp_path, ["first"]).save(C, "port = 99", "shell")
    store = make_store(tmp_path, ["second", "first", "gone"])
    store.save(C, "port = 1\nport = 2", "shell")
    store.save(A, "nothing", "shell")
    folder = ".ctxkit/artifacts"
    paths = [f"{folder}/{n}.txt" for n in (A, C, B)]  # the session's own first, each once
    for path in (folder, f"./{folder}/", f" {folder} "):
        assert store.list_files(path) == paths
    assert store.list_files(f"{folder}/{B}.txt") == [f"{folder}/{B}.txt"]
    assert store.list_files("elsewhere") == []
    assert store.search("port", f"{folder}/{B}.txt", "*.none") == f"{folder}/{B}.txt:2: port = 80"
    assert store.search("port", folder, "*.none").splitlines() == [
        f"{folder}/{C}.txt:1: port = 1",
        f"{folder}/{C}.txt:2: port = 2",
    ]
    with store.open_file(f"{folder}/{C}.txt") as file:
        assert file.read() == b"port = 1\nport = 2"
    assert "[" not in store.search("port", folder, "*")
    missing = f"{folder}/{'d' * 12}.txt"
    for path in (missing, f"{folder}/{A}.json", folder):
        with (
            pytest.raises(StoreError, match=r"^There is no artifact '\.ctxkit/artifacts"),
            store.open_file(path),
        ):
            pass
    with pytest.raises(StoreError, match=r"^There is no artifact"):
        store.search("port", missing, "*")
    with pytest.raises(StoreError, match=r"^There is no artifact"):
        make_store(tmp_path, ["gone"]).search("port", folder, "*")
    with pytest.raises(StoreError) as error, store.open_file(f"{folder}/{'x' * 300}"):
        pass
    assert len(str(error.value)) == len("There is no artifact ''.") + 200


def test_which_paths_are_of_artifacts(tmp_path):
    store = make_store(tmp_path)
    folder = ".ctxkit/artifacts"
    for path in (folder, f"{folder}/", f"./{folder}/{A}.txt", f"{folder}/{A}.txt"):
        assert store.contains(path)
    for path in ("", ".", f"x/{folder}", f"{folder}/{A}.json", f"{folder}/{A}0.txt", f"{folder}/{'g' * 12}.txt",
                 f"{folder}/x/{A}.txt", f"{A}.txt"):  # fmt: skip
        assert not store.contains(path)
