//! The recorded calls, in the format of each source.

use callbridge_call::EventTime;
use callbridge_testbed::cel_rows;
use callbridge_testbed::expected::Expected;
use callbridge_testbed::wait::pass;
use jiff::tz::{Offset, TimeZone};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

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

/// Reads one recording.
pub fn one(name: &str) -> Recording {
    let read = |file: &str| std::fs::read(folder().join(name).join(file)).expect("readable");
    let expected: Value = serde_json::from_slice(&read("expected.json")).expect("JSON");
    Recording {
        name: name.to_owned(),
        ami: read("ami.raw"),
        json: read("amiws.jsonl"),
        calls: expected["calls"].as_array().expect("calls").clone(),
        moved: 0,
    }
}

/// Returns the recordings of an old release with chan_sip, in the order of their times.
pub fn for_release(release: &str) -> Vec<Recording> {
    let folder = folder().join("asterisk-old").join(release);
    let entries = std::fs::read_dir(&folder).expect("the recordings");
    let read = |name: String| {
        let file = |file: &str| std::fs::read(folder.join(&name).join(file)).expect("readable");
        let expected: Value = serde_json::from_slice(&file("expected.json")).expect("JSON");
        Recording {
            ami: file("ami.raw"),
            json: Vec::new(),
            calls: expected["calls"].as_array().expect("calls").clone(),
            moved: 0,
            name,
        }
    };
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let mut all: Vec<Recording> = names
        .map(|name| read(name.into_string().expect("UTF-8")))
        .collect();
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
    let names = |recording: &Recording| {
        let ids = recording.ids().into_iter();
        let counters = ids.filter_map(|id| id.split_once('.').map(|(_, n)| n.to_owned()));
        counters.chain(recording.values("Channel")).collect()
    };
    let groups = disjoint(all, names).into_iter();
    let moved = |group: Vec<Recording>| group.iter().map(|it| it.moved_to(begin)).collect();
    groups.map(moved).collect()
}

