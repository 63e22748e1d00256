//! Messages that could not be read: read once more by a person or after an upgrade; and PBXs that
//! are handed to another user of the broker.

use super::{CommandHandler, ReplySender, Stop};
use crate::refusal::Refusal;
use callbridge_intake::owners::{OWNER_PREFIX, Owners};
use callbridge_intake::read_again;
use callbridge_mapping::journal;
use callbridge_model::{Outcome, Reason, clock};
use callbridge_spool::{Error, Finished, LetterFilter, Op, RowId, Step, tables};
use serde_json::json;
use std::sync::Arc;

/// Letters of a newer version that are looked at together.
const PAGE: usize = 100;

/// Decodes a stored message once more, and stores its call; returns the outcome in a word, or why
/// nothing was done.
pub(super) async fn read_again(
    handler: &CommandHandler,
    id: RowId,
    dry_run: bool,
    who: &str,
) -> Result<Result<&'static str, String>, Error> {
    let stored = handler
        .spool
        .read(move |store| tables::letters::letter(store, id));
    let Some(message) = stored.await?.and_then(|letter| letter.bytes) else {
        return Ok(Err("it is gone".to_owned()));
    };
    let reported = match read_again::call(&message) {
        Ok(reported) => reported,
        Err(why) => return Ok(Err(why)),
    };
    let now = clock::now().wall;
    let mut call = reported.call.clone();
    call.live = false;
    let judged = journal::judge(&call, &reported.pbx, &handler.rules, &handler.people(), now);
    let (uuid, record) = (judged.record.uuid, judged.record.clone());
    let asked = handler.spool.read(move |store| {
        let may = read_again::may_report(store, &reported, &message)?;
        Ok((may, read_again::rebuilt(store, &reported, uuid, &message)?))
    });
    let (may, remade) = asked.await?;
    if let Err(why) = may {
        return Ok(Err(why));
    }
    let result = match judged.outcome {
        Outcome::Journal if dry_run => return Ok(Ok("would_send")),
        Outcome::Journal => "ready",
        Outcome::DeadLetter | Outcome::Internal | Outcome::Skipped if dry_run => {
            return Ok(Err(judged.message));
        }
        Outcome::DeadLetter => "dead",
        Outcome::Internal | Outcome::Skipped => "counted",
    };
    let mut ops = vec![Op::Finish(Box::new(Finished::new(judged, call)))];
    ops.extend(remade);
    ops.push(Op::act(id, who, "read again", now));
    let by_itself = false;
    ops.push(Op::step(id, Step::Retry { record, by_itself }, now));
    match handler.spool.write(ops).await {
        Ok(_) => Ok(Ok(result)),
        Err(error @ (Error::NoRow { .. } | Error::Refused { .. })) => Ok(Err(error.to_string())),
        Err(error) => Err(error),
    }
}

/// The PBX belongs to another user of the broker from now on.
pub(super) async fn hand_over(
    handler: &CommandHandler,
    pbx: &str,
    user: &str,
    line: &mut ReplySender,
) -> Result<(), Stop> {
    if let Some(named) = handler.owners.named_owner(pbx) {
        let words = format!("--pbx-owner={pbx}={named} decides whose it is: change that flag");
        return Err(Refusal::usage(words).into());
    }
    let key = format!("{OWNER_PREFIX}{pbx}");
    let before = handler.spool.meta(key).await?;
    handler.spool.write(vec![Owners::op(pbx, user)]).await?;
    handler.owners.give(pbx, user);
    tracing::info!(pbx, user, before, who = line.who, "the PBX is handed over");
    let item = json!({"pbx": pbx, "user": user, "before": before});
    line.item(item).await
}

impl CommandHandler {
    /// Reads messages again that were of a newer version than the callbridge that has kept them:
    /// after an upgrade they are calls.
    pub async fn read_newer_again(self: Arc<Self>) {
        match self.read_newer().await {
            Ok(0) => {}
            Ok(calls) => tracing::info!(calls, "messages of a newer version are read now"),
            Err(error) => tracing::warn!(%error, "messages of a newer version wait"),
        }
    }

    async fn read_newer(&self) -> Result<u64, Error> {
        let (mut read, mut after) = (0, None);
        loop {
            let filter = LetterFilter {
                reason: Some(Reason::Unreadable),
                after,
                limit: PAGE,
                ..LetterFilter::default()
            };
            // A list has only the beginning of each message, and what was said of it.
            let page = self
                .spool
                .read(move |store| tables::letters::letters(store, &filter));
            let page = page.await?;
            let Some(last) = page.last() else {
                return Ok(read);
            };
            after = Some(last.id);
            for letter in page.iter().filter(|it| read_again::is_newer(&it.message)) {
                let done = read_again(self, letter.id, false, "callbridge").await?;
                read += u64::from(done.is_ok());
            }
        }
    }
}
