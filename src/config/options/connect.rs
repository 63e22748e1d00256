//! The flags of `connect` and `disconnect`.

use clap::Args;

/// How it is used.
pub(crate) const EXAMPLE: &str = "\
Example:
  callbridge connect --crm-url https://crm.example --auth-url https://auth.crm.example \\
    --consent-url https://app.crm.example/consent --client-id svc_app_1 \\
    --client-secret-file /etc/callbridge/client.secret \\
    --redirect-uri http://127.0.0.1:8765/back --state /var/lib/callbridge";

/// `connect`
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ConnectFlags {
    /// The API's address; http:// on this machine alone
    #[arg(long, value_name = "URL")]
    pub crm_url: Option<String>,
    /// The address of its OAuth endpoints
    #[arg(long, value_name = "URL")]
    pub auth_url: Option<String>,
    /// The address of its consent page
    #[arg(long, value_name = "URL")]
    pub consent_url: Option<String>,
    /// The application, as svc_app_…
    #[arg(long, value_name = "ID")]
    pub client_id: Option<String>,
    /// The application's secret, in a file of its own (or the credential `client-secret`, or
    /// CALLBRIDGE_CLIENT_SECRET)
    #[arg(long, value_name = "FILE")]
    pub client_secret_file: Option<String>,
    /// Where the browser comes back to, letter by letter as it is registered. On this machine
    /// (127.0.0.1, ::1, localhost) it is caught; elsewhere paste the address into this terminal
    #[arg(long, value_name = "URL")]
    pub redirect_uri: Option<String>,
    /// The grants to ask for [default: those that are needed or useful:
    /// PERMISSION_OPEN_API_CALL:SAVE, CALL:READ, LEAD:READ, LEAD:SAVE]
    #[arg(long, value_name = "PERMISSION:SCOPE …")]
    pub scope: Option<String>,
    /// How long to wait for the consent [default: 10m]
    #[arg(long, value_name = "TIME")]
    pub within: Option<String>,
    /// The id of the company to connect, as `connect` shows it; another one is refused. Without it
    /// you are asked before a state is bound to its first company
    #[arg(long, value_name = "ID")]
    pub company: Option<String>,
    /// Bind the state to its first company without asking
    #[arg(long)]
    pub yes: bool,
    /// Where the connection is kept: the state folder of `run` [default: $STATE_DIRECTORY, else
    /// ~/.local/state/callbridge]
    #[arg(long, value_name = "DIR")]
    pub state: Option<String>,
    /// Certificates (PEM) that replace the system's roots
    #[arg(long, value_name = "FILE")]
    pub crm_ca_file: Option<String>,
    /// The only proxy that is used: those of the environment are ignored
    #[arg(long, value_name = "URL")]
    pub crm_proxy: Option<String>,
}

/// `disconnect`
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct DisconnectFlags {
    /// The state folder [default: $STATE_DIRECTORY, else ~/.local/state/callbridge]
    #[arg(long, value_name = "DIR")]
    pub state: Option<String>,
}
