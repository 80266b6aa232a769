//! A stranger who reaches the servers' port writes down what they say, and says it again to one that was not there.

mod common;

use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use common::{Running, field, free_port, start, wait_for, wait_until_healthy};
use zenoh::Wait as _;

/// What servers say: where, and what.
type Line = (String, Vec<u8>);

/// Somebody who reaches a server, and hears all that is said there.
struct Stranger {
    session: zenoh::Session,
    hears: Receiver<Line>,
}

impl Stranger {
    fn at(server: &Running) -> Self {
        let mut config = zenoh::Config::default();
        for (key, value) in [
            ("mode", "\"peer\"".to_owned()),
            ("scouting/multicast/enabled", "false".into()),
            ("listen/endpoints", "[\"tcp/127.0.0.1:0\"]".into()),
            ("connect/endpoints", format!("[\"tcp/127.0.0.1:{}\"]", server.port)),
        ] {
            config.insert_json5(key, &value).expect("zenoh can be like that");
        }
        let session = zenoh::open(config).wait().expect("there is a way");
        let (tell, hears) = channel();
        let listen = move |sample: zenoh::sample::Sample| {
            let _ = tell.send((sample.key_expr().as_str().to_owned(), sample.payload().to_bytes().into_owned()));
        };
        session.declare_subscriber("coplay/**").callback(listen).background().wait().expect("it hears");
        Self { session, hears }
    }

    /// Waits until a server is heard.
    fn wait(&self) -> Line {
        self.hears.recv_timeout(Duration::from_secs(30)).expect("a server is heard")
    }
}

#[test]
fn who_is_there_is_known_soon_and_a_recording_is_never_believed() {
    let first = start(free_port(), free_port(), &[], &[]);
    wait_until_healthy(&first);
    let stranger = Stranger::at(&first);
    let mut record = vec![stranger.wait()];
    let second = start(free_port(), free_port(), &[first.port], &[]);
    wait_for("a server's start", || field(second.http, "mirrors").is_some());
    let started = Instant::now();
    wait_for("an acquaintance", || {
        [&first, &second].iter().all(|server| field(server.http, "mirrors").as_deref() == Some("1"))
    });
    // A fraction of a second; but other tests may keep the computer busy.
    assert!(started.elapsed() < Duration::from_secs(10), "it took {:?}", started.elapsed());
    std::thread::sleep(Duration::from_secs(2));
    record.extend(stranger.hears.try_iter());
    drop((first, second, stranger));
    assert!(record.iter().any(|(key, _)| key.contains("/all/")), "there is more than greetings");

    let late = start(free_port(), free_port(), &[], &[]);
    wait_until_healthy(&late);
    let stranger = Stranger::at(&late);
    stranger.wait();
    std::thread::sleep(Duration::from_millis(500));
    for (key, payload) in record {
        stranger.session.put(key, payload).wait().expect("it is said");
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(field(late.http, "mirrors").as_deref(), Some("0"), "a ghost is believed in");
    }
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(field(late.http, "mirrors").as_deref(), Some("0"));
}
