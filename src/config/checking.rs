//! Turns a verb with its flags into a [`Command`], or returns all errors in them.

pub(super) mod init;

use super::command::{
    Asking, Audit, Check, Command, Demo, DemoPbx, Explain, StateAction, StateCommand, StatusMode,
};
use super::faults::Faults;
use super::flags::StateFlags;
use super::manual;
use super::options::{
    AuditFlags, BranchVerb, CallsFlags, DeadVerb, DemoFlags, ExplainFlags, LeadVerb,
    PageCommandFlags, PageVerb, SelectFlags, SendingVerb, StateVerb, StatusFlags, Verb,
};
use crate::config::{Checking, checked as config};
use crate::values;
use callbridge_admin::{ControlRequest, PageRole, dead_letters::Selection, protocol::CallsQuery};
use callbridge_call::Direction;
use callbridge_formats::Format;
use callbridge_leads::{lead_field::Item, lead_field::item::ITEMS_MAX};
use callbridge_mapping::{EmployeeChoice, RetryValues, Rules};
use callbridge_model::{
    EmployeeId, LeadId, Reason, SecretPlace, SuppliedFacts, TypedNumber, Zone, dates,
};
use callbridge_spool::{State, StatePlace};
use clap_complete::Shell;
use jiff::tz::TimeZone;
use std::path::{Path, PathBuf};

/// The licenses of the linked libraries. `tests/package/licenses` writes the file.
const LICENSES: &str = include_str!("../../deploy/licenses.txt");

