//! Tests that compare any order of consents, refreshes, revocations, disconnects, waits, and
//! restarts with a slow and obvious model.

use super::super::{NOW, restart_sandbox, sandbox};
use super::{
    CLIENT, ID, REVOKE_PATH, SECRET, application, approve, exchange, form, pair, refresh,
    token_info_status,
};
use crate::Sandbox;
use crate::oauth::connection;
use callbridge_call::EventTime;
use proptest::prelude::*;
use std::time::Duration;

#[derive(Clone, Debug)]
enum Step {
    Connect,
    Refresh(usize),
    RevokeRefresh(usize),
    RevokeAccess(usize),
    Disconnect,
    Suspend(bool),
    Block(bool),
    Wait(u64),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Connect),
        6 => (0..6_usize).prop_map(Step::Refresh),
        2 => (0..6_usize).prop_map(Step::RevokeRefresh),
        2 => (0..6_usize).prop_map(Step::RevokeAccess),
        1 => Just(Step::Disconnect),
        1 => any::<bool>().prop_map(Step::Suspend),
        1 => any::<bool>().prop_map(Step::Block),
        3 => (0..2_000_u64).prop_map(Step::Wait),
        1 => Just(Step::Wait(20 * 86_400)),
        1 => Just(Step::Restart),
    ]
}

/// An access token, its refresh token, and their state.
struct Pair {
    access: String,
    token: String,
    parent: Option<usize>,
    born: EventTime,
    used: bool,
    access_over: bool,
    token_over: bool,
}

#[derive(Default)]
struct Model {
    pairs: Vec<Pair>,
    suspended: bool,
    blocked: bool,
}

impl Model {
    fn add_pair(
        &mut self,
        now: EventTime,
        parent: Option<usize>,
        (access, token): (String, String),
    ) {
        self.pairs.push(Pair {
            access,
            token,
            parent,
            born: now,
            used: false,
            access_over: false,
            token_over: false,
        });
    }

    /// Returns `true` if the refresh token of the pair `nth` can be used.
    fn can_refresh(&self, now: EventTime, nth: usize) -> bool {
        let own = &self.pairs[nth];
        let young = now.since(own.born) < Duration::from_secs(30 * 86_400);
        young && !own.used && !own.token_over && !self.suspended && !self.blocked
    }

    /// Returns `true` if the access token of the pair `nth` is valid. Only whole seconds count, as
    /// in `expiresAt`.
    fn is_access_valid(&self, now: EventTime, nth: usize) -> bool {
        let own = &self.pairs[nth];
        let age = now.floor_seconds().get() - own.born.floor_seconds().get();
        age < 3_600 && !own.access_over && !self.blocked
    }

    /// Returns `true` if the pair `nth` is `ancestor`, or came from `ancestor` by refreshes.
    fn is_descendant(&self, mut nth: usize, ancestor: usize) -> bool {
        loop {
            if nth == ancestor {
                return true;
            }
            match self.pairs[nth].parent {
                Some(parent) => nth = parent,
                None => return false,
            }
        }
    }

    /// Returns the index of the pair that is `back` pairs before the newest. This way, most steps
    /// use new tokens, because old tokens no longer work.
    fn pair_from_end(&self, back: usize) -> usize {
        self.pairs.len() - 1 - back % self.pairs.len()
    }

    /// Revokes the pair `ancestor` and its descendants, unless the company is blocked.
    fn revoke_unless_blocked(&mut self, ancestor: usize) {
        if !self.blocked {
            self.revoke(ancestor);
        }
    }

    fn revoke(&mut self, ancestor: usize) {
        for nth in 0..self.pairs.len() {
            if self.is_descendant(nth, ancestor) {
                (self.pairs[nth].access_over, self.pairs[nth].token_over) = (true, true);
            }
        }
    }
}

struct World {
    core: Sandbox,
    now: EventTime,
    model: Model,
}

impl World {
    fn new() -> Self {
        let mut core = sandbox();
        connection::register(&mut core, application());
        Self {
            core,
            now: NOW,
            model: Model::default(),
        }
    }

    fn step(&mut self, step: &Step) {
        let now = self.now;
        let pairs = self.model.pairs.len();
        match *step {
            Step::Connect if self.model.suspended || self.model.blocked => {}
            Step::Connect => {
                let code = approve(&mut self.core, now);
                let tokens = pair(&self.core.handle(now, &exchange(&code)));
                self.model.add_pair(now, None, tokens);
            }
            Step::Refresh(back) if pairs > 0 => {
                let nth = self.model.pair_from_end(back);
                let answer = self
                    .core
                    .handle(now, &refresh(&self.model.pairs[nth].token));
                assert_eq!(
                    answer.status == 200,
                    self.model.can_refresh(now, nth),
                    "{nth}"
                );
                if answer.status == 200 {
                    self.model.pairs[nth].used = true;
                    self.model.add_pair(now, Some(nth), pair(&answer));
                }
            }
            Step::RevokeRefresh(back) if pairs > 0 => {
                let nth = self.model.pair_from_end(back);
                self.revoke(&self.model.pairs[nth].token.clone());
                self.model.revoke_unless_blocked(nth);
            }
            Step::RevokeAccess(back) if pairs > 0 => {
                let nth = self.model.pair_from_end(back);
                self.revoke(&self.model.pairs[nth].access.clone());
                self.model.pairs[nth].access_over |= !self.model.blocked;
            }
            Step::Refresh(_) | Step::RevokeRefresh(_) | Step::RevokeAccess(_) => {}
            Step::Disconnect => {
                connection::disconnect(&mut self.core, ID, 1);
                (0..pairs).for_each(|nth| self.model.revoke(nth));
            }
            Step::Suspend(suspended) => {
                let mut changed = application();
                changed.suspended = suspended;
                connection::register(&mut self.core, changed);
                self.model.suspended = suspended;
            }
            Step::Block(blocked) => {
                self.core.company(now, |own| own.blocked = blocked);
                self.model.blocked = blocked;
            }
            Step::Wait(seconds) => self.now = now.plus(Duration::from_secs(seconds)),
            Step::Restart => self.core = restart_sandbox(&self.core),
        }
    }

    fn revoke(&mut self, token: &str) {
        let fields = [
            ("token", token),
            ("client_id", CLIENT),
            ("client_secret", SECRET),
        ];
        let answer = self.core.handle(self.now, &form(REVOKE_PATH, &fields));
        assert_eq!(answer.status, if self.model.blocked { 401 } else { 200 });
    }

    fn check(&mut self) {
        for nth in 0..self.model.pairs.len() {
            let is_valid = self.model.is_access_valid(self.now, nth);
            // The request goes to a copy of the sandbox, because a check must not fill a window.
            let status = token_info_status(
                &mut self.core.clone(),
                self.now,
                &self.model.pairs[nth].access,
            );
            assert_eq!(status == 200, is_valid, "pair {nth}: {status}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn token_validity_follows_the_document_in_any_event_order(
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
            world.check();
        }
        let mut values: Vec<&String> = (world.model.pairs.iter())
            .flat_map(|pair| [&pair.access, &pair.token])
            .collect();
        let all = values.len();
        values.sort();
        values.dedup();
        prop_assert_eq!(values.len(), all, "no value is given out twice");
    }
}
