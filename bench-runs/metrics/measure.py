#!/usr/bin/env python3
"""Measures what a scrape of /metrics each second and an open dashboard cost small transfers, and what a scrape takes beside many sessions.

    cargo build --release
    python3 bench-runs/metrics/measure.py target/release/millrace --pairs 9 --seconds 10

Each pair has a run of `millrace bench` (4 KiB by FTP, 8 users) without scrapes and one with them, in turn first and second. Scrapes come
with the requests that the dashboard's first page makes, as often as it makes them; the browser itself, which would be another computer's, is left out.
The goals: a rate of 0.98 or more of that without, and at 5,000 sessions 10 ms and 300 KB for a page. A list of 10,000 sessions, all of them
and what the page of sessions shows of them, is to take less than 300 ms (--pairs 0 --sessions 10000 measures this alone).
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request
from pathlib import Path


def scrape(url):
    """Returns how long a page takes, in milliseconds, and its size."""
    begun = time.monotonic()
    with urllib.request.urlopen(url + "metrics", timeout=30) as answer:
        size = len(answer.read())
    return (time.monotonic() - begun) * 1000, size


# What the dashboard's first page asks for, and how often in seconds (web/src/pages/overview.jsx).
DASHBOARD = [("api/v1/sessions?sort=-rate&limit=6", 1), ("api/v1/status", 2), ("api/v1/rates", 5), ("healthz", 10), ("metrics", 15)]


# All sessions, and what the page of sessions asks for when it opens (web/src/pages/sessions.jsx).
LISTS = {"all of them": "api/v1/sessions", "the page": "api/v1/sessions?sort=-rate&limit=60", "the page, by users": "api/v1/sessions?sort=user&limit=60"}


def listed(url, token, path):
    """Returns how long a list of sessions takes, in milliseconds, and how many are in it."""
    begun = time.monotonic()
    request = urllib.request.Request(url + path, headers={"Authorization": f"Bearer {token}"})
    answer = urllib.request.urlopen(request, timeout=30).read()
    return (time.monotonic() - begun) * 1000, len(json.loads(answer)["sessions"])


def look(url, token, second):
    """Makes the dashboard's requests of this second."""
    for path, period in DASHBOARD:
        if second % period == 0:
            request = urllib.request.Request(url + path, headers={"Authorization": f"Bearer {token}"})
            urllib.request.urlopen(request, timeout=30).read()


def bench(program, ftp, folder, seconds):
    """Returns operations a second, and processor time of the server for each in microseconds."""
    out = folder / "bench.json"
    flags = ["--ops", "retr", "--size", "4k", "--users", "8", "--duration", f"{seconds}s", "--json", str(out)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    # It ends with 3 where other programs had the processors: the pairs tell how far that matters.
    code = subprocess.run([program, "bench", ftp, *flags], check=False, **quiet).returncode
    if code not in (0, 3):
        raise SystemExit(f"millrace bench ended with {code}")
    cell = json.loads(out.read_text())["cells"][0]
    return cell["ops_per_s"], cell["server_us_per_op"]


def bench_scraped(program, ftp, folder, seconds, admin, token):
    """The same while each second has a scrape, and the dashboard is open."""
    over = threading.Event()

    def scrape_on():
        second = 0
        while not over.wait(1):
            scrape(admin)
            look(admin, token, second)
            second += 1

    scraper = threading.Thread(target=scrape_on)
    scraper.start()
    try:
        return bench(program, ftp, folder, seconds)
    finally:
        over.set()
        scraper.join()


def processor_time(process):
    """Returns the processor time of a process until now, in milliseconds."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def asked(server, admin, token, seconds=300):
    """Returns what the scrapes and looks of a second cost the server, in milliseconds, on average."""
    before = processor_time(server)
    for second in range(seconds):
        scrape(admin)
        look(admin, token, second)
    return (processor_time(server) - before) / seconds


def ratio(name, pairs):
    ratios = sorted(scraped / alone for alone, scraped in pairs)
    print(f"{name}: {statistics.median(ratios):.3f} (median; {ratios[0]:.3f} to {ratios[-1]:.3f})")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--sessions", type=int, default=5000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="millrace-metrics-") as name:
        folder = Path(name)
        (folder / "files").mkdir()
        ready = folder / "ready"
        flags = ["--ftp", "127.0.0.1:0", "--http", "off", "--admin", "127.0.0.1:0", "--anonymous", "rw", "--quiet",
                 "--state", str(folder / "state"), "--control", str(folder / "control")]
        command = [given.program, "serve", str(folder / "files"), *flags, "--ready-file", str(ready)]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            while not ready.exists():
                time.sleep(0.01)
            doors = json.loads(ready.read_text())
            ftp, admin = doors["ftp"][0], doors["admin"][0]["url"]
            order = [given.program, "ctl", "--control", str(folder / "control"), "token", "add", "figures", "--role", "viewer"]
            token = subprocess.run(order, capture_output=True, check=True, text=True).stdout.split()[-1]
            look(admin, token, 0)
            runs = []
            for pair in range(given.pairs):
                found = {}
                for is_scraped in (False, True) if pair % 2 == 0 else (True, False):
                    where = (given.program, ftp["url"], folder, given.seconds)
                    found[is_scraped] = bench_scraped(*where, admin, token) if is_scraped else bench(*where)
                runs.append((found[False], found[True]))
            if runs:
                ratio("rate with scrapes over that without", [(one[0], other[0]) for one, other in runs])
                ratio("processor time for a transfer, likewise", [(one[1], other[1]) for one, other in runs])
            print(f"a second's scrape and looks: {asked(server, admin, token):.2f} ms of a processor")
            sessions = [socket.create_connection((ftp["host"], ftp["port"])) for _ in range(given.sessions)]
            pages = [scrape(admin) for _ in range(20)]
            times = [took for took, _ in pages]
            print(f"the same beside {len(sessions)} sessions: {asked(server, admin, token, 60):.2f} ms")
            print(f"beside {len(sessions)} sessions: {statistics.median(times):.1f} ms (median; at most {max(times):.1f}), "
                  f"{max(size for _, size in pages)} bytes")
            for name, path in LISTS.items():
                lists = [listed(admin, token, path) for _ in range(20)]
                times = [took for took, _ in lists]
                print(f"a list of {lists[0][1]} sessions ({name}): {statistics.median(times):.1f} ms (median; at most {max(times):.1f})")
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
