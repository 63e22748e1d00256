//! Keeps the stored connection alive while the sender is running, by carrying out the refreshes
//! that [`super::refresh`] decides on.
//!
//! A refresh replaces the pair of tokens at the CRM before we receive the new pair. That's why a
//! refresh is noted in the state before it starts, which also shows that the state can be written.
//! The new pair is stored as soon as the CRM's response has been read, and only then does the
//! sender get the new token.
//!
//! Only the process that holds the state's lock can note a refresh. If a process loses the lock
//! during a refresh, it still stores the pair that it receives (`ConnectionStore`), and a process
//! that takes over the state waits until that has happened.

use super::connection::Connection;
use super::exchange::{Pair, TokenReply, TokenRequest, name_auth_flag};
use super::pair_file::{self, PairFile, STORE_AGAIN};
use super::refresh::{Facts, RefreshOutcome, Refresher};
use super::{revoke, store};
use callbridge_call::{EpochSeconds, EventTime};
use callbridge_crm::{Address, Client, Setup};
use callbridge_model::status::{Pause, Requests};
use callbridge_model::{Now, clock};
use callbridge_sender::status::SenderStatus;
use callbridge_sender::token_update::{
    CLIENT_REFUSED, RECONNECT, TokenPrints, TokenUpdate, Tokens, print,
};
use callbridge_spool::{
    ConnectionChange, Done, Error, Handle, Op, Silence, SilenceReason, StatePlace,
    StoredConnection, tables,
};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tracing::{error, info, warn};

/// Interval between reads of the stored connection.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// The fix to show if the CRM rejects the access token of a connection that still works.
const REFUSED: &str = "the CRM refuses the access token: it is refreshed automatically, at most \
                       once a minute; if that does not help, check whether the company is blocked";

/// Keeps a stored connection alive. Contains its settings, and its channels to the sender and
/// `status`.
#[derive(Debug)]
pub struct Keeper {
    /// The state that contains the connection.
    pub state: Handle,
    /// Where the state is, so that a new pair can be stored even if this process has lost the
    /// state's lock.
    pub place: StatePlace,
    /// The CRM's URL, certificates, and proxy. The certificates and the proxy also apply to the
    /// OAuth endpoints.
    pub setup: Setup,
    /// `--auth-url`, which replaces the stored URL of the OAuth endpoints.
    pub auth: Option<Address>,
    /// `--rebind`, which allows the use of a connection that was made to a different CRM URL.
    pub rebind: bool,
    /// Sends each new token, or why there is none, to the sender.
    pub updates: watch::Sender<TokenUpdate>,
    /// Number of requests to the OAuth endpoints so far, by endpoint and outcome.
    pub requests: watch::Sender<Requests>,
}

/// What the last update for the sender contained, without secrets. The same update isn't sent
/// twice.
type Shown = (Option<TokenPrints>, Option<Pause>);

struct Work {
    keeper: Keeper,
    core: Refresher,
    connection: Option<Connection>,
    /// The connection as it was last read. `None` means that the next read counts as a change.
    seen: Option<Option<StoredConnection>>,
    /// Why the connection can't be used, or `None` if it was read or if there is none.
    unread: Option<String>,
    /// Why the last refresh didn't return a pair, or `None` if it succeeded.
    failure: Option<String>,
    shown: Option<Shown>,
}

