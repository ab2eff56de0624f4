//! Files of certificates and keys as OpenSSL makes them: which of them work, and the error messages for the others,
//! which name the file, the error and the remedy.

use std::fs;
use std::process::{Command, Output};

use super::{Site, has};

/// Keys in all of their forms, certificates, a chain of three, and what people have instead.
const MAKE: &str = r#"
own() { openssl req -x509 -days 30 -subj /CN=localhost -addext subjectAltName=DNS:localhost "$@"; }
issue() { # name, issuer, extensions
    openssl ecparam -name prime256v1 -genkey -noout -out "$1.key"
    openssl req -new -key "$1.key" -subj "/CN=$1" -out "$1.csr"
    echo "$3" > "$1.ext"
    openssl x509 -req -days 30 -in "$1.csr" -CA "$2.pem" -CAkey "$2.key" -CAcreateserial -extfile "$1.ext" -out "$1.pem"
}
own -newkey rsa:2048 -nodes -keyout rsa.key -out rsa.pem
openssl rsa -in rsa.key -traditional -out rsa.pkcs1
openssl ecparam -name prime256v1 -genkey -out ec.sec1
own -key ec.sec1 -out ec.pem
openssl pkcs8 -topk8 -nocrypt -in ec.sec1 -out ec.pkcs8
openssl genpkey -algorithm ED25519 -out ed.key
own -key ed.key -out ed.pem
cat ed.pem ed.key > both.pem
openssl ecparam -name secp521r1 -genkey -noout -out p521.key
own -key p521.key -out p521.pem

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -subj /CN=root -keyout root.key -out root.pem
issue upper root basicConstraints=critical,CA:true
issue lower upper basicConstraints=critical,CA:true
issue leaf lower subjectAltName=DNS:localhost
cat leaf.pem lower.pem upper.pem > chain.pem
cat lower.pem upper.pem leaf.pem > upside-down.pem
cat leaf.pem upper.pem lower.pem > shuffled.pem

openssl pkcs8 -topk8 -in ec.sec1 -passout pass:secret -out encrypted.key
openssl ec -in ec.sec1 -aes128 -passout pass:secret -out encrypted.old
openssl ecparam -name prime256v1 -out parameters.pem
openssl x509 -in ec.pem -outform DER -out cert.der
openssl pkey -in ec.sec1 -outform DER -out key.der
openssl pkcs12 -export -in ec.pem -inkey ec.sec1 -passout pass:secret -out store.p12
openssl req -new -key ec.sec1 -subj /CN=localhost -out request.pem
openssl pkey -in ec.sec1 -pubout -out public.pem
openssl x509 -in ec.pem -trustout -out trusted.pem
openssl crl2pkcs7 -nocrl -certfile ec.pem -out bundle.p7b
: > empty.pem
printf '\357\273\277' | cat - ec.pem > marked.pem
head -c 300 ec.pem > cut.pem
sed '3s/^..../$$$$/' ec.pem > damaged.pem
echo 'see the other folder' > words.pem
mkdir folder.pem

: > index.txt
echo 01 > crlnumber
printf '[ca]\ndefault_ca = own\n[own]\ndatabase = index.txt\ncrlnumber = crlnumber\ndefault_md = sha256\n' > ca.cnf
openssl ca -config ca.cnf -gencrl -keyfile root.key -cert root.pem -crl_lastupdate 20200101000000Z \
    -crl_nextupdate 20200201000000Z -out stale.crl
openssl ca -config ca.cnf -gencrl -keyfile root.key -cert root.pem -crldays 30 -out fresh.crl
"#;

impl Site {
    fn with_files(name: &str) -> Self {
        let site = Self::new(name);
        let made = Command::new("sh").args(["-ec", MAKE]).current_dir(&site.0).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        site
    }

    /// What `millrace check` makes of these keys about TLS.
    fn judge(&self, keys: &str) -> Output {
        fs::write(self.0.join("judged.toml"), format!("directory = \".\"\n{keys}")).unwrap();
        Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(["check", "judged.toml"])
            .current_dir(&self.0)
            .env("HOME", &self.0)
            .output()
            .unwrap()
    }

