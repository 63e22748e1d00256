//! The shapes of this crate that others may see.

use callbridge_call::FinishedCall;
use callbridge_intake::gap_log::GapLog;
use callbridge_leads::directory::backfill::Backfill;
use callbridge_leads::lead_field::shows::LeadFieldState;
use callbridge_leads::lead_field::{Catalogue, RefusedFields};
use callbridge_leads::lead_request::failed::RerouteHistory;
use callbridge_model::CallRecord;
use callbridge_model::status::JournalField;
use callbridge_oauth::connection::Connection;
use callbridge_sender::memory::Memory;
use callbridge_spool::foreign::ForeignLog;
use callbridge_spool::{Attempt, tables};
use callbridge_testkit::Wait as _;
use callbridge_testkit::golden::{holds, keeps};
use serde::{Deserialize, Serialize};

#[test]
fn the_columns_of_a_call() {
    keeps::<CallRecord>("call-record");
    keeps::<FinishedCall>("finished-call");
    keeps::<Vec<Attempt>>("attempts");
    keeps::<RerouteHistory>("been");
}

#[test]
fn what_the_sender_remembers() {
    holds("sender-memory", |text| {
        let read = Memory::read(Some(text));
        match read.doubts[..] {
            [] => Ok(read.text()),
            _ => Err(read.doubts.join("; ")),
        }
    });
}

/// A state of the first release, as the spool's own tests have it.
const WHOLE: &str = include_str!("../../crates/spool/src/tests/schema_8.sql");

#[test]
fn what_other_parts_keep_in_a_released_state_is_understood() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("spool.db");
    let db = rusqlite::Connection::open(file).expect("made");
    db.execute_batch(WHOLE).expect("the script is whole");
    drop(db);
    let settings = callbridge_spool::Settings::default();
    let (handle, _guard) = callbridge_spool::open(dir.path(), settings).expect("a released state");
    let read = handle
        .read(|store| {
            let memory = Memory::read(tables::meta::meta(store, "sender.memory")?.as_deref());
            assert_eq!(memory.doubts, [] as [String; 0]);
            assert_ne!(memory, Memory::default());
            let gaps = GapLog::stored(tables::meta::meta(store, "gaps")?.as_deref());
            assert_eq!(gaps.expect("readable").listed().len(), 2);
            Ok(())
        })
        .wait();
    read.expect("readable");
}

#[test]
fn what_is_known_of_leads() {
    keeps::<LeadFieldState>("lead-shows");
    keeps::<Catalogue>("lead-field-catalogue");
    keeps::<RefusedFields>("lead-fields-refused");
    keeps::<Backfill>("directory-backfill");
}

#[test]
fn what_the_journal_showed() {
    keeps::<Vec<JournalField>>("journal-fields");
    keeps::<ForeignLog>("journal-foreign");
}

#[test]
fn the_connection_s_file() {
    holds("connection", |text| {
        let connection = Connection::from_json(text.as_bytes())?;
        String::from_utf8(connection.to_json()).map_err(|error| error.to_string())
    });
}

#[test]
fn a_field_with_another_name_and_one_that_is_lost_are_said_with_what_to_do() {
    #[derive(Serialize, Deserialize)]
    struct Renamed {
        leads: Vec<i64>,
        without_employee: bool,
    }
    #[derive(Serialize, Deserialize)]
    struct Lost {
        leads: Vec<i64>,
    }
    for compare in [keeps::<Renamed>, keeps::<Lost>] {
        let told = std::panic::catch_unwind(|| compare("been")).expect_err("it is another shape");
        let told = told.downcast_ref::<String>().expect("words");
        for words in ["tests/golden/been.json", "Keep reading it", "been.2.json"] {
            assert!(
                told.replace("NAME", "been").contains(words),
                "{words}: {told}"
            );
        }
    }
}
