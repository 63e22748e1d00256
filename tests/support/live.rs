//! Recordings that a live connection sends when their events happen.

use crate::support::recordings::{self, Recording};
use callbridge_model::clock;
use callbridge_testbed::pbx::FakePbx;
use callbridge_testbed::wait::pass;

/// Moves the recordings to begin in a few seconds.
pub fn moved_to_soon(group: &[Recording]) -> Vec<Recording> {
    // Moving the recordings takes seconds on a busy machine.
    let mut lead_seconds = 2;
    loop {
        let soon = clock::now().wall.floor_seconds().get() + lead_seconds;
        let moved = group.iter().map(|recording| recording.moved_to(soon));
        let moved: Vec<Recording> = moved.collect();
        if clock::now().wall.floor_seconds().get() < soon {
            return moved;
        }
        lead_seconds *= 2;
    }
}

/// Sends the recordings as amiws sends them, when their events happen.
pub async fn send_frames(socket: &FakePbx, group: &[Recording]) {
    let frames = group.iter().map(|recording| recording.frames().collect());
    send_in_time(socket, frames).await;
}

/// Sends the recordings as AMI sends them, when their events happen.
pub async fn send_events(ami: &FakePbx, group: &[Recording]) {
    let events = group.iter().map(|recording| recording.events().collect());
    send_in_time(ami, events).await;
}

/// Sends the events when they happen. Events that are sent all at once look like a clock that was
/// set, if callbridge needs more than 2 s to read them.
async fn send_in_time<'e>(pbx: &FakePbx, recordings: impl Iterator<Item = Vec<&'e [u8]>>) {
    let mut events = Vec::new();
    for of_recording in recordings {
        let mut time = None;
        for event in of_recording {
            time = recordings::last_time(event).or(time);
            events.push((time, event));
        }
    }
    events.sort_by_key(|(time, _)| *time);
    for (time, event) in events {
        if let Some(time) = time {
            pass(time.since(clock::now().wall)).await;
        }
        pbx.say(event).await;
    }
}
