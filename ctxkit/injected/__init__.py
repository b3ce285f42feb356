"""What is put into a prompt before anybody speaks: named sections of the system message."""

from __future__ import annotations

from ctxkit.faces import listed
from ctxkit.injected.blocks import Block, Surroundings
from ctxkit.injected.catalogue import SECTIONS, chosen
from ctxkit.injected.saying import Sections

__all__ = ["SECTIONS", "Block", "Sections", "Surroundings", "chosen"]
__dir__ = listed(__all__)
