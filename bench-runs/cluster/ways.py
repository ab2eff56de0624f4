"""Ways that count: what goes between a node and PostgreSQL, or a store, on loopback."""
import re, socket, threading

REQUEST = re.compile(rb"(GET|PUT|POST|HEAD|DELETE) /")


class Way:
    """A port that leads to another one, and counts connections, bytes and round trips: a Sync or Query of PostgreSQL's protocol, or
    a request of HTTP whose head begins a segment."""

    def __init__(self, target, speaks):
        self.target, self.speaks = target, speaks
        self.lock = threading.Lock()
        self.counts = dict(connections=0, sent=0, received=0, trips=0)
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        self.socket.listen(256)
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.socket.accept()
            server = socket.create_connection(("127.0.0.1", self.target))
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.count(connections=1)
            trips = postgres_trips() if self.speaks == "postgres" else http_trips
            threading.Thread(target=self.carry, args=(client, server, "sent", trips), daemon=True).start()
            threading.Thread(target=self.carry, args=(server, client, "received", None), daemon=True).start()

    def carry(self, source, drain, name, trips):
        try:
            while piece := source.recv(1 << 16):
                self.count(**{name: len(piece)})
                if trips:
                    self.count(trips=trips(piece))
                drain.sendall(piece)
        except OSError:
            pass
        for one in (source, drain):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def count(self, **more):
        with self.lock:
            for name, number in more.items():
                self.counts[name] += number

    def snapshot(self):
        with self.lock:
            return dict(self.counts)


def http_trips(piece):
    return 1 if REQUEST.match(piece) else 0


def postgres_trips():
    """Returns a function that counts the Syncs and Queries of a client in the pieces of its stream."""
    buffer, begun = bytearray(), False

    def count(piece):
        nonlocal begun
        buffer.extend(piece)
        found = 0
        while True:
            head = 0 if not begun else 1
            if len(buffer) < head + 4:
                return found
            length = head + int.from_bytes(buffer[head:head + 4], "big")
            if len(buffer) < length:
                return found
            if begun:
                found += bytes(buffer[:1]) in (b"S", b"Q")
            # A request for TLS is eight bytes, and the startup comes behind it.
            begun = begun or length != 8
            del buffer[:length]

    return count
