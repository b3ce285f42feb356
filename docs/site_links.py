"""Find broken links of the site, and resources that a page would load from a network."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class PageLinks(HTMLParser):
    """The link targets, loaded resources and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.resources: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the addresses and the id of a tag."""
        attributes = dict(attrs)
        if attributes.get("id"):
            self.anchors.add(str(attributes["id"]))
        if tag == "a" and attributes.get("href"):
            self.targets.append(str(attributes["href"]))
        resource = attributes.get("src") if tag != "link" else attributes.get("href")
        if resource and attributes.get("rel") not in ("canonical", "next", "prev"):
            self.resources.append(str(resource))


def find_broken_links(site: Path) -> list[str]:
    """Return a line for each broken link of the site and each resource from a network."""
    pages = {
        file_path.resolve(): PageLinks(file_path.read_text(encoding="utf-8"))
        for file_path in sorted(site.rglob("*.html"))
    }
    problems: list[str] = []
    for path, links in pages.items():
        name = path.relative_to(site.resolve())
        problems += [
            f"{name}: asks {address}"
            for address in links.resources
            if re.match(r"(https?:)?//", address)
        ]
        local_addresses = [
            address
            for address in (*links.targets, *links.resources)
            if not re.match(r"[a-z]+:|//", address)
        ]
        for address in local_addresses if name.name != "404.html" else []:
            file, _, anchor = address.partition("#")
            target = (path.parent / file.partition("?")[0]).resolve() if file else path
            if not target.exists():
                problems.append(f"{name}: {address} is not there")
            elif anchor and target in pages and anchor not in pages[target].anchors:
                problems.append(f"{name}: {address} has no such place")
    return problems
