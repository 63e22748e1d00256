//! The directory of leads. It has one row for each phone of each slot of a lead.

use super::waiting::WAITING_BY_PHONE;
use crate::value::values;
use crate::{Db, Error, Store, count};
use callbridge_call::EpochSeconds;
use callbridge_leads::directory::entry::{Entry, Fact, Life};
use callbridge_leads::directory::find::find;
use callbridge_leads::directory::ledger::{self, LeadPhone, Learned, Ledger};
use callbridge_leads::directory::merges::root;
use callbridge_leads::directory::profile::{Known, LeadProfile, Name, ProfileFacts, Responsible};
use callbridge_leads::directory::{ChangeKind, Finding, LeadNews, Slot};
use callbridge_model::{EmployeeId, LeadId, Phone};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of phones whose calls can leave. They are kept until they are taken. Beyond this
/// number, all calls are checked.
const AWAITED_MAX: usize = 10_000;
/// Rows that are read of one number. Further leads are not distinguished.
const LEAD_PHONES_MAX: usize = 5_000;

/// Counter of news that contained something not known before.
pub(crate) const LEARNED: &str = "learned";

/// Every row of a number, with its lead.
const LEAD_PHONES: &str = "SELECT true AS life, p.lead, p.slot, p.held, p.told, p.gone,
           l.living, l.whole, l.deleted, l.merged, l.merged_into
    FROM directory_phones p LEFT JOIN directory_leads l ON l.lead = p.lead
    WHERE p.phone = ?1 ORDER BY p.lead LIMIT ?2";
const LIFE: &str =
    "SELECT living, whole, deleted, merged, merged_into FROM directory_leads WHERE lead = ?1";

const LEAD: &str = "SELECT true AS life, living, whole, deleted, merged, merged_into,
           name_at, name_rank, name, stage_at, stage_rank, stage,
           responsible_at, responsible_rank, responsible_name, responsible
    FROM directory_leads WHERE lead = ?1";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectorySize {
    /// Numbers that some lead has, or had when it ended.
    pub phones: u64,
    /// Leads that are neither merged nor deleted.
    pub leads: u64,
}

/// The rows of an entry, by the phone's digits and the slot.
type Rows = BTreeMap<(i64, i64), PhoneRow>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PhoneRow {
    held: Option<i64>,
    source: Option<i64>,
    gone: Option<i64>,
    /// Name of the slot's contact, stored with the first of its phones only.
    name: Option<Known<Name>>,
}

/// Digits that mean no phone, in the row of an empty slot.
const EMPTY: i64 = 0;

fn rows_of(entry: &Entry) -> Rows {
    let mut rows = Rows::new();
    for (slot, fact) in &entry.slots {
        let digits = fact.phones.iter().map(Phone::digits);
        let none = fact.phones.is_empty().then_some(EMPTY);
        let mut name = fact.name.clone();
        for digits in digits.chain(none) {
            let row = rows.entry((digits, slot.0)).or_default();
            row.held = Some(fact.at.get());
            row.source = Some(fact.source as i64);
            row.name = name.take();
        }
    }
    for ((slot, phone), at) in &entry.gone {
        let row = rows.entry((phone.digits(), slot.0)).or_default();
        row.gone = Some(at.get());
    }
    rows
}

fn take_row(entry: &mut Entry, digits: i64, slot: Slot, row: PhoneRow) {
    let phone = Phone::from_digits(digits);
    if let (Some(at), Some(source)) = (row.held, row.source.and_then(ChangeKind::from_repr)) {
        let fact = entry.slots.entry(slot).or_insert_with(|| Fact {
            at: EpochSeconds::new(at),
            source,
            phones: BTreeSet::new(),
            name: None,
        });
        fact.name = fact.name.take().max(row.name);
        fact.phones.extend(phone.clone());
    }
    if let (Some(at), Some(phone)) = (row.gone, phone) {
        entry.gone.insert((slot, phone), EpochSeconds::new(at));
    }
}

