"""A PostgreSQL, a store and nodes for measurements, and what is counted of them."""
import base64, http.server, json, os, re, shutil, socket, subprocess, tempfile, threading, time, urllib.request

from ways import Way

HASH = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4"  # of "password"
PLAIN = dict(user=65534, group=65534, extra_groups=[]) if os.getuid() == 0 else {}
QUIET = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
STATEMENTS = """SELECT coalesce(json_agg(s), '[]') FROM (
    SELECT regexp_replace(query, '\\s+', ' ', 'g') AS query, calls, total_exec_time + total_plan_time AS time, wal_bytes
    FROM pg_stat_statements WHERE toplevel AND query ~ 'millrace') AS s"""
NAME = re.compile(r"millrace_cluster\.(\w+)\(|(UPDATE|DELETE FROM|INSERT INTO) millrace_\w+\.(\w+)|FROM millrace_\w+\.(\w+)"
                  r"|millrace_index\.(\w+)\(")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


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


def short(query):
    """Names a statement: the function that it calls, or what it does to which table."""
    if found := NAME.search(query):
        function, verb, table, read, indexed = found.groups()
        return function or indexed or (f"{verb.split()[0].lower()} {table}" if table else f"read {read}")
    return query[:40]


def run_time(pid):
    """Seconds of processor time of a process, with all of its threads."""
    total = 0
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/schedstat") as file:
                total += int(file.read().split()[0])
    except (FileNotFoundError, ProcessLookupError):
        pass
    return total / 1e9


class Database:
    def __init__(self, folder, running):
        self.folder, self.port = f"{folder}/rows", free_port()
        os.mkdir(self.folder)
        if PLAIN:
            os.chown(self.folder, 65534, 65534)
        subprocess.run(["initdb", "-A", "trust", "-U", "millrace", "-E", "UTF8", "--locale=C", "-D", f"{self.folder}/data"],
                       check=True, cwd=self.folder, **QUIET, **PLAIN)
        settings = ["listen_addresses=127.0.0.1", f"port={self.port}", "shared_preload_libraries=pg_stat_statements",
                    "pg_stat_statements.track_planning=on", "max_connections=300", "autovacuum_naptime=5s",
                    f"unix_socket_directories={self.folder}"]
        words = [word for setting in settings for word in ("-c", setting)]
        self.process = subprocess.Popen(["postgres", "-D", f"{self.folder}/data", *words], cwd=self.folder, **QUIET, **PLAIN)
        running.append(self.process)
        until("PostgreSQL", lambda: self.sql("SELECT 1", check=False).returncode == 0)
        self.sql("CREATE EXTENSION pg_stat_statements")
        self.backends = {}

    def words(self):
        return ["-h", self.folder, "-p", str(self.port), "-U", "millrace", "-d", "postgres"]

    def sql(self, text, check=True):
        words = ["psql", "-qAtX", "-v", "ON_ERROR_STOP=1", *self.words(), "-c", text]
        done = subprocess.run(words, capture_output=True, text=True, cwd=self.folder, **PLAIN)
        assert not check or done.returncode == 0, done.stderr
        return done

    def statements(self):
        rows = json.loads(self.sql(STATEMENTS).stdout)
        found = {}
        for row in rows:
            sums = found.setdefault(short(row["query"]), [0, 0.0, 0])
            for index, name in enumerate(("calls", "time", "wal_bytes")):
                sums[index] += row[name]
        return found

    def syncs(self):
        return int(self.sql("SELECT wal_sync FROM pg_stat_wal").stdout)

    def run_time(self):
        """Seconds of processor time of all of its processes, also of those that have ended since it was asked first."""
        children = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/stat") as file:
                    parent = int(file.read().rsplit(")", 1)[1].split()[1])
                with open(f"/proc/{pid}/cmdline") as file:
                    # Not those of `psql`, by which this script asks.
                    is_own = "[local]" in file.read()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if parent == self.process.pid and not is_own:
                children[pid] = run_time(pid)
        self.backends |= children
        return sum(self.backends.values()) + run_time(self.process.pid)


class Receiver:
    """Takes the events of hooks."""

    def __init__(self):
        outer, self.count = self, 0

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                outer.count += 1
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


