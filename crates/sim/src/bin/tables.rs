//! Prints measurements of sessions as tables: even pacing beside the published algorithms over round-trip time (Zhao et
//! al., Figures 1 and 2), the effect of input delay and prediction, traffic by number of sites and loss, and the bytes
//! and stalls of three recovery policies.

use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::process::ExitCode;

use coplay::input::{InputWord, Recovery};
use coplay::session::SendPolicy;
use coplay::time::TimeDelta;
use coplay_links::link::{LinkConfig, Loss};
use coplay_sim::session_experiment::SessionExperiment;

fn main() -> ExitCode {
    if let Some(arg) = std::env::args().nth(1) {
        eprintln!("error: unexpected argument {arg:?}\nhint: run `tables` without arguments");
        return ExitCode::from(2);
    }
    for table in [pacing_table, prediction_table, bandwidth_table, recovery_table] {
        let mut text = String::new();
        table(&mut text).expect("writing to a string does not fail");
        // The reader may have closed the pipe, as under `head`.
        if writeln!(std::io::stdout(), "{text}").is_err() {
            break;
        }
    }
    ExitCode::SUCCESS
}

fn ms(millis: i64) -> TimeDelta {
    TimeDelta::from_millis(millis)
}

fn pacing_table(out: &mut String) -> fmt::Result {
    let paper = SessionExperiment::as_published(LinkConfig::perfect());
    let SendPolicy::Timer(timer) = paper.sending else { unreachable!("the paper uses a send timer") };
    writeln!(
        out,
        "Pacing: 2 sites, input delay 6 frames at 60 fps, 3,600 frames. In ms; dev = mean absolute deviation of the frame time,"
    )?;
    writeln!(out, "sync = mean difference between the two sites' starts of the same frame.")?;
    writeln!(
        out,
        "ours: a frame starts just before its step. paper: Algorithms 3 and 4, a frame starts in BeginFrameTiming,"
    )?;
    writeln!(out, "send timer {timer}, thread delay 0 to {}, step {}.", paper.max_send_delay, paper.step_cost)?;
    writeln!(out, "          ours                           paper")?;
    writeln!(out, " RTT    frame    dev   sync    fps     frame  dev master  dev slave   sync")?;
    for rtt in (0..=200).step_by(10).chain([210, 220, 230, 240, 250, 300, 350, 400]) {
        let link = LinkConfig::constant_rtt(ms(rtt));
        let ours = SessionExperiment::new(link.clone()).run();
        let paper = SessionExperiment::as_published(link).run();
        assert!(ours.states_equal && ours.is_complete && paper.states_equal, "the sites diverged at RTT {rtt} ms");
        writeln!(
            out,
            "{rtt:4}   {:6.2} {:6.3} {:6.3} {:6.2}    {:6.2}      {:6.2}     {:6.2} {:6.2}",
            ours.mean_frame_ms[0],
            ours.worst_deviation_ms(),
            ours.synchrony_ms,
            ours.fps(),
            paper.mean_frame_ms[0],
            paper.deviation_ms[0],
            paper.deviation_ms[1],
            paper.synchrony_ms,
        )?;
    }
    Ok(())
}

/// Prediction windows in frames, one per column group.
const PREDICTION_WINDOWS: [u32; 3] = [0, 8, 16];

