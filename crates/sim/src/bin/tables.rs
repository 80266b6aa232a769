//! The papers' pacing experiment and the cost on the wire, as tables on standard output.

use coplay::time::TimeDelta;
use coplay_sim::link::LinkConfig;
use coplay_sim::measure::Experiment;

fn main() {
    println!("RTT   ours: frame dev sync longest stalls | paper: frame dev(master) dev(slave) sync");
    for rtt in (0..=200).step_by(10).chain([240, 250, 300, 350, 400]) {
        let link = LinkConfig::constant_rtt(TimeDelta::from_millis(rtt));
        let ours = Experiment::new(link.clone()).run();
        let paper = Experiment::as_published(link).run();
        println!(
            "{rtt:4}  {:6.2} {:6.3} {:6.3} {:6.2} {:6.3} | {:6.2} {:6.3} {:6.3} {:6.2} {}",
            ours.frame_ms[0],
            ours.worst_deviation_ms(),
            ours.synchrony_ms,
            ours.longest_ms,
            ours.stalls,
            paper.frame_ms[0],
            paper.deviation_ms[0],
            paper.deviation_ms[1],
            paper.synchrony_ms,
            ours.states_equal && ours.complete && paper.states_equal
        );
    }
}
