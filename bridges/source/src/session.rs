//! What every session of a source needs.

use crate::connect::Target;
use crate::line::SourceFeed;
use crate::settings::{Secret, Settings};
use crate::url::TcpEndpoint;
use std::path::PathBuf;
use tokio::sync::watch;

/// Signal by which running sessions learn that they are to stop.
#[derive(Clone, Debug)]
pub(crate) struct Stop(pub(crate) watch::Receiver<bool>);

impl Stop {
    /// Waits until told to stop. Safe to cancel.
    pub(crate) async fn requested(&self) {
        // A closed channel means the same: whoever would tell us is gone.
        let _ = self.0.clone().wait_for(|stop| *stop).await;
    }
}

/// Settings, secret and roots with which a session opens its line.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub settings: Settings,
    pub secret: Secret,
    pub ca_file: Option<PathBuf>,
}

impl Access {
    pub(crate) fn target(&self, endpoint: &TcpEndpoint) -> Target {
        Target {
            endpoint: endpoint.clone(),
            ca_file: self.ca_file.clone(),
            within: self.settings.connect_within,
        }
    }
}

/// Feed and access of one source, handed from session to session.
pub(crate) struct Context {
    pub line: SourceFeed,
    pub access: Access,
}
