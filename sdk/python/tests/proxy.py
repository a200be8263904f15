"""A wire between client and server that can be cut."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable


class Proxy:
    """Passes bytes on. `limit(n)` says how many bytes the n-th connection lets through on the way back.

    What comes back on the first of all connections is held until `released`, if it `holds`; `held` tells that something
    came.
    """

    def __init__(self, target: str, limit: Callable[[int], int | None], *, holds: bool = False) -> None:
        host, _, port = target.removeprefix("http://").rpartition(":")
        self._target = (host, int(port))
        self._limit = limit
        self._holds = holds
        self.held = threading.Event()
        self.released = threading.Event()
        self.connections = 0
        self.cuts = 0
        self.requests: list[bytes] = []
        self._lock = threading.Lock()
        self._near: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                number = self.connections
                self.connections += 1
                self._near.append(near)
            threading.Thread(target=self._serve, args=(near, number), daemon=True).start()

    def _serve(self, near: socket.socket, number: int) -> None:
        try:
            far = socket.create_connection(self._target)
        except OSError:
            near.close()
            return
        threading.Thread(target=self._forth, args=(near, far), daemon=True).start()
        left = self._limit(number)
        with contextlib.suppress(OSError):
            while left is None or left > 0:
                piece = far.recv(65536 if left is None else min(left, 65536))
                if not piece:
                    break
                if self._holds and number == 0:
                    self.held.set()
                    self.released.wait()
                near.sendall(piece)
                left = None if left is None else left - len(piece)
            else:
                with self._lock:
                    self.cuts += 1
        for end in (near, far):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _forth(self, near: socket.socket, far: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := near.recv(65536):
                with self._lock:
                    self.requests.append(piece)
                far.sendall(piece)

    def cut(self) -> None:
        """Cuts all that is connected."""
        with self._lock:
            for near in self._near:
                with contextlib.suppress(OSError):
                    near.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Takes no more connections, and holds nothing back."""
        self._listener.close()
        self.released.set()
