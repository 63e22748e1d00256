//! Settings that an earlier process has stored and this process cannot read, because callbridge was
//! rolled back to an older version, or a word was renamed. Each such setting is logged and reset,
//! so it cannot block the work.

use super::meta;
use super::{backfill, deliveries, shows, unknown_employees};
use crate::{Db, Error};
use callbridge_leads::directory::backfill::Backfill;
use callbridge_leads::lead_field::Catalog;
use callbridge_leads::lead_request::memory::RequestMemory;
use serde::de::DeserializeOwned;

/// A setting that an earlier process has stored.
struct StoredSetting {
    key: &'static str,
    reads: fn(&str) -> bool,
    /// Effect of the reset, for the log message.
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

/// Resets the settings that cannot be read. Runs in the first commit of a process.
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

/// Sets [`shows::FLOOR`] to the start of the newest known call, because the stored value cannot be
/// read. That call can be the newest call of a lead whose values were deleted.
fn reset_floor(db: &Db) -> Result<(), Error> {
    // This runs once, and only for a damaged state, because it can scan the table.
    let newest: Option<i64> = db.query_one("SELECT max(started) FROM calls", ())?;
    match newest {
        Some(newest) => meta::set_meta(db, shows::FLOOR, &newest.to_string()),
        None => meta::drop_meta(db, shows::FLOOR),
    }
}
