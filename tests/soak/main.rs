//! `tests/run soak --hours H`: load, faults, kills, and restarts of RabbitMQ for this time. Memory,
//! open files, and the spool must not grow, the books must balance, and the judge must find
//! nothing.
//!
//! ```text
//!  PBX (AMI) ──┐
//!  RabbitMQ ───┼──▶ steady ──▶ judge ──▶ CRM      never killed: does it leak?
//!          └───┼──▶ beaten ──▶ judge ──▶ CRM      killed repeatedly: does its state grow?
//!  a file ─────┘
//! ```

mod gauge;
mod load;
mod side;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "this program uses a part of it")]
mod support;

use self::gauge::Windows;
use self::load::Soak;
use std::process::ExitCode;
use std::time::Duration;

/// Returns the value of `--hours`, at most a year.
fn hours() -> Result<Duration, String> {
    let mut words = std::env::args().skip(1);
    let mut hours = 1.0;
    while let Some(word) = words.next() {
        match word.as_str() {
            "--hours" => {
                let text = words.next().ok_or_else(usage)?;
                hours = text.parse::<f64>().map_err(|_| usage())?;
            }
            _ => return Err(usage()),
        }
    }
    let usable = (0.01..=8_784.0).contains(&hours);
    usable
        .then(|| Duration::from_secs_f64(hours * 3_600.0))
        .ok_or_else(usage)
}

fn usage() -> String {
    "soak: --hours H, where H is a number such as 0.05 or 8".to_owned()
}

fn main() -> ExitCode {
    let time = match hours() {
        Ok(time) => time,
        Err(words) => {
            eprintln!("{words}");
            return ExitCode::from(64);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.enable_all().worker_threads(2).build();
    let flat = runtime.expect("a runtime").block_on(async {
        let soak = Soak::begin(Windows::for_run(time)).await;
        soak.work(time).await;
        soak.end().await
    });
    ExitCode::from(u8::from(!flat))
}
