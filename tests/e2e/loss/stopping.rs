//! Tests that callbridge stops in time if the CRM, the broker, DNS, or the disk hangs, and that
//! every call is accounted for.

use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::{Place, Program, preload};
use crate::support::recordings::{self, TRUNKS};
use callbridge_model::Status;
use callbridge_model::status::SourceState;
use callbridge_sandbox::{Action, Endpoint, Rule, Server};
use callbridge_testbed::broker::{self, Broker};
use callbridge_testbed::pbx::{self, FakePbx};
use callbridge_testbed::proxy::Proxy;
use callbridge_testbed::wait::{soon, until};
use rustix::process::Signal;
use std::io::ErrorKind;
use std::process::Command;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UdpSocket, UnixDatagram};

/// Appends three recorded calls to the source's file, and returns them.
fn append_three_calls(place: &Place) -> [recordings::Recording; 3] {
    let calls = ["inbound_answered", "outbound_answered", "blind_transfer"];
    let calls = calls.map(recordings::one);
    for call in &calls {
        place.append("recorded", &call.ami);
    }
    calls
}

/// Starts callbridge, and waits until the CRM has received a submission that gets no response
/// because of the fault.
async fn start_with_pending_request(place: &Place, crm: &Server, fault: Action) -> Program {
    let rule = Rule::always(Endpoint::CallHistory, fault);
    crm.admin(|core, _| core.set_faults(vec![rule]));
    let source = place.file("recorded", "ami");
    let mut program = place.run(&crm.url(), &[&source, TRUNKS[0], TRUNKS[1], RATE_FLAG]);
    program
        .until("requests under way", |status| {
            status.books.finished == 3 && status.books.sending > 0
        })
        .await;
    until("the arrival of a request", async || {
        crm.admin(|core, _| core.journal.accepted() > 0)
    })
    .await;
    program
}

/// Checks that the stopped callbridge's books balance, and that the next run journals every call.
async fn check_all_calls(place: &Place, crm: &Server, calls: &[recordings::Recording]) {
    let status = place.lines(&["status", "--json"]).await.remove(0);
    let status: Status = serde_json::from_value(status).expect("a status");
    assert!(status.books.balance(), "{:?}", status.books);
    assert_eq!(status.books.finished, 3);
    crm.admin(|core, _| core.set_faults(Vec::new()));
    let source = place.file("recorded", "ami");
    let flags = [&source, TRUNKS[0], TRUNKS[1], RATE_FLAG, "--until-idle"];
    place.run(&crm.url(), &flags).expect_success().await;
    crm::judge(crm, &place.letters().await, &recordings::expected(calls));
}

#[tokio::test]
async fn daemon_stops_in_time_while_crm_answers_slowly() {
    let seconds = Duration::from_secs;
    for (signal, fault) in [
        (Signal::TERM, Action::Delay(seconds(9))),
        (Signal::INT, Action::Slow(seconds(900))),
    ] {
        let (place, crm) = (Place::new(), crm::start().await);
        let calls = append_three_calls(&place);
        let program = start_with_pending_request(&place, &crm, fault).await;
        program.stop_with(signal).await;
        check_all_calls(&place, &crm, &calls).await;
    }
}

#[tokio::test]
async fn second_signal_ends_daemon_at_once_and_loses_no_call() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let (place, crm) = (Place::new(), crm::start().await);
        let calls = append_three_calls(&place);
        let delay = Action::Delay(Duration::from_secs(900));
        let program = start_with_pending_request(&place, &crm, delay).await;
        program.signal(Signal::TERM);
        until("the beginning of the stop", async || {
            program.log().contains("stopping")
        })
        .await;
        program.signal(signal);
        assert_eq!(program.insist(signal).await.code(), Some(code));
        assert!(
            !place.logs().contains("stopped"),
            "the second signal ends the program before the orderly stop"
        );
        check_all_calls(&place, &crm, &calls).await;
    }
}

#[tokio::test]
async fn daemon_stops_in_time_despite_flood_and_hanging_broker() {
    let (place, crm, pbx) = (Place::new(), crm::start().await, FakePbx::ami().await);
    let broker = Broker::shared();
    for queue in ["flooded", "flooded-letters"] {
        broker.declare(queue).await;
    }
    let proxy = Proxy::start(broker.port()).await;
    let proxy_url = broker.url(broker::ADMINISTRATOR);
    let proxy_url = proxy_url.replace(
        &format!(":{}", broker.port()),
        &format!(":{}", proxy.port()),
    );
    let ami = place.write("ami-secret", pbx::SECRET);
    let amqp = place.write("amqp-secret", broker::SECRET);
    let cel = "queue=flooded&format=asterisk-cel";
    let flags = [
        format!("--source=ami://bridge@{}?secret-file={ami}", pbx.addr()),
        format!("--source={proxy_url}?{cel}&secret-file={amqp}&pbx=queue"),
        format!("--dead-letter-queue={proxy_url}?queue=flooded-letters&secret-file={amqp}"),
        TRUNKS[0].to_owned(),
        "--listen=127.0.0.1:0".to_owned(),
        RATE_FLAG.to_owned(),
    ];
    let mut program = place.run(&crm.url(), &flags);
    pbx.logged_in(1).await;
    program
        .until("both connections", |status| {
            // The PBX and the broker haven't sent any events yet.
            let mut sources = status.sources.iter();
            sources.all(|source| source.state == SourceState::Connected)
        })
        .await;
    proxy.freeze();
    // Only send half of a request.
    let metrics = crate::e2e::operations::monitoring::address(&program).await;
    let mut connection = TcpStream::connect(metrics).await.expect("a connection");
    connection
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: x")
        .await
        .expect("written");
    // The flood is a separate task, because writing to a closed connection makes the task panic.
    let call = recordings::one("inbound_answered").ami;
    let flood = tokio::spawn(async move {
        loop {
            pbx.say(&call).await;
        }
    });
    program
        .until("a flood", |status| status.sources[0].read > 2_000)
        .await;
    program.terminate().await;
    flood.abort();
    let status = place.lines(&["status", "--json"]).await.remove(0);
    let status: Status = serde_json::from_value(status).expect("a status");
    assert!(status.books.balance(), "{:?}", status.books);
}

