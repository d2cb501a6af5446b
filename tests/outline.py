"""The outline of a page of HTML, for tests: that it is sound, its ids and links, and its text."""

from __future__ import annotations

from html.parser import HTMLParser


class Outline(HTMLParser):
    """Elements that are opened and closed in order, ids, and the text."""

    VOID = frozenset(("meta", "br"))

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.names: set[str] = set()
        self.text = ""
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        given = dict(attrs)
        self.ids += [given["id"] or ""] if "id" in given else []
        self.links += [given["href"] or ""] if "href" in given else []
        assert "src" not in given
        assert not any(name.startswith("on") for name in given)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.text += data + " "


def outline(page: str) -> Outline:
    found = Outline(page)
    assert len(set(found.ids)) == len(found.ids)
    assert all(link.startswith("#") and link[1:] in found.ids for link in found.links)
    assert "script" not in found.names
    assert {"header", "main", "footer", "section", "h1"} <= found.names
    found.text = " ".join(found.text.split())
    return found