class Ftp:
    def __init__(self, port, user="free", password="password"):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.lines = self.socket.makefile("rb")
        self.reply()
        self.say(f"USER {user}")
        self.answer = self.say(f"PASS {password}")

    def logged_in(self):
        assert self.answer.startswith("230"), self.answer
        assert self.say("TYPE I").startswith("200")
        return self

    def reply(self):
        return self.lines.readline().decode()

    def say(self, line):
        self.socket.sendall(line.encode() + b"\r\n")
        return self.reply()

    def transfer(self, line, data=None):
        port = int(self.say("EPSV").split("|")[3])
        with socket.create_connection(("127.0.0.1", port)) as channel:
            answer = self.say(line)
            assert answer.startswith("150"), (line, answer)
            if data is not None:
                channel.sendall(data)
            else:
                while channel.recv(1 << 18):
                    pass
        answer = self.reply()
        assert answer.startswith("226"), (line, answer)

    def close(self):
        self.say("QUIT")
        self.socket.close()


class Http:
    """A kept connection of one user."""

    def __init__(self, port, user="free"):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.lines = self.socket.makefile("rb")
        self.login = base64.b64encode(f"{user}:password".encode()).decode()

    def ask(self, request, lines=(), body=b"", expect=()):
        head = [f"{request} HTTP/1.1", "Host: h", f"Authorization: Basic {self.login}", f"Content-Length: {len(body)}", *lines]
        self.socket.sendall("\r\n".join(head).encode() + b"\r\n\r\n" + body)
        status = int(self.lines.readline().split()[1])
        fields, length, chunked = {}, 0, False
        while (line := self.lines.readline().strip()):
            name, value = line.decode().split(":", 1)
            fields[name.lower()] = value.strip()
        if status not in (204, 304) and not request.startswith("HEAD"):
            if fields.get("transfer-encoding") == "chunked":
                while size := int(self.lines.readline(), 16):
                    self.lines.read(size + 2)
                self.lines.readline()
            else:
                self.lines.read(int(fields.get("content-length", 0)))
        assert not expect or status in expect, (request, status, fields)
        return status, fields


