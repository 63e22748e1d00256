//! What becomes of a request whose task fails in the middle of it?

use super::*;
use crate::crm_proxy::asking;
use callbridge_crm::{Address, Setup};
use callbridge_model::{Judged, Outcome};
use callbridge_sandbox as sandbox;
use callbridge_spool::Finished;
use callbridge_spool::{Done, Row, RowId, State, tables};
use callbridge_testkit::sample;
use tempfile::TempDir;

/// No test takes so long unless something is wrong.
const DEADLINE: Duration = Duration::from_secs(60);

/// A sender whose loop the test turns, and whom it asks.
struct Stage {
    work: Loop,
    _folder: TempDir,
    guard: callbridge_spool::Guard,
    _crm: sandbox::Server,
}

impl Stage {
    async fn begin() -> Self {
        // whoever comes second finds it installed, which is as good
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut config = sandbox::Config::default();
        config.settings.persist_after = Duration::from_millis(10);
        config.settings.persist_jitter = Duration::ZERO;
        let crm = sandbox::start(config).await.expect("started");
        let folder = tempfile::tempdir().expect("a folder");
        let (spool, guard) =
            callbridge_spool::open(folder.path(), callbridge_spool::Settings::default())
                .expect("a new state");
        let address = Address::parse(&crm.url()).expect("loopback");
        let sender = Sender {
            spool,
            client: Arc::new(Client::new(Setup::new(address))),
            token: TokenSource::Fixed(Secret::from("svc_pat_sandbox".to_owned())),
            settings: Settings::default(),
            request_times: RequestTimes::default(),
            questions: asking().1,
            pulse: Pulse::new("sender"),
        };
        let (status, _) = watch::channel(SenderStatus::default());
        let (work, _) = sender.open(status).await.expect("readable");
        Self {
            work,
            _folder: folder,
            guard,
            _crm: crm,
        }
    }

    async fn row(&self, row: RowId) -> Row {
        let read = self
            .work
            .spool
            .read(move |store| tables::calls::row(store, row))
            .await;
        read.expect("readable").expect("a row")
    }

    /// Turns the loop until it is so.
    async fn until(&mut self, so: impl Fn(&Loop) -> bool) {
        let turning = async {
            while !so(&self.work) {
                let until = self.work.turn().await.expect("a spool");
                let far = Duration::from_secs(3600);
                let wait = until.map_or(far, |at| at.saturating_sub(clock::now().boot));
                let wait = wait.min(SPOOL_AGAIN); // the spool may have changed
                tokio::select! {
                    Some(landed) = self.work.flights.join_next_with_id() => {
                        self.work.landed(told_or_lost(landed));
                    }
                    () = tokio::time::sleep(wait) => {}
                }
            }
        };
        if timeout(DEADLINE, turning).await.is_err() {
            let rows = self
                .work
                .spool
                .read(|store| tables::calls::oldest(store, 9))
                .await;
            panic!("not in time: {rows:?}");
        }
    }
}

fn journaled() -> Finished {
    let call = sample::call();
    let judged = Judged {
        record: sample::record(),
        outcome: Outcome::Journal,
        reason: None,
        message: String::new(),
        live: true,
        remarks: Vec::new(),
        judged_at: call.ended,
        kept_out_unanswered: false,
    };
    Finished { judged, call }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_whose_task_panics_has_lost_its_answer_and_its_call_is_journaled_all_the_same() {
    let mut stage = Stage::begin().await;
    stage.until(|work| !work.core.is_asking()).await;
    let done = stage
        .work
        .spool
        .write(vec![Op::Finish(Box::new(journaled()))]);
    let [Done::New(row)] = done.await.expect("stored")[..] else {
        panic!("not new");
    };
    let ask = stage.work.core.ask(clock::now());
    let head = stage
        .work
        .spool
        .read(move |store| tables::work_queue::head(store, &ask))
        .await;
    let Decision::Send(plan) = stage.work.core.next(clock::now(), &head.expect("readable")) else {
        panic!("nothing to send");
    };
    assert_eq!(plan.task, Task::Submit(row));
    let slot = plan.slot;
    let about = stage.work.about(plan.task.clone()).await.expect("open");
    let launch = stage
        .work
        .core
        .launch(clock::now(), plan, about.expect("readable"));
    let Launch::Go { ops, .. } = launch else {
        panic!("not sent");
    };
    stage.work.spool.write(ops).await.expect("stored");
    assert_eq!(stage.row(row).await.state, State::Sending);
    stage.work.takes_off(slot, async { panic!("a bug") });

    let landed = stage.work.flights.join_next_with_id().await;
    stage.work.landed(told_or_lost(landed.expect("one")));
    assert_eq!(stage.work.core.under_way(), 0);
    assert!(stage.work.tasks.is_empty());
    assert!(stage.work.write_back().await.expect("open"));
    let lost = stage.row(row).await;
    assert_ne!(lost.state, State::Sending);
    let words = &lost.attempts.last().expect("an attempt").words;
    assert!(words.contains("callbridge failed"), "{words}");
    let slots = stage.work.spool.read(|store| tables::slots::slots(store));
    let slots = slots.await.expect("readable");
    let stored = slots.iter().find(|it| it.slot == slot).expect("kept");
    assert!(stored.answered.is_some(), "it counts no longer than others");

    let journaled = |work: &Loop| {
        let books =
            tokio::task::block_in_place(|| work.spool.read_blocking(|store| Ok(store.books())));
        books.expect("readable").journaled == 1
    };
    stage.until(journaled).await;
    assert_eq!(stage.row(row).await.state, State::Journaled);
    drop(stage.work);
    stage.guard.close();
}
