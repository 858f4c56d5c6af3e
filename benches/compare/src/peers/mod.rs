//! One file for each store.

#[cfg(feature = "rocksdb")]
pub mod rocksdb;

pub mod canopydb;
pub mod eventlog;
pub mod fjall;
pub mod floor;
pub mod jsonl;
pub mod lmdb;
pub mod okaywal;
pub mod redb;
pub mod sqlite;
