//! scratch
use coplay_sim::scenario::Scenario;
fn main() {
    for seed in std::env::args().skip(1).filter(|a| a != "--dbg") {
        let s = Scenario::new(seed.parse().unwrap());
        println!(
            "seed {seed}: sites {} lag {} rate {} rec {:?} pads {:?} floor {:.1}",
            s.sites,
            s.lag,
            s.rate,
            s.recovery,
            s.pads,
            s.speed_floor()
        );
        for (i, l) in s.links.iter().enumerate() {
            if i / s.sites != i % s.sites {
                println!(
                    "   {}>{} {:?} {:?} reorder {} {:?} dup {} {:?}",
                    i / s.sites,
                    i % s.sites,
                    match &l.delay {
                        coplay_sim::link::Delay::Recorded(d) => coplay_sim::link::Delay::Constant(d[0]),
                        o => o.clone(),
                    },
                    l.jitter,
                    l.reorder,
                    l.loss,
                    l.duplicate,
                    l.rate
                );
            }
        }
        println!("   clocks {:?} cost {:?}", s.clocks.iter().map(|c| c.skew_ppm).collect::<Vec<_>>(), s.step_cost);
        for f in &s.faults {
            println!("   {f:?}");
        }
        let p = s.play();
        println!(
            "   {:?} frames {} packets {} losses {} dropped {}",
            p.violations, p.frames, p.packets, p.losses, p.dropped
        );
    }
}
