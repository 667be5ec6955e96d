"""Downloads from a server on this machine: whole, resumed, wrong, absent."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from poise.core.errors import DataError, InvalidOption
from poise.data import fetch, listing, verify
from poise.data.catalogue import CATALOGUE, DataFile, DatasetEntry

CONTENT = bytes(range(256)) * 1000


class Server(ThreadingHTTPServer):
    """Serves CONTENT under every path; remembers what was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.ranges: list[str | None] = []
        self.honours_ranges = True
        self.cut: int | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server: Server = self.server
        asked = self.headers.get("Range")
        server.ranges.append(asked)
        start = int(asked[len("bytes=") : -1]) if asked and server.honours_ranges else 0
        body = CONTENT[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if server.cut is None else body[: server.cut])

    def log_message(self, *_: object) -> None:
        """Stay quiet."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(
            target=running.serve_forever, args=(0.01,), daemon=True
        )
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def toy(server: Server, monkeypatch: pytest.MonkeyPatch) -> DataFile:
    file = DataFile(
        "toy/toy.bin",
        len(CONTENT),
        f"sha256:{hashlib.sha256(CONTENT).hexdigest()}",
        (server.address + "toy.bin",),
    )
    monkeypatch.setitem(
        CATALOGUE, "toy", DatasetEntry("toy", "a toy", ((file,),), 0, "none")
    )
    return file


def test_fetch_then_verify(toy, server, tmp_path):
    seen: list[tuple[int, int]] = []
    paths = fetch("toy", tmp_path, lambda done, total: seen.append((done, total)))
    assert paths == [tmp_path / "toy/toy.bin"]
    assert paths[0].read_bytes() == CONTENT
    assert seen[0] == (0, len(CONTENT))
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert verify("toy", tmp_path) == paths
    assert not list(tmp_path.rglob("*.part"))
    fetch("toy", tmp_path)
    assert len(server.ranges) == 1  # nothing was downloaded twice


@pytest.mark.parametrize("honoured", [True, False])
def test_an_interrupted_download_goes_on(toy, server, tmp_path, honoured):
    server.honours_ranges = honoured
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy/toy.bin.part").write_bytes(CONTENT[:1000])
    assert fetch("toy", tmp_path)[0].read_bytes() == CONTENT
    assert server.ranges == ["bytes=1000-"]


def test_a_connection_that_breaks_keeps_what_it_got(toy, server, tmp_path):
    server.cut = 5000
    with pytest.raises(DataError, match="5000"):
        fetch("toy", tmp_path)
    assert (tmp_path / "toy/toy.bin.part").stat().st_size == 5000
    assert not (tmp_path / "toy/toy.bin").exists()
    server.cut = None
    assert fetch("toy", tmp_path)[0].read_bytes() == CONTENT
    assert server.ranges[-1] == "bytes=5000-"


def test_a_spoilt_part_is_thrown_away(toy, server, tmp_path):
    (tmp_path / "toy").mkdir()
    part = tmp_path / "toy/toy.bin.part"
    part.write_bytes(b"\xff" * 1000)
    with pytest.raises(DataError, match="the server has another file"):
        fetch("toy", tmp_path)
    assert not part.exists()
    assert fetch("toy", tmp_path)[0].read_bytes() == CONTENT


def test_a_wrong_checksum_is_refused(server, monkeypatch, tmp_path):
    file = DataFile(
        "toy/toy.bin", len(CONTENT), "sha256:" + "0" * 64, (server.address,)
    )
    monkeypatch.setitem(
        CATALOGUE, "toy", DatasetEntry("toy", "a toy", ((file,),), 0, "none")
    )
    with pytest.raises(DataError, match="expected 0000"):
        fetch("toy", tmp_path)
    assert not list(tmp_path.rglob("toy.bin*"))


def test_an_altered_file_is_fetched_again(toy, server, tmp_path):
    path = fetch("toy", tmp_path)[0]
    path.write_bytes(b"x" + CONTENT[1:])
    with pytest.raises(DataError, match=r"toy\.bin.*altered"):
        verify("toy", tmp_path)
    assert fetch("toy", tmp_path)[0].read_bytes() == CONTENT


def test_without_a_network_it_says_what_to_put_where(monkeypatch, tmp_path):
    file = DataFile("toy/toy.bin", 5, "sha256:abcd", ("http://127.0.0.1:9/toy.bin",))
    monkeypatch.setitem(
        CATALOGUE, "toy", DatasetEntry("toy", "a toy", ((file,),), 0, "none")
    )
    with pytest.raises(DataError) as caught:
        fetch("toy", tmp_path)
    for words in (
        "without a network",
        str(tmp_path),
        "toy/toy.bin",
        "sha256:abcd",
        "http://127.0.0.1:9/toy.bin",
    ):
        assert words in str(caught.value)
    with pytest.raises(DataError, match="holds none of its files"):
        verify("toy", tmp_path)


def test_only_http_is_followed(monkeypatch, tmp_path):
    (tmp_path / "secret").write_text("x")
    file = DataFile("toy/toy.bin", 1, "sha256:abcd", ((tmp_path / "secret").as_uri(),))
    monkeypatch.setitem(
        CATALOGUE, "toy", DatasetEntry("toy", "a toy", ((file,),), 0, "none")
    )
    with pytest.raises(DataError, match="not an http address"):
        fetch("toy", tmp_path)


def test_derived_and_unknown_sets():
    with pytest.raises(DataError, match=r"derived.*shakespeare_roles\.json\.gz"):
        fetch("shakespeare")
    with pytest.raises(InvalidOption, match="did you mean 'mnist'"):
        fetch("mnits")


def test_listing_knows_what_is_here(toy, tmp_path, monkeypatch):
    monkeypatch.setenv("POISE_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "none"))
    assert not any(line.present for line in listing())
    fetch("toy")
    found = {line.name: line for line in listing()}
    assert found["toy"].present
    assert found["toy"].folder == str(tmp_path)
    assert found["toy"].size == len(CONTENT)
    assert not found["shakespeare"].fetchable
    assert found["mnist"].fetchable


def test_real_files_verify(need):
    for line in listing():
        if line.present and line.name in ("heart-disease", "mnist", "usps"):
            assert verify(line.name)
