//! `explain`, which shows which of a recording's calls would be journaled, with which values, and
//! why. It doesn't send anything.
//!
//! | module | what it contains |
//! | [`choice`] | which call is meant by `--call` |
//! | [`choice`] | which call `--call` means |
//! | [`kept`] | a stored call |
//! | [`utf16`] | files in UTF-16 |

pub(crate) mod choice;
pub(crate) mod kept;
mod utf16;

use crate::config::{Config, Explain};
use crate::{Failure, OrFail as _, Result};
use callbridge_admin::explain::reading::{ReadCall, Reading, UnreadableMessages};
use callbridge_admin::explain::story::{Paint, Times};
use callbridge_admin::explain::text::{Depth, Explained};
use callbridge_admin::explain::{PBX, picture, reading, shape, text};
use callbridge_admin::{audit::records, explain::shape::Other};
use callbridge_call::decoded::WrongCall;
use callbridge_call::trunk::extension;
use callbridge_call::{EventTime, FinishedCall, ReportedCall, Role};
use callbridge_formats::{Format, Likeness};
use callbridge_intake::written;
use callbridge_mapping::journal::figures::{wrong_end, wrong_start};
use callbridge_mapping::{People, Rules, judge, people::files::Watched};
use callbridge_model::{Code, Environment, Judged, TypedNumber, Zone, clock, safe};
use choice::Choice;
use std::{collections::BTreeMap, fs::File, io, io::IsTerminal as _, io::Write, path::Path};

/// Number of bytes to read from a file at a time.
const PIECE_BYTES: usize = 256 << 10;

/// Maximum number of calls waiting for the end of the recording. A call whose start is impossible
/// waits, and is judged by the time at which the recording ends.
const WAITING_MAX: usize = 10_000;

/// Loads the lists of leads and employees. Bad rows are reported to `notes`, and the good ones are
/// used.
pub(crate) fn lists(rules: &Rules, notes: &mut dyn Write) -> Result<Watched> {
    let loaded = Watched::load(rules.every_trunk(), clock::now().wall);
    let (lists, news) = loaded.map_err(|errors| {
        let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
        Failure::new(Code::Input, messages.join("\n"))
    })?;
    for news in &news {
        let Some(about) = news.list_report() else {
            continue;
        };
        for row in &about.named {
            let _ = writeln!(notes, "callbridge: {}: {row}", news.file.display());
        }
    }
    Ok(lists)
}

/// Explains a recording. `out` is stdout, and `notes` is stderr.
///
/// # Errors
/// Fails with 66 if the file is missing, with 65 if no part of it has the given format, or with 1
/// if it doesn't contain the call in `--call`.
pub fn run(
    explain: &Explain,
    environment: &Environment,
    out: &mut dyn Write,
    notes: &mut dyn Write,
) -> Result<()> {
    let Some((path, format)) = &explain.file else {
        let message = "FILE is missing: give a recording";
        return Err(Failure::new(Code::Usage, message));
    };
    let file = open(path, *format)?;
    let config = &explain.config;
    let lists = lists(&config.rules, notes)?;
    let color = callbridge_ops::log::color(environment, io::stdout().is_terminal());
    // With `--call` or `--picture`, only one call is shown.
    let chooses = explain.call.is_some() || explain.picture.is_some();
    let mut printing = Printing {
        explain,
        people: lists.people(),
        choice: chooses.then(|| Choice::new(explain.call.as_deref(), number(explain))),
        zone: Zone::from_pbx(config.pbx_timezone.as_ref()),
        paint: Paint { color },
        waiting: Vec::new(),
        nameless: Vec::new(),
        names_calls: false,
        endpoints: Endpoints::default(),
        out,
        closed: false,
    };
    let mut reading = Reading::new(rules(config, *format));
    let of_file = (&**path, *format);
    let beginning = read(file, of_file, &mut reading, |reading, calls, is_last| {
        printing.calls(calls, is_last, reading.now())?;
        Ok(!printing.closed)
    })?;
    if printing.closed {
        return Ok(());
    }
    // Invalid messages that identify a call have already been reported individually.
    let partly = reading.counts().is_readable() || printing.names_calls;
    if reading.counts().is_doubtful()
        && let Some(mut message) = unreadable(of_file, &beginning, partly)
    {
        // If the file looks like a different format, that message is enough.
        if !message.contains("--format")
            && let Some(wrong) = printing.nameless.first()
        {
            message.push_str(&format!("; the first message: {wrong}"));
        }
        return Err(Failure::new(Code::Input, message));
    }
    for wrong in std::mem::take(&mut printing.nameless) {
        printing.print(&shape::wrong_message(&wrong, explain.json))?;
    }
    printing.flush()?;
    let choice = printing.choice.take();
    // This only fails if stderr is closed.
    let summary = summary(&reading, &printing.endpoints, config);
    let _ = notes.write_all(summary.as_bytes());
    let Some(choice) = choice else { return Ok(()) };
    let (chosen, others) = choice.into_chosen(&path.display().to_string())?;
    printing.print_chosen(&chosen, &others)
}

