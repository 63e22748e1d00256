//! `dead watch`: letters as they come to be.
//!
//! It holds no lock on the state, so a daemon can start beside it, and it outlives the daemon's
//! restarts: letters come to be only while one runs.

use super::conversation::{json_line, line, mute, nobody, zone_of};
use crate::config::command::Asking;
use crate::failure::Failure;
use callbridge_control::protocol::{ControlReply, ControlRequest};
use callbridge_control::socket::{self, Replies};
use callbridge_dead_letter::text;
use callbridge_log::say;
use callbridge_model::Zone;
use callbridge_model::exit::Code;
use callbridge_spool::folder;
use serde_json::Value;
use std::time::Duration;

/// Between two looks for a daemon.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Prints until it is dropped.
///
/// # Errors
/// 69 without daemon and state, or when the daemon cannot be spoken to.
pub(super) async fn watch(at: &Asking, width: usize) -> Result<(), Failure> {
    let mut told = false;
    loop {
        let asked = socket::ask(&at.state, &ControlRequest::Watch).await;
        match asked.map_err(|error| mute(&at.state, &error))? {
            Some(replies) => {
                follow(replies, at, width).await?;
                told = false;
            }
            None if !at.state.join(folder::FILE).exists() => return Err(nobody(&at.state)),
            None if told => {}
            None => {
                told = true;
                let state = at.state.display();
                say(&format!("no daemon runs on {state}; waiting for one"));
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Until the daemon ends.
async fn follow(mut replies: Replies, at: &Asking, width: usize) -> Result<(), Failure> {
    let show = |item: &Value, zone: &Zone| match at.json {
        true => json_line(item),
        false => line(&text::list_line(item, width, zone)),
    };
    loop {
        match replies.next().await {
            Ok(Some(ControlReply::Ready)) => {
                say("watching for dead letters; Ctrl-C ends it");
            }
            Ok(Some(ControlReply::Item(item))) => show(&item, &zone_of(at, replies.zone()))?,
            Ok(Some(ControlReply::Error { code, words })) => {
                return Err(Failure::new(Code::of_number(code), words));
            }
            // A daemon that is killed breaks the line off.
            Ok(Some(ControlReply::End { .. }) | None) | Err(_) => return Ok(()),
            Ok(Some(ControlReply::Zone(_))) => {}
        }
    }
}
