//! Man pages and shell completions, generated from the definition of a command line.
//!
//! Packages install what these functions write, so that it follows the flags by itself.

use std::io;
use std::path::Path;

use clap::Command;
pub use clap_complete::Shell;

/// Returns the completion script of a shell, which offers no hidden subcommand.
pub fn completions(command: &Command, shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut visible(command), command.get_name(), &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Returns what completions need of a command: names, flags and their descriptions, of subcommands that are not hidden.
fn visible(command: &Command) -> Command {
    let subcommands = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
    Command::new(command.get_name().to_owned())
        .about(command.get_about().cloned().unwrap_or_default())
        .version(command.get_version().unwrap_or_default().to_owned())
        .args(command.get_arguments().cloned())
        .subcommands(subcommands.map(visible))
}

/// Writes the man pages of a command and of all its subcommands that are not hidden into a folder, which must exist.
///
/// # Errors
///
/// Returns the error of the first file that cannot be written.
pub fn write_man_pages(command: Command, folder: &Path) -> io::Result<()> {
    clap_mangen::generate_to(command, folder)
}
