//! The one row of the table `hub`.

use crate::hub::{HubPosition, HubRow, HubSilence};
use crate::{Db, Error};
use std::time::Duration;

/// Reads the row of the table `hub`. `None` if no hub has used this state.
pub(crate) fn load(db: &Db) -> Result<Option<HubRow>, Error> {
    let text = "SELECT incarnation, seq, began, revealed_by, silent_boot, silent_until FROM hub";
    let found: Option<(_, _, _, _, Option<String>, Option<u64>)> = db.query_first(text, ())?;
    let Some((incarnation, seq, began, revealed_by, boot_id, until)) = found else {
        return Ok(None);
    };
    let silence = boot_id.zip(until).map(|(boot_id, until)| HubSilence {
        boot_id,
        until: Duration::from_nanos(until),
    });
    Ok(Some(HubRow {
        position: HubPosition { incarnation, seq },
        began,
        revealed_by,
        silence,
    }))
}
