#!/usr/bin/env python3
"""Limits and hooks, measured: what a limit costs that is not reached, how even limited sessions are, hooks a second.

    measure.py PATH-OF-MILLRACE WHAT...      WHAT: near thousand fair program webhook

Needs Python alone. Everything is on loopback and bounded; each part takes less than a minute.
"""
import json, os, random, re, select, shutil, signal, socket, statistics, subprocess, sys, tempfile, threading, time

TICK = os.sysconf("SC_CLK_TCK")


class Server:
    """A Millrace over a folder of its own, on an address of its own."""

    def __init__(self, binary, keys="", size=None, folder=None):
        self.folder = tempfile.mkdtemp(prefix="limits-", dir=folder)
        os.mkdir(os.path.join(self.folder, "files"))
        if size:
            with open(os.path.join(self.folder, "files", "f"), "wb") as file:
                file.truncate(size)
        config = os.path.join(self.folder, "m.toml")
        with open(config, "w") as file:
            file.write('directory = "files"\nhttp = "off"\nanonymous = "rw"\npassive-ports = "20000-22999"\n' + keys)
        arguments = [binary, "serve", "--quiet", "--ftp", "127.66.0.1:0", "--config", config]
        self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            found = re.search(r"ftp://(?:[^@/]*@)?([\d.]+):(\d+)", line)
            if found:
                self.address = (found[1], int(found[2]))
            if line.startswith("Ready"):
                break
        self.url = "ftp://anonymous:@%s:%d/" % self.address

    def cpu(self):
        """Seconds, of it and of what it has started and awaited."""
        with open(f"/proc/{self.process.pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return sum(map(int, fields[11:15])) / TICK

    def end(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.folder)


def bench(binary, server, arguments):
    out = os.path.join(server.folder, "out.json")
    command = [binary, "bench", server.url, "--server-pid", str(server.process.pid), "--json", out, "--warm-up", "300ms"]
    done = subprocess.run(command + arguments, capture_output=True, text=True)
    try:
        with open(out) as file:
            return json.load(file), done
    except OSError:
        sys.exit(done.stdout + done.stderr)


class Session:
    """Logs in, and then downloads without an end in sight."""

    def __init__(self, address, user="anonymous"):
        self.control = socket.create_connection(address, 30)
        self.lines = self.control.makefile("r", newline="\r\n")
        self.reply()
        for line in (f"USER {user}", "PASS x", "TYPE I"):
            self.say(line)
        port = int(self.say("EPSV").split("|")[3])
        self.data = socket.create_connection((address[0], port), 30)
        self.bytes, self.gap, self.last, self.slots = 0, 0.0, None, {}

    def reply(self):
        while True:
            line = self.lines.readline()
            if line[3:4] != "-":
                return line

    def say(self, line):
        self.control.sendall(line.encode() + b"\r\n")
        return self.reply()

    def end(self):
        self.data.close()
        self.control.close()


def flow(server, count, seconds, settle=3.0, user="anonymous"):
    """So many sessions download for a time: what each got a second, the server's CPU, the longest gaps."""
    sessions = []
    for _ in range(count):
        sessions.append(Session(server.address, user))
    for session in sessions:
        session.say("RETR f")
    poll = select.epoll()
    by_fd = {}
    for session in sessions:
        session.data.setblocking(False)
        by_fd[session.data.fileno()] = session
        poll.register(session.data, select.EPOLLIN)
    buffer = bytearray(1 << 18)

    def run(until):
        while (now := time.monotonic()) < until:
            for fd, _ in poll.poll(max(0.0, until - now)):
                session = by_fd[fd]
                got = session.data.recv_into(buffer)
                now = time.monotonic()
                if session.last is not None:
                    session.gap = max(session.gap, now - session.last)
                session.last = now
                session.bytes += got
                slot = int(now * 20)
                session.slots[slot] = session.slots.get(slot, 0) + got

    run(time.monotonic() + settle)
    for session in sessions:
        session.bytes, session.gap, session.slots = 0, 0.0, {}
    began, cpu = time.monotonic(), server.cpu()
    run(began + seconds)
    took, cpu = time.monotonic() - began, server.cpu() - cpu
    rates = sorted(session.bytes / took for session in sessions)
    gaps = sorted(session.gap for session in sessions)
    # How much of a second's share came in each 50 ms: 0 were a line, 2 a slice in every fourth.
    spread = []
    for session in sessions:
        parts = [session.slots.get(slot, 0) for slot in range(int(began * 20) + 1, int((began + took) * 20))]
        mean = statistics.mean(parts) if parts else 0
        if mean:
            spread.append(statistics.pstdev(parts) / mean)
    for session in sessions:
        session.end()
    return rates, cpu / took, gaps, statistics.median(spread)


def say_flow(name, limit, rates, cpu, gaps, spread):
    within = sum(abs(rate / limit - 1) <= 0.02 for rate in rates)
    print(f"{name}: {within} of {len(rates)} within 2 % of {limit:.0f} B/s; least {rates[0] / limit:.4f}, "
          f"median {statistics.median(rates) / limit:.4f}, most {rates[-1] / limit:.4f}; server {cpu * 100:.1f} % of a core; "
          f"longest gap {gaps[-1] * 1000:.0f} ms (median {gaps[len(gaps) // 2] * 1000:.0f}); "
          f"spread of 50 ms {spread:.2f}", flush=True)


def near(binary):
    """Small transfers with limits that are not reached, against none."""
    far = "".join(f'{scope}{way}-limit = "50G"\n' for scope in ("", "user-", "session-") for way in ("download", "upload"))
    servers = {"without": Server(binary), "limited": Server(binary, far + "sessions-per-address = 5000\nuser-sessions = 5000\n")}
    figures = {name: [] for name in servers}
    for _ in range(20):
        for name in random.sample(list(servers), len(servers)):
            arguments = ["--ops", "retr", "--size", "1k", "--users", "32", "--mode", "epsv", "--duration", "1s"]
            result, _ = bench(binary, servers[name], arguments)
            figures[name].append(result)
    for server in servers.values():
        server.end()
    return figures


def thousand(binary):
    server = Server(binary, 'session-download-limit = "100k"\n', size=1 << 30)
    say_flow("1,000 sessions at 100 KB/s", 100_000, *flow(server, 1000, 10.0, settle=4.0))
    server.end()


def fair(binary):
    for limit in (10_000_000, 100_000_000):
        server = Server(binary, f"user-download-limit = {limit}\n", size=1 << 34)
        rates, *rest = flow(server, 10, 10.0)
        say_flow(f"10 sessions of one user at {limit} B/s together", limit / 10, rates, *rest)
        print(f"    together {sum(rates) / limit:.4f}")
        server.end()


def hooked(binary, name, keys, arguments=()):
    # Not on a disk: how long ext4 looks for an inode depends on what was deleted within the last minute.
    server = Server(binary, keys, folder="/dev/shm")
    result, done = bench(binary, server, ["--ops", "stor", "--size", "1k", "--users", "32", "--names", "fresh",
                                          "--mode", "epsv", "--duration", "5s", *arguments])
    print(f"--- {name}\n" + "\n".join(done.stdout.splitlines()[:14]), flush=True)
    return server


def program(binary):
    hooked(binary, "no hook", "").end()
    hook = '[[hook]]\non = "upload"\nrun = ["/bin/true"]\n'
    hooked(binary, "every upload runs /bin/true", hook).end()


class Receiver(threading.Thread):
    """Takes what is posted, in this process's thread: counts events."""

    def __init__(self):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.66.0.2", 0), backlog=128)
        self.listener.setblocking(False)
        self.requests = self.events = 0
        self.start()

    def run(self):
        poll, clients = select.epoll(), {}
        poll.register(self.listener, select.EPOLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == self.listener.fileno():
                    client, _ = self.listener.accept()
                    client.setblocking(False)
                    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    clients[client.fileno()] = [client, b""]
                    poll.register(client, select.EPOLLIN)
                    continue
                client, have = clients[fd]
                try:
                    got = client.recv(1 << 20)
                except BlockingIOError:
                    continue
                except OSError:
                    got = b""
                if not got:
                    poll.unregister(client)
                    client.close()
                    del clients[fd]
                    continue
                have += got
                while (end := have.find(b"\r\n\r\n")) >= 0:
                    length = re.search(rb"(?i)content-length: *(\d+)", have[:end])
                    if re.search(rb"(?i)expect: *100", have[:end]) and len(have) == end + 4:
                        client.send(b"HTTP/1.1 100 Continue\r\n\r\n")
                    whole = end + 4 + int(length[1])
                    if len(have) < whole:
                        break
                    self.requests += 1
                    self.events += have.count(b'"id":', end, whole) or 1
                    client.send(b"HTTP/1.1 204 No Content\r\n\r\n")
                    have = have[whole:]
                clients[fd][1] = have


def webhook(binary):
    for name, keys in (
        ("a webhook that the session waits for", ""),
        ("told from the queue, one by one", "wait = false\n"),
        ("told from the queue, 100 at a time", "wait = false\nbatch = 100\n"),
    ):
        receiver = Receiver()
        url = "http://127.66.0.2:%d/" % receiver.listener.getsockname()[1]
        queue = 'hooks-queue = "queue.db"\n' if keys else ""
        began = time.monotonic()
        server = hooked(binary, name, queue + f'[[hook]]\non = "upload"\nwebhook = "{url}"\n{keys}')
        before = -1
        while before != receiver.events:
            before = receiver.events
            time.sleep(1)
        print(f"received {receiver.events} events in {receiver.requests} requests; all there "
              f"{time.monotonic() - began - 1:.1f} s after the start")
        server.end()


def main():
    binary, parts = os.path.abspath(sys.argv[1]), sys.argv[2:]
    for part in parts:
        print(f"== {part}", flush=True)
        figures = globals()[part](binary)
        if part == "near":
            show_near(figures)


def show_near(figures):
    rows = {name: [row(result) for result in results] for name, results in figures.items()}
    for name, values in rows.items():
        print(name, "ops/s", [round(rate) for rate, _ in values], "server us/op", [round(cpu, 1) for _, cpu in values])
    pairs = list(zip(rows["limited"], rows["without"]))
    print(f"limited / without: rate {statistics.median(a[0] / b[0] for a, b in pairs):.3f}, "
          f"server CPU an operation {statistics.median(a[1] / b[1] for a, b in pairs):.3f}")


def row(result):
    cell = result["cells"][0]
    return cell["ops_per_s"], cell["server_us_per_op"]


if __name__ == "__main__":
    main()
