//! The events of a call, one line per relevant event.

use callbridge_call::timeline::{Channel, Way};
use callbridge_call::{EventTime, MomentKind, Role, Timeline};
use callbridge_model::{Zone, safe};
use std::fmt::Write as _;
use std::time::Duration;

/// Maximum columns of a dial string.
const DIAL_STRING_MAX: usize = 40;
/// Maximum columns of a channel's name.
const NAME_MAX: usize = 44;

/// Times for people: in one zone, and relative to the call's start.
#[derive(Clone, Debug)]
pub struct Times {
    zone: Zone,
    /// The call's start, from which relative times are counted.
    pub(super) from: EventTime,
}

impl Times {
    pub fn new(zone: &Zone, from: EventTime) -> Self {
        let zone = zone.clone();
        Self { zone, from }
    }

    /// Formats a time: `2026-11-20 11:48:37 UTC`. Returns only the seconds if the year cannot be
    /// written.
    pub fn date(&self, at: EventTime) -> String {
        self.zone.moment(at)
    }

    /// Returns only the date: `2026-11-20`. Empty if the year cannot be written.
    pub fn day(&self, at: EventTime) -> String {
        self.zone.format(at, "%Y-%m-%d").unwrap_or_default()
    }

    /// Returns the time of day with milliseconds: `11:48:37.833`.
    pub fn clock(&self, at: EventTime) -> String {
        self.zone.format_or_seconds(at, "%H:%M:%S%.3f")
    }

    /// Formats a time for a label, with tenths of a second unless they are zero: `11:48:37`.
    pub fn short_clock(&self, at: EventTime) -> String {
        let whole = at.micros() % 1_000_000 < 100_000;
        self.zone
            .format_or_seconds(at, if whole { "%H:%M:%S" } else { "%H:%M:%S%.1f" })
    }

    /// Formats the time after the start for a label: `+2 s`, `+1:30`, `+2:03:00`.
    pub fn short_after(&self, at: EventTime) -> String {
        let sign = if at < self.from { '-' } else { '+' };
        let after = at.apart(self.from);
        let whole = after.as_secs();
        match whole {
            0..60 => format!("{sign}{} s", (after.as_secs_f64() * 10.0).round() / 10.0),
            60..3600 => format!("{sign}{}:{:02}", whole / 60, whole % 60),
            _ => {
                let hours = whole / 3600;
                let minutes = whole / 60 % 60;
                format!("{sign}{hours}:{minutes:02}:{:02}", whole % 60)
            }
        }
    }

    /// Formats the time after the start: `+1.277` seconds, or `+2:03:04.277` from one hour on.
    pub fn time_after_start(&self, at: EventTime) -> String {
        let late = at.micros().saturating_sub(self.from.micros());
        let sign = if late < 0 { '-' } else { '+' };
        let micros = late.unsigned_abs();
        let seconds = micros / 1_000_000;
        let millis = micros / 1000 % 1000;
        if seconds < 3600 {
            return format!("{sign}{seconds}.{millis:03}");
        }
        let hours = seconds / 3600;
        let minutes = seconds / 60 % 60;
        format!("{sign}{hours}:{minutes:02}:{:02}.{millis:03}", seconds % 60)
    }
}

/// Returns the label of the channel with this number: `A` to `Z`, then `AA`.
pub fn label(number: usize) -> String {
    match number {
        0..26 => letter(number).to_string(),
        _ => format!("{}{}", letter(number / 26 - 1), letter(number)),
    }
}

fn letter(number: usize) -> char {
    char::from(b'A' + u8::try_from(number % 26).unwrap_or(0))
}

/// Returns the owner of the channel and its origin: `customer on city, came in`.
pub fn party(channel: &Channel) -> String {
    let whose = match &channel.party {
        Role::Customer(Some(trunk)) => format!("customer on {}", safe(trunk)),
        Role::Customer(None) => "the first to call".to_owned(),
        Role::Trunk(trunk) => format!("trunk {}", safe(trunk)),
        Role::Extension(extension) => format!("extension {}", safe(extension)),
        Role::Plumbing => return "internal channel of the PBX".to_owned(),
    };
    let calls = matches!(channel.party, Role::Extension(_));
    match channel.way {
        Way::CameIn if calls => format!("{whose}, called"),
        Way::CameIn => format!("{whose}, came in"),
        Way::Dialed => format!("{whose}, dialed"),
    }
}

/// Returns the channel's unique id, if one was reported. For a CDR's destination, only the name is
/// known.
pub fn unique_id(channel: &Channel) -> Option<&str> {
    let id = channel.id.as_str();
    if id == channel.name { None } else { Some(id) }
}

/// One event of a call. Of two events at the same time, the one with the smaller `rank` comes
/// first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct StoryLine {
    at: EventTime,
    rank: u8,
    channel: usize,
    message: String,
}

fn line(at: EventTime, rank: u8, channel: usize, message: impl Into<String>) -> StoryLine {
    StoryLine {
        at,
        rank,
        channel,
        message: message.into(),
    }
}

