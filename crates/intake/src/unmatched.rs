//! Channels that no trunk includes and that either had an outside number or may or may not be
//! phones, counted by the prefix of their names. `status` shows both kinds, the metrics only the
//! former. They're kept over restarts until a flag names them.

use callbridge_call::{EventTime, Extension};
use callbridge_model::status;
use callbridge_spool::Op;

/// Maximum number of prefixes of each kind. Channels with any other prefix are counted together.
const KEPT: usize = 32;
/// Name under which channels with any other prefix are counted.
const OTHERS: &str = "other";
/// Name of the spool setting that holds the prefixes.
pub const KEY: &str = "unmatched";
/// Number of seconds after which a prefix that hasn't been seen is forgotten.
const FORGOTTEN_SECONDS: i64 = 30 * 86_400;

/// Prefixes and their counts, in the order they were first seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnmatchedLog {
    seen: Vec<status::Unmatched>,
    /// All prefixes that this process has reported for the log.
    logged: Vec<Prefix>,
    /// Prefixes that must still be logged.
    pub(super) unreported: Vec<Prefix>,
    changed: bool,
}

/// The prefix of the names of channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Prefix {
    pub(super) pbx: String,
    /// The prefix itself, such as `PJSIP/citty`.
    pub(super) text: String,
    /// Whether the channels may be phones, since their technology is unknown.
    pub(super) may_be_phones: bool,
}

impl UnmatchedLog {
    /// Restores the stored log, or an empty one if there is none.
    ///
    /// # Errors
    ///
    /// Returns an error if the text isn't in this version's format.
    pub fn restore(text: Option<&str>) -> Result<Self, serde_json::Error> {
        let seen = text.map(serde_json::from_str).transpose()?;
        Ok(Self {
            seen: seen.unwrap_or_default(),
            ..Self::default()
        })
    }

    /// Counts a call on a channel with this prefix.
    pub(super) fn note(&mut self, mut prefix: Prefix, at: EventTime) {
        let same_kind = |known: &&status::Unmatched| known.may_be_phones == prefix.may_be_phones;
        let kept = self.seen.iter().filter(same_kind).count();
        if kept >= KEPT && self.find_mut(&prefix).is_none() {
            OTHERS.clone_into(&mut prefix.text);
        }
        let at = at.floor_seconds().get();
        match self.find_mut(&prefix) {
            Some(unmatched) => {
                unmatched.calls += 1;
                unmatched.last_at = unmatched.last_at.max(at);
            }
            None => self.seen.push(status::Unmatched {
                pbx: prefix.pbx.clone(),
                prefix: prefix.text.clone(),
                calls: 1,
                last_at: at,
                may_be_phones: prefix.may_be_phones,
            }),
        }
        if !self.logged.contains(&prefix) {
            self.logged.push(prefix.clone());
            self.unreported.push(prefix);
        }
        self.changed = true;
    }

    fn find_mut(&mut self, prefix: &Prefix) -> Option<&mut status::Unmatched> {
        self.seen.iter_mut().find(|unmatched| {
            unmatched.pbx == prefix.pbx
                && unmatched.prefix == prefix.text
                && unmatched.may_be_phones == prefix.may_be_phones
        })
    }

    /// Forgets prefixes that a flag names by now, and prefixes that were not seen for 30 days.
    /// `is_named` returns `true` if a flag names these channels.
    pub(super) fn prune(&mut self, now: EventTime, is_named: impl Fn(&status::Unmatched) -> bool) {
        let now = now.floor_seconds().get();
        let kept = self.seen.len();
        self.seen.retain(|unmatched| {
            let old = now - unmatched.last_at > FORGOTTEN_SECONDS;
            !old && !is_named(unmatched)
        });
        if self.seen.len() < kept {
            // There's room for some of the prefixes that were counted together. They'll be listed
            // separately when they occur again.
            self.seen.retain(|unmatched| unmatched.prefix != OTHERS);
            self.changed = true;
        }
    }

    /// Returns the operation that stores the prefixes, or `None` if nothing has changed since the
    /// last call.
    pub(super) fn take(&mut self) -> Option<Op> {
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        // Strings, numbers, and lists can always be serialized.
        let value = serde_json::to_string(&self.seen).unwrap_or_default();
        Some(Op::meta(KEY, value))
    }

    /// Returns the prefixes for `status`.
    pub fn into_channels(self) -> Vec<status::Unmatched> {
        self.seen
    }
}

