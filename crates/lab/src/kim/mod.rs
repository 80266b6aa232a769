//! Experiments of Kim and Park: *A History Retransmission Algorithm for Online Arcade Video Games*.
//!
//! The paper does not state the delay of its link. A lost command is recovered after about three one-way delays and two
//! intervals, and the paper's results (an initial delay of 0.3 s is enough, 0.2 s is not) fit one-way delays of 56 to
//! 88 ms. We use 65 ms.

pub mod buffer;
pub mod buffer_overrun;
pub mod delay_step;
pub mod packets;
pub mod recovery_policies;
pub mod resync;
pub mod testbed;
