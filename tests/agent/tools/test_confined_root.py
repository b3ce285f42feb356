"""No path leaves the root: not by dots, absolute paths, links made later, NUL bytes or devices."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.agent import RootFolder
from ctxkit.errors import StoreError


@pytest.fixture
def root(tmp_path):
    (tmp_path / "secret.txt").write_text("secret")
    inner = RootFolder(tmp_path / "root")
    inner.write("a/b.txt", b"inside")
    return inner


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "a/../../secret.txt",
        "/etc/passwd",
        "..",
        "a\0b",
        "~/x/../../../..",
        "x" * 5000,
        "a/../../root2/x",
    ],
)
def test_no_path_leaves(root, path):
    with pytest.raises(StoreError):
        root.read(path)
    if "~" not in path:
        with pytest.raises(StoreError):
            root.write(path, b"x")


def test_a_link_made_during_the_run_does_not_lead_out(root, tmp_path):
    (root.folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    (root.folder / "door").symlink_to(tmp_path)
    for path in ("link.txt", "door/secret.txt", "door/new.txt"):
        with pytest.raises(StoreError):
            root.read(path)
        with pytest.raises(StoreError):
            root.write(path, b"x")
    assert (tmp_path / "secret.txt").read_text() == "secret"


def test_a_link_inside_the_root_may_be_followed(root):
    (root.folder / "again.txt").symlink_to(root.folder / "a" / "b.txt")
    assert root.read("again.txt") == b"inside"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_does_not_block_and_is_refused(root):
    os.mkfifo(root.folder / "pipe")
    with pytest.raises(StoreError, match="regular file"):
        root.read("pipe")
    with pytest.raises(StoreError):
        root.write("pipe", b"x")


def test_a_link_to_a_device_is_refused(root):
    (root.folder / "zero").symlink_to("/dev/zero")
    with pytest.raises(StoreError):
        root.read("zero")


@pytest.mark.parametrize("path", [".", "a"])
def test_a_folder_is_no_file(root, path):
    with pytest.raises(StoreError):
        root.read(path)
    with pytest.raises(StoreError):
        root.write(path, b"x")


@given(path=st.text(alphabet="./\\~ab\0A:", max_size=12))
def test_whatever_is_resolved_lies_inside(tmp_path_factory, path):
    root = RootFolder(tmp_path_factory.getbasetemp() / "any")
    try:
        real = root.resolve(path)
    except StoreError:
        return
    assert real == root.folder or real.is_relative_to(root.folder)
