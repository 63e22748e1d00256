//! `state export` and `state import`: a state folder as one tar file.

use crate::config::{StateDirection, StateMove};
use crate::{Failure, Result, print};
use callbridge_model::{Code, clock, safe};
use callbridge_spool::archive::{ArchiveError, ArchivedSecrets, Manifest, export, import};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// One way or the other.
///
/// # Errors
/// 65 and 66 for the file, 69 without a state, 73 where something cannot be written, 75 for a
/// folder in use, 78 for one that is not empty and for what a newer program wrote.
pub(crate) fn run(state: &StateMove) -> Result<()> {
    let file = &state.file;
    let Some(dir) = state.state.folder() else {
        let message = "state export and state import take a folder";
        return Err(Failure::new(Code::Usage, message));
    };
    let message = match state.direction {
        StateDirection::Import => {
            let from = File::open(file);
            let from = from.map_err(|error| ArchiveError::NotRead(file.clone(), error))?;
            let manifest = import(dir, (from, file))?;
            let secrets = match manifest.secrets {
                ArchivedSecrets::None => "",
                ArchivedSecrets::LeftOut => {
                    "it was exported without the secrets of its connection: run `callbridge \
                     connect` before `run`\n"
                }
                ArchivedSecrets::Included => {
                    "it contains the tokens of a connection: stop the callbridge that it was \
                     exported from, because only one of them can refresh the tokens\n"
                }
            };
            summary("imported", &manifest, dir) + secrets
        }
        StateDirection::Export { with_secrets } => {
            let mut how = OpenOptions::new();
            let to = how.write(true).create_new(true).mode(0o600).open(file);
            let mut to = to.map_err(|error| ArchiveError::NotWritten(file.clone(), error))?;
            let now = clock::now().wall.floor_seconds().get();
            let written = export(dir, with_secrets, (&mut to, file), (crate::VERSION, now));
            // An incomplete archive is of no use.
            let manifest = written.inspect_err(|_| drop(std::fs::remove_file(file)))?;
            let secrets = match manifest.secrets {
                ArchivedSecrets::None => "",
                ArchivedSecrets::LeftOut => {
                    "the secrets of its connection are left out: to include them, give \
                     --with-secrets\n"
                }
                ArchivedSecrets::Included => {
                    "it contains the tokens of a connection: protect it like a password\n"
                }
            };
            summary("exported", &manifest, file) + secrets
        }
    };
    print(message)
}

/// `exported: spool.db 81920 bytes, schema 1, of callbridge 0.1.0: /var/backups/pbx1.tar`
fn summary(verb: &str, manifest: &Manifest, place: &Path) -> String {
    let files: Vec<String> = manifest
        .files
        .iter()
        .map(|file| format!("{} {} bytes", safe(&file.name), file.bytes))
        .collect();
    let (program, place) = (safe(&manifest.program), place.display());
    format!(
        "{verb}: {}, schema {}, of callbridge {program}: {place}\n",
        files.join(", "),
        manifest.schema
    )
}
