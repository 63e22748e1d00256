//! Tells a story as CDRs of Asterisk 12 and later, in the form of `cdr_csv` rows (with a linkedid
//! if `newcdrcolumns=yes`). A record is a path between channel A and channel B. A dialed channel is
//! only ever a B, and each additional B starts another record for A.

use super::scene::Scene;
use crate::switch::{Act, Br, Ch, Deed, Deeds, Micros, Role};
use crate::telling::EPOCH;

/// Returns the file's rows, with or without the columns added by `newcdrcolumns`.
pub fn tell(story: &Deeds, has_linkedid: bool) -> Vec<u8> {
    let mut writer = Writer {
        scene: Scene::new(story),
        open: Vec::new(),
        replaced: None,
        has_linkedid,
        rows: String::new(),
    };
    for deed in &story.deeds {
        writer.scene.follow(deed);
        writer.write(deed);
    }
    writer.rows.into_bytes()
}

/// The application of a dialed channel that hasn't run one itself.
const DIALED: &str = "AppDial";

struct Record {
    a: Ch,
    b: Option<Ch>,
    start: Micros,
    answer: Option<Micros>,
    end: Option<Micros>,
    disposition: &'static str,
    app: (&'static str, String),
    /// Whether A and B are currently in a bridge.
    bridged: bool,
}

struct Writer<'s> {
    scene: Scene<'s>,
    /// Records of channels that haven't hung up.
    open: Vec<Record>,
    /// The phone whose call was picked up.
    replaced: Option<Ch>,
    has_linkedid: bool,
    rows: String,
}

