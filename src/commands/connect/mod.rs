//! `connect` gets a company's consent and stores the connection. `disconnect` revokes every known
//! token ([`callbridge_oauth::revoke`]) and removes the connection.
//!
//! | step | what remains if the process is killed after it |
//! |---|---|
//! | the redirect is received and its `state` compared | nothing |
//! | the code is exchanged | an unused pair of tokens, so connect again |
//! | the pair and the secrets that are only shown once are stored | a connection |
//! | `token/info` shows the company, and the user agrees | the connection, bound |
//! | the previous connection's tokens are revoked | only the new connection |
//!
//! If a connection is to a different company than the state's or isn't confirmed, it's undone by
//! revoking the new pair and restoring the previous connection. A connection without the required
//! grant is stored anyway, because its secrets are only shown once, and the company can add the
//! grant later.
//!
//! The connection in the state is read and changed without the daemon's help, and a running daemon
//! notices the change within a second. Without a daemon, this process holds the state's lock.

pub(crate) mod catcher;
mod verify;

use crate::commands::connect::catcher::Catcher;
use crate::commands::connect::verify::TokenOwner;
use crate::config::checked::connect::Connect;
use crate::terminal::StdinLines;
use crate::{Failure, Result, print};
use callbridge_admin::state_access::{close, status};
use callbridge_call::{EventTime, shell::quoted_path};
use callbridge_crm::{self as crm, Setup};
use callbridge_model::{Code, ExposeSecret as _, Secret, clock, plain_file, safe, status::Books};
use callbridge_oauth::connection::{Client, Connection};
use callbridge_oauth::consent::{ConsentReply, address, read_pasted};
use callbridge_oauth::exchange::{Pair, TokenReply, TokenRequest};
use callbridge_oauth::store::{self, REFRESH_WITHIN};
use callbridge_oauth::{keeper::end_of, revoke, scope, shown_once, shown_once::ShownOnce};
use callbridge_ops::log::say;
use callbridge_sender::jitter::Jitter;
use callbridge_spool::{
    self as spool, ConnectionChange, ConnectionStore, StatePlace, StoredConnection,
};
use std::{convert::Infallible, path::Path, time::Duration};
use tokio::{sync::mpsc, sync::watch, time::Instant, time::timeout_at};
use url::Url;

/// Seconds between attempts to exchange a code (§7.7: 3 to 5 attempts). The code is valid for ten
/// minutes, and each attempt may take half a minute to fail.
const TRIES: [u64; 4] = [2, 8, 20, 60];
/// Maximum random time added to each pause.
const JITTER_MAX: Duration = Duration::from_millis(500);
/// Interval between attempts to store the connection.
const STORE_AGAIN: Duration = Duration::from_secs(2);
/// Maximum number of attempts to store the connection.
const STORE_TRIES_MAX: u32 = 30;
/// Interval between checks of a refresh in progress.
const CHECK_EVERY: Duration = Duration::from_millis(250);

/// Runs `connect`, from the consent to storing the connection.
///
/// # Errors
/// Fails with 77 if the consent is declined, times out, comes from a different company, or lacks a
/// required grant, with 69 if the OAuth host can't be reached, and with 73 or 78 if the state can't
/// be used.
pub(crate) async fn run(connect: Connect) -> Result<()> {
    let client = connect.client(connect.secret.read()?);
    if let Some(file) = connect
        .secret
        .file()
        .filter(|file| plain_file::is_open_to_all(file))
    {
        say(&format!(
            "every user of this machine can read {} and act as the application with it; run: chmod \
             o-r {}",
            file.display(),
            quoted_path(file)
        ));
    }
    verify::prepare(&connect.state, &connect.setup.address).await?;
    let mut typed = StdinLines::listen();
    let code = consent(&connect, &mut typed).await?;
    let sent = clock::now().wall;
    let pair = exchange_code(&connect, &client, code).await?;
    let Some(refresh) = pair.refresh.clone() else {
        // Without a refresh token, the access token isn't stored, so it mustn't remain valid.
        let ask = TokenRequest::Revoke(pair.access);
        ask.send(&connect.auth(), &client).await;
        let message = "the OAuth host sent no refresh token, so nothing was stored: the connection \
                     would end with its first access token";
        return Err(Failure::new(Code::Configuration, message));
    };
    let given = Given {
        connect: &connect,
        client,
        pair,
        refresh,
        sent,
    };
    let (new, before) = match store_with_retries(&given).await {
        Ok(stored) => stored,
        Err(failure) => {
            let new = given.connection(None, ShownOnce::default());
            drop(revoke::all(&connect.auth(), &new).await);
            return Err(failure);
        }
    };
    let grants = match verify::find_owner(&connect, &new, &mut typed).await? {
        TokenOwner::Another(why) => return undo(&connect, &new, before, &why).await,
        TokenOwner::Ours(owner, grants) => {
            print(format!("connected: {}\n", safe(&owner)))?;
            grants
        }
        TokenOwner::Unknown(why) => {
            print(b"connected\n")?;
            say(&format!(
                "could not check which company the token belongs to: {why}; `run` checks it before \
                 it sends calls"
            ));
            None
        }
    };
    if let Some(before) = before
        && !before.is_same_pair(&new)
    {
        revoke_previous(&before).await;
    }
    let granted = scope::compare(&new.asked_scope, grants.as_deref().unwrap_or(&new.scope));
    for lack in &granted.lacks {
        say(lack);
    }
    if granted.enough {
        return Ok(());
    }
    Err(refusal(
        "the consent lacks a right that callbridge needs. The connection is stored: `run` waits, \
         and continues automatically once the company grants the right. Or run connect again",
    ))
}

