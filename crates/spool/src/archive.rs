//! A state folder as one file: written while the daemon runs, and put into an empty folder.
//!
//! ```text
//! callbridge-state 1                                  the version of this shape
//! {"program":…,"schema":…,"exportedAt":…,"parts":[{"name","bytes","sha256"}…]}
//! the bytes of each part, one behind the other
//! ```
//! The database is a snapshot by SQLite itself, whole at one moment, whatever is written meanwhile.
//! Beside it go the files that are named by who exports: secrets among them, so the file is its
//! owner's alone. Nothing in it is taken unless all of it is as it was written, and its database is
//! one that callbridge makes: whoever kept the file may have changed it, and a trigger in it would
//! run with every commit of the daemon that takes it over.

use crate::state_dir::{FILE, LOCK, check_siblings, make_folder, not_writable, sync_folder};
use crate::tables::schema::{Found, MIGRATIONS, inspect};
use crate::{Error, Lock, refuse_shared};
use callbridge_model::{Code, ExitCode, plain_file};
use ring::digest::{Context, SHA256};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Beginning of the file, with the version of its shape behind it.
const MAGIC: &str = "callbridge-state ";
const VERSION: u32 = 1;
/// Bytes of the first two lines at most.
const HEADER_BYTES_MAX: u64 = 64 * 1024;
const BUFFER_BYTES: u64 = 64 * 1024;

/// Header of an exported state, its second line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StateArchive {
    /// The version of the program that wrote it.
    pub program: String,
    /// The schema of its database.
    pub schema: i64,
    /// Moment of the export, in epoch seconds.
    pub exported_at: i64,
    /// Files in it, in the order of their bytes.
    pub parts: Vec<ArchivePart>,
}

/// One file of an exported state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchivePart {
    /// Name in the state folder: `spool.db`, or a file beside it.
    pub name: String,
    /// Length of the file, in bytes.
    pub bytes: u64,
    /// SHA-256 of its bytes, in hexadecimal digits.
    pub sha256: String,
}

/// Reason why a state cannot be exported or imported. Nothing is changed then.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// Error of the state folder itself.
    #[error(transparent)]
    State(#[from] Error),
    /// The file cannot be written.
    #[error("{0}: cannot be written: {1}; make room, or name another file")]
    NotWritten(PathBuf, #[source] io::Error),
    /// The file cannot be read.
    #[error("{0}: cannot be read: {1}")]
    NotRead(PathBuf, #[source] io::Error),
    /// The file is no exported state, or not whole.
    #[error("{0} is not an exported state: {1}; nothing was taken from it")]
    NoArchive(PathBuf, String),
    /// A newer callbridge wrote it.
    #[error("{0} was written by a newer callbridge ({1}): import it with that one")]
    Newer(PathBuf, String),
    /// The folder for the import holds something.
    #[error(
        "{0} is not empty ({1} is there): a state is imported into a folder of its own, so \
         move what is there away, or give another --state"
    )]
    NotEmpty(PathBuf, String),
}

impl ExitCode for ArchiveError {
    fn exit_code(&self) -> Code {
        match self {
            Self::State(error) => error.exit_code(),
            Self::NotWritten(..) => Code::CannotWrite,
            Self::NotRead(_, error) if error.kind() == io::ErrorKind::NotFound => Code::NoInput,
            Self::NotRead(..) | Self::NoArchive(..) => Code::Input,
            Self::Newer(..) | Self::NotEmpty(..) => Code::Configuration,
        }
    }
}

/// A file of ours for the time of the work; gone when this is dropped.
struct Temporary(PathBuf);

