//! Kim, Park: *A History Retransmission Algorithm for Online Arcade Video Games*.
//!
//! The paper does not say how long its link is. A lost command comes back after about three one-way delays and two intervals, and its results
//! (0.3 s is enough, 0.2 s is not) fit one-way delays of 56 to 88 ms; it is 65 ms here.

pub mod buffer;
pub mod delay_step;
pub mod overrun;
pub mod packets;
pub mod policies;
pub mod resync;
pub mod testbed;