impl Writer<'_> {
    fn write(&mut self, deed: &Deed) {
        let (at, channel) = (deed.at, deed.channel);
        match deed.act {
            Act::Born => {
                self.add(channel, at);
            }
            Act::DialBegin { by: Some(by) } => self.free_record(by, at).b = Some(channel),
            Act::DialEnd { by: Some(by) } if !self.scene.is_up(channel) => {
                let status = match self.scene.dial_status(channel) {
                    "NOANSWER" => "NO ANSWER",
                    status => status,
                };
                let is_of_pair = |record: &Record| record.a == by && record.b == Some(channel);
                self.end(at, status, is_of_pair);
            }
            Act::Up => {
                let own = self.open.iter_mut().filter(|record| record.a == channel);
                for record in own.filter(|record| record.end.is_none()) {
                    record.answer.get_or_insert(at);
                    record.disposition = "ANSWERED";
                }
            }
            Act::Runs(_) => self.run(channel, at),
            Act::Enter(bridge) => self.enter(channel, bridge, at),
            Act::Leave(_) => self.end(at, "ANSWERED", |record| {
                let is_of_pair = record.a == channel || record.b == Some(channel);
                is_of_pair && (record.bridged || record.app.0 == "Park")
            }),
            Act::Joined(with) if self.is_pickup(channel, with) => self.pick_up(channel, with, at),
            Act::Hangup => self.hang_up(deed),
            _ => {}
        }
    }

    /// Adds a record for a channel that has no B yet.
    fn add(&mut self, a: Ch, at: Micros) -> &mut Record {
        let is_up = self.scene.is_up(a);
        self.open.push(Record {
            a,
            b: None,
            start: at,
            answer: is_up.then_some(at),
            end: None,
            disposition: if is_up { "ANSWERED" } else { "NO ANSWER" },
            app: self.scene.application(a),
            bridged: false,
        });
        self.open.last_mut().expect("just added")
    }

    /// Returns the channel's record that has no B yet, or a new one.
    fn free_record(&mut self, a: Ch, at: Micros) -> &mut Record {
        let is_free = |r: &Record| r.a == a && r.b.is_none() && r.end.is_none();
        match self.open.iter().rposition(is_free) {
            Some(place) => &mut self.open[place],
            None => self.add(a, at),
        }
    }

    fn end(&mut self, at: Micros, disposition: &'static str, which: impl Fn(&Record) -> bool) {
        for record in &mut self.open {
            if record.end.is_none() && which(record) {
                record.end = Some(at);
                record.disposition = disposition;
            }
        }
    }

    /// Makes the channel run an application, after which a dialed channel continues on its own.
    fn run(&mut self, channel: Ch, at: Micros) {
        let app = self.scene.application(channel);
        let record = self.free_record(channel, at);
        if record.app.0 == DIALED {
            record.start = at;
            record.answer = Some(at);
        }
        record.app = app;
    }

    /// Pairs the channel with each channel in the bridge. A B's own record ends, except in a room
    /// that the B entered first.
    fn enter(&mut self, channel: Ch, bridge: Br, at: Micros) {
        let bridge = &self.scene.story.bridges[bridge];
        if bridge.is_holding() {
            return;
        }
        let is_room = bridge.technology == "softmix";
        for other in self.scene.partners(channel) {
            let b = self.pair(channel, other, at);
            if b == channel || !is_room {
                let is_up = self.scene.is_up(b);
                let status = if is_up { "ANSWERED" } else { "FAILED" };
                self.end(at, status, |record| record.a == b && record.b.is_none());
            }
        }
    }

    /// Puts two channels in a bridge into one record, and returns B. A is the one that wasn't
    /// dialed, or else the older one.
    fn pair(&mut self, one: Ch, other: Ch, at: Micros) -> Ch {
        let was_dialed = |channel: Ch| self.scene.application(channel).0 == DIALED;
        let a = if was_dialed(one) == was_dialed(other) {
            one.min(other)
        } else if was_dialed(one) {
            other
        } else {
            one
        };
        let b = if a == one { other } else { one };
        let is_dialed = |r: &Record| r.a == a && r.b == Some(b) && r.end.is_none();
        let record = match self.open.iter().position(is_dialed) {
            Some(place) => &mut self.open[place],
            None => self.free_record(a, at),
        };
        record.b = Some(b);
        record.bridged = true;
        record.answer.get_or_insert(at);
        record.disposition = "ANSWERED";
        b
    }

    fn is_pickup(&self, channel: Ch, with: Ch) -> bool {
        let is_local = matches!(self.scene.story.channels[channel].role, Role::Local { .. });
        !is_local && !self.scene.is_up(with)
    }

    /// Makes the colleague replace the ringing phone, whose record is written instead of the
    /// colleague's own.
    fn pick_up(&mut self, colleague: Ch, ringing: Ch, at: Micros) {
        self.end(at, "NO ANSWER", |record| record.b == Some(ringing));
        self.open.retain(|record| record.a != colleague);
        self.replaced = Some(ringing);
    }

    /// Ends and writes the records of a channel that's hanging up.
    fn hang_up(&mut self, deed: &Deed) {
        let (channel, at) = (deed.channel, deed.at);
        self.end(at, "NO ANSWER", |record| {
            record.b == Some(channel) && !record.bridged
        });
        let (own, others): (Vec<Record>, Vec<Record>) = std::mem::take(&mut self.open)
            .into_iter()
            .partition(|record| record.a == channel);
        self.open = others;
        for record in own {
            if record.b.is_some() || record.app.0 != DIALED || self.replaced == Some(channel) {
                self.write_row(&record, deed);
            }
        }
    }

    fn write_row(&mut self, record: &Record, hangup: &Deed) {
        let (scene, a) = (&self.scene, record.a);
        let (number, end) = (scene.number(a), record.end.unwrap_or(hangup.at));
        let seconds = |from: Micros| ((end - from) / 1_000_000).to_string();
        let billed = record.answer.map_or("0".to_owned(), seconds);
        let dest = record.b.map(|b| scene.name(b)).unwrap_or_default();
        let answer = record.answer.map(local_time).unwrap_or_default();
        let cells = [
            "",
            &number,
            &scene.exten(a),
            "internal",
            &format!("\"\" <{number}>"),
            &scene.name(a),
            &dest,
            record.app.0,
            &record.app.1,
            &local_time(record.start),
            &answer,
            &local_time(end),
            &seconds(record.start),
            &billed,
            record.disposition,
            "DOCUMENTATION",
            &scene.id(a),
            "",
            "",
            &scene.id(hangup.linkedid),
            "1",
        ];
        let quoted = cells.map(|cell| format!("\"{}\"", cell.replace('"', "\"\"")));
        let columns = if self.has_linkedid { quoted.len() } else { 18 };
        self.rows += &quoted[..columns].join(",");
        self.rows.push('\n');
    }
}

/// Returns a time as written by the PBX in UTC, such as `2026-11-18 11:06:40`.
fn local_time(at: Micros) -> String {
    let seconds = EPOCH + at.div_euclid(1_000_000);
    let at = jiff::Timestamp::from_second(seconds).expect("a time");
    at.strftime("%Y-%m-%d %H:%M:%S").to_string()
}
