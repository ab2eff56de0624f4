#!/usr/bin/env python3
"""What a directory of a million entries costs: memory (PSS, every 20 ms), first byte, and how long others wait.

    million.py MILLRACE DIR      # DIR/many has the entries, or gets them; it is read by HTTP/1.1 and HTTP/2 (curl)
"""
import re, socket, subprocess, sys, tempfile, threading, time, os

PROPFIND = b'<?xml version="1.0"?><propfind xmlns="DAV:"><allprop/></propfind>'

def pss(pid):
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return int(re.search(r"^Pss:\s+(\d+)", file.read(), re.M)[1])

def request(method, path, fields="", body=b""):
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    return f"{method} {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{fields}{length}\r\n".encode() + body

def by_http1(port, text, seconds=None):
    """First byte (s), all (s), bytes; with `seconds` nothing more is read for so long after the first bytes."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        began = time.monotonic()
        client.sendall(text)
        first, count, buffer = None, 0, bytearray(1 << 18)
        while got := client.recv_into(buffer):
            first = first or time.monotonic() - began
            count += got
            if seconds:
                time.sleep(seconds)
                break
        return first, time.monotonic() - began, count

def by_curl(port, *arguments):
    out = subprocess.run(["curl", "-sk", "--http2", "-o", "/dev/null", "-w", "%{time_starttransfer} %{time_total} %{size_download} %{http_version} %{time_appconnect}",
                          *arguments, f"https://127.0.0.1:{port}/many/"], capture_output=True, text=True, check=True).stdout.split()
    assert out[3] == "2", out
    return float(out[0]) - float(out[4]), float(out[1]), int(float(out[2]))

class Watch:
    """The memory of a process, and how long a small file takes meanwhile."""
    def __init__(self, pid, port):
        self.pid, self.port, self.over, self.peak, self.waits = pid, port, False, 0, []
    def __enter__(self):
        self.before = pss(self.pid)
        self.threads = [threading.Thread(target=run) for run in (self.weigh, self.ask)]
        [thread.start() for thread in self.threads]
        return self
    def __exit__(self, *_):
        self.over = True
        [thread.join() for thread in self.threads]
    def weigh(self):
        while not self.over:
            self.peak = max(self.peak, pss(self.pid))
            time.sleep(0.02)
    def ask(self):
        with socket.create_connection(("127.0.0.1", self.port)) as client:
            while not self.over:
                began = time.monotonic()
                client.sendall(b"GET /small HTTP/1.1\r\nHost: h\r\n\r\n")
                client.recv(65536)
                self.waits.append(time.monotonic() - began)
                time.sleep(0.005)

def main():
    millrace, directory = sys.argv[1:]
    if not os.path.exists(f"{directory}/many"):
        os.makedirs(f"{directory}/many")
        for number in range(1_000_000):
            os.close(os.open(f"{directory}/many/file-{number:07}.txt", os.O_CREAT | os.O_WRONLY))
    with open(f"{directory}/small", "w") as file:
        file.write("small\n")
    state = tempfile.mkdtemp()
    server = subprocess.Popen([millrace, "serve", directory, "--ftp", "127.0.0.1:0", "--passive-ports", "41000-41003", "--http", "127.0.0.1:0",
        "--https", "127.0.0.1:0", "--tls-self-signed", "--state", state, "--users", "off"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        ports = {}
        for line in server.stdout:
            for scheme, port in re.findall(r"(https?)://127\.0\.0\.1:(\d+)", line):
                ports[scheme] = int(port)
            if line.startswith("Ready"):
                break
        json = "Accept: application/json\r\n"
        by_http1(ports["http"], request("GET", "/"))
        by_http1(ports["http"], request("PROPFIND", "/", "Depth: 1\r\n", PROPFIND))
        subprocess.run(["curl", "-sk", "--http2", "-o", "/dev/null", f"https://127.0.0.1:{ports['https']}/"], check=True)
        runs = [
            ("HTML", lambda: by_http1(ports["http"], request("GET", "/many/"))),
            ("JSON", lambda: by_http1(ports["http"], request("GET", "/many/", json))),
            ("PROPFIND", lambda: by_http1(ports["http"], request("PROPFIND", "/many/", "Depth: 1\r\n", PROPFIND))),
            ("HTML, HTTP/2", lambda: by_curl(ports["https"])),
            ("JSON, HTTP/2", lambda: by_curl(ports["https"], "-H", "Accept: application/json")),
            ("PROPFIND, HTTP/2", lambda: by_curl(ports["https"], "-X", "PROPFIND", "-H", "Depth: 1", "-d", PROPFIND)),
            ("HTML, read no further", lambda: by_http1(ports["http"], request("GET", "/many/"), 5)),
            ("HTML, HTTP/2, 10 KB/s", lambda: by_curl_slow(ports["https"])),
        ]
        print("| What | First byte (ms) | Whole (s) | MB | PSS before (KiB) | most (KiB) | more (KiB) | a small file meanwhile: median, most (ms) |")
        print("|---|---|---|---|---|---|---|---|")
        for name, run in runs:
            time.sleep(1)
            with Watch(server.pid, ports["http"]) as watch:
                first, whole, count = run()
            waits = sorted(watch.waits)
            print(f"| {name} | {first * 1e3:.1f} | {whole:.2f} | {count / 1e6:.1f} | {watch.before} | {watch.peak} | {watch.peak - watch.before} "
                  f"| {waits[len(waits) // 2] * 1e3:.2f}, {waits[-1] * 1e3:.2f} |", flush=True)
    finally:
        server.terminate()
        server.wait()

def by_curl_slow(port):
    out = subprocess.run(["curl", "-sk", "--http2", "--limit-rate", "10k", "--max-time", "6", "-o", "/dev/null", "-w", "%{time_starttransfer} %{time_total} %{size_download}",
                          f"https://127.0.0.1:{port}/many/"], capture_output=True, text=True).stdout.split()
    return float(out[0]), float(out[1]), int(float(out[2]))

main()
