//! Settings that an earlier process stored and this one can't read, because callbridge was rolled
//! back to an older version or a name has changed. Each of them is logged and reset so that it
//! can't hold up work.

use super::meta;
use super::{backfill, deliveries, shows, unknown_employees};
use crate::{Db, Error};
use callbridge_leads::directory::backfill::Backfill;
use callbridge_leads::lead_field::Catalog;
use callbridge_leads::lead_request::memory::RequestMemory;
use serde::de::DeserializeOwned;

/// A setting that an earlier process may have stored.
struct StoredSetting {
    key: &'static str,
    reads: fn(&str) -> bool,
    /// The effect of resetting it, for the log message.
    effect: &'static str,
}

const ALL: [StoredSetting; 6] = [
    StoredSetting {
        key: meta::MEMORY,
        reads: parses_as::<RequestMemory>,
        effect: "requests about leads that were on hold are tried again",
    },
    StoredSetting {
        key: shows::CATALOG,
        reads: parses_as::<Catalog>,
        effect: "the CRM's fields are read again",
    },
    StoredSetting {
        key: backfill::KEY,
        reads: parses_as::<Backfill>,
        effect: "all leads are read from the CRM again",
    },
    StoredSetting {
        key: deliveries::WEBHOOK_PACE,
        reads: |text| deliveries::read_webhook_pace(text).is_some(),
        effect: "calls are polled until a webhook confirms one",
    },
    StoredSetting {
        key: shows::FLOOR,
        reads: |text| text.parse::<i64>().is_ok(),
        effect: "the fields of leads that show no call are filled only by calls that begin later",
    },
    StoredSetting {
        key: unknown_employees::KEY,
        reads: parses_as::<unknown_employees::UnknownEmployees>,
        effect: "employees whom the CRM does not know are reported at the next call that fails for \
               one",
    },
];

fn parses_as<T: DeserializeOwned>(text: &str) -> bool {
    serde_json::from_str::<T>(text).is_ok()
}

/// Resets the settings that can't be read, in a process's first commit.
pub(crate) fn reset(db: &Db) -> Result<(), Error> {
    for StoredSetting { key, reads, effect } in ALL {
        let Some(text) = meta::meta(db, key)?.filter(|text| !reads(text)) else {
            continue;
        };
        let length = text.len();
        tracing::error!(
            key,
            length,
            effect,
            "resetting a stored setting that cannot be read"
        );
        if key == shows::FLOOR {
            reset_floor(db)?;
        } else {
            meta::drop_meta(db, key)?;
        }
    }
    Ok(())
}

/// Sets [`shows::FLOOR`] to when the newest known call started, because the stored value can't be
/// read. That may be the newest call of a lead whose values were deleted.
fn reset_floor(db: &Db) -> Result<(), Error> {
    // This may scan the table, but it runs only once, and only if the state is damaged.
    let newest: Option<i64> = db.query_one("SELECT max(started) FROM calls", ())?;
    match newest {
        Some(newest) => meta::set_meta(db, shows::FLOOR, &newest.to_string()),
        None => meta::drop_meta(db, shows::FLOOR),
    }
}