/// Returns the channels with their letters, then the events by time.
pub fn block(timeline: &Timeline, times: &Times, paint: Paint) -> String {
    let mut text = channels(timeline, paint);
    let lines = lines(timeline);
    let widths = lines
        .iter()
        .map(|line| times.time_after_start(line.at).len());
    let late = widths.max().unwrap_or(0).max(10);
    let time = "time";
    let after = "from start";
    let head = format!("  {time:<12}  {after:>late$}  talk  event");
    let _ = writeln!(text, "\n{}", paint.dim(&head));
    let mut day = times.day(times.from);
    for line in lines {
        let today = times.day(line.at);
        if today != day {
            let _ = writeln!(text, "  {}", paint.dim(&today));
            day = today;
        }
        let mut talks = timeline.talk.iter();
        let talk = if talks.any(|talk| (talk.from..=talk.to).contains(&line.at)) {
            paint.color_text("32", "|   ")
        } else {
            "    ".to_owned()
        };
        let plumbing = timeline.channels[line.channel].party == Role::Plumbing;
        let message = format!("{:<2} {}", label(line.channel), line.message);
        let _ = writeln!(
            text,
            "  {}  {:>late$}  {talk}  {}",
            paint.dim(&times.clock(line.at)),
            times.time_after_start(line.at),
            if plumbing {
                paint.dim(&message)
            } else {
                message
            }
        );
    }
    if timeline.left_out > 0 {
        let _ = writeln!(text, "  {} more are not kept", timeline.left_out);
    }
    text
}

/// Returns every relevant event by time: its time after the start, and its description with the
/// channel, as in [`block`].
pub fn events(timeline: &Timeline, times: &Times) -> Vec<(String, String)> {
    let mut events = Vec::new();
    for line in lines(timeline) {
        let channel = short(&timeline.channels[line.channel].name, NAME_MAX);
        let message = format!("{} {channel}: {}", label(line.channel), line.message);
        events.push((times.time_after_start(line.at), message));
    }
    events
}

fn channels(timeline: &Timeline, paint: Paint) -> String {
    let mut rows = Vec::new();
    let mut name = 0;
    let mut whose = 0;
    for channel in &timeline.channels {
        let row = (
            short(&channel.name, NAME_MAX),
            party(channel),
            unique_id(channel).map(safe).unwrap_or_default(),
        );
        name = name.max(row.0.chars().count());
        whose = whose.max(row.1.chars().count());
        rows.push(row);
    }
    let mut text = String::new();
    for (i, (channel, party, id)) in rows.iter().enumerate() {
        let label = label(i);
        let padded = format!("  {label:<2}  {channel:<name$}  {party:<whose$}  {id}");
        let line = padded.trim_end();
        if timeline.channels[i].party == Role::Plumbing {
            let _ = writeln!(text, "{}", paint.dim(line));
        } else {
            let _ = writeln!(text, "{line}");
        }
    }
    text
}

/// Returns every relevant event, by time.
fn lines(timeline: &Timeline) -> Vec<StoryLine> {
    let mut all = Vec::new();
    for (i, channel) in timeline.channels.iter().enumerate() {
        all.extend(channel_lines(i, channel));
    }
    for talk in &timeline.talk {
        let with = usize::from(talk.with);
        let Some(channel) = timeline.channels.get(with) else {
            continue;
        };
        let who = match &channel.party {
            Role::Extension(extension) => format!("extension {}", safe(extension)),
            Role::Trunk(trunk) => format!("the other party on {}", safe(trunk)),
            Role::Customer(_) | Role::Plumbing => "this channel".to_owned(),
        };
        let message = format!("talk of the customer with {who} begins");
        all.push(line(talk.from, 8, with, message));
        let lasted = seconds(talk.to.since(talk.from));
        let message = format!("talk with {who} ends after {lasted}");
        all.push(line(talk.to, 5, with, message));
    }
    for (i, channel) in timeline.channels.iter().enumerate() {
        for stay in &channel.stays {
            let enters = if stay.holding { "waits in" } else { "enters" };
            let bridge = bridge(stay.bridge);
            all.push(line(stay.from, 7, i, format!("{enters} {bridge}")));
            all.push(line(stay.to, 6, i, format!("leaves {bridge}")));
        }
    }
    all.sort();
    name_bridges(&mut all, timeline);
    all
}

fn bridge(number: u16) -> String {
    format!("bridge {}", u32::from(number) + 1)
}

/// Adds each bridge's id to the text of the first event in the bridge.
fn name_bridges(lines: &mut [StoryLine], timeline: &Timeline) {
    for (number, id) in (0..).zip(&timeline.bridges) {
        let name = bridge(number);
        let mut met = lines.iter_mut().filter(|line| line.rank == 7);
        let Some(first) = met.find(|line| line.message.ends_with(&format!(" {name}"))) else {
            continue;
        };
        if !id.is_empty() {
            let _ = write!(first.message, " ({})", short(id, NAME_MAX));
        }
        let mut stays = timeline.channels.iter().flat_map(|channel| &channel.stays);
        if stays.any(|stay| stay.holding && stay.bridge == number) {
            first.message.push_str(": the parties cannot talk");
        }
    }
}

