//! `state export` and `state import`: a state folder as one tar file.

use crate::config::StateMove;
use crate::{Result, print};
use callbridge_model::{clock, safe};
use callbridge_oauth::{shown_once, store};
use callbridge_spool::archive::{ArchiveError, Manifest, export, import};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// The files that are exported with the database: an OAuth connection.
const COMPANIONS: [&str; 2] = [store::FILE, shown_once::FILE];

/// One way or the other.
///
/// # Errors
/// 65 and 66 for the file, 69 without a state, 73 where something cannot be written, 75 for a
/// folder in use, 78 for one that is not empty and for what a newer program wrote.
pub(crate) fn run(state: &StateMove) -> Result<()> {
    let (file, dir) = (&state.file, &state.state);
    let words = match state.import {
        true => {
            let from = File::open(file);
            let from = from.map_err(|error| ArchiveError::NotRead(file.clone(), error))?;
            let manifest = import(dir, &COMPANIONS, (from, file))?;
            summary("imported", &manifest, dir)
        }
        false => {
            let mut how = OpenOptions::new();
            let to = how.write(true).create_new(true).mode(0o600).open(file);
            let mut to = to.map_err(|error| ArchiveError::NotWritten(file.clone(), error))?;
            let now = clock::now().wall.floor_seconds().get();
            let written = export(dir, &COMPANIONS, (&mut to, file), (crate::VERSION, now));
            // An incomplete archive is of no use.
            let manifest = written.inspect_err(|_| drop(std::fs::remove_file(file)))?;
            summary("exported", &manifest, file)
        }
    };
    print(words)
}

/// `exported: spool.db 81920 bytes, schema 1, of callbridge 0.1.0: /var/backups/pbx1.tar`
fn summary(verb: &str, manifest: &Manifest, place: &Path) -> String {
    let files: Vec<String> = manifest
        .files
        .iter()
        .map(|file| format!("{} {} bytes", safe(&file.name), file.bytes))
        .collect();
    let secret = if manifest.files.len() > 1 {
        "\nit contains the tokens of a connection: protect it like a password"
    } else {
        ""
    };
    let (program, place) = (safe(&manifest.program), place.display());
    format!(
        "{verb}: {}, schema {}, of callbridge {program}: {place}{secret}\n",
        files.join(", "),
        manifest.schema
    )
}
