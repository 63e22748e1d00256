//! The questions that `init` asks because the PBX cannot answer them, in their order.

/// A question that `init` asks because the PBX's answers leave it open.
#[cfg_attr(test, derive(strum::VariantArray))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SetupQuestion {
    /// The address of the PBX's manager, or of a FreeSWITCH.
    PbxAddress,
    /// The name of the manager account.
    Account,
    /// The manager account's secret, which is not shown.
    AccountSecret,
    /// The destination of calls: the CRM or a hub.
    Destination,
    /// The address of the hub.
    HubAddress,
    /// The token of the branch at the hub.
    HubToken,
    /// The address of the CRM's API.
    CrmAddress,
    /// The CRM's token. Empty for a connection by consent.
    Token,
    /// The rule that finds a call's lead.
    LeadRule,
    /// The country of numbers that have no country code.
    Country,
}

impl SetupQuestion {
    /// Returns the question as text.
    pub const fn text(self) -> &'static str {
        match self {
            Self::PbxAddress => {
                "Address of the PBX's manager (AMI), as HOST or HOST:PORT; for FreeSWITCH, as \
                 esl://HOST"
            }
            Self::Account => "Manager account (the name of a section in manager.conf)",
            Self::AccountSecret => "Its secret (not shown)",
            Self::Destination => "Send to the CRM, or to a hub? Type crm or hub",
            Self::HubAddress => "Address of the hub, such as https://hub.example.com:8443",
            Self::HubToken => "Token of this branch, from `callbridge branch add` (not shown)",
            Self::CrmAddress => "Address of the CRM's API, such as https://crm.example.com",
            Self::Token => "The CRM's token (not shown; empty to connect by consent later)",
            Self::LeadRule => {
                "How to find a call's lead: var:NAME, userfield:REGEX, csv:/FILE, or `directory` \
                 (the CRM's leads)"
            }
            Self::Country => "Country of numbers without a country code, such as UZ",
        }
    }

    /// Returns the answer for an empty line. The files in `deploy` export the lead as `lead_id` on
    /// FreeSWITCH and as `LEAD_ID` on Asterisk.
    pub const fn default(self, is_freeswitch: bool) -> Option<&'static str> {
        match self {
            Self::PbxAddress => Some("127.0.0.1:5038"),
            Self::Account => Some("callbridge"),
            Self::Destination => Some("crm"),
            Self::LeadRule if is_freeswitch => Some("var:lead_id"),
            Self::LeadRule => Some("var:LEAD_ID"),
            Self::AccountSecret | Self::CrmAddress | Self::Token | Self::Country => None,
            Self::HubAddress | Self::HubToken => None,
        }
    }

    /// Returns `true` if the answer is not shown while it is typed.
    pub const fn is_secret(self) -> bool {
        matches!(self, Self::AccountSecret | Self::Token | Self::HubToken)
    }

    /// Returns the flag that answers the question, and the message that is shown if the flag is
    /// missing.
    pub const fn flag(self) -> (&'static str, &'static str) {
        match self {
            Self::PbxAddress | Self::Account => (
                "--source",
                "is missing: the PBX and its manager account, such as ami://USER@HOST, or a \
                 FreeSWITCH, such as esl://HOST",
            ),
            Self::AccountSecret => (
                "--source",
                "its secret is missing: give secret-file= in the URL, or CALLBRIDGE_AMI_SECRET \
                 (CALLBRIDGE_ESL_SECRET for esl://)",
            ),
            Self::HubToken => (
                "--forward-token-file",
                "is missing: give a file with the branch's token, or CALLBRIDGE_FORWARD_TOKEN",
            ),
            Self::Destination | Self::CrmAddress | Self::HubAddress => (
                "--crm-url",
                "is missing: the address of the CRM's API, such as https://crm.example.com; for a \
                 hub give --forward https://HOST",
            ),
            Self::Token => (
                "--token-file",
                "is missing: the CRM's token in a file (or CALLBRIDGE_TOKEN, or --token-command); \
                 for a connection by consent name the --state of `callbridge connect`",
            ),
            Self::LeadRule => (
                "--lead",
                "is missing: where to find a call's lead, as var:LEAD_ID (FreeSWITCH: var:lead_id) \
                 or csv:/FILE",
            ),
            Self::Country => (
                "--country",
                "is missing: the country of numbers without a country code, such as UZ",
            ),
        }
    }
}

/// Returns `true` if the address is that of a FreeSWITCH's event socket, which has a password and
/// no account.
pub fn is_event_socket(address: &str) -> bool {
    address.trim().starts_with("esl://")
}

/// Returns the source of these answers for `--source`, such as `ami://USER@HOST:PORT`.
///
/// # Errors
/// A message if the address or the account cannot be in a URL.
pub fn source_url(address: &str, account: &str) -> Result<String, String> {
    let address = address.trim();
    let socket = address.strip_prefix("esl://");
    let address = socket.or(address.strip_prefix("ami://")).unwrap_or(address);
    // The password is sent in clear text, so it goes to another host only with `clear=yes`.
    let (address, clear) = match address.strip_suffix("?clear=yes") {
        Some(address) if socket.is_some() => (address, "?clear=yes"),
        Some(_) | None => (address, ""),
    };
    if !is_plain(address, ".-_:[]") {
        let message = "is not an address: give HOST or HOST:PORT, such as 192.168.1.10:5038";
        return Err(format!("`{address}` {message}"));
    }
    if socket.is_some() {
        return Ok(format!("esl://{address}{clear}"));
    }
    if !is_plain(account, ".-_") {
        return Err(format!(
            "`{account}` is not an account name: use letters, digits, `-`, `_` and `.`, as in the \
             section's name in manager.conf"
        ));
    }
    Ok(format!("ami://{account}@{address}"))
}

/// Returns `true` for a text of letters, digits, and the characters of `more`.
fn is_plain(text: &str, more: &str) -> bool {
    let mut characters = text.chars();
    !text.is_empty() && characters.all(|c| c.is_ascii_alphanumeric() || more.contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use strum::VariantArray as _;

    #[test]
    fn every_question_has_a_flag_and_a_secret_has_no_default() {
        for question in SetupQuestion::VARIANTS {
            let (flag, message) = question.flag();
            assert!(
                flag.starts_with("--") && message.contains("missing"),
                "{message}"
            );
            for is_freeswitch in [false, true] {
                let has_default = question.default(is_freeswitch).is_some();
                assert!(!(question.is_secret() && has_default), "{question:?}");
            }
        }
    }

    fn account_url(address: &str) -> Result<String, String> {
        source_url(address, "callbridge")
    }

    #[test]
    fn source_url_is_built_from_valid_address_and_account_only() {
        assert_eq!(
            account_url("10.0.0.5"),
            Ok("ami://callbridge@10.0.0.5".to_owned())
        );
        assert_eq!(
            account_url(" pbx:5039 "),
            Ok("ami://callbridge@pbx:5039".to_owned())
        );
        for wrong in ["", "a b", "h/x", "h?secret-file=/etc/shadow", "u:p@h"] {
            assert!(account_url(wrong).is_err(), "{wrong}");
        }
        assert!(source_url("h", "a@b").is_err());
        // A FreeSWITCH has no account.
        for socket in ["esl://10.0.0.5", "esl://pbx:8022?clear=yes"] {
            assert!(is_event_socket(socket));
            assert_eq!(source_url(socket, ""), Ok(socket.to_owned()));
        }
        assert!(source_url("esl://h?secret-file=/etc/shadow", "").is_err());
    }
}
