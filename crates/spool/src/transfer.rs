//! Copies a whole state from one engine to another, row by row in primary key order.
//!
//! The target stays marked as unfinished until its last row is stored, and no process will open it
//! until then.

use crate::marks::{MOVED, MOVED_HERE, MovedMark, UNFINISHED, refuse_unusable};
use crate::tables::meta;
use crate::tables::schema::MIGRATIONS;
use crate::tally::Tally;
use crate::value::{OwnedValue, Value};
use crate::{Db, Error, tables};
use callbridge_model::status::Books;
use rusqlite::Connection;
use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;

/// Number of rows copied per transaction.
const PAGE: usize = 500;
/// Number of rows copied per transaction for tables whose rows can be long.
const PAGE_OF_BLOBS: usize = 20;
/// The table with the leader's row, which isn't copied because the leading process writes it.
const LEADER: &str = "leader";
/// Settings that aren't copied, because they belong to the place rather than the state.
const OF_PLACE: [&str; 5] = [meta::FILE, meta::CLEAN, MOVED, MOVED_HERE, UNFINISHED];

/// The rows and books that were copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The number of rows in each non-empty table, by table name.
    pub rows: BTreeMap<String, u64>,
    pub books: Books,
}

/// The progress of a copy: `rows` of the table's `of` rows have been copied so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied<'a> {
    pub table: &'a str,
    pub rows: u64,
    pub of: u64,
}

