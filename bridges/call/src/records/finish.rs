//! Determines the values of a folded call, each with the record that decided it.

use super::group::Group;
use super::plan::{self, Channel};
use super::record::{Record, birth};
use super::timeline;
use crate::call::{aliases, direction_words, distinct};
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

/// Returns the finished calls of these records.
pub(super) fn calls(group: &Group, endpoints: &Endpoints) -> Vec<FinishedCall> {
    let (records, channels) = plan::channels(group, endpoints);
    let plans = plan::plans(&records, &channels);
    let known: Vec<&UniqueId> = plans.iter().map(|plan| &plan.linkedid).collect();
    let folding = |plan| CallBuilder {
        group,
        records: &records,
        channels: &channels,
        plan,
    };
    let finish = |plan| folding(plan).finish(&known);
    plans.iter().map(finish).collect()
}

/// Builder of one call.
struct CallBuilder<'a, 'g> {
    group: &'a Group,
    records: &'a [&'g Record],
    channels: &'a [Channel<'g>],
    plan: &'a Plan<&'g Record>,
}

impl CallBuilder<'_, '_> {
    fn finish(&self, known: &[&UniqueId]) -> FinishedCall {
        let (plan, inbound) = (self.plan, self.plan.direction == Direction::Inbound);
        let main = longest(&plan.customers, |those| {
            plan::talk(self.records, self.channels, those)
        });
        let customer = &self.channels[main];
        let mut why = DecidingEvents::default();
        let started = self.started(&mut why);
        let how = match inbound {
            true => "its channel is in the record",
            false => "a record's destination",
        };
        let message = direction_words(plan.direction, customer.party.trunk(), how);
        why.note("direction", started, customer.name, message);
        let customers = plan.customers.iter().map(|&i| &self.channels[i]);
        let last = customers.flat_map(Channel::records).max_by_key(|it| it.end);
        let ended = last.map_or_else(|| self.group.end(), |last| last.end);
        if let Some(last) = last {
            let message = "the end of the customer's last record";
            why.note("durationSec", ended, &last.channel, message);
        }
        let ended = ended.max(started);
        let talk = plan.talk.total.min(ended.since(started));
        // The talk is not clamped here. The mapping reports talk that is longer than its call.
        let excess = plan.own.iter().filter(|record| record.talk().is_some());
        let excess = excess.filter_map(|record| record.excess).max();
        let talk = excess.map_or(talk, |excess| excess.max(talk));
        let answered = plan.talk.would_answer(talk);
        let never = (ended, "no record with another party is answered");
        let message = [
            "a record with the customer is ANSWERED",
            "the billed seconds of these records",
        ];
        let name = |i: usize| self.channels[i].name;
        plan.talk
            .note(&mut why, name, customer.name, message, never);
        let number = match plan.direction {
            Direction::Inbound => caller(customer),
            Direction::Outbound => customer.dialed().or_else(|| self.dialed_elsewhere()),
            Direction::Internal | Direction::Unknown => None,
        };
        let at = customer.records().map(|record| record.start).min();
        let at = at.unwrap_or(self.group.arrived);
        let message = number.as_ref().map(|(_, message)| *message);
        let message = message.unwrap_or("no number was reported");
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
        let did = dids.find(|did| is_did(did)).filter(|_| inbound);
        let ids = plan.own.iter().flat_map(|it| [&it.uniqueid, &it.linkedid]);
        FinishedCall {
            linkedid: plan.linkedid.clone(),
            also_known_as: aliases(ids.filter_map(UniqueId::new), known),
            direction: plan.direction,
            answered,
            trunk: trunk.map(str::to_owned),
            number: number.map(|(number, _)| number),
            more_numbers: Vec::new(),
            shown_number: None,
            did: did.cloned(),
            employee,
            employees_in_order: plan.talk.in_order(|i| &self.channels[i].party),
            started,
            ended,
            talk: if answered { talk } else { Duration::ZERO },
            variables: Vec::new(),
            userfields: self.userfields(),
            incomplete: self.incomplete(),
            estimate: true,
            live: self.group.is_live(),
            remarks: Vec::new(),
            decided_by: why.0,
            timeline: Some(timeline::timeline(self.channels, plan)),
            unmatched: self.unmatched(),
            given: None,
        }
    }

