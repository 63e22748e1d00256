//! Puts the values of a folded call together, each with the record that decided it.

use super::group::Group;
use super::plan::{self, CallPlan, Channel};
use super::record::{Record, birth};
use super::timeline;
use crate::resolve::is_number;
use crate::unmatched::{Carried, Unmatched};
use crate::{
    DecidingEvents, Direction, Endpoints, EventTime, Extension, FinishedCall, RawNumber, UniqueId,
    is_did,
};
use std::collections::BTreeSet;
use std::time::Duration;

/// A channel's first record can be missing, as the first row of a file that was cut; so much
/// earlier it may have begun.
const BEGUN_BEFORE: Duration = Duration::from_secs(300);

/// The finished calls that these records were.
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

/// One call being put together.
struct CallBuilder<'a, 'g> {
    group: &'a Group,
    records: &'a [&'g Record],
    channels: &'a [Channel<'g>],
    plan: &'a CallPlan<'g>,
}

impl CallBuilder<'_, '_> {
    fn finish(&self, known: &[&UniqueId]) -> FinishedCall {
        let plan = self.plan;
        let main = self.main_customer();
        let customer = &self.channels[main];
        let mut why = DecidingEvents::default();
        let started = self.started(&mut why);
        self.direction(customer, started, &mut why);
        let ended = self.ended(&mut why).max(started);
        let talk = plan.talk.total.min(ended.since(started));
        let answered = plan.talk.would_answer(talk);
        self.talked(customer, ended, &mut why);
        let number = self.number(customer, &mut why);
        let employee = self.employee(customer, ended, &mut why);
        let trunk = customer.party.trunk().map(str::to_owned);
        if let Some(trunk) = &trunk {
            let words = format!("the channel belongs to {trunk}");
            why.note("trunk", started, customer.name, words);
        }
        FinishedCall {
            linkedid: plan.linkedid.clone(),
            also_known_as: self.aliases(known),
            direction: plan.direction,
            answered,
            trunk,
            number,
            shown_number: None,
            did: self.did(customer),
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
            why: why.0,
            timeline: Some(timeline::timeline(self.channels, plan)),
            unmatched: self.unmatched(),
            given: None,
        }
    }

    /// Collects, as with channel events, the prefixes of channels that carried an outside number
    /// and belong to no trunk.
    fn unmatched(&self) -> Vec<String> {
        let mut found = Unmatched::default();
        let internal = self.plan.direction == Direction::Internal;
        for channel in self.channels {
            if channel.party.extension().is_none() {
                continue;
            }
            let (number, way) = match channel.came_in() {
                true => (caller(channel).filter(|_| internal), Carried::In),
                false => (channel.dialled(), Carried::Out),
            };
            let number = number.filter(|(it, _)| way == Carried::In || it.from_dial_string);
            if let Some((number, _)) = number {
                found.note(channel.name, &number.text, way);
            }
        }
        found.prefixes()
    }

    /// Returns the channel of the customer that was connected longest, else the last.
    fn main_customer(&self) -> usize {
        let talked = |i: usize| plan::talk(self.records, self.channels, &[i]).total;
        let customers = self.plan.customers.iter().copied();
        customers.max_by_key(|&i| (talked(i), i)).unwrap_or(0)
    }

    fn direction(&self, customer: &Channel<'_>, at: EventTime, why: &mut DecidingEvents) {
        let trunk = customer.party.trunk().unwrap_or_default();
        let words = match self.plan.direction {
            Direction::Inbound => format!("came in on trunk {trunk}: its channel is in the record"),
            Direction::Outbound => format!("dialled out on trunk {trunk}: a record's destination"),
            Direction::Internal => "no trunk took part".to_owned(),
        };
        why.note("direction", at, customer.name, words);
    }

    /// The start of the first record; of a customer who came in, of those with the same id. Where
    /// the record of the first channel's beginning is missing, its unique id tells it.
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

    /// The end of the last record of the customer.
    fn ended(&self, why: &mut DecidingEvents) -> EventTime {
        let customers = self.plan.customers.iter().map(|&i| &self.channels[i]);
        let last = customers
            .flat_map(Channel::records)
            .max_by_key(|record| record.end);
        let Some(last) = last else {
            return self.group.end();
        };
        why.note(
            "durationSec",
            last.end,
            &last.channel,
            "the end of the customer's last record",
        );
        last.end
    }

    fn talked(&self, customer: &Channel<'_>, ended: EventTime, why: &mut DecidingEvents) {
        let talk = &self.plan.talk;
        let (Some((from, with)), Some(until)) = (talk.first, talk.last) else {
            let words = "no record with another party is answered";
            why.note("answered", ended, customer.name, words);
            why.note("talkTimeSec", ended, customer.name, words);
            return;
        };
        let words = "a record with the customer is ANSWERED";
        why.note("answered", from, self.channels[with].name, words);
        why.note(
            "talkTimeSec",
            until,
            customer.name,
            "the billed seconds of such records",
        );
    }

    fn number(&self, customer: &Channel<'_>, why: &mut DecidingEvents) -> Option<RawNumber> {
        let found = match self.plan.direction {
            Direction::Inbound => caller(customer),
            Direction::Outbound => customer.dialled().or_else(|| self.dialled_elsewhere()),
            Direction::Internal => None,
        };
        let at = customer.records().map(|record| record.start).min();
        let at = at.unwrap_or(self.group.arrived);
        let words = found.as_ref().map(|(_, words)| *words);
        let words = words.unwrap_or("no number was reported");
        why.note("clientPhone", at, customer.name, words);
        found.map(|(number, _)| number)
    }

