//! The flags of the page, and its commands.

use super::StateFlags;
use clap::{Args, Subcommand};
use serde::Serialize;

/// The administrator's page.
#[derive(Args, Clone, Debug, Default, Serialize)]
#[command(next_help_heading = "Page")]
pub struct PageFlags {
    /// Show a page in the browser here, as 127.0.0.1:9470: calls, dead letters, missed customers.
    /// `callbridge page` prints a link that opens it [default: off]
    #[arg(long, value_name = "ADDR")]
    pub page: Option<String>,
    /// Who may log in with a password: NAME:ROLE:HASH a line (or the credential `page-password`);
    /// `callbridge page password NAME ROLE` prints one; read again when it changes
    #[arg(long, value_name = "FILE")]
    pub page_password_file: Option<String>,
    /// A host name of the page in browsers, besides its address and this machine's own; without a
    /// port. May be repeated
    #[arg(long, value_name = "HOST")]
    pub page_name: Vec<String>,
    /// How a lead's page in the CRM is reached, as 'https://HOST/lead/{id}': the page links to it
    /// where it shows a lead [default: no link]
    #[arg(long, value_name = "URL")]
    pub lead_url: Option<String>,
    /// The certificate and its chain (PEM) for a page that other machines reach; read again when
    /// it changes
    #[arg(long, value_name = "FILE")]
    pub page_cert: Option<String>,
    /// Its private key (PEM)
    #[arg(long, value_name = "FILE")]
    pub page_key: Option<String>,
    /// The page is behind a proxy that speaks TLS to browsers and names their addresses in
    /// X-Forwarded-For; the header is believed from these addresses alone [default: loopback]
    #[arg(long, value_name = "ADDRESS,…", num_args = 0..=1, require_equals = true,
          default_missing_value = "")]
    pub page_behind_proxy: Option<String>,
}

/// `callbridge page`
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct PageCommandFlags {
    /// In place of a link: a line for --page-password-file
    #[command(subcommand)]
    pub verb: Option<PageVerb>,
    /// What whoever opens the link may do: admin (view and change) or view
    #[arg(long, value_name = "ROLE", default_value = "admin")]
    pub role: String,
    /// Where.
    #[command(flatten)]
    pub state: StateFlags,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum PageVerb {
    /// Print a line for --page-password-file; the password is read twice from the terminal, or
    /// once from a pipe
    Password {
        /// The name to log in with, as it will stand beside what was done
        name: String,
        /// admin (view and change) or view
        role: String,
    },
}

/// What stands under `callbridge page --help`.
pub(crate) const EXAMPLES: &str = "\
Examples:
  callbridge page --state /var/lib/callbridge/office
  callbridge page --role view
  callbridge page password anna admin >>/etc/callbridge/office.page

The link is good for one minute and one session; who opens it is known as the user who asked
for it. From another machine come by a tunnel: ssh -L 9470:127.0.0.1:9470 HOST

Exit: 0 printed, 64 what was typed, 69 no daemon, or one without --page.";