impl Connect {
    /// Returns a client for the OAuth host, which uses the CRM's proxy and root certificates.
    fn auth(&self) -> crm::Client {
        crm::Client::new(Setup {
            address: self.auth.clone(),
            ..self.setup.clone()
        })
    }

    fn client(&self, secret: Secret) -> Client {
        Client {
            crm_url: self.setup.address.as_str().to_owned(),
            auth_url: self.auth.as_str().to_owned(),
            consent_url: self.consent.to_string(),
            redirect_uri: self.redirect.text.clone(),
            client_id: self.client_id.clone(),
            client_secret: secret,
            client_secret_file: self.secret.file().map(path_text),
            ca_file: self.setup.ca_file.as_deref().map(path_text),
            proxy: self.setup.proxy.as_ref().map(Url::to_string),
        }
    }
}

fn path_text(path: &Path) -> String {
    path.display().to_string()
}

/// The result of exchanging the code.
struct Given<'a> {
    connect: &'a Connect,
    client: Client,
    pair: Pair,
    refresh: Secret,
    /// When the code was sent.
    sent: EventTime,
}

impl Given<'_> {
    /// Returns the new connection. If the exchange didn't return the secrets that are only shown
    /// once (§5.6.8), the connection uses those in `shown`. It also keeps any valid token of the
    /// connection `before`, which can still read the requests made with it.
    fn connection(&self, before: Option<&Connection>, shown: ShownOnce) -> Connection {
        let client = self.client.clone();
        let pair = self.pair.clone();
        let issued_at = self.sent.floor_seconds();
        let same = before.filter(|before| {
            before.client.client_id == client.client_id && before.client.crm_url == client.crm_url
        });
        let previous = same
            .filter(|connection| connection.over.is_none() && connection.expires_at > issued_at);
        Connection {
            asked_scope: self.connect.scope.clone(),
            // If the CRM doesn't specify a scope, it granted the requested one.
            scope: pair.scope.unwrap_or_else(|| self.connect.scope.clone()),
            issued_at,
            expires_at: end_of(self.sent, pair.life),
            access_token: pair.access,
            refresh_token: self.refresh.clone(),
            previous_token: previous.map(|connection| connection.access_token.clone()),
            previous_expires_at: previous.map(|connection| connection.expires_at),
            webhook_secret: pair.webhook_secret.or(shown.webhook_secret),
            embedded_secret: pair.embedded_secret.or(shown.embedded_secret),
            company_id: self.connect.wanted.company,
            refresh_began_at: None,
            refused_at: None,
            over: None,
            others: same
                .map(|connection| connection.others.clone())
                .unwrap_or_default(),
            client,
        }
    }

    /// Stores the new connection in place of the previous one, and returns both, or `None` if
    /// another process changed the previous connection in the meantime.
    async fn store(&self) -> Result<Option<(Connection, Option<Connection>)>> {
        let state = Held::open(&self.connect.state).await?;
        let from = state.read_after_refresh().await?;
        let before = match from.as_ref().map(store::parse).transpose() {
            Err(error @ store::Error::Damaged(_)) => {
                say(&format!("{error}; it is being replaced now"));
                None
            }
            before => before?,
        };
        let shown = match &before {
            Some(before) => ShownOnce::from_connection(before, &self.client),
            None => ShownOnce::read_earlier(&state.connections, &self.client)?,
        };
        let new = self.connection(before.as_ref(), shown);
        let stored = state.change(from, Some(new.stored()));
        state.close().await;
        if stored? {
            Ok(Some((new, before)))
        } else {
            Ok(None)
        }
    }
}

