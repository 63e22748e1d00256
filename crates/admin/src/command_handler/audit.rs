//! Answers the requests of `audit`: what became of the calls in a PBX's file, what the CRM's
//! journal should show of them, and which missing calls are stored.

use super::{Answered, CommandHandler, ReplySender};
use crate::audit::{JournalAnswer, Listening};
use callbridge_call::{EventTime, FinishedCall, better_account};
use callbridge_crm::{ApiReply, FilterPage, Request};
use callbridge_intake::Intake;
use callbridge_intake::gap_log::{self, GapLog};
use callbridge_mapping::journal::{self, figures};
use callbridge_model::{
    CallUuid, Outcome, clock,
    status::{Pause, findings},
};
use callbridge_sender::crm_proxy::ProxyReply;
use callbridge_spool::{AuditedCall, Done, Error, Finished, Op, Step, Store, tables};
use serde_json::json;
use std::collections::BTreeSet;

/// Key in the spool for the number of calls that the last audit left unexplained.
pub const UNEXPLAINED_KEY: &str = "audit-unexplained";
/// Key in the spool for the number of calls that the last audit found with other values.
pub const DIFFERENT_KEY: &str = "audit-different";

impl CommandHandler {
    pub(super) async fn fates(&self, calls: Vec<AuditedCall>, line: &mut ReplySender) -> Answered {
        let read = self.spool.read(move |store| {
            let listening = listening(store, &calls)?;
            Ok((listening, tables::audited::fates(store, &calls)?))
        });
        let (listening, fates) = read.await?;
        line.item(listening).await?;
        line.items(fates).await
    }

    /// Stores the counts of a finished audit for the metrics.
    pub(super) async fn keep_audit_counts(&self, unexplained: u64, different: u64) -> Answered {
        for (key, calls) in [(UNEXPLAINED_KEY, unexplained), (DIFFERENT_KEY, different)] {
            self.spool.keep_meta(key, calls.to_string()).await?;
        }
        Ok(())
    }

    /// Reads a page of the CRM's journal. Sends the page, or the reason why it could not be read.
    pub(super) async fn journal_page(&self, query: FilterPage, line: &mut ReplySender) -> Answered {
        let Some(asking) = &self.asking else {
            let pause = (self.status)().await?.pause;
            let reason = if pause.is_some_and(|pause| pause.reason == findings::NO_DAEMON) {
                "no daemon runs here, and the journal is read only through the daemon's \
                 budget: start `callbridge run`, and audit again"
            } else {
                "this callbridge sends no calls to a CRM: run the audit where they are sent \
                 (--pbx-id names their PBX)"
            };
            let barred = JournalAnswer::Barred {
                reason: reason.to_owned(),
                asked: false,
            };
            return line.item(barred).await;
        };
        let answer = match asking.ask(Request::Filter(query).into()).await {
            ProxyReply::Answer(Ok(ApiReply::Page(page)), _) => {
                let uuids = page.uuids.clone();
                let known = self
                    .spool
                    .read(move |store| tables::audited::known_as_journaled(store, &uuids));
                let ours = known.await?;
                JournalAnswer::Page { page, ours }
            }
            ProxyReply::Answer(Ok(_), _) => JournalAnswer::Failed {
                reason: "the CRM's answer is not a page of the journal".to_owned(),
            },
            ProxyReply::Answer(Err(error), _) => JournalAnswer::from_error(&error),
            ProxyReply::Paused(Pause { reason, fix }) => JournalAnswer::Barred {
                reason: format!("no request is sent to the CRM ({reason}): {fix}"),
                asked: false,
            },
            ProxyReply::Busy => JournalAnswer::Failed {
                reason: "too many requests, or the daemon is stopping; try again".to_owned(),
            },
        };
        line.item(answer).await
    }

    /// Judges the call by the current flags and lists, and stores it. `lost` is the uuid of a call
    /// that the CRM has lost. Such a call is sent again unchanged.
    pub(super) async fn take_in(
        &self,
        pbx: &str,
        call: FinishedCall,
        lost: Option<CallUuid>,
        line: &mut ReplySender,
    ) -> Answered {
        let linkedid = call.linkedid.as_str().to_owned();
        let (result, why) = match lost {
            Some(uuid) => match self.send_again(uuid, &line.who).await? {
                Some(result) => (result, None),
                // The call was purged, so its values come from the PBX's file.
                None if figures::uuid(pbx, &call.linkedid) == uuid => {
                    self.store_again(pbx, call).await?
                }
                None => {
                    let why = "it was journaled under another of its ids, and the values that were \
                           sent are no longer stored: enter it in the CRM by hand";
                    ("left_out", Some(why.to_owned()))
                }
            },
            None => self.store_again(pbx, call).await?,
        };
        line.item(json!({"linkedid": linkedid, "result": result, "reason": why}))
            .await
    }

