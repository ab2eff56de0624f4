#!/usr/bin/env python3
"""The race: puts the same load on several FTP servers, in rounds, and compares each with the floor.

Each figure comes from a server started for it alone. The order of the servers is shuffled in every round, and
a ratio is always to the floor of the same round, so that the machine's moods cancel out. See README.md.
"""

from __future__ import annotations

import argparse
import datetime
import json
import mmap
import os
import platform
import random
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from processors import claimed
from servers import HERE, SERVERS, Running, Server, Setting, free_port, millrace, running

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
METER_SOURCES = ["meter.c", "load.c", "probe.c", "options.c", "tree.c", "histogram.c"]
ENTRIES = 1_000_000
# Shown for each scenario: the meter's figure and its heading.
SMALL = (("ops_per_s", "ops/s"), ("server_us_per_op", "server us/op"), ("p50_ms", "p50 ms"), ("p99_ms", "p99 ms"))
BIG = (("mb_per_s", "MB/s"), ("server_us_per_op", "server us/op"), ("p50_ms", "p50 ms"))
PROBED = (*BIG, ("noop_p50_ms", "NOOP p50 ms"), ("noop_p99_ms", "NOOP p99 ms"), ("noop_max_ms", "NOOP max ms"))
LISTING = (
    ("first_byte_p50_ms", "first byte ms"),
    ("p50_ms", "whole ms"),
    ("server_us_per_op", "server us"),
    ("pss_growth_kib", "PSS growth KiB"),
    ("bytes_per_op", "bytes"),
)
IDLE = (("pss_kib_per_session", "PSS KiB/session"), ("pss_kib", "PSS KiB of all"))
Figures = dict[str, Any]


@dataclass(frozen=True)
class Scenario:
    name: str
    load: str  # the meter's arguments
    shows: tuple[tuple[str, str], ...]
    lists: bool = False  # in the folder of a million entries; the floor has no listings
    timed: bool = True


def retr(name: str, users: int, size: int, file: str, mode: str = "pasv", more: str = "") -> Scenario:
    load = f"--op retr --mode {mode} --users {users} --file {file} --size {size} {more}"
    return Scenario(name, load, PROBED if "probe" in more else SMALL if size < MIB else BIG)


def stor(name: str, users: int, size: int, names: str, more: str = "") -> Scenario:
    load = f"--op stor --users {users} --file up/%d --size {size} --names {names} {more}"
    return Scenario(name, load, SMALL if size < MIB else BIG)


def listing(verb: str) -> Scenario:
    load = f"--op first-byte --list {verb} --patience 300"
    return Scenario(f"{verb}-1m", load, LISTING, lists=True, timed=False)


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        retr("retr-1k-pasv", 100, KIB, "1k/%d"),
        retr("retr-1k-epsv", 100, KIB, "1k/%d", mode="epsv"),
        retr("retr-1k-port", 100, KIB, "1k/%d", mode="port"),
        retr("retr-10k", 100, 10 * KIB, "10k/%d"),
        retr("retr-100k", 50, 100 * KIB, "100k/%d"),
        retr("retr-1g", 1, GIB, "1g"),
        retr("retr-200x", 200, 16 * MIB, "16m", more="--noop-probe"),
        stor("stor-1k-same", 100, KIB, "same"),
        stor("stor-1k-fresh", 100, KIB, "fresh"),
        stor("stor-100m-same", 1, 100 * MIB, "same"),
        # Capped, so that the disk's write-back of what piles up does not become the measurement.
        stor("stor-100m-fresh", 1, 100 * MIB, "fresh", more="--ops 15 --warmup 0"),
        Scenario("login", "--op login --users 50", SMALL),
        Scenario("noop", "--op noop --users 50", SMALL),
        Scenario("idle", "--op idle", IDLE, timed=False),
        listing("list"),
        listing("nlst"),
        listing("mlsd"),
    )
}


