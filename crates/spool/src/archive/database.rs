//! Is the database of an exported state one that callbridge has made? Whoever kept the file may
//! have changed it: a trigger in it would run with every commit of the daemon that takes it over.

use super::ArchiveError;
use crate::files::FILE;
use crate::tables::schema::{Found, MIGRATIONS, inspect};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use std::collections::BTreeSet;
use std::path::Path;

/// A table, index, trigger or view: its kind, its name, whose it is, and how it was made.
type SchemaEntry = (String, String, String, String);

/// Looks at the database `file`, which came in the archive `path`, without changing it or running
/// anything that stands in it.
pub(super) fn check(file: &Path, path: &Path) -> Result<(), ArchiveError> {
    let none = |words: String| ArchiveError::NoArchive(path.to_path_buf(), words);
    let unread = |error: rusqlite::Error| none(format!("{FILE} in it cannot be read: {error}"));
    let db = open(file).map_err(unread)?;
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
    let (found, made) = (
        entries(&db).map_err(unread)?,
        made(version).map_err(unread)?,
    );
    if let Some((kind, name, ..)) = found.difference(&made).next() {
        let words = format!("{FILE} in it has a {kind} `{name}` that no callbridge makes");
        return Err(none(words));
    }
    if let Some((kind, name, ..)) = made.difference(&found).next() {
        return Err(none(format!("{FILE} in it lacks the {kind} `{name}`")));
    }
    // Expressions of the schema are evaluated here, and by now they are ours.
    let said = db.query_row("PRAGMA integrity_check(1)", [], |row| {
        row.get::<_, String>(0)
    });
    match said.map_err(unread)?.as_str() {
        "ok" => Ok(()),
        words => Err(none(format!("{FILE} in it is damaged: {words}"))),
    }
}

/// Opens it as it lies there: no journal of its name is looked for or made.
fn open(file: &Path) -> rusqlite::Result<Connection> {
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
        db.prepare("SELECT type, name, tbl_name, ifnull(sql, '') FROM sqlite_master")?;
    let rows = asked.query_map([], |row| {
        let sql: String = row.get(3)?;
        let sql: Vec<&str> = sql.split_whitespace().collect();
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, sql.join(" ")))
    })?;
    rows.collect()
}
