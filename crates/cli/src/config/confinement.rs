//! What a server may use once it is confined: which files, which programs, which user. It is told from what was written
//! alone, as the sandbox is entered before anything of it is opened.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use millrace_admin::sockets;
use millrace_privsep::{self as privsep, Service};
use millrace_process::{Policy, Word};
use millrace_sandbox::{Access, Grant, Identity, covers};
use millrace_server::config::{AccessFormat, ProgramLimits};
use millrace_server::hooks::Template;
use millrace_terminal::Failure;
use rustix::process::geteuid;

use super::cluster::ClusterTable;
use super::notices::{self, NoticeTable};
use super::oidc::OidcTable;
use super::places::Places;
use super::said::{Place, Said};
use super::slot::is_on;
use super::value::Sandbox;
use super::written::Written;
use super::{Loaded, database, tls};

/// What variables of programs may be called: those of hooks, and those of CGI.
const VARIABLES: &[&str] = &[
    "MILLRACE_",
    "PATH=/usr/local/bin:/usr/bin:/bin",
    "HTTP_",
    "HTTPS=",
    "GATEWAY_INTERFACE=",
    "SERVER_",
    "REQUEST_",
    "QUERY_STRING=",
    "SCRIPT_",
    "PATH_INFO=",
    "PATH_TRANSLATED=",
    "REMOTE_",
    "AUTH_TYPE=",
    "CONTENT_",
    "DOCUMENT_",
    "REDIRECT_",
];

/// How a server is confined.
#[derive(Debug, Clone)]
pub(crate) struct Confined {
    /// Whether there is a sandbox.
    pub(crate) sandbox: Sandbox,
    /// The user to run as, as written.
    pub(crate) run_as: Option<Said<String>>,
    /// Folders whose free space is read.
    pub(crate) disks: Vec<PathBuf>,
    /// Files that it may use.
    pub(crate) grants: Vec<Grant>,
    /// Those of `sandbox-paths`.
    pub(crate) more: Vec<Grant>,
    /// Programs that may be started.
    pub(crate) policy: Policy,
    /// What the privileged helper does, where one is needed.
    pub(crate) helper: Option<privsep::Policy>,
    /// Folders of what is kept, which are made before the sandbox is entered.
    pub(crate) kept: Vec<PathBuf>,
    /// Whether another server may be started in place of this one.
    pub(crate) has_control: bool,
    /// The folder of the control socket, where no setting names one.
    pub(crate) control_folder: Option<PathBuf>,
}

impl Confined {
    /// Returns whether a sandbox is to be entered.
    pub(crate) fn wants_sandbox(&self) -> bool {
        self.sandbox != Sandbox::Off
    }

    /// Leaves out the control socket: a server of one connection has none.
    pub(crate) fn without_control(mut self) -> Self {
        (self.has_control, self.control_folder) = (false, None);
        self
    }

    /// Makes the folders of what is kept, for their owner alone, where it can: a rule needs a folder that is there.
    pub(crate) fn make_folders(&self) {
        for folder in self.kept.iter().filter(|folder| !folder.exists()) {
            // Whatever needs the folder says why it is not there.
            let _ = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        }
    }

    /// Refuses what the privileged helper of this process was not started for.
    pub(crate) fn check_helper(&self) -> Result<(), Failure> {
        let Some(policy) = &self.helper else { return Ok(()) };
        match privsep::helper() {
            Ok(helper) if helper.covers(policy) => Ok(()),
            _ => Err(Failure::Configuration(
                "the privileged helper of this server was not started for these accounts of PAM: restart the server."
                    .to_owned(),
            )),
        }
    }

    /// Refuses what the sandbox of a server that runs, which was started with this, leaves out of reach.
    pub(crate) fn check_reload(&self, next: &Self) -> Result<(), Failure> {
        let granted = [&self.grants[..], &self.more].concat();
        if let Err(Grant { path, .. }) = covers(&granted, &next.grants) {
            return Err(Failure::Configuration(format!(
                "the sandbox of this server leaves {} out of reach: restart the server, or add the path to sandbox-paths \
                 before the next start.",
                path.display()
            )));
        }
        let is_known = |command: &&Vec<Word>| self.policy.commands.contains(command);
        if let Some(command) = next.policy.commands.iter().find(|command| !is_known(command)) {
            let program = command.first().map(|word| word.prefix.to_string_lossy().into_owned());
            return Err(Failure::Configuration(format!(
                "the sandbox of this server does not let it start {} so: restart the server.",
                program.unwrap_or_default()
            )));
        }
        Ok(())
    }
}

