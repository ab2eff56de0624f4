//! Starts the CGI program that a request is for (CGI/1.1, RFC 3875).

use std::os::fd::BorrowedFd;

use millrace_http::{Framing, cgi};
use millrace_vfs::FileError;

use crate::program::{self, NoScript, Program};
use crate::request::GatewayRequest;
use crate::settings::ProgramSettings;

/// What came of starting a program.
#[derive(Debug)]
pub enum Started {
    /// It runs; whether it writes the whole of its answer itself (`nph-`).
    Program(Box<Program>, bool),
    /// The path leads to a file that is no program.
    NoProgram,
    /// Its file cannot be run, and why, for the operator.
    Failed(String),
}

/// Finds the program and starts it; what it writes as errors goes to `errors`. May wait.
pub fn start(
    settings: &ProgramSettings,
    request: &GatewayRequest,
    errors: BorrowedFd<'_>,
) -> Result<Started, FileError> {
    let Some((mark, folder)) = settings.marked(&request.path) else { return Err(FileError::NotFound) };
    let script = match program::find(&*request.storage, mark, folder, (&request.path, request.is_directory)) {
        Ok(script) => script,
        Err(NoScript::File(error)) => return Err(error),
        Err(NoScript::NotRunnable) => return Err(FileError::PermissionDenied),
        Err(NoScript::Elsewhere) => return Ok(Started::NoProgram),
    };
    let translated = script.path_translated();
    let meta = request.for_script(script.path.as_bytes(), &script.path_info, translated.as_deref());
    let mut variables = cgi::environment(&request.head, &meta);
    variables.set("PATH", program::PATH);
    match script.start(&variables, request.head.framing != Framing::None, errors) {
        Ok(program) => Ok(Started::Program(Box::new(program), cgi::is_non_parsed(script.path.name()))),
        Err(error) => match script.fault(&error) {
            Some(why) => Ok(Started::Failed(why)),
            None => Err(error.into()),
        },
    }
}
