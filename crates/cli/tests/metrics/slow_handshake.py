"""Downloads a file by FTPS: slow_handshake.py PORT FILE. The handshake of the data connection begins with a line on standard input."""

import re
import socket
import ssl
import sys


def main():
    context = ssl._create_unverified_context()
    plain = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=60)
    replies = plain.makefile("rb")
    assert replies.readline().startswith(b"220 ")
    plain.sendall(b"AUTH TLS\r\n")
    assert replies.readline().startswith(b"234 ")
    control = context.wrap_socket(plain)
    replies = control.makefile("rb")

    def say(line, code):
        control.sendall(line.encode() + b"\r\n")
        reply = replies.readline().decode()
        assert reply.startswith(f"{code} "), (line, reply)
        return reply

    for line, code in [("USER u", 331), ("PASS password", 230), ("PBSZ 0", 200), ("PROT P", 200), ("TYPE I", 200)]:
        say(line, code)
    port = re.search(r"\|(\d+)\|", say("EPSV", 229)).group(1)
    data = socket.create_connection(("127.0.0.1", int(port)), timeout=60)
    control.sendall(f"RETR {sys.argv[2]}\r\n".encode())
    sys.stdin.readline()
    data = context.wrap_socket(data, session=control.session)
    print(data.makefile("rb").read().decode(), end="")
    assert replies.readline().startswith(b"150 ")
    assert replies.readline().startswith(b"226 ")


main()
