//! `packaging/kubernetes`: by the schemas of Kubernetes, and as Millrace and HAProxy read their parts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn manifest() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/kubernetes/millrace.yaml")
}

/// Runs a program that has to be there when `./test` runs this.
fn run(command: &mut Command) -> Option<Output> {
    match command.output() {
        Err(error) if std::env::var_os("MILLRACE_REQUIRE_CLIENTS").is_none() => {
            eprintln!("left out: {command:?}: {error}");
            None
        }
        output => Some(output.unwrap()),
    }
}

fn told(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

#[test]
fn each_part_is_what_kubernetes_expects() {
    let Some(output) = run(Command::new("kubernetes-validate").arg("--strict").arg(manifest())) else {
        return;
    };
    assert!(output.status.success(), "{}", told(&output));
    let text = fs::read_to_string(manifest()).unwrap();
    let parts = text.split("\n---\n").count();
    assert_eq!(told(&output).matches(" passed for resource ").count(), parts);
    let wrong = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wrong.yaml");
    fs::write(&wrong, text.replace("maxUnavailable", "maxUnavailible")).unwrap();
    let output = run(Command::new("kubernetes-validate").arg("--strict").arg(wrong)).unwrap();
    assert!(!output.status.success(), "a wrong name is noticed");
}

/// Returns a file that a ConfigMap has.
fn file_of(name: &str) -> String {
    let text = fs::read_to_string(manifest()).unwrap();
    let (_, part) = text.split_once(&format!("  {name}: |\n")).unwrap();
    let (part, _) = part.split_once("\n---\n").unwrap();
    part.lines().map(|line| format!("{}\n", line.strip_prefix("    ").unwrap_or(line))).collect()
}

/// Returns the variables of the image and, for the pod of an index, of the manifest.
fn variables(index: usize) -> Vec<(String, String)> {
    let image = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/container/config.json");
    let image: serde_json::Value = serde_json::from_slice(&fs::read(image).unwrap()).unwrap();
    let of_image = image["Env"].as_array().unwrap().iter().map(|line| {
        let (name, value) = line.as_str().unwrap().split_once('=').unwrap();
        (name.to_owned(), value.to_owned())
    });
    let text = fs::read_to_string(manifest()).unwrap().replace("$(POD_INDEX)", &index.to_string());
    let of_manifest = text.lines().filter_map(|line| {
        let (name, value) = line.trim().strip_prefix("- { name: MILLRACE_")?.split_once(", value: ")?;
        Some((format!("MILLRACE_{name}"), value.trim_end_matches(" }").trim_matches('"').to_owned()))
    });
    of_image.chain(of_manifest).collect()
}

/// Each pod has its own passive ports, and all of them have the same file. Only folders and the network are others here.
#[test]
fn millrace_reads_its_part_in_each_pod() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kubernetes");
    let place = |name: &str| folder.join(name).display().to_string();
    for name in ["srv", "state", "run", "secret"] {
        fs::create_dir_all(place(name)).unwrap();
    }
    fs::write(place("secret/database"), "change-me\n").unwrap();
    fs::write(place("secret/user"), "alice:change-me:rw\n").unwrap();
    let here = |text: &str| {
        text.replace("/run/secrets/millrace", &place("secret"))
            .replace("/run/millrace", &place("run"))
            .replace("/var/lib/millrace", &place("state"))
            .replace("/srv", &place("srv"))
            .replace("10.244.0.0/16", "127.0.0.0/8")
    };
    let file = place("millrace.toml");
    fs::write(&file, here(&file_of("millrace.toml"))).unwrap();
    for index in 0..10 {
        let variables = variables(index).into_iter().map(|(name, value)| (name, here(&value)));
        let mut check = Command::new(env!("CARGO_BIN_EXE_millrace"));
        let output = check.arg("check").arg(&file).envs(variables).output().unwrap();
        let told = told(&output);
        assert!(output.status.success(), "{told}");
        for part in
            [&*format!("50{index}00-50{index}99"), "with a lease of 6 seconds", "alice", "0.0.0.0:9121"]
        {
            assert!(told.contains(part), "{part}: {told}");
        }
    }
}

#[test]
fn haproxy_reads_its_part() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("haproxy.cfg");
    fs::write(&file, file_of("haproxy.cfg")).unwrap();
    let mut haproxy = Command::new("/usr/sbin/haproxy");
    let Some(output) = run(haproxy.arg("-c").arg("-f").arg(&file).env("NAMESPACE", "files")) else { return };
    assert!(output.status.success(), "{}", told(&output));
}
