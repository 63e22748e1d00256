//! The tables, and how an older file becomes one of today.

use rusqlite::Connection;
use std::cmp::Ordering;

/// Marks a file as ours (`PRAGMA application_id`): "cabr".
pub const APPLICATION: i64 = 0x6361_6272;

/// One step a version: the n-th brings schema n to n + 1. Never change one that was released.
pub const MIGRATIONS: &[&str] = &[
    V1,
    V2,
    FLAT,
    HOOKS,
    DIRECTORY,
    ERRANDS,
    LISTED,
    LEFT,
    SIGNED,
    PEOPLE,
    SUMMARIES,
    FORWARDED,
    POSSIBLY_SENT,
    WAITING,
    GENERATIONS,
    PUBLISHED,
    LOGINS,
    PROFILES,
    NUMBERS,
];

/// Times are microseconds since the epoch unless said otherwise.
///
/// A rowid table with a unique index over the uuid takes in twice as much as the uuid as primary
/// key would. Indexes are partial: a row pays only for those of the state it is in.
const V1: &str = "
CREATE TABLE calls (
    id INTEGER PRIMARY KEY,
    uuid BLOB,                          -- 16 bytes; NULL where `twin` is set
    twin BLOB,                          -- of a uuid_conflict letter: the uuid it shares
    state TEXT NOT NULL,
    live INTEGER NOT NULL,
    since INTEGER NOT NULL,             -- in this state
    started INTEGER NOT NULL,           -- seconds, as the PBX told it
    phone TEXT,                         -- E.164
    heard TEXT,                         -- the number as the PBX told it
    record TEXT NOT NULL,               -- CallRecord
    call TEXT NOT NULL,                 -- FinishedCall
    not_before INTEGER NOT NULL DEFAULT 0,
    request_id TEXT,
    token TEXT,
    submitted_at INTEGER,
    next_poll INTEGER,
    polls INTEGER NOT NULL DEFAULT 0,
    resubmits INTEGER NOT NULL DEFAULT 0,
    deaths INTEGER NOT NULL DEFAULT 0,
    reason TEXT,
    message TEXT NOT NULL DEFAULT '',
    errors TEXT,
    attempts TEXT NOT NULL DEFAULT '[]' -- [{at, words}]
) STRICT;
CREATE UNIQUE INDEX calls_uuid ON calls(uuid);
CREATE INDEX calls_twin ON calls(twin) WHERE twin IS NOT NULL;
CREATE INDEX calls_fresh ON calls(live, id) WHERE state = 'ready' AND not_before = 0;
CREATE INDEX calls_held ON calls(live, not_before) WHERE state = 'ready' AND not_before > 0;
CREATE INDEX calls_sending ON calls(id) WHERE state = 'sending';
CREATE INDEX calls_poll ON calls(next_poll) WHERE state = 'submitted';
CREATE INDEX calls_accepted ON calls(submitted_at) WHERE state = 'submitted';
CREATE INDEX calls_letter ON calls(id) WHERE state IN ('dead', 'parked');
CREATE INDEX calls_reason ON calls(reason, id) WHERE state IN ('dead', 'parked');
CREATE INDEX calls_parked ON calls(phone, id) WHERE state = 'parked';
CREATE INDEX calls_closed ON calls(since) WHERE state IN ('journaled', 'discarded');

CREATE TABLE unreadable (
    id INTEGER PRIMARY KEY,             -- from the same sequence as calls
    source TEXT NOT NULL,
    pbx TEXT NOT NULL,
    why TEXT NOT NULL,
    at INTEGER NOT NULL,
    length INTEGER NOT NULL,
    bytes BLOB NOT NULL
) STRICT;