impl Keeper {
    /// Reads the connection, refreshes its tokens, and updates the sender until `shutdown`. A
    /// refresh that has already started is completed first.
    pub async fn run(
        self,
        mut sender: watch::Receiver<SenderStatus>,
        shutdown: impl Future<Output = ()>,
    ) {
        let mut work = Work {
            keeper: self,
            core: Refresher::default(),
            connection: None,
            seen: None,
            unread: None,
            failure: None,
            shown: None,
        };
        work.read().await;
        work.await_other().await;
        let mut reads = tokio::time::interval(CHECK_EVERY);
        reads.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tokio::pin!(shutdown);
        loop {
            work.publish(clock::now());
            let wait = work.core.wait(clock::now(), CHECK_EVERY);
            tokio::select! {
                biased;
                () = &mut shutdown => return,
                changed = sender.changed() => match changed {
                    Ok(()) => work.on_sender_status(&sender.borrow_and_update().clone()),
                    Err(_) => return,
                },
                _ = reads.tick() => work.read().await,
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
            info!("the CRM accepts the token again: the company is no longer blocked");
            self.failure = None;
        }
    }

    /// Delays refreshes if another process led the state before and noted a refresh in it, because
    /// that process may still store the new pair.
    async fn await_other(&mut self) {
        let state = &self.keeper.state;
        let silence = state.read(|store| Ok(store.silence().cloned())).await;
        if let Ok(Some(Silence {
            why: SilenceReason::TakenOver(name),
            ..
        })) = silence
            && self.core.await_other(clock::now())
        {
            let seconds = store::REFRESH_WITHIN.as_secs();
            info!(%name, seconds, "waiting for the tokens of a refresh that another process began");
            self.failure = Some(format!(
                "{name} began to refresh the token before it stopped"
            ));
        }
    }

    async fn read(&mut self) {
        let state = &self.keeper.state;
        let read = state
            .read(|store| tables::connection::connection(store))
            .await;
        let found = match read {
            Ok(found) if self.seen.as_ref() == Some(&found) => return,
            Ok(found) => found,
            Err(error) => return self.report_unreadable(error.to_string()),
        };
        let parsed = found
            .as_ref()
            .map(store::parse)
            .transpose()
            .map_err(|error| error.to_string());
        match parsed.and_then(|connection| self.refuse_other_crm(connection)) {
            Ok(Some(connection)) => {
                self.unread = None;
                let before = self.connection.as_ref();
                if !before.is_some_and(|before| before.is_same_pair(&connection)) {
                    self.core.adopt(clock::now(), &facts(&connection));
                    self.failure = None;
                }
                self.connection = Some(connection);
            }
            Ok(None) => {
                if self.connection.take().is_some() {
                    info!("disconnected: the connection was removed");
                }
                self.unread = None;
                self.core.clear();
            }
            Err(why) => self.report_unreadable(why),
        }
        self.seen = Some(found);
    }

    /// Records why the stored connection can't be read. The previous connection stays in use.
    fn report_unreadable(&mut self, why: String) {
        self.seen = None;
        if self.unread.as_ref() != Some(&why) {
            error!(error = %why, "the connection cannot be read");
        }
        self.unread = Some(why);
    }

    /// Returns an error if the connection belongs to a different CRM and `--rebind` isn't given,
    /// because its token mustn't be sent to our CRM.
    fn refuse_other_crm(&self, found: Option<Connection>) -> Result<Option<Connection>, String> {
        let Some(connection) = &found else {
            return Ok(None);
        };
        let ours = self.keeper.setup.address.as_str();
        let bound = &connection.client.crm_url;
        if bound.trim_end_matches('/') != ours && !self.keeper.rebind {
            return Err(format!(
                "the connection belongs to {bound}, but --crm-url is {ours}: run `callbridge \
                 connect` for it, or give --rebind if the CRM has moved"
            ));
        }
        Ok(found)
    }

    fn publish(&mut self, now: Now) {
        let connection = if self.core.is_usable(now) {
            self.connection.as_ref()
        } else {
            None
        };
        let tokens = connection.map(|connection| connection.tokens(now.wall.floor_seconds()));
        let trouble = self.pause();
        let prints = tokens.as_ref().map(Tokens::prints);
        let shown = Some((prints, trouble.clone()));
        if self.shown == shown {
            return;
        }
        let is_shown = self
            .shown
            .as_ref()
            .is_some_and(|(_, shown)| *shown == trouble);
        if let Some(trouble) = &trouble
            && !is_shown
        {
            warn!(reason = trouble.reason, fix = %trouble.fix, "cannot get a new token");
        }
        self.shown = shown;
        self.keeper.updates.send_replace(TokenUpdate {
            tokens,
            trouble,
            fix: REFUSED.to_owned(),
        });
    }

    fn pause(&self) -> Option<Pause> {
        let Some(connection) = &self.connection else {
            let place = &self.keeper.place;
            let nothing = format!("there is no connection in {place}: run `callbridge connect`");
            let fix = self.unread.clone().unwrap_or(nothing);
            return Some(Pause::new("token_missing", fix));
        };
        let failed = self.failure.clone();
        if self.core.is_over() {
            let why = connection.over.clone().or(failed).unwrap_or_default();
            let command = connection.command(&self.keeper.place.flag());
            return Some(Pause::new(RECONNECT, format!("{why}; run: {command}")));
        }
        if self.core.is_client_refused() {
            let why = failed.unwrap_or_default();
            let fix = format!("{why}; callbridge tries again once an hour");
            return Some(Pause::new(CLIENT_REFUSED, fix));
        }
        let why = failed.or(self.unread.clone())?;
        let fix = format!("{why}; callbridge tries again automatically");
        Some(Pause::new("unreachable", fix))
    }

    /// Performs one refresh, from noting it in the state to storing the pair, and updates the
    /// sender.
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

    /// Sends one refresh, stores the result, and returns what it means, or an error that says why
    /// no new pair is in use. `asked` is `true` if the refresh was caused by a 401.
    async fn rotate(&mut self, asked: bool) -> Result<RefreshOutcome, String> {
        let connection = self.connection.clone().ok_or("there is no connection")?;
        let host = self.host(&connection)?;
        let stored = store::read(&self.keeper.state)
            .await
            .map_err(|error| error.to_string())?;
        let Some(mut stored) = stored.filter(|stored| stored.is_same_pair(&connection)) else {
            return Err(self.lost_race());
        };
        let sent = clock::now().wall;
        let before = stored.refresh_began_at;
        stored.refresh_began_at = Some(sent.floor_seconds());
        if asked {
            stored.refused_at = stored.refresh_began_at;
        }
        // If this note can't be stored in the state, neither could the new pair.
        match self.note(&stored).await {
            Ok(true) => {}
            Ok(false) => return Err(self.lost_race()),
            Err(error) => return Err(error.to_string()),
        }
        let ask = TokenRequest::Refresh(stored.refresh_token.clone());
        let came = ask.send(&host, &stored.client).await;
        let key = (format!("oauth_{}", ask.endpoint()), came.word().to_owned());
        (self.keeper.requests).send_modify(|requests| *requests.entry(key).or_insert(0) += 1);
        if let TokenReply::NotSent(_) | TokenReply::TooMany | TokenReply::WrongAddress(_) = came {
            // Nothing was done, so the previous note is restored, since an earlier refresh may
            // still have happened.
            stored.refresh_began_at = before;
        }
        let (ended, message) = match came {
            TokenReply::Pair(pair) => {
                let next = renew(&stored, *pair, sent, self.core.is_refused());
                if !self.insist(&stored, &next).await {
                    self.drop_pair(&host, next).await;
                    return Err(self.lost_race());
                }
                let expires_at = next.expires_at.get();
                info!(expires_at, "the token was refreshed");
                return Ok(RefreshOutcome::Rotated(facts(self.connection.insert(next))));
            }
            TokenReply::Refused(why) => {
                let mut message = format!(
                    "the refresh token is refused ({why}): the company has disconnected the \
                     application, or the token was not used for 30 days"
                );
                if before.is_some() {
                    message += ", or the answer to an earlier refresh was lost";
                }
                stored.over = Some(message.clone());
                stored.refresh_began_at = None;
                (RefreshOutcome::Refused, message)
            }
            TokenReply::WrongClient(why) => {
                stored.refresh_began_at = None;
                // All requests for a blocked company get the same response (§3.1).
                let id = &stored.client.client_id;
                let message = format!(
                    "the CRM refuses to refresh the token ({why}): the company is blocked (its \
                     license has ended), or client id {id} or its secret is wrong. Have the \
                     company unblocked in the CRM, or get the right secret from the application's \
                     management and run `callbridge connect`"
                );
                (RefreshOutcome::WrongClient, message)
            }
            TokenReply::Unsure(why) => {
                // The refresh may have happened, as the note in the stored connection already
                // shows.
                self.failure = Some(format!("a refresh of the token was not answered ({why})"));
                return Ok(RefreshOutcome::Unsure);
            }
            TokenReply::NotSent(why) => (
                RefreshOutcome::NotSent,
                format!("the token cannot be refreshed: {why}"),
            ),
            TokenReply::TooMany => (
                RefreshOutcome::NotDone,
                "too many refreshes (429)".to_owned(),
            ),
            TokenReply::WrongAddress(why) => (
                RefreshOutcome::NotDone,
                format!("no OAuth endpoint answers at --auth-url ({why}): correct the address"),
            ),
            TokenReply::Revoked => (
                RefreshOutcome::NotDone,
                "an answer to another request".to_owned(),
            ),
        };
        if let Err(error) = self.note(&stored).await {
            warn!(%error, "cannot store the end of a refresh");
        }
        if stored.over.is_some() {
            self.connection = Some(stored);
        }
        self.failure = Some(message);
        Ok(ended)
    }

    fn host(&self, connection: &Connection) -> Result<Client, String> {
        let address = match &self.keeper.auth {
            Some(address) => address.clone(),
            None => Address::parse(&connection.client.auth_url)
                .map_err(|error| name_auth_flag(&error.to_string()))?,
        };
        Ok(Client::new(Setup {
            address,
            ..self.keeper.setup.clone()
        }))
    }

    /// Stores a note about the start or end of a refresh, which leaves the pair unchanged. Returns
    /// `false` if the state has a different connection.
    async fn note(&mut self, connection: &Connection) -> Result<bool, Error> {
        let stored = connection.stored();
        let change = ConnectionChange {
            from: Some(stored.clone()),
            to: Some(stored),
        };
        let op = Op::Connection(Box::new(change));
        let done = self.keeper.state.write(vec![op]).await?;
        Ok(done == [Done::Connection(true)])
    }

    /// Stores a new pair, retrying until the disk works, because the old pair is no longer valid.
    /// Until the pair is in the database, it's kept in a file, so that it isn't lost even if the
    /// process is killed. Returns `false` if another connection was stored in the meantime.
    async fn insist(&mut self, from: &Connection, to: &Connection) -> bool {
        let (from, to) = (from.stored(), to.stored());
        let file = PairFile::of(&self.keeper.place);
        if let Some(file) = &file
            && let Err(error) = file.write(&from, &to)
        {
            error!(%error, "cannot write the new pair of tokens to the runtime directory");
        }
        let change = ConnectionChange {
            from: Some(from),
            to: Some(to),
        };
        let mut logged = false;
        loop {
            let error = match pair_file::change_stored(&self.keeper.place, &change).await {
                Ok(stored) => {
                    file.iter().for_each(PairFile::remove);
                    return stored;
                }
                Err(error) => error.to_string(),
            };
            if !std::mem::replace(&mut logged, true) {
                error!(%error, "cannot store the new pair of tokens; callbridge tries again");
            }
            self.failure = Some(format!("the new token cannot be stored: {error}"));
            self.publish(clock::now());
            tokio::time::sleep(STORE_AGAIN).await;
        }
    }

    /// Revokes a new pair that couldn't be stored because the state has a different connection.
    /// Since a used refresh token can't be exchanged for a second pair (§5.6.6), that connection
    /// must come from a different consent.
    async fn drop_pair(&self, host: &Client, pair: Connection) {
        warn!("the connection was changed during a refresh: the new tokens are revoked");
        let only_new = Connection {
            previous_token: None,
            ..pair
        };
        drop(revoke::all(host, &only_new).await);
    }

    /// Makes the next read of the connection count as a change, because the state doesn't have the
    /// connection to be refreshed. Returns the reason as a message.
    fn lost_race(&mut self) -> String {
        self.seen = None;
        "the connection was changed at the same time".to_owned()
    }
}

/// Returns the facts about a stored connection that determine its next refresh.
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

/// Returns the connection with a new pair, which was requested at `sent`. The previous access token
/// remains usable until it expires, unless the CRM `refused` it.
fn renew(before: &Connection, pair: Pair, sent: EventTime, refused: bool) -> Connection {
    let issued_at = sent.floor_seconds();
    let previous = if refused {
        before.previous_access()
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

/// Returns when a token with this lifetime expires. Since the lifetime is counted from the time of
/// the request, `asked`, the result can only be too early.
pub fn end_of(asked: EventTime, life: Duration) -> EpochSeconds {
    asked.plus(life).floor_seconds()
}

#[cfg(test)]
#[path = "keeper_tests.rs"]
mod tests;
