//! Revokes all of a stored connection's tokens, which are the refresh token with the access tokens
//! issued from it (§5.6.7), and each access token. An access token from an earlier refresh token
//! isn't revoked along with the current refresh token.

use super::connection::Connection;
use super::exchange::{TokenReply, TokenRequest, name_auth_flag};
use callbridge_crm::{Address, Client, Setup};
use std::path::PathBuf;
use std::time::Duration;
use url::Url;

/// Maximum number of attempts to revoke a token. Revoking one twice does no harm.
const TRIES_MAX: u32 = 3;
/// How long to wait between two attempts to revoke a token.
const AGAIN: Duration = Duration::from_secs(2);

/// A token that couldn't be revoked.
#[derive(Clone, Debug)]
pub struct Unrevoked {
    /// What kind of token it is: `refresh token`, `access token`, or `access token before it`.
    pub token: &'static str,
    /// The last reply, which wasn't `Revoked`.
    pub came: TokenReply,
}

/// Creates a client for a stored connection's OAuth endpoints.
///
/// # Errors
/// Returns a message if the URL isn't valid.
pub fn client(connection: &Connection) -> Result<Client, String> {
    let client = &connection.client;
    let address =
        Address::parse(&client.auth_url).map_err(|error| name_auth_flag(&error.to_string()))?;
    let proxy = client.proxy.as_ref();
    Ok(Client::new(Setup {
        ca_file: client.ca_file.as_ref().map(PathBuf::from),
        proxy: proxy.and_then(|proxy| Url::parse(proxy).ok()),
        ..Setup::new(address)
    }))
}

/// Revokes all of a connection's tokens, and returns those that couldn't be revoked.
pub async fn all(host: &Client, connection: &Connection) -> Vec<Unrevoked> {
    use TokenReply::{NotSent, TooMany, Unsure};
    let tokens = [
        ("refresh token", Some(&connection.refresh_token)),
        ("access token", Some(&connection.access_token)),
        ("access token before it", connection.previous_token.as_ref()),
    ];
    let mut left: Vec<Unrevoked> = Vec::new();
    for (token, secret) in tokens {
        let Some(secret) = secret else { continue };
        let ask = TokenRequest::Revoke(secret.clone());
        // Once a token has failed this often, one attempt is enough for each of the others.
        let mut tries = if left.is_empty() { TRIES_MAX } else { 1 };
        let came = loop {
            let came = ask.send(host, &connection.client).await;
            tries -= 1;
            if tries == 0 || !matches!(came, Unsure(_) | NotSent(_) | TooMany) {
                break came;
            }
            tokio::time::sleep(AGAIN).await;
        };
        if !matches!(came, TokenReply::Revoked) {
            left.push(Unrevoked { token, came });
        }
    }
    left
}

/// Returns a message that lists the tokens in `left`, along with why the first of them couldn't be
/// revoked.
pub fn message(left: &[Unrevoked]) -> String {
    let tokens: Vec<&str> = left.iter().map(|unrevoked| unrevoked.token).collect();
    let why = match left.first().map(|unrevoked| &unrevoked.came) {
        Some(TokenReply::WrongClient(why)) => format!("client id or secret is refused: {why}"),
        Some(TokenReply::Refused(why) | TokenReply::WrongAddress(why)) => why.clone(),
        Some(TokenReply::Unsure(why) | TokenReply::NotSent(why)) => why.clone(),
        Some(TokenReply::TooMany | TokenReply::Pair(_) | TokenReply::Revoked) | None => {
            "429".into()
        }
    };
    format!("{} cannot be revoked ({why})", tokens.join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::connection::tests::connection;
    use super::super::scripted::{Reply, Scripted};
    use super::*;

    fn connection_to(host: &Scripted) -> Connection {
        let mut changed = connection();
        changed.client.auth_url.clone_from(&host.url);
        changed.client.proxy = None;
        changed
    }

    #[tokio::test]
    async fn all_tokens_are_revoked_and_failures_are_reported() {
        let revoked = Reply::Say(200, "{}".to_owned());
        let refused = Reply::Say(401, "{\"accept\": false}".to_owned());
        let host = Scripted::start(vec![revoked.clone(), refused, revoked]).await;
        let connection = connection_to(&host);
        let exchange = client(&connection).expect("an address");
        let left = all(&exchange, &connection).await;
        let requests = host.requests();
        let wanted = ["svcrt_hidden", "svc_at_hidden", "svc_at_old_hidden"];
        assert_eq!(requests.len(), wanted.len());
        for (request, token) in requests.iter().zip(wanted) {
            let form = format!("/v1/open-api/oauth/revoke token={token}&");
            assert!(request.starts_with(&form), "{request}");
        }
        let text = message(&left);
        let wanted = "access token cannot be revoked (client id or secret is refused: 401)";
        assert_eq!(text, wanted);
        assert!(!format!("{left:?}").contains("hidden"));
    }
}