/// A callback that is told about a copy's progress after each page.
pub type Progress<'a> = &'a mut dyn FnMut(Copied<'_>);

impl Transfer {
    /// Counts a state's rows and reads its books.
    pub(crate) fn read(db: &Db) -> Result<Self, Error> {
        let mut rows = BTreeMap::new();
        for table in copied_tables()? {
            let count = table.count(db)?;
            if count > 0 {
                rows.insert(table.name, count);
            }
        }
        let books = Tally::ask(db)?.read(db)?.books();
        Ok(Self { rows, books })
    }
}

/// Refuses a state that can't be copied because it's an unfinished copy itself, was moved away, or
/// is damaged.
pub(crate) fn check_source(db: &Db) -> Result<(), Error> {
    refuse_unusable(db)?;
    if let Some(connection) = db.sqlite_connection() {
        let check = "PRAGMA quick_check(1)";
        let found: String = db.sql(connection.query_row(check, [], |row| row.get(0)))?;
        if found != "ok" {
            return Err(db.damaged(found));
        }
    }
    let wrong = tables::books::recount_of(db, &Tally::ask(db)?.read(db)?)?;
    if wrong.is_empty() {
        return Ok(());
    }
    Err(db.damaged(format!("its books differ from its calls: {wrong:?}")))
}

/// Runs `work` in a transaction, rolling back if it returns an error.
pub(crate) fn in_transaction<T>(
    db: &Db,
    work: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    db.begin()?;
    let done = work().and_then(|done| db.commit().map(|()| done));
    if done.is_err() {
        db.rollback();
    }
    done
}

/// Empties the target and marks it as unfinished, in a single transaction.
///
/// Rows are only ever deleted from an unfinished copy, or from a state that was moved away with the
/// ID `id`, in which case they're an older copy of the very state that's now coming back.
///
/// # Errors
/// Returns [`Error::NotEmpty`] if the target holds a state, or [`Error::Moved`] if it held another
/// one that was moved away. In either case, nothing is changed.
pub(crate) fn begin_copy(db: &Db, id: Option<&str>) -> Result<(), Error> {
    let tables = copied_tables()?;
    if let Some(mark) = meta::meta(db, MOVED)? {
        let mark = MovedMark::parse(&mark);
        if id != Some(mark.id.as_str()) {
            return Err(Error::Moved(db.path.clone(), mark.to));
        }
    } else if meta::meta(db, UNFINISHED)?.is_none() {
        refuse_used(db, &tables)?;
    }
    let names: Vec<&str> = tables.iter().map(|table| table.name.as_str()).collect();
    in_transaction(db, || {
        empty(db, &names)?;
        meta::set_meta(db, UNFINISHED, "copy")
    })
}

/// Deletes all rows of these tables and restarts their IDs at 1.
fn empty(db: &Db, tables: &[&str]) -> Result<(), Error> {
    if db.session().is_some() {
        let tables = tables.join(", ");
        return db.run(&format!("TRUNCATE {tables} RESTART IDENTITY"), ());
    }
    for table in tables {
        db.run(&format!("DELETE FROM {table}"), ())?;
    }
    db.run("DELETE FROM sqlite_sequence", ())
}

/// Copies all rows to an empty state, except for the tables in `without`, and then compares the
/// books. The source must not change in the meantime.
///
/// # Errors
/// Returns [`Error::Damaged`] if the copy differs from the source.
pub(crate) fn copy_all(
    from: &Db,
    to: &Db,
    without: &[&str],
    progress: Progress<'_>,
) -> Result<Transfer, Error> {
    let mut rows = BTreeMap::new();
    for table in copied_tables()? {
        if without.contains(&table.name.as_str()) {
            continue;
        }
        let copied = copy(from, to, &table, progress)?;
        let stored = table.finish(to)?;
        // There may be more, since the target also has settings of its own.
        if stored < copied {
            let why = format!("{stored} of {copied} rows of {} were stored", table.name);
            return Err(to.damaged(why));
        }
        if copied > 0 {
            rows.insert(table.name, copied);
        }
    }
    let books = compare(from, to)?;
    Ok(Transfer { rows, books })
}

/// Compares a copy's books with its source's books and with its own rows.
fn compare(from: &Db, to: &Db) -> Result<Books, Error> {
    let source = Tally::ask(from)?.read(from)?;
    let copy = Tally::ask(to)?.read(to)?;
    let wrong = tables::books::recount_of(to, &copy)?;
    if (copy.counts, &copy.named) == (source.counts, &source.named) && wrong.is_empty() {
        return Ok(copy.books());
    }
    Err(to.damaged(format!("the books of the copy differ: {copy:?}, {wrong:?}")))
}

fn copy(from: &Db, to: &Db, table: &Table, progress: Progress<'_>) -> Result<u64, Error> {
    let of = table.count(from)?;
    let mut after = None;
    let mut copied = 0;
    loop {
        let page = table.page(from, after.as_ref())?;
        let Some(last) = page.last() else {
            return Ok(copied);
        };
        after = Some(table.key_of(last));
        copied += page.iter().filter(|row| !table.is_of_place(row)).count() as u64;
        in_transaction(to, || table.insert(to, &page))?;
        progress(Copied {
            table: &table.name,
            rows: copied,
            of,
        });
        if page.len() < table.page_size {
            return Ok(copied);
        }
    }
}

/// Replaces the rows of these tables within the target's open transaction. Only one page per table
/// is copied, so the tables must be small.
pub(crate) fn copy_tables(from: &Db, to: &Db, names: &[&str]) -> Result<(), Error> {
    for table in copied_tables()? {
        if names.contains(&table.name.as_str()) {
            to.run(&format!("DELETE FROM {}", table.name), ())?;
            table.insert(to, &table.page(from, None)?)?;
        }
    }
    Ok(())
}

fn refuse_used(db: &Db, tables: &[Table]) -> Result<(), Error> {
    for Table { name, .. } in tables {
        // Even a new state has settings.
        if name != "meta" && db.exists(&format!("SELECT 1 FROM {name} LIMIT 1"), ())? {
            return Err(Error::NotEmpty(db.path.clone(), name.clone()));
        }
    }
    Ok(())
}

/// A table as defined by the schema.
#[derive(Clone, Debug)]
struct Table {
    name: String,
    columns: Vec<String>,
    /// Indexes into `columns` of the primary key's columns, in key order.
    key: Vec<usize>,
    /// Number of rows read at once.
    page_size: usize,
}

/// A row's values, in column order.
#[derive(Debug)]
struct RawRow(Vec<OwnedValue>);

impl Table {
    fn key_of(&self, row: &RawRow) -> RawRow {
        RawRow(self.key.iter().map(|at| row.0[*at].clone()).collect())
    }

    fn page(&self, db: &Db, after: Option<&RawRow>) -> Result<Vec<RawRow>, Error> {
        let key: Vec<&str> = self
            .key
            .iter()
            .map(|at| self.columns[*at].as_str())
            .collect();
        let key = key.join(", ");
        let columns = self.columns.join(", ");
        let mut condition = String::new();
        let mut values = Vec::new();
        if let Some(after) = after {
            values = after.0.iter().map(OwnedValue::value).collect();
            condition = format!("WHERE ({key}) > ({})", numbers(values.len()));
        }
        let text = format!(
            "SELECT {columns} FROM {} {condition} ORDER BY {key} LIMIT {}",
            self.name, self.page_size
        );
        db.query_all(&text, &*values)
    }

    fn is_of_place(&self, row: &RawRow) -> bool {
        self.name == "meta"
            && matches!(&row.0[0], OwnedValue::Text(key) if OF_PLACE.contains(&key.as_str()))
    }

    /// Inserts rows in the open transaction, skipping settings that belong to the place.
    fn insert(&self, db: &Db, rows: &[RawRow]) -> Result<(), Error> {
        let columns = self.columns.join(", ");
        let numbers = numbers(self.columns.len());
        let text = format!("INSERT INTO {} ({columns}) VALUES ({numbers})", self.name);
        for row in rows.iter().filter(|row| !self.is_of_place(row)) {
            let values: Vec<Value<'_>> = row.0.iter().map(OwnedValue::value).collect();
            db.run(&text, &*values)?;
        }
        Ok(())
    }

    fn count(&self, db: &Db) -> Result<u64, Error> {
        db.query_one(&format!("SELECT count(*) FROM {}", self.name), ())
    }

    /// Returns the number of rows in a table that has been filled. In PostgreSQL, also moves the ID
    /// sequence past the highest ID copied.
    fn finish(&self, db: &Db) -> Result<u64, Error> {
        if let Some(session) = db.session()
            && self.columns[0] == "id"
        {
            let name = &self.name;
            session.script(&format!(
                "SELECT setval(pg_get_serial_sequence('{name}', 'id'), max(id)) FROM {name}
                 HAVING max(id) > 0"
            ))?;
        }
        self.count(db)
    }
}

/// Returns every row that would be copied, as text.
#[cfg(test)]
pub(crate) fn dump(db: &Db) -> Result<String, Error> {
    let mut text = String::new();
    for table in copied_tables()? {
        let mut after = None;
        loop {
            let page = table.page(db, after.as_ref())?;
            for row in page.iter().filter(|row| !table.is_of_place(row)) {
                text.push_str(&format!("{} {:?}\n", table.name, row.0));
            }
            let Some(last) = page.last() else {
                break;
            };
            after = Some(table.key_of(last));
        }
    }
    Ok(text)
}

fn numbers(count: usize) -> String {
    let numbers: Vec<String> = (1..=count).map(|number| format!("?{number}")).collect();
    numbers.join(", ")
}

/// Returns all tables to copy, sorted by name.
fn copied_tables() -> Result<Vec<Table>, Error> {
    let tables = read_tables();
    let mut tables = tables.map_err(|error| Error::sqlite(":memory:".as_ref(), &error))?;
    tables.retain(|table| table.name != LEADER);
    Ok(tables)
}

fn read_tables() -> rusqlite::Result<Vec<Table>> {
    let db = Connection::open_in_memory()?;
    db.execute_batch(&MIGRATIONS.concat())?;
    let text = "SELECT name FROM sqlite_master
         WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name";
    let mut names = db.prepare(text)?;
    let names: rusqlite::Result<Vec<String>> = names.query_map([], |row| row.get(0))?.collect();
    let mut tables = Vec::new();
    for name in names? {
        tables.push(table(&db, name)?);
    }
    Ok(tables)
}

fn table(db: &Connection, name: String) -> rusqlite::Result<Table> {
    let mut columns = Vec::new();
    let mut key: Vec<(i64, usize)> = Vec::new();
    let mut page_size = PAGE;
    let mut info = db.prepare("SELECT name, pk FROM pragma_table_info(?1) ORDER BY cid")?;
    let mut rows = info.query([&name])?;
    while let Some(row) = rows.next()? {
        let place: i64 = row.get(1)?;
        if place > 0 {
            key.push((place, columns.len()));
        }
        columns.push(row.get(0)?);
        // Blobs in the other tables are short: UUIDs or signatures.
        let name = columns.last().map(String::as_str);
        if matches!(name, Some("bytes" | "snapshot")) {
            page_size = PAGE_OF_BLOBS;
        }
    }
    key.sort_unstable();
    let key = key.into_iter().map(|(_, at)| at).collect();
    Ok(Table {
        name,
        columns,
        key,
        page_size,
    })
}

impl<'de> Deserialize<'de> for RawRow {
    fn deserialize<D: Deserializer<'de>>(row: D) -> Result<Self, D::Error> {
        struct Columns;
        impl<'de> Visitor<'de> for Columns {
            type Value = RawRow;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a row")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut row: A) -> Result<RawRow, A::Error> {
                let mut values = Vec::new();
                while let Some(value) = row.next_element()? {
                    values.push(value);
                }
                Ok(RawRow(values))
            }
        }
        // The length doesn't matter here, since the row knows its number of columns.
        row.deserialize_tuple(0, Columns)
    }
}
