//! The packages that `./package` makes, with the program under test: `docs/install.md` is run as it stands, on a copy of this
//! machine that systemd has booted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Block, blocks, can_run, compare, on_a_copy, script};

const BOOT: &str = include_str!("boot.sh");
const CONTAINER: &str = include_str!("container.sh");
const PAGE: &str = include_str!("../../../../docs/install.md");

/// A folder of packages, which is removed with the value.
struct Packages(PathBuf);

impl Packages {
    /// Makes packages of these kinds.
    fn make(kinds: &[&str]) -> Self {
        let name = format!("millrace-{}-{}", kinds.join("-"), std::process::id());
        let folder = std::env::temp_dir().join(name);
        let packages = Self(folder);
        let output = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../package"))
            .args(["--program", env!("CARGO_BIN_EXE_millrace"), "--out"])
            .arg(&packages.0)
            .args(kinds)
            // It takes no time to pack, and the package is not given away.
            .envs([("DPKG_DEB_COMPRESSOR_TYPE", "none"), ("RPM_PAYLOAD", "w0.ufdio")])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        packages
    }

    /// Runs a script as a service of a systemd, in the folder of the packages. Returns what it prints.
    fn run_by_systemd(&self, script: &str) -> String {
        fs::write(self.0.join("script"), script).unwrap();
        let name = self.0.file_name().unwrap().to_str().unwrap();
        let ended = on_a_copy(name, &["sh", "-c", BOOT, "boot", self.0.to_str().unwrap()]);
        remove_control_groups(&self.0);
        let printed = fs::read_to_string(self.0.join("output")).unwrap_or_default();
        assert!(ended.status.success(), "{ended:?}\n{printed}");
        printed
    }
}

impl Drop for Packages {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Removes the control groups that systemd has left.
fn remove_control_groups(folder: &Path) {
    let name = folder.file_name().unwrap().to_str().unwrap();
    let script = "find \"$(findmnt -nf -t cgroup2 -o TARGET)/$0\" -depth -type d -exec rmdir {} +";
    let removed = Command::new("sh").args(["-c", script, name]).output().unwrap();
    assert!(removed.status.success(), "{}", String::from_utf8_lossy(&removed.stderr));
}

/// What is looked at between the page's blocks, and what has to be printed: before a block that has a text, or after it.
const LOOKS: [(&str, Place, &str, &str); 4] = [
    ("install -y ./", Place::Before, "begun=$(awk '{ printf \"%d\", $1 * 1000000 }' /proc/uptime)\n", ""),
    ("install -y ./", Place::After, INSTALLED, "enabled\nactive\n-rw-r----- root:millrace\n"),
    ("--reinstall", Place::Before, "before=$(systemctl show -P MainPID millrace)\n", ""),
    (
        "--reinstall",
        Place::After,
        "[ \"$(systemctl show -P MainPID millrace)\" != \"$before\" ]\nsystemctl is-active millrace\n",
        "active\n",
    ),
];

const INSTALLED: &str = "\
took=$((($(systemctl show -P ActiveEnterTimestampMonotonic millrace) - begun) / 1000))
echo \"the server was ready $took ms after apt-get began\"
[ $took -lt 30000 ]
systemctl is-enabled millrace
systemctl is-active millrace
if curl -sS -T /etc/hostname ftp://127.0.0.1:2121/; then exit 1; fi
stat -c '%A %U:%G' /etc/millrace/millrace.toml
test -s /usr/share/man/man1/millrace-serve.1.gz
. /usr/share/bash-completion/completions/millrace
complete -p millrace
";

const REMOVED: &str = "\
if pgrep -x millrace; then exit 1; fi
for gone in /etc/millrace /var/lib/millrace /var/log/millrace /usr/bin/millrace /run/millrace; do
    test ! -e $gone
done
";

/// Says why, where the script fails.
const ON_FAILURE: &str = "\
trap '[ $? -eq 0 ] || { systemctl status millrace --no-pager || true; journalctl --no-pager -n 40; }' EXIT
";

/// On which side of a block something stands.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Before,
    After,
}