/// Parses `--call` as a phone number, or returns `None` if it can't be one.
fn number(explain: &Explain) -> Option<TypedNumber> {
    let rules = &explain.config.rules;
    let countries = rules.trunks.iter().filter_map(|trunk| trunk.country);
    TypedNumber::read(explain.call.as_deref()?, countries.chain(rules.country))
}

/// Opens the recording, which may be a file, stdin, or a directory with one file per record.
fn open(path: &Path, format: Format) -> Result<Box<dyn io::Read>> {
    try_open(path, format).map_err(|error| Failure::unreadable_file(path.display(), &error))
}

fn try_open(path: &Path, format: Format) -> io::Result<Box<dyn io::Read>> {
    let is_stdin = path.as_os_str() == "-";
    let source = if is_stdin {
        Path::new("/dev/stdin")
    } else {
        path
    };
    let file = File::open(source)?;
    if !file.metadata()?.is_dir() {
        return Ok(Box::new(file));
    }
    if format == Format::FreeswitchCdr
        && let Some(lines) = records::open(path, None)?
    {
        return Ok(Box::new(lines));
    }
    Err(io::ErrorKind::IsADirectory.into())
}

/// Returns the rules for reading a recording in this format with the flags in `config`.
pub(crate) fn rules(config: &Config, format: Format) -> reading::Rules {
    let trunks = &config.rules.trunks;
    let mut named = trunks.iter().filter_map(|trunk| trunk.pbx.as_deref());
    // Without --pbx-id, use the PBX given by the trunks, if it's the same for all of them.
    let first = named.next();
    let only = first.filter(|first| named.all(|other| other == *first));
    reading::Rules {
        format,
        pbx: config.pbx_id.as_deref().or(only).unwrap_or(PBX).to_owned(),
        trunks: trunks.clone(),
        settings: config.calls.clone(),
        zone: config.pbx_timezone.clone(),
        columns: config.columns.clone(),
    }
}

