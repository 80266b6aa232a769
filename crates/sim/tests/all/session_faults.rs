//! Random session scenarios with faults keep every property. Sabotaged engines do not, and the checker detects them.

use coplay_sim::session::scenario::SessionScenario;
use coplay_sim::site::SessionSabotage;

const REPLAY: &str = "cargo run --release -p coplay-sim --bin swarm -- --seed";

fn assert_no_violations(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let outcome = SessionScenario::new(seed).run();
        assert!(outcome.violations.is_empty(), "{:#?}\nreplay: {REPLAY} {seed}", outcome.violations);
        assert!(outcome.virtual_seconds >= 22.0, "seed {seed} did not run to its end");
    }
}

#[test]
fn session_scenarios_0_to_74_have_no_violations() {
    assert_no_violations(0..75);
}

#[test]
fn session_scenarios_75_to_149_have_no_violations() {
    assert_no_violations(75..150);
}

/// Seed 5205358: of three sites, site 2 is dropped as slow, the link between 0 and 1 is cut, and 0 leaves. Site 1
/// cannot know of the leave, is not the lowest of the two sites, and has to wait.
#[test]
fn site_that_cannot_receive_a_leave_may_wait() {
    assert_no_violations(5_205_358..5_205_359);
}

/// Seed 5450728: site 2 of three sites joined late. It drops site 1 and crashes before site 0 learns of the drop. Site
/// 0 alone is no quorum of three and may wait.
#[test]
fn site_without_quorum_including_late_joiners_may_wait() {
    assert_no_violations(5_450_728..5_450_729);
}

/// Seed 5452176: inputs are requested in packets of their own, and 20 % of all packets are lost. Several requests and
/// answers in a row are lost, and the coordinator drops a site that has no other fault.
#[test]
fn site_whose_input_requests_are_lost_may_be_dropped_as_slow() {
    assert_no_violations(5_452_176..5_452_177);
}

/// Seeds 90012580 and 90017259: the link between two of three sites is cut for good, and they drop the third site,
/// which relayed between them. The two need not play on.
#[test]
fn partitioned_sites_need_not_play() {
    assert_no_violations(90_012_580..90_012_581);
    assert_no_violations(90_017_259..90_017_260);
}

/// Seed 91045598: the two lowest remaining sites cannot reach each other, and nothing new is relayed while the game is
/// frozen. After a ballot that dropped no site, they must not consider each other crashed, too.
#[test]
fn dead_sites_are_dropped_when_the_two_lowest_are_cut_off_from_each_other() {
    assert_no_violations(91_045_598..91_045_599);
}

/// Seeds 92014042 and 92018165: a site leaves while another is dropped with fewer inputs than the leaver has stepped
/// with. No site reports that their states differ, because a leaver is no longer compared.
#[test]
fn leaver_is_not_compared_with_later_decisions() {
    assert_no_violations(92_014_042..92_014_043);
    assert_no_violations(92_018_165..92_018_166);
}

/// Seeds 92050414 and 5503274: the lower of two sites drops the other, crashes, and rejoins the site that it had
/// dropped, which never learned of the drop. That violates nothing.
#[test]
fn crashed_site_may_rejoin_the_peer_it_had_dropped() {
    assert_no_violations(92_050_414..92_050_415);
    assert_no_violations(5_503_274..5_503_275);
}

/// Seed 93049754: the site that sends its frames to a joiner drops another player, crashes, and rejoins that player,
/// whose game lacks the last frames of the crashed site. The joiner has continued from those frames, and must follow
/// the game that remains.
#[test]
fn late_joiner_follows_the_surviving_history() {
    assert_no_violations(93_049_754..93_049_755);
}

/// Seeds 90016705, 92007491 and 95046980: a coordinator admits a joiner and crashes before any other site learns of it.
/// The others continue. The joiner must not regard its seat as final and stay frozen.
#[test]
fn late_joiner_whose_join_only_a_crashed_coordinator_knew_is_refused() {
    assert_no_violations(90_016_705..90_016_706);
    assert_no_violations(92_007_491..92_007_492);
    assert_no_violations(95_046_980..95_046_981);
}

/// Seed 93046343: the clock of a site stands still for 87 ms, which is less than a round trip. The other sites'
/// estimate of its offset must not stay between the offsets before and after, which would slow the game down.
#[test]
fn short_clock_suspension_does_not_slow_the_game() {
    assert_no_violations(93_046_343..93_046_344);
}

