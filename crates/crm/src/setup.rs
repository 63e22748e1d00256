//! Where the service is, and how it is reached.

use super::Address;
use callbridge_model::Permit;
use std::path::PathBuf;
use std::time::Duration;
use url::Url;

/// The most that making a connection may take.
const CONNECT: Duration = Duration::from_secs(5);

/// The most that one exchange may take, connection included.
const TOTAL: Duration = Duration::from_secs(30);

/// Address of the service, and all that is needed to reach it.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The value of `--crm-url`, checked.
    pub address: Address,
    /// `--crm-ca-file`: authorities in PEM, the only ones trusted then.
    pub ca_file: Option<PathBuf>,
    /// The value of `--crm-proxy`; `None` connects directly.
    pub proxy: Option<Url>,
    /// Limits in time of a connection and of a whole exchange.
    pub timeouts: Timeouts,
    /// Leave to send, asked for when the connection is made, directly before the request is
    /// written.
    pub permit: Permit,
}

/// The limits of one exchange in time.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Time to make the connection: 5 s by default.
    pub connect: Duration,
    /// Time for the whole exchange, connection included: 30 s by default.
    pub total: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: CONNECT,
            total: TOTAL,
        }
    }
}

impl Setup {
    /// The service at this address, without proxy or own authority.
    pub fn new(address: Address) -> Self {
        Self {
            address,
            ca_file: None,
            proxy: None,
            timeouts: Timeouts::default(),
            permit: Permit::unlimited(),
        }
    }
}
