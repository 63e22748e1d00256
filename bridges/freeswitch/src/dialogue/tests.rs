//! Tests of the dialogue, with recorded sockets and with hostile ones.

use super::*;
use crate::reader::{FrameRead, FrameReader};

/// A connection to a fake switch, with the reported events.
struct Line {
    dialogue: Dialogue,
    told: Vec<String>,
    sent: Vec<String>,
}

fn shown(heard: &FrameMeaning<'_>) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match heard {
        FrameMeaning::Nothing => String::new(),
        FrameMeaning::Message {
            bytes,
            restarted,
            last_of_list,
        } => {
            let begin = if *restarted { "restarted" } else { "message" };
            let end = if *last_of_list { " ends the list" } else { "" };
            format!("{begin} {}{end}", text(bytes))
        }
        other => format!("{other:?}"),
    }
}

impl Line {
    fn new() -> Self {
        Self::after(None)
    }

    fn after(core: Option<&str>) -> Self {
        let core = core.map(|core| core.as_bytes().to_vec());
        let dialogue = Dialogue::new("ClueCon".into(), core, &[]).expect("a secret");
        Self {
            dialogue,
            told: Vec::new(),
            sent: Vec::new(),
        }
    }

    fn says(&mut self, bytes: &str) -> &mut Self {
        let mut reader = FrameReader::default();
        reader.buffer().push(bytes.as_bytes());
        while let Some(FrameRead::Frame(frame)) = reader.next().expect("frames") {
            let heard = shown(&self.dialogue.on_frame(frame));
            if !heard.is_empty() {
                self.told.push(heard);
            }
            let commands = self.dialogue.to_send().bytes().to_vec();
            let commands = String::from_utf8(commands).expect("text");
            let commands = commands.split_terminator("\n\n").map(str::to_owned);
            self.sent.extend(commands);
        }
        self
    }

    fn answers(&mut self, body: &str) -> &mut Self {
        self.says(&format!(
            "Content-Type: api/response\nContent-Length: {}\n\n{body}",
            body.len()
        ))
    }

