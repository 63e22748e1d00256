//! Adds dead letters that no source can cause in the time of a test. They are written to the state
//! as the intake and the sender would write them.

use crate::commands::sidecar::{PBX, Place};
use callbridge_call::{EpochSeconds, Linkedid};
use callbridge_mapping::journal::figures;
use callbridge_model::{Judged, Outcome, Reason, TokenFingerprint, clock};
use callbridge_spool as spool;
use callbridge_spool::{Finished, Handle, Op, Row, RowId, Step, tables};
use callbridge_testbed::calls::Call;
use std::time::Duration;

/// Opens the state, runs `work` on the spool, and closes the state. No daemon can use the state
/// meanwhile.
async fn change_state<T>(place: &Place, work: impl AsyncFnOnce(&Handle) -> T) -> T {
    let opened = spool::open(&place.path("state"), spool::Settings::default());
    let (handle, guard) = opened.expect("the state");
    let result = work(&handle).await;
    drop(handle);
    tokio::task::spawn_blocking(move || guard.close())
        .await
        .expect("closed");
    result
}

async fn find_row(spool: &Handle, id: String) -> Row {
    let found = spool
        .read(move |store| tables::calls::find_call(store, &id))
        .await;
    found.expect("read").expect("a call")
}

/// Returns a copy of a finished call that began and ended `delay` later.
fn later_call(row: &Row, delay: Duration) -> Finished {
    let (mut record, mut call) = (row.record.clone(), row.call.clone());
    call.started = call.started.plus(delay);
    call.ended = call.ended.plus(delay);
    record.started_at = EpochSeconds::new(call.started.floor_seconds().get());
    let judged = Judged {
        record,
        outcome: Outcome::Journal,
        reason: None,
        message: String::new(),
        live: false,
        remarks: Vec::new(),
        judged_at: clock::now().wall,
        kept_out_unanswered: false,
    };
    Finished::new(judged, call)
}

/// Adds a second call with the uuid of `call`, which begins a minute later.
pub async fn add_uuid_conflict(place: &Place, call: &Call) {
    let id = call.uuid(PBX);
    change_state(place, async |spool: &Handle| {
        let finished = later_call(&find_row(spool, id).await, Duration::from_secs(60));
        let written = spool.write(vec![Op::Finish(Box::new(finished))]).await;
        written.expect("written");
    })
    .await;
}

/// Adds an open call with a snapshot that this version cannot read.
pub async fn add_open_call(place: &Place, snapshot: &[u8]) {
    change_state(place, async |spool: &Handle| {
        let open = Op::Open {
            pbx: PBX.to_owned(),
            key: 7,
            snapshot: Some(snapshot.to_vec()),
        };
        spool.write(vec![open]).await.expect("written");
    })
    .await;
}

/// Adds a copy of `call` that failed repeatedly with a server error. Returns the id of its row.
pub async fn add_server_error(place: &Place, call: &Call) -> RowId {
    let id = call.uuid(PBX);
    change_state(place, async |spool: &Handle| {
        let delay = Duration::from_secs(5);
        let mut finished = later_call(&find_row(spool, id).await, delay);
        let linkedid = format!("{}.99", finished.judged.record.started_at.get());
        let root = Linkedid::new(linkedid.clone()).expect("not empty");
        finished.judged.record.uuid = Some(figures::uuid(PBX, &root));
        finished.judged.record.linkedid = linkedid.clone();
        finished.call.also_known_as = vec![root.clone()];
        finished.call.linkedid = root;
        let written = spool.write(vec![Op::Finish(Box::new(finished))]).await;
        written.expect("written");
        let row = find_row(spool, linkedid).await.id;
        let died = Step::Died {
            reason: Reason::ServerError,
            message: "the service failed 5 times on this call while others passed".to_owned(),
            errors: serde_json::Value::Null,
        };
        for step in [Step::Send, died] {
            let at = clock::now().wall;
            let step = Op::Step { row, step, at };
            spool.write(vec![step]).await.expect("written");
        }
        row
    })
    .await
}

/// Makes a journaled call a dead letter of reason `unconfirmed`. Its steps say that the call was
/// sent four more times, and that the CRM lost the requestId each time.
pub async fn add_unconfirmed(place: &Place, call: &Call) {
    let id = call.uuid(PBX);
    change_state(place, async |spool| lose_request_ids(spool, id).await).await;
}

async fn lose_request_ids(spool: &Handle, id: String) {
    let row = find_row(spool, id).await.id;
    let accepted = Step::Accepted {
        request_id: "lost".to_owned(),
        token: TokenFingerprint::of("token"),
    };
    let lost = Step::Resubmit {
        why: "the CRM does not know the requestId".to_owned(),
    };
    let died = Step::Died {
        reason: Reason::Unconfirmed,
        message: "sent 4 times, and each time its outcome could not be asked for".to_owned(),
        errors: serde_json::Value::Null,
    };
    let mut steps = vec![Step::SendAgain {
        why: "the journal lacks it".to_owned(),
    }];
    for end in [&lost, &lost, &lost, &died] {
        steps.extend([Step::Send, accepted.clone(), end.clone()]);
    }
    for step in steps {
        let at = clock::now().wall;
        let step = Op::Step { row, step, at };
        spool.write(vec![step]).await.expect("written");
    }
}
