//! Tests that a connection can only be changed by whoever holds its refresh token, but in any
//! process.

use crate::tables::connection;
use crate::tests::connection::{change, stored_connection};
use crate::{Done, Op, Settings};

/// A change that refers to a token other than the stored one is refused, whether it's made by the
/// leader or by another process.
#[tokio::test(flavor = "multi_thread")]
async fn connection_change_requires_the_stored_refresh_token() {
    let place = super::place();
    let (handle, guard) = place.open(Settings::default());
    let store = place.connections();
    let steps = [
        (None, None, true, None),
        (Some("a"), Some("b"), false, None),
        (Some("a"), None, true, None),
        (None, Some("a"), true, Some("a")),
        (None, Some("b"), false, Some("a")),
        (Some("b"), Some("c"), false, Some("a")),
        (Some("b"), None, false, Some("a")),
        (Some("a"), Some("b"), true, Some("b")),
        // The response to the previous change was lost, so the change is repeated.
        (Some("a"), Some("b"), true, Some("b")),
        (Some("a"), Some("c"), false, Some("b")),
        (Some("b"), Some("b"), true, Some("b")),
        (Some("b"), None, true, None),
    ];
    for by_leader in [true, false] {
        for (from, to, done, left) in steps {
            let change = change(from, to);
            let what = format!("{from:?} to {to:?}, {by_leader}");
            if by_leader {
                let answer = handle.write(vec![Op::Connection(Box::new(change))]).await;
                assert_eq!(answer, Ok(vec![Done::Connection(done)]), "{what}");
            } else {
                assert_eq!(store.change(&change), Ok(done), "{what}");
            }
            let read = handle.read(|store| connection::connection(store)).await;
            assert_eq!(read, Ok(left.map(stored_connection)), "{what}");
            assert_eq!(store.read(), Ok(left.map(stored_connection)), "{what}");
        }
    }
    drop(handle);
    guard.close();
}
