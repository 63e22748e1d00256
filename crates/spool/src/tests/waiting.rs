//! What becomes of events that come through a stream, before and after it is known whose they are?

use super::call::{at, journal};
use super::deliveries::signature;
use crate::tables::deliveries::{WAITING_BYTES_MAX, WAITING_MAX, waiting};
use crate::{
    Delivered, Delivery, Done, Error, Fit, Op, RowId, Settings, State, Step, Store, WebhookEvent,
    tables,
};
use callbridge_formats::message::WebhookMessage;
use callbridge_leads::directory::news::Slot;
use callbridge_leads::directory::profile::{Name, ProfileNews, Responsible};
use callbridge_leads::directory::{ChangeKind, ContactPhones, FactUpdate, FirstPhone, LeadNews};
use callbridge_model::{CallUuid, EmployeeId, LeadId, Phone};

fn lead(id: i64) -> LeadId {
    LeadId::new(id).expect("an id")
}

fn phone(n: u32) -> Phone {
    Phone::from_e164(&format!("+99890111000{n}")).expect("a number")
}

fn uuid(n: u32) -> CallUuid {
    journal(n).judged.record.uuid.expect("a uuid")
}

fn news(what: ChangeKind, phone: FirstPhone) -> LeadNews {
    LeadNews::new(lead(4001), at(5).floor_seconds(), what, phone)
}

/// An event of our company as it comes out of a stream.
fn event(name: &str, news: WebhookEvent) -> Delivery {
    Delivery {
        installation: "9001".into(),
        event: name.into(),
        signature: signature(name),
        company: "77".into(),
        at: at(30),
        service_retries: false,
        news,
    }
}

pub fn completed(name: &str, n: u32) -> Delivery {
    let (uuid, leads) = (uuid(n), vec![lead(4001)]);
    let shown = None;
    event(name, WebhookEvent::Completed { uuid, leads, shown })
}

fn learned(name: &str) -> Delivery {
    let news = news(ChangeKind::Created, FirstPhone::Is(phone(1)));
    event(name, WebhookEvent::Learn(Box::new(news)))
}

fn write(store: &mut Store, op: Op) -> Done {
    let done = store.write(vec![op]).expect("stored");
    done.into_iter().next_back().expect("an answer")
}

fn deliver(store: &mut Store, delivery: &Delivery) -> Delivered {
    match write(store, Op::Delivery(Box::new(delivery.clone()))) {
        Done::Delivered(delivered) => delivered,
        other => panic!("{other:?}"),
    }
}

fn bind() -> Op {
    Op::BindCompany {
        company: "77".into(),
        application: "5".into(),
    }
}

fn unbound() -> Store {
    Store::in_memory(Settings::default()).expect("memory")
}

fn call(store: &mut Store, n: u32) -> RowId {
    match write(store, Op::Finish(Box::new(journal(n)))) {
        Done::New(row) => row,
        other => panic!("{other:?}"),
    }
}

fn state(store: &Store, row: RowId) -> State {
    let found = tables::calls::row(store, row).expect("readable");
    found.expect("a row").state
}

#[test]
fn an_event_is_what_it_was_after_its_way_through_a_message() {
    let contacts = vec![
        ContactPhones {
            name: FactUpdate::from(Name::new("Anna")),
            slot: Slot::of_contact(Some(7)),
            now: vec![phone(1), phone(2)],
            before: Vec::new(),
        },
        ContactPhones {
            name: FactUpdate::None,
            slot: Slot::NAMELESS,
            now: Vec::new(),
            before: vec![phone(3)],
        },
    ];
    let kinds = [
        (ChangeKind::Created, FirstPhone::Unchanged),
        (ChangeKind::Assigned, FirstPhone::None),
        (ChangeKind::StageChanged, FirstPhone::Is(phone(1))),
        (ChangeKind::PropertiesUpdated, FirstPhone::Unchanged),
        (ChangeKind::Merged, FirstPhone::Unchanged),
        (ChangeKind::Deleted, FirstPhone::None),
    ];
    let name = |text| FactUpdate::from(Name::new(text));
    let olga = |called: &str| Responsible {
        id: EmployeeId::new(15).expect("positive"),
        name: Name::new(called),
    };
    let known = |responsible| ProfileNews {
        name: name("Anna"),
        responsible,
        stage: FactUpdate::None,
    };
    let mut profiles = [
        ProfileNews::default(),
        known(FactUpdate::None),
        known(FactUpdate::Is(olga("Olga"))),
        known(FactUpdate::Is(olga(""))),
    ]
    .into_iter()
    .cycle();
    let leads = kinds.into_iter().map(|(what, phone)| {
        let contacts = contacts.clone();
        let merged = match what {
            ChangeKind::Merged => vec![lead(4002), lead(4003)],
            _ => Vec::new(),
        };
        let news = LeadNews {
            merged,
            contacts,
            profile: profiles.next().unwrap_or_default(),
            ..news(what, phone)
        };
        event("a", WebhookEvent::Learn(Box::new(news)))
    });
    for told in leads.chain([completed("a", 1)]) {
        let message = told.message();
        assert_eq!(message.kind, told.news.kind());
        let read = WebhookMessage::read(message.write().as_bytes()).expect("a message");
        assert_eq!(Delivery::of_message(&read, told.at), Ok(told));
    }
}

