//! Ends all faults, and checks that all calls are journaled and that none is lost, doubled,
//! changed, or invented.

use crate::simulation::scenario::{Mend, Run};
use callbridge_call::Direction;
use callbridge_crm::FieldNames;
use callbridge_model::{CallRecord, CallUuid, LeadId};
use callbridge_sandbox::Record;
use callbridge_spool::{State, tables};
use std::collections::BTreeMap;
use std::time::Duration;

/// All calls must be journaled after this many hours.
const HOURS_MAX: u64 = 24 * 4;

impl Run {
    /// Ends the faults, and retries dead letters with corrected values until all calls are
    /// journaled.
    pub fn drain(&mut self) {
        self.world.sandbox.set_faults(Vec::new());
        self.world.trap = None;
        self.mends.clear();
        for mend in [
            Mend::Network,
            Mend::Disk,
            Mend::Clock,
            Mend::Grants,
            Mend::Block,
        ] {
            self.mend(mend);
        }
        self.replace_token();
        self.mends.clear();
        self.mend(Mend::Token);
        for _ in 0..HOURS_MAX {
            self.world.run_for(Duration::from_secs(3600));
            let dead = !self
                .world
                .sandbox
                .token_works(self.world.truth, &self.right);
            if dead {
                self.replace_token();
                self.mends.clear();
                self.mend(Mend::Token);
            }
            let letters = self.letters();
            if letters.is_empty() && self.world.disk.store.books().settled() {
                return;
            }
            for letter in letters {
                self.retry(letter);
            }
        }
        let pause = self.world.pause();
        panic!("not drained: {:?} {pause:?}", self.world.disk.store.books());
    }

    /// Checks that no call is lost, doubled, changed, or invented.
    pub fn judge(&self) {
        let books = self.world.disk.store.books();
        let calls = u64::try_from(self.calls.len()).expect("few");
        assert_eq!(books.finished, calls, "{books:?}");
        assert_eq!(books.journaled + books.discarded, calls, "{books:?}");
        self.world.disk.recount();
        let mut records: BTreeMap<&str, &Record> = BTreeMap::new();
        let ours = self.world.sandbox.records().iter();
        for record in ours.filter(|record| record.provider == "OPEN_API") {
            let uuid = record.uuid.strip_prefix("oapi-").expect("the prefix");
            assert!(self.calls.contains_key(uuid), "invented: {record:?}");
            assert!(records.insert(uuid, record).is_none(), "doubled: {uuid}");
            assert_eq!(record.company_id, 1, "another company's journal");
        }
        for (uuid, call) in &self.calls {
            let id = call.judged.record.uuid.expect("a uuid");
            match (self.state(id), records.get(uuid.as_str())) {
                ((State::Journaled, sent), Some(record)) => {
                    let names = &self.world.settings.fields;
                    let mut sent = sent;
                    if self.world.witness.can_differ(&sent) {
                        // A snapshot does not have a lead that a person assigned later.
                        sent.lead_id = LeadId::new(record.call.lead_id);
                    }
                    compare(&sent, &call.judged.record, record, names);
                }
                ((State::Discarded, _), _) => {}
                ((state, _), record) => panic!("{uuid} is {state}, in the journal: {record:?}"),
            }
        }
    }

    fn state(&self, uuid: CallUuid) -> (State, CallRecord) {
        let store = &self.world.disk.store;
        let row = tables::calls::row_of(store, uuid)
            .expect("readable")
            .expect("a row");
        let row = tables::calls::row(store, row)
            .expect("readable")
            .expect("a row");
        (row.state, row.record)
    }
}

/// Compares every field of the journal's record `got` with the call `sent`, and `sent` with the
/// `finished` call. A person can have changed the lead. The sender sets where the lead came from.
pub fn compare(sent: &CallRecord, finished: &CallRecord, got: &Record, names: &FieldNames) {
    let expected = CallRecord {
        lead_id: sent.lead_id,
        lead_from: sent.lead_from.clone(),
        ..finished.clone()
    };
    assert_eq!(*sent, expected, "the spool changed a call");
    let (record, call) = (sent, &got.call);
    let direction = match record.direction {
        Direction::Inbound => "INBOUND",
        Direction::Outbound => "OUTBOUND",
        Direction::Internal | Direction::Unknown => "none",
    };
    let duration = i64::from(record.duration_sec);
    let phone = record.client_phone.as_ref().map(|phone| phone.as_str());
    assert_eq!(
        call.lead_id,
        record.lead_id.expect("a lead").get(),
        "{got:?}"
    );
    let employee = record.employee_id.map(|id| id.get());
    assert_eq!(call.employee_id, employee, "{got:?}");
    assert_eq!(call.uuid, record.uuid.expect("a uuid").to_string());
    assert_eq!(call.started_at, record.started_at.get(), "{got:?}");
    assert_eq!(call.duration_sec, duration, "{got:?}");
    let talk = Some(i64::from(record.talk_time_sec));
    assert_eq!(call.talk_time_sec, talk, "{got:?}");
    assert_eq!(call.answered, record.answered, "{got:?}");
    assert_eq!(call.direction, direction, "{got:?}");
    let phone = if names.phone.is_some() { phone } else { None };
    assert_eq!(call.client_phone.as_deref(), phone, "{got:?}");
    assert!(call.others.is_empty(), "{got:?}");
    assert_eq!(got.ended_at, record.started_at.get() + duration, "{got:?}");
    let cause = if record.answered {
        "ANSWER"
    } else {
        "NO_ANSWER"
    };
    assert_eq!(got.hangup_cause, cause, "{got:?}");
}
