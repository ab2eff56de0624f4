//! `[[folder]]` tables, turned into virtual folders. Nothing is made and no database is opened here: `millrace
//! check` reads the same tables while a server runs.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use millrace_server::auth::{Mount, MountedDatabase, MountedDirectory, MountedFiles, Mounts, Sql};
use millrace_server::limits::{HeldQuota, Quantity, Scheduled};
use millrace_server::{Permission, Permissions};
use millrace_storage::{Key, LocalOptions};
use millrace_terminal::Failure;
use millrace_vfs::hash::Algorithms;

use super::bucket::Layout;
use super::places::Places;
use super::said::{Place, Said};
use super::setting::{default, required, settings, unset};
use super::slot::{Many, One};
use super::sources;
use super::value::{Access, Period, Switch, UploadHash};

/// How long a database may take for an answer.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

settings! {
    /// A `[[folder]]` table.
    FolderTable of "folder" {
        /// Where users see the folder: `"/archive"`, `"/in/{user}"`. What the served folder has there is
        /// hidden.
        path: Said<String> = required();
        /// A folder of this machine, where the files are. `{user}` and `{group}` stand for the user's names;
        /// the last part is then made at the first login.
        directory: One<PathBuf> = unset("this or another place");
        /// An SQLite database, where the files are; it is made if it is not there
        database: One<PathBuf> = unset("this or another place");
        /// The connection string of a PostgreSQL database, where the files are: `"host=/run/postgresql
        /// user=millrace dbname=files"`, or a URL
        postgres: One<String> = unset("this or another place");
        /// The bucket of an S3-compatible store, where the files are as objects
        bucket: One<String> = unset("this or another place");
        /// For `bucket`: `"mapped"`, where keys are the paths of files, or `"indexed"`, where the names are in
        /// the database `postgres`, see [folders.md](folders.md#names-in-a-database)
        layout: One<Layout> = default("mapped");
        /// For `bucket`: what the keys of its files begin with: `"customers/acme"`
        prefix: One<String> = unset("nothing");
        /// For `bucket`: the URL of the store: `"https://s3.example.com"`
        endpoint: One<String> = unset("Amazon's for the region");
        /// For `bucket`: the region that requests are signed for
        region: One<String> = default("us-east-1");
        /// For `bucket`: a file with `aws_access_key_id = ...` and `aws_secret_access_key = ...`, as of the AWS
        /// command line
        credentials_file: One<PathBuf> = unset("the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY");
        /// For `bucket`: name the bucket in the path of URLs, not in the name of the host
        path_style: One<Switch> = default("true");
        /// For `bucket`: the URL of the store for clients: downloads by HTTP of more than 8 MiB are redirected there,
        /// see [folders.md](folders.md#downloads-from-the-store-itself)
        redirect_downloads: One<String> = unset("none is");
        /// For `postgres`: a file whose first line is the password
        password_file: One<PathBuf> = unset("none");
        /// For `postgres` and `bucket`: a file of certificates in PEM; the connection is encrypted, and the
        /// server's certificate has to be signed by one of them
        ca: One<PathBuf> = unset("none");
        /// For `layout = "indexed"`: as `ca`, which is for the store then, for the database
        database_ca: One<PathBuf> = unset("none");
        /// For `layout = "indexed"`: how long the object of a file that was replaced or removed is kept, for
        /// downloads of it that go on
        keep_replaced: One<Period> = default("1h");
        /// For `postgres` and `bucket`: how long an answer may take
        timeout: One<Period> = default("10s").positive();
        /// A file with 64 hexadecimal digits (`openssl rand -hex 32`): the content of the folder's files is
        /// encrypted under this key
        key_file: One<PathBuf> = unset("none");
        /// What uploads are hashed by, in place of the `upload-hash` of the top level. In an encrypted
        /// folder none is hashed.
        upload_hash: Many<UploadHash> = unset("as at the top level");
        /// The most that may be done there, `"ro"` or `"rw"`
        access: One<Access> = default("rw");
        /// Bytes of all files in it: `"10G"`, or with a [schedule](limits.md). See
        /// [limits.md](limits.md#quotas).
        quota_bytes: One<Scheduled<Quantity>> = unset("none");
        /// Files in it, as above
        quota_files: One<Scheduled<Quantity>> = unset("none");
        /// Names of users who may use the folder
        users: Many<String> = unset("everybody");
        /// Names of groups whose members may use it
        groups: Many<String> = unset("everybody");
    }
}

