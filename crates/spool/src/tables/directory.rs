//! The lead directory, with one row for each phone in each slot (contact) of a lead.

use super::given;
use super::waiting::WAITING_BY_PHONE;
use crate::db::Asked;
use crate::value::values;
use crate::{Db, Error, LeadByHand, Store, count};
use callbridge_call::EpochSeconds;
use callbridge_leads::directory::entry::{Entry, Fact, Life};
use callbridge_leads::directory::find::{find, find_among};
use callbridge_leads::directory::ledger::{self, LeadPhone, Learned, Ledger};
use callbridge_leads::directory::merges::root;
use callbridge_leads::directory::profile::{Known, LeadProfile, Name, ProfileFacts, Responsible};
use callbridge_leads::directory::{ChangeKind, Finding, LeadNews, Slot};
use callbridge_model::{EmployeeId, LeadId, Phone};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of phones in [`Store::awaited`](crate::Store). Once there are more, all waiting
/// calls are checked instead.
const AWAITED_MAX: usize = 10_000;
/// Maximum number of rows read for one phone number. Any further leads with that number are
/// ignored.
const LEAD_PHONES_MAX: usize = 5_000;

/// How far chains of merges are followed for all numbers at once. Whatever is left of longer chains
/// is followed separately for each number.
const MERGES_MAX: usize = 16;

/// Name of the counter for lead news that contained a new fact.
pub(crate) const LEARNED: &str = "learned";

/// Query for all rows of a phone number, along with the state of each lead.
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
    /// Number of phone numbers that belong to a lead, or did until it was deleted or merged.
    pub phones: u64,
    /// Number of leads that have been neither merged nor deleted.
    pub leads: u64,
}

/// A lead's phone rows, by the phone's digits and the slot.
type Rows = BTreeMap<(i64, i64), PhoneRow>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PhoneRow {
    held: Option<i64>,
    source: Option<i64>,
    gone: Option<i64>,
    /// The name of the slot's contact, stored only with the contact's first phone.
    name: Option<Known<Name>>,
}

/// Takes the place of the phone's digits in the row for a slot without phones.
const EMPTY: i64 = 0;

