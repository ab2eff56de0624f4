"""A file system in memory that gets stuck, or slow, on command (FUSE, spoken directly: linux/fuse.h).

Argument: the directory to mount it on. It holds one file, `file`, of 1,000,000 bytes, and says `ready`, or
`cannot mount: why`. Then it takes a command a line and answers `ok`:

    hold KIND     requests of a kind (see HOLDS) wait from now on; at the first one it says `stuck KIND`
    release       those that wait are answered, and none waits any more
    slow SECONDS  each request for data takes this long

At the end of its input it unmounts.
"""

import array
import collections
import ctypes
import errno
import os
import select
import socket
import stat
import struct
import subprocess
import sys
import time

LOOKUP, FORGET, GETATTR, SETATTR, MKDIR, UNLINK, RMDIR, RENAME = 1, 2, 3, 4, 9, 10, 11, 12
OPEN, READ, WRITE, STATFS, RELEASE, FSYNC, FLUSH, INIT, OPENDIR = 14, 15, 16, 17, 18, 20, 25, 26, 27
READDIR, RELEASEDIR, ACCESS, CREATE, INTERRUPT, DESTROY, BATCH_FORGET, RENAME2 = 28, 29, 34, 35, 36, 38, 42, 45

HOLDS = {
    "open": {OPEN, OPENDIR, CREATE},
    "read": {READ},
    "write": {WRITE},
    "getattr": {LOOKUP, GETATTR},
    "readdir": {READDIR},
    "close": {FLUSH},
    "rename": {RENAME, RENAME2},
}

REQUEST = struct.Struct("<IIQQIIIHH")
REPLY = struct.Struct("<IiQ")
LARGEST_WRITE = 128 * 1024
BIG_WRITES = 1 << 5
DIRECT_IO = 1 << 0
ROOT = 1


class Node:
    def __init__(self, mode):
        self.mode = mode
        self.data = bytearray()
        self.children = {}
        self.modified = int(time.time())


class Failure(Exception):
    pass


class Disk:
    def __init__(self, device):
        self.device = device
        self.nodes = {ROOT: Node(stat.S_IFDIR | 0o777), 2: Node(stat.S_IFREG | 0o666)}
        self.nodes[2].data[:] = bytes(range(250)) * 4000
        self.nodes[ROOT].children[b"file"] = 2
        self.held = set()
        self.kind = ""
        self.waiting = collections.deque()
        self.slow = 0.0

    # The wire.

    def serve(self):
        try:
            request = os.read(self.device, LARGEST_WRITE + 4096)
        except BlockingIOError:
            # The client has given up meanwhile.
            return
        opcode = REQUEST.unpack_from(request)[1]
        if opcode in self.held:
            if not self.waiting:
                say("stuck " + self.kind)
            self.waiting.append(request)
        else:
            self.answer(request)

    def answer(self, request):
        _, opcode, unique, number, *_ = REQUEST.unpack_from(request)
        body = request[REQUEST.size:]
        if opcode in (FORGET, BATCH_FORGET, INTERRUPT):
            return
        if self.slow and opcode in (READ, WRITE):
            time.sleep(self.slow)
        error, reply = 0, b""
        try:
            handle = HANDLERS.get(opcode)
            if handle is None:
                raise Failure(errno.ENOSYS)
            reply = handle(self, number, body)
        except Failure as failure:
            error = failure.args[0]
        try:
            os.write(self.device, REPLY.pack(REPLY.size + len(reply), -error, unique) + reply)
        except OSError as failure:
            # The one who asked is gone.
            if failure.errno != errno.ENOENT:
                raise

    def release(self):
        self.held = set()
        while self.waiting:
            self.answer(self.waiting.popleft())

    # What replies are made of.

    def attributes(self, number):
        node = self.nodes[number]
        size, when = len(node.data), node.modified
        links = 2 if stat.S_ISDIR(node.mode) else 1
        owner = (os.geteuid(), os.getegid())
        return struct.pack(
            "<6Q10I", number, size, (size + 511) // 512, when, when, when, 0, 0, 0, node.mode, links, *owner, 0, 4096, 0
        )

    def entry(self, number):
        # Valid for no time: the kernel asks again each time, so that each call can get stuck.
        return struct.pack("<QQQQII", number, 0, 0, 0, 0, 0) + self.attributes(number)

    def child(self, number, name):
        children = self.nodes[number].children
        if name not in children:
            raise Failure(errno.ENOENT)
        return children[name]

    def make(self, number, name, mode):
        new = max(self.nodes) + 1
        self.nodes[new] = Node(mode)
        self.nodes[number].children[name] = new
        return new

    # One method a request.

    def init(self, _, body):
        _, _, readahead, _ = struct.unpack_from("<4I", body)
        return struct.pack("<4I2H2I2H8I", 7, 31, readahead, BIG_WRITES, 16, 12, LARGEST_WRITE, 1, 0, 0, *[0] * 8)

    def lookup(self, number, body):
        return self.entry(self.child(number, name(body)))

    def getattr(self, number, _):
        return struct.pack("<QII", 0, 0, 0) + self.attributes(number)

    def setattr(self, number, body):
        valid, _, _, size = struct.unpack_from("<IIQQ", body)
        mtime, mode = struct.unpack_from("<Q", body, 40)[0], struct.unpack_from("<I", body, 68)[0]
        node = self.nodes[number]
        if valid & 1:
            node.mode = stat.S_IFMT(node.mode) | mode & 0o7777
        if valid & 8:
            node.data[size:] = bytes(max(0, size - len(node.data)))
        if valid & 32:
            node.modified = mtime
        return self.getattr(number, body)

    def open(self, number, _):
        # Past the page cache: with it, an open would wait for pages that another read is stuck on.
        return struct.pack("<QII", number, DIRECT_IO, 0)

    def create(self, number, body):
        _, mode = struct.unpack_from("<II", body)
        new = self.make(number, name(body[16:]), mode)
        return self.entry(new) + self.open(new, body)

    def mkdir(self, number, body):
        mode, _ = struct.unpack_from("<II", body)
        return self.entry(self.make(number, name(body[8:]), stat.S_IFDIR | mode))

    def unlink(self, number, body):
        del self.nodes[number].children[self.child(number, name(body)) and name(body)]
        return b""

    def rename(self, number, body, names_at=8):
        (target,) = struct.unpack_from("<Q", body)
        old, new = body[names_at:].split(b"\0")[:2]
        flags = struct.unpack_from("<I", body, 8)[0] if names_at == 16 else 0
        moved = self.child(number, old)
        if flags & 1 and new in self.nodes[target].children:
            raise Failure(errno.EEXIST)
        del self.nodes[number].children[old]
        self.nodes[target].children[new] = moved
        return b""

    def rename2(self, number, body):
        return self.rename(number, body, 16)

    def read(self, number, body):
        _, offset, size = struct.unpack_from("<QQI", body)
        return bytes(self.nodes[number].data[offset:offset + size])

    def write(self, number, body):
        _, offset, size = struct.unpack_from("<QQI", body)
        data = self.nodes[number].data
        data[len(data):] = bytes(max(0, offset - len(data)))
        data[offset:offset + size] = body[40:40 + size]
        return struct.pack("<II", size, 0)

    def statfs(self, *_):
        return struct.pack("<5Q10I", 1 << 20, 1 << 20, 1 << 20, 1000, 1000, 4096, 255, 4096, 0, *[0] * 6)

    def readdir(self, number, body):
        _, offset, size = struct.unpack_from("<QQI", body)
        reply = b""
        for at, (entry, child) in enumerate(list(self.nodes[number].children.items())):
            kind = self.nodes[child].mode >> 12
            record = struct.pack("<QQII", child, at + 1, len(entry), kind) + entry
            record += bytes(-len(record) % 8)
            if at >= offset:
                if len(reply) + len(record) > size:
                    break
                reply += record
        return reply

    def done(self, *_):
        return b""


