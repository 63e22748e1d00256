//! Evidence that a source receives events, and the permissions that its account lacks. The PBX
//! accepts logins from accounts without permissions, but never sends them any events.

use super::settings::SourceSettings;
use callbridge_asterisk::subscription_probe::MissingRight;
use callbridge_call::{Kind, Mark, Origin, PbxEvent};
use callbridge_formats::Format;
use callbridge_mapping::{LeadRule, Trunks};
use callbridge_model::status::{self, RightKind, SourceState};
use std::collections::{BTreeMap, BTreeSet};

/// A channel shows its variables in each of its events. A variable that's missing from this many
/// events is reported as not shown.
const EVENTS_CHECKED: u32 = 40;

/// Message for a source whose events have no timestamp.
const TIMES: &str = "events have no timestamps, so their arrival times are used, and calls \
                     become incomplete if the connection stalls: set timestampevents = yes in \
                     manager.conf, then `manager reload`";

/// Evidence of whether a source receives events, and of which permissions its account lacks.
#[derive(Debug, Default)]
pub(super) struct Proof {
    /// Whether an event has arrived since the connection came up.
    pub(super) received: bool,
    /// Whether an event on this connection has been checked for a timestamp yet.
    pub(super) timed: bool,
    /// Variables with leads that no channel has shown yet.
    unseen: BTreeSet<String>,
    pub(super) checked: u32,
    pub(super) missing_rights: BTreeMap<RightKind, String>,
    /// Permissions that this process has already logged as missing.
    logged: BTreeSet<RightKind>,
    pub(super) unreported: Vec<String>,
}

impl Proof {
    pub(super) fn new(settings: &SourceSettings, trunks: &Trunks) -> Self {
        let mut proof = Self::default();
        if matches!(settings.format, Format::Ami | Format::AmiJson) && !settings.file {
            let rules = trunks.of_pbx(&settings.pbx).flat_map(|trunk| &trunk.leads);
            let variables = rules.filter_map(LeadRule::variable);
            proof.unseen.extend(variables.cloned());
        }
        proof
    }

    pub(super) fn report_missing(&mut self, kind: RightKind, message: impl Into<String>) {
        let message = message.into();
        if self.logged.insert(kind) {
            self.unreported.push(message.clone());
        }
        self.missing_rights.insert(kind, message);
    }

    /// Returns the missing permissions for `status`.
    pub(super) fn list_missing_rights(&self) -> Vec<status::MissingRight> {
        self.missing_rights
            .clone()
            .into_iter()
            .map(|(kind, message)| status::MissingRight { kind, message })
            .collect()
    }

    /// Returns `true` if the account is known not to receive any call events.
    pub(super) fn is_deaf(&self) -> bool {
        self.missing_rights.contains_key(&RightKind::Calls)
    }

    /// Takes an event as proof that the source receives events. A call record proves nothing about
    /// the channels that a manager account should receive, and neither do responses to our actions.
    pub(super) fn on_event(
        &mut self,
        settings: &SourceSettings,
        state: &mut SourceState,
        event: &PbxEvent<'_>,
        bytes: &[u8],
    ) {
        let channels = matches!(settings.format, Format::Ami | Format::AmiJson);
        let event = match event {
            PbxEvent::Channel(event) if !matches!(event.kind, Kind::Listed { .. }) => Some(event),
            PbxEvent::Cdr(_) if !channels => None,
            // An account without the `system` permission doesn't receive this event.
            PbxEvent::Mark(Mark::FullyBooted { .. }) => {
                self.missing_rights.remove(&RightKind::System);
                return;
            }
            PbxEvent::Channel(_) | PbxEvent::Cdr(_) | PbxEvent::Mark(_) => return,
        };
        if !self.unseen.is_empty() && event.is_some() {
            self.find_variables(bytes);
        }
        // Every CEL row has a timestamp.
        if let Some(event) = event
            && event.origin == Origin::Channel
            && channels
            && !settings.file
        {
            let first = !std::mem::replace(&mut self.timed, true);
            match event.at {
                Some(_) => drop(self.missing_rights.remove(&RightKind::Times)),
                None if first => self.report_missing(RightKind::Times, TIMES),
                None => {}
            }
        }
        if self.received {
            return;
        }
        self.received = true;
        // An account that receives calls doesn't need a test event.
        self.missing_rights.remove(&RightKind::Calls);
        self.missing_rights.remove(&RightKind::Echo);
        if *state == SourceState::Connected {
            *state = SourceState::Up;
        }
    }

    fn find_variables(&mut self, bytes: &[u8]) {
        // A line of AMI or a pair in JSON. CEL may also report that the variable was set.
        let parts = bytes.split(|byte| matches!(byte, b'\n' | b','));
        let shown: Vec<&[u8]> = parts.filter(|part| holds(part, b"ChanVariable")).collect();
        self.unseen.retain(|name| {
            let pair = format!("{name}=");
            !shown.iter().any(|part| holds(part, pair.as_bytes()))
        });
        self.checked = self.checked.saturating_add(1);
        if self.unseen.is_empty() {
            self.missing_rights.remove(&RightKind::Variables);
        } else if self.checked == EVENTS_CHECKED {
            let names = Vec::from_iter(self.unseen.iter().map(String::as_str)).join(", ");
            self.report_missing(
                RightKind::Variables,
                format!(
                    "channels do not show {names}, from which leads are read: add it to \
                     channelvars in manager.conf, then `manager reload`"
                ),
            );
        }
    }
}

fn holds(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Returns the kind of a missing permission, along with a message that tells how to fix it.
pub(super) fn describe(right: MissingRight) -> (RightKind, String) {
    const READ: &str = "set read = call,cdr,system,agent,user for it in manager.conf, `manager \
                        reload`, and restart callbridge";
    match right {
        MissingRight::Calls(born) => {
            let born = match born {
                1 => "a channel was created".to_owned(),
                born => format!("{born} channels were created"),
            };
            let message = format!("the account receives no events of calls, though {born}; {READ}");
            (RightKind::Calls, message)
        }
        MissingRight::System => {
            let message = format!(
                "no FullyBooted came after the login: the PBX is still starting, or the account \
                 does not receive its start and stop; if so, {READ}"
            );
            (RightKind::System, message)
        }
        MissingRight::Filter => (
            RightKind::Filter,
            "the PBX accepted the event filter, but no event passed it. callbridge logged in again \
             without a filter, and receives all events of the classes call, cdr, system, agent, \
             and user"
                .to_owned(),
        ),
        MissingRight::Echo => (
            RightKind::Echo,
            "a test event was sent and did not come back: add user to the account's read in \
             manager.conf, or correct its eventfilter, which lets nothing through (Asterisk 10 to \
             12 read `(A|B)` in it as text: give one line per event)"
                .to_owned(),
        ),
        MissingRight::List => (
            RightKind::List,
            "the account has no right to list the live channels (CoreShowChannels); set write = \
             reporting,user for it in manager.conf, `manager reload`, and restart callbridge"
                .to_owned(),
        ),
    }
}
