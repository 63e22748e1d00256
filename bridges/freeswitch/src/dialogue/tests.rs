//! Tests of the dialogue, using both recorded and hostile responses from a switch.

use super::*;
use crate::reader::{FrameRead, FrameReader};

/// A connection to a fake switch, with the dialogue's reports and the commands that it sent.
struct Line {
    dialogue: Dialogue,
    reports: Vec<String>,
    sent: Vec<String>,
}

fn meaning_text(meaning: &FrameMeaning<'_>) -> String {
    match meaning {
        FrameMeaning::Nothing => String::new(),
        FrameMeaning::Message {
            bytes,
            restarted,
            last_of_list,
        } => {
            let begin = if *restarted { "restarted" } else { "message" };
            let end = if *last_of_list { " ends the list" } else { "" };
            format!("{begin} {}{end}", String::from_utf8_lossy(bytes))
        }
        other => format!("{other:?}"),
    }
}

impl Line {
    fn new() -> Self {
        Self::with_core(None)
    }

    /// Creates a connection that follows an earlier one to the switch process `core`.
    fn with_core(core: Option<&str>) -> Self {
        let core = core.map(|core| core.as_bytes().to_vec());
        let dialogue = Dialogue::new("ClueCon".into(), core, &[]).expect("a secret");
        Self {
            dialogue,
            reports: Vec::new(),
            sent: Vec::new(),
        }
    }

    /// Passes bytes from the switch to the dialogue.
    fn send_frames(&mut self, bytes: &str) -> &mut Self {
        let mut reader = FrameReader::default();
        reader.buffer().push(bytes.as_bytes());
        while let Some(FrameRead::Frame(frame)) = reader.next().expect("frames") {
            let report = meaning_text(&self.dialogue.on_frame(frame));
            if !report.is_empty() {
                self.reports.push(report);
            }
            let commands = self.dialogue.to_send().bytes().to_vec();
            let commands = String::from_utf8(commands).expect("text");
            let commands = commands.split_terminator("\n\n").map(str::to_owned);
            self.sent.extend(commands);
        }
        self
    }

    fn send_answer(&mut self, body: &str) -> &mut Self {
        self.send_frames(&format!(
            "Content-Type: api/response\nContent-Length: {}\n\n{body}",
            body.len()
        ))
    }

