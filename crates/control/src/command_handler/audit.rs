//! What `audit` asks: what became of the calls of a PBX's file, and that one is taken in.

use super::{CommandHandler, ReplySender, Stop};
use callbridge_audit::Listening;
use callbridge_call::{EventTime, FinishedCall};
use callbridge_intake::Intake;
use callbridge_intake::gap_log::{self, GapLog};
use callbridge_mapping::journal;
use callbridge_model::{Outcome, clock};
use callbridge_spool::{AuditedCall, Done, Error, Finished, Op, Store, tables};
use serde_json::json;
use std::collections::BTreeSet;

/// Under which name the spool keeps how many calls the last audit left unexplained.
pub const UNEXPLAINED_KEY: &str = "audit-unexplained";

pub(super) async fn fates(
    handler: &CommandHandler,
    calls: Vec<AuditedCall>,
    line: &mut ReplySender,
) -> Result<(), Stop> {
    let read = handler.spool.read(move |store| {
        let listening = listening(store, &calls)?;
        Ok((listening, tables::audited::fates(store, &calls)?))
    });
    let (listening, fates) = read.await?;
    line.item(json!(listening)).await?;
    for fate in fates {
        line.item(json!(fate)).await?;
    }
    Ok(())
}

/// The call is judged by the flags and lists in force, and stored.
pub(super) async fn take_in(
    handler: &CommandHandler,
    pbx: &str,
    call: FinishedCall,
    line: &mut ReplySender,
) -> Result<(), Stop> {
    let now = clock::now().wall;
    let call = FinishedCall {
        live: false,
        ..call
    };
    let judged = journal::judge(&call, pbx, &handler.rules, &handler.people(), now);
    let linkedid = call.linkedid.as_str().to_owned();
    let left_out = match judged.outcome {
        Outcome::Journal | Outcome::DeadLetter => None,
        Outcome::Internal | Outcome::Skipped => Some(judged.message.clone()),
    };
    let result = match left_out {
        Some(why) => json!({"linkedid": linkedid, "result": "left_out", "why": why}),
        None => {
            let own = std::iter::once(&call.linkedid).chain(&call.also_known_as);
            let ids = own.map(|id| id.as_str().to_owned()).collect();
            let pbx = pbx.to_owned();
            let finished = Op::Finish(Box::new(Finished { judged, call }));
            let done = handler
                .spool
                .write(vec![Op::Forget { pbx, ids }, finished])
                .await?;
            let result = match done.last() {
                Some(Done::New(_)) => "taken_in",
                _ => "known",
            };
            json!({"linkedid": linkedid, "result": result, "why": null})
        }
    };
    Ok(line.item(result).await?)
}

pub(super) async fn audited(handler: &CommandHandler, unexplained: u64) -> Result<(), Stop> {
    let key = UNEXPLAINED_KEY.to_owned();
    let value = unexplained.to_string();
    handler.spool.write(vec![Op::Meta { key, value }]).await?;
    Ok(())
}

/// When nobody listened to the PBXs of these calls.
fn listening(store: &Store, calls: &[AuditedCall]) -> Result<Listening, Error> {
    let pbxes: BTreeSet<&str> = calls.iter().map(|call| call.pbx.as_str()).collect();
    let mut listening = Listening::default();
    for pbx in pbxes {
        let since = tables::meta::meta(store, &Intake::since_key(pbx))?;
        let since = since.and_then(|micros| micros.parse().ok());
        let since = since.map(|micros| (pbx.to_owned(), EventTime::from_micros(micros)));
        listening.since.extend(since);
    }
    // What cannot be read is told of by the daemon's start, which begins it anew.
    let gaps = tables::meta::meta(store, gap_log::KEY)?;
    listening.gaps = GapLog::stored(gaps.as_deref()).unwrap_or_default().listed();
    Ok(listening)
}
