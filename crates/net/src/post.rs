//! The transport with the mail on top of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};

use coplay::time::{Instant, TimeDelta};

use crate::clock;
use crate::key::PeerKey;
use crate::mail::Mail;
use crate::party::{self, MAX_PLACES};
use crate::transport::{Incoming, Place, Transport};

/// Mail of this many peers is kept; of the rest who was silent for longest is forgotten.
const MAX_LINES: usize = 8_192;
/// Datagrams of mail sent at a time: a line of chat for thousands must not keep a frame waiting.
const MOST_AT_ONCE: usize = 64;
/// What was not acknowledged is looked after this often.
const LOOK_AFTER: TimeDelta = TimeDelta::from_millis(20);
/// Mail with who is silent for so long is forgotten; whoever comes back begins anew.
const FORGET: TimeDelta = TimeDelta::from_secs(60);
const FORGET_EVERY: TimeDelta = TimeDelta::from_secs(1);

/// What can be mailed.
pub(crate) trait Letter: Sized {
    /// As bytes.
    fn to_bytes(&self) -> Vec<u8>;

    /// From bytes of somebody else's; `None` if they make no sense.
    fn from_bytes(bytes: &[u8]) -> Option<Self>;
}

impl Letter for party::Message {
    fn to_bytes(&self) -> Vec<u8> {
        self.to_bytes()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Self::from_bytes(bytes)
    }
}

/// What comes in, and mail out. What it does does not depend on how many peers there are to whom nothing is to be said.
pub(crate) struct Post {
    pub(crate) transport: Arc<dyn Transport>,
    incoming: Receiver<Incoming>,
    lines: BTreeMap<PeerKey, Line>,
    /// Those who have something to be sent now.
    fresh: VecDeque<PeerKey>,
    /// Those who may have to be sent something again.
    waiting: BTreeSet<PeerKey>,
    next_look: Instant,
    next_forget: Instant,
}

/// The mail with one peer.
#[derive(Default)]
struct Line {
    mail: Mail,
    heard: Instant,
    is_fresh: bool,
}

impl Post {
    pub(crate) fn new(transport: Arc<dyn Transport>, incoming: Receiver<Incoming>) -> Self {
        Self {
            transport,
            incoming,
            lines: BTreeMap::new(),
            fresh: VecDeque::new(),
            waiting: BTreeSet::new(),
            next_look: Instant::ZERO,
            next_forget: Instant::ZERO,
        }
    }

