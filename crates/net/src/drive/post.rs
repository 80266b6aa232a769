//! The transport with the mail on top of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};

use coplay::time::{Instant, TimeDelta};

use crate::clock;
use crate::key::PeerKey;
use crate::mail::Mail;
use crate::party::Message;
use crate::transport::{Incoming, Place, Transport};

/// Mail of this many peers is kept; of the rest the oldest is forgotten.
const MAX_MAILS: usize = 4_096;

/// What comes in, and mail out.
pub(super) struct Post {
    pub(super) transport: Arc<dyn Transport>,
    incoming: Receiver<Incoming>,
    mails: BTreeMap<PeerKey, Mail>,
}

impl Post {
    pub(super) fn new(transport: Arc<dyn Transport>, incoming: Receiver<Incoming>) -> Self {
        Self { transport, incoming, mails: BTreeMap::new() }
    }

    /// The next thing that comes before then.
    pub(super) fn wait(&self, until: Instant) -> Option<Incoming> {
        let left = (until - clock::now()).to_duration();
        match self.incoming.recv_timeout(left) {
            Ok(incoming) => Some(incoming),
            Err(RecvTimeoutError::Timeout) => None,
            // The transport is gone; there is nothing to wait for but the time.
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(left);
                None
            }
        }
    }

    pub(super) fn try_next(&self) -> Option<Incoming> {
        self.incoming.try_recv().ok()
    }

    /// Sends a message to a peer, for certain.
    pub(super) fn mail(&mut self, to: PeerKey, message: &Message) {
        if to == self.transport.key() {
            return;
        }
        // Who does not take its mail for so long that no more fits has other troubles.
        let _ = self.mail_of(to).send(&message.to_bytes());
    }

    fn mail_of(&mut self, peer: PeerKey) -> &mut Mail {
        if self.mails.len() >= MAX_MAILS && !self.mails.contains_key(&peer) {
            self.mails.pop_first();
        }
        self.mails.entry(peer).or_default()
    }

    /// Takes a datagram of mail; returns the messages that it completes.
    pub(super) fn take(&mut self, from: PeerKey, bytes: &[u8]) -> Vec<Message> {
        let mail = self.mail_of(from);
        mail.handle_datagram(bytes);
        let messages = std::iter::from_fn(|| mail.poll_message());
        messages.filter_map(|bytes| Message::from_bytes(&bytes)).collect()
    }

    /// Sends what mail is due.
    pub(super) fn flush(&mut self, now: Instant) {
        for (peer, mail) in &mut self.mails {
            while let Some(bytes) = mail.poll_transmit(now) {
                self.transport.send(peer, &bytes);
            }
        }
    }

    pub(super) fn timeout(&self) -> Option<Instant> {
        self.mails.values().filter_map(Mail::poll_timeout).min()
    }

    /// Whether everything that was mailed has arrived.
    pub(super) fn is_idle(&self) -> bool {
        self.mails.values().all(Mail::is_idle)
    }

    /// Sees that mail gets out before we are gone.
    pub(super) fn farewell(&mut self, patience: TimeDelta) {
        let until = clock::now() + patience;
        while !self.is_idle() && clock::now() < until {
            self.flush(clock::now());
            if let Some(Incoming::Datagram { from, bytes, .. }) = self.wait(clock::now() + TimeDelta::from_millis(20))
                && Mail::is_mail(&bytes)
            {
                self.take(from, &bytes);
            }
        }
    }

    /// Tries to reach a member at all of its places.
    pub(super) fn call(&self, places: &[Place], key: PeerKey) {
        if key != self.transport.key() && self.transport.place_of(&key).is_none() {
            places.iter().for_each(|place| self.transport.call(place, Some(key)));
        }
    }
}
