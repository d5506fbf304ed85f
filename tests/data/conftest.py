"""A cache folder for each test, and a web server with bad habits."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """The cache folder of one test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "mirrormargin"


@pytest.fixture
def real_cache(tmp_path_factory, monkeypatch):
    """One cache folder for all tests of real data: to take texts apart takes long."""
    folder = tmp_path_factory.getbasetemp() / "real"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


class Server(ThreadingHTTPServer):
    """Serves ``files`` by path.

    Attributes:
        ranges: Whether it can send a part of a file.
        drops: After how many bytes the connection of each next request breaks, one entry each.
        statuses: What it answers to each next request instead of a file, one entry each.
        shift: By how much parts begin too late.
        asked: The Range header of each request, None where there was none.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.drops, self.statuses, self.asked = {}, [], [], []
        self.ranges, self.shift = True, 0

    def url(self, path):
        return f"http://127.0.0.1:{self.server_port}/{path}"


class Handler(BaseHTTPRequestHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self):
        self.server.asked.append(self.headers["Range"])
        if self.server.statuses:
            self.send_error(self.server.statuses.pop(0))
            return
        contents = self.server.files.get(self.path[1:])
        if contents is None:
            self.send_error(404)
            return
        start = 0
        if self.server.ranges and self.headers["Range"]:
            start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
            if start >= len(contents):
                self.send_error(416)
                return
            start += self.server.shift
            self.send_response(206)
            span = f"bytes {start}-{len(contents) - 1}/{len(contents)}"
            self.send_header("Content-Range", span)
        else:
            self.send_response(200)
        rest = contents[start:]
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        self.wfile.write(rest[: self.server.drops.pop(0)] if self.server.drops else rest)

    def log_message(self, format, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    """A web server on this machine; pauses between tries are left out."""
    monkeypatch.setattr("mirrormargin.data.download.PAUSE", 0.0)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()
