"""What a data connection costs that comes to another node than its session: times, and processor time of both nodes.

    PATH=/usr/lib/postgresql/15/bin:$PATH python3 bench-runs/cluster-data/relay.py target/release/millrace [ROUNDS]
"""
import os, shutil, socket, statistics, subprocess, sys, tempfile, time

sys.path.insert(0, f"{os.path.dirname(os.path.abspath(__file__))}/../cluster")
from bench import HASH, Database, run_time, until

CLIENT, NODES, PORT = "127.0.0.1", {"a": "127.77.0.1", "b": "127.77.0.2"}, 2121
LARGE, SMALL = 100 << 20, 1 << 10
# How many transfers of a size are one figure.
TIMES = {LARGE: 3, SMALL: 100}
WAYS = {"direct": "a", "handed on": "b"}


class Node:
    def __init__(self, millrace, folder, database, name, first):
        self.folder = f"{folder}/{name}"
        os.mkdir(self.folder)
        with open(f"{self.folder}/m.toml", "w") as file:
            file.write(f'directory = "{folder}/tree"\nhttp = "off"\ncontrol = "control"\nstate = "state"\npassive-ports = "{first}-{first + 19}"\n'
                       f'[[user]]\nname = "free"\npassword = "{HASH}"\n'
                       f'[cluster]\ndatabase = "host=127.0.0.1 port={database.port} user=millrace dbname=postgres"\nnode = "{name}"\n'
                       f'data-address = "{NODES[name]}"\n')
        self.log = open(f"{self.folder}/log", "w")
        words = [os.path.abspath(millrace), "serve", "--ftp", f"{NODES[name]}:{PORT}", "--config", "m.toml"]
        self.process = subprocess.Popen(words, cwd=self.folder, stdout=self.log, stderr=self.log)


def connect(address, port):
    channel = socket.create_connection((address, port), source_address=(CLIENT, 0))
    channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return channel


class Session:
    """At node a."""

    def __init__(self):
        self.socket = connect(NODES["a"], PORT)
        self.lines = self.socket.makefile("rb")
        self.lines.readline()
        for line in ("USER free", "PASS password", "TYPE I"):
            answer = self.say(line)
        assert answer.startswith("200"), answer

    def say(self, line):
        self.socket.sendall(line.encode() + b"\r\n")
        return self.lines.readline().decode()

    def transfer(self, to, command, size, room):
        port = int(self.say("EPSV").split("|")[3])
        with connect(to, port) as channel:
            answer = self.say(f"{command} {size}")
            assert answer.startswith("150"), answer
            if command == "STOR":
                channel.sendall(room[:size])
            else:
                count = 0
                while got := channel.recv_into(room):
                    count += got
                assert count == size, count
        answer = self.lines.readline().decode()
        assert answer.startswith("226"), answer


def measure(session, nodes, way, command, size, room):
    """Seconds of one transfer, and of processor time of both nodes for it."""
    before, began = [run_time(node.process.pid) for node in nodes], time.monotonic()
    for _ in range(TIMES[size]):
        session.transfer(NODES[WAYS[way]], command, size, room)
    took = time.monotonic() - began
    spent = [run_time(node.process.pid) - start for node, start in zip(nodes, before)]
    return [seconds / TIMES[size] for seconds in (took, *spent)]


def report(rows):
    def shown(values):
        values = [value * 1000 for value in values]
        return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"
    print(f"{'transfer':14} {'way':10} {'milliseconds':>26} {'processor of a':>24} {'processor of b':>24} {'both':>7}  rate")
    for (command, size, way), figures in rows.items():
        took, *spent = zip(*figures)
        both = statistics.median(sum(pair) for pair in zip(*spent)) * 1000
        median = statistics.median(took)
        rate = f"{size / median / 1e6:.0f} MB/s" if size == LARGE else f"{1 / median:.0f}/s"
        name = f"{command} {'100 MiB' if size == LARGE else '1 KiB'}"
        print(f"{name:14} {way:10} {shown(took):>26} {shown(spent[0]):>24} {shown(spent[1]):>24} {both:7.2f}  {rate}")


def main():
    folder, running, rounds = tempfile.mkdtemp(prefix="millrace-relay-", dir="/dev/shm"), [], int((sys.argv[2:] or ["9"])[0])
    os.chmod(folder, 0o755)
    try:
        database = Database(folder, running)
        os.mkdir(f"{folder}/tree")
        for size in (LARGE, SMALL):
            with open(f"{folder}/tree/{size}", "wb") as file:
                file.write(b"7" * size)
        nodes = []
        for number, name in enumerate(NODES):
            nodes.append(Node(sys.argv[1], folder, database, name, 21000 + 20 * number))
            running.append(nodes[-1].process)
        room = memoryview(bytearray(LARGE))

        def is_ready():
            try:
                Session().transfer(NODES["b"], "RETR", SMALL, room)
                return True
            except (OSError, AssertionError, IndexError):
                return False

        until("handing on", is_ready)
        session, rows = Session(), {}
        kinds = [(command, size, way) for size in (LARGE, SMALL) for command in ("RETR", "STOR") for way in WAYS]
        for number in range(rounds + 1):
            for command, size, way in kinds if number % 2 else reversed(kinds):
                figures = measure(session, nodes, way, command, size, room)
                if number:  # The first round warms up.
                    rows.setdefault((command, size, way), []).append(figures)
        report(dict(sorted(rows.items(), key=lambda row: kinds.index(row[0]))))
    finally:
        # The database last: it waits for its clients.
        for process in reversed(running):
            process.terminate()
            process.wait(30)
        shutil.rmtree(folder, ignore_errors=True)


main()
