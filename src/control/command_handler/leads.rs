//! What is asked about leads and numbers.

use super::{CommandHandler, ReplySender, Stop};
use callbridge_leads::directory::{Finding, Holder, Standing};
use callbridge_mapping::people::LeadAnswer;
use callbridge_model::{Phone, number};
use callbridge_spool::tables;
use serde_json::{Value, json};

/// Numbers read at a time.
const PHONES_PAGE: usize = 500;

impl CommandHandler {
    pub(super) async fn lead_missing(&self, line: &mut ReplySender) -> Result<(), Stop> {
        let mut after = None;
        loop {
            let from = after.clone();
            let page = self.spool.read(move |store| {
                let page =
                    tables::parked::parked_phones(store, from.as_ref(), PHONES_PAGE)?.into_iter();
                let known = page
                    .map(|parked| Ok((tables::directory::holders(store, &parked.phone)?, parked)));
                known.collect::<Result<Vec<_>, _>>()
            });
            let page = page.await?;
            let Some((_, last)) = page.last() else {
                return Ok(());
            };
            after = Some(last.phone.clone());
            for (found, parked) in &page {
                let item = json!({
                    "phone": parked.phone, "calls": parked.calls, "lastCallAt": parked.last,
                    "trunk": parked.trunk, "pbx": parked.pbx, "known": holders(found),
                });
                line.item(item).await?;
            }
        }
    }

    pub(super) async fn lead_list(&self, line: &mut ReplySender) -> Result<(), Stop> {
        let mut after = None;
        loop {
            let from = after.clone();
            let read = move |store: &callbridge_spool::Store| {
                tables::directory::directory(store, from.as_ref(), PHONES_PAGE)
            };
            let page = self.spool.read(read).await?;
            let Some((last, _)) = page.last() else {
                return Ok(());
            };
            after = Some(last.clone());
            for (phone, found) in &page {
                let leads = found.leads();
                if leads.is_empty() {
                    continue;
                }
                let has = found
                    .holders
                    .iter()
                    .filter(|it| it.standing == Standing::Has);
                let learned = has.map(|holder| holder.since).max();
                line.item(json!({"phone": phone, "leads": leads, "learnedAt": learned}))
                    .await?;
            }
        }
    }

    pub(super) async fn lead_check(&self, phone: &str, line: &mut ReplySender) -> Result<(), Stop> {
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
        // Nobody says how trunks look numbers up: the directory is there all the same.
        let Some(number) = number::e164(phone, self.rules.country) else {
            return Ok(line.item(no_number(None)).await?);
        };
        let of = number.clone();
        let found = self
            .spool
            .read(move |store| tables::directory::holders(store, &of))
            .await?;
        if found.holders.is_empty() {
            return Ok(());
        }
        self.say_lead(None, number, found.answer(), line).await
    }

    async fn say_lead(
        &self,
        trunk: Option<&str>,
        number: Phone,
        answer: LeadAnswer,
        line: &mut ReplySender,
    ) -> Result<(), Stop> {
        let (result, lead, why) = match answer {
            LeadAnswer::One(lead, why) => ("lead", Some(lead), why),
            LeadAnswer::None(why) => ("no_lead", None, why),
            LeadAnswer::Two(a, b, why) => ("ambiguous_lead", None, format!("{a}, {b}: {why}")),
        };
        let of = number.clone();
        let found = self
            .spool
            .read(move |store| tables::directory::holders(store, &of))
            .await?;
        let item = json!({
            "trunk": trunk, "phone": number, "leadId": lead, "result": result, "why": why,
            "known": holders(&found),
        });
        Ok(line.item(item).await?)
    }
}

fn no_number(trunk: Option<&str>) -> Value {
    let why = "no valid telephone number here: give it with + and its country, or set country= of \
               the trunk";
    json!({"trunk": trunk, "phone": null, "leadId": null, "result": "no_number", "why": why})
}

/// What the directory knows of a number.
fn holders(found: &Finding) -> Vec<Value> {
    let one = |holder: &Holder| {
        let (state, until) = match holder.standing {
            Standing::Has => ("has", None),
            Standing::Deleted(at) => ("deleted", Some(at)),
            Standing::GaveUp(at) => ("gave_up", Some(at)),
        };
        json!({
            "leadId": holder.lead, "now": holder.now, "state": state, "since": holder.since,
            "until": until, "told": holder.told.word(), "words": holder.words(),
        })
    };
    found.holders.iter().map(one).collect()
}
