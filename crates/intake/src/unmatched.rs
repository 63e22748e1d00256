//! Channels of no trunk that carried outside numbers, counted by the prefix of their names, and
//! channels that may or may not be phones, counted by their technology. `status` shows both, and
//! the metrics the former. They're kept over restarts until a flag names them.

use callbridge_call::{EventTime, Extension};
use callbridge_model::status;
use callbridge_spool::Op;

/// Maximum number of prefixes. The channels of all other prefixes are counted together.
const KEPT: usize = 32;
/// Name under which the channels of all other prefixes are counted together.
const OTHERS: &str = "other";
/// Name of the spool's setting for the prefixes.
pub const KEY: &str = "unmatched";
/// Seconds after which an unseen prefix is forgotten.
const FORGOTTEN_SECONDS: i64 = 30 * 86_400;

/// Prefixes and their counts, first seen first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnmatchedLog {
    seen: Vec<status::Unmatched>,
    /// PBX and prefix of all channels that this process has reported for the log.
    logged: Vec<(String, String)>,
    /// PBX and prefix of channels that must still be logged.
    pub(super) unreported: Vec<(String, String)>,
    changed: bool,
}

impl UnmatchedLog {
    /// Restores the stored log. Empty if there is none.
    ///
    /// # Errors
    /// If the text is not in the form of this version.
    pub fn restore(text: Option<&str>) -> Result<Self, serde_json::Error> {
        let seen = text.map(serde_json::from_str).transpose()?;
        Ok(Self {
            seen: seen.unwrap_or_default(),
            ..Self::default()
        })
    }

    /// Counts a call of this PBX on a channel with this prefix.
    pub(super) fn note(&mut self, pbx: &str, prefix: &str, at: EventTime) {
        let is_kept = self.seen.len() < KEPT || self.find_mut(pbx, prefix).is_some();
        let prefix = if is_kept { prefix } else { OTHERS };
        let at = at.floor_seconds().get();
        match self.find_mut(pbx, prefix) {
            Some(unmatched) => {
                unmatched.calls += 1;
                unmatched.last_at = unmatched.last_at.max(at);
            }
            None => self.seen.push(status::Unmatched {
                pbx: pbx.to_owned(),
                prefix: prefix.to_owned(),
                calls: 1,
                last_at: at,
            }),
        }
        let one = (pbx.to_owned(), prefix.to_owned());
        if !self.logged.contains(&one) {
            self.logged.push(one.clone());
            self.unreported.push(one);
        }
        self.changed = true;
    }

    fn find_mut(&mut self, pbx: &str, prefix: &str) -> Option<&mut status::Unmatched> {
        self.seen
            .iter_mut()
            .find(|unmatched| unmatched.pbx == pbx && unmatched.prefix == prefix)
    }

    /// Forgets prefixes that a flag names by now, and prefixes that were not seen for 30 days.
    /// `is_named` returns `true` if a flag names this prefix of this PBX.
    pub(super) fn prune(&mut self, now: EventTime, is_named: impl Fn(&str, &str) -> bool) {
        let now = now.floor_seconds().get();
        let kept = self.seen.len();
        self.seen.retain(|unmatched| {
            let old = now - unmatched.last_at > FORGOTTEN_SECONDS;
            !old && !is_named(&unmatched.pbx, &unmatched.prefix)
        });
        if self.seen.len() < kept {
            // There is room for some of the prefixes that were counted together. They are listed
            // separately when they come again.
            self.seen.retain(|unmatched| unmatched.prefix != OTHERS);
            self.changed = true;
        }
    }

    /// Returns the operation that stores the prefixes. `None` if nothing has changed since the last
    /// call.
    pub(super) fn take(&mut self) -> Option<Op> {
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        // Strings, numbers and lists always serialize.
        let value = serde_json::to_string(&self.seen).unwrap_or_default();
        Some(Op::meta(KEY, value))
    }

    /// Returns the prefixes for `status`.
    pub fn into_channels(self) -> Vec<status::Unmatched> {
        self.seen
    }
}

/// Returns `true` if a prefix is only a technology (`TAPI`).
pub fn is_technology(prefix: &str) -> bool {
    !prefix.contains('/') && prefix != OTHERS
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
        log.note("hq", "PJSIP/citty", time_at(0));
        log.note("hq", "PJSIP/citty", time_at(9));
        let one = ("hq".to_owned(), "PJSIP/citty".to_owned());
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
        again.note("hq", "PJSIP/citty", time_at(20));
        assert_eq!(std::mem::take(&mut again.unreported), [one], "once a run");
        assert_eq!(again.into_channels()[0].calls, 3);
        assert!(UnmatchedLog::restore(Some("{")).is_err());
    }

    #[test]
    fn unmatched_prefix_is_forgotten_when_named_or_old() {
        let mut log = UnmatchedLog::default();
        for prefix in ["PJSIP/gsm", "PJSIP/city"] {
            log.note("hq", prefix, time_at(0));
        }
        let _ = take_stored(&mut log);
        log.prune(time_at(60), |_, _| false);
        assert_eq!(take_stored(&mut log), None);
        log.prune(time_at(60), |pbx, prefix| {
            (pbx, prefix) == ("hq", "PJSIP/city")
        });
        assert_eq!(log.clone().into_channels().len(), 1);
        assert!(take_stored(&mut log).is_some());
        log.prune(time_at(31 * 86_400), |_, _| false);
        assert_eq!(log.into_channels(), []);
    }

    #[test]
    fn only_a_technology_has_no_device() {
        assert!(is_technology("TAPI"));
        for prefix in ["PJSIP/citty", "profile/external", OTHERS] {
            assert!(!is_technology(prefix), "{prefix}");
        }
    }

    #[test]
    fn unmatched_prefixes_over_the_limit_are_counted_together() {
        let mut log = UnmatchedLog::default();
        for n in 0..100 {
            log.note("hq", &format!("SIP/10.0.0.{n}"), time_at(n));
        }
        let listed = log.into_channels();
        assert_eq!(listed.len(), KEPT + 1);
        let others = listed.last().expect("the others");
        assert_eq!((others.prefix.as_str(), others.calls), (OTHERS, 68));
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
