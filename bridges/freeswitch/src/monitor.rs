//! Channels that monitor other channels, using the applications `three_way` and `eavesdrop` and the
//! keys that let an eavesdropper choose who can hear them.

use crate::fields::{EventFields, Header};
use crate::module_conf::is_yes;
use crate::rule::{EAVESDROP, THREE_WAY};
use callbridge_call::{Kind, MonitorMode, Text};

/// The argument that makes `eavesdrop` listen to all channels in turn, without any event
/// identifying them.
const ALL: &str = "all";

/// Returns how the monitoring changes when `three_way` or `eavesdrop` starts or ends, or `None` if
/// the target isn't a single channel.
pub(crate) fn by_application<'a>(begins: bool, fields: &mut EventFields<'a>) -> Option<Kind<'a>> {
    let is_eavesdrop = fields.get(Header::Application) == EAVESDROP;
    let target = target(&fields.take(Header::ApplicationData))?;
    let mode = if !begins {
        MonitorMode::Ended
    } else if is_eavesdrop {
        first_mode(fields.get(Header::WhisperA), fields.get(Header::WhisperB))
    } else {
        MonitorMode::Both
    };
    let keys = fields.get(Header::KeysCount);
    Some(Kind::Monitors {
        target,
        mode,
        by_keys: is_eavesdrop && (keys.is_empty() || is_yes(keys)),
    })
}

/// Returns how the monitoring changes after an eavesdropper presses `key`, or `None` if the key
/// makes no difference.
pub(crate) fn by_key<'a>(key: &str) -> Option<Kind<'a>> {
    let mode = match key {
        "0" => MonitorMode::Listen,
        "1" => MonitorMode::Partner,
        "2" => MonitorMode::Target,
        "3" => MonitorMode::Both,
        _ => return None,
    };
    Some(Kind::Monitors {
        target: Text::Borrowed(""),
        mode,
        by_keys: true,
    })
}

/// Returns the target and mode of an application in a CDR's log, or `None` if the application
/// doesn't monitor a channel. The log doesn't include key presses.
pub(crate) fn find_in_log(
    application: &str,
    data: &str,
    [whisper_a, whisper_b]: [&str; 2],
) -> Option<(String, MonitorMode)> {
    let mode = match application {
        THREE_WAY => MonitorMode::Both,
        EAVESDROP => first_mode(whisper_a, whisper_b),
        _ => return None,
    };
    Some((target(data)?.into_owned(), mode))
}

/// Returns the channel given in the application's argument, or `None` if it isn't a single channel.
fn target<'a>(data: &str) -> Option<Text<'a>> {
    let target = data.trim();
    let names_one = !target.is_empty() && !target.eq_ignore_ascii_case(ALL);
    names_one.then(|| target.to_owned().into())
}

/// Returns the mode that eavesdropping starts in. If `whisper_a` is yes, the target's partner can
/// hear the eavesdropper, and if `whisper_b` is yes, the target can.
fn first_mode(whisper_a: &str, whisper_b: &str) -> MonitorMode {
    match (is_yes(whisper_a), is_yes(whisper_b)) {
        (true, true) => MonitorMode::Both,
        (true, false) => MonitorMode::Partner,
        (false, true) => MonitorMode::Target,
        (false, false) => MonitorMode::Listen,
    }
}