/// A state whose connection is changed by this command. This process holds the state's lock, unless
/// a daemon does.
struct Held {
    connections: ConnectionStore,
    /// `None` while a daemon has the state.
    spool: Option<(spool::Handle, spool::Guard)>,
}

impl Held {
    async fn open(place: &StatePlace) -> Result<Self> {
        Ok(Self {
            connections: place.connections(),
            spool: verify::open(place).await?,
        })
    }

    /// Reads the connection. If a daemon is refreshing it, waits until the refresh ends, because it
    /// replaces the pair of tokens.
    async fn read_after_refresh(&self) -> Result<Option<StoredConnection>> {
        let until = Instant::now() + REFRESH_WITHIN;
        let mut waits = false;
        loop {
            let stored = self.connections.read()?;
            let parsed = stored.as_ref().map(store::parse);
            let under_way = matches!(
                parsed,
                Some(Ok(connection)) if connection.refresh_began_at.is_some()
            );
            if !under_way || self.spool.is_some() || Instant::now() >= until {
                return Ok(stored);
            }
            if !std::mem::replace(&mut waits, true) {
                say("waiting for the daemon to finish a refresh of the token");
            }
            tokio::time::sleep(CHECK_EVERY).await;
        }
    }

    fn change(&self, from: Option<StoredConnection>, to: Option<StoredConnection>) -> Result<bool> {
        Ok(self.connections.change(&ConnectionChange { from, to })?)
    }

    async fn close(self) {
        if let Some((spool, guard)) = self.spool {
            close(spool, guard).await;
        }
    }
}

fn refusal(message: impl Into<String>) -> Failure {
    Failure::new(Code::NoPermission, message.into())
}

/// Shows the consent page's URL, and waits for the code, either from the redirect or from a pasted
/// URL.
async fn consent(connect: &Connect, typed: &mut StdinLines) -> Result<Secret> {
    let first = uuid::Uuid::new_v4().simple();
    let second = uuid::Uuid::new_v4().simple();
    let state = Secret::from(format!("{first}{second}"));
    let redirect = &connect.redirect;
    let catcher = Catcher::listen(redirect).await?;
    let open = address(
        &connect.consent,
        &connect.client_id,
        redirect,
        &connect.scope,
        state.expose_secret(),
    );
    print(format!("open: {open}\n"))?;
    say(match &catcher {
        Some(_) => {
            "waiting for the browser's redirect; you can also paste the address that it ends at \
             here"
        }
        None => {
            "open the address in a browser, and paste the address that it ends at here, on one \
             line"
        }
    });
    let (backs, mut hears) = mpsc::channel(8);
    let (stop, stopped) = watch::channel(false);
    let serving =
        catcher.map(|catcher| tokio::spawn(catcher.serve(state.clone(), backs.clone(), stopped)));
    // After the last pasted URL, stdin has nothing more to offer.
    let pasting = async move {
        while let Some(line) = typed.line().await {
            let is_empty = line.trim().is_empty();
            if !is_empty
                && backs
                    .send(read_pasted(&line, redirect, &state))
                    .await
                    .is_err()
            {
                break;
            }
        }
        drop(backs);
        std::future::pending::<Infallible>().await
    };
    let until = Instant::now() + connect.wanted.within;
    let answer = async {
        loop {
            let back = hears.recv().await;
            let Some(ConsentReply::Wrong(why)) = &back else {
                return back;
            };
            say(&format!(
                "ignored a redirect of another consent ({why}); still waiting for the right one"
            ));
        }
    };
    let back = tokio::select! {
        back = timeout_at(until, answer) => back,
        never = pasting => match never {},
    };
    stop.send_replace(true);
    if let Some(serving) = serving {
        // Complete the response with the page for the browser.
        drop(serving.await);
    }
    Err(refusal(match back {
        Ok(Some(ConsentReply::Code(code))) => return Ok(code),
        Ok(Some(ConsentReply::Declined)) => "declined: the company did not give its consent".into(),
        Ok(Some(ConsentReply::Failed(reason))) => format!(
            "the consent page refused the request ({reason}): check that --client-id, \
             --redirect-uri and --scope are as registered"
        ),
        Ok(Some(ConsentReply::Wrong(_)) | None) => "no consent arrived: stdin has ended".into(),
        Err(_) => {
            let seconds = connect.wanted.within.as_secs();
            format!("no consent arrived within {seconds} s; run connect again")
        }
    }))
}

