//! Measures how long the database is unavailable, with sessions of `psql`. Each confirmed row must
//! be there at the end.

use crate::fault::Fault;
use callbridge_testbed::patroni::Cluster;
use std::cell::Cell;
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
        assert!(rows.has_all_rows(), "it works before the fault");
        let begun = Instant::now();
        fault.begin(&cluster, primary);
        while rows.store().is_none() {
            assert!(begun.elapsed() < 2 * BACK_WITHIN, "{}", cluster.logs());
        }
        let took = begun.elapsed();
        fault.end(&cluster, primary);
        cluster.is_whole().await;
        let healed = begun.elapsed();
        assert!(rows.has_all_rows(), "a confirmed row is lost");
        assert!(took < BACK_WITHIN, "{took:?}");
        println!(
            "{:16} back after {:5.1} s, whole after {:5.1} s; primary {primary}, then {}",
            fault.name(),
            took.as_secs_f64(),
            healed.as_secs_f64(),
            cluster.primary().expect("a primary"),
        );
    }
}

struct Rows<'c> {
    cluster: &'c Cluster,
    tried: Cell<u32>,
    confirmed: Cell<u32>,
}

impl<'c> Rows<'c> {
    fn start(cluster: &'c Cluster) -> Self {
        let rows = Self {
            cluster,
            tried: Cell::new(0),
            confirmed: Cell::new(0),
        };
        let made = cluster.session("CREATE TABLE callbridge.plain (n int)");
        made.expect("a table");
        rows
    }

    /// Stores a row in a new session. If it is confirmed, returns the number of rows. An old
    /// primary can show old rows, but confirms none.
    fn store(&self) -> Option<u32> {
        let next = self.tried.get() + 1;
        self.tried.set(next);
        let script = format!(
            "INSERT INTO callbridge.plain VALUES ({next});
             SELECT count(*) FROM callbridge.plain"
        );
        let rows = self.cluster.session(&script).ok()?;
        self.confirmed.set(self.confirmed.get() + 1);
        Some(rows.parse().expect("a number"))
    }

    /// Stores a row, and returns `true` if all confirmed rows are there.
    fn has_all_rows(&self) -> bool {
        let rows = self.store();
        rows.is_some_and(|rows| rows >= self.confirmed.get())
    }
}
