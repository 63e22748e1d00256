//! A session with PostgreSQL: the connection, its settings, its deadline, and its statements.
//!
//! The session belongs to one thread. Its Tokio runtime runs only while this thread waits for a
//! response.

use super::connecting::{LastWarning, connect};
use super::error;
use super::pipeline::{Answer, Parameter, Pipeline, Purpose, Slot};
use super::url::PostgresUrl;
use crate::Error;
use crate::columns::{self, Names};
use crate::value::{Columns, OwnedValue, Values};
use callbridge_model::ExposeSecret as _;
use serde::de::DeserializeOwned;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config, SimpleQueryMessage, Statement};

/// The oldest server version that supports everything in [`WRITE_SETTINGS`], as
/// `server_version_num`.
pub(super) const VERSION_MIN: i64 = 140_000;
/// Maximum number of prepared statements to keep. The code limits how many there can be, except for
/// statements with lists of IDs.
const PREPARED_MAX: usize = 500;

/// SQL for the owner of the schema `n` (a row of `pg_namespace`) if this role isn't a member of it.
/// Such an owner can put functions and operators into the schema that callbridge would then run.
pub(super) const FOREIGN_OWNER: &str =
    "CASE WHEN NOT pg_has_role(n.nspowner, 'MEMBER') THEN n.nspowner::regrole::text END";

/// What a session is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// The session holds the lock, or waits for it.
    Write,
    /// The session copies a whole state, and may hold the lock.
    Copy,
    /// The session changes nothing.
    Read,
}

impl Access {
    /// Returns the maximum time to wait for a response, which is needed because a frozen server
    /// still acknowledges TCP. Readers wait less, since tasks with other work to do depend on them.
    const fn deadline(self) -> Duration {
        match self {
            Self::Write => Duration::from_secs(8),
            Self::Copy => Duration::from_secs(300),
            Self::Read => Duration::from_secs(2),
        }
    }
}

/// A session setting and its value, which the server must report after it was set.
pub(super) type Setting = (&'static str, &'static str);

/// Timeouts that end the session of a process that was killed, cut off, or frozen, so that another
/// process can acquire the lock.
pub(super) const WRITE_SETTINGS: [Setting; 3] = [
    ("idle_session_timeout", "10s"),
    ("idle_in_transaction_session_timeout", "5s"),
    ("client_connection_check_interval", "2s"),
];
/// Timeouts for a copy. They're long, because one session is idle while the other one reads or
/// writes many rows.
const COPY_SETTINGS: [Setting; 3] = [
    ("idle_session_timeout", "10min"),
    ("idle_in_transaction_session_timeout", "10min"),
    ("client_connection_check_interval", "2s"),
];
/// Keepalive settings, which don't exist for Unix sockets.
pub(super) const TCP_SETTINGS: [Setting; 4] = [
    ("tcp_keepalives_idle", "5"),
    ("tcp_keepalives_interval", "2"),
    ("tcp_keepalives_count", "3"),
    ("tcp_user_timeout", "8000"),
];
const READ_SETTINGS: [Setting; 2] = [
    ("default_transaction_read_only", "on"),
    ("statement_timeout", "2s"),
];
/// Settings for every session. Each statement was written for an index and its order. Since it's
/// planned once per session, possibly while the tables are empty, its plan mustn't depend on the
/// server's statistics. The statements are also too short to be worth compiling (`jit`).
///
/// The warning that a commit didn't reach the standby has to arrive (`client_min_messages`).
const COMMON_SETTINGS: [Setting; 5] = [
    ("client_min_messages", "warning"),
    ("jit", "off"),
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    ("enable_sort", "off"),
];

