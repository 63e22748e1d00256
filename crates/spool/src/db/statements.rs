//! Statistics for tests: which statements ran, from which lines of code, and what they cost.

use super::Db;
use rusqlite::StatementStatus;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::Location;

/// Every statement so far, with the lines of code that ran it.
#[derive(Debug, Default)]
pub(super) struct Statements(RefCell<BTreeMap<String, BTreeSet<(&'static str, u32)>>>);

impl Statements {
    #[track_caller]
    pub(super) fn note(&self, text: &str) {
        let place = Location::caller();
        let mut asked = self.0.borrow_mut();
        let places = asked.entry(text.to_owned()).or_default();
        places.insert((place.file(), place.line()));
    }
}

impl Db {
    pub(crate) fn statements(&self) -> Vec<String> {
        self.statements.0.borrow().keys().cloned().collect()
    }

    /// Returns the file and line number of each place that ran statements.
    pub(crate) fn askers(&self) -> BTreeSet<(&'static str, u32)> {
        self.statements
            .0
            .borrow()
            .values()
            .flatten()
            .copied()
            .collect()
    }

    /// Keeps all statements prepared, so that their steps are counted between calls to
    /// [`Db::steps_taken`].
    pub(crate) fn remember_statements(&self) {
        if let Some(connection) = self.sqlite_connection() {
            connection.set_prepared_statement_cache_capacity(1_000);
        }
    }

    /// Returns the number of SQLite virtual machine steps since the last call, by statement.
    pub(crate) fn steps_taken(&self) -> BTreeMap<String, i32> {
        let steps = self.statements().into_iter().map(|text| {
            let connection = self.sqlite_connection().expect("SQLite counts its steps");
            let statement = connection
                .prepare_cached(&text)
                .expect("it was asked before");
            let steps = statement.reset_status(StatementStatus::VmStep);
            (text, steps)
        });
        steps.filter(|(_, steps)| *steps > 0).collect()
    }

    /// Returns SQLite's query plan, one line per part.
    pub(crate) fn plan(&self, question: &str) -> Vec<String> {
        let text = format!("EXPLAIN QUERY PLAN {question}");
        let connection = self.sqlite_connection().expect("SQLite shows its plans");
        let mut explain = connection.prepare(&text).expect("a question");
        let values = vec![rusqlite::types::Null; explain.parameter_count()];
        let steps = explain
            .query_map(rusqlite::params_from_iter(values), |row| row.get(3))
            .expect("a plan");
        steps.map(|step| step.expect("text")).collect()
    }
}