#[test]
fn no_signature_goes_into_a_message_and_one_event_has_one_digest_of_it() {
    let told = completed("a", 1);
    let sent = told.clone().without_signature();
    assert_ne!(sent.signature, told.signature);
    assert_eq!(sent, told.clone().without_signature());
    let digits = |bytes: [u8; 32]| bytes.map(|byte| format!("{byte:02x}")).concat();
    let message = sent.message().write();
    assert!(message.contains(&digits(sent.signature)), "{message}");
    assert!(!message.contains(&digits(told.signature)), "{message}");
}

#[test]
fn a_message_that_is_no_event_names_its_field() {
    let of = |change: &dyn Fn(&mut WebhookMessage), delivery: Delivery| {
        let mut message = delivery.message();
        change(&mut message);
        Delivery::of_message(&message, at(30)).expect_err("wrong")
    };
    let in_call = |it: &mut WebhookMessage| it.call.as_mut().expect("a call").leads = vec![0];
    let in_lead = |it: &mut WebhookMessage| it.lead.as_mut().expect("a lead").id = -1;
    let in_phone = |it: &mut WebhookMessage| {
        it.lead.as_mut().expect("a lead").phone = Some("901110001".to_owned());
    };
    let kind = |it: &mut WebhookMessage| it.kind = "LEAD_SOLD".to_owned();
    for (words, field) in [
        (of(&in_call, completed("a", 1)), "call.leads: "),
        (of(&kind, completed("a", 1)), "kind: "),
        (of(&kind, learned("a")), "kind: "),
        (of(&in_lead, learned("a")), "lead.id: "),
        (of(&in_phone, learned("a")), "lead.phone: "),
    ] {
        assert!(words.starts_with(field), "{words}");
        assert!(
            words.contains("; it may be ") || words.contains("; it may "),
            "{words}"
        );
        assert!(!words.contains("901110001"), "{words}");
    }
}

#[test]
fn what_comes_before_a_token_has_told_whose_this_is_waits_and_is_taken_then() {
    let mut store = unbound();
    let row = call(&mut store, 1);
    for event in [completed("a", 1), learned("b"), completed("c", 9)] {
        assert_eq!(deliver(&mut store, &event), Delivered::Waits);
        assert_eq!(deliver(&mut store, &event), Delivered::Repeat);
    }
    let theirs = Delivery {
        company: "78".into(),
        ..learned("d")
    };
    assert_eq!(deliver(&mut store, &theirs), Delivered::Waits);
    assert_eq!((waiting(&store), state(&store, row)), (Ok(4), State::Ready));

    write(&mut store, bind());
    assert_eq!(
        (waiting(&store), state(&store, row)),
        (Ok(0), State::Journaled)
    );
    assert!(store.books().balance());
    let leads = |store: &Store| {
        tables::directory::directory_size(store)
            .expect("readable")
            .leads
    };
    assert_eq!(leads(&store), 1, "ours, and not theirs");
    let known = deliver(&mut store, &learned("b"));
    assert_eq!(known, Delivered::Repeat, "it was taken");
    let direct = deliver(&mut store, &learned("e"));
    assert!(matches!(direct, Delivered::Learned(..)), "{direct:?}");
}

