//! One status report: made of a status, and read back from a message that anybody may have written.

use callbridge_model::status::fleet::{
    FleetGaps, FleetLease, FleetRate, FleetRole, FleetSource, StatusReport, TokenName,
};
use callbridge_model::{Status, status::LeasePhase};
use callbridge_source::Publisher;

/// The content type of a status report.
pub const CONTENT_TYPE: &str = "application/vnd.callbridge.words+json; version=1";
/// The content type without its version, by which newer ones are recognised.
const MEDIA_TYPE: &str = "application/vnd.callbridge.words+json";

/// Most bytes of a report; a longer message is skipped.
pub const BYTES_MAX: usize = 128 << 10;
/// Sources and PBXs of one process.
const LIST_MAX: usize = 100;
/// Characters of the name of a PBX or of a source.
const NAME_CHARACTERS_MAX: usize = 64;
/// Most characters of any other text in a report.
const TEXT_CHARACTERS_MAX: usize = 300;
/// No count is larger, so that the sum of thousands is no fault.
const COUNT_MAX: u64 = 1 << 48;
/// The latest time taken: 2100 in epoch seconds.
const TIME_MAX: i64 = 4_102_444_800;
/// A clock may be so far ahead of ours.
const AHEAD_SEC: i64 = 24 * 3600;

/// The process that publishes status reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Collector or sender, as the reports name it.
    pub role: FleetRole,
    /// The version of the program, as `Cargo.toml` has it.
    pub version: &'static str,
    /// The commit that it was built from.
    pub commit: &'static str,
    /// The name of the machine, for people.
    pub hostname: String,
    /// Epoch seconds at which the process was started.
    pub started_at: i64,
}

/// Makes the status report of this process from its status at this moment.
pub fn of(identity: &Identity, status: &Status, at: i64, ends: bool) -> StatusReport {
    let mut pbx: Vec<String> = Vec::new();
    for source in &status.sources {
        if !source.pbx.is_empty() && !pbx.contains(&source.pbx) && pbx.len() < LIST_MAX {
            pbx.push(cut(&source.pbx, NAME_CHARACTERS_MAX));
        }
    }
    let print = status.token.print.clone();
    let token = print.map(|print| TokenName {
        print: cut(&print, NAME_CHARACTERS_MAX),
        company: (status.token.company.as_deref()).map(|name| cut(name, TEXT_CHARACTERS_MAX)),
    });
    let (instance, pbx) = match (identity.role, &token) {
        (FleetRole::Collector, _) => (pbx.join(","), pbx),
        // What it reads are the PBXs of others.
        (FleetRole::Sender, Some(token)) => {
            let company = token.company.clone();
            (company.unwrap_or_else(|| token.print.clone()), Vec::new())
        }
        (FleetRole::Sender, None) => ("a token not known yet".to_owned(), Vec::new()),
    };
    let open = || status.gaps.iter().filter(|gap| !gap.filled);
    let source = |source: &callbridge_model::status::SourceStatus| FleetSource {
        name: cut(source.name(), NAME_CHARACTERS_MAX),
        state: source.state,
        last_event_at: source.last_event_at,
    };
    StatusReport {
        role: identity.role,
        instance: cut(&instance, TEXT_CHARACTERS_MAX),
        pbx,
        hostname: cut(&identity.hostname, TEXT_CHARACTERS_MAX),
        state: cut(&status.state, TEXT_CHARACTERS_MAX),
        version: identity.version.to_owned(),
        commit: identity.commit.to_owned(),
        books: status.books,
        sources: status.sources.iter().take(LIST_MAX).map(source).collect(),
        gaps: FleetGaps {
            count: u64::try_from(open().count()).unwrap_or(u64::MAX),
            newest: open().map(|gap| gap.to).max(),
        },
        backlog: status.backlog,
        rate: (status.budget.limit > 0).then_some(FleetRate {
            limit: status.budget.limit,
            window_sec: status.budget.window_sec,
        }),
        letters: status.letters.values().sum(),
        lease: (status.lease.as_ref()).map(|lease| FleetLease {
            name: cut(&lease.name, TEXT_CHARACTERS_MAX),
            held: lease.state == LeasePhase::Holding,
            unable_since: lease.unable_since,
        }),
        token,
        pause: (status.pause.as_ref()).map(|it| cut(&it.reason, TEXT_CHARACTERS_MAX)),
        verdict: status.verdict,
        started_at: identity.started_at,
        at,
        ends,
    }
}

fn cut(text: &str, characters: usize) -> String {
    text.chars().take(characters).collect()
}

