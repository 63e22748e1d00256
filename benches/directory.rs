//! The directory of leads with a million numbers in it: how fast it learns, how long a look-up
//! takes, and how much of it stays in memory.
//!
//! `cargo bench --bench directory` measures 10 thousand and 1 million numbers; `-- 300000` as many
//! as are named.

use callbridge::journal::{LeadId, Phone};
use callbridge::people::directory::{Directory as _, FirstPhone, LeadNews, What};
use callbridge::spool::{Handle, LeadDirectory, Op, Settings, open};
use callbridge_call::EpochSeconds;
use std::time::{Duration, Instant};

/// News of one commit, as a burst of webhooks brings them.
const GROUP: i64 = 500;
const LOOK_UPS: i64 = 20_000;

fn phone(n: i64) -> Phone {
    Phone::from_digits(998_900_000_000 + n).expect("a number")
}

/// Numbers in no order, each once.
fn scattered(n: i64, all: i64) -> i64 {
    (n * 7_368_787) % all
}

fn news(n: i64, at: i64, what: What) -> Op {
    let lead = LeadId::new(n + 1).expect("positive");
    let phone = FirstPhone::Is(phone(n));
    Op::Learn(Box::new(LeadNews::new(
        lead,
        EpochSeconds::new(at),
        what,
        phone,
    )))
}

/// Kilobytes of this process in memory.
fn resident() -> i64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn learn(spool: &Handle, all: i64, at: i64, count: i64) -> f64 {
    let begun = Instant::now();
    for from in (0..count).step_by(usize::try_from(GROUP).unwrap_or(1)) {
        let some = from..(from + GROUP).min(count);
        let ops = some.map(|n| news(scattered(n, all), at, What::Created));
        spool.write_blocking(ops.collect()).expect("stored");
    }
    count as f64 / begun.elapsed().as_secs_f64()
}

fn percentile(times: &mut [Duration], of_hundred: usize) -> f64 {
    times.sort_unstable();
    times[(times.len() - 1) * of_hundred / 100].as_secs_f64() * 1e6
}

fn measure(all: i64) {
    let dir = tempfile::tempdir().expect("a folder");
    let (spool, guard) = open(dir.path(), Settings::default()).expect("opens");
    let directory = LeadDirectory::open(dir.path()).expect("beside it");
    learn(&spool, all, 10, 1);
    directory.find(&phone(0)).expect("readable");
    let before = resident();
    let first = learn(&spool, all, 10, all);
    let again = learn(&spool, all, 10, all.min(50_000));
    let newer = learn(&spool, all, 20, all.min(50_000));
    let mut times = Vec::new();
    for n in 0..LOOK_UPS {
        let phone = phone(scattered(n * 31, all));
        let begun = Instant::now();
        let found = directory.find(&phone).expect("readable");
        times.push(begun.elapsed());
        assert_eq!(found.leads().len(), 1);
    }
    let more = (resident() - before) as f64 / 1024.0;
    let bytes = std::fs::metadata(dir.path().join("spool.db")).map_or(0, |file| file.len());
    println!(
        "| {all:>9} | {first:>8.0} | {again:>8.0} | {newer:>8.0} | {:>6.0} | {:>6.0} | {more:>5.1} \
         | {:>4} |",
        percentile(&mut times, 50),
        percentile(&mut times, 99),
        bytes >> 20,
    );
    guard.close();
}

fn main() {
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
    sizes.into_iter().for_each(measure);
    println!("to reach with a million: p99 under 1000 µs, under 16 MB more");
}
