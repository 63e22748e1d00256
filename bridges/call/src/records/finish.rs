//! Determines the values of a folded call. Notes for each value which record decided it.

use super::group::Group;
use super::plan::{self, Channel};
use super::record::{Record, birth};
use super::timeline;
use crate::call::{aliases, direction_message, distinct};
use crate::resolve::{Plan, is_number};
use crate::talk::longest;
use crate::unmatched::{Carried, Unmatched};
use crate::{
    DecidingEvents, Direction, Endpoints, EventTime, Extension, FinishedCall, RawNumber, UniqueId,
    is_did,
};
use std::time::Duration;

/// Longest time by which a channel can have begun before its first known record. The real first
/// record can be missing, like the first row of a truncated file.
const BEGUN_BEFORE: Duration = Duration::from_secs(300);

/// Returns the finished calls of the group's records.
pub(super) fn calls(group: &Group, endpoints: &Endpoints) -> Vec<FinishedCall> {
    let (records, channels) = plan::channels(group, endpoints);
    let plans = plan::plans(&records, &channels);
    let known: Vec<&UniqueId> = plans.iter().map(|plan| &plan.linkedid).collect();
    let mut calls = Vec::new();
    for plan in &plans {
        let builder = CallBuilder {
            group,
            records: &records,
            channels: &channels,
            plan,
        };
        calls.push(builder.finish(&known));
    }
    calls
}

/// Data from which one finished call is built.
struct CallBuilder<'a, 'g> {
    group: &'a Group,
    records: &'a [&'g Record],
    channels: &'a [Channel<'g>],
    plan: &'a Plan<&'g Record>,
}

impl CallBuilder<'_, '_> {
    fn finish(&self, known: &[&UniqueId]) -> FinishedCall {
        let plan = self.plan;
        let is_inbound = plan.direction == Direction::Inbound;
        let main = longest(&plan.customers, |customers| {
            plan::talk(self.records, self.channels, customers)
        });
        let customer = &self.channels[main];
        let mut why = DecidingEvents::default();
        let started = self.started(&mut why);
        let how = if is_inbound {
            "its channel is in the record"
        } else {
            "a record's destination"
        };
        let message = direction_message(plan.direction, customer.party.trunk(), how);
        why.note("direction", started, customer.name, message);
        let ended = self.ended(&mut why).max(started);
        let talk = self.talk(ended.since(started));
        let answered = plan.talk.would_answer(talk);
        plan.talk.note(
            &mut why,
            |i| self.channels[i].name,
            customer.name,
            [
                "a record with the customer is ANSWERED",
                "the billed seconds of these records",
            ],
            (ended, "no record with another party is answered"),
        );
        let number = match plan.direction {
            Direction::Inbound => caller(customer),
            Direction::Outbound => customer.dialed_number().or_else(|| self.dialed_elsewhere()),
            Direction::Internal | Direction::Unknown => None,
        };
        let first_start = customer.records().map(|record| record.start).min();
        let at = first_start.unwrap_or(self.group.arrived);
        let message = match &number {
            Some((_, message)) => *message,
            None => "no number was reported",
        };
        why.note("clientPhone", at, customer.name, message);
        let employee = self.employee(customer, ended, &mut why);
        let trunk = customer.party.trunk();
        if let Some(trunk) = trunk {
            let message = format!("the channel belongs to {trunk}");
            why.note("trunk", started, customer.name, message);
        }
        // The dialed number is known only if the dialplan stores it in its own column. The record's
        // destination is only the last step of the dialplan.
        let mut dids = customer.own.iter().map(|record| &record.did);
        let did = if is_inbound {
            dids.find(|did| is_did(did)).cloned()
        } else {
            None
        };
        let own = plan.own.iter();
        let ids = own.flat_map(|record| [&record.uniqueid, &record.linkedid]);
        FinishedCall {
            linkedid: plan.linkedid.clone(),
            also_known_as: aliases(ids.filter_map(UniqueId::new), known),
            direction: plan.direction,
            answered,
            trunk: trunk.map(str::to_owned),
            number: number.map(|(number, _)| number),
            more_numbers: Vec::new(),
            shown_number: None,
            did,
            employee,
            employees_in_order: plan.talk.in_order(|i| &self.channels[i].party),
            started,
            ended,
            talk: if answered { talk } else { Duration::ZERO },
            variables: Vec::new(),
            userfields: self.userfields(),
            incomplete: self.incomplete(),
            estimate: true,
            by_arrival: false,
            live: self.group.is_live(),
            remarks: Vec::new(),
            decided_by: why.0,
            timeline: Some(timeline::timeline(self.channels, plan)),
            unmatched: self.unmatched(),
            given: None,
        }
    }

