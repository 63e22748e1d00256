//! Compares the CRM's journal and the dead letters with the calls of the scripts.

use crate::stage::Stage;
use crate::truth::{Fate, Truth};
use crate::wait;
use anyhow::Result;
use callbridge_sandbox::Record;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

/// The table's header.
pub const HEAD: &str = "ok  scenario                           expected → got";

/// A call must be in the journal within this time after its last hangup, even on a busy machine.
const ARRIVES_WITHIN: Duration = Duration::from_secs(75);

/// The calls before the current scenario.
#[derive(Default)]
pub struct Judge {
    records: BTreeSet<String>,
    letters: BTreeSet<String>,
    /// Numbers of finished calls and of internal calls.
    finished: u64,
    internal: u64,
    /// Number of calls in all scenarios so far.
    placed: u64,
}

/// The result of a scenario.
#[derive(Default)]
pub struct Verdict {
    /// Expected and actual calls.
    calls: Vec<(String, String)>,
    wrong: Vec<String>,
}

impl Verdict {
    /// Returns the result of a scenario that could not be played to its end.
    pub fn broken(words: &str) -> Self {
        Self {
            calls: Vec::new(),
            wrong: vec![words.to_owned()],
        }
    }

    /// Returns `true` if everything matches the script.
    pub fn is_right(&self) -> bool {
        self.wrong.is_empty()
    }

    /// Returns the result as rows of the table.
    pub fn rows(&self, name: &str) -> String {
        let mut rows = String::new();
        let mark = if self.is_right() { "ok " } else { "BAD" };
        let mut first = format!("{mark} {name:34}");
        let none = [("no call".to_owned(), "no call".to_owned())];
        let calls = if self.calls.is_empty() {
            &none[..]
        } else {
            &self.calls
        };
        for (expected, got) in calls {
            let _ = writeln!(rows, "{first} {expected} → {got}");
            first = " ".repeat(38);
        }
        for words in &self.wrong {
            let _ = writeln!(rows, "      {words}");
        }
        rows
    }
}

/// A call as callbridge reported it.
enum Got {
    Record(Box<Record>),
    Letter(Value),
}

impl Got {
    fn lead(&self) -> Option<i64> {
        match self {
            Self::Record(record) => Some(record.call.lead_id),
            Self::Letter(letter) => letter["call"]["leadId"].as_i64(),
        }
    }

    fn differences(&self, truth: &Truth) -> Vec<String> {
        match self {
            Self::Record(record) => truth.differences_from_record(record),
            Self::Letter(letter) => truth.differences_from_letter(letter),
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Record(record) => {
                let call = &record.call;
                let (seconds, talk) = (call.duration_sec, call.talk_time_sec.unwrap_or(-1));
                let employee = match call.employee_id {
                    Some(id) => (id - 400).to_string(),
                    None => "-".to_owned(),
                };
                format!("{} {employee} {seconds}s talk {talk}s", call.direction)
            }
            Self::Letter(letter) => {
                let call = &letter["call"];
                let (seconds, talk) = (&call["durationSec"], &call["talkTimeSec"]);
                let reason = letter["reason"].as_str().unwrap_or_default();
                let direction = call["direction"].as_str().unwrap_or("-");
                let employee = call["employee"].as_str().unwrap_or("-");
                format!("{direction} {employee} {seconds}s talk {talk}s {reason}")
            }
        }
    }
}

fn letter_id(letter: &Value) -> String {
    letter["id"].to_string()
}

impl Judge {
    /// Remembers the calls that exist now.
    pub async fn remember_calls(&mut self, stage: &Stage) -> Result<()> {
        let journal = stage.bridge.journal();
        self.records = journal.into_iter().map(|record| record.uuid).collect();
        let letters = stage.bridge.letters().await?;
        self.letters = letters.iter().map(letter_id).collect();
        let books = stage.bridge.status().await?.books;
        (self.finished, self.internal) = (books.finished, books.internal);
        Ok(())
    }

    async fn new_calls(&self, stage: &Stage) -> Result<Vec<Got>> {
        let journal = stage.bridge.journal().into_iter();
        let records = journal.filter(|record| !self.records.contains(&record.uuid));
        let letters = stage.bridge.letters().await?.into_iter();
        let letters = letters.filter(|letter| !self.letters.contains(&letter_id(letter)));
        let records = records.map(|record| Got::Record(Box::new(record)));
        Ok(records.chain(letters.map(Got::Letter)).collect())
    }

    /// After a scenario that failed, waits until its remaining calls have ended.
    pub async fn wait_until_settled(stage: &mut Stage) -> Result<()> {
        let mut before = None;
        while before != Some(stage.bridge.status().await?.books) {
            before = Some(stage.bridge.status().await?.books);
            let never = std::future::pending::<()>();
            let _ = wait::wait_at_most(Duration::from_secs(3), never).await;
        }
        Ok(())
    }

    /// Waits until all calls of the scenario have arrived, and compares them.
    pub async fn judge(&mut self, stage: &mut Stage, truths: &[Truth]) -> Result<Verdict> {
        let wanted = u64::try_from(truths.len())?;
        self.placed += wanted;
        let (finished, internal) = (self.finished, self.internal);
        let come = stage.bridge.wait_until("the calls", move |status| {
            let books = &status.books;
            // A scenario without a customer ends as an internal call.
            let all =
                books.finished >= finished + wanted && (wanted > 0 || books.internal > internal);
            all && books.ready + books.sending == 0
        });
        // The calls that have arrived by then are shown.
        let _ = wait::wait_at_most(ARRIVES_WITHIN, come).await;
        let mut news = self.new_calls(stage).await?;
        let mut verdict = Verdict::default();
        let mut truths: Vec<&Truth> = truths.iter().collect();
        truths.sort_by(|a, b| a.started().total_cmp(&b.started()));
        for truth in truths {
            // Leads identify customers. Calls without a lead come last.
            let at = news.iter().position(|got| got.lead() == truth.lead());
            let at = at.or((!news.is_empty() && truth.fate() != Fate::Journal).then_some(0));
            let Some(at) = at else {
                verdict.calls.push((truth.words(), "nothing".to_owned()));
                verdict.wrong.push("a call is missing".to_owned());
                continue;
            };
            let got = news.remove(at);
            verdict.wrong.extend(got.differences(truth));
            verdict.calls.push((truth.words(), got.words()));
        }
        for got in news {
            verdict.wrong.push(format!("nobody placed {}", got.words()));
        }
        Ok(verdict)
    }

    /// Returns the errors that show only at the end: late calls, wrong books, and violations of the
    /// CRM's rules. The expected number of calls is known only if all scenarios were played to
    /// their `whole` end.
    pub async fn final_errors(&self, stage: &mut Stage, whole: bool) -> Result<Vec<String>> {
        let mut wrong = stage.bridge.violations();
        let settled = stage
            .bridge
            .wait_until("settled books", |status| status.books.settled());
        let status = settled.await?;
        if !status.books.balance() {
            wrong.push(format!("the books do not balance: {:?}", status.books));
        }
        let journaled = stage.bridge.journal();
        let uuids = journaled.iter().map(|record| record.call.uuid.as_str());
        let uuids: BTreeSet<&str> = uuids.collect();
        if uuids.len() != journaled.len() {
            wrong.push("a call stands twice in the journal".to_owned());
        }
        if whole && status.books.finished != self.placed {
            let (books, placed) = (&status.books, self.placed);
            wrong.push(format!(
                "{placed} calls were placed, and now there are {books:?}"
            ));
        }
        Ok(wrong)
    }
}
