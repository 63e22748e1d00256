//! What `check` reports about a PostgreSQL server: whether callbridge can lead on it, and what
//! could be lost if the server fails.
//!
//! All queries use the simple protocol, so they even work through a pooler that callbridge refuses.

use super::Session;
use super::session::{Access, FOREIGN_OWNER, Setting, TCP_SETTINGS, VERSION_MIN, WRITE_SETTINGS};
use super::url::PostgresUrl;
use crate::Error;
use callbridge_model::{Code, clock};
use std::time::Duration;

/// The application name that the server shows for these sessions.
const LABEL: &str = "callbridge check";
/// Maximum difference between the server's clock and this machine's before it's reported as a
/// problem.
const CLOCK_DIFFERENCE: Duration = Duration::from_secs(5);
/// How many times the server's clock is read. Only the reading with the shortest round trip is
/// used, since it's the most accurate.
const CLOCK_QUESTIONS: usize = 5;
/// Number of other sessions that keep a transaction open while pooling is tested.
const OTHER_CLIENTS: usize = 3;

/// The result of one test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grade {
    Ok,
    /// This couldn't be tested, or it depends on something that the server doesn't reveal.
    Unknown,
    /// The test failed, which makes `check` exit with this code.
    Failed(Code),
}

/// One fact about the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFinding {
    /// What was tested, such as `pooling`.
    pub part: &'static str,
    pub grade: Grade,
    pub message: String,
    /// How to fix the problem, or empty if there's nothing to do.
    pub fix: String,
}

impl ServerFinding {
    fn new(part: &'static str, grade: Grade, message: impl Into<String>, fix: &str) -> Self {
        Self {
            part,
            grade,
            message: message.into(),
            fix: fix.to_owned(),
        }
    }

    fn ok(part: &'static str, message: impl Into<String>) -> Self {
        Self::new(part, Grade::Ok, message, "")
    }

    fn failed(part: &'static str, message: impl Into<String>, fix: &str) -> Self {
        Self::new(part, Grade::Failed(Code::Configuration), message, fix)
    }
}

/// The results of all tests of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerReport {
    pub findings: Vec<ServerFinding>,
    /// Whether there's no state in the schema yet.
    pub is_new: bool,
}

impl ServerReport {
    /// Returns `true` if a process could lead on this server.
    pub fn can_lead(&self) -> bool {
        const NEEDED: [&str; 4] = ["server", "rights", "pooling", "timeouts"];
        !self.findings.iter().any(|finding| {
            matches!(finding.grade, Grade::Failed(_)) && NEEDED.contains(&finding.part)
        })
    }
}

/// Tests the server at this URL without changing anything on it or waiting for any lock. Don't call
/// this in an async task, since it blocks until the server responds.
///
/// # Errors
/// Returns an error if the server can't be reached or refuses the connection.
pub fn inspect_server(url: &PostgresUrl) -> Result<ServerReport, Error> {
    let session = Session::connect(url, Access::Write, LABEL)?;
    let mut found = vec![server(&session)?, tls(url, &session)?];
    found.push(rights(&session)?);
    let pooling = pooling(url, &session)?;
    let is_session_kept = pooling.grade == Grade::Ok;
    found.push(pooling);
    if is_session_kept {
        found.push(timeouts(&session)?);
    }
    found.push(clock_difference(&session)?);
    found.push(replication(&session)?);
    Ok(ServerReport {
        findings: found,
        is_new: !has_state(&session)?,
    })
}

/// Refuses a transaction pooler, behind which two processes could both believe they're the leader.
/// If there's no free connection to test this with, it only logs a warning.
///
/// # Errors
/// Returns [`Error::Unusable`] if the session doesn't keep its backend.
pub(crate) fn refuse_pooler(url: &PostgresUrl, session: &Session) -> Result<(), Error> {
    let ServerFinding {
        grade,
        message,
        fix,
        ..
    } = pooling(url, session)?;
    match grade {
        Grade::Ok => {}
        Grade::Unknown => tracing::warn!(
            fix,
            "it's not known whether a pooler is between callbridge and the database: {message}"
        ),
        Grade::Failed(_) => {
            let why = format!("{message}; {fix}");
            return Err(Error::Unusable(session.place().to_path_buf(), why));
        }
    }
    Ok(())
}

