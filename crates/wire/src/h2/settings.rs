//! SETTINGS of the peer (RFC 9113 §6.5).

use super::flow::{INITIAL, LARGEST};
use super::reason::{ErrorCode, ProtocolError};

/// Identifiers of settings (RFC 9113 §6.5.2).
pub mod id {
    /// Largest dynamic table of HPACK, in bytes.
    pub const HEADER_TABLE_SIZE: u16 = 1;
    /// Server push, 0 or 1.
    pub const ENABLE_PUSH: u16 = 2;
    /// Most streams that may be open.
    pub const MAX_CONCURRENT_STREAMS: u16 = 3;
    /// Initial window of streams, in bytes.
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
    /// Largest payload of a frame, in bytes.
    pub const MAX_FRAME_SIZE: u16 = 5;
    /// Largest field section, in bytes.
    pub const MAX_HEADER_LIST_SIZE: u16 = 6;
    /// Extended CONNECT, 0 or 1 (RFC 8441 §3).
    pub const ENABLE_CONNECT_PROTOCOL: u16 = 8;
    /// No priorities of RFC 7540, 0 or 1 (RFC 9218 §2.1).
    pub const NO_RFC7540_PRIORITIES: u16 = 9;
}

/// SETTINGS of the client. Its frame size and number of streams are ignored: larger frames are never sent, and
/// no streams are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Size limit of the HPACK table for responses, in bytes.
    pub table_size: usize,
    /// Initial window of streams, in bytes.
    pub window: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            table_size: super::hpack::TABLE_SIZE,
            window: INITIAL,
        }
    }
}

impl Settings {
    /// Applies the settings of a frame in their order; `set_table_size` receives each size of the HPACK table.
    ///
    /// Fails if a value is not allowed or a window overflows.
    pub fn take(
        &mut self,
        payload: &[u8],
        mut set_table_size: impl FnMut(usize),
    ) -> Result<(), ProtocolError> {
        for pair in payload.as_chunks::<6>().0 {
            let [a, b, value @ ..] = *pair;
            let value = u32::from_be_bytes(value);
            match u16::from_be_bytes([a, b]) {
                id::HEADER_TABLE_SIZE => {
                    self.table_size = value as usize;
                    set_table_size(self.table_size);
                }
                id::INITIAL_WINDOW_SIZE if value > LARGEST => {
                    let what = "a flow-control window above the maximum";
                    return Err(ProtocolError::Connection(ErrorCode::FlowControl, what));
                }
                id::INITIAL_WINDOW_SIZE => self.window = value,
                id::ENABLE_PUSH | id::ENABLE_CONNECT_PROTOCOL | id::NO_RFC7540_PRIORITIES
                    if value > 1 =>
                {
                    return Err(ProtocolError::protocol("a setting that is neither 0 nor 1"));
                }
                id::MAX_FRAME_SIZE if !(16_384..1 << 24).contains(&value) => {
                    return Err(ProtocolError::protocol("an invalid maximum frame size"));
                }
                // RFC 9113 §6.5.2: unknown settings are ignored.
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(pairs: &[(u16, u32)]) -> Result<Settings, ProtocolError> {
        let bytes = |&(id, value): &(u16, u32)| {
            let (id, value) = (id.to_be_bytes(), value.to_be_bytes());
            id.into_iter().chain(value)
        };
        let payload: Vec<u8> = pairs.iter().flat_map(bytes).collect();
        let mut settings = Settings::default();
        settings.take(&payload, |_| {}).map(|()| settings)
    }

    #[test]
    fn valid_settings_are_applied_and_others_refused() {
        let settings = taken(&[(1, 0), (4, 7), (4, LARGEST), (5, 16_384), (99, 5), (2, 0)]);
        let expected = Settings {
            table_size: 0,
            window: LARGEST,
        };
        assert_eq!(settings, Ok(expected));
        for (pair, reason) in [
            ((2, 2), ErrorCode::Protocol),
            ((4, LARGEST + 1), ErrorCode::FlowControl),
            ((5, 16_383), ErrorCode::Protocol),
            ((5, 1 << 24), ErrorCode::Protocol),
            ((8, 2), ErrorCode::Protocol),
            ((9, 2), ErrorCode::Protocol),
        ] {
            let refused = taken(&[pair]);
            assert!(
                matches!(refused, Err(ProtocolError::Connection(is, _)) if is == reason),
                "{refused:?}"
            );
        }
    }
}
