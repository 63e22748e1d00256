//! Tests which of a branch's calls count toward its daily quota.

use super::*;
use crate::token::hash;
use callbridge_call::EpochSeconds;
use callbridge_mapping::Trunk;
use callbridge_model::Secret;
use callbridge_spool::{self as spool, Guard, NewBranch, Settings};
use std::path::Path;

/// Starts a receiver with this quota for the branch `samarkand`.
async fn receiver(folder: &Path, bytes_max: u64) -> (Receiver, Origin, Guard) {
    let (spool, guard) = spool::open(folder, Settings::default()).expect("a spool");
    let begin = Op::BeginHub {
        incarnation: new_id(),
        at: clock::now().wall,
    };
    let token = Secret::from("token");
    let add = Op::AddBranch(NewBranch {
        name: "samarkand".to_owned(),
        token: hash(&token),
        pbxs: vec!["samarkand".to_owned()],
        at: EpochSeconds::new(1),
    });
    spool.write(vec![begin, add]).await.expect("stored");
    let branches = Arc::new(BranchTable::default());
    branches.reload(&spool).await.expect("readable");
    let branch = branches
        .find(&token, EpochSeconds::new(1))
        .expect("a branch");
    let receiver = Receiver {
        spool,
        rules: Rules {
            without_trunk: Some(Trunk::default()),
            ..Rules::default()
        },
        people: Arc::default(),
        branches,
        tally: Arc::default(),
        silence: Duration::from_secs(105),
        version: "test",
        turns: Turns::default(),
        quota: Mutex::new(DailyQuota::new(bytes_max)),
    };
    (
        receiver,
        Origin {
            branch,
            sender: None,
            seen: None,
        },
        guard,
    )
}

/// Returns the nth call's message, which always has the same length.
fn message(n: u32) -> String {
    let started = clock::now().wall.floor_seconds().get() - 60;
    let call = serde_json::json!({
        "pbx": "samarkand", "id": n.to_string(), "direction": "INBOUND",
        "phone": "+998901110001", "startedAt": started, "durationSec": 20, "answered": false,
    });
    call.to_string()
}

#[tokio::test]
async fn only_new_calls_count_toward_the_daily_quota() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = message(1);
    let two_calls = 2 * first.len() as u64;
    let (receiver, origin, guard) = receiver(folder.path(), two_calls).await;
    for _ in 0..5 {
        let body = Bytes::from(first.clone());
        let answer = receiver.calls(&origin, body, None).await.expect("taken");
        assert_eq!(answer.taken.len(), 1, "{answer:?}");
    }
    let body = Bytes::from(message(2));
    receiver.calls(&origin, body, None).await.expect("taken");
    let body = Bytes::from(message(3));
    let refused = receiver.calls(&origin, body, None).await;
    let Err(refusal @ Refusal::Quota(wait)) = refused else {
        panic!("{refused:?}");
    };
    assert!(wait > Duration::from_secs(23 * 3600), "{wait:?}");
    let text = refusal.to_string();
    assert!(text.contains("branch rotate NAME --now"), "{text}");
    let repeats = Bytes::from(format!(
        "{first}
{}
no JSON
",
        message(2)
    ));
    let answer = receiver.calls(&origin, repeats, None).await.expect("taken");
    assert_eq!((answer.taken.len(), answer.refused.len()), (2, 1));
    let mixed = Bytes::from(format!(
        "{first}
{}",
        message(3)
    ));
    let refused = receiver.calls(&origin, mixed, None).await;
    assert!(matches!(refused, Err(Refusal::Quota(_))), "{refused:?}");
    let read = receiver.spool.read(|store| Ok(store.books())).await;
    assert_eq!(read.expect("readable").finished, 2);
    drop(receiver);
    let closing = tokio::task::spawn_blocking(move || guard.close());
    closing.await.expect("closed");
}

/// The database refuses one of a script's calls.
#[tokio::test]
async fn line_that_the_spool_refuses_is_a_dead_letter_like_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let (receiver, origin, guard) = receiver(folder.path(), 1 << 20).await;
    let file = folder.path().join("spool.db");
    let spool = rusqlite::Connection::open(file).expect("the spool");
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON calls WHEN NEW.linkedid = '2'
         BEGIN SELECT RAISE(ABORT, 'refused by the database'); END";
    spool.execute_batch(refuse).expect("a trigger");
    let second = message(2);
    let body = format!("{}\nno JSON\n{second}\n{}\n", message(1), message(3));
    for _ in 0..2 {
        let body = Bytes::from(body.clone());
        let answer = receiver.calls(&origin, body, None).await.expect("taken");
        let lines: Vec<usize> = answer.refused.iter().map(|line| line.line).collect();
        assert_eq!((answer.taken.len(), lines), (2, vec![2, 3]));
    }
    let read = receiver.spool.read(|store| {
        let letters = tables::letters::letters(store, &Default::default())?;
        let branches = tables::branches::branches(store)?;
        Ok((store.books(), letters, branches))
    });
    let (books, letters, branches) = read.await.expect("readable");
    assert_eq!((books.finished, books.unreadable), (2, 2));
    let mut kept = letters.into_iter().filter_map(|letter| letter.bytes);
    assert!(
        kept.any(|message| message.bytes == second.as_bytes()),
        "the line is kept"
    );
    assert_eq!(branches[0].refused, 4);
    let (_, refusal) = branches[0].refusal.clone().expect("a refusal");
    assert!(refusal.contains("refused by the database"), "{refusal}");
    drop(receiver);
    let closing = tokio::task::spawn_blocking(move || guard.close());
    closing.await.expect("closed");
}
