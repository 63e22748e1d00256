//! Decodes unreadable messages again: at the request of a person, or after an upgrade.

use super::CommandHandler;
use callbridge_intake::read_again::{self, RECORD_IN_FILE};
use callbridge_mapping::journal;
use callbridge_model::{Outcome, Reason, clock};
use callbridge_spool::{
    BRANCH_SOURCE, Done, Error, Finished, Letter, LetterFilter, Op, RowId, Step,
    foreign_pbx_message, tables,
};
use std::sync::Arc;

/// Unreadable dead letters that are read from the spool at a time.
const PAGE: usize = 100;

/// Returns the file of this dead letter. Returns `None` if the file holds several records.
pub(super) fn record_file(letter: &Letter) -> Option<&str> {
    let file = letter.bytes.as_ref()?.file.as_deref()?;
    // If the file has several records, `file` also contains the number of the record.
    if file.contains(RECORD_IN_FILE) {
        return None;
    }
    Some(file)
}

impl CommandHandler {
    /// Makes the source read the file of a dead letter again. The dead letter is removed when a
    /// call is read from the file. Returns a message if that is not possible.
    pub(super) async fn read_file_again(
        &self,
        letter: &Letter,
        file: &str,
        dry_run: bool,
    ) -> Result<Result<(), String>, Error> {
        let message = letter.bytes.as_ref();
        let source = message.map(|message| message.source.as_str());
        let Some(again) = source.and_then(|source| self.files_again.get(source)) else {
            let why = "only a daemon that has the file's source can read it again, and none runs: \
                       start `callbridge run` with the source, and try again";
            return Ok(Err(why.to_owned()));
        };
        if tokio::fs::metadata(file).await.is_err() {
            return Ok(Err(format!(
                "{file}: the file is gone; enter its call in the CRM by hand, and discard this \
                 dead letter"
            )));
        }
        if !dry_run {
            again.ask(file);
        }
        Ok(Ok(()))
    }

    /// Decodes a stored message again, and stores its call. Returns the outcome as a word, or why
    /// the dead letter stays.
    pub(super) async fn read_again(
        &self,
        id: RowId,
        dry_run: bool,
        who: &str,
    ) -> Result<Result<&'static str, String>, Error> {
        let read = self
            .spool
            .read(move |store| tables::letters::letter(store, id));
        let Some(message) = read.await?.and_then(|letter| letter.bytes) else {
            return Ok(Err("it is gone".to_owned()));
        };
        let reported = match read_again::call(&message) {
            Ok(reported) => reported,
            Err(why) => return Ok(Err(why)),
        };
        let branch = match message.source.strip_prefix(BRANCH_SOURCE) {
            Some(branch) => {
                let (branch, pbx) = (branch.to_owned(), reported.pbx.clone());
                let read = self
                    .spool
                    .read(move |store| tables::branches::branch_of(store, &pbx));
                if read.await?.as_ref() != Some(&branch) {
                    return Ok(Err(foreign_pbx_message(&reported.pbx, &branch)));
                }
                Some(branch)
            }
            None => None,
        };
        let now = clock::now().wall;
        let mut call = reported.call.clone();
        call.live = false;
        let judged = journal::judge(&call, &reported.pbx, &self.rules, &self.people(), now);
        if dry_run {
            return Ok(match judged.outcome {
                Outcome::Journal => Ok("would_send"),
                Outcome::DeadLetter | Outcome::Internal | Outcome::Skipped => Err(judged.message),
            });
        }
        let retry = Step::Retry {
            record: judged.record.clone(),
            by_itself: false,
        };
        let is_sent = judged.outcome == Outcome::Journal;
        let mut finished = Finished::new(judged, call);
        finished.branch = branch;
        let ops = vec![
            Op::action(id, who, "read again", now),
            Op::Finish(Box::new(finished)),
        ];
        let done = match self.spool.write(ops).await {
            Ok(done) => done,
            Err(error @ Error::NoRow { .. }) => return Ok(Err(error.to_string())),
            Err(error) => return Err(error),
        };
        let result = match done.last() {
            Some(Done::NotKept) => {
                let why = "too many calls have this id and start: set an id that is unique";
                return Ok(Err(why.to_owned()));
            }
            Some(Done::Conflict(_)) => "dead",
            Some(Done::Repeat(_)) => "known",
            Some(Done::Counted) => "counted",
            _ if is_sent => "ready",
            _ => "dead",
        };
        // If the process ends before this, the next retry finds that the call is known.
        match self.spool.write(vec![Op::step(id, retry, now)]).await {
            Ok(_) => Ok(Ok(result)),
            Err(error @ (Error::NoRow { .. } | Error::Refused { .. })) => {
                Ok(Err(error.to_string()))
            }
            Err(error) => Err(error),
        }
    }

    /// Decodes stored messages again that came from a newer version than the callbridge that stored
    /// them. After an upgrade, they can be read, and their calls are stored.
    pub async fn read_newer_again(self: Arc<Self>) {
        match self.read_newer().await {
            Ok(0) => {}
            Ok(calls) => tracing::info!(calls, "messages of a newer version are read now"),
            Err(error) => tracing::warn!(%error, "messages of a newer version wait"),
        }
    }

    async fn read_newer(&self) -> Result<u64, Error> {
        let mut calls = 0;
        let mut after = None;
        loop {
            let filter = LetterFilter {
                reason: Some(Reason::Unreadable),
                after,
                limit: PAGE,
                ..LetterFilter::default()
            };
            // A list has only the beginning of each message, and its reason.
            let read = self
                .spool
                .read(move |store| tables::letters::letters(store, &filter));
            let page = read.await?;
            let Some(last) = page.last() else {
                return Ok(calls);
            };
            after = Some(last.id);
            for letter in &page {
                if read_again::is_newer(&letter.message) {
                    let done = self.read_again(letter.id, false, "callbridge").await?;
                    calls += u64::from(done.is_ok());
                }
            }
        }
    }
}
