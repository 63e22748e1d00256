//! The recorded calls, in the format of each source.

use callbridge_call::EventTime;
use callbridge_testbed::cel_rows;
use callbridge_testbed::expected::Expected;
use callbridge_testbed::wait::pass;
use jiff::tz::{Offset, TimeZone};
use regex::bytes::{Captures, Regex};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Trunks that read the lead from a variable of the call, or else from the CDR's user field. Frames
/// that were cut in the caller's name have no variables.
pub const TRUNKS: [&str; 2] = [
    r"--trunk=city=PJSIP/city,country=UZ,strip=9,lead=var:LEAD_ID;userfield:lead=(\d+)",
    r"--trunk=gsm=PJSIP/gsm,country=UZ,strip=9,lead=var:LEAD_ID;userfield:lead=(\d+)",
];

/// The leads of the recordings' customers, and two leads for one number.
pub const LEADS: &str = "phone,leadId\n998901110001,4001\n998901110002,4002\n\
     998901110003,4003\n998901110004,4004\n998901110005,4005\n\
     998901119999,4008\n998901119999,4009\n";

/// Seconds between the starts of two consecutive calls.
const APART: i64 = 20;

#[derive(Clone)]
pub struct Recording {
    pub name: String,
    pub ami: Vec<u8>,
    pub json: Vec<u8>,
    pub calls: Vec<Value>,
    /// Seconds by which the recording was moved.
    moved: i64,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings")
}

fn read(folder: &Path, file: &str) -> Vec<u8> {
    std::fs::read(folder.join(file)).expect("readable")
}

/// Reads one recording.
pub fn one(name: &str) -> Recording {
    let folder = folder().join(name);
    let expected: Value = serde_json::from_slice(&read(&folder, "expected.json")).expect("JSON");
    Recording {
        name: name.to_owned(),
        ami: read(&folder, "ami.raw"),
        json: read(&folder, "amiws.jsonl"),
        calls: expected["calls"].as_array().expect("calls").clone(),
        moved: 0,
    }
}

/// Returns the recordings of an old release with chan_sip, in the order of their times.
pub fn for_release(release: &str) -> Vec<Recording> {
    let folder = folder().join("asterisk-old").join(release);
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the recordings") {
        let entry = entry.expect("an entry");
        let recorded = entry.path();
        let expected = read(&recorded, "expected.json");
        let expected: Value = serde_json::from_slice(&expected).expect("JSON");
        all.push(Recording {
            name: entry.file_name().into_string().expect("UTF-8"),
            ami: read(&recorded, "ami.raw"),
            json: Vec::new(),
            calls: expected["calls"].as_array().expect("calls").clone(),
            moved: 0,
        });
    }
    all.sort_by_key(Recording::start);
    all
}

/// Returns `many` calls of five kinds in a row. The last one took place ten minutes ago.
pub fn consecutive(many: usize) -> Vec<Recording> {
    let kinds = [
        "inbound_answered",
        "outbound_answered",
        "inbound_no_answer",
        "ring_group",
        "blind_transfer",
    ]
    .map(one);
    let last = callbridge_model::clock::now().wall.floor_seconds().get() - 600;
    let many = i64::try_from(many).expect("few");
    (1..=many)
        .zip(kinds.iter().cycle())
        .map(|(n, kind)| kind.moved_to(last - (many - n) * APART))
        .collect()
}

/// Returns all recordings, in the order of their times.
pub fn all() -> Vec<Recording> {
    let entries = std::fs::read_dir(folder()).expect("the recordings");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let names = names.map(|name| name.into_string().expect("UTF-8"));
    let recorded = names.filter(|name| folder().join(name).join("expected.json").exists());
    let mut all: Vec<Recording> = recorded.map(|name| one(&name)).collect();
    all.sort_by_key(Recording::start);
    assert!(all.len() >= 90, "only {} recordings", all.len());
    all
}

/// Groups recordings so that one PBX can send each group in sequence: no two in a group share a
/// unique id.
pub fn groups(all: Vec<Recording>) -> Vec<Vec<Recording>> {
    disjoint(all, Recording::ids)
}

