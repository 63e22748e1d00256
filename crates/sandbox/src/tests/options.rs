//! Tests of the flags of the command.

use crate::lead::act;
use crate::{Options, Sandbox, run};
use callbridge_model::{Code, ExitCode as _, ExposeSecret};
use clap::Parser;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

#[derive(Debug, clap::Parser)]
struct Command {
    #[command(flatten)]
    options: Options,
}

fn options(flags: &[&str]) -> Options {
    let given = std::iter::once(&"sandbox").chain(flags);
    Command::try_parse_from(given)
        .expect("flags that clap takes")
        .options
}

#[test]
fn flag_errors_are_all_reported_at_once() {
    let wrong = options(&[
        "--listen=here",
        "--leads=4001,x-3",
        "--employees=9-5",
        "--grants=CALL:SAVE",
        "--rate=60",
        "--faults=any explode",
        "--persist-after=soon",
        "--expires-in=366d",
        "--seed=one",
        "--field=color=red",
    ]);
    let error = wrong.check().expect_err("ten faults");
    assert_eq!(error.exit_code(), Code::Usage);
    insta::assert_snapshot!(error, @r"
    --listen: `here` is not an address and port such as 127.0.0.1:8480
    --leads: `x-3` is neither an id nor a range such as 4005-4010, nor a file
    --employees: `9-5` is neither an id nor a range such as 4005-4010
    --grants: `CALL:SAVE` is not a grant such as PERMISSION_OPEN_API_CALL:SAVE
    --rate: `60` is not a rate such as 60/60s
    --persist-after: `soon` is not a time span such as 500ms, 6s, 2m, 24h, 365d
    --seed: `one` is not a number
    --field: `color=red` is none of talk=NAME, phone=NAME, extension=NAME, list=NAME
    --expires-in: a PAT lives at most 365 days
    --faults: fault `any explode`: `explode` is not an action
    ");
}

#[test]
fn flags_become_settings() {
    let flags = [
        "--leads=4001,4005-4010",
        "--rate=60/6s",
        "--grants=none",
        "--listen=[::1]:0",
    ];
    let config = options(&flags).check().expect("fine");
    let company = &config.settings.company;
    assert!(company.leads.contains(4001) && company.leads.contains(4010));
    assert!(!company.leads.contains(4002) && company.grants.is_empty());
    assert_eq!(config.settings.rate.window, Duration::from_secs(6));
    assert!(config.listen.is_ipv6());
    let config = options(&[]).check().expect("fine");
    let defaults = config.settings;
    assert_eq!(
        (defaults.rate.requests, defaults.rate.window.as_secs()),
        (60, 60)
    );
    assert!(defaults.company.leads.contains(4001) && defaults.company.employees.contains(501));
}

#[test]
fn missing_token_file_is_created_once_with_mode_0600() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("token");
    let flag = format!("--token-file={}", path.display());
    let first = options(&[&flag]).check().expect("made").token;
    let second = options(&[&flag]).check().expect("read").token;
    assert!(first.expose_secret().starts_with("svc_pat_"));
    assert_eq!(first.expose_secret(), second.expose_secret());
    let mode = std::fs::metadata(&path)
        .expect("the file")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    std::fs::write(&path, "\n").expect("written");
    let error = options(&[&flag]).check().expect_err("empty");
    assert_eq!(error.exit_code(), Code::Configuration);
}

#[test]
fn every_flag_has_help() {
    use clap::CommandFactory;
    Command::command().debug_assert();
    for flag in Command::command()
        .get_arguments()
        .filter(|flag| flag.get_id() != "help")
    {
        assert!(
            flag.get_help()
                .is_some_and(|help| !help.to_string().is_empty()),
            "{flag:?}"
        );
    }
}

