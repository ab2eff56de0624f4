#!/usr/bin/env python3
"""Millrace, nginx and lighttpd as web servers, side by side, each with its access log on.

    meter/http.py keep close 10k 100k --millrace target/release/millrace --rounds 5
    meter/http.py 1g idle neighbour pace

The loads are the benchmark's (`millrace bench`), but for `close`, which is also run by ab, and `keep`, by wrk, where these
are installed: the benchmark should not be the only judge of the program that it is part of. The order of the servers is
shuffled in each round, and ratios are of the same round.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shlex
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Iterator

from servers import descendants, free_port, stop

Figures = dict[str, float]
CONNECTIONS = 215
IDLE_FEW, IDLE_MANY = 1000, 9000
GIB = 1 << 30
DOCUMENTS = {"f": 1666, "10k": 10 << 10, "100k": 100 << 10, "1g": GIB}

NGINX = """
daemon off; worker_processes auto; worker_rlimit_nofile 20000; pid {state}/pid; error_log stderr error;
user {user};
events {{ worker_connections 19000; }}
http {{
    access_log {state}/access.log combined buffer=64k flush=1s;
    open_file_cache max=10000; sendfile on; tcp_nopush on; default_type text/plain;
    keepalive_timeout 3600; keepalive_requests 1000000000;
    client_body_temp_path {state}/a; proxy_temp_path {state}/b; fastcgi_temp_path {state}/c;
    uwsgi_temp_path {state}/d; scgi_temp_path {state}/e;
    server {{ listen 127.0.0.1:{port} backlog=4096 reuseport; root {root}; }}
}}
"""

LIGHTTPD = """
server.modules = ("mod_accesslog")
server.document-root = "{root}"
server.bind = "127.0.0.1"
server.port = {port}
server.max-fds = 20000
server.max-connections = 19000
server.listen-backlog = 4096
server.max-keep-alive-requests = 1000000
server.max-keep-alive-idle = 3600
server.network-backend = "sendfile"
accesslog.filename = "{state}/access.log"
"""

# A bare sendfile loop: what no server of a large file can leave out.
BARE = """
import os, socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    client, _ = listener.accept()
    asked = client.recv(4096).split()
    if len(asked) < 2:  # Somebody who only looked whether it answers.
        client.close()
        continue
    file = os.open(sys.argv[2] + asked[1].decode(), os.O_RDONLY)
    left, at = os.fstat(file).st_size, 0
    client.send(f"HTTP/1.1 200 OK\\r\\nContent-Length: {left}\\r\\nConnection: close\\r\\n\\r\\n".encode(), socket.MSG_MORE)
    try:
        while left:
            sent = os.sendfile(client.fileno(), file, at, left)
            left, at = left - sent, at + sent
    except OSError:
        pass
    os.close(file)
    client.close()