impl Loaded {
    /// Tells how a server is confined that is started with this.
    pub(crate) fn confined(&self) -> Result<Confined, Failure> {
        let (written, places) = (&self.written, self.places());
        let identity = written.run_as.as_ref().map(|said| {
            Identity::find(&said.value)
                .map_err(|error| places.error(&said.place, "--run-as", &error.to_string()))
        });
        let uid = identity.transpose()?.map_or_else(|| geteuid().as_raw(), |identity| identity.numbers().0);
        let sandbox = written.sandbox.as_ref().map_or(Sandbox::On, |said| said.value);
        let state = tls::state_folder(written, &Place::CommandLine, &places).ok();
        let quotas = written.quotas.as_ref().filter(|said| said.is_file());
        let quotas = quotas.and_then(|said| Some(absolute(&places, said).parent()?.to_owned()));
        Ok(Confined {
            sandbox,
            run_as: written.run_as.clone(),
            disks: notices::watched(written, self.trees(), state.clone(), &places),
            grants: self.grants(state.as_deref()),
            more: self.more().into_iter().map(|path| Grant::new(path, Access::Write)).collect(),
            policy: self.policy()?,
            helper: self.helper_policy(sandbox != Sandbox::Off),
            kept: state.into_iter().chain(quotas).collect(),
            has_control: written.control.as_ref().is_none_or(Said::is_file),
            control_folder: written.control.is_none().then(|| sockets::folder_for(uid)),
        })
    }

    fn grants(&self, state: Option<&Path>) -> Vec<Grant> {
        let mut grants = Vec::new();
        grants.extend(self.trees().into_iter().map(|tree| Grant::new(tree, Access::Write)));
        grants.extend(state.map(|state| {
            Grant::new(std::path::absolute(state).unwrap_or_else(|_| state.to_owned()), Access::Write)
        }));
        grants.extend(self.databases());
        grants.extend(self.logs());
        let control = self.written.control.iter().filter(|said| said.is_file());
        grants.extend(control.flat_map(|said| Grant::folder_of(&self.absolute(said), Access::Socket)));
        grants.extend(self.files_to_read().flat_map(|said| Grant::file(&self.absolute(said), Access::Read)));
        grants.extend(self.configuration_file());
        let scripts = self.written.proxy.iter().filter_map(|route| route.root.as_ref());
        grants.extend(scripts.map(|said| Grant::new(self.absolute(said), Access::Read)));
        grants
    }

    fn absolute(&self, said: &Said<PathBuf>) -> PathBuf {
        absolute(&self.places(), said)
    }

    /// Databases make files beside themselves.
    fn databases(&self) -> Vec<Grant> {
        let written = &self.written;
        let tables = written.folder.iter().filter_map(|folder| folder.database.as_ref());
        let databases = [&written.users, &written.quotas, &written.hooks_queue].into_iter().flatten();
        let of_hosts = written.host.iter().filter_map(|host| host.users.as_ref());
        let databases = databases.chain(of_hosts).filter(|said| said.is_file()).chain(tables);
        let databases = databases.map(|said| self.absolute(said));
        let default = written.users.is_none().then(database::default_path).flatten();
        let default = default.filter(|path| path.parent().is_some_and(Path::exists));
        databases.chain(default).flat_map(|path| Grant::folder_of(&path, Access::Write)).collect()
    }

    fn logs(&self) -> Vec<Grant> {
        let written = &self.written;
        let of_hosts = written.host.iter().filter_map(|host| host.xferlog.as_ref());
        let logs = [&written.xferlog, &written.access_log].into_iter().flatten().chain(of_hosts);
        let rotates = written.log_rotate_size.is_some() || written.log_rotate_age.is_some();
        let is_ring =
            written.access_log_format.as_ref().is_some_and(|said| said.value == AccessFormat::Binary);
        let ring = written.access_log.as_ref().filter(|_| is_ring).map(|said| self.absolute(said));
        let is_binary = |path: &Path| ring.as_deref() == Some(path);
        let logs = logs.map(|said| self.absolute(said)).flat_map(|path| match path.metadata() {
            // A pipe is opened for reading, too, so that it has a reader.
            Ok(found) if !found.is_file() => vec![Grant::new(path, Access::Device)],
            _ if is_binary(&path) => Grant::folder_of(&path, Access::Extend),
            _ if rotates => Grant::folder_of(&path, Access::Replace),
            _ => Grant::file(&path, Access::Append),
        });
        let audit = written.audit_log.iter();
        logs.chain(audit.flat_map(|said| Grant::folder_of(&self.absolute(said), Access::Extend))).collect()
    }

    /// Returns the keys, certificates, secrets, texts and pages that the configuration names.
    fn files_to_read(&self) -> impl Iterator<Item = &Said<PathBuf>> {
        let written = &self.written;
        let syslog = [&written.syslog_ca, &written.syslog_cert, &written.syslog_key];
        let files = [&written.tls_client_ca, &written.acme_ca, &written.http_link_keys];
        let texts = [&written.greeting_file, &written.welcome_file, &written.limit_file];
        let files = files.into_iter().chain(syslog).chain(texts).flatten();
        let certificates = written.tls_cert.iter().chain(&written.tls_key).chain(&written.tls_client_crl);
        let of_folders = written.folder.iter().flat_map(|folder| {
            let certificates = [&folder.ca, &folder.database_ca];
            let secrets = [&folder.key_file, &folder.password_file, &folder.credentials_file];
            secrets.into_iter().chain(certificates).flatten()
        });
        let of_hosts = written.host.iter().flat_map(|host| {
            let texts = [&host.greeting_file, &host.welcome_file, &host.limit_file];
            texts.into_iter().chain([&host.tls_cert, &host.tls_key]).flatten()
        });
        files
            .chain(certificates)
            .chain(of_folders)
            .chain(of_hosts)
            .chain(written.source.iter().flat_map(|source| source.files()))
            .chain(written.hook.iter().filter_map(|hook| hook.secret_file.as_ref()))
            .chain(written.notice.iter().flat_map(NoticeTable::files))
            .chain(written.cluster.iter().flat_map(ClusterTable::files))
            .chain(written.otlp.iter().filter_map(|table| table.ca.as_ref()))
            .chain(written.admin_oidc.iter().flat_map(OidcTable::files))
            .chain(written.class.iter().filter_map(|class| class.limit_file.as_ref()))
            .chain(written.error_page.iter().map(|page| &page.file))
    }

