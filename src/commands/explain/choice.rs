//! Finds the call in a recording that's meant by `--call`, which may be a linkedid, a channel's ID,
//! a UUID or the start of one, or the customer's number.

use crate::{Failure, Result};
use callbridge_admin::explain::shape::Other;
use callbridge_call::{FinishedCall, ReportedCall};
use callbridge_model::{Code, Judged, TypedNumber, safe};

/// Minimum length of the start of a UUID in `--call`. Few calls have that much in common.
pub(crate) const PREFIX_MIN: usize = 4;
/// Maximum number of calls to list in a message.
const NAMED_MAX: usize = 20;
/// Maximum number of calls to keep for one ID. Several PBXs' calls, or the calls of several
/// customers in a conference, may share one.
const KEPT_MAX: usize = 64;

/// How an ID matches a call, weakest first. The best match wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum IdMatch {
    /// No ID was given, so every call matches.
    Any,
    /// The last few digits of the customer's number match.
    Ending,
    /// The start of the call's UUID matches, with at least `PREFIX_MIN` characters.
    Beginning,
    Number,
    /// It's the ID of one of the call's channels, or an earlier linkedid of the call.
    Channel,
    /// It's the call's linkedid or UUID.
    Own,
}

/// Compares calls one by one with an ID or a number, keeping those that match best.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    wanted: Option<String>,
    number: Option<TypedNumber>,
    best: Option<IdMatch>,
    /// The calls that match best. For a number, the newest one comes first.
    kept: Vec<(ReportedCall, Judged)>,
    /// Number of best matches, including calls that aren't kept.
    fitting: usize,
}

/// The chosen calls, and the other calls with the same number. Several calls are only chosen if all
/// of them have exactly the ID in `--call`.
type Chosen = (Vec<(ReportedCall, Judged)>, Vec<Other>);

impl Choice {
    /// Creates a choice by the ID `wanted` or by a typed number. If both are `None`, the
    /// recording's only call is chosen.
    pub(crate) fn new(wanted: Option<&str>, number: Option<TypedNumber>) -> Self {
        Self {
            wanted: wanted.map(str::to_owned),
            number,
            ..Self::default()
        }
    }

    /// Compares a call with the ID and the number, and keeps it unless another call matches better.
    pub(crate) fn offer(&mut self, reported: ReportedCall, judged: Judged) {
        let fit = match &self.wanted {
            Some(id) => match_id(id, &reported.call, &judged).max(self.fits_number(&judged)),
            None => Some(IdMatch::Any),
        };
        let Some(fit) = fit.filter(|fit| Some(*fit) >= self.best) else {
            return;
        };
        if self.best.replace(fit) != Some(fit) {
            self.kept.clear();
            self.fitting = 0;
        }
        self.fitting += 1;
        let at = match fit {
            IdMatch::Ending | IdMatch::Number => {
                let started = judged.record.started_at;
                self.kept
                    .partition_point(|(_, other)| other.record.started_at > started)
            }
            IdMatch::Any | IdMatch::Beginning | IdMatch::Channel | IdMatch::Own => self.kept.len(),
        };
        self.kept.insert(at, (reported, judged));
        self.kept.truncate(KEPT_MAX);
    }

    fn fits_number(&self, judged: &Judged) -> Option<IdMatch> {
        let typed = self.number.as_ref()?;
        let phone = judged.record.client_phone.as_ref()?;
        if !typed.matches(phone) {
            return None;
        }
        if typed.is_plain() {
            Some(IdMatch::Number)
        } else {
            Some(IdMatch::Ending)
        }
    }