# What a cell of large new files writes, and half as much again.
MEMORY_FOR_NEW_FILES = 15 * 100 * MIB * 3 // 2


class Race:
    """What the cells share: the programs, the files and the folders."""

    def __init__(self, options: argparse.Namespace, place: Path) -> None:
        self.options = options
        self.place = place
        self.root = place / "root"
        self.floor = compile_c(place / "floor", ["floor.c"])
        self.meter = compile_c(place / "meter", METER_SOURCES)
        place.chmod(0o755)  # the peers serve it as nobody

    def run(self, scenario: Scenario, server: Server) -> Figures:
        """One cell: a fresh server, one load (two for idle), and its figures."""
        if scenario.lists and server.name == "floor":
            return {}
        self.empty_uploads()
        if scenario.name == "idle":
            return self.run_idle(server)
        seconds = f"--seconds {self.options.seconds}" if scenario.timed else ""
        root = self.options.million / "entries" if scenario.lists else self.root
        figures = self.run_load(server, f"{scenario.load} {seconds}", root)
        wrong = self.wrong_uploads(figures["size"]) if "--op stor" in scenario.load else 0
        if wrong:
            add_error(figures, f"{wrong} uploads have a wrong size on disk")
        if scenario.lists and figures.get("bytes_per_op", 0) < ENTRIES * len("entry-0000000.txt"):
            add_error(figures, "the listing is not whole")
        return figures

    def run_idle(self, server: Server) -> Figures:
        """Memory of a session: the slope between few and many, which leaves out what the server costs empty."""
        few, many = server.idle_sessions
        less = self.run_load(server, f"--op idle --users {few}", self.root)
        more = self.run_load(server, f"--op idle --users {many}", self.root)
        more["pss_kib_per_session"] = (more["pss_kib"] - less["pss_kib"]) / (many - few)
        more["errors"] += less["errors"]
        return more

    def run_load(self, server: Server, load: str, root: Path) -> Figures:
        wait_for_idle_cpu(self.options.idle_wait)
        with tempfile.TemporaryDirectory(dir=self.place) as state:
            options = self.options
            at = Setting(root, Path(state), free_port(), self.floor, options.millrace, options.peers)
            try:
                with running(server, at) as started:
                    return self.run_meter(server, started, load)
            except RuntimeError as error:
                return {"errors": 1, "first_error": str(error), "size": 0, "pss_kib": 0}

    def run_meter(self, server: Server, started: Running, load: str) -> Figures:
        if "--names fresh" in load and f"--size {100 * MIB}" in load:
            touch_free_memory(MEMORY_FOR_NEW_FILES)
        command = [str(self.meter), "--port", str(started.port), "--server-pid", str(started.process.pid)]
        command += ["--user", server.user, "--threads", str(self.options.threads), *shlex.split(load)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        if not done.stdout:
            raise RuntimeError(f"the meter failed ({done.returncode}): {done.stderr[-500:]}")
        return {**json.loads(done.stdout), "meter": shlex.join(command[1:])}

    def make_files(self, scenarios: list[Scenario]) -> None:
        loads = " ".join(scenario.load for scenario in scenarios)
        for name, size in (("1k", KIB), ("10k", 10 * KIB), ("100k", 100 * KIB)):
            if f" {name}/%d" in loads:
                (self.root / name).mkdir(parents=True)
                for user in range(100):
                    (self.root / name / str(user)).write_bytes(os.urandom(size))
        for name, size in (("16m", 16 * MIB), ("1g", GIB)):
            if f" {name} " in loads:
                self.root.mkdir(exist_ok=True)
                with (self.root / name).open("wb") as file:
                    for _ in range(size // MIB):
                        file.write(os.urandom(MIB))
        if any(scenario.lists for scenario in scenarios):
            make_million(self.options.million)

    def empty_uploads(self) -> None:
        """Sets the last cell's uploads aside. Deleting thousands of files here would slow the next cell down:
        for some seconds ext4 searches for inodes that were not freed just now."""
        uploads = self.root / "up"
        if uploads.exists():
            for entry in os.scandir(uploads):
                if entry.stat().st_size >= MIB:
                    os.unlink(entry)
            uploads.rename(self.root / f"old-{time.monotonic_ns()}")
        uploads.mkdir(parents=True)
        uploads.chmod(0o777)
        os.sync()

    def wrong_uploads(self, size: int) -> int:
        return sum(entry.stat().st_size != size for entry in os.scandir(self.root / "up"))


def touch_free_memory(size: int) -> None:
    """Has the host back memory that the guest is about to write to.

    A virtual machine with free page reporting gives what was freed back to its host, and the first write to
    each page of it then costs ten times the copy. Whose turn it is when files were deleted some seconds ago
    would pay for that, rather than for its own work."""
    with mmap.mmap(-1, size) as memory:
        for offset in range(0, size, mmap.PAGESIZE):
            memory[offset] = 1


def add_error(figures: Figures, text: str) -> None:
    figures["errors"] += 1
    figures["first_error"] = figures["first_error"] or text


def compile_c(program: Path, sources: list[str]) -> Path:
    paths = [str(HERE / source) for source in sources]
    subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-pthread", "-o", str(program), *paths], check=True)
    return program


def make_million(folder: Path) -> None:
    """A directory of a million empty files, made once and kept."""
    complete = folder / "complete"
    if complete.exists():
        return
    entries = folder / "entries"
    entries.mkdir(parents=True, exist_ok=True)
    print(f"making {ENTRIES} files in {entries}", file=sys.stderr)
    for number in range(ENTRIES):
        os.close(os.open(entries / f"entry-{number:07}.txt", os.O_CREAT | os.O_WRONLY, 0o644))
    complete.touch()


def wait_for_idle_cpu(patience: float) -> None:
    """Waits until less than a tenth of the machine is in use, but not for longer than `patience` seconds."""
    give_up = time.monotonic() + patience
    while time.monotonic() < give_up:
        before = cpu_ticks()
        time.sleep(0.3)
        idle, total = (now - then for now, then in zip(cpu_ticks(), before))
        if total and idle / total > 0.9:
            return


def cpu_ticks() -> tuple[int, int]:
    ticks = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def middle(values: list[float]) -> str:
    return f"{statistics.median(values):.4g}" if statistics.median(values) < 1000 else f"{statistics.median(values):.0f}"


def ratio(cells: dict[int, Figures], floor: dict[int, Figures], key: str) -> str:
    """The median of the ratios to the floor of the same round, and their range."""
    ratios = [
        cells[number][key] / floor[number][key]
        for number in cells
        if cells[number].get(key) and floor.get(number, {}).get(key)
    ]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})" if ratios else "-"


