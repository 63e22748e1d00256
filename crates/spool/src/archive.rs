//! A state folder as a single tar file, exported while the daemon runs and imported into an empty
//! folder.
//!
//! | entry | content |
//! |---|---|
//! | `manifest.json` | [`Manifest`]: who exported it, and the file with its length and digest |
//! | `spool.db` | a snapshot of the database at one moment, made with `VACUUM INTO` |
//!
//! The secrets of an OAuth connection are left out unless they're requested. Since calls are
//! private too, only the owner can read the archive. Anyone who had access to an archive may have
//! altered it, so an import keeps nothing unless `spool.db` has the length and digest listed in the
//! manifest, and exactly the schema that callbridge creates. A foreign trigger would otherwise run
//! with each of the daemon's commits.

use crate::marks::refuse_unusable;
use crate::state_dir::{
    FILE, LOCK, check_siblings, connect, make_folder, not_writable, sync_folder,
};
use crate::tables::connection::SECRET_TABLES;
use crate::tables::schema::{Found, MIGRATIONS, inspect};
use crate::{Db, Error, Lock, refuse_shared};
use callbridge_model::{Code, ExitCode, plain_file};
use ring::digest::{Context, SHA256};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use tar::{Archive, Builder, Entries, Entry, EntryType, Header};

/// Name of the first entry.
pub const MANIFEST: &str = "manifest.json";
const MANIFEST_BYTES_MAX: u64 = 64 * 1024;
/// Size of a tar block. Tar pads each entry to whole blocks and ends with two blocks of zeros.
const BLOCK_BYTES: u64 = 512;
/// Mode of an exported or imported file, which makes it readable only by its owner.
const MODE: u32 = 0o600;

/// Describes an archive's content. Stored as JSON in the first entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Version of the program that exported the state.
    pub program: String,
    /// Version of the database schema.
    pub schema: i64,
    /// Time of the export in epoch seconds.
    pub exported_at: i64,
    pub secrets: ArchivedSecrets,
    /// The files in the archive, which are always just `spool.db`, the entry after the manifest.
    pub files: Vec<ManifestFile>,
}

/// Whether the archive holds the secrets of an OAuth connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArchivedSecrets {
    /// The state has no such secrets.
    None,
    LeftOut,
    Included,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestFile {
    /// File name in the state folder.
    pub name: String,
    pub bytes: u64,
    /// SHA-256 of the content, in lowercase hexadecimal digits.
    pub sha256: String,
}

