//! A connection, which is the result of one consent and contains everything needed to keep it
//! alive.

use callbridge_call::EpochSeconds;
use callbridge_model::{ExposeSecret, Secret, is_token};
use callbridge_sender::token_update::Tokens;
use callbridge_spool::StoredConnection;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

/// An application's stored connection to a company.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Connection {
    /// The application, along with the CRM's URLs.
    #[serde(flatten)]
    pub client: Client,
    /// The requested scope, which consists of grants separated by spaces.
    pub asked_scope: String,
    /// The granted scope (§4.1.1), which may be smaller.
    pub scope: String,
    /// The access token in use, `svc_at_…`.
    #[serde(serialize_with = "bare")]
    pub access_token: Secret,
    /// When the access token was requested.
    pub issued_at: EpochSeconds,
    /// When the access token expires, counted from `issued_at`.
    pub expires_at: EpochSeconds,
    /// The refresh token, `svcrt_…`, which is replaced by each refresh.
    #[serde(serialize_with = "bare")]
    pub refresh_token: Secret,
    /// The previous access token, which works until it expires (§5.6.6).
    #[serde(serialize_with = "bare_option")]
    pub previous_token: Option<Secret>,
    /// When `previous_token` expires. Either both are set or neither is.
    pub previous_expires_at: Option<EpochSeconds>,
    /// The secret for signing this installation's webhooks, which the CRM shows only once (§5.6.8).
    #[serde(serialize_with = "bare_option")]
    pub webhook_secret: Option<Secret>,
    /// The secret for signing embedded pages, which the CRM shows only once (§5.6.8).
    #[serde(serialize_with = "bare_option")]
    pub embedded_secret: Option<Secret>,
    /// The value of `--company`, which must match `company.id` in token/info.
    pub company_id: Option<i64>,
    /// When a refresh with an unknown outcome was started.
    pub refresh_began_at: Option<EpochSeconds>,
    /// When a 401 last caused a refresh.
    pub refused_at: Option<EpochSeconds>,
    /// Why consent must be given again, or `None` while the connection works.
    pub over: Option<String>,
    /// Fields stored by a later version of callbridge, which are kept unchanged.
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

/// An OAuth application, along with the CRM that it's connected to.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Client {
    /// The value of `--crm-url`. The tokens aren't sent to any other CRM without `--rebind`.
    pub crm_url: String,
    /// The value of `--auth-url`, which is the OAuth endpoints' host.
    pub auth_url: String,
    /// The value of `--consent-url`, which is the page that asks the company for consent.
    pub consent_url: String,
    /// The value of `--redirect-uri`, unchanged.
    pub redirect_uri: String,
    /// The application's client ID, `svc_app_…`.
    pub client_id: String,
    /// The application's client secret, `svc_sec_…`.
    #[serde(serialize_with = "bare")]
    pub client_secret: Secret,
    /// The file that the client secret was read from, if any.
    pub client_secret_file: Option<String>,
    /// The value of `--crm-ca-file`, if given.
    pub ca_file: Option<String>,
    /// The value of `--crm-proxy`, if given.
    pub proxy: Option<String>,
}

impl Connection {
    /// Returns `true` if both connections have the same access and refresh token, which means that
    /// there was no refresh or consent between them.
    pub fn is_same_pair(&self, other: &Self) -> bool {
        self.refresh_token.expose_secret() == other.refresh_token.expose_secret()
            && self.access_token.expose_secret() == other.access_token.expose_secret()
    }

    /// Returns the tokens for the sender. The previous access token is only included if it's still
    /// valid at `now`.
    pub fn tokens(&self, now: EpochSeconds) -> Tokens {
        Tokens {
            current: self.access_token.clone(),
            previous: self.previous_access().filter(|(_, end)| *end > now),
            company: self.company_id,
        }
    }

    /// Returns the previous access token along with its expiry.
    pub fn previous_access(&self) -> Option<(Secret, EpochSeconds)> {
        self.previous_token.clone().zip(self.previous_expires_at)
    }

    /// Returns the shell command that reconnects this application. `state` is the value of
    /// `--state`.
    pub fn command(&self, state: &str) -> String {
        let client = &self.client;
        let file = client.client_secret_file.as_deref().unwrap_or("FILE");
        let flags = [
            ("--crm-url", Some(client.crm_url.as_str())),
            ("--auth-url", Some(&client.auth_url)),
            ("--consent-url", Some(&client.consent_url)),
            ("--client-id", Some(&client.client_id)),
            ("--client-secret-file", Some(file)),
            ("--redirect-uri", Some(&client.redirect_uri)),
            ("--scope", Some(&self.asked_scope)),
            ("--state", Some(state)),
            ("--crm-ca-file", client.ca_file.as_deref()),
            ("--crm-proxy", client.proxy.as_deref()),
        ];
        let mut command = "callbridge connect".to_owned();
        for (flag, value) in flags {
            if let Some(value) = value {
                command += &format!(" {flag} {}", quote(value));
            }
        }
        command
    }

    /// Returns the connection in the form in which it's stored.
    pub fn stored(&self) -> StoredConnection {
        StoredConnection {
            refresh_token: self.refresh_token.clone(),
            content: Secret::from(self.to_json()),
        }
    }

    /// Returns the connection as JSON for storing it in the state, with the secrets in plain text.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Parses a connection from the JSON stored in the state.
    ///
    /// # Errors
    /// Returns a message about what's missing or wrong, which never contains any of the values.
    pub fn from_json(text: &str) -> Result<Self, String> {
        let read = serde_json::from_str::<Self>(text);
        let stored = read.map_err(|error| {
            if error.is_data() {
                // serde's message would contain the value.
                let line = error.line();
                format!("a field is missing or of another kind, in line {line}")
            } else {
                format!("it is not complete JSON ({error})")
            }
        })?;
        let tokens = [
            ("accessToken", &stored.access_token),
            ("refreshToken", &stored.refresh_token),
        ];
        match tokens
            .iter()
            .find(|(_, token)| !is_token(token.expose_secret()))
        {
            Some((name, _)) => Err(format!("{name} contains no token")),
            None => Ok(stored),
        }
    }
}

