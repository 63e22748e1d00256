//! A finished call with the outcome that the rules decided, and the values that its row keeps.

use crate::{Error, State, json};
use callbridge_call::timeline::Way;
use callbridge_call::{Direction, FinishedCall, Role, Timeline};
use callbridge_model::{Judged, Outcome, Phone, Reason};

/// Starts that differ by at most this many seconds count as equal, because two sources can round
/// the same time differently.
pub(crate) const SAME_START_SEC: u64 = 1;

/// Returns the time from a call's start to its end, in microseconds.
pub(crate) fn span_micros(call: &FinishedCall) -> i64 {
    call.ended.micros().saturating_sub(call.started.micros())
}

/// Returns the last four characters of a phone number. Lists search for them, because they are the
/// same in every spelling of the number.
pub(crate) fn last_four(phone: &str) -> &str {
    phone.get(phone.len().saturating_sub(4)..).unwrap_or(phone)
}

/// A finished call with its outcome, and with its facts, from which a retry maps the call again.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    pub judged: Judged,
    /// Facts of the call, from which a retry maps it again.
    pub call: FinishedCall,
    /// The branch that sent the call to this hub. `None` for a call of our own sources.
    pub branch: Option<String>,
    /// The call was computed by a branch's collector rather than sent as a message by a phone
    /// system.
    pub from_collector: bool,
    /// These are new values from a late CDR for a call that was already created from CDRs.
    pub is_revision: bool,
    /// The record as JSON. Empty before [`Finished::make_json`], or if the record is not stored.
    pub(crate) record_json: String,
    /// The facts as JSON. Empty before [`Finished::make_json`], or if the call gets no row.
    pub(crate) call_json: String,
}

impl Finished {
    /// Joins a call and its outcome. The JSON is not made yet.
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

    /// Makes the JSON of the values that will be stored. Returns an error if a call that must be
    /// stored has no uuid, or a dead letter has no reason.
    pub(crate) fn make_json(&mut self) -> Result<(), Error> {
        let record = &self.judged.record;
        let outcome = self.judged.outcome;
        // Without a uuid no row can be made, not even a dead letter.
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

    /// Returns the second at which the call began, by the PBX's clock.
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

    /// Returns the trunk's name. Empty for a call between extensions.
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

    /// Returns `true` for a call message, as opposed to a call that callbridge assembled here or at
    /// a branch.
    pub(crate) const fn is_message(&self) -> bool {
        self.call.given.is_some() && !self.from_collector
    }

    pub(crate) fn same_start(&self, started: i64) -> bool {
        self.started().abs_diff(started) <= SAME_START_SEC
    }
}

/// Returns the extensions that the PBX dialed in the call, each listed once.
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
