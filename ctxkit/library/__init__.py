"""The context store: files imported for the agents of a project, in fuseraft's format."""

from __future__ import annotations

from ctxkit.faces import listed
from ctxkit.library.block import index_block
from ctxkit.library.index import StoreFile, StoreItem
from ctxkit.library.shelves import HOMES, Library
from ctxkit.library.takes import taken

__all__ = ["HOMES", "Library", "StoreFile", "StoreItem", "index_block", "taken"]
__dir__ = listed(__all__)
