"""serve.py PROGRAM VMLINUZ BUSYBOX: serves with the static program for aarch64, in an emulated machine with a kernel of its own.

PROGRAM is `usr/bin/millrace` of what `./package static-aarch64` makes; VMLINUZ and BUSYBOX are of Debian's arm64 packages
`linux-image-cloud-arm64` and `busybox-static`, unpacked by `dpkg-deb -x`. Needs `qemu-system-arm`. The machine has no disk and no
network: files lie in memory, and the clients are busybox's and the program itself.
"""

import pathlib
import stat
import subprocess
import sys
import tempfile

LINKS = "sh mount ip wget ftpget ftpput cmp dd grep cat kill sleep tail uname poweroff mkdir chmod nc seq wc".split()

CONFIGURATION = """\
directory = "files"
state = "state"
run-as = "mill"
ftp = "0.0.0.0:21"
http = "0.0.0.0:80"
https = "0.0.0.0:443"
tls-self-signed = true
anonymous = "rw"
access-log = "state/access.bin"
access-log-format = "binary"
admin = "127.0.0.1:9121"
"""

INIT = """\
#!/bin/sh
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mount -t tmpfs work /work; mkdir /work/files /work/state; chmod 777 /work/files /work/state
mount -t securityfs security /sys/kernel/security; ip link set lo up; uname -a
cd /work; cat /m.toml > m.toml
dd if=/dev/urandom of=files/f bs=1M count=8 2>/dev/null; dd if=files/f of=files/s bs=2k count=1 2>/dev/null
millrace serve --config m.toml > out 2> err &
server=$!
for second in $(seq 60); do grep -q Ready out && break; sleep 1; done
cat err; grep -E "Seccomp|NoNewPrivs|Uid" /proc/$server/status
wget -q -O h http://127.0.0.1/f && cmp h files/f && echo ok: download by HTTP
ftpget 127.0.0.1 d f && cmp d files/f && echo ok: download by FTP
ftpput 127.0.0.1 up d && cmp d files/up && echo ok: upload by FTP
printf 'GET /metrics HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n' | nc 127.0.0.1 9121 > metrics
grep -q "^process_resident_memory_bytes " metrics && echo ok: metrics
for load in "ftpes://anonymous:a@127.0.0.1/ --ops retr,stor,list --size 20k" "https://127.0.0.1/s --ops get" \\
    "ftp://anonymous:a@127.0.0.1/ --ops retr,login --size 2k"; do
    millrace bench $load --users 2 --duration 2s --warm-up 0 2>&1 | grep -E "ended well|failed" && echo "ok: $load"
done
kill $server; sleep 3
millrace log convert state/access.bin | wc -l
grep -E "panicked|warning|started|ended" err
poweroff -f
"""


def entry(number, name, mode, content=b"", device=(0, 0)):
    """A file of an archive in cpio's format "newc"."""
    encoded = name.encode() + b"\0"
    numbers = [number, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(encoded), 0]
    head = b"070701" + b"".join(b"%08x" % one for one in numbers) + encoded
    return head + b"\0" * (-len(head) % 4) + content + b"\0" * (-len(content) % 4)


def main():
    program, kernel, busybox = sys.argv[1:]
    folders = ["bin", "dev", "proc", "sys", "work", "etc", "run", "tmp"]
    files = {
        "init": INIT.encode(), "m.toml": CONFIGURATION.encode(), "bin/millrace": pathlib.Path(program).read_bytes(),
        "bin/busybox": pathlib.Path(busybox).read_bytes(), "etc/passwd": b"root:x:0:0::/:/bin/sh\nmill:x:1000:1000::/:/bin/sh\n",
        "etc/group": b"root:x:0:\nmill:x:1000:\n", "etc/hosts": b"127.0.0.1 localhost\n",
    }
    entries = [(name, stat.S_IFDIR | 0o755) for name in folders]
    entries += [(name, stat.S_IFREG | 0o755, content) for name, content in files.items()]
    entries += [(f"bin/{name}", stat.S_IFLNK | 0o777, b"busybox") for name in LINKS]
    entries += [("dev/console", stat.S_IFCHR | 0o600, b"", (5, 1)), ("TRAILER!!!", 0)]
    with tempfile.TemporaryDirectory() as folder:
        image = pathlib.Path(folder, "init.cpio")
        image.write_bytes(b"".join(entry(number, *one) for number, one in enumerate(entries, 1)))
        machine = ["-M", "virt", "-cpu", "max,pauth-impdef=on", "-m", "1536", "-smp", "2", "-nic", "none", "-nographic", "-no-reboot"]
        arguments = "console=ttyAMA0 quiet panic=-1 rdinit=/init lsm=landlock"
        command = ["qemu-system-aarch64", *machine, "-kernel", kernel, "-initrd", image, "-append", arguments]
        sys.exit(subprocess.run(command, stdin=subprocess.DEVNULL, timeout=600).returncode)


main()