/// Merges the events of several recordings into one stream, in the order of their times.
pub fn interleaved(recordings: &[Recording]) -> Vec<u8> {
    let events = recordings.iter().flat_map(Recording::events);
    let timed = |event| {
        let time = pairs(event).remove("Timestamp");
        time.map(|time| (time.as_str().unwrap_or_default().to_owned(), event))
    };
    let mut all: Vec<(String, &[u8])> = events.filter_map(timed).collect();
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
        let outbound = |call: &&Value| call["direction"] == "OUTBOUND";
        !self.cel().is_empty() && self.calls.iter().filter(outbound).count() < 2
    }

    /// Returns the CDRs as `cdr_csv` wrote them.
    pub fn rows(&self) -> Vec<u8> {
        let file = folder().join(&self.name).join("cdr.csv");
        let rows = std::fs::read_to_string(file).expect("rows of CDRs");
        let move_time = |value: &str| {
            let time = jiff::civil::DateTime::strptime("%Y-%m-%d %H:%M:%S", value).ok()?;
            let moved = time + jiff::SignedDuration::from_secs(self.moved);
            Some(moved.strftime("%Y-%m-%d %H:%M:%S").to_string())
        };
        let moved = |value: &str| move_time(value).unwrap_or_else(|| value.to_owned());
        let values: Vec<String> = rows.split('"').map(moved).collect();
        shift(values.join("\"").as_bytes(), self.moved)
    }

    /// Returns the CEL as lines of `cel_custom`.
    pub fn cel_lines(&self) -> Vec<u8> {
        let cel = self
            .events()
            .filter(|event| event.starts_with(b"Event: CEL"));
        let line = |event| [cel_rows::row(event), b"\n".to_vec()].concat();
        cel.flat_map(line).collect()
    }

    /// Returns the CEL rows of a recording from [`for_release`].
    pub fn cel_of_release(&self, release: &str) -> Vec<u8> {
        let folder = folder().join("asterisk-old").join(release);
        let rows = std::fs::read(folder.join(&self.name).join("cel.csv"));
        shift(&rows.expect("rows of CEL"), self.moved)
    }

    /// Returns the events of a PBX that sends no CEL over AMI.
    pub fn channel_events(&self) -> Vec<&[u8]> {
        let own = |event: &&[u8]| !event.starts_with(b"Event: CEL");
        self.events().filter(own).collect()
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
        let named = |call: &Value| {
            let of_call = format!("\"linkedid\":{}", call["linkedid"]);
            let of_call = cdrs.iter().filter(|cdr| cdr.contains(&of_call));
            let fields = of_call.flat_map(|cdr| cdr.split("lead=").skip(1));
            let leads: BTreeSet<&str> = fields.filter_map(|field| field.get(..4)).collect();
            leads.len() == 1 && leads.contains(call["leadId"].to_string().as_str())
        };
        !self.calls.is_empty() && self.calls.iter().all(named)
    }

    /// Returns the unique id of the first channel that shows each number as its caller's.
    pub fn ids_by_caller(&self) -> BTreeMap<String, String> {
        let mut ids = BTreeMap::new();
        for event in self.events().map(pairs) {
            let text = |key: &str| event.get(key).and_then(Value::as_str).map(str::to_owned);
            if let (Some(number), Some(id)) = (text("CallerIDNum"), text("Uniqueid")) {
                ids.entry(number).or_insert(id);
            }
        }
        ids
    }

    fn values<'a>(&'a self, key: &'a str) -> impl Iterator<Item = String> + 'a {
        let own = move |event| pairs(event).remove(key);
        self.events()
            .filter_map(own)
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
        let outbound = |call: &Value| call["direction"] == "OUTBOUND";
        self.calls.iter().all(outbound)
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

/// Returns a CEL event of AMI in the format of asterisk-cel-amqp, with its time in the time zone of
/// Tashkent.
fn body(pairs: &Map<String, Value>) -> Value {
    let get = |key: &str| pairs[key].as_str().expect("text");
    let micros: f64 = get("Timestamp").parse().expect("an epoch");
    let at = jiff::Timestamp::from_millisecond((micros * 1000.0).floor() as i64);
    let zone = TimeZone::fixed(Offset::constant(5));
    let at = at.expect("a time").to_zoned(zone);
    let extra = get("Extra");
    let extra = match serde_json::from_str::<Value>(extra) {
        Ok(object) => object,
        Err(_) => extra.into(),
    };
    json!({
        "event_name": get("EventName"), "account_code": get("AccountCode"),
        "caller_id": {
            "num": get("CallerIDnum"), "name": get("CallerIDname"), "ani": get("CallerIDani"),
            "rdnis": get("CallerIDrdnis"), "dnid": get("CallerIDdnid"),
        },
        "extension": get("Exten"), "context": get("Context"), "channel": get("Channel"),
        "application": get("Application"), "app_data": get("AppData"),
        "event_time": at.strftime("%Y-%m-%dT%H:%M:%S.%3f%z").to_string(),
        "ama_flags": get("AMAFlags"), "unique_id": get("UniqueID"),
        "linked_id": get("LinkedID"), "user_field": get("Userfield"), "peer": get("Peer"),
        "peer_acount": get("PeerAccount"), "extra": extra,
    })
}

/// Returns a CDR of AMI in the format of asterisk-cdr-amqp.
fn cdr_body(pairs: &Map<String, Value>) -> Value {
    let get = |key: &str| pairs[key].as_str().expect("text");
    let time = |key: &str| match get(key) {
        "" => "1970-01-01T00:00:00.000+0000".to_owned(),
        time => time.replace(' ', "T") + ".000+0000",
    };
    let seconds = |key: &str| get(key).parse::<i64>().expect("seconds");
    json!({
        "clid": get("CallerID"), "src": get("Source"), "dst": get("Destination"),
        "dcontext": get("DestinationContext"), "channel": get("Channel"),
        "dstchannel": get("DestinationChannel"), "lastapp": get("LastApplication"),
        "lastdata": get("LastData"), "start": time("StartTime"), "answer": time("AnswerTime"),
        "end": time("EndTime"), "durationsec": seconds("Duration"),
        "billsec": seconds("BillableSeconds"), "disposition": get("Disposition"),
        "accountcode": get("AccountCode"), "amaflags": get("AMAFlags"),
        "linkedid": get("LinkedID"), "uniqueid": get("UniqueID"), "userfield": get("UserField"),
    })
}

/// Moves every time and unique id (ten digits, a point, and a digit) by `by` seconds.
fn shift(text: &[u8], by: i64) -> Vec<u8> {
    let mut moved = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let digits = text[at..].iter().take_while(|byte| byte.is_ascii_digit());
        let digits = digits.count();
        let run = &text[at..at + digits];
        match text.get(at + digits..at + digits + 2) {
            Some([b'.', after]) if digits == 10 && after.is_ascii_digit() => {
                let seconds = std::str::from_utf8(run).expect("digits");
                let seconds: i64 = seconds.parse().expect("an epoch");
                moved.extend((seconds + by).to_string().bytes());
            }
            _ => moved.extend(run),
        }
        at += digits;
        if let Some(&byte) = text.get(at) {
            moved.push(byte);
            at += 1;
        }
    }
    moved
}
