//! The dialogue, played from both sides.

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
            own_events: false,
        },
    )
    .expect("good credentials")
}

fn sent(action: Action) -> String {
    let Action::Send(bytes) = action else {
        panic!("{action:?}")
    };
    String::from_utf8(bytes.bytes().to_vec()).expect("text")
}

#[test]
fn the_secret_does_not_cross_the_line_where_the_pbx_does_md5() {
    let mut login = login(true, true);
    insta::assert_snapshot!(sent(login.hear(BANNER)).replace('\r', ""), @r"
    Action: Challenge
    AuthType: MD5
    ActionID: callbridge-1
    ");
    let challenge = b"Response: Success\r\nActionID: callbridge-1\r\nChallenge: 123456789\r\n";
    // printf 123456789bridgesecret | md5sum
    insta::assert_snapshot!(sent(login.hear(challenge)).replace('\r', ""), @r"
    Action: Login
    Username: bridge
    Events: call,cdr,system
    AuthType: MD5
    Key: 8d40b72b393e41cf950d260823d58fd2
    ActionID: callbridge-2
    ");
    let accepted = login.hear(b"Response: Success\r\nMessage: Authentication accepted\r\n");
    let Action::LoggedIn { send: Some(filter) } = accepted else {
        panic!("{accepted:?}")
    };
    let filter = String::from_utf8(filter.bytes().to_vec()).expect("text");
    assert!(filter.starts_with("Action: Filter\r\nOperation: Add\r\nFilter: ^Event: (CEL|"));
    assert!(login.is_open());
    assert_eq!(login.hear(b"Event: Hangup\r\n"), Action::Pass);
    assert!(!login.filter_denied());
    let denied = b"Response: Error\r\nActionID: callbridge-3\r\nMessage: Permission denied\r\n";
    assert_eq!(login.hear(denied), Action::Pass);
    assert!(login.filter_denied());
    assert_eq!(
        login.ping().bytes(),
        b"Action: Ping\r\nActionID: callbridge-4\r\n\r\n"
    );
    assert_eq!(
        login.logoff().bytes(),
        b"Action: Logoff\r\nActionID: callbridge-5\r\n\r\n"
    );
}

#[test]
fn the_plain_secret_is_sent_only_where_that_is_allowed() {
    let unknown = b"Response: Error\r\nMessage: Invalid/unknown command\r\n";
    let mut open = login(true, false);
    open.hear(BANNER);
    assert!(sent(open.hear(unknown)).contains("Secret: bridgesecret\r\n"));
    let accepted = open.hear(b"Response: Success\r\nMessage: Authentication accepted\r\n");
    assert_eq!(accepted, Action::LoggedIn { send: None });

    let mut guarded = login(false, false);
    guarded.hear(BANNER);
    let message = "Invalid/unknown command".to_owned();
    let refused = Action::Failed(LoginError::PlainNotAllowed { message });
    assert_eq!(guarded.hear(unknown), refused);
}

#[test]
fn a_refusal_comes_in_the_words_of_the_pbx() {
    let mut login = login(false, false);
    login.hear(BANNER);
    login.hear(b"Response: Success\r\nChallenge: 1\r\n");
    let refusal = login.hear(b"Response: Error\r\nMessage: Authentication failed\r\n");
    let message = "Authentication failed".to_owned();
    assert_eq!(refusal, Action::Failed(LoginError::Refused { message }));
    assert_eq!(login.hear(b"Event: Hangup\r\n"), Action::Wait);
}

#[test]
fn only_a_call_manager_is_logged_in_to() {
    for banner in ["Yeastar Call Manager/2.10.6", "Asterisk Call Manager/1.3"] {
        assert!(matches!(
            login(false, false).hear(banner.as_bytes()),
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
        let action = login(false, false).hear(line.as_bytes());
        assert_eq!(action, Action::Failed(LoginError::PeerIsNotAmi { line }));
    }
}

#[test]
fn no_secret_is_ever_printed_or_broken_into_lines() {
    let mut login = login(true, false);
    login.hear(BANNER);
    let plain = login.hear(b"Response: Error\r\n");
    assert!(!format!("{login:?} {plain:?}").contains("bridgesecret"));
    for (user, secret) in [("a\r\nAction: x", "s"), ("a", "s\n"), ("", "s"), ("a", "")] {
        let refused = Login::new(user, SecretString::from(secret), Settings::default());
        assert!(matches!(refused, Err(LoginError::BadCredentials)));
    }
}
