//! `calls`: a line a call, those that are kept and, with `--follow`, those that come.
//!
//! Following holds no lock on the state, and outlives the daemon's restarts as `dead watch` does:
//! a daemon that is met anew tells all that has moved since its start.

use super::conversation::{converse, json_line, line, mute, nobody, zone_of};
use crate::config::command::{Asking, ListCalls};
use crate::failure::Failure;
use crate::stdout::{nobody_reads, print};
use callbridge_control::protocol::{CallsQuery, ControlReply, ControlRequest};
use callbridge_control::socket::{self, Replies};
use callbridge_explain::line::{OneLine, cut};
use callbridge_log::say;
use callbridge_mapping::journal::Rules;
use callbridge_model::Zone;
use callbridge_model::exit::Code;
use callbridge_spool::folder;
use serde_json::Value;
use std::io::IsTerminal;
use std::time::Duration;

/// Between two looks for a daemon.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Below this width times lose their year and seconds.
const NARROW: usize = 100;

/// How calls are shown.
#[derive(Clone, Copy, Debug)]
struct CallsFormat {
    json: bool,
    width: usize,
    colour: bool,
}

impl CallsFormat {
    fn of(at: &Asking) -> Self {
        let out = std::io::stdout();
        let size = rustix::termios::tcgetwinsize(&out).ok();
        let width = size.map(|size| usize::from(size.ws_col));
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            json: at.json,
            width: width.filter(|width| *width > 0).unwrap_or(usize::MAX),
            colour: out.is_terminal() && !no_colour,
        }
    }

    fn show(self, item: &Value, zone: &Zone) -> Result<(), Failure> {
        if self.json {
            return json_line(item);
        }
        let started = item["startedAt"].as_i64();
        let read = serde_json::from_value::<OneLine>(item.clone());
        let call = read.map_err(|error| {
            let words = format!("the daemon is of another version: {error}");
            Failure::new(Code::Unreachable, words)
        })?;
        // Its colour is ours; what came from outside is made safe in its columns.
        let text = self.text(&call, started.unwrap_or_default(), zone);
        print(format!("{text}\n").as_bytes())
    }

    /// `2026-11-20 10:08:37 +05  in   +998901110001  lead 4001  101 talked 4 s   journaled`
    fn text(self, call: &OneLine, started: i64, zone: &Zone) -> String {
        let time = match self.width < NARROW {
            true => zone.short(started),
            false => zone.second(started),
        };
        let text = cut(
            &format!("{time}  {} {}", call.columns(), call.stand()),
            self.width,
        );
        match self.colour {
            true => format!("\x1b[{}m{text}\x1b[0m", call.colour()),
            false => text,
        }
    }
}

/// `calls`. `shutdown` ends `--follow`.
///
/// # Errors
/// 64 for a date or number that is none, 69 without daemon and state.
pub(crate) async fn run(
    calls: ListCalls,
    at: &Asking,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Failure> {
    let look = CallsFormat::of(at);
    if calls.follow {
        return tokio::select! {
            ended = follow(&calls.which, at, look) => ended,
            () = shutdown => Ok(()),
            () = nobody_reads() => Ok(()),
        };
    }
    let found = kept(&calls.which, at, look).await?;
    if found == 0 && !at.json {
        line("no calls")?;
    }
    Ok(())
}

/// Those that are kept.
async fn kept(which: &CallsQuery, at: &Asking, look: CallsFormat) -> Result<u64, Failure> {
    let ask = ControlRequest::Calls {
        which: which.clone(),
        past: true,
        follow: false,
    };
    let show = |item: &Value, zone: &Zone| look.show(item, zone);
    converse(at, ask, Rules::default(), show).await
}

/// Prints until it is dropped.
async fn follow(which: &CallsQuery, at: &Asking, look: CallsFormat) -> Result<(), Failure> {
    let (mut past, mut told) = (true, false);
    loop {
        let ask = ControlRequest::Calls {
            which: which.clone(),
            past,
            follow: true,
        };
        let asked = socket::ask(&at.state, &ask).await;
        match asked.map_err(|error| mute(&at.state, &error))? {
            Some(replies) => {
                listen(replies, at, look).await?;
                (past, told) = (false, false);
            }
            None if !at.state.join(folder::FILE).exists() => return Err(nobody(&at.state)),
            None if told => {}
            None => {
                if past {
                    kept(which, at, look).await?;
                }
                (past, told) = (false, true);
                let state = at.state.display();
                say(&format!("no daemon runs on {state}; waiting for one"));
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Until the daemon ends.
async fn listen(mut replies: Replies, at: &Asking, look: CallsFormat) -> Result<(), Failure> {
    loop {
        match replies.next().await {
            Ok(Some(ControlReply::Ready)) => {
                say("following calls; Ctrl-C ends it");
            }
            Ok(Some(ControlReply::Item(item))) => look.show(&item, &zone_of(at, replies.zone()))?,
            Ok(Some(ControlReply::Error { code, words })) => {
                return Err(Failure::new(Code::of_number(code), words));
            }
            // A daemon that is killed breaks the line off.
            Ok(Some(ControlReply::End { .. }) | None) | Err(_) => return Ok(()),
            Ok(Some(ControlReply::Zone(_))) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(width: usize, colour: bool) -> String {
        let item = serde_json::json!({
            "direction": "INBOUND", "answered": true, "leadId": 4001,
            "clientPhone": "+998901110001", "employee": "101", "talkTimeSec": 4,
            "state": "journaled", "reason": null,
        });
        let call = serde_json::from_value(item).expect("a call");
        let zone = Zone::named("Asia/Tashkent").expect("a zone");
        let look = CallsFormat {
            json: false,
            width,
            colour,
        };
        look.text(&call, 1_795_151_317, &zone)
    }

    #[test]
    fn a_line_begins_with_the_time_in_the_zone_of_the_pbx() {
        insta::assert_snapshot!(
            shown(usize::MAX, false),
            @"2026-11-20 10:08:37 +05  in   +998901110001  lead 4001  101 talked 4 s   journaled"
        );
        insta::assert_snapshot!(
            shown(80, false),
            @"11-20 10:08  in   +998901110001  lead 4001  101 talked 4 s   journaled"
        );
        let line = shown(40, true);
        assert!(
            line.starts_with("\u{1b}[32m11-20 10:08") && line.contains('…'),
            "{line:?}"
        );
    }
}