/// Virtual folders as written; `groups` are the names that there are.
pub(crate) fn mounts(
    tables: Vec<FolderTable>,
    archives: bool,
    options: LocalOptions,
    groups: &HashSet<String>,
    places: &Places<'_>,
) -> Result<Mounts, Failure> {
    let mut seen = HashSet::new();
    let mut mounts = Vec::new();
    for table in tables {
        if !seen.insert((table.path.value.clone(), audience(&table))) {
            let message = format!("there are two folders at {} for the same users", table.path.value);
            return Err(places.error(&table.path.place, "path", &message));
        }
        mounts.push(mount(table, options, groups, places)?);
    }
    Ok(Mounts::new(mounts, archives))
}

fn mount(
    table: FolderTable,
    options: LocalOptions,
    groups: &HashSet<String>,
    places: &Places<'_>,
) -> Result<Mount, Failure> {
    check_path(&table.path, places)?;
    if let Some(unknown) = table.groups.iter().find(|group| !groups.contains(&group.value)) {
        let message = format!("there is no group {}; write a [[group]] table of that name", unknown.value);
        return Err(places.error(&unknown.place, "groups", &message));
    }
    let key = table.key_file.as_ref().map(|said| read_key(said, places)).transpose()?;
    let access = table.access.as_ref().map_or(Permissions::READ_WRITE, |said| said.value.permissions());
    let reads = Permissions::READ_ONLY.with(Permission::Admin);
    let hashes = hashes(&table.upload_hash, places)?.unwrap_or(options.hashes);
    let options = LocalOptions { read_only: reads.contains(access), hashes, ..options };
    let files = files(&table, options, places)?;
    let names = |said: Vec<Said<String>>| said.into_iter().map(|said| said.value).collect();
    Ok(Mount {
        path: table.path.value,
        files,
        key,
        access,
        quota: quota(&table.quota_bytes, &table.quota_files),
        users: names(table.users),
        groups: names(table.groups),
    })
}

/// What uploads are hashed by; nothing where that is not said.
pub(super) fn hashes(said: &Many<UploadHash>, places: &Places<'_>) -> Result<Option<Algorithms>, Failure> {
    if said.len() > 1
        && let Some(none) = said.iter().find(|said| said.value.0.is_none())
    {
        return Err(places.error(&none.place, "--upload-hash", "\"none\" goes with no other hash"));
    }
    let algorithms = said.iter().filter_map(|said| said.value.0).fold(Algorithms::NONE, Algorithms::with);
    Ok((!said.is_empty()).then_some(algorithms))
}

type Written = Option<Said<Scheduled<Quantity>>>;

fn quota(bytes: &Written, files: &Written) -> Option<HeldQuota> {
    let most = |said: &Written| said.as_ref().map(|said| said.value.clone()).unwrap_or_default();
    let quota = HeldQuota { bytes: most(bytes), files: most(files) };
    (!quota.is_none()).then_some(quota)
}

fn audience(table: &FolderTable) -> Vec<String> {
    table.users.iter().chain(&table.groups).map(|said| said.value.clone()).collect()
}

fn check_path(path: &Said<String>, places: &Places<'_>) -> Result<(), Failure> {
    let parts = || path.value.split('/').skip(1);
    let is_path = path.value.starts_with('/') && parts().all(|part| !matches!(part, "" | "." | ".."));
    if is_path && !path.value.contains('\0') {
        return Ok(());
    }
    let message =
        "expected where users see the folder: a path from the root, such as \"/archive\" or \"/in/{user}\"";
    Err(places.error(&path.place, "path", message))
}

fn files(table: &FolderTable, options: LocalOptions, places: &Places<'_>) -> Result<MountedFiles, Failure> {
    refuse_keys_of_others(table, places)?;
    let given: Vec<_> = PLACES.iter().filter_map(|(_, place)| place(table)).collect();
    let is_indexed = table.postgres.is_some() && super::bucket::is_indexed(table);
    if let [_, .., last] = given[..]
        && !(is_indexed && given.len() == 2)
    {
        let message = "a folder has one of `directory`, `database`, `postgres` and `bucket`, or with `layout = \
                       \"indexed\"` the latter two";
        return Err(places.error(last, "folder", message));
    }
    if let Some(said) = &table.directory {
        directory(said, options, places)
    } else if let Some(said) = &table.database {
        database(said, options.hashes, places)
    } else if let Some(said) = &table.bucket {
        super::bucket::bucket(table, said, options.hashes, places)
    } else if let Some(said) = &table.postgres {
        postgres(table, said, options.hashes, places)
    } else {
        let message =
            "the folder needs a `directory`, a `database`, `postgres` or a `bucket`, where its files are";
        Err(places.error(&table.path.place, "path", message))
    }
}

/// Where a key was written, if it was.
type Found = fn(&FolderTable) -> Option<&Place>;