fn disjoint(
    all: Vec<Recording>,
    names: impl Fn(&Recording) -> BTreeSet<String>,
) -> Vec<Vec<Recording>> {
    let mut groups: Vec<(BTreeSet<String>, Vec<Recording>)> = Vec::new();
    for recording in all {
        let own = names(&recording);
        let free = groups.iter_mut().find(|(used, _)| used.is_disjoint(&own));
        match free {
            Some((used, group)) => {
                used.extend(own);
                group.push(recording);
            }
            None => groups.push((own, vec![recording])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Moves all calls to begin in the same second. Groups them so that no two in a group share a
/// counter of unique ids or a channel name, which one PBX never repeats.
pub fn simultaneous(all: Vec<Recording>) -> Vec<Vec<Recording>> {
    let Some(begin) = all.iter().map(Recording::start).max() else {
        return Vec::new();
    };
    let mut groups = disjoint(all, counters_and_channels);
    for recording in groups.iter_mut().flatten() {
        *recording = recording.moved_to(begin);
    }
    groups
}

/// Returns the counters in the unique ids, and the channel names.
fn counters_and_channels(recording: &Recording) -> BTreeSet<String> {
    let ids = recording.ids().into_iter();
    let counters = ids.filter_map(|id| id.split_once('.').map(|(_, n)| n.to_owned()));
    counters.chain(recording.values("Channel")).collect()
}

/// Merges the events of several recordings into one stream, in the order of their times.
pub fn interleaved(recordings: &[Recording]) -> Vec<u8> {
    let mut all: Vec<(String, &[u8])> = Vec::new();
    for event in recordings.iter().flat_map(Recording::events) {
        if let Some(time) = pairs(event).remove("Timestamp") {
            all.push((time.as_str().unwrap_or_default().to_owned(), event));
        }
    }
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    all.iter()
        .flat_map(|(_, event)| event.iter().copied())
        .collect()
}

/// Returns the expected outcomes of all calls in the recordings.
pub fn expected(recordings: &[Recording]) -> Vec<Expected> {
    let calls = recordings.iter().flat_map(|recording| &recording.calls);
    calls.map(Expected::of).collect()
}

impl Recording {
    /// Returns the events as AMI text, without those of the login.
    pub fn events(&self) -> impl Iterator<Item = &[u8]> {
        let messages = blocks(&self.ami);
        messages.filter(|block| {
            block.starts_with(b"Event: ") && !block.starts_with(b"Event: FullyBooted")
        })
    }

    /// Returns the frames as amiws sends them.
    pub fn frames(&self) -> impl Iterator<Item = &[u8]> {
        let lines = self.json.split(|&byte| byte == b'\n');
        lines.filter(|line| !line.is_empty())
    }

    /// Returns the events as Wazo's bus carries them, in reverse order.
    pub fn wazo(&self) -> Vec<String> {
        let mut bodies: Vec<String> = self.events().map(wazo_body).collect();
        bodies.reverse();
        bodies
    }

    /// Returns the CEL events as asterisk-cel-amqp publishes them.
    pub fn cel(&self) -> Vec<String> {
        let cel = self
            .events()
            .filter(|event| event.starts_with(b"Event: CEL"));
        cel.map(|event| body(&pairs(event)).to_string()).collect()
    }

    /// Returns the messages of Wazo's bus, or the CEL events, in the order of their times.
    pub fn timed(&self, format: &str) -> Vec<(EventTime, String)> {
        let cel = format == "asterisk-cel";
        let events = self.events();
        let events = events.filter(|event| !cel || event.starts_with(b"Event: CEL"));
        let timed = events.filter_map(|event| {
            let mut pairs = pairs(event);
            let body = if cel {
                body(&pairs).to_string()
            } else {
                wazo_body(event)
            };
            let time = pairs.remove("Timestamp")?;
            let seconds: f64 = time.as_str()?.parse().ok()?;
            Some((EventTime::from_micros((seconds * 1e6) as i64), body))
        });
        timed.collect()
    }

    /// Returns `true` if CEL describes this recording. The recording must contain CEL and at most
    /// one outbound call, because CEL names only the first of two consecutive Dials.
    pub fn is_in_cel(&self) -> bool {
        let outbound = self.calls.iter().filter(|call| is_outbound(call));
        !self.cel().is_empty() && outbound.count() < 2
    }

    /// Returns the CDRs as `cdr_csv` wrote them.
    pub fn rows(&self) -> Vec<u8> {
        let file = folder().join(&self.name).join("cdr.csv");
        let rows = std::fs::read_to_string(file).expect("rows of CDRs");
        let values = rows.split('"').map(|value| moved_time(value, self.moved));
        let values: Vec<String> = values.collect();
        shift(values.join("\"").as_bytes(), self.moved)
    }

    /// Returns the CEL as lines of `cel_custom`.
    pub fn cel_lines(&self) -> Vec<u8> {
        let cel = self
            .events()
            .filter(|event| event.starts_with(b"Event: CEL"));
        cel.flat_map(|event| [cel_rows::row(event), b"\n".to_vec()].concat())
            .collect()
    }

    /// Returns the CEL rows of a recording from [`for_release`].
    pub fn cel_of_release(&self, release: &str) -> Vec<u8> {
        let folder = folder().join("asterisk-old").join(release);
        let rows = std::fs::read(folder.join(&self.name).join("cel.csv"));
        shift(&rows.expect("rows of CEL"), self.moved)
    }

    /// Returns the events of a PBX that sends no CEL over AMI.
    pub fn channel_events(&self) -> Vec<&[u8]> {
        self.events()
            .filter(|event| !event.starts_with(b"Event: CEL"))
            .collect()
    }

    /// Returns the CDRs as asterisk-cdr-amqp publishes them.
    pub fn cdrs(&self) -> Vec<String> {
        let cdrs = self
            .events()
            .filter(|event| event.starts_with(b"Event: Cdr"));
        cdrs.map(|event| cdr_body(&pairs(event)).to_string())
            .collect()
    }

    /// Returns `true` if the CDRs of every customer call name the call's lead and no other lead.
    pub fn has_leads_in_cdrs(&self) -> bool {
        let cdrs = self.cdrs();
        !self.calls.is_empty()
            && self
                .calls
                .iter()
                .all(|call| name_only_its_lead(&cdrs, call))
    }

    /// Returns the unique id of the first channel that shows each number as its caller's.
    pub fn ids_by_caller(&self) -> BTreeMap<String, String> {
        let mut ids = BTreeMap::new();
        for event in self.events().map(pairs) {
            let number = event.get("CallerIDNum").and_then(Value::as_str);
            let id = event.get("Uniqueid").and_then(Value::as_str);
            if let (Some(number), Some(id)) = (number, id) {
                ids.entry(number.to_owned()).or_insert(id.to_owned());
            }
        }
        ids
    }

    fn values<'a>(&'a self, key: &'a str) -> impl Iterator<Item = String> + 'a {
        self.events()
            .filter_map(move |event| pairs(event).remove(key))
            .map(|value| value.as_str().unwrap_or_default().to_owned())
    }

    fn ids(&self) -> BTreeSet<String> {
        self.values("Uniqueid")
            .chain(self.values("UniqueID"))
            .collect()
    }

    pub fn start(&self) -> i64 {
        let first = self.values("Timestamp").next().expect("a time");
        first
            .split('.')
            .next()
            .expect("seconds")
            .parse()
            .expect("an epoch")
    }

    /// Returns `true` if the PBX called the customer first, as Originate does.
    pub fn is_placed_by_pbx(&self) -> bool {
        let first = self.values("Channel").next().unwrap_or_default();
        self.calls.iter().all(is_outbound)
            && first.starts_with("PJSIP/")
            && !first.starts_with("PJSIP/1")
    }

    /// Returns the recording with all times and unique ids moved, so that it begins at `begin`.
    pub fn moved_to(&self, begin: i64) -> Self {
        let by = begin - self.start();
        let calls = self.calls.iter().map(|call| {
            let mut call = call.clone();
            let moved = shift(call["linkedid"].as_str().expect("an id").as_bytes(), by);
            call["linkedid"] = String::from_utf8(moved).expect("UTF-8").into();
            call["startedAt"] = (call["startedAt"].as_i64().expect("an epoch") + by).into();
            call
        });
        Self {
            name: self.name.clone(),
            ami: shift(&self.ami, by),
            json: shift(&self.json, by),
            calls: calls.collect(),
            moved: self.moved + by,
        }
    }

    /// Returns the same AMI events from an Asterisk with this `systemname`, which is the prefix of
    /// each unique id.
    pub fn with_system_name(&self, system: &str) -> Self {
        let mut ami = String::from_utf8_lossy(&self.ami).into_owned();
        for id in self.ids() {
            ami = ami.replace(&format!(": {id}\r\n"), &format!(": {system}-{id}\r\n"));
        }
        let mut named = self.clone();
        named.ami = ami.into_bytes();
        for call in &mut named.calls {
            let linkedid = call["linkedid"].as_str().expect("an id");
            call["linkedid"] = format!("{system}-{linkedid}").into();
        }
        named
    }
}

fn is_outbound(call: &Value) -> bool {
    call["direction"] == "OUTBOUND"
}

/// Returns a time of `cdr_csv` moved by `seconds`, and any other value unchanged.
fn moved_time(value: &str, seconds: i64) -> String {
    let format = "%Y-%m-%d %H:%M:%S";
    match jiff::civil::DateTime::strptime(format, value) {
        Ok(time) => {
            let moved = time + jiff::SignedDuration::from_secs(seconds);
            moved.strftime(format).to_string()
        }
        Err(_) => value.to_owned(),
    }
}

/// Returns `true` if the CDRs of this call name its lead and no other lead.
fn name_only_its_lead(cdrs: &[String], call: &Value) -> bool {
    let of_call = format!("\"linkedid\":{}", call["linkedid"]);
    let of_call = cdrs.iter().filter(|cdr| cdr.contains(&of_call));
    let fields = of_call.flat_map(|cdr| cdr.split("lead=").skip(1));
    let leads: BTreeSet<&str> = fields.filter_map(|field| field.get(..4)).collect();
    leads.len() == 1 && leads.contains(call["leadId"].to_string().as_str())
}

/// Returns the latest time of these events, which are AMI text or JSON. Returns `None` without a
/// time.
pub fn last_time(events: &[u8]) -> Option<EventTime> {
    let text = String::from_utf8_lossy(events);
    let after_key = text.split("Timestamp").skip(1);
    let times = after_key.filter_map(|rest| {
        let time = rest.trim_start_matches(['"', ':', ' ']);
        let end = time.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        time[..end].parse::<f64>().ok()
    });
    let last = times.reduce(f64::max)?;
    Some(EventTime::from_micros((last * 1e6) as i64))
}

/// Waits until the time of the last event. A PBX reports an event only after it has happened.
pub async fn wait_until_happened(events: &[u8]) {
    let now = callbridge_model::clock::now().wall;
    let last = last_time(events).expect("a time");
    pass(last.since(now)).await;
}

/// Splits AMI text into messages, each with its empty line.
fn blocks(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = memchr::memmem::find(rest, b"\r\n\r\n")? + 4;
        let (block, after) = rest.split_at(end);
        rest = after;
        Some(block)
    })
}

/// Returns the first value of each key.
fn pairs(block: &[u8]) -> Map<String, Value> {
    let text = String::from_utf8_lossy(block);
    let mut pairs = Map::new();
    for line in text.split("\r\n") {
        if let Some((key, value)) = line.split_once(':') {
            let value = value.strip_prefix(' ').unwrap_or(value);
            pairs.entry(key).or_insert(value.into());
        }
    }
    pairs
}

/// Returns an AMI event in the envelope of Wazo's bus, with its variables as an object.
fn wazo_body(event: &[u8]) -> String {
    let mut data = pairs(event);
    let text = String::from_utf8_lossy(event);
    for key in ["ChanVariable", "DestChanVariable"] {
        let lines = text
            .lines()
            .filter_map(|line| line.strip_prefix(&format!("{key}: ")));
        let variables = lines.filter_map(|line| line.split_once('='));
        let variables: Map<String, Value> = variables
            .map(|(name, value)| (name.to_owned(), value.into()))
            .collect();
        if data.contains_key(key) {
            data.insert(key.to_owned(), variables.into());
        }
    }
    let name = data["Event"].clone();
    json!({"name": name, "origin_uuid": "0b0d7c1e-52a2", "data": data}).to_string()
}

fn field<'a>(pairs: &'a Map<String, Value>, key: &str) -> &'a str {
    pairs[key].as_str().expect("text")
}

