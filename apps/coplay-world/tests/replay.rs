//! An attacker that reaches the servers' port records their messages, and replays them to a server that was not running
//! then: the server rejects them.

use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::common::{RunningServer, free_port, start_server, state_field, wait_for, wait_until_healthy};
use zenoh::Wait as _;

/// Recorded message: its zenoh key and its payload.
type RecordedMessage = (String, Vec<u8>);

/// Attacker that connects to a server by zenoh, and records all messages of Coplay servers.
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
            config.insert_json5(key, &value).expect("the configuration is valid");
        }
        let session = zenoh::open(config).wait().expect("the session opens");
        let (sender, recorded) = channel();
        let listen = move |sample: zenoh::sample::Sample| {
            let _ = sender.send((sample.key_expr().as_str().to_owned(), sample.payload().to_bytes().into_owned()));
        };
        session.declare_subscriber("coplay/**").callback(listen).background().wait().expect("the subscription works");
        Self { session, recorded }
    }

    /// Waits up to 30 s for a message of a server.
    fn wait_for_message(&self) -> RecordedMessage {
        self.recorded.recv_timeout(Duration::from_secs(30)).expect("a server sends a message")
    }
}

#[test]
fn live_servers_verify_soon_and_replayed_messages_are_rejected() {
    let first = start_server(free_port(), free_port(), &[], &[]);
    wait_until_healthy(&first);
    let attacker = Eavesdropper::connect(&first);
    let mut recording = vec![attacker.wait_for_message()];
    let second = start_server(free_port(), free_port(), &[first.player_port], &[]);
    wait_for("the start of a server", || state_field(second.http_port, "mirrors").is_some());
    let started = Instant::now();
    wait_for("mutual verification", || {
        [&first, &second].iter().all(|server| state_field(server.http_port, "mirrors").as_deref() == Some("1"))
    });
    // Takes a fraction of a second, but other tests may keep the computer busy.
    assert!(started.elapsed() < Duration::from_secs(10), "it took {:?}", started.elapsed());
    std::thread::sleep(Duration::from_secs(2));
    recording.extend(attacker.recorded.try_iter());
    drop((first, second, attacker));
    assert!(recording.iter().any(|(key, _)| key.contains("/all/")), "only hellos were recorded");

    let late_joiner = start_server(free_port(), free_port(), &[], &[]);
    wait_until_healthy(&late_joiner);
    let attacker = Eavesdropper::connect(&late_joiner);
    attacker.wait_for_message();
    std::thread::sleep(Duration::from_millis(500));
    for (key, payload) in recording {
        attacker.session.put(key, payload).wait().expect("the message is sent");
        std::thread::sleep(Duration::from_millis(2));
        let mirrors = state_field(late_joiner.http_port, "mirrors");
        assert_eq!(mirrors.as_deref(), Some("0"), "a recorded server is accepted");
    }
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(state_field(late_joiner.http_port, "mirrors").as_deref(), Some("0"));
}