fn channel_lines(i: usize, channel: &Channel) -> Vec<StoryLine> {
    let mut all = Vec::new();
    let dialing_shown = channel
        .moments
        .iter()
        .any(|moment| matches!(moment.what, MomentKind::Dialed { .. }));
    let begins = match (channel.way, &channel.party) {
        (_, Role::Plumbing) => Some("is made"),
        (Way::CameIn, Role::Extension(_)) => Some("calls"),
        (Way::CameIn, Role::Customer(_) | Role::Trunk(_)) => Some("comes in"),
        // The dialing shows more than the creation of the channel just before it.
        (Way::Dialed, _) if dialing_shown => None,
        (Way::Dialed, _) => Some("is made"),
    };
    if let Some(begins) = begins {
        let message = format!("{begins}: {}", channel.how);
        all.push(line(channel.from, 0, i, message));
    }
    for moment in &channel.moments {
        let (rank, message) = match &moment.what {
            MomentKind::Dialed { by, string } => (1, dialing(*by, string)),
            MomentKind::Rings => (2, "rings".to_owned()),
            MomentKind::Up => (3, "is up".to_owned()),
            MomentKind::DialEnded(status) if status.is_empty() || status == "ANSWER" => continue,
            MomentKind::DialEnded(status) => (4, format!("dialing it ended: {}", safe(status))),
            MomentKind::HungUp { cause } => (9, hang_up(*cause)),
        };
        let new = line(moment.at, rank, i, message);
        // Both sides of a Local channel can report the same end.
        let is_repeated = all
            .iter()
            .any(|earlier| earlier.rank == 4 && earlier.message == new.message);
        if !is_repeated {
            all.push(new);
        }
    }
    if !channel.hung_up() {
        let message = "has its last event here: no hang-up was received";
        all.push(line(channel.to, 9, i, message));
    }
    all
}

fn dialing(by: Option<u16>, string: &str) -> String {
    let mut message = match by {
        Some(by) => format!("is dialed by {}", label(usize::from(by))),
        None => "is dialed".to_owned(),
    };
    if !string.is_empty() {
        let _ = write!(message, " as {}", short(string, DIAL_STRING_MAX));
    }
    message
}

fn hang_up(cause: Option<u16>) -> String {
    match cause {
        None | Some(0) => "hangs up".to_owned(),
        Some(cause) => format!("hangs up: {}", cause_and_words(cause)),
    }
}

/// Returns the cause with its text: `busy (17)`, or `cause 999` for a cause without a text.
pub(super) fn cause_and_words(cause: u16) -> String {
    match cause_words(cause) {
        Some(text) => format!("{text} ({cause})"),
        None => format!("cause {cause}"),
    }
}

/// Returns the text for a Q.850 cause that PBXs use.
pub fn cause_words(cause: u16) -> Option<&'static str> {
    Some(match cause {
        1 => "number not assigned",
        3 => "no route to the destination",
        16 => "normal clearing",
        17 => "busy",
        18 => "no user responding",
        19 => "no answer",
        20 => "subscriber absent",
        21 => "call rejected",
        22 => "number changed",
        26 => "answered elsewhere",
        27 => "destination out of order",
        28 => "number incomplete",
        31 => "normal, unspecified",
        34 => "no circuit available",
        38 => "network out of order",
        41 => "temporary failure",
        42 => "congestion",
        44 => "channel not available",
        50 => "not subscribed",
        58 => "bearer capability not available",
        88 => "incompatible destination",
        102 => "timer expired",
        127 => "interworking",
        _ => return None,
    })
}

/// Formats a span: `4.010 s`, `3 min 02 s`, `2 h 03 min`.
pub fn seconds(span: Duration) -> String {
    let whole = span.as_secs();
    match whole {
        0..60 => format!("{:.3} s", span.as_secs_f64()),
        60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole / 60 % 60),
    }
}

/// Shortens a text to at most `most` characters. A longer text keeps its beginning and its end.
pub fn short(text: &str, most: usize) -> String {
    let text = safe(text);
    let length = text.chars().count();
    if length <= most {
        return text;
    }
    let head: String = text.chars().take(most / 2).collect();
    let tail: String = text.chars().skip(length - (most - most / 2 - 1)).collect();
    format!("{head}…{tail}")
}

/// Whether a text has terminal colors. Off by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paint {
    /// Escape sequences for colors are written.
    pub color: bool,
}

impl Paint {
    /// Returns the text in this color (SGR code), or unchanged without colors.
    pub fn color_text(self, code: &str, text: &str) -> String {
        if self.color {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    /// Returns the text, dimmed.
    pub fn dim(self, text: &str) -> String {
        if text.trim().is_empty() {
            text.to_owned()
        } else {
            self.color_text("2", text)
        }
    }
}
