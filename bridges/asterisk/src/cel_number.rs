//! Maps CEL event numbers to names. If the `eventtype` column is an integer, `cel_odbc` and
//! `cel_pgsql` store the event's number instead of its name. Since most numbers changed meaning in
//! Asterisk 12, the release has to be inferred from the rows.

use crate::cel::CelRow;
use callbridge_call::Unreadable;

/// Event names by number, starting at 1. In Asterisk 12 and later, events numbered 19 and above
/// don't matter for calls.
const FROM_12: [&str; 18] = [
    "CHAN_START",
    "CHAN_END",
    "HANGUP",
    "ANSWER",
    "APP_START",
    "APP_END",
    "BRIDGE_ENTER",
    "BRIDGE_EXIT",
    "PARK_START",
    "PARK_END",
    "BLINDTRANSFER",
    "ATTENDEDTRANSFER",
    "USER_DEFINED",
    "LINKEDID_END",
    "PICKUP",
    "FORWARD",
    "LOCAL_OPTIMIZE",
    "LOCAL_OPTIMIZE_BEGIN",
];
const BEFORE_12: [&str; 25] = [
    "CHAN_START",
    "CHAN_END",
    "HANGUP",
    "ANSWER",
    "APP_START",
    "APP_END",
    "BRIDGE_START",
    "BRIDGE_END",
    "CONF_START",
    "CONF_END",
    "PARK_START",
    "PARK_END",
    "BLINDTRANSFER",
    "ATTENDEDTRANSFER",
    "TRANSFER",
    "HOOKFLASH",
    "3WAY_START",
    "3WAY_END",
    "CONF_ENTER",
    "CONF_EXIT",
    "USER_DEFINED",
    "LINKEDID_END",
    "BRIDGE_UPDATE",
    "PICKUP",
    "FORWARD",
];
/// Number of the first event whose meaning depends on the release.
const FIRST_CHANGED: u8 = 7;
const HANGUP: u8 = 3;
/// Numbers of the bridge events, whose `extra` column contains the bridge ID from Asterisk 12 on
/// and is empty in earlier releases.
const OF_BRIDGE: [u8; 2] = [7, 8];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Release {
    Before12,
    From12,
}

/// Names the events of one file, keeping track of the release its rows have revealed so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EventNumbers {
    release: Option<Release>,
}

impl EventNumbers {
    /// Returns the number of an event, if that's what the text is.
    pub(crate) fn parse(text: &str) -> Option<u8> {
        let number = text.parse().ok()?;
        (1..=BEFORE_12.len())
            .contains(&usize::from(number))
            .then_some(number)
    }

    /// Returns the name of a row's event. `has_extra` means that the file has an `extra` column.
    ///
    /// # Errors
    ///
    /// Returns an error if the number's meaning depends on the release and no row has revealed it
    /// yet.
    pub(crate) fn name(
        &mut self,
        number: u8,
        row: &CelRow<'_>,
        has_extra: bool,
    ) -> Result<&'static str, Unreadable> {
        self.release = self.release.or_else(|| release_of(number, row, has_extra));
        let names: &[&str] = match self.release {
            Some(Release::Before12) => &BEFORE_12,
            Some(Release::From12) => &FROM_12,
            None if number < FIRST_CHANGED => &FROM_12,
            None => return Err(Unreadable::EventNumber),
        };
        // A later release may have more events, which don't matter for calls.
        Ok(names
            .get(usize::from(number) - 1)
            .copied()
            .unwrap_or("OTHER"))
    }
}

/// Infers the release from a row, since PJSIP, JSON in `extra`, and named bridges were introduced
/// in Asterisk 12.
fn release_of(number: u8, row: &CelRow<'_>, has_extra: bool) -> Option<Release> {
    let extra = row.extra.text();
    if row.channel.name.starts_with("PJSIP/") || extra.starts_with('{') {
        return Some(Release::From12);
    }
    let is_old_bridge = OF_BRIDGE.contains(&number) && has_extra && extra.is_empty();
    let is_old_hangup = number == HANGUP && !extra.is_empty();
    if is_old_bridge || is_old_hangup {
        Some(Release::Before12)
    } else {
        None
    }
}