/// Why a state couldn't be exported or imported. In either case, nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// An error from the state folder.
    #[error(transparent)]
    State(#[from] Error),
    #[error("{0}: cannot be written: {1}; make room, or name another file")]
    NotWritten(PathBuf, #[source] io::Error),
    #[error("{0}: cannot be read: {1}")]
    NotRead(PathBuf, #[source] io::Error),
    /// The file isn't a complete exported state.
    #[error("{0} is not an exported state: {1}; nothing was imported")]
    NoArchive(PathBuf, String),
    #[error("{0} was written by a newer callbridge ({1}): import it with that version")]
    Newer(PathBuf, String),
    #[error(
        "{0} is not empty ({1} is there): import a state into an empty folder. Move the files \
         away, or give another --state"
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

/// A file in the state folder that's removed when this value is dropped.
struct Temporary(PathBuf);

impl Temporary {
    fn make(dir: &Path, name: &str) -> Result<(Self, File), Error> {
        // The name is random, because a killed export may have left a file with the same process ID
        // behind.
        let path = dir.join(format!(".{name}.{}", uuid::Uuid::new_v4()));
        let mut how = OpenOptions::new();
        how.create_new(true).write(true).mode(MODE);
        let file =
            plain_file::open(&path, &mut how).map_err(|error| not_writable(&path, &error))?;
        Ok((Self(path), file))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // If the file was renamed, there's nothing to remove.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A reader that counts and digests the bytes read through it.
struct Digester<R> {
    inner: R,
    digest: Context,
    bytes: u64,
}

impl<R: Read> Digester<R> {
    fn new(inner: R) -> Self {
        Self {
            inner,
            digest: Context::new(&SHA256),
            bytes: 0,
        }
    }

    fn finish(self, name: &str) -> ManifestFile {
        let digest = self.digest.finish();
        let hex = digest.as_ref().iter().map(|byte| format!("{byte:02x}"));
        ManifestFile {
            name: name.to_owned(),
            bytes: self.bytes,
            sha256: hex.collect(),
        }
    }
}

impl<R: Read> Read for Digester<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.digest.update(&buffer[..count]);
        self.bytes += count as u64;
        Ok(count)
    }
}

/// Writes the state in the folder `dir` to the archive `to`, whose path is `path`. `left_out` is
/// `true` if secrets have already been removed from the state. `program` and `now` are recorded in
/// the manifest.
pub(crate) fn export_folder(
    dir: &Path,
    with_secrets: bool,
    left_out: bool,
    (to, path): (&mut File, &Path),
    (program, now): (&str, i64),
) -> Result<Manifest, ArchiveError> {
    let database = dir.join(FILE);
    if !matches!(plain_file::check(&database), Ok(Some(_))) {
        return Err(Error::Missing(dir.into()).into());
    }
    check_siblings(&database)?;
    let (snapshot, _) = Temporary::make(dir, "export.db")?;
    let schema =
        vacuum(&database, &snapshot.0).map_err(|error| Error::sqlite(&database, &error))?;
    refuse_unusable(&Db::sqlite(connect(&snapshot.0)?, &database))?;
    let mut secrets = archived_secrets(&snapshot.0, with_secrets)
        .map_err(|error| Error::sqlite(&database, &error))?;
    if left_out {
        secrets = ArchivedSecrets::LeftOut;
    }
    let mut digester = Digester::new(open(&snapshot.0)?);
    io::copy(&mut digester, &mut io::sink())
        .map_err(|error| ArchiveError::NotRead(snapshot.0.clone(), error))?;
    let file = digester.finish(FILE);
    let manifest = Manifest {
        program: program.to_owned(),
        schema,
        exported_at: now,
        secrets,
        files: vec![file.clone()],
    };
    let snapshot = open(&snapshot.0)?;
    write_archive(to, &manifest, &file, snapshot)
        .map_err(|error| ArchiveError::NotWritten(path.to_path_buf(), error))?;
    Ok(manifest)
}

fn write_archive(
    to: &mut File,
    manifest: &Manifest,
    file: &ManifestFile,
    snapshot: File,
) -> io::Result<()> {
    let json = serde_json::to_vec_pretty(manifest)?;
    let mut archive = Builder::new(&mut *to);
    let manifest_header = header(MANIFEST, json.len() as u64, manifest.exported_at)?;
    archive.append(&manifest_header, &*json)?;
    let file_header = header(FILE, file.bytes, manifest.exported_at)?;
    archive.append(&file_header, snapshot)?;
    archive.into_inner()?;
    to.sync_all()
}

/// Creates the header for a file that only its owner can read.
fn header(name: &str, bytes: u64, now: i64) -> io::Result<Header> {
    let mut header = Header::new_ustar();
    header.set_path(name)?;
    header.set_entry_type(EntryType::Regular);
    header.set_mode(MODE);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(now.try_into().unwrap_or(0));
    header.set_size(bytes);
    header.set_cksum();
    Ok(header)
}

/// Copies a consistent snapshot of the database, and returns its schema version.
fn vacuum(file: &Path, into: &Path) -> rusqlite::Result<i64> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(file, flags)?;
    db.busy_timeout(std::time::Duration::from_secs(10))?;
    let into = std::path::absolute(into).unwrap_or_else(|_| into.to_path_buf());
    db.execute("VACUUM INTO ?1", [into.to_string_lossy()])?;
    db.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// Removes the secrets from a snapshot unless they're `wanted`, returning what the snapshot held.
fn archived_secrets(snapshot: &Path, wanted: bool) -> rusqlite::Result<ArchivedSecrets> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(snapshot, flags)?;
    // Otherwise the secrets would remain in the file's free space and in its journal.
    db.execute_batch("PRAGMA journal_mode = MEMORY; PRAGMA secure_delete = ON;")?;
    let mut rows = 0;
    for table in SECRET_TABLES {
        rows += if wanted {
            db.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| {
                row.get(0)
            })?
        } else {
            db.execute(&format!("DELETE FROM {table}"), [])?
        };
    }
    Ok(match rows {
        0 => ArchivedSecrets::None,
        _ if wanted => ArchivedSecrets::Included,
        _ => ArchivedSecrets::LeftOut,
    })
}

fn open(path: &Path) -> Result<File, ArchiveError> {
    let opened = plain_file::open(path, OpenOptions::new().read(true));
    opened.map_err(|error| ArchiveError::NotRead(path.to_path_buf(), error))
}

/// Restores the state in the tar file `from`, whose path is `path`, to the empty folder `dir`.
///
/// Nothing is unpacked by name. Instead, the expected entries are read in order, and the database
/// is written to a temporary file that gets its final name only after the whole archive has been
/// read and checked.
///
/// # Errors
/// Returns an error if the folder is in use or not empty, or if the archive is incomplete, altered,
/// or newer.
pub(crate) fn import_folder(
    dir: &Path,
    (from, path): (File, &Path),
) -> Result<Manifest, ArchiveError> {
    let mut archive = Archive::new(BufReader::new(from));
    let mut entries = Expected {
        // With raw entries, extensions for long names, links, and sparse files show up as entries
        // of other types, which are rejected.
        entries: archive
            .entries()
            .map_err(|error| read_error(path, error))?
            .raw(true),
        path,
    };
    let (manifest, file) = read_manifest(&mut entries)?;
    refuse_shared(dir)?;
    make_folder(dir)?;
    let lock = Lock::take(dir)?;
    let listed = dir.read_dir().map_err(|error| not_writable(dir, &error))?;
    let mut others = listed.flatten().map(|entry| entry.file_name());
    if let Some(other) = others.find(|name| name != LOCK) {
        let name = other.to_string_lossy().into_owned();
        return Err(ArchiveError::NotEmpty(dir.to_path_buf(), name));
    }
    let database = write_entry(&mut entries, &file, dir)?;
    check_database(&database.0, path)?;
    entries.end()?;
    check_end(archive.into_inner(), path)?;
    let place = dir.join(FILE);
    std::fs::rename(&database.0, &place).map_err(|error| not_writable(&place, &error))?;
    sync_folder(&place)?;
    drop(lock);
    Ok(manifest)
}

struct Expected<'a, R: Read> {
    entries: Entries<'a, R>,
    path: &'a Path,
}

