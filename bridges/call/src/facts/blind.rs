//! A time in which nobody listened, as an open call remembers it.

use crate::units::EventTime;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Nobody leaves a conversation, calls somebody and comes back within this.
const TOO_SHORT_TO_MATTER: Duration = Duration::from_secs(2);

/// A time in which nobody listened, by our own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Blind {
    /// The last moment at which the stream was whole.
    pub(crate) from: EventTime,
    /// When it went on; `None` while it has not.
    pub(crate) until: Option<EventTime>,
}

impl Blind {
    /// It was so short that nobody can have left a conversation, called somebody and come back.
    pub(crate) fn is_short(&self) -> bool {
        self.until
            .is_some_and(|until| until.since(self.from) <= TOO_SHORT_TO_MATTER)
    }
}
