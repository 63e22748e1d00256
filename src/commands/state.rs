//! `state export` and `state import`: a state folder as one file.

use crate::config::StateMove;
use crate::{Result, print};
use callbridge_model::{clock, safe};
use callbridge_oauth::{shown_once, store};
use callbridge_spool::archive::{ArchiveError, StateArchive, export, import};
use std::path::Path;

/// The files that go along beside the database: a connection by consent.
const BESIDE: [&str; 2] = [store::FILE, shown_once::FILE];

/// One way or the other.
///
/// # Errors
/// 65 and 66 for the file, 69 without a state, 73 where something cannot be written, 75 for a
/// folder in use, 78 for one that is not empty and for what a newer program wrote.
pub(crate) fn run(state: &StateMove) -> Result<()> {
    let (file, dir) = (&state.file, &state.state);
    let words = match state.import {
        true => {
            let from = state.held.archive(file, true);
            let from = from.map_err(|error| ArchiveError::NotRead(file.clone(), error))?;
            let archive = import(dir, &BESIDE, (from, file))?;
            summary("imported", &archive, dir)
        }
        false => {
            let to = state.held.archive(file, false);
            let mut to = to.map_err(|error| ArchiveError::NotWritten(file.clone(), error))?;
            let now = clock::now().wall.floor_seconds().get();
            let written = export(dir, &BESIDE, (&mut to, file), (crate::VERSION, now));
            // What is not whole is of no use; where root has made it, it is told by its reader.
            let archive = written.inspect_err(|_| drop(std::fs::remove_file(file)))?;
            summary("exported", &archive, file)
        }
    };
    print(words)
}

/// `exported: spool.db 81920 bytes, schema 9, of callbridge 0.1.0: /var/backups/pbx1`
fn summary(verb: &str, archive: &StateArchive, place: &Path) -> String {
    let parts = archive.parts.iter();
    let parts = parts.map(|part| format!("{} {} bytes", safe(&part.name), part.bytes));
    let secret = match archive.parts.len() {
        1 => "",
        _ => "\nit holds the tokens of a connection: keep it as you would a password",
    };
    let (parts, schema) = (parts.collect::<Vec<_>>().join(", "), archive.schema);
    let (program, place) = (safe(&archive.program), place.display());
    format!("{verb}: {parts}, schema {schema}, of callbridge {program}: {place}{secret}\n")
}
