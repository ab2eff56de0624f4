//! A guest under QEMU that runs the real server on a disk whose writes and flushes are recorded.
//!
//! The guest is Debian's kernel for clouds and an initial file system of busybox, the modules that it needs and the
//! server. Its disk appears at the path that it has on the host, so that the same configuration holds in both.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::site::addresses;
use crate::writer::Addresses;

/// Passive ports, each of which is forwarded.
const PORTS: u16 = 24;

/// The first of the host's ports: two for the protocols, the rest for data. Beneath those that clients are given.
pub(crate) fn first_port() -> u16 {
    20_000 + (std::process::id() % 300) as u16 * (PORTS + 2)
}

/// The key for the configuration.
pub(crate) fn passive_ports() -> String {
    let first = first_port() + 2;
    format!("passive-ports = \"{first}-{}\"\n", first + PORTS - 1)
}

/// What a guest is made of, as found on this machine.
pub(crate) struct Parts {
    kernel: PathBuf,
    version: String,
}

impl Parts {
    /// The error names what is missing.
    pub(crate) fn find() -> Result<Self, String> {
        for program in
            ["qemu-system-x86_64", "busybox", "cpio", "modprobe", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs"]
        {
            let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
            if !found.is_ok_and(|output| output.status.success()) {
                return Err(format!("{program} is not installed"));
            }
        }
        let kernels = fs::read_dir("/boot").map_err(|error| format!("/boot: {error}"))?.flatten();
        let names = kernels.filter_map(|entry| entry.file_name().into_string().ok());
        let versions = names.filter_map(|name| Some(name.strip_prefix("vmlinuz-")?.to_owned()));
        let version = versions.filter(|version| version.ends_with("-cloud-amd64")).max();
        let version = version.ok_or("linux-image-cloud-amd64 is not installed")?;
        Ok(Self { kernel: format!("/boot/vmlinuz-{version}").into(), version })
    }

    /// Makes the initial file system of a guest that serves what lies on its disk.
    pub(crate) fn build(&self, scratch: &Path, file_system: &str, disk: &Path) -> PathBuf {
        let root = scratch.join("initrd");
        for folder in ["bin", "proc", "sys", "dev", "tmp", "modules"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        run(Command::new("cp").arg(program("busybox")).arg(root.join("bin/busybox")));
        let server = root.join("bin/millrace");
        run(Command::new("cp").arg(env!("CARGO_BIN_EXE_millrace")).arg(&server));
        run(Command::new("strip").arg(&server));
        let libraries = run(Command::new("ldd").arg(env!("CARGO_BIN_EXE_millrace")));
        for library in libraries.split_whitespace().filter(|word| word.starts_with('/')) {
            run(Command::new("cp").args(["--parents", "-L", library]).arg(&root));
        }
        let modules = self.copy_modules(&root, file_system);
        let init = format!(
            "#!/bin/busybox sh\n\
             /bin/busybox --install -s /bin\n\
             export PATH=/bin\n\
             mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev\n\
             for module in {modules}; do insmod /modules/$module; done\n\
             ip link set lo up; ip link set eth0 up; ip addr add 10.0.2.15/24 dev eth0\n\
             mkdir -p {disk}; mount -t {file_system} /dev/vda {disk} || poweroff -f\n\
             nc -ll -p 8081 -e /bin/busybox nc 127.0.0.1 8080 &\n\
             millrace serve --config {disk}/millrace.toml --ftp 0.0.0.0:2121 --http 127.0.0.1:8080 --ready-json --quiet\n\
             poweroff -f\n",
            disk = disk.display()
        );
        fs::write(root.join("init"), init).unwrap();
        let image = scratch.join("initrd.img");
        let pack = "chmod +x init; find . | cpio -o -H newc --quiet > ../initrd.img";
        run(Command::new("sh").args(["-c", pack]).current_dir(&root));
        fs::remove_dir_all(&root).unwrap();
        image
    }

    /// Copies what the guest's devices and its file system need; their names in the order to insert them.
    fn copy_modules(&self, root: &Path, file_system: &str) -> String {
        let mut names: Vec<String> = Vec::new();
        for module in ["virtio_pci", "virtio_blk", "virtio_net", "crc32c_generic", file_system] {
            let shown = run(Command::new("modprobe").args([
                "--set-version",
                &self.version,
                "--show-depends",
                module,
            ]));
            for path in shown.lines().filter_map(|line| line.strip_prefix("insmod ")) {
                let name = path.trim().rsplit('/').next().expect("a path has a last part").to_owned();
                run(Command::new("cp").arg(path.trim()).arg(root.join("modules")));
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        names.join(" ")
    }

    /// Starts a guest; it serves when this returns.
    pub(crate) fn start(&self, initrd: &Path, image: &Path, log: &Path) -> Guest {
        // KVM may be there and yet run nothing, as within some virtual machines: so it is asked for.
        let accelerator =
            std::env::var("MILLRACE_QEMU_ACCEL").unwrap_or_else(|_| "tcg,thread=multi".to_owned());
        let first = first_port();
        let forward = |host: u16, guest: u16| format!("hostfwd=tcp:127.0.0.1:{host}-:{guest}");
        let data = (first + 2..first + 2 + PORTS).map(|port| forward(port, port));
        let forwards: Vec<String> =
            [forward(first, 2121), forward(first + 1, 8081)].into_iter().chain(data).collect();
        fs::write(log, "").unwrap();
        let raw = |name: &str, path: &Path| {
            format!(
                "driver=raw,node-name={name},file.driver=file,file.filename={},cache.no-flush=on",
                path.display()
            )
        };
        let mut child = Command::new("qemu-system-x86_64")
            .args([
                "-accel",
                &accelerator,
                "-smp",
                "2",
                "-m",
                "768",
                "-nographic",
                "-nodefaults",
                "-no-reboot",
            ])
            .args(["-serial", "stdio", "-kernel"])
            .arg(&self.kernel)
            .arg("-initrd")
            .arg(initrd)
            .args(["-append", "console=ttyS0 quiet panic=-1 mitigations=off"])
            .args(["-blockdev", &raw("image", image), "-blockdev", &raw("log", log)])
            .args(["-blockdev", "driver=blklogwrites,node-name=disk,file=image,log=log"])
            .args(["-device", "virtio-blk-pci,drive=disk"])
            .args(["-netdev", &format!("user,id=net,restrict=on,{}", forwards.join(","))])
            .args(["-device", "virtio-net-pci,netdev=net,romfile="])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut console = BufReader::new(child.stdout.take().unwrap());
        let mut guest = Guest { child, addresses: None };
        let (mut told, mut line) = (String::new(), Vec::new());
        while console.read_until(b'\n', &mut line).unwrap() > 0 {
            let text = String::from_utf8_lossy(&line).into_owned();
            if text.find('{').and_then(|begin| addresses(&text[begin..])).is_some() {
                let at = |port: u16| ([127, 0, 0, 1], port).into();
                guest.addresses = Some(Addresses { ftp: at(first), http: at(first + 1) });
                // The console must not fill up.
                std::thread::spawn(move || std::io::copy(&mut console, &mut std::io::sink()));
                return guest;
            }
            told += &text;
            line.clear();
        }
        panic!("the guest ended before it served:\n{told}");
    }
}

/// A running guest; its power is cut when it is dropped.
pub(crate) struct Guest {
    child: Child,
    addresses: Option<Addresses>,
}

impl Guest {
    pub(crate) fn addresses(&self) -> Addresses {
        self.addresses.expect("it is set by the start")
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program(name: &str) -> String {
    run(Command::new("sh").args(["-c", &format!("command -v {name}")])).trim().to_owned()
}

/// Runs a program that has to succeed; what it prints.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