    /// The next thing that comes before then.
    pub(crate) fn wait(&self, until: Instant) -> Option<Incoming> {
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

    pub(crate) fn try_next(&self) -> Option<Incoming> {
        self.incoming.try_recv().ok()
    }

    /// Sends a message to a peer, for certain.
    pub(crate) fn mail(&mut self, to: PeerKey, message: &impl Letter) {
        self.mail_all([to], message);
    }

    /// Sends one message to many peers.
    pub(crate) fn mail_all(&mut self, to: impl IntoIterator<Item = PeerKey>, message: &impl Letter) {
        let bytes = message.to_bytes();
        let own = self.transport.key();
        for peer in to.into_iter().filter(|peer| *peer != own) {
            // Who does not take its mail for so long that no more fits has other troubles.
            let _ = self.line(peer).mail.send(&bytes);
            self.note_fresh(peer);
        }
    }

    fn line(&mut self, peer: PeerKey) -> &mut Line {
        if self.lines.len() >= MAX_LINES && !self.lines.contains_key(&peer) {
            let stalest = self.lines.iter().min_by_key(|(_, line)| (!line.mail.is_idle(), line.heard));
            if let Some(stalest) = stalest.map(|(peer, _)| *peer) {
                self.lines.remove(&stalest);
            }
        }
        self.lines.entry(peer).or_insert_with(|| Line { heard: clock::now(), ..Line::default() })
    }

    fn note_fresh(&mut self, peer: PeerKey) {
        if let Some(line) = self.lines.get_mut(&peer)
            && !std::mem::replace(&mut line.is_fresh, true)
        {
            self.fresh.push_back(peer);
        }
    }

    /// Takes a datagram of mail; returns the messages that it completes.
    pub(crate) fn take<L: Letter>(&mut self, from: PeerKey, bytes: &[u8]) -> Vec<L> {
        let messages = self.hear(from, bytes);
        messages.into_iter().filter_map(|bytes| L::from_bytes(&bytes)).collect()
    }

    fn hear(&mut self, from: PeerKey, bytes: &[u8]) -> Vec<Vec<u8>> {
        let line = self.line(from);
        line.heard = clock::now();
        line.mail.handle_datagram(bytes);
        let messages = std::iter::from_fn(|| line.mail.poll_message()).collect();
        self.note_fresh(from);
        messages
    }

    /// Sends what mail is due, a little at a time.
    pub(crate) fn flush(&mut self, now: Instant) {
        if now >= self.next_look {
            self.next_look = now + LOOK_AFTER;
            self.look_after(now);
        }
        let mut left = MOST_AT_ONCE;
        while left > 0
            && let Some(peer) = self.fresh.pop_front()
        {
            let Some(line) = self.lines.get_mut(&peer) else { continue };
            line.is_fresh = false;
            while left > 0
                && let Some(bytes) = line.mail.poll_transmit(now)
            {
                self.transport.send(&peer, &bytes);
                left -= 1;
            }
            match line.mail.poll_timeout() {
                Some(_) if left == 0 => self.note_fresh(peer),
                Some(_) => _ = self.waiting.insert(peer),
                None => _ = self.waiting.remove(&peer),
            }
        }
    }

    /// What was sent and not acknowledged may have to be sent again.
    fn look_after(&mut self, now: Instant) {
        let lines = &mut self.lines;
        let fresh = &mut self.fresh;
        self.waiting.retain(|peer| {
            let Some(line) = lines.get_mut(peer) else { return false };
            let due = line.mail.poll_timeout().is_some_and(|due| due <= now);
            if due && !std::mem::replace(&mut line.is_fresh, true) {
                fresh.push_back(*peer);
            }
            !line.mail.is_idle()
        });
    }

    /// When there is mail to be sent at the latest.
    pub(crate) fn timeout(&self) -> Option<Instant> {
        let next = (!self.waiting.is_empty()).then_some(self.next_look);
        if self.fresh.is_empty() { next } else { Some(Instant::ZERO) }
    }

    /// Forgets those of whom nothing was heard for long, but for some.
    pub(crate) fn forget(&mut self, now: Instant, but: impl Fn(&PeerKey) -> bool) {
        if now >= self.next_forget {
            self.next_forget = now + FORGET_EVERY;
            self.lines.retain(|peer, line| now - line.heard < FORGET || but(peer));
        }
    }

    /// Whether everything that was mailed has arrived.
    pub(crate) fn is_idle(&self) -> bool {
        self.lines.values().all(|line| line.mail.is_idle())
    }

    /// Sees that mail gets out before we are gone.
    pub(crate) fn farewell(&mut self, patience: TimeDelta) {
        let until = clock::now() + patience;
        while !self.is_idle() && clock::now() < until {
            self.flush(clock::now());
            if let Some(Incoming::Datagram { from, bytes, .. }) = self.wait(clock::now() + TimeDelta::from_millis(20))
                && Mail::is_mail(&bytes)
            {
                self.hear(from, &bytes);
            }
        }
    }

    /// Where others can be told to look for us.
    pub(crate) fn own_places(&self) -> Vec<Place> {
        let mut places = self.transport.own_places();
        places.truncate(MAX_PLACES);
        places
    }

    /// Tries to reach a member at all of its places.
    pub(crate) fn call(&self, places: &[Place], key: PeerKey) {
        if key != self.transport.key() && self.transport.place_of(&key).is_none() {
            places.iter().for_each(|place| self.transport.call(place, Some(key)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::sync_channel;

    use super::*;
    use crate::party::Message;
    use crate::transport::Refused;

    /// A network in which everything that is sent is noted, and nothing comes back.
    #[derive(Default)]
    struct Void(Mutex<Vec<PeerKey>>);

    impl Transport for Void {
        fn key(&self) -> PeerKey {
            PeerKey([0; 32])
        }

        fn send(&self, to: &PeerKey, _: &[u8]) -> bool {
            self.0.lock().unwrap().push(*to);
            true
        }

        fn call(&self, _: &Place, _: Option<PeerKey>) {}

        fn hang_up(&self, _: &PeerKey) {}

        fn place_of(&self, _: &PeerKey) -> Option<Place> {
            None
        }

        fn own_places(&self) -> Vec<Place> {
            vec![]
        }

        fn refused(&self) -> Refused {
            Refused::default()
        }
    }

    fn key(number: usize) -> PeerKey {
        let mut key = [1; 32];
        key[..8].copy_from_slice(&number.to_be_bytes());
        PeerKey(key)
    }

    fn post() -> (Arc<Void>, Post) {
        let void = Arc::new(Void::default());
        (void.clone(), Post::new(void, sync_channel(1).1))
    }

    #[test]
    fn a_message_to_thousands_leaves_a_little_at_a_time_and_everybody_gets_it() {
        let (void, mut post) = post();
        post.mail_all((0..1_000).map(key), &Message::Bye);
        let now = clock::now();
        post.flush(now);
        assert_eq!(void.0.lock().unwrap().len(), MOST_AT_ONCE);
        assert_eq!(post.timeout(), Some(Instant::ZERO), "there is more");
        (0..1_000 / MOST_AT_ONCE).for_each(|_| post.flush(now));
        let told: BTreeSet<PeerKey> = void.0.lock().unwrap().drain(..).collect();
        assert_eq!(told.len(), 1_000);
        assert!(post.timeout().is_some_and(|due| due > now), "nothing more for now");
        // Nobody acknowledges it: it is sent again, and after a while less often, and in the end no more.
        let later = |millis| now + TimeDelta::from_millis(millis);
        (21..40).for_each(|tenth| post.flush(later(tenth * 10)));
        assert_eq!(void.0.lock().unwrap().drain(..).collect::<BTreeSet<_>>().len(), 1_000);
        post.forget(now + FORGET + FORGET, |peer| *peer == key(7));
        post.flush(now + FORGET + FORGET);
        assert_eq!(void.0.lock().unwrap().drain(..).collect::<Vec<_>>(), [key(7)]);
        assert_eq!((post.lines.len(), post.waiting.len()), (1, 1));
    }

    #[test]
    fn who_has_nothing_to_be_told_costs_nothing() {
        let (void, mut post) = post();
        let mut other = Mail::new();
        other.send(&Message::Bye.to_bytes()).unwrap();
        let bytes = other.poll_transmit(clock::now()).unwrap();
        for number in 0..1_000 {
            assert_eq!(post.take::<Message>(key(number), &bytes), [Message::Bye]);
        }
        let now = clock::now();
        (0..20).for_each(|_| post.flush(now));
        assert_eq!(void.0.lock().unwrap().len(), 1_000, "one acknowledgement each");
        assert_eq!((post.timeout(), post.waiting.len(), post.fresh.len()), (None, 0, 0));
    }
}
