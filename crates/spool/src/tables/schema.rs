//! The tables in SQLite, and the migration of files with an older schema. The PostgreSQL tables are
//! translated from these scripts (see `postgres/schema.rs`).

use rusqlite::Connection;
use std::cmp::Ordering;

/// Identifies files written by callbridge (`PRAGMA application_id`). The bytes spell "cabr".
pub const APPLICATION: i64 = 0x6361_6272;

/// One script for each schema version, where the nth script migrates a database from version n - 1
/// to n.
pub const MIGRATIONS: &[&str] = &[VERSION_1];

/// All tables. Times are microseconds since the epoch unless a comment says otherwise.
///
/// A rowid table with a unique index on the UUID takes inserts twice as fast as one whose primary
/// key is the UUID. Indexes are partial, so writing a row only updates those for its state.
const VERSION_1: &str = "
CREATE TABLE calls (
    id INTEGER PRIMARY KEY,
    uuid BLOB,                          -- 16 bytes; NULL where `conflicting_uuid` is set
    conflicting_uuid BLOB,              -- of a dead letter uuid_conflict: the uuid it shares
    state TEXT NOT NULL,
    live INTEGER NOT NULL,
    since INTEGER NOT NULL,             -- in this state
    pbx TEXT NOT NULL,
    turn TEXT NOT NULL,                 -- whose turn sends it: the branch, else the PBX
    linkedid TEXT NOT NULL,
    trunk TEXT,
    direction TEXT NOT NULL,            -- Direction
    answered INTEGER NOT NULL,
    started INTEGER NOT NULL,           -- seconds, by the PBX's clock
    ended INTEGER NOT NULL,             -- seconds
    phone TEXT,                         -- E.164
    phone_ending TEXT,                  -- its last four digits
    raw_phone TEXT,                     -- the number as the PBX sent it
    extension TEXT,
    employee INTEGER,                   -- the CRM's id
    lead INTEGER,                       -- the CRM's id
    record TEXT NOT NULL,               -- CallRecord
    call TEXT NOT NULL,                 -- FinishedCall
    not_before INTEGER NOT NULL DEFAULT 0,
    request_id TEXT,
    token TEXT,
    submitted_at INTEGER,
    first_sent INTEGER,                 -- with these values
    next_poll INTEGER,
    polls INTEGER NOT NULL DEFAULT 0,
    absent INTEGER NOT NULL DEFAULT 0,  -- pages that should have shown it
    absent_at INTEGER,
    resubmits INTEGER NOT NULL DEFAULT 0,
    failures INTEGER NOT NULL DEFAULT 0, -- while others passed
    if_absent TEXT,                     -- IfAbsent, of an unresolved call
    reroute_history TEXT,               -- RerouteHistory
    sent_again INTEGER NOT NULL DEFAULT 0,
    settled_externally INTEGER NOT NULL DEFAULT 0,
    retried INTEGER NOT NULL DEFAULT 0, -- by a person, and not accepted since
    times_dead INTEGER NOT NULL DEFAULT 0,
    reported INTEGER NOT NULL DEFAULT 0, -- a notice of it was queued
    reason TEXT,
    message TEXT NOT NULL DEFAULT '',
    errors TEXT,
    finding TEXT,                       -- of a letter `failed`: the result of the lookup
    attempts TEXT NOT NULL DEFAULT '[]', -- [{at, message}]
    actions TEXT                        -- [{at, who, action}]; NULL: none
) STRICT;
CREATE UNIQUE INDEX calls_uuid ON calls(uuid);
CREATE INDEX calls_conflicting ON calls(conflicting_uuid, started, phone, raw_phone)
    WHERE conflicting_uuid IS NOT NULL;
CREATE INDEX calls_fresh ON calls(live, id) WHERE state = 'ready' AND not_before = 0;
CREATE INDEX calls_turn ON calls(live, turn, id DESC)
    WHERE state = 'ready' AND not_before = 0;
