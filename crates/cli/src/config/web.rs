//! What HTTP adds to files: `[[header]]`, `[[cors]]` and `[[error-page]]` tables, and the keys beside them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use std::{fs, io};

use millrace_server::hooks::PathPattern;
use millrace_server::web::{
    Cors, DownloadOrigin, ErrorPage, FieldRule, Fields, Grant, HttpsRedirect, IsolatedOrigin, LinkKeys,
    Origin, Types, Web,
};
use millrace_terminal::Failure;

use super::places::Places;
use super::said::{Place, Said};
use super::setting::{default, required, settings, unset};
use super::slot::{Many, Map, One, is_on};
use super::value::{Count, Period, Redirect, Switch};
use super::written::Written;

/// Bytes of a page of errors at most: it is kept in memory and sent in one write.
const PAGE: usize = 64 * 1024;

/// Files whose digest is found out when it is wanted, where nothing else is said.
const DIGEST_BYTES: u64 = 1 << 30;

/// What pages of other origins may send without being named: what means something to the server.
const REQUEST_FIELDS: &str = "Authorization, Content-Range, Content-Type, Depth, Destination, If, If-Match, \
    If-Modified-Since, If-None-Match, If-Range, If-Unmodified-Since, Lock-Token, Overwrite, Range, Timeout, \
    Tus-Resumable, Upload-Checksum, Upload-Concat, Upload-Defer-Length, Upload-Length, Upload-Metadata, \
    Upload-Offset, Want-Repr-Digest";

/// The header fields that they may read.
const EXPOSED: &str = "Accept-Ranges, Content-Encoding, Content-Range, DAV, ETag, Location, Lock-Token, \
    Repr-Digest, Tus-Checksum-Algorithm, Tus-Extension, Tus-Max-Size, Tus-Resumable, Tus-Version, Upload-Concat, \
    Upload-Defer-Length, Upload-Expires, Upload-Length, Upload-Metadata, Upload-Offset";

settings! {
    /// A `[[header]]` table.
    HeaderTable of "header" {
        /// Patterns of paths: `"/assets/**"`
        paths: Many<String> = unset("all");
        /// Media types: `"text/css"`, `"image/*"`
        types: Many<String> = unset("all");
        /// The value of `Cache-Control`: `"public, max-age=31536000, immutable"`
        cache_control: One<String> = unset("not said");
        /// Any other fields: `{ "X-Robots-Tag" = "noindex" }`. An empty value leaves the field out.
        set: Map<String> = unset("none");
    }
}

settings! {
    /// A `[[cors]]` table.
    CorsTable of "cors" {
        /// Whose pages: `"https://app.example.org"`, `"https://*.example.org"`, or `"*"` for all
        origins: Many<String> = required();
        /// With which files: patterns of paths
        paths: Many<String> = unset("all");
        /// By which methods
        methods: Many<String> = default("[\"GET\", \"HEAD\"]");
        /// With which fields of requests
        headers: Many<String> = unset("those that mean something here");
        /// Which fields of responses they see
        expose: Many<String> = unset("those that mean something");
        /// Whether a browser sends the login along. Not with all origins.
        credentials: One<Switch> = default("false");
        /// How long browsers remember it
        max_age: One<Period> = default("10m");
    }
}

settings! {
    /// An `[[error-page]]` table.
    ErrorPageTable of "error-page" {
        /// The page, of at most 64 KiB; it is read when the server starts, and at a reload
        file: Said<PathBuf> = required();
        /// A status, or an array of them: `[403, 404]`
        status: Many<Count> = unset("all errors");
        /// For which paths: patterns
        paths: Many<String> = unset("all");
        /// For requests to these names, where there are `[[host]]` tables
        hosts: Many<String> = unset("all");
    }
}

