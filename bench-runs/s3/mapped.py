"""Buckets whose keys are paths, before a store that is a Python program: it keeps no contents, and takes as long as it is told.

    python3 mapped.py MILLRACE [--uploads 100] [--mib 60] [--files 2000] [--latency 0.3]

1. Memory of a server with 100 uploads at once, and what it has on its disk.
2. A rename of a folder, beside copies one by one: a request takes 0.3 s, so that the processors of this machine do not matter."""
import argparse, ftplib, os, re, shutil, socket, subprocess, tempfile, threading, time, urllib.parse, xml.sax.saxutils as xml


class Store:
    def __init__(self):
        self.sizes, self.latency, self.requests, self.lock = {}, 0, {}, threading.Lock()
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        self.socket.listen(512)
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.socket.accept()
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        lines, piece = client.makefile("rb", 1 << 18), bytearray(1 << 20)
        try:
            while True:
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    line = lines.readline()
                    if not line:
                        return
                    head += line
                method, target, _ = head.decode().split(" ", 2)
                fields = dict(line.lower().split(": ", 1) for line in head.decode().split("\r\n")[1:] if ": " in line)
                left = length = int(fields.get("content-length", 0))
                body = b""
                while left:
                    count = lines.readinto(memoryview(piece)[:min(left, len(piece))])
                    if method == "POST":
                        body += piece[:count]
                    left -= count
                time.sleep(self.latency)
                status, answer, size = self.answer(method, target, fields, length, body)
                size = len(answer) if size is None else size
                client.sendall(f"HTTP/1.1 {status} X\r\nETag: \"e\"\r\nContent-Length: {size}\r\n\r\n".encode() + answer)
        except (OSError, TypeError):
            pass

    def answer(self, method, target, fields, length, body):
        path, _, query = target.partition("?")
        key, query = urllib.parse.unquote(path).removeprefix("/bkt").lstrip("/"), urllib.parse.parse_qs(query, True)
        with self.lock:
            self.requests[method] = self.requests.get(method, 0) + 1
            if "uploads" in query:
                return 200, b"<R><UploadId>u</UploadId></R>" if method == "POST" else b"<ListMultipartUploadsResult/>", None
            if "list-type" in query:
                return 200, self.page({name: values[0] for name, values in query.items()}), None
            if "delete" in query:
                for name in re.findall(rb"<Key>(.*?)</Key>", body):
                    self.sizes.pop(name.decode(), None)
                return 200, b"<DeleteResult/>", None
            if method == "POST":
                return 200, b"<R><ETag>e</ETag></R>", None
            if method == "PUT":
                self.sizes[key] = length
                return 200, b"<R><ETag>e</ETag></R>", None
            if method == "DELETE":
                self.sizes.pop(key, None)
                return 204, b"", 0
            return (200, b"", self.sizes[key]) if method == "HEAD" and key in self.sizes else (404, b"", 0)

    def page(self, query):
        prefix, most, after = query["prefix"], int(query["max-keys"]), query.get("continuation-token", "")
        keys = sorted(key for key in self.sizes if key.startswith(prefix) and key > after)
        if "delimiter" in query:
            folders = sorted({prefix + key[len(prefix):].split("/")[0] + "/" for key in keys if "/" in key[len(prefix):]})
            keys = [key for key in keys if "/" not in key[len(prefix):]]
        else:
            folders = []
        more = len(keys) > most
        text = "".join(f"<Contents><Key>{xml.escape(key)}</Key><Size>{self.sizes[key]}</Size>"
                       "<LastModified>2026-11-30T00:00:00Z</LastModified><ETag>\"e\"</ETag></Contents>" for key in keys[:most])
        text += "".join(f"<CommonPrefixes><Prefix>{xml.escape(name)}</Prefix></CommonPrefixes>" for name in folders)
        text += f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>"
        text += f"<NextContinuationToken>{xml.escape(keys[most - 1])}</NextContinuationToken>" if more else ""
        return f"<ListBucketResult>{text}</ListBucketResult>".encode()


def memory(pid, what):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(what))


words = argparse.ArgumentParser()
words.add_argument("millrace")
for name, number in (("uploads", 100), ("mib", 60), ("files", 2000), ("latency", 0.3)):
    words.add_argument(f"--{name}", type=type(number), default=number)
words = words.parse_args()
folder, store = tempfile.mkdtemp(prefix="millrace-mapped-"), Store()
os.mkdir(f"{folder}/tree")
with open(os.open(f"{folder}/keys", os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
    file.write("aws_access_key_id = AK\naws_secret_access_key = SK\n")
with open(f"{folder}/m.toml", "w") as file:
    file.write(f'directory = "tree"\nstate = "state"\n[[folder]]\npath = "/b"\nbucket = "bkt"\nendpoint = "http://127.0.0.1:{store.port}"\n'
               'credentials-file = "keys"\n')
server = subprocess.Popen([os.path.abspath(words.millrace), "serve", "--config", "m.toml", "--ftp", "127.0.0.1:0", "--user", "u:p", "--ready-json", "--quiet"],
                          cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
try:
    port = int(re.search(r'"port":(\d+)', server.stdout.readline())[1])

    def session():
        ftp = ftplib.FTP()
        ftp.connect("127.0.0.1", port, timeout=600)
        ftp.login("u", "p")
        ftp.voidcmd("TYPE I")
        return ftp

    def upload(number):
        ftp, piece = session(), bytes(1 << 20)
        with ftp.transfercmd(f"STOR /b/many{number}") as data:
            for _ in range(words.mib):
                data.sendall(piece)
        done.append(ftp.voidresp())

    done, idle, begun = [], memory(server.pid, "VmRSS"), time.monotonic()
    threads = [threading.Thread(target=upload, args=(number,)) for number in range(words.uploads)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    taken = time.monotonic() - begun
    on_disk = sum(os.path.getsize(f"{at}/{name}") for at, _, names in os.walk(folder) for name in names)
    print(f"{len(done)} uploads of {words.mib} MiB at once: {taken:.0f} s, memory {idle:.0f} MiB before, {memory(server.pid, 'VmHWM'):.0f} MiB at most; "
          f"the server's folder has {on_disk >> 10} KiB")

    ftp = session()
    ftp.mkd("/b/old")
    store.sizes |= {f"old/{number:06}": 1 for number in range(words.files)}
    store.latency, store.requests = words.latency, {}
    begun = time.monotonic()
    ftp.rename("/b/old", "/b/new")
    taken, one_by_one = time.monotonic() - begun, words.files * words.latency
    assert sum(key.startswith("new/") for key in store.sizes) == words.files + 1
    print(f"rename of {words.files} files: {taken:.1f} s, copies one by one {one_by_one:.0f} s: {one_by_one / taken:.1f} times; {store.requests}")
finally:
    server.kill()
    server.wait()
    shutil.rmtree(folder)
