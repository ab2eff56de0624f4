"""The servers of the race: how each is configured and started. peers/README.md says why it is fair."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Iterator

HERE = Path(__file__).resolve().parent
PASSIVE_FIRST, PASSIVE_LAST = 30000, 31999
SESSIONS_MAX = 20000
NOBODY = 65534
# crypt(3) of "bench" in its cheapest form: a login should cost the server's work, not the hash's.
BENCH_HASH = "mrsQXBVE22d8Y"


@dataclass(frozen=True)
class Setting:
    """Where a server runs and what it may use."""

    root: Path
    state: Path  # an empty folder for its configuration
    port: int
    floor: Path
    millrace: Path
    peers: Path

    def write(self, name: str, text: str) -> Path:
        path = self.state / name
        path.write_text(text)
        path.chmod(0o600)
        return path

    def debian(self, program: str) -> str:
        return str(self.peers / "debian/usr" / program)


@dataclass(frozen=True)
class Server:
    name: str
    command: Callable[[Setting], list[str]]
    user: str = "bench"
    idle_sessions: tuple[int, int] = (1000, 9000)


@dataclass
class Running:
    process: subprocess.Popen[bytes]
    port: int
    log: Path = field(repr=False)


def floor(at: Setting) -> list[str]:
    return [str(at.floor), str(at.root), str(at.port), f"{PASSIVE_FIRST}-{PASSIVE_LAST}"]


def millrace(extra: str = "") -> Callable[[Setting], list[str]]:
    def command(at: Setting) -> list[str]:
        base = [str(at.millrace), "serve", str(at.root), "--ftp", f"127.0.0.1:{at.port}"]
        ports = f"{PASSIVE_FIRST}-{PASSIVE_LAST}"
        return [*base, "--user", "bench:bench:rw", "--passive-ports", ports, "--quiet", *shlex.split(extra)]

    return command


def pure_ftpd(at: Setting, *extra: str) -> list[str]:
    account = f"bench:{BENCH_HASH}:{NOBODY}:{NOBODY}::{at.root}::::::::::::\n"
    database = at.state / "pure.pdb"
    make = [at.debian("bin/pure-pw"), "mkdb", str(database), "-f", str(at.write("pure.passwd", account))]
    subprocess.run(make, check=True, env=environment(at.peers))
    sessions = str(SESSIONS_MAX)
    return [
        *[at.debian("sbin/pure-ftpd"), "-S", f"127.0.0.1,{at.port}", "-l", f"puredb:{database}"],
        *["-E", "-H", "-4", "-u", "1", "-f", "none", "-g", str(at.state / "pure.pid")],
        *["-c", sessions, "-C", sessions, "-I", "60", "-L", "2000000:5", "-p", f"{PASSIVE_FIRST}:{PASSIVE_LAST}"],
        *extra,
    ]


def pure_ftpd_staged(at: Setting) -> list[str]:
    """As it stages: without -0 it truncates a file that is there, and writes into it."""
    return pure_ftpd(at, "-0")


def vsftpd(at: Setting) -> list[str]:
    empty = at.state / "empty"
    empty.mkdir()
    # daemon: an account without rights whose home exists on every Debian, which vsftpd insists on.
    settings = {
        "listen": "YES", "listen_address": "127.0.0.1", "listen_port": at.port, "background": "NO",
        "anonymous_enable": "YES", "local_enable": "NO", "ftp_username": "daemon", "anon_root": at.root,
        "write_enable": "YES", "anon_upload_enable": "YES", "anon_other_write_enable": "YES",
        "anon_world_readable_only": "NO", "allow_writeable_chroot": "YES", "secure_chroot_dir": empty,
        "pasv_min_port": PASSIVE_FIRST, "pasv_max_port": PASSIVE_LAST, "max_clients": 0, "max_per_ip": 0,
        "isolate": "NO", "isolate_network": "NO", "xferlog_enable": "NO", "idle_session_timeout": 3600,
    }  # fmt: skip
    text = "".join(f"{name}={value}\n" for name, value in settings.items())
    return [at.debian("sbin/vsftpd"), str(at.write("vsftpd.conf", text))]


def proftpd(at: Setting) -> list[str]:
    account = at.write("proftpd.passwd", f"bench:{BENCH_HASH}:{NOBODY}:{NOBODY}::{at.root}:/bin/sh\n")
    text = f"""
ServerType standalone
DefaultAddress 127.0.0.1
Port {at.port}
UseIPv6 off
User nobody
Group nogroup
AuthOrder mod_auth_file.c
AuthUserFile {account}
RequireValidShell off
AllowOverwrite on
PassivePorts {PASSIVE_FIRST} {PASSIVE_LAST}
MaxInstances none
TimeoutIdle 3600
TimeoutNoTransfer 0
UseReverseDNS off
DelayEngine off
ScoreboardFile none
PidFile {at.state}/proftpd.pid
DelayTable none
ControlsEngine off
WtmpLog off
TransferLog none
SystemLog none
"""
    return [at.debian("sbin/proftpd"), "--nodaemon", "--quiet", "--config", str(at.write("proftpd.conf", text))]


def pyftpdlib(at: Setting) -> list[str]:
    script = HERE.parent / "peers/pyftpdlib_server.py"
    ports = [str(PASSIVE_FIRST), str(PASSIVE_LAST)]
    return [sys.executable, str(script), str(at.root), str(at.port), "bench", "bench", *ports]


PEERS = ("pure-ftpd", "pure-ftpd-staged", "vsftpd", "proftpd", "pyftpdlib")  # they need the libraries that came with them
SERVERS = {
    server.name: server
    for server in (
        Server("floor", floor),
        Server("millrace", millrace()),
        Server("millrace-inplace", millrace("--uploads in-place")),
        Server("pure-ftpd", pure_ftpd, idle_sessions=(500, 1000)),
        Server("pure-ftpd-staged", pure_ftpd_staged, idle_sessions=(500, 1000)),
        Server("vsftpd", vsftpd, user="anonymous", idle_sessions=(1000, 2000)),
        Server("proftpd", proftpd, idle_sessions=(1000, 2000)),
        Server("pyftpdlib", pyftpdlib),
    )
}


def environment(peers: Path) -> dict[str, str]:
    libraries = [str(path) for path in peers.glob("debian/**/*-linux-gnu")]
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(libraries), "PYTHONPATH": str(peers / "python")}


def free_port() -> int:
    """A port below the ephemeral range, where no client's connection can be in the way."""
    for port in range(2121, 3000):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    raise RuntimeError("no port from 2121 to 2999 is free")


@contextmanager
def running(server: Server, at: Setting) -> Iterator[Running]:
    """The server, from its greeting until it and all its descendants have gone."""
    log = at.state / "log"
    env = environment(at.peers) if server.name in PEERS else None
    with log.open("wb") as output:
        process = subprocess.Popen(server.command(at), stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=env)
    try:
        wait_for_greeting(process, at.port, log)
        yield Running(process, at.port, log)
    finally:
        stop(process)


def wait_for_greeting(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    give_up = time.monotonic() + 15
    while time.monotonic() < give_up and process.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as control:
                if control.recv(100).startswith(b"220"):
                    control.sendall(b"QUIT\r\n")
                    return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"{process.args} did not greet on port {port}: {log.read_text(errors='replace')[-500:]}")


def stop(process: subprocess.Popen[bytes]) -> None:
    tree = descendants(process.pid)
    process.terminate()
    try:
        process.wait(timeout=3)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pid in tree:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def descendants(root: int) -> list[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found: set[int] = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found - {root})
