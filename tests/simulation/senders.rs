//! Several senders of one token around one CRM: each has a disk, a memory and requests of its own.
//!
//! One of them goes on at a time, as the world's own; the others wait beside it. What they have
//! under way arrives and is answered all the same.

use crate::disk::Disk;
use crate::world::World;
use callbridge_call::EventTime;
use callbridge_sender::core::Core;
use callbridge_sender::plan::Known;
use callbridge_spool::Op;
use std::collections::VecDeque;
use std::mem::{swap, take};
use std::time::Duration;

/// Whose turn it is to send, where others could: as the sender's shell has it.
#[derive(Clone, Copy, Debug)]
pub struct SimTurn {
    /// Until then requests may leave.
    pub until: Option<EventTime>,
    /// Another may have sent since it was last our turn.
    pub elsewhere: bool,
}

impl SimTurn {
    /// Of a process that has just begun.
    pub const BEGUN: Self = Self {
        until: None,
        elsewhere: true,
    };
}

/// A process that waits while another one goes on: what is its own.
pub struct WaitingSender {
    pub process: usize,
    disk: Disk,
    core: Core,
    secrets: Vec<String>,
    unwritten: VecDeque<Vec<Op>>,
    trouble: bool,
    lives: u32,
    turn: Option<SimTurn>,
}

impl World {
    /// The other goes on, and this one waits.
    pub fn switch(&mut self, other: &mut WaitingSender) {
        swap(&mut self.process, &mut other.process);
        swap(&mut self.disk, &mut other.disk);
        swap(&mut self.core, &mut other.core);
        swap(&mut self.secrets, &mut other.secrets);
        swap(&mut self.unwritten, &mut other.unwritten);
        swap(&mut self.trouble, &mut other.trouble);
        swap(&mut self.lives, &mut other.lives);
        swap(&mut self.turn, &mut other.turn);
    }

    /// One more process, which has started on this disk of its own and waits.
    pub fn another(&mut self, process: usize, disk: Disk) -> WaitingSender {
        let (core, _) = Core::start(self.settings.clone(), Known::default(), self.now);
        let mut other = WaitingSender {
            process,
            disk,
            core,
            secrets: Vec::new(),
            unwritten: VecDeque::new(),
            trouble: false,
            lives: 0,
            turn: Some(SimTurn::BEGUN),
        };
        self.switch(&mut other);
        self.start();
        self.switch(&mut other);
        other
    }

    /// Requests may leave now.
    pub(crate) fn may_send(&self) -> bool {
        let until = self.turn.map(|turn| turn.until);
        until.is_none_or(|until| until.is_some_and(|until| self.truth < until))
    }

    /// It is not our turn: another may send from now on.
    pub(crate) fn anothers(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn.elsewhere = true;
        }
    }

    /// It is our turn: whether another may have sent before. That is said once for each turn.
    pub(crate) fn took_over(&mut self) -> bool {
        let turn = self.turn.as_mut();
        turn.is_some_and(|turn| take(&mut turn.elsewhere))
    }

    /// Judges and writes what came back, and sends nothing.
    pub fn on_event(&mut self) {
        self.land_all();
        self.write_all();
        self.anothers();
    }

    /// The process is killed now, and started again at once, where it is not to be down.
    pub fn strike_down(&mut self) {
        self.kill(Duration::ZERO, false);
    }
}
