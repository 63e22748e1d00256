//! Each trunk's calls, for `status` and the metrics. For each trunk given by the flags, it's also
//! known since when a daemon has known it.

use callbridge_mapping::{Trunk, Trunks};
use callbridge_model::status::TrunkStatus;
use callbridge_spool::{Error, Handle, TrunkCalls};
use std::collections::BTreeMap;

/// The key under which the spool keeps since when each trunk has been known.
const KEY: &str = "trunks.since";
/// Number of seconds that `status` counts as the last day.
pub(crate) const DAY: i64 = 24 * 3600;

/// The trunks given by the flags.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownTrunks {
    trunks: Trunks,
    /// Since when each trunk has been known, in epoch seconds, by PBX and name.
    since: BTreeMap<String, i64>,
}

fn key(trunk: &Trunk) -> String {
    let pbx = trunk.pbx.as_deref().unwrap_or_default();
    format!("{pbx}/{}", trunk.name)
}

/// Returns when each trunk was first configured, in seconds since the epoch, which is `now` for a
/// new one. Trunks that aren't given by any flag are omitted.
fn known_since(trunks: &Trunks, stored: Option<&str>, now: i64) -> BTreeMap<String, i64> {
    // If the stored text can't be read, it starts out empty, and a silent trunk is reported a day
    // later.
    let read = stored.and_then(|text| serde_json::from_str(text).ok());
    let stored: BTreeMap<String, i64> = read.unwrap_or_default();
    let mut known = BTreeMap::new();
    for trunk in trunks.iter() {
        let since = stored.get(&key(trunk)).copied().unwrap_or(now);
        known.insert(key(trunk), since.min(now));
    }
    known
}

impl KnownTrunks {
    /// Reads since when each trunk has been known, adds the new ones, and stores the result.
    ///
    /// # Errors
    /// Returns an error if the spool can't be read or written.
    pub(crate) async fn take_up(trunks: &Trunks, spool: &Handle, now: i64) -> Result<Self, Error> {
        let stored = spool.meta(KEY).await?;
        let since = known_since(trunks, stored.as_deref(), now);
        // Strings and numbers can always be serialized.
        let value = serde_json::to_string(&since).unwrap_or_default();
        if stored.as_deref() != Some(&value) {
            spool.keep_meta(KEY, value).await?;
        }
        let trunks = trunks.clone();
        Ok(Self { trunks, since })
    }

    /// Returns each trunk with its calls in a day (`took`) and how many of its customers are
    /// waiting for a callback (`missed`). Also returns the total number of calls that day.
    pub(crate) fn statuses(
        &self,
        took: &[TrunkCalls],
        missed: &[(String, u64)],
    ) -> (Vec<TrunkStatus>, u64) {
        let mut shown: Vec<TrunkStatus> = Vec::new();
        for trunk in self.trunks.iter() {
            shown.push(TrunkStatus {
                name: trunk.name.clone(),
                pbx: trunk.pbx.clone(),
                since: self.since.get(&key(trunk)).copied(),
                has_employees: trunk.employees.is_some(),
                journal: trunk.journal,
                ..TrunkStatus::default()
            });
        }
        for calls in took {
            let trunk = self.trunks.find(&calls.pbx, &calls.trunk);
            let at = trunk.and_then(|trunk| {
                let mut trunks = self.trunks.iter();
                trunks.position(|other| key(other) == key(trunk))
            });
            if let Some(shown) = at.and_then(|at| shown.get_mut(at)) {
                shown.day_calls += calls.calls;
                shown.day_extensions += calls.with_extension;
                shown.day_employees += calls.with_employee;
                shown.calls += calls.ever;
                shown.last_at = shown.last_at.max(Some(calls.last_at.get()));
            }
        }
        for (trunk, waiting) in missed {
            if let Some(shown) = shown.iter_mut().find(|shown| shown.name == *trunk) {
                shown.missed_customers += waiting;
            }
        }
        (shown, took.iter().map(|trunk| trunk.calls).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_call::EpochSeconds;
    use callbridge_mapping::Trunk;
    use callbridge_mapping::trunk::parse;

    fn trunks(flags: &[&str]) -> Trunks {
        let trunks = flags
            .iter()
            .map(|flag| parse(flag, &Trunk::default()).expect("good"));
        Trunks::new(trunks.collect()).expect("trunks")
    }

    #[test]
    fn trunk_is_known_from_first_start_until_flag_is_removed() {
        let both = trunks(&["city=PJSIP/city", "gsm=PJSIP/gsm,pbx=hq"]);
        let first = known_since(&both, None, 100);
        assert_eq!(
            first,
            [("/city".to_owned(), 100), ("hq/gsm".to_owned(), 100)].into()
        );
        let stored = serde_json::to_string(&first).expect("JSON");
        // Later versions must be able to read stored text, so this text never changes.
        assert_eq!(stored, r#"{"/city":100,"hq/gsm":100}"#);
        assert_eq!(known_since(&both, Some(&stored), 900), first);
        let one = known_since(&trunks(&["city=PJSIP/city"]), Some(&stored), 900);
        assert_eq!(one, [("/city".to_owned(), 100)].into());
        let back = known_since(&both, Some(r#"{"/city":5000}"#), 900);
        assert_eq!(back["/city"], 900, "the clock was ahead");
        assert_eq!(known_since(&both, Some("{"), 900)["/city"], 900);
    }

    fn trunk_calls(pbx: &str, trunk: &str, calls: u64, last: i64) -> TrunkCalls {
        TrunkCalls {
            pbx: pbx.to_owned(),
            trunk: trunk.to_owned(),
            calls,
            with_extension: calls,
            with_employee: 1,
            ever: 10,
            last_at: EpochSeconds::new(last),
        }
    }

    #[test]
    fn trunk_sums_calls_of_each_pbx_and_day_counts_all_calls() {
        let all = trunks(&["city=PJSIP/city", "gsm=PJSIP/gsm,pbx=hq"]);
        let since = known_since(&all, None, 100);
        let known = KnownTrunks { trunks: all, since };
        let day_calls = [
            trunk_calls("a", "city", 2, 50),
            trunk_calls("b", "city", 3, 70),
            trunk_calls("a", "", 4, 90),
            // This row is from the PBX `hq` behind the PBX `office`.
            trunk_calls("office/hq", "gsm", 1, 95),
        ];
        let missed = [("city".to_owned(), 6), ("gone".to_owned(), 1)];
        let (shown, day) = known.statuses(&day_calls, &missed);
        assert_eq!((shown.len(), day), (2, 10));
        assert_eq!(
            (shown[0].day_calls, shown[0].calls, shown[0].last_at),
            (5, 20, Some(70))
        );
        assert_eq!((shown[0].day_extensions, shown[0].day_employees), (5, 2));
        assert_eq!((shown[0].missed_customers, shown[0].since), (6, Some(100)));
        assert_eq!((shown[1].day_calls, shown[1].last_at), (1, Some(95)));
    }
}
