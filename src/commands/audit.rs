//! `audit`, which compares a file from the PBX with the calls in the state. The daemon also
//! searches the CRM's journal for the calls that are journaled according to the state.

use super::control::conversation::{all_items, converse, json_line, line, parse_item, zone_of};
use super::explain;
use crate::config::{Asking, Audit};
use crate::{Failure, OrFail as _, Result, print};
use callbridge_admin::audit::records::{self, UnreadRecord};
use callbridge_admin::audit::{FileCall, JournalAnswer, JournalFindings, JournalSearch, Listening};
use callbridge_admin::audit::{Report, UnreadCall, account, add_unread, journal::progress};
use callbridge_admin::dead_letters::Selection;
use callbridge_admin::{ControlRequest, explain::reading::Reading, state_access};
use callbridge_call::{EventTime, FinishedCall, ReportedCall};
use callbridge_formats::Format;
use callbridge_intake::{read_again::RECORD_IN_FILE, unmatched::device};
use callbridge_mapping::{People, journal};
use callbridge_model::{CallUuid, Code, Reason, clock, plain_file, status::BudgetStatus};
use callbridge_spool::{AuditedFate, JournaledCall};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fs::File, io::IsTerminal as _, io::Write};

/// Maximum number of calls per request to the daemon.
const ASKED_MAX: usize = 200;

/// Runs `audit`, which prints the report, stores its counts for the metrics, and takes in calls if
/// `--take-in` is given.
///
/// # Errors
/// Fails with 1 if a call is unexplained or has different values, 65 if the file can't be read, 66
/// if it's missing, or 69 if there's neither a daemon nor a state.
pub(crate) async fn run(mut audit: Audit, notes: &mut (dyn Write + Send)) -> Result<()> {
    let at = Asking::from_config(&audit.config, audit.json);
    if audit.config.pbx_id.is_none() {
        audit.config.pbx_id = Some(pbx_of(&at).await?);
    }
    let audit = &audit;
    let lists = explain::lists(&audit.config.rules, notes)?;
    let mut calls = Vec::new();
    let (unread, message) = read(audit, lists.people(), |call, _| calls.push(call))?;
    // If stderr is closed, nobody wants the notes.
    let _ = notes.write_all(message.as_bytes());
    let (fates, listening) = fates(&at, &calls).await?;
    let found = search_journal(audit, &at, &calls, notes).await?;
    let incomplete: BTreeSet<&str> = calls
        .iter()
        .zip(&fates)
        .filter(|(call, fate)| call.corrects(fate))
        .map(|(call, _)| call.linkedid.as_str())
        .collect();
    let lost: BTreeMap<&str, CallUuid> = found
        .missing
        .iter()
        .filter_map(|(index, lost)| Some((calls.get(*index)?.linkedid.as_str(), lost.uuid)))
        .collect();
    let zone = zone_of(&at, None);
    let mut report = account(&calls, &fates, &listening, found, &zone);
    add_all_unread(&at, audit, unread, &mut report).await?;
    let missing: BTreeSet<&str> = report
        .unexplained
        .iter()
        .map(|unexplained| unexplained.call.linkedid.as_str())
        .collect();
    let result = ControlRequest::Audited {
        unexplained: missing.len() as u64,
        different: report.different.len() as u64,
    };
    converse(&at, result, |_, _| Ok(())).await?;
    if at.json {
        json_line(&serde_json::json!(report))?;
    } else {
        print(report.to_text(&zone))?;
    }
    if audit.take_in {
        let mut wanted = Vec::new();
        read(audit, lists.people(), |call, journaled| {
            let linkedid = call.linkedid.as_str();
            if missing.contains(linkedid) || incomplete.contains(linkedid) {
                wanted.push((journaled, lost.get(linkedid).copied()));
            }
        })?;
        take_in(&at, wanted).await?;
    }
    if report.is_clean() {
        Ok(())
    } else {
        Err(Failure::silent(Code::Failed))
    }
}

/// Returns the name of the state's PBX, which is part of each call's UUID. Fails unless the state
/// has exactly one PBX.
async fn pbx_of(at: &Asking) -> Result<String> {
    let mut known = BTreeSet::new();
    for item in all_items::<Value>(at, ControlRequest::Status).await? {
        let sources = item["sources"].as_array().into_iter().flatten();
        let named = sources.filter_map(|source| source["pbx"].as_str());
        let all = item["pbxId"].as_str().into_iter().chain(named);
        known.extend(all.map(str::to_owned));
    }
    let names: Vec<String> = known.into_iter().filter(|name| !name.is_empty()).collect();
    match <[String; 1]>::try_from(names) {
        Ok([only]) => Ok(only),
        Err(names) => {
            let known = match names.join(", ") {
                none if none.is_empty() => "no PBX".to_owned(),
                names => names,
            };
            let message = format!(
                "--pbx-id: name the PBX that wrote the file ({} knows {known})",
                at.state
            );
            Err(Failure::new(Code::Usage, message))
        }
    }
}