    fn send_event(&mut self, name: &str, more: &str) -> &mut Self {
        let body = format!(r#"{{"Event-Name":"{name}","Core-UUID":"c1"{more}}}"#);
        self.send_frames(&format!(
            "Content-Length: {}\nContent-Type: text/event-json\n\n{body}",
            body.len()
        ))
    }

    fn log_in(&mut self) -> &mut Self {
        self.send_frames(
            "Content-Type: auth/request\n\nContent-Type: command/reply\nReply-Text: +OK accepted\n\
             \nContent-Type: command/reply\nReply-Text: +OK event listener enabled json\n\n",
        )
    }

    /// Takes the reports and the commands that were sent.
    fn take_output(&mut self) -> (Vec<String>, Vec<String>) {
        (
            std::mem::take(&mut self.reports),
            std::mem::take(&mut self.sent),
        )
    }
}

const NO_CHANNELS: &str = r#"{"row_count":0}"#;

fn create_channel(line: &mut Line, id: &str) {
    line.send_event("CHANNEL_CREATE", &format!(r#","Unique-ID":"{id}""#));
}

fn send_heartbeat(line: &mut Line, count: usize) {
    line.send_event("HEARTBEAT", &format!(r#","Session-Count":"{count}""#));
}

#[test]
fn login_subscribes_and_requests_uptime_and_channels() {
    let mut line = Line::new();
    line.log_in()
        .send_answer("999385\n")
        .send_answer(NO_CHANNELS);
    let (reports, sent) = line.take_output();
    assert_eq!(
        reports,
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
    line.send_event("HEARTBEAT", "");
    assert_eq!(
        line.take_output().0,
        [r#"message {"Event-Name":"HEARTBEAT","Core-UUID":"c1"}"#]
    );
}

#[test]
fn recorded_reply_to_a_wrong_password_is_recognized() {
    let mut line = Line::new();
    line.send_frames("Content-Type: auth/request\n\n");
    line.send_frames(
        "Content-Type: command/reply\nReply-Text: -ERR invalid\n\nContent-Type: \
         text/disconnect-notice\nContent-Length: 67\n\nDisconnected, goodbye.\nSee you at \
         ClueCon! http://www.cluecon.com/\n",
    );
    let (reports, sent) = line.take_output();
    assert_eq!(reports, ["Refused(Password)"]);
    assert_eq!(sent, ["auth ClueCon"]);
}

#[test]
fn login_refusals_are_reported_by_their_cause() {
    let mut line = Line::new();
    line.send_frames(
        "Content-Type: text/rude-rejection\nContent-Length: 24\n\nAccess Denied, go away.\n",
    );
    assert_eq!(line.take_output().0, ["Refused(Address)"]);
    let mut line = Line::new();
    line.send_frames("Server: other\nContent-Type: text/html\n\n");
    let reports = line.take_output().0;
    assert_eq!(
        reports,
        [r#"Refused(NotEventSocket { line: "text/html" })"#]
    );
    let mut line = Line::new();
    line.send_frames(
        "Content-Type: auth/request\n\nContent-Type: command/reply\nReply-Text: +OK a\n\n",
    );
    line.send_frames("Content-Type: command/reply\nReply-Text: -ERR no keywords supplied\n\n");
    let refused = r#"Refused(Subscription { said: "-ERR no keywords supplied" })"#;
    assert_eq!(line.take_output().0, ["LoggedIn", refused]);
}

#[test]
fn echoed_password_is_not_in_the_refusal() {
    let mut line = Line::new();
    line.send_frames(
        "Content-Type: auth/request\n\nContent-Type: command/reply\nReply-Text: +OK a\n\n",
    );
    line.send_frames("Content-Type: command/reply\nReply-Text: -ERR after auth ClueCon\n\n");
    let refused = r#"Refused(Subscription { said: "-ERR after auth [redacted]" })"#;
    assert_eq!(line.take_output().0, ["LoggedIn", refused]);
}

#[test]
fn live_and_new_channels_are_dumped_a_few_at_a_time() {
    let mut line = Line::new();
    line.log_in().send_answer("1");
    let rows: Vec<String> = (0..10).map(|n| format!(r#"{{"uuid":"u{n}"}}"#)).collect();
    line.take_output();
    line.send_answer(&format!(
        r#"{{"row_count":10,"rows":[{}]}}"#,
        rows.join(",")
    ));
    assert_eq!(line.take_output().1.len(), DUMPS_UNDER_WAY);
    line.send_answer(r#"{"Event-Name":"CHANNEL_DATA"}"#);
    line.send_answer("-ERR No such channel!\n");
    create_channel(&mut line, "new");
    let (reports, sent) = line.take_output();
    assert_eq!(reports.len(), 2, "one channel and the birth: {reports:?}");
    assert_eq!(sent, ["api uuid_dump u8 json", "api uuid_dump u9 json"]);
    for _ in 0..8 {
        line.send_answer("{}");
    }
    let (reports, sent) = line.take_output();
    assert_eq!(sent, ["api uuid_dump new json"]);
    assert!(
        !reports.iter().any(|report| report.ends_with("the list")),
        "{reports:?}"
    );
    line.send_answer("{}");
    assert_eq!(line.take_output().0, ["message {} ends the list"]);
}

#[test]
fn heartbeats_with_another_count_request_the_channel_list() {
    let mut line = Line::new();
    line.log_in().send_answer("1").send_answer(NO_CHANNELS);
    create_channel(&mut line, "a");
    send_heartbeat(&mut line, 1);
    line.take_output();
    send_heartbeat(&mut line, 2);
    assert_eq!(line.take_output().1.len(), 0, "one may be on its way");
    send_heartbeat(&mut line, 2);
    assert_eq!(line.take_output().1, ["api show channels as json"]);
    line.send_answer(r#"{"row_count":2,"rows":[{"uuid":"a"},{"uuid":"b"}]}"#);
    let (reports, sent) = line.take_output();
    assert!(
        reports[0].starts_with("Missed { message: \"the switch's list of channels shows 1 that")
    );
    assert_eq!(sent.len(), 2);
    line.send_answer("{}").send_answer("{}");
    assert_eq!(
        line.take_output().0,
        ["message {}", "message {} ends the list"]
    );
    // Another channel merely ended.
    send_heartbeat(&mut line, 0);
    send_heartbeat(&mut line, 0);
    line.send_answer(NO_CHANNELS);
    assert!(
        line.take_output()
            .0
            .last()
            .expect("reports")
            .ends_with("list_ends: true }")
    );
}

#[test]
fn listed_channel_that_the_switch_does_not_know_causes_no_gap() {
    let mut line = Line::new();
    line.log_in().send_answer("1");
    line.send_answer(r#"{"row_count":1,"rows":[{"uuid":"gone"}]}"#);
    line.send_answer("-ERR No such channel!\n");
    line.take_output();
    for _ in 0..3 {
        send_heartbeat(&mut line, 0);
    }
    assert_eq!(line.take_output().1.len(), 0, "the list isn't requested");
}

#[test]
fn events_are_received_from_a_switch_without_api_commands() {
    let mut line = Line::new();
    line.log_in();
    create_channel(&mut line, "a");
    line.send_answer("-ERR uptime Command not found!\n");
    line.send_answer("-ERR show Command not found!\n");
    for _ in 0..4 {
        send_heartbeat(&mut line, 9);
    }
    let (reports, sent) = line.take_output();
    assert_eq!(reports.len(), 2 + 1 + 4);
    assert_eq!(sent.len(), 4, "{sent:?}");
    for _ in 0..100 {
        line.dialogue.ping();
    }
    assert!(line.dialogue.asked.len() <= ASKED_MAX);
}

#[test]
fn switch_restart_is_reported_once() {
    let mut line = Line::with_core(Some("c0"));
    line.log_in();
    line.send_event("HEARTBEAT", "").send_event("HEARTBEAT", "");
    let reports = line.take_output().0;
    assert!(
        reports[2].starts_with("restarted {") && reports[3].starts_with("message {"),
        "{reports:?}"
    );
    assert_eq!(line.dialogue.core(), Some(&b"c1"[..]));
    // A channel from the list may be reported first.
    let mut line = Line::with_core(Some("c0"));
    line.log_in().send_answer("1");
    line.send_answer(r#"{"row_count":1,"rows":[{"uuid":"a"}]}"#);
    line.send_answer(r#"{"Core-UUID":"c1"}"#)
        .send_event("HEARTBEAT", "");
    let reports = line.take_output().0;
    assert_eq!(reports[3], r#"restarted {"Core-UUID":"c1"} ends the list"#);
    assert!(reports[4].starts_with("message {"), "{reports:?}");
    for same in [Some("c1"), None] {
        let mut line = Line::with_core(same);
        line.log_in().send_event("HEARTBEAT", "");
        assert!(line.take_output().0[2].starts_with("message {"), "{same:?}");
    }
}

#[test]
fn disconnect_notice_closes_the_line_with_its_text() {
    let mut line = Line::new();
    line.log_in().send_frames(
        "Content-Type: text/disconnect-notice\nContent-Length: 31\n\nThe system is being shut \
         down.\n",
    );
    let last = line.take_output().0.pop();
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