/// Reads a file to its end, and returns its start. `each` is given every piece's calls, and `true`
/// for the last piece. If it returns `false`, reading stops.
///
/// # Errors
/// Fails with 65 if the file can't be read or is in a different format, or with 64 if two endpoints
/// conflict.
pub(crate) fn read(
    file: Box<dyn io::Read + '_>,
    (path, format): (&Path, Format),
    reading: &mut Reading,
    mut each: impl FnMut(&mut Reading, Vec<ReadCall>, bool) -> Result<bool>,
) -> Result<Vec<u8>> {
    let mut file = utf16::as_utf8(file).or_fail_at(Code::Input, path.display())?;
    let mut beginning = Vec::new();
    loop {
        let read = match file.read(reading.space(PIECE_BYTES)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read.or_fail_at(Code::Input, path.display())?,
        };
        if beginning.len() < PIECE_BYTES {
            let is_first = beginning.is_empty();
            let piece = &reading.space(PIECE_BYTES)[..read];
            let nuls = piece
                .iter()
                .take_while(|byte| is_first && **byte == 0)
                .count();
            beginning.extend_from_slice(&piece[nuls..]);
            // Wazo's messages are AMI as JSON in a different envelope, and their order isn't
            // reliable.
            if is_first
                && format == Format::AmiJson
                && let Some(like) = Likeness::recognize(&beginning)
                && like.format == Some(Format::Wazo)
            {
                return Err(Failure::new(
                    Code::Input,
                    other_format_message(path, format, &like),
                ));
            }
        }
        let calls = match read {
            0 => reading.finish(clock::now().wall),
            read => reading.read_bytes(read),
        };
        let calls = calls.or_fail_at(Code::Usage, "--trunk")?;
        if !each(reading, calls, read == 0)? || read == 0 {
            return Ok(beginning);
        }
    }
}

/// The output of `explain`, and the calls to print at the end of the recording.
struct Printing<'a> {
    explain: &'a Explain,
    people: &'a People,
    /// With `--call` or `--picture`, chooses the call to show after the whole recording has been
    /// read.
    choice: Option<Choice>,
    zone: Zone,
    paint: Paint,
    waiting: Vec<ReportedCall>,
    /// Invalid messages that identify neither a PBX nor a call, so the file may be in a different
    /// format.
    nameless: Vec<WrongCall>,
    /// Whether an invalid message identified its PBX or its call.
    names_calls: bool,
    endpoints: Endpoints,
    out: &'a mut dyn Write,
    /// Whether stdout has been closed by its reader.
    closed: bool,
}

impl Printing<'_> {
    fn report_wrong(&mut self, wrong: WrongCall) -> Result<()> {
        let is_named = wrong.pbx.is_some() || wrong.id.is_some();
        self.names_calls |= is_named;
        if !is_named && self.nameless.len() < WAITING_MAX {
            self.nameless.push(wrong);
            return Ok(());
        }
        self.print(&shape::wrong_message(&wrong, self.explain.json))
    }

    fn calls(&mut self, calls: Vec<ReadCall>, is_last: bool, now: EventTime) -> Result<()> {
        for call in calls {
            match call {
                Err(wrong) => self.report_wrong(wrong)?,
                // Times in such a message aren't reliable, so the call is judged by this machine's
                // clock.
                Ok(reported) if reported.call.given.is_some() => {
                    self.call(reported, clock::now().wall)?;
                }
                Ok(reported)
                    if wrong_start(reported.call.started, now).is_none()
                        && wrong_end(reported.call.ended, now).is_none() =>
                {
                    self.call(reported, now)?;
                }
                Ok(reported) if self.waiting.len() < WAITING_MAX => self.waiting.push(reported),
                Ok(reported) => self.call(reported, now)?,
            }
        }
        if is_last {
            for reported in std::mem::take(&mut self.waiting) {
                self.call(reported, now)?;
            }
        }
        self.flush()
    }

    fn call(&mut self, reported: ReportedCall, now: EventTime) -> Result<()> {
        let ReportedCall { pbx, call } = &reported;
        self.endpoints.count(call);
        let judged = judge(call, pbx, &self.explain.config.rules, self.people, now);
        if let Some(choice) = &mut self.choice {
            choice.offer(reported, judged);
            return Ok(());
        }
        if self.explain.json {
            return self.print(&shape::Shape::from_judged(&judged).to_line());
        }
        let of = self.explained(call, &judged);
        let times = Times::new(&self.zone, call.started);
        self.print(&text::block(&of, &times, Depth::Values, self.paint))
    }

    fn explained<'b>(&'b self, call: &'b FinishedCall, judged: &'b Judged) -> Explained<'b> {
        Explained {
            judged,
            state: None,
            call,
            rules: &self.explain.config.rules,
            people: self.people,
        }
    }

    /// Prints the chosen calls with all their events. With `--picture`, also draws the call, and
    /// fails if several calls were chosen.
    fn print_chosen(&mut self, chosen: &[(ReportedCall, Judged)], others: &[Other]) -> Result<()> {
        let explain = self.explain;
        for (ReportedCall { call, .. }, judged) in chosen {
            let of = self.explained(call, judged);
            let text = render(&of, explain.json, &self.zone, self.paint, others);
            self.print(&text)?;
        }
        match (&explain.picture, chosen) {
            (None, _) => Ok(()),
            (Some(file), [(ReportedCall { call, .. }, judged)]) => {
                let of = self.explained(call, judged);
                draw(&of, &self.zone, file)
            }
            (Some(_), several) => {
                let uuids: String = several
                    .iter()
                    .filter_map(|(_, judged)| judged.record.uuid)
                    .map(|uuid| format!("\n  {uuid}"))
                    .collect();
                let message = format!(
                    "--picture: several calls have this id; draw one of them by its uuid:{uuids}"
                );
                Err(Failure::new(Code::Failed, message))
            }
        }
    }

    fn print(&mut self, text: &str) -> Result<()> {
        let printed = self.out.write_all(text.as_bytes());
        self.check_printed(printed)
    }

    fn flush(&mut self) -> Result<()> {
        let flushed = self.out.flush();
        self.check_printed(flushed)
    }

    fn check_printed(&mut self, written: io::Result<()>) -> Result<()> {
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(())
            }
            written => written.or_fail(Code::Failed),
        }
    }
}

