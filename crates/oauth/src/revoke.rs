//! Revokes every token of a stored connection: the refresh token with the access tokens issued from
//! it (§5.6.7), and each access token. An access token from an earlier refresh token is not revoked
//! with the current refresh token.

use super::connection::Connection;
use super::exchange::{TokenReply, TokenRequest, name_auth_flag};
use callbridge_crm::{Address, Client, Setup};
use std::path::PathBuf;
use std::time::Duration;
use url::Url;

/// Most tries to revoke a token. Revoking twice does no harm.
const TRIES_MAX: u32 = 3;
/// Wait between two tries to revoke.
const AGAIN: Duration = Duration::from_secs(2);

/// A token that could not be revoked.
#[derive(Clone, Debug)]
pub struct Unrevoked {
    /// Kind of the token: `refresh token`, `access token`, `access token before it`.
    pub token: &'static str,
    /// The last reply, which was not `Revoked`.
    pub came: TokenReply,
}

/// Creates a client for the OAuth endpoints of a stored connection.
///
/// # Errors
/// A message, if the address is not valid.
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

/// Revokes all tokens of a connection. Returns the tokens that could not be revoked.
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
        // After one token failed this often, one try is enough for each of the others.
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

/// Returns a message that lists the tokens in `left`, with the reason why the first of them could
/// not be revoked.
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
