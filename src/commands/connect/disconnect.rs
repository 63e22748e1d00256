//! `disconnect`: every token that is known is revoked ([`callbridge_oauth::revoke`]); then the
//! connection is taken away.

use crate::{Failure, Result, print};
use callbridge_admin::state_access::{close, status};
use callbridge_model::{Code, status::Books};
use callbridge_oauth::{exchange::TokenReply, revoke, shown_once, store, store::Lock};
use callbridge_spool as spool;
use std::path::Path;

/// Runs `disconnect`: revokes each known token, then removes the connection.
///
/// # Errors
/// 66 without a connection, 69 when it cannot be revoked now (it stays then), 77 when the client's
/// secret is not known any more, 78 for a damaged file.
pub(crate) async fn run(dir: &Path) -> Result<()> {
    let nothing = || {
        let words = format!("there is no connection in {}", dir.display());
        Failure::new(Code::NoInput, words)
    };
    if !store::exists(dir) {
        return Err(nothing());
    }
    // a refresh that is under way is waited for: its new pair is what has to be revoked
    let lock = Lock::take(dir).await?;
    let stored = store::read(dir)?.ok_or_else(nothing)?;
    let exchange = revoke::way(&stored).map_err(|error| {
        let words = error.to_string().replace("--crm-url", "--auth-url");
        Failure::new(Code::Configuration, words)
    })?;
    let left = revoke::all(&exchange, &stored).await;
    if let Some(first) = left.first() {
        let words = format!(
            "its {}; the connection stays: try again, or disconnect the application in the CRM \
             (Connected apps), which ends all of its tokens, and delete {}",
            revoke::words(&left),
            store::path(dir).display()
        );
        return Err(Failure::new(code(&first.came), words));
    }
    shown_once::keep(dir, &stored)?;
    lock.remove()?;
    let client = &stored.client.id;
    print(format!(
        "disconnected: client {client}, its tokens are revoked\n"
    ))?;
    print(books(dir).await.as_ref().map_or_else(String::new, remains))
}

/// The exit code of a token that could not be revoked.
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

/// The books, from the daemon or the spool; `None` where there is neither.
async fn books(dir: &Path) -> Option<Books> {
    if let Ok(Some(status)) = status(dir).await {
        return Some(status.books);
    }
    let (create, usual) = (false, spool::Settings::default());
    let (handle, guard) = spool::open(dir, spool::Settings { create, ..usual }).ok()?;
    let books = handle.read(|store| Ok(store.books())).await.ok();
    close(handle, guard).await;
    books
}

/// Returns, in words, the calls that wait for another connection.
fn remains(books: &Books) -> String {
    let waiting = books.ready + books.sending + books.submitted;
    format!(
        "calls that wait to be journaled or confirmed: {waiting}, parked: {}, dead letters: {}; \
         all are kept, and go on when it is connected again\n",
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
        let words = "calls that wait to be journaled or confirmed: 3, parked: 4, dead letters: 5; ";
        assert!(remains(&books).starts_with(words), "{}", remains(&books));
    }
}
