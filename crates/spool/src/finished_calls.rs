//! The intake's memory of finished calls: looked up for each new channel, beside the writer's
//! thread, so that no look-up waits for a commit.

use super::Error;
use crate::read_connection::ReadConnection;
use callbridge_call::{EpochSeconds, FinishedCall};
use std::path::Path;

/// Finished calls, by their ids.
#[derive(Debug)]
pub struct FinishedCalls(ReadConnection);

impl FinishedCalls {
    /// Opens it beside the open spool of this folder.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        ReadConnection::open(dir).map(Self)
    }

    /// The finished call that this unique id or linkedid belongs to. Where the file cannot be read
    /// it says none: a call that comes twice is recognised by its uuid all the same.
    pub fn finished(&mut self, pbx: &str, id: &str) -> Option<Known> {
        let text = "SELECT t.own, t.started, c.heard, json_extract(c.record, '$.direction'),
                    c.state = 'dead' AND c.reason = 'incomplete',
                    CASE WHEN c.state = 'dead' AND c.reason = 'incomplete' THEN c.call END
             FROM tombstones t LEFT JOIN calls c ON c.uuid = t.uuid WHERE t.pbx = ?1 AND t.id = ?2";
        let known = |row: &rusqlite::Row<'_>| {
            let direction: Option<String> = row.get(3)?;
            Ok(Known {
                own: row.get(0)?,
                started: EpochSeconds::new(row.get(1)?),
                caller: row
                    .get::<_, Option<String>>(2)?
                    .filter(|_| direction.as_deref() == Some("INBOUND")),
                incomplete: row.get::<_, Option<bool>>(4)?.unwrap_or(false),
                letter: row
                    .get::<_, Option<String>>(5)?
                    .and_then(|text| letter(&text)),
            })
        };
        let found = self.0.db().query_first(text, (pbx, id), known);
        found.unwrap_or_else(|error| {
            tracing::warn!(%error, "finished calls cannot be looked up");
            None
        })
    }
}

/// A letter's call. One that cannot be read adds nothing to a better account of itself.
fn letter(text: &str) -> Option<Box<FinishedCall>> {
    match serde_json::from_str(text) {
        Ok(call) => Some(call),
        Err(error) => {
            tracing::error!(%error, "a letter's call cannot be read");
            None
        }
    }
}

/// A finished call, as far as it is compared with another one that has its ids.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// The id is the call's own, not that of one of its channels.
    pub own: bool,
    /// Start of the call by the PBX's clock, in whole seconds.
    pub started: EpochSeconds,
    /// Number of the customer who called in, as the PBX wrote it; `None` where nobody did or it is
    /// not known any more.
    pub caller: Option<String>,
    /// The call is a letter `incomplete` that waits for somebody.
    pub incomplete: bool,
    /// Facts of the call that this letter has: a better account of the call has the rest.
    pub letter: Option<Box<FinishedCall>>,
}

impl Known {
    /// Returns `true` when a channel born at this second, calling from this number, begins another
    /// call that was given the same ids: two PBXs taken for one, or a clock that went back.
    pub fn is_another(&self, born: Option<EpochSeconds>, caller: &str) -> bool {
        let elsewhen = born.is_some_and(|born| (born.get() - self.started.get()).abs() > 1);
        let somebody_else = match (&self.caller, tail(caller)) {
            (Some(known), Some(caller)) => tail(known).is_some_and(|known| known != caller),
            (None, _) | (_, None) => false,
        };
        self.own && (elsewhen || somebody_else)
    }
}

/// The last seven digits, by which a number is the same in every form; `None` of a short one.
fn tail(number: &str) -> Option<String> {
    let digits: String = number.chars().filter(char::is_ascii_digit).collect();
    (digits.len() >= 7).then(|| digits[digits.len() - 7..].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_remembered_of_a_fresh_spool() {
        let dir = tempfile::tempdir().expect("a folder");
        let spool = super::super::open(dir.path(), super::super::Settings::default());
        let (_handle, guard) = spool.expect("a spool");
        let mut memory = FinishedCalls::open(dir.path()).expect("beside it");
        assert_eq!(memory.finished("pbx", "1.2"), None);
        drop(memory);
        guard.close();
    }

    #[test]
    fn another_call_under_known_ids_is_told_apart_by_start_or_caller() {
        let at = EpochSeconds::new;
        let known = |own| Known {
            own,
            started: at(100),
            caller: Some("+998901110001".into()),
            incomplete: false,
            letter: None,
        };
        let call = known(true);
        assert!(
            !call.is_another(Some(at(101)), "901110001"),
            "the same in another form"
        );
        assert!(!call.is_another(None, "<unknown>"));
        assert!(
            !call.is_another(Some(at(100)), "101"),
            "an extension says nothing"
        );
        assert!(call.is_another(Some(at(100)), "998935550000"));
        assert!(call.is_another(Some(at(3700)), "998901110001"));
        assert!(
            !known(false).is_another(Some(at(3700)), "998935550000"),
            "a channel of it"
        );
    }
}