    /// Checks that a configuration is valid, and returns the output.
    #[track_caller]
    fn is_good(&self, keys: &str) -> String {
        let output = self.judge(keys);
        assert!(output.status.success(), "{keys}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

#[test]
fn keys_in_every_form_of_pem_can_be_used() {
    if !has("openssl", "version") {
        return;
    }
    let site = Site::with_files("forms");
    for (certificate, key) in [
        ("rsa.pem", "rsa.key"),
        ("rsa.pem", "rsa.pkcs1"),
        ("ec.pem", "ec.sec1"),
        ("ec.pem", "ec.pkcs8"),
        ("ed.pem", "ed.key"),
        ("both.pem", "both.pem"),
        ("chain.pem", "leaf.key"),
        ("leaf.pem", "leaf.key"),
    ] {
        let said = site.is_good(&format!("tls-cert = \"{certificate}\"\ntls-key = \"{key}\"\n"));
        assert!(!said.contains("warning: TLS"), "{certificate}, {key}: {said}");
    }
    site.is_good("tls-cert = \"both.pem\"\n");
}

#[test]
fn unusable_files_are_named_with_a_remedy() {
    if !has("openssl", "version") {
        return;
    }
    let site = Site::with_files("refused");
    let identity =
        |certificate: &str, key: &str| format!("tls-cert = \"{certificate}\"\ntls-key = \"{key}\"\n");
    let clients = |keys: &str| identity("ec.pem", "ec.sec1") + keys;
    for (keys, file, words) in [
        (identity("ec.pem", "rsa.key"), "rsa.key", "does not belong to the certificate"),
        (identity("ec.pem", "encrypted.key"), "encrypted.key", "is encrypted, and a server cannot ask"),
        (identity("ec.pem", "encrypted.old"), "encrypted.old", "openssl pkey -in OLD -out NEW"),
        (identity("ec.pem", "parameters.pem"), "parameters.pem", "the name of a curve (EC PARAMETERS)"),
        (identity("cert.der", "ec.sec1"), "cert.der", "openssl x509 -inform DER -in OLD -out NEW"),
        (identity("ec.pem", "key.der"), "key.der", "openssl pkey -inform DER -in OLD -out NEW"),
        (identity("key.der", "ec.sec1"), "key.der", "it is a private key in DER, and no certificate"),
        (identity("store.p12", "ec.sec1"), "store.p12", "openssl pkcs12 -in OLD -nodes -out NEW"),
        (identity("ec.sec1", "ec.pem"), "ec.sec1", "the files of certificate and key may have been swapped."),
        (identity("ec.pem", "ec.pem"), "ec.pem", "a certificate in it, and no private key"),
        (identity("empty.pem", "ec.sec1"), "empty.pem", "it is empty"),
        (identity("ec.pem", "empty.pem"), "empty.pem", "it is empty"),
        (identity("upside-down.pem", "leaf.key"), "upside-down.pem", "belongs to certificate 3 in it"),
        (identity("missing.pem", "ec.sec1"), "missing.pem", "there is no such file"),
        (identity("ec.pem", "missing.key"), "missing.key", "there is no such file"),
        (identity("folder.pem", "ec.sec1"), "folder.pem", "it is a folder"),
        (identity("p521.pem", "p521.key"), "p521.key", "RSA of 2048 to 4096 bits, P-256, P-384, Ed25519"),
        (identity("request.pem", "ec.sec1"), "request.pem", "name the certificate that a CA has made of it"),
        (identity("ec.pem", "public.pem"), "public.pem", "a public key in it, and no private key"),
        (identity("trusted.pem", "ec.sec1"), "trusted.pem", "openssl x509 -in OLD -out NEW"),
        (identity("bundle.p7b", "ec.sec1"), "bundle.p7b", "openssl pkcs7 -print_certs -in OLD -out NEW"),
        (identity("marked.pem", "ec.sec1"), "marked.pem", "byte order mark"),
        (identity("cut.pem", "ec.sec1"), "cut.pem", "-----END CERTIFICATE----- is missing"),
        (identity("damaged.pem", "ec.sec1"), "damaged.pem", "something else than base64"),
        (identity("words.pem", "ec.sec1"), "words.pem", "it would begin with -----BEGIN CERTIFICATE-----"),
        (clients("tls-client-ca = \"missing.pem\"\n"), "missing.pem", "there is no such file"),
        (clients("tls-client-ca = \"root.key\"\n"), "root.key", "a private key in it, and no certificate"),
        (
            clients("tls-client-ca = \"root.pem\"\ntls-client-crl = \"root.pem\"\n"),
            "root.pem",
            "there is a certificate in it, and no revocation list",
        ),
        (
            clients("tls-client-ca = \"root.pem\"\ntls-client-crl = \"empty.pem\"\n"),
            "empty.pem",
            "it is empty",
        ),
    ] {
        let output = site.judge(&keys);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{keys}: {said}");
        // Where it was written, besides.
        assert!(said.contains("judged.toml:"), "{keys}: {said}");
        let place = said.find(&format!("./{file}")).unwrap_or_else(|| panic!("{keys}: {said}"));
        assert!(said[place..].contains(words), "{keys}: {said}");
    }
}

#[test]
fn problems_for_clients_are_warnings() {
    if !has("openssl", "version") {
        return;
    }
    let site = Site::with_files("doubtful");
    let said = site.is_good("tls-cert = \"shuffled.pem\"\ntls-key = \"leaf.key\"\n");
    assert!(
        said.contains("warning: TLS: the chain in ") && said.contains("shuffled.pem is out of order"),
        "{said}"
    );
    for (list, is_stale) in [("stale.crl", true), ("fresh.crl", false)] {
        let keys = format!(
            "tls-cert = \"ec.pem\"\ntls-key = \"ec.sec1\"\ntls-client-ca = \"root.pem\"\ntls-client-crl = \"{list}\"\n"
        );
        let said = site.is_good(&keys);
        assert_eq!(said.contains("warning: TLS: the revocation list in "), is_stale, "{said}");
        assert_eq!(said.contains("days ago (nextUpdate)"), is_stale, "{said}");
    }
}
