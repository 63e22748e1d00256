//! The flags of `init`.

use super::Flags;
use clap::Args;

/// How it is used.
pub(crate) const EXAMPLES: &str = "\
On a terminal it asks; without one every answer is a flag, and those that are missing are named:
  callbridge init
  CALLBRIDGE_AMI_SECRET=… callbridge init --name pbx1 --source ami://callbridge@127.0.0.1 \\
    --crm-url https://crm.example --token-file token.txt --lead var:LEAD_ID --country UZ

It writes DIR/NAME.flags, and the secrets as credentials of the service callbridge@NAME (in
/etc/credstore; in DIR/credstore for another DIR). Nothing is written before the end.

Exit: 0 written, 64 answers missing or wrong, 69 PBX or CRM not there, 73 not to be written,
77 refused by PBX or CRM, 78 trunks not clear or the CRM's address wrong, 130 left (Ctrl-C).";

/// `init`
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct InitFlags {
    /// The name of the service's instance and, without --pbx-id, of the PBX [default: pbx1]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// The folder of the flags [default: /etc/callbridge]
    #[arg(long, value_name = "DIR")]
    pub etc: Option<String>,
    /// Take what is proposed, and write over files that are there
    #[arg(long)]
    pub yes: bool,
    /// The flags of run.
    #[command(flatten)]
    pub flags: Flags,
}
