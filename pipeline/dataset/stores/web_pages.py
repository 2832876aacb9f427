"""Pages of a web server that list a folder: which files they link, and how names and addresses correspond."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from urllib.parse import quote, unquote, urljoin, urlsplit

_WITHOUT_PORT = {"http": 80, "https": 443}


def quoted(name: str) -> str:
    """A name as the path of an address, with the bytes that it has on the server's disk."""
    return quote(name, errors="surrogateescape")


def unquoted(path: str) -> str:
    """The name that the path of an address has on the server's disk; bytes that are no UTF-8 are as in `os.listdir`."""
    return unquote(path, errors="surrogateescape")


def is_name(name: str) -> bool:
    """Whether a file or a folder can have that name, and an address can lead to it."""
    return name not in ("", ".", "..") and not {"/", "\0"} & {*name}


def linked_names(page: bytes, address: str) -> Iterator[tuple[str, bool]]:
    """Yields the names that a page links in the folder that it lists, and whether each is a folder.

    Some may be names that no file can have. Links to elsewhere, and those with a query, which sort the page, are left
    out. `address`: of the page, without a slash at its end.
    """
    parser = _LinkParser()
    parser.feed(page.decode(errors="surrogateescape"))
    folder = _parts(f"{address}/")
    for link in dict.fromkeys(parser.links):
        try:
            linked = _parts(urljoin(f"{address}/", link))
        except ValueError:  # no address
            continue
        above, _, name = linked[1].rstrip("/").rpartition("/")
        if not linked[2] and (linked[0], unquoted(f"{above}/")) == (folder[0], unquoted(folder[1])) and name:
            yield unquoted(name), linked[1].endswith("/")


def _parts(address: str) -> tuple[tuple[str | None, int | None], str, str]:
    """Host with port, path, and query or fragment of an address; `http` and `https` are the same host."""
    parts = urlsplit(address)
    port = parts.port if parts.port != _WITHOUT_PORT.get(parts.scheme) else None
    return (parts.hostname, port), parts.path, parts.query or parts.fragment


class _LinkParser(HTMLParser):
    """Collects `href` of all `<a>`."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.links += [value for name, value in attrs if name == "href" and value]
