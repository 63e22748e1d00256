//! The flags of the webhook receiver: where it listens, its certificate, its secrets.

use super::{Checking, Webhooks, certificate, report_unused};
use crate::config::Faults;
use crate::config::flags::WebhookFlags;
use crate::values;
use callbridge_model::{SecretKind, SecretPlace};
use std::{collections::BTreeMap, path::PathBuf};

/// Checks the flags of the receiver. `None` without `--webhook-listen`, or if its address is wrong.
pub(super) fn check(flags: &WebhookFlags, checking: &mut Checking<'_>) -> Option<Webhooks> {
    let faults = &mut checking.faults;
    let files = (&flags.webhook_cert, &flags.webhook_key);
    let tls = certificate("webhook", files, "", faults);
    let installations = installations(&flags.installation_secret, faults);
    let secret_flag = &flags.webhook_secret_file;
    let secret_file = faults.read("--webhook-secret-file", secret_flag, values::path);
    if flags.webhook_listen.is_none() {
        let given = [
            ("--webhook-cert", flags.webhook_cert.is_some()),
            ("--webhook-key", flags.webhook_key.is_some()),
            ("--webhook-secret-file", flags.webhook_secret_file.is_some()),
            (
                "--installation-secret",
                values::flag_values(&flags.installation_secret)
                    .next()
                    .is_some(),
            ),
        ];
        report_unused("--webhook-listen", &given, faults);
    }
    let environment = checking.environment;
    let application = SecretPlace::find(SecretKind::Webhook, secret_file.as_deref(), environment);
    let listen = faults.read("--webhook-listen", &flags.webhook_listen, |text| {
        values::address(text, ", such as 127.0.0.1:8481")
    })?;
    Some(Webhooks {
        listen,
        tls,
        application: application.ok(),
        installations,
    })
}

fn installations(flags: &[String], faults: &mut Faults) -> BTreeMap<String, SecretPlace> {
    let mut all = BTreeMap::new();
    for text in values::flag_values(flags) {
        let flag = format!("--installation-secret {text}");
        let Some((id, file)) = text.split_once('=') else {
            faults.add(&flag, "is not ID=FILE");
            continue;
        };
        let digits = (1..=20).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_digit());
        if !digits {
            let message = format!("`{id}` is not an installation id: use digits only");
            faults.add(&flag, message);
        } else if file.is_empty() {
            faults.add(&flag, "its file is missing");
        } else if all.contains_key(id) {
            let message = "this installation already has a file: add a line to it";
            faults.add(&flag, message);
        } else {
            all.insert(id.to_owned(), SecretPlace::File(PathBuf::from(file)));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_model::Environment;

    fn check_flags(flags: &WebhookFlags) -> (Option<Webhooks>, String) {
        let environment = Environment::from_pairs([("CALLBRIDGE_WEBHOOK_SECRET", "hidden")]);
        let mut checking = Checking::new(&environment, Faults::default());
        let webhooks = check(flags, &mut checking);
        (webhooks, checking.faults.to_string())
    }

    #[test]
    fn webhook_flags_require_only_the_address_and_hide_secrets() {
        let flags = WebhookFlags {
            webhook_listen: Some("127.0.0.1:8481".into()),
            installation_secret: vec!["9001=/etc/a".into(), String::new()],
            ..WebhookFlags::default()
        };
        let (webhooks, faults) = check_flags(&flags);
        let webhooks = webhooks.expect("a receiver");
        assert!(faults.starts_with("0 errors"), "{faults}");
        assert!(webhooks.tls.is_none() && webhooks.application.is_some());
        assert_eq!(webhooks.installations.len(), 1);
        assert!(!format!("{webhooks:?}").contains("hidden"));
        assert!(check_flags(&WebhookFlags::default()).0.is_none());
    }

    #[test]
    fn flag_errors_are_all_reported_at_once() {
        let flags = WebhookFlags {
            webhook_listen: Some("everywhere".into()),
            webhook_cert: Some("/etc/cert".into()),
            webhook_secret_file: Some(String::new()),
            installation_secret: ["x", "a=/f", "9=", "9=/f", "9=/g"].map(String::from).into(),
            ..WebhookFlags::default()
        };
        insta::assert_snapshot!(check_flags(&flags).1, @"
        7 errors in the flags. Nothing was started:
          --webhook-cert: needs --webhook-key, its private key
          --installation-secret x: is not ID=FILE
          --installation-secret a=/f: `a` is not an installation id: use digits only
          --installation-secret 9=: its file is missing
          --installation-secret 9=/g: this installation already has a file: add a line to it
          --webhook-secret-file: is empty: give a path
          --webhook-listen: `everywhere` is not IP:PORT, such as 127.0.0.1:8481
        ");
        let alone = WebhookFlags {
            webhook_key: Some("/etc/key".into()),
            webhook_secret_file: Some("/etc/secret".into()),
            ..WebhookFlags::default()
        };
        insta::assert_snapshot!(check_flags(&alone).1, @"
        3 errors in the flags. Nothing was started:
          --webhook-key: needs --webhook-cert, its certificate
          --webhook-key: has no effect without --webhook-listen ADDR
          --webhook-secret-file: has no effect without --webhook-listen ADDR
        ");
    }
}
