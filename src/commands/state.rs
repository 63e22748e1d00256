//! `state export`, `state import`, and `state move`, which write the whole state to a tar file,
//! read it from a tar file, or move it to another place.

use crate::config::{StateAction, StateCommand};
use crate::state_owner::refuse_other_users_state;
use crate::{Failure, Result, print};
use callbridge_call::shell::quoted;
use callbridge_model::plain_file::open_named;
use callbridge_model::{Code, clock, safe};
use callbridge_spool::archive::{ArchiveError, ArchivedSecrets, Manifest};
use callbridge_spool::{Copied, StatePlace, Transfer, export, import, move_state};
use std::fs::OpenOptions;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// How often the progress is shown.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// Runs `state export`, `state import`, or `state move`, and prints the result.
///
/// # Errors
/// Fails with 65 if the file can't be read, with 66 if it's missing, with 69 if the state is
/// missing or its server doesn't respond, with 73 if something can't be written, with 75 if the
/// state is in use, and with 78 if the target isn't empty, the state has been moved away, or the
/// data was written by a newer program.
pub(crate) fn run(command: &StateCommand) -> Result<()> {
    if let StateAction::Move { to } = &command.action {
        refuse_other_users_state(to.socket_folder(), std::env::args_os())?;
    }
    // This is a separate thread, because a task mustn't block on another runtime.
    let done = std::thread::scope(|scope| scope.spawn(|| work(command)).join());
    let message = done.unwrap_or_else(|_| {
        let message = "the command failed unexpectedly";
        Err(Failure::new(Code::Failed, message))
    })?;
    print(message)
}

/// Exports, imports, or moves the state, and returns the message to print.
fn work(command: &StateCommand) -> Result<String> {
    let mut shown = ShownProgress::new();
    let place = &command.state;
    match &command.action {
        StateAction::Import { file } => {
            let from =
                open_named(file).map_err(|error| ArchiveError::NotRead(file.clone(), error))?;
            let manifest = import(place, (from, file), &mut |copied| shown.show(copied))?;
            Ok(summary("imported", &manifest, &place.to_string())
                + imported_secrets(manifest.secrets))
        }
        StateAction::Export { file, with_secrets } => {
            let manifest = export_to(file, place, *with_secrets, &mut shown)?;
            Ok(summary("exported", &manifest, &file.display().to_string())
                + exported_secrets(manifest.secrets))
        }
        StateAction::Move { to } => {
            let moved = move_state(place, to, &mut |copied| shown.show(copied))?;
            Ok(moved_summary(place, to, &moved))
        }
    }
}

fn export_to(
    file: &Path,
    place: &StatePlace,
    with_secrets: bool,
    shown: &mut ShownProgress,
) -> Result<Manifest> {
    let mut archive = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)
        .map_err(|error| ArchiveError::NotWritten(file.to_path_buf(), error))?;
    let program = (crate::VERSION, clock::now().wall.floor_seconds().get());
    let written = export(
        place,
        with_secrets,
        (&mut archive, file),
        program,
        &mut |copied| {
            shown.show(copied);
        },
    );
    // An incomplete archive is useless.
    Ok(written.inspect_err(|_| drop(std::fs::remove_file(file)))?)
}

fn imported_secrets(secrets: ArchivedSecrets) -> &'static str {
    match secrets {
        ArchivedSecrets::None => "",
        ArchivedSecrets::LeftOut => {
            "the export has no secrets of the connection: run `callbridge connect` before `run`\n"
        }
        ArchivedSecrets::Included => {
            "it contains the tokens of a connection: stop the callbridge that it was exported \
             from, because only one of them can refresh the tokens\n"
        }
    }
}

fn exported_secrets(secrets: ArchivedSecrets) -> &'static str {
    match secrets {
        ArchivedSecrets::None => "",
        ArchivedSecrets::LeftOut => {
            "the secrets of its connection are left out: to include them, give --with-secrets\n"
        }
        ArchivedSecrets::Included => {
            "it contains the tokens of a connection: protect it like a password\n"
        }
    }
}

/// Returns a summary such as `exported: spool.db 81920 bytes, schema 1, of callbridge 0.1.0:
/// /var/backups/pbx1.tar`.
fn summary(verb: &str, manifest: &Manifest, place: &str) -> String {
    let files: Vec<String> = manifest
        .files
        .iter()
        .map(|file| format!("{} {} bytes", safe(&file.name), file.bytes))
        .collect();
    let program = safe(&manifest.program);
    format!(
        "{verb}: {}, schema {}, of callbridge {program}: {place}\n",
        files.join(", "),
        manifest.schema
    )
}

/// Returns a summary such as `moved: 120 calls, 2410 rows: /var/lib/callbridge/hub to
/// postgres://db1/callbridge`.
fn moved_summary(from: &StatePlace, to: &StatePlace, moved: &Transfer) -> String {
    let rows: u64 = moved.rows.values().sum();
    let calls = moved.rows.get("calls").copied().unwrap_or(0);
    format!(
        "moved: {calls} calls, {rows} rows: {from} to {to}\nstart callbridge with --state {}\n",
        quoted(&to.flag())
    )
}

/// A line on a terminal that shows which table is being copied, and how much of it has been.
struct ShownProgress {
    is_terminal: bool,
    last: Option<Instant>,
}

impl ShownProgress {
    fn new() -> Self {
        Self {
            is_terminal: io::stderr().is_terminal(),
            last: None,
        }
    }

    fn show(&mut self, copied: Copied<'_>) {
        let is_recent = self
            .last
            .is_some_and(|last| last.elapsed() < PROGRESS_EVERY);
        if !self.is_terminal || is_recent {
            return;
        }
        self.last = Some(Instant::now());
        let Copied { table, rows, of } = copied;
        // If stderr is closed, nobody is reading it.
        write!(io::stderr(), "\r\x1b[K{table}: {rows} of {of} rows").ok();
    }
}

impl Drop for ShownProgress {
    fn drop(&mut self) {
        if self.last.is_some() {
            write!(io::stderr(), "\r\x1b[K").ok();
        }
    }
}
