//! Settings in environment variables.

use super::*;

/// The configuration of these variables, and of flags and a file beside them.
fn load(folder: &Folder, variables: &[(&str, &str)], flags: &[&str], file: &str) -> Result<Site, Failure> {
    let path = folder.path().join("m.toml");
    fs::write(&path, file).unwrap();
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), value.into())).collect();
    open_with(written(flags), &variables, Some(&path))?.resolve(None)
}

#[test]
fn variables_stand_between_flags_and_file() {
    let folder = Folder::new();
    let variables =
        [("MILLRACE_GRACE", "2s"), ("MILLRACE_STALL_TIMEOUT", "9"), ("MILLRACE_FTP", "127.0.0.1:1, [::1]:2")];
    let file = "grace = 3\nstall-timeout = 3\nidle-timeout = 3\nftp = \"off\"\n";
    let site =
        load(&folder, &variables, &["--grace", "1"], file).unwrap_or_else(|failure| panic!("{failure}"));
    let Config { grace, stall_timeout, idle_timeout, ftp, .. } = site.config;
    assert_eq!([grace, stall_timeout, idle_timeout].map(|time| time.as_secs()), [1, 9, 3]);
    assert_eq!(ftp.len(), 2);
    let set = site.origins.iter().filter(|origin| origin.place != DEFAULT);
    let places: Vec<String> = set.map(|origin| format!("{} {}", origin.key, origin.place)).collect();
    assert_eq!(
        places,
        ["ftp MILLRACE_FTP", "idle-timeout line 3", "stall-timeout MILLRACE_STALL_TIMEOUT", "grace flag"]
    );
}

#[test]
fn secrets_are_read_from_files_and_never_shown() {
    let folder = Folder::new();
    let secret = folder.path().join("secret");
    fs::write(&secret, "alice:s3cret\nbob:pw:ro\n").unwrap();
    let path = secret.to_str().unwrap();
    let empty = folder.path().join("empty");
    fs::write(&empty, " \n").unwrap();
    let site = load(&folder, &[("MILLRACE_USER_FILE", path)], &[], "").unwrap();
    assert_eq!(logins(&site), "alice may read and write; bob may read");
    assert!(!format!("{:?}", site.origins).contains("s3cret"));
    for (variables, expected) in [
        (&[("MILLRACE_USER", "alice")][..], "MILLRACE_USER: write NAME:PASSWORD, "),
        (&[("MILLRACE_USER", "a:s3cret:x:y")], "MILLRACE_USER: what follows the password"),
        (
            &[("MILLRACE_USER_FILE", path), ("MILLRACE_USER", "a:b")],
            "MILLRACE_USER: MILLRACE_USER_FILE is set too",
        ),
        (
            &[("MILLRACE_USER_FILE", empty.to_str().unwrap())],
            "MILLRACE_USER_FILE: HERE/empty is empty; write the value into it",
        ),
        (&[("MILLRACE_USER_FILE", "/none")], "MILLRACE_USER_FILE: /none cannot be read: No such file"),
        (
            &[("MILLRACE_USERS", "a:s3cret")],
            "MILLRACE_USERS: this is the file of a database of users, and there is none of that name",
        ),
        (&[("MILLRACE_FTP", "2121")], "MILLRACE_FTP: \"2121\" is not an address with a port"),
        (&[("MILLRACE_WORKERS", "5000")], "MILLRACE_WORKERS: expected at most 1024: threads"),
        (
            &[("MILLRACE_FOLDER", "x")],
            "MILLRACE_FOLDER: [[folder]] tables can be written in a configuration file only.",
        ),
        (
            &[("MILLRACE_PASIVE_PORTS", "1")],
            "there is no setting MILLRACE_PASIVE_PORTS; did you mean MILLRACE_PASSIVE_PORTS?",
        ),
        (&[("MILLRACE_DIRECTORY", "/none")], "MILLRACE_DIRECTORY: the folder /none cannot be served"),
    ] {
        let error = folder.error(load(&folder, variables, &[], ""));
        assert!(error.starts_with(expected) && !error.contains("s3cret"), "{expected}\n{error}");
    }
}