/// A reason to skip a message that should be a status report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Wrong {
    /// Longer than `BYTES_MAX`, so it was not parsed.
    #[strum(serialize = "too_long")]
    Long,
    /// The content type is not that of status reports.
    ContentType,
    /// The content type names a newer version.
    Version,
    /// The message has no `user_id`, which RabbitMQ holds to the login.
    #[strum(serialize = "user_id")]
    User,
    /// The body is no JSON of this shape.
    Shape,
    /// A name, a count or a time that cannot be.
    Value,
    /// The report's time is more than a day ahead of our clock.
    Future,
    /// A PBX of the report belongs to another login.
    Owner,
    /// There are too many members already.
    #[strum(serialize = "too_many")]
    Many,
}

impl Wrong {
    /// The reason's name, under which it is counted.
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// Reads a message, and who signed it. Nothing of it is trusted: not its length, not its numbers.
///
/// # Errors
/// What is wrong with it.
pub fn read(body: &[u8], publisher: &Publisher, now: i64) -> Result<(String, StatusReport), Wrong> {
    if body.len() > BYTES_MAX {
        return Err(Wrong::Long);
    }
    let content_type = publisher.content_type.as_deref().unwrap_or_default();
    if content_type != CONTENT_TYPE {
        let media_type = content_type.split(';').next().unwrap_or_default();
        return Err(match media_type.trim() == MEDIA_TYPE {
            true => Wrong::Version,
            false => Wrong::ContentType,
        });
    }
    let user = publisher.user.as_deref().filter(|user| is_text(user));
    let user = user.filter(|user| !user.is_empty()).ok_or(Wrong::User)?;
    // serde would read an array for a struct.
    if body.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Err(Wrong::Shape);
    }
    let report: StatusReport = serde_json::from_slice(body).map_err(|_| Wrong::Shape)?;
    if !is_possible(&report) {
        return Err(Wrong::Value);
    }
    if report.at > now + AHEAD_SEC {
        return Err(Wrong::Future);
    }
    Ok((user.to_owned(), report))
}

fn is_text(text: &str) -> bool {
    text.chars().count() <= TEXT_CHARACTERS_MAX
}

/// Returns `true` for a name that `pbx=` would take.
fn is_name(text: &str) -> bool {
    let good = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    !text.is_empty() && text.chars().count() <= NAME_CHARACTERS_MAX && text.chars().all(good)
}

fn is_possible(report: &StatusReport) -> bool {
    let (token, lease) = (report.token.as_ref(), report.lease.as_ref());
    let company = token.and_then(|it| it.company.as_deref());
    let texts = [
        report.instance.as_str(),
        report.hostname.as_str(),
        report.state.as_str(),
        report.version.as_str(),
        report.commit.as_str(),
        report.pause.as_deref().unwrap_or_default(),
        lease.map_or("", |lease| lease.name.as_str()),
        company.unwrap_or_default(),
    ];
    let counts = [
        report.gaps.count,
        report.backlog.calls,
        report.backlog.drain_sec,
        report.letters,
        report.rate.map_or(0, |rate| rate.window_sec),
    ];
    let books = report.books.named().map(|(_, count)| count);
    let last_events = report.sources.iter().filter_map(|it| it.last_event_at);
    let unable_since = lease.and_then(|it| it.unable_since);
    let others = last_events.chain(report.gaps.newest).chain(unable_since);
    let times = [report.at, report.started_at].into_iter().chain(others);
    let is_count = |count: u64| count <= COUNT_MAX;
    let is_short = |it: &FleetSource| it.name.chars().count() <= NAME_CHARACTERS_MAX;
    let named = match report.role {
        FleetRole::Collector => !report.pbx.is_empty(),
        FleetRole::Sender => report.pbx.is_empty(),
    };
    named
        && !report.instance.is_empty()
        && !report.version.is_empty()
        && texts.into_iter().all(is_text)
        && report.pbx.len() <= LIST_MAX
        && report.pbx.iter().all(|pbx| is_name(pbx))
        && report.sources.len() <= LIST_MAX
        && report.sources.iter().all(is_short)
        && token.is_none_or(|it| is_print(&it.print))
        && counts.into_iter().chain(books).all(is_count)
        && times.into_iter().all(|at| (0..=TIME_MAX).contains(&at))
}

/// Returns `true` for a fingerprint: 8 hex digits and more.
fn is_print(text: &str) -> bool {
    (8..=NAME_CHARACTERS_MAX).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_hexdigit())
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
