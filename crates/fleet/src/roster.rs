//! Status reports to the table of who reports. Pure: messages and `now` come in, the table goes
//! out.

use crate::report::{Wrong, read};
use callbridge_model::status::fleet::{
    FleetMember, FleetRole, FleetSource, FleetTable, FleetToken, FleetTotals, FleetTrouble,
    Liveness, StatusReport, TokenName,
};
use callbridge_model::status::{Backlog, OverallState, SourceState, seconds_in_words};
use callbridge_source::Publisher;
use std::{collections::BTreeMap, sync::Arc};

/// Seconds without a status report after which a member counts as silent: three reports.
pub const SILENT_SEC: i64 = 180;
/// Seconds after which a member is forgotten: a day after an orderly stop, and for silent ones the
/// time that the stream keeps its messages.
const STOPPED_FORGOTTEN_SEC: i64 = 24 * 3600;
const SILENT_FORGOTTEN_SEC: i64 = 7 * 24 * 3600;
/// Most members that the table holds.
pub const MEMBERS_MAX: usize = 5_000;
/// Bytes of reports that the table holds: a thousand members take a MB.
const ROSTER_BYTES_MAX: usize = 32 << 20;
/// Shares that one login may fill of that, so that its reports keep nobody else's out: PBXs not
/// known to be its own, and senders; more where no owners of PBXs are known at all.
const UNKNOWN_OF_LOGIN_MAX: usize = 200;
const OF_LOGIN_MAX: usize = 1_000;
const BYTES_OF_LOGIN_MAX: usize = 4 << 20;
/// Reports of one login, and their bytes, that are read in a minute: twice the number of all its
/// members.
const WORDS_A_MINUTE_MAX: usize = 2 * MEMBERS_MAX;
const BYTES_A_MINUTE_MAX: usize = 2 * BYTES_OF_LOGIN_MAX;
/// Minutes of older reports that come at once at the start.
const MINUTES_BEFORE: usize = 3 * 60;
/// Logins that are known, and of those beyond their limits: how many are named, and for how long
/// after the last report too many.
const LOGINS_MAX: usize = MEMBERS_MAX;
const FLOODS_MAX: usize = 100;
const FLOOD_FORGOTTEN_SEC: i64 = 3600;
/// Seconds for which the report of a holder counts: one a minute, and a little late.
const HOLDER_SEC: i64 = 75;
/// The reason of a pause for a sender that stands by: no trouble.
const STANDBY: &str = "standby";

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct MemberKey {
    role: FleetRole,
    user: String,
    /// A collector is known by its PBXs, wherever it runs; a sender by its machine and its state.
    place: (String, String),
}

#[derive(Clone, Debug)]
struct KnownMember {
    heard_at: i64,
    word: StatusReport,
    /// The member's share of the limits of its login.
    weight: usize,
    bytes: usize,
}

/// Counts of one login, held against its limits.
#[derive(Clone, Debug, Default)]
struct LoginWords {
    /// Sum of the weights of the login's members.
    weight: usize,
    bytes: usize,
    /// The minute of the login's newest report, and its reports in that minute.
    minute: i64,
    words: usize,
    word_bytes: usize,
    /// Reports beyond the limits, and the time of the last one.
    skipped: u64,
    skipped_at: i64,
}

impl LoginWords {
    fn skip(&mut self, now: i64) -> Result<(), Wrong> {
        (self.skipped, self.skipped_at) = (self.skipped + 1, now);
        Err(Wrong::Many)
    }
}

/// A message of the stream of status reports.
#[derive(Clone, Debug)]
pub struct FleetMessage {
    /// The body as it came, not yet parsed.
    pub body: Vec<u8>,
    /// The login that published the message, its content type and other properties.
    pub publisher: Publisher,
    /// The message arrived while the stream was followed, so its arrival is its time; older
    /// messages count by their own clock.
    pub live: bool,
}

/// A function that finds the login that owns a PBX; `None` while nobody owns it.
type OwnerOf = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Finds the login that owns a PBX: reports make nobody its owner.
#[derive(Clone, Default)]
pub struct PbxOwners(Option<Arc<OwnerOf>>);

impl PbxOwners {
    /// Asked of this function; it knows nothing of a PBX that nobody owns yet.
    pub fn new(owner_of: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(owner_of)))
    }

    fn of(&self, pbx: &str) -> Option<String> {
        self.0.as_ref().and_then(|owner_of| owner_of(pbx))
    }

    /// Returns `true` where the PBX belongs to another login.
    fn refuse(&self, pbx: &str, user: &str) -> bool {
        self.of(pbx).is_some_and(|owner| owner != user)
    }

    /// Returns the share of the login's limit that a report takes: the PBXs not known to be the
    /// login's, or 1 for a sender.
    fn weight(&self, word: &StatusReport, user: &str) -> usize {
        let unknown = |pbx: &&String| self.of(pbx).as_deref() != Some(user);
        match word.role {
            FleetRole::Collector => word.pbx.iter().filter(unknown).count(),
            FleetRole::Sender => 1,
        }
    }
}