/// What was written about HTTP's answers.
pub(crate) fn web(written: &Written, places: &Places<'_>) -> Result<Web, Failure> {
    let types = types(&written.mime, places)?;
    let is_safe = is_on(written.http_security_headers.clone(), true);
    let mut fields = fields(&written.header, is_safe, places)?;
    fields.transport_security = match &written.http_hsts {
        Some(said) if !said.value.0.is_zero() => Some(said.value.0),
        _ => None,
    };
    Ok(Web {
        precompressed: false,
        digest_bytes: DIGEST_BYTES,
        fields,
        cors: written.cors.iter().map(|table| cors(table, places)).collect::<Result<_, _>>()?,
        error_pages: written
            .error_page
            .iter()
            .map(|table| error_page(table, &types, places))
            .collect::<Result<_, _>>()?,
        links: written
            .http_link_keys
            .as_ref()
            .map_or(Ok(LinkKeys::default()), |said| link_keys(said, places))?,
        // Its fields are those of the others without a sandbox: who decides about that adds it.
        download_origin: None,
        index: index(&written.index, places)?,
        types,
        // They are those of the trees: who opens these says so.
        hosts: Vec::new(),
        https_redirect: HttpsRedirect::Off,
    })
}

/// The origin for downloads, whose answers have these fields; it needs keys of links.
pub(crate) fn download_origin(
    written: Option<&Said<String>>,
    web: &Web,
    places: &Places<'_>,
) -> Result<Option<IsolatedOrigin>, Failure> {
    let Some(said) = written else { return Ok(None) };
    let wrong = |message: &str| places.error(&said.place, "http-download-origin", message);
    let origin = DownloadOrigin::parse(&said.value).map_err(|error| wrong(&error.to_string()))?;
    if web.links.names().is_empty() {
        return Err(wrong(
            "browsers are sent there with signed links: give a file of keys with `http-link-keys`",
        ));
    }
    Ok(Some(IsolatedOrigin { origin, fields: web.fields.clone().private() }))
}

/// Where requests in clear are sent, which has to be there.
pub(crate) fn https_redirect(
    written: Option<&Said<Redirect>>,
    https: &[SocketAddr],
    places: &Places<'_>,
) -> Result<HttpsRedirect, Failure> {
    match written {
        Some(Said { value: Redirect(HttpsRedirect::Off), .. }) | None => Ok(HttpsRedirect::Off),
        Some(said) if https.is_empty() => {
            let message = "there is no HTTPS to be sent to; say with `https` where it listens";
            Err(places.error(&said.place, "https-redirect", message))
        }
        Some(said) => Ok(said.value.0),
    }
}

/// Names of files that stand for their folder; "off" for none.
fn index(said: &[Said<String>], places: &Places<'_>) -> Result<Vec<Vec<u8>>, Failure> {
    let name = |said: &Said<String>| match said.value.as_str() {
        "off" => Err(places.error(&said.place, "index", "\"off\" cannot stand beside a name")),
        "" | "." | ".." => Err(places.error(&said.place, "index", "expected the name of a file")),
        name if name.contains(['/', '\0']) => {
            let message = format!("{name:?} is no name of a file in the folder that is asked for");
            Err(places.error(&said.place, "index", &message))
        }
        name => Ok(name.as_bytes().to_vec()),
    };
    match said {
        [] => Ok(Web::default().index),
        [one] if one.value == "off" => Ok(Vec::new()),
        all => all.iter().map(name).collect(),
    }
}

/// Media types by the ends of names.
fn types(said: &BTreeMap<String, Said<String>>, places: &Places<'_>) -> Result<Types, Failure> {
    let mut types = Types::default();
    for (extension, said) in said {
        types.set(extension, &said.value).map_err(|message| places.error(&said.place, "mime", &message))?;
    }
    Ok(types)
}

/// The rules, each checked by itself, so that a mistake is told at its place.
fn fields(tables: &[HeaderTable], is_safe: bool, places: &Places<'_>) -> Result<Fields, Failure> {
    let mut rules = Vec::new();
    for table in tables {
        let cache = table.cache_control.iter().map(|said| ("Cache-Control".to_owned(), said));
        let said: Vec<_> = cache.chain(table.set.iter().map(|(name, said)| (name.clone(), said))).collect();
        let mut rule = FieldRule {
            paths: patterns(&table.paths),
            types: table.types.iter().map(|said| said.value.clone()).collect(),
            fields: Vec::new(),
        };
        if said.is_empty() {
            let place = table.paths.iter().chain(&table.types).next().map(|said| said.place.clone());
            let message = "a [[header]] table says with `cache-control` or `set` what is added to answers";
            return Err(places.error(&place.unwrap_or(Place::CommandLine), "[[header]]", message));
        }
        for (name, said) in said {
            let field = (name, said.value.clone());
            let alone = FieldRule { fields: vec![field.clone()], ..FieldRule::default() };
            Fields::new(vec![alone], false)
                .map_err(|error| places.error(&said.place, "header", &error.to_string()))?;
            rule.fields.push(field);
        }
        rules.push(rule);
    }
    // Each was found to be right.
    Fields::new(rules, is_safe).map_err(|error| Failure::Configuration(format!("{error}.")))
}

