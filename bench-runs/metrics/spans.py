"""spans.py MILLRACE [ROUNDS]: what spans of OpenTelemetry cost the workers of a server, in pairs of runs.

Two servers, of which one sends spans of all transfers to a collector that takes everything. A line for each round: microseconds
of worker threads for a small transfer without spans and with them, and of all other threads, by FTP and by HTTP.
"""

import http.server
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading


class Collector(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


def spent(pid):
    """Nanoseconds of the worker threads, and of the others."""
    sums = {True: 0, False: 0}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        is_worker = (task / "comm").read_text().strip().removeprefix("millrace-").isdigit()
        sums[is_worker] += int((task / "schedstat").read_text().split()[0])
    return sums[True], sums[False]


def load(millrace, pid, arguments, out):
    before = spent(pid)
    command = [millrace, "bench", *arguments, "--duration", "1s", "--warm-up", "0", "--json", out]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    cell = json.loads(pathlib.Path(out).read_text())["cells"][0]
    done = cell["ops_per_s"]
    return [(after - then) / 1000 / done for after, then in zip(spent(pid), before)] + [done]


def main():
    millrace, rounds = os.path.realpath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 8
    collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        files = pathlib.Path(folder, "files")
        files.mkdir()
        (files / "f").write_bytes(os.urandom(1666))
        servers = []
        for place, tail in enumerate(["", f'[otlp]\nendpoint = "http://127.0.0.1:{collector.server_port}"\n']):
            home = pathlib.Path(folder, str(place))
            home.mkdir()
            (home / "m.toml").write_text(
                f'directory = "{files}"\nquiet = true\nftp = "127.0.0.1:0"\nhttp = "127.0.0.1:0"\nstate = "state"\n'
                f'control = "off"\n{tail}')
            server = subprocess.Popen([millrace, "serve", "--config", "m.toml", "--ready-json"], cwd=home,
                                      stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            servers.append((server, json.loads(server.stdout.readline())))
        ratios = {"ftp": [], "http": []}
        try:
            for number in range(1, rounds + 1):
                for protocol in ratios:
                    figures = [None, None]
                    for place in ((0, 1) if number % 2 else (1, 0)):
                        server, ready = servers[place]
                        url = ready[protocol][0]["url"]
                        arguments = ([url.replace("//", "//anonymous:a@"), "--ops", "retr", "--file", "f", "--users", "8"]
                                     if protocol == "ftp" else [url + "f", "--ops", "get", "--users", "16"])
                        figures[place] = load(millrace, server.pid, arguments, f"{folder}/run.json")
                    without, spans = figures
                    ratios[protocol].append(spans[0] / without[0])
                    print(number, protocol, *(f"{figure:.2f}" for figure in without + spans), flush=True)
        finally:
            for server, _ in servers:
                server.terminate()
                server.wait()
        for protocol, all_of in ratios.items():
            low, middle, high = statistics.quantiles(all_of, n=4)
            print(f"{protocol}: workers with spans over without: {middle:.3f} ({low:.3f} to {high:.3f})")


main()