    /// Returns the name prefixes of channels that carried an outside number but belong to no trunk.
    fn unmatched(&self) -> Vec<String> {
        let mut found = Unmatched::default();
        let internal = self.plan.direction == Direction::Internal;
        for channel in self.channels {
            if channel.party.extension().is_none() {
                continue;
            }
            if channel.came_in() {
                if internal && let Some((number, _)) = caller(channel) {
                    found.note(channel.name, &number.text, Carried::In);
                }
            } else if let Some((number, _)) = channel.dialed_number()
                && number.from_dial_string
            {
                found.note(channel.name, &number.text, Carried::Out);
            }
        }
        found.0
    }

    /// Returns the start of the call's first record. In an inbound call, only records with the id
    /// of the customer's first record count. If the first channel's unique id shows an earlier
    /// creation, its first record is missing, and the time of the creation is returned.
    fn started(&self, why: &mut DecidingEvents) -> EventTime {
        let plan = self.plan;
        let root = if plan.direction == Direction::Inbound {
            self.channels[plan.customers[0]].own.first()
        } else {
            None
        };
        let root_id = root.and_then(|record| record.id());
        let of_root = plan
            .own
            .iter()
            .filter(|record| root_id.is_none() || record.id() == root_id);
        let first = of_root.min_by_key(|record| record.start);
        let Some(first) = first.or(plan.own.first()).or(self.records.first()) else {
            return self.group.end();
        };
        let channel_id = match root {
            Some(root) => UniqueId::new(root.uniqueid.as_str()),
            None => first.id().filter(|id| *id == plan.linkedid),
        };
        if let Some(born) = channel_id.and_then(|id| birth(id.as_str())) {
            let late = first.start.since(born);
            if late > Duration::from_secs(1) && late <= BEGUN_BEFORE {
                let message = "the creation of the first channel, by its unique id";
                why.note("startedAt", born, &first.channel, message);
                return born;
            }
        }
        let message = "the start of the first record";
        why.note("startedAt", first.start, &first.channel, message);
        first.start
    }

    /// Returns the end of the customer's last record.
    fn ended(&self, why: &mut DecidingEvents) -> EventTime {
        let customers = self.plan.customers.iter().map(|&i| &self.channels[i]);
        let records = customers.flat_map(Channel::records);
        let Some(last) = records.max_by_key(|record| record.end) else {
            return self.group.end();
        };
        let message = "the end of the customer's last record";
        why.note("durationSec", last.end, &last.channel, message);
        last.end
    }

    /// Returns how long the customer talked in a call of the length `lasted`. A billed time that is
    /// longer than the call is not clamped, because the mapping reports talk that is longer than
    /// its call.
    fn talk(&self, lasted: Duration) -> Duration {
        let plan = self.plan;
        let connecting = plan.own.iter().filter(|record| record.talk().is_some());
        let excess = connecting.filter_map(|record| record.excess).max();
        plan.talk.total.min(lasted).max(excess.unwrap_or_default())
    }

    /// Returns the first dialed number in the call's own records. It is used if the records of the
    /// trunk's channel have no number.
    fn dialed_elsewhere(&self) -> Option<(RawNumber, &'static str)> {
        let own = self.plan.own.iter().filter(|record| !record.was_called());
        let mut texts = own.map(|record| record.destination.as_str());
        let text = texts.find(|text| is_number(text))?;
        Some((RawNumber::new(text, false), "the first destination"))
    }