impl Checking<'_> {
    pub(super) fn check(mut self, verb: Verb) -> Result<Command, Faults> {
        match verb {
            Verb::Run(flags) => Ok(Command::Run(Box::new(self.for_run().config(*flags)?))),
            Verb::Demo(flags) => self.demo(&flags),
            Verb::Explain(flags) => self.explain(*flags),
            Verb::Check { json, flags } => {
                let config = self.for_run().config(*flags)?;
                Ok(Command::Check(Box::new(Check { json, config })))
            }
            Verb::Audit(flags) => self.audit(*flags),
            Verb::Status(flags) => self.status(flags),
            Verb::Calls(flags) => self.calls(flags),
            Verb::Dead(verb) => self.dead(verb),
            Verb::Lead(verb) => self.lead(verb),
            Verb::Branch(verb) => self.branch(verb),
            Verb::Sending(SendingVerb::Resume(at)) => self.ask(ControlRequest::Resume, false, at),
            Verb::Missed { since, csv, state } => {
                let within = self.faults.read("--since", &since, values::duration);
                let within_sec = within.map(|within| within.as_secs());
                self.ask(ControlRequest::Missed { within_sec }, csv, state)
            }
            Verb::Page(PageCommandFlags { verb, role, state }) => match verb {
                None => {
                    let role = self.role("--role", &role);
                    self.ask(ControlRequest::PageLink { role }, false, state)
                }
                Some(PageVerb::Password { name, role }) => {
                    let role = self.role("ROLE", &role);
                    self.faults
                        .into_result(Command::PagePassword { name, role })
                }
            },
            Verb::Connect(flags) => {
                let connect = config::connect(&flags, self.environment, self.faults)?;
                Ok(Command::Connect(Box::new(connect)))
            }
            Verb::Disconnect { state, forget } => {
                let state = self.state(state.as_deref());
                self.faults
                    .into_result(Command::Disconnect { state, forget })
            }
            Verb::Init(flags) => init::check(self, *flags),
            Verb::State(verb) => self.state_command(verb),
            Verb::Sandbox(options) => self.faults.into_result(Command::Sandbox(options)),
            Verb::Completions { shell } => self.completions(shell.as_deref()),
            Verb::Man => {
                let page = self.faults.take("man", manual::page());
                self.faults
                    .into_result(Command::Print(page.unwrap_or_default()))
            }
            Verb::Licenses => self.faults.into_result(Command::Print(LICENSES.into())),
            Verb::Show(text) => self.faults.into_result(Command::Print(text.into())),
        }
    }

    fn role(&mut self, what: &str, text: &str) -> PageRole {
        let role = self.faults.take(what, text.parse());
        role.unwrap_or(PageRole::View)
    }

    fn audit(mut self, flags: AuditFlags) -> Result<Command, Faults> {
        let is_cdr = flags.cdr.is_some();
        let is_cel = flags.cel.is_some();
        let message = "no file of the PBX is given: give --cdr FILE or --cel FILE";
        self.faults.add_if(!is_cdr && !is_cel, "audit", message);
        let message = "cannot be used with --cel; keep one";
        self.faults.add_if(is_cdr && is_cel, "--cdr", message);
        let format = if is_cdr {
            Format::CdrCsv
        } else {
            Format::CelCsv
        };
        let file = flags.cdr.or(flags.cel).map(PathBuf::from);
        // An unreadable zone is reported with the other flags.
        let zone_name = flags.flags.sources.pbx_timezone.as_deref();
        let given_zone = zone_name.and_then(|name| values::zone(name).ok());
        let pbx_zone = Zone::from_pbx(given_zone.as_ref());
        let zone = pbx_zone.as_time_zone();
        let from = self
            .faults
            .read("--from", &flags.from, |text| dates::date(text, zone));
        let until = self
            .faults
            .read("--to", &flags.to, |text| dates::date_end(text, zone));
        let config = self.config(flags.flags)?;
        let file = file.ok_or_else(Faults::default)?;
        Ok(Command::Audit(Box::new(Audit {
            file,
            format,
            from,
            until,
            take_in: flags.take_in,
            journal: !flags.no_journal,
            json: flags.json,
            config,
        })))
    }

    fn calls(mut self, flags: CallsFlags) -> Result<Command, Faults> {
        // Only the syntax is checked here, because the zone is known only when the calls are read.
        let utc = TimeZone::UTC;
        self.faults
            .read("--from", &flags.from, |text| dates::date(text, &utc));
        self.faults
            .read("--to", &flags.to, |text| dates::date_end(text, &utc));
        let dated = flags.from.is_some() || flags.to.is_some();
        let message = "cannot be used with --from or --to; keep one";
        self.faults.add_if(flags.today && dated, "--today", message);
        self.faults.read("--phone", &flags.phone, typed_number);
        let (state, folder) = self.state_or_folder(flags.state);
        let outside = flags.phone.is_some() || flags.trunk.is_some() || state.is_some();
        let wrong = flags.internal && outside;
        let message = "cannot be used with --phone, --trunk or --state, which internal calls do \
                       not have";
        self.faults.add_if(wrong, "--internal", message);
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
        let request = ControlRequest::Calls {
            which,
            past: true,
            follow: flags.follow,
        };
        Ok(Command::Ask {
            request,
            csv: false,
            at,
        })
    }

    /// Splits the values of `--state`, which are states of calls or a folder. A folder named `dead`
    /// is written `./dead`.
    fn state_or_folder(&mut self, given: Vec<String>) -> (Option<State>, Option<String>) {
        let mut state = None;
        let mut folder = None;
        for text in given {
            if let Some(known) = State::from_word(&text) {
                state = Some(known);
            } else if text.contains('/') || Path::new(&text).is_dir() {
                folder = Some(text);
            } else {
                let states: Vec<&str> = State::ALL.iter().map(|state| state.word()).collect();
                let message = format!(
                    "`{text}` is neither a folder nor one of {}",
                    states.join(", ")
                );
                self.faults.add("--state", message);
            }
        }
        // If only states are given on the command line, the folder comes from the environment.
        let folder = folder.or_else(|| {
            let variable = self.environment.text("CALLBRIDGE_STATE");
            variable.map(str::to_owned)
        });
        (state, folder)
    }

    fn status(mut self, flags: StatusFlags) -> Result<Command, Faults> {
        let given = [flags.exit_code, flags.watch, flags.healthy];
        let message = "use only one of --exit-code, --watch and --healthy";
        let several = given.iter().filter(|is_given| **is_given).count() > 1;
        self.faults.add_if(several, "status", message);
        let mode = match given {
            [true, ..] => StatusMode::ExitCode,
            [_, true, _] => StatusMode::Watch,
            [_, _, true] => StatusMode::Healthy,
            [false, false, false] => StatusMode::Once,
        };
        Ok(Command::Status(mode, self.asking(flags.state)?))
    }

    fn demo(mut self, flags: &DemoFlags) -> Result<Command, Faults> {
        let mut log = config::logging(&flags.log, &mut self.faults);
        if flags.log.log.is_none() {
            // The demo prints its own table, and log lines would interrupt it.
            log.level = tracing::Level::ERROR;
        }
        let pbxs = [
            ("asterisk", DemoPbx::Asterisk),
            ("freeswitch", DemoPbx::Freeswitch),
        ];
        let pbx = self
            .faults
            .read("--pbx", &flags.pbx, |text| values::word(text, &pbxs));
        self.faults.into_result(Command::Demo(Demo {
            pbx: pbx.unwrap_or(DemoPbx::Asterisk),
            stay: flags.stay,
            json: flags.json,
            log,
        }))
    }

    fn explain(mut self, flags: ExplainFlags) -> Result<Command, Faults> {
        let faults = &mut self.faults;
        let format = faults.read("--format", &flags.format, str::parse::<Format>);
        let no_format = flags.file.is_some() && format.is_none() && faults.is_empty();
        let message = "is missing: give the format of FILE, such as ami or ami-json";
        faults.add_if(no_format, "--format", message);
        let message = "is missing: give a recording, or --call ID for a stored call";
        faults.add_if(
            flags.file.is_none() && flags.call.is_none(),
            "FILE",
            message,
        );
        let file = flags.file.map(PathBuf::from).zip(format);
        let of_messages = format.is_some_and(Format::carries_whole_calls);
        let message = "cannot be used with --format call, because each message names its PBX: \
                       remove it";
        let is_named = flags.flags.sources.pbx_id.is_some();
        faults.add_if(of_messages && is_named, "--pbx-id", message);
        let config = self.config(flags.flags)?;
        Ok(Command::Explain(Box::new(Explain {
            file,
            call: flags.call,
            picture: flags.picture.map(PathBuf::from),
            json: flags.json,
            config,
        })))
    }

    /// Returns the place of the state. Without a flag or variable, this can be the folder of the
    /// only service that runs.
    fn state(&mut self, flag: Option<&str>) -> StatePlace {
        let read = config::state_place(flag, self.environment);
        let place = self.faults.take("--state", read);
        match place.unwrap_or_else(empty_place) {
            StatePlace::Folder(usual)
                if flag.is_none() && self.environment.text("STATE_DIRECTORY").is_none() =>
            {
                let services = Path::new(config::STATES);
                StatePlace::Folder(config::state_of_daemon(usual, services))
            }
            place => place,
        }
    }

    fn asking(mut self, flags: StateFlags) -> Result<Asking, Faults> {
        let state = self.state(flags.state.as_deref());
        let mut faults = self.faults;
        let zone = faults.read("--pbx-timezone", &flags.pbx_timezone, values::zone);
        faults.into_result(Asking {
            state,
            json: flags.json,
            zone,
            rules: Rules::default(),
        })
    }

    pub(super) fn ask(
        self,
        request: impl Into<Option<ControlRequest>>,
        csv: bool,
        state: StateFlags,
    ) -> Result<Command, Faults> {
        let at = self.asking(state)?;
        let request = request.into().ok_or_else(Faults::default)?;
        Ok(Command::Ask { request, csv, at })
    }

    fn dead(mut self, verb: DeadVerb) -> Result<Command, Faults> {
        let mut csv = false;
        let (request, state) = match verb {
            DeadVerb::List(of) => (self.letters(of.which, false), of.state),
            DeadVerb::Show(of) => {
                let which = self.change("dead show", of.which);
                (ControlRequest::Letters { which, whole: true }, of.state)
            }
            DeadVerb::Retry(of) => {
                let request = ControlRequest::Retry {
                    which: self.change("dead retry", of.which),
                    wish: RetryValues {
                        lead: self.faults.read("--lead", &of.lead, lead_id),
                        employee: self.faults.read("--employee", &of.employee, employee_of),
                        said: self.supplied_facts(&of.answered, &of.talk, &of.direction),
                    },
                    dry_run: of.dry_run,
                    several_numbers: of.yes,
                };
                (request, of.state)
            }
            DeadVerb::Discard(of) => {
                let which = self.change("dead discard", of.which);
                (ControlRequest::Discard { which }, of.state)
            }
            DeadVerb::Export {
                which,
                format,
                state,
            } => {
                let formats = [("csv", true), ("jsonl", false)];
                let given = format.ok_or("is missing: give csv or jsonl".to_owned());
                let read = given.and_then(|text| values::word(&text, &formats));
                csv = self.faults.take("--format", read) == Some(true);
                let json = !csv;
                (self.letters(which, true), StateFlags { json, ..state })
            }
            DeadVerb::Watch(state) => (ControlRequest::Watch, state),
        };
        self.ask(request, csv, state)
    }

    /// Builds the request to list or show dead letters. Without a selection, the request is for all
    /// dead letters.
    fn letters(&mut self, which: SelectFlags, whole: bool) -> ControlRequest {
        let mut which = self.selection(which);
        which.all |= which.is_empty();
        ControlRequest::Letters { which, whole }
    }

    /// Reads the selection for a command that changes dead letters. It must not be empty.
    fn change(&mut self, command: &str, flags: SelectFlags) -> Selection {
        let chooses = !flags.ids.is_empty() || flags.reason.is_some();
        let message = "no dead letters are selected: give ID…, --reason R, --waiting or --all";
        let chosen = chooses || flags.all || flags.waiting;
        self.faults.add_if(!chosen, command, message);
        let message = "cannot be used with ID or --reason; keep one";
        self.faults.add_if(flags.all && chooses, "--all", message);
        self.selection(flags)
    }

    fn selection(&mut self, flags: SelectFlags) -> Selection {
        let reason = self.faults.read("--reason", &flags.reason, reason_of);
        Selection {
            ids: flags.ids,
            reason,
            waiting: flags.waiting,
            all: flags.all,
        }
    }

    /// Reads the facts that a person supplies for a call: `--answered`, `--talk`, and
    /// `--direction`.
    fn supplied_facts(
        &mut self,
        answered: &Option<String>,
        talk: &Option<String>,
        direction: &Option<String>,
    ) -> Option<SuppliedFacts> {
        let is_supplied = answered.is_some() || talk.is_some() || direction.is_some();
        let answered = self.faults.read("--answered", answered, |text| {
            values::word(text, &[("yes", true), ("no", false)])
        });
        let talk_sec = self.faults.read("--talk", talk, values::talk);
        let differ = answered == Some(false) && talk_sec.is_some_and(|talk| talk > 0);
        let message = "cannot be used with --answered no: remove one of the two";
        self.faults.add_if(differ, "--talk", message);
        let direction = self.faults.read("--direction", direction, |text| {
            let directions = [
                ("inbound", Direction::Inbound),
                ("outbound", Direction::Outbound),
            ];
            values::word(text, &directions)
        });
        is_supplied.then_some(SuppliedFacts {
            answered,
            talk_sec,
            direction,
        })
    }

    fn lead(mut self, verb: LeadVerb) -> Result<Command, Faults> {
        match verb {
            LeadVerb::Missing { csv, state } => self.ask(ControlRequest::LeadMissing, csv, state),
            LeadVerb::List(state) => self.ask(ControlRequest::LeadList, false, state),
            LeadVerb::Give {
                phone,
                lead,
                yes,
                state,
            } => {
                let phone = self.phone(phone);
                let lead = self.lead_argument(lead.as_deref());
                let request = lead.map(|lead| ControlRequest::LeadGive { phone, lead, yes });
                self.ask(request, false, state)
            }
            LeadVerb::Take { phone, state } => {
                let phone = self.phone(phone);
                self.ask(ControlRequest::LeadTake { phone }, false, state)
            }
            LeadVerb::Given(state) => self.ask(ControlRequest::LeadGiven, false, state),
            LeadVerb::Set {
                lead,
                values,
                state,
            } => {
                let lead = self.lead_argument(lead.as_deref());
                let items = self.items(&values);
                let request = lead.map(|lead| ControlRequest::LeadSet { lead, items });
                self.ask(request, false, state)
            }
            LeadVerb::Check { phone, json, flags } => {
                let phone = self.phone(phone);
                let config = self.config(*flags)?;
                Ok(Command::Ask {
                    request: ControlRequest::LeadCheck { phone },
                    csv: false,
                    at: Asking::from_config(&config, json),
                })
            }
        }
    }

    fn branch(mut self, verb: BranchVerb) -> Result<Command, Faults> {
        let (request, state) = match verb {
            BranchVerb::Add {
                name,
                pbx,
                token_file,
                state,
            } => {
                let branch = self.branch_name(name);
                let pbxs: Vec<String> = values::flag_values(&pbx).map(str::to_owned).collect();
                let message = "is missing: name each PBX of the branch";
                self.faults.add_if(pbxs.is_empty(), "--pbx", message);
                let hash = self.faults.read("--token-file", &token_file, token_hash);
                let request = ControlRequest::BranchAdd { branch, pbxs, hash };
                (request, state)
            }
            BranchVerb::List(state) => (ControlRequest::Branches, state),
            BranchVerb::Rotate { name, now, state } => {
                let branch = self.branch_name(name);
                (ControlRequest::BranchRotate { branch, now }, state)
            }
            BranchVerb::Remove { name, state } => {
                let branch = self.branch_name(name);
                (ControlRequest::BranchRemove { branch }, state)
            }
        };
        self.ask(request, false, state)
    }

    fn branch_name(&mut self, name: Option<String>) -> String {
        let name = name.ok_or("is missing: the name of the branch");
        self.faults.take("NAME", name).unwrap_or_default()
    }

    /// Returns the phone number as typed. Adds an error if it is missing.
    fn phone(&mut self, phone: Option<String>) -> String {
        let phone = phone.ok_or("is missing: the number to look up");
        self.faults.take("PHONE", phone).unwrap_or_default()
    }

    /// Reads the id of a lead from a separate argument.
    fn lead_argument(&mut self, lead: Option<&str>) -> Option<LeadId> {
        let text = lead.ok_or("is missing: the id of the lead");
        let wrong = "is not a lead id: use digits only";
        let read = text.and_then(|text| LeadId::parse(text).ok_or(wrong));
        self.faults.take("LEAD", read)
    }

    /// Reads `ID=VALUE…`. Each field can occur once.
    fn items(&mut self, values: &[String]) -> Vec<Item> {
        const FLAG: &str = "ID=VALUE";
        let mut items: Vec<Item> = Vec::new();
        let message = format!("give 1 to {ITEMS_MAX} values, such as 11=VIP or 12=null");
        let is_right = (1..=ITEMS_MAX).contains(&values.len());
        self.faults.add_if(!is_right, FLAG, message);
        for text in values {
            let item = self.faults.take(FLAG, Item::parse(text));
            let Some(item) = item else { continue };
            let again = items.iter().any(|other| other.id == item.id);
            let message = format!("field {} is given twice", item.id);
            self.faults.add_if(again, FLAG, message);
            items.push(item);
        }
        items
    }

    fn state_command(mut self, verb: StateVerb) -> Result<Command, Faults> {
        let (flag, action) = match verb {
            StateVerb::Export {
                flags,
                with_secrets,
            } => {
                let file = self.state_file(flags.file);
                (flags.state, StateAction::Export { file, with_secrets })
            }
            StateVerb::Import(flags) => {
                let file = self.state_file(flags.file);
                (flags.state, StateAction::Import { file })
            }
            StateVerb::Move { to, state } => {
                let given = to.ok_or("is missing: the new place of the state".to_owned());
                let read = given.and_then(|to| config::state_place(Some(&to), self.environment));
                let to = self.faults.take("--to", read).unwrap_or_else(empty_place);
                (state, StateAction::Move { to })
            }
        };
        let state = self.state(flag.as_deref());
        self.faults
            .into_result(Command::State(StateCommand { action, state }))
    }

    fn state_file(&mut self, file: Option<String>) -> PathBuf {
        let given = file
            .filter(|file| !file.is_empty())
            .ok_or("is missing: the file of the exported state");
        PathBuf::from(self.faults.take("FILE", given).unwrap_or_default())
    }

    fn completions(mut self, shell: Option<&str>) -> Result<Command, Faults> {
        const SHELLS: &str = "bash, elvish, fish, powershell or zsh";
        let read = match shell {
            Some(text) => text
                .parse()
                .map_err(|_| format!("`{text}` is not a shell: give {SHELLS}")),
            None => Err(format!("is missing: give {SHELLS}")),
        };
        let shell = self.faults.take("SHELL", read).unwrap_or(Shell::Bash);
        self.faults
            .into_result(Command::Print(manual::completions(shell)))
    }
}

