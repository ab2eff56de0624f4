"""Every method of ftplib, passive and active. Arguments: host, port, user, password."""

import ftplib
import io
import os
import socket
import struct
import sys
import time

host, port, user, password = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]


def fetch(ftp, name, **options):
    parts = []
    ftp.retrbinary("RETR " + name, parts.append, **options)
    return b"".join(parts)


def refused(code, call, *arguments):
    try:
        call(*arguments)
    except ftplib.Error as error:
        assert str(error).startswith(code), error
    else:
        raise AssertionError(f"{arguments} was not refused")


def every_method(ftp):
    contents = os.urandom(300_000)
    assert ftp.getwelcome().startswith("220")
    assert ftp.mkd('made "here"') == '/made "here"'
    ftp.cwd('made "here"')
    assert ftp.pwd() == '/made "here"'

    blocks = []
    ftp.storbinary("STOR f", io.BytesIO(contents), blocksize=1000, callback=blocks.append)
    assert b"".join(blocks) == contents
    assert fetch(ftp, "f") == contents
    assert fetch(ftp, "f", rest=299_990) == contents[299_990:]
    ftp.storbinary("STOR f", io.BytesIO(contents[200_000:]), rest=200_000)
    assert ftp.size("f") == len(contents)
    assert fetch(ftp, "f") == contents
    ftp.storbinary("APPE f", io.BytesIO(b"more"))
    assert fetch(ftp, "f") == contents + b"more"
    connection, size = ftp.ntransfercmd("RETR f")
    assert size == len(contents) + 4, size
    with connection, connection.makefile("rb") as stream:
        assert stream.read() == contents + b"more"
    ftp.voidresp()

    ftp.storlines("STOR lines", io.BytesIO(b"one\ntwo\nthree"))
    lines = []
    ftp.retrlines("RETR lines", lines.append)
    assert lines == ["one", "two", "three"], lines
    ftp.voidcmd("TYPE I")
    assert fetch(ftp, "lines") == b"one\ntwo\nthree\n"

    assert sorted(ftp.nlst()) == ["f", "lines"]
    listing = []
    ftp.dir(listing.append)
    assert len(listing) == 2 and listing[0].endswith(" f"), listing
    facts = dict(ftp.mlsd(facts=["type", "size", "modify"]))
    assert facts["f"]["size"] == str(len(contents) + 4), facts
    assert facts["lines"]["type"] == "file", facts
    assert {"cdir", "pdir"} >= {facts[name]["type"] for name in facts if name not in ("f", "lines")}
    assert [name for name, _ in ftp.mlsd("/") if name not in (".", "..", "/")] == ['made "here"']

    # Listings were in ASCII, in which SIZE would have to convert the file.
    refused("550", ftp.size, "f")
    ftp.voidcmd("TYPE I")
    ftp.rename("f", "-g [1] ~")
    assert ftp.size("-g [1] ~") == len(contents) + 4
    assert ftp.sendcmd("MDTM -g [1] ~").startswith("213 ")
    assert ftp.sendcmd("STAT").startswith("211")
    ftp.delete("-g [1] ~")
    refused("550", ftp.delete, "-g [1] ~")
    refused("550", fetch, ftp, "missing")
    refused("550", ftp.cwd, "missing")
    refused("550", list, ftp.mlsd("missing"))

    ftp.storbinary("STOR large", io.BytesIO(bytes(20_000_000)))
    # In the middle of a download, and as ftplib has it: urgent, while the data connection is full.
    connection = ftp.transfercmd("RETR large")
    connection.recv(1000)
    assert ftp.abort().startswith("426"), "abort during a download"
    connection.close()
    assert ftp.voidresp().startswith("226")
    # With nothing to abort.
    assert ftp.abort()[:3] in ("225", "226")
    # In the middle of an upload: nothing of it is left.
    connection = ftp.transfercmd("STOR half")
    connection.sendall(bytes(100_000))
    assert ftp.abort().startswith("426"), "abort during an upload"
    connection.close()
    assert ftp.voidresp().startswith("226")
    refused("550", ftp.size, "half")
    assert fetch(ftp, "lines") == b"one\ntwo\nthree\n"

    ftp.delete("large")
    ftp.delete("lines")
    ftp.cwd("..")
    ftp.rmd('made "here"')
    assert ftp.nlst() == []


def cut_uploads(ftp):
    """A reset, as of a host that lost power, is no end of a file, wherever it falls."""
    ftp.storbinary("STOR old", io.BytesIO(b"as it was"))
    for turn in range(60):
        connection = ftp.transfercmd("STOR old")
        connection.sendall(bytes(1000 if turn % 3 else 200_000))
        if turn % 2:
            time.sleep(0.002)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
        refused("426", ftp.voidresp)
        assert fetch(ftp, "old") == b"as it was"
    ftp.delete("old")


def late_listener(ftp):
    """The client's listener cannot take the connection at once: the server's first SYN is lost."""
    with socket.create_server((host, 0), family=ftp.af, backlog=0) as listener:
        address = listener.getsockname()
        full = [socket.socket(ftp.af) for _ in range(3)]
        for filler in full:
            filler.setblocking(False)
            filler.connect_ex(address)
        ftp.voidcmd("TYPE I")
        if ftp.af == socket.AF_INET6:
            ftp.sendeprt(host, address[1])
        else:
            ftp.sendport(host, address[1])
        ftp.putcmd("STOR late")
        time.sleep(0.3)
        own = {filler.getsockname()[:2] for filler in full}
        for filler in full:
            filler.close()
        while True:
            connection, peer = listener.accept()
            if peer[:2] not in own:
                break
        time.sleep(0.1)
        with connection:
            connection.sendall(b"at last")
        assert ftp.getresp().startswith("150")
        assert ftp.getresp().startswith("226")
    assert fetch(ftp, "late") == b"at last"
    ftp.delete("late")


for passive in (True, False):
    with ftplib.FTP() as ftp:
        ftp.connect(host, port, timeout=30)
        refused("530", ftp.login, user, "wrong")
        ftp.login(user, password)
        ftp.set_pasv(passive)
        every_method(ftp)
        cut_uploads(ftp)
        if not passive:
            late_listener(ftp)
        assert ftp.quit().startswith("221")

print("all of it works")
