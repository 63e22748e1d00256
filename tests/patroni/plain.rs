//! How long the database is away, measured with sessions of `psql`. Each row that was confirmed must
//! be there at the end.

use crate::fault::Fault;
use callbridge_testbed::patroni::Cluster;
use std::time::{Duration, Instant};

/// The primary must be back within this time.
const BACK_WITHIN: Duration = Duration::from_secs(60);

/// Measures how long no row can be stored.
pub async fn measure(faults: &[Fault]) {
    let begun = Instant::now();
    let cluster = Cluster::start().await;
    println!("cluster: {:.0?}", begun.elapsed());
    let rows = Rows::start(&cluster);
    for fault in faults {
        let primary = cluster.primary().expect("a primary");
        let before = rows.stored();
        assert!(rows.store(), "it works before the fault");
        let begun = Instant::now();
        fault.begin(&cluster, primary);
        while !rows.store() {
            assert!(begun.elapsed() < 2 * BACK_WITHIN, "{}", cluster.logs());
        }
        let took = begun.elapsed();
        let after = cluster.primary();
        fault.end(&cluster, primary);
        cluster.is_whole().await;
        let healed = begun.elapsed();
        assert!(rows.stored() > before);
        println!(
            "{:16} back after {:5.1} s, whole after {:5.1} s; primary {primary} then {after:?}",
            fault.name(),
            took.as_secs_f64(),
            healed.as_secs_f64(),
        );
    }
}

struct Rows<'c> {
    cluster: &'c Cluster,
    confirmed: std::cell::Cell<u32>,
}

impl<'c> Rows<'c> {
    fn start(cluster: &'c Cluster) -> Self {
        let rows = Self {
            cluster,
            confirmed: std::cell::Cell::new(0),
        };
        let made = cluster.session("CREATE TABLE callbridge.plain (n int)");
        made.expect("a table");
        rows
    }

    /// Stores a row in a new session. Returns whether that was confirmed.
    fn store(&self) -> bool {
        let next = self.confirmed.get() + 1;
        let insert = format!("INSERT INTO callbridge.plain VALUES ({next})");
        let stored = self.cluster.session(&insert).is_ok();
        if stored {
            self.confirmed.set(next);
        }
        stored
    }

    /// Counts the rows. All that were confirmed must be there.
    fn stored(&self) -> u32 {
        let count = "SELECT count(DISTINCT n) FROM callbridge.plain";
        let count = self.cluster.session(count).expect("readable");
        let count: u32 = count.parse().expect("a number");
        assert!(count >= self.confirmed.get(), "a confirmed row is lost");
        count
    }
}
