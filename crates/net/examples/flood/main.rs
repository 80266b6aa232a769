//! Throws bad datagrams at the UDP port of a running game, as many as it can bear: garbage, genuine ones cut short, genuine ones again,
//! and forged ones from the address of somebody who plays.
//!
//! The game must not notice: `coplay host --stats FILE` counts what was refused, `--frame-log FILE` shows the pace. Only for ports of one's own.

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
    eprintln!("error: this needs Linux");
}

#[cfg(target_os = "linux")]
const HELP: &str = "\
usage: flood ADDRESS:PORT [--rate N] [--seconds N]

Throws bad datagrams at the UDP port of a running game of your own, N a second (200000) for N seconds (20), and says how many of each
kind: garbage, truncated, replayed and spoofed. The last two, and truncated ones that are genuine, need root and traffic to listen to.";

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
    let genuine = match capture::capture(options.target) {
        Ok(genuine) if genuine.is_empty() => {
            println!("nothing genuine came to {}: replayed and spoofed ones are left out", options.target);
            genuine
        }
        Ok(genuine) => genuine,
        Err(error) => {
            println!("cannot listen to others ({error}; it needs root): replayed and spoofed ones are left out");
            vec![]
        }
    };
    let mut thrower = send::Flooder::new(options.target, &genuine)?;
    let thrown = thrower.run(options.rate, options.seconds);
    for kind in AttackKind::ALL {
        println!("{:<10} {}", kind.name(), thrown.count_of(kind));
    }
    println!("in all     {}, {:.0} a second for {:.1} s", thrown.total(), thrown.rate(), thrown.seconds());
    Ok(())
}