/// Members of a fleet, kept up to date by their status reports.
#[derive(Clone, Default)]
pub struct Roster {
    members: BTreeMap<MemberKey, KnownMember>,
    /// Sum of the bytes of all members' reports.
    bytes: usize,
    owners: PbxOwners,
    skipped: BTreeMap<&'static str, u64>,
    logins: BTreeMap<String, LoginWords>,
}

impl Roster {
    /// An empty roster that refuses reports for PBXs of other owners.
    pub fn of_owners(owners: PbxOwners) -> Self {
        Self {
            owners,
            ..Self::default()
        }
    }

    /// Takes one message in, or counts the reason to skip it.
    pub fn on_message(&mut self, message: &FleetMessage, now: i64) {
        if let Err(wrong) = self.take(message, now) {
            *self.skipped.entry(wrong.word()).or_default() += 1;
        }
    }

    /// Counts a message in this minute of its login; one too many is not read.
    fn count(&mut self, message: &FleetMessage, now: i64) -> Result<(), Wrong> {
        let Some(user) = message.publisher.user.as_deref() else {
            return Ok(());
        };
        if !self.logins.contains_key(user) && self.logins.len() >= LOGINS_MAX {
            return Err(Wrong::Many);
        }
        let login = self.logins.entry(user.to_owned()).or_default();
        if login.minute != now.div_euclid(60) {
            login.minute = now.div_euclid(60);
            (login.words, login.word_bytes) = (0, 0);
        }
        login.words += 1;
        login.word_bytes += message.body.len();
        let minutes = if message.live { 1 } else { MINUTES_BEFORE };
        if login.words > minutes * WORDS_A_MINUTE_MAX
            || login.word_bytes > minutes * BYTES_A_MINUTE_MAX
        {
            return login.skip(now);
        }
        Ok(())
    }

    fn take(&mut self, message: &FleetMessage, now: i64) -> Result<(), Wrong> {
        self.count(message, now)?;
        let (user, word) = read(&message.body, &message.publisher, now)?;
        let heard_at = if message.live { now } else { word.at.min(now) };
        if word.pbx.iter().any(|pbx| self.owners.refuse(pbx, &user)) {
            return Err(Wrong::Owner);
        }
        let place = match word.role {
            FleetRole::Collector => (word.pbx.join(","), String::new()),
            FleetRole::Sender => (word.hostname.clone(), word.state.clone()),
        };
        let role = word.role;
        let key = MemberKey { role, user, place };
        let before = self.members.get(&key);
        // After a lost line reports are read once more: no arrival is set earlier by that.
        let heard_at = before.map_or(heard_at, |known| known.heard_at.max(heard_at));
        let (weight, bytes) = (self.owners.weight(&word, &key.user), message.body.len());
        let old = before.map_or((0, 0), |known| (known.weight, known.bytes));
        let is_full = before.is_none() && self.members.len() >= MEMBERS_MAX;
        let all_bytes = self.bytes - old.1 + bytes;
        let login = self.logins.entry(key.user.clone()).or_default();
        let filled = (login.weight - old.0 + weight, login.bytes - old.1 + bytes);
        let owners = self.owners.0.as_ref();
        let most = owners.map_or(OF_LOGIN_MAX, |_| UNKNOWN_OF_LOGIN_MAX);
        if filled.0 > most || filled.1 > BYTES_OF_LOGIN_MAX {
            return login.skip(now);
        }
        if is_full || all_bytes > ROSTER_BYTES_MAX {
            return Err(Wrong::Many);
        }
        (login.weight, login.bytes) = filled;
        self.bytes = all_bytes;
        let known = KnownMember {
            heard_at,
            word,
            weight,
            bytes,
        };
        self.members.insert(key, known);
        Ok(())
    }

