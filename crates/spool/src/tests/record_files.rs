//! Tests of `unreadable` dead letters, and of files that become readable.

use super::call::time_at;
use super::letters::store;
use crate::{Done, LetterFilter, Op, RowId, Store, UnreadableBytes, tables};

pub(super) fn unreadable_op(n: u32) -> Op {
    Op::Unreadable(UnreadableBytes {
        source: "amqp://pbx/".into(),
        pbx: "pbx1".into(),
        bytes: vec![b'x'; 100],
        cut_from: None,
        file: None,
        why: "no JSON".into(),
        at: time_at(i64::from(n)),
        content_type: None,
    })
}

/// Returns the operation that keeps a file holding a single record.
pub(super) fn unreadable_file(bytes: &[u8], cut_from: Option<u64>) -> Op {
    Op::Unreadable(UnreadableBytes {
        source: "file:///cdr/".into(),
        pbx: "pbx1".into(),
        bytes: bytes.to_vec(),
        cut_from,
        file: Some("/cdr/a.json".into()),
        why: "no JSON".into(),
        at: time_at(9),
        content_type: None,
    })
}

/// Returns the report that this source's file has been read.
fn file_read_op(source: &str, file: &str) -> Op {
    Op::FileRead {
        source: source.to_owned(),
        file: file.to_owned(),
        at: time_at(10),
    }
}

fn unreadable_letters(store: &Store) -> Vec<(i64, String, u64)> {
    let filter = LetterFilter::default();
    let letters = tables::letters::letters(store, &filter).expect("readable");
    let unread = letters.into_iter().map(|letter| {
        let message = letter.bytes.expect("a message");
        let text = String::from_utf8_lossy(&message.bytes).into_owned();
        assert_eq!(message.file.as_deref(), Some("/cdr/a.json"));
        (letter.id.0, text, message.length)
    });
    unread.collect()
}

#[test]
fn unreadable_file_has_one_dead_letter_until_it_is_read() {
    let mut store = store();
    let torn = unreadable_file(b"{\"a\":", None);
    store.write(vec![torn.clone()]).expect("stored");
    // After a restart, the same file is read again.
    let done = store.write(vec![torn]).expect("stored");
    assert_eq!(done, [Done::Unreadable(Some(RowId(1)))]);
    assert_eq!(unreadable_letters(&store), [(1, "{\"a\":".to_owned(), 5)]);
    assert_eq!(store.books().unreadable, 1);
    let longer = unreadable_file(b"{\"a\":1", Some(2_000_000));
    store.write(vec![longer]).expect("stored");
    assert_eq!(
        unreadable_letters(&store),
        [(2, "{\"a\":1".to_owned(), 2_000_000)]
    );
    let others = vec![
        file_read_op("file:///cdr/", "/cdr/b.json"),
        file_read_op("file:///other/", "/cdr/a.json"),
    ];
    store.write(others).expect("stored");
    assert_eq!(unreadable_letters(&store).len(), 1);
    let own = file_read_op("file:///cdr/", "/cdr/a.json");
    store.write(vec![own.clone(), own]).expect("stored");
    assert_eq!(unreadable_letters(&store), []);
    assert_eq!(store.books().unreadable, 2);
}

/// Stores an unreadable file twice with the same content, and then reports that it has been read.
pub(super) fn make_readable(store: &mut Store) {
    let torn = unreadable_file(b"{", None);
    let read = file_read_op("file:///cdr/", "/cdr/a.json");
    let done = store.write(vec![torn.clone(), torn, read]);
    let done = done.expect("stored");
    assert_eq!(done[0], done[1], "one letter");
}
