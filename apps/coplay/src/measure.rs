//! `coplay measure-link` and `coplay measure-machine`: hidden commands that print one line of measurements for
//! `coplay-lab feel`.

use std::io::{self, Write};

use coplay_machines::check::Fitness;
use coplay_net::runner::LinkReport;
use coplay_shell::error::AppError;

use crate::check;
use crate::cli::{CheckArgs, MeasureLinkArgs};
use crate::net::probe_link;

/// Measures the link to the host of a ticket. Prints the minimum round-trip time and its mean excess in nanoseconds,
/// the packet loss in one direction from 0 to 1, and the numbers of replies and of probes.
pub(crate) fn link(args: &MeasureLinkArgs) -> Result<(), AppError> {
    let LinkReport { min_rtt, jitter, loss, replies } = probe_link(&args.ticket, args.relay.clone())?;
    let (min_rtt, jitter) = (min_rtt.as_nanos(), jitter.as_nanos());
    coplay_shell::print_stdout(&format!("{min_rtt} {jitter} {loss} {} {}\n", replies.0, replies.1));
    Ok(())
}

/// Checks a machine, or takes the cached report. Prints the times to step a frame, to save a state and to load one in
/// nanoseconds, whether save states are exact, and the name of the game.
pub(crate) fn machine(args: &CheckArgs) -> Result<(), AppError> {
    let mut out = check::exclusive_stdout()?;
    let report = check::run_check(args, &mut io::sink())?;
    let Fitness { costs, can_save, .. } = report.fitness();
    let [step, save, load] = [costs.step, costs.save, costs.load].map(|time| time.as_nanos());
    // A closed pipe is not an error.
    _ = writeln!(out, "{step} {save} {load} {can_save} {}", report.identity.game).and_then(|()| out.flush());
    Ok(())
}