/// Seeds 93035690, 93053229, 93058380 and 93059551: every one-way latency exceeds the input delay, so that jitter
/// buffers are empty at every frame. No pause can fill a buffer then, and the sites must not pause.
#[test]
fn no_starvation_pauses_when_latency_exceeds_input_delay() {
    for seed in [93_035_690, 93_053_229, 93_058_380, 93_059_551] {
        assert_no_violations(seed..seed + 1);
    }
}

/// Seed 98008278: sites 0 and 1 are cut off from each other for good, and site 4 crashes. Site 1 no longer receives
/// from site 0 and proposes to drop both; the others refuse. Site 1 must not end every ballot without a drop just
/// before site 2 can lead one about site 4 alone.
#[test]
fn dead_site_is_dropped_by_a_third_leader_where_two_sites_are_cut_off_from_each_other() {
    assert_no_violations(98_008_278..98_008_279);
}

/// Seed 98030030: site 2 leaves during a partition and only site 1 has its last inputs. The coordinator must not charge
/// site 1 with the time that the ballot about site 2 takes, and drop it together with those inputs.
#[test]
fn survivor_of_a_ballot_is_not_dropped_for_the_time_the_ballot_took() {
    assert_no_violations(98_030_030..98_030_031);
}

/// Seed 98020740: two sites are cut off from each other for good 0.2 s after the first moment in which all sites could
/// reach each other. The lobby cannot agree.
#[test]
fn lobby_need_not_start_where_two_sites_were_cut_off_before_they_could_agree() {
    assert_no_violations(98_020_740..98_020_741);
}

/// Seed 99050331: a partition heals while a ballot drops site 2, and site 1 has accepted that outcome. Site 2 cannot
/// confirm its own eviction, and must not lead every later ballot.
#[test]
fn site_that_may_be_dropped_lets_the_others_lead_the_next_ballot() {
    assert_no_violations(99_050_331..99_050_332);
}

/// Seed 99041182: site 1 leads a ballot to drop site 0, which leaves, and site 2 leaves before it votes. Site 1 must
/// not keep site 0 muted and freeze for good.
#[test]
fn ballot_without_possible_voters_is_abandoned() {
    assert_no_violations(99_041_182..99_041_183);
}

/// Seed 100030345: two of five sites have accepted an outcome that drops the other three, and a third site that would
/// have completed the quorum left before it voted. Later ballots must not propose that outcome for ever.
#[test]
fn outcome_that_no_quorum_can_have_accepted_is_passed_over() {
    assert_no_violations(100_030_345..100_030_346);
}

/// Seed 100005059: two sites would be dropped together, and a third site, which may have decided the drop, has crashed.
/// The two must not wait for each other to accept the drop.
#[test]
fn sites_that_are_dropped_together_do_not_wait_for_each_others_votes() {
    assert_no_violations(100_005_059..100_005_060);
}

/// Seed 96017571: a coordinator schedules the join of a site and leaves, which voids the command. A player refuses the
/// joiner, whose session ends. The next coordinator must not schedule the join again because of the old request.
#[test]
fn late_joiner_with_a_void_join_must_request_again() {
    assert_no_violations(96_017_571..96_017_572);
}

/// Seed 92025694: a coordinator schedules a join and crashes. The other players learn of the command, which is void in
/// the end; the joiner does not. The joiner must not count as a site that has lost its seat, and must be admitted.
#[test]
fn late_joiner_that_missed_a_void_join_can_still_join() {
    assert_no_violations(92_025_694..92_025_695);
}

/// Seeds 94004501 and 94013277: a coordinator sleeps while the others drop it, wakes up and admits a joiner. The joiner
/// must not keep that seat once the next coordinator admits it at another frame.
#[test]
fn late_joiner_uses_the_join_frame_the_others_agreed_on() {
    assert_no_violations(94_004_501..94_004_502);
    assert_no_violations(94_013_277..94_013_278);
}

/// Seed 94013967: two sites crash one after the other. The ballot to drop the first needs the vote of the second, so
/// that it drops no site. The second site must not count as reachable again because that ballot was not about it.
#[test]
fn two_sites_crashing_in_succession_are_dropped() {
    assert_no_violations(94_013_967..94_013_968);
}

/// Seed 94014353: the leader of a ballot accepts the decision to drop a site, and then that site resumes. If the
/// resumed site led the next ballot, it could only propose the same decision. It adopts its own drop only after all
/// other sites have accepted that decision, and the others would wait for its proposal. So another site must lead.
#[test]
fn site_that_may_be_dropped_lets_another_lead_the_ballot() {
    assert_no_violations(94_014_353..94_014_354);
}