fn has_state(session: &Session) -> Result<bool, Error> {
    let text = format!(
        "SELECT EXISTS (SELECT 1 FROM pg_tables
         WHERE schemaname = {} AND tablename = 'callbridge_schema')",
        quoted(&session.schema)
    );
    let [exists] = row(session, &text)?;
    Ok(exists == "t")
}

/// Reads the last row of the result, which must have `N` values. NULL becomes an empty string.
fn row<const N: usize>(session: &Session, text: &str) -> Result<[String; N], Error> {
    let rows = session.simple_rows(text)?;
    let row = rows
        .into_iter()
        .next_back()
        .and_then(|row| row.try_into().ok());
    row.ok_or_else(|| Error::Sql(session.place().to_path_buf(), "an answer has no row".into()))
}

/// Quotes a string as an SQL literal.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn server(session: &Session) -> Result<ServerFinding, Error> {
    let text = "SELECT current_setting('server_version_num'), current_setting('server_version'),
         current_setting('server_encoding')";
    let [number, version, encoding] = row(session, text)?;
    Ok(judge_server(
        number.parse().unwrap_or(0),
        &version,
        &encoding,
    ))
}

fn judge_server(number: i64, version: &str, encoding: &str) -> ServerFinding {
    let part = "server";
    if number < VERSION_MIN {
        let message = format!("it is PostgreSQL {version}, and version 14 or later is needed");
        return ServerFinding::failed(part, message, "upgrade the server");
    }
    if encoding != "UTF8" {
        let message = format!("the encoding of the database is {encoding}, and UTF8 is needed");
        let fix = "create a database: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0";
        return ServerFinding::failed(part, message, fix);
    }
    ServerFinding::ok(part, format!("PostgreSQL {version}"))
}

/// Reports whether the connection uses TLS. Where TLS is required but not valid, the connection
/// never gets this far.
fn tls(url: &PostgresUrl, session: &Session) -> Result<ServerFinding, Error> {
    let part = "TLS";
    if !url.uses_tls() {
        let message = "not used: the connection does not leave this machine";
        return Ok(ServerFinding::ok(part, message));
    }
    // Behind a pooler, this describes the pooler's own connection, which might not use TLS.
    let text = "SELECT coalesce(max(version), '') FROM pg_stat_ssl
         WHERE pid = pg_backend_pid() AND ssl";
    let [version] = row(session, text)?;
    let version = if version.is_empty() { "TLS" } else { &version };
    let message = format!("{version}, and the certificate is valid for the host");
    Ok(ServerFinding::ok(part, message))
}

