//! CPU time of single threads of this process.

use std::time::Duration;

/// Returns the CPU time of the threads whose names begin with one of `names`, in steps of 10 ms
/// (clock ticks).
pub fn cpu(names: &[&str]) -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
    let mut ticks = 0;
    for task in tasks.flatten() {
        let Ok(stat) = std::fs::read_to_string(task.path().join("stat")) else {
            continue;
        };
        let (before, after) = stat.rsplit_once(')').expect("a name");
        let name = before.split_once('(').expect("a name").1;
        if names.iter().any(|known| name.starts_with(known)) {
            let fields: Vec<&str> = after.split_whitespace().collect();
            ticks +=
                fields[11].parse::<u64>().expect("user") + fields[12].parse::<u64>().expect("sys");
        }
    }
    Duration::from_millis(10 * ticks)
}