impl<'a, R: Read> Expected<'a, R> {
    /// Returns the next entry, rejecting the archive if it isn't a regular file with this name.
    fn next(&mut self, name: &str) -> Result<Entry<'a, R>, ArchiveError> {
        let Some(entry) = self.entries.next() else {
            return Err(no_archive(self.path, format!("{name} is missing in it")));
        };
        let entry = entry.map_err(|error| read_error(self.path, error))?;
        let found = entry.path_bytes();
        if found != name.as_bytes() {
            let found = String::from_utf8_lossy(&found);
            let message = format!("it has {found:?} where {name} must be");
            return Err(no_archive(self.path, message));
        }
        if entry.header().entry_type() != EntryType::Regular {
            let message = format!("the entry {name} is not a regular file");
            return Err(no_archive(self.path, message));
        }
        Ok(entry)
    }

    /// Rejects an archive that has further entries.
    fn end(mut self) -> Result<(), ArchiveError> {
        match self.entries.next() {
            None => Ok(()),
            Some(Ok(entry)) => {
                let bytes = entry.path_bytes();
                let name = String::from_utf8_lossy(&bytes);
                let message = format!("it has {name:?}, which its manifest does not list");
                Err(no_archive(self.path, message))
            }
            Some(Err(error)) => Err(read_error(self.path, error)),
        }
    }
}

fn no_archive(path: &Path, message: String) -> ArchiveError {
    ArchiveError::NoArchive(path.to_path_buf(), message)
}

/// Returns the error for a failed read. If it has no operating system error code, the file isn't a
/// complete tar file.
fn read_error(path: &Path, error: io::Error) -> ArchiveError {
    if error.raw_os_error().is_some() {
        ArchiveError::NotRead(path.to_path_buf(), error)
    } else {
        no_archive(path, "it is not a complete tar file".to_owned())
    }
}

/// Reads the manifest, returning it along with its only file, `spool.db`.
fn read_manifest(
    entries: &mut Expected<'_, impl Read>,
) -> Result<(Manifest, ManifestFile), ArchiveError> {
    let path = entries.path;
    let mut entry = entries.next(MANIFEST)?;
    if entry.size() > MANIFEST_BYTES_MAX {
        return Err(no_archive(path, format!("{MANIFEST} in it is too long")));
    }
    let mut json = Vec::new();
    entry
        .read_to_end(&mut json)
        .map_err(|error| read_error(path, error))?;
    let manifest: Manifest = serde_json::from_slice(&json)
        .map_err(|error| no_archive(path, format!("{MANIFEST} in it: {error}")))?;
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    if manifest.schema > known {
        return Err(newer(path, manifest.schema));
    }
    let file = match &manifest.files[..] {
        [file] if file.name == FILE => file.clone(),
        files => {
            let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
            let message = format!("{MANIFEST} in it lists {names:?} and not only {FILE}");
            return Err(no_archive(path, message));
        }
    };
    Ok((manifest, file))
}

