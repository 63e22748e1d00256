//! `disconnect`: the refresh token is revoked, and its access tokens with it (§5.6.7); then the
//! connection is taken away.

use super::connect::of_store;
use super::exchange::{Ask, Came, Exchange};
use super::shown_once;
use super::store::{self, Lock};
use crate::check::place::asked;
use crate::cli::dispatch::print;
use crate::cli::exit::{Code, Failure};
use crate::crm::{Address, Setup};
use crate::ops::status::Books;
use crate::spool;
use std::path::{Path, PathBuf};
use std::time::Duration;
use url::Url;

/// Tries to revoke; revoking twice does no harm.
const TRIES_MAX: u32 = 3;
/// Between two of them.
const AGAIN: Duration = Duration::from_secs(2);

/// Disconnects.
///
/// # Errors
/// 66 without a connection, 69 when it cannot be revoked now (it stays then), 77 when the client's
/// secret is not known any more, 78 for a damaged file.
pub async fn run(dir: &Path) -> Result<(), Failure> {
    if !store::exists(dir) {
        let words = format!("there is no connection in {}", dir.display());
        return Err(Failure::new(Code::NoInput, words));
    }
    // a refresh that is under way is waited for: its new pair is what has to be revoked
    let lock = Lock::take(dir).await.map_err(of_store)?;
    let Some(stored) = store::read(dir).map_err(of_store)? else {
        let words = format!("there is no connection in {}", dir.display());
        return Err(Failure::new(Code::NoInput, words));
    };
    let address = Address::parse(&stored.client.auth_url).map_err(|error| {
        let words = error.to_string().replace("--crm-url", "--auth-url");
        Failure::new(Code::Configuration, words)
    })?;
    let exchange = Exchange::new(Setup {
        ca_file: stored.client.ca_file.as_ref().map(PathBuf::from),
        proxy: stored
            .client
            .proxy
            .as_ref()
            .and_then(|it| Url::parse(it).ok()),
        ..Setup::new(address)
    });
    let ask = Ask::Revoke(stored.refresh.clone());
    let mut came = exchange.ask(&ask, &stored.client).await;
    for _ in 1..TRIES_MAX {
        if !matches!(came, Came::Unsure(_) | Came::NotSent(_) | Came::TooMany) {
            break;
        }
        tokio::time::sleep(AGAIN).await;
        came = exchange.ask(&ask, &stored.client).await;
    }
    let path = store::path(dir);
    let path = path.display();
    let stays = format!(
        "the connection stays: try again, or disconnect the application in the CRM (Connected \
         apps) and delete {path}"
    );
    let failed = |code, why: String| Err(Failure::new(code, format!("{why}; {stays}")));
    match came {
        Came::Revoked => {}
        Came::WrongClient(why) => {
            let words = format!("client id or secret are refused ({why})");
            return failed(Code::NoPermission, words);
        }
        Came::Refused(why) | Came::Elsewhere(why) => {
            return failed(Code::Configuration, format!("it cannot be revoked ({why})"));
        }
        Came::Unsure(why) | Came::NotSent(why) => {
            return failed(Code::Unreachable, format!("it cannot be revoked ({why})"));
        }
        Came::TooMany | Came::Pair(_) => {
            return failed(Code::Unreachable, "it cannot be revoked (429)".to_owned());
        }
    }
    shown_once::keep(dir, &stored).map_err(of_store)?;
    lock.remove().map_err(of_store)?;
    let rest = books(dir).await.map(|books| remains(&books));
    let rest = rest.unwrap_or_default();
    print(
        format!(
            "disconnected: client {}, its tokens are revoked\n{rest}",
            stored.client.id
        )
        .as_bytes(),
    )
}

/// The books, from the daemon or the spool; `None` where there is neither.
async fn books(dir: &Path) -> Option<Books> {
    if let Ok(Some(status)) = asked(dir).await {
        return Some(status.books);
    }
    let settings = spool::Settings {
        create: false,
        ..spool::Settings::default()
    };
    let (handle, guard) = spool::open(dir, settings).ok()?;
    let books = handle.read(|store| Ok(store.books())).await.ok();
    drop(handle);
    // Blocks until the spool's thread has ended, which is soon.
    let _ = tokio::task::spawn_blocking(move || guard.close()).await;
    books
}

/// What is left to do for another connection.
fn remains(books: &Books) -> String {
    let waiting = books.ready + books.sending + books.submitted;
    format!(
        "{waiting} calls wait to be journaled or confirmed, {} are parked, {} dead letters: all \
         are kept, and go on when it is connected again\n",
        books.parked, books.dead
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_remains_is_told_in_figures() {
        let books = Books {
            ready: 2,
            submitted: 1,
            parked: 4,
            dead: 5,
            ..Books::default()
        };
        let words = "3 calls wait to be journaled or confirmed, 4 are parked, 5 dead letters: ";
        assert!(remains(&books).starts_with(words), "{}", remains(&books));
    }
}
