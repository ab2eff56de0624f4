"""What FileZilla 3 and WinSCP 6 say to an FTPS server, in their order, replayed with OpenSSL.

Neither can be driven without a screen; what they do is read from their sources: the commands, when the data connection
is made and when its handshake begins, what they offer by ALPN, which TLS session a data connection resumes, and how it
ends.

Arguments: host, port, user, password, CA file, filezilla|winscp, explicit|implicit, TLS version, how many transfers.
"""

import re
import socket
import ssl
import sys

host, port, user, password, authority, program, door, version, count = sys.argv[1:]
VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
IS_FILEZILLA = program == "filezilla"

# Facts of which FileZilla makes use.
FACTS = ("type size modify perm unix.mode unix.owner unix.ownername unix.group unix.groupname unix.user unix.uid "
         "unix.gid x.hidden").split()


class Session:
    def __init__(self):
        self.context = ssl.create_default_context(cafile=authority)
        self.context.minimum_version = self.context.maximum_version = VERSIONS[version]
        self.sent_offset = False
        self.socket = socket.create_connection((host, int(port)), 120)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.replies = self.socket.makefile("rb")
        if door == "explicit":
            self.hear(220)
            self.say("AUTH TLS", 234)
        if IS_FILEZILLA:
            # From 3.58 on, for its own server, which saves it some commands.
            self.context.set_alpn_protocols(["x-filezilla-ftp", "ftp"])
        self.socket = self.context.wrap_socket(self.socket, server_hostname=host)
        if IS_FILEZILLA:
            assert self.socket.selected_alpn_protocol() == "ftp"
            # On data connections only where its own server has chosen the other.
            self.context.set_alpn_protocols([])
        self.replies = self.socket.makefile("rb")
        if door == "implicit":
            self.hear(220)

    def send(self, line):
        self.socket.sendall(line.encode() + b"\r\n")

    def hear(self, code):
        lines = [self.replies.readline().decode()]
        while lines[-1] and not lines[-1].startswith(lines[0][:3] + " "):
            lines.append(self.replies.readline().decode())
        assert lines[-1].startswith(f"{code} "), (code, lines)
        return lines

    def say(self, line, code):
        self.send(line)
        return self.hear(code)

    def log_in(self):
        self.say("USER " + user, 331)
        self.say("PASS " + password, 230)
        self.say("SYST", 215)
        features = [line.strip() for line in self.say("FEAT", 211)]
        if "CLNT" in features:
            self.say("CLNT FileZilla" if IS_FILEZILLA else "CLNT WinSCP-release-6.3.5", 200)
        if "UTF8" in features:
            self.say("OPTS UTF8 ON", 200)
        self.say("PBSZ 0", 200)
        self.say("PROT P", 200)
        if IS_FILEZILLA:
            facts = next(line for line in features if line.startswith("MLST ")).split(" ", 1)[1].lower()
            facts = [fact for fact in facts.split(";") if fact.rstrip("*") in FACTS]
            if any(not fact.endswith("*") for fact in facts):
                self.say("OPTS MLST " + "".join(fact.rstrip("*") + ";" for fact in facts), 200)
        elif "CSID" in " ".join(features):
            self.say("CSID Name=WinSCP; Version=6.3.5", 200)
        return features

    def passive(self):
        reply = self.say("PASV", 227)[0]
        numbers = re.search(r"\(([\d,]+)\)", reply).group(1).split(",")
        return host, int(numbers[4]) * 256 + int(numbers[5])

    def begin(self, command, offset=0):
        """A data connection, with the latest TLS session of the control connection, and the command for it."""
        address = self.passive()
        if offset or self.sent_offset:
            # FileZilla says REST 0 behind one that was not.
            self.say(f"REST {offset}", 350)
            self.sent_offset = IS_FILEZILLA and offset > 0
        if not IS_FILEZILLA:
            self.send(command)
        data = socket.create_connection(address, 120)
        data = self.context.wrap_socket(
            data, server_hostname=host, session=self.socket.session, do_handshake_on_connect=False
        )
        if IS_FILEZILLA:
            # The handshake begins with the connection, and goes on beside the command.
            data.setblocking(False)
            try:
                data.do_handshake()
            except ssl.SSLWantReadError:
                pass
            data.settimeout(120)
            self.send(command)
        data.do_handshake()
        # Without this FileZilla asks its user, and where it has been so once it gives up.
        assert data.session_reused, command
        assert data.selected_alpn_protocol() is None and data.version() == "TLSv" + version
        return data

    def fetch(self, command, offset=0):
        data = self.begin(command, offset)
        self.hear(150)
        parts = list(iter(lambda: data.recv(65536), b""))
        say_goodbye(data)
        self.hear(226)
        data.close()
        return b"".join(parts)

    def store(self, command, content, offset=0):
        data = self.begin(command, offset)
        self.hear(150)
        data.sendall(content)
        say_goodbye(data)
        self.hear(226)
        # It is read until the server has ended it, too.
        try:
            assert data.recv(1) == b""
        except ssl.SSLZeroReturnError:
            pass
        data.close()


