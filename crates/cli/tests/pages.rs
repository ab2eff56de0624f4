//! The pages that lead from an empty Debian to a login, run as they stand: see `pages/machine.sh`.
//!
//! A `sh` block has to succeed, the last command of a `sh fails` block to fail. Each line of a `text` block is in what
//! the block before it prints, each line of a `log` block in the server's log.

#[path = "pages/package.rs"]
mod package;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

const MACHINE: &str = include_str!("pages/machine.sh");

/// Ends what the block before it printed.
const END: &str = "--- the block has ended ---";

/// How long a page may take, in seconds.
const PATIENCE: &str = "150";

/// A fenced block of a page: what stands behind the fence, and its lines.
type Block<'a> = (&'a str, &'a str);

fn blocks(page: &str) -> Vec<Block<'_>> {
    let fenced = page.split("```").skip(1).step_by(2);
    fenced.map(|block| block.split_once('\n').unwrap()).collect()
}

/// Returns the shell script of a page. It ends with the first block that does other than the page says.
fn script(blocks: &[Block<'_>]) -> String {
    let mut script = "exec 2>&1\nset -eu\n".to_owned();
    for (kind, lines) in blocks {
        script += &match *kind {
            "sh" => format!("{lines}echo '{END}'\n"),
            "sh fails" => {
                let failing = format!("set +e\n{lines}status=$?\nset -e\n");
                format!(
                    "{failing}[ $status -ne 0 ] || {{ echo 'this did not fail'; exit 1; }}\necho '{END}'\n"
                )
            }
            _ => continue,
        };
    }
    script
}

/// Runs a command on a copy of this machine.
fn on_a_copy(name: &str, command: &[&str]) -> Output {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let layers = std::env::temp_dir().join(format!("millrace-pages-{}-{number}-{name}", std::process::id()));
    fs::create_dir_all(&layers).unwrap();
    let millrace = Path::new(env!("CARGO_BIN_EXE_millrace")).parent().unwrap();
    let path = format!("{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", millrace.display());
    let output = Command::new("timeout")
        // `unshare` holds other signals back.
        .args(["-s", "KILL", PATIENCE, "unshare", "--mount", "--pid", "--net", "--fork", "--kill-child"])
        .args(["--mount-proc", "sh", "-c", MACHINE, "machine"])
        .arg(&layers)
        .args(command)
        .env_clear()
        .envs([
            ("PATH", &path[..]),
            ("HOME", "/root"),
            ("DEBIAN_FRONTEND", "noninteractive"),
            ("LANG", "C.UTF-8"),
        ])
        .stdin(Stdio::null())
        .process_group(0)
        .output()
        .unwrap();
    fs::remove_dir(&layers).unwrap();
    output
}

/// Returns whether this machine can run a page: root's Debian that has the packages, and may mount.
fn can_run(name: &str, packages: &[&str]) -> bool {
    let is_missing = |package: &&&str| {
        let list = |suffix: &str| Path::new("/var/lib/dpkg/info").join(format!("{package}{suffix}.list"));
        !list("").exists() && !list(":amd64").exists() && !list(":arm64").exists()
    };
    let why_not = if !rustix::process::geteuid().is_root() {
        "only root can".to_owned()
    } else if !Path::new("/usr/bin/apt-get").exists() {
        "this is no Debian".to_owned()
    } else if let Some(package) = packages.iter().find(is_missing) {
        let may_skip = std::env::var_os("MILLRACE_REQUIRE_CLIENTS").is_none_or(|value| value == "0");
        assert!(may_skip, "the package {package} is not installed");
        format!("the package {package} is not installed")
    } else {
        let probe = on_a_copy(&format!("{name}-probe"), &["true"]);
        if probe.status.success() {
            return true;
        }
        String::from_utf8_lossy(&probe.stderr).into_owned()
    };
    eprintln!("docs/{name}.md was not tried: {why_not}");
    false
}

fn run(name: &str, page: &str) {
    let install = page.lines().find_map(|line| line.strip_prefix("apt-get install -y ")).unwrap();
    if !can_run(name, &install.split(' ').collect::<Vec<_>>()) {
        return;
    }
    let blocks = blocks(page);
    let script = script(&blocks) + "kill %%; wait\ncat /var/log/millrace.log\n";
    let output = on_a_copy(name, &["bash", "-c", &script]);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "docs/{name}.md: {}\n{told}", output.status);
    compare(name, &blocks, &told);
}

/// Compares what the blocks of a page printed, and the log behind it, with what the page says.
fn compare(name: &str, blocks: &[Block<'_>], told: &str) {
    let mut printed = told.split(END);
    let log = told.rsplit(END).next().unwrap();
    let mut current = "";
    for (kind, lines) in blocks {
        match *kind {
            "sh" | "sh fails" => current = printed.next().unwrap(),
            "text" => has_lines(name, current, lines),
            "log" => has_lines(name, log, lines),
            // Not run.
            "" => {}
            _ => panic!("docs/{name}.md: a block of the unknown kind {kind:?}"),
        }
    }
}

#[track_caller]
fn has_lines(name: &str, text: &str, lines: &str) {
    for line in lines.lines() {
        assert!(text.contains(line), "docs/{name}.md: {line}\nis not in\n{text}");
    }
}

#[test]
fn the_page_about_ldap_leads_to_a_login() {
    run("ldap", include_str!("../../../docs/ldap.md"));
}

#[test]
fn the_page_about_mysql_leads_to_a_login() {
    run("mysql", include_str!("../../../docs/mysql.md"));
}

#[test]
fn the_page_about_pam_leads_to_a_login() {
    run("pam", include_str!("../../../docs/pam.md"));
}