/// Exchanges the code for the first pair. Only the first successful exchange uses up a code
/// (§5.6.3), so if the outcome isn't known, the code is sent a few more times.
async fn exchange_code(connect: &Connect, client: &Client, code: Secret) -> Result<Pair> {
    let host = connect.auth();
    let ask = TokenRequest::Code(code);
    let mut jitter = Jitter::new(u64::from(std::process::id()));
    let mut tries = TRIES.iter();
    loop {
        let message = match ask.send(&host, client).await {
            TokenReply::Pair(pair) => return Ok(*pair),
            TokenReply::Refused(why) => {
                return Err(refusal(format!(
                    "the code was refused ({why}): a code is valid for 10 minutes and only once; \
                     run connect again, with the registered --redirect-uri"
                )));
            }
            TokenReply::WrongClient(why) => {
                return Err(refusal(format!(
                    "the CRM does not know the application ({why}): check --client-id and \
                     --client-secret-file"
                )));
            }
            TokenReply::WrongAddress(why) => {
                let message = format!("no OAuth endpoint answers at --auth-url ({why})");
                return Err(Failure::new(Code::Configuration, message));
            }
            TokenReply::Unsure(why) | TokenReply::NotSent(why) => why,
            TokenReply::TooMany | TokenReply::Revoked => "429: too many requests".to_owned(),
        };
        let message = format!("the code could not be exchanged ({message})");
        let Some(seconds) = tries.next() else {
            let message = format!("{message}; run connect again");
            return Err(Failure::new(Code::Unreachable, message));
        };
        say(&format!("{message}; trying again in {seconds} s"));
        let wait = Duration::from_secs(*seconds) + jitter.up_to(JITTER_MAX);
        tokio::time::sleep(wait).await;
    }
}

/// Stores the connection, retrying on disk errors, because some secrets are only shown once.
async fn store_with_retries(given: &Given<'_>) -> Result<(Connection, Option<Connection>)> {
    let mut tries = 1..STORE_TRIES_MAX;
    loop {
        match given.store().await {
            Ok(Some(stored)) => return Ok(stored),
            // A daemon has refreshed the previous connection, so it's the new pair that must be
            // replaced.
            Ok(None) => {}
            Err(error) if tries.next().is_none() => return Err(error),
            Err(error) => {
                say(&format!(
                    "{error}; trying again. If the disk is full, free some space"
                ));
                tokio::time::sleep(STORE_AGAIN).await;
            }
        }
    }
}

/// Undoes a connection to a different company by restoring the connection `before` and revoking the
/// new pair. Always returns an error, with the reason `why`.
async fn undo(
    connect: &Connect,
    new: &Connection,
    before: Option<Connection>,
    why: &str,
) -> Result<()> {
    let state = Held::open(&connect.state).await?;
    let mut stored = loop {
        // Read the connection again, because a daemon may have refreshed it.
        let from = state.read_after_refresh().await?;
        let stored = from.as_ref().map(store::parse).transpose()?;
        if state.change(from, before.as_ref().map(Connection::stored))? {
            break stored.unwrap_or_else(|| new.clone());
        }
    };
    state.close().await;
    // The previous token belongs to the restored connection, so it must remain valid.
    let theirs = before
        .as_ref()
        .map(|connection| connection.access_token.expose_secret());
    let previous = &mut stored.previous_token;
    previous.take_if(|token| Some(token.expose_secret()) == theirs);
    let left = revoke::all(&connect.auth(), &stored).await;
    let end = match &left[..] {
        [] => "and the new tokens were revoked".to_owned(),
        left => format!(
            "but the new {}: disconnect the application in the CRM (Connected apps)",
            revoke::message(left)
        ),
    };
    Err(refusal(format!(
        "{why}: not connected, {end}. To connect another company, give another --state"
    )))
}