CREATE INDEX calls_held ON calls(live, not_before) WHERE state = 'ready' AND not_before > 0;
CREATE INDEX calls_retried ON calls(id) WHERE state = 'ready' AND retried = 1;
CREATE INDEX calls_sending ON calls(id) WHERE state = 'sending';
CREATE INDEX calls_poll ON calls(next_poll) WHERE state = 'submitted';
CREATE INDEX calls_token ON calls(token, submitted_at) WHERE state = 'submitted';
CREATE INDEX calls_sweep ON calls(submitted_at, next_poll) WHERE state = 'submitted' AND absent < 2;
CREATE INDEX calls_due ON calls(token, next_poll) WHERE state = 'submitted';
CREATE INDEX calls_alone ON calls(token, next_poll) WHERE state = 'submitted' AND absent >= 2;
CREATE INDEX calls_dead ON calls(id) WHERE state = 'dead';
CREATE INDEX calls_waiting ON calls(id) WHERE state = 'waiting';
-- For the list by reason alone, which names both states: no other statement takes this index.
CREATE INDEX calls_by_reason ON calls(state, reason, id) WHERE state IN ('dead', 'waiting');
CREATE INDEX calls_linkedid ON calls(linkedid)
    WHERE state IN ('dead', 'waiting');
CREATE INDEX calls_waiting_by_phone ON calls(phone, id) WHERE state = 'waiting';
CREATE INDEX calls_waiting_by_age ON calls(since, id) WHERE state = 'waiting';
CREATE INDEX calls_without_lead ON calls(phone, id) WHERE state = 'waiting' AND reason = 'no_lead';
CREATE INDEX calls_ambiguous ON calls(phone, id) WHERE state = 'dead' AND reason = 'ambiguous_lead';
CREATE INDEX calls_failed ON calls(lead, id)
    WHERE state = 'dead' AND reason = 'failed';
CREATE INDEX calls_closed ON calls(since) WHERE state IN ('journaled', 'discarded');
CREATE INDEX calls_forwarded ON calls(since) WHERE state = 'forwarded';
CREATE INDEX calls_started ON calls(started, id);
-- Every spelling of a number ends with the same four digits.
CREATE INDEX calls_ending ON calls(phone_ending, started, id)
    WHERE phone_ending IS NOT NULL;
-- `missed.rs` has the same conditions.
CREATE INDEX calls_talks ON calls(phone, ended)
    WHERE phone IS NOT NULL AND answered = 1 AND direction <> 'INTERNAL'
    AND coalesce(reason, '') <> 'invalid_epoch'
    AND NOT (state = 'discarded' AND coalesce(reason, '') = 'incomplete');
CREATE INDEX calls_missed ON calls(phone, started)
    WHERE phone IS NOT NULL AND answered = 0 AND direction = 'INBOUND'
    AND coalesce(reason, '') NOT IN ('invalid_epoch', 'incomplete');

-- Calls that are dead or wait, by reason.
CREATE TABLE reason_counts (
    state TEXT NOT NULL,
    reason TEXT NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (state, reason)
) STRICT, WITHOUT ROWID;

CREATE TABLE unreadable (
    id INTEGER PRIMARY KEY,             -- from the same sequence as calls
    source TEXT NOT NULL,
    pbx TEXT NOT NULL,
    why TEXT NOT NULL,
    at INTEGER NOT NULL,
    length INTEGER NOT NULL,
    bytes BLOB NOT NULL,
    content_type TEXT,
    file TEXT                           -- with the place in it, if it holds many
) STRICT;
CREATE INDEX unreadable_same ON unreadable(source, length);
CREATE INDEX unreadable_file ON unreadable(source, file) WHERE file IS NOT NULL;

CREATE TABLE internal_calls (
    id INTEGER PRIMARY KEY,
    started INTEGER NOT NULL,           -- seconds
    record TEXT NOT NULL                -- CallRecord
) STRICT;
CREATE INDEX internal_started ON internal_calls(started, id);

