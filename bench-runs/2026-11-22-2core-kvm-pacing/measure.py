#!/usr/bin/env python3
"""Downloads at a limit, by two builds in turn: how even they come, how exact the rate is, what they cost.

    measure.py MILLRACE-BEFORE MILLRACE-AFTER [ROUNDS]

Needs Python alone. Segments are those of an Ethernet (TCP_MAXSEG 1448), for with those of the loopback interface, 64 KiB
long, nothing can be spread. Congestion control is that of the machine; in a network namespace it can be another:

    unshare -n sh -c 'ip link set lo up; sysctl -qw net.ipv4.tcp_congestion_control=cubic; ./measure.py ...'
"""
import os, re, selectors, shutil, socket, statistics, subprocess, sys, tempfile, time

TICK, SECONDS = os.sysconf("SC_CLK_TCK"), 4
CASES = [  # name, keys, sessions, bytes a second of each
    ("10 KB/s", 'user-download-limit = "10k"', 1, 10_000),
    ("30 KB/s", 'user-download-limit = "30k"', 1, 30_000),
    ("100 KB/s", 'user-download-limit = "100k"', 1, 100_000),
    ("1 MB/s", 'user-download-limit = "1M"', 1, 1_000_000),
    ("20 MB/s", 'user-download-limit = "20M"', 1, 20_000_000),
    ("100 MB/s", 'user-download-limit = "100M"', 1, 100_000_000),
    ("400 MB/s", 'user-download-limit = "400M"', 1, 400_000_000),
    ("10 of 10 MB/s together", 'user-download-limit = "10M"', 10, 1_000_000),
    ("200 of 100 KB/s each", 'session-download-limit = "100k"', 200, 100_000),
]


class Server:
    def __init__(self, binary, keys):
        self.folder = tempfile.mkdtemp(prefix="pacing-")
        os.mkdir(self.folder + "/files")
        with open(self.folder + "/files/big", "wb") as file:
            file.truncate(1 << 40)
        with open(self.folder + "/m.toml", "w") as file:
            file.write('directory = "files"\nhttp = "off"\nanonymous = "ro"\npassive-ports = "23000-24999"\n' + keys)
        arguments = [binary, "serve", "--quiet", "--ftp", "127.0.0.1:0", "--config", self.folder + "/m.toml"]
        self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            found = re.search(r"ftp://(?:[^@/]*@)?([\d.]+):(\d+)", line)
            if found:
                self.address = (found[1], int(found[2]))
            if line.startswith("Ready"):
                break

    def cpu(self):
        with open(f"/proc/{self.process.pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def end(self):
        self.process.kill()  # it would wait for the downloads
        self.process.wait()
        shutil.rmtree(self.folder)


def interrupts():
    """Seconds of interrupts, which are nobody's: timers and packets among them."""
    with open("/proc/stat") as file:
        fields = file.readline().split()
    return (int(fields[6]) + int(fields[7])) / TICK


def download(address):
    control = socket.create_connection(address, 10)
    lines = control.makefile("rb")
    def say(line):
        control.sendall(line.encode() + b"\r\n")
        return lines.readline().decode()
    lines.readline()
    say("USER anonymous"), say("PASS x"), say("TYPE I")
    port = int(re.search(r"\|(\d+)\|", say("EPSV"))[1])
    data = socket.socket()
    data.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1448)
    data.connect((address[0], port))
    say("RETR big")
    data.setblocking(False)
    return control, data


def run(binary, keys, sessions, rate):
    server = Server(binary, keys)
    try:
        pairs = [download(server.address) for _ in range(sessions)]
        selector = selectors.DefaultSelector()
        for number, (_, data) in enumerate(pairs):
            selector.register(data, selectors.EVENT_READ, number)
        bins = [[0] * (SECONDS * 100) for _ in pairs]
        begin = time.monotonic() + 1.5  # to get going
        began = None
        while (now := time.monotonic()) < begin + SECONDS:
            if began is None and now >= begin:
                began = server.cpu(), interrupts(), time.process_time()
            for key, _ in selector.select(0.05):
                count = len(key.fileobj.recv(1 << 18))
                at = int((time.monotonic() - begin) * 100)
                if 0 <= at < SECONDS * 100:
                    bins[key.data][at] += count
        used = server.cpu() - began[0], interrupts() - began[1]
        return bins, [100 * part / SECONDS for part in used]
    finally:
        server.end()


def variation(bins, step):
    """The standard deviation of what comes in so many hundredths of a second, as a part of the mean."""
    each = []
    for one in bins:
        sums = [sum(one[at:at + step]) for at in range(0, len(one), step)]
        each.append(statistics.pstdev(sums) / (statistics.mean(sums) or 1))
    return statistics.median(each)


builds, rounds = {"before": sys.argv[1], "after": sys.argv[2]}, int(sys.argv[3]) if len(sys.argv) > 3 else 3
with open("/proc/sys/net/ipv4/tcp_congestion_control") as file:
    print(f"congestion control {file.read().strip()}; medians of {rounds} rounds", flush=True)
print("| limit | build | variation per 100 ms | per 10 ms | worst session's rate off | all together off "
      "| CPU of the server | of interrupts |\n|---|---|---|---|---|---|---|---|", flush=True)
for name, keys, sessions, rate in CASES:
    if len(sys.argv) > 4 and name not in sys.argv[4:]:
        continue
    figures = {build: [] for build in builds}
    for _ in range(rounds):
        for build, binary in builds.items():
            bins, used = run(binary, keys, sessions, rate)
            off = [sum(one) / SECONDS / rate - 1 for one in bins]
            figures[build].append([variation(bins, 10), variation(bins, 1), max(off, key=abs), statistics.mean(off), *used])
    for build, rows in figures.items():
        v100, v10, worst, mean, cpu, irq = (statistics.median(column) for column in zip(*rows))
        print(f"| {name} | {build} | {v100:.2f} | {v10:.2f} | {worst:+.2%} | {mean:+.2%} | {cpu:.1f} % | {irq:.1f} % |", flush=True)