def say_goodbye(data):
    """close_notify, and an end: the server's is not waited for."""
    data.setblocking(False)
    try:
        data.unwrap()
    except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
        pass
    except (ssl.SSLError, OSError):
        # The server has ended it altogether.
        pass
    data.settimeout(120)
    try:
        socket.socket.shutdown(data, socket.SHUT_WR)
    except OSError:
        pass


def names(listing):
    return sorted(line.split("; ", 1)[1] for line in listing.decode().splitlines() if "type=file" in line.lower())


def as_filezilla(session, folder):
    session.say("PWD", 257)
    session.say("TYPE I", 200)
    session.fetch("MLSD")
    session.send("CWD " + folder)
    session.hear(550)
    session.say("MKD " + folder, 257)
    session.say("CWD " + folder, 250)
    session.say("PWD", 257)
    for number in range(int(count) // 2):
        content = bytes([number % 256]) * 3000
        session.store("STOR a file", content)
        session.say("MFMT 20240229120000 a file", 213)
        # It queries entries that are not in its cache of listings.
        assert session.say("SIZE a file", 213)[0].split()[1] == "3000"
        assert session.say("MDTM a file", 213)[0].split()[1] == "20240229120000"
        assert session.fetch("RETR a file") == content
        # Kept alive: one of these, at random.
        session.say(["NOOP", "TYPE I", "PWD"][number % 3], [200, 200, 257][number % 3])
    assert session.fetch("RETR a file", offset=1000) == content[1000:]
    assert session.fetch("RETR a file") == content
    session.store("STOR a file", b"the rest", offset=3000)
    session.store("STOR another", b"whole")
    assert session.fetch("RETR a file") == content + b"the rest"
    assert names(session.fetch("MLSD")) == ["a file", "another"]
    session.say("RNFR another", 350)
    session.say("RNTO third", 250)
    session.say("SITE CHMOD 640 third", 200)
    session.say("DELE a file", 250)
    session.say("DELE third", 250)
    session.say("CWD /", 250)
    session.say("RMD " + folder, 250)


def as_winscp(session, folder):
    session.say("PWD", 257)
    session.say("CWD /", 250)
    session.say("PWD", 257)
    session.say("TYPE A", 200)
    session.fetch("MLSD")
    session.say(f"MKD {folder}", 257)
    session.say(f"CWD /{folder}", 250)
    session.say("PWD", 257)
    features = " ".join(session.say("FEAT", 211))
    for number in range(int(count) // 2):
        content = bytes([number % 256]) * 3000
        session.say("TYPE I", 200)
        session.store("STOR a file", content)
        session.say("MFMT 20240229120000 a file", 213)
        facts = session.say(f"MLST /{folder}/a file", 250)[1].lower()
        assert "size=3000;" in facts and "modify=20240229120000" in facts, facts
        assert session.fetch("RETR a file") == content
        session.say("TYPE A", 200)
        assert names(session.fetch("MLSD")) == ["a file"]
    session.say("TYPE I", 200)
    assert session.fetch("RETR a file", offset=1000) == content[1000:]
    session.store("APPE a file", b"the rest")
    if "HASH" in features:
        session.say("OPTS HASH SHA-256", 200)
        session.say(f"HASH /{folder}/a file", 213)
    for command in ["XSHA256", "XSHA1", "XMD5", "XCRC"]:
        if command in features:
            session.send(f'{command} "/{folder}/a file"')
            assert session.replies.readline()[:1] == b"2", command
    session.say("RNFR a file", 350)
    session.say(f"RNTO /{folder}/third", 250)
    session.say(f"SITE CHMOD 640 /{folder}/third", 200)
    session.say(f"DELE third", 250)
    session.say("CWD /", 250)
    session.say(f"RMD {folder}", 250)


session = Session()
session.log_in()
assert session.socket.version() == "TLSv" + version
(as_filezilla if IS_FILEZILLA else as_winscp)(session, f"{program}-{door}-{version}")
session.say("QUIT", 221)
print("all of it works")