/// Checks whether the role owns the tables or can create them. Only an owner can alter tables
/// during an upgrade.
fn rights(session: &Session) -> Result<ServerFinding, Error> {
    let part = "rights";
    let schema = &session.schema;
    let text = format!(
        "SELECT current_user, current_database(),
             has_database_privilege(current_database(), 'CREATE'), n.oid IS NOT NULL,
             coalesce(has_schema_privilege(n.oid, 'USAGE')
                 AND has_schema_privilege(n.oid, 'CREATE'), false),
             (SELECT coalesce(string_agg(c.relname, ', ' ORDER BY c.relname), '') FROM pg_class c
              WHERE c.relnamespace = n.oid AND c.relkind = 'r'
                  AND NOT pg_has_role(c.relowner, 'USAGE')),
             {FOREIGN_OWNER}
         FROM (SELECT 1) AS one LEFT JOIN pg_namespace n ON n.nspname = {}",
        quoted(schema)
    );
    let [role, database, can_create, exists, can_use, foreign, owner] = row(session, &text)?;
    if exists != "t" {
        if can_create == "t" {
            let message = format!("the role {role} can create the schema {schema}");
            return Ok(ServerFinding::ok(part, message));
        }
        let message =
            format!("the role {role} cannot create the schema {schema} in the database {database}");
        let fix = format!("run as its owner: CREATE SCHEMA \"{schema}\" AUTHORIZATION \"{role}\"");
        return Ok(denied(part, message, &fix));
    }
    if can_use != "t" {
        let message = format!("the role {role} cannot create tables in the schema {schema}");
        let fix = format!("run as its owner: ALTER SCHEMA \"{schema}\" OWNER TO \"{role}\"");
        return Ok(denied(part, message, &fix));
    }
    if !owner.is_empty() {
        let message = format!(
            "the schema {schema} belongs to {owner}, who could run code as the role {role}"
        );
        let fix = format!("run as its owner: ALTER SCHEMA \"{schema}\" OWNER TO \"{role}\"");
        return Ok(denied(part, message, &fix));
    }
    if !foreign.is_empty() {
        let message = format!("the role {role} does not own these tables: {foreign}");
        let fix = format!("make {role} their owner: ALTER TABLE … OWNER TO \"{role}\"");
        return Ok(denied(part, message, &fix));
    }
    let message = format!("the role {role} owns the tables in the schema {schema}");
    Ok(ServerFinding::ok(part, message))
}

fn denied(part: &'static str, message: String, fix: &str) -> ServerFinding {
    ServerFinding::new(part, Grade::Failed(Code::NoPermission), message, fix)
}

/// Checks whether a session keeps its backend (the server process).
///
/// The leader's lock belongs to the backend, so a transaction pooler would leave it with one that
/// goes on to serve other clients. Since an otherwise idle pooler picks the same backend every
/// time, other sessions keep transactions open during the test.
fn pooling(url: &PostgresUrl, session: &Session) -> Result<ServerFinding, Error> {
    let part = "pooling";
    let mut others = Vec::new();
    for _ in 0..OTHER_CLIENTS {
        match session.connect_again(url, Access::Write, LABEL) {
            Ok(other) => others.push(other),
            Err(error) => {
                let message = format!("one more connection failed: {error}");
                let fix = "let the role open more connections";
                return Ok(ServerFinding::new(part, Grade::Unknown, message, fix));
            }
        }
    }
    let [backend] = row(session, "SELECT pg_backend_pid()")?;
    let (key, _) = uuid::Uuid::new_v4().as_u64_pair();
    let key = key.cast_signed();
    row::<1>(session, &format!("SELECT pg_try_advisory_lock({key})"))?;
    let are_separate = are_backends_separate(&others, &backend);
    let is_own_kept = match are_separate {
        Ok(false) => Ok(true),
        Ok(true) | Err(_) => is_backend_kept(session, &backend, key),
    };
    let unlock = format!("SELECT pg_advisory_unlock({key}) {}", own_lock(key));
    for session in others.iter().chain([session]) {
        // If this fails, the lock is released along with its backend.
        session.simple_rows(&unlock).ok();
    }
    // If our own session has moved, that's proof, whatever the others found.
    let is_kept = if is_own_kept? {
        are_separate
    } else {
        Ok(false)
    };
    Ok(judge_pooling(is_kept))
}

/// Judges whether our session keeps its backend. An error of the other sessions is inconclusive.
fn judge_pooling(is_kept: Result<bool, Error>) -> ServerFinding {
    let part = "pooling";
    match is_kept {
        Ok(true) => {
            let message = "each session keeps its own backend, so a leader keeps its lock";
            ServerFinding::ok(part, message)
        }
        Ok(false) => {
            let message = "a connection pooler pools transactions, so a leader would lose its lock";
            let fix = "connect to the server directly, or set pool_mode = session in the pooler";
            ServerFinding::failed(part, message, fix)
        }
        Err(error) => {
            let message = format!("the test for a connection pooler failed: {error}");
            let fix = "if there's a pooler in front of the server, set pool_mode = session in it";
            ServerFinding::new(part, Grade::Unknown, message, fix)
        }
    }
}

