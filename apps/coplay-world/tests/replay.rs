//! A stranger who reaches the servers' player_port writes down what they say, and says it again to one that was not there.

mod common;

use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use common::{RunningServer, free_port, start_server, state_field, wait_for, wait_until_healthy};
use zenoh::Wait as _;

/// What servers say: where, and what.
type RecordedMessage = (String, Vec<u8>);

/// Somebody who reaches a server, and hears all that is said there.
struct Eavesdropper {
    session: zenoh::Session,
    recorded: Receiver<RecordedMessage>,
}

impl Eavesdropper {
    fn connect(server: &RunningServer) -> Self {
        let mut config = zenoh::Config::default();
        for (key, value) in [
            ("mode", "\"peer\"".to_owned()),
            ("scouting/multicast/enabled", "false".into()),
            ("listen/endpoints", "[\"tcp/127.0.0.1:0\"]".into()),
            ("connect/endpoints", format!("[\"tcp/127.0.0.1:{}\"]", server.player_port)),
        ] {
            config.insert_json5(key, &value).expect("zenoh can be like that");
        }
        let session = zenoh::open(config).wait().expect("there is a way");
        let (tell, hears) = channel();
        let listen = move |sample: zenoh::sample::Sample| {
            let _ = tell.send((sample.key_expr().as_str().to_owned(), sample.payload().to_bytes().into_owned()));
        };
        session.declare_subscriber("coplay/**").callback(listen).background().wait().expect("it hears");
        Self { session, recorded: hears }
    }

    /// Waits until a server is heard.
    fn wait_for_message(&self) -> RecordedMessage {
        self.recorded.recv_timeout(Duration::from_secs(30)).expect("a server is heard")
    }
}

#[test]
fn live_servers_verify_soon_and_replayed_messages_are_rejected() {
    let first = start_server(free_port(), free_port(), &[], &[]);
    wait_until_healthy(&first);
    let stranger = Eavesdropper::connect(&first);
    let mut record = vec![stranger.wait_for_message()];
    let second = start_server(free_port(), free_port(), &[first.player_port], &[]);
    wait_for("a server's start", || state_field(second.http_port, "mirrors").is_some());
    let started = Instant::now();
    wait_for("an acquaintance", || {
        [&first, &second].iter().all(|server| state_field(server.http_port, "mirrors").as_deref() == Some("1"))
    });
    // A fraction of a second; but other tests may keep the computer busy.
    assert!(started.elapsed() < Duration::from_secs(10), "it took {:?}", started.elapsed());
    std::thread::sleep(Duration::from_secs(2));
    record.extend(stranger.recorded.try_iter());
    drop((first, second, stranger));
    assert!(record.iter().any(|(key, _)| key.contains("/all/")), "there is more than greetings");

    let late = start_server(free_port(), free_port(), &[], &[]);
    wait_until_healthy(&late);
    let stranger = Eavesdropper::connect(&late);
    stranger.wait_for_message();
    std::thread::sleep(Duration::from_millis(500));
    for (key, payload) in record {
        stranger.session.put(key, payload).wait().expect("it is said");
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(state_field(late.http_port, "mirrors").as_deref(), Some("0"), "a ghost is believed in");
    }
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(state_field(late.http_port, "mirrors").as_deref(), Some("0"));
}
