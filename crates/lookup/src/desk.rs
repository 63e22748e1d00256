//! The thread that looks up callers. Since it reads the disk, queries wait in a bounded queue, and
//! clients wait for a bounded time.

use crate::answer::{Answer, Question, UnknownReason};
use callbridge_model::number;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::{fmt, io, thread, time::Duration};
use tokio::{sync::oneshot, time::timeout};

/// Maximum number of queries waiting for the thread. A lookup takes 0.1 ms, so all of them are
/// answered long before their clients stop waiting.
const WAITING_MAX: usize = 64;
/// Timeout for a lookup. If it's exceeded, the result is `no`, because a phone must ring even
/// without a name.
pub const ANSWER_WITHIN: Duration = Duration::from_millis(50);

/// The lookup itself, which blocks because it reads the disk.
pub type LookUp = Box<dyn Fn(&Question) -> Answer + Send>;

/// A query, along with the channel for its result.
type Asked = (Question, oneshot::Sender<Answer>);

/// A handle to the thread that looks up callers. The thread ends when all handles have been
/// dropped.
#[derive(Clone)]
pub struct Desk {
    asked: SyncSender<Asked>,
    within: Duration,
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Desk")
    }
}

impl Desk {
    /// Starts the thread, and waits until it's ready. `within` is the timeout for each result.
    ///
    /// # Errors
    /// Returns an error if the system can't start a thread.
    pub async fn open(look_up: LookUp, within: Duration) -> io::Result<Self> {
        let (asked, questions) = sync_channel::<Asked>(WAITING_MAX);
        let (ready, is_ready) = oneshot::channel();
        let work = thread::Builder::new().name("lookup".to_owned());
        work.spawn(move || {
            // The first number loads the numbering plan tables, which would take up all the time
            // that a caller waits.
            number::e164("+998901110001", None);
            ready.send(()).ok();
            while let Ok((question, answer)) = questions.recv() {
                // If the client is no longer waiting, its query is skipped, so that other clients
                // get their results in time.
                if !answer.is_closed() {
                    answer.send(look_up(&question)).ok();
                }
            }
        })?;
        is_ready.await.ok();
        Ok(Self { asked, within })
    }

    /// Returns the result, or `no` if the queue is full or the query times out.
    pub async fn ask(&self, question: Question) -> Answer {
        let (answer, answered) = oneshot::channel();
        if self.asked.try_send((question, answer)).is_err() {
            return Answer::unknown(UnknownReason::Full);
        }
        match timeout(self.within, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => Answer::unknown(UnknownReason::Late),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Known;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, mpsc};

    fn known_answer() -> Answer {
        Answer {
            known: Known::Yes,
            ..Answer::unknown(UnknownReason::NoLead)
        }
    }

    #[tokio::test]
    async fn desk_with_stalled_disk_keeps_deadline_and_skips_expired() {
        let (go_on, going) = mpsc::sync_channel::<()>(0);
        let looked_up = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&looked_up);
        let stalled_lookup: LookUp = Box::new(move |_: &Question| {
            counted.fetch_add(1, Ordering::Relaxed);
            going.recv().ok();
            known_answer()
        });
        let desk = Desk::open(stalled_lookup, ANSWER_WITHIN)
            .await
            .expect("a thread");
        // This limits how long the test waits. If the desk had no timeout, it would wait for the
        // disk.
        let patience = Duration::from_secs(60);
        let late = Answer::unknown(UnknownReason::Late);
        // On a slow machine, a query may expire before the thread gets to it, and the thread then
        // skips it. So the test keeps asking until one is looked up.
        let mut asked = 0;
        while looked_up.load(Ordering::Relaxed) == 0 {
            let answer = timeout(patience, desk.ask(Question::default())).await;
            assert_eq!(answer.expect("answered in time"), late);
            asked += 1;
        }
        let waiting: Vec<_> = (0..WAITING_MAX)
            .map(|_| {
                let desk = desk.clone();
                tokio::spawn(async move { desk.ask(Question::default()).await })
            })
            .collect();
        let mut refused = 0;
        for answer in waiting {
            if answer.await.expect("answered") != late {
                refused += 1;
            }
        }
        // All of the queries above, except for the one being looked up, may still be in the queue.
        assert!(
            refused < asked,
            "{refused} of {WAITING_MAX}, {asked} before"
        );
        // The queue still holds all the expired queries, so any further ones are rejected.
        assert_eq!(
            desk.ask(Question::default()).await,
            Answer::unknown(UnknownReason::Full)
        );
        drop(go_on);
        let mut accepted = 0;
        loop {
            let answer = desk.ask(Question::default()).await;
            accepted += usize::from(answer != Answer::unknown(UnknownReason::Full));
            if answer == known_answer() {
                break;
            }
            tokio::task::yield_now().await;
        }
        let looked_up = looked_up.load(Ordering::Relaxed);
        assert!(
            looked_up <= 1 + accepted,
            "{looked_up}: nobody waits for the others"
        );
    }

    #[tokio::test]
    async fn requests_to_a_dead_thread_are_answered_as_unknown() {
        let desk = Desk::open(Box::new(|_| panic!("broken")), ANSWER_WITHIN)
            .await
            .expect("a thread");
        assert_eq!(
            desk.ask(Question::default()).await,
            Answer::unknown(UnknownReason::Late)
        );
        while desk.ask(Question::default()).await != Answer::unknown(UnknownReason::Full) {}
    }
}