    /// Returns the number that the customer dialled, as far as the dialplan has put it into a
    /// column of its own: the record's destination is the last of the steps that the dialplan took.
    fn did(&self, customer: &Channel<'_>) -> Option<String> {
        let mut dids = customer.own.iter().map(|record| &record.did);
        let did = dids.find(|did| is_did(did))?;
        (self.plan.direction == Direction::Inbound).then(|| did.clone())
    }

    /// Returns the number that was dialled first, where the records of the trunk's channel name
    /// none.
    fn dialled_elsewhere(&self) -> Option<(RawNumber, &'static str)> {
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
        let extension = |i: usize| self.channels[i].party.extension().map(|it| (i, it));
        let began = self.plan.talk.began.iter().rev();
        let mut talked = began.filter_map(|&(at, i)| extension(i).map(|(i, it)| (at, i, it)));
        let answered = self.plan.talk.is_answer();
        if let Some((at, i, extension)) = talked.next().filter(|_| answered) {
            why.note(
                "employee",
                at,
                self.channels[i].name,
                "the last to begin to talk",
            );
            return Some(extension.clone());
        }
        let (found, words) = match self.plan.direction {
            _ if answered => (None, "the customer talked with no extension"),
            Direction::Inbound => self.only_one_dialled(),
            Direction::Outbound | Direction::Internal => self.placed(),
        };
        let name = found.map_or(customer.name, |channel| channel.name);
        why.note("employee", ended, name, words);
        found.and_then(|channel| channel.party.extension().cloned())
    }

    fn only_one_dialled(&self) -> (Option<&Channel<'_>>, &'static str) {
        let own = |channel: &&Channel<'_>| {
            let is_own = |record: &&Record| self.plan.own.contains(record);
            channel.party.extension().is_some() && channel.reached.iter().any(is_own)
        };
        let mut dialled = self.channels.iter().filter(own);
        let Some(first) = dialled.next() else {
            return (None, "no extension took part");
        };
        if dialled.any(|other| other.party.extension() != first.party.extension()) {
            return (None, "several extensions were dialled, and none talked");
        }
        (Some(first), "the one extension dialled")
    }

    fn placed(&self) -> (Option<&Channel<'_>>, &'static str) {
        let first = self.plan.own.first().and_then(|record| {
            let names = [&record.channel, &record.dest];
            let mut of_record = names.iter().filter_map(|name| self.named(name));
            of_record.find(|channel| channel.party.is_real())
        });
        match first.filter(|channel| channel.party.extension().is_some()) {
            Some(channel) => (Some(channel), "placed the call"),
            None => (None, "no extension placed the call"),
        }
    }

    fn named(&self, name: &str) -> Option<&Channel<'_>> {
        self.channels.iter().find(|channel| channel.name == name)
    }

    /// All ids of the call, without those by which it or another of its calls is known.
    fn aliases(&self, known: &[&UniqueId]) -> Vec<UniqueId> {
        let own = self.plan.own.iter();
        let texts = own.flat_map(|record| [&record.uniqueid, &record.linkedid]);
        let ids: BTreeSet<UniqueId> = texts.filter_map(|id| UniqueId::new(id.as_str())).collect();
        ids.into_iter().filter(|id| !known.contains(&id)).collect()
    }

    /// Returns the user fields of the customer's own channel where it has one, for a record with
    /// another customer is of both; else those of all records.
    fn userfields(&self) -> Vec<String> {
        let customers = self.plan.customers.iter().map(|&i| &self.channels[i]);
        let trunk = |name: &str| {
            let named = self.named(name);
            named.is_some_and(|channel| channel.party.trunk().is_some())
        };
        let root = customers.flat_map(|channel| channel.own.iter());
        let root = root.filter(|it| !it.was_called() && !trunk(&it.dest));
        let root = distinct(root.map(|record| record.userfield.as_str()));
        if root.is_empty() {
            distinct(self.plan.own.iter().map(|record| record.userfield.as_str()))
        } else {
            root
        }
    }

    fn incomplete(&self) -> Option<String> {
        if self.group.dropped > 0 {
            return Some("the call had more records than are kept of one".to_owned());
        }
        let lost = self.plan.own.iter().any(|record| !record.placed);
        lost.then(|| "its local times have no zone: give --pbx-timezone".to_owned())
    }
}

/// The number of somebody who called in on this channel.
fn caller(channel: &Channel<'_>) -> Option<(RawNumber, &'static str)> {
    let sources = channel.own.iter().map(|record| record.source.as_str());
    let quoted = channel.own.iter().filter_map(|record| {
        let (_, number) = record.caller_id.rsplit_once('<')?;
        number.split('>').next()
    });
    let mut texts = sources.chain(quoted).filter(|text| is_number(text));
    texts
        .next()
        .map(|text| (RawNumber::new(text, false), "the caller's number"))
}

fn distinct<'t>(texts: impl Iterator<Item = &'t str>) -> Vec<String> {
    let mut seen: Vec<String> = Vec::new();
    for text in texts.filter(|text| !text.is_empty()) {
        if !seen.iter().any(|known| known == text) {
            seen.push(text.to_owned());
        }
    }
    seen
}
