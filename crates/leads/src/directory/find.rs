//! Looks up a number, returning the leads that have or had it and the resulting lead, with the
//! reason as text.

use super::entry::Life;
use super::fact::ChangeKind;
use super::ledger::{LeadPhone, Ledger};
use super::merges::{Root, root};
use callbridge_call::EpochSeconds;
use callbridge_mapping::LeadAnswer;
use callbridge_model::{LeadId, Phone};
use std::collections::BTreeMap;

/// Maximum number of holders to list in a message.
const NAMED_MAX: usize = 3;

/// A lead's relation to a number. If several apply to the same lead, the first one in this list
/// counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// The lead is living and has the number.
    Has,
    /// The lead, or the lead it was merged into, was deleted at this second.
    Deleted(EpochSeconds),
    /// The lead had the number, and gave it up at this second.
    GaveUp(EpochSeconds),
}

/// A lead that has or had a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The lead that the number was reported for.
    pub lead: LeadId,
    /// The surviving lead if `lead` was merged, or else `lead` itself.
    pub now: LeadId,
    /// When it was reported that the lead has the number.
    pub since: EpochSeconds,
    /// Where the report at `since` comes from.
    pub source: ChangeKind,
    /// Whether the lead has the number, gave it up, or was deleted.
    pub standing: Standing,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finding {
    /// One entry per lead, sorted by lead.
    pub holders: Vec<Holder>,
}

impl Finding {
    /// Returns the living leads that have the number, each listed once.
    pub fn leads(&self) -> Vec<LeadId> {
        let mut leads: Vec<LeadId> = self.has().map(|holder| holder.now).collect();
        leads.sort_unstable();
        leads.dedup();
        leads
    }

    /// Returns the only lead for the number, two leads, or no lead, along with the reason.
    pub fn answer(&self) -> LeadAnswer {
        match self.leads()[..] {
            [] => {
                let had = self.holders.iter().take(NAMED_MAX).map(Holder::text);
                LeadAnswer::None(match had.collect::<Vec<_>>().join(", ").as_str() {
                    "" => "the directory knows no lead with the number".to_owned(),
                    had => format!("the directory has no current lead for the number: {had}"),
                })
            }
            [lead] => {
                let message = self.has().next().map(Holder::text).unwrap_or_default();
                LeadAnswer::One(lead, format!("the directory: {message}"))
            }
            [a, b, ..] => {
                let message =
                    format!("two leads in the CRM have this number: {a} and {b} (directory)");
                LeadAnswer::Two(a, b, message)
            }
        }
    }

    fn has(&self) -> impl Iterator<Item = &Holder> {
        (self.holders.iter()).filter(|holder| holder.standing == Standing::Has)
    }
}

impl Holder {
    /// Formats the holder, as in `lead 4001 (LEAD_CREATED, 2026-11-20T10:00:00Z), merged into
    /// 4002`.
    pub fn text(&self) -> String {
        let lead = self.lead;
        let source = self.source.word();
        let since = moment(self.since);
        let merged = if lead == self.now {
            String::new()
        } else {
            format!(", merged into {}", self.now)
        };
        let end = match self.standing {
            Standing::Has => String::new(),
            Standing::Deleted(at) => format!(", deleted {}", moment(at)),
            Standing::GaveUp(at) => format!(", had it until {}", moment(at)),
        };
        format!("lead {lead} ({source}, {since}){merged}{end}")
    }
}

/// Looks up every lead that has or had the number, following merges.
///
/// # Errors
/// Returns the ledger's error.
pub fn find<L: Ledger>(ledger: &L, phone: &Phone) -> Result<Finding, L::Error> {
    find_among(&ledger.lead_phones(phone)?, |lead| ledger.life(lead))
}

/// Like [`find`], but uses a number's rows. `life` returns the state of a lead that isn't among
/// them.
///
/// # Errors
/// Returns the error of `life`.
pub fn find_among<E>(
    rows: &[LeadPhone],
    life: impl Fn(LeadId) -> Result<Life, E>,
) -> Result<Finding, E> {
    let known: BTreeMap<LeadId, Life> = rows.iter().map(|row| (row.lead, row.life)).collect();
    // Merged leads share their contacts.
    let mut families: BTreeMap<LeadId, Vec<(Root, &LeadPhone)>> = BTreeMap::new();
    for row in rows {
        let root = root(row.lead, |lead| Ok(read_life(&life, &known, lead)?.merged))?;
        families.entry(root.lead).or_default().push((root, row));
    }
    let mut holders = Vec::new();
    for (now, family) in families {
        let end = read_life(&life, &known, now)?;
        let mut leads: BTreeMap<LeadId, Holder> = BTreeMap::new();
        for (root, row) in &family {
            let Some((since, source)) = row.held else {
                continue;
            };
            // The lead gave up the number if its contact did so later. A merged lead also gave it
            // up if all of the survivor's contacts were reported after the merge, because then only
            // the survivor's rows count.
            let gone = family
                .iter()
                .filter(|(_, other)| !row.slot.is_contact() || other.slot == row.slot)
                .filter_map(|(_, other)| other.gone)
                .max();
            let whole = end
                .whole
                .filter(|whole| root.merged.is_some_and(|merged| *whole > merged));
            let standing = match (end.deleted, gone.max(whole)) {
                (Some(at), _) if end.is_deleted() => Standing::Deleted(at),
                (_, Some(at)) if at > since => Standing::GaveUp(at),
                (_, _) => Standing::Has,
            };
            let holder = Holder {
                lead: row.lead,
                now,
                since,
                source,
                standing,
            };
            let best = leads.entry(row.lead).or_insert_with(|| holder.clone());
            if (holder.standing, best.since) < (best.standing, holder.since) {
                *best = holder;
            }
        }
        holders.extend(leads.into_values());
    }
    holders.sort_by_key(|holder| holder.lead);
    Ok(Finding { holders })
}

fn read_life<E>(
    life: &impl Fn(LeadId) -> Result<Life, E>,
    known: &BTreeMap<LeadId, Life>,
    lead: LeadId,
) -> Result<Life, E> {
    match known.get(&lead) {
        Some(life) => Ok(*life),
        None => life(lead),
    }
}

/// Formats a second in UTC, as in `2026-11-20T10:00:00Z`. A second outside the calendar is shown as
/// a number.
pub fn moment(at: EpochSeconds) -> String {
    let moment = jiff::Timestamp::from_second(at.get());
    moment.map_or_else(|_| format!("{at} s"), |moment| moment.to_string())
}