    /// Forgets who is gone for good, and who spoke for a PBX that is another's by now.
    pub fn forget(&mut self, now: i64) {
        let owners = self.owners.clone();
        self.members.retain(|key, known| {
            let mut pbxs = known.word.pbx.iter();
            let most = match known.word.ends {
                true => STOPPED_FORGOTTEN_SEC,
                false => SILENT_FORGOTTEN_SEC,
            };
            let is_anothers = pbxs.any(|pbx| owners.refuse(pbx, &key.user));
            !is_anothers && now - known.heard_at <= most
        });
        for login in self.logins.values_mut() {
            (login.weight, login.bytes) = (0, 0);
            if now - login.skipped_at > FLOOD_FORGOTTEN_SEC {
                login.skipped = 0;
            }
        }
        // Whose a PBX is may have become known since.
        for (key, known) in &mut self.members {
            known.weight = owners.weight(&known.word, &key.user);
            let login = self.logins.entry(key.user.clone()).or_default();
            login.weight += known.weight;
            login.bytes += known.bytes;
        }
        let minute = now.div_euclid(60);
        let counts = |it: &LoginWords| it.bytes > 0 || it.skipped > 0 || it.minute == minute;
        self.logins.retain(|_, login| counts(login));
        self.bytes = self.members.values().map(|known| known.bytes).sum();
    }

    /// Builds the table of all members at this moment, in epoch seconds.
    pub fn table(&self, stream: &str, now: i64) -> FleetTable {
        let members = self.members.iter().map(|(key, known)| {
            let speech = match known.word.ends {
                true => Liveness::Stopped,
                false if now - known.heard_at > SILENT_SEC => Liveness::Silent,
                false => Liveness::Speaking,
            };
            FleetMember {
                speech,
                trouble: trouble(&known.word, speech, now - known.heard_at),
                user: key.user.clone(),
                heard_at: known.heard_at,
                word: known.word.clone(),
            }
        });
        let mut members: Vec<FleetMember> = members.collect();
        let by = |it: &FleetMember| (it.speech, it.word.role, it.word.instance.clone());
        members.sort_by_cached_key(by);
        let tokens = tokens(&members);
        let totals = totals(&members, &tokens);
        let mut troubles = troubles(&totals, &tokens);
        troubles.extend(two_holders(&members, now));
        FleetTable {
            at: now,
            stream: stream.to_owned(),
            healthy: troubles.is_empty() && members.iter().all(|it| it.trouble.is_none()),
            troubles,
            members,
            tokens,
            totals,
            skipped: (self.skipped.iter())
                .map(|(word, count)| ((*word).to_owned(), *count))
                .collect(),
            floods: (self.logins.iter())
                .filter(|(_, login)| login.skipped > 0)
                .map(|(name, login)| (name.clone(), login.skipped))
                .take(FLOODS_MAX)
                .collect(),
        }
    }
}

/// Finds the fault of one member; `None` where all is well.
fn trouble(word: &StatusReport, speech: Liveness, age: i64) -> Option<FleetTrouble> {
    let age = age.max(0).unsigned_abs();
    let (words, seconds) = (seconds_in_words(age), vec![age.to_string()]);
    let is_down = |source: &&FleetSource| matches!(source.state, SourceState::Down);
    let down = word.sources.iter().filter(is_down).count();
    let pause = word.pause.as_ref().filter(|pause| *pause != STANDBY);
    let (what, code, values) = match speech {
        Liveness::Silent => (format!("silent for {words}"), "fleet_silent", seconds),
        Liveness::Stopped => (format!("stopped {words} ago"), "fleet_stopped", seconds),
        Liveness::Speaking => {
            if let Some(pause) = pause {
                let what = format!("paused: {pause}");
                (what, "fleet_paused", vec![pause.clone()])
            } else if down > 0 {
                let all = word.sources.len();
                let what = match all {
                    1 => "its source is down".to_owned(),
                    all => format!("{down} of {all} sources are down"),
                };
                let values = vec![down.to_string(), all.to_string()];
                (what, "fleet_sources", values)
            } else if !word.books.balance() {
                let what = "its books do not add up".to_owned();
                (what, "fleet_books", Vec::new())
            } else if word.verdict == OverallState::Down && word.pause.is_none() {
                let what = "its status is down".to_owned();
                (what, "fleet_status_down", Vec::new())
            } else {
                return None;
            }
        }
    };
    Some(FleetTrouble::new(what, code, values))
}

