//! Keeps the stored connection alive beside the sender: the shell around [`super::refresh`].
//!
//! A refresh changes the pair at the service before we know the new one. What a kill can lose is
//! made as small as can be: the lock and the disk are tried first, the new pair is written the
//! moment its answer is read, and nothing is told to the sender before it is durable.

use super::connection::Connection;
use super::exchange::{Pair, TokenReply, TokenRequest, own};
use super::refresh::{Facts, RefreshOutcome, Refresher};
use super::store::{self, Lock};
use callbridge_call::{EpochSeconds, EventTime};
use callbridge_crm::{Address, Client, Setup};
use callbridge_model::status::{Pause, Requests};
use callbridge_model::{FileVersion, Now, clock};
use callbridge_sender::status::SenderStatus;
use callbridge_sender::token_update::{
    CLIENT_REFUSED, RECONNECT, TokenPrints, TokenUpdate, Tokens, print,
};
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::watch;
use tracing::{error, info, warn};

/// Longest wait between two checks of the file for a new version.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// Wait before a new pair is stored again after a disk error.
const STORE_AGAIN: Duration = Duration::from_millis(500);
/// Fix for a refused token whose connection works.
const REFUSED: &str = "the CRM refuses the access token: it is refreshed by itself, once a minute \
                       at most; if that does not help, see whether the company is blocked";

/// Keeper of a stored connection: its settings, and its channels to the sender and `status`.
#[derive(Debug)]
pub struct Keeper {
    /// The state folder, which holds `connection.json`.
    pub dir: PathBuf,
    /// Address, certificates and proxy of the CRM. The latter two also apply to the OAuth
    /// endpoints.
    pub setup: Setup,
    /// `--auth-url`, which replaces the stored one.
    pub auth: Option<Address>,
    /// `--rebind`: use a connection of another CRM address.
    pub rebind: bool,
    /// Sends each new token, or the reason for having none, to the sender.
    pub updates: watch::Sender<TokenUpdate>,
    /// Requests to the OAuth endpoints so far, by endpoint and outcome.
    pub requests: watch::Sender<Requests>,
}

/// Content of the last update, without secrets. An equal one is not sent.
type Shown = (Option<TokenPrints>, Option<Pause>);

struct Work {
    keeper: Keeper,
    core: Refresher,
    connection: Option<Connection>,
    version: Option<FileVersion>,
    /// Why the file cannot be used. `None` if it was read or is missing.
    unread: Option<String>,
    /// Why the last refresh returned no pair.
    failure: Option<String>,
    shown: Option<Shown>,
}

impl Keeper {
    /// Runs until `shutdown`. A refresh in flight is finished.
    pub async fn run(
        self,
        mut sender: watch::Receiver<SenderStatus>,
        shutdown: impl Future<Output = ()>,
    ) {
        let mut work = Work {
            keeper: self,
            core: Refresher::default(),
            connection: None,
            version: None,
            unread: None,
            failure: None,
            shown: None,
        };
        if store::is_unfinished(&work.keeper.dir) {
            // taking the lock finishes an interrupted write
            if let Err(error) = Lock::take(&work.keeper.dir).await {
                warn!(%error, "a pair that was being stored is not in its place");
            }
        }
        work.read(clock::now());
        tokio::pin!(shutdown);
        loop {
            if store::version(&work.keeper.dir) != work.version {
                work.read(clock::now());
            }
            work.publish(clock::now());
            let wait = work.core.wait(clock::now(), CHECK_EVERY);
            tokio::select! {
                biased;
                () = &mut shutdown => return,
                changed = sender.changed() => match changed {
                    Ok(()) => work.on_sender_status(&sender.borrow_and_update().clone()),
                    Err(_) => return,
                },
                () = tokio::time::sleep(wait) => {
                    if work.core.is_due(clock::now()) {
                        work.refresh().await;
                    }
                }
            }
        }
    }
}

impl Work {
    fn on_sender_status(&mut self, status: &SenderStatus) {
        if let (Some(token), Some(taken)) = (&status.token_print, status.token_taken)
            && self.core.on_token_used(token, taken)
        {
            info!("the CRM takes the token again: the company is no longer blocked");
            self.failure = None;
        }
    }

    fn read(&mut self, now: Now) {
        self.version = store::version(&self.keeper.dir);
        let read = store::read(&self.keeper.dir).map_err(|error| error.to_string());
        match read.and_then(|found| self.fits(found)) {
            Ok(Some(connection)) => {
                self.unread = None;
                let before = self.connection.as_ref();
                if !before.is_some_and(|before| before.is_same_pair(&connection)) {
                    self.core.adopt(now, &facts(&connection));
                    self.failure = None;
                }
                self.connection = Some(connection);
            }
            Ok(None) => {
                if self.connection.take().is_some() {
                    info!("disconnected: the connection was taken away");
                }
                self.unread = None;
                self.core.gone();
            }
            // the previous connection stays in use
            Err(why) => {
                error!(error = %why, "the connection cannot be read");
                self.unread = Some(why);
            }
        }
    }

