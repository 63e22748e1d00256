use super::*;

fn faults(options: &FleetOptions) -> Vec<String> {
    match options.check(&Environment::default()) {
        Err(Error::Flags(faults)) => faults,
        Err(other) => panic!("{other}"),
        Ok(_) => Vec::new(),
    }
}

fn options(source: &str) -> FleetOptions {
    FleetOptions {
        source: Some(source.to_owned()),
        since: "3h".to_owned(),
        ..FleetOptions::default()
    }
}

const URL: &str = "amqps://sender@mq1,mq2/calls?stream=calls&secret-file=/run/secret";

#[test]
fn a_stream_and_a_senders_source_are_taken_as_they_stand() {
    for url in [URL.to_owned(), format!("{URL}&format=call")] {
        let checked = options(&url).check(&Environment::default());
        let (stream, since, _) = checked.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(stream.name(), "calls.words");
        assert_eq!(since, Duration::from_secs(3 * 3600));
    }
}

#[test]
fn every_fault_is_told_at_once_and_none_tells_a_secret() {
    let wrong = FleetOptions {
        source: Some("amqp://sender:hunter2@mq1/calls?queue=calls".to_owned()),
        since: "8d".to_owned(),
        watch: true,
        listen: Some("here".to_owned()),
        json: true,
    };
    let told = faults(&wrong).join("\n");
    for part in [
        "--source",
        "--since 8d",
        "--listen here",
        "--watch cannot be used with --json",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(!told.contains("hunter2"), "{told}");
    assert!(
        faults(&FleetOptions {
            since: "3h".to_owned(),
            ..FleetOptions::default()
        })[0]
            .starts_with("--source is missing")
    );
    let nowhere = options("amqp://sender@mq1/calls?stream=calls");
    assert!(faults(&nowhere)[0].contains("no secret: give secret-file=FILE"));
}

#[test]
fn times_are_those_that_the_stream_keeps() {
    let seconds = |text| duration(text).map(|it| it.as_secs());
    assert_eq!(seconds("45s"), Some(45));
    assert_eq!(seconds("30m"), Some(1_800));
    assert_eq!(seconds("7d"), Some(7 * 86_400));
    for wrong in [
        "",
        "3",
        "h",
        "8d",
        "0h",
        "-1h",
        "3H",
        "99999999999999999999d",
        "3й",
    ] {
        assert_eq!(seconds(wrong), None, "{wrong}");
    }
}