/// An open session.
pub(crate) struct Session {
    /// The runtime for waits, which is `None` only while the session is being dropped.
    runtime: Option<Runtime>,
    client: Arc<Client>,
    connection: JoinHandle<()>,
    /// The connected host's place among those in the URL.
    host: usize,
    warning: LastWarning,
    pipeline: Pipeline,
    prepared: RefCell<HashMap<String, Statement>>,
    deadline: Duration,
    in_transaction: Cell<bool>,
    place: PathBuf,
    /// The schema's name.
    pub(super) schema: String,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({})", self.place.display())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.connection.abort();
        if let Some(runtime) = self.runtime.take() {
            // A task on another runtime may drop the session, and must not block.
            runtime.shutdown_background();
        }
    }
}

impl Session {
    /// Connects and applies the session's settings. The server shows `name` for the session. This
    /// must not be called from an async task, because it blocks.
    ///
    /// # Errors
    /// Returns [`Error::Unusable`] if connecting requires a change to the settings, or
    /// [`Error::SessionLost`] if a later attempt may succeed.
    pub(crate) fn open(url: &PostgresUrl, access: Access, name: &str) -> Result<Self, Error> {
        let session = Self::connect(url, access, name)?;
        session.make_settings(url, access)?;
        Ok(session)
    }

    /// Connects without applying the settings. From its very first statement, the session sees no
    /// objects created by other users of the database.
    pub(super) fn connect(url: &PostgresUrl, access: Access, name: &str) -> Result<Self, Error> {
        Self::connect_to(url, url.configs(), access, name)
    }

    /// Connects to this session's host, as [`Session::connect`] does.
    pub(super) fn connect_again(
        &self,
        url: &PostgresUrl,
        access: Access,
        name: &str,
    ) -> Result<Self, Error> {
        let config = url.configs().swap_remove(self.host);
        Self::connect_to(url, vec![config], access, name)
    }

