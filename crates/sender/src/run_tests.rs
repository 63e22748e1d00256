//! Tests requests whose task ends before the response arrives.

use super::*;
use crate::crm_proxy::question_channel;
use crate::queue::Work;
use callbridge_crm::{Address, Request, Setup};
use callbridge_model::Judged;
use callbridge_sandbox as sandbox;
use callbridge_spool::{Done, Finished, Row, RowId, SlotRow, State, tables};
use callbridge_testkit::sample;
use tempfile::TempDir;

/// Maximum wait. A test that reaches it has failed.
const DEADLINE: Duration = Duration::from_secs(60);

/// A sender whose loop the test drives turn by turn, with its spool and a sandbox CRM.
struct Stage {
    work: Loop,
    _folder: TempDir,
    guard: callbridge_spool::Guard,
    _crm: sandbox::Server,
}

impl Stage {
    async fn begin() -> Self {
        let mut config = sandbox::Config::default();
        config.settings.persist_after = Duration::from_millis(10);
        config.settings.persist_jitter = Duration::ZERO;
        let crm = sandbox::start(config).await.expect("started");
        // Another test may already have installed the provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
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
            request_times: Box::new(|_| {}),
            questions: question_channel().1,
            pulse: Heartbeat::new("sender"),
        };
        let (status, _) = watch::channel(SenderStatus::default());
        let work = sender.open(status).await.expect("readable");
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
            .with
            .spool
            .read(move |store| tables::calls::row(store, row))
            .await;
        read.expect("readable").expect("a row")
    }

    /// Runs the loop's turns until the condition holds.
    async fn turn_until(&mut self, is_done: impl Fn(&Loop) -> bool) {
        let turning = async {
            while !is_done(&self.work) {
                let until = self.work.turn().await.expect("a spool");
                let far = Duration::from_secs(3600);
                let wait = until.map_or(far, |at| at.saturating_sub(clock::now().boot));
                let wait = wait.min(SPOOL_AGAIN); // the spool may have changed
                tokio::select! {
                    Some(answered) = self.work.in_flight.join_next_with_id() => {
                        self.work.handle_answer(answer_or_lost(answered));
                    }
                    () = tokio::time::sleep(wait) => {}
                }
            }
        };
        if timeout(DEADLINE, turning).await.is_err() {
            let rows = self
                .work
                .with
                .spool
                .read(|store| tables::calls::oldest(store, 9))
                .await;
            panic!("not in time: {rows:?}");
        }
    }

    /// Stores a call reported by the PBX.
    async fn store_call(&self) -> RowId {
        let ops = vec![Op::Finish(Box::new(journaled_call()))];
        let done = self.work.with.spool.write(ops);
        let [Done::New(row)] = done.await.expect("stored")[..] else {
            panic!("not new");
        };
        row
    }

    /// Prepares a call whose request is ready, with its step and slot committed, but nothing sent
    /// yet.
    async fn launch_call(&mut self) -> (RowId, u32, Request) {
        let row = self.store_call().await;
        let ask = self.work.core.ask(clock::now());
        let head = self
            .work
            .with
            .spool
            .read(move |store| tables::work_queue::head(store, &ask))
            .await;
        let head = head.expect("readable");
        let Decision::Send(plan) = self.work.core.next(clock::now(), &head) else {
            panic!("nothing to send");
        };
        assert_eq!(plan.task.work, Work::Submit(row));
        let slot = plan.slot;
        let work = plan.task.work.clone();
        let inputs = self
            .work
            .read(clock::now(), move |store, ask| work.inputs(store, ask))
            .await
            .expect("open");
        let inputs = inputs.expect("readable");
        let launch = self.work.core.launch(clock::now(), plan, inputs);
        let Launch {
            request: Some((request, _)),
            ops,
        } = launch
        else {
            panic!("not sent");
        };
        self.work.with.spool.write(ops).await.expect("stored");
        assert_eq!(self.row(row).await.state, State::Sending);
        (row, slot, request)
    }

    async fn slots(&self) -> Vec<SlotRow> {
        let slots = self
            .work
            .with
            .spool
            .read(|store| tables::slots::slots(store));
        slots.await.expect("readable")
    }
}

fn journaled_call() -> Finished {
    let call = sample::call();
    let judged = Judged {
        live: true,
        ..Judged::journaled(sample::record(), call.ended)
    };
    Finished::new(judged, call)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn panicked_request_loses_answer_and_keeps_call() {
    let mut stage = Stage::begin().await;
    stage.turn_until(|work| work.core.tokens.is_verified).await;
    let (row, slot, _) = stage.launch_call().await;
    stage.work.start(slot, async { panic!("a bug") });

    let answered = stage.work.in_flight.join_next_with_id().await;
    stage
        .work
        .handle_answer(answer_or_lost(answered.expect("one")));
    assert_eq!(stage.work.core.in_flight.by_slot.len(), 0);
    assert!(stage.work.tasks.is_empty());
    assert!(stage.work.write_back().await.expect("open"));
    let lost = stage.row(row).await;
    // The call is resent after about a minute.
    assert_eq!(lost.state, State::Ready);
    let wait = lost.not_before - clock::now().wall.micros();
    assert!((1..=60_000_000).contains(&wait), "{wait}");
    let message = &lost.attempts.last().expect("an attempt").message;
    assert!(message.contains("callbridge failed"), "{message}");
    let slots = stage.slots().await;
    let stored = slots.iter().find(|kept| kept.slot == slot).expect("kept");
    assert!(stored.answered.is_some(), "it counts no longer than others");

    drop(stage.work);
    stage.guard.close();
}
