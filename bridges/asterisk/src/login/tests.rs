//! Tests of the login, with the messages from both sides.

use super::*;

const BANNER: &[u8] = b"Asterisk Call Manager/11.0.0\r\n";

fn login(plain_allowed: bool, filter: bool) -> Login {
    let secret = SecretString::from("bridgesecret");
    Login::new(
        "bridge",
        secret,
        Settings {
            plain_allowed,
            filter,
        },
    )
    .expect("good credentials")
}

fn sent_text(action: Action) -> String {
    let Action::Send(bytes) = action else {
        panic!("{action:?}")
    };
    String::from_utf8(bytes.bytes().to_vec()).expect("text")
}

#[test]
fn secret_is_not_sent_if_the_pbx_supports_md5() {
    let mut login = login(true, true);
    insta::assert_snapshot!(sent_text(login.on_frame(BANNER)).replace('\r', ""), @r"
    Action: Challenge
    AuthType: MD5
    ActionID: callbridge-1
    ");
    let challenge = b"Response: Success\r\nActionID: callbridge-1\r\nChallenge: 123456789\r\n";
    // printf 123456789bridgesecret | md5sum
    insta::assert_snapshot!(sent_text(login.on_frame(challenge)).replace('\r', ""), @r"
    Action: Login
    Username: bridge
    Events: system
    AuthType: MD5
    Key: 8d40b72b393e41cf950d260823d58fd2
    ActionID: callbridge-2
    ");
    let accepted = login.on_frame(b"Response: Success\r\nMessage: Authentication accepted\r\n");
    let Action::LoggedIn { send: Some(_) } = accepted else {
        panic!("{accepted:?}")
    };
    assert!(login.is_open());
    assert_eq!(login.on_frame(b"Event: Hangup\r\n"), Action::Pass);
}

#[test]
fn secret_and_key_echoed_by_the_pbx_are_redacted() {
    let challenge = b"Response: Success\r\nActionID: callbridge-1\r\nChallenge: 123456789\r\n";
    let no_challenge = b"Response: Error\r\nMessage: Invalid/unknown command\r\n";
    for (answer, echoed) in [
        (&challenge[..], "Key 8d40b72b393e41cf950d260823d58fd2"),
        (&no_challenge[..], "Secret bridgesecret"),
        (&no_challenge[..], "Secret %62ridgesecret"),
    ] {
        let mut login = login(true, false);
        login.on_frame(BANNER);
        login.on_frame(answer);
        let refusal = format!("Response: Error\r\nMessage: {echoed} is wrong\r\n");
        let Action::Failed(error) = login.on_frame(refusal.as_bytes()) else {
            panic!("a refusal")
        };
        let (name, _) = echoed.split_once(' ').expect("a name");
        let shown = format!("the PBX refused the login: {name} [redacted] is wrong; ");
        assert!(error.to_string().starts_with(&shown), "{error}");
    }
}

/// Returns the actions that request the events after an accepted login.
fn requested_actions(login: &mut Login) -> Vec<String> {
    login.on_frame(BANNER);
    login.on_frame(b"Response: Success\r\nActionID: callbridge-1\r\nChallenge: 123\r\n");
    let accepted = login.on_frame(b"Response: Success\r\nActionID: callbridge-2\r\n");
    let Action::LoggedIn { send: Some(all) } = accepted else {
        panic!("{accepted:?}")
    };
    let all = String::from_utf8(all.bytes().to_vec()).expect("text");
    all.split_terminator("\r\n\r\n")
        .map(str::to_owned)
        .collect()
}

/// Responds to each of the actions, and returns what the login does after each response. `denied`
/// returns `true` for the index of an action that the PBX denies.
fn answer_actions(
    login: &mut Login,
    actions: &[String],
    denied: impl Fn(usize) -> bool,
) -> Vec<Action> {
    let mut results = Vec::new();
    for (nth, action) in actions.iter().enumerate() {
        let id = action.lines().last().expect("an id");
        let words = if denied(nth) {
            "Response: Error\r\nMessage: Permission denied"
        } else {
            "Response: Success\r\nMessage: done"
        };
        results.push(login.on_frame(format!("{words}\r\n{id}\r\n").as_bytes()));
    }
    results
}

#[test]
fn login_sends_one_filter_per_event_then_subscribes() {
    let mut login = login(true, true);
    let actions = requested_actions(&mut login);
    assert_eq!(actions.len(), DECODED.split(' ').count() + 2);
    let (events, filters) = actions.split_last().expect("actions");
    for filter in filters {
        assert!(filter.starts_with("Action: Filter\r\nOperation: Add\r\nFilter: ^Event: "));
        // The operators of extended expressions are ordinary characters in basic ones.
        assert!(!filter.contains(['(', ')', '|', '+', '?', '{']), "{filter}");
    }
    assert!(events.contains("Action: Events\r\nEventMask: call,cdr,system,agent,user"));
    let results = answer_actions(&mut login, &actions, |_| false);
    assert!(
        results.iter().all(|result| *result == Action::Wait),
        "{results:?}"
    );
    assert!(login.is_filtered() && login.filters.denied == 0);
    let number = actions.len() + 3;
    let ping = format!("Action: Ping\r\nActionID: callbridge-{number}\r\n\r\n");
    assert_eq!(login.ping().1.bytes(), ping.as_bytes());
    let pong = b"Response: Success\r\nActionID: callbridge-99\r\nPing: Pong\r\n";
    assert_eq!(login.on_frame(pong), Action::Pass);
}

#[test]
fn denied_filters_are_skipped_and_partial_filters_fail_login() {
    let mut denied = login(true, true);
    let actions = requested_actions(&mut denied);
    let events = actions.len() - 1;
    let results = answer_actions(&mut denied, &actions, |nth| nth != events);
    assert!(
        results.iter().all(|result| *result == Action::Wait),
        "{results:?}"
    );
    assert!(!denied.is_filtered() && denied.filters.denied > 0);

    let mut torn = login(true, true);
    let actions = requested_actions(&mut torn);
    let results = answer_actions(&mut torn, &actions, |nth| nth == 7);
    let message = "Permission denied".to_owned();
    assert_eq!(results[7], Action::Failed(LoginError::FilterTorn(message)));
}

#[test]
fn plain_secret_is_sent_only_if_allowed() {
    let unknown = b"Response: Error\r\nMessage: Invalid/unknown command\r\n";
    let mut open = login(true, false);
    open.on_frame(BANNER);
    assert!(sent_text(open.on_frame(unknown)).contains("Secret: bridgesecret\r\n"));
    let accepted = open.on_frame(b"Response: Success\r\nMessage: Authentication accepted\r\n");
    assert_eq!(accepted, Action::LoggedIn { send: None });

    let mut guarded = login(false, false);
    guarded.on_frame(BANNER);
    let message = "Invalid/unknown command".to_owned();
    let refused = Action::Failed(LoginError::PlainNotAllowed(message));
    assert_eq!(guarded.on_frame(unknown), refused);
}

#[test]
fn refused_login_keeps_the_message_of_the_pbx() {
    let mut login = login(false, false);
    login.on_frame(BANNER);
    login.on_frame(b"Response: Success\r\nChallenge: 1\r\n");
    let refusal = login.on_frame(b"Response: Error\r\nMessage: Authentication failed\r\n");
    let message = "Authentication failed".to_owned();
    assert_eq!(refusal, Action::Failed(LoginError::Refused(message)));
    assert_eq!(login.on_frame(b"Event: Hangup\r\n"), Action::Wait);
}

#[test]
fn login_requires_a_call_manager_banner() {
    for banner in ["Yeastar Call Manager/2.10.6", "Asterisk Call Manager/1.3"] {
        assert!(matches!(
            login(false, false).on_frame(banner.as_bytes()),
            Action::Send(_)
        ));
    }
    for line in [
        "SSH-2.0-OpenSSH_9.9",
        "HTTP/1.1 400 Bad Request",
        "Call Manager/",
        "",
    ] {
        let line = line.to_owned();
        let action = login(false, false).on_frame(line.as_bytes());
        assert_eq!(action, Action::Failed(LoginError::PeerIsNotAmi(line)));
    }
}

#[test]
fn secret_is_not_printed_and_bad_credentials_are_refused() {
    let mut login = login(true, false);
    login.on_frame(BANNER);
    let plain = login.on_frame(b"Response: Error\r\n");
    assert!(!format!("{login:?} {plain:?}").contains("bridgesecret"));
    for (user, secret) in [("a\r\nAction: x", "s"), ("a", "s\n"), ("", "s"), ("a", "")] {
        let refused = Login::new(user, SecretString::from(secret), Settings::default());
        assert!(matches!(refused, Err(LoginError::BadCredentials)));
    }
}
