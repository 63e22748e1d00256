//! A finished call with the outcome that the rules decided on, and the values kept in its row.

use crate::{Error, State, json};
use callbridge_call::timeline::Way;
use callbridge_call::{Direction, FinishedCall, Role, Timeline};
use callbridge_model::{Judged, Outcome, Phone, Reason};

/// Start times are considered equal if they differ by no more than this many seconds, because two
/// sources may round the same time differently.
pub(crate) const SAME_START_SEC: u64 = 1;

/// Returns the time from a call's start to its end, in microseconds.
pub(crate) fn span_micros(call: &FinishedCall) -> i64 {
    call.ended.micros().saturating_sub(call.started.micros())
}

/// Returns the last four characters of a phone number. Lists search for these, because they're the
/// same however the number is written.
pub(crate) fn last_four(phone: &str) -> &str {
    phone.get(phone.len().saturating_sub(4)..).unwrap_or(phone)
}

/// A finished call with its outcome, and with the facts from which a retry maps it again.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    pub judged: Judged,
    /// The call's facts, from which a retry maps it again.
    pub call: FinishedCall,
    /// The branch that sent the call to this hub, or `None` for a call from our own sources.
    pub branch: Option<String>,
    /// Whether a branch's collector assembled the call, rather than a phone system sending it as a
    /// message.
    pub from_collector: bool,
    /// Whether these are new values from a late CDR for a call that was already created from CDRs.
    pub is_revision: bool,
    /// The record as JSON, empty before [`Finished::make_json`] or if the record isn't stored.
    pub(crate) record_json: String,
    /// The facts as JSON, empty before [`Finished::make_json`] or if the call gets no row.
    pub(crate) call_json: String,
}

impl Finished {
    /// Combines a call with its outcome. The JSON isn't created yet.
    pub const fn new(judged: Judged, call: FinishedCall) -> Self {
        Self {
            judged,
            call,
            branch: None,
            from_collector: false,
            is_revision: false,
            record_json: String::new(),
            call_json: String::new(),
        }
    }

    /// Creates the JSON for the values to be stored. Returns an error if a call that must be stored
    /// has no uuid, or if a dead letter has no reason.
    pub(crate) fn make_json(&mut self) -> Result<(), Error> {
        let record = &self.judged.record;
        let outcome = self.judged.outcome;
        // Without a uuid, no row can be created, not even for a dead letter.
        let stored = record.uuid.is_some();
        if outcome.is_kept() && !stored {
            return Err(Error::NoUuid(record.linkedid.clone()));
        }
        if outcome == Outcome::DeadLetter && self.judged.reason.is_none() {
            let why = format!("call {} has no reason", record.linkedid);
            return Err(Error::Unstorable("a dead letter", why));
        }
        if stored || outcome == Outcome::Internal {
            self.record_json = json("a call record", record)?;
        }
        if stored {
            self.call_json = json("a finished call", &self.call)?;
        }
        Ok(())
    }

    pub(crate) fn uuid(&self) -> Option<[u8; 16]> {
        self.judged.record.uuid.map(|uuid| uuid.0.into_bytes())
    }

    /// Returns the second at which the call started, by the PBX's clock.
    pub(crate) fn started(&self) -> i64 {
        self.call.started.floor_seconds().get()
    }

    pub(crate) fn end(&self) -> i64 {
        let duration = i64::from(self.judged.record.duration_sec);
        self.started().saturating_add(duration)
    }

    pub(crate) fn phone(&self) -> Option<&str> {
        self.judged.record.client_phone.as_ref().map(Phone::as_str)
    }

    /// Returns the customer's number as the PBX sent it.
    pub(crate) fn raw_number(&self) -> Option<&str> {
        self.call.number.as_ref().map(|number| number.text.as_str())
    }

    /// Returns the trunk's name, which is empty for a call between extensions.
    pub(crate) fn trunk(&self) -> &str {
        let record = &self.judged.record;
        match &record.trunk {
            Some(trunk) if record.direction != Direction::Internal => trunk,
            Some(_) | None => "",
        }
    }

    pub(crate) fn state(&self) -> State {
        match self.judged.outcome {
            Outcome::Journal => State::Ready,
            _ if self.judged.reason.is_some_and(Reason::is_waiting) => State::Waiting,
            _ => State::Dead,
        }
    }

    /// Returns `true` for a call message, as opposed to a call that callbridge assembled, whether
    /// here or at a branch.
    pub(crate) const fn is_message(&self) -> bool {
        self.call.given.is_some() && !self.from_collector
    }

    pub(crate) fn same_start(&self, started: i64) -> bool {
        self.started().abs_diff(started) <= SAME_START_SEC
    }
}

/// Returns the extensions that the PBX dialed during the call, each listed once.
pub(crate) fn called_extensions(timeline: Option<&Timeline>) -> Vec<&str> {
    let mut rang: Vec<&str> = Vec::new();
    for channel in timeline.iter().flat_map(|timeline| &timeline.channels) {
        if let (Role::Extension(extension), Way::Dialed) = (&channel.party, channel.way)
            && !rang.contains(&extension.as_str())
        {
            rang.push(extension);
        }
    }
    rang
}