def table(scenario: Scenario, cells: dict[str, dict[int, Figures]]) -> str:
    floor = cells.get("floor", {})
    compared = {key for key, _ in scenario.shows[:2]}
    headings = [name for key, title in scenario.shows for name in ((title, "x floor") if key in compared else (title,))]
    rows = [["server", *headings, "errors"]]
    for server, rounds in cells.items():
        row = [server]
        for key, _ in scenario.shows:
            values = [figures[key] for figures in rounds.values() if key in figures]
            row.append(middle(values) if values else "-")
            if key in compared:
                row.append(ratio(rounds, floor, key))
        errors = sum(figures.get("errors", 0) for figures in rounds.values())
        first = next((figures["first_error"] for figures in rounds.values() if figures.get("first_error")), "")
        rows.append([*row, f"{errors} {first[:60]}".strip()])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return f"\n## {scenario.name}\n" + "\n".join(lines)


def versions(options: argparse.Namespace) -> dict[str, str]:
    found = {}
    for package in (options.peers / "debian/packages").glob("*.deb"):
        name, version, _ = package.name.split("_")
        if name in ("vsftpd", "pure-ftpd", "proftpd-core"):
            found[name] = version.replace("%3a", ":")
    for package in (options.peers / "python").glob("pyftpdlib-*.dist-info"):
        found["pyftpdlib"] = package.name.removeprefix("pyftpdlib-").removesuffix(".dist-info")
    if options.millrace.exists():
        shown = subprocess.run([options.millrace, "--version"], capture_output=True, text=True)
        found["millrace"] = shown.stdout.strip()
    return found