fn prediction_table(out: &mut String) -> fmt::Result {
    writeln!(out, "Prediction: 2 sites at 60 fps, 2-byte inputs changing every 8 frames on average, 3,600 frames.")?;
    writeln!(
        out,
        "dev = mean absolute deviation of the frame time at the worse site; own, other = latency of an input at its own"
    )?;
    writeln!(out, "site and at the other, all in ms; resim = resimulated frames per 100, at each site.")?;
    for input_delay in [0, 2, 6] {
        write!(out, "\ninput delay {input_delay} frames\n     ")?;
        PREDICTION_WINDOWS.iter().try_for_each(|prediction_window| {
            write!(out, "{:37}", format!("   prediction window {prediction_window}"))
        })?;
        write!(out, "\n RTT ")?;
        PREDICTION_WINDOWS.iter().try_for_each(|_| write!(out, "     fps   dev   own other      resim"))?;
        writeln!(out)?;
        for rtt in (0..=500).step_by(50) {
            write!(out, "{rtt:4} ")?;
            PREDICTION_WINDOWS
                .iter()
                .try_for_each(|prediction_window| prediction_cells(out, rtt, input_delay, *prediction_window))?;
            writeln!(out)?;
        }
    }
    Ok(())
}

fn prediction_cells(out: &mut String, rtt: i64, input_delay: u32, prediction_window: u32) -> fmt::Result {
    let result = SessionExperiment {
        input_delay,
        prediction_window,
        ..SessionExperiment::new(LinkConfig::constant_rtt(ms(rtt)))
    }
    .run();
    assert!(
        result.states_equal && result.is_complete,
        "the sites diverged at RTT {rtt} ms, input delay {input_delay}, prediction window {prediction_window}"
    );
    write!(
        out,
        "  {:6.2} {:5.2} {:5.1} {:5.1} {:5.1} {:5.1}",
        result.fps(),
        result.worst_deviation_ms(),
        result.local_latency_ms[0],
        result.remote_latency_ms[0],
        result.resimulated_per_100[0],
        result.resimulated_per_100[1],
    )
}

fn lossy_link(rtt: i64, loss: f64) -> LinkConfig {
    LinkConfig { loss: Loss::Independent(loss), ..LinkConfig::constant_rtt(ms(rtt)) }
}

fn bandwidth_table(out: &mut String) -> fmt::Result {
    writeln!(
        out,
        "Traffic: input delay 6 frames, RTT 100 ms, 2-byte inputs changing every 8 frames on average, with probes and hashes."
    )?;
    writeln!(out, "sites   loss   datagrams/frame/link   bytes/datagram   stalled frames    fps")?;
    for sites in [2, 4, 8] {
        for loss in [0.0, 0.05, 0.2] {
            let result = SessionExperiment { sites, ..SessionExperiment::new(lossy_link(100, loss)) }.run();
            writeln!(
                out,
                "{sites:5}  {:4.0} %   {:20.3}   {:14.2}   {:12.2} %   {:5.2}",
                loss * 100.0,
                result.packets_per_frame,
                result.bytes_per_packet,
                result.stall_ratio * 100.0,
                result.fps(),
            )?;
        }
    }
    Ok(())
}

fn recovery_table(out: &mut String) -> fmt::Result {
    writeln!(
        out,
        "Recovery: 2 sites, input delay 12 frames; bytes per datagram and stalled frames, by policy. RTT in ms."
    )?;
    writeln!(out, "inputs   RTT   loss        redundant           history          adaptive")?;
    let inputs: [(&str, f64, InputWord); 2] = [("pad", 1.0 / 8.0, 0xffff), ("sticks", 0.9, (1 << 80) - 1)];
    for (name, change_probability, mask) in inputs {
        for (rtt, loss) in [(60, 0.01), (60, 0.1), (200, 0.01), (200, 0.1)] {
            write!(out, "{name:6}  {rtt:4}  {:4.0} %", loss * 100.0)?;
            for recovery in [Recovery::Redundant, Recovery::History, Recovery::Adaptive] {
                let link = lossy_link(rtt, loss);
                let experiment = SessionExperiment {
                    input_delay: 12,
                    recovery,
                    input_change_probability: change_probability,
                    input_mask: mask,
                    ..SessionExperiment::new(link)
                };
                let result = experiment.run();
                write!(out, "   {:6.1} B {:5.2} %", result.bytes_per_packet, result.stall_ratio * 100.0)?;
            }
            writeln!(out)?;
        }
    }
    Ok(())
}
