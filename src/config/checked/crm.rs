//! The flags about the CRM: its address, the token (from a file, a variable, a command, or a
//! connection by consent), the rate, and the names of its fields.

use super::{Checking, Crm};
use crate::config::Faults;
use crate::config::flags::CrmFlags;
use crate::values;
use callbridge_crm::{Address, FieldNames, Setup};
use callbridge_leads::lead_field;
use callbridge_model::{SecretKind, SecretPlace};
use callbridge_sender::rate::Rate;
use std::path::Path;
use url::Url;

/// Checks the flags of the CRM. Returns `None` if the address is missing or wrong. With `dry_run`,
/// no CRM is needed. `connected` is `true` if the state has a connection. It is `None` if the state
/// cannot be read, which `run` reports when it opens the state.
pub(super) fn check(
    flags: &CrmFlags,
    (dry_run, connected): (bool, Option<bool>),
    checking: &mut Checking<'_>,
) -> Option<Crm> {
    let needed = checking.needs && !dry_run;
    let faults = &mut checking.faults;
    let url = flags.crm_url.as_deref();
    let message = "is missing: give the CRM's address, or --dry-run";
    faults.add_if(needed && url.is_none(), "--crm-url", message);
    let own = url.and_then(|text| address(text, "--crm-url", faults));
    let auth_url = flags.auth_url.as_deref();
    let auth = auth_url.and_then(|text| address(text, "--auth-url", faults));
    let rate = rate(flags.rate.as_deref(), own.as_ref(), faults).unwrap_or_default();
    let fields = fields(&flags.field, faults);
    let proxy = faults.read("--crm-proxy", &flags.crm_proxy, proxy);
    let in_clear = proxy.is_some() && own.as_ref().is_some_and(Address::is_plain);
    let message = "would receive the token unencrypted: remove it, because it cannot be used with \
                   an http:// --crm-url";
    faults.add_if(in_clear, "--crm-proxy", message);
    let token_file = faults.read("--token-file", &flags.token_file, values::path);
    let tokens = (needed, connected);
    let token = token(flags, token_file.as_deref(), tokens, checking);
    let faults = &mut checking.faults;
    let ca_file = faults.read("--crm-ca-file", &flags.crm_ca_file, values::path);
    let lead_fields = non_empty(&flags.lead_field)
        .and_then(|text| faults.take_all("--lead-field", lead_field::parse(text)));
    let field_list_wrapper = non_empty(&flags.field_list_wrapper)
        .and_then(|text| faults.take("--field-list-wrapper", values::field_name(text)));
    let drops = non_empty(&flags.failed_employee).and_then(|text| {
        let word = values::word(text, &[("keep", false), ("drop", true)]);
        faults.take("--failed-employee", word)
    });
    Some(Crm {
        setup: Setup {
            ca_file,
            proxy,
            ..Setup::new(own?)
        },
        auth,
        token,
        rate,
        fields,
        lead_fields: lead_fields.unwrap_or_default(),
        field_list_wrapper,
        drop_employee: drops.unwrap_or(false),
    })
}

/// Reads an address of the CRM. The error names the flag.
pub(super) fn address(text: &str, flag: &str, faults: &mut Faults) -> Option<Address> {
    match Address::parse(text) {
        Ok(address) => Some(address),
        Err(error) => {
            faults.add_text(error.to_string().replacen("--crm-url", flag, 1));
            None
        }
    }
}

/// Returns the text. `None` if it is empty, because environment variables can be empty.
fn non_empty(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.is_empty())
}

fn rate(text: Option<&str>, address: Option<&Address>, faults: &mut Faults) -> Option<Rate> {
    let text = text?;
    let read = text.parse::<Rate>();
    let rate = read
        .map_err(|error| faults.add_text(error.to_string()))
        .ok()?;
    let loopback = address.is_some_and(Address::is_loopback);
    let most = rate.most_in_service_window();
    let service = Rate::SERVICE;
    let message = format!(
        "up to {most} requests in 60 s, but the CRM allows {service} per token; only a CRM on this \
         machine can take more"
    );
    let exceeds = rate.exceeds_service() && !loopback;
    faults.add_if(exceeds, &format!("--rate {text}"), message);
    Some(rate)
}

fn fields(flags: &[String], faults: &mut Faults) -> FieldNames {
    const TAKEN: &str = "leadId employeeId uuid startedAt durationSec answered direction provider";
    let mut names = FieldNames::default();
    for text in values::flag_values(flags) {
        let flag = format!("--field {text}");
        let Some((what, name)) = text.split_once('=') else {
            faults.add(&flag, "is not talk=NAME, phone=NAME or extension=NAME");
            continue;
        };
        let name = faults.take(&flag, values::field_name(name));
        let Some(name) = name else { continue };
        let message = format!("`{name}` is another field of the CRM");
        faults.add_if(TAKEN.split(' ').any(|taken| taken == name), &flag, message);
        match what {
            "talk" => names.talk = name,
            "phone" => names.phone = Some(name),
            "extension" => names.extension = Some(name),
            _ => {
                let message = "only the names of talk, phone and extension can be set";
                faults.add(&flag, message);
            }
        }
    }
    let named = [
        ("talk", Some(&names.talk)),
        ("phone", names.phone.as_ref()),
        ("extension", names.extension.as_ref()),
    ];
    for [first, second] in [[0, 1], [0, 2], [1, 2]] {
        let (one, name) = named[first];
        let (other, other_name) = named[second];
        if let Some(name) = name
            && Some(name) == other_name
        {
            let message = format!("{one} and {other} are both called `{name}`");
            faults.add("--field", message);
        }
    }
    names
}

