//! Answers requests about leads and numbers, and about customers who wait for a callback.

use super::{Answered, CommandHandler, ReplySender};
use crate::refusal::Refusal;
use callbridge_intake::release::release_given;
use callbridge_leads::directory::{Finding, LeadProfile, Standing};
use callbridge_mapping::LeadAnswer;
use callbridge_model::{LeadId, Phone, TypedNumber, clock, number};
use callbridge_spool::{Action, LeadByHand, MissedCustomer, Op, RowId, tables};
use serde_json::{Value, json};
use std::time::Duration;

/// Numbers that are read from the spool at a time.
const PHONES_PAGE: usize = 500;

/// Maximum number of dead letters that are listed when their number gets another lead.
const RESENT_MAX: usize = 20;

impl CommandHandler {
    pub(super) async fn lead_missing(&self, line: &mut ReplySender) -> Answered {
        let mut after = None;
        loop {
            let from = after.clone();
            let read = self.spool.read(move |store| {
                let mut known = Vec::new();
                for waiting in tables::waiting::waiting_phones(store, from.as_ref(), PHONES_PAGE)? {
                    let found = tables::directory::holders(store, &waiting.phone)?;
                    known.push((found, waiting));
                }
                Ok(known)
            });
            let page = read.await?;
            let Some((_, last)) = page.last() else {
                return Ok(());
            };
            after = Some(last.phone.clone());
            for (found, waiting) in &page {
                let item = json!({
                    "phone": waiting.phone, "calls": waiting.calls, "lastCallAt": waiting.last,
                    "trunk": waiting.trunk, "pbx": waiting.pbx, "known": holders(found),
                });
                line.item(item).await?;
            }
        }
    }

    pub(super) async fn lead_list(&self, line: &mut ReplySender) -> Answered {
        let mut after = None;
        loop {
            let from = after.clone();
            let read = self.spool.read(move |store| {
                let mut known = Vec::new();
                let page = tables::directory::directory(store, from.as_ref(), PHONES_PAGE)?;
                for (phone, found) in page {
                    let profile = match found.leads()[..] {
                        [lead] => tables::directory::profile(store, lead)?,
                        _ => LeadProfile::default(),
                    };
                    known.push((phone, found, profile));
                }
                Ok(known)
            });
            let page = read.await?;
            let Some((last, ..)) = page.last() else {
                return Ok(());
            };
            after = Some(last.clone());
            for (phone, found, profile) in &page {
                let leads = found.leads();
                if leads.is_empty() {
                    continue;
                }
                let holders = found.holders.iter();
                let learned = holders
                    .filter(|holder| holder.standing == Standing::Has)
                    .map(|holder| holder.since)
                    .max();
                let item = json!({
                    "phone": phone, "leads": leads, "learnedAt": learned, "profile": profile,
                });
                line.item(item).await?;
            }
        }
    }

    /// Assigns a lead to a number, and releases the number's waiting calls at once. Returns the
    /// assignment, and how many calls were released.
    ///
    /// # Errors
    /// If `phone` is not a phone number, or the spool fails.
    pub async fn give_lead(
        &self,
        phone: &str,
        lead: LeadId,
        who: &str,
    ) -> Result<(LeadByHand, u64), Refusal> {
        let phone = self.parse_phone(phone)?;
        let now = clock::now().wall;
        let given = LeadByHand {
            phone: phone.clone(),
            lead_id: lead,
            at: now.floor_seconds(),
            who: who.to_owned(),
        };
        self.spool.write(vec![Op::Give(given.clone())]).await?;
        // Without trunks, it is not known what a waiting call needs. The daemon checks all waiting
        // calls when it starts.
        let mut left = 0;
        if !self.rules.trunks.is_empty() {
            let action = Action {
                at: now,
                who: who.to_owned(),
                action: format!("lead give {lead}"),
            };
            let people = self.people();
            left = release_given(&self.spool, &phone, &self.rules, &people, &action).await?;
        }
        Ok((given, left))
    }