/// Message with which PgBouncer in statement mode refuses a transaction. Its SQLSTATE (08P01) is no
/// proof, because PgBouncer uses it for almost every error.
const NO_TRANSACTIONS: &str = "transaction blocks not allowed in statement pooling mode";

/// Begins a transaction in each of the other sessions. Returns `false` if this proves that a pooler
/// gives backends away, because one of them gets the backend of our session, or because the pooler
/// refuses transactions.
fn are_backends_separate(others: &[Session], backend: &str) -> Result<bool, Error> {
    for other in others {
        match row::<1>(other, "BEGIN; SELECT pg_backend_pid()") {
            Ok([held]) if held == backend => return Ok(false),
            Ok(_) => {}
            Err(error) if refuses_transactions(&error) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

fn refuses_transactions(error: &Error) -> bool {
    match error {
        Error::Sql(_, why) | Error::SessionLost(_, why) => why.contains(NO_TRANSACTIONS),
        _ => false,
    }
}

fn is_backend_kept(session: &Session, backend: &str, key: i64) -> Result<bool, Error> {
    let text = format!("SELECT pg_backend_pid(), count(*) {}", own_lock(key));
    for _ in 0..2 {
        let [found, locks] = row(session, &text)?;
        if found != backend || locks != "1" {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the `FROM` and `WHERE` clauses of a query that finds the advisory lock with this key,
/// provided that this session's backend holds it.
fn own_lock(key: i64) -> String {
    format!(
        "FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND granted
             AND (CAST(CAST(classid AS BIGINT) << 32 AS BIGINT) | CAST(objid AS BIGINT)) = {key}"
    )
}

/// A setting, along with the value that the server reports after it was set, or the reason why
/// setting it failed.
type FoundSetting = (Setting, Result<String, String>);

fn timeouts(session: &Session) -> Result<ServerFinding, Error> {
    let [is_tcp] = row(session, "SELECT inet_server_addr() IS NOT NULL")?;
    let mut settings = WRITE_SETTINGS.to_vec();
    if is_tcp == "t" {
        settings.extend(TCP_SETTINGS);
    }
    let mut found = Vec::new();
    for (name, value) in settings {
        let set = session.simple_rows(&format!("SET {name} = '{value}'"));
        let shown = set.and_then(|_| row(session, &format!("SHOW {name}")));
        let shown = match shown {
            Ok([shown]) => Ok(shown),
            Err(error @ Error::SessionLost(..)) => return Err(error),
            Err(error) => Err(error.to_string()),
        };
        found.push(((name, value), shown));
    }
    Ok(judge_timeouts(&found))
}

fn judge_timeouts(found: &[FoundSetting]) -> ServerFinding {
    let part = "timeouts";
    let mut wrong = Vec::new();
    for ((name, value), shown) in found {
        match shown {
            Ok(shown) if shown == value => {}
            Ok(shown) => wrong.push(format!("{name} is {shown} and not {value}")),
            Err(why) => wrong.push(format!("{name} cannot be set: {why}")),
        }
    }
    if wrong.is_empty() {
        let message = "accepted: the lock of a process that was killed, disconnected, or frozen is \
                       released within 15 s";
        return ServerFinding::ok(part, message);
    }
    let fix = "connect to PostgreSQL directly, or configure the pooler to pass the settings of a \
               session to it";
    ServerFinding::failed(part, wrong.join("; "), fix)
}

fn clock_difference(session: &Session) -> Result<ServerFinding, Error> {
    let text = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)";
    // The query runs several times because the first response includes the time it takes to plan
    // it.
    let mut best: Option<(Duration, i64)> = None;
    for _ in 0..CLOCK_QUESTIONS {
        let asked = clock::now();
        let [server] = row(session, text)?;
        let half = (clock::now().boot - asked.boot) / 2;
        let server: i64 = server.parse().unwrap_or(0);
        let ahead = server.saturating_sub(asked.wall.plus(half).micros());
        if best.is_none_or(|(least, _)| half < least) {
            best = Some((half, ahead));
        }
    }
    let (half, ahead) = best.unwrap_or_default();
    Ok(judge_clock(ahead, half))
}

/// Judges the server's clock, which is `ahead` microseconds ahead of this machine's. `half` is half
/// the round-trip time, and thus the margin of error of `ahead`.
fn judge_clock(ahead: i64, half: Duration) -> ServerFinding {
    let part = "clock";
    let difference = Duration::from_micros(ahead.unsigned_abs());
    let exact = half.as_millis().max(1);
    if difference <= CLOCK_DIFFERENCE + half {
        let message = format!(
            "it differs from this machine's by {} ms (± {exact} ms)",
            difference.as_millis()
        );
        return ServerFinding::ok(part, message);
    }
    let side = if ahead > 0 { "ahead of" } else { "behind" };
    let message = format!(
        "it is {} s {side} this machine's. Times in the state come from the clock of the leader. \
         The request budget is not affected",
        difference.as_secs()
    );
    ServerFinding::failed(part, message, "set both clocks by NTP")
}

/// What the server reveals about its replicas.
#[derive(Clone, Debug, Default)]
struct Replication {
    /// The value of `synchronous_standby_names`.
    names: String,
    fsync: String,
    replicas: u32,
    synchronous: u32,
    /// Number of replicas whose state this role isn't allowed to see.
    hidden: u32,
}

fn replication(session: &Session) -> Result<ServerFinding, Error> {
    let text = "SELECT current_setting('synchronous_standby_names'), current_setting('fsync'),
             count(*), count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')),
             count(*) FILTER (WHERE sync_state IS NULL)
         FROM pg_stat_replication WHERE state IS DISTINCT FROM 'backup'";
    let [names, fsync, replicas, synchronous, hidden] = row(session, text)?;
    Ok(judge_replication(&Replication {
        names,
        fsync,
        replicas: replicas.parse().unwrap_or(0),
        synchronous: synchronous.parse().unwrap_or(0),
        hidden: hidden.parse().unwrap_or(0),
    }))
}

/// Reports on replication. The server's own `synchronous_commit` doesn't matter, because callbridge
/// sets it in each of its sessions.
fn judge_replication(found: &Replication) -> ServerFinding {
    let part = "replication";
    let Replication {
        names,
        fsync,
        replicas,
        synchronous,
        hidden,
    } = found;
    if names.is_empty() && *replicas > 0 {
        let message = format!(
            "none of {replicas} replicas is synchronous: a failover can lose the last commits"
        );
        let fix = "set synchronous_standby_names (Patroni: synchronous_mode and \
                   synchronous_mode_strict)";
        return ServerFinding::failed(part, message, fix);
    }
    if names.is_empty() && fsync != "on" {
        let message = "no replica is connected, and fsync is off: unless the server stores its \
                       commits elsewhere, a power failure can lose the whole state";
        let fix = "set fsync = on";
        return ServerFinding::new(part, Grade::Unknown, message, fix);
    }
    if names.is_empty() {
        let message = "no replica is connected: the state is as safe as the disk of this server";
        return ServerFinding::ok(part, message);
    }
    if *synchronous > 0 {
        let message = format!(
            "a commit waits for a synchronous replica ({synchronous} of {replicas}: {names})"
        );
        return ServerFinding::ok(part, message);
    }
    if *hidden > 0 {
        let message = format!(
            "a commit waits for a synchronous replica ({names}), but this role has no right to see \
             whether one is connected"
        );
        let fix = "GRANT pg_read_all_stats to the role";
        return ServerFinding::new(part, Grade::Unknown, message, fix);
    }
    let message =
        format!("no synchronous replica is connected (expected: {names}), so every commit waits");
    let fix = "start the replica, or correct synchronous_standby_names";
    ServerFinding::failed(part, message, fix)
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
