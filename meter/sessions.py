#!/usr/bin/env python3
"""What a server holds after a hundred thousand mixed sessions, most of which end badly.

    meter/sessions.py --millrace target/release/millrace --sessions 100000

starts `millrace serve` on a fresh folder, lets four clients at a time do everything that leaks in servers (resets,
half a login, data connections that nobody takes, aborted and cut transfers), and prints memory and descriptors of the
server alone, before them, after the first 400, and after each fifth.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import socket
import struct
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Callable, TextIO

AT_ONCE = 4
WARM = 400


class Session:
    """A control connection."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.replies = self.socket.makefile("rb")

    def reply(self) -> str:
        while line := self.replies.readline().decode():
            if line[:3].isdigit() and line[3:4] == " ":
                return line
        raise EOFError

    def send(self, *lines: str) -> None:
        self.socket.sendall("".join(f"{line}\r\n" for line in lines).encode())

    def ask(self, line: str) -> str:
        self.send(line)
        return self.reply()

    def log_in(self) -> None:
        for line in ("USER u", "PASS p", "TYPE I"):
            self.ask(line)

    def passive(self, command: str) -> socket.socket:
        high, low = re.findall(r"\d+", self.ask("PASV"))[-2:]
        data = socket.create_connection(("127.0.0.1", int(high) * 256 + int(low)), timeout=30)
        self.ask(command)
        return data

    def fetch(self, command: str) -> None:
        with self.passive(command) as data:
            while data.recv(1 << 16):
                pass
        self.reply()

    def close(self) -> None:
        self.replies.close()
        self.socket.close()

    def reset(self) -> None:
        self.replies.close()
        reset(self.socket)


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def upload(session: Session) -> None:
    with session.passive("STOR up") as data:
        data.sendall(b"content")
    session.reply()


def cut_upload(session: Session) -> None:
    data = session.passive("STOR up")
    data.sendall(b"x" * 80_000)
    reset(data)
    session.reply()


def aborted_download(session: Session) -> None:
    with session.passive("RETR large"):
        session.send("ABOR", "QUIT")


def reset_at_work(session: Session) -> None:
    session.ask("PASV")
    session.send("STOR up")
    session.reset()


ENDINGS: tuple[Callable[[Session], object], ...] = (
    lambda session: session.fetch("RETR small"),
    upload,
    lambda session: session.fetch("LIST"),
    lambda session: session.ask("PASV"),
    lambda session: session.passive("RETR large").close(),
    cut_upload,
    aborted_download,
    reset_at_work,
    lambda session: session.send("XSHA256 medium", "NLST"),
    lambda session: session.send("STAT /", "MKD x", "RMD x", "QUIT"),
)


def one_session(port: int, choice: random.Random) -> None:
    session = Session(port)
    kind = choice.randrange(len(ENDINGS) + 2)
    try:
        if kind == len(ENDINGS):
            return session.reset()
        session.reply()
        if kind > len(ENDINGS):
            return session.send("USER u", "PA")
        session.log_in()
        ENDINGS[kind](session)
    except (EOFError, OSError):
        pass  # a client that sent more than the server read is told so by a reset
    finally:
        session.close()


def crowd(port: int, count: int, seed: int) -> None:
    def client(number: int) -> None:
        choice = random.Random(seed + number)
        for _ in range(count // AT_ONCE):
            one_session(port, choice)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def held(pid: int) -> str:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    sizes = {line.split(":")[0]: line.split()[1] for line in lines[1:]}
    descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    return f"| {sizes['Pss']:>7} | {sizes['Pss_Anon']:>13} | {descriptors:>11} |"


def announced_port(lines: TextIO) -> int:
    port = 0
    for line in lines:
        if url := re.search(r"ftp://\S*?:(\d+)", line):
            port = int(url[1])
        if line.startswith("Ready"):
            return port
    raise SystemExit("the server did not start")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--millrace", type=Path, default=Path("target/release/millrace"))
    arguments.add_argument("--sessions", type=int, default=100_000)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, size in (("small", 100), ("medium", 1 << 20), ("large", 8 << 20)):
            (Path(folder) / name).write_bytes(os.urandom(size))
        command = f"{options.millrace} serve {folder} --ftp 127.0.0.1:0 --http off --user u:p:rw --quiet".split()
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout
            port = announced_port(server.stdout)
            print("| sessions | PSS KiB | anonymous KiB | descriptors |\n|---|---|---|---|")
            print(f"| {0:>8} {held(server.pid)}", flush=True)
            crowd(port, WARM, 1)
            print(f"| {WARM:>8} {held(server.pid)}", flush=True)
            for part in range(1, 6):
                crowd(port, options.sessions // 5, part * 100)
                print(f"| {options.sessions * part // 5:>8} {held(server.pid)}", flush=True)
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
