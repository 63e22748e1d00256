//! Tests of the flags of one application.

use super::{BACK, CLIENT, READ, SAVE};
use crate::token::TokenKey;
use crate::{Config, Options};
use clap::Parser;
use std::path::Path;
use std::time::Duration;

#[derive(Debug, clap::Parser)]
struct Command {
    #[command(flatten)]
    options: Options,
}

fn check_flags(flags: &[&str]) -> Result<Config, String> {
    let given = std::iter::once(&"sandbox").chain(flags);
    let command = Command::try_parse_from(given).map_err(|error| error.to_string())?;
    command.options.check().map_err(|error| error.to_string())
}

fn secret_flag(path: &Path) -> String {
    format!("--client-secret-file={}", path.display())
}

#[test]
fn flags_register_application_and_store_secret_in_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("secret");
    let (client, back) = (
        format!("--client-id={CLIENT}"),
        format!("--redirect-uri={BACK}"),
    );
    let grants = format!("--application-grants={SAVE},{READ}");
    let secret = secret_flag(&path);
    let flags = [
        client.as_str(),
        &secret,
        &back,
        "--redirect-uri=https://app.example/b",
        &grants,
        "--access-life=20s",
        "--refresh-life=2d",
        "--auth-listen=127.0.0.1:0",
        "--application-embedded",
    ];
    let config = check_flags(&flags).expect("fine");
    let oauth = &config.settings;
    assert_eq!(oauth.access_life, Duration::from_secs(20));
    assert_eq!(oauth.refresh_life, Duration::from_secs(172_800));
    assert!(
        config
            .auth_listen
            .is_some_and(|addr| addr.ip().is_loopback())
    );
    let application = oauth.application.as_ref().expect("an application");
    let kept = std::fs::read_to_string(&path).expect("made");
    assert!(kept.starts_with("svc_sec_"));
    assert_eq!(application.secret, TokenKey::from_value(kept.trim()));
    assert_eq!(
        (application.redirect_uris.len(), application.allowed.len()),
        (2, 2)
    );
    assert!(application.published && application.embedded && !application.suspended);
    let again = check_flags(&flags).expect("fine").settings;
    assert_eq!(again.application.as_ref(), Some(application));
    assert_ne!(
        again.salt, oauth.salt,
        "values of a start are nobody else's"
    );
    let defaults = check_flags(&[]).expect("fine").settings;
    assert!(defaults.application.is_none());
    assert_eq!(defaults.access_life, Duration::from_secs(3_600));
}

#[test]
fn application_flag_errors_are_all_reported_at_once() {
    let wrong = check_flags(&[
        "--client-id=mine",
        "--redirect-uri=http://example.com/back",
        "--application-grants=CALL",
        "--access-life=2h",
        "--refresh-life=1500ms",
        "--auth-listen=there",
    ]);
    insta::assert_snapshot!(wrong.expect_err("seven faults"), @r"
    --access-life: whole seconds, from 1s to 3600s
    --refresh-life: whole seconds, from 1s to 2592000s
    --auth-listen: no address and port such as 127.0.0.1:8481
    --client-id: begins with svc_app_
    --client-id: needs --client-secret-file FILE
    --redirect-uri: `http://example.com/back`: neither https:// nor http:// on loopback
    --application-grants: `CALL` is not a grant such as PERMISSION_OPEN_API_CALL:SAVE
    ");
    let orphan = check_flags(&["--redirect-uri=http://127.0.0.1:9/back"]);
    let needs = "--redirect-uri: needs --client-id svc_app_…";
    assert_eq!(orphan.expect_err("no client"), needs);
}