fn rows_of(entry: &Entry) -> Rows {
    let mut rows = Rows::new();
    for (slot, fact) in &entry.slots {
        let mut phones: Vec<i64> = fact.phones.iter().map(Phone::digits).collect();
        if phones.is_empty() {
            phones.push(EMPTY);
        }
        let mut name = fact.name.clone();
        for digits in phones {
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

/// The columns of a name: when it was reported, its rank within that second, and the text.
type NameColumns = (EpochSeconds, Option<u8>, Option<String>);

/// The columns of a lead, in the order of [`LEAD`]. Each field is read from the column with the
/// same name. Tuples also take the columns that follow it.
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
        let employee = self.responsible;
        ProfileFacts {
            name: self.name_at.map(known_name),
            stage: self.stage_at.map(known_name),
            responsible: self
                .responsible_at
                .map(|columns| known_responsible(columns, employee)),
        }
    }
}

/// The columns of a lead's phone number, in the order of [`LEAD_PHONES`].
#[derive(Deserialize)]
struct LeadPhoneColumns {
    lead: i64,
    slot: i64,
    held: Option<EpochSeconds>,
    told: Option<i64>,
    gone: Option<EpochSeconds>,
    life: Life,
}

impl LeadPhoneColumns {
    /// Converts the row, returning `None` if no version of callbridge could have written it.
    fn lead_phone(self) -> Option<LeadPhone> {
        Some(LeadPhone {
            lead: LeadId::new(self.lead)?,
            slot: Slot(self.slot),
            held: self.held.zip(self.told.and_then(ChangeKind::from_repr)),
            gone: self.gone,
            life: self.life,
        })
    }
}

fn known_name((at, rank, text): NameColumns) -> Known<Name> {
    Known {
        at,
        rank: rank.unwrap_or(0),
        fact: text.as_deref().and_then(Name::from_stored),
    }
}

fn known_responsible(columns: NameColumns, employee: Option<EmployeeId>) -> Known<Responsible> {
    let name = known_name(columns);
    Known {
        at: name.at,
        rank: name.rank,
        fact: employee.map(|id| Responsible {
            id,
            name: name.fact,
        }),
    }
}

/// Stores news about a lead, and returns `true` if it contained a new fact. If this could release
/// the waiting calls of a phone number, that number is remembered for [`Store::take_awaited`].
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

/// Follows any number of merges to the lead that survived, returning `None` if this lead wasn't
/// merged or the survivor was deleted.
pub fn survivor(db: &Db, lead: LeadId) -> Result<Option<LeadId>, Error> {
    let end = root(lead, |lead| Ok::<_, Error>(db.life(lead)?.merged))?;
    if end.lead == lead || db.life(end.lead)?.is_deleted() {
        return Ok(None);
    }
    Ok(Some(end.lead))
}

/// Returns `true` if the CRM has reported this lead and hasn't reported its deletion.
pub fn has_lead(db: &Db, lead: LeadId) -> Result<bool, Error> {
    let text = "SELECT 1 FROM directory_leads WHERE lead = ?1 AND deleted IS NULL";
    db.exists(text, [lead.get()])
}

/// Looks up the leads that have or once had a phone number.
pub fn holders(db: &Db, phone: &Phone) -> Result<Finding, Error> {
    find(db, phone)
}

/// For each number, looks up the leads that have or once had it, along with the lead that a user
/// has assigned to it.
///
/// With PostgreSQL, the number of round trips depends on the longest chain of merges, not on how
/// many phones there are.
pub fn leads_of_phones(
    db: &Db,
    phones: &[Phone],
) -> Result<Vec<(Finding, Option<LeadByHand>)>, Error> {
    let mut asked = Vec::with_capacity(phones.len());
    for phone in phones {
        let rows = ask_lead_phones(db, phone)?;
        asked.push((rows, given::ask_assigned_lead(db, phone)?));
    }
    let mut read = Vec::with_capacity(phones.len());
    for (rows, assigned) in asked {
        let rows = rows.all(db)?.into_iter();
        let rows: Vec<LeadPhone> = rows.filter_map(LeadPhoneColumns::lead_phone).collect();
        read.push((rows, given::read_assigned_lead(db, assigned)?));
    }
    let lives = lives_of_survivors(db, read.iter().flat_map(|(rows, _)| rows))?;
    let mut found = Vec::with_capacity(phones.len());
    for (rows, assigned) in read {
        let finding = find_among(&rows, |lead| match lives.get(&lead) {
            Some(life) => Ok(*life),
            None => db.life(lead),
        });
        found.push((finding?, assigned));
    }
    Ok(found)
}

fn ask_lead_phones(db: &Db, phone: &Phone) -> Result<Asked<LeadPhoneColumns>, Error> {
    db.ask(LEAD_PHONES, (phone.digits(), count(LEAD_PHONES_MAX)))
}

/// Returns the states of the leads in these rows, and of the leads they were merged into.
fn lives_of_survivors<'a>(
    db: &Db,
    rows: impl Iterator<Item = &'a LeadPhone>,
) -> Result<BTreeMap<LeadId, Life>, Error> {
    let mut lives: BTreeMap<LeadId, Life> = rows.map(|row| (row.lead, row.life)).collect();
    for _ in 0..MERGES_MAX {
        let merged = lives.values().filter_map(|life| Some(life.merged?.1));
        let unknown: BTreeSet<LeadId> = merged.filter(|lead| !lives.contains_key(lead)).collect();
        if unknown.is_empty() {
            break;
        }
        let mut asked = Vec::with_capacity(unknown.len());
        for lead in unknown {
            asked.push((lead, db.ask::<Life>(LIFE, [lead.get()])?));
        }
        for (lead, life) in asked {
            lives.insert(lead, life.first(db)?.unwrap_or_default());
        }
    }
    Ok(lives)
}

/// Reads a lead's displayed values, or those of the surviving lead if it was merged.
pub fn profile(db: &Db, lead: LeadId) -> Result<LeadProfile, Error> {
    let end = root(lead, |lead| Ok::<_, Error>(db.life(lead)?.merged))?;
    Ok(db.entry(end.lead)?.profile())
}

/// Returns the employees who are responsible for leads, along with how many leads each of them has.
/// This reads every lead.
pub fn responsible_employees(db: &Db) -> Result<Vec<(EmployeeId, u64)>, Error> {
    let text = "SELECT responsible, count(*) FROM directory_leads
         WHERE responsible IS NOT NULL GROUP BY responsible";
    db.query_known(text, (), |(id, leads)| Some((EmployeeId::new(id)?, leads)))
}

/// Returns up to `limit` of the directory's phone numbers that follow `after`, in numerical order
/// and with their leads.
pub fn directory(
    db: &Db,
    after: Option<&Phone>,
    limit: usize,
) -> Result<Vec<(Phone, Finding)>, Error> {
    let after = after.map_or(EMPTY, Phone::digits);
    let text = "SELECT DISTINCT phone FROM directory_phones
         WHERE phone > ?1 AND held IS NOT NULL ORDER BY phone LIMIT ?2";
    let phones = db.query_known(text, (after, count(limit)), Phone::from_digits)?;
    let mut found = Vec::with_capacity(phones.len());
    for phone in phones {
        let finding = holders(db, &phone)?;
        found.push((phone, finding));
    }
    Ok(found)
}