CREATE TABLE seen_calls (
    pbx TEXT NOT NULL,
    id TEXT NOT NULL,
    uuid BLOB,
    is_linkedid INTEGER NOT NULL,       -- else the unique id of a channel
    started INTEGER NOT NULL,           -- seconds
    at INTEGER NOT NULL,
    PRIMARY KEY (pbx, id)
) STRICT, WITHOUT ROWID;
-- Calls whose rows are purged, for `audit`.
CREATE TABLE purged_calls (
    pbx TEXT NOT NULL,
    id TEXT NOT NULL,                   -- the linkedid
    uuid BLOB,                          -- NULL: counted only
    state TEXT NOT NULL,                -- journaled, discarded; counted: internal or skipped
    started INTEGER NOT NULL,           -- seconds
    PRIMARY KEY (pbx, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX purged_calls_started ON purged_calls(started);

CREATE TABLE open_calls (
    id INTEGER PRIMARY KEY,             -- in the order they were first saved
    pbx TEXT NOT NULL,
    key INTEGER NOT NULL,               -- u64, bit for bit
    snapshot BLOB NOT NULL,
    UNIQUE (pbx, key)
) STRICT;
CREATE TABLE positions (source TEXT PRIMARY KEY, position TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE books (name TEXT PRIMARY KEY, count INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE counters (name TEXT PRIMARY KEY, count INTEGER NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE slots (
    slot INTEGER PRIMARY KEY,
    token TEXT NOT NULL,
    boot_id TEXT NOT NULL,
    sent INTEGER NOT NULL,              -- nanoseconds since that boot
    answered INTEGER,
    wall_sent INTEGER NOT NULL
) STRICT;
-- Until when nothing is sent, because requests may count that have no slot. At most one row.
CREATE TABLE silence (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    boot_id TEXT NOT NULL,              -- of `until`; empty until a sender begins it
    until INTEGER NOT NULL,             -- nanoseconds since that boot
    why TEXT NOT NULL                   -- SilenceReason
) STRICT;

CREATE TABLE notices (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    message_id TEXT NOT NULL,
    body TEXT NOT NULL,
    reason TEXT NOT NULL,
    uuid BLOB,
    linkedid TEXT,
    trunk TEXT,
    state TEXT NOT NULL,                -- dead, waiting; Left
    at INTEGER NOT NULL
) STRICT;

-- Webhooks that were taken. Ids grow with time, so the oldest come first.
CREATE TABLE webhook_deliveries (
    id INTEGER PRIMARY KEY,
    installation TEXT NOT NULL,
    event TEXT NOT NULL,
    at INTEGER NOT NULL,
    signature BLOB NOT NULL             -- the installation is not signed
) STRICT;
CREATE UNIQUE INDEX webhook_deliveries_pair ON webhook_deliveries(event, installation);
CREATE UNIQUE INDEX webhook_deliveries_signature ON webhook_deliveries(signature);

-- The directory of leads (`callbridge_leads::directory`). A phone is the number of its digits; 0
-- stands for a slot that is reported empty. Slots: the contact's id, 0 the snapshot's `phone`, -1
-- contacts without ids. All times are seconds, as the CRM gave them. Each fact that people know a
-- lead by has its second and its rank within that.
CREATE TABLE directory_leads (
    lead INTEGER PRIMARY KEY,
    living INTEGER,                     -- the newest second at which it was told to live
    whole INTEGER,                      -- when all its contacts were told last
    deleted INTEGER,
    merged INTEGER,
    merged_into INTEGER,
    name_at INTEGER,
    name_rank INTEGER,
    name TEXT,
    stage_at INTEGER,
    stage_rank INTEGER,
    stage TEXT,
    responsible_at INTEGER,
    responsible_rank INTEGER,
    responsible_name TEXT,
    responsible INTEGER
) STRICT;
CREATE INDEX directory_merged ON directory_leads(merged_into) WHERE merged_into IS NOT NULL;
CREATE TABLE directory_phones (
    phone INTEGER NOT NULL,
    lead INTEGER NOT NULL,
    slot INTEGER NOT NULL,
    held INTEGER,                       -- since then; NULL where it was only given up
    told INTEGER,                       -- by which event or answer
    gone INTEGER,                       -- when the slot's contact gave it up last
    name_at INTEGER,
    name_rank INTEGER,
    name TEXT,                          -- of the slot's contact
    PRIMARY KEY (phone, lead, slot)
) STRICT, WITHOUT ROWID;
CREATE INDEX directory_of_lead ON directory_phones(lead);
CREATE TABLE directory_size (name TEXT PRIMARY KEY, count INTEGER NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE lead_lookups (
    lead INTEGER PRIMARY KEY,
    asked INTEGER NOT NULL,             -- for the call that failed
    due INTEGER,                        -- NULL: answered
    tries INTEGER NOT NULL,
    finding TEXT,
    answered INTEGER
) STRICT;
CREATE INDEX lead_lookups_due ON lead_lookups(due) WHERE due IS NOT NULL;
CREATE INDEX lead_lookups_answered ON lead_lookups(answered) WHERE due IS NULL;
CREATE TABLE lead_field_values (
    lead INTEGER PRIMARY KEY,
    field_state TEXT NOT NULL,          -- lead_field::LeadFieldState
    next_action TEXT,                   -- write, poll; NULL: nothing is to be done
    due INTEGER NOT NULL,
    newest_call INTEGER NOT NULL        -- seconds: start of the newest call it tells of
) STRICT;
CREATE INDEX lead_field_values_due ON lead_field_values(next_action, due)
    WHERE next_action IS NOT NULL;
CREATE INDEX lead_field_values_newest ON lead_field_values(next_action, newest_call);

CREATE TABLE assigned_leads (
    phone TEXT PRIMARY KEY,             -- E.164
    lead INTEGER NOT NULL,
    at INTEGER NOT NULL,                -- seconds
    who TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE missed_customers (
    phone TEXT PRIMARY KEY,             -- E.164
    pbx TEXT NOT NULL,                  -- of the last try, as trunk and lead
    trunk TEXT NOT NULL,
    lead INTEGER,
    first_at INTEGER NOT NULL,          -- seconds
    last_at INTEGER NOT NULL,
    tries INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX missed_customers_first ON missed_customers(first_at, phone);
CREATE INDEX missed_customers_last ON missed_customers(last_at);
CREATE INDEX missed_customers_trunk ON missed_customers(trunk);
-- Calls that `unanswered=no` keeps out of the journal.
CREATE TABLE left_out_calls (
    id INTEGER PRIMARY KEY,
    pbx TEXT NOT NULL,
    trunk TEXT NOT NULL,
    phone TEXT,
    started INTEGER NOT NULL,           -- seconds
    rang TEXT NOT NULL                  -- extensions, separated by spaces
) STRICT;
CREATE INDEX left_out_calls_phone ON left_out_calls(phone, started) WHERE phone IS NOT NULL;
CREATE INDEX left_out_calls_started ON left_out_calls(started);

CREATE TABLE trunks (
    pbx TEXT NOT NULL,
    trunk TEXT NOT NULL,                -- empty: calls between extensions
    calls INTEGER NOT NULL,
    last_at INTEGER NOT NULL,           -- seconds
    PRIMARY KEY (pbx, trunk)
) STRICT, WITHOUT ROWID;
CREATE TABLE trunk_quarters (
    pbx TEXT NOT NULL,
    trunk TEXT NOT NULL,
    quarter INTEGER NOT NULL,           -- seconds at which the quarter of an hour begins
    calls INTEGER NOT NULL,
    extensions INTEGER NOT NULL,        -- calls of an extension
    employees INTEGER NOT NULL,         -- calls of an employee
    PRIMARY KEY (pbx, trunk, quarter)
) STRICT, WITHOUT ROWID;
CREATE INDEX quarters_old ON trunk_quarters(quarter);

-- The process that leads, or led last. One row, in PostgreSQL only.
CREATE TABLE leader (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    name TEXT NOT NULL,
    version TEXT NOT NULL,
    settings TEXT NOT NULL,             -- hash of what a standby must share
    since INTEGER NOT NULL,
    process TEXT NOT NULL,              -- random id of the process
    history TEXT NOT NULL               -- postgres::history
) STRICT;

-- The position of a hub. One row from the first `run --collect` on.
CREATE TABLE hub (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    incarnation TEXT NOT NULL,
    seq INTEGER NOT NULL,               -- grows with each commit
    began INTEGER NOT NULL,             -- the incarnation
    revealed_by TEXT,                   -- the branch that showed that commits were lost
    sighted_by TEXT,                    -- the branch that last showed another database in use
    sighted_at INTEGER,                 -- when
    split_by TEXT                       -- nothing is sent: branches that showed that database
) STRICT;
CREATE TABLE past_incarnations (
    incarnation TEXT PRIMARY KEY,
    seq INTEGER NOT NULL                -- the highest that a sender has seen of it
) STRICT, WITHOUT ROWID;
CREATE TABLE branches (
    name TEXT PRIMARY KEY,
    token TEXT NOT NULL,                -- SHA-256, hexadecimal
    previous_token TEXT,                -- the same of the token before
    previous_until INTEGER,             -- seconds
    added INTEGER NOT NULL,             -- seconds
    seq INTEGER NOT NULL,               -- a sender without a row can have seen answers up to here
    taken INTEGER NOT NULL DEFAULT 0,   -- calls, repeats included
    refused INTEGER NOT NULL DEFAULT 0, -- lines
    refused_at INTEGER,                 -- seconds: the last refused line
    refusal TEXT,                       -- its error
    reported INTEGER,                   -- seconds
    report TEXT                         -- JSON
) STRICT, WITHOUT ROWID;
-- The last answer to each collector of a branch, and to all requests without a collector's ID.
CREATE TABLE branch_senders (
    branch TEXT NOT NULL,
    sender TEXT NOT NULL,               -- ID of a collector's state, empty without one
    seq INTEGER NOT NULL,               -- of the last answer
    incarnation TEXT NOT NULL,          -- of the last answer
    seen INTEGER NOT NULL,              -- that the sender last sent, 0 for another incarnation
    sent_seq INTEGER,                   -- that the sender last sent, of any incarnation
    requests INTEGER NOT NULL,
    last_at INTEGER NOT NULL,           -- seconds: the last request
    alternated INTEGER,                 -- seconds: it last sent after another sender had
    went_back INTEGER,                  -- seconds: it last sent a lower `seen` than before
    PRIMARY KEY (branch, sender)
) STRICT, WITHOUT ROWID;
CREATE TABLE branch_pbxs (
    pbx TEXT PRIMARY KEY,
    branch TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX branch_pbxs_branch ON branch_pbxs(branch);

-- The OAuth connection: one row while the state is connected. All of it is secret.
CREATE TABLE connection (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    refresh_token TEXT NOT NULL,        -- that of `content`, which a change must name
    content TEXT NOT NULL               -- JSON
) STRICT;
-- Secrets that the CRM shows once. They outlive a connection.
CREATE TABLE shown_once (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    content TEXT NOT NULL               -- JSON
) STRICT;
";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The database has no tables yet. `migrate` creates all of them.
    New,
    Current,
    /// The database has an older schema, with this version, which `migrate` updates but `inspect`
    /// doesn't.
    Migrated(i64),
    /// The database has a newer schema, with this version, and was left unchanged.
    Newer(i64),
    /// The tables belong to another program, and were left unchanged.
    Foreign,
}

/// Compares a database's schema with the newest version, without changing anything. If this returns
/// [`Found::Migrated`], `migrate` is needed.
pub fn inspect(db: &Connection, migrations: &[&str]) -> rusqlite::Result<Found> {
    let application: i64 = db.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    let version: i64 = db.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let tables: i64 = db.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))?;
    Ok(compare(
        tables,
        application == APPLICATION,
        version,
        migrations.len(),
    ))
}

/// Compares a schema with the newest version, `known`. `tables` is the number of tables, `is_ours`
/// says whether callbridge created them, and `version` is the schema's version.
pub(crate) fn compare(tables: i64, is_ours: bool, version: i64, known: usize) -> Found {
    let known = i64::try_from(known).unwrap_or(i64::MAX);
    match version.cmp(&known) {
        _ if tables == 0 => Found::New,
        _ if !is_ours => Found::Foreign,
        Ordering::Greater => Found::Newer(version),
        Ordering::Equal => Found::Current,
        Ordering::Less => Found::Migrated(version),
    }
}

/// Migrates a database through the last of `migrations` in a single transaction, and returns the
/// schema it had before.
pub fn migrate(db: &Connection, migrations: &[&str]) -> rusqlite::Result<Found> {
    let found = inspect(db, migrations)?;
    let from = match found {
        Found::Foreign | Found::Newer(_) | Found::Current => return Ok(found),
        Found::New => 0,
        Found::Migrated(version) => usize::try_from(version).unwrap_or(0),
    };
    let steps = migrations[from..].concat();
    let known = migrations.len();
    let script = format!(
        "BEGIN IMMEDIATE; {steps} PRAGMA application_id = {APPLICATION}; \
         PRAGMA user_version = {known}; COMMIT;"
    );
    if let Err(error) = db.execute_batch(&script) {
        if !db.is_autocommit() {
            db.execute_batch("ROLLBACK")?;
        }
        return Err(error);
    }
    Ok(found)
}

#[cfg(test)]
#[path = "schema_tests.rs"]
mod tests;