HANDLERS = {
    INIT: Disk.init, LOOKUP: Disk.lookup, GETATTR: Disk.getattr, SETATTR: Disk.setattr, OPEN: Disk.open,
    OPENDIR: Disk.open, CREATE: Disk.create, MKDIR: Disk.mkdir, UNLINK: Disk.unlink, RMDIR: Disk.unlink,
    RENAME: Disk.rename, RENAME2: Disk.rename2, READ: Disk.read, WRITE: Disk.write, STATFS: Disk.statfs,
    READDIR: Disk.readdir, RELEASE: Disk.done, RELEASEDIR: Disk.done, FLUSH: Disk.done, FSYNC: Disk.done,
    DESTROY: Disk.done,
}


def name(body):
    return body[:body.index(b"\0")]


def say(line):
    print(line, flush=True)


def mount(path):
    if os.geteuid() == 0:
        device = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(b"stuck", os.fsencode(path), b"fuse", 0, options) != 0:
            raise OSError(ctypes.get_errno(), "mount")
        return device
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    variables = dict(os.environ, _FUSE_COMMFD=str(theirs.fileno()))
    subprocess.run(["fusermount3", "--", path], env=variables, pass_fds=[theirs.fileno()], check=True)
    _, [(_, _, descriptors)], *_ = ours.recvmsg(1, socket.CMSG_SPACE(4))
    return array.array("i", descriptors)[0]


def unmount(path):
    if os.geteuid() == 0:
        ctypes.CDLL(None).umount2(os.fsencode(path), 2)
    else:
        subprocess.run(["fusermount3", "-u", "-z", "--", path])


def main():
    path = sys.argv[1]
    try:
        disk = Disk(mount(path))
    except (OSError, subprocess.SubprocessError) as failure:
        return say(f"cannot mount: {failure}")
    try:
        os.set_blocking(disk.device, False)
        say("ready")
        while True:
            ready, _, _ = select.select([disk.device, 0], [], [])
            if disk.device in ready:
                disk.serve()
            if 0 in ready:
                # One command at a time: each is answered before the next is sent.
                words = os.read(0, 100).decode().split()
                if not words:
                    return None
                if words[0] == "hold":
                    disk.kind, disk.held = words[1], HOLDS[words[1]]
                elif words[0] == "release":
                    disk.release()
                else:
                    disk.slow = float(words[1])
                say("ok")
    finally:
        unmount(path)


main()