#[test]
fn the_place_in_the_stream_and_what_waits_are_stored_together_or_not_at_all() {
    let mut store = unbound();
    let row = call(&mut store, 1);
    let place = Op::Position {
        source: "stream:v?calls".to_owned(),
        position: serde_json::json!({"offset": 7}),
    };
    let refused = Op::Step {
        row,
        step: Step::Expire,
        at: at(30),
    };
    let delivery = Op::Delivery(Box::new(completed("a", 1)));
    let done = store.write(vec![delivery.clone(), place.clone(), refused]);
    assert!(matches!(done, Err(Error::Refused { .. })), "{done:?}");
    assert_eq!(waiting(&store), Ok(0));
    store.write(vec![delivery, place]).expect("stored");
    assert_eq!(waiting(&store), Ok(1));
}

#[test]
fn no_more_wait_than_there_is_room_for_and_the_oldest_give_way_counted() {
    let mut store = unbound();
    let row = call(&mut store, 1);
    let more = 3;
    let numbers = (0..WAITING_MAX - 1).map(|n| completed(&format!("e-{n}"), 9));
    let ops = [completed("first", 1)].into_iter().chain(numbers);
    let ops = ops.map(|it| Op::Delivery(Box::new(it)));
    store.write(ops.collect()).expect("stored");
    assert_eq!(waiting(&store), Ok(WAITING_MAX.unsigned_abs()));
    for n in 0..more {
        assert_eq!(
            deliver(&mut store, &learned(&format!("l-{n}"))),
            Delivered::Waits
        );
    }
    assert_eq!(waiting(&store), Ok(WAITING_MAX.unsigned_abs()));
    assert_eq!(store.counters()["webhooks_gave_way"], more);
    write(&mut store, bind());
    assert_eq!(state(&store, row), State::Ready, "the first gave way");

    let mut store = unbound();
    let contact = ContactPhones {
        name: FactUpdate::Unchanged,
        slot: Slot::of_contact(Some(7)),
        now: vec![phone(1); 100],
        before: vec![phone(2); 100],
    };
    let large = LeadNews {
        contacts: vec![contact; 100],
        ..news(ChangeKind::PropertiesUpdated, FirstPhone::Unchanged)
    };
    let large = event("x", WebhookEvent::Learn(Box::new(large)));
    let length = i64::try_from(large.message().write().len()).expect("small");
    for n in 0..=WAITING_BYTES_MAX / length {
        let event = format!("{n:04}");
        deliver(
            &mut store,
            &Delivery {
                event,
                ..large.clone()
            },
        );
    }
    assert_eq!(store.counters()["webhooks_gave_way"], 1);
}

#[test]
fn whoever_passes_an_event_on_is_told_what_is_known_of_it() {
    let mut store = unbound();
    let foreknown =
        |store: &Store, it: &Delivery| tables::deliveries::foreknown(store, it).expect("readable");
    let told = completed("a", 1);
    assert_eq!(foreknown(&store, &told), (Fit::Unbound, false));
    deliver(&mut store, &told);
    assert_eq!(foreknown(&store, &told), (Fit::Unbound, true));
    write(&mut store, bind());
    assert_eq!(foreknown(&store, &told), (Fit::Same, true));
    let replayed = Delivery {
        installation: "6".into(),
        ..told
    };
    assert_eq!(foreknown(&store, &replayed), (Fit::Same, true));
    assert_eq!(foreknown(&store, &learned("b")), (Fit::Same, false));
    let theirs = Delivery {
        company: "78".into(),
        ..learned("b")
    };
    assert_eq!(foreknown(&store, &theirs), (Fit::Other, false));
}

#[test]
fn a_fresh_state_that_meets_an_old_event_journals_its_remade_call_without_a_request() {
    use crate::PeerOutcome;
    let mut store = unbound();
    write(&mut store, bind());
    let row = call(&mut store, 1);
    write(
        &mut store,
        Op::PeerOutcome(PeerOutcome::PossiblySent(uuid(1))),
    );
    let possibly_sent =
        |store: &Store| tables::peer_outcomes::possibly_sent_calls(store).expect("readable");
    assert_eq!(possibly_sent(&store).waiting, 1);
    let delivered = deliver(&mut store, &completed("a", 1));
    let confirmed = Delivered::Confirmed {
        row,
        other_lead: false,
    };
    assert_eq!(delivered, confirmed);
    assert_eq!(
        (possibly_sent(&store).waiting, state(&store, row)),
        (0, State::Journaled)
    );
    assert_eq!(deliver(&mut store, &completed("b", 9)), Delivered::NotOurs);
}