"""


def nginx(options: argparse.Namespace, root: Path, state: Path, port: int) -> list[str]:
    user = "root" if os.geteuid() == 0 else "nobody"
    configuration = state / "nginx.conf"
    configuration.write_text(NGINX.format(root=root, state=state, port=port, user=user))
    return [options.nginx, "-p", str(state), "-e", "stderr", "-c", str(configuration)]


def lighttpd(options: argparse.Namespace, root: Path, state: Path, port: int) -> list[str]:
    configuration = state / "lighttpd.conf"
    configuration.write_text(LIGHTTPD.format(root=root, state=state, port=port))
    return [options.lighttpd, "-D", "-f", str(configuration)]


def millrace(options: argparse.Namespace, root: Path, state: Path, port: int) -> list[str]:
    command = [str(options.millrace), "serve", str(root), "--ftp", "off", "--http", f"127.0.0.1:{port}", "--quiet"]
    return [*command, "--access-log", str(state / "access.log")]


def bare(_: argparse.Namespace, root: Path, state: Path, port: int) -> list[str]:
    script = state / "bare.py"
    script.write_text(BARE)
    return [sys.executable, str(script), str(port), str(root)]


SERVERS: dict[str, Callable[[argparse.Namespace, Path, Path, int], list[str]]] = {
    "nginx": nginx, "millrace": millrace, "lighttpd": lighttpd, "bare": bare,
}  # fmt: skip


class Cell:
    """One server that runs, and what can be asked about it."""

    def __init__(self, options: argparse.Namespace, pid: int, port: int, state: Path) -> None:
        self.options, self.pid, self.port, self.state = options, pid, port, state

    def url(self, document: str) -> str:
        return f"http://127.0.0.1:{self.port}/{document}"

    def ruler(self, document: str, users: int, *more: str) -> dict[str, Any]:
        path = self.state / "cell.json"
        command = [str(self.options.ruler), "bench", self.url(document), "--ops", "get", "--users", str(users)]
        command += ["--repeat", "1", "--warm-up", "200ms", "--server-pid", str(self.pid), "--json", str(path), *more]
        if "--duration" not in more:
            command += ["--duration", f"{self.options.seconds}s"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if not path.exists():
            raise RuntimeError(f"{shlex.join(command)}: {done.stderr[-400:]}")
        return json.loads(path.read_text())["cells"][0]

    def get(self, document: str, users: int, *more: str) -> Figures:
        cell = self.ruler(document, users, *more)
        faults = sum(fault.get("count", 1) for fault in cell["faults"])
        return {
            "ops/s": cell["ops_per_s"], "us/op": cell["server_us_per_op"], "p99 ms": cell["latency"]["p99_ms"],
            "p99.9 ms": cell["latency"]["p999_ms"], "Jain": cell["fairness"]["jain"],
            "segments": cell["http"]["segments_per_response"], "errors": faults,
        }  # fmt: skip

    def cpu(self) -> float:
        """Seconds of CPU of the server so far."""
        total = 0
        for pid in [self.pid, *descendants(self.pid)]:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15]))
        return total / os.sysconf("SC_CLK_TCK")

    def pss(self) -> int:
        """KiB of the server."""
        texts = (Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in [self.pid, *descendants(self.pid)])
        return sum(int(re.search(r"^Pss:\s+(\d+)", text, re.M).group(1)) for text in texts)

    def outside(self, command: list[str], rate: str) -> Figures:
        """A load by somebody else's program, whose rate is what `rate` finds in what it prints."""
        before = self.cpu()
        said = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
        cpu = self.cpu() - before
        done = re.search(r"Complete requests:\s+(\d+)|(\d+) requests in", said)
        requests = int(done.group(1) or done.group(2))
        return {"ops/s": float(re.search(rate, said).group(1)), "us/op": cpu / requests * 1e6, "errors": 0}


def keep(cell: Cell) -> Figures:
    return cell.get("f", CONNECTIONS)


def keep_by_wrk(cell: Cell) -> Figures:
    seconds = str(max(1, round(cell.options.seconds)))
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", cell.url("f")]
    return cell.outside(command, r"Requests/sec:\s+([\d.]+)")


def close(cell: Cell) -> Figures:
    return cell.get("f", CONNECTIONS, "--keep-alive", "off")


def close_by_ab(cell: Cell) -> Figures:
    command = ["ab", "-q", "-n", "20000", "-c", str(CONNECTIONS), cell.url("f")]
    return cell.outside(command, r"Requests per second:\s+([\d.]+)")


def large(cell: Cell) -> Figures:
    return cell.get("1g", 1, "--duration", "4s")


def idle(cell: Cell) -> Figures:
    """Memory of a kept connection that has had an answer: the slope between few and many."""
    held: list[socket.socket] = []
    sizes = []
    for count in (IDLE_FEW, IDLE_MANY):
        while len(held) < count:
            client = socket.create_connection(("127.0.0.1", cell.port), timeout=30)
            client.sendall(b"GET /f HTTP/1.1\r\nHost: localhost\r\n\r\n")
            got = client.recv(65536)
            while len(got) < 1666:
                got += client.recv(65536)
            held.append(client)
        time.sleep(1)
        sizes.append(cell.pss())
    for client in held:
        client.close()
    return {"KiB each": (sizes[1] - sizes[0]) / (IDLE_MANY - IDLE_FEW), "PSS KiB": sizes[1], "errors": 0}


def neighbour(cell: Cell) -> Figures:
    """What one who downloads a GiB does to the others: p99 with and without."""
    load = ("--rate", "2000")
    alone = cell.get("f", 20, *load)
    curl = ["curl", "-s", "-o", "/dev/null", "--limit-rate", "400M", cell.url("1g")]
    download = subprocess.Popen(curl)
    time.sleep(0.2)
    beside = cell.get("f", 20, *load)
    lasted = download.poll() is None
    download.kill()
    download.wait()
    ratio = beside["p99 ms"] / alone["p99 ms"]
    return {"p99 ms": alone["p99 ms"], "beside": beside["p99 ms"], "ratio": ratio, "errors": 0 if lasted else 1}


