//! `calls`: its flags, checked.

use crate::config::flags::StateFlags;
use crate::config::{Checking, Command, Faults};
use callbridge_admin::{ControlRequest, protocol::CallsQuery};
use callbridge_model::{TypedNumber, dates};
use callbridge_spool::State;
use clap::Args;
use jiff::tz::TimeZone;
use std::path::Path;

impl Checking<'_> {
    pub(super) fn calls(mut self, flags: CallsFlags) -> Result<Command, Faults> {
        // In which zone they are meant is known where they are looked up.
        let utc = TimeZone::UTC;
        let date = |text: &str| dates::date(text, &utc);
        self.faults.read("--from", &flags.from, date);
        let end = |text: &str| dates::date_end(text, &utc);
        self.faults.read("--to", &flags.to, end);
        let dated = flags.from.is_some() || flags.to.is_some();
        let words = "cannot be used with --from or --to; keep one";
        self.faults.add_if(flags.today && dated, "--today", words);
        let words = "is not a telephone number: give it in full, or its last four digits or more";
        let wrong = |text: &str| format!("`{text}` {words}");
        let number = |text: &str| TypedNumber::read(text, []).ok_or_else(|| wrong(text));
        self.faults.read("--phone", &flags.phone, number);
        let (state, folder) = self.state_or_folder(flags.state);
        let outside = flags.phone.is_some() || flags.trunk.is_some() || state.is_some();
        let wrong = flags.internal && outside;
        let words = "such calls have no --phone, no --trunk and no --state";
        self.faults.add_if(wrong, "--internal", words);
        let at = self.asking(StateFlags {
            state: folder,
            json: flags.json,
            pbx_timezone: flags.pbx_timezone,
        })?;
        let zone = at.zone.as_ref().and_then(|zone| zone.iana_name());
        let which = CallsQuery {
            today: flags.today,
            from: flags.from,
            to: flags.to,
            phone: flags.phone,
            trunk: flags.trunk,
            state,
            internal: flags.internal,
            zone: zone.map(str::to_owned),
        };
        let (past, follow, csv) = (true, flags.follow, false);
        let request = ControlRequest::Calls {
            which,
            past,
            follow,
        };
        Ok(Command::Ask { request, csv, at })
    }

    /// `--state` is the word of a state, or a folder: a folder called `dead` is `./dead`.
    fn state_or_folder(&mut self, given: Vec<String>) -> (Option<State>, Option<String>) {
        let (mut state, mut folder) = (None, None);
        for text in given {
            if let Some(known) = State::from_word(&text) {
                state = Some(known);
            } else if text.contains('/') || Path::new(&text).is_dir() {
                folder = Some(text);
            } else {
                let all: Vec<&str> = State::ALL.iter().map(|it| it.word()).collect();
                let words = format!("`{text}` is neither a folder nor one of {}", all.join(", "));
                self.faults.add("--state", words);
            }
        }
        // A word on the command line hides the folder of the environment.
        let of_environment = || self.environment.text("CALLBRIDGE_STATE").map(str::to_owned);
        (state, folder.or_else(of_environment))
    }
}

/// The examples at the end of `calls --help`.
pub(crate) const EXAMPLES: &str = "\
Examples:
  callbridge calls --today
  callbridge calls --from 2026-11-18 --to 2026-11-20 --phone '90 111 00 01'
  callbridge calls --state parked --json
  callbridge calls --follow";

/// The flags of `calls`, as typed.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct CallsFlags {
    /// Those that began today, in the zone of the PBX
    #[arg(long)]
    pub today: bool,
    /// Those that began then or later: 2026-11-20, with a time and a zone if wanted
    #[arg(long, value_name = "D")]
    pub from: Option<String>,
    /// Those that began by then: a day is meant whole
    #[arg(long, value_name = "D")]
    pub to: Option<String>,
    /// Those with this number: in full, as it is dialled, or its last four digits or more
    #[arg(long, value_name = "P")]
    pub phone: Option<String>,
    /// Those on this trunk
    #[arg(long, value_name = "T")]
    pub trunk: Option<String>,
    /// Those in this state: ready, sending, submitted, journaled, dead, parked or discarded; or the
    /// daemon's state folder, as everywhere. May be repeated
    #[arg(long, value_name = "S|DIR")]
    pub state: Vec<String>,
    /// Those between extensions, which are not journaled: the last 1,000 of seven days
    #[arg(long)]
    pub internal: bool,
    /// Go on with new calls, and with each as its state changes, until interrupted
    #[arg(long)]
    pub follow: bool,
    /// One JSON object a call: explain's, with its state
    #[arg(long)]
    pub json: bool,
    /// The zone in which times are shown [default: that of the daemon's PBX, else this machine's]
    #[arg(long, value_name = "ZONE")]
    pub pbx_timezone: Option<String>,
}