pub(super) fn proxy(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("not a URL ({error})"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("remove user and password: every user of this machine could read them".into());
    }
    let is_proxy = ["http", "https"].contains(&url.scheme()) && url.host().is_some();
    if is_proxy {
        Ok(url)
    } else {
        Err(format!(
            "`{text}` is not a proxy: give it as http://HOST:PORT"
        ))
    }
}

/// The source of the token.
#[derive(Clone, Debug)]
pub enum TokenFrom {
    /// A file, a credential or a variable.
    Place(SecretPlace),
    /// The command of `--token-command`, for `/bin/sh`.
    Command(String),
    /// The connection in the state.
    Connection,
}

/// Returns the source of the token. Adds an error if several sources are given, or if a token is
/// `needed` and no source is given. `connected` is `true` if the state has a connection, and `None`
/// if the state cannot be read.
pub(super) fn token(
    flags: &CrmFlags,
    file: Option<&Path>,
    (needed, connected): (bool, Option<bool>),
    checking: &mut Checking<'_>,
) -> Option<TokenFrom> {
    let place = SecretPlace::find(SecretKind::Token, file, checking.environment);
    let faults = &mut checking.faults;
    let command = flags.token_command.as_deref();
    let is_empty = command.is_some_and(|text| text.trim().is_empty());
    let message = "is empty: give a command for /bin/sh";
    faults.add_if(is_empty, "--token-command", message);
    let source = match &place {
        Ok(SecretPlace::File(_)) if file.is_some() => "--token-file",
        Ok(SecretPlace::File(_)) => "the credential `token`",
        Ok(SecretPlace::Variable(_)) => "CALLBRIDGE_TOKEN",
        Err(_) => "--token-command",
    };
    let message = format!("{source} also gives a token: keep one of them");
    faults.add_if(
        place.is_ok() && command.is_some(),
        "--token-command",
        message,
    );
    let given = place.is_ok() || command.is_some();
    let message = "the state also has a connection by `callbridge connect`: remove the token to \
                   use the connection, or end the connection with `callbridge disconnect`";
    faults.add_if(given && connected == Some(true), source, message);
    match (place, command) {
        (Ok(place), _) => Some(TokenFrom::Place(place)),
        (Err(_), Some(command)) => Some(TokenFrom::Command(command.to_owned())),
        (Err(_), None) if connected != Some(false) => Some(TokenFrom::Connection),
        (Err(message), None) => {
            let no_token = message.replacen("no secret", "no token", 1);
            let message = format!("{no_token}; or --token-command, or run `callbridge connect`");
            faults.add_if(needed, "--token-file", message);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::faults::Faults;
    use callbridge_model::Environment;

    /// Checks the token command and the token file. `connected` is `true` if the state has a
    /// connection.
    fn check_token(
        command: Option<&str>,
        file: Option<&str>,
        connected: bool,
    ) -> Result<TokenFrom, String> {
        let flags = CrmFlags {
            token_command: command.map(str::to_owned),
            ..CrmFlags::default()
        };
        let environment = Environment::default();
        let mut checking = Checking::new(&environment, Faults::default());
        let file = file.map(Path::new);
        let found = token(&flags, file, (true, Some(connected)), &mut checking);
        checking
            .faults
            .into_result(())
            .map_err(|faults| faults.to_string())?;
        Ok(found.expect("a token source"))
    }

    #[test]
    fn token_source_is_accepted_if_only_one_is_given() {
        assert!(matches!(
            check_token(None, Some("/t"), false),
            Ok(TokenFrom::Place(_))
        ));
        assert!(matches!(
            check_token(None, None, true),
            Ok(TokenFrom::Connection)
        ));
        assert!(matches!(
            check_token(Some("vault read"), None, false),
            Ok(TokenFrom::Command(_))
        ));
    }

    #[test]
    fn token_source_given_twice_or_not_at_all_is_refused() {
        for (command, file, connected, words) in [
            (
                None,
                Some("/t"),
                true,
                "--token-file: the state also has a connection",
            ),
            (
                Some("x"),
                None,
                true,
                "--token-command: the state also has a connection",
            ),
            (
                Some("x"),
                Some("/t"),
                false,
                "--token-command: --token-file also gives a token",
            ),
            (Some(" "), None, false, "--token-command: is empty"),
            (None, None, false, "or run `callbridge connect`"),
        ] {
            let error = check_token(command, file, connected).expect_err(words);
            assert!(error.contains(words), "{error}");
        }
    }
}