    fn employee(
        &self,
        customer: &Channel<'_>,
        ended: EventTime,
        why: &mut DecidingEvents,
    ) -> Option<Extension> {
        let plan = self.plan;
        let answered = plan.talk.is_answer();
        let mut talked = None;
        if answered {
            let mut began = plan.talk.began.iter().rev();
            talked = began.find(|(_, i)| self.channels[*i].is_extension());
        }
        let (found, message) = match (talked, plan.direction) {
            (Some(&(_, i)), _) => (Some(&self.channels[i]), "the last to begin to talk"),
            (None, _) if answered => (None, "the customer did not talk with an extension"),
            (None, Direction::Inbound) => self.dialed_extension(),
            (None, Direction::Outbound | Direction::Internal | Direction::Unknown) => {
                self.placing_extension()
            }
        };
        let at = talked.map_or(ended, |&(at, _)| at);
        why.note("employee", at, found.unwrap_or(customer).name, message);
        found?.party.extension().cloned()
    }

    /// Returns the channel of the extension that was dialed, and the reason for the choice. Returns
    /// no channel if several extensions were dialed.
    fn dialed_extension(&self) -> (Option<&Channel<'_>>, &'static str) {
        let mut dialed = Vec::new();
        for channel in self.channels {
            let mut reached = channel.reached.iter();
            if channel.is_extension() && reached.any(|record| self.plan.own.contains(record)) {
                dialed.push(channel);
            }
        }
        let Some(&first) = dialed.first() else {
            return (None, "no extension took part");
        };
        for channel in dialed {
            if channel.party.extension() != first.party.extension() {
                return (None, "several extensions were dialed, and none answered");
            }
        }
        (Some(first), "the one extension dialed")
    }

    /// Returns the channel of the extension that placed the call, and the reason for the choice. It
    /// is the first real party in the call's first record.
    fn placing_extension(&self) -> (Option<&Channel<'_>>, &'static str) {
        if let Some(record) = self.plan.own.first() {
            let names = [&record.channel, &record.dest].into_iter();
            let mut channels = names.filter_map(|name| self.find_channel(name));
            if let Some(placed) = channels.find(|channel| channel.party.is_real())
                && placed.is_extension()
            {
                return (Some(placed), "placed the call");
            }
        }
        (None, "no extension placed the call")
    }

    fn find_channel(&self, name: &str) -> Option<&Channel<'_>> {
        self.channels.iter().find(|channel| channel.name == name)
    }

    /// Returns the user fields of the customer's channels. If these have none, returns the user
    /// fields of all records of the call. The customer's channels come first, because a record that
    /// names two customers belongs to both calls.
    fn userfields(&self) -> Vec<String> {
        let mut fields = Vec::new();
        for &i in &self.plan.customers {
            for record in &self.channels[i].own {
                let dest = self.find_channel(&record.dest);
                let is_to_trunk = dest.is_some_and(|channel| channel.party.trunk().is_some());
                if !record.was_called() && !is_to_trunk {
                    fields.push(record.userfield.as_str());
                }
            }
        }
        let of_customers = distinct(fields.into_iter());
        if of_customers.is_empty() {
            let records = self.plan.own.iter();
            distinct(records.map(|record| record.userfield.as_str()))
        } else {
            of_customers
        }
    }

    fn incomplete(&self) -> Option<String> {
        if self.group.dropped > 0 {
            return Some("the call had more records than callbridge keeps of one call".to_owned());
        }
        for record in &self.plan.own {
            if !record.placed {
                return Some(
                    "its local times have no zone, or day and month can be in either order: give \
                     --pbx-timezone, and export the times as 2026-12-31 23:59:59"
                        .to_owned(),
                );
            }
            if record.is_negative {
                return Some(
                    "a record's duration is negative: the PBX's clock was set back".to_owned(),
                );
            }
            if record.is_doubtful() {
                return Some(format!(
                    "a record is ANSWERED, and its last application, {}, does not show whether \
                     people talked",
                    record.app
                ));
            }
        }
        None
    }
}

/// Returns the number of the caller who came in on this channel.
fn caller(channel: &Channel<'_>) -> Option<(RawNumber, &'static str)> {
    let sources = channel.own.iter().map(|record| record.source.as_str());
    let quoted = channel.own.iter().filter_map(|record| {
        let (_, number) = record.caller_id.rsplit_once('<')?;
        number.split('>').next()
    });
    let mut texts = sources.chain(quoted).filter(|text| is_number(text));
    Some((RawNumber::new(texts.next()?, false), "the caller's number"))
}
