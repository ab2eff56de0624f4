//! Every example of `docs/tls.md`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use millrace_server::config::self_signed;

const TEXT: &str = include_str!("../../../docs/tls.md");

/// A folder with the files that the examples name; it goes with the test.
struct Site(PathBuf);

impl Site {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("millrace-tls-document-{}", std::process::id()));
        let made = self_signed(&folder, &["localhost".to_owned()]).unwrap();
        for name in ["cert.pem", "other.pem"] {
            fs::copy(&made.certificate, folder.join(name)).unwrap();
        }
        for name in ["key.pem", "other.key"] {
            fs::copy(&made.key, folder.join(name)).unwrap();
        }
        Self(folder)
    }

    fn check(&self, arguments: &[&str]) {
        let output = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .arg("check")
            .args(arguments)
            .current_dir(&self.0)
            .env("HOME", &self.0)
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn blocks(kind: &str) -> Vec<&'static str> {
    let fence = format!("```{kind}\n");
    TEXT.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

#[test]
fn every_example_is_a_configuration() {
    let site = Site::new();
    let examples = blocks("toml");
    assert!(examples.len() >= 5, "{examples:?}");
    for example in examples {
        fs::write(site.0.join("example.toml"), example).unwrap();
        site.check(&["example.toml"]);
    }
}

#[test]
fn every_key_about_tls_is_explained() {
    let keys = include_str!("../../../docs/configuration.md").lines();
    let keys = keys.filter_map(|line| line.strip_prefix("| `tls-")?.split('`').next());
    let missing: Vec<&str> = keys.filter(|key| !TEXT.contains(&format!("tls-{key}"))).collect();
    assert!(missing.is_empty(), "docs/tls.md lacks {missing:?}");
}
