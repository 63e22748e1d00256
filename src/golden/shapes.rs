//! Tests that public stored types keep their JSON shape.

use callbridge_call::FinishedCall;
use callbridge_leads::directory::backfill::Backfill;
use callbridge_leads::lead_field::shows::LeadFieldState;
use callbridge_leads::lead_field::{Catalog, RefusedFields};
use callbridge_leads::lead_request::failed::RerouteHistory;
use callbridge_model::CallRecord;
use callbridge_model::status::JournalField;
use callbridge_oauth::connection::Connection;
use callbridge_sender::memory::Memory;
use callbridge_spool::Attempt;
use callbridge_spool::foreign::ForeignLog;
use callbridge_testkit::golden::{holds, keeps};
use serde::{Deserialize, Serialize};

#[test]
fn call_columns_keep_their_stored_shape() {
    keeps::<CallRecord>("call-record");
    keeps::<FinishedCall>("finished-call");
    keeps::<Vec<Attempt>>("attempts");
    keeps::<RerouteHistory>("reroute-history");
}

#[test]
fn sender_memory_keeps_its_stored_shape() {
    holds("sender-memory", |text| {
        let read = Memory::read(Some(text));
        match read.doubts[..] {
            [] => Ok(read.text()),
            _ => Err(read.doubts.join("; ")),
        }
    });
}

#[test]
fn lead_structures_keep_their_stored_shape() {
    keeps::<LeadFieldState>("lead-field-state");
    keeps::<Catalog>("lead-field-catalog");
    keeps::<RefusedFields>("lead-fields-refused");
    keeps::<Backfill>("directory-backfill");
}

#[test]
fn journal_structures_keep_their_stored_shape() {
    keeps::<Vec<JournalField>>("journal-fields");
    keeps::<ForeignLog>("journal-foreign");
}

#[test]
fn connection_keeps_its_stored_shape() {
    holds("connection", |text| {
        let connection = Connection::from_json(text)?;
        Ok(connection.to_json())
    });
}

#[test]
fn shape_with_another_field_fails_with_advice() {
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
        let failed =
            std::panic::catch_unwind(|| compare("reroute-history")).expect_err("another shape");
        let text = failed.downcast_ref::<String>().expect("a text");
        for part in ["tests/golden/reroute-history.json", "migration"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