/// Writes the next entry to a temporary file in `dir`, provided that its name, length, and digest
/// match those in `file`.
fn write_entry(
    entries: &mut Expected<'_, impl Read>,
    file: &ManifestFile,
    dir: &Path,
) -> Result<Temporary, ArchiveError> {
    let path = entries.path;
    let entry = entries.next(&file.name)?;
    if entry.size() != file.bytes {
        return Err(altered_file(path, &file.name));
    }
    let (temporary, mut to) = Temporary::make(dir, &file.name)?;
    let mut digester = Digester::new(entry);
    let copied = io::copy(&mut digester, &mut to).and_then(|_| to.sync_all());
    copied.map_err(|error| not_writable(&temporary.0, &error))?;
    if digester.finish(&file.name) != *file {
        return Err(altered_file(path, &file.name));
    }
    Ok(temporary)
}

fn altered_file(path: &Path, name: &str) -> ArchiveError {
    no_archive(path, format!("{name} in it was changed after the export"))
}

/// Rejects an archive that's cut off or has trailing data. The first block of zeros was read as the
/// end of the entries, so it must be followed by a second one, and then by nothing but zeros.
fn check_end(mut rest: impl Read, path: &Path) -> Result<(), ArchiveError> {
    let mut bytes = 0_u64;
    let mut buffer = [0; 8192];
    loop {
        let count = rest
            .read(&mut buffer)
            .map_err(|error| read_error(path, error))?;
        if count == 0 {
            break;
        }
        if buffer[..count].iter().any(|byte| *byte != 0) {
            return Err(no_archive(path, "it has more bytes at its end".to_owned()));
        }
        bytes += count as u64;
    }
    if bytes < BLOCK_BYTES {
        return Err(no_archive(path, "its end is missing".to_owned()));
    }
    Ok(())
}

fn newer(path: &Path, schema: i64) -> ArchiveError {
    let message = format!("schema {schema}, this one reads up to {}", MIGRATIONS.len());
    ArchiveError::Newer(path.to_path_buf(), message)
}

/// A table, index, trigger, or view, given by its kind, name, table, and SQL text.
type SchemaEntry = (String, String, String, String);

/// Checks the database `file` from the archive `path`, without changing the file or running any of
/// its triggers.
fn check_database(file: &Path, path: &Path) -> Result<(), ArchiveError> {
    let db = open_unchanged(file).map_err(|error| database_error(path, &error))?;
    let found = inspect(&db, MIGRATIONS).map_err(|error| database_error(path, &error))?;
    let version = match found {
        Found::Current => MIGRATIONS.len(),
        Found::Migrated(version) => usize::try_from(version).unwrap_or(0),
        Found::Newer(version) => return Err(newer(path, version)),
        Found::New | Found::Foreign => {
            return Err(no_archive(
                path,
                format!("{FILE} in it was not written by callbridge"),
            ));
        }
    };
    let found = entries(&db).map_err(|error| database_error(path, &error))?;
    let made = schema_entries(version).map_err(|error| database_error(path, &error))?;
    if let Some((kind, name, ..)) = found.difference(&made).next() {
        let message = format!("{FILE} in it has a {kind} `{name}` that callbridge does not create");
        return Err(no_archive(path, message));
    }
    if let Some((kind, name, ..)) = made.difference(&found).next() {
        let message = format!("{FILE} in it lacks the {kind} `{name}`");
        return Err(no_archive(path, message));
    }
    // This check evaluates expressions in the schema, which is why it was compared with
    // callbridge's schema above.
    let check = "PRAGMA integrity_check(1)";
    let verdict: String = db
        .query_row(check, [], |row| row.get(0))
        .map_err(|error| database_error(path, &error))?;
    match verdict.as_str() {
        "ok" => Ok(()),
        problem => Err(no_archive(
            path,
            format!("{FILE} in it is damaged: {problem}"),
        )),
    }
}

fn database_error(path: &Path, error: &rusqlite::Error) -> ArchiveError {
    no_archive(path, format!("{FILE} in it cannot be read: {error}"))
}

/// Opens the database read-only and without its journal files.
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

/// Returns the schema entries that callbridge creates for this schema version.
fn schema_entries(version: usize) -> rusqlite::Result<BTreeSet<SchemaEntry>> {
    let db = Connection::open_in_memory()?;
    db.execute_batch(&MIGRATIONS[..version.min(MIGRATIONS.len())].concat())?;
    entries(&db)
}

fn entries(db: &Connection) -> rusqlite::Result<BTreeSet<SchemaEntry>> {
    let mut asked =
        db.prepare("SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master")?;
    let rows = asked.query_map([], |row| {
        let sql: String = row.get(3)?;
        let words: Vec<&str> = sql.split_whitespace().collect();
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, words.join(" ")))
    })?;
    rows.collect()
}