/// Formats one call with all its events, as JSON or as text.
fn render(of: &Explained<'_>, json: bool, zone: &Zone, paint: Paint, others: &[Other]) -> String {
    if json {
        return shape::Shape::with_story(of, others).to_line();
    }
    let times = Times::new(zone, of.call.started);
    let block = text::block(of, &times, Depth::Story, paint);
    block + &shape::others_to_text(others, zone)
}

/// Draws one call into a file.
fn draw(of: &Explained<'_>, zone: &Zone, file: &Path) -> Result<()> {
    let times = Times::new(zone, of.call.started);
    let Some(svg) = picture::svg(of, &times) else {
        let message = "--picture: this call has no channel events, so nothing can be drawn";
        return Err(Failure::new(Code::Failed, message));
    };
    let what = format_args!("--picture {}: cannot be written", file.display());
    std::fs::write(file, svg).or_fail_at(Code::CannotWrite, what)
}

/// Returns why none of the messages in a file with this start could be read, or `None` for an empty
/// file, or if part of the file is in the format (`partly`) and no other format fits.
pub(crate) fn unreadable(
    (path, format): (&Path, Format),
    beginning: &[u8],
    partly: bool,
) -> Option<String> {
    if beginning.trim_ascii().is_empty() {
        return None;
    }
    match Likeness::recognize(beginning).filter(|like| like.format != Some(format)) {
        Some(like) => Some(other_format_message(path, format, &like)),
        None if partly => None,
        None => {
            let reason = written::unknown_message(format, beginning);
            Some(format!("{}: {reason}", path.display()))
        }
    }
}

/// Returns the message about a file in a different format, including the flag to use.
fn other_format_message(path: &Path, format: Format, like: &Likeness) -> String {
    let shown = path.display();
    let like = like.with_advice("--format ");
    format!("{shown}: it has nothing in the format {format}, but looks like {like}")
}

/// Maximum number of endpoints to list.
const NAMED_MAX: usize = 12;
/// Maximum number of endpoints to count.
const KNOWN_MAX: usize = 4096;

/// Endpoints (channel names without their suffixes), with how many channels each one has. One of
/// them may be the trunk that's missing from the flags.
#[derive(Debug, Default)]
struct Endpoints(BTreeMap<String, u64>);

