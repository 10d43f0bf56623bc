//! Files from one sender to many receivers, over a WEBRC session.
//!
//! | module | what it holds |
//! |---|---|
//! | [`sdp`], [`load`] | the description of a session, and how a receiver gets it |
//! | [`files`] | the files of a sender, bundles of small ones, and the folder of a receiver |
//! | [`sending`] | a sender's session from its options to its end |
//! | [`session`] | packets: sending, sealing, receiving |
//! | [`completion`] | reports of receivers that have all files |

pub mod completion;
pub mod files;
pub mod load;
pub mod sdp;
pub mod sending;
pub mod session;