    fn configuration_file(&self) -> Vec<Grant> {
        let places = self.places();
        let Some(file) = places.file() else { return Vec::new() };
        let mut grants: Vec<Grant> = Grant::file(file, Access::Read).into_iter().collect();
        if is_on(self.written.admin_writes_config.clone(), false) {
            grants.extend(Grant::folder_of(file, Access::Write));
        }
        grants
    }

    /// The folders that are served.
    fn trees(&self) -> Vec<PathBuf> {
        let (written, places) = (&self.written, self.places());
        let here = || Said::on_command_line(PathBuf::from("."));
        let root = written.directory.clone().unwrap_or_else(here);
        let hosts = written.host.iter().map(|host| &host.directory);
        let folders = written.folder.iter().filter_map(|folder| folder.directory.as_ref());
        let trees = [&root].into_iter().chain(hosts).chain(folders);
        trees.map(|said| without_templates(&absolute(&places, said))).collect()
    }

    /// The folders that `sandbox-paths` adds.
    fn more(&self) -> Vec<PathBuf> {
        let places = self.places();
        self.written.sandbox_paths.iter().map(|said| absolute(&places, said)).collect()
    }

    /// What the privileged helper does, where there are accounts of PAM.
    fn helper_policy(&self, is_sandboxed: bool) -> Option<privsep::Policy> {
        let mut asked: BTreeMap<&str, bool> = BTreeMap::new();
        for (name, opens_files) in self.written.source.iter().filter_map(|source| source.pam_service()) {
            *asked.entry(name).or_default() |= opens_files;
        }
        let service = |(name, opens_files): (&str, bool)| Service { name: name.to_owned(), opens_files };
        (!asked.is_empty()).then(|| privsep::Policy {
            services: asked.into_iter().map(service).collect(),
            sandbox: is_sandboxed.then(|| [self.trees(), self.more()].concat()),
        })
    }

    fn policy(&self) -> Result<Policy, Failure> {
        let (written, places) = (&self.written, self.places());
        let mut commands = Vec::new();
        for table in &written.hook {
            let Some(first) = table.run.first() else { continue };
            let template = |said: &Said<String>| {
                Template::parse(&said.value).map_err(|message| places.error(&said.place, "hook", &message))
            };
            let mut words = table.run.iter().map(template).collect::<Result<Vec<_>, _>>()?;
            if let Some(folder) = places.folder_of_program(first) {
                let program = words.remove(0).beneath(folder);
                words.insert(0, program);
            }
            commands.push(words.iter().map(word).collect());
        }
        for table in &written.source {
            let words = table.words(&places);
            if !words.is_empty() {
                commands.push(words.into_iter().map(Word::fixed).collect());
            }
        }
        let root = written.directory.as_ref().map_or_else(|| ".".into(), |said| places.path(said));
        let programs = written.cgi.iter().filter_map(|said| {
            let root = root.canonicalize().ok()?;
            root.join(said.value.strip_prefix(&root).unwrap_or(&said.value)).canonicalize().ok()
        });
        Ok(Policy {
            commands,
            folders: programs.collect(),
            variables: VARIABLES.iter().map(|name| (*name).to_owned()).collect(),
            limits: program_limits(written),
            successor: Vec::new(),
        })
    }
}

/// What programs may use.
pub(super) fn program_limits(written: &Written) -> ProgramLimits {
    let some = |said: &Option<Said<super::value::Count>>| {
        said.as_ref().map(|said| said.value.0 as u64).filter(|&most| most > 0)
    };
    ProgramLimits {
        cpu: written.program_cpu.as_ref().map(|said| said.value.0).filter(|cpu: &Duration| !cpu.is_zero()),
        memory: some(&written.program_memory),
        processes: some(&written.program_processes),
    }
}

/// A word of a command, of which a client's text may be a part.
fn word(template: &Template) -> Word {
    let (prefix, suffix) = template.fixed_ends();
    Word { prefix: prefix.into(), suffix: suffix.map(Into::into) }
}

fn absolute(places: &Places<'_>, said: &Said<PathBuf>) -> PathBuf {
    let path = places.path(said);
    std::path::absolute(&path).unwrap_or(path)
}

/// The part of a path that is the same for all users.
fn without_templates(path: &Path) -> PathBuf {
    path.iter().take_while(|part| !part.to_string_lossy().contains('{')).collect()
}