    /// Returns `true` if all leads of the CRM have been read and this one isn't among them. Returns
    /// `false` without `--lead-directory`.
    ///
    /// # Errors
    /// If the spool fails.
    pub async fn is_unknown_lead(&self, lead: LeadId) -> Result<bool, Refusal> {
        let read = self.spool.read(move |store| {
            let is_read = tables::backfill::has_read_all_leads(store)?;
            Ok(is_read && !tables::directory::has_lead(store, lead)?)
        });
        Ok(read.await?)
    }

    /// Returns up to 20 of the number's newest dead letters that the CRM refused, since
    /// another lead may be all they need. Returns `true` too if there are more.
    ///
    /// # Errors
    /// If the spool fails.
    pub async fn refused_calls(&self, phone: Phone) -> Result<(Vec<RowId>, bool), Refusal> {
        let read = (self.spool)
            .read(move |store| tables::letters::refused_calls(store, &phone, RESENT_MAX + 1));
        let mut ids = read.await?;
        let has_more = ids.len() > RESENT_MAX;
        ids.truncate(RESENT_MAX);
        Ok((ids, has_more))
    }

    pub(super) async fn lead_give(
        &self,
        phone: &str,
        lead: LeadId,
        yes: bool,
        line: &mut ReplySender,
    ) -> Answered {
        if !yes && self.is_unknown_lead(lead).await? {
            let message = format!(
                "Lead {lead} isn't among the CRM's leads. Assign it anyway? Then add --yes"
            );
            return Err(Refusal::usage(message).into());
        }
        let (given, left) = self.give_lead(phone, lead, &line.who).await?;
        let (dead, has_more) = self.refused_calls(given.phone.clone()).await?;
        let mut item = json!(given);
        item["left"] = json!(left);
        item["deadLetters"] = json!(dead);
        item["moreDeadLetters"] = json!(has_more);
        line.item(item).await
    }

    /// Removes the lead that a person assigned to a number, and returns the assignment. Calls that
    /// were sent stay unchanged.
    ///
    /// # Errors
    /// If `phone` is not a phone number, the number has no assigned lead, or the spool fails.
    pub async fn take_lead(&self, phone: &str) -> Result<LeadByHand, Refusal> {
        let phone = self.parse_phone(phone)?;
        let number = phone.clone();
        let read = self
            .spool
            .read(move |store| tables::given::assigned_lead(store, &number));
        let Some(given) = read.await? else {
            let message = "has no assigned lead: `callbridge lead given` lists those that have one";
            return Err(Refusal::new(65, format!("{} {message}", phone.as_str())));
        };
        self.spool.write(vec![Op::Take(phone)]).await?;
        Ok(given)
    }

    /// Returns the numbers to which a person has assigned a lead.
    ///
    /// # Errors
    /// If the spool fails.
    pub async fn assigned_leads(&self) -> Result<Vec<LeadByHand>, Refusal> {
        let mut all: Vec<LeadByHand> = Vec::new();
        loop {
            let from = all.last().map(|last| last.phone.clone());
            let read = self
                .spool
                .read(move |store| tables::given::given_leads(store, from.as_ref(), PHONES_PAGE));
            let page = read.await?;
            if page.is_empty() {
                return Ok(all);
            }
            all.extend(page);
        }
    }

    /// Parses a number as people type it.
    fn parse_phone(&self, phone: &str) -> Result<Phone, Refusal> {
        TypedNumber::parse_full(phone, self.countries())
            .map_err(|message| Refusal::new(65, message))
    }

    /// Returns the customers who wait for a callback, longest wait first. `within_sec` limits them
    /// to customers who called within this many seconds before now.
    ///
    /// # Errors
    /// If the spool fails.
    pub async fn missed_customers(
        &self,
        within_sec: Option<u64>,
    ) -> Result<Vec<MissedCustomer>, Refusal> {
        let now = clock::now().wall;
        let since =
            within_sec.map(|within| now.minus(Duration::from_secs(within)).floor_seconds().get());
        let mut all = Vec::new();
        let mut after: Option<MissedCustomer> = None;
        loop {
            let from = after.clone();
            let read = self.spool.read(move |store| {
                let mut customers = Vec::new();
                for customer in
                    tables::missed::missed_waiting(store, since, from.as_ref(), PHONES_PAGE)?
                {
                    let given = tables::given::assigned_lead(store, &customer.phone)?;
                    customers.push((customer, given.map(|assigned| assigned.lead_id)));
                }
                Ok(customers)
            });
            let page = read.await?;
            let Some((last, _)) = page.last() else {
                return Ok(all);
            };
            after = Some(last.clone());
            all.extend(page.into_iter().map(|(mut customer, given)| {
                customer.lead_id = self.find_lead(&customer, given);
                customer
            }));
        }
    }

