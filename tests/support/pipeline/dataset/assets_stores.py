"""Stores for tests: blocks so small that a dataset has many, and an S3 server that misbehaves by number."""

from __future__ import annotations

import functools
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from facefeed.pipeline.dataset.stores import opening, remote_files
from facefeed.pipeline.dataset.stores.opening import OpenStore, StoreOptions, open_store

BLOCK_BYTES = 16 << 10
_ERRORS = {
    "slow_down": ("503 Slow Down", "SlowDown", "Please reduce your request rate."),
    "refused": ("403 Forbidden", "ExpiredToken", "The provided token has expired."),
    "denied": ("403 Forbidden", "AccessDenied", "Access Denied"),
}
CACHE_BYTES = 64 << 20


def small_blocks(patch: pytest.MonkeyPatch, block_bytes: int = BLOCK_BYTES) -> None:
    """Datasets that are opened from now on have blocks of so many bytes."""
    patch.setattr(opening, "BLOCK_BYTES", block_bytes)


def opened(url: str, cache: Path, **options: Any) -> OpenStore:
    return open_store(url, StoreOptions(cache=cache, **{"cache_bytes": CACHE_BYTES} | options))


def blocks_of(cache: Path) -> list[Path]:
    """The files of blocks in a cache."""
    return sorted(path for path in cache.rglob("blocks/*/*/*") if path.is_file())


def uploaded(out: Path, files: Any, path: str) -> None:
    """Copies OUT to a store as the guide says: without what no reader opens, the manifest and the index last."""
    names = [each.relative_to(out).as_posix() for each in sorted((out / "faces").rglob("*.parquet"))]
    names += [each.relative_to(out).as_posix() for each in sorted((out / "receipts").rglob("*.json"))]
    for name in [*names, "index.arrow", "manifest.json"]:
        files.pipe_file(f"{path}/{name}", (out / name).read_bytes())


class MisbehavingServer:
    """An S3 server in this process. `faults`: what happens to a GET of a file of that `suffix`, by its number from 0
    on: "slow_down" (a 503), "refused" or "denied" (a 403), "cut" (half of the body), "stall" (half of it, then nothing
    more), or None. `write_faults`: the same to requests that write, of any file: "slow_down", "denied", or "lost" (it
    is done, but the answer is lost). `ignores_conditions`: whether a file is overwritten that was to be created.
    """

    suffix = ".parquet"

    def __init__(self, app: Any) -> None:
        self._app, self._lock = app, threading.Lock()
        self.ignores_conditions = False
        self.behave()
        self.released = threading.Event()
        self.url = ""

    @property
    def options(self) -> dict[str, Any]:
        """storage_options to reach it."""
        return {"endpoint_url": self.url, "key": "reader", "secret": "not-to-be-shown"}

    def behave(self) -> None:
        """Counts from 0 again, without faults."""
        self.faults: Callable[[int], str | None] = lambda number: None
        self.write_faults: Callable[[int], str | None] = lambda number: None
        self.requests = self.writes = 0

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in {"PUT", "POST", "DELETE"} and environ["PATH_INFO"].count("/") > 1:
            return self._write(environ, start_response)
        if environ["REQUEST_METHOD"] != "GET" or not environ["PATH_INFO"].endswith(self.suffix):
            return self._app(environ, start_response)  # type: ignore[no-any-return]
        with self._lock:
            fault, self.requests = self.faults(self.requests), self.requests + 1
        if fault in _ERRORS:
            return self._error(fault, start_response)
        body = b"".join(self._app(environ, start_response))
        return [body] if fault is None else self._half(body, fault)

    def _write(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        with self._lock:
            fault, self.writes = self.write_faults(self.writes), self.writes + 1
        if self.ignores_conditions:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        if fault in _ERRORS:
            is_chunked = environ.get("wsgi.input_terminated", False)
            environ["wsgi.input"].read(None if is_chunked else int(environ.get("CONTENT_LENGTH") or 0))
            return self._error(fault, start_response)
        body = b"".join(self._app(environ, start_response))
        if fault == "lost":
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionAbortedError
        return [body]

    @staticmethod
    def _error(fault: str, start_response: Any) -> list[bytes]:
        status, code, text = _ERRORS[fault]
        body = f"<Error><Code>{code}</Code><Message>{text}</Message></Error>".encode()
        start_response(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
        return [body]

    def _half(self, body: bytes, fault: str) -> Iterator[bytes]:
        yield body[: len(body) // 2]
        if fault == "stall":
            self.released.wait(60)
        raise ConnectionAbortedError


@contextmanager
def s3_server(patch: pytest.MonkeyPatch) -> Iterator[MisbehavingServer]:
    """An S3 server without buckets. Clients of one process read the description of S3 once: it takes longer to read it
    than to send ten requests.
    """
    import botocore.session  # noqa: PLC0415 (only who reads from a store needs it)
    from moto.server import DomainDispatcherApplication, create_backend_app  # noqa: PLC0415 (a second)
    from werkzeug.serving import make_server  # noqa: PLC0415

    patch.setattr(botocore.session, "create_loader", functools.cache(botocore.session.create_loader))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        patch.setenv(name, "testing")
    patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    server = MisbehavingServer(DomainDispatcherApplication(create_backend_app))
    listening = make_server("127.0.0.1", 0, server, threaded=True)
    listening.daemon_threads = True
    server.url = f"http://127.0.0.1:{listening.port}"
    thread = threading.Thread(target=listening.serve_forever, daemon=True)
    thread.start()
    reset = urllib.request.Request(f"{server.url}/moto-api/reset", method="POST")  # buckets are the process's
    with urllib.request.urlopen(reset, timeout=60):
        pass
    try:
        yield server
    finally:
        server.released.set()
        listening.shutdown()
        listening.server_close()
        thread.join()


def without_delays(patch: pytest.MonkeyPatch, *, timeout_seconds: float = 60.0) -> None:
    """Requests are repeated at once, and take so long at most."""
    patch.setattr(remote_files, "RETRY_DELAYS_SECONDS", (0.0,) * len(remote_files.RETRY_DELAYS_SECONDS))
    patch.setattr(remote_files, "REQUEST_TIMEOUT_SECONDS", timeout_seconds)
