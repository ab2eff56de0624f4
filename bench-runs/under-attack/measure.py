#!/usr/bin/env python3
"""Measures how far sessions are slowed down by what others do: the p99 of small downloads beside an attack, and without.

    cargo build --profile dist -p millrace
    sudo bench-runs/under-attack/measure.py target/dist/millrace [--pairs 7] [--seconds 6] [ATTACK...]

Each pair is one run without the attack and one beside it, in turn first and second. Each attack comes from loopback
addresses, is bounded in number and time, and ends with its run. Root mounts the stuck and the full disk.
"""

import argparse
import ftplib
import io
import json
import os
import resource
import selectors
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
DISK = os.path.join(HERE, "../../crates/cli/tests/stuck_disk.py")
LOAD = ["--ops", "retr", "--size", "1k", "--users", "20", "--rate", "400", "--threads", "1"]
CONFIGURATION = """
ftp = "127.0.0.1:0"
http = "127.0.0.1:0"
state = "state"
login-timeout = "5m"

[[hook]]
on = "upload"
paths = "/hook/**"
run = ["/bin/sleep", "30"]
time-limit = "60s"
"""


class Server:
    def __init__(self, binary, folder):
        self.folder = folder
        served = os.path.join(folder, "served")
        for name in ["", "hook", "full", "stuck"]:
            os.makedirs(os.path.join(served, name), exist_ok=True)
        with open(os.path.join(folder, "millrace.toml"), "w") as file:
            file.write(CONFIGURATION)
        self.log = open(os.path.join(folder, "log"), "w")
        command = [binary, "serve", served, "--config", os.path.join(folder, "millrace.toml"),
                   "--user", "load:p:rw", "--user", "other:p:rw"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True)
        for line in self.process.stdout:
            for scheme in ["ftp", "http"]:
                if f" {scheme}://" in line:
                    authority = line.split(f"{scheme}://")[1].split("/")[0].split("@")[-1]
                    setattr(self, scheme, ("127.0.0.1", int(authority.rsplit(":", 1)[1])))
            if line.startswith("Ready"):
                return
        sys.exit("the server did not start: " + open(self.log.name).read())

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def connect(target, source):
    client = socket.socket()
    client.bind((source, 0))
    client.setblocking(False)
    client.connect_ex(target)
    return client


class Dialogues:
    """Sessions that answer each reply with the next of their lines, and begin anew behind the last."""

    def __init__(self, target, sources, lines, again=False):
        self.selector = selectors.DefaultSelector()
        self.target, self.lines, self.again, self.answered = target, lines, again, 0
        for source in sources:
            self.begin(source)

    def begin(self, source):
        client = connect(self.target, source)
        self.selector.register(client, selectors.EVENT_READ, [source, 0])

    def run(self, until):
        while time.monotonic() < until:
            for key, _ in self.selector.select(timeout=max(0, until - time.monotonic())):
                source, at = key.data
                try:
                    reply = key.fileobj.recv(4096)
                except OSError:
                    reply = b""
                if reply and at < len(self.lines):
                    key.data[1] += 1
                    key.fileobj.send(self.lines[at] + b"\r\n")
                    continue
                self.answered += 1
                if self.again:
                    self.selector.unregister(key.fileobj)
                    key.fileobj.close()
                    self.begin(source)
                elif not reply:
                    self.selector.unregister(key.fileobj)

    def end(self):
        for key in list(self.selector.get_map().values()):
            key.fileobj.close()
        self.selector.close()


def addresses(count, network):
    return [f"127.{network}.{number // 250}.{number % 250 + 1}" for number in range(count)]


LOGIN = [b"USER other", b"PASS p", b"TYPE I"]


class HalfOpen:
    """10,000 connections that say nothing, or half a request, half of them by HTTP."""

    def __init__(self, server):
        sources = addresses(5000, 10)
        self.clients = [connect(server.ftp, source) for source in sources]
        begun = [connect(server.http, source) for source in sources]
        for client in begun:
            while True:
                try:
                    client.send(b"GET / HTTP/1.1\r\nHo")
                    break
                except BlockingIOError:
                    time.sleep(0.001)
        self.clients += begun

    def run(self, until):
        time.sleep(max(0, until - time.monotonic()))

    def end(self):
        for client in self.clients:
            client.close()


class Guessing(Dialogues):
    """1,000 addresses that guess passwords of one account, each as quickly as it is answered."""

    def __init__(self, server):
        lines = [b"USER other", b"PASS wrong"] + [b"USER other", b"PASS wrong"] * 2
        super().__init__(server.ftp, addresses(1000, 20), lines, again=True)


class Uploads:
    """Sessions that upload 64 KiB, again and again."""

    def __init__(self, server, sources, path):
        self.server, self.path, self.answered, self.is_over = server, path, 0, threading.Event()
        self.threads = [threading.Thread(target=self.upload, args=(source,)) for source in sources]
        for thread in self.threads:
            thread.start()

    def upload(self, source):
        try:
            with ftplib.FTP(source_address=(source, 0), timeout=5) as client:
                client.connect(*self.server.ftp)
                client.login("other", "p")
                while not self.is_over.wait(0.05):
                    try:
                        client.storbinary(f"STOR {self.path}", io.BytesIO(bytes(65536)))
                    except ftplib.Error as error:
                        self.answered += 1
                        self.said = str(error)
        except (OSError, EOFError, ftplib.Error):
            pass

    def run(self, until):
        time.sleep(max(0, until - time.monotonic()))

    def end(self):
        self.is_over.set()
        for thread in self.threads:
            thread.join()