/// The keys that say where the files are.
const PLACES: [(&str, Found); 4] = [
    ("directory", |table| table.directory.as_ref().map(|said| &said.place)),
    ("database", |table| table.database.as_ref().map(|said| &said.place)),
    ("postgres", |table| table.postgres.as_ref().map(|said| &said.place)),
    ("bucket", |table| table.bucket.as_ref().map(|said| &said.place)),
];

/// Keys that mean something only beside some of those.
const BESIDE: [(&str, &[&str], Found); 12] = [
    ("password-file", &["postgres"], |table| table.password_file.as_ref().map(|said| &said.place)),
    ("ca", &["postgres", "bucket"], |table| table.ca.as_ref().map(|said| &said.place)),
    ("timeout", &["postgres", "bucket"], |table| table.timeout.as_ref().map(|said| &said.place)),
    ("layout", &["bucket"], |table| table.layout.as_ref().map(|said| &said.place)),
    ("database-ca", &["bucket"], |table| table.database_ca.as_ref().map(|said| &said.place)),
    ("keep-replaced", &["bucket"], |table| table.keep_replaced.as_ref().map(|said| &said.place)),
    ("prefix", &["bucket"], |table| table.prefix.as_ref().map(|said| &said.place)),
    ("endpoint", &["bucket"], |table| table.endpoint.as_ref().map(|said| &said.place)),
    ("region", &["bucket"], |table| table.region.as_ref().map(|said| &said.place)),
    ("credentials-file", &["bucket"], |table| table.credentials_file.as_ref().map(|said| &said.place)),
    ("path-style", &["bucket"], |table| table.path_style.as_ref().map(|said| &said.place)),
    ("redirect-downloads", &["bucket"], |table| table.redirect_downloads.as_ref().map(|said| &said.place)),
];

fn refuse_keys_of_others(table: &FolderTable, places: &Places<'_>) -> Result<(), Failure> {
    let has = |key: &&str| PLACES.iter().any(|(name, place)| name == key && place(table).is_some());
    let needless = |(key, beside, place): &(&'static str, &[&'static str], Found)| {
        let place = place(table).filter(|_| !beside.iter().any(has))?;
        Some((*key, beside.join("` or `"), place))
    };
    match BESIDE.iter().find_map(needless) {
        Some((key, beside, place)) => {
            let message = format!("`{key}` means nothing to a folder without `{beside}`");
            Err(places.error(place, key, &message))
        }
        None => Ok(()),
    }
}

fn directory(
    said: &Said<PathBuf>,
    options: LocalOptions,
    places: &Places<'_>,
) -> Result<MountedFiles, Failure> {
    let path = places.path(said);
    let path = std::path::absolute(&path).unwrap_or(path);
    let opened = MountedDirectory::new(&path, options);
    opened.map(MountedFiles::Directory).map_err(|message| places.error(&said.place, "directory", &message))
}

fn database(said: &Said<PathBuf>, hashes: Algorithms, places: &Places<'_>) -> Result<MountedFiles, Failure> {
    let path = places.path(said);
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let wrong = |message: String| Err(places.error(&said.place, "database", &message));
    match (path.is_dir(), folder.is_dir()) {
        (true, _) => wrong(format!("{} is a folder; name a file in it", path.display())),
        (_, false) => wrong(format!("the folder {} is not there; make it first", folder.display())),
        _ => Ok(MountedFiles::Database(MountedDatabase::sqlite(path).hashing(hashes))),
    }
}

fn postgres(
    table: &FolderTable,
    said: &Said<String>,
    hashes: Algorithms,
    places: &Places<'_>,
) -> Result<MountedFiles, Failure> {
    let roots = sources::read(table.ca.as_ref(), "ca", places)?;
    let database = MountedDatabase::postgres(&sql(table, said, roots, places)?);
    database
        .map(|database| MountedFiles::Database(database.hashing(hashes)))
        .map_err(|message| places.error(&said.place, "postgres", &message))
}

/// The way to the database of a table.
pub(super) fn sql(
    table: &FolderTable,
    said: &Said<String>,
    roots: Option<Vec<u8>>,
    places: &Places<'_>,
) -> Result<Sql, Failure> {
    Ok(Sql {
        connection: said.value.clone(),
        password: sources::password(table.password_file.as_ref(), places)?,
        roots,
        query: None,
        time: table.timeout.as_ref().map_or(TIMEOUT, |said| said.value.0),
    })
}

fn read_key(said: &Said<PathBuf>, places: &Places<'_>) -> Result<Key, Failure> {
    let path = places.path(said);
    let wrong = |message: String| places.error(&said.place, "key-file", &message);
    let text = fs::read_to_string(&path)
        .map_err(|error| wrong(format!("the key file {} cannot be read: {error}", path.display())))?;
    Key::parse(&text).map_err(|error| wrong(format!("{}: {error}", path.display())))
}
