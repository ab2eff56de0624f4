//! The recipes of docs/testing.md, each run by the test runner that it is for.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const MILLRACE: &str = env!("CARGO_BIN_EXE_millrace");

fn recipe(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/testing").join(name).canonicalize().unwrap()
}

/// Makes an empty folder for what a test runner writes.
fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("recipe-{name}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Runs a command that has to succeed, and to say that it ran a test. Without the program the test is left out,
/// unless `./test` has installed it.
fn passes(command: &mut Command, proof: &str) {
    command.env("MILLRACE", MILLRACE).stdin(Stdio::null());
    let output = match command.output() {
        Err(error) if std::env::var_os("MILLRACE_REQUIRE_CLIENTS").is_none() => {
            return eprintln!("left out: {command:?}: {error}");
        }
        output => output.unwrap(),
    };
    let text =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success() && text.contains(proof), "{command:?}: {}\n{text}", output.status);
}

#[test]
fn pytest_runs_its_recipe() {
    let folder = scratch("pytest");
    let file =
        fs::copy(recipe("test_millrace.py"), folder.join("test_millrace.py")).map(|_| "test_millrace.py");
    passes(
        Command::new("/usr/bin/python3")
            .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", file.unwrap()])
            .current_dir(folder),
        "2 passed",
    );
}

#[test]
fn junit_runs_its_recipe() {
    let folder = scratch("junit");
    let jars = "/usr/share/java/junit4.jar:/usr/share/java/hamcrest-core.jar";
    passes(Command::new("javac").args(["-cp", jars, "-d"]).arg(&folder).arg(recipe("MillraceTest.java")), "");
    let path = format!("{jars}:{}", folder.display());
    passes(
        Command::new("java").args(["-cp", &path, "org.junit.runner.JUnitCore", "MillraceTest"]),
        "OK (1 test)",
    );
}

#[test]
fn node_runs_its_recipe() {
    passes(Command::new("node").arg("--test").arg(recipe("millrace.test.mjs")), "pass 1");
}

#[test]
fn go_runs_its_recipe() {
    passes(
        Command::new("go").args(["test", "-v"]).arg(recipe("millrace_test.go")).env("GO111MODULE", "off"),
        "PASS",
    );
}

#[test]
fn minitest_runs_its_recipes() {
    passes(
        Command::new("ruby").arg(recipe("millrace_test.rb")),
        "1 runs, 1 assertions, 0 failures, 0 errors",
    );
    passes(
        Command::new("ruby").arg(recipe("millrace_ftps_test.rb")),
        "3 runs, 11 assertions, 0 failures, 0 errors",
    );
}

#[test]
fn a_ready_file_replaces_an_old_one() {
    let folder = scratch("ready-file");
    let file = folder.join("ready.json");
    fs::write(&file, "{\"pid\":1}").unwrap();
    let mut server = Command::new(MILLRACE)
        .args(["serve", "--ftp", "off", "--http", "127.0.0.1:0", "--ready-json", "--ready-file"])
        .arg(&file)
        .arg(&folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(server.stdout.take().unwrap()), &mut line)
        .unwrap();
    assert!(line.starts_with(&format!("{{\"pid\":{},", server.id())), "{line}");
    // The file is written first.
    assert_eq!(fs::read_to_string(&file).unwrap(), line);
    server.kill().unwrap();
    server.wait().unwrap();
}
