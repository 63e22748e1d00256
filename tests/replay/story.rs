//! Tests `explain --call` and `--picture` with every recording, which show a call's story as text,
//! as JSON, and as a picture.

use callbridge::{Command as Checked, read};
use callbridge_model::Environment;
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const TRUNKS: [&str; 4] = [
    "--trunk",
    "city=PJSIP/city,country=UZ,strip=9,lead=var:LEAD_ID",
    "--trunk",
    "gsm=PJSIP/gsm,country=UZ,strip=9,lead=var:LEAD_ID",
];

fn recording(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/recordings")
        .join(name)
}

fn all_recordings() -> Vec<PathBuf> {
    let entries = fs::read_dir(recording("")).expect("the recordings");
    let all = entries.map(|entry| entry.expect("an entry").path().join("ami.raw"));
    let mut all: Vec<PathBuf> = all.filter(|path| path.exists()).collect();
    all.sort();
    assert!(all.len() >= 16, "only {} recordings", all.len());
    all
}

fn path_text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Runs `explain` for AMI in this process, so that the numbering plan tables are only loaded once.
fn explain_text(arguments: &[&str]) -> Result<String, String> {
    explain_as("--format=ami", arguments)
}

fn explain_as(format: &str, arguments: &[&str]) -> Result<String, String> {
    let environment = Environment::default();
    let all = ["callbridge", "explain", format];
    let all = all.iter().chain(arguments).map(OsString::from);
    let command = read(all, &environment).expect("good flags");
    let Checked::Explain(explain) = command else {
        panic!("{command:?}")
    };
    let (mut out, mut notes) = (Vec::new(), Vec::new());
    let ended = callbridge::run_explain(&explain, &environment, &mut out, &mut notes);
    ended.map_err(|failure| failure.to_string())?;
    Ok(String::from_utf8(out).expect("UTF-8"))
}

fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

/// Returns the IDs of a recording's calls.
fn calls(path: &Path) -> Vec<String> {
    let all = explain_text(&[&["--json", path_text(path)], &TRUNKS[..]].concat()).expect("told");
    lines(&all)
        .iter()
        .map(|call| call["linkedid"].as_str().expect("a linkedid").to_owned())
        .collect()
}

/// Returns the only call with this ID, including its timeline.
fn story(path: &Path, id: &str) -> Value {
    let flags = [&["--json", "--call", id, path_text(path)], &TRUNKS[..]].concat();
    let mut all = lines(&explain_text(&flags).expect("told"));
    assert_eq!(all.len(), 1, "{id}");
    all.remove(0)
}

/// An SVG's contents. Parsing panics if the SVG isn't well-formed XML.
#[derive(Debug, Default)]
struct Picture {
    lanes: usize,
    stays: usize,
    talks: usize,
    texts: Vec<String>,
}

fn class(element: &BytesStart<'_>) -> String {
    let class = element.try_get_attribute("class").expect("attributes");
    let value = class.map(|attribute| attribute.value.into_owned());
    String::from_utf8(value.unwrap_or_default()).expect("UTF-8")
}

