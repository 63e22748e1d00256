//! Properties that hold for any messages of a PBX on a live connection.

use callbridge_asterisk::login::{Action, Login, LoginError, Settings};
use callbridge_formats::{Format, Frame, Framer};
use callbridge_freeswitch::dialogue::{Dialogue, FrameMeaning};
use callbridge_freeswitch::reader::{FrameRead, FrameReader};
use callbridge_freeswitch::survey::QUESTIONS;

/// The secret, which must be sent only when it is requested, and must appear in no error.
const SECRET: &str = "s3cret-of-the-line";

/// Runs the login and the survey of a manager with any messages.
pub fn run_manager(bytes: &[u8]) {
    let settings = Settings {
        plain_allowed: false,
        filter: true,
    };
    let login = Login::new("callbridge", SECRET.to_owned().into(), settings);
    let mut login = login.expect("a good user and secret");
    let mut survey = None;
    let mut framer = Framer::new(Format::Ami);
    // A banner has no empty line after it, so the transport passes it separately.
    let end = bytes.iter().position(|byte| *byte == b'\n');
    let (banner, rest) = bytes.split_at(end.unwrap_or(0));
    check_action(login.on_frame(banner));
    framer.push(rest);
    while let Some(frame) = framer.next() {
        let Frame::Message(frame) = frame else {
            continue;
        };
        check_action(login.on_frame(frame));
        if !login.is_open() {
            continue;
        }
        let survey = survey.get_or_insert_with(|| {
            let mut survey = callbridge_asterisk::survey::Survey::new(login.banner());
            let _ = survey.begin(&mut login);
            let _ = survey.ask(&mut login);
            survey
        });
        survey.on_frame(frame);
    }
    if let Some(survey) = survey {
        let answered = survey.is_answered() && survey.is_echoed();
        let _ = (answered, survey.is_settled(), survey.may_receive_more());
        let _ = survey.account();
    }
}

fn check_action(action: Action) {
    match action {
        Action::Send(outgoing)
        | Action::LoggedIn {
            send: Some(outgoing),
        } => {
            let text = String::from_utf8_lossy(outgoing.bytes());
            assert!(!text.contains(SECRET), "the secret in the clear");
        }
        Action::Failed(error) => check_no_secret(&error),
        Action::Wait | Action::LoggedIn { send: None } | Action::Pass => {}
    }
}

fn check_no_secret(error: &LoginError) {
    assert!(!error.to_string().contains(SECRET), "{error}");
}

/// Checks that an event socket's frames are the same for pieces of any size, and runs their
/// dialogue.
pub fn run_event_socket(bytes: &[u8]) {
    let [size, bytes @ ..] = bytes else {
        return;
    };
    let whole = split_frames([bytes].into_iter());
    let pieces = bytes.chunks(usize::from(*size).max(1));
    assert_eq!(whole, split_frames(pieces));
    let run = Dialogue::new(SECRET.to_owned().into(), None, &[]).expect("a good secret");
    let survey = Dialogue::new(SECRET.to_owned().into(), None, &QUESTIONS).expect("a good secret");
    for dialogue in [run, survey] {
        run_dialogue(dialogue, bytes);
    }
}

fn split_frames<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<String> {
    let (mut reader, mut all) = (FrameReader::default(), Vec::new());
    for piece in pieces {
        reader.buffer().push(piece);
        loop {
            match reader.next() {
                Ok(Some(read)) => all.push(format!("{read:?}")),
                Ok(None) => break,
                // The error's text depends on how much of the line has arrived.
                Err(_) => {
                    all.push("no frame".to_owned());
                    return all;
                }
            }
        }
    }
    all
}

fn run_dialogue(mut dialogue: Dialogue, bytes: &[u8]) {
    let mut survey = callbridge_freeswitch::survey::Survey::new(SECRET);
    let mut reader = FrameReader::default();
    reader.buffer().push(bytes);
    while let Ok(Some(read)) = reader.next() {
        let FrameRead::Frame(frame) = read else {
            continue;
        };
        match dialogue.on_frame(frame) {
            FrameMeaning::Answer(answer) => survey.on_answer(answer),
            FrameMeaning::Refused(refusal) => assert!(!refusal.to_string().contains(SECRET)),
            _ => {}
        }
        dialogue.ping();
        let commands = dialogue.to_send();
        let whole = commands.bytes().is_empty() || commands.bytes().ends_with(b"\n\n");
        assert!(whole, "{commands:?}");
    }
    let trunks = [("city".to_owned(), vec!["gateway/city".to_owned()])];
    for finding in survey.facts().judge(&trunks, true) {
        assert!(!finding.message.is_empty());
    }
}
