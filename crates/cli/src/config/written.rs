//! The keys of the top level: what flags, environment variables and the file say, before it is resolved.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use millrace_server::Network;
use millrace_server::config::{AccessFormat, Challenge, ForwardingField, Resumption};
use millrace_server::limits::{Limit, RateLimit};

use super::cluster::ClusterTable;
use super::folders::FolderTable;
use super::hooks::HookTable;
use super::hosts::HostTable;
use super::limits::{ClassTable, ListenerTable};
use super::logins::{GroupTable, UserList};
use super::notices::NoticeTable;
use super::oidc::OidcTable;
use super::otlp::OtlpTable;
use super::proxy_routes::ProxyTable;
use super::setting::{default, settings, unset};
use super::slot::{Many, Map, One};
use super::sources::SourceTable;
use super::value::{
    Anonymous, Count, Durability, Line, Listen, LogFormat, Period, Ports, Redirect, Sandbox, Switch,
    TlsRequired, UploadHash, Uploads,
};
use super::web::{CorsTable, ErrorPageTable, HeaderTable};

settings! {
    /// What was written, in the order of the help and of `docs/configuration.md`.
    // The comments are Markdown for that page, where `[::]` is an address.
    #[allow(rustdoc::broken_intra_doc_links)]
    Written of "" {
        "Files" {
            /// The folder to serve
            ///
            /// Nothing outside it can be reached, neither by `..` nor by a symbolic link.
            directory: One<PathBuf> =
                default(".").positional("DIR").aliases(&["root", "path", "dir", "document-root", "share"]);
            /// How uploads are written
            ///
            /// `"staged"`: an upload is written beside its name, and gets the name once it is complete, so that
            /// a name shows the old file or all of the new one. `"in-place"`: the file itself is written to;
            /// faster, but an upload that is cut leaves the part that came. Resumed (`REST`) and appended
            /// (`APPE`) uploads are always in place; in an encrypted [folder](folders.md#encryption-at-rest)
            /// none is.
            uploads: One<Uploads> = default("staged").flag("staged|in-place");
            /// What an acknowledged change survives
            ///
            /// `"none"`: a crash of the server. `"whole"`: also a power cut, as far as no acknowledged file is
            /// empty or half after it; its name may be lost. `"full"`: a power cut loses nothing that was
            /// acknowledged. The [guide](guide.md#choose-what-survives-a-power-cut) has a table.
            durability: One<Durability> = default("whole").flag("none|whole|full");
            /// What uploads are hashed by as their bytes pass
            ///
            /// The hash is stored with the file, and told by `HASH`, `XCRC` and their kin, the fact `x.hash`,
            /// `Repr-Digest`, hooks and logs without reading the file; `millrace verify` finds what has decayed since.
            /// `"crc32"`, `"crc32c"`, `"md5"`, `"sha1"`, `"sha256"`, `"sha512"`, `"blake3"`, or several:
            /// `["sha256", "crc32"]`. `"none"`: large uploads in clear then go to the file without passing through
            /// this program. The [guide](guide.md#know-what-a-file-was-when-it-came) has what each costs, and what
            /// is not hashed.
            upload_hash: Many<UploadHash> = default("none").flag("KIND");
            /// Bytes of memory for parts of uploads to buckets, and for what downloads from them fetch ahead
            ///
            /// An upload of more than 64 KiB takes 5 MiB or more; others wait where no memory is left.
            part_memory: One<Count> = default("256Mi").positive();
            /// Sort listings of up to this many entries
            ///
            /// Larger folders come in the order of the file system, so that memory stays flat and the first
            /// line comes at once. This holds for `LIST`, `NLST` and `STAT`, which sort by name; `MLSD` is never
            /// sorted. [Pages of HTTP](http.md#pages-of-folders) have this number of entries each. 0 sorts nothing.
            list_sort: One<Count> = default("2048").flag("N").restart() => sort_entries;
            /// Other places that users see in the tree, each a `[[folder]]` table as below
            folder: Vec<FolderTable> = unset("no others");
            /// Whether a folder `x` can be read as `x.tar`, `x.tar.gz`, `x.tgz` and `x.zip`, made while they
            /// are sent
            archives: One<Switch> = default("false");
            /// Whether FTP also sends a file `x` as `x.gz`, `x.zst` and `x.Z`, and such a file as `x`, each
            /// [converted](folders.md#files-in-other-forms) while it is sent
            conversions: One<Switch> = default("false");
            /// Whether FTP shows the lines of the file `.message`, and names a `README`, when a client logs in
            /// or enters a directory; once a session. The lines may have the cookies of `greeting-file`.
            messages: One<Switch> = default("false").restart() => messages;
        }
        "Network" {
            /// Where to serve FTP, or `"off"`
            ///
            /// An address with a port, or a name that the system resolves at the start: `"localhost:2121"`. The
            /// default is reachable from this computer only. To open it to the network: `"0.0.0.0:2121"`, and
            /// `"[::]:2121"` for IPv6. There may be more than one. Port 0 takes a free port; the one it got
            /// is printed.
            ftp: Many<Listen> =
                default("127.0.0.1:2121").flag("ADDR:PORT").restart().aliases(&["port", "listen", "listen-port", "bind", "address"]);
            /// Where to serve HTTP, or `"off"`
            ///
            /// An address with a port. The same files and users, for browsers. There may be more than one. Port 0 takes a free port;
            /// the one it got is printed. Where this is not set, a free port is also taken if another program
            /// has the default port, or if `ftp` asks for a free port. Names and passwords are accepted from
            /// this computer only, as they are not encrypted; not at all where `tls-required` is set.
            http: Many<Listen> =
                default("127.0.0.1:8080").flag("ADDR:PORT").restart().aliases(&["web", "listen-http"]);
            /// A folder in `directory` whose files are programs that HTTP runs (CGI), such as `cgi-bin`
            ///
            /// There may be more than one. See [HTTP](http.md). All who may read there by HTTP may run the
            /// programs, with the rights of the user that runs this server; only trusted users should be able
            /// to write there. Their standard error goes to the log.
            cgi: Many<PathBuf> = unset("none").flag("FOLDER").restart();
            /// CGI programs that may run at once; further requests wait
            cgi_processes: One<Count> = default("64").positive().restart() => programs.most;
            /// Time limit of a CGI program, from the request to the end of its answer; then it and its children are ended
            cgi_timeout: One<Period> = default("5m").positive().restart() => programs.time;
            /// Processor time that a program may take, in whole seconds: of CGI, of a hook, of one that decides
            /// logins. Then the kernel ends it. 0: no limit.
            program_cpu: One<Period> = default("0").restart();
            /// Bytes of memory (address space) that a program may have: `"512Mi"`. 0: no limit.
            program_memory: One<Count> = default("0").restart();
            /// Processes and threads at most of the user that the server runs as, its own included, before a
            /// program can start no more. The kernel does not apply it to root. 0: no limit.
            program_processes: One<Count> = default("0").restart();
            /// Ports for passive data connections
            ///
            /// Open them in the firewall, with the port of `ftp`. No other port is ever used. One is enough
            /// (`"50000"`): clients that share an address then take turns. FTPS sessions that resume TLS with a
            /// ticket of their own can use the port at the same time.
            passive_ports: One<Ports> =
                default("50000-50999").flag("A-B").restart().aliases(&["pasv-ports", "pasv-min-port", "passive-port-range", "passive-port"]);
            /// Paths of HTTP that are passed on, to FastCGI or HTTP servers, each a `[[proxy]]` table as below
            proxy: Vec<ProxyTable> = unset("nothing is passed on").restart();
            /// Whether interrupted uploads by HTTP can be resumed (tus 1.0): see
            /// [HTTP](http.md#uploads-that-go-on-tus)
            tus: One<Switch> = default("true").restart();
            /// How long an interrupted upload is kept
            tus_expire: One<Period> = default("1d").positive().restart();
            /// The IPv4 address that `PASV` tells clients, for a server behind NAT
            ///
            /// An address, not a name. `EPSV` needs none, so clients that use it are served even where the
            /// address changes.
            public_ip: One<Ipv4Addr> =
                unset("the address that the client reached").flag("ADDR").restart().aliases(&["pasv-address", "masquerade-address", "external-ip"]) => public_ip;
            /// Networks of proxies, one or an array, that tell the address of their client (PROXY protocol,
            /// versions 1 and 2). A connection from there without it is refused. See
            /// [limits.md](limits.md#behind-a-proxy).
            proxy_from: Many<Network> = unset("none") => proxy_from;
            /// Networks of proxies, one or an array, that pass requests of HTTP on and name their client in `Forwarded` or
            /// `X-Forwarded-For`. See [http.md](http.md#behind-a-proxy).
            trusted_proxies: Many<Network> = unset("none").restart() => trusted_proxies.networks;
            /// The field in which `trusted-proxies` name their client: `"x-forwarded-for"`, with `X-Forwarded-Proto`, or
            /// `"forwarded"` (RFC 7239). The other one is not read, as it may be the client's own.
            trusted_proxies_field: One<ForwardingField> = default("x-forwarded-for").restart() => trusted_proxies.field;
            /// Whether `PORT` may name another host than the client's own, for transfers from server to server
            /// (FXP). Clients can then use this server to connect to third parties: see RFC 2577.
            foreign_data: One<Switch> = default("false").restart() => foreign_data;
            /// Whether clients may have transfers compressed (`MODE Z`). **lftp does by itself wherever it may,
            /// and loses entries of listings longer than 128 KiB then** (4.9.2; some 1200 names): its mirrors
            /// lack files, and `mirror --delete` removes them. `set ftp:use-mode-z no` in lftp spares it that.
            /// On a fast network compressing takes longer than sending, and costs the server a processor. A
            /// file that does not shrink is sent as it is, nearly: one piece in seventeen is tried. Limits,
            /// quotas and logs count the bytes that are sent.
            mode_z: One<Switch> = default("false").restart() => mode_z;
            /// Whether the two replies to a small download may share a packet
            ///
            /// The file's bytes may then be sent before the 150 that announces them. Turn it off for a client
            /// that cannot handle that.
            coalesce: One<Switch> = default("true").flag("on|off").restart() => coalesce;
            /// Sessions at most; the next client is told 421. 0: as many as the limit of open files allows. May
            /// have a [schedule](limits.md), as the next two.
            sessions: One<Limit> =
                default("0").restart().aliases(&["max-clients", "max-connections"]) => sessions;
            /// Sessions at most from one address. 0: no limit. Where nothing is set an address may have a
            /// quarter of all sessions, and at least 16; the loopback address any number. Name proxies in
            /// `proxy-from`, so that their clients are counted by themselves, or set a number.
            sessions_per_address: One<Limit> =
                unset("a quarter of all").restart().aliases(&["max-per-ip", "max-clients-per-ip"]) => sessions_per_address;
            /// Sessions at most from one network. 0: no limit.
            sessions_per_network: One<Limit> = default("0").restart() => sessions_per_network;
            /// How many bits of an IPv4 address are its network's, for `sessions-per-network` and
            /// `logins-per-network`
            network_bits_ipv4: One<Count> =
                default("24").positive().at_most(32, "bits of the network").restart() => network_bits.ipv4;
            /// How many bits of an IPv6 address are its network's, likewise
            network_bits_ipv6: One<Count> =
                default("56").positive().at_most(128, "bits of the network").restart() => network_bits.ipv6;
            /// A socket for `millrace ctl`, which queries and controls the running server
            ///
            /// Only its owner may open it. `"off"`: none. Where it is not set the socket lies in the runtime folder of
            /// the server's user, and `millrace ctl` finds it there. See [limits.md](limits.md#while-the-server-runs).
            control: One<PathBuf> = unset("in `/run/millrace` or the like").flag("FILE").restart();
            /// Where to serve health checks and metrics by HTTP, such as `"127.0.0.1:9121"`
            ///
            /// `/healthz`, `/readyz`, and `/metrics` for Prometheus, without a password and without TLS: an address that
            /// other computers reach is warned of. There may be more than one. See [metrics.md](metrics.md). The
            /// [admin API](admin-api.md) is there, too, for those who have a token or a role.
            admin: Many<Listen> = default("off").flag("ADDR:PORT").restart();
            /// Whether that is HTTPS, with the certificate of `tls-cert`
            ///
            /// Passwords are then taken from other computers, too, and a certificate of `tls-client-ca` may show who
            /// calls. The line `agent` of load balancers stays in clear.
            admin_tls: One<Switch> = default("false").restart();
            /// Users that may see sessions, limits, bans and the log by the admin API: `["ann", "group staff"]`
            ///
            /// With `admin-tls` also clients whose certificate has a name: `"certificate grafana.example.net"`. With
            /// `[admin-oidc]` also users of the provider: `"oidc group staff"`, `"oidc email ann@example.net"`.
            admin_viewers: Many<String> = unset("none");
            /// Users that may also end sessions, set limits, ban, reload and drain
            admin_operators: Many<String> = unset("none");
            /// Users that may also change users, tokens and the configuration, upgrade and stop
            admin_administrators: Many<String> = unset("none");
            /// Whether the admin API may replace the configuration file, whose folder the sandbox then grants
            admin_writes_config: One<Switch> = default("false").restart();
            /// Names that the admin API is reached by, beside `localhost` and the server's addresses: that of a proxy
            /// in front of it
            admin_hosts: Many<String> = unset("none");
            /// A provider of OpenID Connect whose users may use the admin API: the `[admin-oidc]` table
            admin_oidc: Vec<OidcTable> = unset("none");
            /// The user to run as, once ports are bound and keys are read: USER or USER:GROUP
            ///
            /// For a server that root starts: all of root's rights are given up for good. Numbers are taken, too. See
            /// [confinement.md](confinement.md#the-user).
            run_as: One<String> = unset("none").flag("USER").restart();
            /// Whether the server is confined to its files (Landlock) and system calls (seccomp)
            ///
            /// `"on"`: as far as the kernel can. `"required"`: in full, or it does not start. `"off"`: not. Hooks and CGI
            /// programs run outside. See [confinement.md](confinement.md#the-sandbox).
            sandbox: One<Sandbox> = default("on").flag("on|off|required").restart();
            /// Folders and files that the server may read and write besides, for folders that a later reload is to
            /// serve
            sandbox_paths: Many<PathBuf> = unset("none").restart();
            /// Threads that serve connections; 0: one for each core
            workers: One<Count> =
                default("0").flag("N").at_most(1024, "threads, and one for each core is best").restart().aliases(&["threads"]) => workers;
            /// Threads at most for what may wait: slow disks, and a quarter as many again for what takes long
            /// (hashes and copies of files, walks over trees), and for listings by FTP. They exist only while
            /// they are needed.
            blocking_threads: One<Count> = default("256").positive().restart() => blocking_threads;
            /// Hooks that run at a time at most; each may be a program
            hook_threads: One<Count> = default("32").positive().restart() => hook_threads;
            /// A file, which is made if it is not there: an SQLite database in which events are kept until they
            /// are delivered to the hooks for which no session waits
            hooks_queue: One<PathBuf> = unset("none");
            /// The text of the first reply, one line
            greeting: One<Line> =
                default("Millrace ready.").restart().aliases(&["banner", "ftpd-banner"]) => greeting;
            /// A file whose lines come before that. In it, in the next two, and in the lines of `messages`, `%T` is the time (UTC), `%R` the client's address, `%L` the server's, `%U` the
            /// user, `%u` the user that RFC 1413 would name (`[unknown]`), `%N` the number of sessions, `%M` the most
            /// there may be (behind a login those of the session's class, if it is in one; in `limit-file` those of the limit), `%E` `contact`, `%C` the directory, `%F` the free kilobytes there, `%%` a percent sign.
            greeting_file: One<PathBuf> = unset("none");
            /// A file whose lines are told behind a login
            welcome_file: One<PathBuf> = unset("none");
            /// A file whose lines are told to a client that a limit on sessions turns away
            limit_file: One<PathBuf> = unset("none").aliases(&["limit-message"]);
            /// The mail address of the administrator, for `%E`
            contact: One<Line> = unset("none").aliases(&["server-admin", "email"]);
        }
        "Answers of HTTP" {
            /// Names of files that are sent in place of the page of their folder: the first that is there. A
            /// script of a `[[proxy]]` answers. `"off"`: none.
            index: Many<String> = default("[\"index.html\", \"index.htm\"]");
            /// A table `[mime]` of media types by the ends of names, before those that are known: `md =
            /// "text/plain; charset=utf-8"`. `""` stands for names without a dot.
            mime: Map<String> = unset("those that are known");
            /// Whether `a.css.br`, `a.css.zst` or `a.css.gz` is sent in place of `a.css` to clients that take
            /// it, where it is not older
            http_precompressed: One<Switch> = default("false") => web.precompressed;
            /// Whether answers have `X-Content-Type-Options: nosniff`, `X-Frame-Options: SAMEORIGIN` and
            /// `Referrer-Policy: same-origin`, where no `[[header]]` table says otherwise
            http_security_headers: One<Switch> = default("true");
            /// Whether files are sent with `Content-Security-Policy: sandbox` and `X-Content-Type-Options:
            /// nosniff`, so that a browser runs no script of an uploaded file; see
            /// [HTTP](http.md#files-of-users-in-browsers). A `[[header]]` table that names the field decides
            /// for its files.
            http_sandbox: One<Switch> = unset("`true` where anybody may write");
            /// For how long browsers use HTTPS only (`Strict-Transport-Security`, sent over HTTPS): `"365d"`.
            /// 0: the field is not sent.
            http_hsts: One<Period> = default("0");
            /// Whether requests by HTTP are sent on to HTTPS: see [http.md](http.md#https-for-all). A number is
            /// the port that clients reach it at, where that is another than the one it listens at.
            https_redirect: One<Redirect> = default("false");
            /// The size in bytes up to which a file is hashed when a client asks for a digest. 0: only files of a
            /// few kilobytes are hashed.
            http_digest: One<Count> = default("1Gi") => web.digest_bytes;
            /// A file of keys that links which expire are signed with, one a line, the newest first; each of at
            /// least 32 characters. Read again at a reload: see [http.md](http.md#links-that-expire).
            http_link_keys: One<PathBuf> = unset("none");
            /// An origin of this server at which browsers open files, in place of that to which users log in:
            /// `"https://downloads.example.net"`. It answers signed links only, and needs `http-link-keys`. See
            /// [HTTP](http.md#files-of-users-in-browsers).
            http_download_origin: One<String> = unset("none");
            /// Names under which other folders are served, by HTTP and FTP, each a `[[host]]` table as below
            host: Vec<HostTable> = unset("none");
            /// Fields of answers, each rule a `[[header]]` table as below
            header: Vec<HeaderTable> = unset("none");
            /// What pages of other origins may do, each rule a `[[cors]]` table as below
            cors: Vec<CorsTable> = unset("none");
            /// Pages of errors, each an `[[error-page]]` table as below
            error_page: Vec<ErrorPageTable> = unset("our own");
        }
        "TLS" {
            /// The server's certificate in PEM, followed by its intermediate certificates; enables TLS
            ///
            /// There may be more than one: clients get the certificate for the name that they ask for, by SNI
            /// or `HOST`, else the first. Files that change are read again within seconds, and on SIGHUP;
            /// sessions continue.
            tls_cert: Many<PathBuf> =
                unset("none").flag("FILE").aliases(&["cert", "certificate", "ssl-cert", "rsa-cert-file"]);
            /// The certificate's private key in PEM
            ///
            /// RSA, P-256, P-384 or Ed25519. As many as certificates, in the same order.
            tls_key: Many<PathBuf> =
                unset("in the same file").flag("FILE").aliases(&["key", "ssl-key", "rsa-private-key-file"]);
            /// Make a self-signed certificate for a first try, and keep it in `state`
            ///
            /// Clients ask whether to trust its fingerprint, which is printed when the server starts.
            tls_self_signed: One<Switch> = default("false").switch();
            /// Fetch a certificate for this name from Let's Encrypt, and renew it (ACME)
            ///
            /// There may be more than one name. The CA connects to port 80 of the name, which has to lead to
            /// `http`; or to port 443, if there is only `https`. Until the certificate is there, clients get
            /// one that no CA signed. See [tls.md](tls.md#a-certificate-that-the-server-fetches-itself).
            acme: Many<String> = unset("none").flag("DOMAIN");
            /// Agree to the terms of service of the CA of `acme`
            acme_agree: One<Switch> = default("false").switch();
            /// Mail addresses at which the CA can reach you, one or an array
            acme_contact: Many<String> = unset("none");
            /// The URL of the CA's directory. Account and certificate of each are in a folder of its own, in
            /// `acme` in the folder `state`.
            acme_directory: One<String> = default("https://acme-v02.api.letsencrypt.org/directory");
            /// Certificates, in PEM, that the directory's own has to be signed by: for a CA of your own
            acme_ca: One<PathBuf> = unset("what browsers trust");
            /// How the CA checks who controls the names: `"http-01"`, by HTTP at port 80, or `"tls-alpn-01"`,
            /// by TLS at port 443. Where it is not set, the second where only `https` is at its usual port, or
            /// there is no `http`; else the first.
            acme_challenge: One<Challenge> = unset("by the ports that are served");
            /// The names and addresses in a certificate that is made
            tls_names: Many<String> = unset("`localhost`, the computer's name, `public-ip`");
            /// The folder for files that the server makes and keeps, such as certificates
            ///
            /// Under systemd it is the unit's `StateDirectory`, elsewhere `$XDG_STATE_HOME/millrace` if that is set.
            state: One<PathBuf> = unset("`~/.local/state/millrace`").flag("DIR").restart();
            /// What has to be encrypted
            ///
            /// `"login"`: names and passwords are accepted under TLS only. `"data"`: files and listings have to
            /// be encrypted as well.
            tls_required: One<TlsRequired> = default("off").flag("off|login|data");
            /// Where to serve FTP that begins with TLS (implicit FTPS), such as `"0.0.0.0:990"`
            ///
            /// There may be more than one. Clients that can choose should use the port of `ftp`, and ask for
            /// TLS there.
            ftps: Many<Listen> = default("off").flag("ADDR:PORT").restart();
            /// Where to serve HTTP that begins with TLS, such as `"0.0.0.0:443"`
            ///
            /// The same as `http`, with the certificates of `tls-cert`. There may be more than one. Names and
            /// passwords are accepted from everywhere.
            https: Many<Listen> = default("off").flag("ADDR:PORT").restart().aliases(&["listen-https", "ssl"]);
            /// Whether a data connection has to resume the TLS session of its control connection, which shows
            /// that both are the same client. `"require"`: one that does not is refused with 522; a client that
            /// never resumes under TLS 1.3 gets 1.2. `"prefer"`: the log says once a session that it does not,
            /// and whether it showed the ticket of another one (which resumes nothing). `"off"`: not checked.
            tls_resumption: One<Resumption> = default("prefer");
            /// Whether an upload has to end with TLS's close_notify, without which it may have been cut. One
            /// that does not is refused with 426, and what came is removed.
            tls_close_notify: One<Switch> = default("true");
            /// Clients to which that does not apply, by the beginning of what they call themselves with `CLNT`
            /// or `CSID`: `["OldClient/1"]`. The log has a warning for each such upload.
            tls_close_notify_excused: Many<String> = unset("none");
            /// Whether `CCC` may end the encryption of the control connection, for firewalls that inspect it.
            /// Anyone who can change packets can then give commands.
            tls_ccc: One<Switch> = default("false");
            /// CA certificates, in PEM, for certificates of clients. A client that shows another certificate is
            /// refused.
            tls_client_ca: One<PathBuf> = unset("none");
            /// Revocation lists (CRLs) for client certificates, in PEM: a file or an array of such
            tls_client_crl: Many<PathBuf> = unset("none");
            /// Whether clients need a certificate of `tls-client-ca`; else they may show one. What it is worth
            /// for a login is the user's `tls-client-login`.
            tls_client_cert: One<Switch> = default("false");
        }
        "Who may log in" {
            /// What everyone may do without a password
            ///
            /// `"ro"`: list and download; `"rw"`: everything; or `"off"`. The user is `anonymous` or `ftp`, and any
            /// password is right.
            anonymous: One<Anonymous> =
                unset("`\"ro\"` without any user, else `\"off\"`").flag("ro|rw|off").aliases(&["anonymous-enable", "anon"]);
            /// Whether the anonymous user sees files and folders whose names begin with a dot
            ///
            /// Where it does not, they cannot be read or written by their path, either. `.well-known` is shown to
            /// all. Users with a name see all files, unless their `deny-names` say otherwise.
            anonymous_dotfiles: One<Switch> = default("false");
            /// An account; there may be more than one
            ///
            /// In a file each is a `[[user]]` table as below. A flag is NAME:PASSWORD, which may read and write
            /// everything, NAME:PASSWORD:ro, which may only read, or NAME:PASSWORD:rw:SUBDIR, which sees only
            /// that folder of DIR. The password of a flag is text or a hash of `millrace hash-password`, cannot
            /// contain a colon, and other users of this computer can see it in the list of processes.
            user: UserList = unset("no users").flag("NAME:PASSWORD[:ro|rw][:SUBDIR]").secret();
            /// A database of accounts, or `"off"`
            ///
            /// `millrace user` keeps it: see [accounts.md](accounts.md). Without this key it is
            /// `$XDG_DATA_HOME/millrace/users.db` (for root `/var/lib/millrace/users.db`, for others
            /// `~/.local/share/millrace/users.db`), if it is there.
            users: One<PathBuf> = unset("the one of `millrace user`").flag("FILE");
            /// Settings of groups of users, each a `[[group]]` table as below
            group: Vec<GroupTable> = unset("no groups");
            /// Other stores of accounts, each a `[[source]]` table as below. They are asked in their order,
            /// after `user` and `users`.
            source: Vec<SourceTable> = unset("no other sources");
            /// Wrong passwords until the connection is closed
            login_attempts: One<Count> = default("5").positive().restart() => login_attempts;
            /// How long the reply to a first wrong password is delayed; twice that for the second, and so on
            login_delay: One<Period> = default("1s").restart() => login_delay;
        }
        "Limits" {
            /// Bytes a second to all clients together
            download_limit: One<Limit> = default("none");
            /// Bytes a second from all clients together
            upload_limit: One<Limit> = default("none");
            /// Bytes a second to all sessions of a user together
            user_download_limit: One<Limit> = default("none");
            /// Bytes a second from all sessions of a user together
            user_upload_limit: One<Limit> = default("none");
            /// Sessions of a user at a time; the next login is told 421
            user_sessions: One<Limit> = default("none");
            /// Logins on the server at most: `"600/minute"`, or for each `second`, `hour` or `day`. That many may
            /// come at once, further ones as room for them comes back; the next is told 421, by HTTP 429. See
            /// [limits.md](limits.md#limits-on-the-rate-of-logins).
            logins: One<RateLimit> = default("none") => logins.server;
            /// The same from each address
            logins_per_address: One<RateLimit> = default("none") => logins.address;
            /// The same from each network
            logins_per_network: One<RateLimit> = default("none") => logins.network;
            /// The same of each user; those with a wrong password are not counted, nor are links. Each of these
            /// may have a schedule: `"600/minute; sat,sun none"`.
            user_logins: One<RateLimit> = default("none") => logins.user;
            /// Bytes a second to each session
            session_download_limit: One<Limit> = default("none");
            /// Bytes a second from each session
            session_upload_limit: One<Limit> = default("none");
            /// Classes of sessions of FTP, by where clients come from, each a `[[class]]` table as below
            class: Vec<ClassTable> = unset("no classes");
            /// Limits of all clients of an address together, each a `[[listener]]` table as below
            listener: Vec<ListenerTable> = unset("no listeners");
            /// An SQLite file that keeps the usage counted for quotas; `"off"` counts at each start. Made when
            /// there is something to keep.
            quotas: One<PathBuf> = unset("`quotas.db` in `state`").restart();
            /// Networks (`"10.0.0.0/8"`, `"2001:db8::/32"`, `"192.0.2.7"`), one or an array. Where there are
            /// any, clients from other networks are refused.
            allow: Many<Network> = unset("none") => bans.allow;
            /// Networks that may not connect, also from within those of `allow`
            deny: Many<Network> = unset("none") => bans.deny;
            /// Failed logins of a user from an address until the two are banned for `ban-time`; an address that
            /// fails five times as often is banned altogether, one from which others log in well only after
            /// twenty times as often. Failures count half after ten minutes. 0: never.
            ban_after: One<Count> = default("20") => bans.after;
            /// How long a ban lasts
            ban_time: One<Period> = default("15m") => bans.time;
            /// Percent of the machine's processors in use above which logins are told 421, by HTTP 503. 0: no
            /// limit. May have a schedule: `"95; mon-fri 08:00-18:00 60"`.
            cpu_limit: One<Limit> =
                default("0").at_most(100, "percent of all processors").restart() => cpu_limit;
            /// The argon2id hash of the password with which an administrator stops the server by
            /// `INTERNALSHUTDOWN`. Without one it cannot be stopped so.
            shutdown_password: One<String> = unset("none").restart().secret();
        }
        "Hooks" {
            /// What is done before and after what sessions do, each a `[[hook]]` table as below, in their order
            hook: Vec<HookTable> = unset("none");
        }
        "Notices" {
            /// What administrators are told by webhook and mail, each a `[[notice]]` table as below
            notice: Vec<NoticeTable> = unset("none").restart();
        }
        "OpenTelemetry" {
            /// The collector that metrics and traces are sent to by OTLP: the `[otlp]` table, as below
            otlp: Vec<OtlpTable> = unset("none").restart();
        }
        "Cluster" {
            /// The database that several servers share, so that limits on sessions and bans hold on all of them: the
            /// `[cluster]` table, as below
            cluster: Vec<ClusterTable> = unset("a server of its own").restart();
        }
        "Times" {
            /// From connecting to being logged in
            login_timeout: One<Period> = default("1m").positive().restart() => login_timeout;
            /// From the first byte of a request, or the connection, to the end of its head
            http_head_timeout: One<Period> = default("30s").positive().restart() => http_head_timeout;
            /// Silence of a browser between two requests
            http_idle_timeout: One<Period> = default("75s").positive().restart() => http_idle_timeout;
            /// Silence of an HTTP/2 client until the server sends a PING, and how long the client may take to answer
            /// that. Then the connection is closed.
            http2_ping: One<Period> = default("30s").positive().restart() => http2_ping;
            /// Silence of a client while nothing is transferred
            idle_timeout: One<Period> =
                default("5m").positive().restart().aliases(&["timeout", "idle-session-timeout"]) => idle_timeout;
            /// From the transfer command to the data connection. Also how long `PASV` waits for a free port,
            /// and how long a port is kept for a client that begins no transfer.
            connect_timeout: One<Period> = default("15s").positive().restart() => connect_timeout;
            /// Silence on a data connection
            stall_timeout: One<Period> = default("1m").positive().restart() => stall_timeout;
            /// Silence on a control connection until TCP asks whether the other side is still there. 0: never.
            keepalive: One<Period> = default("1m").restart() => keepalive;
            /// How long transfers may continue after Ctrl-C or SIGTERM
            ///
            /// 0 ends them at once.
            grace: One<Period> = default("30s").flag("TIME").restart() => grace;
        }
        "Logs" {
            /// Log only warnings, refused connections and wrong passwords
            ///
            /// The addresses that are served are still printed to standard output.
            quiet: One<Switch> = default("false").switch().restart();
            /// How events are logged to standard error, a line each; or `"journal"`: to systemd's journal, with a priority and
            /// a field for each of theirs (`journalctl MILLRACE_EVENT=login-failed`)
            log_format: One<LogFormat> = default("text").flag("text|json|journal").restart();
            /// Write a line for each HTTP request to this file, in the Combined format, or as JSON
            ///
            /// JSON with `log-format = "json"`. The folder has to exist. Without it these lines are among the
            /// events.
            access_log: One<PathBuf> = unset("none").flag("FILE").restart();
            /// How lines of `access-log` are written, where they are not JSON: `"w3c"` is the Extended Log File Format.
            /// `"binary"` makes it a [binary log](log.md#the-binary-log), which has transfers of FTP as well.
            access_log_format: One<AccessFormat> = default("combined").restart() => access_log_format;
            /// Bytes of a binary `access-log`, in which the newest entry replaces the oldest
            access_log_size: One<Count> = default("64Mi").positive().restart() => access_log_size;
            /// Write a line for each transfer to this file, in the format of wu-ftpd
            ///
            /// The folder has to exist.
            xferlog: One<PathBuf> =
                unset("none").flag("FILE").restart().aliases(&["transfer-log", "xferlog-file"]);
            /// Whether each of its lines ends with the times when the transfer started and ended, in microseconds since 1970
            xferlog_times: One<Switch> = default("false").restart();
            /// At how many bytes `access-log` and `xferlog` are moved away by the server: to the name with `.1` behind it, and
            /// what has that name to `.2`. 0: at no size. The sandbox then lets it change all files of their folders.
            log_rotate_size: One<Count> = default("0").restart() => log_rotation.size;
            /// After how long they are. 0: at no age.
            log_rotate_age: One<Period> = default("0s").restart() => log_rotation.age;
            /// How many that were moved are kept; the oldest is removed
            log_rotate_keep: One<Count> = default("7").restart() => log_rotation.keep;
            /// Write a record of who changed what to this file: administrators, accounts, bans, reloads, links
            ///
            /// Each record carries the SHA-256 of the one before it; `millrace log verify` finds those that were
            /// changed. The folder has to exist. See [audit.md](audit.md).
            audit_log: One<PathBuf> = unset("none").flag("FILE").restart();
            /// Whether the audit log also has uploads and other changes of files
            audit_files: One<Switch> = default("false").restart();
            /// Send records of the audit log to this collector, `"HOST"` or `"HOST:PORT"`, by syslog over TLS (RFC
            /// 5425). The port is 6514 where none is named.
            syslog: One<String> = unset("none").restart();
            /// Certificates, in PEM, of which one has to have signed the collector's
            syslog_ca: One<PathBuf> = unset("what browsers trust").restart();
            /// This server's certificate for the collector, in PEM
            syslog_cert: One<PathBuf> = unset("none").restart();
            /// Its private key, in PEM
            syslog_key: One<PathBuf> = unset("in the same file").restart();
            /// Whether events of the log are sent to the collector as well
            syslog_events: One<Switch> = default("false").restart();
        }
    }
}