/// Seed 610004868: two of three sites decide to drop the third, and one of the two leaves before the other one knows of
/// the decision. The site that was dropped and the remaining one must not decide otherwise without the leaver.
#[test]
fn a_decision_holds_after_one_of_its_sites_has_left() {
    assert_no_violations(610_004_868..610_004_869);
}

/// Seeds 90051572 and 95001638: the site whose machine diverged is restarted before its hashes have reached every site
/// that queries them. Those sites may report no first frame that differs.
#[test]
fn restarted_diverged_site_may_leave_hash_queries_unanswered() {
    assert_no_violations(90_051_572..90_051_573);
    assert_no_violations(95_001_638..95_001_639);
}

/// Seed 96018097: a site is dropped after 60 predicted frames and rejoins at once, at a frame far away. Its last inputs
/// must be in the feed before they are overwritten.
#[test]
fn last_inputs_of_an_immediate_rejoiner_are_in_the_feed() {
    assert_no_violations(96_018_097..96_018_098);
}

/// Seed 100009127: the corrupted machine belongs to a site that was dropped before. Its session is over, so there is no
/// desync to report.
#[test]
fn desync_of_a_dropped_site_is_not_expected_to_be_reported() {
    assert_no_violations(100_009_127..100_009_128);
}

/// Seeds 99059039 and 100042448: the coordinator that admitted a player is dropped long after the player's first frame.
/// The player stays admitted.
#[test]
fn player_stays_admitted_when_the_coordinator_that_admitted_it_is_dropped() {
    for seed in [99_059_039, 100_042_448] {
        assert_no_violations(seed..seed + 1);
    }
}

/// Seeds 100022104, 100022904 and 100059210: a coordinator that is cut off admits a joiner at a frame that does not
/// count, and the next coordinator admits the joiner at another frame. Only the second admission counts.
#[test]
fn joiner_that_a_dropped_coordinator_admitted_may_join_at_another_frame() {
    for seed in [100_022_104, 100_022_904, 100_059_210] {
        assert_no_violations(seed..seed + 1);
    }
}

/// Seed 310026161: the two sites of a game drop each other. Site 0 crashes and rejoins the game of site 1, which then
/// crashes, too. The inputs that site 0 gave before its crash end where site 1 dropped it.
#[test]
fn drop_by_a_site_that_outlives_the_dropped_one_counts() {
    assert_no_violations(310_026_161..310_026_162);
}

/// Seed 310045731: a site leaves while the coordinator is dead. It does not follow the drop of the coordinator, whose
/// admission of a joiner is void, so it must not report that the joiner plays.
#[test]
fn leaving_site_reports_no_joins() {
    assert_no_violations(310_045_731..310_045_732);
}

/// Seed 310047833: with measured send intervals, a packet that replaces a lost one may follow half of the input delay
/// later. The stalls of a lossy link add up to the stall limit.
#[test]
fn stalls_of_a_lossy_link_with_long_send_intervals_explain_a_drop() {
    assert_no_violations(310_047_833..310_047_834);
}

/// Seed 102058851: a joiner is admitted twice, and a late tick acknowledges inputs of its first admission. The joiner
/// must send all inputs of its second admission nevertheless.
#[test]
fn acknowledgement_from_before_the_last_admission_is_corrected() {
    assert_no_violations(102_058_851..102_058_852);
}

/// Seed 99032773: the clock of a suspended joiner stood still. Until the joiner notices that, the others' pacing plan
/// seems to lie 6 s ahead. The joiner, for whose inputs all sites wait, must not wait for that plan.
#[test]
fn joiner_that_is_behind_does_not_wait_for_a_wrong_plan() {
    assert_no_violations(99_032_773..99_032_774);
}

/// Seeds 91032417, 92023922, 93023266 and 96009429: a loss burst holds up the game for longer than the stall limit. The
/// coordinator may drop the site behind that link as slow.
#[test]
fn site_with_a_long_loss_burst_may_be_dropped_as_slow() {
    for seed in [91_032_417, 92_023_922, 93_023_266, 96_009_429] {
        assert_no_violations(seed..seed + 1);
    }
}

/// Seed 110049567: a leaving site is slow, and has published frames with its last inputs. No player may evict it
/// together with these inputs, because a joiner that has stepped the published frames would diverge.
#[test]
fn leaving_site_is_not_evicted_for_stalling() {
    assert_no_violations(110_049_567..110_049_568);
}

