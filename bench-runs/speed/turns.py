#!/usr/bin/env python3
"""Servers of FTP loaded in turn: turns.py ROUNDS CLIENT 'NAME: COMMAND'... -- BENCH-FLAGS

Each round starts every server on a folder of its own, in changing order, and loads it by CLIENT (a millrace). In a COMMAND {root},
{port} and {passive} (a range) are put in. Prints rates and microseconds of the server's processor time an operation, and the medians
of the ratios to the first server of the same round. WORK=PATH: where the folders
are made, instead of in memory. SERVED=PATH: that one is served instead.
"""
import json, os, shlex, shutil, statistics as st, subprocess, sys, tempfile, time
cut = sys.argv.index("--")
rounds, client, flags = int(sys.argv[1]), sys.argv[2], sys.argv[cut + 1:]
servers = dict(text.split(": ", 1) for text in sys.argv[3:cut])
work = tempfile.mkdtemp(dir=os.environ.get("WORK", "/dev/shm"))

def measure(name, at):
    root, port, first = os.environ.get("SERVED") or f"{work}/{at}", 3960 + at, 10000 + at * 2000
    os.makedirs(root, exist_ok=True)
    command = servers[name].format(root=root, port=port, passive=f"{first}-{first + 1999}")
    server = subprocess.Popen(shlex.split(command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(0.4)
        subprocess.run([client, "bench", f"ftp://b:b@127.0.0.1:{port}/", *flags, "--threads", "1", "--json", f"{work}/json"],
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        cell = json.load(open(f"{work}/json"))["cells"][0]
        failed = sum(fault["count"] for fault in cell["faults"])
        if failed:
            print(f"{name}: {failed} errors")
        return cell["ops_per_s"], cell["server_us_per_op"]
    finally:
        server.terminate()
        server.wait()

print(" ".join(flags), "by", os.uname().release, "in turn, medians of", rounds)
found = {name: [] for name in servers}
for turn in range(rounds):
    names = list(servers)
    names = names[turn % len(names):] + names[:turn % len(names)]
    for at, name in enumerate(names):
        found[name].append(measure(name, at))
    print("; ".join("%s %.4g/s %.4g us" % (name, *found[name][-1]) for name in servers), flush=True)
shutil.rmtree(work, ignore_errors=True)
base = found[next(iter(servers))]
for name, figures in found.items():
    rate, used = zip(*((one[0] / first[0], one[1] / first[1]) for one, first in zip(figures, base)))
    print("%-28s %8.4g/s %8.4g us   rate %.2f [%.2f-%.2f]   processor time %.2f [%.2f-%.2f]" % (
        name, st.median(f[0] for f in figures), st.median(f[1] for f in figures),
        st.median(rate), min(rate), max(rate), st.median(used), min(used), max(used)))
