//! Runs Debian's Prometheus, which scrapes a program under test every second.

use callbridge_testbed::port::free_addr;
use callbridge_testbed::wait::until;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Stdio;
use tokio::process::{Child, Command};

/// The labels of a series, except those that name the target.
pub type Labels = BTreeMap<String, String>;
/// Values by their labels.
pub type Series = BTreeMap<Labels, f64>;

/// Labels that every scraped series has.
const TARGET_LABELS: [&str; 3] = ["__name__", "instance", "job"];

/// A running Prometheus. It ends with the test.
pub struct Prometheus {
    _child: Child,
    folder: tempfile::TempDir,
    http: reqwest::Client,
    base: String,
}

impl Prometheus {
    /// Starts to scrape this address with these rules.
    pub async fn start(target: SocketAddr, rules: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (addr, config) = (free_addr(), folder.path().join("prometheus.yml"));
        let text = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
             rule_files: [\"{rules}\"]\n\
             scrape_configs:\n\
             - job_name: callbridge\n  \
               static_configs: [{{targets: [\"{target}\"]}}]\n"
        );
        std::fs::write(&config, text).expect("written");
        let log = std::fs::File::create(folder.path().join("log")).expect("a file");
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().display()))
            .arg(format!("--web.listen-address={addr}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn();
        let child = child.expect("prometheus is missing: `tests/setup` installs it");
        // An error means that another test has already installed it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().build();
        let prometheus = Self {
            _child: child,
            folder,
            http: http.expect("a client"),
            base: format!("http://{addr}"),
        };
        until("Prometheus", async || prometheus.is_ready().await).await;
        prometheus
    }

    async fn is_ready(&self) -> bool {
        let response = self.http.get(format!("{}/-/ready", self.base)).send();
        response
            .await
            .is_ok_and(|response| response.status().is_success())
    }

    /// Returns the `data` of the answer.
    pub async fn ask(&self, path: &str, parameters: &[(&str, &str)]) -> Value {
        let mut url = reqwest::Url::parse(&format!("{}/api/v1/{path}", self.base)).expect("a URL");
        if !parameters.is_empty() {
            url.query_pairs_mut().extend_pairs(parameters);
        }
        let answer = self.http.get(url).send().await.expect("an answer");
        let mut body: Value = answer.json().await.expect("JSON");
        assert_eq!(
            body["status"],
            "success",
            "{path} {parameters:?}: {body}\n{}",
            std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
        );
        body["data"].take()
    }

    /// Returns the value of a query at this second.
    pub async fn value(&self, query: &str, at: i64) -> Series {
        let data = self.result(query, at).await;
        data.iter()
            .map(|series| (labels(series), number(&series["value"][1])))
            .collect()
    }

    /// Returns the first sample of each series of this name and the number of its samples.
    pub async fn first_samples(&self, name: &str, at: i64) -> BTreeMap<Labels, (f64, usize)> {
        let data = self.result(&format!("{name}[1h]"), at).await;
        let each = data.iter().map(|series| {
            let samples = series["values"].as_array().expect("samples");
            (labels(series), (number(&samples[0][1]), samples.len()))
        });
        each.collect()
    }

    async fn result(&self, query: &str, at: i64) -> Vec<Value> {
        let time = at.to_string();
        let parameters = [("query", query), ("time", &*time)];
        let data = self.ask("query", &parameters).await;
        data["result"].as_array().cloned().expect("a result")
    }
}

fn labels(series: &Value) -> Labels {
    let all = series["metric"].as_object().expect("labels").iter();
    let own = all.filter(|(name, _)| !TARGET_LABELS.contains(&name.as_str()));
    own.map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()))
        .collect()
}

fn number(value: &Value) -> f64 {
    value
        .as_str()
        .and_then(|text| text.parse().ok())
        .expect("a number")
}
