//! A callbridge with its CRM, the judge between them, and its expected calls.

use crate::gauge::{self, Sample, Size, Windows};
use crate::support::crm_process::Crm;
use crate::support::judge::fault::WEATHER;
use crate::support::judge::rules::{self, Law};
use crate::support::judge::{Judge, purposes, truth};
use crate::support::program::{Place, Program, TOKEN};
use crate::support::recordings::{self, Recording, TRUNKS};
use crate::support::stored;
use callbridge_model::status::Books;
use callbridge_testbed::broker::{self, Broker};
use callbridge_testbed::calls::Call;
use callbridge_testbed::expected::{self, Expected};
use callbridge_testbed::pbx::FakePbx;
use callbridge_testbed::wait::until_within;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The rate of callbridge and of the CRM.
const RATE: &str = "--rate=60/6s";
const WINDOW: Duration = Duration::from_secs(6);
/// Percentage of exchanges that get a fault.
const PERCENT: u64 = 6;
/// The books must settle within this time after the last call.
const SETTLES_WITHIN: Duration = Duration::from_secs(1_500);
/// A process younger than this does not have all its resources yet.
const GROWN: Duration = Duration::from_secs(15);

/// A running callbridge with its judge and CRM.
pub struct Side {
    pub name: &'static str,
    place: Place,
    crm: Crm,
    judge: Judge,
    queue: String,
    flags: Vec<String>,
    pub pbx: Option<FakePbx>,
    running: tokio::sync::Mutex<Option<(Program, Instant)>>,
    history: Mutex<History>,
    begun: Instant,
}

/// The calls of this side, and its samples.
#[derive(Default)]
struct History {
    expected: Vec<Expected>,
    samples: Vec<Sample>,
    kills: usize,
    last: Option<Books>,
}

impl Side {
    /// Sets up a side with a queue, and with an AMI connection if `live`, or else a file.
    pub async fn prepare(name: &'static str, broker: &Broker, live: bool, seed: u64) -> Self {
        // The CRM is never stopped. With a state, it would write all its records at each request.
        let crm = Crm::start(TOKEN, &[RATE, "--persist-after=1s"]).await;
        let judge = Judge::start(crm.addr(), seed).await;
        judge.set_faults(PERCENT, &WEATHER);
        let place = Place::new();
        let queue = format!("soak-{name}");
        broker.declare(&queue).await;
        let pbx = if live {
            Some(FakePbx::ami().await)
        } else {
            None
        };
        let first = match &pbx {
            Some(pbx) => place.ami(pbx),
            None => {
                place.append("recorded", b"");
                place.file("recorded", "ami")
            }
        };
        let secret = place.write("broker-secret", broker::SECRET);
        let base = broker.url(broker::ADMINISTRATOR);
        let second = format!(
            "--source={base}?queue={queue}&format=asterisk-cel&pbx=pbx2&secret-file={secret}"
        );
        let leads = place.write("leads.csv", "phone,leadId\n998901110001,4001\n");
        let trunk = format!("{};csv:{leads}", TRUNKS[0]);
        let flags = vec![
            first,
            second,
            trunk,
            RATE.to_owned(),
            "--cdr-wait=1s".to_owned(),
        ];
        Self {
            name,
            place,
            crm,
            judge,
            queue,
            flags,
            pbx,
            running: tokio::sync::Mutex::new(None),
            history: Mutex::new(History::default()),
            begun: Instant::now(),
        }
    }

    fn history(&self) -> std::sync::MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts callbridge.
    pub async fn start(&self) {
        let program = self.place.run(&self.judge.url(), &self.flags);
        *self.running.lock().await = Some((program, Instant::now()));
    }

    /// Kills callbridge with SIGKILL, reads the spool, and starts it again.
    pub async fn kill(&self) {
        if let Some((program, _)) = self.running.lock().await.take() {
            program.kill().await;
            self.judge
                .record_kill(stored::read(&self.place.at("state")))
                .await;
        }
        self.history().kills += 1;
        self.start().await;
    }

