//! Writes lines to stderr, without ever ending the program or delaying it for long.
//!
//! A separate thread writes the lines. A caller waits until its line is written, so the line
//! precedes later output, but no longer than [`HELD_UP_MAX`]. If the reader of a pipe has stopped,
//! lines wait in a queue of [`QUEUE_BYTES_MAX`] instead. Lines that find the queue full, and lines
//! that stderr refuses (its reader is gone, or its disk is full), are lost and counted. The first
//! line that can be written again reports their number.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{collections::VecDeque, io, os::fd::AsFd as _};
use tracing_subscriber::fmt::MakeWriter;

/// Maximum bytes of lines that wait for a stopped reader: about 300 lines, or what one kind of line
/// writes in half a minute.
pub(super) const QUEUE_BYTES_MAX: usize = 64 * 1024;
/// Longest time that a caller waits for its line to be written. After a slower line, no caller
/// waits until the queue is empty again. An AMI connection tolerates pauses of a tenth of a second.
const HELD_UP_MAX: Duration = Duration::from_millis(50);
/// Time at the program's end to wait for a reader that does not read.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);
/// Pause between two tries if stderr would block.
const TRY_AGAIN: Duration = Duration::from_millis(20);

/// Accepts lines from all threads. Clones share the thread that writes the lines.
#[derive(Clone)]
pub struct LogWriter(Arc<WriterQueue>);

struct WriterQueue {
    queue: Mutex<Queue>,
    filled: Condvar,
    emptied: Condvar,
    lost: AtomicU64,
}

#[derive(Default)]
struct Queue {
    lines: VecDeque<LogLine>,
    bytes: usize,
    /// Number of lines accepted so far (`taken`), and number of lines that were written or refused
    /// (`done`).
    taken: u64,
    done: u64,
    /// Number of lines that found the queue full since the last accepted line.
    turned_away: u64,
    /// Time since which the thread has been writing a line. `None` while it waits for a line.
    writing: Option<Instant>,
    /// A write took too long, and lines have been waiting since.
    stalled: bool,
}

struct LogLine {
    bytes: Vec<u8>,
    /// Lines that were dropped before this line.
    lost_before: u64,
}

impl LogWriter {
    /// Starts the thread that writes to `out`. `says` makes the line that reports a number of lost
    /// lines, with its line end.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub fn start(
        out: impl io::Write + Send + 'static,
        says: impl Fn(u64) -> String + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(WriterQueue {
            queue: Mutex::default(),
            filled: Condvar::new(),
            emptied: Condvar::new(),
            lost: AtomicU64::new(0),
        });
        let written = Arc::clone(&shared);
        let writer = std::thread::Builder::new().name("log".to_owned());
        writer.spawn(move || written.write(&mut Destination { out, torn: false }, says))?;
        Ok(Self(shared))
    }

    /// Writes a line, which includes its line end.
    pub fn say(&self, line: &[u8]) {
        let shared = &self.0;
        let mut queue = shared.lock();
        if queue.bytes > 0 && queue.bytes + line.len() > QUEUE_BYTES_MAX {
            queue.turned_away += 1;
            shared.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        queue.bytes += line.len();
        queue.taken += 1;
        let mine = queue.taken;
        let lost_before = std::mem::take(&mut queue.turned_away);
        let bytes = line.to_vec();
        queue.lines.push_back(LogLine { bytes, lost_before });
        shared.filled.notify_one();
        while queue.done < mine && !queue.stalled {
            let held_up = queue
                .writing
                .map_or(Duration::ZERO, |since| since.elapsed());
            match HELD_UP_MAX.checked_sub(held_up) {
                None => queue.stalled = true,
                Some(left) => queue = shared.wait(queue, left),
            }
        }
    }

    /// Waits until all lines so far are written. Gives up if one write takes longer than
    /// `patience`, or all of them take twice as long.
    pub fn flush(&self, patience: Duration) {
        let shared = &self.0;
        let mut queue = shared.lock();
        let begun = Instant::now();
        while queue.done < queue.taken {
            let stuck = queue
                .writing
                .map_or(Duration::ZERO, |since| since.elapsed());
            let spent = stuck.max(begun.elapsed() / 2);
            match patience.checked_sub(spent) {
                None => return,
                Some(left) => queue = shared.wait(queue, left),
            }
        }
    }

    /// Returns the number of lost lines since the start.
    pub fn lost_lines(&self) -> u64 {
        self.0.lost.load(Ordering::Relaxed)
    }
}

impl WriterQueue {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'q>(&self, queue: MutexGuard<'q, Queue>, time: Duration) -> MutexGuard<'q, Queue> {
        let waited = self.emptied.wait_timeout(queue, time);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits for the next line, or for dropped lines. Adds the number of lines lost before it to
    /// `unsaid`.
    fn next(&self, unsaid: &mut u64) -> Option<LogLine> {
        let mut queue = self.lock();
        while queue.lines.is_empty() && queue.turned_away == 0 {
            let filled = self.filled.wait(queue);
            queue = filled.unwrap_or_else(PoisonError::into_inner);
        }
        queue.writing = Some(Instant::now());
        match queue.lines.pop_front() {
            Some(line) => {
                *unsaid += line.lost_before;
                Some(line)
            }
            None => {
                *unsaid += std::mem::take(&mut queue.turned_away);
                None
            }
        }
    }

    fn write(&self, paper: &mut Destination<impl io::Write>, says: impl Fn(u64) -> String) {
        let mut unsaid = 0;
        loop {
            let line = self.next(&mut unsaid);
            if unsaid > 0 && paper.write(says(unsaid).as_bytes()) {
                unsaid = 0;
            }
            // Dropped lines are reported first. If that fails, this line is dropped as well.
            if let Some(line) = &line
                && (unsaid > 0 || !paper.write(&line.bytes))
            {
                unsaid += 1;
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
            self.done(line);
        }
    }

    fn done(&self, line: Option<LogLine>) {
        let mut queue = self.lock();
        queue.writing = None;
        if let Some(line) = line {
            queue.bytes -= line.bytes.len();
            queue.done += 1;
        }
        queue.stalled &= !queue.lines.is_empty();
        self.emptied.notify_all();
    }
}

/// The destination of lines. `torn` means that the last line was cut off.
struct Destination<W> {
    out: W,
    torn: bool,
}

impl<W: io::Write> Destination<W> {
    /// Writes a line, and returns `true` if all of it was accepted. After a line that was cut off,
    /// the next line starts on a new line.
    fn write(&mut self, line: &[u8]) -> bool {
        if self.torn {
            self.torn = self.push(b"\n") < 1;
        }
        if self.torn {
            return false;
        }
        let taken = self.push(line);
        self.torn = taken > 0 && taken < line.len();
        taken == line.len()
    }

    /// Writes until an error, and returns the number of accepted bytes.
    fn push(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while taken < bytes.len() {
            match self.out.write(&bytes[taken..]) {
                Ok(0) => break,
                Ok(more) => taken += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Another process has made our stderr nonblocking, and nothing signals when it is
                // ready.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::park_timeout(TRY_AGAIN);
                }
                Err(_) => break,
            }
        }
        taken
    }
}

/// The process's stderr without the standard library's lock. A reader that has stopped would hold
/// that lock forever.
pub(super) struct Stderr;

impl io::Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(io::stderr().as_fd(), bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl io::Write for &LogWriter {
    /// Writes one line, because events arrive as lines.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.say(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