impl Endpoints {
    /// Counts a call's endpoints.
    fn count(&mut self, call: &FinishedCall) {
        let channels = call.timeline.iter().flat_map(|timeline| &timeline.channels);
        for channel in channels.filter(|channel| channel.party != Role::Plumbing) {
            let Some(extension) = extension(&channel.name) else {
                continue;
            };
            let technology = channel.name.split('/').next().unwrap_or_default();
            let endpoint = format!("{technology}/{extension}");
            if self.0.len() < KNOWN_MAX || self.0.contains_key(&endpoint) {
                *self.0.entry(endpoint).or_default() += 1;
            }
        }
    }

    /// Returns the most frequent endpoints, as in `PJSIP/city, PJSIP/101`.
    fn most_frequent(&self) -> String {
        let mut all: Vec<(&String, &u64)> = self.0.iter().collect();
        all.sort_by_key(|&(endpoint, count)| (std::cmp::Reverse(count), endpoint));
        let more = if all.len() > NAMED_MAX { ", …" } else { "" };
        let named: Vec<String> = all
            .iter()
            .take(NAMED_MAX)
            .map(|(endpoint, _)| safe(endpoint))
            .collect();
        named.join(", ") + more
    }
}

/// Describes what went wrong during reading, one message per line. This includes unreadable rows or
/// messages, grouped by reason, and a time zone contradicted by unique IDs.
pub(crate) fn reading_notes(reading: &Reading) -> String {
    let mut text = String::new();
    let unit = reading.unit();
    let what = if reading.has_only_cdrs() {
        "no call"
    } else {
        "unreadable"
    };
    let mut listed = 0;
    for messages in reading.unreadable() {
        let UnreadableMessages {
            reason,
            count,
            first,
        } = messages;
        listed += count;
        let numbers: Vec<String> = first.iter().map(u64::to_string).collect();
        let numbers = numbers.join(", ");
        text += &match *count {
            1 => format!("1 {unit} is {what}: {reason} ({unit} {numbers})\n"),
            _ if *count > first.len() as u64 => {
                format!("{count} {unit}s are {what}: {reason} ({unit}s {numbers}, …)\n")
            }
            _ => format!("{count} {unit}s are {what}: {reason} ({unit}s {numbers})\n"),
        };
    }
    let more = reading.counts().unreadable - listed;
    // Unreadable messages that contain whole calls are printed individually.
    if more > 0 && !reading.carries_whole_calls() {
        text += &format!("{more} more are {what}\n");
    }
    if let Some(wrong) = reading.wrong_zone() {
        text += &format!("{wrong}; {}\n", wrong.fix());
    }
    text
}

/// Returns a recording's summary for stderr, which says how many events were read and what's
/// missing.
fn summary(reading: &Reading, endpoints: &Endpoints, config: &Config) -> String {
    let counts = reading.counts();
    let mut text = format!(
        "{} events read ({} repaired), {} not needed, {} unreadable\n",
        counts.read, counts.repaired, counts.skipped, counts.unreadable
    );
    text += &reading_notes(reading);
    if counts.read + counts.skipped + counts.unreadable == 0 {
        text += "the file is empty\n";
    } else if counts.read + counts.unreadable == 0 && !reading.carries_whole_calls() {
        text += "nothing in the file is about a call: check that it is the right file, that it \
                 holds more than a header, and that the PBX reports call events\n";
    }
    match reading.open_calls() {
        0 => {}
        1 => text += "1 call does not end in the file and is not shown\n",
        open => text += &format!("{open} calls do not end in the file and are not shown\n"),
    }
    if counts.timeless > 0 {
        let count = counts.timeless;
        text += &format!(
            "times are only accurate to a second or so, because {count} events have no timestamp: \
             set timestampevents = yes in manager.conf\n"
        );
    }
    if !reading.carries_whole_calls() && config.rules.trunks.is_empty() {
        text += "no --trunk is given, so every call looks internal\n";
        if !endpoints.0.is_empty() {
            text += &format!(
                "give --trunk for each trunk among: {}\n",
                endpoints.most_frequent()
            );
        }
    }
    text
}