/// Returns the blocks of the page, and the looks between them.
fn blocks_and_looks() -> Vec<Block<'static>> {
    let mut all = Vec::new();
    for block in blocks(PAGE) {
        let looks = |place| {
            let here = LOOKS.iter().filter(move |look| look.1 == place && block.1.contains(look.0));
            here.flat_map(|look| [("sh", look.2), ("text", look.3)])
        };
        let is_run = block.0 == "sh";
        all.extend(looks(Place::Before).filter(|_| is_run));
        all.push(block);
        all.extend(looks(Place::After).filter(|_| is_run));
    }
    all.push(("sh", REMOVED));
    all
}

#[test]
fn the_debian_package_is_installed_serves_is_upgraded_and_removed() {
    if !can_run("install", &["curl", "dpkg-dev", "procps", "systemd"]) {
        return;
    }
    let packages = Packages::make(&["deb"]);
    let blocks = blocks_and_looks();
    let printed = packages.run_by_systemd(&(ON_FAILURE.to_owned() + &script(&blocks)));
    println!("{printed}");
    compare("install", &blocks, &printed);
}

/// What the page does with the RPM, by the `rpm` that Debian has; this system has no packages of its kind to depend on.
const RPM: &str = "\
rpm='rpm --force-debian --nodeps --quiet'
$rpm -i ./millrace-*.rpm
systemctl enable --now millrace
echo hello > /srv/millrace/hello.txt
curl -sS ftp://127.0.0.1:2121/hello.txt
stat -c '%A %U:%G' /etc/millrace/millrace.toml
rpm -V --nodeps millrace || true
echo '# A change.' >> /etc/millrace/millrace.toml
before=$(systemctl show -P MainPID millrace)
$rpm -U --force ./millrace-*.rpm
[ \"$(systemctl show -P MainPID millrace)\" != \"$before\" ]
systemctl is-active millrace
tail -n 1 /etc/millrace/millrace.toml
stat -c '%A %U:%G' /etc/millrace/millrace.toml
curl -sS http://127.0.0.1:8080/hello.txt
$rpm -e millrace
if pgrep -x millrace; then exit 1; fi
for gone in /usr/bin/millrace /usr/lib/systemd/system/millrace.service /usr/share/doc/millrace /run/millrace; do
    test ! -e $gone
done
cat /srv/millrace/hello.txt
ls /etc/millrace
";

#[test]
fn the_rpm_is_installed_serves_is_upgraded_and_removed() {
    if !can_run("install", &["curl", "procps", "rpm", "systemd"]) {
        return;
    }
    let packages = Packages::make(&["rpm"]);
    let printed = packages.run_by_systemd(&format!("exec 2>&1\nset -eu\n{ON_FAILURE}{RPM}"));
    println!("{printed}");
    let mut lines = printed.lines();
    for expected in [
        "hello",
        "-rw-r----- root:millrace",
        "active",
        "# A change.",
        "-rw-r----- root:millrace",
        "hello",
        "hello",
        "millrace.toml.rpmsave",
    ] {
        assert!(lines.any(|line| line == expected), "{expected} is not in\n{printed}");
    }
}

#[test]
fn the_image_serves_what_its_variables_say_and_its_health_check_asks_the_server() {
    if !can_run("container", &["curl", "procps", "python3"]) {
        return;
    }
    let packages = Packages::make(&[&format!("image-{}", std::env::consts::ARCH)]);
    let script = ["bash", "-c", CONTAINER, "container", packages.0.to_str().unwrap()];
    let ended = on_a_copy("container", &script);
    let printed = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{ended:?}\n{printed}");
    for line in [
        "alice may read and write",
        "0 sessions, 0 transfers under way.",
        "hello",
        "root/srv/hello is of 65532",
    ] {
        assert!(printed.contains(line), "{line} is not in\n{printed}");
    }
}

#[test]
fn the_compose_file_and_the_page_name_this_version() {
    let compose = include_str!("../../../../packaging/container/compose.yaml");
    let version = env!("CARGO_PKG_VERSION");
    assert!(compose.contains(&format!("image: millrace:{version}\n")));
    assert!(
        PAGE.contains(&format!("millrace_{version}_amd64.deb"))
            && PAGE.contains(&format!(" millrace:{version}\n"))
    );
}