    /// Sends the call with this uuid again. Returns `None` if the call is no longer stored.
    async fn send_again(&self, uuid: CallUuid, who: &str) -> Result<Option<&'static str>, Error> {
        let read = self
            .spool
            .read(move |store| tables::calls::row_of(store, uuid));
        let Some(row) = read.await? else {
            return Ok(None);
        };
        let at = clock::now().wall;
        let why = "audit --take-in: the CRM's journal does not have it";
        let act = Op::action(row, who, why, at);
        let again = Step::SendAgain {
            why: format!("{why}; sent again"),
        };
        match self.spool.write(vec![act, Op::step(row, again, at)]).await {
            Ok(_) => {
                tracing::info!(call = %uuid, id = row.0, who, "{why}");
                Ok(Some("taken_in"))
            }
            // Another person sent the call again before, or the call is no longer journaled.
            Err(Error::Refused { .. }) => Ok(Some("known")),
            Err(error) => Err(error),
        }
    }

    /// Stores the call, either as a new call or as a correction of its `incomplete` dead letter,
    /// unless it isn't a customer's. Returns `taken_in`, `corrected`, `known`, or `left_out`, and
    /// the reason if it was left out.
    async fn store_again(
        &self,
        pbx: &str,
        call: FinishedCall,
    ) -> Result<(&'static str, Option<String>), Error> {
        let letters = self.incomplete_letters(pbx, &call).await?;
        let halves: Vec<&FinishedCall> = letters.iter().collect();
        let Some(mut call) = better_account(&call, &halves) else {
            return Ok(("known", None));
        };
        call.live = false;
        let judged = journal::judge(&call, pbx, &self.rules, &self.people(), clock::now().wall);
        if let Outcome::Internal | Outcome::Skipped = judged.outcome {
            return Ok(("left_out", Some(judged.message)));
        }
        let forget = Op::Forget {
            pbx: pbx.to_owned(),
            ids: ids_of(&call),
        };
        let mut finished = Finished::new(judged, call);
        let owner = pbx.to_owned();
        let read = self
            .spool
            .read(move |store| tables::branches::branch_of(store, &owner));
        finished.branch = read.await?;
        let finish = Op::Finish(Box::new(finished));
        let done = self.spool.write(vec![forget, finish]).await?;
        let result = match done.last() {
            Some(Done::New(_)) => "taken_in",
            Some(Done::Corrected(_)) => "corrected",
            _ => "known",
        };
        Ok((result, None))
    }

    /// Reads the `incomplete` dead letters of a call.
    async fn incomplete_letters(
        &self,
        pbx: &str,
        call: &FinishedCall,
    ) -> Result<Vec<FinishedCall>, Error> {
        let (pbx, ids) = (pbx.to_owned(), ids_of(call));
        self.spool
            .read(move |store| tables::audited::incomplete_letters(store, &pbx, &ids))
            .await
    }
}

fn ids_of(call: &FinishedCall) -> Vec<String> {
    call.ids().map(|id| id.as_str().to_owned()).collect()
}

/// Reads when each PBX of these calls was first connected, and the gaps in which events were lost.
fn listening(store: &Store, calls: &[AuditedCall]) -> Result<Listening, Error> {
    let pbxes: BTreeSet<&str> = calls.iter().map(|call| call.pbx.as_str()).collect();
    let mut listening = Listening::default();
    for pbx in pbxes {
        let since = tables::meta::meta(store, &Intake::since_key(pbx))?;
        if let Some(micros) = since.and_then(|micros| micros.parse().ok()) {
            let since = EventTime::from_micros(micros);
            listening.since.insert(pbx.to_owned(), since);
        }
        if tables::seen_calls::knows_pbx(store, pbx)? {
            listening.known.insert(pbx.to_owned());
        }
    }
    // An unreadable value counts as no gaps. The daemon logs and resets it when it starts.
    let gaps = tables::meta::meta(store, gap_log::KEY)?;
    listening.gaps = GapLog::restore(gaps.as_deref())
        .unwrap_or_default()
        .into_gaps();
    Ok(listening)
}
