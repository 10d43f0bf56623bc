//! One daemon, its clients and a link.

use std::collections::VecDeque;

use super::*;

/// A daemon whose clients send over one link, in steps of a millisecond.
pub(super) struct World {
    pub(super) site: Site,
    pub(super) controller: LiveCostBenefit,
    pub(super) now: Time,
    /// The rate of the link in messages per second, and the part of a message that it has sent.
    pub(super) capacity: f64,
    pub(super) carried: f64,
    pub(super) bytes: u32,
    pub(super) queue: usize,
    /// The maximum number of messages in the transport below the queue; 0 without a transport.
    pub(super) window: usize,
    /// The number of messages in the transport.
    pub(super) below: usize,
    pub(super) is_paused: bool,
    /// The delays that the transport has measured, with the times at which they become known.
    pub(super) measured: VecDeque<(Time, Duration)>,
    /// The time that the queue of other connections on the link takes.
    pub(super) others: Duration,
    /// The rate of each client in messages per second, and the messages that it has ready.
    pub(super) demands: Vec<f64>,
    pub(super) ready: Vec<f64>,
    pub(super) sent: Vec<u64>,
    /// When each client last sent, and the longest time between two of its messages.
    pub(super) last: Vec<Time>,
    pub(super) longest_gap: Vec<Duration>,
}

impl World {
    pub(super) fn new(capacity: f64, demands: Vec<f64>) -> World {
        let mut controller = LiveCostBenefit::default();
        for client in 0..demands.len() {
            controller.add_client(Time::ZERO, ClientId(client as u32), 1.0);
        }
        let count = demands.len();
        World {
            site: chain(),
            controller,
            now: Time::ZERO,
            capacity,
            carried: 0.0,
            bytes: 1000,
            queue: 0,
            window: 0,
            below: 0,
            is_paused: false,
            measured: VecDeque::new(),
            others: Duration::ZERO,
            demands,
            ready: vec![0.0; count],
            sent: vec![0; count],
            last: vec![Time::ZERO; count],
            longest_gap: vec![Duration::ZERO; count],
        }
    }

    /// Lets a client send while it may.
    pub(super) fn send(&mut self, client: usize) {
        while self.ready[client] >= 1.0 {
            let request = request(client as u32, 1, self.bytes);
            if !self.controller.try_admit(self.now, &request, &self.site) {
                return;
            }
            self.ready[client] -= 1.0;
            self.sent[client] += 1;
            let gap = self.now - self.last[client];
            self.longest_gap[client] = self.longest_gap[client].max(gap);
            self.last[client] = self.now;
            self.queue += 1;
            self.controller.on_queue(self.now, LINK, self.queue);
            self.hand_over();
        }
    }

    /// Hands messages to the transport.
    pub(super) fn hand_over(&mut self) {
        let count = self.queue.min(self.window.saturating_sub(self.below));
        if count > 0 {
            self.below += count;
            self.queue -= count;
            self.controller.on_queue(self.now, LINK, self.queue);
        }
    }

    /// Lets the link carry messages for a step, and the transport measure each 20 ms. A
    /// measurement is known 60 ms later.
    pub(super) fn carry(&mut self) {
        self.carried += self.capacity * STEP.as_secs_f64();
        let whole = self.carried as usize;
        self.carried -= self.carried.floor();
        if self.window == 0 {
            let leave = whole.min(self.queue);
            if leave > 0 {
                self.queue -= leave;
                self.controller.on_queue(self.now, LINK, self.queue);
            }
            return;
        }
        if self.is_paused {
            return;
        }
        self.below -= whole.min(self.below);
        self.hand_over();
        if (self.now - Time::ZERO).as_millis().is_multiple_of(20) {
            let waits = seconds(self.below as f64 / self.capacity) + self.others;
            let known = self.now + Duration::from_millis(60);
            self.measured.push_back((known, waits));
        }
        while let Some(&(known, waits)) = self.measured.front()
            && known <= self.now
        {
            self.measured.pop_front();
            self.controller.on_delay(self.now, LINK, waits);
        }
    }

    pub(super) fn step(&mut self) {
        self.now += STEP;
        self.carry();
        for client in 0..self.demands.len() {
            let most = self.capacity.max(1000.0);
            let ready = self.ready[client] + self.demands[client] * STEP.as_secs_f64();
            self.ready[client] = ready.min(most);
            self.send(client);
        }
        self.controller.handle_timeout(self.now, &self.site);
        while let Some(client) = self.controller.poll_ready() {
            self.send(client.0 as usize);
        }
        while self.controller.poll_control().is_some() {}
    }

    pub(super) fn run(&mut self, until: Time) {
        while self.now < until {
            self.step();
        }
    }

    /// Handles a change of the topology, after which no client has messages.
    pub(super) fn fall_silent(&mut self) {
        self.controller.on_topology(self.now, &self.site);
        self.demands.fill(0.0);
        self.ready.fill(0.0);
    }

    /// Begins to count.
    pub(super) fn mark(&mut self) {
        self.sent.fill(0);
        self.last.fill(self.now);
        self.longest_gap.fill(Duration::ZERO);
    }

    pub(super) fn delay_s(&self) -> f64 {
        (self.queue + self.below) as f64 / self.capacity
    }
}
