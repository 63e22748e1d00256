//! The directory of leads, a row a phone of a slot of a lead.

use crate::store::{Store, sql};
use crate::tables::work_queue::count;
use crate::{Done, Error};
use callbridge_call::{EpochSeconds, EventTime};
use callbridge_leads::directory::entry::{Entry, Fact, Life, Slot};
use callbridge_leads::directory::find::{Holding, Shelf, find};
use callbridge_leads::directory::learn::{Learned, Ledger, learn};
use callbridge_leads::directory::merges::root;
use callbridge_leads::directory::{Finding, LeadNews, Told, What};
use callbridge_model::{LeadId, Phone};
use rusqlite::{OptionalExtension as _, Row};
use std::collections::{BTreeMap, BTreeSet};

/// Phones with calls that may leave, kept until somebody takes them. Past so many: all of them.
const AWAITED_MAX: usize = 10_000;
/// Rows of one number that are looked at: past so many leads no more are told apart.
const HOLDINGS_MAX: usize = 5_000;

/// Counts news that told something not known before.
pub(crate) const LEARNED: &str = "learned";

/// Every row of a number, with its lead.
pub(crate) const HOLDINGS: &str = "SELECT p.lead, p.slot, p.held, p.told, p.gone,
           l.living, l.whole, l.deleted, l.merged, l.merged_into
    FROM directory_phones p LEFT JOIN directory_leads l ON l.lead = p.lead
    WHERE p.phone = ?1 ORDER BY p.lead LIMIT ?2";
/// How a lead stands.
pub(crate) const LIFE: &str =
    "SELECT living, whole, deleted, merged, merged_into FROM directory_leads WHERE lead = ?1";

/// Numbers that calls wait for, of which something was learned.
#[derive(Debug, Default)]
pub(crate) struct Awaited {
    phones: BTreeSet<Phone>,
    all: bool,
}

/// How many the directory holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectorySize {
    /// Numbers that some lead has, or had when it ended.
    pub phones: u64,
    /// Leads that are neither merged nor deleted.
    pub leads: u64,
}

/// The rows of an entry: what stands behind a phone's digits and a slot.
type Rows = BTreeMap<(i64, i64), PhoneRow>;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PhoneRow {
    held: Option<i64>,
    told: Option<i64>,
    gone: Option<i64>,
}

/// Stands for no phone.
const EMPTY: i64 = 0;

fn rows_of(entry: &Entry) -> Rows {
    let mut rows = Rows::new();
    for (slot, fact) in &entry.slots {
        let digits = fact.phones.iter().map(Phone::digits);
        let none = fact.phones.is_empty().then_some(EMPTY);
        for digits in digits.chain(none) {
            let row = rows.entry((digits, slot.number())).or_default();
            row.held = Some(fact.at.get());
            row.told = Some(fact.told.number());
        }
    }
    for ((slot, phone), at) in &entry.gone {
        let row = rows.entry((phone.digits(), slot.number())).or_default();
        row.gone = Some(at.get());
    }
    rows
}

fn take_row(entry: &mut Entry, digits: i64, slot: Slot, row: PhoneRow) {
    let phone = Phone::from_digits(digits);
    if let (Some(at), Some(told)) = (row.held, row.told.and_then(Told::from_number)) {
        let fact = entry.slots.entry(slot).or_insert_with(|| Fact {
            at: EpochSeconds::new(at),
            told,
            phones: BTreeSet::new(),
        });
        fact.phones.extend(phone.clone());
    }
    if let (Some(at), Some(phone)) = (row.gone, phone) {
        entry.gone.insert((slot, phone), EpochSeconds::new(at));
    }
}