    /// Returns the lead that the rules find for the customer's number now. If they find no single
    /// lead, returns `given` (assigned by a person) or the stored lead. Without a daemon, there are
    /// no rules.
    fn find_lead(&self, customer: &MissedCustomer, given: Option<LeadId>) -> Option<LeadId> {
        let trunk = self.rules.trunks.find(&customer.pbx, &customer.trunk);
        match trunk.map(|trunk| self.people().lead_of_phone(&customer.phone, trunk)) {
            Some(LeadAnswer::One(lead, _)) => Some(lead),
            Some(LeadAnswer::Two(..) | LeadAnswer::None(_)) | None => given.or(customer.lead_id),
        }
    }

    pub(super) async fn lead_check(&self, phone: &str, line: &mut ReplySender) -> Answered {
        let people = self.people();
        for trunk in self.rules.trunks.iter() {
            let Some(number) = number::e164(phone, trunk.country) else {
                line.item(no_number(Some(&trunk.name))).await?;
                continue;
            };
            let answer = people.lead_of_phone(&number, trunk);
            self.say_lead(Some(&trunk.name), number, answer, line)
                .await?;
        }
        if !self.rules.trunks.is_empty() {
            return Ok(());
        }
        // Without trunks, it is not known how they find leads. Assigned leads and the directory can
        // still be used.
        let Some(number) = number::e164(phone, self.rules.country) else {
            return line.item(no_number(None)).await;
        };
        let of = number.clone();
        let read = self.spool.read(move |store| {
            let given = tables::given::assigned_lead(store, &of)?;
            Ok((given, tables::directory::holders(store, &of)?))
        });
        let answer = match read.await? {
            (Some(given), _) => LeadAnswer::One(given.lead_id, given.message()),
            (None, found) if found.holders.is_empty() => return Ok(()),
            (None, found) => found.answer(),
        };
        self.say_lead(None, number, answer, line).await
    }

    async fn say_lead(
        &self,
        trunk: Option<&str>,
        number: Phone,
        answer: LeadAnswer,
        line: &mut ReplySender,
    ) -> Answered {
        let (result, lead, why) = match answer {
            LeadAnswer::One(lead, why) => ("lead", Some(lead), why),
            LeadAnswer::None(why) => ("no_lead", None, why),
            LeadAnswer::Two(a, b, why) => ("ambiguous_lead", None, format!("{a}, {b}: {why}")),
        };
        let of = number.clone();
        let read = self.spool.read(move |store| {
            let profile = match lead {
                Some(lead) => tables::directory::profile(store, lead)?,
                None => LeadProfile::default(),
            };
            Ok((tables::directory::holders(store, &of)?, profile))
        });
        let (found, profile) = read.await?;
        let item = json!({
            "trunk": trunk, "phone": number, "leadId": lead, "result": result, "reason": why,
            "known": holders(&found), "profile": profile,
        });
        line.item(item).await
    }
}

fn no_number(trunk: Option<&str>) -> Value {
    let why = "not a valid telephone number here: give it with + and its country code, or set \
               country= of the trunk";
    json!({"trunk": trunk, "phone": null, "leadId": null, "result": "no_number", "reason": why})
}

/// Returns, as JSON, the leads that have or had a number, according to the directory.
fn holders(found: &Finding) -> Vec<Value> {
    let leads = found.holders.iter().map(|holder| {
        let (state, until) = match holder.standing {
            Standing::Has => ("has", None),
            Standing::Deleted(at) => ("deleted", Some(at)),
            Standing::GaveUp(at) => ("gave_up", Some(at)),
        };
        json!({
            "leadId": holder.lead, "now": holder.now, "state": state, "since": holder.since,
            "until": until, "source": holder.source.word(), "message": holder.text(),
        })
    });
    leads.collect()
}
