//! The flags of the look-up at ring time.

use clap::Args;
use serde::Serialize;

/// Who calls, asked by a dialplan.
#[derive(Args, Clone, Debug, Default, Serialize)]
#[command(next_help_heading = "Look-up")]
pub struct LookupFlags {
    /// Tell a dialplan here, as 127.0.0.1:4573, who calls and whose lead it is:
    /// GET /caller?phone=…&trunk=… [default: off]
    #[arg(long, value_name = "ADDR")]
    pub lookup: Option<String>,
    /// Who may ask, where the address is not this machine's own: networks, as 192.168.1.0/24, with
    /// commas between them
    #[arg(long, value_name = "CIDR,…")]
    pub lookup_allow: Option<String>,
    /// The password that whoever asks gives (or the credential `lookup-secret`, or
    /// CALLBRIDGE_LOOKUP_SECRET): a line each for the current and the previous one; read again when
    /// it changes
    #[arg(long, value_name = "FILE")]
    pub lookup_secret_file: Option<String>,
}