    /// Refuses the connection of another CRM, because its token must not be sent to ours.
    fn fits(&self, found: Option<Connection>) -> Result<Option<Connection>, String> {
        let ours = self.keeper.setup.address.as_str();
        let bound = found.as_ref().map(|it| &it.client.crm_url);
        match bound.filter(|it| it.trim_end_matches('/') != ours && !self.keeper.rebind) {
            Some(bound) => Err(format!(
                "the connection is of {bound}, and --crm-url is {ours}: run `callbridge connect` \
                 for it, or give --rebind if the CRM has moved"
            )),
            None => Ok(found),
        }
    }

    fn publish(&mut self, now: Now) {
        let usable = self.core.is_usable(now);
        let connection = self.connection.as_ref().filter(|_| usable);
        let tokens = connection.map(|it| it.tokens(now.wall.floor_seconds()));
        let trouble = self.trouble();
        let prints = tokens.as_ref().map(Tokens::prints);
        let shown = Some((prints, trouble.clone()));
        if self.shown == shown {
            return;
        }
        let is_shown = self.shown.as_ref().is_some_and(|it| it.1 == trouble);
        if let Some(trouble) = trouble.as_ref().filter(|_| !is_shown) {
            warn!(reason = trouble.reason, fix = %trouble.fix, "no new token can be had");
        }
        self.shown = shown;
        self.keeper.updates.send_replace(TokenUpdate {
            tokens,
            trouble,
            fix: REFUSED.to_owned(),
        });
    }

    fn trouble(&self) -> Option<Pause> {
        let trouble = |reason, fix| Some(Pause::new(reason, fix));
        let Some(connection) = &self.connection else {
            let dir = self.keeper.dir.display();
            let nothing = format!("there is no connection in {dir}: run `callbridge connect`");
            return trouble("token_missing", self.unread.clone().unwrap_or(nothing));
        };
        let failed = self.failure.clone();
        if self.core.is_over() {
            let why = connection.over.clone().or(failed).unwrap_or_default();
            let command = connection.command(&self.keeper.dir);
            return trouble(RECONNECT, format!("{why}; run: {command}"));
        }
        if self.core.is_client_refused() {
            let why = failed.unwrap_or_default();
            return trouble(CLIENT_REFUSED, format!("{why}; it is tried once an hour"));
        }
        let why = failed.or(self.unread.clone())?;
        trouble("unreachable", format!("{why}; it is tried again by itself"))
    }

    /// One refresh, from the lock to the stored pair.
    async fn refresh(&mut self) {
        let asked = self.core.begin(clock::now());
        let ended = self.rotate(asked).await.unwrap_or_else(|why| {
            self.failure = Some(why);
            RefreshOutcome::NotSent
        });
        if matches!(ended, RefreshOutcome::Rotated(_)) {
            self.failure = None;
        }
        let now = clock::now();
        self.core.ended(now, ended);
        self.publish(now);
    }