fn parse_picture(svg: &str) -> Picture {
    let mut reader = Reader::from_str(svg);
    reader.config_mut().check_end_names = true;
    let (mut drawn, mut depth, mut text) = (Picture::default(), 0, String::new());
    loop {
        match reader.read_event().expect("well-formed") {
            Event::Start(element) => {
                depth += 1;
                drawn.lanes += usize::from(class(&element) == "lane");
                text.clear();
            }
            Event::Empty(element) => {
                let class = class(&element);
                let classes: Vec<&str> = class.split(' ').collect();
                drawn.stays += usize::from(classes[0] == "stay");
                drawn.talks += usize::from(class == "talk");
            }
            Event::Text(part) => text.push_str(&part.decode().expect("UTF-8")),
            Event::GeneralRef(part) => {
                let name = part.decode().expect("UTF-8");
                assert!(["amp", "lt", "gt", "quot"].contains(&&*name), "{name}");
                text.push_str(&format!("&{name};"));
            }
            Event::End(element) => {
                depth -= 1;
                if element.name().as_ref() == b"text" {
                    drawn.texts.push(text.clone());
                }
            }
            Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!(depth, 0, "every element is closed");
    drawn
}

#[test]
fn picture_has_one_lane_per_channel_and_one_bar_per_bridge_stay() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("call.svg");
    let picture = format!("--picture={}", file.display());
    let mut pictures = 0;
    for path in all_recordings() {
        for id in calls(&path) {
            let flags = [&["--call", &id, &picture, path_text(&path)], &TRUNKS[..]].concat();
            explain_text(&flags).expect("drawn");
            let svg = fs::read_to_string(&file).expect("a picture");
            let drawn = parse_picture(&svg);
            let story = story(&path, &id);
            let channels = story["timeline"]["channels"].as_array().expect("channels");
            let stays = channels
                .iter()
                .map(|channel| channel["bridges"].as_array().expect("bridges").len());
            let at = path_text(&path);
            assert_eq!(drawn.lanes, channels.len(), "{at} {id}");
            assert_eq!(drawn.stays, stays.sum::<usize>(), "{at} {id}");
            let talks = story["timeline"]["talk"].as_array().expect("talk").len();
            // Each talk span shades the lanes of the other party and the customer, and the legend
            // shows one more.
            assert!(
                drawn.talks >= talks && (drawn.talks > 0) == (talks > 0),
                "{at} {id}"
            );
            for row in ["direction", "startedAt", "durationSec", "talkTimeSec"] {
                assert!(
                    drawn.texts.iter().any(|text| text == row),
                    "{at} {id}: no {row}"
                );
            }
            assert!(
                !svg.contains("http") || svg.matches("http").count() == 1,
                "only the namespace"
            );
            pictures += 1;
        }
    }
    assert!(pictures >= 60, "only {pictures}");
}

/// Returns how long employees talked to the customer, in seconds.
fn talk_of(story: &Value) -> f64 {
    let talks = story["timeline"]["talk"].as_array().expect("talk");
    let (mut until, mut total) = (f64::MIN, 0.0);
    for talk in talks {
        let from = talk["from"].as_f64().expect("a moment");
        let to = talk["to"].as_f64().expect("a moment");
        total += (to - from.max(until)).max(0.0);
        until = until.max(to);
    }
    total
}

#[test]
fn talk_in_timeline_matches_the_explained_talk_time() {
    let mut unanswered = 0;
    for path in all_recordings() {
        for id in calls(&path) {
            let story = story(&path, &id);
            let total = talk_of(&story);
            let reported_talk = story["talkTimeSec"].as_f64().expect("talk");
            let message = format!("{} {id}: {total} {reported_talk}", path_text(&path));
            if story["answered"] == true {
                assert!((total - reported_talk).abs() <= 1.0, "{message}");
            } else {
                // Talk time of less than half a second doesn't count.
                assert!(reported_talk == 0.0 && total < 0.5, "{message}");
                unanswered += 1;
            }
        }
    }
    assert!(unanswered >= 10, "only {unanswered} unanswered calls");
}

fn explain_cdrs(flags: &[&str]) -> String {
    let flags = [flags, &["--pbx-timezone=UTC"], &TRUNKS[..]].concat();
    explain_as("--format=cdr-csv", &flags).expect("told")
}

#[test]
fn call_from_cdrs_only_is_explained_and_drawn() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("call.svg");
    let picture = format!("--picture={}", file.display());
    for path in all_recordings() {
        let path = path.with_file_name("cdr.csv");
        for call in lines(&explain_cdrs(&["--json", path_text(&path)])) {
            let id = call["linkedid"].as_str().expect("a linkedid");
            let output = explain_cdrs(&["--json", "--call", id, &picture, path_text(&path)]);
            let story = &lines(&output)[0];
            let channels = story["timeline"]["channels"].as_array().expect("channels");
            let drawn = parse_picture(&fs::read_to_string(&file).expect("a picture"));
            assert_eq!(drawn.lanes, channels.len(), "{}", path_text(&path));
            let mut texts = drawn.texts.iter();
            assert!(
                texts.any(|text| text.contains("an estimate from CDRs only")),
                "{}",
                path_text(&path)
            );
            let (total, reported_talk) =
                (talk_of(story), story["talkTimeSec"].as_f64().expect("talk"));
            // In an internal call, the talk may be with the Local channel of an agent's login.
            assert!(
                story["direction"] == "INTERNAL" || (total - reported_talk).abs() <= 1.0,
                "{} {id}: {total} {reported_talk}",
                path_text(&path)
            );
        }
    }
}

#[test]
fn call_story_fits_120_columns_and_has_no_control_characters() {
    for path in all_recordings() {
        for id in calls(&path) {
            let flags = [&["--call", &id, path_text(&path)], &TRUNKS[..]].concat();
            let text = explain_text(&flags).expect("told");
            assert!(
                !text.chars().any(|c| c.is_control() && c != '\n'),
                "{} {id}",
                path_text(&path)
            );
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(
                widest.unwrap_or(0) <= 120,
                "{} {id}: {widest:?}\n{text}",
                path_text(&path)
            );
        }
    }
}

