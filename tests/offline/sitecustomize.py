"""Imported by every interpreter that has this folder on its path: connections beyond this machine are refused."""

import socket

_connect = socket.socket.connect


def connect(self, address):
    host = address[0] if isinstance(address, tuple) else "local"
    if host not in ("127.0.0.1", "::1", "localhost", "local"):
        raise PermissionError(f"no network here: connection to {host} refused")
    return _connect(self, address)


socket.socket.connect = connect  # type: ignore[method-assign]
