#!/usr/bin/env python3
"""Measures what the helper of PAM users costs beside plain accounts: logins, MLSD of 3,000 files, SIZE, small downloads.

    sudo bench-runs/privsep/measure.py target/release/millrace

Users are made in a copy of /etc and /home that is gone with the run.
"""

import ftplib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

USERS = 20
SERVICE = """auth required pam_unix.so nodelay
account required pam_nologin.so
account required pam_unix.so
"""
CONFIGURATION = """directory = "/home"
run-as = "millrace"
ftp = "127.0.0.1:0"
http = "off"
control = "off"
"""
SOURCE = """
[[source]]
pam = true
passwd = true
cache = 0
"""


def run(*command, **more):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **more)


def make_users(folder):
    run("mount", "-t", "tmpfs", "tmpfs", folder)
    for name in ["/etc", "/home"]:
        run("cp", "-a", name, folder + name)
        run("mount", "--bind", folder + name, name)
    run("useradd", "--system", "--shell", "/usr/sbin/nologin", "millrace")
    names = [f"u{number}" for number in range(USERS)]
    for name in names:
        run("useradd", "--create-home", name)
    passwords = "".join(f"{name}:s3cret\n" for name in names)
    # A cheap hash, so that its time does not hide the rest.
    run("chpasswd", "-c", "SHA512", "-s", "1000", input=passwords, text=True)
    with open("/etc/pam.d/millrace", "w") as file:
        file.write(SERVICE)
    os.mkdir("/home/u0/d")
    for number in range(3000):
        with open(f"/home/u0/d/f{number}", "w") as file:
            file.write("x\n")
    run("chown", "-R", "u0", "/home/u0")


def login(port, user):
    ftp = ftplib.FTP()
    ftp.connect("127.0.0.1", port)
    ftp.sendcmd("USER " + user)
    began = time.perf_counter()
    ftp.sendcmd("PASS s3cret")
    return ftp, time.perf_counter() - began


def median(times, act):
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        act()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def measure(binary, folder, what, configuration, *arguments):
    path = os.path.join(folder, what + ".toml")
    with open(path, "w") as file:
        file.write(configuration)
    command = [binary, "serve", "--config", path, *arguments]
    with open(os.path.join(folder, what + ".log"), "w") as log:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        line = next(line for line in server.stdout if "ftp://" in line)
        port = int(line.split("127.0.0.1:")[1].split("/")[0])
        if what == "pam":
            first, again = [], []
            for number in range(1, USERS):
                for times in [first, again]:
                    ftp, took = login(port, f"u{number}")
                    times.append(took)
                    ftp.quit()
            print(f"first login {statistics.median(first) * 1e3:.1f} ms, the next {statistics.median(again) * 1e3:.1f} ms")
        ftp, _ = login(port, "u0")
        ftp.cwd("d" if what == "pam" else "u0/d")
        listing = median(15, lambda: ftp.retrlines("MLSD", lambda _: None))
        ftp.voidcmd("TYPE I")
        size = median(1500, lambda: ftp.sendcmd("SIZE f7"))
        download = median(400, lambda: ftp.retrbinary("RETR f7", lambda _: None))
        print(f"{what}: MLSD of 3,000 files {listing * 1e3:.1f} ms, SIZE {size * 1e6:.0f} us, RETR {download * 1e6:.0f} us")
    finally:
        server.terminate()
        server.wait()


def main():
    if "--inside" not in sys.argv:
        os.execvp("unshare", ["unshare", "-m", "--propagation", "private", sys.executable, *sys.argv, "--inside"])
    folder = tempfile.mkdtemp(prefix="millrace-privsep-")
    os.chmod(folder, 0o755)
    binary = shutil.copy(sys.argv[1], "/tmp/" + os.path.basename(folder) + ".program")
    try:
        make_users(folder)
        os.chmod(folder, 0o755)
        measure(binary, folder, "pam", CONFIGURATION + SOURCE)
        measure(binary, folder, "plain", CONFIGURATION, "--user", "u0:s3cret:rw")
    finally:
        for path in ["/etc", "/home", folder]:
            subprocess.run(["umount", path], check=False, stderr=subprocess.DEVNULL)
        os.rmdir(folder)
        os.remove(binary)


main()
