//! The matrix consists of fixed stories, each told by every source in its own format and read with
//! the real decoders. Each cell shows how well the source tells the story. All cells are shown in
//! `docs/exactness.md`, so a rule that's only been fixed for one source stands out there. No cell
//! may be both complete and wrong.
//!
//! `CALLBRIDGE_SHOW_STORY=pickup` prints what each source writes for a story, and the resulting
//! calls.
//!
//! If no teller can tell a story the way the PBX would, the cell is based on a recording of such a
//! call. If there isn't one either, the cell isn't covered.
//!
//! | module | what it does |
//! |---|---|
//! | `stories` | plays the stories on the simulated switchboard |
//! | `scene` | tracks the state of channels over the course of a story |
//! | `ami`, `ami1`, `cel`, `cdr` | tell a story as Asterisk does |
//! | `freeswitch`, `freeswitch_cdr` | tell a story as FreeSWITCH does |
//! | `message` | tells a story as call messages |
//! | `recorded` | reads recordings |
//! | `faithful` | compares what the tellers write with recordings |
//! | `measure` | compares the calls with the true ones |
//! | `page` | writes the tables in the docs |

mod ami;
mod ami1;
mod cdr;
mod cel;
mod faithful;
mod freeswitch;
mod freeswitch_cdr;
mod measure;
mod message;
mod page;
mod recorded;
mod scene;
mod stories;

use crate::truth;
use callbridge_call::{Direction, Origin};
use callbridge_formats::Format;
use measure::{Cell, Facts};
use stories::{STORIES, Story};

/// A source, as it's called in the docs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Ami,
    Ami1,
    Cel,
    Cdr,
    BareCdr,
    Freeswitch,
    FreeswitchCdr,
    Message,
}

const SOURCES: [Source; 8] = [
    Source::Ami,
    Source::Ami1,
    Source::Cel,
    Source::Cdr,
    Source::BareCdr,
    Source::Freeswitch,
    Source::FreeswitchCdr,
    Source::Message,
];

impl Source {
    const fn name(self) -> &'static str {
        match self {
            Self::Ami => "AMI",
            Self::Ami1 => "AMI 1.x",
            Self::Cel => "CEL",
            Self::Cdr => "CDR",
            Self::BareCdr => "CDR without linkedid",
            Self::Freeswitch => "FreeSWITCH",
            Self::FreeswitchCdr => "FreeSWITCH CDR",
            Self::Message => "call messages",
        }
    }

    const fn format(self) -> Format {
        match self {
            Self::Ami | Self::Ami1 => Format::Ami,
            Self::Cel => Format::CelCsv,
            Self::Cdr | Self::BareCdr => Format::CdrCsv,
            Self::Freeswitch => Format::Freeswitch,
            Self::FreeswitchCdr => Format::FreeswitchCdr,
            Self::Message => Format::Call,
        }
    }

    /// Returns the name of the source's file in a recording.
    const fn file(self) -> &'static str {
        match self {
            Self::Cel => "cel.csv",
            Self::Cdr | Self::BareCdr => "cdr.csv",
            Self::FreeswitchCdr => "json_cdr.jsonl",
            _ => "ami.raw",
        }
    }

    /// Returns by how many seconds its times may differ from the true ones.
    const fn slack(self) -> f64 {
        match self {
            Self::Cdr | Self::BareCdr => ABOUT_A_SECOND,
            _ => 0.1,
        }
    }

    /// Returns the origin of the events to consider, since some AMI recordings contain CEL events
    /// as well.
    const fn origin(self) -> Origin {
        match self {
            Self::Cel => Origin::Cel,
            _ => Origin::Channel,
        }
    }
}

/// Cells that are complete but wrong, given by the story, the source, and the reason. A cell that's
/// no longer wrong must be removed from the list.
const WRONG_TODAY: [(&str, Source, &str); 2] = [
    ("callback", Source::Cdr, CALLED_FIRST),
    ("callback", Source::BareCdr, CALLED_FIRST),
];
/// No rule can help here, so the docs recommend a different source.
const CALLED_FIRST: &str = "a customer whom the PBX calls first has the records of a caller";