/// Returns a CEL event of AMI in the format of asterisk-cel-amqp, with its time in the time zone of
/// Tashkent.
fn body(pairs: &Map<String, Value>) -> Value {
    let micros: f64 = field(pairs, "Timestamp").parse().expect("an epoch");
    let at = jiff::Timestamp::from_millisecond((micros * 1000.0).floor() as i64);
    let zone = TimeZone::fixed(Offset::constant(5));
    let at = at.expect("a time").to_zoned(zone);
    let extra = field(pairs, "Extra");
    let extra = match serde_json::from_str::<Value>(extra) {
        Ok(object) => object,
        Err(_) => extra.into(),
    };
    json!({
        "event_name": field(pairs, "EventName"), "account_code": field(pairs, "AccountCode"),
        "caller_id": {
            "num": field(pairs, "CallerIDnum"), "name": field(pairs, "CallerIDname"),
            "ani": field(pairs, "CallerIDani"), "rdnis": field(pairs, "CallerIDrdnis"),
            "dnid": field(pairs, "CallerIDdnid"),
        },
        "extension": field(pairs, "Exten"), "context": field(pairs, "Context"),
        "channel": field(pairs, "Channel"), "application": field(pairs, "Application"),
        "app_data": field(pairs, "AppData"),
        "event_time": at.strftime("%Y-%m-%dT%H:%M:%S.%3f%z").to_string(),
        "ama_flags": field(pairs, "AMAFlags"), "unique_id": field(pairs, "UniqueID"),
        "linked_id": field(pairs, "LinkedID"), "user_field": field(pairs, "Userfield"),
        "peer": field(pairs, "Peer"), "peer_acount": field(pairs, "PeerAccount"),
        "extra": extra,
    })
}