pub fn directory_size(db: &Db) -> Result<DirectorySize, Error> {
    Ok(DirectorySize {
        phones: stored_size(db, "phones")?,
        leads: stored_size(db, "leads")?,
    })
}

fn stored_size(db: &Db, name: &str) -> Result<u64, Error> {
    let text = "SELECT count FROM directory_size WHERE name = ?1";
    Ok(db.query_first(text, [name])?.unwrap_or(0))
}

fn change_size(db: &Db, name: &str, by: i64) -> Result<(), Error> {
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
    let changed: BTreeSet<(i64, i64)> = old
        .keys()
        .chain(new.keys())
        .filter(|key| old.get(*key) != new.get(*key))
        .copied()
        .collect();
    // Whether anyone else holds a number only matters when this lead starts or stops holding it.
    let before = held_phones(old);
    let after = held_phones(new);
    let came = count_unheld(db, after.difference(&before))?;
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
                    row.name.as_ref().map(|name| name.at.get()),
                    row.name.as_ref().map(|name| name.rank),
                    text(row.name.as_ref()),
                ),
            )?,
            None => db.run(
                "DELETE FROM directory_phones WHERE phone = ?1 AND lead = ?2 AND slot = ?3",
                (digits, lead, slot),
            )?,
        };
    }
    let went = count_unheld(db, before.difference(&after))?;
    change_size(db, "phones", came - went)
}

fn held_phones(rows: &Rows) -> BTreeSet<i64> {
    rows.iter()
        .filter(|((digits, _), row)| *digits != EMPTY && row.held.is_some())
        .map(|((digits, _), _)| *digits)
        .collect()
}

/// Counts the phones that aren't held by any lead.
fn count_unheld<'a>(db: &Db, phones: impl Iterator<Item = &'a i64>) -> Result<i64, Error> {
    let mut unheld = 0;
    for digits in phones {
        if !is_held(db, *digits)? {
            unheld += 1;
        }
    }
    Ok(unheld)
}

fn text(name: Option<&Known<Name>>) -> Option<&str> {
    name?.fact.as_ref().map(Name::as_str)
}

fn put_lead(db: &Db, lead: i64, entry: &Entry) -> Result<(), Error> {
    let life = &entry.life;
    let name = entry.profile.name.as_ref();
    let stage = entry.profile.stage.as_ref();
    let responsible = entry.profile.responsible.as_ref();
    let employee = responsible.and_then(|responsible| responsible.fact.as_ref());
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
        name.map(|name| name.at.get()),
        name.map(|name| name.rank),
        text(name),
        stage.map(|stage| stage.at.get()),
        stage.map(|stage| stage.rank),
        text(stage),
        responsible.map(|responsible| responsible.at.get()),
        responsible.map(|responsible| responsible.rank),
        employee
            .and_then(|employee| employee.name.as_ref())
            .map(Name::as_str),
        employee.map(|employee| employee.id.get()),
    ];
    db.run(insert, values)
}

fn seconds(at: Option<EpochSeconds>) -> Option<i64> {
    at.map(EpochSeconds::get)
}

fn live_count(life: &Life) -> i64 {
    i64::from(life.living.is_some() && !life.is_deleted() && life.merged.is_none())
}

/// Gives the pure functions in `callbridge-leads` access to the directory.
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
            let name = Option::map(name, known_name);
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
            change_size(self, "leads", live_count(&new.life) - live_count(&old.life))?;
        }
        Ok(())
    }

    fn merged_into(&self, lead: LeadId, limit: usize) -> Result<Vec<LeadId>, Error> {
        let text = "SELECT lead FROM directory_leads WHERE merged_into = ?1 LIMIT ?2";
        self.query_known(text, (lead.get(), count(limit)), LeadId::new)
    }

    fn lead_phones(&self, phone: &Phone) -> Result<Vec<LeadPhone>, Error> {
        let rows = ask_lead_phones(self, phone)?.all(self)?.into_iter();
        Ok(rows.filter_map(LeadPhoneColumns::lead_phone).collect())
    }

    fn life(&self, lead: LeadId) -> Result<Life, Error> {
        Ok(self.query_first(LIFE, [lead.get()])?.unwrap_or_default())
    }
}