fn seconds(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<EpochSeconds>> {
    Ok(row.get::<_, Option<i64>>(at)?.map(EpochSeconds::new))
}

/// A life whose columns begin at `at`.
fn life_at(row: &Row<'_>, at: usize) -> rusqlite::Result<Life> {
    let into: Option<i64> = row.get(at + 4)?;
    let merged = seconds(row, at + 3)?;
    Ok(Life {
        living: seconds(row, at)?,
        whole: seconds(row, at + 1)?,
        deleted: seconds(row, at + 2)?,
        merged: merged.zip(into.and_then(LeadId::new)),
    })
}

/// A row of [`LIFE`].
pub(crate) fn life(row: &Row<'_>) -> rusqlite::Result<Life> {
    life_at(row, 0)
}

/// A row of [`HOLDINGS`]; `None` for one that no version of ours wrote.
pub(crate) fn holding(row: &Row<'_>) -> rusqlite::Result<Option<Holding>> {
    let told: Option<i64> = row.get(3)?;
    let held = seconds(row, 2)?.zip(told.and_then(Told::from_number));
    let (gone, life) = (seconds(row, 4)?, life_at(row, 5)?);
    let slot = Slot::stored(row.get(1)?);
    Ok(LeadId::new(row.get(0)?).map(|lead| Holding {
        lead,
        slot,
        held,
        gone,
        life,
    }))
}

/// The values of [`HOLDINGS`].
pub(crate) fn holdings_of(phone: &Phone) -> (i64, i64) {
    (phone.digits(), count(HOLDINGS_MAX))
}

impl Store {
    /// Takes in what was told of a lead; calls that may leave by it are remembered for
    /// [`Store::take_awaited`].
    pub(crate) fn learn(&mut self, news: &LeadNews) -> Result<Done, Error> {
        let phones = match learn(self, news)? {
            Learned::Nothing => return Ok(Done::Learned { new: false }),
            Learned::Many => None,
            Learned::Phones(phones) => Some(phones),
        };
        self.tally.count(LEARNED, 1);
        if let What::Merged { from } = &news.what {
            self.follow_merge(from, EventTime::from_seconds(news.at.get()))?;
        }
        let mut waiting = BTreeSet::new();
        for phone in phones.iter().flatten() {
            if self.is_awaited(phone)? {
                waiting.insert(phone.clone());
            }
        }
        let mut awaited = self.awaited.borrow_mut();
        awaited.phones.extend(waiting);
        if phones.is_none() || awaited.phones.len() > AWAITED_MAX {
            awaited.phones.clear();
            awaited.all = true;
        }
        Ok(Done::Learned { new: true })
    }

    /// The numbers of parked and ambiguous calls of which something was learned since this was
    /// asked last; `None` when all such calls are to be looked at.
    pub fn take_awaited(&self) -> Option<Vec<Phone>> {
        let awaited = self.awaited.take();
        (!awaited.all).then(|| awaited.phones.into_iter().collect())
    }

    fn is_awaited(&self, phone: &Phone) -> Result<bool, Error> {
        let mut found = self.prepare(
            "SELECT EXISTS (SELECT 1 FROM calls WHERE state = 'parked' AND phone = ?1)
                 OR EXISTS (SELECT 1 FROM calls WHERE state = 'dead'
                            AND reason = 'ambiguous_lead' AND phone = ?1)",
        )?;
        sql(self, found.query_row([phone.as_str()], |row| row.get(0)))
    }

    /// The lead that is left of one that was merged, however often; `None` for a lead that was not
    /// merged, or whose survivor was deleted.
    ///
    /// # Errors
    /// The disk, or a damaged file.
    pub fn survivor(&self, lead: LeadId) -> Result<Option<LeadId>, Error> {
        let end = root(lead, |lead| Ok::<_, Error>(self.life(lead)?.merged))?;
        let gone = end.lead == lead || self.life(end.lead)?.is_deleted();
        Ok((!gone).then_some(end.lead))
    }

    /// Who has a number, and who had it.
    ///
    /// # Errors
    /// The disk, or a damaged file.
    pub fn holders(&self, phone: &Phone) -> Result<Finding, Error> {
        find(self, phone)
    }

    /// The numbers of the directory after `after`, in their order as numbers, and who has them.
    ///
    /// # Errors
    /// The disk, or a damaged file.
    pub fn directory(
        &self,
        after: Option<&Phone>,
        limit: usize,
    ) -> Result<Vec<(Phone, Finding)>, Error> {
        let mut found = self.prepare(
            "SELECT DISTINCT phone FROM directory_phones
             WHERE phone > ?1 AND held IS NOT NULL ORDER BY phone LIMIT ?2",
        )?;
        let after = after.map_or(EMPTY, Phone::digits);
        let digits = found.query_map((after, count(limit)), |row| row.get(0));
        let digits: Vec<i64> = sql(self, digits.and_then(Iterator::collect))?;
        let phones = digits.into_iter().filter_map(Phone::from_digits);
        phones
            .map(|phone| Ok((phone.clone(), self.holders(&phone)?)))
            .collect()
    }

    /// How large the directory is.
    ///
    /// # Errors
    /// The disk, or a damaged file.
    pub fn directory_size(&self) -> Result<DirectorySize, Error> {
        let size = |name: &str| {
            let mut found = self.prepare("SELECT count FROM directory_size WHERE name = ?1")?;
            let size = found.query_row([name], |row| row.get::<_, i64>(0));
            let size = sql(self, size.optional())?;
            Ok(size.and_then(|size| u64::try_from(size).ok()).unwrap_or(0))
        };
        Ok(DirectorySize {
            phones: size("phones")?,
            leads: size("leads")?,
        })
    }

    fn grew(&self, name: &str, by: i64) -> Result<(), Error> {
        if by != 0 {
            self.execute(
                "INSERT INTO directory_size VALUES (?1, ?2)
                 ON CONFLICT DO UPDATE SET count = count + ?2",
                (name, by),
            )?;
        }
        Ok(())
    }

    fn is_held(&self, digits: i64) -> Result<bool, Error> {
        let mut found = self.prepare(
            "SELECT EXISTS (SELECT 1 FROM directory_phones WHERE phone = ?1 AND held IS NOT NULL)",
        )?;
        sql(self, found.query_row([digits], |row| row.get(0)))
    }

    fn put_phones(&self, lead: i64, old: &Rows, new: &Rows) -> Result<(), Error> {
        let other = |key: &&(i64, i64)| old.get(*key) != new.get(*key);
        let changed: BTreeSet<(i64, i64)> = old
            .keys()
            .chain(new.keys())
            .filter(other)
            .copied()
            .collect();
        let phones: BTreeSet<i64> = changed.iter().map(|(digits, _)| *digits).collect();
        let held = |store: &Self| -> Result<i64, Error> {
            let phones = phones.iter().filter(|digits| **digits != EMPTY);
            let held = phones.map(|digits| Ok(i64::from(store.is_held(*digits)?)));
            held.sum()
        };
        let before = held(self)?;
        for (digits, slot) in &changed {
            match new.get(&(*digits, *slot)) {
                Some(row) => self.execute(
                    "INSERT INTO directory_phones VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                     ON CONFLICT DO UPDATE SET held = ?4, told = ?5, gone = ?6",
                    (digits, lead, slot, row.held, row.told, row.gone),
                )?,
                None => self.execute(
                    "DELETE FROM directory_phones WHERE phone = ?1 AND lead = ?2 AND slot = ?3",
                    (digits, lead, slot),
                )?,
            };
        }
        self.grew("phones", held(self)? - before)
    }

    fn put_life(&self, lead: i64, life: &Life) -> Result<(), Error> {
        let seconds = |at: Option<EpochSeconds>| at.map(EpochSeconds::get);
        self.execute(
            "INSERT OR REPLACE INTO directory_leads VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            (
                lead,
                seconds(life.living),
                seconds(life.whole),
                seconds(life.deleted),
                seconds(life.merged.map(|(at, _)| at)),
                life.merged.map(|(_, into)| into.get()),
            ),
        )?;
        Ok(())
    }
}