/// Returns a CDR of AMI in the format of asterisk-cdr-amqp.
fn cdr_body(pairs: &Map<String, Value>) -> Value {
    json!({
        "clid": field(pairs, "CallerID"), "src": field(pairs, "Source"),
        "dst": field(pairs, "Destination"), "dcontext": field(pairs, "DestinationContext"),
        "channel": field(pairs, "Channel"), "dstchannel": field(pairs, "DestinationChannel"),
        "lastapp": field(pairs, "LastApplication"), "lastdata": field(pairs, "LastData"),
        "start": cdr_time(pairs, "StartTime"), "answer": cdr_time(pairs, "AnswerTime"),
        "end": cdr_time(pairs, "EndTime"), "durationsec": cdr_seconds(pairs, "Duration"),
        "billsec": cdr_seconds(pairs, "BillableSeconds"),
        "disposition": field(pairs, "Disposition"),
        "accountcode": field(pairs, "AccountCode"), "amaflags": field(pairs, "AMAFlags"),
        "linkedid": field(pairs, "LinkedID"), "uniqueid": field(pairs, "UniqueID"),
        "userfield": field(pairs, "UserField"),
    })
}

/// Returns a time of a CDR, or the epoch if the field is empty.
fn cdr_time(pairs: &Map<String, Value>, key: &str) -> String {
    match field(pairs, key) {
        "" => "1970-01-01T00:00:00.000+0000".to_owned(),
        time => time.replace(' ', "T") + ".000+0000",
    }
}

fn cdr_seconds(pairs: &Map<String, Value>, key: &str) -> i64 {
    field(pairs, key).parse().expect("seconds")
}

/// Moves every time and unique id (ten digits, a point, and a digit) by `by` seconds.
fn shift(text: &[u8], by: i64) -> Vec<u8> {
    static TIME: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"(?-u)(^|[^0-9])([0-9]{10})(\.[0-9])").expect("a pattern"));
    let moved = TIME.replace_all(text, |found: &Captures<'_>| {
        let seconds = std::str::from_utf8(&found[2]).expect("digits");
        let seconds: i64 = seconds.parse().expect("an epoch");
        let moved = (seconds + by).to_string();
        [&found[1], moved.as_bytes(), &found[3]].concat()
    });
    moved.into_owned()
}
