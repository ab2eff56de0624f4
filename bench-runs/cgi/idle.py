"""Connections that say nothing behind their first request: idle.py PORT COUNT; ends when it is told to."""

import resource
import signal
import socket
import sys

_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
port, count = int(sys.argv[1]), int(sys.argv[2])
held = []
for _ in range(count):
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n")
    connection.recv(4096)
    held.append(connection)
print("open", flush=True)
signal.pause()
