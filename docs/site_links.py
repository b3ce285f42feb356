"""Broken links of the site, and resources that a page would load from a network."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class Links(HTMLParser):
    """The addresses that a page leads to, those that it loads, and the places in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.leads: list[str] = []
        self.loads: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take a tag."""
        told = dict(attrs)
        if told.get("id"):
            self.places.add(str(told["id"]))
        if tag == "a" and told.get("href"):
            self.leads.append(str(told["href"]))
        loaded = told.get("src") if tag != "link" else told.get("href")
        if loaded and told.get("rel") not in ("canonical", "next", "prev"):
            self.loads.append(str(loaded))


def broken(site: Path) -> list[str]:
    """Return the links that lead nowhere in the site, and what a page would load from a network."""
    pages = {
        p.resolve(): Links(p.read_text(encoding="utf-8")) for p in sorted(site.rglob("*.html"))
    }
    wrong: list[str] = []
    for path, found in pages.items():
        name = path.relative_to(site.resolve())
        wrong += [f"{name}: asks {a}" for a in found.loads if re.match(r"(https?:)?//", a)]
        local = [a for a in (*found.leads, *found.loads) if not re.match(r"[a-z]+:|//", a)]
        for address in local if name.name != "404.html" else []:
            file, _, anchor = address.partition("#")
            target = (path.parent / file.partition("?")[0]).resolve() if file else path
            if not target.exists():
                wrong.append(f"{name}: {address} is not there")
            elif anchor and target in pages and anchor not in pages[target].places:
                wrong.append(f"{name}: {address} has no such place")
    return wrong
