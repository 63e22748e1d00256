//! When this state began to read each stream of calls. What ended before that may have been sent by
//! a state that is gone, and is looked for before it is sent.

use super::settings::SourceSettings;
use callbridge_call::EventTime;
use callbridge_model::clock;
use callbridge_spool::{Error, Handle, STREAM_BEGAN, tables};
use std::collections::BTreeMap;

/// The moments, by `SourceSettings::shown`; of a stream that is seen for the first time it is now.
/// One that an older version has read has none: all that it holds was sent from here.
///
/// # Errors
/// When the spool cannot be read or written.
pub async fn began(
    sources: &[SourceSettings],
    spool: &Handle,
) -> Result<BTreeMap<String, EventTime>, Error> {
    let mut began = BTreeMap::new();
    let streams = sources.iter().filter(|it| it.is_stream_of_calls());
    for shown in streams.map(|it| it.shown.clone()) {
        let (key, place) = (format!("{STREAM_BEGAN}{shown}"), shown.clone());
        let position = spool.read(move |store| tables::resume::position(store, &place));
        let at = match (spool.meta(key.as_str()).await?, position.await?) {
            (Some(text), _) => text.parse().ok().map(EventTime::from_micros),
            (None, Some(_)) => None,
            (None, None) => {
                let now = clock::now().wall;
                spool.keep_meta(key, now.micros().to_string()).await?;
                Some(now)
            }
        };
        began.extend(at.map(|at| (shown, at)));
    }
    Ok(began)
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_source::SourceUrl;
    use callbridge_spool::{Op, Settings};

    fn sources() -> Vec<SourceSettings> {
        let urls = [
            "amqp://u@mq/v?stream=calls&format=call",
            "amqp://u@mq/v?queue=calls&format=call",
            "file:///calls.jsonl?format=call",
        ];
        let source = |url| {
            let url = SourceUrl::parse(url).unwrap_or_else(|faults| panic!("{faults:?}"));
            SourceSettings::new(&url, String::new(), false)
        };
        urls.map(source).into()
    }

    #[tokio::test]
    async fn a_stream_seen_for_the_first_time_begins_now_and_keeps_that() {
        let dir = tempfile::tempdir().expect("a folder");
        let opened = callbridge_spool::open(dir.path(), Settings::default());
        let (spool, _guard) = opened.expect("a spool");
        let first = began(&sources(), &spool).await.expect("read");
        assert_eq!(first.keys().collect::<Vec<_>>(), ["stream:v?calls"]);
        let again = began(&sources(), &spool).await.expect("read");
        assert_eq!(again, first);
    }

    #[tokio::test]
    async fn a_stream_that_an_older_version_has_read_was_sent_from_here() {
        let dir = tempfile::tempdir().expect("a folder");
        let opened = callbridge_spool::open(dir.path(), Settings::default());
        let (spool, _guard) = opened.expect("a spool");
        let read = Op::Position {
            source: "stream:v?calls".to_owned(),
            position: serde_json::json!({"stream": "calls", "offset": 7}),
        };
        spool.write(vec![read]).await.expect("stored");
        let moments = began(&sources(), &spool).await.expect("read");
        assert!(moments.is_empty(), "{moments:?}");
    }
}