def pace(cell: Cell) -> Figures:
    """Latency at four fifths of what this server reaches."""
    peak = cell.get("f", CONNECTIONS)["ops/s"]
    return {"peak": peak, **cell.get("f", CONNECTIONS, "--rate", str(int(peak * 0.8)))}


SCENARIOS: dict[str, Callable[[Cell], Figures]] = {
    "keep": keep, "keep-wrk": keep_by_wrk, "close": close, "close-ab": close_by_ab,
    "10k": lambda cell: cell.get("10k", 100), "100k": lambda cell: cell.get("100k", 50),
    "1g": large, "idle": idle, "neighbour": neighbour, "pace": pace,
}  # fmt: skip


@contextmanager
def running(options: argparse.Namespace, name: str, root: Path) -> Iterator[Cell]:
    with tempfile.TemporaryDirectory(dir=options.place) as folder:
        state, port = Path(folder), free_port()
        with (state / "log").open("wb") as log:
            process = subprocess.Popen(SERVERS[name](options, root, state, port), stdout=log, stderr=log)
        try:
            give_up = time.monotonic() + 10
            while time.monotonic() < give_up:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=5).close()
                    break
                except OSError:
                    time.sleep(0.02)
            else:
                raise RuntimeError(f"{name} does not answer: {(state / 'log').read_text()[-500:]}")
            yield Cell(options, process.pid, port, state)
        finally:
            stop(process)


def table(scenario: str, rounds: list[dict[str, Figures]]) -> str:
    names = list(rounds[0])
    first = names[0]
    keys = [key for key in rounds[0][first]]
    lines = [f"\n## {scenario}", "| server | " + " | ".join(keys) + f" | ops/s x {first} | us/op x {first} |"]
    lines.append("|" + "---|" * (len(keys) + 3))
    for name in names:
        shown = [f"{statistics.median(cells[name][key] for cells in rounds):.4g}" for key in keys]
        for key in ("ops/s", "us/op"):
            ratios = [cells[name][key] / cells[first][key] for cells in rounds if cells[first].get(key)]
            shown.append(f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})" if ratios else "-")
        lines.append(f"| {name} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="+", choices=SCENARIOS, metavar="SCENARIO", help=", ".join(SCENARIOS))
    parser.add_argument("--servers", default="nginx,millrace,lighttpd", help="ratios are to the first")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.5, help="of load in each cell")
    target = Path(os.environ.get("CARGO_TARGET_DIR", Path(__file__).resolve().parent.parent / "target"))
    parser.add_argument("--millrace", type=Path, default=target / "release/millrace", help="the server")
    parser.add_argument("--ruler", type=Path, help="the program whose `bench` loads them [the same]")
    for name in ("nginx", "lighttpd"):
        parser.add_argument(f"--{name}", default=shutil.which(name) or f"/usr/sbin/{name}")
    parser.add_argument("--place", type=Path, help="a folder for what is served and logged")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    options.ruler = options.ruler or options.millrace
    return options


def main() -> None:
    options = parse()
    kept: dict[str, list[dict[str, Figures]]] = {}
    with tempfile.TemporaryDirectory(prefix="millrace-http-", dir=options.place) as place:
        root = Path(place) / "root"
        root.mkdir()
        Path(place).chmod(0o755)
        for name, size in DOCUMENTS.items():
            with (root / name).open("wb") as file:
                for _ in range(0, size, 1 << 20):
                    file.write(os.urandom(min(size, 1 << 20)))
        for scenario in options.scenarios:
            names = options.servers.split(",")
            rounds = kept.setdefault(scenario, [])
            for _ in range(options.rounds):
                cells: dict[str, Figures] = dict.fromkeys(names, {})
                for name in random.sample(names, len(names)):
                    with running(options, name, root) as cell:
                        cells[name] = SCENARIOS[scenario](cell)
                rounds.append(cells)
            print(table(scenario, rounds), flush=True)
            if options.json:
                options.json.write_text(json.dumps({"command": shlex.join(sys.argv), "results": kept}, indent=1))


if __name__ == "__main__":
    main()
