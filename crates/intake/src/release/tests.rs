//! Tests that waiting calls are released once their leads become known.

use super::*;
use callbridge_call::EpochSeconds;
use callbridge_leads::directory::{ChangeKind, FirstPhone, LeadNews};
use callbridge_mapping::people::files::Watched;
use callbridge_mapping::trunk::parse;
use callbridge_mapping::{Trunk, Trunks, judge};
use callbridge_model::status::Books;
use callbridge_spool::{LeadDirectory, Letter, LetterFilter, Settings, open, tables};
use callbridge_testkit::sample::call;
use std::sync::Arc;

/// A spool with a single trunk that gets its leads from the directory.
struct Place {
    spool: Handle,
    people: People,
    rules: Rules,
    phone: Phone,
    _guard: callbridge_spool::Guard,
    _folder: tempfile::TempDir,
}

fn time_at(seconds: i64) -> EventTime {
    call()
        .ended
        .plus(Duration::from_secs(seconds.unsigned_abs()))
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (spool, guard) = open(folder.path(), Settings::default()).expect("opens");
        let flag = "city=PJSIP/city,country=UZ,lead=directory";
        let trunk = parse(flag, &Trunk::default()).expect("good");
        let trunks = Trunks::new(vec![trunk]).expect("one trunk");
        let directory = LeadDirectory::open(folder.path()).expect("a directory");
        let lists = Watched::for_trunks(trunks.iter()).with_directory(Arc::new(directory));
        let rules = Rules {
            trunks,
            ..Rules::default()
        };
        let people = lists.people().clone();
        let judged = judge(&call(), "pbx1", &rules, &people, time_at(0));
        Self {
            spool,
            people,
            rules,
            phone: judged.record.client_phone.expect("a number"),
            _guard: guard,
            _folder: folder,
        }
    }

    /// Judges the sample call by the leads known now, and stores it.
    async fn store_call(&self) {
        let call = call();
        let judged = judge(&call, "pbx1", &self.rules, &self.people, time_at(0));
        let finished = callbridge_spool::Finished::new(judged, call);
        let done = self.spool.write(vec![Op::Finish(Box::new(finished))]);
        done.await.expect("stored");
    }

    async fn learn(&self, lead: i64, seconds: i64, action: ChangeKind) {
        self.learn_merged(lead, seconds, action, Vec::new()).await;
    }

    async fn learn_merged(&self, lead: i64, seconds: i64, action: ChangeKind, merged: Vec<LeadId>) {
        let lead = LeadId::new(lead).expect("positive");
        let phone = FirstPhone::Is(self.phone.clone());
        let news = LeadNews {
            merged,
            ..LeadNews::new(lead, EpochSeconds::new(seconds), action, phone)
        };
        let done = self.spool.write(vec![Op::Learn(Box::new(news))]);
        done.await.expect("stored");
    }

    /// Releases the calls that the daemon would release now.
    async fn release_due(&self) -> u64 {
        let awaited = self.spool.read(|store| Ok(store.take_awaited()));
        let awaited = awaited.await.expect("readable").expect("a few");
        let done = release(
            &self.spool,
            Some(&awaited),
            &self.rules,
            &self.people,
            time_at(9),
        );
        done.await.expect("released")
    }

    async fn books(&self) -> Books {
        let books = self.spool.read(|store| Ok(store.books()));
        books.await.expect("readable")
    }

    async fn letter(&self) -> Letter {
        let letters = self
            .spool
            .read(|store| tables::letters::letters(store, &LetterFilter::default()));
        letters.await.expect("readable").pop().expect("a letter")
    }

    async fn lead_of_ready_call(&self) -> i64 {
        let row = self.spool.read(|store| tables::calls::row(store, RowId(1)));
        let row = row.await.expect("readable").expect("a row");
        assert_eq!(row.state, State::Ready);
        row.record.lead_id.expect("a lead").get()
    }
}

#[tokio::test]
async fn waiting_call_is_released_when_its_number_gets_a_lead() {
    let place = Place::new();
    place.store_call().await;
    assert_eq!(place.books().await.waiting, 1);
    assert_eq!(place.release_due().await, 0, "nothing was learned");
    place.learn(7, 10, ChangeKind::Created).await;
    assert_eq!(place.release_due().await, 1);
    assert_eq!(place.lead_of_ready_call().await, 7);
}

