//! A whole state, copied from one engine to another: row by row, in the order of the primary keys.
//!
//! The target must be empty. Until the last row is stored, it is marked as unfinished, and no
//! process opens it.

use crate::store::UNFINISHED;
use crate::tables::meta;
use crate::tables::schema::MIGRATIONS;
use crate::value::{OwnedValue, Value};
use crate::{Db, Error, Handle, Op, tables};
use callbridge_model::status::Books;
use rusqlite::Connection;
use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;

/// Rows in one transaction.
const PAGE: usize = 500;
/// The process that leads writes it.
const LEADER: &str = "leader";
/// Settings that belong to the file, not to the state.
const OF_FILE: [&str; 2] = [meta::FILE, meta::CLEAN];

/// What was copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Rows of each table that has any.
    pub rows: BTreeMap<String, u64>,
    pub books: Books,
}

/// Copies all rows from one state to an empty one, without those of the tables in `without`. Close
/// the target and open it again then. The source must not change meanwhile.
///
/// # Errors
/// [`Error::NotEmpty`]. [`Error::Damaged`] if the copy differs from the source.
pub async fn transfer(from: &Handle, to: &Handle, without: &[&str]) -> Result<Transfer, Error> {
    let mut tables = tables()?;
    tables.retain(|table| table.name != LEADER && !without.contains(&table.name.as_str()));
    let all = tables.clone();
    to.read(move |store| refuse_used(store, &all)).await?;
    to.write(vec![Op::meta(UNFINISHED, "yes")]).await?;
    let mut rows = BTreeMap::new();
    for table in tables {
        let copied = copy(from, to, table.clone()).await?;
        let counted = table.clone();
        let stored = to.read(move |store| counted.finish(store)).await?;
        if stored < copied {
            let why = format!("{stored} of {copied} rows of {} were stored", table.name);
            return Err(to.read(move |store| Ok(store.damaged(why))).await?);
        }
        if copied > 0 {
            rows.insert(table.name, copied);
        }
    }
    to.write(vec![Op::MetaGone(UNFINISHED.to_owned())]).await?;
    let books = from.read(|store| Ok(store.books())).await?;
    Ok(Transfer { rows, books })
}

/// Compares the books of an opened state with those of its source, and with its rows.
///
/// # Errors
/// [`Error::Damaged`] names what differs.
pub async fn compare(to: &Handle, books: &Books) -> Result<(), Error> {
    let books = *books;
    to.read(move |store| {
        let wrong = tables::books::recount(store)?;
        if store.books() == books && wrong.is_empty() {
            return Ok(());
        }
        let why = format!(
            "the books of the copy differ: {:?}, {wrong:?}",
            store.books()
        );
        Err(store.damaged(why))
    })
    .await
}

async fn copy(from: &Handle, to: &Handle, table: Table) -> Result<u64, Error> {
    let (mut after, mut copied) = (None, 0);
    loop {
        let source = table.clone();
        let page = from
            .read(move |store| source.page(store, after.as_ref()))
            .await?;
        let Some(last) = page.last() else {
            return Ok(copied);
        };
        after = Some(table.key_of(last));
        copied += page.iter().filter(|row| !table.is_of_file(row)).count() as u64;
        let is_last = page.len() < PAGE;
        let target = table.clone();
        to.read(move |store| target.insert(store, &page)).await?;
        if is_last {
            return Ok(copied);
        }
    }
}

fn refuse_used(db: &Db, tables: &[Table]) -> Result<(), Error> {
    for Table { name, .. } in tables {
        // A new state has settings.
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
    /// Places of the columns of the primary key, in its order.
    key: Vec<usize>,
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
            "SELECT {columns} FROM {} {condition} ORDER BY {key} LIMIT {PAGE}",
            self.name
        );
        db.query_all(&text, &*values)
    }

    fn is_of_file(&self, row: &RawRow) -> bool {
        self.name == "meta"
            && matches!(&row.0[0], OwnedValue::Text(key) if OF_FILE.contains(&key.as_str()))
    }

    fn insert(&self, db: &Db, rows: &[RawRow]) -> Result<(), Error> {
        let columns = self.columns.join(", ");
        let numbers = numbers(self.columns.len());
        let text = format!("INSERT INTO {} ({columns}) VALUES ({numbers})", self.name);
        db.begin()?;
        let stored = rows
            .iter()
            .filter(|row| !self.is_of_file(row))
            .try_for_each(|row| {
                let values: Vec<Value<'_>> = row.0.iter().map(OwnedValue::value).collect();
                db.run(&text, &*values)
            });
        let stored = stored.and_then(|()| db.commit());
        if stored.is_err() {
            db.rollback();
        }
        stored
    }

    /// Counts the rows. The database continues their ids.
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
        db.query_one(&format!("SELECT count(*) FROM {}", self.name), ())
    }
}

/// Every row that is copied, as text.
#[cfg(test)]
pub(crate) fn dump(db: &Db) -> Result<String, Error> {
    let mut text = String::new();
    for table in tables()?.into_iter().filter(|table| table.name != LEADER) {
        let mut after = None;
        loop {
            let page = table.page(db, after.as_ref())?;
            for row in page.iter().filter(|row| !table.is_of_file(row)) {
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

/// All tables, by name.
fn tables() -> Result<Vec<Table>, Error> {
    read_tables().map_err(|error| Error::sqlite(":memory:".as_ref(), &error))
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
    let mut info = db.prepare("SELECT name, pk FROM pragma_table_info(?1) ORDER BY cid")?;
    let mut rows = info.query([&name])?;
    while let Some(row) = rows.next()? {
        let place: i64 = row.get(1)?;
        if place > 0 {
            key.push((place, columns.len()));
        }
        columns.push(row.get(0)?);
    }
    key.sort_unstable();
    let key = key.into_iter().map(|(_, at)| at).collect();
    Ok(Table { name, columns, key })
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
