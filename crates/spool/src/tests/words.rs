//! Tests of messages for users and of results for scripts.

use super::call::journal;
use crate::{Error, Op, Refused, RowId, Settings, State, tables};
use callbridge_model::ExitCode as _;
use callbridge_testkit::Wait as _;
use std::path::PathBuf;

/// Returns the errors that can occur when opening the directory.
fn folder_errors() -> Vec<Error> {
    let path = PathBuf::from("/state/spool.db");
    let dir = PathBuf::from("/state");
    vec![
        Error::Locked(dir.clone(), Some(4711)),
        Error::Locked(dir.clone(), None),
        Error::Missing(dir.clone()),
        Error::NotWritable(path.clone(), "Permission denied".into()),
        Error::NewerSchema(path.clone(), 9, 1),
        Error::Foreign(path.clone()),
        Error::Damaged(path.clone(), "words of SQLite".into()),
        Error::OtherAddress("https://a".into(), "https://b".into()),
    ]
}

/// Returns the errors that a single request can cause.
fn request_errors() -> Vec<Error> {
    let path = PathBuf::from("/state/spool.db");
    let row = RowId(7);
    let why = "words of SQLite".to_owned();
    let refused = Refused {
        state: State::Journaled,
        step: "retry",
    };
    let uuid = journal(1).judged.record.uuid.expect("a uuid");
    vec![
        Error::Gone("/state".into(), "spool.db is missing".to_owned()),
        Error::Full(path.clone()),
        Error::Disk(path.clone(), why.clone()),
        Error::Refused(row, refused),
        Error::UuidTaken(row, uuid),
        Error::NoRow(row),
        Error::NoUuid("1.2".into()),
        Error::Unstorable("a dead letter", why.clone()),
        Error::Closed,
        Error::Sql(path, why),
    ]
}

#[test]
fn errors_name_the_problem_the_place_and_the_fix() {
    let all = [folder_errors(), request_errors()].concat();
    let lines = all.iter().map(|error| {
        let message = error.to_string();
        let lines = message.replace(": ", ":\n   ").replace("; ", ";\n   ");
        format!("{} {lines}\n", error.exit_code().number())
    });
    insta::assert_snapshot!(lines.collect::<String>(), @r"
    75 the state in /state is in use by process 4711:
       stop it, or give this one another --state
    75 the state in /state is in use by another process:
       stop it, or give this one another --state
    69 no state in /state:
       start `callbridge run` with this --state first
    73 cannot write /state/spool.db:
       Permission denied:
       let this user write there, or give another --state
    78 /state/spool.db has schema 9, and this callbridge reads up to 1:
       run the newer callbridge that wrote it;
       the file is not changed
    78 /state/spool.db was not written by callbridge:
       give another --state;
       the file is not changed
    78 /state/spool.db is damaged:
       words of SQLite:
       keep a copy of the folder, restore it from a backup, or give another --state;
       the file is not changed
    78 the state is bound to https://a, --crm-url is https://b:
       use --rebind to bind it to this address
    73 the state folder /state disappeared in use:
       spool.db is missing:
       put the folder back, and start callbridge again
    73 no room for /state/spool.db:
       make room on its disk;
       callbridge then continues automatically
    73 cannot read or write /state/spool.db:
       words of SQLite:
       check its disk;
       callbridge then continues automatically
    65 7:
       a call that is journaled cannot take the step `retry`
    65 7:
       another call has the uuid 00000000-0000-0000-0000-000000000002:
       enter this call in the CRM by hand, discard it, and give each PBX its own pbx=
    65 no call or dead letter has the id 7:
       see `callbridge dead list`
    65 call 1.2 has no uuid and cannot be stored
    65 a dead letter cannot be stored:
       words of SQLite
    69 the spool is closed
    78 /state/spool.db:
       words of SQLite
    ");
}

#[test]
fn unknown_state_word_is_reported_as_damage() {
    let place = super::place();
    let (handle, guard) = place.open(Settings::default());
    handle
        .write(vec![Op::Finish(Box::new(journal(1)))])
        .wait()
        .expect("stored");
    guard.close();
    place.sql("UPDATE calls SET state = 'lost'");
    let (handle, _guard) = place.open(Settings::default());
    let row = handle
        .read(|store| tables::calls::row(store, RowId(1)))
        .wait();
    assert!(matches!(row, Err(Error::Damaged { .. })), "{row:?}");
    let counted = handle.read(tables::books::recount).wait();
    assert!(matches!(counted, Err(Error::Damaged { .. })), "{counted:?}");
}
