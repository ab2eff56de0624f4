#!/usr/bin/env python3
"""FTPS beside its ceiling and its peers: bulk transfers, handshakes, idle sessions, listings, a storm of handshakes.

The ceiling of bulk transfers is a bare rustls loop over loopback (crates/net/examples/bare_tls.rs), whose client loads
every server alike; everything else is measured by the ruler (`millrace bench`). Servers take turns in shuffled rounds,
and a ratio is always to another figure of the same round. See README.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import random
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator

from processors import claimed
from run import CACHE, HERE, MIB, Race, machine, touch_free_memory, versions, wait_for_idle_cpu
from servers import SERVERS, Running, Server, Setting, descendants, free_port, running

Figures = dict[str, Any]
ENTRIES = 100_000
MEMORY_FOR_NEW_FILES = 6 << 30
TICKS = os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass(frozen=True)
class Keys:
    """A certificate and its key, in files of their own and both in one."""

    name: str
    certificate: Path
    key: Path
    both: Path


def make_keys(folder: Path, name: str, kind: list[str]) -> Keys:
    keys = Keys(name, folder / f"{name}.crt", folder / f"{name}.key", folder / f"{name}.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-nodes", "-days", "30", "-subj", "/CN=localhost", *kind,
         "-addext", "subjectAltName=DNS:localhost", "-keyout", keys.key, "-out", keys.certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    keys.both.write_text(keys.certificate.read_text() + keys.key.read_text())
    for file in (keys.key, keys.both):
        file.chmod(0o600)
    return keys


def encrypted(name: str, keys: Keys) -> Server:
    """A server of the race with TLS switched on, and nothing else changed."""
    plain = SERVERS[name]
    return dataclasses.replace(plain, command=lambda at: WAYS[name](at, plain.command(at), keys))


def millrace_tls(at: Setting, command: list[str], keys: Keys) -> list[str]:
    return [*command, "--http", "off", "--tls-cert", str(keys.certificate), "--tls-key", str(keys.key)]


def vsftpd_tls(at: Setting, command: list[str], keys: Keys) -> list[str]:
    more(command[-1], {
        "ssl_enable": "YES", "allow_anon_ssl": "YES", "rsa_cert_file": keys.both, "require_ssl_reuse": "NO",
        "ssl_ciphers": "HIGH",
    }, "{}={}")  # fmt: skip
    return command


def pure_ftpd_tls(at: Setting, command: list[str], keys: Keys) -> list[str]:
    return [*command, "-Y", "1", "-2", str(keys.both)]


def proftpd_tls(at: Setting, command: list[str], keys: Keys) -> list[str]:
    modules = at.peers / "debian/usr/lib/proftpd"
    text = Path(command[-1])
    text.write_text(f"ModulePath {modules}\nLoadModule mod_tls.c\n" + text.read_text())
    more(command[-1], {
        "TLSEngine": "on", "TLSRSACertificateFile": keys.certificate, "TLSRSACertificateKeyFile": keys.key,
        "TLSOptions": "NoSessionReuseRequired", "TLSLog": "none",
    }, "{} {}")  # fmt: skip
    return command


def more(file: str, settings: dict[str, Any], form: str) -> None:
    with open(file, "a") as text:
        text.writelines(form.format(name, value) + "\n" for name, value in settings.items())


WAYS: dict[str, Callable[[Setting, list[str], Keys], list[str]]] = {
    "millrace": millrace_tls,
    "vsftpd": vsftpd_tls,
    "pure-ftpd": pure_ftpd_tls,
    "proftpd": proftpd_tls,
}


class Bench:
    """What all measurements share."""

    def __init__(self, options: argparse.Namespace, place: Path) -> None:
        self.options = options
        self.place = place
        self.root = place / "root"
        self.root.mkdir(mode=0o755)
        (self.root / "up").mkdir()
        (self.root / "up").chmod(0o777)
        place.chmod(0o755)  # the peers serve it as nobody
        self.rsa = make_keys(place, "rsa", ["-newkey", "rsa:2048"])
        self.p256 = make_keys(place, "p256", ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"])

    @contextmanager
    def server(self, server: Server) -> Iterator[Running]:
        wait_for_idle_cpu(self.options.idle_wait)
        with tempfile.TemporaryDirectory(dir=self.place) as state:
            options = self.options
            at = Setting(self.root, Path(state), free_port(), Path("/"), options.millrace, options.peers)
            with running(server, at) as started:
                yield started

    def ruler(self, at: Running, load: str, tls: str = "1.3", seconds: float | None = None) -> Figures:
        """One figure of `millrace bench`; CPU in microseconds an operation."""
        command = [str(self.options.millrace), "bench", f"ftp://bench:bench@127.0.0.1:{at.port}/", "--json", "-"]
        command += ["--tls", tls] if tls != "off" else []
        command += ["--server-pid", str(at.process.pid), "--duration", f"{seconds or self.options.seconds}s"]
        done = subprocess.run([*command, *shlex.split(load)], capture_output=True, text=True, timeout=170)
        if not done.stdout:
            raise RuntimeError(f"the ruler failed ({done.returncode}): {done.stderr[-500:]}")
        return json.loads(done.stdout)


# Bulk transfers.


def bulk(bench: Bench, direction: str) -> Figures:
    """The bare loop, Millrace and the peers, each in every round."""
    size = bench.options.size * MIB
    names = ["bare", *bench.options.servers.split(",")]
    rounds: list[dict[str, Figures]] = []
    big = bench.root / "big"
    if not big.exists():
        with big.open("wb") as file:
            for _ in range(bench.options.size):
                file.write(os.urandom(MIB))
    for _ in range(bench.options.rounds):
        cells = {name: transfer(bench, name, direction, size) for name in random.sample(names, len(names))}
        rounds.append({name: cells[name] for name in names})
    return {"rounds": rounds, "table": bulk_table(direction, names, rounds)}


def transfer(bench: Bench, name: str, direction: str, size: int) -> Figures:
    if direction == "upload":
        touch_free_memory(MEMORY_FOR_NEW_FILES)
    load = [str(bench.options.bare), "load"]
    what = [direction, str(bench.options.seconds), str(size)]
    if name == "bare":
        with bare(bench) as (pid, port):
            return loaded([*load, port, *what], pid)
    (bench.root / "up/big").unlink(missing_ok=True)  # another server's account has written it
    file = "up/big" if direction == "upload" else "big"
    with bench.server(encrypted(name, bench.rsa)) as started:
        login = [SERVERS[name].user, "bench"]
        return loaded([*load, str(started.port), *what, *login, file], started.process.pid)


@contextmanager
def bare(bench: Bench) -> Iterator[tuple[int, str]]:
    wait_for_idle_cpu(bench.options.idle_wait)
    command = [str(bench.options.bare), "serve", str(bench.rsa.certificate), str(bench.rsa.key)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield process.pid, process.stdout.readline().strip()
        finally:
            process.terminate()


def loaded(command: list[str], server: int) -> Figures:
    """A load, and what it cost the server: seconds of CPU a gigabyte."""
    before = cpu_seconds(server)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if not done.stdout:
        return {"error": done.stderr.strip()[-300:]}
    figures = json.loads(done.stdout)
    figures["server_s_per_gb"] = (cpu_seconds(server) - before) / (figures["bytes"] / 1e9)
    return figures


def cpu_seconds(root: int) -> float:
    """Of a process and its children, those that have ended included."""
    total = 0
    for pid in [root, *descendants(root)]:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(int(field) for field in fields[11:15])
    return total / TICKS


def bulk_table(direction: str, names: list[str], rounds: list[dict[str, Figures]]) -> str:
    lines = [f"## {direction}", "| server | MB/s | of bare | server s/GB | of bare | suite |", "|---|---|---|---|---|---|"]
    for name in names:
        cells = [cells[name] for cells in rounds]
        if wrong := [cell["error"] for cell in cells if "error" in cell]:
            lines.append(f"| {name} | {wrong[0][:80]} |")
            continue
        row = [name]
        for key in ("mb_per_s", "server_s_per_gb"):
            row.append(f"{statistics.median(cell[key] for cell in cells):.3g}")
            row.append(spread([cells[name][key] / cells["bare"][key] for cells in rounds]))
        lines.append("| " + " | ".join([*row, cells[0]["suite"]]) + " |")
    return "\n".join(lines)


def spread(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"


# What the ruler measures.


def handshakes(bench: Bench) -> Figures:
    """CPU of one data handshake: that of a download of a byte, less what it costs in clear."""
    (bench.root / "one").write_bytes(b"1")
    lines = ["## handshakes", "| certificate | TLS | full us | resumed us | resumed / full |", "|---|---|---|---|---|"]
    figures: Figures = {}
    for keys in (bench.rsa, bench.p256):
        for version in ("1.3", "1.2"):
            rounds = [handshake(bench, keys, version) for _ in range(bench.options.rounds)]
            figures[f"{keys.name} {version}"] = rounds
            full, resumed = (statistics.median(cell[key] for cell in rounds) for key in ("full", "resumed"))
            ratio = spread([cell["resumed"] / cell["full"] for cell in rounds])
            lines.append(f"| {keys.name} | {version} | {full:.0f} | {resumed:.0f} | {ratio} |")
    return {**figures, "table": "\n".join(lines)}


def handshake(bench: Bench, keys: Keys, version: str) -> Figures:
    load = "--ops retr --file one --users 4"
    with bench.server(encrypted("millrace", keys)) as at:
        cost = {}
        for name, more in (("clear", "--prot clear"), ("full", "--resume off"), ("resumed", "--resume on")):
            cell = bench.ruler(at, f"{load} {more}", version, bench.options.seconds / 2)["cells"][0]
            cost[name] = cell["server_us_per_op"]
            cost[f"{name}_resumed"] = cell["tls"]["data_resumed"] / max(1, cell["tls"]["data_handshakes"])
    return {
        **{f"{name}_us_per_op": value for name, value in cost.items()},
        "full": cost["full"] - cost["clear"],
        "resumed": cost["resumed"] - cost["clear"],
    }


def idle(bench: Bench) -> Figures:
    """Memory of an idle session: the slope between few and many."""
    few, many = 500, 3000
    lines = ["## idle", "| session | PSS KiB |", "|---|---|"]
    figures: Figures = {}
    for tls in ("off", "1.2", "1.3"):
        held = []
        for users in (few, many):
            with bench.server(encrypted("millrace", bench.p256)) as at:
                held.append(bench.ruler(at, f"--ops idle --users {users}", tls)["cells"][0]["audit"]["server"])
        slope = (held[1]["pss_kib_logged_in"] - held[0]["pss_kib_logged_in"]) / (many - few)
        figures[tls] = {"pss_kib_per_session": slope, "few": held[0], "many": held[1]}
        lines.append(f"| {'clear' if tls == 'off' else 'TLS ' + tls} | {slope:.2f} |")
    return {**figures, "table": "\n".join(lines)}


def mlsd(bench: Bench) -> Figures:
    """A long listing in clear and under TLS."""
    folder = bench.root / "many"
    folder.mkdir()
    for number in range(ENTRIES):
        os.close(os.open(folder / f"entry-{number:07}.txt", os.O_CREAT | os.O_WRONLY, 0o644))
    rounds = []
    with bench.server(encrypted("millrace", bench.p256)) as at:
        for _ in range(bench.options.rounds):
            cells = {
                tls: bench.ruler(at, "--ops mlsd --file many --users 1", tls)["cells"][0] for tls in ("off", "1.3")
            }
            rounds.append({tls: {"ms": cell["latency"]["p50_ms"], "us": cell["server_us_per_op"]} for tls, cell in cells.items()})
    lines = ["## mlsd", "| | ms | server us |", "|---|---|---|"]
    for tls, name in (("off", "clear"), ("1.3", "TLS 1.3")):
        cells = [cells[tls] for cells in rounds]
        times = [f"{statistics.median(cell[key] for cell in cells):.4g}" for key in ("ms", "us")]
        lines.append(f"| {name} | {' | '.join(times)} |")
    ratios = [spread([cells["1.3"][key] / cells["off"][key] for cells in rounds]) for key in ("ms", "us")]
    lines.append(f"| TLS / clear | {' | '.join(ratios)} |")
    return {"rounds": rounds, "table": "\n".join(lines)}


def storm(bench: Bench) -> Figures:
    """NOOPs of a session in clear while others do nothing but shake hands."""
    lines = ["## storm", "| while | NOOP p50 ms | p99 ms | max ms | logins/s |", "|---|---|---|---|---|"]
    figures: Figures = {}
    for name in ("nothing", "handshakes"):
        with bench.server(encrypted("millrace", bench.rsa)) as at:
            target = f"ftp://bench:bench@127.0.0.1:{at.port}/"
            command = [str(bench.options.millrace), "bench", target, "--tls", "1.3", "--ops", "login"]
            command += ["--users", "50", "--duration", f"{bench.options.seconds + 2}s", "--json", "-"]
            others = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) if name != "nothing" else None
            noop = bench.ruler(at, "--ops noop --users 1 --warm-up 1s", "off")["cells"][0]
            rate = json.loads(others.communicate()[0])["cells"][0]["ops_per_s"] if others else 0
        figures[name] = {"noop": noop["latency"], "logins_per_s": rate}
        times = " | ".join(f"{noop['latency'][key]:.3g}" for key in ("p50_ms", "p99_ms", "max_ms"))
        lines.append(f"| {name} | {times} | {rate:.0f} |")
    return {**figures, "table": "\n".join(lines)}


SCENARIOS: dict[str, Callable[[Bench], Figures]] = {
    "download": lambda bench: bulk(bench, "download"),
    "drain": lambda bench: bulk(bench, "drain"),
    "upload": lambda bench: bulk(bench, "upload"),
    "handshakes": handshakes,
    "idle": idle,
    "mlsd": mlsd,
    "storm": storm,
}


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("scenarios", nargs="+", choices=SCENARIOS, metavar="SCENARIO", help="of: " + ", ".join(SCENARIOS))
    parser.add_argument("--servers", default="millrace,vsftpd,pure-ftpd,proftpd", help="for bulk transfers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2, help="of load for each figure")
    parser.add_argument("--size", type=int, default=512, help="of the file of bulk transfers, in MiB")
    parser.add_argument("--idle-wait", type=float, default=5, help="seconds to wait for an idle CPU before a cell")
    target = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent / "target")) / "release"
    parser.add_argument("--millrace", type=Path, default=target / "millrace", help="the binary")
    parser.add_argument("--bare", type=Path, default=target / "examples/bare_tls", help="the bare loop")
    parser.add_argument("--peers", type=Path, default=CACHE / "millrace-peers", help="where peers/install put them")
    parser.add_argument("--place", type=Path, help="a folder on the disk to measure; files go to a new folder in it")
    parser.add_argument("--json", type=Path, help="the results; tls-DATE.json if not given")
    options = parser.parse_args(arguments)
    options.peers, options.millrace, options.bare = (
        path.absolute() for path in (options.peers, options.millrace, options.bare)
    )
    return options


def main() -> None:
    options = parse(sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # stops the server and removes the files
    started = datetime.datetime.now().astimezone()
    path = options.json or Path(f"tls-{started:%Y%m%d-%H%M%S}.json")
    report: Figures = {
        "command": shlex.join(sys.argv), "date": started.isoformat(timespec="seconds"),
        "machine": machine(), "versions": versions(options),
    }  # fmt: skip
    with claimed() as report["has_the_machine"], tempfile.TemporaryDirectory(
        prefix="millrace-tls-", dir=options.place
    ) as place:
        bench = Bench(options, Path(place))
        for name in options.scenarios:
            report[name] = SCENARIOS[name](bench)
            print(report[name].pop("table") + "\n", flush=True)
            path.write_text(json.dumps(report, indent=1) + "\n")
    print(f"All figures are in {path}", file=sys.stderr)


if __name__ == "__main__":
    main()
