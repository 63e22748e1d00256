//! The CRM of a command line: its address, token and rate, and the names of its fields.

use super::{Crm, token};
use crate::config::faults::Faults;
use crate::config::options::CrmFlags;
use crate::values;
use callbridge_crm::{Address, FieldNames};
use callbridge_leads::lead_field;
use callbridge_model::environment::Environment;
use callbridge_sender::rate::Rate;
use std::path::PathBuf;
use url::Url;

/// What there is to know of tokens before the flags are looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tokens {
    /// There must be one.
    pub(super) needed: bool,
    /// The state folder holds a connection.
    pub(super) connected: bool,
}

/// The CRM; `None` where it has no address, or a wrong one.
pub(super) fn check(
    flags: &CrmFlags,
    tokens: Tokens,
    environment: &Environment,
    faults: &mut Faults,
) -> Option<Crm> {
    let url = flags.crm_url.as_deref();
    let forwards = flags.forward.is_some();
    if tokens.needed && url.is_none() && !forwards {
        faults.add(
            "--crm-url",
            "is missing: give the CRM's address, --forward, or --dry-run",
        );
    }
    if url.is_some() && forwards {
        faults.add("--forward", "stands in place of --crm-url: keep one");
    }
    let tokens = Tokens {
        needed: tokens.needed && !forwards,
        ..tokens
    };
    let own = url.and_then(|text| address(text, "--crm-url", faults));
    let auth = flags
        .auth_url
        .as_deref()
        .and_then(|text| address(text, "--auth-url", faults));
    let rate = rate(flags.rate.as_deref(), own.as_ref(), faults);
    let fields = fields(&flags.field, faults);
    let proxy = flags
        .crm_proxy
        .as_deref()
        .and_then(|text| faults.take("--crm-proxy", proxy(text)));
    if proxy.is_some() && own.as_ref().is_some_and(Address::is_plain) {
        faults.add(
            "--crm-proxy",
            "would be given the token in clear: with an http:// --crm-url no proxy is used",
        );
    }
    let token_file = path("--token-file", flags.token_file.as_deref(), faults);
    let file = token_file.as_deref();
    let token = token::check(flags, file, tokens, environment, faults);
    let ca_file = path("--crm-ca-file", flags.crm_ca_file.as_deref(), faults);
    let lead_fields = lead_fields(flags.lead_field.as_deref(), faults);
    let field_list_wrapper = wrapper(flags.field_list_wrapper.as_deref(), faults);
    let drop_employee = failed_employee(flags.failed_employee.as_deref(), faults);
    Some(Crm {
        address: own?,
        auth,
        token,
        rate,
        fields,
        lead_fields,
        field_list_wrapper,
        drop_employee,
        ca_file,
        proxy,
    })
}

/// An address of the CRM; its words name the flag.
pub(super) fn address(text: &str, flag: &str, faults: &mut Faults) -> Option<Address> {
    match Address::parse(text) {
        Ok(address) => Some(address),
        Err(error) => {
            faults.say(error.to_string().replacen("--crm-url", flag, 1));
            None
        }
    }
}

fn lead_fields(text: Option<&str>, faults: &mut Faults) -> lead_field::Fields {
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return lead_field::Fields::new();
    };
    lead_field::parse(text).unwrap_or_else(|wrong| {
        let all = wrong.iter();
        all.for_each(|fault| faults.add("--lead-field", fault));
        lead_field::Fields::new()
    })
}

fn wrapper(text: Option<&str>, faults: &mut Faults) -> Option<String> {
    let text = text.filter(|text| !text.is_empty())?;
    faults.take("--field-list-wrapper", values::field_name(text))
}

fn failed_employee(text: Option<&str>, faults: &mut Faults) -> bool {
    let words = [("keep", false), ("drop", true)];
    let read = text.filter(|text| !text.is_empty());
    let read = read.and_then(|text| faults.take("--failed-employee", values::word(text, &words)));
    read.unwrap_or(false)
}

pub(super) fn path(flag: &str, text: Option<&str>, faults: &mut Faults) -> Option<PathBuf> {
    let read = if text?.is_empty() {
        Err("is empty: give a path")
    } else {
        Ok(())
    };
    faults.take(flag, read)?;
    text.map(PathBuf::from)
}

fn rate(text: Option<&str>, address: Option<&Address>, faults: &mut Faults) -> Rate {
    let Some(text) = text else {
        return Rate::default();
    };
    let rate = match text.parse::<Rate>() {
        Ok(rate) => rate,
        Err(error) => {
            faults.say(error.to_string());
            return Rate::default();
        }
    };
    let loopback = address.is_some_and(Address::is_loopback);
    if rate.exceeds_service() && !loopback {
        let (most, service) = (rate.most_in_service_window(), Rate::SERVICE);
        faults.add(
            &format!("--rate {text}"),
            format!(
                "up to {most} requests in 60 s, and the service allows {service} to a token; \
                 more is for a CRM on this machine alone"
            ),
        );
    }
    rate
}

fn fields(flags: &[String], faults: &mut Faults) -> FieldNames {
    const TAKEN: [&str; 8] = [
        "leadId",
        "employeeId",
        "uuid",
        "startedAt",
        "durationSec",
        "answered",
        "direction",
        "provider",
    ];
    let mut names = FieldNames::default();
    for text in values::given(flags) {
        let flag = format!("--field {text}");
        let Some((what, name)) = text.split_once('=') else {
            faults.add(&flag, "is not talk=NAME or phone=NAME");
            continue;
        };
        let Some(name) = faults.take(&flag, values::field_name(name)) else {
            continue;
        };
        if TAKEN.contains(&name.as_str()) {
            faults.add(&flag, format!("`{name}` is another field of the service"));
        }
        match what {
            "talk" => names.talk = name,
            "phone" => names.phone = Some(name),
            _ => faults.add(&flag, "only talk and phone have names that can be set"),
        }
    }
    if names.phone.as_ref() == Some(&names.talk) {
        faults.add(
            "--field",
            format!("talk and phone are both called `{}`", names.talk),
        );
    }
    names
}

pub(super) fn proxy(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("not a URL ({error})"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("a user or password in it could be read by everybody on this machine".into());
    }
    match url.scheme() {
        "http" | "https" if url.host().is_some() => Ok(url),
        _ => Err(format!("`{text}` is no proxy: give it as http://HOST:PORT")),
    }
}