#[tokio::test]
async fn waiting_call_with_two_leads_is_dead_until_one_is_deleted() {
    let place = Place::new();
    place.store_call().await;
    place.learn(7, 10, ChangeKind::Created).await;
    place.learn(8, 10, ChangeKind::Created).await;
    assert_eq!(place.release_due().await, 0);
    let letter = place.letter().await;
    assert_eq!(letter.reason, Reason::AmbiguousLead);
    let expected_message = "two leads in the CRM have this number: 7 and 8 (directory)";
    assert_eq!(letter.message, expected_message);
    assert_eq!(place.books().await.dead, 1);
    place.learn(7, 20, ChangeKind::Deleted).await;
    assert_eq!(place.release_due().await, 1);
    assert_eq!(place.lead_of_ready_call().await, 8);
}

#[tokio::test]
async fn ambiguous_call_goes_to_surviving_lead_after_merge() {
    let place = Place::new();
    place.learn(7, 10, ChangeKind::Created).await;
    place.learn(8, 10, ChangeKind::Created).await;
    place.store_call().await;
    assert_eq!(place.books().await.dead, 1);
    let from = vec![LeadId::new(8).expect("positive")];
    let action = ChangeKind::Merged;
    place.learn_merged(7, 20, action, from).await;
    assert_eq!(place.release_due().await, 1);
    assert_eq!(place.lead_of_ready_call().await, 7);
}

#[tokio::test]
async fn call_with_all_leads_deleted_waits_again_with_a_reason() {
    let place = Place::new();
    place.learn(7, 10, ChangeKind::Created).await;
    place.learn(8, 10, ChangeKind::Created).await;
    place.store_call().await;
    place.learn(7, 1_795_150_000, ChangeKind::Deleted).await;
    place.learn(8, 1_795_150_000, ChangeKind::Deleted).await;
    assert_eq!(place.release_due().await, 0);
    let letter = place.letter().await;
    assert_eq!(letter.reason, Reason::NoLead);
    insta::assert_snapshot!(
        letter.message,
        @"the directory has no current lead for the number: lead 7 (LEAD_DELETED, \
        2026-11-20T04:46:40Z), deleted 2026-11-20T04:46:40Z, lead 8 (LEAD_DELETED, \
        2026-11-20T04:46:40Z), deleted 2026-11-20T04:46:40Z"
    );
    let books = place.books().await;
    assert_eq!((books.waiting, books.dead, books.finished), (1, 0, 1));
}

#[tokio::test]
async fn release_without_a_list_of_phones_checks_every_call() {
    let place = Place::new();
    place.learn(7, 10, ChangeKind::Created).await;
    place.learn(8, 10, ChangeKind::Created).await;
    place.store_call().await;
    place.learn(8, 20, ChangeKind::Deleted).await;
    let all = release(&place.spool, None, &place.rules, &place.people, time_at(9));
    assert_eq!(all.await.expect("released"), 1);
    assert_eq!(place.lead_of_ready_call().await, 7);
}

#[tokio::test]
async fn ambiguous_dead_letter_over_a_month_old_is_not_released() {
    let place = Place::new();
    place.learn(7, 10, ChangeKind::Created).await;
    place.learn(8, 10, ChangeKind::Created).await;
    place.store_call().await;
    place.learn(8, 20, ChangeKind::Deleted).await;
    let late = time_at(0).plus(WAITING_MAX);
    let all = release(&place.spool, None, &place.rules, &place.people, late);
    assert_eq!(all.await.expect("looked at"), 0);
    assert_eq!(place.letter().await.reason, Reason::AmbiguousLead);
}

#[tokio::test]
async fn assigned_lead_releases_waiting_call_and_records_action() {
    let place = Place::new();
    place.store_call().await;
    assert_eq!(place.books().await.waiting, 1);
    let lead = LeadId::new(9).expect("positive");
    let (phone, who) = (place.phone.clone(), "ana".to_owned());
    let given = callbridge_spool::LeadByHand {
        phone,
        lead_id: lead,
        at: EpochSeconds::new(7),
        who: who.clone(),
    };
    place
        .spool
        .write(vec![Op::Give(given)])
        .await
        .expect("stored");
    let (at, action) = (time_at(9), "lead give 9".to_owned());
    let action = Action { at, who, action };
    let left = release_given(
        &place.spool,
        &place.phone,
        &place.rules,
        &place.people,
        &action,
    );
    assert_eq!(left.await.expect("released"), 1);
    assert_eq!(place.lead_of_ready_call().await, 9);
    let acts = place.spool.read(|store| {
        let row = tables::calls::oldest(store, 1)?.remove(0).id;
        tables::letters::actions(store, row)
    });
    assert_eq!(acts.await.expect("readable"), [action]);
}