impl Temporary {
    fn make(dir: &Path, name: &str) -> Result<(Self, File), Error> {
        // What a killed export has left must be in nobody's way: process ids come again.
        let path = dir.join(format!(".{name}.{}", uuid::Uuid::new_v4()));
        let mut how = OpenOptions::new();
        let how = how.create_new(true).write(true).mode(0o600);
        let file = plain_file::open(&path, how).map_err(|error| not_writable(&path, &error))?;
        Ok((Self(path), file))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // Put into its place it is there no more.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Writes the state in `dir`, and what of `beside` is there, into `to`, which is called `path`.
///
/// # Errors
/// Where there is no state, or one of the files cannot be read or written.
pub fn export(
    dir: &Path,
    beside: &[&str],
    (to, path): (&mut File, &Path),
    (program, now): (&str, i64),
) -> Result<StateArchive, ArchiveError> {
    let file = dir.join(FILE);
    if !matches!(plain_file::check(&file), Ok(Some(_))) {
        return Err(Error::Missing(dir.into()).into());
    }
    check_siblings(&file)?;
    let (snapshot, _) = Temporary::make(dir, "export.db")?;
    let schema = vacuum(&file, &snapshot.0).map_err(|error| Error::sqlite(&file, &error))?;
    let mut files = vec![(FILE.to_owned(), snapshot.0.clone())];
    for name in beside {
        let path = dir.join(name);
        let found = plain_file::check(&path).map_err(|error| not_writable(&path, &error))?;
        files.extend(found.map(|_| ((*name).to_owned(), path)));
    }
    let mut parts = Vec::new();
    for (name, path) in &files {
        let part = copy(name, open(path)?, &mut io::sink());
        parts.push(part.map_err(|error| ArchiveError::NotRead(path.clone(), error))?);
    }
    let archive = StateArchive {
        program: program.to_owned(),
        schema,
        exported_at: now,
        parts,
    };
    let wrong = |error: io::Error| ArchiveError::NotWritten(path.to_path_buf(), error);
    let header = serde_json::to_string(&archive).map_err(|error| wrong(error.into()))?;
    writeln!(to, "{MAGIC}{VERSION}\n{header}").map_err(wrong)?;
    for ((_, from), part) in files.iter().zip(&archive.parts) {
        if copy(&part.name, open(from)?, to).map_err(wrong)? != *part {
            let words = format!("{} was changed at the same time; try again", part.name);
            return Err(wrong(io::Error::other(words)));
        }
    }
    to.sync_all().map_err(wrong)?;
    Ok(archive)
}

/// A whole copy as it is at one moment, and its schema.
fn vacuum(file: &Path, into: &Path) -> rusqlite::Result<i64> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(file, flags)?;
    db.busy_timeout(std::time::Duration::from_secs(10))?;
    let into = std::path::absolute(into).unwrap_or_else(|_| into.to_path_buf());
    db.execute("VACUUM INTO ?1", [into.to_string_lossy()])?;
    db.query_row("PRAGMA user_version", [], |row| row.get(0))
}

fn open(path: &Path) -> Result<File, ArchiveError> {
    let opened = plain_file::open(path, OpenOptions::new().read(true));
    opened.map_err(|error| ArchiveError::NotRead(path.to_path_buf(), error))
}

/// Copies the part of this name; how many bytes there were, and their digest.
fn copy(name: &str, mut from: impl Read, to: &mut impl Write) -> io::Result<ArchivePart> {
    let (mut digest, mut bytes) = (Context::new(&SHA256), 0_u64);
    let mut buffer = Vec::new();
    while from.by_ref().take(BUFFER_BYTES).read_to_end(&mut buffer)? > 0 {
        digest.update(&buffer);
        to.write_all(&buffer)?;
        bytes += buffer.len() as u64;
        buffer.clear();
    }
    let digest = digest.finish();
    let hex = digest.as_ref().iter().map(|byte| format!("{byte:02x}"));
    Ok(ArchivePart {
        name: name.to_owned(),
        bytes,
        sha256: hex.collect(),
    })
}

/// Puts the state of `from`, which is called `path`, into the empty folder `dir`; of the files
/// beside the database only those of `beside` are known.
///
/// # Errors
/// Where the folder is in use or not empty, or the file is not whole, or of a newer version.
pub fn import(
    dir: &Path,
    beside: &[&str],
    (from, path): (File, &Path),
) -> Result<StateArchive, ArchiveError> {
    let mut from = BufReader::new(from);
    let archive = read_header(&mut from, beside, path)?;
    refuse_shared(dir)?;
    make_folder(dir)?;
    let lock = Lock::take(dir)?;
    let listed = dir.read_dir().map_err(|error| not_writable(dir, &error))?;
    let mut others = listed.flatten().map(|it| it.file_name());
    if let Some(other) = others.find(|name| name != LOCK) {
        let name = other.to_string_lossy().into_owned();
        return Err(ArchiveError::NotEmpty(dir.to_path_buf(), name));
    }
    let mut waiting = Vec::new();
    for part in &archive.parts {
        let (temporary, mut file) = Temporary::make(dir, &part.name)?;
        let copied = copy(&part.name, from.by_ref().take(part.bytes), &mut file);
        let synced = copied.and_then(|copied| file.sync_all().map(|()| copied));
        if synced.map_err(|error| not_writable(&temporary.0, &error))? != *part {
            let words = format!("{} is not whole in it", part.name);
            return Err(ArchiveError::NoArchive(path.to_path_buf(), words));
        }
        if part.name == FILE {
            check_database(&temporary.0, path)?;
        }
        waiting.push((temporary, dir.join(&part.name)));
    }
    // The database last: with it there is a state.
    for (temporary, place) in waiting.iter().rev() {
        let put = std::fs::rename(&temporary.0, place);
        put.map_err(|error| not_writable(place, &error))?;
    }
    sync_folder(&dir.join(FILE))?;
    drop(lock);
    Ok(archive)
}

fn read_header(
    from: &mut BufReader<File>,
    beside: &[&str],
    path: &Path,
) -> Result<StateArchive, ArchiveError> {
    let none = |words: &str| ArchiveError::NoArchive(path.to_path_buf(), words.to_owned());
    let mut lines = from.take(HEADER_BYTES_MAX);
    let mut line = || {
        let mut line = Vec::new();
        let read = lines.read_until(b'\n', &mut line);
        read.map_err(|error| ArchiveError::NotRead(path.to_path_buf(), error))?;
        Ok::<_, ArchiveError>(String::from_utf8_lossy(&line).trim_end().to_owned())
    };
    let (first, header) = (line()?, line()?);
    let Some(Ok(version)) = first.strip_prefix(MAGIC).map(str::parse::<u32>) else {
        return Err(none("it does not begin as one"));
    };
    if version > VERSION {
        let words = format!("shape {version}, this one knows {VERSION}");
        return Err(ArchiveError::Newer(path.to_path_buf(), words));
    }
    let read = serde_json::from_str::<StateArchive>(&header);
    let archive = read.map_err(|error| none(&format!("its second line: {error}")))?;
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    if archive.schema > known {
        let words = format!("schema {}, this one knows {known}", archive.schema);
        return Err(ArchiveError::Newer(path.to_path_buf(), words));
    }
    let names: Vec<&str> = archive.parts.iter().map(|part| &*part.name).collect();
    match names.split_first() {
        Some((&FILE, others)) if others.iter().all(|name| beside.contains(name)) => Ok(archive),
        Some(_) | None => Err(none("its files are not those of a state")),
    }
}

/// A table, index, trigger or view: its kind, its name, whose it is, and how it was made.
type SchemaEntry = (String, String, String, String);

/// Looks at the database `file`, which came in the archive `path`, without changing it or running
/// anything that stands in it.
fn check_database(file: &Path, path: &Path) -> Result<(), ArchiveError> {
    let none = |words: String| ArchiveError::NoArchive(path.to_path_buf(), words);
    let unread = |error: rusqlite::Error| none(format!("{FILE} in it cannot be read: {error}"));
    let db = open_unchanged(file).map_err(unread)?;
    let version = match inspect(&db, MIGRATIONS).map_err(unread)? {
        Found::Current => MIGRATIONS.len(),
        Found::Migrated(version) => usize::try_from(version).unwrap_or(0),
        Found::Newer(version) => {
            let words = format!("schema {version}, this one knows {}", MIGRATIONS.len());
            return Err(ArchiveError::Newer(path.to_path_buf(), words));
        }
        Found::New | Found::Foreign => {
            return Err(none(format!("{FILE} in it is not callbridge's")));
        }
    };
    let found = entries(&db).map_err(unread)?;
    let made = made(version).map_err(unread)?;
    if let Some((kind, name, ..)) = found.difference(&made).next() {
        let words = format!("{FILE} in it has a {kind} `{name}` that no callbridge makes");
        return Err(none(words));
    }
    if let Some((kind, name, ..)) = made.difference(&found).next() {
        return Err(none(format!("{FILE} in it lacks the {kind} `{name}`")));
    }
    // Expressions of the schema are evaluated here, and by now they are ours.
    let check = "PRAGMA integrity_check(1)";
    let said: rusqlite::Result<String> = db.query_row(check, [], |row| row.get(0));
    match said.map_err(unread)?.as_str() {
        "ok" => Ok(()),
        words => Err(none(format!("{FILE} in it is damaged: {words}"))),
    }
}

/// Opens it as it lies there: no journal of its name is looked for or made.
fn open_unchanged(file: &Path) -> rusqlite::Result<Connection> {
    let path = std::path::absolute(file).unwrap_or_else(|_| file.to_path_buf());
    let mut name = path.to_string_lossy().into_owned();
    for (letter, code) in [('%', "%25"), ('?', "%3f"), ('#', "%23")] {
        name = name.replace(letter, code);
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    let db = Connection::open_with_flags(format!("file:{name}?immutable=1"), flags)?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    Ok(db)
}

/// Returns the entries of a database that callbridge makes with this schema.
fn made(version: usize) -> rusqlite::Result<BTreeSet<SchemaEntry>> {
    let db = Connection::open_in_memory()?;
    db.execute_batch(&MIGRATIONS[..version.min(MIGRATIONS.len())].concat())?;
    entries(&db)
}

fn entries(db: &Connection) -> rusqlite::Result<BTreeSet<SchemaEntry>> {
    let mut asked =
        db.prepare("SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master")?;
    let rows = asked.query_map([], |row| {
        let sql: String = row.get(3)?;
        let sql: Vec<&str> = sql.split_whitespace().collect();
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, sql.join(" ")))
    })?;
    rows.collect()
}