/// The columns of a name: since when it is known, its rank, and its text.
type NameColumns = (EpochSeconds, Option<u8>, Option<String>);

/// Columns of a lead in the order of [`LEAD`]. Each fact is read from its first column on.
#[derive(Default, Deserialize)]
struct LeadColumns {
    life: Life,
    name_at: Option<NameColumns>,
    stage_at: Option<NameColumns>,
    responsible_at: Option<NameColumns>,
    responsible: Option<EmployeeId>,
}

impl LeadColumns {
    fn profile(self) -> ProfileFacts {
        let responsible = |columns| {
            let Known {
                at,
                rank,
                fact: name,
            } = known(columns);
            let fact = self.responsible.map(|id| Responsible { id, name });
            Known { at, rank, fact }
        };
        ProfileFacts {
            name: self.name_at.map(known),
            stage: self.stage_at.map(known),
            responsible: self.responsible_at.map(responsible),
        }
    }
}

/// Columns of a number at a lead in the order of [`LEAD_PHONES`].
#[derive(Deserialize)]
struct LeadPhoneColumns {
    lead: i64,
    slot: i64,
    held: Option<EpochSeconds>,
    told: Option<i64>,
    gone: Option<EpochSeconds>,
    life: Life,
}

fn known((at, rank, text): NameColumns) -> Known<Name> {
    let (rank, fact) = (rank.unwrap_or(0), text.as_deref().and_then(Name::stored));
    Known { at, rank, fact }
}

/// Stores news of a lead, and returns whether anything was new. Calls that can leave because of it
/// are remembered for [`Store::take_awaited`].
pub(super) fn take_in(store: &mut Store, news: &LeadNews) -> Result<bool, Error> {
    let phones = match ledger::learn::<Db>(store, news)? {
        Learned::Nothing => return Ok(false),
        Learned::Many => None,
        Learned::Phones(phones) => Some(phones),
    };
    store.tally.count(LEARNED, 1);
    let mut waiting = BTreeSet::new();
    for phone in phones.iter().flatten() {
        if store.exists(WAITING_BY_PHONE, [phone.as_str()])? {
            waiting.insert(phone.clone());
        }
    }
    let mut awaited = store.awaited.borrow_mut();
    awaited.phones.extend(waiting);
    if phones.is_none() || awaited.phones.len() > AWAITED_MAX {
        awaited.phones.clear();
        awaited.all = true;
    }
    Ok(true)
}

/// Returns the lead that a merged one ended in, after any number of merges. `None` for a lead that
/// was not merged, or whose survivor was deleted.
pub fn survivor(db: &Db, lead: LeadId) -> Result<Option<LeadId>, Error> {
    let end = root(lead, |lead| Ok::<_, Error>(db.life(lead)?.merged))?;
    let gone = end.lead == lead || db.life(end.lead)?.is_deleted();
    Ok((!gone).then_some(end.lead))
}

/// Looks up the leads that have a number, and those that had it.
pub fn holders(db: &Db, phone: &Phone) -> Result<Finding, Error> {
    find(db, phone)
}

/// Reads the displayed values of a lead, or of the one it was merged into.
pub fn profile(db: &Db, lead: LeadId) -> Result<LeadProfile, Error> {
    let end = root(lead, |lead| Ok::<_, Error>(db.life(lead)?.merged))?;
    Ok(db.entry(end.lead)?.profile())
}

/// Returns the employees who are responsible for leads, with the number of their leads. Reads all
/// leads.
pub fn responsible_employees(db: &Db) -> Result<Vec<(EmployeeId, u64)>, Error> {
    let text = "SELECT responsible, count(*) FROM directory_leads
         WHERE responsible IS NOT NULL GROUP BY responsible";
    db.query_known(text, (), |(id, leads)| Some((EmployeeId::new(id)?, leads)))
}

