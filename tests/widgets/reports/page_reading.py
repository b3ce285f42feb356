"""Sections, tables and lists of a report's page, as texts."""

from __future__ import annotations

import re
from html import unescape
from typing import NamedTuple


class PageTable(NamedTuple):
    """A table of a page."""

    caption: str
    heads: list[str]
    rows: list[list[str]]
    numbers: list[str]
    """Heads of the columns that are aligned to the right."""


def drop_scripts(html: str) -> str:
    """Return a page without its scripts and styles."""
    return re.sub(r"<(script|style)\b.*?</\1>", "", html, flags=re.DOTALL)


def list_texts(tag: str, html: str) -> list[str]:
    """Return the text of each element of a kind, without the tags inside."""
    found = re.findall(rf"<{tag}\b[^>]*>(.*?)</{tag}>", html, flags=re.DOTALL)
    return [unescape(re.sub(r"<[^>]+>", "", inner)) for inner in found]


def read_sections(html: str) -> dict[str, str]:
    """Return the HTML of each section of a page by its heading, in the order of the page."""
    parts = re.findall(
        r"<section><h2>(.*?)</h2>(.*?)</section>", drop_scripts(html), flags=re.DOTALL
    )
    headings = [unescape(heading) for heading, _ in parts]
    assert len(set(headings)) == len(headings)
    return dict(zip(headings, (inner for _, inner in parts), strict=True))


def read_table(html: str) -> PageTable:
    """Return the only table of a part of a page."""
    assert html.count("<table") == 1
    heads = list_texts("th", html)
    numbers = [
        h
        for h, tag in zip(heads, re.findall(r"<th\b[^>]*>", html), strict=True)
        if "n" in tag.split("class=")[-1][:2]
    ]
    rows = [list_texts("td", row) for row in re.findall(r"<tr>(.*?)</tr>", html, flags=re.DOTALL)]
    return PageTable("".join(list_texts("caption", html)), heads, rows[1:], numbers)


def read_pairs(html: str) -> list[tuple[str, str]]:
    """Return the names and figures that stand side by side."""
    return list(zip(list_texts("dt", html), list_texts("dd", html), strict=True))