    /// Sends one refresh, stores the result, and returns its meaning. `Err` says why nothing was
    /// sent.
    async fn rotate(&mut self, asked: bool) -> Result<RefreshOutcome, String> {
        let connection = self.connection.clone().ok_or("there is no connection")?;
        let said = |error: store::Error| error.to_string();
        let host = self.host(&connection)?;
        let lock = Lock::take(&self.keeper.dir).await.map_err(said)?;
        let stored = store::read(&self.keeper.dir).map_err(said)?;
        let Some(mut stored) = stored.filter(|it| it.is_same_pair(&connection)) else {
            self.version = None;
            return Err("the connection was changed at the same time".to_owned());
        };
        let sent = clock::now().wall;
        let before = stored.refresh_began_at;
        stored.refresh_began_at = Some(sent.floor_seconds());
        if asked {
            stored.refused_at = stored.refresh_began_at;
        }
        // a disk that cannot store this cannot store the new pair either
        self.store(&lock, &stored).await.map_err(said)?;
        let ask = TokenRequest::Refresh(stored.refresh_token.clone());
        let came = ask.send(&host, &stored.client).await;
        let key = (format!("oauth_{}", ask.endpoint()), came.word().to_owned());
        (self.keeper.requests).send_modify(|requests| *requests.entry(key).or_insert(0) += 1);
        if let TokenReply::NotSent(_) | TokenReply::TooMany | TokenReply::WrongAddress(_) = came {
            // as it was: an earlier one may still have happened
            stored.refresh_began_at = before;
        }
        let not_done = |words: &str| (RefreshOutcome::NotDone, words.to_owned());
        let (ended, words) = match came {
            TokenReply::Pair(pair) => {
                let next = renewed(&stored, *pair, sent, self.core.is_refused());
                self.insist(&lock, &next).await;
                let expires_at = next.expires_at.get();
                info!(expires_at, "the token was refreshed");
                return Ok(RefreshOutcome::Rotated(facts(self.connection.insert(next))));
            }
            TokenReply::Refused(why) => {
                let mut words = format!(
                    "the refresh token is refused ({why}): the company has disconnected the \
                     application, or it lay unused for 30 days"
                );
                if before.is_some() {
                    words += ", or the answer to an earlier refresh was lost";
                }
                stored.over = Some(words.clone());
                stored.refresh_began_at = None;
                (RefreshOutcome::Refused, words)
            }
            TokenReply::WrongClient(why) => {
                stored.refresh_began_at = None;
                // §3.1: all requests of a blocked company are answered so, too
                let id = &stored.client.client_id;
                let words = format!(
                    "the CRM refuses to refresh the token ({why}): the company is blocked (its \
                     license has ended), or client id {id} or its secret are wrong. Have the \
                     company unblocked in the CRM, or get the right secret from the application's \
                     management and run `callbridge connect`"
                );
                (RefreshOutcome::WrongClient, words)
            }
            TokenReply::Unsure(why) => {
                // it may have happened, and the stored connection says so
                self.failure = Some(format!("a refresh of the token was not answered ({why})"));
                return Ok(RefreshOutcome::Unsure);
            }
            TokenReply::NotSent(why) => (
                RefreshOutcome::NotSent,
                format!("the token cannot be refreshed: {why}"),
            ),
            TokenReply::TooMany => not_done("too many refreshes (429)"),
            TokenReply::WrongAddress(why) => not_done(&format!(
                "no OAuth endpoint answers at --auth-url ({why}): correct the address"
            )),
            TokenReply::Revoked => not_done("an answer to something else"),
        };
        if let Err(error) = self.store(&lock, &stored).await {
            warn!(%error, "the connection's state is not stored");
        }
        if stored.over.is_some() {
            self.connection = Some(stored);
        }
        self.failure = Some(words);
        Ok(ended)
    }

    fn host(&self, connection: &Connection) -> Result<Client, String> {
        let address = match &self.keeper.auth {
            Some(address) => address.clone(),
            None => Address::parse(&connection.client.auth_url)
                .map_err(|error| own(&error.to_string()))?,
        };
        Ok(Client::new(Setup {
            address,
            ..self.keeper.setup.clone()
        }))
    }

    async fn store(&mut self, lock: &Lock, connection: &Connection) -> Result<(), store::Error> {
        let stored = lock.write(connection).await;
        self.version = store::version(&self.keeper.dir);
        stored
    }

    /// Stores a new pair, however long the disk takes, because the old one is no longer valid.
    async fn insist(&mut self, lock: &Lock, connection: &Connection) {
        let mut logged = false;
        while let Err(error) = self.store(lock, connection).await {
            if !std::mem::replace(&mut logged, true) {
                error!(%error, "the new pair is not stored yet; it is not used before it is");
            }
            self.failure = Some(format!("the new token cannot be stored: {error}"));
            self.publish(clock::now());
            tokio::time::sleep(STORE_AGAIN).await;
        }
    }
}

/// Facts of a stored connection that decide on its next refresh.
pub fn facts(connection: &Connection) -> Facts {
    Facts {
        access: print(&connection.access_token),
        issued_at: connection.issued_at,
        expires_at: connection.expires_at,
        began: connection.refresh_began_at.is_some(),
        refused_at: connection.refused_at,
        over: connection.over.is_some(),
    }
}

/// The connection with its new pair. The previous access token works until its expiry, unless it
/// was refused.
fn renewed(before: &Connection, pair: Pair, sent: EventTime, refused: bool) -> Connection {
    let issued_at = sent.floor_seconds();
    let previous = if refused {
        before.previous()
    } else {
        Some((before.access_token.clone(), before.expires_at))
    };
    let previous = previous.filter(|(_, end)| *end > issued_at);
    let (previous_token, previous_expires_at) = previous.unzip();
    Connection {
        scope: pair.scope.unwrap_or_else(|| before.scope.clone()),
        access_token: pair.access,
        issued_at,
        expires_at: end_of(sent, pair.life),
        refresh_token: pair.refresh.unwrap_or_else(|| before.refresh_token.clone()),
        previous_token,
        previous_expires_at,
        refresh_began_at: None,
        over: None,
        ..before.clone()
    }
}

/// Expiry of a token with this lifetime, counted from the time of its request: rather too early
/// than too late.
pub fn end_of(asked: EventTime, life: Duration) -> EpochSeconds {
    asked.plus(life).floor_seconds()
}

#[cfg(test)]
#[path = "keeper_tests.rs"]
mod tests;