/// Returns the recording of a story that no teller can tell the way the PBX would.
fn recording(story: &str, source: Source) -> Option<&'static str> {
    Some(match (source, story) {
        (Source::Ami | Source::BareCdr, "blonde transfer") => "blonde_transfer",
        (Source::Cel, "blonde transfer") => "asterisk-old/16/blonde_transfer_dtmf",
        (Source::Cdr, "blonde transfer") => "asterisk-old/13/blonde_transfer_dtmf",
        (Source::Ami1, "blind transfer") => "asterisk-old/11/blind_transfer_dtmf",
        (Source::Ami1, "attended transfer") => "asterisk-old/11/attended_transfer_dtmf",
        (Source::Ami1, "blonde transfer") => "asterisk-old/11/blonde_transfer_dtmf",
        (Source::Ami1, "pickup") => "asterisk-old/11/pickup",
        (Source::Ami1, "parking") => "asterisk-old/11/park_refer",
        (Source::Ami1, "conference") => "asterisk-old/11/conference",
        (Source::FreeswitchCdr, "queue") => "freeswitch/queue_second_agent",
        (Source::FreeswitchCdr, "attended transfer") => "freeswitch/attended_transfer",
        (Source::FreeswitchCdr, "pickup") => "freeswitch/pickup",
        (Source::FreeswitchCdr, "parking") => "freeswitch/park",
        (Source::FreeswitchCdr, "conference") => "freeswitch/conference",
        _ => return None,
    })
}

/// Returns `true` if there's neither a teller nor a recording.
fn is_uncovered(story: &str, source: Source) -> bool {
    matches!(
        (source, story),
        (
            Source::Ami1,
            "agent login" | "agent login through a queue" | "conference of two customers"
        ) | (
            Source::FreeswitchCdr,
            "agent login" | "agent login through a queue" | "blonde transfer"
        )
    )
}

/// A recording's times are relative to its story, and Asterisk's CDRs have whole seconds, each of
/// which may have been rounded down.
const ABOUT_A_SECOND: f64 = 1.1;

/// Returns the customers' calls that really take place in a story.
fn true_calls(story: &Story) -> Vec<Facts> {
    let calls = truth::calls(&story.deeds(), false);
    let customers = calls
        .iter()
        .filter(|call| call.direction != Direction::Internal);
    let mut facts: Vec<Facts> = customers.map(Facts::from).collect();
    facts.sort_by(|a, b| a.started.total_cmp(&b.started));
    facts
}

/// Returns how well the source tells the story, or `None` if it isn't covered.
fn cell(story: &Story, source: Source) -> Option<Cell> {
    if is_uncovered(story.name, source) {
        return None;
    }
    let (truth, bytes, slack) = if let Some(folder) = recording(story.name, source) {
        let truth = recorded::truth(folder, source != Source::Ami1);
        (truth, recorded::file(folder, source.file()), ABOUT_A_SECOND)
    } else {
        (true_calls(story), tell(story, source), source.slack())
    };
    let given = measure::calls(&bytes, source.format(), source.origin());
    if std::env::var_os("CALLBRIDGE_SHOW_STORY").is_some_and(|wanted| wanted == *story.name) {
        let text = String::from_utf8_lossy(&bytes);
        println!("{source:?}: {text}\n{given:#?}");
    }
    Some(Cell::measure(&truth, &given, slack))
}

/// Returns what the source writes about the story.
fn tell(story: &Story, source: Source) -> Vec<u8> {
    let deeds = story.deeds();
    match source {
        Source::Ami => ami::tell(&deeds),
        Source::Ami1 => ami1::tell(&deeds),
        Source::Cel => cel::tell(&deeds),
        Source::Cdr => cdr::tell(&deeds, true),
        Source::BareCdr => cdr::tell(&deeds, false),
        Source::Freeswitch => freeswitch::tell(&deeds),
        Source::FreeswitchCdr => freeswitch_cdr::tell(&deeds),
        Source::Message => message::tell(&true_calls(story)),
    }
}

/// Promise: A call that is logged as complete is right, whichever source reports it.
#[test]
fn no_source_tells_a_story_completely_and_wrongly() {
    let mut wrong = Vec::new();
    for story in STORIES {
        for source in SOURCES {
            let is_listed = WRONG_TODAY
                .iter()
                .any(|(name, by, _)| (*name, *by) == (story.name, source));
            let cell = cell(&story, source);
            let class = cell.as_ref().map_or("not covered", |cell| &cell.class);
            let is_wrong = cell.as_ref().is_some_and(Cell::is_wrong);
            if is_wrong != is_listed {
                wrong.push(format!("{} by {}: {class}", story.name, source.name()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "these cells differ from WRONG_TODAY:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn docs_tables_of_exactness_come_from_the_matrix() {
    page::check(&page::tables());
}
