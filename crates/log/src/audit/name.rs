//! The name of a chain of records, by which copies of it are known elsewhere. It is drawn once, and lies in `NAME.chain` beside
//! the log.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use millrace_vfs::hex::Hex;
use ring::rand::{SecureRandom, SystemRandom};

/// The file with the name.
pub fn file_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".chain");
    name.into()
}

/// Reads the name; `None` where there is none.
pub fn read(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(file_of(path)) {
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(|name| !name.is_empty())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads the name, or draws one.
pub fn read_or_draw(path: &Path) -> io::Result<String> {
    use std::os::unix::fs::OpenOptionsExt;
    if let Some(name) = read(path)? {
        return Ok(name);
    }
    let mut random = [0; 16];
    let drawn = SystemRandom::new().fill(&mut random);
    drawn.map_err(|_| io::Error::other("the system has no random numbers"))?;
    let name = Hex(&random).to_string();
    let mut file = fs::OpenOptions::new().append(true).create(true).mode(0o600).open(file_of(path))?;
    file.write_all(format!("{name}\n").as_bytes())?;
    file.sync_all()?;
    Ok(name)
}
