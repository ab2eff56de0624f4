//! Finding and running a client.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::server::Server;

/// A client that takes longer than this is stuck. Generous: the machine may be busy with other things.
const SECONDS: &str = "300";

/// A client that is installed.
pub(crate) struct Tool {
    program: PathBuf,
    variables: Vec<(String, String)>,
}

/// Finds a client. Where it is missing, says so and answers `None`; a failure where clients are required.
pub(crate) fn tool(name: &str) -> Option<Tool> {
    let found = find(name);
    if found.is_none() {
        skip(&format!("{name} is not installed"));
    }
    found
}

/// Finds a program.
pub(crate) fn find(name: &str) -> Option<Tool> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let program =
        std::env::split_paths(&path).map(|part| part.join(name)).find(|program| program.is_file())?;
    Some(Tool { program, variables: Vec::new() })
}

/// Says that a test is skipped, and why.
pub(crate) fn skip(why: &str) {
    assert!(std::env::var_os("MILLRACE_REQUIRE_CLIENTS").is_none_or(|value| value == "0"), "{why}");
    skip_anyway(why);
}

/// The same for what cannot be had by installing it: it is no failure where clients are required.
pub(crate) fn skip_anyway(why: &str) {
    // Not `eprintln!`, which the test harness keeps to itself when a test passes.
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

impl Tool {
    /// A program at a place of its own.
    pub(crate) fn at(program: impl Into<PathBuf>) -> Option<Self> {
        let program = program.into();
        program.is_file().then(|| Self { program, variables: Vec::new() })
    }

    /// Where it is.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// Sets an environment variable for the client.
    pub(crate) fn variable(mut self, name: &str, value: impl Into<String>) -> Self {
        self.variables.push((name.to_owned(), value.into()));
        self
    }

    /// Runs the client in the server's local directory. It must succeed; answers what it printed.
    pub(crate) fn run(&self, server: &Server, arguments: &[&str]) -> String {
        self.run_with_input(server, arguments, "")
    }

    /// The same, with something to read for the client.
    pub(crate) fn run_with_input(&self, server: &Server, arguments: &[&str], input: &str) -> String {
        let output = self.attempt(server, arguments, input);
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(
            output.status.success(),
            "{} {arguments:?}: {}\n--- its output:\n{stdout}\n--- its errors:\n{stderr}",
            self.program.display(),
            output.status,
        );
        stdout.into_owned()
    }

    /// Runs the client, which may fail.
    pub(crate) fn attempt(&self, server: &Server, arguments: &[&str], input: &str) -> Output {
        let mut child = Command::new("timeout")
            .arg(SECONDS)
            .arg(&self.program)
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", server.home())
            .env("LC_ALL", "C.UTF-8")
            .env("TERM", "dumb")
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(server.local())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A client that ends without reading all of its input is not at fault.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap()
    }
}