/// Passes each of the file's calls to `each`, as judged by the current flags. Returns the parts of
/// the file that can't be read, along with lines for stderr that list them.
fn read(
    audit: &Audit,
    people: &People,
    mut each: impl FnMut(FileCall, (String, FinishedCall)),
) -> Result<(Unread, String)> {
    let rules = &audit.config.rules;
    let is_cdr = audit.format == Format::CdrCsv;
    let mut lines = if is_cdr {
        records::open(&audit.file, audit.from).or_fail_at(Code::Input, audit.file.display())?
    } else {
        None
    };
    let (file, format): (Box<dyn std::io::Read + '_>, _) = match &mut lines {
        Some(lines) => (Box::new(lines), Format::FreeswitchCdr),
        None if is_cdr => {
            let format = records::format_of(&audit.file, audit.format);
            (Box::new(open_file(audit)?), format)
        }
        None => (Box::new(open_file(audit)?), audit.format),
    };
    let mut reading = Reading::new(explain::rules(&audit.config, format));
    let of_file = (&*audit.file, format);
    let beginning = explain::read(file, of_file, &mut reading, |reading, calls, is_last| {
        let ended = calls.into_iter().flatten().map(|call| (call, false));
        // Calls that are still open at the end of the file are compared too, because their start
        // has been read.
        let under_way = if is_last { reading.under_way() } else { vec![] };
        let open = under_way.into_iter().map(|call| (call, true));
        for (ReportedCall { pbx, call }, is_open) in ended.chain(open) {
            let early = audit.from.is_some_and(|from| call.started < from);
            let late = audit.until.is_some_and(|until| call.started >= until);
            if early || late {
                continue;
            }
            let judged = journal::judge(&call, &pbx, rules, people, reading.now());
            let mut file_call = FileCall::new(&call, &judged, |prefix| {
                rules.trunks.take_in(&pbx, prefix)
                    || people.knows(&device(prefix), &rules.trunks, &pbx)
            });
            file_call.is_open = is_open;
            file_call.has_late_end = format != Format::FreeswitchCdr;
            each(file_call, (pbx, call));
        }
        Ok(true)
    })?;
    let counts = reading.counts();
    let files = lines.map(|lines| lines.unread().to_vec());
    let has_unread_files = files.as_ref().is_some_and(|files| !files.is_empty());
    if counts.is_doubtful()
        && !has_unread_files
        && let Some(message) = explain::unreadable(of_file, &beginning, counts.is_readable())
    {
        return Err(Failure::new(Code::Input, message));
    }
    Ok(match files {
        Some(files) => (Unread::Files(files), String::new()),
        None => {
            let message = explain::reading_notes(&reading);
            (Unread::Rows(counts.unreadable), message)
        }
    })
}

fn open_file(audit: &Audit) -> Result<File> {
    // The PBX can write to this directory and might replace the file with a FIFO, which mustn't
    // block when it's opened.
    plain_file::open_named(&audit.file)
        .map_err(|error| Failure::unreadable_file(audit.file.display(), &error))
}

/// The parts of the audited file that couldn't be read.
enum Unread {
    /// Records in a directory with one file per record.
    Files(Vec<UnreadRecord>),
    /// The number of rows in a single file.
    Rows(u64),
}

/// Adds the unread parts to the report, and marks those for which the state has dead letters.
async fn add_all_unread(
    at: &Asking,
    audit: &Audit,
    unread: Unread,
    report: &mut Report,
) -> Result<()> {
    if matches!(&unread, Unread::Rows(0)) {
        return Ok(());
    }
    let which = Selection {
        reason: Some(Reason::Unreadable),
        ..Selection::default()
    };
    let letters: Vec<Value> = all_items(
        at,
        ControlRequest::Letters {
            which,
            whole: false,
        },
    )
    .await?;
    let kept: Vec<&str> = letters
        .iter()
        .filter_map(|letter| letter["file"].as_str())
        .collect();
    let now = clock::now().wall;
    match unread {
        Unread::Files(files) => {
            // The directory may be a copy, so files are only compared by name.
            let names: BTreeSet<_> = kept
                .iter()
                .map(|file| Path::new(file).file_name())
                .collect();
            for record in files {
                let unread = UnreadCall {
                    file: record.file.display().to_string(),
                    written: record.written,
                    reason: record.reason,
                    is_dead_letter: names.contains(&record.file.file_name()),
                    records: 1,
                };
                add_unread(report, &unread, now);
            }
        }
        Unread::Rows(rows) => {
            let file = audit.file.display().to_string();
            let of_file = kept.iter().filter(|kept| {
                let place = kept.strip_prefix(file.as_str());
                place.is_some_and(|place| place.starts_with(RECORD_IN_FILE))
            });
            let dead = (of_file.count() as u64).min(rows);
            for (records, is_dead_letter) in [(dead, true), (rows - dead, false)] {
                let unread = UnreadCall {
                    file: file.clone(),
                    written: EventTime::from_seconds(0),
                    reason: format!(
                        "{records} of its records cannot be read (see `callbridge explain`)"
                    ),
                    is_dead_letter,
                    records,
                };
                if records > 0 {
                    add_unread(report, &unread, now);
                }
            }
        }
    }
    Ok(())
}

