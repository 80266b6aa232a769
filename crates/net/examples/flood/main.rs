//! Floods the UDP port of a running game with bad datagrams: garbage, truncated authentic ones, replayed ones, and
//! forged ones from the address of a player.
//!
//! The game must go on undisturbed. `coplay host --stats FILE` counts rejected datagrams, `--frame-log FILE` shows the
//! pacing. Use it only on ports of your own.

#[cfg(target_os = "linux")]
mod capture;
#[cfg(target_os = "linux")]
mod send;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    match run() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("error: this example requires Linux");
}

#[cfg(target_os = "linux")]
const HELP: &str = "\
usage: flood ADDRESS:PORT [--rate N] [--seconds N]

Sends bad datagrams to the UDP port of a running game of your own, --rate per second (200000) for --seconds (20), and
prints the number of each kind: garbage, truncated, replayed and spoofed. Replayed and spoofed datagrams, and truncated
authentic ones, require root and traffic to capture.";

#[cfg(target_os = "linux")]
struct Options {
    target: std::net::SocketAddrV4,
    rate: u64,
    seconds: f64,
}

#[cfg(target_os = "linux")]
fn options() -> Result<Option<Options>, lexopt::Error> {
    use lexopt::prelude::*;
    let (mut target, mut rate, mut seconds) = (None, 200_000, 20.0);
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("rate") => rate = parser.value()?.parse()?,
            Long("seconds") => seconds = parser.value()?.parse()?,
            Long("help") | Short('h') => return Ok(None),
            Value(value) if target.is_none() => target = Some(value.parse()?),
            _ => return Err(arg.unexpected()),
        }
    }
    Ok(target.map(|target| Options { target, rate, seconds }))
}

#[cfg(target_os = "linux")]
fn run() -> Result<(), Box<dyn std::error::Error>> {
    use send::AttackKind;
    let Some(options) = options()? else {
        println!("{HELP}");
        return Ok(());
    };
    let captured = match capture::capture(options.target) {
        Ok(captured) if captured.is_empty() => {
            println!("no datagram captured at {}: no replayed or spoofed ones are sent", options.target);
            captured
        }
        Ok(captured) => captured,
        Err(error) => {
            println!("cannot capture datagrams ({error}; root is required): no replayed or spoofed ones are sent");
            vec![]
        }
    };
    let mut flooder = send::Flooder::new(options.target, &captured)?;
    let result = flooder.run(options.rate, options.seconds);
    for kind in AttackKind::ALL {
        println!("{:<10} {}", kind.name(), result.count_of(kind));
    }
    println!("total      {}, {:.0} per second for {:.1} s", result.total(), result.rate(), result.seconds());
    Ok(())
}
