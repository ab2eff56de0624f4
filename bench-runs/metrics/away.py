"""away.py MILLRACE stuck|later|idle: what a server does with a collector of OpenTelemetry that answers nothing, 503 or 200.

`stuck` and `later` (503 with `Retry-After: 7`): 12,000 requests with a field User-Agent of 3 KiB. Prints resident memory before
and after, the spans that were dropped, each post, and how long the end of the server takes. `idle`: prints how many connections
the posts of metrics of 50 seconds came by.
"""

import http.server
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

MODE, BEGUN, POSTS, CONNECTIONS = sys.argv[2], time.time(), [], []
REQUEST = f"GET /f?{'y' * 1000} HTTP/1.1\r\nHost: a\r\nUser-Agent: {'€' * 1024}\r\n\r\n".encode()


class Collector(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        CONNECTIONS.append(self.client_address)
        super().setup()

    def do_POST(self):
        length = int(self.headers["Content-Length"])
        self.rfile.read(length)
        POSTS.append(f"{time.time() - BEGUN:.1f} s: {self.path}, {length} bytes")
        if MODE == "stuck":
            threading.Event().wait()
        self.send_response(503 if MODE == "later" else 200)
        self.send_header("Retry-After", "7")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


def resident(pid):
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS"))


def request(address, count):
    with socket.create_connection((address["host"], address["port"])) as stream:
        answers = stream.makefile("rb")
        for _ in range(count):
            stream.sendall(REQUEST)
            head = iter(answers.readline, b"\r\n")
            lengths = [int(line.split(b":")[1]) for line in head if line.lower().startswith(b"content-length:")]
            answers.read(lengths[0])


def dropped(ready):
    page = urllib.request.urlopen(ready["admin"][0]["url"] + "metrics").read().decode()
    return next(line.split()[1] for line in page.splitlines() if line.startswith("millrace_otlp_spans_dropped_total "))


def main():
    collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    collector.daemon_threads = True
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        files = pathlib.Path(folder, "files")
        files.mkdir()
        (files / "f").write_bytes(os.urandom(1666))
        pathlib.Path(folder, "m.toml").write_text(
            f'directory = "{files}"\nquiet = true\nftp = "off"\nhttp = "127.0.0.1:0"\nadmin = "127.0.0.1:0"\nstate = "state"\n'
            f'control = "off"\n[otlp]\nendpoint = "http://127.0.0.1:{collector.server_port}"\n')
        server = subprocess.Popen([os.path.realpath(sys.argv[1]), "serve", "--config", "m.toml", "--ready-json"], cwd=folder,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            ready = json.loads(server.stdout.readline())
            if MODE == "idle":
                time.sleep(50)
                print(f"{len(CONNECTIONS)} connections for {len(POSTS)} posts")
            else:
                print(f"{resident(server.pid)} MB before")
                request(ready["http"][0], 12_000)
                time.sleep(2)
                print(f"{resident(server.pid)} MB after, {dropped(ready)} spans dropped")
                time.sleep(15)
            print("\n".join(POSTS))
        finally:
            ending = time.time()
            server.terminate()
            server.wait()
            print(f"{time.time() - ending:.1f} s to its end")


main()
