//! Tests of `--source` URLs, as the page about the command line describes them.

use callbridge_call::EventTime;
use callbridge_source::url::{Format, From, UrlDate};
use callbridge_source::{BrokerUrl, SourceUrl, Transport};

fn faults(text: &str) -> String {
    let faults = SourceUrl::parse(text).expect_err("an invalid URL");
    let lines: Vec<_> = faults.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

fn source(text: &str) -> SourceUrl {
    SourceUrl::parse(text).unwrap_or_else(|faults| panic!("{text}: {faults:?}"))
}

#[test]
fn ami_url_has_default_ports_and_requires_a_user() {
    let Transport::Ami { endpoint, user } = source("ami://bridge@pbx.example?pbx=hq").transport
    else {
        panic!("another transport");
    };
    assert_eq!(
        (endpoint.to_string(), endpoint.tls),
        ("pbx.example:5038".into(), false)
    );
    assert_eq!(user, "bridge");
    let Transport::Ami { endpoint, .. } = source("amis://b@[::1]/").transport else {
        panic!("another transport");
    };
    assert_eq!(
        (endpoint.host.as_str(), endpoint.port, endpoint.tls),
        ("::1", 5039, true)
    );
    insta::assert_snapshot!(
        faults("ami://pbx/x"),
        @r"
    ami://pbx/x: the path has no meaning here; end the URL after HOST:PORT
    ami://pbx/x: the user is missing; write ami://USER@HOST
    "
    );
}

#[test]
fn password_in_the_url_is_refused_and_never_shown() {
    for url in [
        "ami://bridge:hunter2@pbx",
        "amqp://bridge:hunter2@mq/?queue=q&format=asterisk-cel",
        "ws://u:hunter2@pbx/",
        "ami://bridge:hunt/er2@pbx:99999",
    ] {
        let said = faults(url);
        assert!(!said.contains("er2"), "{said}");
    }
    let said = faults("ami://bridge:hunter2@pbx");
    assert!(said.starts_with("ami://bridge:***@pbx: a password in the URL can be read by"));
    assert!(said.ends_with("remove it and give secret-file=PATH or CALLBRIDGE_AMI_SECRET"));
}

#[test]
fn url_errors_are_reported_together() {
    let url = "amqp://h/?format=cel&heartbeat=600&color=red&bind=k";
    let known = "amqp:// takes queue=, format=, exchange=, bind=, declare=, heartbeat=, \
                 pbx=, secret-file=, ca-file=";
    insta::assert_snapshot!(
        faults(url).replace(url, "URL").replace(known, "KNOWN"),
        @r"
    URL: unknown key color=; KNOWN
    URL: heartbeat=600 is invalid; give 2 to 25 (seconds), to notice a dead connection in a minute
    URL: the user is missing; write amqp://USER@HOST
    URL: queue= is missing; name the durable queue: queue=NAME
    URL: format=cel is invalid; give asterisk-cel, asterisk-cdr, wazo, freeswitch or call
    URL: exchange= is missing; name the exchange that bind= binds to, or remove bind=
    "
    );
}

#[test]
fn broker_url_with_several_hosts_is_read() {
    let url = "amqps://u@mq1,mq2:5673,[2001:db8::1]/v?queue=calls&format=call";
    let read = source(url);
    let Transport::Amqp(queue) = &read.transport else {
        panic!("another transport");
    };
    assert_eq!(read.format(), Format::Call);
    let nodes = std::iter::once(&queue.broker.endpoint).chain(&queue.broker.others);
    let nodes: Vec<String> = nodes.map(ToString::to_string).collect();
    assert_eq!(nodes, ["mq1:5671", "mq2:5673", "[2001:db8::1]:5671"]);
    assert!(queue.broker.others.iter().all(|node| node.tls));
    assert_eq!(read.to_string(), url);
    for (wrong, wants) in [
        ("amqp://u@a,/v?queue=q&format=wazo", "a host is missing"),
        ("amqp://u@a,b:x/v?queue=q&format=wazo", "a host is missing"),
        ("amqp://u@a?queue=q&stream=s&format=call", "stream"),
        ("amqp://u@a?queue=q&format=call&pbx=x", "names its own PBX"),
        ("file:///calls?format=call&pbx=x", "names its own PBX"),
    ] {
        let errors = faults(wrong);
        assert!(errors.contains(wants), "{wrong}: {errors}");
    }
}

#[test]
fn amqp_bind_requires_exchange_which_requires_declare() {
    let own = "amqp://u@h/v?queue=q&format=asterisk-cel&exchange=e&bind=name=CEL";
    assert!(faults(own).contains("declare=yes is missing"));
    let bind_only = "amqp://u@h/v?queue=q&format=asterisk-cel&bind=name=CEL&declare=yes";
    assert!(faults(bind_only).contains("exchange= is missing"));
    let Transport::Amqp(queue) = source(&format!("{own}&declare=yes")).transport else {
        panic!("another transport");
    };
    assert!(queue.declare);
    assert_eq!(queue.exchange.as_deref(), Some("e"));
    assert_eq!(queue.bind.as_deref(), Some("name=CEL"));
}

#[test]
fn virtual_host_is_decoded_and_defaults_to_a_slash() {
    for (path, vhost) in [("", "/"), ("/", "/"), ("/%2F", "/"), ("/pbx", "pbx")] {
        let url = format!("amqps://u%40x@h{path}?queue=a%2Fb+c&format=asterisk-cdr");
        let Transport::Amqp(queue) = source(&url).transport else {
            panic!("another transport");
        };
        assert_eq!(queue.broker.vhost, vhost);
        assert_eq!(queue.broker.user, "u@x");
        assert_eq!(queue.queue, "a/b+c");
        assert_eq!(queue.broker.endpoint.port, 5671);
    }
}

/// Returns the position from which callbridge reads the file.
fn start_position(url: &str) -> From {
    match source(url).transport {
        Transport::File { from, .. } => from,
        other => panic!("{other:?}"),
    }
}

#[test]
fn file_is_read_from_its_end_by_default() {
    assert_eq!(start_position("file:///a?format=ami"), From::End);
    let start = start_position("file:///a?format=cel-csv&from=start");
    assert_eq!(start, From::Start);
    let absolute = start_position("file:///a?format=ami&from=2026-11-20T08:00:00%2B05:00");
    let expected = EventTime::from_seconds(1_795_143_600);
    assert_eq!(absolute, From::Since(UrlDate::Absolute(expected)));
    let From::Since(local) = start_position("file:///a?format=ami-json&from=2026-11-20") else {
        panic!("a date");
    };
    assert_eq!(
        local
            .event_time(&jiff::tz::TimeZone::fixed(jiff::tz::offset(5)))
            .micros(),
        (1_795_143_600 - 8 * 3600) * 1_000_000
    );
    assert!(faults("file:///a?format=ami&from=soon").contains("from=soon is invalid"));
    assert!(faults("file://etc/a?format=ami").contains("three slashes"));
    assert!(faults("file:///a").contains("format= is missing"));
}

#[test]
fn source_key_does_not_depend_on_where_reading_begins() {
    let a = source("file:///var/cel.csv?format=cel-csv&from=start");
    let b = source("file:///var/cel.csv?format=cel-csv");
    assert_eq!(a.key(), b.key());
    assert_eq!(a.format(), Format::CelCsv);
    assert_eq!(
        a.to_string(),
        "file:///var/cel.csv?format=cel-csv&from=start"
    );
}

#[test]
fn dead_letter_queue_url_is_a_broker_url_with_a_queue() {
    let queue = BrokerUrl::queue("amqp://u@h/%2F?queue=dead&secret-file=/s").expect("good");
    assert_eq!(
        (queue.name.as_str(), queue.broker.vhost.as_str()),
        ("dead", "/")
    );
    assert!(!queue.waiting);
    let all = BrokerUrl::queue("amqp://u@h/?queue=dead&waiting=yes").expect("good");
    assert!(all.waiting);
    let faults = BrokerUrl::queue("http://h").expect_err("no broker");
    insta::assert_snapshot!(
        faults[0],
        @"http://h: unknown scheme http; give one of amqp://, amqps://"
    );
}

#[test]
fn duplicate_key_or_key_without_a_value_is_an_error() {
    let said = faults("ws://h/?pbx=a&pbx=b&ca-file=");
    assert!(said.contains("pbx= is given twice"), "{said}");
    assert!(said.contains("write ca-file=VALUE"), "{said}");
}

#[test]
fn public_url_omits_the_secret_file() {
    for (given, seen) in [
        ("ami://a@pbx?secret-file=/s", "ami://a@pbx"),
        ("ami://a@pbx?pbx=b&secret-file=/s", "ami://a@pbx?pbx=b"),
        ("ami://a@pbx?secret%2Dfile=/s&pbx=b", "ami://a@pbx?pbx=b"),
        (
            "amqp://a@mq/v?queue=q&secret-file=/s&format=wazo",
            "amqp://a@mq/v?queue=q&format=wazo",
        ),
        ("ws://gateway:8000/x", "ws://gateway:8000/x"),
    ] {
        let url = source(given);
        assert_eq!(url.public(), seen);
        // The name under which positions and gaps are stored is the original URL.
        assert_eq!(url.to_string(), given);
    }
}

fn is_clear(url: &str) -> bool {
    source(url)
        .endpoint()
        .is_some_and(|endpoint| endpoint.is_clear())
}

#[test]
fn loopback_tls_and_file_urls_are_not_clear_text() {
    for here in [
        "ami://a@127.0.0.1",
        "ami://a@127.8.8.8",
        "ami://a@localhost",
        "ami://a@LOCALHOST",
        "ami://a@[::1]",
        "ami://a@[::ffff:127.0.0.1]",
        "amis://a@pbx.example",
        "file:///x?format=ami",
    ] {
        assert!(!is_clear(here), "{here}");
    }
    for there in [
        "ami://a@10.0.0.1",
        "ws://localhost.example/",
        "ami://a@[fe80::1]",
    ] {
        assert!(is_clear(there), "{there}");
    }
}
