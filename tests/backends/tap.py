"""A TCP proxy for tests that records the traffic."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

PATIENCE = 120  # seconds that a target may be away


class Tap:
    """Listens on a port of the loopback, passes everything on to another, and keeps what each
    connection said.

    Args:
        target: the port that connections are passed on to.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.connections: list[
            tuple[bytearray, bytearray]
        ] = []  # to the target, and from it
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._door.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def said(self) -> bytes:
        """All of it."""
        return b"".join(bytes(way) for both in self.connections for way in both)

    def close(self) -> None:
        self._door.close()

    def _serve(self) -> None:
        with suppress(OSError):  # closed
            while True:
                threading.Thread(
                    target=self._connect, args=(self._door.accept()[0],), daemon=True
                ).start()

    def _connect(self, caller: socket.socket) -> None:
        """Callers wait while the target is down: whoever is hung up on in a handshake believes that
        TLS has failed."""
        for _ in range(PATIENCE):
            with suppress(OSError):
                called = socket.create_connection(("127.0.0.1", self.target))
                break
            time.sleep(1)
        else:
            caller.close()
            return
        kept = bytearray(), bytearray()
        self.connections.append(kept)
        for source, sink, record in (
            (caller, called, kept[0]),
            (called, caller, kept[1]),
        ):
            threading.Thread(
                target=_pass_on, args=(source, sink, record), daemon=True
            ).start()


def _pass_on(source: socket.socket, sink: socket.socket, record: bytearray) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            record += data
            sink.sendall(data)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