/// Revokes the previous connection's tokens, because no process uses them anymore.
async fn revoke_previous(before: &Connection) {
    let left = match revoke::client(before) {
        Ok(host) => revoke::all(&host, before).await,
        Err(why) => vec![revoke::Unrevoked {
            token: "refresh token",
            came: TokenReply::WrongAddress(why),
        }],
    };
    let message = match &left[..] {
        [] => "the tokens of the previous connection are revoked".to_owned(),
        left => format!(
            "of the previous connection, the {}: an access token expires within an hour, a refresh \
             token after 30 days. To end them at once, disconnect the application in the CRM \
             (Connected apps) and connect it again",
            revoke::message(left)
        ),
    };
    say(&message);
}

/// Runs `disconnect`, which revokes each known token and then removes the connection. With
/// `forget`, the connection is removed even if a token can't be revoked.
///
/// # Errors
/// Fails with 66 without a connection, with 69 if it currently can't be revoked (in which case it's
/// kept), with 77 if the client's secret is no longer known, and with 78 for a damaged file.
pub(crate) async fn disconnect(place: &StatePlace, forget: bool) -> Result<()> {
    if place.connections().read()?.is_none() {
        return Err(no_connection(place));
    }
    let state = Held::open(place).await?;
    let disconnected = remove(&state, place, forget).await;
    let books = match &state.spool {
        Some((spool, _)) => spool.read(|store| Ok(store.books())).await.ok(),
        None => {
            let status = status(place.socket_folder()).await.ok().flatten();
            status.map(|status| status.books)
        }
    };
    state.close().await;
    print(disconnected?)?;
    print(
        books
            .as_ref()
            .map_or_else(String::new, waiting_calls_message),
    )
}

fn no_connection(place: &StatePlace) -> Failure {
    let message = format!("there is no connection in {place}");
    Failure::new(Code::NoInput, message)
}

/// Revokes each known token and removes the connection, returning a message about the result. With
/// `forget`, the connection is removed even if a token can't be revoked.
async fn remove(state: &Held, place: &StatePlace, forget: bool) -> Result<String> {
    loop {
        // If a refresh is in progress, wait for it, because its new pair has to be revoked.
        let from = state.read_after_refresh().await?;
        let stored = store::parse(from.as_ref().ok_or_else(|| no_connection(place))?)?;
        let host = revoke::client(&stored)
            .map_err(|message| Failure::new(Code::Configuration, message))?;
        let left = revoke::all(&host, &stored).await;
        let end = match left.first() {
            None => "its tokens are revoked".to_owned(),
            Some(_) if forget => format!("but its {}", revoke::message(&left)),
            Some(first) => {
                let message = format!(
                    "its {}; the connection stays: try again, or disconnect the application in \
                     the CRM (Connected apps), which ends all of its tokens, and run `callbridge \
                     disconnect --forget`",
                    revoke::message(&left)
                );
                return Err(Failure::new(code(&first.came), message));
            }
        };
        shown_once::keep(&state.connections, &stored)?;
        if state.change(from, None)? {
            let client = &stored.client.client_id;
            return Ok(format!("disconnected: client {client}, {end}\n"));
        }
    }
}

/// Returns the exit status for the response about a token that couldn't be revoked.
const fn code(came: &TokenReply) -> Code {
    match came {
        TokenReply::WrongClient(_) => Code::NoPermission,
        TokenReply::Refused(_) | TokenReply::WrongAddress(_) => Code::Configuration,
        TokenReply::Unsure(_)
        | TokenReply::NotSent(_)
        | TokenReply::TooMany
        | TokenReply::Pair(_)
        | TokenReply::Revoked => Code::Unreachable,
    }
}

/// Returns the message about the calls waiting for another connection.
fn waiting_calls_message(books: &Books) -> String {
    let queued = books.ready + books.sending + books.submitted;
    format!(
        "calls queued or unconfirmed: {queued}, waiting: {}, dead letters: {}; all are kept until \
         you connect again\n",
        books.waiting, books.dead
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_calls_are_reported_as_counts() {
        let books = Books {
            ready: 2,
            submitted: 1,
            waiting: 4,
            dead: 5,
            ..Books::default()
        };
        let message = "calls queued or unconfirmed: 3, waiting: 4, dead letters: 5; ";
        assert!(
            waiting_calls_message(&books).starts_with(message),
            "{}",
            waiting_calls_message(&books)
        );
    }
}