/// Quotes a word for a POSIX shell if necessary.
fn quote(text: &str) -> String {
    let is_plain = text
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c));
    if !text.is_empty() && is_plain {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Serializes a secret as plain text. This is only used for the stored connection.
pub(super) fn bare<S: Serializer>(secret: &Secret, to: S) -> Result<S::Ok, S::Error> {
    secret.expose_secret().serialize(to)
}

pub(super) fn bare_option<S: Serializer>(
    secret: &Option<Secret>,
    to: S,
) -> Result<S::Ok, S::Error> {
    let secret = secret.as_ref().map(ExposeSecret::expose_secret);
    secret.serialize(to)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns a connection whose access token was issued at second 1,000 and expires after an
    /// hour.
    pub(crate) fn connection() -> Connection {
        Connection {
            client: Client {
                crm_url: "https://crm.example".to_owned(),
                auth_url: "https://auth.example".to_owned(),
                consent_url: "https://crm.example/consent".to_owned(),
                redirect_uri: "http://127.0.0.1:8765/back".to_owned(),
                client_id: "svc_app_1".to_owned(),
                client_secret: Secret::from("svc_sec_hidden"),
                client_secret_file: Some("/etc/callbridge/client secret".to_owned()),
                ca_file: None,
                proxy: Some("http://proxy:3128".to_owned()),
            },
            asked_scope: "A:READ B:SAVE".to_owned(),
            scope: "B:SAVE".to_owned(),
            access_token: Secret::from("svc_at_hidden"),
            issued_at: EpochSeconds::new(1_000),
            expires_at: EpochSeconds::new(4_600),
            refresh_token: Secret::from("svcrt_hidden"),
            previous_token: Some(Secret::from("svc_at_old_hidden")),
            previous_expires_at: Some(EpochSeconds::new(2_000)),
            webhook_secret: Some(Secret::from("webhook_hidden")),
            embedded_secret: None,
            company_id: Some(12),
            refresh_began_at: None,
            refused_at: None,
            over: None,
            others: Map::new(),
        }
    }

    #[test]
    fn debug_output_contains_no_secret() {
        let shown = format!("{:?}", connection());
        assert!(!shown.contains("hidden"), "{shown}");
        assert!(shown.contains("svc_app_1"));
    }

    #[test]
    fn fields_of_a_later_version_are_kept() {
        let mut value: Value = serde_json::from_str(&connection().to_json()).expect("JSON");
        value["later"] = serde_json::json!({"a": 1});
        let read = Connection::from_json(&value.to_string()).expect("a connection");
        let again: Value = serde_json::from_str(&read.to_json()).expect("JSON");
        assert_eq!(again, value);
    }

    #[test]
    fn damaged_connection_error_contains_no_values() {
        let whole = connection().to_json();
        let torn = Connection::from_json(&whole[..whole.len() / 2]).expect_err("torn");
        assert!(torn.starts_with("it is not complete JSON"), "{torn}");
        let odd = whole.replace("1000", "\"hidden\"");
        let odd = Connection::from_json(&odd).expect_err("odd");
        assert!(odd.starts_with("a field is missing"), "{odd}");
        assert!(!torn.contains("hidden") && !odd.contains("hidden"));
        let empty = whole.replace("svcrt_hidden", "");
        let empty = Connection::from_json(&empty).expect_err("empty");
        assert_eq!(empty, "refreshToken contains no token");
    }

    #[test]
    fn connect_command_can_be_pasted_into_a_shell() {
        let command = connection().command("/var/lib/it's");
        insta::assert_snapshot!(command.replace(" --", "\n--"), @r"
        callbridge connect
        --crm-url https://crm.example
        --auth-url https://auth.example
        --consent-url https://crm.example/consent
        --client-id svc_app_1
        --client-secret-file '/etc/callbridge/client secret'
        --redirect-uri http://127.0.0.1:8765/back
        --scope 'A:READ B:SAVE'
        --state '/var/lib/it'\''s'
        --crm-proxy http://proxy:3128
        ");
    }

    #[test]
    fn older_token_is_offered_only_until_it_expires() {
        let last_second = connection().tokens(EpochSeconds::new(1_999));
        assert!(last_second.previous.is_some());
        let expired = connection().tokens(EpochSeconds::new(2_000));
        assert!(expired.previous.is_none());
    }

    proptest! {
        #[test]
        fn connection_parser_never_panics_on_arbitrary_text(text in "\\PC{0,300}") {
            let _ = Connection::from_json(&text);
        }

        #[test]
        fn connection_survives_a_json_round_trip(
            access in "[!-~]{1,40}", refresh in "[!-~]{1,40}", secret in "\\PC{0,20}",
            issued in any::<i64>(), expires in any::<i64>(), over in prop::option::of("\\PC{0,20}"),
        ) {
            let mut changed = connection();
            changed.access_token = Secret::from(access);
            changed.refresh_token = Secret::from(refresh);
            changed.client.client_secret = Secret::from(secret);
            changed.issued_at = EpochSeconds::new(issued);
            changed.expires_at = EpochSeconds::new(expires);
            changed.over = over;
            let read = Connection::from_json(&changed.to_json()).expect("a connection");
            prop_assert_eq!(read.to_json(), changed.to_json());
            prop_assert!(read.is_same_pair(&changed));
        }
    }
}