/// Seeds 91009486 and 120037147: the links slow down the game to 1 and 8 fps, and two joiners wait for frames. They
/// must be admitted in time nevertheless.
#[test]
fn joiners_of_a_slow_game_are_admitted_in_time() {
    for seed in [91_009_486, 120_037_147] {
        assert_no_violations(seed..seed + 1);
    }
}

/// Seed 120058709: a joiner subscribes to a site that was refused in the lobby and never plays. That site must not
/// serve the joiner.
#[test]
fn refused_site_serves_no_joiner() {
    assert_no_violations(120_058_709..120_058_710);
}

/// Seeds 130014501 and 130056594: all players wait for a joiner that needs the last confirmed frames from their feed.
/// The feed must publish them while the game waits.
#[test]
fn feed_publishes_confirmed_frames_while_the_game_waits() {
    for seed in [130_014_501, 130_056_594] {
        assert_no_violations(seed..seed + 1);
    }
}

/// Seeds 5504839, 95008699, 95040401 and 96000771: all links are longer than input delay and prediction window, so slow
/// sites are evicted after the recovery deadline. The game may stand still during each of these ballots.
#[test]
fn game_stands_still_while_slow_sites_are_evicted() {
    for seed in [5_504_839, 95_008_699, 95_040_401, 96_000_771] {
        assert_no_violations(seed..seed + 1);
    }
}

/// Seeds 92046216 and 95011572: a link is shorter for a moment. Until the clock estimate has forgotten that, the link
/// seems longer than it is afterwards, and the pacer slows down the game. The game must be at full speed again in time.
#[test]
fn link_that_was_shorter_for_a_moment_is_forgotten_in_time() {
    for seed in [92_046_216, 95_011_572] {
        assert_no_violations(seed..seed + 1);
    }
}

/// Returns the properties that one site with `sabotage` violates in the first 60 seeds, counting only the first
/// violation of each seed that is not about a diverged machine.
fn violated_properties(sabotage: SessionSabotage) -> Vec<String> {
    let play = |seed: u64| SessionScenario { sabotage: Some(sabotage), ..SessionScenario::new(seed) }.run();
    // Where a machine diverges as well, the sabotage also falsifies the desync reports.
    let is_counted = |violation: &String| !violation.starts_with("divergence");
    let first = |seed: u64| play(seed).violations.into_iter().find(is_counted);
    let property = |violation: String| violation.split(':').next().unwrap_or_default().to_owned();
    (0..60).filter_map(first).map(property).collect()
}

#[test]
fn replaced_input_sabotage_is_detected() {
    // Some sabotaged packets cannot be decoded at all. Then the game stops, which the checker reports as a liveness
    // violation.
    let (expected, stopped): (Vec<_>, Vec<_>) =
        violated_properties(SessionSabotage::ReplaceInput).into_iter().partition(|property| property != "liveness");
    assert!(expected.len() > 10 * stopped.len() && expected.len() >= 30, "{expected:?} and {stopped:?}");
    assert!(expected.iter().all(|property| property == "agreement" || property == "fidelity"), "{expected:?}");
}

#[test]
fn input_delay_off_by_one_sabotage_is_detected() {
    let violated = violated_properties(SessionSabotage::InputDelayOffByOne);
    assert!(!violated.is_empty(), "no violation was detected");
    assert!(violated.iter().all(|property| property == "fidelity"), "{violated:?}");
}

#[test]
fn missing_retransmission_sabotage_is_detected() {
    let violated = violated_properties(SessionSabotage::NoRetransmit);
    assert!(!violated.is_empty(), "no violation was detected");
    assert!(violated.iter().all(|property| property == "liveness"), "{violated:?}");
}

/// A site that continues without a quorum violates agreement in at least six seeds, and in more than a third of the
/// seeds with a violation.
#[test]
fn split_brain_sabotage_is_detected() {
    let violated = violated_properties(SessionSabotage::ContinueWithoutQuorum);
    let agreement = violated.iter().filter(|property| *property == "agreement").count();
    assert!(agreement >= 6 && agreement * 3 > violated.len(), "{violated:?}");
}

#[test]
fn session_seed_gives_the_same_trace_every_time() {
    for seed in 0..12 {
        let traces = [0, 1].map(|_| SessionScenario::new(seed).run().trace_hash);
        assert_eq!(traces[0], traces[1], "seed {seed}");
        assert_ne!(traces[0], SessionScenario::new(seed + 1).run().trace_hash, "seeds {seed} and {}", seed + 1);
    }
}
