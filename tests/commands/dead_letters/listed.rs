//! Tests `calls` and `explain --call PHONE`, for stored calls and for new ones.

use crate::commands::sidecar::{Place, Running, crm, json_lines, until};
use callbridge_testbed::calls::Call;
use rustix::process::Signal;
use serde_json::Value;
use std::io::Write;

const INTERNAL: &str = include_str!("../../recordings/internal_call/ami.raw");

fn append(place: &Place, call: &Call) {
    let mut options = std::fs::OpenOptions::new();
    let file = options.append(true).open(place.path("calls.ami"));
    let mut file = file.expect("a file");
    file.write_all(call.ami().as_bytes()).expect("written");
}

async fn prints(listed: &Running, lines: usize) -> Vec<Value> {
    let printed = async || Some(listed.out()).filter(|out| out.lines().count() >= lines);
    json_lines(&until(&format!("{lines} lines"), printed).await)
}

fn phones(calls: &[Value]) -> Vec<&str> {
    let phone = |call: &'_ Value| call["clientPhone"].as_str().map(str::len);
    assert!(calls.iter().all(|call| phone(call).is_some()), "{calls:?}");
    calls
        .iter()
        .filter_map(|call| call["clientPhone"].as_str())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_list_filters_work_with_and_without_daemon() {
    let (place, crm) = (Place::new(), crm(|_| ()).await);
    let (known, unknown) = (Call::new(1, 4001), Call::without_lead(2));
    let recording = [INTERNAL, &known.ami(), &unknown.ami()].concat();
    place.write("calls.ami", recording);
    let mut flags = place.flags_of_file(&crm.url(), "calls.ami");
    flags.push("--pbx-timezone=Asia/Tashkent".to_owned());
    let mut daemon = Some(place.run(&flags).await);
    place.reaches("/books/journaled", 1).await;
    place.reaches("/books/waiting", 1).await;
    place.reaches("/books/internal", 1).await;
    let (first, second) = (known.phone(), unknown.phone());
    for _ in ["with a daemon", "without"] {
        let all = place.ask("calls --json").await.lines();
        assert_eq!(phones(&all), [&first, &second], "newest last");
        let stands: Vec<_> = all
            .iter()
            .map(|call| (&call["state"], &call["outcome"]))
            .collect();
        let waiting = (&"waiting".into(), &"dead_letter".into());
        assert_eq!(stands, [(&"journaled".into(), &"journal".into()), waiting]);
        assert_eq!(all[1]["reason"], "no_lead");
        let digits = format!("calls --json --phone {}", &first[6..]);
        assert_eq!(phones(&place.ask(&digits).await.lines()), [&first]);
        let waiting = place.ask("calls --json --state waiting").await.lines();
        assert_eq!(phones(&waiting), [&second]);
        let gone = place.ask("calls --to 2026-01-01").await.well();
        assert_eq!(gone, "no calls\n");
        let none = place.ask("calls --trunk gsm --json").await.lines();
        assert!(none.is_empty());
        let internal = place.ask("calls --internal --json").await.lines();
        assert_eq!(
            (internal.len(), &internal[0]["state"]),
            (1, &"internal".into())
        );

        let text = place.ask("calls").await.well();
        let line = text.lines().next().expect("a line");
        let form = format!(" +05  in   {first}  lead 4001  101 talked 4 s   journaled");
        assert!(line.ends_with(&form) && !line.contains('\x1b'), "{line}");
        let explained = place.ask(&format!("explain --call {first}")).await.well();
        assert!(explained.contains(&known.linkedid()), "{explained}");
        if let Some(daemon) = daemon.take() {
            daemon.stop().await;
        }
    }
    let wrong = place
        .ask("calls --phone 12 --from never --today --internal")
        .await;
    assert_eq!(wrong.code, 64, "{wrong:?}");
    assert!(
        wrong.err.starts_with("callbridge: 4 errors in the flags"),
        "{}",
        wrong.err
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_by_number_shows_newest_call_and_lists_others() {
    let (place, crm) = (Place::new(), crm(|_| ()).await);
    let (older, mut newer) = (Call::new(1, 4001), Call::new(1, 4001));
    newer.begins += 600;
    place.write("calls.ami", older.ami() + &newer.ami());
    let flags = place.flags_of_file(&crm.url(), "calls.ami");
    place.run_until_idle(&flags).await;
    let told = place
        .ask(&format!("explain --call {} --json", &older.phone()[1..]))
        .await;
    let told = told.lines().remove(0);
    assert_eq!(told["linkedid"], newer.linkedid());
    assert_eq!(told["others"][0]["linkedid"], older.linkedid());
    let text = place
        .ask(&format!("explain --call {}", older.phone()))
        .await
        .well();
    assert!(
        text.contains("other calls of this number, newest first:\n"),
        "{text}"
    );
    let file = place.path("calls.ami").display().to_string();
    let flag = format!("--trunk={}", crate::commands::sidecar::TRUNK);
    let phone = older.phone();
    let arguments = [
        "explain",
        "--format=ami",
        &file,
        "--call",
        &phone,
        "--json",
        &flag,
    ];
    let of_file = place.say(&arguments).await.lines().remove(0);
    assert_eq!(of_file["linkedid"], newer.linkedid(), "of a recording, too");
    assert_eq!(of_file["others"][0]["linkedid"], older.linkedid());
    let unknown = place.ask("explain --call +998900000000").await;
    assert_eq!(unknown.code, 65, "{unknown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_follow_shows_new_calls_across_daemon_restarts() {
    let (place, crm) = (Place::new(), crm(|_| ()).await);
    place.write("calls.ami", Call::new(1, 4001).ami());
    let flags = place.flags_of_file(&crm.url(), "calls.ami");
    place.run_until_idle(&flags).await;
    let state = format!("--state={}", place.path("state").display());
    let arguments = ["calls", "--follow", "--json", &state];
    let follow = place.start_as("follow", &arguments);
    let past = prints(&follow, 1).await;
    assert_eq!(
        past[0]["state"], "journaled",
        "without a daemon what is kept is listed"
    );
    let mut seen = 1;
    for n in 2..=3 {
        let daemon = place.run(&flags).await;
        let again = "following calls";
        let count = n - 1;
        let ready = async || (follow.log().matches(again).count() == count).then_some(());
        until("one who follows", ready).await;
        let call = Call::new(u32::try_from(n).expect("small"), 4001);
        append(&place, &call);
        let ended = async || {
            let out = json_lines(&follow.out());
            let of_call = out
                .iter()
                .skip(seen)
                .filter(|it| it["linkedid"] == call.linkedid());
            let states: Vec<String> = of_call.map(|it| it["state"].to_string()).collect();
            (states.last()? == "\"journaled\"").then_some(out.len())
        };
        seen = until("a call that ends in the journal", ended).await;
        daemon.stop().await;
    }
    assert_eq!(follow.end(Signal::INT).await, 0);
}
