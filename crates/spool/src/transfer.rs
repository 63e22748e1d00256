//! Copies a whole state from one engine to another: row by row, in the order of the primary keys.
//!
//! Until the last row is stored, the target is marked as unfinished, and no process opens it.

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

/// Number of rows that are copied in one transaction.
const PAGE: usize = 500;
/// Number of rows that are copied in one transaction, for a table whose rows can be long.
const PAGE_OF_BLOBS: usize = 20;
/// The table with the leader's row. It is not copied, because the process that leads writes it.
const LEADER: &str = "leader";
/// Settings that are not copied, because they belong to the place, not to the state.
const OF_PLACE: [&str; 5] = [meta::FILE, meta::CLEAN, MOVED, MOVED_HERE, UNFINISHED];

/// The rows and books that were copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Number of rows of each table that has rows, by name.
    pub rows: BTreeMap<String, u64>,
    pub books: Books,
}

/// Progress of a copy: `rows` of the table's `of` rows are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied<'a> {
    pub table: &'a str,
    pub rows: u64,
    pub of: u64,
}

/// Receives the progress of a copy after each page.
pub type Progress<'a> = &'a mut dyn FnMut(Copied<'_>);

impl Transfer {
    /// Counts the rows of a state, and reads its books.
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

/// Refuses a state that cannot be copied: an unfinished copy of another state, a state that was
/// moved away, or a damaged state.
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

/// Runs `work` in one transaction. Rolls back if `work` returns an error.
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

/// Empties the target, and marks it as unfinished, in one transaction. Rows are deleted only from
/// an unfinished copy, and from a state that was moved away with the id `id`: its rows are an older
/// copy of the state that now comes back.
///
/// # Errors
/// [`Error::NotEmpty`], [`Error::Moved`]. Nothing is changed then.
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

/// Deletes all rows of these tables. The ids of new rows start from 1 again.
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

/// Copies all rows to an emptied state, except the tables in `without`, and compares the books. The
/// source must not change meanwhile.
///
/// # Errors
/// [`Error::Damaged`] if the copy differs from the source.
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
        // The target also has its own settings.
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

/// Compares the books of a copy with those of its source, and with its rows.
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

/// Replaces the rows of these tables in the open transaction of the target. Copies only one page
/// per table, so the tables must be small.
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
        // A new state already has settings.
        if name != "meta" && db.exists(&format!("SELECT 1 FROM {name} LIMIT 1"), ())? {
            return Err(Error::NotEmpty(db.path.clone(), name.clone()));
        }
    }
    Ok(())
}

/// A table, as the schema defines it.
#[derive(Clone, Debug)]
struct Table {
    name: String,
    columns: Vec<String>,
    /// Indexes in `columns` of the primary key's columns, in the key's order.
    key: Vec<usize>,
    /// Rows that are read at once.
    page_size: usize,
}

/// A row with its values in the order of the columns.
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

    /// Inserts rows in the open transaction. Leaves out settings that belong to the place.
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

    /// Counts the rows of a filled table. In PostgreSQL, also sets the next id after the highest
    /// copied id.
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

/// Returns every row that is copied, as text.
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

/// Returns all tables that are copied, by name.
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
        // The blobs of other tables are short: a uuid or a signature.
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
        // The number of columns is that of the row.
        row.deserialize_tuple(0, Columns)
    }
}