#[test]
fn pickup_is_explained_with_one_line_per_event() {
    let path = recording("pickup/ami.raw");
    let flags = [
        &["--call=1795163529.0", "--pbx-id=pbx1", path_text(&path)],
        &TRUNKS[..],
    ]
    .concat();
    let text = explain_text(&flags).expect("told");
    let (story, values) = text
        .split_once("\n\n  direction")
        .expect("values below the story");
    let employee = "  employee          102            08:32:12.296   +2.698  C  the last to begin";
    assert!(values.contains(employee), "{values}");
    insta::assert_snapshot!(story, @r#"
    1795163529.0  journal  2026-11-20 08:32:09 UTC

      A   PJSIP/city-00000000  customer on city, came in  1795163529.0
      B   PJSIP/101-00000001   extension 101, dialed      1795163529.1
      C   PJSIP/102-00000002   extension 102, called      1795163531.2

      time          from start  talk  event
      08:32:09.597      +0.000        A  comes in: created in state Ring
      08:32:09.600      +0.003        B  is dialed by A as 101
      08:32:09.601      +0.003        B  rings
      08:32:11.789      +2.191        C  calls: created in state Ring
      08:32:11.790      +2.192        C  is up
      08:32:12.293      +2.695        A  is up
      08:32:12.294      +2.696        B  hangs up: normal clearing (16)
      08:32:12.295      +2.698        C  enters bridge 1 (f8f3d726-967f-439d-b209-dc052fcfe99f)
      08:32:12.296      +2.698  |     A  enters bridge 1
      08:32:12.296      +2.698  |     C  talk of the customer with extension 102 begins
      08:32:14.940      +5.342  |     C  talk with extension 102 ends after 2.644 s
      08:32:14.940      +5.342  |     A  leaves bridge 1
      08:32:14.941      +5.343        C  leaves bridge 1
      08:32:14.942      +5.344        C  hangs up: normal clearing (16)
      08:32:14.943      +5.345        A  hangs up: normal clearing (16)
    "#);
}

#[test]
fn pbx_timezone_is_used_for_the_timeline_if_given() {
    let path = recording("pickup/ami.raw");
    let zone = "--pbx-timezone=Asia/Tashkent";
    let flags = [
        &["--call=1795163529.0", zone, path_text(&path)],
        &TRUNKS[..],
    ]
    .concat();
    let text = explain_text(&flags).expect("told");
    assert!(
        text.starts_with("1795163529.0  journal  2026-11-20 13:32:09 +05\n"),
        "{text}"
    );
    assert!(text.contains("\n  13:32:09.597      +0.000  "), "{text}");
}

#[test]
fn hostile_channel_names_are_escaped_in_text_and_picture() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, picture) = (
        folder.path().join("ami.raw"),
        folder.path().join("call.svg"),
    );
    let recorded = fs::read(recording("inbound_answered/ami.raw")).expect("readable");
    // A channel's name may be any name that the device was registered with.
    let hostile = "PJSIP/&lt;\"]]>\u{1b}[31m\u{202e}01-";
    let text = String::from_utf8_lossy(&recorded).replace("PJSIP/101-", hostile);
    fs::write(&file, text).expect("written");
    let drawing = format!("--picture={}", picture.display());
    let text =
        explain_text(&[&[drawing.as_str(), path_text(&file)], &TRUNKS[..]].concat()).expect("told");
    assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text}");
    let svg = fs::read_to_string(&picture).expect("a picture");
    let drawn = parse_picture(&svg);
    assert_eq!(drawn.lanes, 2);
    let name = "PJSIP/&amp;lt;&quot;]]&gt;\\u{1b";
    assert!(
        drawn.texts.iter().any(|text| text.starts_with(name)),
        "{:?}",
        drawn.texts
    );
}

/// Runs the program as a process, for tests of its exit status.
fn explain(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_callbridge"))
        .env_clear()
        .args(["explain", "--format=ami"])
        .args(arguments)
        .output()
        .expect("the program runs")
}

#[test]
fn picture_exits_1_for_several_calls_and_73_if_unwritable() {
    let two = recording("two_customers_conference/ami.raw");
    let one = recording("pickup/ami.raw");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("call.svg");
    let picture = format!("--picture={}", file.display());
    let output = explain(&[&[path_text(&two), picture.as_str()], &TRUNKS[..]].concat());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("2 calls are in it; choose one with --call:\n  1795163636.91  "),
        "{stderr}"
    );
    assert!(!file.exists());
    let output = explain(&[&[path_text(&one), picture.as_str()], &TRUNKS[..]].concat());
    assert!(output.status.success() && file.exists());
    let nowhere = format!(
        "--picture={}",
        folder.path().join("no/such/call.svg").display()
    );
    let output = explain(&[&[path_text(&one), nowhere.as_str()], &TRUNKS[..]].concat());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(73), "{stderr}");
    assert!(stderr.contains("call.svg: cannot be written"), "{stderr}");
}

#[test]
fn possible_trunk_endpoints_are_named_if_no_trunk_is_given() {
    let path = recording("queue_local_members/ami.raw");
    let output = explain(&[path_text(&path)]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let named = "give --trunk for each trunk among: PJSIP/101, PJSIP/102, PJSIP/city\n";
    assert!(stderr.contains(named), "{stderr}");
    let output = explain(&[&[path_text(&path)], &TRUNKS[..]].concat());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!stderr.contains("endpoints"), "{stderr}");
}
