//! Node's basic-ftp, where npm can fetch it.

use crate::server::{PASSWORD, Server, USER};
use crate::tool::{find, skip_anyway, tool};
use crate::tree::{ODD_NAMES, Times, assert_same, make};

/// The version that these tests were written with.
pub(crate) const PACKAGE: &str = "basic-ftp@5.0.5";

/// Up with a tree, down with it again, and what else a script does.
const SCRIPT: &str = r#"
import { Client } from "basic-ftp"
import { Readable } from "node:stream"
import assert from "node:assert"
const [host, port, user, password] = process.argv.slice(2)
const client = new Client(30000)
await client.access({ host, port: Number(port), user, password })
await client.uploadFromDir("tree", "up")
await client.downloadToDir("back", "up")
await client.ensureDir("/some/where deep")
await client.uploadFrom(Readable.from(["one "]), "f")
await client.appendFrom(Readable.from(["two"]), "f")
assert.equal(await client.size("f"), 7)
assert.equal(await client.pwd(), "/some/where deep")
await client.rename("f", "g")
assert.deepEqual((await client.list()).map((entry) => entry.name), ["g"])
await client.lastMod("g")
await client.cd("/")
await client.removeDir("some")
await assert.rejects(client.size("some/g"), /550/)
client.close()
"#;

/// Fetches a package into the server's local directory; answers whether it is there.
pub(crate) fn install(server: &Server, package: &str) -> bool {
    let Some(npm) = find("npm") else { return false };
    let cache = std::env::temp_dir().join("millrace-npm-cache");
    let install = [
        "install",
        "--no-audit",
        "--no-fund",
        "--prefer-offline",
        "--cache",
        cache.to_str().unwrap(),
        package,
    ];
    let npm =
        ["npm_config_registry", "NPM_CONFIG_REGISTRY", "HTTPS_PROXY", "https_proxy", "NODE_EXTRA_CA_CERTS"]
            .into_iter()
            .filter_map(|name| Some((name, std::env::var(name).ok()?)))
            .fold(npm, |npm, (name, value)| npm.variable(name, value));
    npm.attempt(server, &install, "").status.success()
}

#[test]
fn basic_ftp_moves_a_tree_both_ways() {
    let Some(node) = tool("node") else { return };
    let server = Server::start();
    if !install(&server, PACKAGE) {
        return skip_anyway("npm is not installed, or cannot fetch basic-ftp");
    }
    let tree = server.local().join("tree");
    make(&tree, 60, &ODD_NAMES);
    std::fs::write(server.local().join("session.mjs"), SCRIPT).unwrap();
    let (host, port) = (server.address.ip().to_string(), server.address.port().to_string());
    node.run(&server, &["session.mjs", &host, &port, USER, PASSWORD]);
    assert_same(&tree, &server.served().join("up"), Times::Ignored);
    assert_same(&tree, &server.local().join("back"), Times::Ignored);
    assert!(!server.served().join("some").exists());
}
