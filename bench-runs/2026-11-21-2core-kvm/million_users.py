#!/usr/bin/env python3
"""Logins of 1,000,000 users in SQLite, by FTP, against the binary that is shipped.

    million_users.py make MILLRACE FOLDER      the database (a minute)
    million_users.py ask MILLRACE FOLDER       2,000 logins of users drawn at random, one after another

Each user has the same hash, and a cheap one (argon2id, 256 KiB, t=2): what is measured is the whole of PASS, the
hash within it. No login is of a user who was there before, so none is remembered.
"""
import os, random, re, socket, subprocess, sys, time

COUNT, LOGINS = 1_000_000, 2_000
HASH = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4"
what, millrace, folder = sys.argv[1:]
users = os.path.join(folder, "users.db")

if what == "make":
    os.makedirs(os.path.join(folder, "files"), exist_ok=True)
    with open(os.path.join(folder, "htpasswd"), "w") as file:
        file.writelines(f"user{number}:{HASH}\n" for number in range(COUNT))
    subprocess.run([millrace, "user", "import", "htpasswd", os.path.join(folder, "htpasswd"), "--users", users], check=True)
    sys.exit()

server = subprocess.Popen(
    [millrace, "serve", os.path.join(folder, "files"), "--users", users, "--ftp", "127.0.0.1:0", "--http", "off",
     "--passive-ports", "42000-42009", "--quiet"], stdout=subprocess.PIPE, text=True)
try:
    for line in server.stdout:
        found = re.search(r"ftp://(?:[^@]*@)?([0-9.]+):(\d+)", line)
        if found:
            address = found[1], int(found[2])
        if line.startswith("Ready"):
            break
    times = []
    for number in random.Random(1).sample(range(COUNT), LOGINS):
        with socket.create_connection(address) as control:
            control.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            replies = control.makefile("rb")
            replies.readline()
            control.sendall(b"USER user%d\r\n" % number)
            replies.readline()
            begin = time.perf_counter()
            control.sendall(b"PASS password\r\n")
            reply = replies.readline()
            times.append((time.perf_counter() - begin) * 1000)
            assert reply.startswith(b"230"), reply
    times.sort()
    at = lambda part: times[min(len(times) - 1, int(len(times) * part))]
    print(f"PASS to 230, hash included, of {LOGINS} logins: p50 {at(.5):.2f} ms, p99 {at(.99):.2f} ms, most {times[-1]:.2f} ms")
finally:
    server.terminate()
    server.wait()