    /// Returns the chosen calls. `place` is the recording's path, for messages.
    ///
    /// # Errors
    /// Fails with 1 if no call matches, or if several different calls do.
    pub(crate) fn into_chosen(mut self, place: &str) -> Result<Chosen> {
        let others = match self.best {
            None => {
                let message = match self.wanted {
                    Some(id) => format!("{place}: no finished call has {id}"),
                    None => format!("{place}: it has no finished call"),
                };
                return Err(Failure::new(Code::Failed, message));
            }
            // For a number, the newest call is chosen, and the others are listed.
            Some(IdMatch::Ending | IdMatch::Number) => {
                let others = self.kept.drain(1..).take(NAMED_MAX);
                others
                    .map(|(_, judged)| Other::from_record(&judged.record))
                    .collect()
            }
            Some(IdMatch::Any | IdMatch::Beginning) if self.fitting > 1 => {
                return Err(Failure::new(Code::Failed, self.choices_message(place)));
            }
            Some(IdMatch::Any | IdMatch::Beginning | IdMatch::Channel | IdMatch::Own) => Vec::new(),
        };
        Ok((self.kept, others))
    }

    /// Returns the message that lists up to `NAMED_MAX` of the matching calls.
    fn choices_message(&self, place: &str) -> String {
        let fitting = self.fitting;
        let mut message = match &self.wanted {
            Some(id) => format!("{place}: {fitting} uuids begin with {id}:"),
            None => format!("{place}: {fitting} calls are in it; choose one with --call:"),
        };
        for (_, judged) in self.kept.iter().take(NAMED_MAX) {
            message.push_str(&format!("\n  {}", name(judged)));
        }
        if let Some(more @ 1..) = fitting.checked_sub(NAMED_MAX) {
            message.push_str(&format!("\n  and {more} more"));
        }
        message
    }
}

fn match_id(id: &str, call: &FinishedCall, judged: &Judged) -> Option<IdMatch> {
    let uuid = judged.record.uuid.map(|uuid| uuid.to_string());
    let asked = id.to_ascii_lowercase();
    let is_uuid = uuid.as_deref() == Some(asked.as_str());
    if call.linkedid.as_str() == id || is_uuid {
        Some(IdMatch::Own)
    } else if call.also_known_as.iter().any(|own| own.as_str() == id) {
        Some(IdMatch::Channel)
    } else if id.len() >= PREFIX_MIN && uuid.is_some_and(|uuid| uuid.starts_with(&asked)) {
        Some(IdMatch::Beginning)
    } else {
        None
    }
}