/// Returns the device in a prefix (`101` in `PJSIP/101`), as a list of employees would name it.
pub fn device(prefix: &str) -> Extension {
    let device = prefix.split_once('/').map_or(prefix, |(_, device)| device);
    Extension::new(device)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time_at(second: i64) -> EventTime {
        EventTime::from_seconds(1_795_151_317 + second)
    }

    fn line(prefix: &str) -> Prefix {
        Prefix {
            pbx: "hq".to_owned(),
            text: prefix.to_owned(),
            may_be_phones: false,
        }
    }

    fn take_stored(log: &mut UnmatchedLog) -> Option<String> {
        match log.take() {
            Some(Op::Meta { key, value }) => {
                assert_eq!(key, KEY);
                Some(value)
            }
            Some(other) => panic!("{other:?}"),
            None => None,
        }
    }

    #[test]
    fn unmatched_prefix_is_counted_logged_once_and_restored() {
        let mut log = UnmatchedLog::default();
        assert_eq!(take_stored(&mut log), None);
        let one = line("PJSIP/citty");
        log.note(one.clone(), time_at(0));
        log.note(one.clone(), time_at(9));
        assert_eq!(
            std::mem::take(&mut log.unreported),
            std::slice::from_ref(&one)
        );
        let text = take_stored(&mut log).expect("one prefix");
        // Later versions must be able to read the stored text, so never change it.
        let golden = r#"[{"prefix":"PJSIP/citty","calls":2,"lastAt":1795151326,"pbx":"hq"}]"#;
        assert_eq!(text, golden);
        assert_eq!(take_stored(&mut log), None, "nothing has changed");
        let mut again = UnmatchedLog::restore(Some(golden)).expect("of this version");
        again.note(one.clone(), time_at(20));
        assert_eq!(std::mem::take(&mut again.unreported), [one], "once a run");
        assert_eq!(again.into_channels()[0].calls, 3);
        assert!(UnmatchedLog::restore(Some("{")).is_err());
    }

    #[test]
    fn unmatched_prefix_is_forgotten_when_named_or_old() {
        let mut log = UnmatchedLog::default();
        for prefix in ["PJSIP/gsm", "PJSIP/city"] {
            log.note(line(prefix), time_at(0));
        }
        let _ = take_stored(&mut log);
        log.prune(time_at(60), |_| false);
        assert_eq!(take_stored(&mut log), None);
        log.prune(time_at(60), |unmatched| {
            (&*unmatched.pbx, &*unmatched.prefix) == ("hq", "PJSIP/city")
        });
        assert_eq!(log.clone().into_channels().len(), 1);
        assert!(take_stored(&mut log).is_some());
        log.prune(time_at(31 * 86_400), |_| false);
        assert_eq!(log.into_channels(), []);
    }

    #[test]
    fn channels_that_may_be_phones_are_counted_separately() {
        let mut log = UnmatchedLog::default();
        log.note(line("TAPI/5"), time_at(0));
        let may_be_phones = Prefix {
            may_be_phones: true,
            ..line("TAPI/5")
        };
        log.note(may_be_phones, time_at(1));
        let channels = log.into_channels().into_iter();
        let kinds: Vec<bool> = channels.map(|channels| channels.may_be_phones).collect();
        assert_eq!(kinds, [false, true]);
    }

    #[test]
    fn unmatched_prefixes_over_the_limit_are_counted_together() {
        let mut log = UnmatchedLog::default();
        for n in 0..100 {
            log.note(line(&format!("SIP/10.0.0.{n}")), time_at(n));
        }
        let listed = log.into_channels();
        assert_eq!(listed.len(), KEPT + 1);
        let others = listed.last().expect("the others");
        assert_eq!((others.prefix.as_str(), others.calls), (OTHERS, 68));
    }

    #[test]
    fn many_possible_phones_do_not_hide_a_trunk() {
        let mut log = UnmatchedLog::default();
        for n in 0..100 {
            let phone = Prefix {
                may_be_phones: true,
                ..line(&format!("TAPI/{n}"))
            };
            log.note(phone, time_at(n));
        }
        log.note(line("PJSIP/citty"), time_at(100));
        let listed = log.into_channels();
        assert!(listed.iter().any(|known| known.prefix == "PJSIP/citty"));
        assert_eq!(listed.len(), KEPT + 2);
    }
}

#[cfg(test)]
mod stored {
    use super::*;

    #[test]
    fn stored_form_is_unchanged() {
        callbridge_testkit::golden::keeps::<Vec<status::Unmatched>>("unmatched");
    }
}