class FullDisk(Uploads):
    """20 sessions that upload to a disk without room, 20 times a second each."""

    size = "64k"

    def __init__(self, server):
        self.disk = os.path.join(server.folder, "served", "full")
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self.size}", "none", self.disk], check=True)
        super().__init__(server, addresses(20, 30), "/full/file")

    def end(self):
        super().end()
        if not getattr(self, "said", "").startswith("452"):
            sys.exit("the disk was not full")
        subprocess.run(["umount", "-l", self.disk], check=True)


class RoomyDisk(FullDisk):
    """The same uploads to a disk with room: what they cost by themselves."""

    size = "64m"

    def end(self):
        Uploads.end(self)
        subprocess.run(["umount", "-l", self.disk], check=True)


class StuckDisk(Dialogues):
    """50 sessions that wait for a disk that does not answer."""

    def __init__(self, server):
        self.disk = subprocess.Popen(
            [sys.executable, DISK, os.path.join(server.folder, "served", "stuck")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = self.disk.stdout.readline()
        if not line.startswith("ready"):
            sys.exit(line)
        self.disk.stdin.write("hold getattr\n")
        self.disk.stdin.flush()
        super().__init__(server.ftp, addresses(50, 40), LOGIN + [b"SIZE /stuck/file"])

    def end(self):
        self.disk.stdin.write("release\n")
        self.disk.stdin.close()
        self.disk.wait()
        super().end()


class HangingHook(Uploads):
    """50 sessions whose uploads wait for a hook's program that hangs."""

    def __init__(self, server):
        super().__init__(server, addresses(50, 50), "/hook/file")


ATTACKS = {"stuck-disk": StuckDisk, "half-open": HalfOpen, "guessing": Guessing, "full-disk": FullDisk,
           "hanging-hook": HangingHook}

# What the sessions are compared with, where that is not a server without an attack.
CONTROLS = {"full-disk": RoomyDisk}


def load(binary, server, seconds):
    """The p99 and the median of small downloads, in ms, of the process that is started now."""
    report = os.path.join(server.folder, "report.json")
    url = f"ftp://load:p@127.0.0.1:{server.ftp[1]}/"
    command = [binary, "bench", url, *LOAD, "--duration", f"{seconds}s", "--warm-up", "1s", "--repeat", "1", "--json",
               report, "--server-pid", str(server.process.pid)]
    return report, subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def result(report):
    cell = json.load(open(report))["cells"][0]
    return cell["latency"]["p99_ms"], cell["latency"]["p50_ms"], cell["server_us_per_op"]


def yield_processors(yields):
    """Has this thread, and those that it starts, get only what nothing else wants of the processors, or no longer."""
    os.sched_setscheduler(0, os.SCHED_IDLE if yields else os.SCHED_OTHER, os.sched_param(0))


def measure(binary, server, seconds, attack):
    # Attackers are other computers: what they compute themselves must not count.
    yield_processors(attack is not None)
    attacker = attack(server) if attack else None
    if attacker:
        attacker.run(time.monotonic() + 1)
    yield_processors(False)
    report, process = load(binary, server, seconds)
    yield_processors(attack is not None)
    while process.poll() is None:
        if attacker:
            attacker.run(time.monotonic() + 0.2)
        else:
            time.sleep(0.2)
    yield_processors(False)
    if attacker:
        attacker.end()
        print(f"{attack.__name__}: {getattr(attacker, 'answered', '-')} answered", file=sys.stderr)
    return result(report)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("attacks", nargs="*", default=list(ATTACKS))
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=6)
    options = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    binary = os.path.abspath(options.binary)
    print("| attack | p99 without, ms | p99 beside it, ms | ratio: median (least to most) | median: ratio |")
    print("|---|---|---|---|---|")
    for name in options.attacks:
        without, beside = [], []
        for pair in range(options.pairs):
            for attacked in [pair % 2 == 1, pair % 2 == 0]:
                folder = tempfile.mkdtemp(prefix="millrace-attack-")
                server = Server(binary, folder)
                (beside if attacked else without).append(
                    measure(binary, server, options.seconds, (ATTACKS if attacked else CONTROLS).get(name)))
                server.end()
                shutil.rmtree(folder)
        ratios = [after[0] / before[0] for before, after in zip(without, beside)]
        medians = [after[1] / before[1] for before, after in zip(without, beside)]
        p99 = [statistics.median(values[0] for values in runs) for runs in (without, beside)]
        print(f"| {name} | {p99[0]:.3f} | {p99[1]:.3f} | {statistics.median(ratios):.2f} ({min(ratios):.2f} to "
              f"{max(ratios):.2f}) | {statistics.median(medians):.2f} |", flush=True)


if __name__ == "__main__":
    main()