fn lives(life: &Life) -> i64 {
    i64::from(life.living.is_some() && !life.is_deleted() && life.merged.is_none())
}

impl Ledger for Store {
    type Error = Error;

    fn entry(&mut self, lead: LeadId) -> Result<Entry, Error> {
        let mut entry = Entry {
            life: self.life(lead)?,
            ..Entry::default()
        };
        let mut found = self.prepare(
            "SELECT phone, slot, held, told, gone FROM directory_phones WHERE lead = ?1",
        )?;
        let rows = found.query_map([lead.get()], |row| {
            let phone = PhoneRow {
                held: row.get(2)?,
                told: row.get(3)?,
                gone: row.get(4)?,
            };
            Ok((row.get(0)?, Slot::stored(row.get(1)?), phone))
        });
        let rows: Vec<(i64, Slot, PhoneRow)> = sql(self, rows.and_then(Iterator::collect))?;
        for (digits, slot, row) in rows {
            take_row(&mut entry, digits, slot, row);
        }
        Ok(entry)
    }

    fn put(&mut self, lead: LeadId, old: &Entry, new: &Entry) -> Result<(), Error> {
        self.put_phones(lead.get(), &rows_of(old), &rows_of(new))?;
        if old.life != new.life {
            self.put_life(lead.get(), &new.life)?;
            self.grew("leads", lives(&new.life) - lives(&old.life))?;
        }
        Ok(())
    }

    fn merged_into(&mut self, lead: LeadId, limit: usize) -> Result<Vec<LeadId>, Error> {
        let mut found =
            self.prepare("SELECT lead FROM directory_leads WHERE merged_into = ?1 LIMIT ?2")?;
        let leads = found.query_map((lead.get(), count(limit)), |row| row.get(0));
        let leads: Vec<i64> = sql(self, leads.and_then(Iterator::collect))?;
        Ok(leads.into_iter().filter_map(LeadId::new).collect())
    }
}

impl Shelf for Store {
    type Error = Error;

    fn holdings(&self, phone: &Phone) -> Result<Vec<Holding>, Error> {
        let mut found = self.prepare(HOLDINGS)?;
        let rows = found.query_map(holdings_of(phone), holding);
        let rows: Vec<Option<Holding>> = sql(self, rows.and_then(Iterator::collect))?;
        Ok(rows.into_iter().flatten().collect())
    }

    fn life(&self, lead: LeadId) -> Result<Life, Error> {
        let mut found = self.prepare(LIFE)?;
        let found = found.query_row([lead.get()], life);
        Ok(sql(self, found.optional())?.unwrap_or_default())
    }
}