/// Sums up senders by token. With a lease, the backlog and letters of its holder count alone, for
/// the others hold the same calls.
fn tokens(members: &[FleetMember]) -> Vec<FleetToken> {
    // With each token: its holder is met, who may be one without a name.
    let mut found: BTreeMap<&str, (FleetToken, bool)> = BTreeMap::new();
    for sender in members {
        let word = &sender.word;
        let (FleetRole::Sender, Some(name)) = (word.role, &word.token) else {
            continue;
        };
        let (token, met) = found.entry(&name.print).or_default();
        let speaks = sender.speech == Liveness::Speaking;
        token.senders += u64::from(speaks);
        if token.token.company.is_none() {
            token.token = TokenName::clone(name);
        }
        let backlog = backlog(word);
        let Some(lease) = &word.lease else {
            token.backlog.calls += backlog.calls;
            token.backlog.drain_sec = token.backlog.drain_sec.saturating_add(backlog.drain_sec);
            token.letters += word.letters;
            continue;
        };
        // An empty name says that somebody should hold the lease and nobody does.
        let holder = token.holder.get_or_insert_default();
        let held = lease.held && speaks;
        // Before the holder is met the largest backlog of those who stand by is shown.
        if held || !*met && backlog.calls > token.backlog.calls {
            (token.backlog, token.letters) = (backlog, word.letters);
        }
        if held {
            holder.clone_from(&word.hostname);
        }
        *met |= held;
    }
    found.into_values().map(|(token, _)| token).collect()
}

/// The backlog of a sender, with the time until it is sent at the pace of the token.
fn backlog(word: &StatusReport) -> Backlog {
    let mut backlog = word.backlog;
    if let Some(rate) = word.rate.filter(|rate| rate.limit > 0) {
        let windows = backlog.calls.div_ceil(u64::from(rate.limit));
        backlog.drain_sec = windows.saturating_mul(rate.window_sec.min(86_400));
    }
    backlog
}

fn totals(members: &[FleetMember], tokens: &[FleetToken]) -> FleetTotals {
    let mut totals = FleetTotals::default();
    for member in members {
        let (word, books) = (&member.word, &member.word.books);
        match member.speech {
            Liveness::Speaking => totals.speaking += 1,
            Liveness::Silent => totals.silent += 1,
            Liveness::Stopped => totals.stopped += 1,
        }
        totals.gaps += word.gaps.count;
        match word.role {
            FleetRole::Collector => {
                totals.collectors += 1;
                totals.forwarded += books.forwarded;
            }
            FleetRole::Sender => {
                totals.senders += 1;
                totals.journaled += books.journaled;
            }
        }
        if word.role == FleetRole::Collector || word.token.is_none() {
            totals.waiting += word.backlog.calls;
            totals.letters += word.letters;
        }
    }
    for token in tokens {
        totals.waiting += token.backlog.calls;
        totals.letters += token.letters;
    }
    totals
}

/// Finds faults of the fleet as a whole.
fn troubles(totals: &FleetTotals, tokens: &[FleetToken]) -> Vec<FleetTrouble> {
    let mut found = Vec::new();
    if totals.collectors + totals.senders == 0 {
        let what = "nobody has sent a status report: is it the stream of the calls?";
        found.push(FleetTrouble::new(what, "fleet_empty", []));
    } else if totals.senders == 0 {
        let what = "no sender has sent a status report: nothing goes to the CRM, or the sender \
                    may not write to the stream of status reports";
        found.push(FleetTrouble::new(what, "fleet_no_sender", []));
    }
    for token in tokens {
        let name = match &token.token.company {
            Some(company) => format!("{company} ({})", token.token.print),
            None => token.token.print.clone(),
        };
        if token.senders == 0 {
            let what = format!("token {name}: none of its senders reports");
            found.push(FleetTrouble::new(what, "fleet_sender_silent", [name]));
        } else if token.holder.as_deref() == Some("") {
            let what = format!("token {name}: nobody holds the lease");
            found.push(FleetTrouble::new(what, "fleet_no_holder", [name]));
        }
    }
    found
}

/// Finds senders that all take themselves for the one that sends by a token: their leases are not
/// one. A holder that a standby has followed has not reported for longer than the reports that
/// count here.
fn two_holders(members: &[FleetMember], now: i64) -> Vec<FleetTrouble> {
    let mut holders: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for member in members {
        let (word, age) = (&member.word, now - member.heard_at);
        let held = word.lease.as_ref().filter(|lease| lease.held);
        if let (Some(lease), Some(token)) = (held, &word.token)
            && member.speech == Liveness::Speaking
            && age <= HOLDER_SEC
        {
            let holder = format!("{} (--standby {})", word.hostname, lease.name);
            holders.entry(&token.print).or_default().push(holder);
        }
    }
    holders.retain(|_, of_token| of_token.len() > 1);
    let tokens = holders.into_iter().map(|(token, of_token)| {
        let what = format!(
            "token {token}: {} send at the same time: give them the same --standby and the \
             same --source first",
            of_token.join(" and ")
        );
        let values = [token.to_owned(), of_token.join(", ")];
        FleetTrouble::new(what, "fleet_two_holders", values)
    });
    tokens.collect()
}

#[cfg(test)]
#[path = "roster_tests.rs"]
mod tests;
