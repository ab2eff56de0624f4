//! Row 6: what dklimits and `free` told of a machine.

use super::site::Folder;

#[test]
fn limits_tells_memory_explicit_ports_and_nonblocking_connects() {
    let folder = Folder::new("limits");
    let told = folder.tell(&["limits"]);
    let value = |name: &str| -> String {
        let line = told.lines().find_map(|line| line.trim_start().strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name}: {told}")).trim_start().to_owned()
    };
    let number = |name: &str| -> u64 {
        let value = value(name);
        let number = value.trim_start_matches("at least ").split(' ').next().unwrap();
        number.parse().unwrap_or_else(|_| panic!("{name}: {value}"))
    };
    assert!(number("MemTotal") >= number("MemFree"));
    assert!(value("MemAvailable").contains(" MiB "));
    assert!(number("TCP ports (bind to each)") > 10_000);
    assert!(number("nonblocking connects") > 100);
    for kept in
        ["descriptors (dup)", "TCP ports (bind to 0)", "poll", "fs.file-nr", "net.ipv4.ip_local_port_range"]
    {
        value(kept);
    }
}