/// Opens a socket on port 53 that never responds, or returns `None` if this user isn't allowed to
/// open that port or a mount namespace.
async fn silent_name_server() -> Option<UdpSocket> {
    let socket = match UdpSocket::bind("127.0.0.77:53").await {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return None,
        bound => bound.expect("a free port"),
    };
    let unshare = Command::new("unshare").args(["-m", "true"]).output();
    let namespace = unshare.expect("cannot start unshare; install util-linux");
    namespace.status.success().then_some(socket)
}

#[tokio::test]
async fn sigterm_during_unanswered_dns_lookup_stops_in_time() {
    let Some(dns) = silent_name_server().await else {
        // This is written directly to stderr, because the test harness hides the output of passing
        // tests.
        let test = "sigterm_during_unanswered_dns_lookup_stops_in_time";
        let line = format!("\nnot run: {test} (needs root and mount namespaces)\n");
        let mut out = std::io::stderr();
        return std::io::Write::write_all(&mut out, line.as_bytes()).expect("stderr");
    };
    let place = Place::new();
    let conf = place.write(
        "resolv.conf",
        "nameserver 127.0.0.77\noptions timeout:30 attempts:3\n",
    );
    place.append("recorded", &recordings::one("inbound_answered").ami);
    let source = place.file("recorded", "ami");
    let arguments = place.arguments("https://crm.example.uz", &[&source, TRUNKS[0]]);
    let script = format!("mount --bind {conf} /etc/resolv.conf && exec \"$@\"");
    let path = std::env::var("PATH").expect("a path");
    let wrapper = ["unshare", "-m", "sh", "-c", &script, "sh"];
    let mut program = place.start_under(&wrapper, &arguments, &[("PATH", &path)]);
    let mut question = [0; 512];
    soon("a question", dns.recv(&mut question))
        .await
        .expect("a question");
    // The first request may not be the call's submission, in which case the submission may end
    // after the pause has started.
    let status = program
        .until("an unreachable CRM with a call", |current| {
            let pause = current.pause.as_ref();
            pause.is_some_and(|pause| pause.reason == "unreachable") && current.books.ready == 1
        })
        .await;
    let fix = status.pause.expect("a pause").fix;
    let cause = "crm.example.uz:443 does not answer, or its name cannot be looked up in DNS";
    assert!(fix.contains(cause), "{fix}");
    assert_eq!((status.books.ready, status.books.dead), (1, 0));
    program.terminate().await;
}

#[tokio::test]
async fn hanging_disk_stops_watchdog_pings_but_not_shutdown() {
    let (place, crm) = (Place::new(), crm::start().await);
    let (library, hangs) = (preload(&place, "hang.c"), place.path("hangs"));
    let notify = place.path("notify");
    let socket = UnixDatagram::bind(&notify).expect("a socket");
    place.append("recorded", &recordings::one("inbound_answered").ami);
    let source = place.file("recorded", "ami");
    let arguments = place.arguments(&crm.url(), &[&source, TRUNKS[0], RATE_FLAG]);
    let variables = [
        ("LD_PRELOAD", library.as_str()),
        ("TEST_HANG", hangs.as_str()),
        ("NOTIFY_SOCKET", notify.as_str()),
        ("WATCHDOG_USEC", "100000"),
    ];
    let mut program = place.start(&arguments, &variables);
    program.settled(1).await;
    place.write("hangs", "");
    place.append("recorded", &recordings::one("outbound_answered").ami);
    // The watchdog isn't pinged, so systemd doesn't receive anything for ten times the watchdog's
    // interval.
    let silence = async {
        let (mut bytes, quiet) = ([0; 4096], Duration::from_secs(1));
        while let Ok(received) = tokio::time::timeout(quiet, socket.recv(&mut bytes)).await {
            received.expect("a message");
        }
    };
    soon("the last ping of the watchdog", silence).await;
    program.signal(Signal::TERM);
    let exit_status = program.ended().await;
    assert!(exit_status.success(), "{exit_status}");
    assert!(
        place.logs().contains("the disk does not respond"),
        "{}",
        place.logs()
    );

    std::fs::remove_file(&hangs).expect("removed");
    let flags = [&source, TRUNKS[0], RATE_FLAG, "--until-idle"];
    place.run(&crm.url(), &flags).expect_success().await;
    let calls = ["inbound_answered", "outbound_answered"].map(recordings::one);
    crm::judge(&crm, &place.letters().await, &recordings::expected(&calls));
}

#[tokio::test]
async fn sigterm_terminates_a_command_that_only_reads() {
    let place = Place::new();
    let fifo = place.at("fifo");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, mode, 0).expect("a fifo");
    let program = place.start(&["explain", "--format=ami", &place.path("fifo")], &[]);
    // The open for writing completes when the program opens the FIFO, after which the program waits
    // for input.
    let open = tokio::fs::OpenOptions::new();
    let writer = soon("a reader", async {
        open.clone().write(true).open(&fifo).await
    })
    .await;
    // This uses SIGTERM rather than SIGINT, because a shell makes its background jobs ignore
    // SIGINT.
    program.signal(Signal::TERM);
    let exit_status = program.ended().await;
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&exit_status),
        Some(15),
        "{exit_status}"
    );
    drop(writer);
}
