//! The directory of leads with a million numbers: learning speed, lookup time, memory, and the cost
//! of the leads' names.
//!
//! `cargo bench --bench directory` measures 10 thousand and 1 million numbers. `-- 300000` measures
//! that many.

#[path = "support/table.rs"]
mod table;

use callbridge_call::EpochSeconds;
use callbridge_leads::directory::rows;
use callbridge_leads::directory::{ChangeKind, FirstPhone, LeadNews};
use callbridge_model::{LeadId, Phone};
use callbridge_spool::{Handle, LeadDirectory, Op, Settings, open};
use callbridge_testkit::Wait as _;
use rusqlite::Connection;
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};

/// News per commit, like a burst of webhooks.
const GROUP: i64 = 500;
const LOOK_UPS: i64 = 20_000;

fn phone(n: i64) -> Phone {
    Phone::from_digits(998_900_000_000 + n).expect("a number")
}

/// Maps 0 to `all` to the same numbers in scattered order.
fn scatter(n: i64, all: i64) -> i64 {
    (n * 7_368_787) % all
}

fn news(n: i64, at: i64, what: ChangeKind) -> Op {
    let lead = LeadId::new(n + 1).expect("positive");
    let phone = FirstPhone::Is(phone(n));
    Op::Learn(Box::new(LeadNews::new(
        lead,
        EpochSeconds::new(at),
        what,
        phone,
    )))
}

/// Returns the kilobytes of this process in memory.
fn resident_kb() -> i64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Makes a lead as `lead/filter` returns it, with one contact. If `named`, it also has a name, a
/// stage, and a responsible employee.
fn read(n: i64, at: i64, named: bool) -> Op {
    let (id, phone) = (n + 1, phone(n));
    let contact = json!({"id": id, "phones": [phone.as_str()]});
    let mut row = json!({
        "id": id, "updatedTimestamp": at, "phone": phone.as_str(), "contacts": [contact],
    });
    if named {
        let name = format!("Customer Karimova {id}");
        row["contacts"][0]["name"] = json!(name);
        row["name"] = json!(name);
        row["statusName"] = json!("Negotiations");
        row["responsibleId"] = json!(id % 50 + 1);
        row["responsibleName"] = json!(format!("Employee Yusupova {}", id % 50 + 1));
    }
    let news = rows::read(&row, ChangeKind::Filter, None).news;
    Op::Learn(Box::new(news.expect("a lead and its time")))
}

/// Measures the cost of the leads' names: rows per second of the first reading and of a later one,
/// and bytes per lead.
fn measure_filling(all: i64, named: bool) -> (f64, f64, f64) {
    let dir = tempfile::tempdir().expect("a folder");
    let (spool, guard) = open(dir.path(), Settings::default()).expect("opens");
    let first = learn(&spool, all, all, |n| read(n, 10, named));
    let later = learn(&spool, all, all.min(100_000), |n| read(n, 20, named));
    guard.close();
    let file = std::fs::metadata(dir.path().join("spool.db")).expect("a file");
    (first, later, file.len() as f64 / all as f64)
}

fn measure_names(all: i64) {
    let (plain_first, plain_later, plain_bytes) = measure_filling(all, false);
    let (first, later, bytes) = measure_filling(all, true);
    let plain = rates(plain_first, plain_later);
    print_names_row(all, "rows read", &rates(first, later), "", &plain);
    let goal = if all == 1_000_000 { "250 B more" } else { "" };
    let more = format!("{bytes:.0} B a lead, {:.0} B more", bytes - plain_bytes);
    let plain = format!("{plain_bytes:.0} B a lead");
    print_names_row(all, "disk", &more, goal, &plain);
}

fn rates(first: f64, later: f64) -> String {
    format!("{first:.0}/s, {later:.0}/s changed")
}

fn print_names_row(all: i64, what: &str, measured: &str, goal: &str, plain: &str) {
    let what = format!("{all} leads with names: {what}");
    let plain = format!("without names: {plain}");
    table::row("directory", &what, measured, goal, &plain);
}

fn learn(spool: &Handle, all: i64, count: i64, op: impl Fn(i64) -> Op) -> f64 {
    let begun = Instant::now();
    for from in (0..count).step_by(usize::try_from(GROUP).unwrap_or(1)) {
        let some = from..(from + GROUP).min(count);
        let ops = some.map(|n| op(scatter(n, all)));
        spool.write(ops.collect()).wait().expect("stored");
    }
    count as f64 / begun.elapsed().as_secs_f64()
}

fn percentile(times: &mut [Duration], of_hundred: usize) -> f64 {
    times.sort_unstable();
    times[(times.len() - 1) * of_hundred / 100].as_secs_f64() * 1e6
}

fn created(n: i64, at: i64) -> Op {
    news(n, at, ChangeKind::Created)
}

