//! Row 4's mend: `HOST` with an address of the server, which RFC 7151 has clients send that know no name.

use super::site::{Client, Site};

#[test]
fn host_takes_the_servers_own_address_also_where_there_is_tls() {
    let site = Site::start("host", "tls-self-signed = true\ntls-names = [\"files.test\"]");
    for (name, code) in [
        ("127.0.0.1", "220"),
        ("files.test", "220"),
        ("192.0.2.1", "504"),
        ("[2001:db8::1]", "504"),
        ("other.test", "504"),
    ] {
        let mut client = Client::connect(&site.ftp);
        client.say(&format!("HOST {name}"), code);
        client.log_in("bob");
        client.say("PWD", "257");
    }
}