#[tokio::test]
async fn command_ends_on_shutdown_and_refuses_taken_address() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let addr = taken.local_addr().expect("bound");
    let flag = format!("--listen={addr}");
    let error = run(options(&[&flag]), std::future::pending())
        .await
        .expect_err("taken");
    assert_eq!(error.exit_code(), Code::Unreachable);
    assert!(error.to_string().contains("--listen"), "{error}");
    run(options(&["--listen=127.0.0.1:0"]), std::future::ready(()))
        .await
        .expect("ends");
}

#[test]
fn leads_file_is_loaded_and_a_bad_line_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("leads.csv");
    let flag = format!("--leads={}", path.display());
    let text = "leadId,phone,name,statusId,responsibleId\n4001,+998901112233,Ali,2,501\n\
                4001,+998935556677\n4002,,,,\n";
    std::fs::write(&path, text).expect("written");
    let config = options(&[&flag]).check().expect("fine");
    let mut core = Sandbox::new(config.settings);
    core.begin(super::NOW, "svc_pat_x", None);
    let ali = act::find_lead(&core, 1, 4001).expect("the first");
    assert_eq!(
        (ali.name.as_str(), ali.phone()),
        ("Ali", Some("+998901112233"))
    );
    assert_eq!(ali.contacts[0].phones.len(), 2);
    let snapshot = ali.snapshot();
    let shown = ["statusName", "pipeId", "responsibleName"].map(|name| snapshot[name].to_string());
    assert_eq!(shown, ["\"In work\"", "1", "\"Employee 501\""]);
    assert!(act::find_lead(&core, 1, 4002).is_some() && act::find_lead(&core, 1, 4003).is_none());
    for (line, words) in [
        ("x,+998901112233,Ali", "line 2: `x` is not the id of a lead"),
        (
            "4001,901112233,Ali",
            "line 2: `901112233` is not a number such as +998901112233",
        ),
        ("4001,,,99,", "line 2: `statusId`: no such stage"),
        ("4001,,,,me", "line 2: `responsibleId`: `me` is no id"),
    ] {
        std::fs::write(
            &path,
            format!("leadId,phone,name,statusId,responsibleId\n{line}\n"),
        )
        .expect("written");
        let error = options(&[&flag]).check().expect_err("a bad line");
        assert!(error.to_string().contains(words), "{error}");
    }
}

/// Issues a token with `body`. Returns whether the token works an hour minus a second, an hour, a
/// year minus a second, and a year later.
fn issued_token_works(core: &mut Sandbox, body: &Value) -> [bool; 4] {
    let issued = super::lead_fields::admin(core, "token", body);
    let token = issued["token"].as_str().expect("shown once");
    [3_599, 3_600, 31_535_999, 31_536_000]
        .map(|second| core.token_works(super::now_plus(second), token))
}

#[test]
fn token_expiry_defaults_to_a_year_and_can_be_never() {
    let year = 365 * 86_400;
    let begun = callbridge_model::clock::now().wall.floor_seconds().get();
    for (flags, seconds) in [
        (&[][..], Some(year)),
        (&["--expires-in=2h"][..], Some(7_200)),
        (&["--expires-in=never"][..], None),
    ] {
        let config = options(flags).check().expect("fine");
        let left = config.expires_at.map(|at| at.get() - begun);
        let now = callbridge_model::clock::now().wall.floor_seconds().get();
        assert_eq!(left.is_some(), seconds.is_some(), "{flags:?}");
        assert!(
            left.zip(seconds)
                .is_none_or(|(left, expected)| (expected..=expected + now - begun).contains(&left)),
            "{flags:?}: {left:?}"
        );
    }
    let mut core = super::sandbox();
    for (body, works) in [
        (json!({}), [true, true, true, false]),
        (
            json!({ "expiresInSec": 3_600 }),
            [true, false, false, false],
        ),
        (json!({ "expiresInSec": null }), [true; 4]),
    ] {
        assert_eq!(issued_token_works(&mut core, &body), works, "{body}");
    }
}
