"""Asks the server of this session's Python workers for one (`anabranch.spark.session.worker_server`); a script of its own that
imports little, because Spark starts it for each worker.

`python -I -S worker_request.py SOCKET PYTHON ARGUMENT …` has the server run `PYTHON ARGUMENT …` in a fork, with the standard
streams, environment and working folder of this process, and stays until that has ended. Without an answer it becomes
`PYTHON ARGUMENT …` itself.
"""

import os
import socket
import sys

_PATIENCE_S = 30.0  # the server may still be importing


def main() -> None:
    """Never returns."""
    _, address, *command = sys.argv
    connection = _request(address, command)
    if connection is None:
        os.execv(command[0], command)
    connection.settimeout(None)
    # To Spark, the end of this process means the end of the worker, which keeps the connection open. Waiting needs no Python.
    os.dup2(connection.fileno(), 0)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.execvp("cat", ["cat"])


def _request(address: str, command: list[str]) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    folder = os.getcwd()  # noqa: PTH109, pathlib takes longer to import than all of this
    texts = [str(len(command)), folder, *command, *(f"{name}={value}" for name, value in os.environ.items())]
    try:
        connection.settimeout(_PATIENCE_S)
        connection.connect(address)
        socket.send_fds(connection, [b"\0"], [0, 1, 2])
        connection.sendall(b"\0".join(map(os.fsencode, texts)))
        connection.shutdown(socket.SHUT_WR)
        return connection if connection.recv(1) else None
    except OSError:  # there is no such server, it has just ended or was stopped
        return None


if __name__ == "__main__":
    main()
