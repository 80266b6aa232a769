//! The people around a game: who is here, who sits where, who is ready, what they say to each other.
//!
//! One of them keeps the list: the host, and when it is gone whoever has the lowest seat, until that is gone, too. A seat belongs to a key: who has been there
//! once can come back to it, and nobody else can take it, as long as it was not given back. Everybody with a seat knows the whole
//! list, so that anyone can go on with it.
//!
//! All of it is pure: messages in, messages and events out.

mod keeper;
mod list;
mod message;
mod talk;

pub use keeper::Keeper;
pub use list::{Event, List, To};
pub use message::{
    Knock, MAX_LINE, MAX_NAME, MAX_PADS, MAX_PLACE, MAX_PLACES, Member, Message, Party, Refusal, VERSION, Wish,
};
pub(crate) use message::{places, tidy};