fn cors(table: &CorsTable, places: &Places<'_>) -> Result<Cors, Failure> {
    let origin = |said: &Said<String>| {
        Origin::parse(&said.value).map_err(|message| places.error(&said.place, "origins", &message))
    };
    let origins = table.origins.iter().map(origin).collect::<Result<Vec<_>, _>>()?;
    let credentials = is_on(table.credentials.clone(), false);
    if let Some(first) = table.origins.first()
        && credentials
        && origins.contains(&Origin::Any)
    {
        let message = "with credentials, any page of the web could use a visitor's login: name the origins, or leave \
                       credentials out";
        return Err(places.error(&first.place, "origins", message));
    }
    Ok(Cors {
        paths: patterns(&table.paths),
        grant: Grant {
            origins,
            methods: tokens(&table.methods, "GET, HEAD", "methods", places)?,
            request_fields: tokens(&table.headers, REQUEST_FIELDS, "headers", places)?,
            exposed: tokens(&table.expose, EXPOSED, "expose", places)?,
            credentials,
            max_age: table.max_age.as_ref().map_or(Duration::from_secs(600), |said| said.value.0).as_secs(),
        },
    })
}

/// Names of methods or fields, or these.
fn tokens(
    said: &[Said<String>],
    default: &str,
    key: &str,
    places: &Places<'_>,
) -> Result<Vec<String>, Failure> {
    if said.is_empty() {
        return Ok(default.split(", ").map(str::to_owned).collect());
    }
    let token = |said: &Said<String>| {
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        match !said.value.is_empty() && said.value.bytes().all(is_token) {
            true => Ok(said.value.clone()),
            false => Err(places.error(&said.place, key, &format!("{:?} is no name of HTTP", said.value))),
        }
    };
    said.iter().map(token).collect()
}

fn error_page(table: &ErrorPageTable, types: &Types, places: &Places<'_>) -> Result<ErrorPage, Failure> {
    let file = &table.file;
    let status = |said: &Said<Count>| match u16::try_from(said.value.0) {
        Ok(status @ 400..=599) => Ok(status),
        _ => Err(places.error(&said.place, "status", "expected the status of an error, 400 to 599")),
    };
    let path = places.path(file);
    let wrong = |message: String| places.error(&file.place, "file", &message);
    let body = fs::read(&path)
        .map_err(|error| wrong(format!("the page {} cannot be read: {error}", path.display())))?;
    if body.len() > PAGE {
        return Err(wrong(format!("the page {} is longer than 64 KiB", path.display())));
    }
    let statuses = table.status.iter().map(status).collect::<Result<_, _>>()?;
    let media_type = types.of(path.as_os_str().as_encoded_bytes());
    let page = ErrorPage::new(statuses, patterns(&table.paths), media_type, body);
    Ok(ErrorPage { hosts: super::hosts::names(&table.hosts, "hosts", places)?, ..page })
}

fn link_keys(said: &Said<PathBuf>, places: &Places<'_>) -> Result<LinkKeys, Failure> {
    let path = places.path(said);
    let wrong = |message: String| places.error(&said.place, "http-link-keys", &message);
    let text = fs::read_to_string(&path).map_err(|error| {
        let shown = path.display();
        let remedy = match error.kind() {
            io::ErrorKind::NotFound => {
                format!("; `(umask 077; openssl rand -hex 32 > {shown})` makes one")
            }
            _ => String::new(),
        };
        wrong(format!("the file of keys {shown} cannot be read: {error}{remedy}"))
    })?;
    LinkKeys::parse(&text).map_err(|error| wrong(format!("{}: {error}", path.display())))
}

fn patterns(said: &[Said<String>]) -> Vec<PathPattern> {
    said.iter().map(|said| PathPattern::new(&said.value)).collect()
}