    /// Collects the prefixes of channels that carried an outside number and belong to no trunk, as
    /// is done with channel events.
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
            } else if let Some((number, _)) = channel.dialed()
                && number.from_dial_string
            {
                found.note(channel.name, &number.text, Carried::Out);
            }
        }
        found.0
    }

    /// Returns the start of the first record. For an inbound customer, only records with the same
    /// id count. If the record of the first channel's beginning is missing, the channel's unique id
    /// gives the time.
    fn started(&self, why: &mut DecidingEvents) -> EventTime {
        let plan = self.plan;
        let root = self.channels[plan.customers[0]].own.first();
        let root = root.filter(|_| plan.direction == Direction::Inbound);
        let id = root.and_then(|it| it.id());
        let own = plan.own.iter().filter(|it| id.is_none() || it.id() == id);
        let first = own.min_by_key(|record| record.start);
        let Some(first) = first.or(plan.own.first()).or(self.records.first()) else {
            return self.group.end();
        };
        let own_id = || first.id().filter(|id| *id == plan.linkedid);
        let born = root.map_or_else(own_id, |root| UniqueId::new(root.uniqueid.as_str()));
        let born = born.and_then(|id| birth(id.as_str()));
        let soon = |born: &EventTime| {
            let late = first.start.since(*born);
            late > Duration::from_secs(1) && late <= BEGUN_BEFORE
        };
        let (at, words) = match born.filter(soon) {
            Some(born) => (born, "the creation of the first channel, by its unique id"),
            None => (first.start, "the start of the first record"),
        };
        why.note("startedAt", at, &first.channel, words);
        at
    }

    /// Returns the number that was dialed first, if the records of the trunk's channel have none.
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
        let is_extension = |it: &&Channel<'_>| it.party.extension().is_some();
        let began = plan.talk.began.iter().rev();
        let mut began = began.map(|&(at, i)| (&self.channels[i], at));
        let talked = began.find(|(channel, _)| answered && is_extension(channel));
        let (found, words) = match (talked, plan.direction) {
            (Some((channel, _)), _) => (Some(channel), "the last to begin to talk"),
            (None, _) if answered => (None, "the customer did not talk with an extension"),
            (None, Direction::Inbound) => {
                let mut dialed = Vec::new();
                for channel in self.channels {
                    let is_own = channel
                        .reached
                        .iter()
                        .any(|record| plan.own.contains(record));
                    if is_extension(&channel) && is_own {
                        dialed.push(channel);
                    }
                }
                match dialed.first() {
                    None => (None, "no extension took part"),
                    Some(first)
                        if dialed.iter().all(|channel| {
                            channel.party.extension() == first.party.extension()
                        }) =>
                    {
                        (Some(*first), "the one extension dialed")
                    }
                    Some(_) => (None, "several extensions were dialed, and none answered"),
                }
            }
            (None, Direction::Outbound | Direction::Internal | Direction::Unknown) => {
                let first = plan.own.first().into_iter();
                let mut of_record = first.flat_map(|record| {
                    let names = [&record.channel, &record.dest];
                    names.into_iter().filter_map(|name| self.named(name))
                });
                let placed = of_record.find(|channel| channel.party.is_real());
                match placed.filter(is_extension) {
                    Some(channel) => (Some(channel), "placed the call"),
                    None => (None, "no extension placed the call"),
                }
            }
        };
        let at = talked.map_or(ended, |(_, at)| at);
        why.note("employee", at, found.unwrap_or(customer).name, words);
        found?.party.extension().cloned()
    }

    fn named(&self, name: &str) -> Option<&Channel<'_>> {
        self.channels.iter().find(|channel| channel.name == name)
    }

    /// Returns the user fields of the customer's own channel if it has any, because a record with
    /// another customer belongs to both. Otherwise returns those of all records.
    fn userfields(&self) -> Vec<String> {
        let customers = self.plan.customers.iter().map(|&i| &self.channels[i]);
        let trunk = |name: &str| self.named(name).and_then(|it| it.party.trunk());
        let root = customers.flat_map(|channel| channel.own.iter());
        let root = root.filter(|it| !it.was_called() && trunk(&it.dest).is_none());
        let root = distinct(root.map(|record| record.userfield.as_str()));
        match root.is_empty() {
            true => distinct(self.plan.own.iter().map(|record| record.userfield.as_str())),
            false => root,
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