/// Returns the line that identifies a call, such as `1795163537.6  inbound, journal, +998…`.
fn name(judged: &Judged) -> String {
    let record = &judged.record;
    let direction = format!("{:?}", record.direction).to_lowercase();
    let mut parts = vec![direction, callbridge_admin::explain::text::outcome(judged)];
    if let Some(phone) = &record.client_phone {
        parts.push(phone.as_str().to_owned());
    }
    let mut name = format!("{}  {}", safe(&record.linkedid), parts.join(", "));
    if let Some(uuid) = record.uuid {
        name.push_str(&format!("  {uuid}"));
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_call::UniqueId;
    use callbridge_mapping::{People, Rules, judge};
    use callbridge_testkit::sample::call;

    /// Returns a call with these IDs, along with its outcome.
    fn call_with_ids(linkedid: &str, channel: &str) -> (ReportedCall, Judged) {
        let mut call = call();
        call.linkedid = UniqueId::new(linkedid).expect("not empty");
        call.also_known_as = UniqueId::new(channel).into_iter().collect();
        let judged = judge(
            &call,
            "pbx1",
            &Rules::default(),
            &People::default(),
            call.ended,
        );
        let pbx = "pbx1".to_owned();
        (ReportedCall { pbx, call }, judged)
    }

    /// Returns the linkedids of the calls chosen by the value `wanted` of `--call`.
    fn chosen_ids(wanted: Option<&str>, calls: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let number = wanted.and_then(|text| TypedNumber::read(text, []));
        let mut choice = Choice::new(wanted, number);
        for (linkedid, channel) in calls {
            let (reported, judged) = call_with_ids(linkedid, channel);
            choice.offer(reported, judged);
        }
        let made = choice
            .into_chosen("a.raw")
            .map_err(|failure| failure.to_string())?;
        let ids = made.0.into_iter();
        let ids = ids.map(|(reported, _)| reported.call.linkedid.to_string());
        Ok(ids.collect())
    }

    const TWO: [(&str, &str); 2] = [
        ("1795151317.1", "1795151317.2"),
        ("1795151317.5", "1795151317.1"),
    ];

    #[test]
    fn own_linkedid_takes_precedence_over_another_calls_channel() {
        assert_eq!(
            chosen_ids(Some("1795151317.1"), &TWO),
            Ok(vec!["1795151317.1".to_owned()])
        );
        assert_eq!(
            chosen_ids(Some("1795151317.2"), &TWO),
            Ok(vec!["1795151317.1".to_owned()])
        );
        let none = chosen_ids(Some("1795151317.9"), &TWO).expect_err("no such call");
        assert_eq!(none, "a.raw: no finished call has 1795151317.9");
    }

    #[test]
    fn uuid_prefix_selects_a_call_only_if_it_is_unique() {
        let uuids = TWO.map(|(linkedid, channel)| {
            let (_, judged) = call_with_ids(linkedid, channel);
            judged.record.uuid.expect("a uuid").to_string()
        });
        assert_ne!(uuids[0][..4], uuids[1][..4], "as these ids happen to be");
        let upper = uuids[1][..6].to_uppercase();
        assert_eq!(
            chosen_ids(Some(&upper), &TWO),
            Ok(vec!["1795151317.5".to_owned()])
        );
        let short = chosen_ids(Some(&uuids[1][..3]), &TWO).expect_err("too short");
        assert!(short.contains("no finished call has"), "{short}");
        let twice = [TWO[0], TWO[0]];
        let message = chosen_ids(Some(&uuids[0][..6]), &twice).expect_err("two begin so");
        assert!(message.contains("2 uuids begin with"), "{message}");
    }

    #[test]
    fn missing_call_id_picks_only_call_or_lists_choices() {
        assert_eq!(
            chosen_ids(None, &TWO[..1]),
            Ok(vec!["1795151317.1".to_owned()])
        );
        let message = chosen_ids(None, &TWO).expect_err("two calls");
        assert!(
            message.starts_with("a.raw: 2 calls are in it; choose one with --call:\n"),
            "{message}"
        );
        assert!(message.contains("\n  1795151317.1  inbound, "), "{message}");
        let many = vec![TWO[0]; 30];
        let message = chosen_ids(None, &many).expect_err("thirty calls");
        assert!(message.ends_with("and 10 more"), "{message}");
    }

    #[test]
    fn explain_by_number_picks_newest_call_and_lists_others() {
        let number = TypedNumber::read("901110001", []);
        let mut choice = Choice::new(Some("901110001"), number);
        for (n, started) in [(1, 10), (2, 30), (3, 20)] {
            let (reported, mut judged) = call_with_ids(&format!("1795151317.{n}"), "1.1");
            judged.record.client_phone = callbridge_model::Phone::from_e164("+998901110001");
            judged.record.started_at = callbridge_call::EpochSeconds::new(started);
            choice.offer(reported, judged);
        }
        let (other, judged) = call_with_ids("1795151317.4", "1.1");
        assert_ne!(
            judged.record.client_phone,
            callbridge_model::Phone::from_e164("+998901110001")
        );
        choice.offer(other, judged);
        let (calls, others) = choice.into_chosen("a.raw").expect("a call");
        let meant = calls
            .iter()
            .map(|(reported, _)| reported.call.linkedid.as_str());
        assert_eq!(meant.collect::<Vec<_>>(), ["1795151317.2"]);
        let others: Vec<&str> = others.iter().map(|other| other.linkedid.as_str()).collect();
        assert_eq!(others, ["1795151317.3", "1795151317.1"]);
    }
}
