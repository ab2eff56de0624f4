#!/usr/bin/env python3
"""idle_beside.py MILLRACE [PAIRS [HOLDER]]: 100 users (1 KiB RETR) of a server that holds 10,000 idle sessions, and of one that
holds none, in turn. HOLDER, 0 or 1: which of the two does, since two processes of one program differ, too. Needs 20,000 descriptors."""
import json, os, resource, statistics as st, subprocess, sys, tempfile, time
resource.setrlimit(resource.RLIMIT_NOFILE, (20000, 20000))
mr, pairs, held = sys.argv[1], *(int(n) for n in (sys.argv[2:4] + ["12", "0"][len(sys.argv) - 2:]))
work = tempfile.mkdtemp(dir="/dev/shm")
def quietly(*args):
    return subprocess.Popen([mr, *args], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
def url(n):
    return f"ftp://b:b@127.0.0.1:{3931 + n}/"
def server(n):
    os.mkdir(f"{work}/{n}")
    return quietly("serve", f"{work}/{n}", "--ftp", f"127.0.0.1:{3931 + n}", "--http", "off", "--user", "b:b", "--quiet",
                   "--passive-ports", f"{10000 + n * 3000}-{12999 + n * 3000}")
def descriptors(pid):
    return sum(1 for _ in os.scandir(f"/proc/{pid}/fd"))
def once(n):
    quietly("bench", url(n), "--ops", "retr", "--size", "1k", "--users", "100", "--threads", "1", "--duration", "500ms",
            "--warm-up", "200ms", "--json", f"{work}/json").wait()
    c = json.load(open(f"{work}/json"))["cells"][0]
    return c["ops_per_s"], c["server_us_per_op"], c["latency"]["p99_ms"], sum(f["count"] for f in c["faults"])
servers = [server(0), server(1)]
holder = None
rows = []
try:
    time.sleep(1)
    holder = quietly("bench", url(held), "--ops", "idle", "--users", "10000", "--duration", "90s", "--source", "127.0.0.0/8")
    while descriptors(servers[held].pid) < 10000:
        time.sleep(0.1)
    print("pair  alone: ops/s  us/op  p99 ms  beside 10,000: ops/s  us/op  p99 ms  ratios: rate    cpu")
    for pair in range(pairs):
        got = {n: once(n) for n in ([held, 1 - held] if pair % 2 else [1 - held, held])}
        a, b = got[1 - held], got[held]
        rows.append((b[0] / a[0], b[1] / a[1]))
        print(f"{len(rows):4} {a[0]:13.0f} {a[1]:6.1f} {a[2]:7.1f} {b[0]:21.0f} {b[1]:6.1f} {b[2]:7.1f} {rows[-1][0]:13.3f} {rows[-1][1]:6.3f}"
              + (f"  {a[3] + b[3]} errors" if a[3] + b[3] else ""), flush=True)
    print("median ratios: rate %.3f, processor time %.3f" % tuple(st.median(r) for r in zip(*rows)))
finally:
    for process in filter(None, servers + [holder]):
        process.kill(); process.wait()