    /// Sends a call on the connection, or writes it to the file.
    pub async fn send_call(&self, call: &Call) {
        self.history().expected.push(Expected {
            uuid: expected::uuid("pbx1", &call.linkedid()),
            linkedid: call.linkedid(),
            lead: call.lead,
            reason: None,
            employee: Some(501),
            direction: "INBOUND".to_owned(),
            answered: true,
            started_at: call.begins,
            duration: 5.0,
            talk: 4.0,
        });
        match &self.pbx {
            Some(pbx) => pbx.say(call.ami().as_bytes()).await,
            None => self.place.append("recorded", call.ami().as_bytes()),
        }
    }

    /// Publishes a call to the queue.
    pub async fn publish(&self, broker: &Broker, call: &Recording) {
        let expected = recordings::expected(std::slice::from_ref(call)).into_iter();
        self.history()
            .expected
            .extend(expected.map(|record| record.on("pbx2")));
        broker.publish(&self.queue, &call.cel()).await;
    }

    /// Measures the process and reads its books.
    pub async fn sample(&self) {
        let running = self.running.lock().await;
        let Some((program, started)) = running.as_ref() else {
            return;
        };
        let status = program.status().await;
        let sample = gauge::sample(self.begun.elapsed(), program.id());
        let mut history = self.history();
        if started.elapsed() > GROWN {
            history.samples.extend(sample);
        }
        if let Some(status) = status {
            assert!(status.books.balance(), "{:?}", status.books);
            history.last = Some(status.books);
        }
    }

    /// Returns the progress as a line.
    pub fn progress(&self) -> String {
        let history = self.history();
        let books = history.last.unwrap_or_default();
        let (memory, files) = history
            .samples
            .last()
            .map_or((0, 0), |sample| (sample.memory, sample.files));
        let waiting = books.ready + books.sending + books.submitted;
        format!(
            "{}: {} told, {} journaled, {waiting} waiting, {} dead, {} requests, {} kills, \
             {memory} KiB, {files} files",
            self.name,
            history.expected.len(),
            books.journaled,
            books.dead + books.waiting,
            self.judge.count(),
            history.kills
        )
    }

    /// Ends the faults, waits until every call is confirmed, and stops callbridge. Returns `true`
    /// if this succeeded in time.
    pub async fn settle(&self) -> bool {
        self.judge.set_faults(0, &[]);
        let calls = self.history().expected.len() as u64;
        let begun = Instant::now();
        let mut settled = false;
        let what = format!("the last record of {}", self.name);
        until_within(2 * SETTLES_WITHIN, &what, async || {
            self.sample().await;
            let books = self.history().last.unwrap_or_default();
            settled = books.journaled == calls && books.finished == calls;
            settled || begun.elapsed() > SETTLES_WITHIN
        })
        .await;
        let took = begun.elapsed();
        println!("{}: settled {settled} after {took:.0?}", self.name);
        if let Some((program, _)) = self.running.lock().await.take() {
            program.terminate().await;
        }
        settled
    }

    /// Returns the table of this side, and all errors.
    pub async fn verdict(&self, windows: Windows) -> (String, Vec<String>) {
        let law = Law {
            requests: 60,
            window: WINDOW,
            host: self.judge.host(),
            refused_pages: 0,
            again: false,
        };
        let (seen, times) = (self.judge.seen(), self.judge.times());
        let journal = self.crm.look("journal").await;
        let history = self.history();
        let mut wrong = rules::breaches(&seen, &times, &law);
        wrong.extend(truth::submitted(&seen, &history.expected));
        wrong.extend(truth::journal(&journal, &history.expected));
        let (mut table, flat) = gauge::compare(self.name, &history.samples, windows);
        if !flat {
            wrong.push("its resources grow".to_owned());
        }
        let state = self.place.at("state");
        let size = Size::measure(&state).unwrap_or_default();
        if !size.is_bounded() {
            wrong.push(format!(
                "{size:?}: the file is more than twice as large as its live pages"
            ));
        }
        stored::assert_whole(&state);
        let Size { file, live, log } = size;
        let each = seen.len() as f64 / history.expected.len().max(1) as f64;
        table.push_str(&format!(
            "{:<8} spool: file {file}, live {live}, log {log} bytes\n{:<8} {} calls, {} kills, \
             {}, {each:.2} a call\n",
            self.name,
            self.name,
            history.expected.len(),
            history.kills,
            purposes(&seen)
        ));
        let wrong = wrong.iter().map(|error| format!("{}: {error}", self.name));
        (table, wrong.collect())
    }
}