    fn connect_to(
        url: &PostgresUrl,
        mut configs: Vec<Config>,
        access: Access,
        name: &str,
    ) -> Result<Self, Error> {
        let place = url.place();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Error::Unusable(place.clone(), error.to_string()))?;
        for config in &mut configs {
            config
                .application_name(name)
                .tcp_user_timeout(Access::Write.deadline())
                .keepalives_idle(Duration::from_secs(5))
                .keepalives_interval(Duration::from_secs(2))
                .keepalives_retries(3);
        }
        if let Some(secret) = &url.secret {
            let secret = secret.place().read();
            let secret =
                secret.map_err(|error| Error::Unusable(place.clone(), error.to_string()))?;
            for config in &mut configs {
                config.password(secret.expose_secret());
            }
        }
        let warning = LastWarning::default();
        let (host, (client, connection)) = runtime.block_on(connect(&configs, url, &warning))?;
        let session = Self {
            runtime: Some(runtime),
            client: Arc::new(client),
            connection,
            host,
            warning,
            pipeline: Pipeline::default(),
            prepared: RefCell::default(),
            deadline: access.deadline(),
            in_transaction: Cell::new(false),
            place,
            schema: url.schema.clone(),
        };
        session.script("SET search_path = pg_catalog")?;
        Ok(session)
    }

    fn make_settings(&self, url: &PostgresUrl, access: Access) -> Result<(), Error> {
        let is_tcp = self.exists("SELECT 1 WHERE inet_server_addr() IS NOT NULL", &())?;
        let mut settings = COMMON_SETTINGS.to_vec();
        match access {
            Access::Read => settings.extend(READ_SETTINGS),
            Access::Copy => settings.extend(COPY_SETTINGS),
            Access::Write => settings.extend(WRITE_SETTINGS),
        }
        if is_tcp && access != Access::Read {
            settings.extend(TCP_SETTINGS);
        }
        let mut script = format!("SET search_path = \"{}\";", url.schema);
        for (name, value) in &settings {
            script.push_str(&format!("SET {name} = '{value}';"));
        }
        let facts = "SELECT current_setting('server_version_num')::bigint,
             current_setting('server_encoding'), current_setting('synchronous_commit')";
        let (version, encoding, commit): (i64, String, String) = self.one(facts, &())?;
        let owner = format!("SELECT {FOREIGN_OWNER} FROM pg_namespace n WHERE n.nspname = ?1");
        let owner: Vec<Option<String>> = self.rows(&owner, &[url.schema.as_str()], 1)?;
        if let Some(owner) = owner.into_iter().flatten().next() {
            let schema = &url.schema;
            return Err(self.unusable(format!(
                "the schema {schema} belongs to {owner}, who could run code as callbridge's role: \
                 make this role its owner, or name another schema"
            )));
        }
        if version < VERSION_MIN {
            let found = version / 10_000;
            return Err(self.unusable(format!(
                "it is PostgreSQL {found}, and version 14 or later is needed"
            )));
        }
        if encoding != "UTF8" {
            return Err(self.unusable(format!("its encoding is {encoding}, and UTF8 is needed")));
        }
        // `remote_apply` set by the operator is stricter, so it's kept.
        if commit != "remote_apply" {
            script.push_str("SET synchronous_commit = on;");
        }
        self.script(&script)?;
        let names: Vec<String> = settings
            .iter()
            .map(|(name, _)| format!("('{name}')"))
            .collect();
        let kept = format!(
            "SELECT name, current_setting(name) FROM (VALUES {}) AS settings(name)",
            names.join(", ")
        );
        let kept: HashMap<String, String> =
            self.rows(&kept, &(), usize::MAX)?.into_iter().collect();
        for (name, value) in settings {
            let found = kept.get(name).map_or("", String::as_str);
            if found != value {
                let fix = format!(
                    "it does not keep the setting {name} of a session ({found}, not {value}): a \
                     connection pooler must pool sessions, not transactions"
                );
                return Err(self.unusable(fix));
            }
        }
        Ok(())
    }

    fn unusable(&self, why: String) -> Error {
        Error::Unusable(self.place.clone(), why)
    }

    pub(crate) fn place(&self) -> &Path {
        &self.place
    }

    /// Waits for the server's response until the deadline.
    fn wait<T>(
        &self,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Error> {
        self.wait_for(self.deadline, answer)
    }

    fn wait_for<T>(
        &self,
        deadline: Duration,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Error> {
        let Some(runtime) = &self.runtime else {
            return Err(Error::Closed);
        };
        #[cfg(test)]
        self.pipeline
            .round_trips
            .set(self.pipeline.round_trips.get() + 1);
        let answered = runtime.block_on(async { tokio::time::timeout(deadline, answer).await });
        match answered {
            Ok(answer) => answer.map_err(|error| error::of_statement(&self.place, &error)),
            Err(_) => Err(error::no_answer(&self.place, deadline)),
        }
    }

    /// Runs the session's runtime until `other` completes, returning its result, or `None` after
    /// `time`.
    pub(crate) fn idle<T>(&self, time: Duration, other: impl Future<Output = T>) -> Option<T> {
        let runtime = self.runtime.as_ref()?;
        let ended = runtime.block_on(async { tokio::time::timeout(time, other).await });
        ended.ok()
    }

    /// Releases the session's locks immediately, before the session is dropped.
    pub(crate) fn close(&self) {
        // The library closes the connection when its client is dropped, but by then, this runtime
        // no longer runs.
        self.script("SELECT pg_advisory_unlock_all()").ok();
    }

    /// Ends the connection, so that all further statements fail.
    pub(crate) fn abandon(&self) {
        self.connection.abort();
        // The abort takes effect once the runtime runs.
        self.idle(Duration::from_millis(1), tokio::task::yield_now());
    }

    fn prepared(&self, text: &str) -> Result<Statement, Error> {
        if let Some(statement) = self.prepared.borrow().get(text) {
            return Ok(statement.clone());
        }
        self.flush()?;
        let statement = self.wait(self.client.prepare(&numbered(text)))?;
        let mut prepared = self.prepared.borrow_mut();
        if prepared.len() >= PREPARED_MAX {
            prepared.clear();
        }
        prepared.insert(text.to_owned(), statement.clone());
        Ok(statement)
    }

    fn write(&self, text: &str, values: &impl Values, purpose: Purpose) -> Result<(), Error> {
        let values = values.to_values();
        let values = values
            .iter()
            .map(OwnedValue::from_value)
            .map(Parameter::One);
        self.write_parameters(text, values.collect(), purpose)
    }

    fn write_parameters(
        &self,
        text: &str,
        values: Vec<Parameter>,
        purpose: Purpose,
    ) -> Result<(), Error> {
        let statement = self.prepared(text)?;
        let Some(runtime) = &self.runtime else {
            return Err(Error::Closed);
        };
        self.pipeline
            .write(runtime, &self.client, statement, values, purpose);
        Ok(())
    }

    /// Waits for the results of all statements.
    ///
    /// # Errors
    /// Returns the first error from a statement that no caller was waiting for.
    pub(crate) fn flush(&self) -> Result<(), Error> {
        if let Some(runtime) = &self.runtime {
            self.pipeline.wait(runtime, self.deadline, &self.place);
        }
        self.pipeline.take_error().map_or(Ok(()), Err)
    }

    /// Writes a statement whose result is read later, with [`Session::answer`].
    pub(crate) fn ask(&self, text: &str, values: &impl Values) -> Result<Slot, Error> {
        let slot = Slot::default();
        self.write(text, values, Purpose::Asked(slot.clone()))?;
        Ok(slot)
    }

    /// Sends a query like [`Session::ask`], but with one array per column.
    pub(crate) fn ask_many(&self, text: &str, columns: Columns) -> Result<Slot, Error> {
        let slot = Slot::default();
        self.write_parameters(text, arrays(columns), Purpose::Asked(slot.clone()))?;
        Ok(slot)
    }

    /// Runs a statement like [`Session::run`], but with one array per column, within a transaction.
    /// If `rows` is given, it's an error if a different number of rows was changed.
    pub(crate) fn run_many(
        &self,
        text: &str,
        columns: Columns,
        rows: Option<usize>,
    ) -> Result<(), Error> {
        let rows = rows.map(|rows| rows as u64);
        self.write_parameters(text, arrays(columns), Purpose::Run(rows))
    }

    /// Runs a statement. Within a transaction, an error is returned by a later statement.
    pub(crate) fn run(&self, text: &str, values: &impl Values) -> Result<(), Error> {
        self.write(text, values, Purpose::Run(None))?;
        if self.is_in_transaction() {
            return Ok(());
        }
        self.flush()
    }

    fn answer(&self, slot: &Slot) -> Result<Answer, Error> {
        if let Some(answer) = slot.take() {
            return answer;
        }
        // An earlier statement's error explains this one's.
        self.flush()?;
        slot.take().unwrap_or(Err(Error::Closed))
    }

    /// Runs a statement, returning the number of rows that it changed.
    pub(crate) fn execute(&self, text: &str, values: &impl Values) -> Result<usize, Error> {
        let slot = self.ask(text, values)?;
        let changed = self.answer(&slot)?.changed;
        Ok(usize::try_from(changed).unwrap_or(usize::MAX))
    }

    /// Reads up to `limit` rows of the result in `slot`, waiting for it if necessary.
    pub(crate) fn rows_of<T: DeserializeOwned>(
        &self,
        slot: &Slot,
        limit: usize,
    ) -> Result<Vec<T>, Error> {
        let rows = self.answer(slot)?.rows;
        #[cfg(test)]
        self.pipeline.note_rows(rows.len());
        let names = Names::new();
        let mut read = Vec::with_capacity(rows.len().min(limit));
        for row in rows.iter().take(limit) {
            let value = columns::read(row, &names);
            read.push(value.map_err(|why| Error::Damaged(self.place.clone(), why))?);
        }
        Ok(read)
    }

    /// Reads up to `limit` rows.
    pub(crate) fn rows<T: DeserializeOwned>(
        &self,
        text: &str,
        values: &impl Values,
        limit: usize,
    ) -> Result<Vec<T>, Error> {
        let slot = self.ask(text, values)?;
        self.rows_of(&slot, limit)
    }

    pub(crate) fn one<T: DeserializeOwned>(
        &self,
        text: &str,
        values: &impl Values,
    ) -> Result<T, Error> {
        let row = self.rows(text, values, 1)?.pop();
        row.ok_or_else(|| Error::Sql(self.place.clone(), "a statement returned no row".into()))
    }

    pub(crate) fn exists(&self, text: &str, values: &impl Values) -> Result<bool, Error> {
        let row: Option<serde::de::IgnoredAny> = self.rows(text, values, 1)?.pop();
        Ok(row.is_some())
    }

    /// Runs statements without values.
    pub(crate) fn script(&self, script: &str) -> Result<(), Error> {
        self.flush()?;
        self.wait(self.client.batch_execute(script))
    }

    /// Runs statements with the simple protocol, which every pooler understands, returning the
    /// values of all rows as text. NULL becomes an empty string.
    pub(super) fn simple_rows(&self, script: &str) -> Result<Vec<Vec<String>>, Error> {
        let messages = self.wait(self.client.simple_query(script))?;
        let mut rows = Vec::new();
        for message in messages {
            if let SimpleQueryMessage::Row(row) = message {
                let values = (0..row.len()).map(|at| row.get(at).unwrap_or_default().to_owned());
                rows.push(values.collect());
            }
        }
        Ok(rows)
    }

    /// Runs statements without values that may take long, because they change all rows. Waits for
    /// up to an hour.
    pub(crate) fn long_script(&self, script: &str) -> Result<(), Error> {
        const LONG: Duration = Duration::from_secs(3600);
        self.wait_for(LONG, self.client.batch_execute(script))
    }

    pub(crate) fn begin(&self) -> Result<(), Error> {
        self.begin_with("BEGIN")
    }

    /// Begins a transaction in which all reads see the same commits.
    pub(crate) fn begin_snapshot(&self) -> Result<(), Error> {
        self.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    }

    fn begin_with(&self, text: &str) -> Result<(), Error> {
        self.flush()?;
        self.warning.take();
        self.in_transaction.set(true);
        self.run(text, &())
    }

    /// Commits the transaction. If one of its statements failed, the server rolls back instead, and
    /// the error is returned.
    ///
    /// If the wait for a synchronous standby is canceled, PostgreSQL issues a warning and commits
    /// locally. The standby may not have the transaction, in which case a failover would lose it,
    /// so a warning counts as a lost session.
    pub(crate) fn commit(&self) -> Result<(), Error> {
        self.run("COMMIT", &())?;
        self.in_transaction.set(false);
        self.flush()?;
        match self.warning.take() {
            Some(warning) => Err(Error::SessionLost(self.place.clone(), warning)),
            None => Ok(()),
        }
    }

    pub(crate) fn rollback(&self) -> Result<(), Error> {
        self.forget_errors()?;
        self.in_transaction.set(false);
        self.script("ROLLBACK")
    }

    /// Waits for the results of statements that are about to be rolled back, discarding their
    /// errors. Only [`Error::SessionLost`] is returned.
    pub(crate) fn forget_errors(&self) -> Result<(), Error> {
        match self.flush() {
            Err(error @ Error::SessionLost(..)) => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    pub(crate) fn is_in_transaction(&self) -> bool {
        self.in_transaction.get()
    }

    /// Returns how many times we have waited for results so far.
    #[cfg(test)]
    pub(crate) const fn round_trips(&self) -> u64 {
        self.pipeline.round_trips.get()
    }

    /// Returns how many rows the server has returned so far.
    #[cfg(test)]
    pub(crate) const fn rows_read(&self) -> u64 {
        self.pipeline.rows_read.get()
    }
}

fn arrays(columns: Columns) -> Vec<Parameter> {
    let columns = columns.into_columns().into_iter();
    columns.map(Parameter::Many).collect()
}

/// Replaces `?1` with `$1`, which is what PostgreSQL expects. None of callbridge's statements use a
/// question mark for anything else.
fn numbered(text: &str) -> String {
    text.replace('?', "$")
}