/// Returns the numbers of the directory after `after`, in numerical order, with their leads.
pub fn directory(
    db: &Db,
    after: Option<&Phone>,
    limit: usize,
) -> Result<Vec<(Phone, Finding)>, Error> {
    let after = after.map_or(EMPTY, Phone::digits);
    let text = "SELECT DISTINCT phone FROM directory_phones
         WHERE phone > ?1 AND held IS NOT NULL ORDER BY phone LIMIT ?2";
    let phones = db.query_known(text, (after, count(limit)), Phone::from_digits)?;
    let holders = |phone: Phone| Ok((phone.clone(), holders(db, &phone)?));
    phones.into_iter().map(holders).collect()
}

pub fn directory_size(db: &Db) -> Result<DirectorySize, Error> {
    let size = |name: &str| {
        let text = "SELECT count FROM directory_size WHERE name = ?1";
        Ok(db.query_first(text, [name])?.unwrap_or(0))
    };
    Ok(DirectorySize {
        phones: size("phones")?,
        leads: size("leads")?,
    })
}

fn grew(db: &Db, name: &str, by: i64) -> Result<(), Error> {
    if by != 0 {
        let text = "INSERT INTO directory_size (name, count) VALUES (?1, ?2)
             ON CONFLICT (name) DO UPDATE SET count = directory_size.count + ?2";
        db.run(text, (name, by))?;
    }
    Ok(())
}

fn is_held(db: &Db, digits: i64) -> Result<bool, Error> {
    let text = "SELECT 1 FROM directory_phones WHERE phone = ?1 AND held IS NOT NULL";
    db.exists(text, [digits])
}

fn put_phones(db: &Db, lead: i64, old: &Rows, new: &Rows) -> Result<(), Error> {
    let other = |key: &&(i64, i64)| old.get(*key) != new.get(*key);
    let changed: BTreeSet<(i64, i64)> = old
        .keys()
        .chain(new.keys())
        .filter(other)
        .copied()
        .collect();
    let held = |rows: &Rows| -> BTreeSet<i64> {
        let held = rows.iter().filter(|(_, row)| row.held.is_some());
        let phones = held.map(|((digits, _), _)| *digits);
        phones.filter(|digits| *digits != EMPTY).collect()
    };
    // Other holders of a number only matter if this lead starts or stops holding it.
    let (before, after) = (held(old), held(new));
    let unheld = |phones: &mut dyn Iterator<Item = &i64>| -> Result<i64, Error> {
        let unheld = phones.map(|digits| Ok(i64::from(!is_held(db, *digits)?)));
        unheld.sum()
    };
    let came = unheld(&mut after.difference(&before))?;
    for (digits, slot) in &changed {
        match new.get(&(*digits, *slot)) {
            Some(row) => db.run(
                "INSERT INTO directory_phones VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
                 ON CONFLICT (phone, lead, slot) DO UPDATE SET held = ?4, told = ?5, gone = ?6,
                     name_at = ?7, name_rank = ?8, name = ?9",
                (
                    digits,
                    lead,
                    slot,
                    row.held,
                    row.source,
                    row.gone,
                    row.name.as_ref().map(|it| it.at.get()),
                    row.name.as_ref().map(|it| it.rank),
                    text(row.name.as_ref()),
                ),
            )?,
            None => db.run(
                "DELETE FROM directory_phones WHERE phone = ?1 AND lead = ?2 AND slot = ?3",
                (digits, lead, slot),
            )?,
        };
    }
    let went = unheld(&mut before.difference(&after))?;
    grew(db, "phones", came - went)
}

fn text(name: Option<&Known<Name>>) -> Option<&str> {
    name?.fact.as_ref().map(Name::as_str)
}