class Node:
    def __init__(self, bench, name, text="", tables="", cluster=""):
        self.name, self.folder = name, f"{bench.folder}/{name}"
        os.makedirs(f"{self.folder}/tree")
        with open(f"{self.folder}/tree/small", "wb") as file:
            file.write(b"7" * 1024)
        with open(f"{self.folder}/tree/large", "wb") as file:
            file.truncate(256 << 20)
        with open(f"{self.folder}/keys", "w") as file:
            file.write("aws_access_key_id = AK\naws_secret_access_key = SK\n")
        self.way, self.ftp, self.http = Way(bench.target, "postgres"), free_port(), free_port()
        self.database = f"host=127.0.0.1 port={self.way.port} user=millrace dbname={bench.dbname}"
        users = "".join(f'[[user]]\nname = "{name}"\npassword = "{HASH}"\n{more}\n'
                        for name, more in (("free", ""), ("quota", 'directory = "own"\nquota-bytes = "1G"\n')))
        os.mkdir(f"{self.folder}/tree/own")
        with open(f"{self.folder}/m.toml", "w") as file:
            file.write(f'directory = "tree"\ncontrol = "control"\nstate = "state"\nworkers = 2\n{text}\n{users}\n{tables}\n'
                       f'[cluster]\ndatabase = "{self.database}"\nnode = "{name}"\n{cluster}\n')
        self.log = open(f"{self.folder}/log", "w")
        words = [bench.millrace, "serve", "--ftp", f"127.0.0.1:{self.ftp}", "--http", f"127.0.0.1:{self.http}", "--config", "m.toml"]
        self.process = subprocess.Popen(words, cwd=self.folder, stdout=self.log, stderr=self.log)
        bench.running.append(self.process)

        def is_ready():
            assert self.process.poll() is None, open(f"{self.folder}/log").read()
            return answers(self.ftp) and answers(self.http)

        until(name, is_ready)

    def ctl(self, *words):
        done = subprocess.run([self.process.args[0], "ctl", "--control", f"{self.folder}/control", *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


class Bench:
    def __init__(self, millrace, pgbouncer, idle):
        self.millrace, self.idle, self.running = os.path.abspath(millrace), idle, []
        self.folder = tempfile.mkdtemp(prefix="millrace-measure-")
        os.chmod(self.folder, 0o755)
        self.database = Database(self.folder, self.running)
        self.target, self.dbname, self.store = self.database.port, "postgres", None
        if pgbouncer:
            self.start_pgbouncer(os.path.abspath(pgbouncer))

    def start_pgbouncer(self, program):
        self.target = free_port()
        folder = f"{self.folder}/pgbouncer"
        os.mkdir(folder)
        with open(f"{folder}/users", "w") as file:
            file.write('"millrace" ""\n')
        with open(f"{folder}/ini", "w") as file:
            file.write(f"""[databases]
postgres = host=127.0.0.1 port={self.database.port} dbname=postgres user=millrace
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self.target}
unix_socket_dir =
auth_type = any
auth_file = {folder}/users
pool_mode = transaction
default_pool_size = 4
max_client_conn = 1000
""")
        if PLAIN:
            os.chown(folder, 65534, 65534)
        log = open(f"{folder}/log", "w")
        self.running.append(subprocess.Popen([program, f"{folder}/ini"], cwd=folder, stdout=log, stderr=log, **PLAIN))
        until("PgBouncer", lambda: answers(self.target))

    def start_store(self):
        store = f"{self.folder}/store"
        os.mkdir(store)
        with open(f"{store}/s3.json", "w") as file:
            file.write('{"identities":[{"name":"m","credentials":[{"accessKey":"AK","secretKey":"SK"}],"actions":["Admin"]}]}')
        names = ["master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc",
                 "s3.port", "s3.port.grpc"]
        ports = [free_port() for _ in names]
        self.running.append(subprocess.Popen(
            ["weed", "server", "-dir=.", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3", "-s3.config=s3.json", "-s3.iam=false",
             "-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false", "-master.volumeSizeLimitMB=64"]
            + [f"-{name}={port}" for name, port in zip(names, ports)], cwd=store, **QUIET))
        until("SeaweedFS", lambda: answers(ports[6]))
        for bucket in ("mapped", "named"):
            until("a bucket", lambda: self.make_bucket(ports[4], bucket))
        self.store = Way(ports[6], "http")

    def make_bucket(self, filer, bucket):
        try:
            with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{filer}/buckets/{bucket}/", method="POST")):
                return True
        except OSError:
            return False

    def close(self):
        for process in reversed(self.running):
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    # What is counted.

    def snapshot(self, node):
        store = self.store.snapshot() if self.store else {}
        return dict(at=time.monotonic(), way=node.way.snapshot(), store=store, node=run_time(node.process.pid),
                    database=self.database.run_time(), statements=self.database.statements(), syncs=self.database.syncs())

    def between(self, one, other):
        """What has come between two snapshots, by name; statements as `:NAME`."""
        found = {name: other["way"][name] - one["way"][name] for name in one["way"]}
        found |= {f"store {name}": other["store"][name] - number for name, number in one["store"].items()}
        for name in ("at", "node", "database", "syncs"):
            found[name] = other[name] - one[name]
        for name, sums in other["statements"].items():
            before = one["statements"].get(name, (0, 0, 0))
            found[f":{name}"] = sums[0] - before[0]
            found[f"time {name}"] = sums[1] - before[1]
            found["wal"] = found.get("wal", 0) + sums[2] - before[2]
        return found

    def rest(self, node):
        """An idle node, a second of it."""
        time.sleep(3)
        one = self.snapshot(node)
        time.sleep(self.idle)
        found = self.between(one, self.snapshot(node))
        node.rest = {name: number / found["at"] for name, number in found.items()}
        self.tell(f"{node.name}: idle, a second", node.rest, 0.02)

    def measure(self, node, label, times, operation, settles=2.2, is_rate=False):
        """An operation, beyond what the idle node does; a second of it, if it is a rate."""
        one = self.snapshot(node)
        begun = time.monotonic()
        for number in range(times):
            operation(number)
        elapsed = time.monotonic() - begun
        time.sleep(settles)
        found = self.between(one, self.snapshot(node))
        per = elapsed if is_rate else times
        more = {name: (number - node.rest.get(name, 0) * found["at"]) / per for name, number in found.items()}
        self.tell(f"{label}, {times} times", more, 0.04)

    def tell(self, label, found, least):
        asked = {name[1:]: number for name, number in found.items() if name[0] == ":" and number >= least}
        text = ", ".join(f"{name} {number:.2f}" for name, number in sorted(asked.items(), key=lambda one: -one[1]))
        numbers = (f"trips {found['trips']:.2f} sent {found['sent']:.0f} B received {found['received']:.0f} B "
                   f"database {1e6 * found['database']:.0f} us node {1e6 * found['node']:.0f} us wal {found.get('wal', 0):.0f} B "
                   f"syncs {found['syncs']:.2f}")
        if self.store:
            numbers += f"; store: requests {found['store trips']:.2f} sent {found['store sent']:.0f} B received {found['store received']:.0f} B"
        print(f"{label}\n    {numbers}\n    {text or 'no statement'}", flush=True)