/// The place of a state whose flag has an error. No command runs with it.
fn empty_place() -> StatePlace {
    StatePlace::Folder(PathBuf::new())
}

fn typed_number(text: &str) -> Result<TypedNumber, String> {
    let message = "is not a phone number: give the full number, or at least its last four digits";
    TypedNumber::read(text, []).ok_or_else(|| format!("`{text}` {message}"))
}

fn reason_of(word: &str) -> Result<Reason, String> {
    Reason::from_word(word).ok_or_else(|| {
        let reasons: Vec<&str> = Reason::ALL.iter().map(|reason| reason.word()).collect();
        format!(
            "`{word}` is not a reason: give one of {}",
            reasons.join(", ")
        )
    })
}

/// Returns the SHA-256 of the token in a file.
fn token_hash(file: &str) -> Result<String, String> {
    let place = SecretPlace::File(PathBuf::from(file));
    let token = place.read().map_err(|error| error.to_string())?;
    let hash = callbridge_hub::token::strong_hash(&token);
    hash.ok_or_else(|| format!("{file} doesn't hold a token from `branch add` or `rotate`"))
}

fn lead_id(text: &str) -> Result<LeadId, String> {
    LeadId::parse(text).ok_or_else(|| format!("`{text}` is not a lead id: use digits only"))
}

fn employee_of(text: &str) -> Result<EmployeeChoice, String> {
    let read = match text {
        "none" => Some(EmployeeChoice::None),
        _ => EmployeeId::parse(text).map(EmployeeChoice::Is),
    };
    read.ok_or_else(|| format!("`{text}` is neither an employee id nor `none`"))
}
