use super::*;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::sync::mpsc;

/// Maximum wait. If a test waits this long, the event will not happen.
const DEADLINE: Duration = Duration::from_secs(180);

fn loss_report(lost: u64) -> String {
    format!("{lost} lost\n")
}

/// A destination whose writes wait until the test lets them succeed or fail.
struct Gate {
    open: mpsc::Receiver<bool>,
    begun: mpsc::SyncSender<()>,
    taken: Arc<Mutex<Vec<u8>>>,
}

impl io::Write for Gate {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.begun.send(()).expect("the test waits for it");
        match self.open.recv() {
            Ok(true) => {
                self.taken.lock().expect("whole").extend_from_slice(bytes);
                Ok(bytes.len())
            }
            Ok(false) | Err(_) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A log whose reader the test controls.
struct Reader {
    log: LogWriter,
    outcomes: mpsc::SyncSender<bool>,
    begun: mpsc::Receiver<()>,
    taken: Arc<Mutex<Vec<u8>>>,
}

impl Reader {
    fn new() -> Self {
        let (outcomes, open) = mpsc::sync_channel(100);
        let (begins, begun) = mpsc::sync_channel(100);
        let taken = Arc::default();
        let gate = Gate {
            open,
            begun: begins,
            taken: Arc::clone(&taken),
        };
        Self {
            log: LogWriter::start(gate, loss_report).expect("a thread"),
            outcomes,
            begun,
            taken,
        }
    }

    /// Waits for the next write, and lets it succeed or fail.
    fn finish_write(&self, succeeds: bool) {
        self.begun.recv().expect("a write");
        self.outcomes
            .send(succeeds)
            .expect("the thread waits for it");
    }

    fn read(&self) -> String {
        String::from_utf8(self.taken.lock().expect("whole").clone()).expect("text")
    }
}

#[test]
fn line_is_written_as_soon_as_it_is_logged() {
    let (mut read, write) = io::pipe().expect("a pipe");
    let log = LogWriter::start(write, loss_report).expect("a thread");
    let mut buffer = [0; 6];
    for line in ["one..\n", "two..\n"] {
        (&log).write_all(line.as_bytes()).expect("accepted");
        read.read_exact(&mut buffer).expect("written");
        assert_eq!(buffer, *line.as_bytes());
    }
}

#[test]
fn closed_reader_loses_lines_but_blocks_nothing() {
    let (read, write) = io::pipe().expect("a pipe");
    let log = LogWriter::start(write, loss_report).expect("a thread");
    drop(read);
    for _ in 0..1_000 {
        log.say(b"a line\n");
    }
    log.flush(DEADLINE);
    assert_eq!(log.lost_lines(), 1_000);
}

#[test]
fn stopped_reader_blocks_no_writer_and_gets_loss_counts() {
    const LINES: u64 = 100_000;
    let (read, write) = io::pipe().expect("a pipe");
    let log = LogWriter::start(write, loss_report).expect("a thread");
    // The test checks that this loop ends although no one reads the pipe.
    for line in 0..LINES {
        log.say(format!("line {line}\n").as_bytes());
    }
    log.flush(Duration::ZERO);
    assert!(log.lost_lines() > 0);
    let mut lines = BufReader::new(read).lines().map(|line| line.expect("text"));
    let (mut next, mut missed) = (0, 0);
    while next < LINES {
        let line = lines.next().expect("a line");
        match line.strip_suffix(" lost") {
            Some(lost) => {
                let lost: u64 = lost.parse().expect("a count");
                (next, missed) = (next + lost, missed + lost);
            }
            None => {
                assert_eq!(line, format!("line {next}"));
                next += 1;
            }
        }
    }
    assert_eq!(missed, log.lost_lines());
}

#[test]
fn lost_lines_are_reported_when_writes_succeed_again() {
    let reader = Reader::new();
    // The write of the first line fails. The report about this loss precedes the second line. The
    // write of the report also fails, so the second line is lost, too.
    reader.log.say(b"one\n");
    reader.finish_write(false);
    reader.log.say(b"two\n");
    reader.finish_write(false);
    reader.log.say(b"three\n");
    reader.finish_write(true);
    reader.finish_write(true);
    reader.log.flush(DEADLINE);
    assert_eq!(reader.read(), "2 lost\nthree\n");
    assert_eq!(reader.log.lost_lines(), 2);
}

#[test]
fn partial_line_does_not_run_into_the_next_line() {
    struct Half(mpsc::SyncSender<Vec<u8>>, u32);
    impl io::Write for Half {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1 += 1;
            match self.1 {
                1 => {
                    self.0.send(bytes[..3].to_vec()).expect("read");
                    Ok(3)
                }
                2 => Err(io::ErrorKind::StorageFull.into()),
                _ => {
                    self.0.send(bytes.to_vec()).expect("read");
                    Ok(bytes.len())
                }
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let (send, receive) = mpsc::sync_channel(100);
    let log = LogWriter::start(Half(send, 0), loss_report).expect("a thread");
    log.say(b"a long line\n");
    log.say(b"another\n");
    log.flush(DEADLINE);
    let read: Vec<u8> = receive.try_iter().flatten().collect();
    let read = String::from_utf8(read).expect("text");
    assert_eq!(read, "a l\n1 lost\nanother\n");
}

#[test]
fn flush_writes_every_line_if_the_reader_reads() {
    let reader = Reader::new();
    for line in ["one\n", "two\n", "three\n"] {
        reader.log.say(line.as_bytes());
    }
    let log = reader.log.clone();
    let flushing = std::thread::spawn(move || log.flush(DEADLINE));
    for _ in 0..3 {
        reader.finish_write(true);
    }
    flushing.join().expect("it ends");
    assert_eq!(reader.read(), "one\ntwo\nthree\n");
}