/// Asks the state for each call's outcome and values, and for the times during which their PBXs
/// weren't connected. Each request contains up to `ASKED_MAX` calls.
async fn fates(at: &Asking, calls: &[FileCall]) -> Result<(Vec<AuditedFate>, Listening)> {
    let mut fates = Vec::new();
    let mut listening = Listening::default();
    for chunk in calls.chunks(ASKED_MAX) {
        let calls = chunk.iter().map(|call| call.asked.clone()).collect();
        let items: Vec<Value> = all_items(at, ControlRequest::Audit { calls }).await?;
        let Some((times, answers)) = items.split_first() else {
            continue;
        };
        listening.add(parse_item(times)?);
        for fate in answers {
            fates.push(parse_item(fate)?);
        }
    }
    Ok((fates, listening))
}

async fn take_in(at: &Asking, all: Vec<((String, FinishedCall), Option<CallUuid>)>) -> Result<()> {
    let mut taken = 0_u64;
    let mut corrected = 0_u64;
    let mut left_out = 0_u64;
    for ((pbx, call), lost) in all {
        let call = Box::new(call);
        converse(at, ControlRequest::TakeIn { pbx, call, lost }, |item, _| {
            match item["result"].as_str() {
                Some("taken_in") => taken += 1,
                Some("corrected") => corrected += 1,
                _ => left_out += 1,
            }
            if at.json { json_line(item) } else { Ok(()) }
        })
        .await?;
    }
    if at.json {
        return Ok(());
    }
    let corrections = match corrected {
        0 => String::new(),
        count => format!("; {count} `incomplete` dead letters corrected"),
    };
    line(&format!(
        "{taken} taken in{corrections}; {left_out} left out, because the current flags do not let \
         them through or they are already known"
    ))
}

/// If a search has at most this many pages, it's short, so no progress is shown.
const PAGES_FEW: u32 = 5;

/// Searches the CRM's journal for the calls that are journaled according to the state. If the
/// journal can't be read, the audit doesn't fail, but the findings say why.
pub(super) async fn search_journal(
    audit: &Audit,
    at: &Asking,
    calls: &[FileCall],
    notes: &mut (dyn Write + Send),
) -> Result<JournalFindings> {
    if !audit.journal {
        return Ok(JournalFindings::unread("--no-journal was given"));
    }
    let journaled = journaled(at, calls).await?;
    let mut search = JournalSearch::new(journaled, clock::now().wall);
    let is_watched = std::io::stderr().is_terminal();
    let mut pace = None;
    let mut shown = false;
    while let Some(query) = search.next() {
        if !search.pause().is_zero() {
            tokio::time::sleep(search.pause()).await;
        }
        match all_items(at, ControlRequest::JournalPage(query)).await {
            Ok(mut answers) => {
                let reason = "the daemon gave no answer".to_owned();
                search.on_answer(answers.pop().unwrap_or(JournalAnswer::Failed { reason }));
            }
            Err(failure) => search.give_up(failure.to_string()),
        }
        if let Some((left, all)) = search.pages()
            && is_watched
            && all > PAGES_FEW
        {
            if pace.is_none() {
                pace = Some(budget(at).await);
            }
            let message = progress(left, all, pace.flatten());
            // This only fails if the terminal is gone.
            let _ = write!(notes, "\r{message}\x1b[K");
            shown = true;
        }
    }
    if shown {
        let _ = writeln!(notes);
    }
    Ok(search.findings())
}

/// Returns the calls that are journaled according to the state, each with its index in `calls`.
async fn journaled(at: &Asking, calls: &[FileCall]) -> Result<Vec<(usize, JournaledCall)>> {
    let mut journaled: Vec<Option<JournaledCall>> = Vec::new();
    for chunk in calls.chunks(ASKED_MAX) {
        let calls = chunk.iter().map(|call| call.asked.clone()).collect();
        journaled.extend(all_items(at, ControlRequest::Journaled { calls }).await?);
    }
    let indexed = journaled.into_iter().enumerate();
    Ok(indexed
        .filter_map(|(index, call)| Some((index, call?)))
        .collect())
}

/// Returns the daemon's request budget, of which requests for pages of the journal use half.
async fn budget(at: &Asking) -> Option<BudgetStatus> {
    let status = state_access::status(at.state.socket_folder())
        .await
        .ok()??;
    Some(status.budget)
}