def machine() -> dict[str, Any]:
    models = [line.partition(": ")[2] for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
    return {"cpus": os.cpu_count(), "model": models[0] if models else platform.machine(), "kernel": platform.release()}


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("scenarios", nargs="+", metavar="SCENARIO", help="of: " + ", ".join(SCENARIOS))
    parser.add_argument("--servers", default="floor,millrace", help="separated by commas, of: " + ", ".join(SERVERS))
    parser.add_argument("--variant", action="append", default=[], metavar="NAME=FLAGS",
                        help="one more server: millrace with these flags added")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2, help="of load in each cell")
    parser.add_argument("--threads", type=int, default=1, help="of the meter")
    parser.add_argument("--idle-wait", type=float, default=20, help="seconds to wait for an idle CPU before a cell")
    target = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent / "target"))
    parser.add_argument("--millrace", type=Path, default=target / "release/millrace", help="the binary")
    parser.add_argument("--peers", type=Path, default=CACHE / "millrace-peers", help="where peers/install put them")
    parser.add_argument("--million", type=Path, default=Path("/var/tmp/millrace-million"),
                        help="the folder for the listings; any user must be able to reach it")  # fmt: skip
    parser.add_argument("--place", type=Path, help="a folder on the disk to measure; files go to a new folder in it")
    parser.add_argument("--json", type=Path, help="the results; race-DATE.json if not given")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.scenarios if name not in SCENARIOS]:
        parser.error(f"no such scenario: {', '.join(unknown)}")
    for variant in options.variant:
        name, _, flags = variant.partition("=")
        SERVERS[name] = Server(name, millrace(flags))
        options.servers += f",{name}"
    if unknown := [name for name in options.servers.split(",") if name not in SERVERS]:
        parser.error(f"no such server: {', '.join(unknown)}")
    options.peers, options.million, options.millrace = (
        path.absolute() for path in (options.peers, options.million, options.millrace)
    )
    return options


def main() -> None:
    options = parse(sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # stops the server and removes the files
    started = datetime.datetime.now().astimezone()
    scenarios = [SCENARIOS[name] for name in options.scenarios]
    servers = [SERVERS[name] for name in dict.fromkeys(options.servers.split(","))]
    path = options.json or Path(f"race-{started:%Y%m%d-%H%M%S}.json")
    results: dict[str, dict[str, dict[int, Figures]]] = {}
    report = {
        "command": shlex.join(sys.argv), "date": started.isoformat(timespec="seconds"),
        "machine": machine(), "versions": versions(options), "results": results,
    }  # fmt: skip
    with claimed() as report["has_the_machine"], tempfile.TemporaryDirectory(
        prefix="millrace-race-", dir=options.place
    ) as place:
        if not report["has_the_machine"]:
            print("no control group to be had: rates are worth nothing if anything else runs here", file=sys.stderr)
        race = Race(options, Path(place))
        race.make_files(scenarios)
        for scenario in scenarios:
            cells = results[scenario.name] = {server.name: {} for server in servers}
            for number in range(options.rounds):
                for server in random.sample(servers, len(servers)):
                    cells[server.name][number] = race.run(scenario, server)
            print(table(scenario, cells), flush=True)
            path.write_text(json.dumps(report, indent=1) + "\n")  # now, for a long race may be cut short
    print(f"\nAll figures are in {path}", file=sys.stderr)


if __name__ == "__main__":
    main()