CREATE TABLE tombstones (
    pbx TEXT NOT NULL,
    id TEXT NOT NULL,
    uuid BLOB,
    own INTEGER NOT NULL,
    started INTEGER NOT NULL,           -- seconds
    at INTEGER NOT NULL,
    PRIMARY KEY (pbx, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE open_calls (
    pbx TEXT NOT NULL,
    key INTEGER NOT NULL,               -- u64, bit for bit
    snapshot BLOB NOT NULL,
    PRIMARY KEY (pbx, key)
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

CREATE TABLE notices (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    message_id TEXT NOT NULL,
    body TEXT NOT NULL,
    reason TEXT NOT NULL,
    uuid BLOB,
    linkedid TEXT,
    trunk TEXT
) STRICT;
";

/// Confirmation by reconciliations: what they did not show, and the unresolved calls they alone can
/// find.
const V2: &str = "
ALTER TABLE calls ADD COLUMN first_sent INTEGER;                   -- as it is now
ALTER TABLE calls ADD COLUMN failures INTEGER NOT NULL DEFAULT 0;  -- while others passed
ALTER TABLE calls ADD COLUMN absent INTEGER NOT NULL DEFAULT 0;    -- sweeps without it
ALTER TABLE calls ADD COLUMN absent_at INTEGER;
ALTER TABLE calls ADD COLUMN fate TEXT;                            -- of an orphan
CREATE INDEX calls_token ON calls(token, submitted_at) WHERE state = 'submitted';
CREATE INDEX calls_sweep ON calls(submitted_at) WHERE state = 'submitted' AND absent < 2;
CREATE INDEX calls_alone ON calls(next_poll) WHERE state = 'submitted' AND absent >= 2;
DROP INDEX calls_accepted;
";

/// Nothing may take longer the more rows there are: not what the sender asks for one token, nor
/// what a person asks of letters. (Of two indices that would do SQLite takes the younger.)
/// Triggers keep the number of letters by reason, whatever a step does to state and reason.
const FLAT: &str = "
CREATE INDEX calls_due ON calls(token, next_poll) WHERE state = 'submitted';
DROP INDEX calls_alone;
CREATE INDEX calls_alone ON calls(token, next_poll) WHERE state = 'submitted' AND absent >= 2;
CREATE INDEX calls_linkedid ON calls(json_extract(record, '$.linkedid'))
    WHERE state IN ('dead', 'parked');
CREATE INDEX calls_waiting ON calls(since, id) WHERE state = 'parked';
CREATE INDEX calls_missing ON calls(phone, id) WHERE state = 'parked' AND reason = 'no_lead';
CREATE TABLE letters (reason TEXT PRIMARY KEY, count INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO letters SELECT reason, count(*) FROM calls
    WHERE state IN ('dead', 'parked') GROUP BY reason;
CREATE TRIGGER letter_born AFTER INSERT ON calls WHEN NEW.state IN ('dead', 'parked')
BEGIN
    INSERT INTO letters VALUES (NEW.reason, 1) ON CONFLICT DO UPDATE SET count = count + 1;
END;
CREATE TRIGGER letter_left AFTER UPDATE OF state, reason ON calls
    WHEN OLD.state IN ('dead', 'parked') AND OLD.reason IS NOT NULL
BEGIN
    UPDATE letters SET count = count - 1 WHERE reason = OLD.reason;
END;
CREATE TRIGGER letter_came AFTER UPDATE OF state, reason ON calls
    WHEN NEW.state IN ('dead', 'parked') AND NEW.reason IS NOT NULL
BEGIN
    INSERT INTO letters VALUES (NEW.reason, 1) ON CONFLICT DO UPDATE SET count = count + 1;
END;
";

/// Events that the service sends to us: whose call one has confirmed, and the pairs that are known.
/// Ids grow with time, so what is old lies at the front.
const HOOKS: &str = "
ALTER TABLE calls ADD COLUMN hooked INTEGER NOT NULL DEFAULT 0;
CREATE TABLE deliveries (
    id INTEGER PRIMARY KEY,
    installation TEXT NOT NULL,
    event TEXT NOT NULL,
    at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX deliveries_pair ON deliveries(event, installation);
";

/// The directory of leads (`callbridge_leads::directory`). A phone is the number of its digits; 0
/// stands for a slot that is reported empty. Slots: the contact's id, 0 the snapshot's `phone`, -1
/// contacts without ids. All times are seconds, as the CRM gave them.
const DIRECTORY: &str = "
CREATE TABLE directory_leads (
    lead INTEGER PRIMARY KEY,
    living INTEGER,                     -- the newest second at which it was told to live
    whole INTEGER,                      -- when all its contacts were told last
    deleted INTEGER,
    merged INTEGER,
    merged_into INTEGER
) STRICT;
CREATE INDEX directory_merged ON directory_leads(merged_into) WHERE merged_into IS NOT NULL;
CREATE TABLE directory_phones (
    phone INTEGER NOT NULL,
    lead INTEGER NOT NULL,
    slot INTEGER NOT NULL,
    held INTEGER,                       -- since then; NULL where it was only given up
    told INTEGER,                       -- by which event or answer
    gone INTEGER,                       -- when the slot's contact gave it up last
    PRIMARY KEY (phone, lead, slot)
) STRICT, WITHOUT ROWID;
CREATE INDEX directory_of_lead ON directory_phones(lead);
CREATE TABLE directory_size (name TEXT PRIMARY KEY, count INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX calls_torn ON calls(phone, id) WHERE state = 'dead' AND reason = 'ambiguous_lead';
";

/// Failed calls that go on, and requests beside the call path.
const ERRANDS: &str = "
ALTER TABLE calls ADD COLUMN been TEXT;       -- errand::failed::Been, where it went on by itself
ALTER TABLE calls ADD COLUMN finding TEXT;    -- of a letter `failed`: what the look-up found
CREATE INDEX calls_failed ON calls(json_extract(record, '$.leadId'), id)
    WHERE state = 'dead' AND reason = 'failed';
CREATE TABLE lookups (
    lead INTEGER PRIMARY KEY,
    asked INTEGER NOT NULL,         -- for the call that failed
    due INTEGER,                    -- NULL: answered
    tries INTEGER NOT NULL,
    finding TEXT,
    answered INTEGER
) STRICT;
CREATE INDEX lookups_due ON lookups(due) WHERE due IS NOT NULL;
CREATE INDEX lookups_answered ON lookups(answered) WHERE due IS NULL;
CREATE TABLE lead_shows (
    lead INTEGER PRIMARY KEY,
    shows TEXT NOT NULL,            -- lead_field::Shows
    asks TEXT,                      -- write, poll; NULL: nothing is to be done
    due INTEGER NOT NULL,
    newest INTEGER NOT NULL         -- seconds: start of the newest call it tells of
) STRICT;
CREATE INDEX shows_due ON lead_shows(asks, due) WHERE asks IS NOT NULL;
CREATE INDEX shows_newest ON lead_shows(asks, newest);
";

/// `calls`: by time, and by the last four digits of a number, which any way of typing it ends with.
/// Calls between extensions are counted; the last of them are kept to be looked at.
const LISTED: &str = "
CREATE INDEX calls_started ON calls(started, id);
CREATE INDEX calls_ending ON calls(substr(phone, -4), started, id) WHERE phone IS NOT NULL;
CREATE TABLE internal_calls (
    id INTEGER PRIMARY KEY,
    started INTEGER NOT NULL,           -- seconds
    record TEXT NOT NULL                -- CallRecord
) STRICT;
CREATE INDEX internal_started ON internal_calls(started, id);
";

/// Notices of letters that left, too, each with its moment.
const LEFT: &str = "
ALTER TABLE notices ADD COLUMN state TEXT NOT NULL DEFAULT '';  -- dead, parked; Left
ALTER TABLE notices ADD COLUMN at INTEGER NOT NULL DEFAULT 0;   -- 0: not known
";

/// A delivery is known by its signature, too: the installation that it names is not signed.
const SIGNED: &str = "
ALTER TABLE deliveries ADD COLUMN signature BLOB;   -- NULL: of an older version
CREATE UNIQUE INDEX deliveries_signature ON deliveries(signature) WHERE signature IS NOT NULL;
";

/// Calls that a broker has confirmed. An older version does not know their state, and refuses a
/// file of this schema.
const FORWARDED: &str = "
CREATE INDEX calls_forwarded ON calls(since) WHERE state = 'forwarded';
";

/// Calls that another sender may have sent: held back until they were looked for, in the order of
/// their starts. What comes while a round of looking is under way is of the next. A trigger lets
/// them go with the state `ready`, whatever step that is. And what became of calls here, for the
/// stream they came from.
const POSSIBLY_SENT: &str = "
CREATE TABLE remade (
    row INTEGER PRIMARY KEY,
    round INTEGER NOT NULL,
    started INTEGER NOT NULL            -- seconds
) STRICT;
CREATE INDEX remade_started ON remade(round, started, row);
CREATE TABLE remade_size (one INTEGER PRIMARY KEY, calls INTEGER NOT NULL) STRICT;
INSERT INTO remade_size VALUES (1, 0);
CREATE TRIGGER remade_came AFTER INSERT ON remade
BEGIN
    UPDATE remade_size SET calls = calls + 1 WHERE one = 1;
END;
CREATE TRIGGER remade_gone AFTER DELETE ON remade
BEGIN
    UPDATE remade_size SET calls = calls - 1 WHERE one = 1;
END;
CREATE TRIGGER remade_left AFTER UPDATE OF state ON calls
    WHEN OLD.state = 'ready' AND NEW.state != 'ready'
BEGIN
    DELETE FROM remade WHERE row = OLD.id;
END;
CREATE TABLE outcomes (
    id INTEGER PRIMARY KEY,
    uuid BLOB NOT NULL,
    journaled INTEGER NOT NULL          -- 0: discarded
) STRICT;
";

/// Events that came through a stream before it is known whose this state is, as the messages they
/// came as. Triggers keep how many they are.
const WAITING: &str = "
CREATE TABLE waiting_deliveries (
    id INTEGER PRIMARY KEY,
    installation TEXT NOT NULL,
    event TEXT NOT NULL,
    at INTEGER NOT NULL,
    message TEXT NOT NULL               -- WebhookMessage
) STRICT;
CREATE UNIQUE INDEX waiting_deliveries_pair ON waiting_deliveries(event, installation);
CREATE TABLE waiting_deliveries_size (
    one INTEGER PRIMARY KEY,
    events INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) STRICT;
INSERT INTO waiting_deliveries_size VALUES (1, 0, 0);
CREATE TRIGGER waiting_delivery_came AFTER INSERT ON waiting_deliveries
BEGIN
    UPDATE waiting_deliveries_size
    SET events = events + 1, bytes = bytes + length(NEW.message) WHERE one = 1;
END;
CREATE TRIGGER waiting_delivery_gone AFTER DELETE ON waiting_deliveries
BEGIN
    UPDATE waiting_deliveries_size
    SET events = events - 1, bytes = bytes - length(OLD.message) WHERE one = 1;
END;
";

/// Properties that its publisher gave a message, for reading it again; and how many bytes are kept
/// of all that could not be read.
const PUBLISHED: &str = "
ALTER TABLE unreadable ADD COLUMN user TEXT;
ALTER TABLE unreadable ADD COLUMN content_type TEXT;
ALTER TABLE unreadable ADD COLUMN file TEXT;         -- with the place in it, if it holds many
CREATE INDEX unreadable_file ON unreadable(source, file) WHERE file IS NOT NULL;
CREATE TABLE unreadable_size (one INTEGER PRIMARY KEY, bytes INTEGER NOT NULL) STRICT;
INSERT INTO unreadable_size SELECT 1, ifnull(sum(length(bytes)), 0) FROM unreadable;
CREATE TRIGGER unreadable_came AFTER INSERT ON unreadable
BEGIN
    UPDATE unreadable_size SET bytes = bytes + length(NEW.bytes) WHERE one = 1;
END;
CREATE TRIGGER unreadable_gone AFTER DELETE ON unreadable
BEGIN
    UPDATE unreadable_size SET bytes = bytes - length(OLD.bytes) WHERE one = 1;
END;
";

/// Times a call that was journaled was taken in again: news of an earlier time says nothing. And
/// turns of the PBXs among the calls that are ready.
const GENERATIONS: &str = "
ALTER TABLE calls ADD COLUMN generation INTEGER NOT NULL DEFAULT 0;
ALTER TABLE outcomes ADD COLUMN generation INTEGER NOT NULL DEFAULT 0;
ALTER TABLE outcomes ADD COLUMN again INTEGER NOT NULL DEFAULT 0; -- 1: taken in again
CREATE INDEX calls_turn ON calls(live, json_extract(record, '$.pbx'), id)
    WHERE state = 'ready' AND not_before = 0;
";

/// Acts of people, and customers whom they are to call: leads given to numbers by hand, acts on
/// letters; customers who called in vain; what each trunk took. Those who wait are found among the
/// calls that an older version kept.
const PEOPLE: &str = "
ALTER TABLE calls ADD COLUMN acts TEXT;         -- [{at, who, what}]; NULL: none
CREATE TABLE given_leads (
    phone TEXT PRIMARY KEY,             -- E.164
    lead INTEGER NOT NULL,
    at INTEGER NOT NULL,                -- seconds
    who TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE missed (
    phone TEXT PRIMARY KEY,             -- E.164
    pbx TEXT NOT NULL,                  -- of the last try, as trunk and lead
    trunk TEXT NOT NULL,
    lead INTEGER,
    first_at INTEGER NOT NULL,          -- seconds
    last_at INTEGER NOT NULL,
    tries INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX missed_first ON missed(first_at, phone);
CREATE INDEX missed_last ON missed(last_at);
CREATE INDEX missed_trunk ON missed(trunk);
CREATE TABLE unanswered (               -- calls that `unanswered=no` keeps out of the journal
    id INTEGER PRIMARY KEY,
    pbx TEXT NOT NULL,
    trunk TEXT NOT NULL,
    phone TEXT,
    started INTEGER NOT NULL,           -- seconds
    rang TEXT NOT NULL                  -- extensions, separated by spaces
) STRICT;
CREATE INDEX unanswered_phone ON unanswered(phone, started) WHERE phone IS NOT NULL;
CREATE INDEX unanswered_started ON unanswered(started);
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
    quarter INTEGER NOT NULL,           -- seconds: where the quarter of an hour begins
    calls INTEGER NOT NULL,
    extensions INTEGER NOT NULL,        -- calls put down to an extension
    employees INTEGER NOT NULL,         -- and to an employee
    PRIMARY KEY (pbx, trunk, quarter)
) STRICT, WITHOUT ROWID;
CREATE INDEX quarters_old ON trunk_quarters(quarter);
INSERT INTO missed (phone, pbx, trunk, first_at, last_at, tries)
    SELECT c.phone, '', '', min(c.started), max(c.started), count(*)
    FROM calls c LEFT JOIN (
        SELECT phone, max(started + json_extract(record, '$.durationSec')) AS ended
        FROM calls WHERE phone IS NOT NULL AND json_extract(record, '$.answered')
        GROUP BY phone) t ON t.phone = c.phone
    WHERE c.phone IS NOT NULL AND NOT json_extract(c.record, '$.answered')
        AND json_extract(c.record, '$.direction') = 'INBOUND'
        AND c.reason IS NOT 'invalid_epoch' AND (t.ended IS NULL OR c.started >= t.ended)
    GROUP BY c.phone;
UPDATE missed SET (pbx, trunk, lead) = (
    SELECT json_extract(record, '$.pbx'), ifnull(json_extract(record, '$.trunk'), ''),
           json_extract(record, '$.leadId')
    FROM calls WHERE substr(calls.phone, -4) = substr(missed.phone, -4)
        AND calls.phone = missed.phone AND started = missed.last_at LIMIT 1);
";

/// Outcomes of calls whose rows are purged: a short row each, for the audit.
const SUMMARIES: &str = "
CREATE TABLE summaries (
    pbx TEXT NOT NULL,
    id TEXT NOT NULL,                   -- the linkedid
    uuid BLOB,                          -- NULL: counted only
    state TEXT NOT NULL,                -- journaled, discarded…; counted: internal or skipped
    started INTEGER NOT NULL,           -- seconds
    PRIMARY KEY (pbx, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX summaries_started ON summaries(started);
";

/// Room that each login of a broker has filled with what it published and nobody could read, and
/// how many of its messages found none. The name is empty where none stands with a message.
const LOGINS: &str = "
CREATE TABLE unreadable_logins (
    login TEXT PRIMARY KEY,
    letters INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    not_kept INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
INSERT INTO unreadable_logins (login, letters, bytes)
    SELECT ifnull(user, ''), count(*), sum(length(bytes)) FROM unreadable GROUP BY 1;
CREATE TRIGGER unreadable_login_came AFTER INSERT ON unreadable
BEGIN
    INSERT INTO unreadable_logins (login, letters, bytes)
        VALUES (ifnull(NEW.user, ''), 1, length(NEW.bytes))
        ON CONFLICT (login) DO UPDATE
        SET letters = letters + 1, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER unreadable_login_gone AFTER DELETE ON unreadable
BEGIN
    UPDATE unreadable_logins SET letters = letters - 1, bytes = bytes - length(OLD.bytes)
        WHERE login = ifnull(OLD.user, '');
    DELETE FROM unreadable_logins WHERE login = ifnull(OLD.user, '') AND letters = 0;
END;
";

/// Facts that people know a lead by, each with its second and its rank within that.
const PROFILES: &str = "
ALTER TABLE directory_leads ADD COLUMN name_at INTEGER;
ALTER TABLE directory_leads ADD COLUMN name_rank INTEGER;
ALTER TABLE directory_leads ADD COLUMN name TEXT;
ALTER TABLE directory_leads ADD COLUMN stage_at INTEGER;
ALTER TABLE directory_leads ADD COLUMN stage_rank INTEGER;
ALTER TABLE directory_leads ADD COLUMN stage TEXT;
ALTER TABLE directory_leads ADD COLUMN responsible_at INTEGER;
ALTER TABLE directory_leads ADD COLUMN responsible_rank INTEGER;
ALTER TABLE directory_leads ADD COLUMN responsible_name TEXT;
ALTER TABLE directory_leads ADD COLUMN responsible INTEGER;
ALTER TABLE directory_phones ADD COLUMN name_at INTEGER;    -- that of the slot's contact
ALTER TABLE directory_phones ADD COLUMN name_rank INTEGER;
ALTER TABLE directory_phones ADD COLUMN name TEXT;
";

/// Talks and missed calls of a number (`missed.rs` has the same conditions), and calls that came
/// under the uuid of another, each in the order in which a new call is compared with them.
const NUMBERS: &str = "
CREATE INDEX calls_talks ON calls(phone, started + json_extract(record, '$.durationSec'))
    WHERE phone IS NOT NULL AND json_extract(record, '$.answered')
    AND reason IS NOT 'invalid_epoch' AND NOT (state = 'discarded' AND reason IS 'incomplete');
CREATE INDEX calls_missed ON calls(phone, started)
    WHERE phone IS NOT NULL AND NOT json_extract(record, '$.answered')
    AND json_extract(record, '$.direction') = 'INBOUND'
    AND reason IS NOT 'invalid_epoch' AND reason IS NOT 'incomplete';
DROP INDEX calls_twin;
CREATE INDEX calls_twins ON calls(twin, started) WHERE twin IS NOT NULL;
";

/// Kind of database that a file turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing is in it: `migrate` makes all tables.
    New,
    /// The file has this schema already.
    Current,
    /// The file has that older schema: `inspect` leaves it, `migrate` brings it up to date.
    Migrated(i64),
    /// The file has that newer schema; nothing was touched.
    Newer(i64),
    /// The file is another program's; nothing was touched.
    Foreign,
}

/// Looks at a database without touching it: [`Found::Migrated`] says what is to be done.
pub fn inspect(db: &Connection, migrations: &[&str]) -> rusqlite::Result<Found> {
    let application: i64 = db.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    let version: i64 = db.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let tables: i64 = db.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))?;
    let known = i64::try_from(migrations.len()).unwrap_or(i64::MAX);
    Ok(match version.cmp(&known) {
        _ if tables == 0 => Found::New,
        _ if application != APPLICATION => Found::Foreign,
        Ordering::Greater => Found::Newer(version),
        Ordering::Equal => Found::Current,
        Ordering::Less => Found::Migrated(version),
    })
}

/// Brings a database up to the last of `migrations`, in one transaction.
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