    fn event(&mut self, name: &str, more: &str) -> &mut Self {
        let body = format!(r#"{{"Event-Name":"{name}","Core-UUID":"c1"{more}}}"#);
        self.says(&format!(
            "Content-Length: {}\nContent-Type: text/event-json\n\n{body}",
            body.len()
        ))
    }

    fn logged_in(&mut self) -> &mut Self {
        self.says(
            "Content-Type: auth/request\n\nContent-Type: command/reply\nReply-Text: +OK accepted\n\
             \nContent-Type: command/reply\nReply-Text: +OK event listener enabled json\n\n",
        )
    }

    fn take(&mut self) -> (Vec<String>, Vec<String>) {
        (
            std::mem::take(&mut self.told),
            std::mem::take(&mut self.sent),
        )
    }
}

const NO_CHANNELS: &str = r#"{"row_count":0}"#;

fn born(line: &mut Line, id: &str) {
    line.event("CHANNEL_CREATE", &format!(r#","Unique-ID":"{id}""#));
}

fn heartbeat(line: &mut Line, count: usize) {
    line.event("HEARTBEAT", &format!(r#","Session-Count":"{count}""#));
}

#[test]
fn login_subscribes_and_asks_for_uptime_and_channels() {
    let mut line = Line::new();
    line.logged_in().answers("999385\n").answers(NO_CHANNELS);
    let (told, sent) = line.take();
    assert_eq!(
        told,
        ["LoggedIn", "Listening", "UpFor(999.385s)", "ListEnd"]
    );
    let subscription = rule::subscription();
    let asked = [
        "auth ClueCon",
        &subscription,
        "api uptime ms",
        "api show channels as json",
    ];
    assert_eq!(sent, asked);
    line.event("HEARTBEAT", "");
    assert_eq!(
        line.take().0,
        [r#"message {"Event-Name":"HEARTBEAT","Core-UUID":"c1"}"#]
    );
}

#[test]
fn wrong_password_is_named_as_recorded() {
    let mut line = Line::new();
    line.says("Content-Type: auth/request\n\n");
    line.says(
        "Content-Type: command/reply\nReply-Text: -ERR invalid\n\nContent-Type: \
         text/disconnect-notice\nContent-Length: 67\n\nDisconnected, goodbye.\nSee you at \
         ClueCon! http://www.cluecon.com/\n",
    );
    let (told, sent) = line.take();
    assert_eq!(told, ["Refused(Password)"]);
    assert_eq!(sent, ["auth ClueCon"]);
}

#[test]
fn address_that_is_not_let_in_and_another_server_are_named() {
    let mut line = Line::new();
    line.says("Content-Type: text/rude-rejection\nContent-Length: 24\n\nAccess Denied, go away.\n");
    assert_eq!(line.take().0, ["Refused(Address)"]);
    let mut line = Line::new();
    line.says("Server: other\nContent-Type: text/html\n\n");
    let told = line.take().0;
    assert_eq!(told, [r#"Refused(NotEventSocket { line: "text/html" })"#]);
    let mut line = Line::new();
    line.says("Content-Type: auth/request\n\nContent-Type: command/reply\nReply-Text: +OK a\n\n");
    line.says("Content-Type: command/reply\nReply-Text: -ERR no keywords supplied\n\n");
    let refused = r#"Refused(Subscription { said: "-ERR no keywords supplied" })"#;
    assert_eq!(line.take().0, ["LoggedIn", refused]);
}

#[test]
fn echoed_password_is_not_in_the_refusal() {
    let mut line = Line::new();
    line.says("Content-Type: auth/request\n\nContent-Type: command/reply\nReply-Text: +OK a\n\n");
    line.says("Content-Type: command/reply\nReply-Text: -ERR after auth ClueCon\n\n");
    let refused = r#"Refused(Subscription { said: "-ERR after auth [redacted]" })"#;
    assert_eq!(line.take().0, ["LoggedIn", refused]);
}

#[test]
fn live_and_new_channels_are_dumped_a_few_at_a_time() {
    let mut line = Line::new();
    line.logged_in().answers("1");
    let rows: Vec<String> = (0..10).map(|it| format!(r#"{{"uuid":"u{it}"}}"#)).collect();
    line.take();
    line.answers(&format!(
        r#"{{"row_count":10,"rows":[{}]}}"#,
        rows.join(",")
    ));
    assert_eq!(line.take().1.len(), DUMPS_UNDER_WAY);
    line.answers(r#"{"Event-Name":"CHANNEL_DATA"}"#);
    line.answers("-ERR No such channel!\n");
    born(&mut line, "new");
    let (told, sent) = line.take();
    assert_eq!(told.len(), 2, "one channel and the birth: {told:?}");
    assert_eq!(sent, ["api uuid_dump u8 json", "api uuid_dump u9 json"]);
    for _ in 0..8 {
        line.answers("{}");
    }
    let (told, sent) = line.take();
    assert_eq!(sent, ["api uuid_dump new json"]);
    assert!(!told.iter().any(|it| it.ends_with("the list")), "{told:?}");
    line.answers("{}");
    assert_eq!(line.take().0, ["message {} ends the list"]);
}

#[test]
fn heartbeats_with_another_count_request_the_channel_list() {
    let mut line = Line::new();
    line.logged_in().answers("1").answers(NO_CHANNELS);
    born(&mut line, "a");
    heartbeat(&mut line, 1);
    line.take();
    heartbeat(&mut line, 2);
    assert_eq!(line.take().1.len(), 0, "one may be on its way");
    heartbeat(&mut line, 2);
    assert_eq!(line.take().1, ["api show channels as json"]);
    line.answers(r#"{"row_count":2,"rows":[{"uuid":"a"},{"uuid":"b"}]}"#);
    let (told, sent) = line.take();
    assert!(told[0].starts_with("Missed { message: \"the switch's list of channels shows 1 that"));
    assert_eq!(sent.len(), 2);
    line.answers("{}").answers("{}");
    assert_eq!(line.take().0, ["message {}", "message {} ends the list"]);
    // Another channel only ended.
    heartbeat(&mut line, 0);
    heartbeat(&mut line, 0);
    line.answers(NO_CHANNELS);
    assert!(
        line.take()
            .0
            .last()
            .expect("told")
            .ends_with("list_ends: true }")
    );
}

#[test]
fn events_of_a_switch_that_answers_nothing_are_received() {
    let mut line = Line::new();
    line.logged_in();
    born(&mut line, "a");
    line.answers("-ERR uptime Command not found!\n");
    line.answers("-ERR show Command not found!\n");
    for _ in 0..4 {
        heartbeat(&mut line, 9);
    }
    let (told, sent) = line.take();
    assert_eq!(told.len(), 2 + 1 + 4);
    assert_eq!(sent.len(), 4, "{sent:?}");
    for _ in 0..100 {
        line.dialogue.ping();
    }
    assert!(line.dialogue.asked.len() <= ASKED_MAX);
}

#[test]
fn switch_restart_is_reported_once() {
    let mut line = Line::after(Some("c0"));
    line.logged_in();
    line.event("HEARTBEAT", "").event("HEARTBEAT", "");
    let told = line.take().0;
    assert!(
        told[2].starts_with("restarted {") && told[3].starts_with("message {"),
        "{told:?}"
    );
    assert_eq!(line.dialogue.core(), Some(&b"c1"[..]));
    // A channel of the list can be reported first.
    let mut line = Line::after(Some("c0"));
    line.logged_in().answers("1");
    line.answers(r#"{"row_count":1,"rows":[{"uuid":"a"}]}"#);
    line.answers(r#"{"Core-UUID":"c1"}"#).event("HEARTBEAT", "");
    let told = line.take().0;
    assert_eq!(told[3], r#"restarted {"Core-UUID":"c1"} ends the list"#);
    assert!(told[4].starts_with("message {"), "{told:?}");
    for same in [Some("c1"), None] {
        let mut line = Line::after(same);
        line.logged_in().event("HEARTBEAT", "");
        assert!(line.take().0[2].starts_with("message {"), "{same:?}");
    }
}

#[test]
fn farewell_ends_the_line_with_its_words() {
    let mut line = Line::new();
    line.logged_in().says(
        "Content-Type: text/disconnect-notice\nContent-Length: 31\n\nThe system is being shut \
         down.\n",
    );
    let last = line.take().0.pop();
    assert_eq!(
        last.as_deref(),
        Some("Closing(\"The system is being shut down.\")")
    );
}

#[test]
fn unsafe_channel_id_is_dropped_and_password_is_not_printed() {
    let rows =
        r#"{"row_count":3,"rows":[{"uuid":"a\n\napi fsctl shutdown"},{"uuid":"b c"},{"uuid":""}]}"#;
    assert_eq!(ids_of_list(rows.as_bytes()), Some(Vec::new()));
    assert!(Dialogue::new("a\nb".into(), None, &[]).is_err());
    assert!(Dialogue::new("".into(), None, &[]).is_err());
    let mut line = Line::new();
    line.dialogue.log_in();
    let shown = format!("{:?}", line.dialogue);
    assert!(!shown.contains("ClueCon"), "{shown}");
}