fn put_lead(db: &Db, lead: i64, entry: &Entry) -> Result<(), Error> {
    let seconds = |at: Option<EpochSeconds>| at.map(EpochSeconds::get);
    let (life, profile) = (&entry.life, &entry.profile);
    let (name, stage) = (profile.name.as_ref(), profile.stage.as_ref());
    let charge = profile.responsible.as_ref();
    let who = charge.and_then(|it| it.fact.as_ref());
    let insert = "INSERT INTO directory_leads (lead, living, whole, deleted, merged, merged_into,
             name_at, name_rank, name, stage_at, stage_rank, stage, responsible_at,
             responsible_rank, responsible_name, responsible)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)
         ON CONFLICT (lead) DO UPDATE SET living = excluded.living, whole = excluded.whole,
             deleted = excluded.deleted, merged = excluded.merged,
             merged_into = excluded.merged_into, name_at = excluded.name_at,
             name_rank = excluded.name_rank, name = excluded.name, stage_at = excluded.stage_at,
             stage_rank = excluded.stage_rank, stage = excluded.stage,
             responsible_at = excluded.responsible_at,
             responsible_rank = excluded.responsible_rank,
             responsible_name = excluded.responsible_name, responsible = excluded.responsible";
    let values = values![
        lead,
        seconds(life.living),
        seconds(life.whole),
        seconds(life.deleted),
        seconds(life.merged.map(|(at, _)| at)),
        life.merged.map(|(_, into)| into.get()),
        name.map(|it| it.at.get()),
        name.map(|it| it.rank),
        text(name),
        stage.map(|it| it.at.get()),
        stage.map(|it| it.rank),
        text(stage),
        charge.map(|it| it.at.get()),
        charge.map(|it| it.rank),
        who.and_then(|it| it.name.as_ref()).map(Name::as_str),
        who.map(|it| it.id.get()),
    ];
    db.run(insert, values)
}

fn lives(life: &Life) -> i64 {
    i64::from(life.living.is_some() && !life.is_deleted() && life.merged.is_none())
}

/// Lets the pure functions of `callbridge-leads` read the directory.
impl Ledger for Db {
    type Error = Error;

    fn entry(&self, lead: LeadId) -> Result<Entry, Error> {
        let lead = lead.get();
        let found: LeadColumns = self.query_first(LEAD, [lead])?.unwrap_or_default();
        let mut entry = Entry {
            life: found.life,
            profile: found.profile(),
            ..Entry::default()
        };
        let text = "SELECT phone, slot, held, told, gone, name_at, name_rank, name
             FROM directory_phones WHERE lead = ?1";
        for (digits, slot, held, source, gone, name) in self.query_all(text, [lead])? {
            let name = Option::map(name, known);
            let row = PhoneRow {
                held,
                source,
                gone,
                name,
            };
            take_row(&mut entry, digits, Slot(slot), row);
        }
        Ok(entry)
    }

    fn put(&self, lead: LeadId, old: &Entry, new: &Entry) -> Result<(), Error> {
        put_phones(self, lead.get(), &rows_of(old), &rows_of(new))?;
        if (old.life, &old.profile) != (new.life, &new.profile) {
            put_lead(self, lead.get(), new)?;
            grew(self, "leads", lives(&new.life) - lives(&old.life))?;
        }
        Ok(())
    }

    fn merged_into(&self, lead: LeadId, limit: usize) -> Result<Vec<LeadId>, Error> {
        let text = "SELECT lead FROM directory_leads WHERE merged_into = ?1 LIMIT ?2";
        self.query_known(text, (lead.get(), count(limit)), LeadId::new)
    }

    fn lead_phones(&self, phone: &Phone) -> Result<Vec<LeadPhone>, Error> {
        let values = (phone.digits(), count(LEAD_PHONES_MAX));
        self.query_known(LEAD_PHONES, values, |it: LeadPhoneColumns| {
            Some(LeadPhone {
                lead: LeadId::new(it.lead)?,
                slot: Slot(it.slot),
                held: it.held.zip(it.told.and_then(ChangeKind::from_repr)),
                gone: it.gone,
                life: it.life,
            })
        })
    }

    fn life(&self, lead: LeadId) -> Result<Life, Error> {
        Ok(self.query_first(LIFE, [lead.get()])?.unwrap_or_default())
    }
}