fn measure(all: i64) {
    let dir = tempfile::tempdir().expect("a folder");
    let (spool, guard) = open(dir.path(), Settings::default()).expect("opens");
    let directory = LeadDirectory::open(dir.path()).expect("beside it");
    learn(&spool, all, 1, |n| created(n, 10));
    directory.find(&phone(0)).expect("readable");
    let before = resident_kb();
    let first = learn(&spool, all, all, |n| created(n, 10));
    let again = learn(&spool, all, all.min(50_000), |n| created(n, 10));
    let newer = learn(&spool, all, all.min(50_000), |n| created(n, 20));
    let mut times = Vec::new();
    for n in 0..LOOK_UPS {
        let phone = phone(scatter(n * 31, all));
        let begun = Instant::now();
        let found = directory.find(&phone).expect("readable");
        times.push(begun.elapsed());
        assert_eq!(found.leads().len(), 1);
    }
    let more = (resident_kb() - before) as f64 / 1024.0;
    let bytes = std::fs::metadata(dir.path().join("spool.db")).map_or(0, |file| file.len());
    let (p50, p99) = (percentile(&mut times, 50), percentile(&mut times, 99));
    println!(
        "| {all:>9} | {first:>8.0} | {again:>8.0} | {newer:>8.0} | {p50:>6.0} | {p99:>6.0} \
         | {more:>5.1} | {:>4} |",
        bytes >> 20,
    );
    guard.close();
    let before = resident_kb();
    let (plain_learned, plain_p50, plain_p99) =
        measure_plain_table(&dir.path().join("bare.db"), all);
    let plain_more = (resident_kb() - before) as f64 / 1024.0;
    let plain = per_second(plain_learned);
    print_row(all, "learned", &per_second(first), "", &plain);
    let plain = quantiles(plain_p50, plain_p99);
    print_row(all, "a lookup", &quantiles(p50, p99), "p99 1000 µs", &plain);
    let plain = format!("{plain_more:.1} MB more");
    print_row(
        all,
        "memory",
        &format!("{more:.1} MB more"),
        "16 MB",
        &plain,
    );
}

fn per_second(rate: f64) -> String {
    format!("{rate:.0}/s")
}

fn quantiles(p50: f64, p99: f64) -> String {
    format!("p50 {p50:.0} µs, p99 {p99:.0} µs")
}

/// Prints a row with the reference. Only the row of a million numbers has a target.
fn print_row(all: i64, what: &str, measured: &str, goal: &str, plain: &str) {
    let what = format!("{all} numbers: {what}");
    let goal = if all == 1_000_000 { goal } else { "" };
    let plain = format!("bare SQLite: {plain}");
    table::row("directory", &what, measured, goal, &plain);
}

/// Measures the reference: number and lead in a plain table, in groups of the same size. Returns
/// the rows learned per second, and the times of a lookup.
fn measure_plain_table(path: &Path, all: i64) -> (f64, f64, f64) {
    let db = Connection::open(path).expect("opens");
    db.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
         CREATE TABLE phones (phone INTEGER, lead INTEGER, PRIMARY KEY (phone, lead))
         STRICT, WITHOUT ROWID;",
    )
    .expect("a table");
    let begun = Instant::now();
    for from in (0..all).step_by(usize::try_from(GROUP).unwrap_or(1)) {
        db.execute_batch("BEGIN IMMEDIATE").expect("begun");
        let mut insert = db
            .prepare_cached("INSERT OR IGNORE INTO phones VALUES (?1, ?2)")
            .expect("a statement");
        for n in from..(from + GROUP).min(all) {
            let n = scatter(n, all);
            insert.execute((998_900_000_000 + n, n + 1)).expect("a row");
        }
        db.execute_batch("COMMIT").expect("committed");
    }
    let learned = all as f64 / begun.elapsed().as_secs_f64();
    let mut find = db
        .prepare("SELECT lead FROM phones WHERE phone = ?1")
        .expect("a question");
    let mut times = Vec::new();
    for n in 0..LOOK_UPS {
        let n = scatter(n * 31, all);
        let begun = Instant::now();
        let lead: i64 = find
            .query_row([998_900_000_000 + n], |row| row.get(0))
            .expect("known");
        times.push(begun.elapsed());
        assert_eq!(lead, n + 1);
    }
    let (p50, p99) = (percentile(&mut times, 50), percentile(&mut times, 99));
    (learned, p50, p99)
}

/// Runs the bench that the module describes.
pub fn main() {
    let named: Vec<i64> = std::env::args()
        .filter_map(|word| word.parse().ok())
        .collect();
    let sizes = if named.is_empty() {
        vec![10_000, 1_000_000]
    } else {
        named
    };
    println!("| numbers | learned/s | known/s | newer/s | find µs p50 | p99 | MB more | MB disk |");
    println!("|---|---|---|---|---|---|---|---|");
    for all in sizes {
        measure(all);
        measure_names(all);
    }
    println!("to reach with a million: p99 under 1000 µs, under 16 MB more");
}
