//! `calls`, which prints one line per stored call and, with `--follow`, new calls as well.
//!
//! Following doesn't hold a lock on the state, and continues after the daemon is restarted, as
//! `dead watch` does. A restarted daemon reports all calls that have changed since it was started.

use super::conversation::{follow, list_items, parse_item};
use crate::config::Asking;
use crate::terminal::{has_color, width};
use crate::{Result, print, wait_for_closed_stdout};
use callbridge_admin::explain::line::{OneLine, cut};
use callbridge_admin::{ControlRequest, protocol::CallsQuery};
use callbridge_model::Zone;
use serde_json::Value;

/// On terminals with fewer columns than this, times are shown without the year and the seconds.
const NARROW: usize = 100;

/// Formats a call, as in `2026-11-20 10:08:37 +05  in   +998901110001  lead 4001  101 talked 4 s
/// journaled`.
fn text(call: &OneLine, started: i64, zone: &Zone, width: usize, color: bool) -> String {
    let at = if width < NARROW {
        zone.short(started)
    } else {
        zone.second(started)
    };
    let text = cut(
        &format!("{at}  {} {}", call.columns(), call.state_text()),
        width,
    );
    if color {
        format!("\x1b[{}m{text}\x1b[0m", call.color())
    } else {
        text
    }
}

/// Runs `calls`. `shutdown` ends `--follow`.
///
/// # Errors
/// Fails with 64 for an invalid date or number, and with 69 if there's neither a daemon nor a
/// state.
pub(crate) async fn run(
    which: CallsQuery,
    follows: bool,
    at: &Asking,
    shutdown: impl Future<Output = ()>,
) -> Result<()> {
    if !follows {
        return list(&which, at, Some("no calls")).await;
    }
    let color = has_color();
    let width = width().unwrap_or(usize::MAX);
    let begun = "following calls; press Ctrl-C to stop";
    let followed = follow(
        at,
        begun,
        |past| request(&which, past, true),
        async || list(&which, at, None).await,
        |item, zone| print_call(item, zone, width, color),
    );
    tokio::select! {
        ended = followed => ended,
        () = shutdown => Ok(()),
        () = wait_for_closed_stdout() => Ok(()),
    }
}

/// Prints the stored calls, or the message `none` if there aren't any.
async fn list(which: &CallsQuery, at: &Asking, none: Option<&str>) -> Result<()> {
    let color = has_color();
    let width = width().unwrap_or(usize::MAX);
    list_items(at, request(which, true, false), none, |item, zone| {
        print_call(item, zone, width, color)
    })
    .await
}

fn request(which: &CallsQuery, past: bool, follow: bool) -> ControlRequest {
    ControlRequest::Calls {
        which: which.clone(),
        past,
        follow,
    }
}

fn print_call(item: &Value, zone: &Zone, width: usize, color: bool) -> Result<()> {
    let started = item["startedAt"].as_i64().unwrap_or_default();
    // The line is printed with its color codes. Its columns don't contain any of the PBX's control
    // characters.
    let text = text(&parse_item(item)?, started, zone, width, color);
    print(format!("{text}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a journaled call's line for a terminal with this width.
    fn call_line(width: usize, color: bool) -> String {
        let item = serde_json::json!({
            "direction": "INBOUND", "answered": true, "leadId": 4001,
            "clientPhone": "+998901110001", "employee": "101", "talkTimeSec": 4,
            "state": "journaled", "reason": null,
        });
        let call = serde_json::from_value(item).expect("a call");
        let zone = Zone::from_name("Asia/Tashkent").expect("a zone");
        text(&call, 1_795_151_317, &zone, width, color)
    }

    #[test]
    fn call_line_begins_with_the_time_in_the_zone_of_the_pbx() {
        insta::assert_snapshot!(
            call_line(usize::MAX, false),
            @"2026-11-20 10:08:37 +05  in   +998901110001  lead 4001  101 talked 4 s   journaled"
        );
        insta::assert_snapshot!(
            call_line(80, false),
            @"11-20 10:08  in   +998901110001  lead 4001  101 talked 4 s   journaled"
        );
        let line = call_line(40, true);
        assert!(
            line.starts_with("\u{1b}[32m11-20 10:08") && line.contains('…'),
            "{line:?}"
        );
    }
}
